"""What readers hand to the checks: number formats, tensors with their place in the file, problems in one shape.

A number format is a bit pattern: the magnitude bits of a float order like integers, so one integer maximum answers NaN,
infinity and range for a whole block without converting a value.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

FILE = -1  # Tensor.source: bytes of the file itself; otherwise the index of a packed member
INLINE = -2  # bytes that came with the pickle
MAX_PROBLEMS = 200  # kept of one file
_QUOTED = 400  # characters of a sentence
MODEL = ("weight", "buffer")  # roles of what load_state_dict takes


@dataclass(frozen=True)
class Dtype:
    """`kind`: float | complex | int | bool | opaque (bytes whose values are not judged)."""

    name: str
    size: int  # bytes of one value; a complex one counts both parts
    kind: str = "int"
    exponent: int = 0
    mantissa: int = 0
    bias: int = 0
    infinite: bool = True  # has infinities above the finite values, as IEEE 754
    nan_raw: int | None = None  # the one pattern that is NaN, in formats without a sign for it

    @property
    def word(self) -> int:
        """Bytes of the unit that is examined: half a complex value."""
        return self.size // 2 if self.kind == "complex" else min(self.size, 8)

    @property
    def floating(self) -> bool:
        return self.kind in ("float", "complex")

    @property
    def magnitude(self) -> int:
        """Mask that drops the sign."""
        return (1 << (8 * self.word - 1)) - 1

    @property
    def infinity(self) -> int:
        """Magnitude bits of infinity; in formats without one, a value that no magnitude has."""
        return ((1 << self.exponent) - 1) << self.mantissa if self.infinite else self.magnitude + 1

    @property
    def largest(self) -> int:
        """Magnitude bits of the largest finite value."""
        if self.nan_raw is not None:
            return self.magnitude
        return self.infinity - 1 if self.infinite else self.magnitude - 1

    def value(self, bits: int) -> float:
        """The number behind a bit pattern (of one word)."""
        magnitude = bits & self.magnitude
        sign = -1.0 if bits > self.magnitude else 1.0
        if bits == self.nan_raw or (self.nan_raw is None and magnitude > self.largest and magnitude != self.infinity):
            return math.nan
        return sign * (math.inf if magnitude == self.infinity else self._finite(magnitude))

    def _finite(self, magnitude: int) -> float:
        exponent, fraction = magnitude >> self.mantissa, magnitude & ((1 << self.mantissa) - 1)
        if exponent:
            return math.ldexp(fraction + (1 << self.mantissa), exponent - self.bias - self.mantissa)
        return math.ldexp(fraction, 1 - self.bias - self.mantissa)

    @functools.lru_cache(maxsize=64)  # noqa: B019  # two dozen dtypes, all of them constants
    def limit(self, max_abs: float) -> int:
        """Magnitude bits of the largest value that is not above `max_abs`."""
        low, high = 0, self.largest
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._finite(middle) <= max_abs else (low, middle - 1)
        return low


_FLOATS = (
    Dtype("float64", 8, "float", 11, 52, 1023),
    Dtype("float32", 4, "float", 8, 23, 127),
    Dtype("bfloat16", 2, "float", 8, 7, 127),
    Dtype("float16", 2, "float", 5, 10, 15),
    Dtype("float8_e4m3fn", 1, "float", 4, 3, 7, infinite=False),
    Dtype("float8_e5m2", 1, "float", 5, 2, 15),
    Dtype("float8_e4m3fnuz", 1, "float", 4, 3, 8, infinite=False, nan_raw=0x80),
    Dtype("float8_e5m2fnuz", 1, "float", 5, 2, 16, infinite=False, nan_raw=0x80),
    Dtype("complex128", 16, "complex", 11, 52, 1023),
    Dtype("complex64", 8, "complex", 8, 23, 127),
    Dtype("complex32", 4, "complex", 5, 10, 15),
    Dtype("float8_e8m0fnu", 1, nan_raw=0xFF),  # a power of two, used as a scale
    Dtype("bool", 1, "bool"),
)
# by bytes; of those with two or more values in a byte only zero and constant have a meaning here
_INTS = {
    1: "int8 uint8 qint8 quint8 quint4x2 quint2x4 float4_e2m1fn_x2 bits8",
    2: "int16 uint16 bits16",
    4: "int32 uint32 qint32",
    8: "int64 uint64",
}
DTYPES: dict[str, Dtype] = {dtype.name: dtype for dtype in _FLOATS} | {
    name: Dtype(name, size) for size, names in _INTS.items() for name in names.split()
}


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in text.split())


TORCH_STORAGES = _pairs("""
    DoubleStorage=float64 FloatStorage=float32 HalfStorage=float16 BFloat16Storage=bfloat16 LongStorage=int64
    IntStorage=int32 ShortStorage=int16 CharStorage=int8 ByteStorage=uint8 BoolStorage=bool
    ComplexDoubleStorage=complex128 ComplexFloatStorage=complex64 QInt8Storage=qint8 QUInt8Storage=quint8
    QInt32Storage=qint32 QUInt4x2Storage=quint4x2 QUInt2x4Storage=quint2x4 UntypedStorage=uint8
""")
SAFETENSORS = _pairs("""
    F64=float64 F32=float32 F16=float16 BF16=bfloat16 I64=int64 I32=int32 I16=int16 I8=int8 U64=uint64 U32=uint32
    U16=uint16 U8=uint8 BOOL=bool F8_E4M3=float8_e4m3fn F8_E5M2=float8_e5m2 F8_E8M0=float8_e8m0fnu C64=complex64
    F8_E4M3FNUZ=float8_e4m3fnuz F8_E5M2FNUZ=float8_e5m2fnuz F4=float4_e2m1fn_x2
""")
_NUMPY = _pairs("""
    f2=float16 f4=float32 f8=float64 c8=complex64 c16=complex128 b1=bool i1=int8 i2=int16 i4=int32 i8=int64
    u1=uint8 u2=uint16 u4=uint32 u8=uint64
""")
_NUMPY_CODE = re.compile(r"([<>|=]?)([biufcSUVmM])(\d*)(\[\w+\])?")


@dataclass
class Problem:
    """One finding about one file, before it has a path. Names in it come from strangers: none is quoted at length."""

    code: str
    severity: str
    message: str
    where: str | None = None
    evidence: str | None = None
    fix: str | None = None

    def __post_init__(self) -> None:
        self.message = self.message[:_QUOTED]
        self.where, self.evidence = (text and text[:_QUOTED] for text in (self.where, self.evidence))


class Broken(Exception):
    """A reader cannot go on: the file is not what it should be. Carries the finding."""

    def __init__(self, code: str, message: str, **place: Any) -> None:
        super().__init__(message)
        self.problem = Problem(code, "error", message, **place)


def from_numpy(code: Any) -> tuple[Dtype, bool]:
    """numpy's code, such as <f4 or U10, and whether it is big endian. What we do not judge is opaque."""
    match = _NUMPY_CODE.fullmatch(code) if isinstance(code, str) and len(code) < 40 else None
    if not match:
        message = f"a numpy array of {str(code)[:40]!r} holds Python objects, which only a pickle can load"
        raise Broken("object-array", message, fix="save numbers instead, and strings as a fixed-width or JSON text")
    order, kind, width = match[1], match[2], int(match[3] or 1)
    name = _NUMPY.get(f"{kind}{width}")
    return DTYPES[name] if name else Dtype(code, width * (4 if kind == "U" else 1), "opaque"), order == ">"


@dataclass(slots=True)
class Tensor:
    name: str
    dtype: Dtype
    shape: tuple[int, ...]
    start: int  # byte offset of the first value in its source
    stride: tuple[int, ...] | None = None  # in values; None: contiguous
    source: int = FILE
    big_endian: bool = False
    role: str = "weight"  # weight | buffer | optimizer | ema | array (in a pickle, for anything) | other
    data: bytes = b""  # of an INLINE one

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def extent(self) -> int:
        """Bytes from the first to the last value, gaps included."""
        values = self.numel
        if values and self.stride is not None:
            values = 1
            for size, step in zip(self.shape, self.stride, strict=True):
                values += (size - 1) * step
        return values * self.dtype.size

    def axes(self) -> list[tuple[int, int, int]]:
        """(stride, size, number) of the axes that move, smallest stride first."""
        dense = (math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))  # row by row
        moving = zip(self.stride or dense, self.shape, range(len(self.shape)), strict=True)
        return sorted(entry for entry in moving if entry[0] and entry[1] > 1)

    @property
    def rank(self) -> int:
        """Axes longer than one: [1, 768, 1, 1] is a vector."""
        return sum(size > 1 for size in self.shape)

    def position(self, element: int) -> str:
        """Which value is `element` values behind the first one in the file: [3, 17]."""
        place = [0] * len(self.shape)
        for stride, size, axis in reversed(self.axes()):
            place[axis] = min(element // stride, size - 1)
            element -= place[axis] * stride
        return str(place)


@dataclass
class Member:
    """One entry of a zip's directory."""

    name: str
    method: int
    flags: int
    crc: int
    packed: int  # bytes in the file
    size: int  # bytes unpacked
    header: int  # offset of the local header
    data: int = 0  # offset of the first byte behind it
    attributes: int = 0


@dataclass
class Layout:
    """What a reader found in one file, headers only."""

    format: str
    tensors: list[Tensor] = field(default_factory=list)
    spans: list[Member] = field(default_factory=list)  # stored members whose CRC is known; `data` is of the file
    packed: list[Member] = field(default_factory=list)  # deflated members, in the order of Tensor.source
    problems: list[Problem] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # globals of pickles that are neither known nor hostile
    root: Any = None  # the pickled object, as inert data
    facts: dict[str, Any] = field(default_factory=dict)

    def error(self, code: str, message: str, where: str | None = None, **more: Any) -> None:
        self.problem(code, "error", message, where, **more)

    def problem(self, code: str, severity: str, message: str, where: str | None = None, **more: Any) -> None:
        self.add(Problem(code, severity, message, where, **more))

    def add(self, problem: Problem) -> None:
        """A hostile file can have a million faults; the first ones tell enough."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """What is broken inside of a part is told by the part's name, and the others are still read."""
        try:
            yield
        except Broken as broken:
            self.add(replace(broken.problem, where=name))

    def add_values(self, name: str, dtype: Dtype, shape: tuple[int, ...], start: int, length: int, role: str) -> None:
        """Contiguous values at a place of the file, which are as many as dtype and shape say."""
        wanted = math.prod(shape) * dtype.size
        if wanted == length:
            self.tensors.append(Tensor(name, dtype, shape, start, role=role))
        else:
            self.error("bounds", f"{dtype.name} {list(shape)[:8]} needs {wanted} bytes, there are {length}", name)

    def assign_roles(self, file: str = "") -> None:
        other = file.startswith(_OTHER_FILES)
        for tensor in self.tensors:
            role = "other" if other else role_of(tensor.name)
            if tensor.role == "weight" or (tensor.role == "array" and (role == "other" or tensor.numel == 1)):
                tensor.role = role if tensor.role == "weight" else "other"


@dataclass
class Artifact:
    """The verdict on one file."""

    path: Path
    format: str
    bytes: int
    sha256: str | None = None
    layout: Layout = field(default_factory=lambda: Layout("unknown"))
    problems: list[Problem] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)  # names that loading it imports, and that nobody allowed

    @property
    def real(self) -> bool:
        return not any(problem.severity == "error" for problem in self.problems)

    def as_dict(self) -> dict[str, Any]:
        """What reports and proofs say of it, beside its path."""
        facts = {"format": self.format, "bytes": self.bytes, "sha256": self.sha256}
        return {**facts, "tensors": len(self.layout.tensors), "checks": sorted(set(self.checks))}

    @property
    def parameters(self) -> int:
        """Values of the weights; tied ones count once."""
        places = {(t.source, t.start, t.shape): t.numel for t in self.layout.tensors if t.role in MODEL}
        return sum(places.values())


# -- what a tensor is for, from its name: the same zeros are fatal in a weight and ordinary in a bias or a fresh Adam

_LONGEST = 300  # characters of a name that are looked at; hostile ones are longer

# the first that fits; what fits none is a weight
_ROLES = {
    "other": re.compile(
        r"(^|\.)(callbacks|loops|(lr_)?sched\w*|opt_param_scheduler|\w*scaler|loss_scale\w*|cur_scale|scale_window|metrics?"
        r"|history|\w*rng\w*|random_states?|numpy_random_seed|torch_manual_seed|torch_cuda_manual_seed|train_dataloader"
        r"|sampler\w*)(\.|$)"
    ),
    "optimizer": re.compile(
        r"(^|\.)(opt|opt_state\w*|optim|optim_\w+|optimizers?|optimizer_\w+|base_optimizer_state|fp32_flat_groups"
        r"|single_partition_of_fp32_groups|fp32_from_fp16_params|exp_avg(_sq)?|exp_inf|max_exp_avg_sqs?|momentum_buffer"
        r"|square_avg|grad_avg|acc_delta)(\.|$)|^state\.\d+\."
    ),
    "ema": re.compile(r"(^|[._])ema([._]|$)|(^|\.)(averaged_model|swa_model)\."),
    "buffer": re.compile(
        r"(^|[._])(running_(mean|var)|moving_(mean|variance)|inv_freq|\w*freqs?(_cis)?|\w*(mask|alibi|causal)\w*"
        r"|\w*position_ids|\w*(idx|index|indices)|num_batches_tracked|cluster_size|embed_avg|ema_count|\w*absmax"
        r"|\w*zero_points?|\w*offsets?)$"
    ),
}
_OTHER_FILES = ("rng_state", "random_states", "scheduler", "scaler", "sampler")
_MASK = re.compile(r"mask|alibi|causal", re.I)
_COUNTER = re.compile(
    r"(^|\.)(steps?|num_batches_tracked|\w*position\w*|(\w*_)?ids|seed|counts?|counter|timesteps?|epoch|growth_tracker"
    r"|(\w*_)?(idx|index|indices))$"
)
_ZERO_IS_ORDINARY = re.compile(
    r"(^|[._])(\w*bias(es)?|beta|mask\w*|running_\w+|\w*position\w*|pos_embed\w*|token_type\w*|\w*cache\w*|zero_point\w*"
    r"|\w*offset\w*|absmax|\w*buffer\w*)$"
)


# npy, npz and HDF5 hold arrays of any kind; there a name must say that it is of a model
_NAMED_WEIGHT = re.compile(r"weight|kernel|embed|param|layer|conv|dense|linear|proj|attn|model|(^|[._])[Ww]\d*$", re.I)


def may_be_data(tensor: Tensor, file_format: str) -> bool:
    """Whether it may hold anything: measurements, results, tables."""
    return file_format in ("npy", "npz", "hdf5") and not _NAMED_WEIGHT.search(tensor.name[-_LONGEST:])


def role_of(name: str) -> str:
    """weight | buffer | optimizer | ema | other (schedulers, scalers, random states, counters, metrics)"""
    return _role_of_kind(re.sub(r"\b\d+\b", "0", name[-_LONGEST:]))


@functools.lru_cache(1024)  # layers differ by a number only
def _role_of_kind(name: str) -> str:
    return next((role for role, pattern in _ROLES.items() if pattern.search(name)), "weight")


def is_mask(tensor: Tensor) -> bool:
    return bool(_MASK.search(tensor.name.rpartition(".")[2][-_LONGEST:]))


def is_counter(tensor: Tensor) -> bool:
    return bool(_COUNTER.search(tensor.name[-_LONGEST:]))


def zero_is_ordinary(tensor: Tensor) -> bool:
    last = tensor.name.rpartition(".")[2][-_LONGEST:]
    return tensor.rank < 2 or not tensor.dtype.floating or bool(_ZERO_IS_ORDINARY.search(last))
