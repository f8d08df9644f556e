"""What the words right before a number make of it. Looked up, not searched: every number passes here.

Example:
    before("a learning rate of 3e-4", 19)      {"setting"}
"""

from __future__ import annotations

_LINKS_BEFORE = frozenset(
    "of is was at to for @ = : ≈ ~ a an the about roughly around only only: 为 是 设为 设置为".split()
)
_SETTINGS = frozenset(
    "lr batch seed seeds epoch epochs step steps iteration iterations iter iters dropout momentum temperature "
    "patience threshold warmup warm-up alpha beta gamma lambda tau sigma epsilon eps depth width rank resolution "
    "crop clipped version level port layer layers python cuda pytorch torch top iou chance α β γ λ τ σ ε k".split()
)
_SETTINGS_OF_TWO = frozenset(
    ["learning rate", "batch size", "weight decay", "learning-rate", "batch-size", "weight-decay", "chance level"]
)
_BOUNDS = frozenset(
    "> >= < <= ≥ ≤ ≫ ≪ over above below under exceed exceeds exceeded exceeding within beyond surpass surpasses "
    "surpassed surpassing".split()
)
_BOUNDS_OF_TWO = frozenset(
    ["at least", "at most", "up to"]
    + [f"{word} than" for word in "more less greater lower higher fewer better worse".split()]
)
_CHANGES = frozenset(["by", "δ", "Δ", "gains", "gained", "loses", "lost", "adds", "added"])
_CHANGE_NOUNS = frozenset(
    "gain gains improvement improvements increase drop reduction decrease difference gap margin delta boost rise "
    "advantage change".split()
)
_SOURCES = frozenset(["from", "previously", "formerly"])
_APPROX = frozenset("≈ ~ about around roughly approximately approx approx. nearly almost circa some".split())
_SPREADS = frozenset(["std", "sd", "s.d.", "stdev", "stderr", "spread"])
_SPREADS_OF_TWO = frozenset(["standard deviation", "standard error"])
_ONE = {
    word: name
    for name, words in (
        ("setting", _SETTINGS),
        ("bound", _BOUNDS),
        ("change", _CHANGES),
        ("source", _SOURCES),
        ("spread", _SPREADS),
    )
    for word in words
}
_TWO = {
    words: name
    for name, pairs in (("setting", _SETTINGS_OF_TWO), ("bound", _BOUNDS_OF_TWO), ("spread", _SPREADS_OF_TWO))
    for words in pairs
}
_CJK_SETTINGS = ("学习率", "批大小", "批量大小", "种子", "轮数", "阈值", "温度")
_CJK_BOUNDS = ("超过", "至少", "至多", "低于", "高于", "不到", "不超过", "大于", "小于")
_CJK_CHANGES = tuple("提升 提高 降低 下降 高出 高 低 增加 减少 增长 相差 差距为 领先 降 升".split())
_CJK_SOURCES = ("原来的", "从", "由")
_CJK_APPROX = ("约为", "大约", "约", "近", "接近")
_CJK_SPREADS = ("标准差", "方差")


def before(text: str, start: int) -> frozenset[str]:
    """What the words in front of a number say of it: setting, bound, change, source, approx, spread, n."""
    tail = text[max(0, start - 40) : start].rstrip()
    last = tail[-1:]
    if last > "\u3000":
        return _chinese(tail.removesuffix("了").removesuffix("达"))
    if last in "=:>≥≤≫≪<≈~@Δ":
        tail = f"{tail[:-1]} {last}"  # so that lr=0.1 and lr = 0.1 are one
    words = [word.strip("(,[*_\"'").lower() for word in tail.rsplit(None, 4)[-4:]]
    said = {"approx"} if words and words[-1] in _APPROX else set()
    if len(words) > 1 and words[-1] == "=" and words[-2] == "n":
        return frozenset(["n"])
    if words and words[-1] in ("of", "is", "was") and len(words) > 1 and words[-2] in _CHANGE_NOUNS:
        return frozenset(["change"])
    said |= _alone(words)
    while words and words[-1] in _LINKS_BEFORE:
        words.pop()
    return frozenset(said | _alone(words))


def _alone(words: list[str]) -> set[str]:
    if not words:
        return set()
    last = words[-1].rstrip("0123456789_") or words[-1]  # β2, beta_1
    said = {_ONE.get(last, ""), _TWO.get(" ".join(words[-2:]), "")}
    return said - {""}


def _chinese(tail: str) -> frozenset[str]:
    said = {"approx"} if tail.endswith(_CJK_APPROX) else set()
    bare = tail.rstrip("约为是近大")
    for name, endings in (
        ("setting", _CJK_SETTINGS),
        ("bound", _CJK_BOUNDS),
        ("change", _CJK_CHANGES),
        ("source", _CJK_SOURCES),
        ("spread", _CJK_SPREADS),
    ):
        if tail.endswith(endings) or bare.endswith(endings):
            said.add(name)
    return frozenset(said)
