"""The numbers of a text that could be results: how they are written, and what speaks against them.

Example:
    [n.value for n in find_numerals("accuracy 91.4 ± 0.3 % after 90 epochs")]      [91.4]

Counts (90 epochs, 5 seeds), settings (lr 3e-4), differences (by 2.1 points), bounds (over 90 %), approximations (about
90), ranges, dates, versions and the digits of names (ResNet-50) are no results. A unit that a claim itself has is never
taken for a count.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# an exponent has two digits at most: no result has more, and 1e400 is no float
_BODY = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?|\.\d+)"
_NUMBER = re.compile(
    rf"""(?<![A-Za-z0-9_.\-/\\^])
    (?P<sign>[-+])?(?P<body>{_BODY})
    (?:[eE](?P<exp>[-+]?\d{{1,2}})(?![A-Za-z0-9]))?
    (?:\s?(?:[x×·*]|\\times|\\cdot)\s?10\s?(?:\^|\*\*)\s?\{{?(?P<power>[-+]?\d{{1,2}})(?!\d)\}}?)?
    (?P<scale>\s?(?:[kKMB](?![A-Za-z])|[万亿]))?
    (?P<percent>\s?(?:%|percent\b|per\scent\b)|[个]?百分之)?
    """,
    re.X,
)
_SPREAD = re.compile(
    rf"\s?(?:±|\+/-|\+-|\\pm)\s?(?P<body>{_BODY})(?:[eE](?P<exp>[-+]?\d{{1,2}})(?!\d))?(?P<percent>\s?%)?"
)
_IN_BRACKETS = re.compile(rf"\s?\(\s?(?:±|\+/-)?\s?(?P<body>{_BODY})(?P<exp>)(?P<percent>\s?%)?\s?\)")
_DIGIT = re.compile("[0-9]")
_SCALES = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "万": 1e4, "亿": 1e8}

# What is blanked before numbers are looked for: it has digits that report nothing. Tried where a word or number starts.
_NOISE = re.compile(
    r"""(?<![A-Za-z0-9.])(?:
    https?://\S+|[\w.+-]{1,64}@[\w-]+\.\w+
    |\d{4}-\d\d?-\d\d?(?:[T ]\d\d?:\d\d(?::\d\d)?)?|\d\d?:\d\d(?::\d\d)?\b|\d{1,2}/\d{1,2}/\d{2,4}\b
    |\d{4}\s?年(?:\d+\s?月)?(?:\d+\s?日)?
    |v?\d+\.\d+\.\d+[\w.]*|v\d+(?:\.\d+)*\b|\d{4}\.\d{4,5}(?:v\d+)?\b(?!\s?(?:±|\+/-|\\pm))
    |\[\s?\d+(?:\s?[,–-]\s?\d+)*\s?\]
    |(?:[Ff]ig(?:ure)?|[Tt]ab(?:le)?|[Ss]ec(?:tion)?|[Ee]q(?:uation)?|[Aa]ppendix|[Cc]hapter|[Ss]tep|[Ll]ine
        |[Aa]lg(?:orithm)?|Theorem|[Pp]age|[Ii]tem|[Rr]ow|[Cc]olumn)s?\.?[\s~]?\(?\d+(?:\.\d+)*(?:[a-z]\b)?
    |[第表图式节章页]\s?\d+(?:\.\d+)*(?:\s?[章节页行列组轮])?
    |[Ss]eeds?\s\d+(?:\s?,\s?\d+)*(?:,?\s(?:and|&)\s\d+)
    |[$€£¥]\d+(?:[.,]\d+)*\b(?![.,]?\d)(?!\S*\$)(?!\s?(?:\\|±|\$))
    |\#\d+|0x[0-9a-fA-F]+|(?=[0-9a-f]{0,63}\d)(?=[0-9]{0,63}[a-f])[0-9a-f]{7,64}\b
    |[pP]\s?(?:-?\s?value\s?)?(?:[<>=]|≤|≥|of)\s?\.?\d[\d.]*(?:e-?\d+)?
    |\d+(?:\.\d+)?\s?%\s?(?:CI|C\.I\.|confidence|credible|置信)
    |(?:confidence|credible)\s(?:interval|level)\s?(?:of\s)?(?:\[[^\]]*\]|\([^)]*\)|\d+\s?%)?
    |(?:CI|interval)\s?:?\s?[\[(][^\])]*[\])]
    |(?:19|20)\d\d\b(?!\s?%|[.,]\d)
    |[\[(]\s?-?\d+(?:\.\d+)?\s?[,;]\s?-?\d+(?:\.\d+)?\s?[\])]
    )""",
    re.X,
)

# What stands behind a number
_CHANGE_AFTER = re.compile(
    r"[-\s]{0,2}(?:(?:absolute|relative|percentage|accuracy)\s)?(?:points?\b|pp\b|p\.p\.|pts\b|个百分点|个点|百分点"
    r"|(?:%\s?)?(?:absolute |relative )?(?:higher|lower|better|worse|improvement|gain|increase|reduction|drop"
    r"|decrease|boost|apart|above|ahead|behind|faster|slower|smaller|larger|more\b|less\b|fewer)|(?:x|×|倍|times)(?![A-Za-z]))",
    re.I,
)
_PART_AFTER = re.compile(r"\sof (?:the|all|our|its|their)\b|\s?(?:作为|用于|的数据)")  # 10 % of the data
_N_AFTER = re.compile(
    r"\s?(?:random |independent |different )?(?:(?:seeds?|runs?|trials?|repeats?|repetitions?)\b"
    r"|个(?:随机)?种子|次(?:独立)?(?:运行|实验|重复)|次(?=[，,的]))",
    re.I,
)
_RANGE_AFTER = re.compile(r"\s?(?:–|-|~|至|\bto\b|\.\.)\s?[+-]?\.?\d")
_RANGE_BEFORE = re.compile(r"(?<![A-Za-z0-9.-])[-+]?\d+(?:\.\d+)?\s?%?\s?(?:–|-|~|至|\.\.)\s?$")
_NEXT_WORD = re.compile(r"[\s~-]?(?P<word>[A-Za-z][A-Za-z/%]*|[\u4e00-\u9fff]{1,2})")
_GLUED = re.compile(r"[A-Za-z_]|\.\d|:\d|/\d")

# Words near a number: the name of a list, then some of its words; _ is a space. Behind a number: units that results do
# not have, and verbs, which look like a plural. Before it: words to skip, nouns of a change,
# and cues of four kinds.
_TABLE = """\
unit h hr hrs hour hours min mins minute minutes s sec secs second seconds ms us ns day days week weeks kb mb gb tb kib
unit mib gib tib w kw kwh watts gpu gpus cpu cpus epochs epoch steps step iterations flops gflops tflops usd eur
unit dollars euros million billion m px
verb is was has as this its vs versus respectively
skip of is was at to for @ = : a an the only only: 为 是 设为 设置为
noun gain gains improvement improvements increase drop reduction decrease difference gap margin delta boost rise
noun advantage change
setting lr batch seed seeds epoch epochs step steps iteration iterations iter iters dropout momentum temperature
setting patience threshold warmup warm-up alpha beta gamma lambda tau sigma epsilon eps depth width rank resolution
setting crop clipped version level port layer layers python cuda pytorch torch top iou chance α β γ λ τ σ ε k
setting learning_rate batch_size weight_decay learning-rate batch-size weight-decay chance_level
bound > >= < <= ≥ ≤ ≫ ≪ over above below under exceed exceeds exceeded exceeding within beyond surpass surpasses
bound surpassed surpassing at_least at_most up_to more_than less_than greater_than lower_than higher_than fewer_than
bound better_than worse_than ≈ ~ about around roughly approximately approx approx. nearly almost circa some
change by δ Δ gains gained loses lost adds added from previously formerly
spread std sd s.d. stdev stderr spread standard_deviation standard_error
"""
_LISTS: dict[str, set[str]] = {}
for _name, *_words in map(str.split, _TABLE.splitlines()):
    _LISTS.setdefault(_name, set()).update(word.replace("_", " ") for word in _words)
_CUES = {word: name for name in ("setting", "bound", "change", "spread") for word in _LISTS[name]}
_CHINESE = {
    "setting": ("学习率", "批大小", "批量大小", "种子", "轮数", "阈值", "温度"),
    "bound": ("超过", "至少", "至多", "低于", "高于", "不到", "不超过", "大于", "小于", "约", "近"),
    "change": tuple("提升 提高 降低 下降 高出 高 低 增加 减少 增长 相差 差距为 领先 降 升 原来的 从 由".split()),
    "spread": ("标准差", "方差"),
}
_NO_RESULT = frozenset(["setting", "bound", "change", "spread", "n"])


class Numeral(NamedTuple):
    start: int
    end: int
    value: float
    ulp: float  # one unit of the last place that was written
    percent: bool = False
    unit: str = ""
    spread: float | None = None
    spread_ulp: float = 0.0


def find_numerals(text: str, units: frozenset[str] = frozenset(), in_cell: bool = False) -> list[Numeral]:
    """The numbers of `text` that could be results. `units`: words that claims are measured in, lower case."""
    if not has_digit(text):
        return []
    # without what has digits but reports nothing, at the same offsets
    clean = _NOISE.sub(lambda match: "\n".join(" " * len(line) for line in match[0].split("\n")), text)
    found: list[Numeral] = []
    end = 0
    for match in _NUMBER.finditer(clean):
        if match.start() < end:
            continue
        numeral = _numeral(clean, match, units, in_cell)
        if numeral:
            found.append(numeral)
            end = numeral.end
    return found


def has_digit(text: str) -> bool:
    return _DIGIT.search(text) is not None


def _numeral(text: str, match: re.Match[str], units: frozenset[str], in_cell: bool) -> Numeral | None:
    end = match.end()
    # the end of the text, a sentence or a clause: most numbers; then nothing that may stand behind one is tried
    last = end == len(text) or (text[end] in ",.;)" and text[end + 1 : end + 2] in ("", " ", "\n"))
    next_word = None if last else _NEXT_WORD.match(text, end)
    word = next_word["word"].lower() if next_word else ""
    sign, body, exp, power, scale, percent_sign = match.group("sign", "body", "exp", "power", "scale", "percent")
    if not in_cell and word and word not in units and not _N_AFTER.match(text, end):
        bare = not ("." in body or percent_sign or exp or power)
        several = word[0] > "\u3000" or text[end] == "-" or (word.endswith("s") and word not in _LISTS["verb"])
        if word in _LISTS["unit"] or (bare and several):
            return None  # a unit that no claim has, or a whole number of things: 3.5 hours, 3 datasets
    if text[max(0, match.start() - 4) : match.start()].rstrip().endswith(("±", "+/-", "\\pm")):
        return None  # the spread of a number that states no result
    said = words_before(text, match.start())
    if not _states_result(text, said, match, last, word in units):
        return None
    value, ulp = _read(body, int(exp or 0) + int(power or 0), _SCALES[scale.strip()] if scale else 1.0)
    if sign == "-":
        value = -value
    percent = bool(percent_sign)
    spread = None if last else _SPREAD.match(text, end) or (_IN_BRACKETS.match(text, end) if in_cell else None)
    spread_value, spread_ulp = None, 0.0
    if spread:
        spread_value, spread_ulp = _read(spread["body"], int(spread["exp"] or 0))
        end = spread.end()
        percent = percent or bool(spread["percent"]) or text[end : end + 2].strip().startswith("%")
    return Numeral(match.start(), end, value, ulp, percent, word, spread_value, spread_ulp)


def _read(body: str, power: int, factor: float = 1.0) -> tuple[float, float]:
    """The value, and the unit of its last place."""
    factor *= 10.0**power
    whole, comma, fraction = body.partition(",")
    decimal = comma and "." not in body and (whole == "0" or len(fraction) != 3) and "," not in fraction
    body = body.replace(",", "." if decimal else "")
    decimals = len(body.partition(".")[2])
    return float(body) * factor, 10.0**-decimals * factor


def _states_result(text: str, said: frozenset[str], match: re.Match[str], last: bool, in_unit: bool) -> bool:
    """`said`: by the words before it. `last`: nothing stands behind it."""
    end = match.end()
    if not last and not in_unit and _GLUED.match(text, end):
        return False
    if match["sign"] == "+" or said & _NO_RESULT:
        return False
    if _RANGE_BEFORE.search(text, max(0, match.start() - 16), match.start()):
        return False
    if last:
        return True
    part = match["percent"] and _PART_AFTER.match(text, end)
    change = not in_unit and _CHANGE_AFTER.match(text, end)
    return not (part or change or _RANGE_AFTER.match(text, end) or _N_AFTER.match(text, end))


def words_before(text: str, start: int) -> frozenset[str]:
    """What the words in front of a number say of it: setting, bound, change, spread, n.

    Looked up, not searched, because every number passes here: "a learning rate of 3e-4" gives {"setting"}.
    """
    tail = text[max(0, start - 40) : start].rstrip()
    last = tail[-1:]
    if last > "\u3000":
        tail = tail.removesuffix("了").removesuffix("达")
        bare = tail.rstrip("为是大")
        said = {name for name, endings in _CHINESE.items() if tail.endswith(endings) or bare.endswith(endings)}
        return frozenset(said)
    if last in "=:>≥≤≫≪<≈~@Δ":
        tail = f"{tail[:-1]} {last}"  # so that lr=0.1 and lr = 0.1 are one
    words = [word.strip("(,[*_\"'").lower() for word in tail.rsplit(None, 4)[-4:]]
    if len(words) > 1 and words[-1] == "=" and words[-2] == "n":
        return frozenset(["n"])
    if words and words[-1] in ("of", "is", "was") and len(words) > 1 and words[-2] in _LISTS["noun"]:
        return frozenset(["change"])
    said = _cues(words)
    while words and words[-1] in _LISTS["skip"]:
        words.pop()
    return frozenset(said | _cues(words))


def _cues(words: list[str]) -> set[str]:
    if not words:
        return set()
    last = words[-1].rstrip("0123456789_") or words[-1]  # β2, beta_1
    return {_CUES.get(last, ""), _CUES.get(" ".join(words[-2:]), "")} - {""}
