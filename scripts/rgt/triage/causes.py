"""Which of the things that a run's logs show is the root, which are its aftermath, and what stays unknown.

A log is a list of incidents: a chain of tracebacks with its message, an exception or alarm without one, a line that an
entry knows. Each is explained by its best entry (context that is there beats none, a cause beats a general kind, the
first line of a chain beats the later ones) or stays unknown. Then the root is the first incident that training did not
survive, on the rank that torchrun names where it does; what others raised because a process was gone is aftermath.
What training survived, hints, and what a logger calls information are not findings.
"""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from rgt.catalogue.entries import KINDS, NEAR, Entry
from rgt.log.printed import bare_line
from rgt.triage.curve import NAN, SKIPS
from rgt.triage.scan import ENOUGH, EXIT, FAILED, NCCL, STRONG, WEIGHT, Place, Plan, Trace, Traceback

CAUSE, KERNEL, EXIT_CODE, UNKNOWN, AFTERMATH = "cause", "kernel log", "exit code", "unknown", "aftermath"
SURVIVED, HINT = "survived", "hint"
FINDINGS = (CAUSE, KERNEL, EXIT_CODE, UNKNOWN, AFTERMATH)
SLOT = re.compile(r"`\{(\w+)\|([^{}]*)\}`|\{(\w+)\|([^{}]*)\}")
_FACT = 240  # characters of one fact in an entry's text
_FRAME = 'File "'  # a frame of a traceback tells where, not what
_ADVICE = 300
_BROAD = 12  # alternatives in its signatures: an entry about a family of messages
_VERBS = (
    "set|use|pass|specify|provide|install|remove|check|verify|add|run|call|rename|disable|enable|restart|place|delete"
    "|activate|increase|decrease|reduce|lower|raise|choose|select|pick|replace|convert|load|download|configure|define"
    "|switch|move|update|upgrade|downgrade|reinstall|rebuild|wrap|skip|avoid"
)
# what a message says that is to be done
_REMEDY = re.compile(
    r"\b(?i:please|try|consider|make sure|ensure|be sure to|pip install|conda install|instead|did you (?:mean|forget)"
    r"|recommended|explicitly|you (?:should|need|must|have to|can|may|might|could|want|probably))\b|`(?:pip|conda) "
    rf"|^(?:To \w+[^,]{{0,60}}, )?(?i:{_VERBS})\b(?! of)|[,;:] (?:or |then |and )?(?:{_VERBS}) "
)
_PROSE = 4  # words of a message that speaks for itself
_KILLED = re.compile(r"Killed process (\d+)")
# The program says itself that it goes on, or that this is a warning: then a general kind of failure is none.
_MILD = re.compile(
    r"[Ff]alling back|fall(?:s|en)? ?back to|won't be available|: ignored\.?$|, using (?:the |torch|default|internal)"
    r"|[;,.] (?:[Tt]raining|[Ss]tarting|[Cc]ontinuing|[Pp]roceeding|[Ss]kipping|will (?:proceed|continue)) "
    r"|accepting this comb"
)
_WAITED = re.compile(r"\bWarning +Failed(?:Scheduling|Mount|AttachVolume|CreatePodSandBox|ToPull)\b|pull(?:ing)? image")
_WARNS = re.compile(r"\w+Warning: |\b[Ww]arning[:!]")
_STEP = re.compile(r"\d+\.\d+ .*CANCELLED")  # sacct's row of a step: the job has its own
_MESSAGE_LINES = 15  # of an exception, after the line that names it
_GONE_ON, _SOON = 200, 3  # lines after a weak alarm, and after words such as "unable to": it was no failure
# Raised because another process failed: told only when nothing else is known.
_SECOND_HAND = re.compile(
    r"ChildFailedError|CalledProcessError|Process(?:Raised|Exited)Exception|Connection (?:closed|reset) by peer"
    r"|remote (?:worker|process)|exited unexpectedly|DistBackendError|Broken ?[Pp]ipe|SystemExit"
    r"|resource_tracker|EOFError|[Cc]ore dumped|Aborted|SIGABRT|terminate called"
)
_NCCL_CLASS = re.compile(r"nccl[A-Z]\w+: ")
_JOINED = 4  # lines between what was raised and its class, where several ranks write
_LAST_ERROR = re.compile(r"\bLast error: *(\S.{8,})")
LATER = 4  # of the same incident, but not its best explanation
_CODE = re.compile(
    r"(?:(?i:exit(?:ed)?)[ _](?:with )?(?:non-zero )?(?:exit )?(?i:status|code)|exitcode|ExitCode"
    r"|return(?:ed)?[ _]?code|Exited|FAILED|OUT_OF_ME\w*|CANCELLED|NODE_FAIL|TIMEOUT|PREEMPTED)"
    r"\W{0,20}?(-?\d+)(?::(\d+))?"
)


@dataclass
class Diagnosis:
    """One entry (None: unknown) as an explanation, with the line that speaks for it."""

    role: str
    entry: Entry | None = None
    place: Place | None = None
    ranks: tuple[int, ...] = ()
    note: str = ""
    frame: str = ""  # of the user's own code, where a traceback shows it
    traceback: tuple[str, ...] = ()
    order: tuple[Any, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)  # that the log gives for the {name|default} of the entry's text

    @property
    def cause(self) -> str:
        return self._filled(self.entry.cause if self.entry else "")

    @property
    def fix(self) -> str:
        fix = self._filled(self.entry.fix if self.entry else "")
        # who wrote the check knows the remedy better than an entry about any such exception, or about many messages
        entry = self.entry
        broad = entry and (entry.kind in ("general", "fallback") or "|".join(entry.signatures).count("|") >= _BROAD)
        advice = self.facts.get("advice", "") if broad else ""
        return f'By its own message: "{advice}" {fix}' if advice else fix

    @property
    def check(self) -> str:
        return self._filled(self.entry.check if self.entry else "")

    def _filled(self, text: str) -> str:
        parts = self.place.parts if self.place else ()
        facts = {**self.facts, **{name.rstrip("0123456789"): part for name, part in parts}}

        def fill(slot: re.Match[str]) -> str:
            name, default, quote = (slot[1], slot[2], "`") if slot[1] else (slot[3], slot[4], "")
            fact = facts.get(name, "")[:_FACT]
            return f"{quote}{fact}{quote}" if fact else default  # a default is prose, not code

        return SLOT.sub(fill, text).replace(" ()", "")

    def competes_with(self, first: Diagnosis) -> bool:
        """Not aftermath beside a root, nor another line of an incident that is explained already."""
        if self is first or self.order[0] != LATER or not (self.place and first.place):
            return self.role == first.role
        return (self.place.path, self.place.line) == (first.place.path, first.place.line)

    def as_dict(self) -> dict[str, Any]:
        row: dict[str, Any] = {"role": self.role}
        if entry := self.entry:
            row |= {"id": entry.id, "name": entry.name, "cause": self.cause, "fix": self.fix}
            row |= {"check": self.check, "source": entry.source, "read": entry.read, "restart": entry.restart}
        if place := self.place:
            row |= {"path": place.path, "line": place.line, "evidence": place.text, "rank": place.rank}
        row |= {"ranks": list(self.ranks), "note": self.note, "frame": self.frame, "traceback": list(self.traceback)}
        return {key: value for key, value in row.items() if value not in (None, "", [], ())}


@dataclass
class Incident:
    """Something that happened in one place of one log."""

    trace: Trace
    place: Place  # its root line
    start: int
    end: int
    weight: int = 0  # 0: only entries speak of it
    frame: str = ""
    traceback: tuple[str, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)
    ignored: bool = False
    title: tuple[int, ...] = ()  # lines above a traceback that is cut off, which say what it would have said
    evidence: list[tuple[Entry, Place, bool]] = field(default_factory=list)  # entry, line, its context is there

    def holds(self, place: Place) -> bool:
        same = (place.rank, place.mark) == (self.place.rank, self.place.mark)
        return (same and self.start <= place.line <= self.end) or place.line in self.title

    @property
    def afterwards(self) -> str:
        """Said where the training itself was through: its checkpoints are worth a look."""
        ended = self.trace.ended
        return f"after the training, which ended in line {ended:,}" if 0 < ended < self.start else ""

    @property
    def survived(self) -> bool:
        if any(entry.lasting for entry, _, _ in self.evidence):
            return False
        went_on = self.trace.progress - self.place.mark
        if 0 < self.weight < STRONG and all(_kind(row) in KINDS[3:] for row in self.evidence):
            far = _SOON if self.weight == WEIGHT[FAILED] else _GONE_ON
            return went_on > 0 or self.trace.lines - self.end > far or self.trace.ended > self.end
        if self.trace.placed > self.place.line and _WAITED.search(self.place.text):
            return True
        warned = self.weight < STRONG and {(place.level, near) for _, place, near in self.evidence} == {("W", False)}
        if went_on >= ENOUGH or self.ignored or self.trace.ended > self.place.line or self._mended:
            return True
        return warned and bare_line(re.split(rb"[\r\n]+", self.trace.tail.rstrip())[-1]).level == "I"

    @property
    def _mended(self) -> bool:
        """A step that was cancelled in a Slurm job that completed; a nan after which every loss is finite."""
        if self.trace.ended and _STEP.match(self.place.text):
            return True
        later = [(line, value) for line, _, value, _ in self.trace.curve.points if line > self.place.line]
        nan = bool(self.evidence) and all(entry.curve == NAN for entry, _, _ in self.evidence)
        return nan and len({line for line, _ in later}) >= SKIPS and all(math.isfinite(value) for _, value in later)

    def best(self) -> list[tuple[Entry, Place, bool]]:
        """Its evidence, most telling first, one row an entry."""

        def order(row: tuple[Entry, Place, bool]) -> tuple[Any, ...]:
            announces = row[1].text.endswith(":")  # "Error(s) in loading state_dict for Net:" and then the errors
            return KINDS.index(_kind(row)), not row[2], announces, row[1].line, -row[1].size

        beaten = {(name, place.line) for entry, place, _ in self.evidence for name in entry.over}
        special = {name for entry, _, _ in self.evidence if entry.kind in ("root", "cascade") for name in entry.over}
        rest = (row for row in self.evidence if row[0].id not in special or row[0].kind not in ("general", "cascade"))
        rows = sorted((row for row in rest if (row[0].id, row[1].line) not in beaten), key=order)
        best: dict[str, tuple[Entry, Place, bool]] = {}
        for row in rows:
            best.setdefault(row[0].id, row)
        return list(best.values())


def _kind(row: tuple[Entry, Place, bool]) -> str:
    entry, place, near = row
    named = re.match(r"[\w.]+(?:Error|Exception)\b", place.text)
    mild = (
        place.level == "I"
        or (_MILD.search(place.text) and not (entry.near and near))
        or (entry.kind == "general" and _WARNS.search(place.text))
    )
    return "hint" if (mild and not named and not entry.lasting) or place.text.startswith(_FRAME) else entry.kind


def diagnose(traces: list[Trace], what: Plan, exit_code: int | None = None) -> list[Diagnosis]:
    """The explanations, best first."""
    elastic = next((trace.elastic for trace in traces if trace.elastic), {})
    code = exit_code if exit_code not in (None, 1) else elastic.get("exitcode", exit_code)
    if code in (None, 1):  # what a launcher, a container or a scheduler wrote into the log; Slurm's is code:signal
        texts = [seen.last.text for trace in traces for (kind, _), seen in trace.alarms.items() if kind == EXIT]
        wrote = next(filter(None, map(_CODE.search, texts)), None)
        code = wrote and (128 + int(wrote[2]) if int(wrote[2] or 0) else int(wrote[1]))
    happened = [one for trace in traces for one in _incidents(trace, traces)]
    clocks = len({one.trace.path for one in happened}) > 1
    explained = [row for one in happened for row in _explain(one, code, elastic.get("rank"), clocks, exit_code)]
    merged = _merged(explained)
    merged += _curves(traces, what, merged)
    certain = any(one.role == CAUSE or (one.role == UNKNOWN and one.order[0] < 2) for one in merged)
    if not certain:
        merged += _by_exit_code(traces, what, code, {one.entry.id for one in merged if one.entry})
    if not any(one.role in FINDINGS for one in merged) and exit_code not in (None, 0):
        note = f"exit code {exit_code}, and no line of the log is known as its cause; its last lines:"
        tail = re.split(r"[\r\n]+", traces[0].tail.decode("utf-8", "replace")) if traces else []
        lines = tuple(line.strip() for line in tail if line.strip())[-8:]
        merged.append(Diagnosis(UNKNOWN, note=note, traceback=lines, order=(3,)))
    rows = sorted(merged, key=_rank)
    # of what is unknown only the first is told, and a weak alarm only where nothing is known
    unknown = next((one for one in rows if one.role == UNKNOWN), None)
    known = any(one.role in FINDINGS and one.role != UNKNOWN for one in rows)
    told = unknown if unknown and not (known and unknown.order[0] > 1) else None
    return [one for one in rows if one.role != UNKNOWN or one is told]


def _rank(one: Diagnosis) -> tuple[Any, ...]:
    """A failure that nobody knows is as good as a cause when it is plain, else it comes after the aftermath."""
    weak = one.role == UNKNOWN and one.order[0] > 1
    vague = one.role == EXIT_CODE and one.order[0] > 0  # an abort is itself the aftermath of what a line says
    return (_ORDER[AFTERMATH] + 1 if weak or vague else _ORDER[one.role], *one.order)


_ORDER = {CAUSE: 0, UNKNOWN: 0, KERNEL: 1, EXIT_CODE: 2, AFTERMATH: 3, SURVIVED: 5, HINT: 6}


# -- what happened


def _raised(trace: Trace) -> Iterator[Incident]:
    """Its tracebacks; those that are chained are one incident."""
    chains: list[list[Traceback]] = []
    for traceback in trace.tracebacks:
        chains += [] if chains and (traceback.chained or traceback.within) else [[]]
        chains[-1].append(traceback)
    for chain in chains:
        # the first of a chain raised it; a worker's own traceback stands in its parent's message
        named = [each for each in chain if each.raised] or chain
        root = [named[0], *(each for each in named if each.within)][-1]
        last = chain[-1].end or chain[-1].start + chain[-1].seen
        place = Place(
            trace.path, root.end or root.start, root.raised or root.text[0], root.rank, root.time, 0, root.mark
        )
        ignored = all(each.ignored for each in chain)
        last += 2 if chain[-1].raised.endswith(":") and not ignored else 0  # "inductor raised:", and then what
        one = Incident(trace, place, chain[0].start, last, STRONG if root.raised else 2, root.frame, tuple(root.text))
        one.frame = one.frame or next((each.frame for each in chain if each.frame), "")
        library, caller = [*reversed(root.packages), "", ""][:2]
        one.facts = {"frame": one.frame, "source": root.source, "code": root.code, "library": library}
        one.facts["libraries"] = f"{caller} and {library}" if caller and library else ""
        one.facts["message"] = root.message if root.raised else "the log ends inside this traceback"
        # what a library raises while it handles another's exception is often the explanation of it
        one.facts["advice"] = next(filter(None, (_advice(each.message) for each in [root, *reversed(chain)])), "")
        one.ignored = ignored or chain[0].level in ("I", "W")
        if not root.raised and not one.ignored:
            one.title = tuple({1, 2, one.start - 1, one.start - 2} - set(range(one.start, 3)))
        yield one


def _incidents(trace: Trace, traces: list[Trace]) -> list[Incident]:
    happened = list(_raised(trace))
    alarms = [(kind, place) for (kind, _), seen in trace.alarms.items() for place in seen.places]
    for kind, place in sorted(alarms, key=lambda row: (-WEIGHT[row[0]], row[1].line)):
        message = place.text.partition(": ")[2] or place.text
        facts = {"message": message, "advice": _advice(message)}
        holder = next((one for one in happened if one.holds(place)), None)
        holder = holder or _raised_above(happened, place)
        if not holder:
            happened.append(Incident(trace, place, place.line, place.line, WEIGHT[kind], facts=facts))
        elif place.line in holder.title and WEIGHT[kind] >= STRONG:
            holder.place, holder.weight = replace(place, mark=holder.place.mark), STRONG
            holder.facts |= facts
    spoken = sorted((one for one in happened if one.weight >= STRONG and not one.ignored), key=lambda one: one.start)
    for number, one in enumerate(spoken):  # an exception's message goes on until the next one of its rank
        later = (each.start - 1 for each in spoken[number + 1 :] if each.place.rank == one.place.rank)
        one.end = max(one.end, min(one.end + _MESSAGE_LINES, next(later, one.end + _MESSAGE_LINES)))
    said = [place for (kind, _), seen in trace.alarms.items() if kind == NCCL for place in seen.places]
    for one in happened:  # NCCL's error names a class only, the reason stands in its warning above or behind it
        warned = (place.text for place in reversed(said) if place.line <= one.end)
        behind = _LAST_ERROR.search(one.facts.get("message", ""))
        one.facts["nccl"] = behind[1] if behind else next(warned, "")
    for sighting in trace.sightings.values():
        entry = sighting.pattern.entry
        if not entry:
            continue
        # information is a hint, but not when the log ends in nothing else: the run waits there for ever
        stuck = sighting.count >= ENOUGH and trace.lines - sighting.last.line <= _SOON
        for place in sighting.places:
            place = replace(place, level="") if stuck and place.mark == trace.progress else place
            place = replace(place, level="") if any(place.line in one.title for one in happened) else place
            near = _has_context(entry, place, trace, traces)
            if entry.near and not near:
                continue
            holders = [one for one in happened if one.holds(place)]
            if not holders:
                holders = [Incident(trace, place, place.line, place.line)]
                happened += holders
            max(holders, key=lambda one: one.start).evidence.append((entry, place, near))
    return happened


def _raised_above(happened: list[Incident], place: Place) -> Incident | None:
    """The incident whose message goes on here: NCCL names its class, then `Last error:`, then the reason."""
    if not _NCCL_CLASS.match(place.text):
        return None
    close = (one for one in happened if one.place.rank == place.rank and 0 < place.line - one.end < _JOINED)
    holder = max(close, key=lambda one: one.end, default=None)
    if holder:
        holder.end = place.line + 2
    return holder


def _advice(message: str) -> str:
    """The sentences of an exception's message that say what to do."""
    sentences = re.split(r"(?<=[.!?:])\s+(?=[A-Z`'\"(\d-])", message)
    told = (text.strip() for text in sentences if len(text.split()) >= _PROSE and _REMEDY.search(text.strip()))
    return " ".join(told)[:_ADVICE]


def _has_context(entry: Entry, place: Place, trace: Trace, traces: list[Trace]) -> bool:
    for other in traces:
        for seen in other.sightings.values():
            fits = seen.pattern.kind == "context" and seen.pattern.text in entry.near
            if fits and (other is not trace or any(abs(each.line - place.line) <= NEAR for each in seen.places)):
                return True
    return False


# -- what it means


def _explain(
    one: Incident, code: int | None, root: int | None, clocks: bool, exit_code: int | None
) -> Iterator[Diagnosis]:
    """Its best explanation, then the entries that compete with it."""
    place, note, rows = one.place, one.afterwards, one.best()
    kind = _kind(rows[0]) if rows else ""
    entry = rows[0][0] if rows else None
    other = root is not None and place.rank is not None and place.rank != root
    when = (place.time if place.time is not None else float("inf")) if clocks else 0.0
    if kind in ("root", "general") or (kind == "cascade" and rows):
        place = rows[0][1]
    order: tuple[Any, ...] = (
        0.5 if kind == "general" else 0,
        not (entry and _fits(entry, code)),
        other,
        place.level == "W",
        when,
        place.path,
        place.line,
    )
    if one.survived:
        role, note = SURVIVED, "training went on after it"
    elif kind in ("root", "general"):
        role = CAUSE
        if one.trace.kernel:
            # the kernel's log is older than the run, and not only about it: with several kills, any may be another's
            places = [place for seen in one.trace.sightings.values() for place in seen.places]
            killed = {pid for each in places for pid in _KILLED.findall(each.text)}
            if not (entry and _fits(entry, code)) or len(killed) > 1:
                role = KERNEL
                note = "the kernel's log is about the whole machine: is that pid yours, and the time right?"
    elif kind == "cascade":
        # the store says good-bye with a warning in every run
        role = HINT if place.level == "W" else AFTERMATH
    elif one.weight and exit_code != 0 and not (kind == "hint" and rows[0][1].line == place.line):
        # what can be said of an exception that no entry knows: of the root, else of the first one
        said = [row for row in one.evidence if row[0].kind == "fallback"]
        said.sort(key=lambda row: (row[1].line != one.place.line, not row[2], row[1].line, -row[1].size))
        entry, place = said[0][:2] if said else (None, place)
        second = bool(_SECOND_HAND.search(one.place.text))
        # who wrote the check says in its message what is wrong; but a signal's sender is not told by an error line
        prose = len(one.facts.get("message", "").split()) >= _PROSE or one.facts.get("advice") or (entry and entry.over)
        told = entry and not second and prose and (one.weight >= STRONG or not _signal(code))
        role, note = (CAUSE, note) if told else (UNKNOWN, "no entry knows this message")
        weak = 2 + second if one.weight < STRONG or second else 1
        order = (0.7 if told else weak, STRONG - one.weight, *order[2:])
    else:
        role = HINT
    if (not entry or entry.kind == "fallback") and role not in (UNKNOWN, CAUSE):
        return
    ranks = () if place.rank is None else (place.rank,)
    yield Diagnosis(role, entry, place, ranks, note, one.frame, one.traceback, order, one.facts)
    for row in rows[1:] if entry and entry.kind != "fallback" else ():
        if _kind(row) == "root" or (role in (SURVIVED, HINT) and _kind(row) == "cascade"):
            yield Diagnosis(role, row[0], row[1], ranks, note, order=(LATER, *order[1:]), facts=one.facts)
        elif _kind(row) == "hint":
            yield Diagnosis(HINT, row[0], row[1], ranks, note, order=order)


def _merged(explanations: Iterable[Diagnosis]) -> list[Diagnosis]:
    """One row an entry: its best role and first place."""
    rows: dict[str, Diagnosis] = {}
    unknown = []
    for one in sorted(explanations, key=_rank):
        if not one.entry:
            unknown.append(one)
        elif known := rows.get(one.entry.id):
            if known.role == one.role:
                known.ranks = tuple(sorted({*known.ranks, *one.ranks}))
        else:
            rows[one.entry.id] = one
    return [*rows.values(), *unknown]


def _by_exit_code(traces: list[Trace], what: Plan, code: int | None, seen: set[str]) -> Iterator[Diagnosis]:
    name = _signal(code)
    note = f"exit code {code}, and no line of the log says why"
    if name:
        note = f"exit code {code} is {name}, and no line says who sent it: dmesg, docker inspect or sacct may"
    sightings = [one for trace in traces for one in trace.sightings.values() if one.pattern.kind == "context"]
    printed = [seen.last for trace in traces for (kind, _), seen in trace.alarms.items() if kind == EXIT]
    fitting = [entry for entry in what.entries if entry.id not in seen and _fits(entry, code)]
    contexts = {entry.id: [one.first for one in sightings if one.pattern.text in entry.near] for entry in fitting}
    told = [entry for entry in fitting if contexts[entry.id]] or [entry for entry in fitting if not entry.near]
    for entry in told:
        place = next(iter(contexts[entry.id] or printed), None)
        yield Diagnosis(EXIT_CODE, entry, place, note=note, order=(name == "SIGABRT", bool(entry.signatures), entry.id))


def _curves(traces: list[Trace], what: Plan, known: list[Diagnosis]) -> list[Diagnosis]:
    """What the log's own numbers say, beside or instead of its lines."""
    rows = []
    for trace in traces:
        shown = trace.curve.shows()
        entry = next((entry for entry in what.entries if shown and entry.curve == shown.word), None)
        if shown and entry and not any(one.entry is entry and one.role == CAUSE for one in known):
            place = Place(trace.path, shown.line, shown.text, None, None, 0, trace.progress)
            order = (0, True, False, True, 0.0, trace.path, shown.line)
            rows.append(Diagnosis(CAUSE, entry, place, note=shown.sentence, order=order))
    return rows


def _fits(entry: Entry, code: int | None) -> bool:
    """128+n of a shell and -n of Python are the same signal; 1 is anything."""
    return code not in (None, 0, 1) and bool({code, 128 - code} & set(entry.exits))


def _signal(code: int | None) -> str:
    """Its name, where the code says that one ended the process."""
    number = -code if code and code < 0 else (code or 0) - 128
    return next((one.name for one in signal.Signals if one == number), "")
