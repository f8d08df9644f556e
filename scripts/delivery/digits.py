"""A claim's number as text: as many digits as its spread leaves standing, rounded so that reconcile agrees.

Example:
    Style(spread=True).text({"value": 0.91423, "spread": 0.0031, "n": 5, ...})        0.914 ± 0.003
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

from rgt.errors import bad_input

_ALONE = 4  # significant digits of a value without a spread
_WIDE = Context(prec=700)  # digits: from the largest float to the smallest
_LONGEST, _SMALLEST = 12, -7  # powers of ten; beyond, 3.21e-9 is read more easily than the zeros


@dataclass(frozen=True)
class Style:
    percent: bool = False
    spread: bool = False
    n: bool = False
    tex: bool = False

    def text(self, claim: dict[str, Any]) -> str:
        """0.920 · 0.920 ± 0.020 · 92.0 ± 2.0 % (n = 3)"""
        scale = self._scale(claim)
        value, deviation = Decimal(repr(claim["value"])) * scale, claim.get("spread")
        spread = None if deviation is None else Decimal(repr(deviation)) * scale
        place = _last_place(value, spread)
        if place >= 0 and 1900 <= round(abs(value)) < 2100:
            place = -1  # a bare 1950 reads as a year, to people and to reconcile
        number = self._number(value, place)
        if self.spread and spread is not None:
            number += f" {self._sign()} {self._number(spread, place)}"
        if self.tex:
            number = f"${number}$" if not number.replace(".", "").isdigit() else number
        if self.percent:
            number += r"\,\%" if self.tex else " %"
        if self.n and "n" in claim:
            number += f" (n = {claim['n']})" if not self.tex else f" ($n = {claim['n']}$)"
        return number

    def _scale(self, claim: dict[str, Any]) -> int:
        if not self.percent or claim.get("unit") in ("%", "percent"):
            return 1
        if not -1 <= claim["value"] <= 1:
            raise bad_input(f"{claim['id']} is {claim['value']:g}, no fraction: it cannot be written as percent")
        return 100

    def _sign(self) -> str:
        return r"\pm" if self.tex else "±"

    def _number(self, value: Decimal, place: int) -> str:
        rounded = value.quantize(Decimal(1).scaleb(max(place, -300)), context=_WIDE)
        if rounded.adjusted() >= _LONGEST or place < _SMALLEST:
            return self._power(rounded, place)
        if place > 0:
            rounded = value.quantize(Decimal(1))  # 12345.6 ± 40 stays 12346: reconcile reads every digit as meant
        return f"{rounded:f}" if rounded else f"{abs(rounded):f}"

    def _power(self, rounded: Decimal, place: int) -> str:
        exponent = rounded.adjusted() if rounded else place
        mantissa = rounded.scaleb(-exponent)
        times = self.tex and not self.spread  # behind a ± reconcile reads 2e-9, not 2 x 10^-9
        return rf"{mantissa:f} \times 10^{{{exponent}}}" if times else f"{mantissa:f}e{exponent}"


def _last_place(value: Decimal, spread: Decimal | None) -> int:
    """The power of ten of the last digit: the spread's first (its second when it starts with 1)."""
    if spread:
        leading = spread.adjusted()
        first = spread.scaleb(-leading)
        if first >= Decimal("9.5"):  # rounds up to 10
            return leading
        return leading - 1 if first < Decimal("1.95") else leading
    shortest = value.normalize().as_tuple().exponent  # 0.9 is not made 0.9000
    place = max(value.adjusted() - _ALONE + 1, int(shortest))
    return place if value.adjusted() >= _LONGEST else min(0, place)
