"""What curves say about a run's health, by robust statistics: a level is a median, a spread is a MAD.

Example:
    for finding in judge(Curves(loss=points, share_done=0.4)): ...         points are [(x, value), ...], oldest first

Losses, norms, rates and scales are compared as logarithms, because all of them grow and shrink by factors. Each
detector judges against the curve's own noise and says how sure it is; none has a threshold in the curve's unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from rgt import bundle
from rgt.log.series import Points, is_chance, is_stuck
from rgt.metrics.table import is_evaluation, known
from rgt.report import Finding

_MAD = 1.4826  # makes a MAD comparable to a standard deviation
_BEFORE = 9  # points whose median is the level before a point, or after it
_ENOUGH = 8  # points below which nothing is judged
_RISE = math.log(1.3)  # that a loss has to rise above its best: a restarted schedule or harder data lifts it by less
_JUMP = math.log(1.8)  # that one point has to lie above its neighbours
_FAR = 6  # times the loss before, in a log of a few points
_KNOWN_CHANCE = (2, 3, 4, 5, 10, 20, 50, 100, 200, 256, 1000, 21843, 32000, 50257, 50304, 128256, 151936)  # classes


@dataclass
class Curves:
    """Of one run; empty where it tells none."""

    loss: Points = field(default_factory=list)
    val_loss: Points = field(default_factory=list)
    lr: Points = field(default_factory=list)
    grad_norm: Points = field(default_factory=list)
    loss_scale: Points = field(default_factory=list)
    rate: Points = field(default_factory=list)
    reward: Points = field(default_factory=list)
    accuracy: Points = field(default_factory=list)
    losses: dict[str, Points] = field(default_factory=dict)  # all of the training's
    explained: Points = field(default_factory=list)  # share of the reward's variance that a critic foresees
    names: dict[str, str] = field(default_factory=dict)  # of the curves, as the log spells them
    share_done: float | None = None
    adversarial: bool = False  # two losses that play against each other, or a policy: neither has to fall

    def name(self, role: str) -> str:
        return self.names.get(role, role)


def judge(run: Curves) -> Iterator[Finding]:
    """All that the curves say; of one trouble in the loss only its worst name."""
    trouble = list(diverged(run))
    for name, points in run.losses.items() if run.adversarial and not trouble else ():
        trouble += diverged(Curves(loss=points, reward=run.reward, names={"loss": name}, adversarial=True))
    yield from trouble or spike(run)
    if not trouble:
        yield from plateau(run)
    yield from no_score(run)
    yield from overfit(run)
    yield from gradient(run)
    yield from loss_scale(run)
    yield from lr(run)
    yield from slow(run)


def mad(values: list[float]) -> float:
    middle = _middle(values)
    return _MAD * _middle([abs(value - middle) for value in values])


def _middle(values: list[float]) -> float:
    """The upper median: statistics.median costs more than its sort."""
    return sorted(values)[len(values) // 2]


def _sure(strength: float, needed: float, lowest: float = 0.75) -> float:
    """From `lowest` where the evidence just suffices, towards 1 as it grows."""
    return round(min(0.99, lowest + (1 - lowest) * (1 - math.exp(-(strength - needed) / (2 * needed)))), 2)


def _show(x: float, value: float) -> str:
    return f"{value:.4g} at {x:g}"


def _scaled(points: Points) -> list[float]:
    """Logarithms; of a loss that may be negative, the values in units of its size."""
    values = [value for _, value in points]
    if min(values) > 0:
        return [math.log(value) for value in values]
    size = max(mad(values), abs(_middle(values)), 1e-12)
    return [value / size for value in values]


def _noise(values: list[float]) -> float:
    """Of one point, apart from any trend; a value that is shown again is no new one."""
    steps = [after - before for before, after in pairwise(values) if after != before]
    return mad(steps) / math.sqrt(2) if steps else 0.0


def _levels(values: list[float], width: int) -> list[float]:
    """Medians of stretches, the last one ending at the newest point."""
    return [_middle(values[n : n + width]) for n in range(len(values) % width, len(values), width)]


def _wobble(levels: list[float]) -> float:
    """How much neighbouring levels differ anyway, apart from the trend: this holds for noise that has a memory, too."""
    steps = [after - before for before, after in pairwise(levels)]
    return mad(steps) if len(steps) >= 4 else 0.0


# -- the loss


def diverged(run: Curves) -> Iterator[Finding]:
    """The newest level against the best one: higher than noise, cycles and what it came back from before explain."""
    points, name = run.loss, run.name("loss")
    if (short := list(exploded(run)) if len(points) < 2 * _ENOUGH else []) or len(points) < _ENOUGH:
        yield from short
        return
    if run.adversarial and min(value for _, value in points) <= 0:  # a critic's sign says nothing
        return
    values = _scaled(points)
    width = max(2, min(25, len(values) // 20))
    levels = _levels(values, width)
    best_at = min(range(len(levels)), key=levels.__getitem__)
    now, best, first = levels[-1], levels[best_at], max(levels[:2])
    since = levels[best_at:]
    usual = min(_wobble(levels), _wobble(levels[: best_at + 1]) or math.inf)  # a steep rise would pass for a wobble
    wobble = max(usual, 1.25 * _noise(values) / math.sqrt(width), 1e-4)
    rise, peak = now - best, max(since) - best
    survived = max((level - min(levels[: n + 1]) for n, level in enumerate(levels[: best_at + 1])), default=0.0)
    # a slow rise that hardly ever turns is no noise, nor is a level that is held
    steady = len(since) >= 8 and _order(since) > 0.7
    held = next((n for n, level in enumerate(reversed(levels)) if level < best + 0.5 * rise), len(levels))
    times = 4 if steady or held >= 8 else 5 if held >= 4 else 8
    needed = max(_RISE, times * wobble, min(1.0, 1.3 * survived))
    if run.adversarial:
        needed = max(needed, math.log(1000 if run.reward else 10))
    if _lr_rose(run.lr, points[min(len(points) - 1, best_at * width)][0]):
        needed = max(needed, math.log(1.8))  # a cyclic rate lifts the loss with it
    high = [value > best + 0.5 * rise for value in values[-max(3, width) :]]
    lasting = sum(high) >= 0.8 * len(high) and (len(since) >= 3 or rise > 1.0)
    back = max(now, _middle(levels[-3:])) - best < 0.65 * peak or (
        rise < 0.5 * (first - best) and _falls(values[-len(since) * width :])
    )
    back = back and not (rise > 1.5 * needed and _is_settled(values[best_at * width :], rise))
    checks = [value for _, value in run.val_loss]  # the evaluations do not come back, either
    lost = len(checks) >= 4 * _ENOUGH and min(checks[-(len(checks) // 4) :]) > min(checks) * math.exp(needed / 2) > 0
    raw = [value for _, value in points]
    if rise > needed and lasting and (lost or not back) and _matters(raw, _middle(raw[-3:]) - min(raw)):
        x = points[min(len(points) - 1, best_at * width + width // 2)][0]
        level = min(value for _, value in points[best_at * width : best_at * width + 2 * width])
        strength = rise / wobble
        message = f"{name} rose from {level:.4g} to {points[-1][1]:.4g} and is not coming back"
        evidence = f"best level {_show(x, level)}, now {_show(*points[-1])}, {strength:.0f} times the wobble"
        fix = f"go back to a checkpoint before {x:g} with a lower learning rate"
        yield Finding("diverged", "error", message, where=name, evidence=evidence, fix=fix, sure=_sure(rise, needed))


def exploded(run: Curves) -> Iterator[Finding]:
    """Of a log too short to know its noise: all of the newest points are far above all before them."""
    values, name = [value for _, value in run.loss], run.name("loss")
    first = next((n for n, value in enumerate(values) if value > _FAR * max(values[0], 0.0)), len(values))
    before, since = values[:first], values[first:]
    if len(since) >= 3 and min(since) > _FAR * max(before) > 0 and not run.adversarial:
        message = f"{name} rose from {max(before):.4g} to {values[-1]:.4g} and is not coming back"
        evidence = f"all of the newest {len(since)} points are above {min(since):.4g}"
        fix = "go back to a checkpoint before it with a lower learning rate, and look at the gradient norm"
        yield Finding("diverged", "error", message, where=name, evidence=evidence, fix=fix, sure=0.85)


def _order(values: list[float]) -> float:
    """Kendall's tau against time: 1 when each is above all before it."""
    pairs = [(a < b) - (a > b) for n, a in enumerate(values) for b in values[n + 1 :]]
    return sum(pairs) / max(1, len(pairs))


def _matters(values: list[float], above: float) -> bool:
    """Not the flicker of a loss that has come down to nothing, nor of its last printed digit."""
    steps = [abs(after - before) for before, after in pairwise(values) if after != before]
    return above > max(4 * min(steps, default=0.0), 0.04 * (max(values[:_ENOUGH]) - min(values)))


def _lr_rose(rates: Points, since: float, until: float = math.inf) -> bool:
    before = [value for x, value in rates if x <= since][-1:]
    after = [value for x, value in rates if since < x <= until][-1:]
    return bool(before and after and after[0] > 1.2 * before[0] > 0)


def _falls(values: list[float]) -> bool:
    """Does it come down again since its highest point?"""
    top = max(range(len(values)), key=values.__getitem__)
    after = values[top + 1 :]
    if len(after) < 4:
        return False
    third = max(2, len(after) // 3)
    drop = _middle(after[:third]) - _middle(after[-third:])
    return drop > 2 * mad([b - a for a, b in pairwise(after)]) / math.sqrt(third) and drop > 0.02


def _is_settled(values: list[float], rise: float) -> bool:
    """Flat since a while after its highest point, for as long as the way down took: it has lost what it had learned."""
    top = max(range(len(values)), key=values.__getitem__)
    rest = values[top + 1 + (len(values) - top) // 2 :]
    half = len(rest) // 2
    return half >= 4 and _middle(rest[:half]) - _middle(rest[half:]) < max(0.1 * rise, 2 * mad(rest) / math.sqrt(half))


def spike(run: Curves) -> Iterator[Finding]:
    """Jumps above what was before and what came after, by a factor that neither noise nor its tail explains."""
    points, name = run.loss, run.name("loss")
    short = len(points) < 2 * _ENOUGH
    if len(points) < 5 or run.adversarial:
        return
    values = _scaled(points)
    raw = [value for _, value in points]
    if min(raw) <= 0 and (short or 2 * mad(values) > abs(_middle(values))):
        return  # around zero there is no level to be a factor of
    if short:  # one that everybody sees, above what was before and what is usual
        level = _middle(values)
        heights = [min(value - level, value - min(values[: n + 1])) for n, value in enumerate(values)]
        spread = max(mad(values), 1e-3)
        needed = max(math.log(30), 7 * spread)
    else:
        heights, spread = _heights(values), max(_noise(values), 1e-3)
        needed = max(_JUMP, 7 * spread)
    events = _events(heights, needed)
    events = [n for n in events if n + 2 < len(values)]  # one point at the end may be anything
    tall = [n for n in events if heights[n] > needed and not _lr_rose(run.lr, points[max(0, n - 3)][0], points[n][0])]
    # a heavy tail has many jumps that are almost as tall
    usual = _middle([heights[n] for n in tall]) if tall else 0.0
    tall = tall if len(_events(heights, 0.4 * usual)) <= 2 * len(tall) else []
    if not any(_matters(raw, raw[n] - _middle(raw[max(0, n - _BEFORE) : n])) for n in tall):
        return
    last = tall[-1]
    times = f"{len(tall)} times, last" if len(tall) > 1 else "once,"
    message = f"{name} jumped {times} to {_show(*points[last])}, {heights[last] / spread:.0f} times its noise"
    fix = "look at the batches and the gradient norm there; if it repeats, clip or lower the learning rate"
    evidence = "jumps to " + ", ".join(_show(*points[n]) for n in tall[-4:])
    yield Finding("spike", "warn", message, where=name, evidence=evidence, fix=fix, sure=_sure(heights[last], needed))


def _heights(values: list[float]) -> list[float]:
    """How far each point lies above the level before it, and above what the curve came back to after it."""
    heights = [0.0] * min(4, len(values))
    for n in range(4, len(values)):
        heights.append(values[n] - _middle(values[max(0, n - _BEFORE) : n]))
    lowest = math.inf
    for n in range(len(values) - 5, 3, -1):
        lowest = min(lowest, _middle(values[n + 1 : n + 1 + _BEFORE]))
        heights[n] = min(heights[n], values[n] - lowest)
    return heights


def _events(heights: list[float], least: float) -> list[int]:
    """The highest point of each stretch that is higher than `least`."""
    events: list[int] = []
    last = -_ENOUGH
    for n, height in enumerate(heights):
        if height <= least:
            continue
        if n - last < _ENOUGH // 2:
            events[-1] = max(events[-1], n, key=heights.__getitem__)
        else:
            events.append(n)
        last = n
    return events


def plateau(run: Curves) -> Iterator[Finding]:
    """A loss that never fell is a warning; one that fell and then stopped is a note."""
    points, name = run.loss, run.name("loss")
    rates = [value for _, value in run.lr]
    warming = len(rates) >= 4 and rates[-1] > 1.02 * rates[-max(2, len(rates) // 5)] and rates[-1] >= max(rates)
    enough = 2 * _ENOUGH if (run.share_done or 0.0) > 0.3 else 3 * _ENOUGH
    if at_once := nothing_or_guess(run, warming):
        yield at_once
        return
    if len(points) < enough or run.adversarial or warming:
        return
    values = [value for _, value in points]
    distinct = values[:1] + [after for before, after in pairwise(values) if after != before]
    values = distinct if len(distinct) >= enough else values  # a bar shows each several times
    third = len(values) // 3
    early = min(12, max(3, third // 3))  # most losses fall fastest at first
    start, middle, newest = median(values[:early]), _middle(values[third:-third]), _middle(values[-third:])
    noise = 2.5 * _noise(values) / math.sqrt(third)
    doubt = 2.5 * _noise(values) * math.sqrt(1 / early + 1 / third)
    rough = _noise(values) > 0.13 * abs(newest)  # networks that play against each other look like this
    size = max(abs(start), abs(newest), 1e-12)
    flat = abs(middle - newest) < max(3 * noise, 0.015 * size)
    chance = min(abs(newest / math.log(classes) - 1) for classes in _KNOWN_CHANCE)
    fell = values[0] - newest > max(4 * _noise(values), 0.1 * size)  # before the second print: a finetuning may
    never = start - newest < max(0.02 * size, doubt) and doubt < 0.12 * size and not (fell or rough)
    # at chance for most of the run, where the first steps were above it and nothing that it scores says otherwise
    scores = [value for _, value in run.accuracy]
    scored = len(scores) >= 4 and max(scores[-3:]) > 1.5 * max(scores[0], 1e-9)
    stuck = chance < 0.02 and not (scored or rough) and _never_gains([-value for value in values])
    chance = math.inf if scored or max(values[:3]) > 1.3 * newest or _noise(values) > 0.03 * size else chance
    never = never or (chance < 0.01 and flat and abs(_middle(values[third // 2 : third]) / newest - 1) < 0.03)
    # a log that begins late in a run does not show where its loss began
    late = points[2][0] > 0.5 * points[-1][0]  # the first may have been read before any counter
    if (stuck or (never and flat and not late)) and not _learns(run):
        told = f"{start:.4g} at the start, {newest:.4g} now, noise {noise:.2g}"
        hint = ", as good as guessing" if chance < 0.01 else ""
        fix = "overfit one batch, then check the learning rate, the labels and the frozen parameters"
        message = f"{name} does not fall{hint} ({told})"
        yield Finding("plateau", "warn", message, where=name, evidence=f"{len(points)} points", fix=fix, sure=0.85)
    elif (
        flat
        and not late
        and len(points) >= 60
        and (run.share_done or 0.0) < 0.85
        and not (rates and rates[-1] < 0.2 * max(rates))
    ):
        message = f"{name} no longer improves ({middle:.4g} in the middle, {newest:.4g} now, noise {noise:.2g})"
        yield Finding("plateau", "info", message, where=name, evidence=f"{len(points)} points", sure=0.6)


def _learns(run: Curves) -> bool:
    """Says something beside the loss that it learns, or has learned?"""
    checks = list(dict.fromkeys(value for _, value in run.val_loss))
    falling = all(after < (1 + 1e-3) * min(checks[: n + 1]) for n, after in enumerate(checks[1:], 1) if after > 0)
    scores, name = [value for _, value in run.accuracy], run.name("accuracy")
    metric = known(name)
    good = _middle(scores[-5:]) / (100 if max(scores) > 1 else 1) if scores and metric and metric.share else 0.0
    # most of what a detector's own accuracy counts is background
    good = 0.0 if not is_evaluation(name) and _never_gains(scores) else good
    fell = (
        falling and checks[-1] < checks[0] - (3e-3 if len(checks) >= 3 else 0.04) * abs(checks[0]) if checks else False
    )
    return fell or good > 0.75 or any(_fell(other) for other in run.losses.values())


def nothing_or_guess(run: Curves, warming: bool) -> Finding | None:
    """A value of the loss that says, in a few points, that nothing is learned: 0, or the logarithm of the classes."""
    message, name = "", run.name("loss")
    fix = "overfit one batch, then check the learning rate, the labels and the frozen parameters"
    # a term that is 0 beside a loss that moves has no weight; a network that has lost against another is dead
    dead = next((of for of, curve in run.losses.items() if is_stuck(curve) and (run.adversarial or of == name)), "")
    if dead and not run.reward:
        message, name = f"{dead} is exactly {run.losses[dead][-1][1]:.6g} in all {len(run.losses[dead])} points", dead
        fix = "look at the labels and masks, at the precision, and at the balance of the two networks"
    elif len(players := [of for of, curve in run.losses.items() if is_chance(curve)]) >= 2 and not run.reward:
        message, name = f"{players[0]} and {players[1]} stay at multiples of log(2): both only guess", players[0]
        fix = "the discriminator sees no difference: check its input, its learning rate and the initialisation"
    elif not (run.adversarial or warming) and (classes := _guesses(run)):
        message = f"{name} stays at log({classes}), as good as guessing among {classes}"
    return Finding("plateau", "warn", message, where=name, fix=fix, sure=0.85) if message else None


def _guesses(run: Curves) -> int:
    """The classes among which the loss says that it guesses; few points are enough where the score says so, too."""
    values = [value for _, value in run.loss]
    newest, scores = values[2 * len(values) // 5 :], [value for _, value in run.accuracy][-3:]
    if len(newest) < 3 or _middle(newest) <= 0:
        return 0
    classes = min(_KNOWN_CHANCE, key=lambda classes: abs(_middle(newest) / math.log(classes) - 1))
    near = all(abs(value / math.log(classes) - 1) < 2e-3 for value in newest)
    metric = known(run.name("accuracy"))
    score = _middle(scores) / (100 if max(scores) > 1 else 1) if scores and metric and metric.share else 0.0
    by_score = abs(score * classes - 1) < 0.15
    checks = [value for _, value in run.val_loss]
    falls = len(checks) >= 2 and checks[-1] < (1 - 3e-3) * checks[0]
    sure = len(newest) >= _ENOUGH and not score > 1.5 / classes and values[0] > 0.9 * newest[-1]
    return classes if near and not falls and (by_score or sure) else 0


def _fell(points: Points) -> bool:
    """By half, which no noise does."""
    values = [value for _, value in points]
    tenth = max(3, len(values) // 10)
    return len(values) >= 2 * _ENOUGH and 0 < _middle(values[-tenth:]) < 0.5 * _middle(values[:tenth])


def _rises(points: Points) -> bool:
    """By half of what it was, over most of the curve."""
    levels = _levels([value for _, value in points], max(1, len(points) // 8))
    return len(levels) >= 4 and levels[-1] - levels[0] > 0.5 * abs(levels[0]) and _order(levels) > 0.5


def no_score(run: Curves) -> Iterator[Finding]:
    """A score that stays 0, or a reward that stays where it began: the loss of such a run may look like any other's."""
    scores, rewards = [value for _, value in run.accuracy], [value for _, value in run.reward]
    message = ""
    if len(scores) >= 2 * _ENOUGH and not any(scores):
        message = f"{run.name('accuracy')} is 0 in all {len(scores)} evaluations"
    # the end of a long run, where nothing is earned
    elif len(rewards) >= 12 and 0 <= min(rewards) == max(rewards) < 0.05 and 2 * run.reward[0][0] > run.reward[-1][0]:
        message = f"{run.name('reward')} is {rewards[0]:g} in all {len(rewards)} points up to {run.reward[-1][0]:g}"
    # a score without a name may be a loss
    elif rewards and run.explained and _middle([value for _, value in run.explained[:3]]) > 0.7:
        return  # a critic that knows its policy from the first update: it had learned before
    elif (goal := rewards or ([] if run.loss or run.name("accuracy") == "score" else scores)) and _never_gains(goal):
        name = run.name("reward" if rewards else "accuracy")
        message = f"{name} does not rise: {_middle(goal[:_ENOUGH]):.4g} at first, {_middle(goal[-_ENOUGH:]):.4g} now"
    if message:
        fix = "evaluate by hand what it puts out; check labels, the reward's sign and the learning rate"
        yield Finding(
            "plateau", "warn", message, where=run.name("accuracy" if any(rewards) else "reward"), fix=fix, sure=0.8
        )


def _never_gains(values: list[float]) -> bool:
    """Neither now nor in between better than at first, by more than the noise of a stretch of it."""
    if len(values) < 3 * _ENOUGH:
        return False
    width = len(values) // 10 if len(values) >= 10 * _ENOUGH else len(values) // 6
    levels = [sum(values[n : n + width]) / width for n in range(len(values) % width, len(values), width)]
    spread = mad([value - levels[min(n // width, len(levels) - 1)] for n, value in enumerate(values)])
    # noise with a memory: levels differ by more than their share of the noise
    doubt = max(spread / math.sqrt(width), _wobble(levels) / math.sqrt(2))
    now, first = sum(levels[-3:]) / 3, levels[0]
    at_once = now - _middle(values[:3]) > 3 * spread
    return now - first < 2.5 * doubt and max(levels) - first < 5 * doubt and not at_once and _order(levels) < 0.5


def overfit(run: Curves) -> Iterator[Finding]:
    """An evaluation that was best a while ago and got worse since, by more than it wavers or came back from before."""
    name, metric = run.name("accuracy"), known(run.name("accuracy"))
    scored = metric and metric.direction == "up" and (is_evaluation(name) or 2 * len(run.accuracy) < len(run.loss))
    scores = [(x, -value) for x, value in run.accuracy] if scored else []
    for role, shown, least in (("val_loss", run.val_loss, 0.06), ("accuracy", scores, 0.1)):
        points = shown[:1] + [after for before, after in pairwise(shown) if after[1] != before[1]]  # a bar repeats it
        if len(points) < 4:
            continue
        size = max(abs(value) for _, value in points)
        values = _scaled(points) if role == "val_loss" else [value / size for _, value in points]
        best_at = min(range(len(values)), key=values.__getitem__)
        since = len(values) - 1 - best_at
        halves = [part for part in (values[: best_at + 1], values[best_at:]) if len(part) > 5]
        bends = [b - (a + c) / 2 for a, b, c in zip(values, values[1:], values[2:], strict=False)]
        spread = max(min(*map(_noise, halves or [values]), mad(bends) / math.sqrt(1.5)), 1e-3)
        rise = _middle(values[-3:]) - values[best_at]
        survived = max((value - min(values[: n + 1]) for n, value in enumerate(values[: best_at + 1])), default=0.0)
        needed = max(least, 3 * spread, 1.3 * survived)
        rising = _order(_levels(values[best_at:], max(1, since // 12))) > 0.4
        if (
            _got_harder(run.loss, points[best_at][0])
            or since < max(3, 0.15 * len(values))
            or (len(points) == 4 and rise < 0.15)
            or rise <= needed
            or not rising
            or values[-1] <= values[best_at]
        ):
            continue
        name, (x, best), (last, now) = run.name(role), points[best_at], points[-1]
        message = f"{name} was best with {_show(x, abs(best))} and got worse in the {since} evaluations since"
        evidence, fix = f"now {_show(last, abs(now))}, {math.expm1(rise):.0%} worse", f"keep the checkpoint of {x:g}"
        sure = _sure(rise, needed)
        yield Finding("overfit", "warn", f"{message}: overfitting", where=name, evidence=evidence, fix=fix, sure=sure)
        return


def _got_harder(points: Points, since: float) -> bool:
    """The training loss is higher, too, than it was then: other data, or a divergence, and no overfitting."""
    before, after = ([value for x, value in points if (x <= since) == then] for then in (True, False))
    return len(before) >= 4 and len(after) >= 4 and _middle(after[-_ENOUGH:]) > 1.1 * abs(_middle(before[-_ENOUGH:]))


# -- what stands beside it


def gradient(run: Curves) -> Iterator[Finding]:
    """Orders of magnitude above its usual level, or nothing left of it."""
    points = [(x, value) for x, value in run.grad_norm if value > 0]
    if len(points) < _ENOUGH:
        return
    values = [math.log(value) for _, value in points]
    levels = _levels(values, max(3, min(15, len(values) // 15)))
    now, spread = _middle(values[-4:]), max(_noise(values), 0.05)
    low = min(levels)
    usual = sorted(levels)[len(levels) // 2]
    factor = math.exp(min(700.0, now - low))
    facts: dict[str, Any] = {
        "where": run.name("grad_norm"),
        "evidence": f"now {_show(*points[-1])}, usual {math.exp(usual):.3g}",
    }
    if now - low > max(math.log(30), 6 * spread) and min(values[-3:]) > low + math.log(10):
        fix = "clip it, lower the learning rate, and look at the batches since then"
        severity, sure = ("error" if factor > 1e3 else "warn"), _sure(now - low, math.log(30))
        message = f"the gradient norm is {factor:.3g} times what it was"
        yield Finding("gradient", severity, message, fix=fix, sure=sure, **facts)
    elif now < math.log(1e-6) and now < usual - math.log(1e3):
        yield Finding("gradient", "warn", "the gradient norm has vanished: nothing is learned", sure=0.85, **facts)


def loss_scale(run: Curves) -> Iterator[Finding]:
    """It starts high and comes down until it fits: only one that goes on falling, or has reached nothing, is sick."""
    lg = run.name("loss_scale").startswith(("lg", "log"))  # guided-diffusion prints its logarithm
    points = [(x, 2.0 ** min(value, 99.0) if lg else value) for x, value in run.loss_scale if lg or value >= 0]
    values = [math.log2(max(value, 1e-300)) for _, value in points]  # one that is printed as 0.0000 was rounded
    if len(values) < 5:
        return
    risen = max((n for n in range(1, len(values)) if values[n] > values[n - 1]), default=0)
    down, halvings = values[risen:], values[risen] - values[-1]
    # one halving after the other, down to where no scale has to go
    at_once = halvings >= 4 and values[-1] <= 3 and all(after < before for before, after in pairwise(down))
    at_once = at_once and len(down) >= (5 if down[0] >= 3 else _ENOUGH)
    at_end = values[-1] <= (0 if max(values) >= 6 else -3)
    at_end = at_end or (halvings >= 10 and values[-1] < 7 and values[-1] < values[-max(2, len(values) // 5)])
    if at_once or (at_end and len(values) >= _ENOUGH and max(values) >= 5):
        message = (
            f"the loss scale fell to {points[-1][1]:g} ({halvings:.0f} halvings without a rise): steps are skipped"
        )
        fix = "some gradients are not finite in fp16 at any scale: bf16, a lower learning rate, or find the layer"
        evidence = f"from {_show(*points[risen])} to {_show(*points[-1])}"
        name = run.name("loss_scale")
        yield Finding("loss-scale", "error", message, where=name, evidence=evidence, fix=fix, sure=0.9)


def lr(run: Curves) -> Iterator[Finding]:
    """Zero long before the end, negative, or a jump that neither warm-up nor a restart of the schedule explains."""
    values = [value for _, value in run.lr]
    if len(values) < 4:
        return
    values = [0.0 if 0 < value < 1e-7 * max(values) else value for value in values]  # 3e-14: a schedule that ran out
    x, now = run.lr[-1]
    zeros = next((n for n, value in enumerate(reversed(values)) if value), len(values))
    if _is_rounded(values) and zeros < 0.35 * len(values) and (run.share_done is None or run.share_done > 0.7):
        zeros = 0
    if not any(values) and (_rises(run.reward) or _rises(run.accuracy) or _fell(run.loss)):
        zeros = 0  # printed with too few digits
    if now < 0:
        yield Finding("lr", "error", f"the learning rate is negative: {_show(x, now)}", where="lr", sure=0.99)
    elif zeros >= 3 and (run.share_done is None or run.share_done < 0.9 or zeros > max(5, 0.15 * len(values))):
        since = run.lr[-zeros][0]
        left = f" with {1 - run.share_done:.0%} of the run left" if run.share_done is not None else ""
        message = f"the learning rate is 0 since {since:g}{left}: nothing is learned any more"
        fix = "is the schedule shorter than the run, or was it restored at its end?"
        yield Finding("lr", "warn", message, where="lr", evidence=_show(x, now), fix=fix, sure=0.9)
    for place in range(max(2, len(values) - 50), len(values)):
        before, after = values[place - 1], values[place]
        if before <= 0 or after < 2.5 * before or after < 1.5 * max(values[:place]):
            continue
        usual = [abs(math.log(b / a)) for a, b in pairwise(values[:place]) if a > 0 and b > 0]
        if len(usual) >= 3 and math.log(after / before) > max(10 * median(usual), 1.5 * max(usual)):
            jump = f"from {before:.3g} to {_show(run.lr[place][0], after)}"
            message = f"the learning rate jumped {jump}, above all before"
            fix = "was the scheduler restored with the checkpoint?"
            evidence = f"{after / before:.1f} times in one step; usual change {median(usual):.2g} (log)"
            yield Finding("lr", "warn", message, where="lr", evidence=evidence, fix=fix, sure=0.9)
            return


def _is_rounded(values: list[float]) -> bool:
    """Does 0 stand for a rate that is too small for the digits printed? Then the last rates before it were as small."""
    shown = [value for value in values if value > 0]
    digits = next((n for n in range(9) if all(abs(v * 10**n - round(v * 10**n)) < 1e-6 for v in shown)), None)
    return digits is not None and (not shown or shown[-1] * 10**digits <= 3 or max(shown) * 10**digits <= 20)


def slow(run: Curves) -> Iterator[Finding]:
    """The newest speed against the best that it held; evaluations and saves are outliers that a median does not see."""
    points = [(x, value) for x, value in run.rate if value > 0][2:]  # the first steps warm up
    if len(points) < 1.5 * _ENOUGH:
        return
    # as many as the steps they stand for: a coarse clock tells a high speed less often
    usual_gap = median(after[0] - before[0] for before, after in pairwise(points)) or 1.0
    gaps = [1.0, *((after[0] - before[0]) / usual_gap for before, after in pairwise(points))]
    values = [math.log(v) for (_, v), gap in zip(points, gaps, strict=True) for _ in range(max(1, min(5, round(gap))))]
    width = max(3, min(9, len(values) // 16))
    levels = sorted(_levels(values, width))
    level, newest = levels[-1 - max(1, len(levels) // 10)], values[-max(6, width) :]
    usual = [value for value in values if value > level - 0.35]
    now, spread = _middle(newest), max(mad(usual), mad(newest), 0.02)
    low = sum(value < level + math.log(0.75) for value in newest)
    began = values[: len(values) // 4]
    mixed = sum(value < now + 0.25 for value in began) >= 0.5 * len(began)  # with another bar's speed
    if not mixed and now < level + math.log(0.6) and level - now > 3 * spread and low >= 0.8 * len(newest):
        name, share = run.name("rate"), math.exp(now - level)
        message = f"{name} fell to {math.exp(now):.4g}, {share:.0%} of its usual {math.exp(level):.4g}"
        fix = f"a throttled GPU, a starved data loader, or a neighbour: {bundle.command('watch', 'box')}"
        evidence = f"newest {', '.join(f'{value:.4g}' for _, value in points[-4:])}; usual spread {spread:.0%}"
        yield Finding("slow", "warn", message, where=name, evidence=evidence, fix=fix, sure=_sure(1 / share, 1.6))
