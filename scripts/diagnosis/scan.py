"""One pass over one log of any size: which entries it shows and where, its tracebacks, whether training went on.

Example:
    trace = Scan(patterns, "train.log").run(stream)      trace.sightings, .tracebacks, .elastic, .lines, .tail

Memory stays flat: of each (pattern, rank) only the first, the first since training last went on, and the last place
are kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from diagnosis import lines
from diagnosis.lines import Line
from diagnosis.prefilter import Prefilter
from rgt.logline import parse_line

BLOCK = 4 << 20
TAIL = 8 << 10
ENOUGH = 3  # steps after an error that mean: training went on
_TRIES = 60  # lines looked at in search of them
_SEGMENT = 64 << 10  # a line without an end is cut here
_BACK = 8 << 10  # how far back a clock or a step is looked for
_OFTEN = 500  # sightings of one pattern, after which only the ends of a block are looked at
_MOST = 4096  # places kept
_TRACEBACKS = 200
_TRACEBACK_LINES = 300
_SHOWN_LINES = 30

TRACEBACK = "Traceback (most recent call last)"
ELASTIC = "Root Cause (first observed failure)"
# Deaths that leave no traceback; only used when no entry explains them.
FATAL = (
    r"Segmentation fault|core dumped|Fatal Python error|^terminate called after|^Aborted$"
    r"|^Killed$|\d Killed  |^(?:srun|slurmstepd): error: |^Bus error"
)
BUILT_IN = (re.escape(TRACEBACK), re.escape(ELASTIC), FATAL)

_STEPLIKE = re.compile(rb"[Ss]tep|[Ii]ter|[Ee]poch|EPOCH|it/s|s/it|\d+/\d+ \[")
_CHAINED = (b"During handling of the above exception", b"direct cause of the following", b"Original ")
_IGNORED = (b"Exception ignored ", b"--- Logging error ---")
_COLOUR = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:: |:?$)")
_ELASTIC_FIELD = re.compile(r"^\s*(rank|exitcode)\s*:\s*(-?\d+)")


@dataclass(frozen=True)
class Place:
    path: str
    line: int
    text: str
    rank: int | None
    time: float | None
    size: int  # characters that matched: more of them is more specific
    mark: int  # steps counted before it
    stage: str


@dataclass
class Sighting:
    """Where one pattern was seen in one rank's output."""

    pattern: int
    first: Place
    since: Place  # the first one after training last went on
    last: Place
    count: int = 1


@dataclass
class Traceback:
    start: int  # line of its head
    rank: int | None
    mark: int
    time: float | None = None
    end: int = 0  # line that names the exception; 0: not seen yet
    raised: str = ""
    text: list[str] = field(default_factory=list)
    chained: bool = False  # to the one before it
    ignored: bool = False  # Python said that it ignores it
    seen: int = 0

    def take(self, number: int, line: Line) -> bool:
        """One more line of it; True when it is complete."""
        self.seen += 1
        if len(self.text) < _SHOWN_LINES or not line.text.startswith(" "):
            self.text.append(line.text)
        if _RAISED.match(line.text):
            self.end, self.raised = number, line.text
        return bool(self.end) or self.seen > _TRACEBACK_LINES


@dataclass
class Trace:
    path: str
    kernel: bool = False
    sightings: dict[tuple[int, int | None], Sighting] = field(default_factory=dict)
    tracebacks: list[Traceback] = field(default_factory=list)
    fatal: Place | None = None
    elastic: dict[str, int] = field(default_factory=dict)
    progress: int = 0  # steps counted, at most ENOUGH after each error
    lines: int = 0
    size: int = 0
    tail: bytes = b""


class Scan:
    """The patterns of the catalogue, made ready for one log."""

    def __init__(self, patterns: list[tuple[re.Pattern[str], tuple[re.Pattern[str], ...]]], path: str,
                 kernel: bool = False) -> None:  # fmt: skip
        self.patterns = [*patterns, *((re.compile(text), ()) for text in BUILT_IN)]
        self.traceback, self.elastic, self.fatal = range(len(patterns), len(self.patterns))
        self.trace = Trace(path, kernel)
        self.file_rank = lines.rank_of_file(path)
        self.open: list[Traceback] = []
        self.root_cause = 0  # lines left of torchrun's summary
        self.steps: set[tuple[float, float]] = set()  # seen since the last error
        self.tries = _TRIES
        self.often: set[int] = set()
        self.filter = Prefilter(tuple(pattern.pattern for pattern, _ in self.patterns))

    def run(self, stream: BinaryIO) -> Trace:
        """Read to the end."""
        data = stream.read(BLOCK)
        carry = b""
        while data:
            block = carry + data if carry else data
            data = stream.read(BLOCK)
            end = max(block.rfind(b"\n"), block.rfind(b"\r", max(0, len(block) - _SEGMENT))) + 1
            if not data or (not end and len(block) > _SEGMENT):
                end = len(block)
            self._block(_plain(block[:end]))
            carry = block[end:]
        return self.trace

    def _block(self, block: bytes) -> None:
        if not block:
            return
        first = self.trace.lines + 1
        if self.open or self.root_cause > 0:
            self._continue(block, 0, first)
        spots = self.filter.candidates(block, self.often)
        number, counted, resume = first, 0, 0
        for start in self._chosen(spots):
            self._steps(block, resume, start)
            end = _line_end(block, start)
            number += block.count(b"\n", counted, start)
            counted = start
            if self._line(block, start, end, number, spots[start]):
                resume = end
        self._steps(block, resume, len(block))
        self.trace.lines += block.count(b"\n")
        self.trace.size += len(block)
        self.trace.tail = (self.trace.tail + block)[-TAIL:] if len(block) < TAIL else block[-TAIL:]

    def _chosen(self, spots: dict[int, frozenset[int]]) -> Iterator[int]:
        """The spots in order; of what is printed all the time the last one will do."""
        newest = often = -1
        for start in sorted(spots):
            if spots[start] <= self.often:
                often = start
            else:
                newest = start
                yield start
        if often > newest:
            yield often

    def _line(self, block: bytes, start: int, end: int, number: int, owners: frozenset[int]) -> bool:
        """True when a pattern matches this line."""
        line = lines.read(block[start:end])
        if self._is_source(line, number):
            return False
        hits = []
        for index in sorted(owners):
            pattern, excluders = self.patterns[index]
            match = pattern.search(line.text)
            if match and not any(excluder.search(line.text) for excluder in excluders):
                hits.append((index, match.end() - match.start()))
        if not hits:
            return False
        self.steps, self.tries = set(), _TRIES
        when = line.time if line.time is not None else _clock_before(block, start)
        rank = self.file_rank if line.rank is None else line.rank
        stage = self._stage(block, start)
        for index, size in hits:
            place = Place(self.trace.path, number, line.text.strip(), rank, when, size, self.trace.progress, stage)
            self._note(index, place, block, start, end)
        return True

    def _is_source(self, line: Line, number: int) -> bool:
        """A traceback quotes the code; what the code says is not what happened."""
        found = self.trace.tracebacks[-1] if self.trace.tracebacks else None
        inside = found is not None and found.start < number < (found.end or number + 1)
        return inside and line.text.startswith("    ") and line.text.lstrip()[:6] != 'File "'

    def _note(self, index: int, place: Place, block: bytes, start: int, end: int) -> None:
        if index == self.traceback:
            self._open(place, block, start, end)
        elif index == self.elastic:
            self.root_cause = 12
            self._continue(block, end + 1, place.line + 1)
        elif index == self.fatal:
            self.trace.fatal = place
        else:
            self._sight(index, place)

    def _sight(self, index: int, place: Place) -> None:
        key = (index, place.rank)
        known = self.trace.sightings.get(key)
        if known is None:
            if len(self.trace.sightings) < _MOST:
                self.trace.sightings[key] = Sighting(index, place, place, place)
            return
        if place.mark - known.last.mark >= ENOUGH:
            known.since = place
        known.last = place
        known.count += 1
        if known.count > _OFTEN:
            self.often.add(index)

    # -- tracebacks and torchrun's summary: what follows a line

    def _open(self, place: Place, block: bytes, start: int, end: int) -> None:
        if len(self.trace.tracebacks) >= _TRACEBACKS:
            alive = [found for found in self.trace.tracebacks if self.trace.progress - found.mark < ENOUGH]
            self.trace.tracebacks = alive[: _TRACEBACKS // 2]
        before = block[max(0, start - 400) : end].replace(b"\r", b"")
        found = Traceback(
            place.line, place.rank, place.mark, place.time, text=[place.text],
            chained=any(word in before for word in _CHAINED),
            ignored=any(word in before for word in _IGNORED),
        )  # fmt: skip
        self.trace.tracebacks.append(found)
        self.open = [found]
        self._continue(block, end + 1, place.line + 1)

    def _continue(self, block: bytes, start: int, number: int) -> None:
        """Lines that belong to an open traceback or to torchrun's summary; other ranks' lines stand between them."""
        while start < len(block) and (self.open or self.root_cause > 0):
            end = _line_end(block, start)
            line = lines.read(block[start:end])
            if self.root_cause > 0:
                self.root_cause -= 1
                match = _ELASTIC_FIELD.search(line.text)
                if match:
                    self.trace.elastic.setdefault(match[1], int(match[2]))
            rank = self.file_rank if line.rank is None else line.rank
            self.open = [found for found in self.open if rank != found.rank or not found.take(number, line)]
            number += block[end : end + 1] == b"\n"
            start = end + 1

    # -- did training go on?

    def _steps(self, block: bytes, start: int, end: int) -> None:
        """Count steps in this stretch, until there are ENOUGH after the last error."""
        while start < end and self.tries > 0 and len(self.steps) < ENOUGH:
            match = _STEPLIKE.search(block, start, end)
            if not match:
                return
            head, start = _line_start(block, match.start()), _line_end(block, match.start()) + 1
            self.tries -= 1
            step = _step(block[head : start - 1])
            if step and step not in self.steps:
                self.steps.add(step)
                self.trace.progress += 1

    def _stage(self, block: bytes, start: int) -> str:
        """start: no step was printed yet; end: the last one printed was the last of all."""
        window = block[max(0, start - _BACK) : start]
        for raw in reversed(window.replace(b"\r", b"\n").split(b"\n")[-40:]):
            if not _STEPLIKE.search(raw):
                continue
            point = parse_line(raw.decode("utf-8", "replace"))
            done, total = point.get("step"), point.get("total")
            if done is not None and total:
                return "end" if done >= total else "mid"
        return "mid" if self.trace.progress else "start"


def _step(raw: bytes) -> tuple[float, float] | None:
    """What a line of progress counts; wandb's summary at the end of a dead run is none."""
    if b"wandb:" in raw:
        return None
    point = parse_line(lines.read(raw).text)
    if not ("step" in point or "batch" in point or "epoch" in point):
        return None
    step = point.get("step", point.get("batch"))
    return float(point.get("epoch") or 0), float(step if step is not None else -1)


def _plain(block: bytes) -> bytes:
    """Without Windows line ends, and without colours: one in the middle of a word would hide it."""
    block = block.replace(b"\r\n", b"\n") if b"\r\n" in block else block
    block = _unwrapped(block) if block.startswith(b'{"log":') else block
    return _COLOUR.sub(b"", block) if b"\x1b[" in block else block


def _unwrapped(block: bytes) -> bytes:
    """Docker's json-file log as its program printed it, each line behind its clock."""
    return b"".join(map(_unwrapped_line, block.splitlines(keepends=True)))


def _unwrapped_line(raw: bytes) -> bytes:
    try:
        row = json.loads(raw)
        return f"{row['time']} {row['log'].rstrip()}\n".encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return raw


def _line_start(block: bytes, place: int) -> int:
    low = max(0, place - _SEGMENT)
    return max(block.rfind(b"\n", low, place), block.rfind(b"\r", low, place), low - 1) + 1


def _line_end(block: bytes, place: int) -> int:
    """Of this line or of this state of a progress bar; `\\r\\n` is one end."""
    high = min(len(block), place + _SEGMENT)
    newline = block.find(b"\n", place, high)
    high = newline if newline >= 0 else high
    bar = block.find(b"\r", place, high)
    return bar if bar >= 0 and bar + 1 != high else high


def _clock_before(block: bytes, start: int) -> float | None:
    """A traceback has no clock of its own: the last one before it is not later."""
    window = block[max(0, start - _BACK) : start].replace(b"\r", b"\n")
    stamps = (
        lines.clock(raw[: lines.LONGEST].decode("utf-8", "replace")) for raw in reversed(window.split(b"\n")[-60:])
    )
    return next((stamp for stamp in stamps if stamp is not None), None)
