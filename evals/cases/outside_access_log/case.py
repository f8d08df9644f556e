"""Serving, not training: named in the description as out of scope."""

from __future__ import annotations

import random
from collections import defaultdict

from trials.case import Box, Case, differs


def _rows() -> list[tuple[int, str, int]]:
    rng = random.Random(77)
    rows = []
    for minute in range(600):
        for _ in range(rng.randint(8, 30) if not 200 <= minute < 210 else 3):
            bad = 0.3 if 340 <= minute < 350 or 200 <= minute < 210 else 0.02
            rows.append((minute, "/v1/generate", 502 if rng.random() < bad else 200))
        rows += [(minute, "/healthz", 503 if 100 <= minute < 140 else 200)] * 12
    return rows


def _window(strict: bool) -> dict[str, object]:
    count: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for minute, path, status in _rows():
        if strict and path == "/healthz":
            continue
        count[minute // 10][0] += 1
        count[minute // 10][1] += status >= 500
    share = {window: bad / total for window, (total, bad) in count.items() if total >= (100 if strict else 1)}
    best = max(share, key=lambda window: share[window])
    return {"start": f"{best * 10 // 60:02d}:{best * 10 % 60:02d}", "share": round(share[best], 3)}


def make(box: Box) -> None:
    lines = [
        f"10.0.0.{n % 200} - - [16/Nov/2026:{m // 60:02d}:{m % 60:02d}:{n % 60:02d} +0000] "
        f'"POST {path} HTTP/1.1" {status} 512\n'
        for n, (m, path, status) in enumerate(_rows())
    ]
    box.write("access.log", "".join(lines))


def verify(box: Box) -> list[str]:
    answer, right = box.read("window.json"), _window(strict=True)
    return differs("start", answer.get("start"), right["start"]) + differs("share", answer.get("share"), right["share"])


CASE = Case(
    route="outside",
    minutes=3,
    commands=6,
    reference=lambda box: box.write("window.json", _window(strict=True)),
    naive=lambda box: box.write("window.json", _window(strict=False)),
    kind="outside",
    expected="The window and its share; the skill is not needed.",
)
