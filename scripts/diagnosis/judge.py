"""Which of the entries that a run's logs show is the cause, which are its aftermath, and what stays unknown.

The order, most telling first: a cause that training did not survive, the earliest in time (of the rank that torchrun
names as the first to fail, where it does); what the exit code alone tells; a failure that no entry explains; aftermath.
What training survived, and hints that healthy logs show as well, are not findings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from diagnosis.catalogue import Entry
from diagnosis.lines import NO_YEAR
from diagnosis.scan import ENOUGH, Place, Sighting, Trace, Traceback

CAUSE, KERNEL, EXIT_CODE, UNKNOWN, AFTERMATH, SURVIVED, HINT = (
    "cause", "kernel log", "exit code", "unknown", "aftermath", "survived", "hint",
)  # fmt: skip
_ORDER = (CAUSE, KERNEL, EXIT_CODE, UNKNOWN, AFTERMATH, SURVIVED, HINT)
FINDINGS = (CAUSE, KERNEL, EXIT_CODE, UNKNOWN, AFTERMATH)
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
        found: dict[str, Any] = {"role": self.role, "count": self.count}
        if self.entry:
            entry = self.entry
            found |= {"id": entry.id, "name": entry.name, "cause": entry.cause, "fix": entry.fix}
            found |= {"check": entry.check, "read": entry.read}
        if self.place:
            place = self.place
            found |= {"path": place.path, "line": place.line, "evidence": place.text, "stage": place.stage}
            found |= {"rank": place.rank, "time": _iso(place.time)}
        found |= {"ranks": list(self.ranks), "note": self.note, "traceback": list(self.traceback)}
        return {key: value for key, value in found.items() if value not in (None, "", [], ())}


def _iso(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    text = datetime.fromtimestamp(seconds, timezone.utc).replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text.removeprefix(f"{NO_YEAR}-")


def judge(traces: list[Trace], owners: list[Entry], exit_code: int | None = None) -> list[Diagnosis]:
    """The explanations, best first. `owners[i]` is the entry of pattern i."""
    elastic = next((trace.elastic for trace in traces if trace.elastic), {})
    code = exit_code if exit_code not in (None, 1) else elastic.get("exitcode", exit_code)
    year = _year(traces)
    found = [
        _diagnose(entry, _of(entry, traces, owners), elastic.get("rank"), code, year)
        for entry in dict.fromkeys(owners)
        if _of(entry, traces, owners)
    ]
    found = [_whose(_without_frames(one, traces, owners)) for one in found]
    found += _from_exit_code(found, set(owners), code)
    found += _unknown(traces, owners, found, exit_code, elastic.get("rank"))
    one_log = len({one.place.path for one in found if one.place}) < 2
    return sorted(found, key=lambda one: _key(one, elastic.get("rank"), code, one_log))


_Seen = list[tuple[Trace, Sighting]]


def _of(entry: Entry, traces: list[Trace], owners: list[Entry]) -> _Seen:
    return [
        (trace, seen) for trace in traces for seen in trace.sightings.values() if owners[seen.pattern].id == entry.id
    ]


def _diagnose(entry: Entry, seen: _Seen, root: int | None, code: int | None, year: int) -> Diagnosis:
    live = [(trace, one) for trace, one in seen if trace.progress - one.last.mark < ENOUGH]
    places = [one.since for _, one in live] or [one.last for _, one in seen]
    places = [replace(place, time=_in_year(place.time, year)) for place in places]
    best = min(places, key=lambda place: (place.rank != root if root is not None else False, _when(place), place.line))
    return Diagnosis(
        role=_role(entry, live, code),
        entry=entry,
        place=best,
        count=sum(one.count for _, one in seen),
        ranks=tuple(sorted({place.rank for place in places if place.rank is not None})),
        note="" if live else "training went on after it",
    )


def _whose(one: Diagnosis) -> Diagnosis:
    """The kernel's log is about the whole machine."""
    if one.role != KERNEL or one.note:
        return one
    return replace(one, note="the kernel's log is about the whole machine: is that pid yours, and the time right?")


def _without_frames(one: Diagnosis, traces: list[Trace], owners: list[Entry]) -> Diagnosis:
    """A frame tells where, not what: it refines an exception of its own document, and is a hint without one."""
    place, entry = one.place, one.entry
    if one.role != CAUSE or not entry or not place or not place.text.startswith('File "'):
        return one
    others = [
        (owners[seen.pattern], seen)
        for trace in traces
        for seen in trace.sightings.values()
        if trace.path == place.path and seen.first.rank == place.rank
    ]
    near = (owner for owner, seen in others if 0 < seen.last.line - place.line < _FRAMES and _is_raised(seen.last))
    return one if any(owner.path == entry.path for owner in near) else replace(one, role=HINT)


def _is_raised(place: Place) -> bool:
    return not place.text.startswith('File "')


def _role(entry: Entry, live: _Seen, code: int | None) -> str:
    if entry.kind == "hint":
        return HINT
    if not live:
        return SURVIVED
    if entry.kind == "cascade" and all(_WARNING.match(one.last.text) for _, one in live):
        return HINT  # the store says good-bye like this in every run
    if entry.kind == "cascade":
        return AFTERMATH
    if all(trace.kernel for trace, _ in live) and (not _fits(entry, code) or len(_killed(live)) > 1):
        return KERNEL  # the kernel's log is older than the run, and not only about it
    return CAUSE


def _killed(live: _Seen) -> set[str]:
    """The processes that the kernel says it killed: with several, any of them may be somebody else's."""
    texts = [place.text for _, one in live for place in (one.first, one.since, one.last)]
    return {pid for text in texts for pid in _KILLED.findall(text)}


def _fits(entry: Entry, code: int | None) -> bool:
    """128+n of a shell and -n of Python are the same signal; 1 is anything."""
    if code is None or code in (0, 1):
        return False
    return bool({code, 128 - code} & set(entry.exits))


def _key(one: Diagnosis, root: int | None, code: int | None, one_log: bool) -> tuple[Any, ...]:
    """In one log the order of its lines is the order of time; between logs their clocks decide."""
    place, entry = one.place, one.entry
    other_rank = root is not None and place is not None and place.rank is not None and place.rank != root
    return (
        _ORDER.index(one.role),
        not (entry and _fits(entry, code)),
        other_rank,
        0 if one_log or not place else _when(place),
        place.path if place else "",
        place.line if place else 0,
        -(place.size if place else 0),
        not (entry and place and place.stage in entry.stages),
    )


def _when(place: Place) -> float:
    """A place without a clock cannot be compared with one that has it: then kinds and lines decide."""
    return place.time if place.time is not None else float("inf")


def _year(traces: list[Trace]) -> int:
    """glog and syslog leave the year out; it is that of the lines which have one."""
    times = [one.since.time for trace in traces for one in trace.sightings.values() if one.since.time is not None]
    years = {datetime.fromtimestamp(time, timezone.utc).year for time in times} - {NO_YEAR}
    return max(years, default=NO_YEAR)


def _in_year(time: float | None, year: int) -> float | None:
    if time is None:
        return None
    moment = datetime.fromtimestamp(time, timezone.utc)
    if moment.year != NO_YEAR or year == NO_YEAR:
        return time
    try:
        return moment.replace(year=year).timestamp()
    except ValueError:  # the 29th of February
        return time


# -- what no signature tells


def _from_exit_code(found: list[Diagnosis], entries: Iterable[Entry], code: int | None) -> list[Diagnosis]:
    if any(one.role == CAUSE for one in found):
        return []
    known = {one.entry.id for one in found if one.entry}
    fitting = [entry for entry in entries if entry.id not in known and _fits(entry, code)]
    return [Diagnosis(EXIT_CODE, entry, note=f"exit code {code}, and no line of the log says why") for entry in fitting]


def _unknown(
    traces: list[Trace], owners: list[Entry], found: list[Diagnosis], exit_code: int | None, root: int | None
) -> list[Diagnosis]:
    """The first failure that nothing above explains; nothing for a run that is known to have ended well."""
    if exit_code == 0:
        return []
    explained = any(one.role in (CAUSE, KERNEL, EXIT_CODE, AFTERMATH) for one in found)
    chains = [(trace, chain) for trace in traces for chain in _unexplained(trace, owners)]
    own = [(trace, chain) for trace, chain in chains if not _SECOND_HAND.search(chain[-1].raised)]
    if own or (chains and not explained):
        trace, chain = min(own or chains, key=lambda one: root is not None and one[1][-1].rank != root)
        return [_of_traceback(trace, chain)]
    if explained:
        return []
    for trace in traces:
        place = trace.fatal
        if place and trace.progress - place.mark < ENOUGH:
            return [Diagnosis(UNKNOWN, place=place, note="no entry of the catalogue explains this line")]
    if exit_code is None:
        return []
    note = f"exit code {exit_code}, and no line of the log is known as its cause; its last lines:"
    return [Diagnosis(UNKNOWN, note=note, traceback=_last_lines(traces))]


def _unexplained(trace: Trace, owners: list[Entry]) -> Iterator[list[Traceback]]:
    """Tracebacks that training did not survive and that no entry explains; chained ones are one."""
    chains: list[list[Traceback]] = []
    for one in trace.tracebacks:
        if one.chained and chains:
            chains[-1].append(one)
        else:
            chains.append([one])
    for chain in chains:
        living = trace.progress - chain[-1].mark < ENOUGH and not any(one.ignored for one in chain)
        if living and not any(_explains(owners[seen.pattern], seen, chain) for seen in trace.sightings.values()):
            yield chain


def _explains(entry: Entry, seen: Sighting, chain: list[Traceback]) -> bool:
    """A line of the entry stands in the traceback or in its message; aftermath explains only its own exception."""
    end = chain[-1].end or chain[-1].start
    last = end + (_MESSAGE_LINES if entry.kind == "root" else 0)
    places = (seen.first, seen.since, seen.last)
    return (
        entry.kind != "hint"
        and seen.first.rank == chain[-1].rank
        and any(chain[0].start <= place.line <= last and _is_raised(place) for place in places)
    )


def _of_traceback(trace: Trace, chain: list[Traceback]) -> Diagnosis:
    last = next((one for one in reversed(chain) if one.raised), chain[-1])
    place = Place(
        trace.path, last.end or last.start, last.raised or last.text[0], last.rank, last.time, 0, last.mark, ""
    )
    note = "no entry of the catalogue explains this exception"
    return Diagnosis(UNKNOWN, place=place, note=note, traceback=tuple(last.text))


def _last_lines(traces: list[Trace]) -> tuple[str, ...]:
    text = traces[0].tail.decode("utf-8", "replace") if traces else ""
    return tuple(line.strip() for line in re.split(r"[\r\n]+", text) if line.strip())[-8:]
