"""What readers hand to the checks: tensors with their place in the file, and problems in one shape."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.dtypes import Dtype

if TYPE_CHECKING:
    from artifacts.formats.zipdir import Member

FILE = -1  # Tensor.source: bytes of the file itself; otherwise the index of a packed member
MAX_PROBLEMS = 200  # kept of one file
INLINE = -2  # bytes that came with the pickle


@dataclass
class Problem:
    """One finding about one file, before it has a path."""

    code: str
    severity: str
    message: str
    where: str | None = None
    evidence: str | None = None
    fix: str | None = None


class Broken(Exception):
    """A reader cannot go on: the file is not what it should be. Carries the finding."""

    def __init__(self, code: str, message: str, **place: Any) -> None:
        super().__init__(message)
        self.problem = Problem(code, "error", message, **place)


@dataclass(slots=True)
class Tensor:
    name: str
    dtype: Dtype
    shape: tuple[int, ...]
    start: int  # byte offset of the first value in its source
    stride: tuple[int, ...] | None = None  # in values; None: contiguous
    source: int = FILE
    big_endian: bool = False
    role: str = "weight"  # weight | optimizer | ema | other
    data: bytes = b""  # of an INLINE one

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def extent(self) -> int:
        """Bytes from the first to the last value, gaps included."""
        if not self.numel:
            return 0
        if self.stride is None:
            return self.numel * self.dtype.size
        last = sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        return (last + 1) * self.dtype.size

    @property
    def gappy(self) -> bool:
        """True when values between its first and last one are not its own: x[:, :10] of a wider x."""
        if self.stride is None:
            return False
        own, reach = 1, 1
        for step, size in self.by_stride():
            if step < reach:  # rows that share values: all between first and last is its own
                return False
            own, reach = own * size, step * size
        return own * self.dtype.size != self.extent

    def by_stride(self) -> list[tuple[int, int]]:
        """(stride, size) of the axes that move, smallest stride first."""
        return sorted((step, size) for step, size, _ in self._axes())

    def _axes(self) -> list[tuple[int, int, int]]:
        strides = self.stride if self.stride is not None else contiguous(self.shape)
        return [(strides[axis], size, axis) for axis, size in enumerate(self.shape) if strides[axis] and size > 1]

    @property
    def rank(self) -> int:
        """Axes longer than one: [1, 768, 1, 1] is a vector."""
        return sum(size > 1 for size in self.shape)

    def position(self, element: int) -> str:
        """Where the tensor's n-th value, in the order of the file, is: [3, 17]."""
        place = [0] * len(self.shape)
        for _, size, axis in sorted(self._axes()):
            element, place[axis] = divmod(element, size)
        return str(place)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


@dataclass
class Span:
    """A zip member's bytes and the CRC-32 they must have."""

    name: str
    start: int
    length: int
    crc: int


@dataclass
class Layout:
    """What a reader found in one file, headers only."""

    format: str
    tensors: list[Tensor] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    packed: list[Member] = field(default_factory=list)  # deflated members, in the order of Tensor.source
    problems: list[Problem] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # globals of pickles that are neither known nor hostile
    root: Any = None  # the pickled object, as inert data
    facts: dict[str, Any] = field(default_factory=dict)

    def problem(self, code: str, severity: str, message: str, **place: Any) -> None:
        self.add(Problem(code, severity, message, **place))

    def add(self, problem: Problem) -> None:
        """A hostile file can have a million faults; the first ones tell enough."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)


@dataclass
class Artifact:
    """The verdict on one file."""

    path: Path
    format: str
    bytes: int
    sha256: str | None = None
    seconds: float = 0.0
    layout: Layout = field(default_factory=lambda: Layout("unknown"))
    problems: list[Problem] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)

    @property
    def real(self) -> bool:
        return not any(problem.severity == "error" for problem in self.problems)

    @property
    def parameters(self) -> int:
        """Values of the weights; tied ones count once."""
        places = {(t.source, t.start, t.shape): t.numel for t in self.layout.tensors if t.role == "weight"}
        return sum(places.values())
