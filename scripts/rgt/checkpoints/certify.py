"""Does a training go on as if nothing had happened? Two whole runs, then runs that are killed and started again.

A resumed run is laid beside the whole one at the step whose weights it starts with. Where it differs, the cause is
named (state that was not restored), not what follows from it (other losses). What two whole runs do not agree on is
not held against a resumed one; its weights, optimizer and average are compared with those of the run that was killed.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt.checkpoint import index, inventory, names
from rgt.checkpoint.examine import HEADERS, examine
from rgt.checkpoint.formats.torch_files import keys
from rgt.errors import FINDINGS, RgtError, bad_input, lacking
from rgt.files import write_json
from rgt.log import summary
from rgt.machine import interpreter, processes
from rgt.machine.processes import signal_name
from rgt.report import Report, plural, progress
from rgt.units import show_size

_AFTER = 4  # steps that a resumed run makes at least
_PROBED = 3  # steps that must agree to say where a sequence goes on
_ALIKE = 1e-6  # relative difference of learning rates that are the same
_ROLES = {
    "optimizer": r"optim",
    "scheduler": r"sched",
    "rng": r"rng|random|generator|seed",
    "sampler": r"sampler|loader|dataset|data_|loops|trainer_state|batch|cursor|position|offset|consumed",
    "ema": r"(^|[._/])ema|averag|shadow|swa",
    "step": r"step|iter|trainer_state",
}
_OBSERVER = Path(__file__).with_name("observer.py")
_ENDINGS = [*names.FILES, ".distcp", ".bin"]
_LARGEST, _MOST = 200 << 20, 20_000  # bytes and files of a working directory that is copied
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "venv", "node_modules", "__pycache__", "wandb")
_GRACE = 30.0  # seconds for a save after SIGTERM
_RUNAWAY = 3  # times the steps that were asked for


# -- one short run of the command after the other, watched from inside, some of them killed at a chosen step


@dataclass
class Leg:
    """One process's share of a run. Steps are counted from its own start."""

    states: dict[int, dict[str, Any]] = field(default_factory=dict)  # after so many steps
    steps: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] | None = None  # the state when it ended by itself
    stopped: bool = False  # by us, at the last step wanted
    code: int = 0
    tail: str = ""

    @property
    def made(self) -> int:
        return len(self.steps)

    def state(self, after: int) -> dict[str, Any]:
        """What is known of the state after so many steps; without `rng` where it is not that of a step's start."""
        if after in self.states:
            return self.states[after]
        at_end = self.end if self.end and self.end["at"] == after else {}
        return {name: value for name, value in at_end.items() if name != "rng"}

    @property
    def final(self) -> Any:
        """The weights after the last step."""
        return self.state(self.made).get("weights")

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [*self.states.values(), *([self.end] if self.end else [])]

    def weights(self) -> dict[str, int]:
        """Steps by the weights that they led to; the last where a warm-up's first step changes nothing."""
        return {state["weights"]: state["at"] for state in self.rows}

    def saves(self) -> list[int]:
        """Steps after which a checkpoint had been written."""
        pairs = itertools.pairwise(self.states.values())
        return [after["at"] for before, after in pairs if after["saved"] != before["saved"]]

    def averages(self, after: int) -> set[str]:
        """Copies of the weights that follow them, as they were after so many steps; a copy that rests is none."""
        moves: dict[str, list[bool]] = {}
        for before, later in itertools.pairwise(self.rows):
            for place in before["copies"].keys() & later["copies"].keys():
                moves.setdefault(place, []).append(before["copies"][place] != later["copies"][place])
        moving = {place for place, told in moves.items() if len(told) > 1 and sum(told) * 3 >= len(told)}
        return {digest for place, digest in self.state(after).get("copies", {}).items() if place in moving}


class Stage:
    """Where the runs take place, below `root`."""

    root: Path

    def __init__(self, command: list[str], steps: int, timeout: float) -> None:
        self.command, self.steps, self.timeout = command, steps, timeout
        self.bounded = any("{steps}" in word for word in command)
        self.own_folder = any("{out}" in word for word in command)

    def folder(self, run: str) -> Path:
        """Its {out}, or its copy of the current directory; made at the first call."""
        folder, source = self.root / run, Path.cwd()
        if not folder.exists() and self.own_folder:
            folder.mkdir()
        elif not folder.exists():
            size = count = 0
            for place, below, here in os.walk(source):
                below[:] = sorted(set(below) - _LEFT_OUT(place, below))
                count += len(here)
                size += sum(os.lstat(os.path.join(place, name)).st_size for name in here)
                if size > _LARGEST or count > _MOST:
                    limit = f"more than {show_size(_LARGEST)} or {_MOST} files, too much to copy"
                    raise bad_input(f"{source} holds {limit}: write {{out}} where COMMAND names its output")
            shutil.copytree(source, folder, symlinks=True, ignore=_LEFT_OUT)
        return folder

    def forget(self, run: str) -> None:
        shutil.rmtree(self.root / run, ignore_errors=True)

    def run(
        self,
        run: str,
        command: list[str],
        kill: tuple[int, int] | None = None,
        known: dict[str, int] | None = None,
        checkpoint: Path | None = None,
    ) -> Leg:
        """Until it ends, is killed at that step, or has made the steps wanted, counted from where `known` says."""
        folder = self.folder(run)
        values = {"{out}": str(folder), "{steps}": str(self.steps), "{checkpoint}": str(checkpoint or "")}
        # not str.format: other braces are the program's
        words = [re.sub("|".join(map(re.escape, values)), lambda match: values[match[0]], word) for word in command]
        inside = Path(tempfile.mkdtemp(prefix=f"{run}-", dir=self.root))
        stop = self.steps * (_RUNAWAY if self.bounded else 1)
        orders = {"kill_at": kill and kill[0], "signal": kill and kill[1], "stop_at": stop, "known": known or {}}
        write_json(inside / "orders.json", {**orders, "out": str(folder), "endings": _ENDINGS})
        env = {**os.environ, "PYTHONUNBUFFERED": "1", **interpreter.observed(_OBSERVER, inside)}
        env.setdefault("WANDB_MODE", "offline")  # these runs are nobody's results
        with open(inside / "log", "wb") as log:
            try:
                streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
                cwd = None if self.own_folder else folder
                child = subprocess.Popen(words, **streams, env=env, cwd=cwd, start_new_session=True)
            except OSError as error:
                raise bad_input(f"cannot start {words[0]}: {error.strerror}") from None
            code = self._wait(child, inside)
        leg = Leg(code=code, tail="; ".join(summary.tail(inside / "log")[-3:]))
        for path in sorted(inside.glob("*.jsonl")):
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            rows = [json.loads(line) for line in lines if line.endswith("\n")]
            if problem := next((row["problem"] for row in rows if "problem" in row), ""):
                raise lacking(f"the observer inside the command met what it does not know: {problem}")
            if any("at" in row for row in rows) and not leg.states:
                leg.states = {row["at"]: row for row in rows if "at" in row and "end" not in row}
                leg.steps = [row for row in rows if "step" in row]
                leg.end = next((row for row in rows if "end" in row), None)
                leg.stopped = any("stopped" in row for row in rows)
        return leg

    def _wait(self, child: subprocess.Popen[bytes], inside: Path) -> int:
        """Its exit code, once nothing that it started lives any more."""
        before = signal.signal(signal.SIGTERM, lambda *_: os._exit(_end_all(child, inside)))
        try:
            code = child.wait(self.timeout)
            end = time.monotonic() + _GRACE  # a shell in front of it may have died at once
            while time.monotonic() < end and any(processes.carrying("RGT_INSIDE", str(inside))):
                time.sleep(0.05)
            return code
        except subprocess.TimeoutExpired:
            tail = "; ".join(summary.tail(inside / "log")[-3:])
            raise RgtError(f"no end within {self.timeout:.0f} s (--timeout); its last lines: {tail}", 1) from None
        finally:
            _end_all(child, inside)
            signal.signal(signal.SIGTERM, before)


def _end_all(child: subprocess.Popen[bytes], inside: Path) -> int:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    for pid in processes.carrying("RGT_INSIDE", str(inside)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    child.wait()
    return 128 + signal.SIGTERM


# -- what is compared


@dataclass
class Cut:
    """A run that was killed, and how it went on."""

    number: int  # of the signal
    at: int
    killed: Leg
    resumed: Leg
    held: list[str]  # names of what the checkpoint holds
    listing: str
    since: int | None  # the step whose weights it went on with

    def __str__(self) -> str:
        start = "unknown weights" if self.since is None else f"step {self.since}"
        return f"{signal_name(self.number)} at step {self.at}, went on from {start}"


@dataclass
class Named:
    """A difference; `role` is the entry of a checkpoint that would prevent it."""

    code: str
    message: str
    role: str = ""
    severity: str = "error"


class Steady:
    """The first whole run, and what of it the second repeated."""

    def __init__(self, whole: Leg, other: Leg) -> None:
        self.whole, self.other = whole, other
        one, two = list(whole.states.values()), list(other.states.values())
        states = [row["weights"] for row in one] == [row["weights"] for row in two]
        self.same = {"weights": states and whole.final == other.final}
        for name, key in (("losses", "loss"), ("batches", "batch"), ("learning rate", "lr")):
            self.same[name] = [row[key] for row in whole.steps] == [row[key] for row in other.steps]
        used = [name for name in one[0]["rng"] if len({state["rng"].get(name) for state in one}) > 1]
        pairs = list(zip(one, two, strict=False))
        self.generators = [name for name in used if all(a["rng"].get(name) == b["rng"].get(name) for a, b in pairs)]

    def names(self) -> list[str]:
        always = ["steps", "optimizer", "EMA"]  # against the killed run itself
        return [*always, *(name for name, same in self.same.items() if same), *(f"{n} RNG" for n in self.generators)]


# -- the runs


def certify(stage: Stage, resume: list[str], kills: int, seed: int) -> Report:
    report, draw, cuts = Report("checkpoints"), random.Random(seed), []
    with tempfile.TemporaryDirectory(prefix="rgt-certify-", ignore_cleanup_errors=True) as root:
        stage.root = Path(root)
        steady = Steady(_whole_run(stage, 1), _whole_run(stage, 2))
        length, saves = steady.whole.made, steady.whole.saves()
        if saves and saves[0] > length - _AFTER:
            more = f"give --steps {saves[0] + 2 * _AFTER} or more, or save more often"
            raise bad_input(f"the first checkpoint appears after step {saves[0]} of {length}: {more}")
        spots = range(saves[0] if saves else 1, length - _AFTER + 1)
        for turn in range(kills):
            for number in (signal.SIGTERM, signal.SIGKILL):
                run = f"{number.name}-{turn}"
                made = _cut_run(stage, run, resume, draw.choice(spots), int(number), steady, report)
                cuts += [made] if made else []
    unsteady = [name for name, same in steady.same.items() if not same]
    if unsteady:
        message = f"two uninterrupted runs differ in {', '.join(unsteady)}: this is not held against the resumed ones"
        fix = "seed every generator (python, numpy, torch, data loader), and torch.use_deterministic_algorithms(True)"
        report.add("nondeterminism", "info", message, fix=fix)
    merged: dict[str, tuple[Named, list[Cut]]] = {}
    for cut in cuts:
        for named in _differences(cut, steady):
            merged.setdefault(named.code, (named, []))[1].append(cut)
    for named, where in merged.values():
        place = None
        if named.role:
            entry = next((one for one in where[0].held if re.search(_ROLES[named.role], one, re.I)), "")
            told = f"saved ({entry}), so not restored" if entry else f"no entry for {named.role}"
            place = f"in the checkpoint: {told} [{where[0].listing}]"
        report.add(named.code, named.severity, named.message, where="; ".join(map(str, where)), evidence=place)
    fields = ("signal", "killed_at", "resumed_at", "holds")
    rows = [dict(zip(fields, (signal_name(c.number), c.at, c.since, c.listing), strict=True)) for c in cuts]
    lines = [f"{row['signal']} at step {row['killed_at']}, resumed at {row['resumed_at']}" for row in rows]
    report.data = {"steps": length, "saves": saves, "stable": steady.names(), "seed": seed, "cuts": rows}
    report.data["summary"] = f"{plural(length, 'step')} whole, twice; {'; '.join(lines) or 'no run could be resumed'}"
    return report


def _whole_run(stage: Stage, number: int) -> Leg:
    progress(f"uninterrupted run {number} of 2")
    leg = stage.run(f"whole-{number}", stage.command)
    stage.forget(f"whole-{number}")
    if leg.code and not leg.stopped:
        raise RgtError(f"the command itself fails (exit code {leg.code}): {leg.tail}", FINDINGS)
    if leg.made < 2 * _AFTER:
        seen = f"{plural(leg.made, 'step')} of a torch optimizer seen"
        raise bad_input(f"{seen} in the whole run; it takes {2 * _AFTER} (or it runs in a container, or without torch)")
    return leg


def _cut_run(
    stage: Stage, run: str, resume: list[str], at: int, number: int, steady: Steady, report: Report
) -> Cut | None:
    progress(f"{signal_name(number)} at step {at}, then the resume")
    killed = stage.run(run, stage.command, kill=(at, number))
    # the newest whole checkpoint below, in whichever folder the program keeps them
    there: dict[Path, inventory.Checkpoint] = {}
    loose = [path for path in stage.folder(run).rglob("*") if names.is_checkpoint(path.name) and path.is_file()]
    for place in sorted({path.parent for path in loose}):
        home = index.run_directory(place.parent if names.is_step_folder(place.name) else place)
        there |= {each.path: each for each in (*inventory.find(home), *inventory.without_step(home))}
    best, _ = inventory.newest_whole(list(there.values()))
    checkpoint = best.path if best else max(loose, key=lambda path: path.stat().st_mtime_ns, default=None)
    if checkpoint is None:
        message = f"{signal_name(number)} at step {at} left no checkpoint: everything was lost"
        report.add("unsaved", "error", message, fix="save more often than once in --steps, or on SIGTERM")
        return None
    known = {**(steady.whole.weights() if steady.same["weights"] else {}), **killed.weights()}
    # its files, and the entries of those that are more than weights; the names of weights are left out
    files = sorted(path for path in checkpoint.rglob("*") if path.is_file()) if checkpoint.is_dir() else [checkpoint]
    held = [path.name for path in files] if checkpoint.is_dir() else []
    for path in (path for path in files if path.suffix in (".pt", ".pth", ".ckpt")):
        for name, value in keys(examine(path, HEADERS).layout.root).items():
            below = [f"{name}.{inner}"[:40] for inner in keys(value) if "." not in str(inner)]
            held += [str(name), *(below if len(below) <= 8 else [])] if "." not in str(name) else []
    resumed = stage.run(run, resume, known=known, checkpoint=checkpoint)
    stage.forget(run)
    listing = f"{checkpoint.name}: {', '.join(held[:20])}{' ...' if len(held) > 20 else ''}"
    since = known.get(resumed.states[0]["weights"]) if resumed.states else None
    cut = Cut(number, at, killed, resumed, held, listing, since)
    if not resumed.stopped and resumed.code:
        message = f"the resumed run fails (exit code {resumed.code}): {resumed.tail}"
        report.add("failed", "error", message, where=str(cut), evidence=listing)
        return None
    return cut


# -- what differs


def _differences(cut: Cut, steady: Steady) -> list[Named]:
    whole, resumed, since = steady.whole, cut.resumed, cut.since
    if not resumed.states:
        if cut.killed.made >= whole.made or whole.made in cut.killed.states:
            text = "it ran to its end in spite of the signal: nothing was left to resume"
            return [Named("unjudged", text, severity="info")]
        return [Named("step", "the resumed run made no step, although steps were left")]
    if since is None and cut.number == signal.SIGTERM and not steady.same["weights"]:
        text = "it goes on with weights that no step before is known to have had: saved behind the signal, perhaps"
        return [Named("unjudged", text, severity="warn")]
    if not since:
        text = "weights not loaded: it starts with the initial ones"
        if since is None:
            text = "weights are not those of any step before: partly loaded, rounded, averaged, or initialised anew"
        return [Named("weights", f"{text} (does the command resume by itself? if not, give --resume)")]
    found = [*_state(cut, since, steady), *_lr(cut, since, steady), *_data(cut, since, steady)]
    left = whole.made - since
    if not whole.stopped and resumed.made != left:
        kind = "step counter restarted" if resumed.made >= whole.made else "step counter is off"
        found.append(Named("step", f"{kind}: it made {resumed.made} more steps, {left} were left", "step"))
    expected = [row["loss"] for row in whole.steps[since:]]
    losses = [row["loss"] for row in resumed.steps][: len(expected)]
    final = resumed.state(left).get("weights")
    same = losses == expected[: len(losses)] and final == whole.final
    before = cut.killed.state(since).get("rng") or whole.state(since).get("rng") or {}
    now = resumed.states[0]["rng"]
    lost = [name for name in steady.generators if name in before and now.get(name) != before[name]]
    if lost:
        text = f"RNG not restored: the {' and '.join(lost)} generator is elsewhere than it was"
        if same and steady.same["weights"]:
            found.append(Named("rng", f"{text}; nothing that it changes was used before the end", "rng", "info"))
        else:
            found.append(Named("rng", text, "rng"))
    repeats = steady.same["weights"] and steady.same["losses"]
    if repeats and not same and not any(one.severity == "error" for one in found):
        pairs = enumerate(zip(losses, expected, strict=False))
        where = next((number for number, (mine, theirs) in pairs if mine != theirs), len(losses))
        text = f"from step {since + where + 1} on the run is another one, and none of the known causes was seen"
        found.append(Named("curve", f"{text}: final weights {final}, uninterrupted {whole.final}"))
    return found


def _state(cut: Cut, since: int, steady: Steady) -> Iterator[Named]:
    """Optimizer and average before the first new step, against the run that was killed."""
    source = cut.killed if cut.killed.state(since) or not steady.same["weights"] else steady.whole
    before, now = source.state(since), cut.resumed.states[0]
    if before and now["optimizer"] != before["optimizer"]:
        kind = "fresh: its moments start from nothing" if now["optimizer"] is None else "not that of the weights' step"
        yield Named("optimizer", f"optimizer state is {kind}", "optimizer")
    here = cut.resumed.averages(0)
    if not source.averages(since) <= here:  # the loaded file may be in memory, too, and rests
        again = "starts anew" if here else "is gone"
        yield Named("ema", f"EMA dropped: the averaged copy of the weights {again} after the resume", "ema")


def _lr(cut: Cut, since: int, steady: Steady) -> Iterator[Named]:
    rates, whole = ([row["lr"] for row in leg.steps] for leg in (cut.resumed, steady.whole))
    if not steady.same["learning rate"] or _alike(rates, whole[since:]):
        return
    start = next((at for at in range(len(whole)) if _alike(rates[:_PROBED], whole[at:])), None)
    kind = "differs" if start is None else "restarted" if start == 0 else f"goes on with that of step {start + 1}"
    mine, theirs = (" ".join(f"{rate:.4g}" for rate in rates[:2]) for rates in (rates[0], whole[since]))
    text = f"LR schedule {kind}: {mine} at step {since + 1}, where the uninterrupted run has {theirs}"
    yield Named("lr", text, "scheduler")


def _alike(mine: list[list[float]], theirs: list[list[float]]) -> bool:
    pairs = [pair for one, two in zip(mine, theirs, strict=False) for pair in zip(one, two, strict=False)]
    close = all(abs(one - two) <= _ALIKE * max(abs(one), abs(two)) for one, two in pairs)
    return close and len(theirs) >= min(len(mine), 1)


def _data(cut: Cut, since: int, steady: Steady) -> Iterator[Named]:
    whole: list[Any] = [row["batch"] for row in steady.whole.steps]
    left = whole[since:]
    mine = [row["batch"] for row in cut.resumed.steps][: len(left)]
    if not any(whole) or mine == left[: len(mine)]:
        return
    seen = Counter(one for batch in [*(row["batch"] for row in cut.killed.steps[:since]), *mine] for one in batch)
    if not steady.same["batches"]:
        for leg in (steady.whole, steady.other):
            samples = [one for row in leg.steps[: since + len(mine)] for one in row["batch"]]
            if len(samples) > len(set(samples)):
                return  # repeats are usual there
        if twice := sum(count - 1 for count in seen.values()):
            text = f"{plural(twice, 'sample')} seen twice, in an uninterrupted run none so far"
            yield Named("sampler", f"sampler restarted: {text}", "sampler")
        return
    probed = mine[:_PROBED]
    start = next((at for at in range(len(whole)) if probed == whole[at : at + len(probed)]), None)
    wanted = Counter(one for batch in whole[: since + len(mine)] for one in batch)
    more, never = sum((seen - wanted).values()), sum((wanted - seen).values())
    counts = f"{plural(more, 'sample')} more often than in the uninterrupted run, {never} left out"
    if start is None:
        text = "other batches after the resume"
    elif start < since:
        text = f"sampler restarted: step {since + 1} gets the batch of step {start + 1}; data seen twice"
    else:
        text = f"data skipped: step {since + 1} gets the batch of step {start + 1}"
    yield Named("sampler", f"{text}: {counts}", "sampler")
