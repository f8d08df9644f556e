"""Does compare_runs bless noise? How often it says "effect" when both arms are the same, and when they differ.

2,000 simulated comparisons per cell: 3, 5 and 10 seeds; normal, heavy-tailed (t with 3 degrees of freedom) and skewed
(exponential) noise; unpaired and paired (half of the variance shared by the seed); equal spread, and one arm with twice
the other's (2:1). The goal: at most 5 % false effects in every cell. One corner is printed without a goal: skewed noise
with three times the spread in one arm, where no t test keeps its word. Power is for normal noise of equal spread.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

from bench.measure import ROOT, Row

sys.path.insert(0, str(ROOT / "scripts"))

from rgt.compare_runs import stats

COMPARISONS = 2000
SEEDS = (3, 5, 10)
NOISES = ("normal", "heavy-tailed", "skewed")
DESIGNS = ("unpaired", "unpaired 2:1", "paired", "paired 2:1")
EFFECTS = (0.5, 1.0, 1.5, 2.0, 3.0)
ALLOWED = 5.0  # percent


def rows() -> Iterator[Row]:
    for n in SEEDS:
        total = 0
        for noise in NOISES:
            for design in DESIGNS:
                hits = effects(n, noise, design)
                total += hits
                yield _row(f"n={n} {noise}, {design}", hits, COMPARISONS, 1.0)
        yield _row(f"n={n} all", total, COMPARISONS * len(NOISES) * len(DESIGNS), 1.0)
        yield _row(f"n={n} skewed, unpaired 3:1", effects(n, "skewed", "unpaired 3:1"), COMPARISONS, math.inf)
    for n in SEEDS:
        for design in ("unpaired", "paired"):
            for effect in EFFECTS:
                power = 100 * effects(n, "normal", design, effect) / COMPARISONS
                yield Row(f"power, n={n} {design}, effect {effect:g} sd", power, 100.0, math.inf, "%")


def _row(what: str, hits: int, of: int, goal: float) -> Row:
    low, high = interval(hits, of)
    return Row(f"false effects, {what} [{low:.1f}, {high:.1f}]", 100 * hits / of, ALLOWED, goal, "%")


def effects(n: int, noise: str, design: str, effect: float = 0.0, comparisons: int = COMPARISONS) -> int:
    """How many of the comparisons end in "effect"; `effect` is in standard deviations of one run."""
    import numpy as np

    rng = np.random.default_rng([n, NOISES.index(noise), len(design), int(10 * effect)])
    wide = float(design.partition(" ")[2].partition(":")[0] or 1)
    paired = design.startswith("paired")
    found = 0
    for _ in range(comparisons):
        a, b = _draw(rng, noise, n) * wide, _draw(rng, noise, n)
        if paired:  # the seed's own share: the same in both arms
            shared = _draw(rng, noise, n)
            a, b = (a + shared * wide) / math.sqrt(2), (b + shared) / math.sqrt(2)
        found += stats.decide(list(a + effect), list(b), paired) == "effect"
    return found


def _draw(rng: Any, noise: str, n: int) -> Any:
    """Mean 0 and standard deviation 1, whatever the shape."""
    if noise == "normal":
        return rng.standard_normal(n)
    if noise == "heavy-tailed":
        return rng.standard_t(3, n) / math.sqrt(3)
    return rng.exponential(1.0, n) - 1.0


def interval(hits: int, of: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share, in percent."""
    z, share = 1.96, hits / of
    middle, half = share + z * z / (2 * of), z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return 100 * (middle - half) / (1 + z * z / of), 100 * (middle + half) / (1 + z * z / of)
