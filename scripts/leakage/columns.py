"""Leakage that no copy shows: the same patient, or the future, on both sides of a split."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from leakage import normal
from leakage.matching import Found, Whole
from leakage.normal import Array
from rgt.errors import bad_input
from rgt.report import Finding

_FEWEST = 10  # values of a column in the later split; fewer (site, sex) are shared by any split
_SHOWN = 3
_IN_NAME = re.compile(
    r"(?i)(?:^|[^a-z])(patient|subject|sub|speaker|spk|user|session|sess|scan|video|vid|case|person)[-_]?([a-z]{0,3}\d+)"
)
_FORMATS = ("%Y/%m/%d", "%d.%m.%Y", "%Y%m%d", "%Y/%m/%d %H:%M:%S", "%Y-%m", "%Y")


def group_findings(found: Found, asked: tuple[str, ...]) -> Iterator[Finding]:
    """Asked for: an error. Only named like a group: a warning, because the split may be meant that way."""
    for a, b in combinations(found.splits.values(), 2):
        for name in a.columns:
            yield from _shared(a, b, name, a.columns[name], b.columns.get(name, a.columns[name][:0]), name in asked)
        if a.source.kind == "files":
            groups = [_name_groups(each) for each in (a, b)]
            yield from _shared(a, b, "file name", groups[0], groups[1], False)


def _shared(a: Whole, b: Whole, name: str, ours: Array, theirs: Array, asked: bool) -> Iterator[Finding]:
    values, first = np.unique(theirs, return_index=True)
    shared = np.isin(values, ours) & (values != 0)
    known = int((values != 0).sum())
    if not shared.any() or (not asked and known < _FEWEST):
        return
    rows = int(np.isin(theirs, values[shared]).sum())
    examples = []
    for value, at in list(zip(values[shared], first[shared], strict=True))[:_SHOWN]:
        examples.append(f"{b.place(int(at))} and {a.place(int(np.flatnonzero(ours == value)[0]))}")
    share = f"{int(shared.sum())} of {known} values of {name} in {b.source.name}"
    message = f"{share} are also in {a.source.name} ({rows} of {len(theirs)} items)"
    fix = f"split by {name}, so that each value is in one split only"
    if not asked:
        fix += f"; if items of one {name} are independent, say so" + (
            "" if name == "file name" else f" (--group {name} makes it an error)"
        )
    severity = "error" if asked else "warn"
    yield Finding(
        "group-leak", severity, message, path=str(b.source.path), where=name, evidence="; ".join(examples), fix=fix
    )


def _name_groups(whole: Whole) -> Array:
    """patient012 of train/patient012_slice3.png; 0 where a name has none."""
    values = np.zeros(len(whole), dtype=np.uint64)
    for item, place in enumerate(whole.places.tolist()):
        part: Path = whole.source.parts[place]
        inside = part.relative_to(whole.source.path).as_posix()
        seen = _IN_NAME.search(inside)
        if seen:
            values[item] = normal.digest((seen[1] + seen[2].lstrip("0")).lower().encode())
    return values


# -- time


def time_findings(found: Found, name: str) -> Iterator[Finding]:
    times = {split: _times(whole, name) for split, whole in found.splits.items()}
    for (split_a, a), (split_b, b) in combinations(found.splits.items(), 2):
        if not np.isfinite(times[split_b]).any() or not np.isfinite(times[split_a]).any():
            continue
        start_at = int(np.nanargmin(times[split_b]))
        start = times[split_b][start_at]
        late = np.flatnonzero(times[split_a] >= start)
        if not len(late):
            continue
        last = int(np.nanargmax(times[split_a]))
        first, end = b.times[start_at], a.times[last]
        message = (
            f"{len(late)} of {len(a)} items of {split_a} are not older than the first of {split_b} "
            f"({split_b} starts at {first}, {split_a} ends at {end}): the model was trained on the future"
        )
        seen = f"{b.place(start_at)} and {a.place(last)}"
        fix = f"cut at one moment: {split_a} before it, {split_b} after it"
        yield Finding("time-leak", "error", message, path=str(a.source.path), where=name, evidence=seen, fix=fix)


def _times(whole: Whole, name: str) -> Array:
    values = np.array([moment(value) for value in whole.times], dtype=np.float64)
    known = np.isfinite(values)
    filled = sum(value not in (None, "") for value in whole.times)
    if filled and known.sum() < 0.5 * filled:
        bad = next(v for v, ok in zip(whole.times, known, strict=True) if not ok and v not in (None, ""))
        raise bad_input(
            f"--time {name}: {str(bad)[:40]!r} in {whole.source.path} is no time; expected a number or 2026-01-31T12:00"
        )
    return values


def moment(value: Any) -> float:
    """Seconds, or whatever unit a number is in; NaN when it is no time."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    text = str(value or "").strip()
    number = normal.to_number(text)
    if number is not None:
        return number
    try:
        return _stamp(datetime.fromisoformat(text.replace("Z", "+00:00")))
    except ValueError:
        pass
    for form in _FORMATS:
        try:
            return _stamp(datetime.strptime(text, form))
        except ValueError:
            continue
    return math.nan


def _stamp(when: datetime) -> float:
    return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
