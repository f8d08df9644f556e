"""Numbers behind a difference, a setting or a wish: "the gap in accuracy is 0.02", "drops to an lr of 0.1"."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mentions.cues import phrases
from mentions.numerals import Numeral
from mentions.terms import Hit

_GO_ON = r"(?:(?!\band\b|[;,:]|\d\.\d).)*"  # the same clause, and no other number
_SETTINGS = phrases(r"""
    learning rate, dropout, weight decay, batch size, momentum, temperature, threshold, clipping, smoothing, schedule
    decay, EMA, patience, warm-?up, probability, ratio, confidence, mask(?:ing)?, alpha, beta, gamma, lambda, margin
    mixup(?: α)?, cutmix, noise level, crop, resolution
    standard (?:deviation|error), std, spread, fluctuation, variance
""")
_CHANGE = phrases(
    "improvement, gain, increase, drop, reduction, decrease, boost, change, lead, advantage, deficit, speed-?up"
)
_MOVES = phrases(r"""
    falls?, fell, rises?, rose, drops?, dropped, grows?, grew, shrinks?, climbs?, climbed, declines?, declined, shifts?
    moves?, moved, worsens?, degrades?, uses?, used, keeps? only, masks?
""")
_BEFORE = re.compile(
    "|".join(
        (
            r"\b(?:gap|difference|margin|distance)\b[^;]*\b(?:is|was|of|to)\s?(?:about |only )?$",
            rf"{_CHANGE}{_GO_ON}\b(?:is|was|of|to|at|equals|amounts to)\s?(?:about |only |roughly )?$",
            r"\b(?:differs?|differed|apart)\b[^.;,]*\bby\s?$",
            rf"{_SETTINGS}(?:{_GO_ON}(?:\b(?:is|was|of|to|at|equals)|=))?\s?(?:about |only )?$",
            rf"{_MOVES}\s(?:by |about |roughly |another |some |a further )?$",
            r"\b(?:target|goal|budget|requirement)\b[^.;,\n]*\b(?:is|was|of|at|to)\s?(?:about )?$",
        )
    ),
    re.I,
)
_AWAY = re.compile(r"\s?(?:[\w@.-]+\s){0,3}?(?:above|below|ahead of|behind|apart)\b")


def without_names(text: str, hits: Iterable[Hit]) -> str:
    """The sentence with its terms blotted out: the EMA of EMA-Net is no setting."""
    for hit in hits:
        text = text[: hit.start] + "N" * (hit.end - hit.start) + text[hit.end :]
    return text


def states(text: str, numeral: Numeral) -> bool:
    """Does this number state a difference or a setting?"""
    return bool(_AWAY.match(text, numeral.end)) or bool(_BEFORE.search(text, 0, numeral.start))
