"""From statistics to findings. NaN and infinity are errors; what zero and large mean depends on the tensor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from rgt.checkpoint.formats.container import Window
from rgt.checkpoint.layout import (
    FILE,
    Layout,
    Problem,
    is_counter,
    is_mask,
    may_be_data,
    role_of,
    zero_is_ordinary,
)
from rgt.checkpoint.lost_pages import judge_pages
from rgt.checkpoint.tensor_values import Pass, Segment, Tally

MAX_ABS = 1e6
_SHOWN = 20  # findings of one code per file; the rest is counted
_NAMED = 5


def judge_values(
    window: Window, done: Pass, layout: Layout, max_abs: float, allow: dict[str, list[str]]
) -> Iterator[Problem]:
    """`allow`: code of a finding -> patterns of the names of tensors in which it is meant."""
    ordinary: dict[str, list[str]] = {}
    siblings = Siblings(done.segments)
    for segment in done.segments:
        name = segment.first.name
        for problem in _segment_problems(segment, layout, max_abs, siblings):
            if problem.severity == "info" or any(fnmatchcase(name, each) for each in allow.get(problem.code, ())):
                ordinary.setdefault(problem.code, []).append(name)
            else:
                yield problem
    yield from judge_pages(window, done)
    for code, names in sorted(ordinary.items()):
        shown = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        what = "1 tensor is" if len(names) == 1 else f"{len(names)} tensors are"
        message = f"{what} so where that is ordinary (biases, buffers, masks, counters, optimizer state), or allowed"
        yield Problem(code, "info", message, evidence=shown)


class Siblings:
    """Tensors whose names differ by a number only: layers of one kind. What all of them are is meant."""

    def __init__(self, segments: list[Segment]) -> None:
        self._kinds: dict[str, list[bool]] = {}
        self._zeros: set[str] = set()  # ends of the names of weights that are zero
        self._all = True  # no weight holds anything
        for segment in segments:
            first, stats = segment.first, segment.stats
            self._kinds.setdefault(_kind(first.name), []).append(stats.constant and first.numel > 1)
            if first.role == "weight" and stats.zero:
                self._zeros |= {first.name, ".".join(first.name.split(".")[-2:])}
            if first.role in ("weight", "ema") and first.rank > 1:  # PEFT's adapters may begin as nothing but zeros
                self._all &= stats.zero and not first.name.startswith("base_model.")

    def severity(self, segment: Segment) -> str:
        """Of a tensor that holds one value only: an error where it cannot be meant."""
        flat = self._kinds[_kind(segment.first.name)]
        if segment.first.role == "ema":  # of weights that are zero themselves
            end = ".".join(segment.first.name.split(".")[-2:])
            return "info" if end in self._zeros or end.rpartition(".")[2] in self._zeros else "error"
        if self._all or (len(flat) > 2 and sum(flat) * 2 < len(flat)):
            return "error"
        return "info" if len(flat) > 1 and all(flat) else "warn"


def _kind(name: str) -> str:
    return re.sub(r"\d+", "#", name[-300:])


def _segment_problems(segment: Segment, layout: Layout, max_abs: float, siblings: Siblings) -> Iterator[Problem]:
    tensor, stats = segment.first, segment.stats
    if tensor.dtype.kind == "opaque":
        return
    judged, data = tensor.role in ("weight", "ema"), may_be_data(tensor, layout.format)
    kept_beside = tensor.role == "other" and (tensor.numel == 1 or role_of(tensor.name) == "other")
    table = tensor.role == "array" and not layout.facts.get("libraries", set()).isdisjoint(("sklearn", "pandas"))
    bookkeeping = "info" if kept_beside or table else "error"  # in a table NaN is a missing value
    if stats.nan.count:
        yield _tally(segment, "nan", bookkeeping, "NaN", stats.nan)
    if stats.inf.count:
        mask = is_mask(tensor) and stats.low == stats.inf.count + stats.over.count
        yield _tally(segment, "inf", "info" if mask else bookkeeping, "infinite", stats.inf)
    if stats.over.count:
        code, severity = "range", "info"
        if judged and not is_mask(tensor) and not is_counter(tensor):
            severity = "error" if tensor.rank > 1 and not data else "warn"  # a vector may be a variance under any name
        what = f"above {max_abs:g} in magnitude, the largest {tensor.dtype.value(stats.largest_finite):.4g}"
        if tensor.dtype.kind == "bool":
            code, severity, what = "malformed", "error", "neither true nor false"
        yield _tally(segment, code, severity, what, stats.over)
    # at step 0 a zero-initialised layer is ordinary
    odd = (
        siblings.severity(segment) if judged and not zero_is_ordinary(tensor) and layout.facts["step"] != 0 else "info"
    )
    odd = "warn" if data and odd == "error" else odd
    if stats.zero:
        shape = f"{tensor.dtype.name} {'x'.join(map(str, tensor.shape))}"
        fix = "never written, never trained, or meant to start at zero"
        yield Problem("zero", odd, f"all {tensor.numel} values are zero", tensor.name, shape, fix)
    elif stats.constant and tensor.numel > 1 and not stats.bad:
        value = tensor.dtype.value(stats.first) if tensor.dtype.floating else stats.first
        severity = "info" if odd == "info" else "warn"
        yield Problem("constant", severity, f"all {tensor.numel} values are {value:g}", tensor.name)


def _tally(segment: Segment, code: str, severity: str, what: str, tally: Tally) -> Problem:
    """`3 of 4096 values are NaN`, with the first of them."""
    dtype = segment.first.dtype
    at = segment.start + tally.first * dtype.word
    holders = [tensor for tensor in segment.tensors if tensor.start <= at < tensor.start + tensor.extent]
    tensor = next(iter(holders), segment.first)
    total = segment.stats.count * dtype.word // dtype.size
    message = f"{tally.count} of {total} value{'s' if total != 1 else ''} {'is' if tally.count == 1 else 'are'} {what}"
    place = f"first at {tensor.position((at - tensor.start) // tensor.dtype.size)}"
    if tensor.source == FILE:
        place += f", byte {at} of the file"
    if holders[1:]:
        place += f"; tied to {', '.join(other.name for other in holders[1:4])}"
    return Problem(code, severity, message, tensor.name, place)


def bounded(problems: list[Problem]) -> Iterator[Problem]:
    """The first findings of each code; the rest is counted."""
    seen: dict[str, int] = {}
    for problem in problems:
        seen[problem.code] = seen.get(problem.code, 0) + 1
        if seen[problem.code] <= _SHOWN:
            yield problem
    for code, count in seen.items():
        if count > _SHOWN:
            severity = max((p.severity for p in problems if p.code == code), key=("info", "warn", "error").index)
            yield Problem(code, severity, f"{count - _SHOWN} more of the same")
