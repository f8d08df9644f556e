"""How often a run began in the same words and got nowhere in between: a loop that moves no counter back."""

from __future__ import annotations

from rgt.log.fate import BEGINS, RESUMES

_KEPT = 32
_NOWHERE = 2  # steps after a start that got nowhere
_APART = 60.0  # seconds between two starts: the ranks of one job say the same at once
Starts = dict[str, list[float]]  # words: how often; steps, problems, clock and place at the newest of them


def see_start(starts: Starts, words: str, now: list[float], ended: bool) -> None:
    """After an accident, a while or a step or two; what is said again in each epoch gets on."""
    if not (BEGINS.search(words) or RESUMES.search(words)):
        return
    count, *last = starts.get(words, [0.0, *now])
    stays = now[0] - last[0] <= _NOWHERE and now[3] < last[3] + 1 and not ended
    if not count or now[0] > last[0] or now[1] > last[1] or now[2] - last[2] > _APART:
        starts[words] = [count + 1 if stays else 1.0, *now]
    while len(starts) > _KEPT:
        del starts[next(iter(starts))]


def false_starts(starts: Starts, moves: int) -> int:
    """Of one and the same beginning, up to now."""
    return max((int(count) for count, newest, *_ in starts.values() if moves - newest <= _NOWHERE), default=0)
