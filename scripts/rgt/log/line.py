"""What one line of a training log, or one row of its metrics, says, whatever framework wrote it.

Example:
    parse_line("iter 100: loss 2.34, time 12.5ms")     {"step": 100, "it_per_s": 80.0, "metrics": {"loss": 2.34}}
    parse_row({"step": 100, "split": "val", "loss": 2.3})         {"step": 100, "metrics": {"val_loss": 2.3}}

One mechanism reads them all: a number belongs to the words before it, those words say what it is (a counter, a total,
a time, a rate, a metric), and a word such as `valid`, `(val)` or 验证 says whose numbers follow it. Trainers differ in
words, so there are tables of words here and no pattern per trainer.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from rgt import units
from rgt.errors import RgtError
from rgt.log import words
from rgt.log.languages import FOREIGN_WORDS, in_english
from rgt.metrics.table import CURVE_WORDS, LOG_WORDS, SPLIT_WORDS, known, role, split_and_rest

LONGEST = 2000  # characters of a line that are looked at; the rest is somebody's tensor
_LONGEST_JSON = 100_000  # of one that is a JSON object
_METRICS = 40  # of one line
_LARGEST = 1e15  # of a counter, speed or time; the smallest, apart from 0, is 1 / _LARGEST

Point = dict[str, Any]  # the fields of Summary that the line tells, and `time` (seconds since 1970)

_FLOAT = r"\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?"
_NUMBER = (
    rf"[-+]?(?:\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?|{_FLOAT}|(?i:nan(?:\.0)?|inf(?:inity)?))"  # Lightning's bar: nan.0
)
# not a part of a word, a path, a date or a clock
_NUMBERS = re.compile(
    rf"(?<![\w.@/-])(?<!(?<![A-Za-z])\d:)({_NUMBER})(?:\s*/\s*(\d+)(?!\w|\.\d))?"
    r"(?:\s?(ms|s|secs?|seconds?|min(?:ute)?s?|hours?|%)(?!/\w+(?:\s?[:=]| \d))|([kKMB]))?(?!\w|\.\d|[:-]\d)"
)
_CUT = re.compile(r"[|,;{}<>\"'\t]|  |\] ?| - |[:=] ")  # what stands before one of these belongs to another number
_QUOTED = re.compile(rf"""["']([\w ./@-]{{1,60}})["']\s*:\s*["']?({_NUMBER})["']?(?=\s*[,}}\])]|\s*$)""")
_WRAPPED = re.compile(rf"\b(?:(?:np|jnp|numpy|torch)\.\w+|array|Array|tensor)\(({_NUMBER})[^()]{{0,60}}\)")
_IN_TUPLE = re.compile(r"(?<=\w'), (?=[-+\d]|nan|inf)")  # ('loss', 0.5)
# epoch-3 - loss-0.5
_DASHED = re.compile(r"(?<=[a-z])(?<!\de)-(?=(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf)(?:[\s,;|]|$))", re.I)
_MINUTES = re.compile(r"\b(?:(\d+)h ?)?(\d+)m ?(\d+(?:\.\d+)?)s\b")
_DAYS = re.compile(r"\b(\d+) ?d(?:ays?)?,? (\d\d?)(?=:\d\d:\d\d)")  # "2 days, 1:27:03" is 49:27:03
_UNIX = re.compile(r"^\W?(1[5-9]\d{8}(?:\.\d+)?)\b")  # seconds since 1970 before anything else
_A_WORD = re.compile(r"[^\W\d_]{2,}")
_A_NUMBER = re.compile(_NUMBER)
_A_VALUE = re.compile(r"[\w.]+=[-+]?\d\S*")  # "peak=10.4GiB 131.1s": no name of the time behind it
_BEHIND = re.compile(r"\s?[^\W\d]*/s(?:ec)?\b(?=.*\w)")  # "33.8 samples/s lr 2e-06": a unit of the number before
_OVER = re.compile(r" (?:over|of|for|in|at|per|after|@)\b")
_WITH_COMMA = re.compile(r"[^\W\d].* \d+,(?:\d\d?|\d{4,})(?!\S)")
_COMMA = re.compile(r"(?<=\d),(?=\d+(?!\S))")  # of a decimal fraction, as Germans write it
_OF_TOTAL = re.compile(r"\s*(\d+)\s*/\s*(\d+)\s*")
_A_CLOCK = re.compile(r"\d{1,3}(?::\d\d){1,2}")  # fastai's column of times
_SPLIT_KEYS = ("split", "phase", "mode")  # and of these, when the value is the word for one
_MAYBE_SPLIT_KEYS = ("event", "stage", "type", "kind", "msg", "message", "set", "name", "job", "dataset", "prefix")
_LONGEST_NAME = 60  # characters of a metric
_SPLIT = re.compile(r"""["'](?:split|phase|mode)["']\s*:\s*["'](\w+)["']""")
# a word of the line, and no part of a name, a path or an option, that says whose numbers follow
_OF_VAL = "evaluation evaluating validating validate sanity predicting cv heldout held-out holdout vl vld".split()
_LABELS = {**SPLIT_WORDS, **dict.fromkeys([*_OF_VAL, "saving dict"], "val")}
_LABEL = re.compile(rf"(?<![\w./-])(?:{'|'.join(sorted(_LABELS, key=len, reverse=True))})(?!\.?[\w/-])", re.I)
_BAR = re.compile(r"(\d{1,3})%(?:\|[^|]*\|)?\s*([\d.]+)([kMG]?)/([\d.]+)([kMG]?) \[([\d:]*)<([\d:?]+)")
# [12/100], a rich or Keras bar, and "epoch 001:  100 / 1000"; what is behind `[3]` or `Train: 3` counts its batches
_COUNT = re.compile(
    r"(?:\b(?:train|epoch)\w*(?:\(\w+\))?:?\s*\[?(\d+)(?:/\d+)?\]?:?\s*)?"
    r"(?:\[\s*(\d+)\s*/\s*(\d+)\b(?![ /]\d)|[━╸╺─]\s+(\d+)/(\d+)\s|(?<=:)\s+(\d+) / (\d+)\s"
    r"|\b(\d+)\s*/\s*(\d+) (?:batches|steps|iters?|iterations)\b)",
    re.I,
)
_SCALE = {"K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9}
_YOLO = re.compile(r"\s*(\d+)/(\d+)\s+[\d.]+G\s")
_TWO_COUNTS = re.compile(r"\[\s*(\d+)\s*/\s*(\d+)\]\s*\[\s*(\d+)(?:\s*/\s*(\d+))?\]")
_KERAS = re.compile(r"\s*(\d+)/(\d+)\s+[\[━]")
_COUNT_FIRST = re.compile(
    r"(?<![\w.])(?:\d+-)?(\d+(?:/\d+)?)(epoch|batch|step|iter)(?![a-z])"
)  # ESPnet: 3epoch:train:1-50batch
# clu: "[100] loss=0.5", XGBoost, CatBoost's "100:  learn: 0.5"
_LEADING_STEP = re.compile(r"(?:(?:.*?\] )?\[(\d+)\]\s+|\s*(\d+):  )(?=[\w/' -]+[:=])")
# PyTorch's tutorial: "[2,  4000] loss: 1.9", torchtune: "2|4000|Loss: 1.9"
_EPOCH_AND_BATCH = re.compile(r"\s*(?:\[(?=\d+,|\d{3,}:\d{3})|(?=\d+\|\d+\|Loss))(\d+)(?:, +|\||:)(\d+)[\]|] ?(?=\w+)")
_UP_TO = re.compile(r"\b(batch|step|iter) ?\[\d+-(\d+)\]", re.I)  # MXNet: Batch [50-100]
_LEARN = re.compile(r"(\blearn|\btest)(?=: )")  # CatBoost's losses
_ITS, _TOKENS, _SAMPLES = "it_per_s", "tokens_per_s", "samples_per_s"
_UNIT_OF_RATE = {
    **dict.fromkeys("it iter iteration step update batch batche".split(), _ITS),
    **dict.fromkeys("tok token word".split(), _TOKENS),
    **dict.fromkeys("sample image img example ex sequence seq frame".split(), _SAMPLES),
}
_RATES = {"ups": _ITS, "tps": _TOKENS, "wps": _TOKENS, **dict.fromkeys(("ips", "fps", "sps", "throughput"), _SAMPLES)}
_PER_SECOND = re.compile(r"([\d.,]+)(\s?[kKM]\b|[kKM]?)\s?([a-z]+?)?s?/(s|min|h)(?:ec|ond|ute|our|r)*\b", re.I)
_SECONDS_OF = {"s": 1, "min": 60, "h": 3600}
_NO_WORK = re.compile(r"(?i)[kmgt]?i?(?:b|bit|byte|flop|m|req|request)|ep|epoch|file|row|op")  # MB/s
_TIME_NAME = re.compile(r"(?:.*\W)?(?:(ms|s|secs?|seconds?)/(?!ep)[a-z]+|time/(?:batch|step|iter|iteration|it|update))")
_SECONDS_PER = re.compile(
    r"(?i)(?<![\w.-])([\d.]+)\s?(ms|s|sec)/(?:it(?:er(?:ation)?)?|step|b(?:atch)?|(ep(?:och)?))\b(?! \d+\.\d)"
)
_RATE_NAME = re.compile(r"(?:.*[ /_])?([a-z]+?)s?(?:/|_per_| per )s(?:ec|econd)?(?:[/_ ].*)?")
_ETA = re.compile(
    r"\b(?:eta|remaining(?: time)?|time (?:left|remaining))\b[\s:=]*"
    r"(\d+(?::\d\d)+|(?:\d+(?:\.\d+)?\s?[dhms]\s?)+)",
    re.I,
)
_ELAPSED = re.compile(
    r"\b(?:elapsed|wall(?:[ _-]?(?:time|clock))?|runtime)\b[\s:=\[]*(\d+(?::\d\d){1,2})\b|\d \[(\d+(?::\d\d){2})\]",
    re.I,
)
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|[\x00-\x08\x0b-\x1f\x7f]")
_SIGNS = re.compile(r"^\W+")
_HUMP = re.compile(r"(?<=[a-z]{2})(?=[A-Z][a-z])")  # RunningAvgSamplesPerSec, and not mAP
# bars that are not training: their counts are no steps
_OTHER_BAR = re.compile(
    r"\W*(?:map|filter|download|load|generat|fetch|token|extract|sav|resolv|upload|running|process|pars|creat|writ)",
    re.I,
)
_BYTES = re.compile(r"[\d?] ?[kMG]?i?B/s")
_NESTED = "\x1b[A"  # tqdm moves up again after an inner bar
_PAST = re.compile(r"\b(?:best|lowest|highest)\b.*(?:\b(?:at|from|in)\b|\() ?(?:epoch|step|iter)", re.I)
_RAISED = re.compile(r"(?:^|[\s\"])[\w.]*(?:Error|Exception): ")  # "shapes of step 300 do not fit" is no progress

_TWO = [f"(?:{'|'.join(sorted(words, key=len, reverse=True))})" for words in (words.SHORT_SPLITS, words.SHORT_NAMES)]
_SHORT = re.compile(rf"({_TWO[0]})_?({_TWO[1]})|({_TWO[1]})_?({_TWO[0]})")  # trl, vl, v_acc, l_dev
_LETTER_COUNT = re.compile(r"(?<![\w.])(ep|e|it|s|b)[-_#.]?(?=\d+(?:/\d+)?(?:[\s|:,;)\]]|$))", re.I)  # E012, b0050
_FIRST = re.compile(r"\W{0,8}?(\d{1,9})(?:\s*/\s*(\d{1,9}))?(?!\w|[.:/-]\d)")  # <300>, @300, 300/900
_RETURN = re.compile(r"^((?:(?!\bP\b).)*?(?<![\w.]))R(?=[ =:]+[-+]?\d)")  # and no recall, beside a P
_OF = re.compile(r"(?<=\d) of (?=\d)")
_OF_A_SET = re.compile(r"\b(train|valid|eval|test)(?:ing)?(?:_\d+)?'s ")  # LightGBM: "valid_1's auc: 0.9"
_ABSOLUTE = re.compile(r"(?:\|{1,2}|[‖∥])(?:g|d[fwlx]|grad|∇\w*)(?:\|{1,2}|[‖∥])")  # |g|
# Kaldi's log-probability, the higher the better: "objective function for 'output' for minibatches 0-99 is -3.9 over"
_KALDI = re.compile(r"objective function for '?output-?([\w-]*)'?.{0,40} is (-[\d.]+) over")
_VALUE_FIRST = re.compile(rf"({_NUMBER}) ([a-z][a-z ]{{1,30}})")  # darknet: "1.83 avg loss, 0.001 rate"

# lines without any of these can give no point: parsing one costs ten times as much as this look
_WORDS = CURVE_WORDS | {"norm", "learning"}
WORTH = re.compile(
    r"\b[sf]ps\b|\d rate\b|elbo|objective|"
    rf"{FOREIGN_WORDS}|step|iter|poch|batch|[%━\"']|\d\s*/\s*\d|\[\s*\d|updat|/s|s/|tok|total|max_|num_|eta|remaining|[^\x00-\x7f]|"
    + "|".join(sorted(word for word in _WORDS if not any(part in word for part in _WORDS - {word}))),
    re.I,
)


def json_object(text: str) -> dict[str, Any] | None:
    """The object, when the line is one JSON object."""
    text = text.strip()
    if not (text.startswith("{") and text.endswith("}") and len(text) <= _LONGEST_JSON):
        return None
    with contextlib.suppress(ValueError, RecursionError):
        row: dict[str, Any] = json.loads(text)  # an object, because it starts with {
        return row
    return None


def is_sane(value: float) -> bool:
    """No counter has a thousand digits, and no speed is 1e-300; a metric may be anything."""
    return value == 0 or 1 / _LARGEST < abs(value) < _LARGEST


def plain(text: str) -> str:
    """Without colours and control characters."""
    return text if text.isprintable() else _ANSI.sub("", text.replace("\t", "  "))


def parse_line(text: str, record: bool = False) -> Point:
    """What a line says; empty when it says nothing about training. Never raises.

    `record`: lines like it have been there before, so any word beside one of its numbers may be a metric's name.
    """
    row = json_object(text)
    if row is not None:
        point = parse_row(row)
        told = row.get("msg") or row.get("message")  # the line of a logger that writes JSON
        return point if point.get("metrics") or not isinstance(told, str) else {**point, **parse_line(told, record)}
    nested = _NESTED in text
    text = plain(text[: LONGEST * 2])[:LONGEST]
    text = _WRAPPED.sub(r"\1", text) if "(" in text else text
    text = _IN_TUPLE.sub(": ", text) if "'," in text else text
    # a Python dict, as HF Trainer prints it, or JSON that is torn or stands behind a prefix
    if ("'" in text or '"' in text) and (quoted := _QUOTED.findall(text)):
        return _dict(text, quoted, record)
    text = _in_usual_words(text, record)
    point = _prose(text, record)
    if nested and not point["metrics"] and "poch" not in text:  # an evaluation inside of the training
        return {}
    return _sane(point)


def _dict(text: str, quoted: list[tuple[str, str]], record: bool) -> Point:
    """Numbers by quoted names; what stands before the first brace counts, as in "step 300: {'loss': 0.5}"."""
    split, before = _SPLIT.search(text), text.partition("{")[0]
    labels = _LABEL.findall(before)  # fairseq: "| valid | {...}"
    numbers = [(name, _float(number)) for name, number in quoted]
    point = _point_of(numbers, split[1] if split else _LABELS[labels[-1].lower()] if labels else "")
    if not words.COUNTERS.isdisjoint(point):
        return point
    if record and (first := _FIRST.match(before)):
        point["counters"] = {"": [int(first[1]), int(first[2] or 0)]}
    found = _prose(before, False) if any(map(str.isdigit, before)) else {}
    return {name: value for name, value in found.items() if name in words.COUNTERS} | point


def _in_usual_words(text: str, record: bool) -> str:
    """With the spellings, languages and orders that differ put into one."""
    text = _UNIX.sub(r"timestamp \1 ", text)
    text = _DAYS.sub(lambda of: f"{24 * int(of[1]) + int(of[2])}", text) if "d" in text and ":" in text else text
    text = _MINUTES.sub(lambda of: f"{60 * (60 * int(of[1] or 0) + int(of[2])) + float(of[3])}s", text)
    text = _DASHED.sub(" ", text) if text.count("-") >= 3 and len(_DASHED.findall(text)) >= 3 else text
    if "," in text and _WITH_COMMA.search(text) and not re.search(r"\d\.\d", text):
        text = _COMMA.sub(".", text)
    text = _OF_A_SET.sub(lambda found: f"{found[1]} ", text) if "'s " in text else text
    text = _KALDI.sub(lambda found: f"{found[1] or ''}loss: {-_float(found[2])}", text) if "objective" in text else text
    text = _ABSOLUTE.sub("grad_norm", text) if re.search("[|‖∥]", text) else text
    text = _RETURN.sub(r"\1reward", _OF.sub("/", text)) if record else text
    text = _LETTER_COUNT.sub(lambda letter: f"{words.LETTERS[letter[1].lower()]} ", text)
    text = _UP_TO.sub(r"\1 \2 ", _COUNT_FIRST.sub(r" \2 \1 ", text))
    text = in_english(text)
    cells = [cell.strip() for cell in text.split(",")] if text.count(",") >= 2 else []
    behind = [_VALUE_FIRST.fullmatch(cell) for cell in cells]
    if sum(map(bool, behind)) < max(3, len(cells) / 2):
        return text
    told = zip(behind, cells, strict=True)
    named = (f"{'loss' if pair[2] == 'avg' else pair[2]} {pair[1]}" if pair else cell for pair, cell in told)
    return re.sub(r"^(\d+):", r"step \1,", ", ".join(named))


def parse_row(row: Mapping[str, Any]) -> Point:
    """The same for a row of values by name, numbers or text; objects inside of it are read, too."""
    leaves: list[tuple[str, Any]] = []
    todo: list[Mapping[str, Any]] = [row]
    while todo:
        inner = todo.pop()
        todo += [value for value in inner.values() if isinstance(value, dict)]
        leaves += [(str(name), value) for name, value in inner.items() if isinstance(value, (int, float, str))]
    named = ((name, _number(value)) for name, value in leaves if len(name) <= _LONGEST_NAME)
    numbers = [(name, number) for name, number in named if number is not None]
    splits = [value for name, value in leaves if name in _SPLIT_KEYS and isinstance(value, str)]
    said = [value.lower() for name, value in leaves if name in _MAYBE_SPLIT_KEYS and isinstance(value, str)]
    splits += [_LABELS[value] for value in said if value in _LABELS]
    point = _point_of(numbers, splits[0] if splits else "")
    for name, value in leaves:
        if isinstance(value, str) and (parts := _OF_TOTAL.fullmatch(value)):  # YOLO's epoch is "3/100"
            _take(point, name, True, float(parts[1]), parts[2], "")
    return _sane(point)


def _number(value: float | str) -> float | None:
    """None for booleans, and for text that is neither a number nor a clock."""
    if isinstance(value, str):
        value = value.strip().removesuffix("%")
        if _A_CLOCK.fullmatch(value):
            return _seconds(value)
        value = value[:-1] if value[-1:] == "s" and value[-2:-1].isdigit() else value
        return _float(value) if _A_NUMBER.fullmatch(value) else None
    try:
        return None if isinstance(value, bool) else float(value)
    except OverflowError:
        return math.inf


def _point_of(numbers: list[tuple[str, float]], split: str) -> Point:
    point: Point = {"metrics": {}}
    for name, value in numbers[:_METRICS]:
        _take(point, name, True, value, "", "")
    _resolve_time(point)
    split = words.VAL.get(split, split)
    if split not in ("", "train"):
        point["metrics"] = {_with_split(name, split): value for name, value in point["metrics"].items()}
    return _sane(point)


def _with_split(name: str, split: str) -> str:
    return name if split in ("", "train") or name.startswith(f"{split}_") else f"{split}_{name}"


def _sane(point: Point) -> Point:
    return {
        name: value
        for name, value in point.items()
        if value not in (None, {}) and (isinstance(value, dict) or is_sane(value))
    }


def _prose(text: str, record: bool) -> Point:
    point: Point = {"metrics": {}}
    text = text.replace(" in s=", "=").replace(" in s:", ":")  # NeMo: "train_step_timing in s=0.3"
    bar = _BAR.search(text) if "%" in text else None
    if bar and (_OTHER_BAR.match(text) or _BYTES.search(text, bar.end())):
        return point
    end, split, only_eval, told = 0, "", False, ""
    if leading := _LEADING_STEP.match(text):
        point["step"] = int(leading[1] or leading[2])
        text = _LEARN.sub(r"\1 loss", text) if "learn: " in text else text
    elif pair := _EPOCH_AND_BATCH.match(text):
        point |= {"epoch": int(pair[1]), "step": int(pair[2])}
    if record and (first := _FIRST.match(text)):
        point["counters"] = {"": [int(first[1]), int(first[2] or 0)]}
    for match in _NUMBERS.finditer(text):
        gap = text[end : match.start()]
        if labels := _LABEL.findall(gap):
            split = _LABELS[labels[-1].lower()]
            only_eval = only_eval or (split != "train" and not point["metrics"])
        gap, told = _words_before(gap, told if end else ""), gap
        end = match.end()
        name = " ".join(_CUT.split(gap.rstrip(":= "))[-1].split(" ")[-5:]).strip(" [(")
        name = "" if _A_VALUE.fullmatch(name) else name
        if record and not (bar or _KERAS.match(text)):
            name = _beside(point, name, match, split)
        if name and not (bar and match.start(1) == bar.start(1)):  # "Steps: 41%|" is no step
            value = _float(match[1]) * _SCALE.get((match[4] or "").upper(), 1.0)
            # beside a whole number stands what is counted
            tied = record and not match[1].isdigit() and name.count(" ") <= 1 and name.lower() not in words.NO_NAMES
            tied = tied or gap.endswith((":", "="))
            before, point["metrics"] = point["metrics"], {}
            _take(point, name, tied, value, match[2] or "", match[3] or (match[4] or "").upper())
            named = {_of_split(new, name, before, split, only_eval): new for new in point["metrics"]}
            point["metrics"] = {new: point["metrics"][old] for new, old in named.items()} | before
    if bar or not point["metrics"]:
        point.pop("counters", None)
    _take_progress(point, text, bar, only_eval)
    _resolve_time(point, record and len(_A_WORD.findall(text)) <= 2)
    if _PAST.search(text) or _RAISED.search(text):
        return {"metrics": point["metrics"]}
    if only_eval and not any(name in LOG_WORDS for name in point["metrics"]):  # its speed is not the training's
        # nor is a count of its own: "Validation: iteration 1/3"
        counters = ("step", "epoch", "epochs") if not bar and (point["metrics"] or "total" not in point) else ()
        return {"metrics": point["metrics"], **{name: point[name] for name in counters if name in point}}
    return point


def _words_before(gap: str, before: str) -> str:
    """What may name the number behind them; `before`: what stands before the number before."""
    gap = gap.rstrip().rstrip("[(# \"'")
    if gap.strip() in (":", "is"):  # "avg loss over last 50: 2.31", "score at iteration 300 is 2.31"
        return _OVER.split(before)[0] + gap
    gap = gap[unit.end() :] if before and (unit := _BEHIND.match(gap)) else gap
    return gap[gap.rfind("(") + 1 :] if gap.rfind("(") > gap.rfind(")") else gap  # "9 steps/s (collection: 5.7s"


def _of_split(key: str, name: str, before: dict[str, float], split: str, only_eval: bool) -> str:
    """The metric with the split that the line named before it."""
    if name.lower() in words.SHORT_SPLITS:  # "acc train 0.9 val 0.8"
        of, metric = split_and_rest(next(iter(before), ""))
        return f"{split_and_rest(key)[0]}_{metric}" if of else key
    # "val loss 0.6 acc 0.7": the accuracy is the validation's, too, but never the learning rate
    other = (known(key) or only_eval or key in before) and not any(word in _LABELS for word in key.split("_"))
    return _with_split(key, split) if other and (role(key) or ("",))[0] != "lr" else key


def _beside(point: Point, name: str, match: re.Match[str], split: str) -> str:
    """The name of a number that may have none: a time, one that may count, or a column of a table without a header."""
    bare = not re.search(r"\w", name)
    if match[3] not in (None, "%") and (bare or name.split()[-1] in words.NO_NAMES):
        return "time"
    if match[1].isdigit():
        point.setdefault("counters", {}).setdefault(name.lower(), [int(match[1]), int(match[2] or 0)])
    elif bare and not match[3]:
        number = sum("column_" in column for column in point["metrics"]) + 1
        point["metrics"][_with_split(f"column_{number}", words.VAL.get(split, split))] = _float(match[1])
    return name


def _take(point: Point, name: str, assigned: bool, value: float, total: str, unit: str) -> None:
    """Put one 'name: number' where it belongs; `assigned`: ':' or '=' ties them together."""
    key, before = _key(name)
    if (of := words.SHORT_SPLITS.get(key, "")) and len(key) > 1 and not (value.is_integer() or unit):
        key = "test" if of == "test" else f"{of}_loss"
    key = words.SECONDS_IN_NAME.sub("", key) if key.endswith("s") else key.removeprefix("training_")
    per = _TIME_NAME.fullmatch(name.lower())  # "ms/batch 12.3" counts no batches
    timed = _ITS if per else _timed(f"{before}_{key}" if before == "epoch" else key)
    if not timed and _take_counter(point, key, before, value, total, unit):
        return
    if key in words.TOTAL or key in words.TOTAL_EPOCHS:
        if 1 <= value < math.inf:  # max_steps = -1 means "not set" to HF
            point.setdefault("total" if key in words.TOTAL else "epochs", int(value))
    elif key in words.CLOCKS and 1e9 < value < math.inf:
        point.setdefault("time", value)
    elif _take_rate(point, name, key, value):
        return
    elif timed or (key in words.TIMES and before != "remaining" and (unit or key != "total")):
        if 0 < value < math.inf:
            milliseconds = "ms" in (unit, per[1] if per else "") or "(ms)" in name or "ms" in key.split("_")
            seconds = value / 1000 if milliseconds else value
            point.setdefault(timed or "seconds", 1 / seconds if timed == _ITS else seconds)
            point["since_start"] = key in words.SINCE_START
    elif not unit.isupper() and _is_metric(key, name, assigned):  # 2345M is of memory
        if key.endswith("elbo") and (value < 0 or "-elbo" in name.lower()):  # a bound that rises is a loss that falls
            key, value = f"{key.removesuffix('elbo')}loss", abs(value)
        point["metrics"].setdefault(key, value)


def _timed(key: str) -> str:
    """What a time of that name is of: one step, one epoch, or nothing that the name tells."""
    parts = set(key.split("_"))
    of_one = key.rpartition("_")[2] in words.TIME_WORDS or bool(parts & words.OF_ONE)
    if not (parts <= words.TIMED_WORDS and of_one and parts & {*words.TIME_WORDS, "s"}):
        return ""
    return _ITS if parts & words.STEP_WORDS else "epoch_time" if "epoch" in parts else ""


def _take_counter(point: Point, key: str, before: str, value: float, total: str, unit: str) -> bool:
    bare = key.removeprefix("train_")
    if bare in ("batch", "batch_idx", "batch_id", "minibatch", "mini_batch") and (total or "epoch" in point):
        if total and math.isfinite(value):
            point.setdefault("batch", int(value))
            point.setdefault("batches", int(total))
            return True
        key = "step"  # without an epoch it is a size
    epochs = key in words.EPOCHS or (key.endswith("_epoch") and not _is_loss_like(key))
    steps = key in words.STEPS or key in words.PLURALS or (key.endswith("_step") and not _is_loss_like(key))
    other = (key in words.PLURALS and before) or not words.SPOILERS.isdisjoint((before, *key.split("_")[:-1]))
    # "time for 1 epoch: 294.9 secs", "best of epoch -1"
    if not (epochs or steps) or other or unit.islower() or not 0 <= value < math.inf:
        return epochs or steps
    if epochs:  # it may be a fraction
        point.setdefault("epoch", int(value) if value.is_integer() else value)
    # `step` outranks `iter` on one line: LitGPT's iter counts micro-batches, and so does fairseq's `update`
    elif value.is_integer() and ("step" not in point or key in words.SURE_STEPS):
        point["step"] = int(value)
    if total:
        point.setdefault("epochs" if epochs else "total", int(total))
    return True


def _is_loss_like(key: str) -> bool:
    """train_loss_step is a loss, and no step."""
    return any(word in LOG_WORDS for word in key.split("_"))


def _resolve_time(point: Point, alone: bool = False) -> None:
    """'time 1.2s' is the time of a step when the line counts steps, of an epoch when it counts only epochs.

    `alone`: the line says nothing else, and stands for what the lines before it counted.
    """
    seconds, samples = point.pop("seconds", None), point["metrics"].get(_SAMPLES)
    if seconds and ("batch" in point or "step" in point):
        point.setdefault(_ITS, 1 / seconds)
    elif seconds and "epoch" in point:
        point["epoch_time"] = seconds
    elif seconds and ("counters" in point or (alone and not point["metrics"])):
        point["lap"] = seconds
    if point.pop("since_start", False) and samples and "step" in point:
        del point["metrics"][_SAMPLES]  # stable-baselines3's fps is the mean since the start, which hides a change


def _take_rate(point: Point, name: str, key: str, value: float) -> bool:
    lower = _HUMP.sub("_", name).lower()
    rate = _RATE_NAME.fullmatch(lower)
    kind = (_kind_of_rate(rate[1]) if rate else None) or _RATES.get(key.rpartition("_")[2])
    if kind and "eval" not in lower and value > 0:  # an evaluation's speed is not the training's
        (point["metrics"] if kind == _SAMPLES else point).setdefault(kind, value)
    return bool(kind)


def _kind_of_rate(unit: str) -> str | None:
    """What nobody knows, per second, are samples; an empty unit, too."""
    return _UNIT_OF_RATE.get(unit, None if _NO_WORK.fullmatch(unit) else _SAMPLES)


def _take_progress(point: Point, text: str, bar: re.Match[str] | None, only_eval: bool) -> None:
    """Bars, [12/100], rates and remaining times: numbers that have no name before them."""
    if bar:
        done, total = (_float(bar[n]) * _SCALE.get(bar[n + 1].upper(), 1.0) for n in (2, 4))
        if yolo := _YOLO.match(text[: bar.start()]):
            point["epoch"], point["epochs"] = int(yolo[1]), int(yolo[2])
        if math.isfinite(done) and math.isfinite(total):
            _set_progress(point, int(done), int(total))
        point.setdefault("epoch_eta" if "batch" in point else "eta", _seconds(bar[7]))
        point["elapsed"] = _seconds(bar[6])
    elif pair := _TWO_COUNTS.search(text):  # a GAN's [3/25][100/1583]
        point.setdefault("epoch", int(pair[1]))
        point |= {"epochs": int(pair[2])}
        point |= {"batch": int(pair[3]), "batches": int(pair[4])} if pair[4] else {"step": int(pair[3])}
    elif keras := _KERAS.match(text):
        point["batch"], point["batches"] = int(keras[1]), int(keras[2])
    elif "/" in text and not only_eval and (count := _COUNT.search(text)):
        epoch, *counts = count.groups()
        if epoch is not None:
            point.setdefault("epoch", int(epoch))
        _set_progress(point, *(int(group) for group in counts if group))
    for amount, scale_word, unit, per in _PER_SECOND.findall(text) if "/" in text else ():
        kind = _kind_of_rate(unit.lower())
        value = _float(amount) * _SCALE.get(scale_word.strip().upper(), 1.0) / _SECONDS_OF[per.lower()]
        if kind and value > 0:
            (point["metrics"] if kind == _SAMPLES else point).setdefault(kind, value)
    slow = _SECONDS_PER.search(text) if "s/" in text else None
    if slow and (value := _float(slow[1])) > 0:
        if slow[3]:
            point.setdefault("epoch_time", value)
        else:
            point.setdefault(_ITS, (1000 if slow[2].lower() == "ms" else 1) / value)
    _take_times(point, text)


def _take_times(point: Point, text: str) -> None:
    if elapsed := _ELAPSED.search(text):
        point["elapsed"] = _seconds(elapsed[1] or elapsed[2])
    if eta := _ETA.search(text):
        point.setdefault("epoch_eta" if "batch" in point and "epoch" not in point else "eta", _seconds(eta[1]))


def _set_progress(point: Point, done: int, total: int) -> None:
    """A count on a line that names an epoch starts anew with every epoch."""
    if "epoch" in point:
        if (done, total) == (point["epoch"], point.get("epochs")):  # "Epoch [3/5], Batch Loss: 0.2"
            return
        point.setdefault("batch", done)
        point.setdefault("batches", total)
    elif "step" not in point:
        point["step"], point["total"] = done, total


@functools.lru_cache(1024)  # a log has a few names in thousands of lines
def _key(name: str) -> tuple[str, str]:
    """The metric's own word with its qualifiers ('INFO val loss' is val_loss), and the word before it."""
    bare = re.sub(r"\([^)]*\)", "", name).replace("(", " ") if "(" in name else name
    # --epochs, *loss and the remains of a broken character: without the signs before the word
    section, _, last = (_HUMP.sub("_", bare).lower()).rpartition("/")
    if section in LOG_WORDS and last not in LOG_WORDS and last not in SPLIT_WORDS:  # lr/pg0, loss/box
        return f"{section}_{last}".replace(".", "_").replace("-", "_"), ""
    bare = last if section == "time" else f"{section} {last}".replace("/", " ")
    parts = [word for raw in bare.split() if (word := raw if raw == "#" else _SIGNS.sub("", raw).rstrip(":)+"))]
    while len(parts) > 1 and parts[-1] in words.AFTER:
        parts.pop()
    if not parts:
        return "", ""
    first, _, last = parts[-1].rpartition("_")
    if last in SPLIT_WORDS and first in LOG_WORDS:  # loss_val
        parts[-1:] = [first, last]
    key = [parts.pop()]
    if key == ["val"] and parts[-1:] == ["time"]:  # Composer's hours
        return "time_val", ""
    if key == ["val"]:  # LitGPT: "loss train: 2.31, val: 2.40"
        return "_".join(["val", parts[-1] if parts and parts[-1] in LOG_WORDS else "loss"]), ""
    if key[0] in SPLIT_WORDS and parts and (named := words.SAME.get(parts[-1], parts[-1])) in LOG_WORDS:  # "loss train"
        return f"{key[0]}_{named}", ""
    before = parts[-1] if parts else ""
    if key == ["loss"] and before in words.PLAYERS:
        key.insert(0, parts.pop())
    while parts and parts[-1] in words.QUALIFIERS and not (parts[-1] == "time" and key[0] in words.STEPS):
        key.insert(0, parts.pop())
    key[0] = words.VAL.get(key[0], key[0])
    joined = re.sub("^cv_", "val_", "_".join(key).replace(".", "_").replace("-", "_"))
    if (short := _SHORT.fullmatch(joined)) and joined not in LOG_WORDS:
        split, metric = short[1] or short[4], short[2] or short[3]
        if split not in SPLIT_WORDS or metric not in LOG_WORDS:
            return f"{words.SHORT_SPLITS[split]}_{words.SHORT_NAMES[metric]}", before
    split, sign, rest = joined.partition("train_")
    return f"{split}{sign}{words.SAME.get(rest, rest)}" if sign and not split else words.SAME.get(
        joined, joined
    ), before


def _is_metric(key: str, name: str, assigned: bool) -> bool:
    if key in words.NOT_METRICS or not key or ".py" in name or not (key[0].isalpha() or key[0] == "_"):
        return False
    known = (
        key in LOG_WORDS
        or key in ("scale", "norm")
        or key.rpartition("_")[2] in LOG_WORDS
        or key.partition("_")[0] in LOG_WORDS
        or key.endswith(("_norm", "learning_rate", "_scale"))
    )
    return known or (assigned and len(key) <= 40)


def _float(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:  # "1.2.3"
        return math.nan


def _seconds(text: str) -> float | None:
    try:
        return units.duration(text)
    except (RgtError, ValueError):
        return None
