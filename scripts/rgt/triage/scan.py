"""One pass over one log of any size: which entries it shows and where, its tracebacks and alarms, whether it went on.

Example:
    trace = Scan(plan(), "train.log").run(stream)      trace.sightings, .tracebacks, .alarms, .lines, .tail

Memory stays flat: of each (pattern, rank) only the first, the first since training last went on, and the last places
are kept. A line that a logger wrapped or boxed is judged as a whole; code that a traceback quotes is not judged.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Any, BinaryIO

from rgt.catalogue import entries as catalogue
from rgt.catalogue.entries import Entry
from rgt.log import printed
from rgt.log.line import LONGEST, parse_line
from rgt.log.printed import Line
from rgt.triage.curve import Curve
from rgt.triage.prefilter import Prefilter, Spot, Table

BLOCK = 1 << 20
TAIL = 8 << 10
ENOUGH = 2  # steps after an error that mean: training went on
_TRIES = 60  # lines looked at in search of them
_SEGMENT = 64 << 10  # a line without an end is cut here
_BACK, _LINES_BACK = 8 << 10, 60  # how far back a clock is looked for
_OFTEN = 20  # visits of one kind of line, after which only few of them are looked at
_MOST = 4096  # places kept
_NEWEST = 8  # places of one pattern kept beside the first
_SAMPLED = 16 << 20  # bytes after which the curve is sampled thinly
_TRACEBACKS = 200
_TRACEBACK_LINES = 300
_SHOWN_LINES = 30
_MESSAGE = 8  # lines of an exception's message that are kept
_MARGIN = 80  # characters before the head of a traceback
_JOINED = 5  # lines before, and after, that a wrap may have made

_STEP_WORDS = (b"step", b"Step", b"iter", b"Iter", b"poch", b"POCH", b"it/s", b"s/it", b" - ETA: ")
_CHAINED = (b"During handling of the above exception", b"direct cause of the following")
_WITHIN = (b"Original ", b"Remote ")  # the traceback of a worker, in the message of its parent's exception
_IGNORED = (b"Exception ignored ", b"--- Logging error ---")
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:: |:?$)")
_FRAME = re.compile(
    r'\s*File "(?P<a>[^"]+)", line (?P<a2>\d+)(?:, in (?P<a3>.+))?'
    r"|(?:File )?(?P<b>[/~]\S+\.py):(?P<b2>\d+),? in (?P<b3>[^\s(]+)"  # rich, and IPython since 8
    r"|(?P<c>\S+\.py|<ipython-input-[\w-]+>) in (?P<c3>[^\s(]+)"  # older IPython: an arrow shows the line
    r"|(?P<d>Cell In ?\[\d+\]), line (?P<d2>\d+)"
)
_FRAME_PARTS = (("a", "b", "c", "d"), ("a2", "b2", "d2"), ("a3", "b3", "c3"))  # path, line, function
_CUT_AT = re.compile(r"(?:-*> *\d+ +)?raise ([\w.]+)\([frb]?[\"'](.{4,}?)[\"']?\)?$")
_CUT_HEAD = re.compile(r"([A-Z]\w+(?:Error|Exception))()\s+Traceback")
_ARROW = re.compile(r"-+> *(\d+) +(.+)")
_LIBRARY = re.compile(r"(?:site|dist)-packages[/\\]|[/\\]lib(?:64)?[/\\]python\d|^<(?!ipython)|/torch/|importlib")
_PACKAGE = re.compile(r"(?:site|dist)-packages[/\\](\w+)")
_ELASTIC_FIELD = re.compile(r"^\s*(rank|exitcode)\s*:\s*(-?\d+)")
_CODE_LINE = re.compile(
    r"\s*(?:[-=>❱E]*\s*\d+\s|>\s)?\s*(?:raise|except|return|assert|elif|if|def|import|from)\b[^:]*[(:]"
)
_QUOTED = re.compile(r" {4}\S")  # as Python quotes a frame's code: what is indented further belongs to a message
_WIDTHS = (72, 76, 79, 80, 88, 100, 120, 132, 140, 160, 200)  # where loggers and terminals wrap
_NEW_TEXT = re.compile(
    r'\s*(?:File "|Traceback |During handling of |The above exc|[╭╰]|[A-Za-z_][\w.]*(?:Error|Exception|Interrupt)\b'
    r"|\[?(?i:epoch|step|iter)|\{'|wandb: )"
)
_ZEROS = bytes(BLOCK)
_KERNEL = re.compile(rb"^\[ *\d+\.\d{6}\] |^\[\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\] | kernel: ", re.M)
_HIT, _SEEN, _HARMLESS = "hit", "seen", "harmless"
_BOMS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")

# -- what is looked for beside the catalogue

TRACEBACK, ELASTIC, ENDED, PLACED = "traceback", "elastic", "ended", "placed"
# Alarms, by weight: what a run that died leaves behind. Without an entry that explains it, the heaviest one is shown.
EXCEPTION, NATIVE, ERROR, NCCL, SIGNAL, FAILED, NAN, EXIT = "exception native error nccl signal failed nan exit".split()
WEIGHT = {EXCEPTION: 5, NATIVE: 5, ERROR: 4, SIGNAL: 3, NCCL: 3, NAN: 3, FAILED: 2, EXIT: 1}
STRONG = 5
BUILT_IN = {
    TRACEBACK: (r"[Tt]raceback \(most recent call(?: last|s WITHOUT Sacred internals)\)",),
    ELASTIC: (r"Root Cause \(first observed failure\)",),
    ENDED: (
        r"[Tt]raining (?:is )?(?:completed?|finished|done)\b|[Ff]inished training|(?:completed|finished) successfully",
        r"^Training time: \d",
        r"train_runtime",
        r"Trainer\.fit. stopped: .max_",
        r"(?:COMPLETED|Completed|Succeeded) ",
    ),
    PLACED: (r"\bNormal +(?:Scheduled|Pulled|Started|SuccessfulAttachVolume) ",),
    EXCEPTION: (
        r"(?:^|[\s>:|'\"(])[A-Za-z_][\w.]*Error(?: ?: |\(| \(|:?$)",
        r"(?:^|[\s>:|'\"(])[\w.]*(?:Exception|Interrupt)(?:: |\(|:?$)",
        r"\b[Ee]xception in (?!thread)\w",
        r"^[a-z_][\w.]*\.[A-Z]\w*(?:Exit|Failed|Timeout|Expired|Closed|Failure|NotFound): ",
        r"^[a-z_][\w.]*\.(?:exceptions?|errors?|exc)\.[A-Z]\w+: ",
    ),
    NATIVE: (
        r"Segmentation fault|[Cc]ore dumped|Fatal Python error|terminate called|^Aborted|Bus error|Illegal instruction",
        r"Floating point exception|SIG(?:SEGV|ABRT|BUS|FPE|ILL|TRAP)\b|double free or|free\(\): |malloc\(\): ",
        r"fatal exception|MPI_ABORT was invoked|occurred in MPI|Non-OK-status",
        r"stack smashing|INTERNAL ASSERT|panicked at|Check failed: |[Aa]ssertion .{1,300} failed|what\(\):  ",
    ),
    ERROR: (
        r"\b[Ee]rror: \S|\b[Ee]rror\]:? |\b[Ee]rror (?:#?\d+|occurred|from|in)\b",
        r"cudaError[A-Z]|\bCUDA error\b",
        r"\bERROR\b",
        r"\[Errno \d+\] ",
        r": (?:No such file|Permission denied|Operation not permitted|Exec format|Is a directory|Not a directory)",
        r"Connection (?:refused|reset|timed out)|closed by remote host|Input/output|No route to host|Broken pipe",
        r"\bFATAL\b|\b[Ff]atal *: |CRITICAL|RESOURCE_EXHAUSTED|command not found",
    ),
    NCCL: (r"NCCL WARN ",),
    FAILED: (
        r"\bFAILED\b",
        r"\b[Ff]ailed (?:to|with|because)\b",
        r"CrashLoopBackOff|ErrImagePull|ImagePullBackOff|FailedScheduling|FailedMount|Evicted|NODE_FAIL|OUT_OF_ME",
        r"job rejected|exceeded limit",
        r"[Oo]ut of memory|memory limit|\bOOM\b|not finite|non-finite|is NaN\b|\babort(?:ed|ing)\b|^[Uu]sage: ",
        r"\bcrashed\b|not enough|[Ii]nsufficient|timed out\b|Aborting\b|[Cc]ould not|[Cc]annot\b|[Uu]nable to\b",
    ),
    SIGNAL: (
        r"^Killed$|[Kk]illed {2,}\S|^Terminated$|^Hangup|^Alarm clock|received signal|death signal",
        r"ernel (?:appears to have )?died|SIG(?:KILL|TERM|HUP|INT|XCPU)\b",
        r"[Kk]illed (?:due|by|because|after)|was killed|job killed|on signal \d|已杀死|已终止|段错误|核心已转储",
    ),
    NAN: (r"^[-+\d.,;|\seE]*\b(?:nan|NaN)\b[-+\d.,;|\seEnaN]*$",),  # a row of a table
    EXIT: (
        r"(?i:exit(?:ed)?)[ _](?:with )?(?:non-zero )?(?:exit )?(?:status|code)[ :=]+-?[1-9]",
        r"exitcode *[:=] *-?[1-9]|return(?:ed)?[ _]?code[ =:]+-?[1-9]|non-zero exit status [1-9]|Exit Code: +[1-9]",
        r"[Ee]xited \([1-9]|\"ExitCode\": [1-9]|ExitCode=[1-9]|ExitCode=0:[1-9]",
        r"(?:FAILED|OUT_OF_ME\w*|NODE_FAIL|TIMEOUT|PREEMPTED)\+? +\d+:\d+",  # sacct
        r"^[^.\s]+(?:\.\D\S*)? .*CANCELLED\+? +\d+:\d+",  # of the job: one of its steps may be stopped on purpose
    ),
}
_BAD = r"(?i:errors?|exceptions?|failed|failures?)"
_NUMBER = r"['\"]?[-+]?[\d.]+(?:e[-+]?\d+)?%?['\"]?\s*(?:[,;|)}\]]|$)"
_METRIC = re.compile(rf"{_BAD}(?:['\"]?\s*[:=]\s*(?:{_NUMBER}|None|null|\"\")|\s+(?:0\b|\d*\.\d))")
_NAMED = re.compile(r"[\w.]+(?:Error|Exception) ?: .{,12}")  # only a number right behind the name is a metric's
_NOT_ALARM = re.compile(
    rf"\b(?:no|0|without|ignore|ignoring|ignored|handled|suppress\w*) (?:\w+ )?{_BAD}\b"
    r"|\b(?:an?|the|some|any|this|slight|small|minor) [Ee]rror (?:in|from|occurred)\b"  # somebody's prose
    r"|[Rr]etry|will be ignored|[Ff]alling back|fallback|non-fatal|not fatal|harmless|gracefully|[Ss]aving"
    r"|_error\b.{0,3}[\d.]|pip's dependency resolver|libibverbs|\w+Warning: |NCCL INFO"
    r"|\.(?:bashrc|bash_profile|profile|zshrc): line \d"  # of every shell that starts
)


@dataclass(frozen=True)
class Pattern:
    text: str
    kind: str  # "signature", "context" (of an entry's near:), or a name of BUILT_IN
    entry: Entry | None = None

    def search(self, line: str) -> re.Match[str] | None:
        return _compiled(self.text).search(line)


@functools.cache
def _compiled(text: str) -> re.Pattern[str]:
    """When it is needed first: a thousand regexes take a second."""
    return re.compile(text)


@dataclass(frozen=True)
class Plan:
    """Everything to look for, made ready for any number of logs."""

    patterns: tuple[Pattern, ...]
    table: Table
    entries: tuple[Entry, ...]


def plan(book: catalogue.Catalogue | None = None) -> Plan:
    book = book or catalogue.read()
    patterns = [Pattern(text, "signature", entry) for entry in book.entries for text in entry.signatures]
    contexts = dict.fromkeys(text for entry in book.entries for text in entry.near)
    patterns += [Pattern(text, "context") for text in contexts]
    patterns = [pattern for pattern in patterns if pattern.text in book.ways]
    built_in = [Pattern(text, kind) for kind, texts in BUILT_IN.items() for text in texts]
    ways = [book.ways[pattern.text] for pattern in patterns] + [catalogue.literal_ways(one.text) for one in built_in]
    return Plan((*patterns, *built_in), Table(ways), book.entries)


# -- what was seen


@dataclass(frozen=True)
class Place:
    path: str
    line: int
    text: str
    rank: int | None
    time: float | None
    size: int  # characters that matched outside of named groups: more of them is more specific
    mark: int  # steps counted before it
    level: str = ""
    parts: tuple[tuple[str, str], ...] = ()  # what the signature's named groups took: for the entry's text


@dataclass(eq=False)
class Sighting:
    """Where one pattern was seen in one rank's output."""

    pattern: Pattern
    first: Place
    since: Place  # the first one after training last went on
    newest: deque[Place] = field(default_factory=lambda: deque(maxlen=_NEWEST))
    count: int = 0  # of the lines that were looked at: of a kind that comes very often not all are

    @property
    def last(self) -> Place:
        return self.newest[-1]

    @property
    def places(self) -> list[Place]:
        return list(dict.fromkeys([self.first, self.since, *self.newest]))


Sightings = dict[tuple[Any, int | None], Sighting]  # by pattern, or kind of alarm, and rank


@dataclass
class Traceback:
    start: int  # line of its head
    rank: int | None
    mark: int
    time: float | None = None
    end: int = 0  # line that names the exception; 0: not seen yet
    raised: str = ""
    frame: str = ""  # the last one outside of libraries
    source: str = ""  # the code that it quotes
    code: str = ""  # the code that the last frame quotes, a library's too
    packages: list[str] = field(default_factory=list)  # of its frames, the last one's at the end
    margin: str = ""  # what the thread it was copied from, or a document, set before every line
    text: list[str] = field(default_factory=list)
    chained: bool = False  # to the one before it
    within: bool = False  # in the message of the one before it
    ignored: bool = False  # Python said that it ignores it
    boxed: bool = False
    level: str = ""
    seen: int = 0
    ours: bool = False  # the frame read last is not a library's
    more: list[str] = field(default_factory=list)  # of its message, below the line that names the exception

    @property
    def message(self) -> str:
        return " ".join([self.raised.partition(":")[2].strip(), *self.more]).strip()

    def take(self, number: int, line: Line) -> bool:
        """One more line of it; True when it is complete."""
        self.seen += 1
        line = replace(line, text=line.text.removeprefix(self.margin)) if self.margin else line
        if self.end:  # a message of several lines ends with a blank one, or where a logger speaks
            blank = not line.text.strip()
            if (blank and self.more) or line.level or line.time is not None or _NEW_TEXT.match(line.text):
                return True
            self.more += [] if blank else [line.text.strip()]
            return len(self.more) >= _MESSAGE or number - self.end > _MESSAGE
        if len(self.text) < _SHOWN_LINES or not line.text.startswith(" "):
            self.text.append(line.text)
        if frame := _FRAME.match(line.text):
            path, at, name = (next(filter(None, frame.group(*names)), "") for names in _FRAME_PARTS)
            package = match[1] if (match := _PACKAGE.search(path)) else ""
            self.packages = [*(one for one in self.packages if one != package), package]
            self.ours, self.code = not _LIBRARY.search(path), ""
            if self.ours:
                place = f"{path}:{at}" if at else path
                self.frame, self.source = place + (f" in {name}" if name else ""), ""
        elif self.ours and (arrow := _ARROW.match(line.text)):
            self.source = arrow[2].strip()  # of the lines that IPython shows around it
        elif line.text.startswith("    ") and line.text.strip(" ^~"):
            self.code = line.text.strip()
            self.source = self.source or (self.code if self.ours else "")
        elif line.text and not line.boxed and (self.boxed or _RAISED.match(line.text)):
            self.end, self.raised = number, line.text
        return self.seen > _TRACEBACK_LINES


@dataclass
class Trace:
    path: str
    kernel: bool = False
    sightings: Sightings = field(default_factory=dict)  # also of contexts
    alarms: Sightings = field(default_factory=dict)
    tracebacks: list[Traceback] = field(default_factory=list)
    elastic: dict[str, int] = field(default_factory=dict)
    curve: Curve = field(default_factory=Curve)
    ended: int = 0  # line in which the trainer says that it reached its end
    placed: int = 0  # line in which Kubernetes says that a pod has what it waited for
    progress: int = 0  # steps counted, at most ENOUGH after each error
    lines: int = 0
    size: int = 0
    tail: bytes = b""


class Scan:
    """What to look for, made ready for one log."""

    def __init__(self, what: Plan, path: str, kernel: bool = False) -> None:
        self.patterns = what.patterns
        self.trace = Trace(path, kernel)
        self.file_rank = printed.rank_of_file(path)
        self.open: list[Traceback] = []
        self.root_cause = 0  # lines left of torchrun's summary
        self.steps: set[tuple[float, float]] = set()  # seen since the last error
        self.tries = _TRIES
        self.filter = Prefilter(what.table)

    def run(self, stream: BinaryIO) -> Trace:
        """Read to the end, in blocks that end where a line does."""
        trace, first_line = self.trace, 1
        docker = False
        for number, (block, following) in enumerate(pairwise(chain(_blocks(stream), [b""]))):
            if not number:
                docker = block.startswith(b'{"log":')
                trace.kernel = trace.kernel or len(_KERNEL.findall(block[:TAIL])) > 1
            block = _printed_by_docker(block) if docker else block
            if self.open or self.root_cause > 0:
                self._continue(block, 0, first_line)
            spots, lines = self.filter.candidates(block)
            lines = block.count(b"\n") if b"\r" in block else lines
            counted, at, resume = 0, first_line, 0
            # what survived is judged by its last place: each kind's in the last block, one in every other
            last = {max(spots, default=0)} if following else set({id(one): at for at, one in spots.items()}.values())
            for start, spot in spots.items():
                spot.visits += 1
                if spot.visits > _OFTEN and start not in last and not self._is_news(block, start, spot):
                    continue
                self._steps(block, resume, start)
                end = _line_end(block, start)
                at += block.count(b"\n", counted, start)
                counted = start
                spot.outcome = self._line(block, start, end, at, spot)
                resume = end if spot.outcome == _HIT else resume
            self._steps(block, resume, len(block))
            trace.curve.sample(block, first_line, trace.size > _SAMPLED)
            before, first_line = first_line, first_line + lines
            trace.lines = first_line - 1 + (not block.endswith(b"\n"))
            trace.size += len(block)
            trace.tail = (trace.tail + block)[-TAIL:] if len(block) < TAIL else block[-TAIL:]
        if trace.size:
            trace.curve.sample_end(block, before)
            self._name_cut()
        return trace

    def _is_news(self, block: bytes, start: int, spot: Spot) -> bool:
        """Lines of one kind differ by their numbers: after a hundred times "exit code 0" one may say 1."""
        text = block[start : min(_line_end(block, start), start + LONGEST)].decode("utf-8", "replace")
        return not spot.outcome and any(self.patterns[index].search(text) for index in spot.sure)

    def _line(self, block: bytes, start: int, end: int, number: int, spot: Spot) -> str:
        """What came of it: _HIT, _SEEN (it may be a step), _HARMLESS (words of an alarm that mean none), or nothing."""
        line = printed.bare_line(block[start:end])
        # a traceback quotes the code; what the code says is not what happened
        last = self.trace.tracebacks[-1] if self.trace.tracebacks else None
        inside = last is not None and last.start < number < (last.end or number + 1)
        quoted = line.text.lstrip().startswith(("raise ", "except ")) or bool(_CODE_LINE.match(line.text))
        if inside and (line.boxed or _QUOTED.match(line.text)) and line.text.lstrip()[:6] != 'File "':
            quoted = True
        known = any(self.patterns[index].kind not in BUILT_IN for index in spot.sure | spot.maybe)
        joined, above, level = self._joined(block, start, end, line) if known else ("", 0, line.level)
        hits: list[tuple[Pattern, int, Place]] = []
        outcome = _HARMLESS if quoted else ""
        rank = self.file_rank if line.rank is None else line.rank
        here = Place(self.trace.path, number, line.text.strip(), rank, line.time, 0, self.trace.progress, level)
        for index in sorted(spot.sure | spot.maybe if joined else spot.sure):
            pattern = self.patterns[index]
            if quoted and pattern.kind != "context":  # but it may say what the code was about
                continue
            match = pattern.search(line.text) or (pattern.search(line.whole) if line.whole != line.text else None)
            wrapped = None if match or not joined or pattern.kind in WEIGHT else pattern.search(joined)
            hit = match or wrapped
            if not hit:
                continue
            if pattern.kind in WEIGHT and _is_harmless(replace(line, level=level), pattern.kind):
                outcome = _HARMLESS
                continue
            if pattern.entry and not pattern.entry.fits(hit.groupdict()):
                continue
            excluders = pattern.entry.excluders if pattern.entry else ()
            if any(_compiled(text).search(joined if wrapped or line.boxed else line.whole) for text in excluders):
                continue
            text, at = (here.text, number) if match else (joined, number - above)
            parts = tuple((name, part) for name, part in hit.groupdict().items() if part)
            size = hit.end() - hit.start() - sum(len(part) for _, part in parts)
            hits.append((pattern, index, replace(here, size=size, text=text, line=at, parts=parts)))
        if not hits:
            return outcome
        happened = any(pattern.kind not in ("context", ENDED, PLACED) for pattern, _, _ in hits)
        if happened:
            self.steps, self.tries = set(), _TRIES
        # an exception has no clock of its own: the last one before it is not later
        when = _clock_above(block, start) if line.time is None else line.time
        for pattern, index, place in hits:
            self._keep(pattern, index, replace(place, time=when), block, start, end)
        return _HIT if happened else _SEEN

    def _keep(self, pattern: Pattern, index: int, place: Place, block: bytes, start: int, end: int) -> None:
        if pattern.kind in WEIGHT:
            _sight(self.trace.alarms, (pattern.kind, place.rank), pattern, place)
        elif pattern.kind not in BUILT_IN:
            _sight(self.trace.sightings, (index, place.rank), pattern, place)
        elif pattern.kind == TRACEBACK:
            self._open(place, block, start, end)
        elif pattern.kind == ELASTIC:
            self.root_cause = 12
            self._continue(block, end + 1, place.line + 1)
        elif pattern.kind == ENDED:
            self.trace.ended = place.line
        else:
            self.trace.placed = place.line

    # -- a line that was wrapped

    def _joined(self, block: bytes, start: int, end: int, line: Line) -> tuple[str, int, str]:
        """The text of which this line is a part, how many lines of it stand above, its level; alone: no text."""
        above = block[max(0, start - _BACK) : start].splitlines()[-_JOINED:]
        below = block[end + 1 : end + 1 + _BACK].splitlines()[:_JOINED]
        lines = [*map(printed.bare_line, above), line, *map(printed.bare_line, below)]
        first = last = len(above)
        while first > 0 and _runs_on(lines[first - 1], lines[first]):
            first -= 1
        while last + 1 < len(lines) and _runs_on(lines[last], lines[last + 1]):
            last += 1
        if first == last:
            return "", 0, line.level
        indented = line.text[:1] == " "  # under the words of its logger, as rich wraps
        texts = (each.text.strip().removesuffix("\\").rstrip() for each in lines[first : last + 1])
        return " ".join(texts)[:LONGEST], len(above) - first, lines[first].level if indented else line.level

    # -- tracebacks and torchrun's summary: what follows a line

    def _open(self, place: Place, block: bytes, start: int, end: int) -> None:
        if len(self.trace.tracebacks) >= _TRACEBACKS:
            alive = [one for one in self.trace.tracebacks if self.trace.progress - one.mark < ENOUGH]
            self.trace.tracebacks = alive[: _TRACEBACKS // 2]
        before = block[max(0, start - 400) : end].replace(b"\r", b"")
        chained, within, ignored = (any(word in before for word in words) for words in (_CHAINED, _WITHIN, _IGNORED))
        head = printed.bare_line(block[start:end])
        margin = head.text[: max(0, head.text.find("raceback (most") - 1)][:_MARGIN]
        opened = Traceback(place.line, place.rank, place.mark, place.time, margin=margin, text=[place.text])
        opened.boxed, opened.chained, opened.within, opened.ignored = head.boxed, chained, within, ignored
        opened.level = place.level
        self.trace.tracebacks.append(opened)
        self.open = [opened]
        self._continue(block, end + 1, place.line + 1)

    def _name_cut(self) -> None:
        """The log may end in a traceback before its exception: the raise quoted last, or IPython's head, names it."""
        last = self.trace.tracebacks[-1] if self.trace.tracebacks else None
        if not last or last.end:
            return
        end = re.split(rb"[\r\n]+", self.trace.tail.rstrip())[-1].decode("utf-8", "replace").strip()
        if named := _CUT_AT.match(end) or _CUT_HEAD.match(last.text[0]):
            last.end, last.raised = self.trace.lines, ": ".join(filter(None, named.groups()))
            line = last.raised.encode()
            for spot in self.filter.candidates(line)[0].values():
                self._line(line, 0, len(line), last.end, spot)

    def _continue(self, block: bytes, start: int, number: int) -> None:
        """Lines that belong to an open traceback or to torchrun's summary; other ranks' lines stand between them."""
        while start < len(block) and (self.open or self.root_cause > 0):
            end = _line_end(block, start)
            line = printed.bare_line(block[start:end])
            if self.root_cause > 0:
                self.root_cause -= 1
                if match := _ELASTIC_FIELD.search(line.text):
                    self.trace.elastic.setdefault(match[1], int(match[2]))
            rank = self.file_rank if line.rank is None else line.rank
            self.open = [one for one in self.open if rank != one.rank or not one.take(number, line)]
            number += block[end : end + 1] == b"\n"
            start = end + 1

    # -- did training go on?

    def _steps(self, block: bytes, start: int, end: int) -> None:
        """Count steps in this stretch, until there are ENOUGH after the last error."""
        places = dict.fromkeys(_STEP_WORDS, start - 1)  # where each word stands next
        while start < end and self.tries > 0 and len(self.steps) < ENOUGH:
            for word in [word for word, place in places.items() if place < start]:
                places[word] = block.find(word, start, end)
                if places[word] < 0:
                    del places[word]
            if not places:
                return
            place = min(places.values())
            low = max(0, place - _SEGMENT)
            head = max(block.rfind(b"\n", low, place), block.rfind(b"\r", low, place), low - 1) + 1
            start = _line_end(block, place) + 1
            self.tries -= 1
            raw = block[head : start - 1]
            # wandb's summary ends a dead run
            point = {} if b"wandb:" in raw else parse_line(printed.bare_line(raw).text)
            if not ("step" in point or "batch" in point or "epoch" in point):
                continue
            count = point.get("step", point.get("batch"))
            step = float(point.get("epoch") or 0), float(count if count is not None else -1)
            self.trace.progress += step not in self.steps
            self.steps.add(step)


def _sight(kept: Sightings, key: tuple[Any, int | None], pattern: Pattern, place: Place) -> None:
    """Remember one more place."""
    if key not in kept and len(kept) >= _MOST:
        return
    known = kept.setdefault(key, Sighting(pattern, place, place))
    if known.newest and place.mark - known.last.mark >= ENOUGH:
        known.since = place
    known.newest.append(place)
    known.count += 1


def _is_harmless(line: Line, kind: str) -> bool:
    """Words of an alarm in a metric's name, a retry, a line that a logger calls information."""
    if line.level == "I" or (line.level == "W" and kind not in (SIGNAL, EXIT)) or _NOT_ALARM.search(line.text):
        return True
    named = _NAMED.match(line.text) if kind == EXCEPTION else None
    if _METRIC.search(named[0] if named else line.text):
        return True
    point = parse_line(line.text) if WEIGHT[kind] < STRONG else {}
    return "metrics" in point and ("step" in point or "epoch" in point or "batch" in point)


def _clock_above(block: bytes, start: int) -> float | None:
    window = block[max(0, start - _BACK) : start].replace(b"\r", b"\n").split(b"\n")[-_LINES_BACK:]
    stamps = (printed.clock(raw[:LONGEST].decode("utf-8", "replace")) for raw in reversed(window))
    return next((stamp for stamp in stamps if stamp is not None), None)


def _runs_on(upper: Line, lower: Line) -> bool:
    """Whether a wrap may have cut these two apart."""
    if not upper.text.strip() or not lower.text.strip() or _NEW_TEXT.match(lower.text):
        return False
    if upper.text.endswith("\\"):
        return True
    if upper.boxed or lower.boxed:
        return upper.boxed and lower.boxed and upper.width >= _WIDTHS[0] - 12
    if lower.time is not None or lower.level or upper.text.lstrip().startswith('File "'):
        return False
    # the next word would have been too long for the line
    longer = upper.width + len(lower.text.split(maxsplit=1)[0])
    return any(upper.width <= width <= longer for width in _WIDTHS)


# -- bytes


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Pieces of about BLOCK bytes that end where a line does, without zeros (holes, UTF-16) and Windows line ends."""
    data = stream.read(BLOCK)
    for mark in _BOMS:
        data = data.removeprefix(mark)
    carry = b""
    while data:
        following = stream.read(BLOCK)
        if data == _ZEROS:  # a hole
            data = following
            continue
        end = max(data.rfind(b"\n"), data.rfind(b"\r", max(0, len(data) - _SEGMENT))) + 1
        if not following or (not end and len(carry) + len(data) > _SEGMENT):
            end = len(data)
        # one copy: this is most of the work on a log whose lines are all alike
        block = b"".join((carry, memoryview(data)[:end])) if carry or end < len(data) else data
        carry, data = (data[end:] if end else carry + data), following
        if not end:
            continue
        if b"\0" in block:
            block = block.translate(None, b"\0")
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        if block:
            yield block
    if carry:  # the last line, before a hole
        yield carry


def _printed_by_docker(block: bytes) -> bytes:
    """Its json-file log as its program printed it, each line behind its clock."""
    rows = block.splitlines(keepends=True)
    for number, raw in enumerate(rows):
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
            row = json.loads(raw)
            rows[number] = f"{row['time']} {row['log'].rstrip()}\n".encode()
    return b"".join(rows)


def _line_end(block: bytes, place: int) -> int:
    """Of this line or of this state of a progress bar; `\\r\\n` is one end."""
    high = min(len(block), place + _SEGMENT)
    newline = block.find(b"\n", place, high)
    high = newline if newline >= 0 else high
    bar = block.find(b"\r", place, high)
    return bar if bar >= 0 and bar + 1 != high else high
