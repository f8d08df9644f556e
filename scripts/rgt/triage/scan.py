"""One pass over one log of any size: which entries it shows and where, its tracebacks, whether training went on.

Example:
    trace = Scan(patterns, "train.log").run(stream)      trace.sightings, .tracebacks, .elastic, .lines, .tail

Memory stays flat: of each (pattern, rank) only the first, the first since training last went on, and the last place
are kept.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import BinaryIO

from rgt.catalogue.entries import literal_ways
from rgt.log import line as lines
from rgt.log.line import Line, parse_line

BLOCK = 4 << 20
TAIL = 8 << 10
ENOUGH = 3  # steps after an error that mean: training went on
_TRIES = 60  # lines looked at in search of them
_SEGMENT = 64 << 10  # a line without an end is cut here
_BACK, _LINES_BACK = 8 << 10, 60  # how far back a clock is looked for
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

Patterns = list[tuple[re.Pattern[str], tuple[re.Pattern[str], ...]]]  # a signature and its excluders


@dataclass(frozen=True)
class Place:
    path: str
    line: int
    text: str
    rank: int | None
    time: float | None
    size: int  # characters that matched: more of them is more specific
    mark: int  # steps counted before it


@dataclass
class Sighting:
    """Where one pattern was seen in one rank's output."""

    pattern: int
    first: Place
    since: Place  # the first one after training last went on
    last: Place
    count: int = 0


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

    def __init__(self, patterns: Patterns, path: str, kernel: bool = False) -> None:
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
        """Read to the end, in blocks that end where a line does."""
        data = stream.read(BLOCK)
        carry = b""
        while data:
            block = carry + data if carry else data
            data = stream.read(BLOCK)
            end = max(block.rfind(b"\n"), block.rfind(b"\r", max(0, len(block) - _SEGMENT))) + 1
            if not data or (not end and len(block) > _SEGMENT):
                end = len(block)
            carry = block[end:]
            block = _plain(block[:end])
            first = number = self.trace.lines + 1
            if self.open or self.root_cause > 0:
                self._continue(block, 0, first)
            spots = self.filter.candidates(block)
            counted = resume = 0
            last = max(spots, default=0)
            for start, owners in spots.items():
                if owners <= self.often and start != last:
                    continue
                self._steps(block, resume, start)
                end = _line_end(block, start)
                number += block.count(b"\n", counted, start)
                counted = start
                if self._line(block, start, end, number, owners):
                    resume = end
            self._steps(block, resume, len(block))
            self.trace.lines += block.count(b"\n")
            self.trace.size += len(block)
            self.trace.tail = (self.trace.tail + block)[-TAIL:] if len(block) < TAIL else block[-TAIL:]
        return self.trace

    def _line(self, block: bytes, start: int, end: int, number: int, owners: frozenset[int]) -> bool:
        """True when a pattern matches this line."""
        line = lines.bare_line(block[start:end])
        # a traceback quotes the code; what the code says is not what happened
        last = self.trace.tracebacks[-1] if self.trace.tracebacks else None
        inside = last is not None and last.start < number < (last.end or number + 1)
        if inside and line.text.startswith("    ") and line.text.lstrip()[:6] != 'File "':
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
        when = line.time
        if when is None:  # a traceback has no clock of its own: the last one before it is not later
            window = block[max(0, start - _BACK) : start].replace(b"\r", b"\n").split(b"\n")[-_LINES_BACK:]
            stamps = (lines.clock(raw[: lines.LONGEST].decode("utf-8", "replace")) for raw in reversed(window))
            when = next((stamp for stamp in stamps if stamp is not None), None)
        rank = self.file_rank if line.rank is None else line.rank
        for index, size in hits:
            place = Place(self.trace.path, number, line.text.strip(), rank, when, size, self.trace.progress)
            if index == self.traceback:
                self._open(place, block, start, end)
            elif index == self.elastic:
                self.root_cause = 12
                self._continue(block, end + 1, number + 1)
            elif index == self.fatal:
                self.trace.fatal = place
            else:
                self._sight(index, place)
        return True

    def _sight(self, index: int, place: Place) -> None:
        sightings, key = self.trace.sightings, (index, place.rank)
        if key not in sightings and len(sightings) >= _MOST:
            return
        known = sightings.setdefault(key, Sighting(index, place, place, place))
        if place.mark - known.last.mark >= ENOUGH:
            known.since = place
        known.last = place
        known.count += 1
        if known.count > _OFTEN:
            self.often.add(index)

    # -- tracebacks and torchrun's summary: what follows a line

    def _open(self, place: Place, block: bytes, start: int, end: int) -> None:
        if len(self.trace.tracebacks) >= _TRACEBACKS:
            alive = [one for one in self.trace.tracebacks if self.trace.progress - one.mark < ENOUGH]
            self.trace.tracebacks = alive[: _TRACEBACKS // 2]
        before = block[max(0, start - 400) : end].replace(b"\r", b"")
        chained, ignored = (any(word in before for word in words) for words in (_CHAINED, _IGNORED))
        text, rank, when = [place.text], place.rank, place.time
        opened = Traceback(place.line, rank, place.mark, when, text=text, chained=chained, ignored=ignored)
        self.trace.tracebacks.append(opened)
        self.open = [opened]
        self._continue(block, end + 1, place.line + 1)

    def _continue(self, block: bytes, start: int, number: int) -> None:
        """Lines that belong to an open traceback or to torchrun's summary; other ranks' lines stand between them."""
        while start < len(block) and (self.open or self.root_cause > 0):
            end = _line_end(block, start)
            line = lines.bare_line(block[start:end])
            if self.root_cause > 0:
                self.root_cause -= 1
                match = _ELASTIC_FIELD.search(line.text)
                if match:
                    self.trace.elastic.setdefault(match[1], int(match[2]))
            rank = self.file_rank if line.rank is None else line.rank
            self.open = [one for one in self.open if rank != one.rank or not one.take(number, line)]
            number += block[end : end + 1] == b"\n"
            start = end + 1

    # -- did training go on?

    def _steps(self, block: bytes, start: int, end: int) -> None:
        """Count steps in this stretch, until there are ENOUGH after the last error."""
        while start < end and self.tries > 0 and len(self.steps) < ENOUGH:
            match = _STEPLIKE.search(block, start, end)
            if not match:
                return
            low = max(0, match.start() - _SEGMENT)
            head = max(block.rfind(b"\n", low, match.start()), block.rfind(b"\r", low, match.start()), low - 1) + 1
            start = _line_end(block, match.start()) + 1
            self.tries -= 1
            raw = block[head : start - 1]
            point = {} if b"wandb:" in raw else parse_line(lines.bare_line(raw).text)  # wandb's summary ends a dead run
            if not ("step" in point or "batch" in point or "epoch" in point):
                continue
            count = point.get("step", point.get("batch"))
            step = float(point.get("epoch") or 0), float(count if count is not None else -1)
            if step not in self.steps:
                self.steps.add(step)
                self.trace.progress += 1


def _plain(block: bytes) -> bytes:
    """Without Windows line ends, and without colours: one in the middle of a word would hide it."""
    block = block.replace(b"\r\n", b"\n") if b"\r\n" in block else block
    if block.startswith(b'{"log":'):  # docker's json-file log; as its program printed it, each line behind its clock
        rows = block.splitlines(keepends=True)
        for number, raw in enumerate(rows):
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
                row = json.loads(raw)
                rows[number] = f"{row['time']} {row['log'].rstrip()}\n".encode()
        block = b"".join(rows)
    return _COLOUR.sub(b"", block) if b"\x1b[" in block else block


def _line_end(block: bytes, place: int) -> int:
    """Of this line or of this state of a progress bar; `\\r\\n` is one end."""
    high = min(len(block), place + _SEGMENT)
    newline = block.find(b"\n", place, high)
    high = newline if newline >= 0 else high
    bar = block.find(b"\r", place, high)
    return bar if bar >= 0 and bar + 1 != high else high


# -- Finds the lines worth a regex: a log of gigabytes is a few hundred kinds of lines, repeated with other numbers


_NUMERIC = b"0123456789.+-"
_LINES = bytes.maketrans(b"\r", b"\n")  # every state of a progress bar is a line
_LENGTHS = (5, 7, 12)  # of a fragment: short ones are shared by many signatures
_EDGE = re.compile(rb"[^A-Za-z]+|(?<=[a-z])(?=[A-Z])")  # fragments start where a word does
_MOST = 200_000  # keys kept; a log of ever new lines starts anew
_LONG = 4000  # bytes of a key: a dumped tensor is not worth more

Way = tuple[int, tuple[bytes, ...]]  # a pattern and the words that a line must hold for it
FragmentPlan = dict[bytes, list[Way]]  # fragment -> the ways that it stands for


@dataclass
class Prefilter:
    patterns: tuple[str, ...]
    harmless: set[bytes] = field(default_factory=set)
    suspect: dict[bytes, frozenset[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.plan = fragment_plan(self.patterns)

    def candidates(self, block: bytes) -> dict[int, frozenset[int]]:
        """Start of line -> patterns that may match there, in the order of the lines."""
        if len(self.harmless) + len(self.suspect) > _MOST:  # before any key is looked up: a known suspect stays one
            self.harmless.clear()
            self.suspect.clear()
        keys = block.translate(_LINES, _NUMERIC).split(b"\n")
        fresh = set(keys).difference(self.harmless)
        new = [key for key in fresh if key not in self.suspect]
        together = b"\n".join(new)
        present = [(fragment, ways) for fragment, ways in self.plan.items() if fragment in together] if new else []
        for key in new:
            start = key[:_LONG]
            near = [ways for fragment, ways in present if fragment in start]
            owners = {pattern for ways in near for pattern, words in ways if all(word in start for word in words)}
            if owners:
                self.suspect[key] = frozenset(owners)
            else:
                self.harmless.add(key)
        suspects = {key: self.suspect[key] for key in fresh if key in self.suspect}
        if not suspects:  # nearly always
            return {}
        starts = itertools.accumulate((len(line) + 1 for line in block.translate(_LINES).split(b"\n")), initial=0)
        return {start: suspects[key] for start, key in zip(starts, keys, strict=False) if key in suspects}


@functools.lru_cache(maxsize=4)
def fragment_plan(patterns: tuple[str, ...]) -> FragmentPlan:
    """Each way goes to the fragment of its words that most ways share: fewer fragments to search for."""
    choices: list[tuple[Way, set[bytes]]] = []
    for index, pattern in enumerate(patterns):
        for way in literal_ways(pattern):
            # as they stand in a key: without digits. Part of a run is enough to be sure that it is missing
            words = tuple(word for run in way if (word := run.encode().translate(None, _NUMERIC)))
            starts = [(word, start) for word in words for start in (0, *(m.end() for m in _EDGE.finditer(word)))]
            fragments = {word[at : at + size] for word, at in starts for size in _LENGTHS if at + size <= len(word)}
            choices.append(((index, words), fragments or {max(words, key=len)}))
    shared = Counter(fragment for _, fragments in choices for fragment in fragments)
    plan: FragmentPlan = defaultdict(list)
    for way_of_pattern, fragments in choices:
        plan[max(fragments, key=lambda one: (shared[one], len(one), one))].append(way_of_pattern)
    return plan
