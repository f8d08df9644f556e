"""The words around a number that say what it is: a setting, a bound, a change, a spread, a count."""

from __future__ import annotations

import re

from mentions.cues import phrases

# -- right before a number: looked up, not searched, because every number passes here

LINKS_BEFORE = frozenset(
    "of is was at to for @ = : ≈ ~ a an the about roughly around only only: 为 是 设为 设置为".split()
)
APPROX = frozenset("≈ ~ about around roughly approximately approx approx. nearly almost circa some".split())
CHANGE_NOUNS = frozenset(
    "gain gains improvement improvements increase drop reduction decrease difference gap margin delta boost rise "
    "advantage change".split()
)
_SETTINGS = (
    "lr batch seed seeds epoch epochs step steps iteration iterations iter iters dropout momentum temperature "
    "patience threshold warmup warm-up alpha beta gamma lambda tau sigma epsilon eps depth width rank resolution "
    "smoothing label-smoothing decay noise probability ratio factor coefficient beam sparsity mixup cutmix "
    "widths depths sizes rates ratios ranks scales levels weights factors thresholds temperatures lrs "
    "crop clipped version level port layer layers python cuda pytorch torch top iou chance α β γ λ τ σ ε k".split()
)
_SETTINGS_OF_TWO = (
    "learning rate",
    "batch size",
    "weight decay",
    "learning-rate",
    "batch-size",
    "weight-decay",
    "chance level",
)
_BOUNDS = (
    "> >= < <= ≥ ≤ ≫ ≪ over above below under exceed exceeds exceeded exceeding within beyond surpass surpasses "
    "surpassed surpassing".split()
)
_BOUNDS_OF_TWO = [
    *("at least", "at most", "up to"),
    *(f"{word} than" for word in "more less greater lower higher fewer better worse".split()),
]
_CHANGES = "by δ Δ gains gained loses lost adds added saves saved saving costs another plus minus extra".split()
_SOURCES = ("from", "previously", "formerly")
_SPREADS = ("std", "sd", "s.d.", "stdev", "stderr", "spread")
_SPREADS_OF_TWO = ("standard deviation", "standard error")
ONE = {
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
TWO = {
    words: name
    for name, pairs in (("setting", _SETTINGS_OF_TWO), ("bound", _BOUNDS_OF_TWO), ("spread", _SPREADS_OF_TWO))
    for words in pairs
}
# "goes up to 91.2" is a result, "up to 91.2" a bound
MOVES = tuple("go went ris rose climb mov push bring brought tak took grow grew jump get got com cam step rais".split())
# "widths 0.25, 0.5 and 0.75": all of them are settings
SERIES = re.compile(
    phrases("""
    widths, rates, sizes, ratios, seeds, thresholds, temperatures, depths, ranks, lrs, scales, levels, weights
    factors, epochs, steps
""")
    + r"(?: of| in|:| =)?\s[\[({]?$"
)
CHAINED = re.compile(r"\s?(?:,|and|or|/|、|和|,\s?and|,\s?or)\s?")

# -- the same in Chinese, by how the text before the number ends

CJK_APPROX = ("约为", "大约", "约", "近", "接近")
CJK_REACHED = ("高达", "多达", "低至", "高至")  # a result, although 高 and 多 are words of change
CJK_ENDINGS = {
    "setting": tuple(
        "学习率为 批大小为 批次大小 权重衰减 丢弃率 动量 衰减 系数 学习率 批大小 批量大小 种子 轮数 阈值 温度".split()
    ),
    "bound": tuple("不低于 不高于 不少于 不大于 不小于 超出 超过 至少 至多 低于 高于 不到 不超过 大于 小于".split()),
    "change": tuple(
        "提升 提高 降低 下降 高出 高 低 增加 减少 增长 相差 差距为 领先 降 升 幅度为 幅度达 幅度 增幅为 降幅为 增幅 "
        "降幅 提升为 差值为 差距 差值 差为 增益为 增益 波动 浮动 变化 变化为 改善 改进 多 少 多出 胜出 超出".split()
    ),
    "source": ("原来的", "从", "由"),
    "spread": ("标准差", "方差"),
}
CJK_SET = re.compile(
    r"(?:dropout|lr|batch(?: ?size)?|momentum|weight decay|epochs?|seeds?|warm-?up|beam|温度|动量|衰减|丢弃率|学习率"
    r"|批大小|批次大小|系数|比例|阈值|步长|平滑)\s?(?:取|设为|设置为|设定为|为|是|取值为|调为|固定为)$",
    re.I,
)
CJK_UNITS = tuple("小时 分钟 毫秒 秒 天 轮 步 张 块 层 页 亿 元".split())

# -- behind a number

CHANGE_AFTER = re.compile(
    r"[-\s]{0,2}(?:(?:absolute|relative|percentage|accuracy)\s)?(?:points?\b|pp\b|p\.p\.|pts\b|个百分点|个点|百分点"
    r"|(?:%\s?)?(?:absolute |relative )?(?:higher|lower|better|worse|improvement|gain|increase|reduction|drop"
    r"|decrease|boost|change|shift|difference|lead|advantage|apart|above|ahead|behind|faster|slower|smaller|larger"
    r"|more\b|less\b|fewer)|(?:x|×|倍|times)(?![A-Za-z]))",
    re.I,
)
PART_AFTER = re.compile(  # 10 % of the data, 50 % sparsity
    r"\sof (?:the|all|our|its|their|labels?|data|training)\b"
    r"|\s(?:labels?|sparsity|sparse|dropout|noise|masking|overlap|missing|confidence|padding|warm-?up|data)\b"
    r"|\s?(?:作为|用于|的数据)"
)
N_AFTER = re.compile(
    r"\s?(?:random |independent |different )?(?:(?:seeds?|runs?|trials?|repeats?|repetitions?)\b"
    r"|个(?:随机)?种子|次(?:独立)?(?:运行|实验|重复)|次(?=[，,的]))",
    re.I,
)
# what is measured beside results
OTHER_UNITS = frozenset(
    "h hr hrs hour hours min mins minute minutes s sec secs second seconds ms us ns day days week weeks "
    "kb mb gb tb kib mib gib tib w kw kwh watts gpu gpus cpu cpus epochs epoch steps step iterations "
    "flops gflops tflops usd eur dollars euros million billion m px".split()
)
# small words that may follow a bare whole number without making it a count
LINKS_AFTER = frozenset(
    "a about achieved after against an and are as at because before but by compared despite down during even for "
    "from given had has however if in is it its of on only or our over per reported respectively since so still "
    "than that the then these they this to under up using versus vs was we were when where whereas which while "
    "with within without out".split()
)

# -- around it: ranges

RANGE_AFTER = re.compile(r"\s?(?:–|-|~|至|\bto\b|\.\.)\s?[+-]?\.?\d")
RANGE_BEFORE = re.compile(r"(?<![A-Za-z0-9.-])[-+]?\d+(?:\.\d+)?\s?%?\s?(?:–|-|~|至|\.\.)\s?$")
BETWEEN_BEFORE = re.compile(
    r"\b(?:between|ranges? from|ranging from|var(?:y|ies|ied|ying) from|anywhere from|spans?)\s[^;,]{0,25}$"
    r"|介于[^，。]{0,15}$|在\s?[\d.]+\s?%?\s?(?:到|至|和|与)\s?$",
    re.I,
)
BETWEEN_AFTER = re.compile(r"\s?%?\s?(?:到|至|~|–|和|与|之间)[^，。]{0,12}之间|\s?%?\s?之间")
NAMED_AFTER = re.compile(r"[^.,;()]{0,20}\((?=[A-Z])")  # "from 89.2% (Baseline) to": the brackets say whose it was
SLASHED = re.compile(r"(?<=\d\d|\d%)\s?/\s?(?=\d+\.\d)|(?<=\.\d|\d%)\s?/\s?(?=\d)")  # accuracy/F1 of 91.2/89.1
