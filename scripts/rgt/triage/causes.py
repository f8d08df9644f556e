"""Which of the entries that a run's logs show is the cause, which are its aftermath, and what stays unknown.

The order, most telling first: a cause that training did not survive, the earliest in time (of the rank that torchrun
names as the first to fail, where it does); what the exit code alone tells; a failure that no entry explains; aftermath.
What training survived, and hints that healthy logs show as well, are not findings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from rgt.catalogue.entries import Entry
from rgt.triage.scan import ENOUGH, Place, Sighting, Trace, Traceback

CAUSE, KERNEL, EXIT_CODE, UNKNOWN, AFTERMATH = "cause", "kernel log", "exit code", "unknown", "aftermath"
SURVIVED, HINT = "survived", "hint"
FINDINGS = (CAUSE, KERNEL, EXIT_CODE, UNKNOWN, AFTERMATH)
_ORDER = (*FINDINGS, SURVIVED, HINT)
_FRAME = 'File "'  # start of a frame in a traceback
_KILLED = re.compile(r"Killed process (\d+)")
_WARNING = re.compile(r"\[?W\d{3,4} |WARNING|Warning")
_FRAMES = 120  # lines of a traceback
_MESSAGE_LINES = 15  # of an exception, after the line that names it
# Raised because another process failed: told only when nothing else is known.
_SECOND_HAND = re.compile(
    r"ChildFailedError|CalledProcessError|Process(?:Raised|Exited)Exception|Connection (?:closed|reset) by peer"
    r"|remote (?:worker|process)|exited unexpectedly|DistBackendError|Broken ?[Pp]ipe"
)


@dataclass
class Diagnosis:
    """One entry (None: unknown) as an explanation, with the line that speaks for it."""

    role: str
    entry: Entry | None = None
    place: Place | None = None
    count: int = 1
    ranks: tuple[int, ...] = ()
    note: str = ""
    traceback: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        row: dict[str, Any] = {"role": self.role, "count": self.count}
        if entry := self.entry:
            row |= {"id": entry.id, "name": entry.name, "cause": entry.cause, "fix": entry.fix}
            row |= {"check": entry.check, "read": entry.read}
        if place := self.place:
            row |= {"path": place.path, "line": place.line, "evidence": place.text, "rank": place.rank}
        row |= {"ranks": list(self.ranks), "note": self.note, "traceback": list(self.traceback)}
        return {key: value for key, value in row.items() if value not in (None, "", [], ())}


def diagnose(traces: list[Trace], owners: list[Entry], exit_code: int | None = None) -> list[Diagnosis]:
    """The explanations, best first. `owners[i]` is the entry of pattern i."""
    elastic = next((trace.elastic for trace in traces if trace.elastic), {})
    code = exit_code if exit_code not in (None, 1) else elastic.get("exitcode", exit_code)
    root = elastic.get("rank")
    seen: dict[str, _Seen] = {}
    for trace in traces:
        for sighting in trace.sightings.values():
            seen.setdefault(owners[sighting.pattern].id, []).append((trace, sighting))
    explanations = [
        _without_frames(_explain(entry, seen[entry.id], root, code), traces, owners)
        for entry in dict.fromkeys(owners)
        if entry.id in seen
    ]
    if all(one.role != CAUSE for one in explanations):
        note = f"exit code {code}, and no line of the log says why"
        fitting = [entry for entry in set(owners) if entry.id not in seen and _fits(entry, code)]
        explanations += [Diagnosis(EXIT_CODE, entry, note=note) for entry in fitting]
    explanations += _unknown(traces, owners, explanations, exit_code, root)
    one_log = len({one.place.path for one in explanations if one.place}) < 2

    def rank_of(one: Diagnosis) -> tuple[Any, ...]:
        """In one log the order of its lines is the order of time; between logs their clocks decide."""
        place, entry = one.place, one.entry
        return (
            _ORDER.index(one.role),
            not (entry and _fits(entry, code)),
            root is not None and place is not None and place.rank is not None and place.rank != root,
            0 if one_log or not place else _when(place),
            place.path if place else "",
            place.line if place else 0,
            -(place.size if place else 0),
        )

    return sorted(explanations, key=rank_of)


_Seen = list[tuple[Trace, Sighting]]


def _explain(entry: Entry, seen: _Seen, root: int | None, code: int | None) -> Diagnosis:
    live = [(trace, one) for trace, one in seen if trace.progress - one.last.mark < ENOUGH]
    places = [one.since for _, one in live] or [one.last for _, one in seen]
    best = min(places, key=lambda place: (place.rank != root if root is not None else False, _when(place), place.line))
    role = _role(entry, live, code)
    note = "" if live else "training went on after it"
    if role == KERNEL:
        note = "the kernel's log is about the whole machine: is that pid yours, and the time right?"
    ranks = tuple(sorted({place.rank for place in places if place.rank is not None}))
    return Diagnosis(role, entry, best, sum(one.count for _, one in seen), ranks, note)


def _role(entry: Entry, live: _Seen, code: int | None) -> str:
    if entry.kind == "hint":
        return HINT
    if not live:
        return SURVIVED
    if entry.kind == "cascade":  # the store says good-bye with a warning in every run
        return HINT if all(_WARNING.match(one.last.text) for _, one in live) else AFTERMATH
    if all(trace.kernel for trace, _ in live):
        # the kernel's log is older than the run, and not only about it: with several kills, any may be somebody else's
        texts = [place.text for _, one in live for place in (one.first, one.since, one.last)]
        killed = {pid for text in texts for pid in _KILLED.findall(text)}
        if not _fits(entry, code) or len(killed) > 1:
            return KERNEL
    return CAUSE


def _without_frames(one: Diagnosis, traces: list[Trace], owners: list[Entry]) -> Diagnosis:
    """A frame tells where, not what: it refines an exception of its own document, and is a hint without one."""
    place, entry = one.place, one.entry
    if one.role != CAUSE or not entry or not place or not place.text.startswith(_FRAME):
        return one
    for sighting in (each for trace in traces if trace.path == place.path for each in trace.sightings.values()):
        near = sighting.first.rank == place.rank and 0 < sighting.last.line - place.line < _FRAMES
        raised = not sighting.last.text.startswith(_FRAME)
        if near and raised and owners[sighting.pattern].path == entry.path:
            return one
    return replace(one, role=HINT)


def _fits(entry: Entry, code: int | None) -> bool:
    """128+n of a shell and -n of Python are the same signal; 1 is anything."""
    return code not in (None, 0, 1) and bool({code, 128 - code} & set(entry.exits))


def _when(place: Place) -> float:
    """A place without a clock cannot be compared with one that has it: then kinds and lines decide."""
    return place.time if place.time is not None else float("inf")


# -- what no signature tells


def _unknown(
    traces: list[Trace], owners: list[Entry], known: list[Diagnosis], exit_code: int | None, root: int | None
) -> list[Diagnosis]:
    """The first failure that nothing above explains; nothing for a run that is known to have ended well."""
    if exit_code == 0:
        return []
    explained = any(one.role in (CAUSE, KERNEL, EXIT_CODE, AFTERMATH) for one in known)
    chains = [(trace, chain) for trace in traces for chain in _unexplained(trace, owners)]
    own = [(trace, chain) for trace, chain in chains if not _SECOND_HAND.search(chain[-1].raised)]
    if own or (chains and not explained):
        trace, chain = min(own or chains, key=lambda one: root is not None and one[1][-1].rank != root)
        last = next((one for one in reversed(chain) if one.raised), chain[-1])
        line, text = last.end or last.start, last.raised or last.text[0]
        place = Place(trace.path, line, text, last.rank, last.time, 0, last.mark)
        note = "no entry of the catalogue explains this exception"
        return [Diagnosis(UNKNOWN, place=place, note=note, traceback=tuple(last.text))]
    if explained:
        return []
    for trace in traces:
        if trace.fatal and trace.progress - trace.fatal.mark < ENOUGH:
            return [Diagnosis(UNKNOWN, place=trace.fatal, note="no entry of the catalogue explains this line")]
    if exit_code is None:
        return []
    note = f"exit code {exit_code}, and no line of the log is known as its cause; its last lines:"
    tail = re.split(r"[\r\n]+", traces[0].tail.decode("utf-8", "replace")) if traces else []
    return [Diagnosis(UNKNOWN, note=note, traceback=tuple(line.strip() for line in tail if line.strip())[-8:])]


def _unexplained(trace: Trace, owners: list[Entry]) -> Iterator[list[Traceback]]:
    """Tracebacks that training did not survive and that no entry explains; chained ones are one."""
    chains: list[list[Traceback]] = []
    for one in trace.tracebacks:
        chains += [] if one.chained and chains else [[]]
        chains[-1].append(one)
    for chain in chains:
        end, last = chain[-1], chain[-1].end or chain[-1].start
        explained = trace.progress - end.mark >= ENOUGH or any(one.ignored for one in chain)
        for seen in trace.sightings.values():
            # a line of the entry in the traceback or in its message; aftermath explains only its own exception
            kind = owners[seen.pattern].kind
            until = last + (_MESSAGE_LINES if kind == "root" else 0)
            inside = [place for place in (seen.first, seen.since, seen.last) if chain[0].start <= place.line <= until]
            raised = any(not place.text.startswith(_FRAME) for place in inside)
            explained = explained or (kind != "hint" and seen.first.rank == end.rank and raised)
        if not explained:
            yield chain
