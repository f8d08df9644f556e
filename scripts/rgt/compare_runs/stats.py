"""Is the difference larger than what seeds alone produce? Calibrated by evals/bench/compare_runs.py.

The bar for "effect" is p < 0.02 in the t test (paired, or Welch's), not 0.05: with it the rate of false effects stays
below 5 % also for skewed noise with one arm twice as wide, where 0.05 lets 5 to 7 % through. Where the permutation
test can reach 0.05 at this n, it has to. At 3 seeds it cannot (2 of 20 orders, 2 of 8 signs): there the t test decides
alone, and the report says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from rgt.compare_runs.trial import short

CLAIM, PERMUTATION, NOISE = 0.02, 0.05, 0.20  # p below: effect; below, too; from here on it may be noise
INSIDE = 0.5  # of the runs' spread: a larger difference is not called noise, as few runs show no p at all for it
FEWEST = 3  # runs per arm; two give no spread to speak of
POWER = 0.8
RESAMPLES = 1999
LARGE = 2000  # values, from which on the t test needs no help and resampling would cost gigabytes


@dataclass
class Outcome:
    paired: bool
    n: tuple[int, int]
    means: tuple[float, float]
    sds: tuple[float, float]
    difference: float
    ci: tuple[float, float]
    p: float
    p_permutation: float | None
    floor: float  # the smallest p that the permutation test can give at this n
    bootstrap: tuple[float, float] | None
    smallest: float  # the true effect that this n and spread show in 80 % of comparisons
    holm: float = math.nan
    bar: float = CLAIM  # of an effect; lower for one look of several

    @property
    def permutation_can(self) -> bool:
        return self.p_permutation is not None and self.floor < PERMUTATION

    @property
    def test(self) -> str:
        return "paired t test" if self.paired else "Welch's t test"

    def as_dict(self) -> dict[str, Any]:
        keys = {"ci": "ci95", "holm": "p_holm", "floor": "permutation_floor", "bootstrap": "bootstrap95"}
        keys["smallest"] = "smallest_effect"
        fields = {keys.get(name, name): _strict(value) for name, value in asdict(self).items()}
        return {"test": self.test} | fields

    def __str__(self) -> str:
        if math.isnan(self.p):
            return "no test: the runs do not vary"
        words = f"{self.test} p = {self.p:.2g}"
        if self.p_permutation is not None:
            words += f", permutation p = {self.p_permutation:.2g}"
            words += "" if self.permutation_can else f" (cannot go below {self.floor:.2g} at this n)"
        if not math.isnan(self.holm) and self.holm != self.p:
            words += f", Holm-adjusted p = {self.holm:.2g}"
        return f"{words}; smallest effect this n could show {short(self.smallest)}"

    def decision(self) -> str:
        """effect | noise | undecided, from the numbers alone."""
        p = self.p if math.isnan(self.holm) else self.holm
        agrees = not self.permutation_can or (self.p_permutation or 0.0) < PERMUTATION
        return _word(p, lambda: agrees, self.apart, self.bar)

    @property
    def apart(self) -> float:
        """The difference in units of the runs' spread."""
        return _apart(self.difference, *self.sds)


def _strict(value: Any) -> Any:
    """Strict JSON has no NaN: where arms do not vary there is no p and no interval."""
    if isinstance(value, (tuple, list)):
        return [_strict(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _apart(difference: float, *sds: float) -> float:
    spread = math.sqrt((sds[0] ** 2 + sds[1] ** 2) / 2)
    return abs(difference) / spread if spread > 0 else 0.0


def _word(p: float, permutation_agrees: Callable[[], bool], apart: float, bar: float = CLAIM) -> str:
    if math.isnan(p):
        return "undecided"
    if p < bar:
        return "effect" if permutation_agrees() else "undecided"
    return "noise" if p >= NOISE and apart <= INSIDE else "undecided"


def decide(a: list[float], b: list[float], paired: bool) -> str:
    """compare(...).decision() without the intervals: for many thousand simulated comparisons."""
    import numpy as np

    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    p = _p(*(_paired(x - y) if paired else _welch(x, y)))
    can = _floor(len(a), len(b), paired) < PERMUTATION
    apart = _apart(float(x.mean() - y.mean()), float(x.std(ddof=1)), float(y.std(ddof=1)))
    return _word(p, lambda: not can or (_permutation(x, y, paired) or 0.0) < PERMUTATION, apart)


def compare(a: list[float], b: list[float], paired: bool, resample: bool = True) -> Outcome:
    """A minus B. Both sides need two values; `resample` adds the bootstrap interval."""
    import numpy as np
    from scipy import special

    with np.errstate(all="ignore"):
        x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
        difference, error, freedom = _paired(x - y) if paired else _welch(x, y)
        p = _p(difference, error, freedom)
        half = smallest = math.nan
        if math.isfinite(p) and error != 0.0:
            half, smallest = float(special.stdtrit(freedom, 0.975)) * error, _smallest(freedom) * error
        boot = _resample("bootstrap", x, y, paired, method="percentile") if resample else None
        return Outcome(
            paired,
            n=(len(a), len(b)),
            means=(float(x.mean()), float(y.mean())),
            sds=(float(x.std(ddof=1)), float(y.std(ddof=1))),
            difference=difference,
            ci=(difference - half, difference + half),
            p=p,
            p_permutation=_permutation(x, y, paired),
            floor=_floor(len(a), len(b), paired),
            bootstrap=boot and (float(boot.confidence_interval.low), float(boot.confidence_interval.high)),
            smallest=smallest,
        )


def _paired(d: Any) -> tuple[float, float, float]:
    return float(d.mean()), float(d.std(ddof=1)) / math.sqrt(len(d)), len(d) - 1.0


def _welch(x: Any, y: Any) -> tuple[float, float, float]:
    va, vb = float(x.var(ddof=1)) / len(x), float(y.var(ddof=1)) / len(y)
    total = va + vb
    below = va**2 / (len(x) - 1) + vb**2 / (len(y) - 1)
    freedom = total**2 / below if below > 0 else len(x) + len(y) - 2.0
    return float(x.mean() - y.mean()), math.sqrt(total), freedom


def _p(difference: float, error: float, freedom: float) -> float:
    """Two-sided. NaN where there is no spread at all: then there is nothing to compare the difference with."""
    from scipy import special

    if not (math.isfinite(difference) and math.isfinite(error) and math.isfinite(freedom)):
        return math.nan
    if error <= 1e-12 * abs(difference):
        return math.nan if difference else 1.0
    return float(2 * special.stdtr(freedom, -abs(difference / error)))


def _smallest(freedom: float) -> float:
    """In standard errors: the shift of a noncentral t that passes the bar in 80 % of comparisons."""
    from scipy import optimize, stats

    bar = float(stats.t.ppf(1 - CLAIM / 2, freedom))
    found = optimize.brentq(lambda shift: float(stats.nct.sf(bar, freedom, shift)) - POWER, 0.0, 20 * bar, xtol=1e-3)
    return float(found)


def _floor(a: int, b: int, paired: bool) -> float:
    # a comb of thousands does not fit a float, and is no limit either
    return 2.0 ** (1 - min(a, 100)) if paired else 2 / math.comb(min(a, 100) + min(b, 100), min(a, 100))


def _permutation(x: Any, y: Any, paired: bool) -> float | None:
    kind = "samples" if paired else "independent"
    found = _resample("permutation_test", x, y, paired, permutation_type=kind)
    return found and float(found.pvalue)


def _resample(function: str, x: Any, y: Any, paired: bool, **how: Any) -> Any:
    """What a resampling function of scipy says of the difference of means; None where it would cost too much."""
    import numpy as np
    from scipy import stats

    if len(x) + len(y) > LARGE:
        return None
    how |= {"vectorized": True, "n_resamples": RESAMPLES, "batch": 1000, "random_state": np.random.default_rng(0)}
    if paired:
        return getattr(stats, function)((x - y,), lambda d, axis=-1: d.mean(axis=axis), **how)
    return getattr(stats, function)((x, y), lambda a, b, axis=-1: a.mean(axis=axis) - b.mean(axis=axis), **how)


def holm(values: list[float]) -> list[float]:
    """Adjusted p, in the given order: with m comparisons the smallest is multiplied by m, the next by m - 1, ..."""
    order = sorted(range(len(values)), key=lambda index: values[index])
    adjusted, highest = [math.nan] * len(values), 0.0
    left = sum(not math.isnan(value) for value in values)
    for index in order:
        if math.isnan(values[index]):
            continue
        highest = max(highest, min(1.0, values[index] * left))
        adjusted[index], left = highest, left - 1
    return adjusted
