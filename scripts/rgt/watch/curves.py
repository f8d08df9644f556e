"""Detectors on curves, by robust statistics: a level is a median, a spread is a MAD, which one outlier does not move.

Example:
    for finding in spike(points): ...        points are [(x, value), ...], oldest first

Each detector judges against the curve's own noise and says how sure it is; none has a threshold in the curve's unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from statistics import median

from rgt import bundle
from rgt.log.history import Points
from rgt.report import Finding

_MAD = 1.4826  # makes a MAD comparable to a standard deviation
_BEFORE = 31  # points whose median is the level before a point
_ENOUGH = 12  # points below which nothing is judged
_TALL = 0.15  # of its level that a loss jumps in a spike: a restarted schedule or harder data lifts it by less
_RISE = 0.1  # of its best level, likewise, that it has to rise to have diverged


def mad(values: list[float]) -> float:
    middle = _middle(values)
    return _MAD * _middle([abs(value - middle) for value in values])


def _sure(strength: float, needed: float, lowest: float = 0.6) -> float:
    """From `lowest` where the evidence just suffices, towards 1 as it grows."""
    return round(min(0.99, lowest + (1 - lowest) * (1 - math.exp(-(strength - needed) / (2 * needed)))), 2)


def _show(x: float, value: float) -> str:
    return f"{value:.4g} at {x:g}"


def _jumps(values: list[float]) -> list[float]:
    """How far each point lies above the median of those before it."""
    return [values[n] - _middle(values[max(0, n - _BEFORE) : n]) for n in range(8, len(values))]


def _middle(values: list[float]) -> float:
    """The upper median: statistics.median costs more than its sort."""
    return sorted(values)[len(values) // 2]


# -- spikes


def spike(points: Points, name: str = "loss") -> Iterator[Finding]:
    """The newest jump: far beyond the noise before it, and either seen twice or overwhelming."""
    recent = points[-256:]
    values = [value for _, value in recent]
    if len(values) < 3 * _ENOUGH:
        return
    jumps = [0.0] * 8 + _jumps(values)
    rough = 6 * mad(jumps[8:])
    for place in range(len(values) - 1, max(2 * _ENOUGH, len(values) - 100), -1):
        if jumps[place] <= rough:
            continue
        before = jumps[max(8, place - 128) : place]
        if len(before) < _ENOUGH:
            return
        spread = max(mad(before), 1e-3 * abs(median(values[max(0, place - _BEFORE) : place])), 1e-12)
        height = jumps[place] / spread
        usual = max(8.0, 1.5 * max(before) / spread)  # a curve with heavy tails has jumped before
        again = place + 1 < len(values) and jumps[place + 1] / spread > 4
        tall = jumps[place] > _TALL * abs(values[place] - jumps[place])
        if not (tall and height > max(usual, 10) and (again or height > 3 * usual)):
            continue
        level = median(values[max(0, place - _BEFORE) : place])
        after = values[place + 1 :]
        back = len(after) >= 5 and median(after[-5:]) < level + 4 * spread
        top = max(recent[place:], key=lambda point: point[1]) if back else recent[place]
        state = "and came back" if back else "and is not back yet"
        severity = "info" if back or name != "loss" else "warn"
        message = f"{name} jumped to {_show(*top)}, {height:.0f} times its noise, {state}"
        evidence = f"{recent[place][0]:g}: level before {level:.4g}, noise {spread:.2g}"
        fix = "look at the batch and the gradient norm there; if it repeats, clip or lower the learning rate"
        yield Finding("spike", severity, message, where=name, evidence=evidence, fix=fix, sure=_sure(height, usual))
        return


# -- divergence


def diverged(points: Points, name: str = "loss") -> Iterator[Finding]:
    """The newest level against the best one, in units of how much levels differ anyway."""
    values = [value for _, value in points]
    if len(values) < 2 * _ENOUGH:
        return
    width = max(5, min(25, len(values) // 20))
    # medians of stretches, the last one ending at the newest point
    levels = [median(values[n : n + width]) for n in range(len(values) % width, len(values), width)]
    best_at = min(range(len(levels)), key=levels.__getitem__)
    now, best, first = levels[-1], levels[best_at], levels[0]
    if len(levels) - best_at < 3:
        return
    usual = min(_wobble(levels), _wobble(levels[: best_at + 1]) or math.inf)  # a steep rise would pass for a wobble
    wobble = max(usual, 1.25 * mad(_jumps(values)) / math.sqrt(width), 1e-4 * abs(best), 1e-12)
    rise, strength = now - best, (now - best) / wobble
    wanted = min(0.3 * (first - best), 0.2 * abs(best)) if first > best else 0.2 * abs(best)
    rising = levels[-1] >= levels[-2] - 2 * wobble and levels[-2] > best + 0.3 * rise
    if strength > 8 and rise > max(wanted, 0.0) and rising and rise > _RISE * abs(best):
        x = points[min(len(points) - 1, best_at * width + width // 2)][0]
        message = f"{name} rose from {best:.4g} to {now:.4g} and is not coming back"
        evidence = f"best level {_show(x, best)}, now {_show(points[-1][0], now)}, {strength:.0f} times the wobble"
        fix = f"go back to a checkpoint before {x:g} with a lower learning rate"
        yield Finding("diverged", "error", message, where=name, evidence=evidence, fix=fix, sure=_sure(strength, 8))


def _wobble(levels: list[float]) -> float:
    """How much neighbouring levels differ anyway, apart from the trend: this holds for noise that has a memory, too."""
    steps = [after - before for before, after in pairwise(levels)]
    return mad(steps) if len(steps) >= 4 else 0.0


# -- plateaus


def plateau(points: Points, lr: Points, share_done: float | None) -> Iterator[Finding]:
    """No progress between the middle and the end. A loss that never fell is a warning, one that converged a note."""
    rates = [value for _, value in lr]
    decayed = bool(rates) and max(rates) > 0 and rates[-1] < 0.2 * max(rates)
    if len(points) < 5 * _ENOUGH or (share_done is not None and share_done > 0.85) or decayed:
        return
    first, last = points[0][0], points[-1][0]
    middle = [value for x, value in points if 0.4 <= (x - first) / (last - first or 1) <= 0.6]
    newest = [value for x, value in points if (x - first) / (last - first or 1) >= 0.8]
    values = [value for _, value in points]
    if len(middle) < 5 or len(newest) < 5:
        return
    early = values[: max(5, len(values) // 10)]
    start = median(early)
    gain = median(middle) - median(newest)
    spread = 2.5 * mad(_jumps(values))  # of a median of n points, times the root of n; doubled for noise with a memory
    noise = spread * math.sqrt(1 / len(middle) + 1 / len(newest))
    drop = start - median(newest)
    if gain >= 2 * noise or gain > 0.01 * abs(drop) or gain < -4 * noise - 0.02 * abs(drop):
        return
    doubt = 2 * spread * math.sqrt(1 / len(early) + 1 / len(newest))
    learned = drop > max(0.05 * abs(start), doubt)
    if not learned and doubt > 0.05 * abs(start):
        return  # too noisy yet to tell a loss that falls from one that does not
    told = f"{median(middle):.4g} in the middle, {median(newest):.4g} now, noise {noise:.2g}"
    message = "the loss no longer improves" if learned else f"the loss does not fall: {start:.4g} at the start"
    fix = "overfit one batch, then check the learning rate and the frozen parameters" if not learned else None
    severity, sure = ("info", 0.6) if learned else ("warn", 0.85)
    evidence = f"{len(points)} points from {first:g} to {last:g}"
    yield Finding("plateau", severity, f"{message} ({told})", where="loss", evidence=evidence, fix=fix, sure=sure)


def no_better(points: Points, name: str) -> Iterator[Finding]:
    """An evaluation that has not improved for five times and two fifths of all; rising means overfitting."""
    values = [value for _, value in points]
    if len(values) < 8:
        return
    best_at = min(range(len(values)), key=values.__getitem__)
    since = len(values) - 1 - best_at
    if since < max(5, 0.4 * len(values)):
        return
    spread = max(mad([b - a for a, b in pairwise(values)]), 1e-12)
    rise = (median(values[-3:]) - values[best_at]) / spread
    if rise < 3:
        return
    x, best = points[best_at]
    message = f"{name} was best with {_show(x, best)} and got worse in the {since} evaluations since: overfitting"
    evidence, fix = f"now {_show(*points[-1])}, {rise:.0f} times its noise", f"keep the checkpoint of {x:g}"
    yield Finding("plateau", "warn", message, where=name, evidence=evidence, fix=fix, sure=_sure(rise, 3))


# -- speed


def slow(points: Points, name: str) -> Iterator[Finding]:
    """The newest speed against the usual one; evaluations and saves are outliers that a median does not see."""
    values = [value for _, value in points if value > 0][3:]  # the first steps warm up
    if len(values) < 2 * _ENOUGH:
        return
    newest, usual = values[-8:], values[:-8]
    now, level = median(newest), median(usual)
    spread = max(mad(usual), 0.02 * level)
    strength = (level - now) / spread
    if now < 0.7 * level and strength > 5:
        message = f"{name} fell to {now:.4g}, {now / level:.0%} of its usual {level:.4g}"
        evidence = f"newest {', '.join(f'{value:.4g}' for value in newest[-4:])}; usual spread {spread:.2g}"
        fix = f"a throttled GPU, a starved data loader, or a neighbour: {bundle.command('watch', 'box')}"
        yield Finding("slow", "warn", message, where=name, evidence=evidence, fix=fix, sure=_sure(strength, 5))


# -- learning rate


def lr(points: Points, share_done: float | None) -> Iterator[Finding]:
    """Zero before the end, negative, or a jump upwards that neither warm-up nor a restart of the schedule explains."""
    values = [value for _, value in points]
    if len(values) < 4:
        return
    x, now = points[-1]
    if now < 0:
        yield Finding("lr", "error", f"the learning rate is negative: {_show(x, now)}", where="lr", sure=0.99)
    elif now == 0 and max(values) > 0 and share_done is not None and share_done < 0.9:
        message = f"the learning rate is 0 with {1 - share_done:.0%} of the run left: the schedule is too short"
        yield Finding("lr", "warn", message, where="lr", evidence=_show(x, now), sure=0.95)
    for place in range(max(2, len(values) - 50), len(values)):
        before, after = values[place - 1], values[place]
        if before <= 0 or after < 2.5 * before or after < 1.5 * max(values[:place]):
            continue
        usual = [abs(math.log(b / a)) for a, b in pairwise(values[:place]) if a > 0 and b > 0]
        if len(usual) >= 3 and math.log(after / before) > max(10 * median(usual), 1.5 * max(usual)):
            jump = f"from {before:.3g} to {_show(points[place][0], after)}"
            message = f"the learning rate jumped {jump}, above all before"
            fix = "was the scheduler restored with the checkpoint?"
            evidence = f"{after / before:.1f} times in one step; usual change {median(usual):.2g} (log)"
            yield Finding("lr", "warn", message, where="lr", evidence=evidence, fix=fix, sure=0.9)
            return
