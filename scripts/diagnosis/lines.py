"""One line of a log as its program printed it: without colours, rank prefixes and clocks, which are told apart.

Example:
    read(b"[rank3]: 2026-11-16 08:51:02,120 RuntimeError: boom")     Line(text="RuntimeError: boom", rank=3, time=...)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone

from rgt.logline import plain

LONGEST = 2000  # characters of a line that are matched; the rest is somebody's tensor
_PREFIXES = 4  # srun's, torchrun's, ray's and a clock may stand in one line
_RANK = re.compile(
    r"\s*\[(?:rank|default|trainer|Rank ?)(\d{1,5})\]:? ?"  # torchrun, Python's own after init_process_group
    r"|(\d{1,5}): "  # srun --label
    r"|\s*\[\d{1,5},(\d{1,5})\]<std(?:out|err)>: ?"  # mpirun --tag-output
    r"|[\w.-]{1,60}[-_]\d{1,4} +\| "  # docker compose logs
    r"|std(?:out|err) [FP] "  # a node's own files of Kubernetes, after their clock
    r"|\(\w+(?:\(\w+\))? (?:rank=(\d{1,5}), ?)?(?:pid|ip)=[^)]{1,60}\) "  # ray
)
_GLUED = re.compile(r"\[rank(\d{1,5})\]: ")  # two ranks wrote at once: "step 3 loss 2.7[rank1]: Traceback"
_CLOCK = re.compile(r"\s*\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)\]?:? ?")
_STAMP = re.compile(
    r"(?P<y>\d{4})[-/](?P<m>\d\d)[-/](?P<d>\d\d)[T ](?P<t>\d\d:\d\d:\d\d)(?:[.,](?P<f>\d{1,9}))?"
    r"|(?P<m2>\d\d)/(?P<d2>\d\d)/(?P<y2>\d{4}) (?P<t2>\d\d:\d\d:\d\d)"
    r"|\b[IWEF](?P<m3>\d{1,2})(?P<d3>[0-3]\d) (?P<t3>\d\d:\d\d:\d\d)(?:\.(?P<f3>\d{1,9}))?"
    r"|\b(?P<m4>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +(?P<d4>\d{1,2}) (?P<t4>\d\d:\d\d:\d\d)"
    r"(?: (?P<y4>\d{4}))?"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
NO_YEAR = 2000  # it has a 29th of February
_CLOCK_WITHIN = 80  # characters from the left


@dataclass(frozen=True)
class Line:
    text: str
    rank: int | None = None
    time: float | None = None  # seconds; in the year 2000 when the line names none


def read(data: bytes) -> Line:
    raw = plain(data[: LONGEST * 4].decode("utf-8", "replace"))
    text, rank = raw, None
    for _ in range(_PREFIXES):
        match = _RANK.match(text) or _CLOCK.match(text)
        if not match:
            break
        if match.re is _RANK:
            rank = next((int(group) for group in match.groups() if group), rank)
        text = text[match.end() :]
    if rank is None and (glued := _GLUED.search(text[:LONGEST])):
        rank, text = int(glued[1]), text[glued.end() :]
    return Line(text[:LONGEST].rstrip(), rank, clock(raw))


def clock(text: str) -> float | None:
    """The line's own clock in seconds; zones are left out, for the ranks of one run share theirs."""
    match = _STAMP.search(text[:_CLOCK_WITHIN])
    if not match:
        return None
    part = match.groupdict()
    month = part["m"] or part["m2"] or part["m3"] or str(_MONTHS.index(part["m4"]) + 1)
    day = part["d"] or part["d2"] or part["d3"] or part["d4"]
    own = part["y"] or part["y2"] or part["y4"] or NO_YEAR
    hour, minute, second = (part["t"] or part["t2"] or part["t3"] or part["t4"]).split(":")
    try:
        moment = datetime(int(own), int(month), int(day), int(hour), int(minute), int(second), tzinfo=timezone.utc)
    except ValueError:
        return None
    return moment.timestamp() + float("0." + (part["f"] or part["f3"] or "0"))


def rank_of_file(path: str) -> int | None:
    """torchrun's log dirs end in /<rank>/stderr.log, and people write train_rank3.log."""
    match = re.search(r"(?:rank|proc|worker|gpu)[_.-]?(\d{1,5})(?=\D*$)", path) or re.search(
        r"/attempt_\d+/(\d{1,5})/[^/]+$|[/_](\d{1,3})\.(?:err|out|log)$", path
    )
    return next((int(group) for group in match.groups() if group), None) if match else None
