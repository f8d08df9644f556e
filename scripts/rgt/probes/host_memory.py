"""Host memory of an unmodified command: its process tree sampled against the steps in its output.

Example:
    watched = watch(["python", "train.py"], duration=300, steps=None, sink=sys.stderr.buffer)
    result = judge(watched)

Main processes are measured by their anonymous pages, which forking does not change; workers by their share (PSS), so
that shared pages count once. A sample is taken at every line with a number, and twice a second without one.

A series is cut where something else happened (an evaluation, another worker); inside a piece it is cut into blocks, and
the blocks' slopes give mean and error. The first fifth is warm-up. Growth that stops is a plateau, and growth that most
blocks do not show is the allocator's: a leak goes on.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import selectors
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any, BinaryIO

from rgt.errors import bad_input, lacking
from rgt.log.line import parse_line
from rgt.machine import interpreter, memory, processes
from rgt.metrics.table import is_evaluation
from rgt.probes.factory import Result
from rgt.units import show_size

Points = Sequence[tuple[float, float]]

LEAK, PLATEAU, UNSTEADY, NONE, UNJUDGED = "leak", "plateau", "unsteady", "none", "unjudged"
WARMUP = 0.2  # of the whole
_BLOCKS = 8
_FEWEST = 4  # blocks, or evaluations, to tell growth from noise
_ENOUGH = 20  # samples that give as many blocks behind the warm-up
_SURE = 2.5  # standard errors; a little more than 2 because the blocks are few
WORTH = 2 << 20  # bytes over what was watched; less is noise of the allocator
_TIMER = 0.5  # seconds between samples when nothing is printed
_LINE = 0.05  # at least this long between samples at lines
_GRACE = 10.0  # seconds for the command to end after SIGTERM
_LONGEST = 1 << 16  # bytes of an unfinished line
_GRAPH = 1 << 16  # bytes that a kept graph is taken to hold
_WORDS = {
    LEAK: "grows",
    PLATEAU: "warm-up, then flat",
    UNSTEADY: "grows now and then, as an allocator does",
    NONE: "flat",
}
_KEPT_GRAPHS = 5  # elements: fewer may be a window
_HOOKS = 20  # fewer may be meant
_OBSERVER = Path(__file__).with_name("held_objects.py")
_UNSEEN = "not looked at: GPU memory, other users' processes, and what the kernel itself holds"


@dataclass
class Sample:
    time: float
    step: float | None
    evaluations: int
    clean: bool  # taken at a line of training
    main: dict[int, int] = field(default_factory=dict)  # pid -> bytes
    workers: dict[int, int] = field(default_factory=dict)
    mapped: int = 0  # Pss_Shmem of the tree
    files: int = 0  # in /dev/shm, whoever put them there: what no process maps any more stays there


@dataclass
class Watched:
    samples: list[Sample]
    code: int | None  # None: ended by us
    hidden: int = 0  # processes whose pages may not be read
    inside: list[dict[str, Any]] = field(default_factory=list)

    @property
    def unit(self) -> str:
        return "step" if any(sample.step is not None for sample in self.samples) else "s"

    @property
    def steady(self) -> list[Sample]:
        """Without the start before the first step and the end after the last line; without steps, the later half."""
        if self.unit == "step":
            end = self.samples[-1].time - (_TIMER if self.code is not None else 0)  # it was already ending
            return [sample for sample in self.samples if sample.clean and sample.time <= end]
        return self.samples[len(self.samples) // 2 :]

    def place(self, sample: Sample) -> float:
        return sample.step or 0.0 if self.unit == "step" else sample.time - self.samples[0].time


class _Progress:
    """Steps and evaluations, as the output tells them."""

    def __init__(self) -> None:
        self.step: float | None = None
        self.evaluations = 0
        self.offset = 0.0  # of counters that start again in every epoch
        self.raw = 0.0

    def take(self, line: str) -> str:
        """ "training", "validation", or nothing."""
        point = parse_line(line)
        metrics = point.get("metrics") or {}
        if metrics and all(map(is_evaluation, metrics)):
            self.evaluations += 1
            return "validation"
        step = point.get("step")
        if step is None:
            return ""
        if step < self.raw:
            self.offset += self.raw
        self.raw, self.step = step, step + self.offset
        return "training"


# -- watching


def watch(command: list[str], duration: float, steps: int | None, sink: BinaryIO, inside: bool = False) -> Watched:
    """Run the command until it ends, or for so long or so many steps; nothing of its process group is left."""
    if sys.platform != "linux":
        raise lacking("host memory of a command is read from /proc/<pid>/smaps_rollup, which only Linux has")
    with tempfile.TemporaryDirectory(prefix="rgt-inside-") as folder:
        settings = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if inside:
            settings |= interpreter.observed(_OBSERVER, Path(folder))
        child: subprocess.Popen[bytes] | None = None
        told = False  # to end, while the command was being started

        def end(*_: object) -> None:
            nonlocal told
            told = True
            if child:
                sys.exit(128 + signal.SIGTERM)

        before = signal.signal(signal.SIGTERM, end)
        try:
            child = subprocess.Popen(command, stdout=PIPE, stderr=STDOUT, env=settings, start_new_session=True)
        except OSError as error:
            signal.signal(signal.SIGTERM, before)
            raise bad_input(f"cannot start {command[0]}: {error.strerror}") from None
        try:
            if told:
                end()
            watched = _follow(child, duration, steps, sink)
        finally:  # also when we are told to end: SIGTERM to its group, then SIGKILL
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_GRACE)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            signal.signal(signal.SIGTERM, before)
        for path in sorted(Path(folder).glob("*.jsonl")):  # the last look of each process that let us in
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            with contextlib.suppress(ValueError, IndexError):
                watched.inside.append({**json.loads(lines[-1]), "looks": len(lines)})
    return watched


def _follow(child: subprocess.Popen[bytes], duration: float, steps: int | None, sink: BinaryIO) -> Watched:
    assert child.stdout is not None
    watched, progress, rest = Watched([], None), _Progress(), b""
    end = time.monotonic() + duration
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while time.monotonic() < end and (steps is None or (progress.step or 0) < steps):
            last = watched.samples[-1].time if watched.samples else 0.0
            if selector.select(max(0.0, last + _TIMER - time.monotonic())):
                data = os.read(child.stdout.fileno(), 1 << 16)
                if not data:  # it closed its output: ended, or went quiet for good
                    break
                sink.write(data)
                sink.flush()
                *lines, rest = (rest[-_LONGEST:] + data.replace(b"\r", b"\n")).split(b"\n")
                kinds = [progress.take(line.decode("utf-8", "replace")) for line in lines]
                late = time.monotonic() - last > _LINE
                # what it holds now belongs to the last line
                if "validation" in kinds or (late and "training" in kinds):
                    _sample(child.pid, watched, progress, clean="training" in kinds)
            elif time.monotonic() - last >= _TIMER:
                _sample(child.pid, watched, progress, clean=False)
    with contextlib.suppress(subprocess.TimeoutExpired):
        watched.code = child.wait(0.5)
    return watched


def _sample(root: int, watched: Watched, progress: _Progress, clean: bool) -> None:
    sample = Sample(time.monotonic(), progress.step, progress.evaluations, clean)
    words = {pid: processes.command(pid) for pid in (root, *processes.descendants(root))}
    hidden = 0
    for pid, command in words.items():
        pages = memory.rollup(pid) if command else None
        if pages is None:
            smaps = Path(f"/proc/{pid}/smaps_rollup")
            hidden += bool(command) and smaps.exists() and not os.access(smaps, os.R_OK)  # else it has just ended
            continue
        swapped = pages.get("Swap", 0)
        above = words.get(processes.parent(pid) or 0)
        if above is not None and (command == above or "multiprocessing" in " ".join(command)):
            sample.workers[pid] = pages.get("Pss_Anon", pages["Pss"]) + pages.get("SwapPss", swapped)
        else:
            sample.main[pid] = pages["Anonymous"] + swapped
        sample.mapped += pages.get("Pss_Shmem", 0)
    with contextlib.suppress(OSError):
        files = os.statvfs("/dev/shm")
        sample.files = (files.f_blocks - files.f_bfree) * files.f_frsize
    watched.hidden = max(watched.hidden, hidden)
    if sample.main:
        watched.samples.append(sample)


# -- slopes: numbers in, verdicts out


@dataclass
class Slope:
    """Bytes per unit, with one standard error; `count` is what they come from."""

    mean: float = 0.0
    error: float = math.inf
    count: int = 0
    growth: float = 0.0  # over what was watched, after the warm-up
    early: float = 0.0  # growth during the warm-up
    verdict: str = UNJUDGED


def estimate(pieces: Sequence[Points]) -> Slope:
    """One slope from all pieces."""
    pieces = [piece for piece in pieces if len(piece) > 1]
    if not pieces:
        return Slope()
    low, high = min(piece[0][0] for piece in pieces), max(piece[-1][0] for piece in pieces)
    start = low + WARMUP * (high - low)
    heads = [[level for at, level in piece if at < start] for piece in pieces]
    early = sum(head[-1] - head[0] for head in heads if head)
    later = [[point for point in piece if point[0] >= start] for piece in pieces]
    size = max(4, math.ceil(sum(map(len, later)) / _BLOCKS))
    slopes, lengths = [], []
    products = squares = length = count = 0.0
    blocks = []  # of about `size` points, which share their ends, so that no growth falls between them
    for piece in later:
        cuts = max(1, len(piece) // size)
        bounds = [round(index * (len(piece) - 1) / cuts) for index in range(cuts + 1)]
        blocks += [piece[first : last + 1] for first, last in itertools.pairwise(bounds) if last > first]
    for block in blocks:
        # short pieces are pooled: each keeps its own level, all share the slope
        x, y = (statistics.fmean(values) for values in zip(*block, strict=True))
        products += sum((a - x) * (b - y) for a, b in block)
        squares += sum((a - x) ** 2 for a, _ in block)
        length, count = length + block[-1][0] - block[0][0], count + len(block)
        if count >= size and squares:
            slopes.append(products / squares)
            lengths.append(length)
            products = squares = length = count = 0.0
    return _judged(slopes, lengths, early)


def jumps(deltas: Sequence[float], error: float = 0.0) -> Slope:
    """Growth per event, such as an evaluation; the first ones are warm-up. `error` is what all of them share."""
    skip = max(1, round(WARMUP * len(deltas)))
    return _judged(list(deltas[skip:]), [1.0] * len(deltas[skip:]), sum(deltas[:skip]), error)


def _judged(slopes: list[float], lengths: list[float], early: float, error: float = 0.0) -> Slope:
    if not slopes:
        return Slope(early=early)
    whole = sum(lengths)
    mean = sum(slope * length for slope, length in zip(slopes, lengths, strict=True)) / whole
    found = Slope(mean, math.inf, len(slopes), mean * whole, early)
    if len(slopes) < _FEWEST:
        return found
    found.error = math.hypot(statistics.stdev(slopes) / math.sqrt(len(slopes)), error)
    late = statistics.median(slopes[len(slopes) // 2 :])
    if found.growth >= WORTH and late > 0.3 * mean:
        steady = statistics.quantiles(slopes, n=4)[0] > 0.25 * mean and mean > _SURE * found.error
        found.verdict = LEAK if steady else UNSTEADY
    else:
        found.verdict = PLATEAU if max(early, found.growth) >= WORTH else NONE
    return found


# -- judging


@dataclass
class Part:
    """One place where memory may grow."""

    name: str
    slope: Slope
    unit: str
    pids: list[int]
    mode: str = ""  # of the looks inside

    def __str__(self) -> str:
        if self.slope.verdict == UNJUDGED:
            return f"{self.name}: too few samples to judge"
        error = "" if self.slope.error == float("inf") else f" ± {show_size(2 * self.slope.error)}"
        words = _WORDS[self.slope.verdict]
        sign = "-" if self.slope.mean < 0 else "+"
        return f"{self.name}: {words}, {sign}{show_size(abs(self.slope.mean))}{error} per {self.unit}"


def judge(watched: Watched) -> Result:
    """Verdict per place, with the holder where the looks inside name one."""
    result = Result("memory")
    samples = watched.samples
    parts = list(_parts(watched)) if len(samples) > 3 else []
    took = samples[-1].time - samples[0].time if samples else 0.0
    seen = {"seconds": round(took, 1), "samples": len(samples), "unit": watched.unit}
    result.data = {
        "watched": {**seen, "evaluations": samples[-1].evaluations if samples else 0},
        "parts": [{"name": part.name, "unit": part.unit, **part.slope.__dict__} for part in parts],
        "inside": watched.inside,
        "exit_code": watched.code,
    }
    for part in parts:
        if part.slope.verdict == LEAK:
            _add(part, watched, result)
    judged = any(part.slope.verdict != UNJUDGED for part in parts)
    _judge_inside(watched, result, judged)
    if watched.code:
        how = processes.signal_name(-watched.code) if watched.code < 0 else f"exit code {watched.code}"
        result.add("failed", f"the command ended with {how}; what it did until then was judged", severity="warn")
    shown = "; ".join(map(str, parts))
    if not judged:
        usable = len(watched.steady)
        longer = f"--duration {math.ceil(took * _ENOUGH / max(1, usable)) + 1}s, or " if watched.code is None else ""
        few = f"{usable} usable samples in {took:.0f} s are too few for a slope, about {_ENOUGH} are needed"
        named = [one.message for one in result.findings if one.code == "growth"]
        result.unjudged = "; ".join([*named, f"{few}: {longer}print steps more often"])
    hidden = f"; {watched.hidden} processes may not be read" if watched.hidden else ""
    result.evidence = f"{shown}; {_UNSEEN}{hidden}"
    return result


def _parts(watched: Watched) -> Iterator[Part]:
    """Training between evaluations, what each evaluation leaves behind, workers, shared memory."""
    pids = sorted({pid for sample in watched.samples for pid in sample.main})
    cycles: dict[int, list[tuple[float, float]]] = {}
    for sample in watched.steady:
        cycles.setdefault(sample.evaluations, []).append((watched.place(sample), float(sum(sample.main.values()))))
    last = max(cycles, default=0)
    # the last sample before an evaluation is taken while that one has begun; and what an evaluation freed is used up
    # before training needs more, so that the first half behind one shows too little
    clean = {number: points[:-1] if number != last else points for number, points in cycles.items()}
    training = estimate([points[len(points) // 2 :] if number else points for number, points in clean.items()])
    yield Part("main, training", training, watched.unit, pids, "training")
    ends = [clean[number][-1] for number in sorted(clean) if clean[number]]
    if last:
        pairs = list(itertools.pairwise(ends))
        deltas = [later[1] - end[1] - training.mean * (later[0] - end[0]) for end, later in pairs]
        steps = statistics.fmean(later[0] - end[0] for end, later in pairs) if pairs else 0.0
        shared = training.error * steps if math.isfinite(training.error) else 0.0
        yield Part("main, validation", jumps(deltas, shared), "evaluation", pids, "validation")
    lives: dict[int, list[tuple[float, float]]] = {}
    for sample in watched.steady:
        for pid, size in sample.workers.items():
            lives.setdefault(pid, []).append((watched.place(sample), float(size)))
    if lives:
        yield Part(f"workers ({len(lives)})", estimate(list(lives.values())), watched.unit, sorted(lives))
    places = [watched.place(sample) for sample in watched.steady]
    series = [[sample.mapped for sample in watched.steady], [sample.files for sample in watched.steady]]
    slopes = [estimate([list(zip(places, map(float, sizes), strict=True))]) for sizes in series]
    yield Part("shared memory", max(slopes, key=lambda slope: slope.growth), watched.unit, [])


def _add(part: Part, watched: Watched, result: Result) -> None:
    # the container that grew most in these processes, in this mode
    rows = [one for row in watched.inside if row["pid"] in part.pids for one in row["growing"]]

    def weight(one: dict[str, Any]) -> float:
        elements = one["by"][part.mode] if part.mode else one["elements"]
        return float(elements * (one["each"] + (_GRAPH if one["graph"] else 0)))

    best = max(rows, key=weight, default=None)
    known = best is not None and weight(best) > 0
    holder = f"{best['name'] or 'an unnamed ' + best['kind']} ({_shown(best)})" if best and known else ""
    hint = f"; held by {holder}" if holder else "" if watched.inside else "; --inside names the holder"
    code = "growth" if part.name != "shared memory" else "host-memory"
    message = f"{part.name}: host memory grows by {show_size(part.slope.mean)} per {part.unit}{hint}"
    shown = f"{show_size(part.slope.growth)} in all, ± {show_size(2 * part.slope.error)} per {part.unit}"
    result.add(code, message, shown, where=part.name)
    fixes = {
        "main, training": "a list, dict or hook that every step adds to: keep .item(), remove the hook's handle",
        "main, validation": "what the evaluation keeps: torch.no_grad(), and sum loss.item(), not loss",
        "shared memory": "batches that are kept (clone them), or files left in /dev/shm: ls -la /dev/shm",
    }
    fix = fixes.get(part.name, "a cache in the dataset, or objects copied on access (DP19): bound it, keep arrays")
    result.fix(f"{fix}; then measure again, until nothing grows -> references/training/data-pipeline.md")


def _judge_inside(watched: Watched, result: Result, judged: bool) -> None:
    """Hooks, and what visibly grows although the slopes are not clear about it."""
    sizes = [sum(sample.main.values()) for sample in watched.samples] or [0]
    grew = f"the process grew by {show_size(max(0, sizes[-1] - sizes[0]))}"
    beside = "the process itself shows no clear slope" if judged else grew
    for row in watched.inside:
        if row["hooks"] > _HOOKS and row["hooks"] >= row["steps"] / 2 > 0:
            message = f"{row['hooks']} hooks are registered after {row['steps']} optimizer steps: one more each step"
            result.add("growth", message, where=f"pid {row['pid']}")
            result.fix("register once, outside of the loop; or keep the handle and remove() it")
        told = " ".join(finding.message for finding in result.findings)
        for one in row["growing"]:
            heavy = one["elements"] * one["each"] >= WORTH or (one["graph"] and one["elements"] >= _KEPT_GRAPHS)
            if heavy and one["name"] and one["name"] not in told:
                mode = max(one["by"], key=lambda name: one["by"][name])
                message = f"{one['name']} grows in {mode}: {_shown(one)}; {beside}"
                result.add("growth", message, where=f"pid {row['pid']}", severity="warn")


def _shown(one: dict[str, Any]) -> str:
    graph = ", each with a graph" if one["graph"] else f" of about {show_size(one['each'])}"
    return f"{one['length']} elements{graph}"
