"""Flight-recorder dumps of torch.distributed, read as plain data.

Example:
    dumps, problems = read_folder(Path("dumps"))      dumps[3].steps[group][17]

A dump is what ProcessGroupNCCL writes on a timeout, or `_dump_fr_trace()` and `_dump_fr_trace_json()` return: format 2
of torch/csrc/distributed/c10d/FlightRecorder.hpp. Nothing is unpickled: one that names a global is refused. gloo sets
no state and writes no membership: `retired` says that the work ended, well or not, and a group's ranks are unknown.
"""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt.checkpoint.formats import pickles
from rgt.checkpoint.formats.container import Cursor, Window
from rgt.checkpoint.layout import Broken
from rgt.errors import bad_input, from_os_error
from rgt.report import Finding

MAX_BYTES = 64 << 20  # of one dump: 2,000 entries with their stacks have 1 MB
MAX_ENTRIES = 2_000_000  # of all dumps together, about 500 MB here
_RANK = re.compile(r"(\d{1,7})(?:\.(?:json|pkl|pickle|bin|trace))?$")
_RANKS_TEXT = re.compile(r"\[[\d, ]*\]")
_P2P = re.compile(r"(send|recv) (\d+)(->|<-)(\d+)$")
_LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python\d|[/\\]torch[/\\]|^<")

Signature = tuple[Any, ...]  # operation, sizes and dtypes that must agree on all ranks


@dataclass(frozen=True)
class Group:
    name: str
    desc: str
    ranks: tuple[int, ...] = ()  # empty: the dump does not say (gloo)

    def __str__(self) -> str:
        return f"group {self.name!r}" + (f" ({self.desc})" if self.desc not in ("", "undefined") else "")


@dataclass(slots=True)
class Step:
    """What one rank did under one sequence number: one collective, or several that were coalesced."""

    seq: int
    signature: Signature
    shown: str
    site: str  # file:line of the program
    done: bool | None  # None: ended, well or not (gloo)
    time: int  # ns


@dataclass(slots=True)
class Transfer:
    """A send or a receive; `source` and `target` are ranks in the group."""

    group: Group
    sends: bool
    source: int
    target: int
    step: Step


@dataclass
class Dump:
    rank: int
    path: str
    steps: dict[Group, dict[int, Step]] = field(default_factory=dict)
    transfers: list[Transfer] = field(default_factory=list)
    world: tuple[int, ...] = ()  # ranks that its groups name
    lost: int = 0  # older entries that the ring buffer has overwritten
    count: int = 0

    @property
    def times(self) -> list[int]:
        return [step.time for steps in self.steps.values() for step in steps.values()]

    def waiting(self) -> dict[Group, Step]:
        """Per group, the first collective that did not complete; with gloo the very last may have failed, too."""
        found: dict[Group, Step] = {}
        last = max(self.times, default=0)
        for group, steps in self.steps.items():
            stuck = [step for step in steps.values() if step.done is False or (step.done is None and step.time == last)]
            if stuck:
                found[group] = min(stuck, key=lambda step: step.seq)
        return found


def read_folder(folder: Path) -> tuple[dict[int, Dump], list[Finding]]:
    """The dump of each rank (the newest, when there are several), and what could not be used."""
    if not folder.is_dir():
        raise bad_input(f"{folder} is not a folder; --flight wants the one that holds the dumps of all ranks")
    dumps: dict[int, Dump] = {}
    problems: list[Finding] = []
    others, total = 0, 0
    for path in sorted(path for path in folder.rglob("*") if not path.is_dir()):
        match = _RANK.search(path.name)
        if not match:
            others += 1
            continue
        try:
            if total > MAX_ENTRIES:
                raise Broken("bounds", f"more than {MAX_ENTRIES:,} entries; give fewer ranks at once")
            dump = read_dump(path, int(match[1]))
        except Broken as error:
            severity = "error" if error.problem.code == "refused-global" else "warn"
            problems.append(Finding(error.problem.code, severity, error.problem.message, path=str(path)))
            continue
        total += dump.count
        rival = dumps.get(dump.rank)
        if rival:
            dump, left = sorted((dump, rival), key=lambda one: (max(one.times, default=0), one.path), reverse=True)
            message = f"rank {dump.rank} has two dumps; this one is not newer than {dump.path} and was left out"
            problems.append(Finding("duplicate", "info", message, path=left.path))
        dumps[dump.rank] = dump
    if not dumps and not problems:
        advice = "a name ends with the rank, as in comm_lib_trace_rank_3 or rank_3.json"
        raise bad_input(f"{folder} holds no flight-recorder dump ({others} other files): {advice}")
    return dumps, problems


def read_dump(path: Path, rank: int) -> Dump:
    """One file; Broken says what is wrong with it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO must not hold us up
    except OSError as error:
        raise Broken("unreadable", from_os_error(error, "read it").message) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Broken("unreadable", "not a regular file")
        if status.st_size > MAX_BYTES:
            raise Broken("bounds", f"{status.st_size:,} bytes; a dump has at most {MAX_BYTES:,}")
        window = Window(descriptor, 0, status.st_size)
        is_json = window.read(0, min(status.st_size, 64)).lstrip()[:1] == b"{"
        data = _from_json(window.read(0, status.st_size)) if is_json else _from_pickle(window)
    finally:
        os.close(descriptor)
    if not isinstance(data, dict) or "version" not in data:
        raise Broken("malformed", "not a flight-recorder dump: it has no version")
    try:
        return _dump_from(data, rank, str(path))
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        shown = f"{type(error).__name__}: {error}"[:120]
        raise Broken("malformed", f"not the flight recorder's format 2 ({shown})") from None


def _from_pickle(window: Window) -> Any:
    pickle = pickles.read(Cursor(window, 0, MAX_BYTES))
    if pickle.globals or pickle.faults:
        names = ", ".join(sorted(pickle.globals)[:3]) or "a call of an unnamed object"
        raise Broken("refused-global", f"its pickle names {names}: a dump is plain data; not run, not used")
    return pickle.root


def _from_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Broken("malformed", f"not whole JSON: {error}"[:200]) from None


def _dump_from(data: dict[str, Any], rank: int, path: str) -> Dump:
    dump, members = Dump(rank, path), {}
    for name, config in data.get("pg_config", {}).items():
        text = str(config["ranks"])
        members[str(name)] = tuple(map(int, re.findall(r"\d+", text))) if _RANKS_TEXT.fullmatch(text) else ()
    dump.world = tuple(sorted({one for ranks in members.values() for one in ranks}))
    sizes: dict[int, Any] = {}  # lists that a pickle shares are converted once
    for entry in data.get("entries", []):
        name, desc = (str(part)[:200] for part in entry["process_group"])
        group = Group(name, desc, members.get(name, ()))
        seq = int(entry["p2p_seq_id"] if entry.get("is_p2p") else entry["collective_seq_id"])
        step = _step(entry, seq, sizes)
        dump.count += 1
        dump.lost = max(int(entry["record_id"]), 0) if dump.count == 1 else dump.lost
        match = _P2P.match(step.signature[0])
        if match:
            here, there = int(match[2]), int(match[4])
            source, target = (here, there) if match[1] == "send" else (there, here)
            dump.transfers.append(Transfer(group, match[1] == "send", source, target, step))
        elif not entry.get("is_p2p"):
            steps = dump.steps.setdefault(group, {})
            steps[seq] = _coalesced(steps[seq], step) if seq in steps else step
    return dump


def _step(entry: dict[str, Any], seq: int, sizes: dict[int, Any]) -> Step:
    """One entry. What may differ from rank to rank by design (scatter's input, an uneven all-to-all) is left out."""
    backend, _, op = str(entry["profiling_name"])[:200].rpartition(":")

    def plain(key: str) -> tuple[Any, ...]:
        values = entry.get(key) or []
        if id(values) not in sizes:
            sizes[id(values)] = tuple(
                tuple(map(int, v)) if isinstance(v, (list, tuple)) else str(v)[:40] for v in values
            )
        return sizes[id(values)]  # type: ignore[no-any-return]

    inputs, outputs = ((plain(f"{side}_sizes"), plain(f"{side}_dtypes")) for side in ("input", "output"))
    uneven = "to_all" in op or "alltoall" in op or op.endswith("_v")
    compared = (op, () if uneven or op == "scatter" else inputs, () if uneven or op == "gather" else outputs)
    shape = " ".join("x".join(map(str, size)) or "scalar" for size in inputs[0][:4])
    shape = " ".join(filter(None, [shape, "..." if len(inputs[0]) > 4 else "", *sorted(set(inputs[1]))]))
    ended = backend == "gloo" and bool(entry.get("retired"))
    done = True if entry["state"] == "completed" else None if ended else False
    frames = [f"{frame['filename']}:{frame['line']}" for frame in entry.get("frames") or []]
    site = next((frame for frame in frames if not _LIBRARY.search(frame)), frames[-1] if frames else "")
    return Step(seq, compared, f"{op} [{shape}]" if shape else op, site[:300], done, int(entry["time_created_ns"]))


def _coalesced(first: Step, more: Step) -> Step:
    shown = first.shown if first.shown.endswith("...") else f"{first.shown} + {more.shown}"
    shown = shown if len(shown) < 120 else f"{shown[:120]} ..."
    signature, site = (*first.signature, *more.signature), first.site or more.site
    done = first.done if more.done else more.done
    return Step(first.seq, signature, shown, site, done, first.time)
