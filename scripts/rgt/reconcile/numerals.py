"""The numbers of a text: how they are written, their unit and spread, and what the words around them make of them.

Example:
    [(n.value, n.role) for n in find_numerals("accuracy 91.4 ± 0.3 % after 90 epochs, 2.1 points more")]
    [(91.4, ""), (2.1, "change")]

Roles: "" a plain value; change, ratio (recomputed from two values); spread; runs (a number of seeds); from, range,
about, bound (weaker ways to state a value); setting (lr 3e-4) and thing (3 datasets), which state no result as far as
one can see. Dates, versions and the digits of names (ResNet-50) are left out.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rgt.reconcile.facts import UNITS, WORDS, known_words

# an exponent has two digits at most: no result has more, and 1e400 is no float
_BODY = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?|\.\d+)"
_NUMBER = re.compile(
    rf"""(?:(?<![A-Za-z0-9_.\-/\\^])  # 40.8/50.8 are two, 84.83/100 is one
    |(?:(?<=\.\d/)|(?<=\.\d\d/)|(?<=\.\d\d\d/)|(?<=%/))(?=\d*\.\d))
    (?P<sign>[-+])?(?P<body>{_BODY})
    (?:[eE](?P<exp>[-+]?\d{{1,2}})(?![A-Za-z0-9]))?
    (?:\s?(?:[x×·*\s]|\\times|\\cdot)\s?10\s?(?:\^|\*\*)\s?\{{?(?P<power>[-+]?\d{{1,2}})(?!\d)\}}?)?
    (?P<scale>\s?(?:[kKMB](?![A-Za-z])|[万亿]|million\b|billion\b))?
    (?P<percent>\s?(?:%|percent\b|per\scent\b))?
    """,
    re.X,
)
_SPREAD = re.compile(
    rf"\s?(?:±|\+/-|\+-|\\pm)\s?(?P<body>{_BODY})(?:[eE](?P<exp>[-+]?\d{{1,2}})(?!\d))?(?![eE]\d)(?P<percent>\s?%)?"
)
_IN_BRACKETS = re.compile(
    rf"\s?\(\s?(?P<mark>±|\+/-|std\.?\s?=?|sd\s?=?|σ\s?=?|标准差\s?[为:]?)?\s?(?P<body>{_BODY})(?P<exp>)(?P<percent>\s?%)?\s?\)",
    re.I,
)
_DIGIT = re.compile("[0-9]")
_PLAIN = re.compile(r"\s*(\d{1,3}\.\d+)\s*")  # most cells: nothing around the number has to be looked at

# What is blanked before numbers are looked for: it has digits that report nothing. Tried where a word or number starts.
_NOISE = re.compile(
    r"""(?<![A-Za-z0-9.])(?:
    https?://\S+|[\w.+-]{1,64}@[\w-]+\.\w+
    |\d{4}-\d\d?-\d\d?(?:[T ]\d\d?:\d\d(?::\d\d)?)?|\d\d?:\d\d(?::\d\d)?\b|\d{1,2}/\d{1,2}/\d{2,4}\b
    |\d{4}\s?年(?:\s?\d+\s?月)?(?:\s?\d+\s?日)?
    |\d{1,2}(?:st|nd|rd|th)?\s(?:of\s)?(?:Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sep|Oct|Nov|Dec)[a-z]*\b
    |(?:January|February|March|April|May|June|July|August|September|October|November|December)\s\d{1,2}\b(?!\.\d)
    |(?:\A|(?<=\n))[\s\#>*-]*\d{1,2}(?:\.\d{1,2})*[.)、．](?=\s|\Z|[\u4e00-\u9fff])
    |v?\d+\.\d+\.\d+[\w.]*|v\d+(?:\.\d+)*\b|\d{4}\.\d{4,5}(?:v\d+)?\b(?!\s?(?:±|\+/-|\\pm))
    |\[\s?\d+(?:\s?[,–-]\s?\d+)*\s?\]
    |(?:[Ff]ig(?:ure)?|[Tt]ab(?:le)?|[Ss]ec(?:tion)?|[Ee]q(?:uation)?|[Aa]ppendix|[Cc]hapter|[Ss]tep|[Ll]ine
        |[Aa]lg(?:orithm)?|Theorem|[Pp]age|[Ii]tem|[Rr]ow|[Cc]olumn)s?\.?[\s~]?\(?\d+(?:\.\d+)*(?:[a-z]\b)?
    |[第表图式节章页]\s?\d+(?:\.\d+)*(?:\s?[章节页行列组轮])?
    |\b\d+(?:\.\d+)+(?=\s+[A-Z][a-z]+\s*$)
    |[Ss]eeds?\s\d+(?:\s?,\s?\d+)*(?:,?\s(?:and|&)\s\d+)
    |\#\d+|0x[0-9a-fA-F]+|(?=[0-9a-f]{0,63}\d)(?=[0-9]{0,63}[a-f])[0-9a-f]{7,64}\b
    |[pP]\s?(?:-?\s?value\s?)?(?:[<>=]|≤|≥|of)\s?\.?\d[\d.]*(?:e-?\d+)?
    |\d+(?:\.\d+)?\s?%\s?(?:CI|C\.I\.|confidence|credible|置信)
    |(?:confidence|credible)\s(?:interval|level)\s?(?:of\s)?(?:\[[^\]]*\]|\([^)]*\)|\d+\s?%)?
    |(?:CI|interval)\s?:?\s?[\[(][^\])]*[\])]
    |(?:19|20)\d\d\b(?!\s?%|[.,]\d|\s?(?:ms|s|h|[KMG]B)\b)
    |(?:[AHVTLPB]\d{1,3}[0S]?|RTX\s?\w+|GTX\s?\w+|TPU\S*|GPUs?|MI\d+\w?|\d090)(?:[\s-]GPUs?)?[\s(-]{1,2}(?:with\s|of\s)?\d+\s?Gi?B
    |\d+\s?Gi?B\s(?:of\s)?(?:V?RAM|memory\sper|GPU|HBM|disk|SSD)
    |[\[(]\s?-?\d+(?:\.\d+)?\s?[,;]\s?-?\d+(?:\.\d+)?\s?[\])]
    )""",
    re.X,
)

# What stands behind a number
_CHANGE_AFTER = re.compile(
    r"[-\s]{0,2}(?:(?:absolute|relative|percentage|accuracy|percent|%|F1|BLEU|mAP)[\s-])?(?:points?\b|pp\b|p\.p\.|pts?\b|ppt\b|个百分点|个点|百分点"
    r"|(?:%\s?)?(?:absolute |relative )?(?:higher|lower|better|worse|improvement|gain|increase|reduction|drop"
    r"|decrease|boost|apart|above|below|relative|ahead|behind|faster|slower|smaller|larger|more\b|less\b|fewer|cheaper|speed-?up)"
    r"|\s[A-Z][\w@]{1,9}\s(?:more|less|higher|lower|better|worse)\b"  # 2.6 AP more
    r"|\s?的(?:绝对|相对)?(?:提升|下降|降低|提高|增益|改进|差距|优势))",
    re.I,
)
_RATIO_AFTER = re.compile(r"\s?(?:[x×](?![A-Za-z0-9])|倍|-?fold\b|times\b(?!\s?10))", re.I)
_PART_AFTER = re.compile(r"\sof (?:the|all|our|its|their)\b|\s?(?:作为|用于|的数据|的样本)")  # 10 % of the data
_N_AFTER = re.compile(
    r"[\s-]?(?:(?:random|independent|different|training|separate|distinct|repeated|fixed)\s){0,2}"
    r"(?:(?:seeds?|runs?|trials?|repeats?|repetitions?|restarts?|initiali[sz]ations?|replicates?)\b"
    r"|(?:个|组)?(?:不同)?(?:的)?(?:随机)?种子|次(?:独立|重复|随机)?(?:运行|实验|重复|试验|训练)|次(?=[，,的取平]))",
    re.I,
)
_RANGE_AFTER = re.compile(r"\s?%?\s?(?:–|-|~|至|\.\.|到)\s?[+-]?\.?\d|\s?%?\s(?:to|and)\s[+-]?\.?\d")
_RANGE_BEFORE = re.compile(r"(?<![A-Za-z0-9.-])[-+]?\d+(?:\.\d+)?\s?%?\s?(?:–|-|~|至|\.\.|到)\s?$")
_BETWEEN = re.compile(
    r"\b(?:between|range[sd]?(?: from)?|ranging from|interval|spans?|介于)\s?[\[(]?(?:\S+ (?:and|to) )?$", re.I
)
_GAP = re.compile(
    r"\b(?:gap|difference|margin|distance|advantage|lead|drop|improvement|gain|reduction|increase|decrease)\b"
    r"(?:[^.;,\d]|(?<=[A-Za-z@-])\d+)*(?:\b(?:is|was|of|to|amounts to)|:)\s?(?:about |only )?$"
    r"|(?:落后|领先|高出|相差)[^，。；\d]{0,20}$",
    re.I,
)
_RARE_WORDS = re.compile(
    r"gap|differ|margin|distance|advantage|lead|drop|improvement|gain|reduction|increase|decrease|between|rang|interval|span|落后|领先|高出|相差|介于|[–~至到]|\.\.|\d-",
    re.I,
)
_NEXT_WORD = re.compile(r"[\s~-]?(?P<word>[A-Za-zµμ][A-Za-z/%]*|[\u4e00-\u9fff]{1,2})")
_GLUED = re.compile(r"[A-Za-z_]|\.\d|:\d|/\d")

_PRODUCT = re.compile(r"\d\S*(?: \S+)? ?[×*·] ?[\d.]+(?: \S+)? *=$")
_FLAG = re.compile(r"--[A-Za-z][\w-]*[ =]$")  # of a command line
_RATIO_OF = re.compile(r"\bratio\b[^.;\d]* is $|之比[^。；，\d]*[为是] ?$", re.I)
_RECIPROCAL = re.compile(r"(?<![\d.])1/(?=\d+\.\d)")  # 1/3.2 of it

_LISTS = {name: known_words("near_numbers", name) for name in WORDS["near_numbers"]}
_CUES = {word: name for name in ("setting", "bound", "about", "change", "from", "spread") for word in _LISTS[name]}
_CHINESE = {
    "setting": ("学习率", "批大小", "批量大小", "种子", "轮数", "阈值", "温度", "权重衰减", "种子为"),
    "bound": ("超过", "至少", "至多", "低于", "高于", "不到", "不超过", "大于", "小于"),
    "about": ("约", "近", "大约", "接近"),
    "change": tuple(
        "提升 提高 降低 下降 高出 高 低 增加 减少 增长 相差 差距为 领先 落后 差距 降 升 缩短 快 提升了 上升 "
        "改善".split()
    ),
    "from": ("原来的", "从", "由", "此前的"),
    "spread": ("标准差", "方差"),
}
NUMBER_WORDS = dict(
    zip("two three four five six seven eight nine ten twelve".split(), [*range(2, 11), 12], strict=True)
)
NUMBER_WORDS |= dict(zip("两三四五六七八九十", range(2, 11), strict=True))
_ENGLISH = "|".join(word for word in NUMBER_WORDS if word.isascii())
_SPELLED = re.compile(rf"(?<![A-Za-z\u4e00-\u9fff-])(?:{_ENGLISH})(?![A-Za-z])|[两三四五六七八九十](?=[个次组])", re.I)
IDLE = ("setting", "thing")  # roles of numbers that are no results
_OUT_OF = re.compile(r"\s(?:out )?of\b")  # five of the six
# what counts when several are said
_ORDER = (*IDLE, "runs", "ratio", "spread", "change", "range", "bound", "about", "from")


class Numeral(NamedTuple):
    start: int
    end: int
    value: float
    ulp: float  # one unit of the last place that was written
    percent: bool = False
    unit: str = ""
    spread: float | None = None
    spread_ulp: float = 0.0
    role: str = ""
    digits: int = 1  # significant ones
    signed: bool = False


def find_numerals(text: str, units: frozenset[str] = frozenset(), in_cell: bool = False) -> list[Numeral]:
    """The numbers of `text`. `units`: words that facts are measured in, lower case."""
    plain = _PLAIN.fullmatch(text) if in_cell else None
    if plain:
        value, ulp = _read(plain[1], 0)
        return [Numeral(*plain.span(1), value, ulp, digits=len(plain[1].replace(".", "").lstrip("0")) or 1)]
    found: list[Numeral] = []
    if has_digit(text):
        # without what has digits but reports nothing, at the same offsets
        clean = _NOISE.sub(lambda match: "\n".join(" " * len(line) for line in match[0].split("\n")), text)
        if "1/" in clean:
            clean = _RECIPROCAL.sub(" ×", clean)
        end = 0
        for match in _NUMBER.finditer(clean):
            if match.start() < end:
                continue
            numeral = _numeral(clean, match, units, in_cell)
            if numeral:
                found.append(numeral)
                end = numeral.end
    if not in_cell:
        for match in _SPELLED.finditer(text):
            role = "runs" if _N_AFTER.match(text, match.end()) else "thing" if _OUT_OF.match(text, match.end()) else ""
            if role:
                value = float(NUMBER_WORDS[match[0].lower()])
                found.append(Numeral(match.start(), match.end(), value, 1.0, role=role, digits=2))
        found.sort()
    return found


def has_digit(text: str) -> bool:
    return _DIGIT.search(text) is not None


def _numeral(text: str, match: re.Match[str], units: frozenset[str], in_cell: bool) -> Numeral | None:
    start, end = match.span()
    sign, body, exp, power, scale, percent_sign = match.group("sign", "body", "exp", "power", "scale", "percent")
    # the end of the text, a sentence or a clause: most numbers; then nothing that may stand behind one is tried
    last = end == len(text) or (text[end] in ",.;)，。；" and text[end + 1 : end + 2] in ("", " ", "\n"))
    word, unit = ("", "") if last else _next_word(text, end, units)
    unit = scale.strip().lower() if scale else unit
    roles = set() if in_cell and start == 0 else words_before(text, start)
    if text[max(0, start - 4) : start].rstrip().endswith(("±", "+/-", "\\pm")):
        roles = {"spread"}  # alone, or of a number that was left out
    elif "runs" in roles or (not last and "." not in body and _N_AFTER.match(text, end)):
        roles = {"runs"}
    else:
        bare = not ("." in body or percent_sign or exp or power or scale)
        behind = set() if last else _behind(text, end, bool(percent_sign), word if not unit else "", bare, in_cell)
        if "change" not in roles or "thing" not in behind:
            roles |= behind
        if "ratio" in behind:
            roles.discard("setting")  # 46 ms per step, 4.2 times less
        if not roles & {*IDLE}:
            roles |= _before(text, start, sign, in_cell)
    value, ulp = _read(body, int(exp or 0) + int(power or 0))
    spread = None if last else _spread_behind(text, end, in_cell)
    percent, spread_value, spread_ulp = bool(percent_sign), None, 0.0
    if spread:
        spread_value, spread_ulp = _read(spread["body"], int(spread["exp"] or 0))
        if text[end : end + 1] == "(" and spread["body"].isdigit() and "." in body:
            spread_value, spread_ulp = spread_value * ulp, ulp  # 79.3(4), 68.60(173): in units of the last place
        end = spread.end()
        percent = percent or bool(spread["percent"]) or text[end : end + 2].strip().startswith("%")
        unit = unit or _next_word(text, end, units)[1]
    if "bound" in roles:
        roles -= {"change", "ratio"}  # more than 2 points: nothing to recompute
    role = next((name for name in _ORDER if name in roles), "")
    digits = len(re.sub(r"\D", "", body).lstrip("0")) or 1
    value = -value if sign == "-" else value
    return Numeral(start, end, value, ulp, percent, unit, spread_value, spread_ulp, role, digits, sign is not None)


def _next_word(text: str, end: int, units: frozenset[str]) -> tuple[str, str]:
    """The word behind a number, and whether it is a unit."""
    found = _NEXT_WORD.match(text, end)
    if not found or text[found.end() : found.end() + 1] == "@" or found["word"] in ("HR", "S", "H", "MS", "MIN"):
        return "", ""  # HR@10 is no hour
    word = found["word"].lower()
    single = len(word) == 1 and word not in ("s", "h", "秒", "天")  # a letter is a unit only where a fact has it
    return word, word if word in units or (word in UNITS and not single) else ""


def _spread_behind(text: str, end: int, in_cell: bool) -> re.Match[str] | None:
    found = _SPREAD.match(text, end)
    if found:
        return found
    found = _IN_BRACKETS.match(text, end)
    return found if found and (in_cell or found["mark"]) else None


def _before(text: str, start: int, sign: str | None, in_cell: bool) -> set[str]:
    roles = {"change"} if sign == "+" else set()
    if not in_cell and (text[start - 1 : start] in "–-~至." or _RARE_WORDS.search(text, max(0, start - 90), start)):
        roles |= {"change"} if _GAP.search(text, max(0, start - 90), start) else set()
        near = _RANGE_BEFORE.search(text, max(0, start - 16), start) or _BETWEEN.search(text, max(0, start - 30), start)
        roles |= {"range"} if near else set()
    return roles


def _behind(text: str, end: int, percent: bool, word: str, bare: bool, in_cell: bool) -> set[str]:
    """What stands behind a number makes of it. `word`: the next one, unless it is a unit; `bare`: a whole number."""
    if _RATIO_AFTER.match(text, end):
        return {"ratio"}
    if _CHANGE_AFTER.match(text, end):
        return {"change"}
    if _GLUED.match(text, end) and word:
        return {"thing"}
    if percent and _PART_AFTER.match(text, end):
        return {"thing"}
    plural = word.endswith("s") and word not in _LISTS["verb"]
    several = word and (word[0] > "\u3000" or text[end] == "-" or plural)
    if not in_cell and word and (word in _LISTS["thing"] or (bare and several)):
        return {"thing"}  # a whole number of things: 3 datasets
    ranged = _RANGE_AFTER.match(text, end) and not re.match(r"\s?%?\s(?:to|and)", text[end : end + 8])
    return {"range"} if ranged else set()


def _read(body: str, power: int) -> tuple[float, float]:
    """The value, and the unit of its last place."""
    factor = 10.0**power
    whole, comma, fraction = body.partition(",")
    decimal = comma and "." not in body and (whole == "0" or len(fraction) != 3) and "," not in fraction
    body = body.replace(",", "." if decimal else "")
    decimals = len(body.partition(".")[2])
    return float(body) * factor, 10.0**-decimals * factor


def words_before(text: str, start: int) -> set[str]:
    """What the words in front of a number say of it: "a learning rate of 3e-4" gives {"setting"}.

    Looked up, not searched, because every number passes here.
    """
    tail = text[max(0, start - 40) : start].rstrip()
    last = tail[-1:]
    if _FLAG.search(text, max(0, start - 40), start):
        return {"setting"}
    if last > "\u3000":
        tail = tail.removesuffix("了")
        if tail.endswith(("至", "到", "达")):
            return set()  # 降至: the value it falls to
        bare = tail.rstrip("为是大约近")
        return {name for name, endings in _CHINESE.items() if tail.endswith(endings) or bare.endswith(endings)}
    if last == "×":
        return {"ratio"}
    if last in "=:>≥≤≫≪<≈~@Δ":
        tail = f"{tail[:-1]} {last}"  # so that lr=0.1 and lr = 0.1 are one
    words = [word.strip("(,[*_\"'`$-").lower() for word in tail.rsplit(None, 4)[-4:]]
    if words and words[-1] == "=" and _PRODUCT.search(tail):
        return {"setting"}  # 100 epochs × 37.5 min = 62.5 h
    if len(words) > 1 and words[-1] == "=" and words[-2] == "n":
        return {"runs"}
    if len(words) > 1 and words[-1] == "=" and re.fullmatch(r"\W*[^\W\d]?\W*_\W*\w*\W*|[a-zα-ω]\d?", words[-2]):
        return {"setting"}  # β_2 = 0.98, d = 256
    if words[-2:] == ["factor", "of"] or _RATIO_OF.search(text, max(0, start - 90), start):
        return {"ratio"}
    if words and words[-1] in ("of", "is", "was", "to", "at") and len(words) > 1 and words[-2] in _LISTS["noun"]:
        return {"change"}
    said = _cues(words)
    while words and words[-1] in _LISTS["skip"]:
        words.pop()
    return said | _cues(words)


def _cues(words: list[str]) -> set[str]:
    if not words:
        return set()
    last = words[-1].rstrip("0123456789_") or words[-1]  # β2, beta_1
    parts = " ".join([*words[-2:-1], last]).replace("_", " ").split()  # train_batch_size
    return {_CUES.get(" ".join(parts[-count:]), "") for count in (1, 2)} - {""}
