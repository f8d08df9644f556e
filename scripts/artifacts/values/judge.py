"""From statistics to findings. NaN and infinity are errors; what zero and large mean depends on the tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from artifacts.formats.window import Window
from artifacts.model import FILE, Layout, Problem, Tensor
from artifacts.values import holes, roles
from artifacts.values.plan import Segment
from artifacts.values.stats import Stats, Tally
from artifacts.values.stream import Pass

MAX_ABS = 1e6
# Half precision holds small weights as subnormals by design; elsewhere they are underflow.
_SUBNORMAL = {"float16": 0.5, "complex32": 0.5, "float32": 0.01, "float64": 0.01, "bfloat16": 0.01, "complex64": 0.01}
_ENOUGH = 64  # values below which a share means nothing
_SHOWN = 20  # findings of one code per file; the rest is counted
_NAMED = 5

_ORDINARY = {
    "zero": "all zero where that is ordinary (biases, buffers, integers, optimizer state)",
    "constant": "one value throughout, which is ordinary there (norms, counters, small buffers)",
    "range": "not judged by --max-abs (masks, counters, positions)",
    "denormal": "mostly subnormal, as decayed optimizer state is",
    "inf": "infinite where that is ordinary (attention masks, best-so-far scores)",
    "nan": "NaN in bookkeeping that no forward pass reads",
}


@dataclass
class Rules:
    max_abs: float = MAX_ABS
    step: int | None = None  # what the file says; at 0 a zero-initialised layer is ordinary
    allow: dict[str, list[str]] = field(default_factory=dict)  # code -> patterns of tensor names

    def allows(self, problem: Problem, tensor: Tensor) -> bool:
        return any(fnmatchcase(tensor.name, pattern) for pattern in self.allow.get(problem.code, ()))


def judge(window: Window, layout: Layout, done: Pass, rules: Rules) -> list[Problem]:
    found: list[Problem] = []
    ordinary: dict[str, list[str]] = {}
    for segment in (*done.plan.segments, *done.plan.alone):
        for problem in _segment(window, segment, rules, bool(layout.spans)):
            if problem.severity == "info" or rules.allows(problem, segment.first):
                ordinary.setdefault(problem.code, []).append(segment.first.name)
            else:
                found.append(problem)
    found += _scalars(layout)
    return [*found, *(_summary(code, names) for code, names in sorted(ordinary.items()))]


def _segment(window: Window, segment: Segment, rules: Rules, has_crc: bool) -> Iterator[Problem]:
    tensor, stats = segment.first, segment.stats
    if tensor.dtype.kind == "opaque":
        return
    yield from _not_finite(segment)
    yield from _range(segment, rules)
    yield from _zero_or_constant(segment, rules)
    yield from _subnormal(tensor, stats)
    if not has_crc and not roles.is_mask(tensor):  # a checksum that is right leaves no room for a hole
        yield from filter(None, (holes.judge(segment, run) for run in holes.find(window, segment)))


def _tally(segment: Segment, code: str, severity: str, what: str, tally: Tally, fix: str | None = None) -> Problem:
    """`3 of 4096 values are NaN`, with the first of them."""
    tensor = segment.first
    parts = 2 if tensor.dtype.kind == "complex" else 1
    total = segment.stats.count // parts
    message = f"{tally.count} of {total} value{'s' if total != 1 else ''} {'is' if tally.count == 1 else 'are'} {what}"
    place = f"first at {tensor.position(tally.first // parts)}"
    if tensor.source == FILE and not tensor.gappy:
        place += f", byte {tensor.start + tally.first * tensor.dtype.word} of the file"
    others = [other.name for other in segment.tensors[1:]]
    tied = f"; tied to {', '.join(others[:3])}" if others else ""
    return Problem(code, severity, message, where=tensor.name[:200], evidence=(place + tied)[:400], fix=fix)


def _not_finite(segment: Segment) -> Iterator[Problem]:
    tensor, stats = segment.first, segment.stats
    bookkeeping = tensor.role == "other" and tensor.numel == 1
    if stats.nan.count:
        yield _tally(segment, "nan", "info" if bookkeeping else "error", "NaN", stats.nan)
    if stats.inf.count:
        mask = roles.is_mask(tensor) and stats.low == stats.inf.count + stats.over.count
        yield _tally(segment, "inf", "info" if bookkeeping or mask else "error", "infinite", stats.inf)


def _range(segment: Segment, rules: Rules) -> Iterator[Problem]:
    tensor, stats = segment.first, segment.stats
    if not stats.over.count:
        return
    if tensor.dtype.kind == "bool":
        yield _tally(segment, "malformed", "error", "neither true nor false", stats.over)
        return
    largest = tensor.dtype.value(stats.largest_finite)
    what = f"above {rules.max_abs:g} in magnitude, the largest {largest:.4g}"
    lowest = stats.over.bits & tensor.dtype.magnitude == tensor.dtype.largest and stats.low >= stats.over.count
    if roles.is_mask(tensor) or roles.is_counter(tensor):
        yield _tally(segment, "range", "info", what, stats.over)
    elif lowest:
        hint = "only the lowest finite value: if this is an additive mask, allow it with --expect"
        yield _tally(segment, "range", "warn", what, stats.over, hint)
    else:
        yield _tally(segment, "range", "error", what, stats.over)


def _zero_or_constant(segment: Segment, rules: Rules) -> Iterator[Problem]:
    tensor, stats = segment.first, segment.stats
    judged = tensor.role in ("weight", "ema") and not roles.zero_is_ordinary(tensor)
    if stats.zero:
        severity = "error" if judged and rules.step != 0 else "info"
        shape = "x".join(map(str, tensor.shape))
        yield Problem("zero", severity, f"all {tensor.numel} values are zero", where=tensor.name[:200],
                      evidence=f"{tensor.dtype.name} {shape}", fix="never written, or never trained")  # fmt: skip
    elif stats.constant and tensor.numel > 1 and not stats.bad:
        severity = "warn" if judged and rules.step != 0 else "info"
        value = tensor.dtype.value(stats.first) if tensor.dtype.floating else stats.first
        yield Problem("constant", severity, f"all {tensor.numel} values are {value:g}", where=tensor.name[:200])


def _subnormal(tensor: Tensor, stats: Stats) -> Iterator[Problem]:
    allowed = _SUBNORMAL.get(tensor.dtype.name)
    if allowed is None or stats.sampled < _ENOUGH or stats.subnormal <= allowed * stats.sampled:
        return
    share = 100 * stats.subnormal / stats.sampled
    severity = "warn" if tensor.role in ("weight", "ema") else "info"
    yield Problem("denormal", severity, f"{share:.0f} % of the values are subnormal (too small for full precision)",
                  where=tensor.name[:200])  # fmt: skip


def _scalars(layout: Layout) -> Iterator[Problem]:
    """A learning rate of NaN is a plain float in the pickle; a best loss of infinity is how training starts."""
    for name, value in layout.facts.get("odd_scalars", ()):
        if value != value and roles.of(name) == "optimizer":
            yield Problem("nan", "error", "is NaN", where=name[:200])


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


def _summary(code: str, names: list[str]) -> Problem:
    shown = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    what = "1 tensor is" if len(names) == 1 else f"{len(names)} tensors are"
    return Problem(code, "info", f"{what} {_ORDINARY.get(code, 'allowed by --expect')}", evidence=shown[:400])
