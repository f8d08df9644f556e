"""How many seeds a question needs, before they are paid for; and what was planned, when the answer comes.

Example:
    noise = spread([[0.71, 0.73, 0.70], [0.68, 0.69, 0.71]])      pooled within the arms, with its own interval
    n = seeds_per_arm(0.02, noise.sd, power=0.8, bar=0.02)
    looks(n, 3)                                                    [Look(n=3, bar=0.0004), ..., Look(n=9, bar=0.014)]

Several looks share the error that one would have: the bars of all looks add up to that of one (each part is that of
O'Brien and Fleming's spending function). So stopping at the first look below its bar keeps the rate of false effects,
whatever the looks have in common.
"""

from __future__ import annotations

import calendar
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rgt import files
from rgt.compare_runs import stats
from rgt.compare_runs.trial import Arm, Note, Sample, told
from rgt.errors import bad_input
from rgt.run.record import RUN_ID

SURE = 0.9  # of the intervals of spread and power
MOST = 10_000  # seeds per arm; a difference that needs more is not one to look for


@dataclass
class Spread:
    sd: float
    low: float
    high: float
    freedom: int


@dataclass
class Look:
    n: int  # runs per arm
    bar: float  # p below it is an effect


def spread(arms: list[list[float]]) -> Spread:
    """Of runs that differ by the seed alone."""
    import numpy as np
    from scipy import stats as distributions

    freedom = sum(len(values) - 1 for values in arms)
    if freedom < 2:
        raise bad_input("the spread of seeds cannot be told from so few runs: give at least three of one setting")
    squares = sum(float(np.var(values, ddof=1)) * (len(values) - 1) for values in arms if len(values) > 1)
    if squares == 0:
        raise bad_input("the runs do not vary at all: seeds that change nothing give no spread to plan with")
    low, high = distributions.chi2.ppf([(1 + SURE) / 2, (1 - SURE) / 2], freedom)
    return Spread(math.sqrt(squares / freedom), math.sqrt(squares / low), math.sqrt(squares / high), freedom)


def power_of(delta: float, sd: float, n: int, bar: float) -> float:
    """The share of comparisons of n runs per arm that find a true difference of delta."""
    from scipy import stats as distributions

    freedom = 2.0 * n - 2
    edge = float(distributions.t.ppf(1 - bar / 2, freedom))
    return float(distributions.nct.sf(edge, freedom, abs(delta) / (sd * math.sqrt(2 / n))))


def seeds_per_arm(delta: float, sd: float, power: float, bar: float) -> int:
    low, high = stats.FEWEST, stats.FEWEST
    while power_of(delta, sd, high, bar) < power:
        low, high = high + 1, 2 * high
        if high > MOST:
            raise bad_input(f"a difference of {delta:g} with a spread of {sd:.3g} needs more than {MOST} seeds per arm")
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if power_of(delta, sd, middle, bar) >= power else (middle + 1, high)
    return high


def looks(n: int, count: int) -> list[Look]:
    """At equal parts of n; the last one's bar is nearly that of a single look."""
    from scipy import special

    sizes = sorted({max(stats.FEWEST, math.ceil(n * part / count)) for part in range(1, count + 1)})
    half = float(special.ndtri(1 - stats.CLAIM / 2))
    spent = [2 * float(special.ndtr(-half / math.sqrt(size / n))) for size in sizes]
    return [Look(size, now - before) for size, now, before in zip(sizes, spent, [0.0, *spent], strict=False)]


def last_bar(count: int) -> float:
    return looks(MOST, count)[-1].bar


# -- the plan as a file, and what became of it


def write(path: Path, plan: dict[str, Any]) -> None:
    if path.exists():
        raise bad_input(f"{path} exists: a plan is written once, before the runs; take another name")
    files.write_json(path, plan | {"written": time.time()}, "plan")


def read(path: Path) -> dict[str, Any]:
    plan: dict[str, Any] = files.read_json(path, "plan")
    return plan


def apply(
    plan: dict[str, Any], samples: tuple[Sample, Sample], outcome: stats.Outcome
) -> tuple[Look | None, list[Note]]:
    """The look that this comparison is, and what to say of the plan; no look: it was not planned like this."""
    n = min(len(sample.values) for sample in samples)
    planned = [Look(**look) for look in plan["looks"]]
    early = sorted(
        trial.source for sample in samples for trial in sample.trials if _started(trial.run_id) < int(plan["written"])
    )
    if early:
        message = f"found afterwards: {early[0]} started before the plan was written" + (
            " (and others)" if early[1:] else ""
        )
        return None, [told("plan", message)]
    look = next((one for one in planned if one.n == n), None)
    sizes = ", ".join(str(one.n) for one in planned)
    if look is None:
        message = f"not as planned: {n} runs per arm, looks were planned at {sizes}; its rate of error is not known"
        return None, [told("plan", message)]
    outcome.bar = look.bar
    at = f"look {planned.index(look) + 1} of {len(planned)} (at {sizes} runs per arm)"
    message = f"planned: {at}, an effect below p = {look.bar:.2g}"
    return look, [Note("plan", "info", message, disclose=message)]


def _started(run_id: str | None) -> float:
    """From the id, which begins with the time in UTC. Without one a run cannot show that it is younger than a plan."""
    if not run_id or not RUN_ID.fullmatch(run_id):
        return -math.inf
    return float(calendar.timegm(time.strptime(run_id[:15], "%Y%m%d-%H%M%S")))


def hours_and_rate(arms: list[Arm]) -> tuple[float | None, float | None]:
    """Hours that a run took, and what one cost, by the records of those runs: medians."""
    import statistics

    from rgt.run import billing

    bills = [billing.bill_of(Path(trial.source)) for arm in arms for trial in arm.trials if Path(trial.source).is_dir()]
    hours = [bill.up for bill in bills if bill.up]
    rates = [bill.cost / bill.up for bill in bills if bill.up and bill.cost is not None]
    return (statistics.median(hours) if hours else None), (statistics.median(rates) if rates else None)
