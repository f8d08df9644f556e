"""Nothing to do with training: the skill must not get in the way of a small data task."""

from __future__ import annotations

import csv
import random
from decimal import Decimal

from trials.case import Box, Case, differs

COUNTRIES = ["DE", "FR", "US", "JP"]


def _rows() -> list[tuple[str, str, str, int, str, str]]:
    rng = random.Random(31)
    rows = []
    for number in range(4000):
        country = rng.choice(COUNTRIES)
        cents = rng.randint(99, 450000)
        plain = f"{cents / 100:.2f}"
        german = f"{cents // 100:,}".replace(",", ".") + f",{cents % 100:02d}"
        date = f"2026-{rng.choice(['02', '03', '03', '04'])}-{rng.randint(1, 28):02d}"
        status = rng.choice(["paid", "paid", "shipped", "cancelled", "Cancelled "])
        rows.append((f"o{number}", date, country, rng.randint(1, 5), german if country == "DE" else plain, status))
    return rows


def make(box: Box) -> None:
    with (box.work / "orders.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=";").writerows([("id", "date", "country", "qty", "unit_price", "status"), *_rows()])


def _sum(strict: bool) -> dict[str, float]:
    total = dict.fromkeys(COUNTRIES, Decimal(0))
    for _, date, country, quantity, price, status in _rows():
        if not date.startswith("2026-03") or (status.strip().lower() if strict else status) == "cancelled":
            continue
        total[country] += quantity * Decimal(price.replace(".", "").replace(",", ".") if country == "DE" else price)
    return {country: float(value) for country, value in total.items()}


def verify(box: Box) -> list[str]:
    answer = box.read("revenue.json")
    return [
        p for c, v in _sum(strict=True).items() for p in differs(c, round(float(answer.get(c, -1)), 2), round(v, 2))
    ]


def reference(box: Box) -> None:
    box.write("revenue.json", _sum(strict=True))


def naive(box: Box) -> None:
    box.write("revenue.json", _sum(strict=False))


CASE = Case(
    route="outside",
    minutes=4,
    commands=8,
    kind="outside",
    expected="The revenue of four countries; the skill is not needed and not read beyond its description.",
)
