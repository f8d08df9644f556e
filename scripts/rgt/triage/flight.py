"""Flight-recorder dumps of torch.distributed: who is behind, at which collective, and who runs another program.

Example:
    report, summary = judge(*read_folder(Path("dumps")))

A dump is what ProcessGroupNCCL writes on a timeout, or `_dump_fr_trace()` and `_dump_fr_trace_json()` return: format 2
of torch/csrc/distributed/c10d/FlightRecorder.hpp. Nothing is unpickled: one that names a global is refused. gloo sets
no state and writes no membership: `retired` says that the work ended, well or not, and a group's ranks are unknown.

Per process group: the first sequence number at which the ranks differ is the cause, what follows is aftermath. Where
they agree, the rank that has not called what the others wait in is the cause. Sends and receives are not judged.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt import files
from rgt.catalogue import entries as catalogue
from rgt.checkpoint.formats import pickles
from rgt.checkpoint.formats.container import Cursor, Window
from rgt.checkpoint.layout import Broken
from rgt.errors import RgtError, bad_input
from rgt.report import SEVERITIES, Finding, Report
from rgt.walk import walk

MAX_BYTES = 64 << 20  # of one dump: 2,000 entries with their stacks have 1 MB
MAX_ENTRIES = 2_000_000  # of all dumps together, about 500 MB here
_RANK = re.compile(r"(\d{1,7})(?:\.(?:json|pkl|pickle|bin|trace))?$")
_RANKS_TEXT = re.compile(r"\[[\d, ]*\]")
_LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python\d|[/\\]torch[/\\]|^<")
_AHEAD = 64  # collectives that are compared behind the first difference
_ADVICE = {
    "shape": "Same shape on all ranks: pad or drop the last batch, or exchange the sizes first.",
    "dtype": "Cast on all ranks or on none; autocast inside `if rank` is the usual way to differ.",
    "order": "The same order on all ranks: no iteration over a set, no branch on data or rank.",
}


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
    signature: tuple[Any, ...]  # operation, sizes and dtypes that must agree on all ranks
    shown: str
    site: str  # file:line of the program
    done: bool | None  # None: ended, well or not (gloo)
    time: int  # ns


@dataclass
class Dump:
    rank: int
    path: str
    steps: dict[Group, dict[int, Step]] = field(default_factory=dict)
    world: tuple[int, ...] = ()  # ranks that its groups name
    lost: int = 0  # older entries that the ring buffer has overwritten
    count: int = 0

    @property
    def newest(self) -> int:
        return max((step.time for steps in self.steps.values() for step in steps.values()), default=0)

    def waiting(self) -> dict[Group, Step]:
        """Per group, the first collective that did not complete; with gloo the very last may have failed, too."""
        last = self.newest
        stuck: dict[Group, Step] = {}
        for group, steps in self.steps.items():
            for step in sorted(steps.values(), key=lambda step: step.seq):
                if step.done is False or (step.done is None and step.time == last):
                    stuck.setdefault(group, step)
        return stuck


# -- reading


def read_folder(folder: Path) -> tuple[dict[int, Dump], list[Finding]]:
    """The dump of each rank (the newest, when there are several), and what could not be used."""
    if not folder.is_dir():
        raise bad_input(f"{folder} is not a folder; --flight wants the one that holds the dumps of all ranks")
    dumps: dict[int, Dump] = {}
    problems: list[Finding] = []
    total = 0
    for path in sorted(Path(entry.path) for _, entry, _ in walk(str(folder), links=False)):
        match = _RANK.search(path.name)
        if not match:
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
        rival = dumps.get(dump.rank, dump)
        dump, left = (dump, rival) if dump.newest > rival.newest else (rival, dump)
        dumps[dump.rank] = dump
        if dump is not left:
            message = f"rank {dump.rank} has two dumps; this one is not newer than {dump.path} and was left out"
            problems.append(Finding("duplicate", "info", message, path=left.path))
    if not dumps and not problems:
        advice = "a name ends with the rank, as in comm_lib_trace_rank_3 or rank_3.json"
        raise bad_input(f"{folder} holds no flight-recorder dump: {advice}")
    return dumps, problems


def read_dump(path: Path, rank: int) -> Dump:
    """One file; Broken says what is wrong with it."""
    try:
        with files.open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_BYTES:
                raise Broken("bounds", f"{size:,} bytes; a dump has at most {MAX_BYTES:,}")
            window = Window(file.fileno(), 0, size)
            is_json = window.read(0, min(size, 64)).lstrip()[:1] == b"{"
            data = json.loads(window.read(0, size)) if is_json else _from_pickle(window)
        if not isinstance(data, dict) or "version" not in data:
            raise Broken("malformed", "not a flight-recorder dump: it has no version")
        return _dump_from(data, rank, str(path))
    except RgtError as error:
        raise Broken("unreadable", error.message) from None
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        shown = f"{type(error).__name__}: {error}"[:120]
        raise Broken("malformed", f"not the flight recorder's format 2 ({shown})") from None


def _from_pickle(window: Window) -> Any:
    pickle = pickles.read(Cursor(window, 0, MAX_BYTES))
    if pickle.globals or pickle.faults:
        names = ", ".join(sorted(pickle.globals)[:3]) or "a call of an unnamed object"
        raise Broken("refused-global", f"its pickle names {names}: a dump is plain data; not run, not used")
    return pickle.root


def _dump_from(data: dict[str, Any], rank: int, path: str) -> Dump:
    dump, members = Dump(rank, path), {}
    for name, config in data.get("pg_config", {}).items():
        text = str(config["ranks"])
        members[str(name)] = tuple(map(int, re.findall(r"\d+", text))) if _RANKS_TEXT.fullmatch(text) else ()
    dump.world = tuple(sorted({one for ranks in members.values() for one in ranks}))
    lists: dict[int, tuple[Any, ...]] = {}  # those that a pickle shares are converted once
    for entry in data.get("entries", []):
        dump.count += 1
        dump.lost = max(int(entry["record_id"]), 0) if dump.count == 1 else dump.lost
        if entry.get("is_p2p"):
            continue
        name, desc = (str(part)[:200] for part in entry["process_group"])
        step = _step(entry, lists)
        steps = dump.steps.setdefault(Group(name, desc, members.get(name, ())), {})
        if first := steps.get(step.seq):  # coalesced with it
            shown = f"{first.shown} + {step.shown}"
            first.shown = shown if len(shown) < 120 else f"{shown[:120]} ..."
            first.signature, first.site = (*first.signature, *step.signature), first.site or step.site
            first.done = first.done if step.done else step.done
        else:
            steps[step.seq] = step
    return dump


def _step(entry: dict[str, Any], lists: dict[int, tuple[Any, ...]]) -> Step:
    """One entry. What may differ from rank to rank by design (scatter's input, an uneven all-to-all) is left out."""
    backend, _, op = str(entry["profiling_name"])[:200].rpartition(":")

    def plain(key: str) -> tuple[Any, ...]:
        values = entry.get(key) or []
        if id(values) not in lists:
            lists[id(values)] = tuple(tuple(map(int, v)) if isinstance(v, list) else str(v)[:40] for v in values)
        return lists[id(values)]

    inputs, outputs = ((plain(f"{side}_sizes"), plain(f"{side}_dtypes")) for side in ("input", "output"))
    uneven = "to_all" in op or "alltoall" in op or op.endswith("_v")
    compared = (op, () if uneven or op == "scatter" else inputs, () if uneven or op == "gather" else outputs)
    shape = " ".join("x".join(map(str, size)) or "scalar" for size in inputs[0][:4])
    shape = " ".join(filter(None, [shape, "..." if len(inputs[0]) > 4 else "", *sorted(set(inputs[1]))]))
    ended = backend == "gloo" and bool(entry.get("retired"))
    done = True if entry["state"] == "completed" else None if ended else False
    frames = [f"{frame['filename']}:{frame['line']}" for frame in entry.get("frames") or []]
    site = next((frame for frame in frames if not _LIBRARY.search(frame)), frames[-1] if frames else "")[:300]
    shown, seq = f"{op} [{shape}]" if shape else op, int(entry["collective_seq_id"])
    return Step(seq, compared, shown, site, done, int(entry["time_created_ns"]))


# -- judging


@dataclass
class Case:
    """A group: the steps of its members that left a dump, and where each of them waits, in this group or another."""

    group: Group
    members: tuple[int, ...]
    steps: dict[int, dict[int, Step]]
    waits: dict[int, dict[Group, Step]]

    def last(self, rank: int) -> int:
        return max(self.steps[rank], default=0)

    def ahead_of(self, rank: int) -> list[int]:
        return [other for other in self.steps if self.last(other) > self.last(rank)]

    def held_by(self, rank: int) -> list[int]:
        """Who waits in this group for a call that this rank has not made."""
        return [other for other in self.ahead_of(rank) if self.group in self.waits[other]]

    def awaited_by(self, rank: int) -> list[int]:
        """Who has not called what this rank waits for in this group."""
        step = self.waits.get(rank, {}).get(self.group)
        return [other for other in self.steps if step and self.last(other) < step.seq]

    def first_call(self, rank: int) -> Step:
        """What the others called next, and this rank did not."""
        later = (one for other in self.ahead_of(rank) for one in self.steps[other].values())
        return min((one for one in later if one.seq > self.last(rank)), key=lambda step: step.seq)


def judge(dumps: dict[int, Dump], problems: Iterable[Finding] = ()) -> tuple[Report, str]:
    """The report, causes first, and its last line."""
    report = Report("triage", list(problems))
    # every rank that must have been there: named by a group, or a hole in the numbers
    world = range(1 + max((rank for dump in dumps.values() for rank in (dump.rank, *dump.world)), default=-1))
    missing = [rank for rank in world if rank not in dumps] if dumps else []
    waits = {rank: dump.waiting() for rank, dump in dumps.items()}
    ends = {rank: {group: max(steps) for group, steps in dump.steps.items()} for rank, dump in dumps.items()}
    for rank, of in waits.items():  # gloo's "ended": well, if another rank of the group has gone on
        for group in [group for group, step in of.items() if step.done is None]:
            if any(end.get(group, 0) > of[group].seq for end in ends.values()):
                del waits[rank][group]
    cases = []
    for group in sorted({one for dump in dumps.values() for one in dump.steps}, key=lambda one: (one.name, one.desc)):
        users = {rank: dump.steps[group] for rank, dump in sorted(dumps.items()) if group in dump.steps}
        members = group.ranks or (tuple(world) if group.desc == "default_pg" else tuple(users))
        cases.append(Case(group, members, {rank: users.get(rank, {}) for rank in members if rank in dumps}, waits))
    same = [case for case in cases if not _judge_difference(case, report)]
    _judge_progress(same, missing, report)  # behind a difference, who is ahead means nothing
    if missing:
        _judge_missing(missing, waits, report, differing=len(same) < len(cases))
    if report.ok:
        for case in same:
            _judge_stuck(case, report)
    _say_limits(dumps, cases, report)
    report.findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    report.data = {
        "ranks": {rank: {"path": d.path, "entries": d.count, "lost": d.lost} for rank, d in sorted(dumps.items())},
        "missing_ranks": missing,
        "groups": [{"group": c.group.name, "desc": c.group.desc, "ranks": c.members} for c in cases],
    }
    entries = sum(dump.count for dump in dumps.values())
    causes = [finding for finding in report.findings if finding.severity == "error"]
    if causes:
        summary = f"most likely {causes[0].code}: {causes[0].where or 'see above'}"
    elif not entries:
        summary = "nothing was recorded; was TORCH_FR_BUFFER_SIZE 0, or were only active entries written?"
    else:
        summary = "every recorded collective ended and agrees; a hang is then outside of the collectives"
    return report, f"{entries:,} entries of {len(dumps)} ranks in {len(cases)} groups: {summary}"


def _judge_difference(case: Case, report: Report) -> bool:
    """The first sequence number at which the ranks do not run the same collective."""
    started = {rank: steps for rank, steps in case.steps.items() if steps}
    first = max((min(steps) for steps in started.values()), default=0)
    for seq in sorted({seq for steps in started.values() for seq in steps if seq >= first}):
        here = {rank: steps[seq] for rank, steps in started.items() if seq in steps}
        counts = Counter(step.signature for step in here.values()).most_common()
        if len(counts) == 1:
            continue
        usual = [rank for rank, step in here.items() if step.signature == counts[0][0]]
        model, others = max(usual, key=lambda one: max(case.steps[one])), show_ranks(usual)
        theirs = here[model]
        for rank, mine in here.items():
            if rank in usual:
                continue
            code, what = explain(_tail(case.steps[rank], seq), _expected(case.steps[model], seq))
            message = f"rank {rank} {what} at sequence {seq} of {case.group}: {mine.shown}; {others}: {theirs.shown}"
            if counts[0][1] == counts[1][1]:
                message += "; as many run the one as the other, so either may be wrong"
            sites = [(f"rank {rank}", mine.site), (others, theirs.site)]
            evidence = "; ".join(f"{who} at {site}" for who, site in sites if site) or None
            _add(report, code, "error", message, "DL15", _ADVICE.get(code, ""), where=f"rank {rank}", evidence=evidence)
        return True
    return False


def _tail(steps: dict[int, Step], seq: int) -> list[Step]:
    return [steps[number] for number in sorted(steps) if number >= seq][:_AHEAD]


def _expected(steps: dict[int, Step], seq: int) -> list[Step]:
    """What a rank ran from `seq` on; where the dump ends, what followed the same call in the round before."""
    tail = _tail(steps, seq)
    key = (tail[-1].signature, tail[-1].site)
    history = [steps[number] for number in sorted(steps)]
    before = [index for index, step in enumerate(history[:-1]) if (step.signature, step.site) == key]
    return (tail + history[before[-1] + 1 :])[:_AHEAD] if before and len(tail) < 3 else tail


def explain(mine: Sequence[Step], theirs: Sequence[Step]) -> tuple[str, str]:
    """(code, words): the story that explains all, and most, of what followed the first difference."""
    for with_site in (True, False):
        a, b = ([(s.signature, s.site if with_site else "") for s in steps] for steps in (mine, theirs))
        stories = []
        both = min(len(a), len(b))
        for k in range(1, max(len(a), len(b))):
            for code, late, full in (("missed", a, b[k:]), ("extra", b, a[k:])):
                count = min(len(late), len(full))
                if count and late[:count] == full[:count]:
                    stories.append((count, -k, code))
            if k < both and Counter(a[: k + 1]) == Counter(b[: k + 1]) and a[k + 1 : both] == b[k + 1 : both]:
                stories.append((both, 0, "order"))
        if stories:
            count, k, code = max(stories)
            number = f"{-k} collective{'s' if k < -1 else ''}"
            unsure = " (or runs them in another order: too little follows to tell)" if count < 2 else ""
            words = {"missed": f"skipped {number}{unsure}", "extra": f"ran {number} more{unsure}"}
            return code, words.get(code, "runs the same collectives in another order")
    one, other = mine[0].signature, theirs[0].signature
    if one[0] != other[0] or len(one) != len(other):
        return "wrong-op", "runs another operation"
    dtypes = [[side[1] if side else () for side in signature[1:3]] for signature in (one, other)]
    return ("dtype", "has another dtype") if dtypes[0] != dtypes[1] else ("shape", "has another shape")


def _judge_progress(cases: list[Case], missing: list[int], report: Report) -> None:
    """All agree: who has not called what the others called? Each rank once, and not those that only wait for it."""
    rows = [(case, rank) for case in cases for rank in case.steps if _is_behind(case, rank, bool(missing))]
    awaited = {rank: {one for case in cases for one in case.awaited_by(rank)} for rank in {rank for _, rank in rows}}
    idle = [rank for case, rank in rows if not case.waits[rank] and case.held_by(rank)]
    held = {rank for case, rank in rows if case.held_by(rank)}
    told: set[int] = set()
    for case, rank in sorted(rows, key=lambda row: not row[0].held_by(row[1])):
        # a rank that waits elsewhere is the cause only if what it waits for waits for it
        circle = any(rank in awaited.get(one, ()) for one in awaited[rank])
        waits_for_the_cause = bool(idle) and bool(case.waits[rank]) and not circle
        if rank not in told and not waits_for_the_cause and (rank in held or not held):
            told.add(rank)
            _tell_behind(case, rank, report)


def _is_behind(case: Case, rank: int, missing: bool) -> bool:
    own = case.waits[rank].get(case.group)  # it waits, too: for a rank without a dump, or for the network
    return bool(case.ahead_of(rank)) and not (own and (own.done is False or missing))


def _tell_behind(case: Case, rank: int, report: Report) -> None:
    last, ahead, held, call = case.last(rank), case.ahead_of(rank), case.held_by(rank), case.first_call(rank)
    did = f"its last was {case.steps[rank][last].shown}" if last else "it called none in this group"
    others = ((group, step) for group, step in case.waits[rank].items() if group != case.group)
    elsewhere = [f"rank {rank} is in {group} at {step.shown} {step.site}" for group, step in others]
    message = f"rank {rank} is behind in {case.group}: it has not called sequence {call.seq}, {call.shown}"
    code, entry = "stalled", "DL16"
    advice = f"py-spy dump of rank {rank}: saving, evaluating, out of data, or a lock."
    if elsewhere and held:
        code, entry, advice = "order", "DL15", "Use the groups in one order on all ranks."
        message += ": it waits in another group, so the ranks use two groups in different order"
    elif held:
        wait = "waits" if len(held) == 1 else "wait"
        message += f": slow, stuck outside of a collective, or finished; {show_ranks(held)} {wait}"
    else:
        message += ", which the others completed: it left earlier, or the dumps are of different moments"
    evidence = "; ".join([did, *elsewhere, f"{show_ranks(ahead)} at {call.site}" if call.site else ""])
    severity = "error" if held else "warn"
    _add(report, code, severity, message, entry, advice, where=f"rank {rank}", evidence=evidence)


def _judge_stuck(case: Case, report: Report) -> None:
    held = {rank: case.waits[rank][case.group] for rank in case.steps if case.group in case.waits[rank]}
    inside = [rank for rank, step in held.items() if step.done is False]
    # gloo notes the end a little later than the caller sees it
    ended = any(step.done is None for step in held.values())
    if inside and not ended and len(case.members) > 1:
        step = min(held.values(), key=lambda step: step.seq)
        message = f"every rank of {case.group} is inside sequence {step.seq}, {step.shown}, and {show_ranks(inside)} "
        message += "did not get out: transport, a peer that died after it entered, or a kernel that hangs"
        _add(report, "hang", "error", message, "DL3", "NCCL_DEBUG=WARN says which.", evidence=step.site or None)


def _judge_missing(missing: list[int], waits: dict[int, dict[Group, Step]], report: Report, differing: bool) -> None:
    held = [(step.time, rank, group, step) for rank, of in waits.items() for group, step in of.items()]
    message = f"{show_ranks(missing)} left no dump: died, or the dump is on another machine"
    evidence = None
    if held:
        _, rank, group, step = min(held, key=lambda row: row[:2])
        evidence = f"rank {rank} was last in {group} at sequence {step.seq}, {step.shown} {step.site}"
    place = {"where": show_ranks(missing), "evidence": evidence}
    _add(report, "missing", "warn" if differing else "error", message, "DL3", "`rgt triage <its log>`.", **place)


def _say_limits(dumps: dict[int, Dump], cases: list[Case], report: Report) -> None:
    """What the dumps cannot show."""
    for case in cases:
        spans = [(min(steps), max(steps), rank) for rank, steps in case.steps.items() if steps]
        if not spans:
            continue
        (start, _, far), (_, end, near) = max(spans), min(spans, key=lambda span: span[1])
        if start > end:
            message = f"rank {far} starts at sequence {start} of {case.group}, rank {near} ends at {end}: "
            message += "nothing to compare; one dump is of an earlier run, or TORCH_FR_BUFFER_SIZE is too small"
            report.add("gap", "warn", message)
    if lost := {rank: dump.lost for rank, dump in dumps.items() if dump.lost}:
        most = max(lost.values())
        message = f"the ring buffer wrapped on {show_ranks(lost)}: up to {most:,} older entries are not compared"
        report.add("gap", "info", message, fix="TORCH_FR_BUFFER_SIZE=20000 keeps more")
    if any(not case.group.ranks and case.group.desc != "default_pg" for case in cases):
        message = "gloo writes no membership: a group is judged by the ranks that used it; no send or recv"
        report.add("partial", "info", message)


def _add(report: Report, code: str, severity: str, message: str, entry_id: str, advice: str, **place: Any) -> None:
    """A finding with the fix of its catalogue entry behind its own."""
    entry = next((one for one in catalogue.load() if one.id == entry_id), None)
    fix = f"{advice} {entry.fix} -> {entry.read}" if entry else advice
    report.add(code, severity, message, fix=fix.strip(), **place)


def show_ranks(ranks: Iterable[int]) -> str:
    """ranks 0, 1, 7; of many the first twelve"""
    named = sorted(ranks)
    shown = ", ".join(map(str, named[:12])) + (f" and {len(named) - 12} more" if len(named) > 12 else "")
    return f"rank{'' if len(named) == 1 else 's'} {shown}"
