"""Simulated training: curves of known health, and how soon and how often wrongly each detector speaks.

Example:
    score = run("spike", seeds=range(50))        score.found, score.delay (points), score.alarms

A curve is looked at as a poll would: every LOOK points, with what was there by then.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rgt.log.series import Points, Series
from rgt.run import curves

LENGTH = 1200
LOOK = 10  # points between two looks
TOTAL = 1500  # points the run is planned for


@dataclass
class Run:
    """What one run logs: a loss, a learning rate, a speed, an evaluation now and then."""

    loss: list[float]
    lr: list[float] = field(default_factory=list)
    speed: list[float] = field(default_factory=list)
    val: list[float] = field(default_factory=list)  # one every EVALUATE points


EVALUATE = 60


def _noise(dice: random.Random, kind: str, size: float) -> Iterator[float]:
    last = 0.0
    while True:
        if kind == "memory":  # neighbouring batches resemble each other
            last = 0.7 * last + dice.gauss(0, size * 0.7)
            yield last
        elif kind == "heavy":  # Student's t with 4 degrees of freedom
            yield size * dice.gauss(0, 1) / math.sqrt(dice.gammavariate(2, 0.5))
        else:
            yield dice.gauss(0, size)


def healthy(seed: int) -> Run:
    """Power laws, exponentials, restarts of the schedule, a changed data mix; three kinds of noise, five sizes."""
    dice = random.Random(seed)
    floor, height = dice.choice([0.05, 0.5, 2.0]), dice.choice([1.0, 4.0, 8.0])
    power = dice.uniform(0.3, 0.7)
    kind, size = dice.choice(["white", "memory", "heavy"]), dice.choice([0.005, 0.01, 0.02, 0.04, 0.08])
    noise = _noise(dice, kind, 1.0)
    shape = seed % 4
    values = []
    for n in range(LENGTH):
        level = floor + height * ((1 + n / 3) ** -power if shape != 1 else math.exp(-n / 400) * 0.9 + 0.1)
        if shape == 2:  # warm restarts lift the loss for a while
            level *= 1 + 0.08 * math.exp(-(n % 300) / 25) * (n >= 300)
        if shape == 3 and n > 700:  # harder data from here on
            level *= 1.06
        values.append(max(1e-6, level * (1 + size * next(noise))))
    lr = _cosine(3e-4)
    speed = [dice.gauss(10, 0.4) * (0.3 if n % 100 == 0 else 1) for n in range(LENGTH)]  # slow while it evaluates
    val = [
        floor + height * ((1 + n / 3) ** -power) * 1.05 + dice.gauss(0, 0.01 * floor)
        for n in range(0, LENGTH, EVALUATE)
    ]
    return Run(values, lr, speed, val)


def _cosine(peak: float) -> list[float]:
    warm = 60
    return [peak * min(1, (n + 1) / warm) * (0.55 + 0.45 * math.cos(math.pi * n / TOTAL)) for n in range(LENGTH)]


# -- what goes wrong: each takes a healthy run and a place


def spike(run: Run, at: int, dice: random.Random) -> None:
    height = dice.uniform(2.5, 5)  # mild bumps are no finding
    for n in range(at, min(LENGTH, at + 12)):
        run.loss[n] *= 1 + (height - 1) * math.exp(-(n - at) / 4)


def diverged(run: Run, at: int, dice: random.Random) -> None:
    pace = dice.uniform(60, 200)
    for n in range(at, LENGTH):
        run.loss[n] *= 1 + min(8.0, math.exp((n - at) / pace) - 1)


def plateau(run: Run, at: int, dice: random.Random) -> None:
    """It never learns: a frozen model, a learning rate of nothing."""
    level = run.loss[0]
    run.loss = [level * (1 + dice.gauss(0, 0.02)) for _ in run.loss]
    run.lr = [3e-4] * LENGTH


def slow(run: Run, at: int, dice: random.Random) -> None:
    factor = dice.uniform(0.3, 0.6)
    run.speed[at:] = [value * factor for value in run.speed[at:]]


def lr(run: Run, at: int, dice: random.Random) -> None:
    """A schedule that was not restored: it starts over, with a peak that is no longer right."""
    factor = dice.uniform(5, 20)
    run.lr[at:] = [value * factor for value in run.lr[at:]]


def overfit(run: Run, at: int, dice: random.Random) -> None:
    for n in range(at // EVALUATE, len(run.val)):
        run.val[n] = run.val[at // EVALUATE - 1] * (1 + 0.03 * (n - at // EVALUATE + 1))


BREAKS: dict[str, Callable[[Run, int, random.Random], None]] = {
    "spike": spike,
    "diverged": diverged,
    "plateau": plateau,
    "slow": slow,
    "lr": lr,
    "overfit": overfit,
}


# -- looking


def alarms(run: Run, every: int = LOOK, start: int = 0) -> Iterator[tuple[int, str, str]]:
    """(point, code, severity) for every look."""
    loss, rate, speed = Series(), Series(), Series()
    for n in range(LENGTH):
        loss.add(n, run.loss[n])
        rate.add(n, run.lr[n])
        speed.add(n, run.speed[n])
        if (n + 1) % every or n < start:
            continue
        val: Points = [(i * EVALUATE, value) for i, value in enumerate(run.val[: n // EVALUATE + 1])]
        run_curves = curves.Curves(
            loss=loss.points(), val_loss=val, lr=rate.points(), rate=speed.points(), share_done=(n + 1) / TOTAL
        )
        for finding in curves.judge(run_curves):
            yield n, finding.code, finding.severity


@dataclass
class Score:
    runs: int = 0
    found: int = 0
    delays: list[int] = field(default_factory=list)

    @property
    def recall(self) -> float:
        return self.found / self.runs

    @property
    def delay(self) -> float:
        return statistics.median(self.delays) if self.delays else math.inf


def run(name: str, seeds: range, every: int = LOOK) -> Score:
    """Break healthy runs in one way and wait for the one finding that names it."""
    score = Score()
    for seed in seeds:
        dice = random.Random(10_000 + seed)
        broken = healthy(seed)
        at = dice.randrange(300, 800)
        BREAKS[name](broken, at, dice)
        score.runs += 1
        since = 0 if name == "plateau" else at
        hit = next((n for n, code, _ in alarms(broken, every, since) if code == name and n >= since), None)
        if hit is not None:
            score.found += 1
            score.delays.append(hit - since + 1)
    return score


def false_alarms(seeds: range, every: int = LOOK) -> tuple[int, dict[str, int]]:
    """Healthy runs that raised a warning or an error at any look, and by which code."""
    wrong = 0
    codes: dict[str, int] = {}
    for seed in seeds:
        raised = {code for _, code, severity in alarms(healthy(seed), every) if severity != "info"}
        wrong += bool(raised)
        for code in raised:
            codes[code] = codes.get(code, 0) + 1
    return wrong, codes
