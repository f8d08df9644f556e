"""Does memory grow: slopes with their uncertainty from samples of a process tree. Numbers in, verdicts out.

Example:
    slope = estimate([[(step, bytes), ...], ...])        slope.mean, slope.error, slope.verdict

A series is cut where something else happened (an evaluation, another worker); inside a piece it is cut into blocks, and
the blocks' slopes give mean and error. The first fifth is warm-up. Growth that stops is a plateau, and growth that most
blocks do not show is the allocator's: a leak goes on.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

Points = Sequence[tuple[float, float]]

LEAK, PLATEAU, UNSTEADY, NONE, UNJUDGED = "leak", "plateau", "unsteady", "none", "unjudged"
WARMUP = 0.2  # of the whole
_BLOCKS = 8
_FEWEST = 4  # blocks, or evaluations, to tell growth from noise
_SURE = 2.5  # standard errors; a little more than 2 because the blocks are few
WORTH = 2 << 20  # bytes over what was watched; less is noise of the allocator


@dataclass
class Slope:
    """Bytes per unit, with one standard error; `count` is what they come from."""

    mean: float = 0.0
    error: float = math.inf
    count: int = 0
    growth: float = 0.0  # over what was watched, after the warm-up
    early: float = 0.0  # growth during the warm-up
    verdict: str = UNJUDGED


def estimate(pieces: Sequence[Points]) -> Slope:
    """One slope from all pieces."""
    pieces = [piece for piece in pieces if len(piece) > 1]
    if not pieces:
        return Slope()
    low, high = min(piece[0][0] for piece in pieces), max(piece[-1][0] for piece in pieces)
    start = low + WARMUP * (high - low)
    heads = [[level for at, level in piece if at < start] for piece in pieces]
    early = sum(head[-1] - head[0] for head in heads if head)
    later = [[point for point in piece if point[0] >= start] for piece in pieces]
    size = max(4, math.ceil(sum(map(len, later)) / _BLOCKS))
    slopes, lengths = [], []
    products = squares = length = count = 0.0
    blocks = []  # of about `size` points, which share their ends, so that no growth falls between them
    for piece in later:
        cuts = max(1, len(piece) // size)
        bounds = [round(index * (len(piece) - 1) / cuts) for index in range(cuts + 1)]
        blocks += [piece[first : last + 1] for first, last in itertools.pairwise(bounds) if last > first]
    for block in blocks:
        # short pieces are pooled: each keeps its own level, all share the slope
        x, y = (statistics.fmean(values) for values in zip(*block, strict=True))
        products += sum((a - x) * (b - y) for a, b in block)
        squares += sum((a - x) ** 2 for a, _ in block)
        length, count = length + block[-1][0] - block[0][0], count + len(block)
        if count >= size and squares:
            slopes.append(products / squares)
            lengths.append(length)
            products = squares = length = count = 0.0
    return _judged(slopes, lengths, early)


def jumps(deltas: Sequence[float], error: float = 0.0) -> Slope:
    """Growth per event, such as an evaluation; the first ones are warm-up. `error` is what all of them share."""
    skip = max(1, round(WARMUP * len(deltas)))
    return _judged(list(deltas[skip:]), [1.0] * len(deltas[skip:]), sum(deltas[:skip]), error)


def _judged(slopes: list[float], lengths: list[float], early: float, error: float = 0.0) -> Slope:
    if not slopes:
        return Slope(early=early)
    whole = sum(lengths)
    mean = sum(slope * length for slope, length in zip(slopes, lengths, strict=True)) / whole
    found = Slope(mean, math.inf, len(slopes), mean * whole, early)
    if len(slopes) < _FEWEST:
        return found
    found.error = math.hypot(statistics.stdev(slopes) / math.sqrt(len(slopes)), error)
    late = statistics.median(slopes[len(slopes) // 2 :])
    if found.growth >= WORTH and late > 0.3 * mean:
        steady = statistics.quantiles(slopes, n=4)[0] > 0.25 * mean and mean > _SURE * found.error
        found.verdict = LEAK if steady else UNSTEADY
    else:
        found.verdict = PLATEAU if max(early, found.growth) >= WORTH else NONE
    return found
