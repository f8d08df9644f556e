"""Number formats as bit patterns: what decides NaN, infinity, range and subnormals without converting a value.

The magnitude bits of a float order like integers, so one integer maximum answers all of them for a whole block.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass


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

    @property
    def smallest_normal(self) -> int:
        return 1 << self.mantissa

    def value(self, bits: int) -> float:
        """The number behind a bit pattern (of one word)."""
        magnitude = bits & self.magnitude
        sign = -1.0 if bits > self.magnitude else 1.0
        if bits == self.nan_raw or (self.nan_raw is None and magnitude > self.largest and magnitude != self.infinity):
            return math.nan
        if magnitude == self.infinity:
            return sign * math.inf
        return sign * self._finite(magnitude)

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


def _floats() -> list[Dtype]:
    return [
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
    ]


_INTS = {"int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
         "qint8": 1, "quint8": 1, "qint32": 4, "quint4x2": 1, "quint2x4": 1}  # fmt: skip
# two values in a byte: only zero and constant have a meaning here
_PACKED = {"float4_e2m1fn_x2": 1, "bits8": 1, "bits16": 2}

DTYPES: dict[str, Dtype] = {
    **{dtype.name: dtype for dtype in _floats()},
    **{name: Dtype(name, size) for name, size in {**_INTS, **_PACKED}.items()},
    "float8_e8m0fnu": Dtype("float8_e8m0fnu", 1, nan_raw=0xFF),  # a power of two, used as a scale
    "bool": Dtype("bool", 1, "bool"),
}

TORCH_STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64", "QInt8Storage": "qint8", "QUInt8Storage": "quint8", "QInt32Storage": "qint32",
    "QUInt4x2Storage": "quint4x2", "QUInt2x4Storage": "quint2x4", "UntypedStorage": "uint8",
}  # fmt: skip

SAFETENSORS = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "C64": "complex64",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
}  # fmt: skip

_NUMPY = {
    "f2": "float16", "f4": "float32", "f8": "float64", "c8": "complex64", "c16": "complex128", "b1": "bool",
    "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64", "u1": "uint8", "u2": "uint16", "u4": "uint32",
    "u8": "uint64",
}  # fmt: skip


def from_numpy(code: str, size: int) -> Dtype:
    """`code` is numpy's, without its byte order: f4, i8, U10; what we do not judge is opaque."""
    name = _NUMPY.get(code)
    return DTYPES[name] if name else Dtype(code, size, "opaque")
