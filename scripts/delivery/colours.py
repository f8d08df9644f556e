"""Can everybody tell these colours apart? About one man in twelve sees red and green differently."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

# Machado, Oliveira, Fernandes 2009, severity 1.0, for linear RGB
_SEEN_WITH = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}
_NEAR = 12.0  # CIE76: below, two thin lines look alike

Triple = tuple[float, float, float]


def alike(colours: list[str]) -> Iterator[tuple[str, str, str, float]]:
    """Pairs that are hard to tell apart: first, second, seen with, distance. Each pair once, at its worst."""
    for first, second in combinations(sorted(set(colours)), 2):
        distance, kind = min(
            (_distance(_seen(_linear(first), matrix), _seen(_linear(second), matrix)), name)
            for name, matrix in _SEEN_WITH.items()
        )
        if distance < _NEAR:
            yield first, second, kind, distance


def _linear(colour: str) -> Triple:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return red, green, blue


def _seen(colour: Triple, matrix: tuple[Triple, Triple, Triple]) -> Triple:
    red, green, blue = (
        min(1.0, max(0.0, sum(weight * part for weight, part in zip(row, colour, strict=True)))) for row in matrix
    )
    return red, green, blue


def _distance(first: Triple, second: Triple) -> float:
    pairs = zip(_lab(first), _lab(second), strict=True)
    return float(sum((one - other) ** 2 for one, other in pairs) ** 0.5)


def _lab(colour: Triple) -> Triple:
    red, green, blue = colour
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    one, two, three = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in (x, y, z))
    return 116 * two - 16, 500 * (one - two), 200 * (two - three)
