"""What one line of a training log, or one row of its metrics, says, whatever framework wrote it.

Example:
    parse_line("iter 100: loss 2.34, time 12.5ms")     {"step": 100, "it_per_s": 80.0, "metrics": {"loss": 2.34}}
    parse_row({"step": 100, "split": "val", "loss": 2.3})         {"step": 100, "metrics": {"val_loss": 2.3}}

Knows nanoGPT, LitGPT, HF Trainer, Lightning, Keras, Megatron, DeepSpeed, torchtitan, the loops of torchvision, timm,
mmengine and detectron2, tqdm bars, key=value, JSON lines; as rows metrics.jsonl, CSV and trainer_state.json.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from rgt import units
from rgt.errors import RgtError
from rgt.metrics.table import LOG_WORDS, SPLIT_WORDS

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
_NUMBERS = re.compile(rf"(?<![\w.@/-])(?<!\d:)({_NUMBER})(?:\s*/\s*(\d+)(?!\w|\.\d))?\s?(ms|s|%)?(?!\w|\.\d|[:-]\d)")
_CUT = re.compile(r"[|,;{}<>\"'\t]|  |\] ?| - |[:=] ")  # what stands before one of these belongs to another number
_QUOTED = re.compile(rf"""["']([\w ./@-]{{1,60}})["']\s*:\s*["']?({_NUMBER})["']?(?=\s*[,}}\]]|\s*$)""")
_A_NUMBER = re.compile(_NUMBER)
_SPLIT_KEYS = ("split", "phase", "mode")
_LONGEST_NAME = 60  # characters of a metric
_SPLIT = re.compile(r"""["'](?:split|phase|mode)["']\s*:\s*["'](\w+)["']""")
_BAR = re.compile(r"(\d{1,3})%\|[^|]*\|\s*([\d.]+)([kMG]?)/([\d.]+)([kMG]?) \[[\d:]*<((?:\d+ days?, )?[\d:?]+)")
_COUNT = re.compile(r"\[\s*(\d+)\s*/\s*(\d+)\b|[━╸╺─]\s+(\d+)/(\d+)\s")
_KERAS = re.compile(r"\s*(\d+)/(\d+)\s+[\[━]")
_TIMM = re.compile(r"\s*Train: (\d+) \[")
_YOLO = re.compile(r"\s*(\d+)/(\d+)\s+[\d.]+G\s")
_PER_SECOND = re.compile(r"([\d.,]+)\s?(it|iter|step|batch|batches|tok|token)s?/s(?:ec)?\b", re.I)
_SECONDS_PER = re.compile(r"([\d.]+)\s?(ms|s|sec)/(?:it|iter|iteration|step|batch)\b", re.I)
_RATE_NAME = re.compile(
    r"(?:.*[ /_])?(it|iter|iteration|step|tok|token|sample|image|img)s?(?:/|_per_| per )s(?:ec|econd)?"
)
_ETA = re.compile(
    r"\b(?:eta|remaining(?: time)?|time (?:left|remaining))\b[\s:=]*"
    r"((?:\d+ days?, )?\d+(?::\d\d)+|(?:\d+(?:\.\d+)?\s?[dhms]\s?)+)",
    re.I,
)
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|[\x00-\x08\x0b-\x1f\x7f]")
_SIGNS = re.compile(r"^\W+")
# bars that are not training: their counts are no steps
_OTHER_BAR = re.compile(
    r"\W*(?:map|filter|download|load|generat|fetch|token|extract|sav|resolv|upload|running|process|pars|creat|writ)",
    re.I,
)
_EVAL_BAR = re.compile(r"\b(?:valid|sanity|eval|test|predict)", re.I)
_EVAL_LINE = re.compile(r"\b(?:validat(?:e|ion)|eval(?:uation)?)\s+(?:step|epoch|iter)", re.I)
_NESTED = "\x1b[A"  # tqdm moves up again after an inner bar
_SAVED = re.compile(
    r"\bsav(?:ing|ed)\b.{0,80}?(?:checkpoint|ckpt|\.pth?\b|\.safetensors|model|weights)|checkpoint.{0,60}?\bsaved\b"
    r"|\bwrote checkpoint|^\W*writing model shards: 100%",
    re.I,
)
_ENDED = re.compile(
    r"`Trainer\.fit` stopped: `max_|[\"']train_runtime[\"']|\btraining (?:completed|finished)\b"
    r"|^\W*(?:final evaluation\b|training (?:is )?(?:complete|finished|done)\b)",
    re.I,
)
_PAST = re.compile(r"\bbest\b.*\b(?:at|from|in) (?:epoch|step|iter)", re.I)
_RAISED = re.compile(r"(?:^|[\s\"])[\w.]*(?:Error|Exception): ")  # "shapes of step 300 do not fit" is no progress

_STEPS = set("global_step step iter iteration it iter_num _step num_updates update".split())
_PLURALS = {"steps", "iters", "iterations"}  # a counter only when nothing stands before them
_TOTAL = set(
    """max_steps max_iters max_iterations max_train_steps num_steps num_training_steps total_steps total_iters
    total_optimization_steps train_iters train_steps""".split()
)
_TOTAL_EPOCHS = set("epochs max_epochs num_epochs num_train_epochs n_epochs total_epochs train_epochs".split())
_TIMES = {"time", "dt", "iter_time", "step_time", "batch_time", "elapsed_time_per_iteration"}
_CLOCKS = {"time", "timestamp", "_timestamp"}
_QUALIFIERS = {
    *SPLIT_WORDS,
    *"best avg mean running total grad learning lm max num global optimization iter step elapsed per time".split(),
}
# "Gradient Accumulation steps = 4" and "number of skipped iterations: 10" count something else
_SPOILERS = set(
    """accumulation skipped nan warmup per save saving eval evaluation logging log decay of micro every inner max
    best""".split()
)
_NOT_METRICS = set("v_num rank local_rank world_size cuda gpu pid port seed line node version eta train time".split())
_VAL = {"valid": "val", "validation": "val"}


def json_object(text: str) -> dict[str, Any] | None:
    """The object, when the line is one JSON object."""
    text = text.strip()
    if not (text.startswith("{") and text.endswith("}") and len(text) <= _LONGEST_JSON):
        return None
    with contextlib.suppress(ValueError, RecursionError):
        row: dict[str, Any] = json.loads(text)  # an object, because it starts with {
        return row
    return None


def says_saved(text: str) -> bool:
    """A checkpoint was written, or is being written: a claim until the file has been loaded."""
    return bool(_SAVED.search(text))


def says_ended(text: str) -> bool:
    """The trainer says of itself that it reached its end."""
    return bool(_ENDED.search(text))


def is_sane(value: float) -> bool:
    """No counter has a thousand digits, and no speed is 1e-300; a metric may be anything."""
    return value == 0 or 1 / _LARGEST < abs(value) < _LARGEST


def plain(text: str) -> str:
    """Without colours and control characters."""
    return text if text.isprintable() else _ANSI.sub("", text.replace("\t", "  "))


def parse_line(text: str) -> Point:
    """What a line says; empty when it says nothing about training. Never raises."""
    row = json_object(text)
    if row is not None:
        return parse_row(row)
    nested = _NESTED in text
    text = plain(text[: LONGEST * 2])[:LONGEST]
    # a Python dict, as HF Trainer prints it, or JSON that is torn or stands behind a prefix
    quoted = _QUOTED.findall(text) if "'" in text or '"' in text else []
    if quoted:
        split = _SPLIT.search(text)
        return _point_of([(name, _float(number)) for name, number in quoted], split[1] if split else "")
    point = _prose(text)
    if nested and not point["metrics"] and "poch" not in text:  # an evaluation inside of the training
        return {}
    return _sane(point)


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
    return _point_of(numbers, splits[0] if splits else "")


def _number(value: float | str) -> float | None:
    """None for booleans, and for text that is not just a number."""
    if isinstance(value, str):
        return _float(value) if _A_NUMBER.fullmatch(value.strip()) else None
    try:
        return None if isinstance(value, bool) else float(value)
    except OverflowError:
        return math.inf


def _point_of(numbers: list[tuple[str, float]], split: str) -> Point:
    point: Point = {"metrics": {}}
    for name, value in numbers[:_METRICS]:
        _take(point, name, True, value, "", "")
    _resolve_time(point)
    _add_split(point, split)
    return _sane(point)


def _sane(point: Point) -> Point:
    return {
        name: value
        for name, value in point.items()
        if value not in (None, {}) and (isinstance(value, dict) or is_sane(value))
    }


def _prose(text: str) -> Point:
    point: Point = {"metrics": {}}
    bar = _BAR.search(text) if "%|" in text else None
    if bar and _OTHER_BAR.match(text):
        return point
    end = 0
    for match in _NUMBERS.finditer(text):
        gap = text[end : match.start()].rstrip().removesuffix("tensor(").rstrip("[(# ")
        end = match.end()
        name = " ".join(_CUT.split(gap.rstrip(":= "))[-1].split(" ")[-5:]).strip(" [(")
        if name and not (bar and match.start(1) == bar.start(1)):  # "Steps: 41%|" is no step
            _take(point, name, gap.endswith((":", "=")), _float(match[1]), match[2] or "", match[3] or "")
    _take_progress(point, text, bar)
    _resolve_time(point)
    if _EVAL_LINE.search(text):
        _add_split(point, "val")
        point.pop("tokens_per_s", None)
    if (bar and _EVAL_BAR.search(text[: bar.start()])) or _PAST.search(text) or _RAISED.search(text):
        return {"metrics": point["metrics"]}
    return point


def _take(point: Point, name: str, assigned: bool, value: float, total: str, unit: str) -> None:
    """Put one 'name: number' where it belongs; `assigned`: ':' or '=' ties them together."""
    key, before = _key(name)
    if key in _STEPS or key in _PLURALS or key == "epoch" or key.endswith(("_step", "_epoch")):
        if before in _SPOILERS or (key in _PLURALS and before) or not math.isfinite(value):
            return
        if key.endswith("epoch"):  # it may be a fraction
            point.setdefault("epoch", int(value) if value.is_integer() else value)
        # `step` outranks `iter` on one line: LitGPT's iter counts micro-batches, and so does fairseq's `update`
        elif value.is_integer() and ("step" not in point or key in ("step", "global_step", "num_updates")):
            point["step"] = int(value)
        if total:
            point.setdefault("epochs" if key.endswith("epoch") else "total", int(total))
    elif key in _TOTAL or key in _TOTAL_EPOCHS:
        if 1 <= value < math.inf:  # max_steps = -1 means "not set" to HF
            point.setdefault("total" if key in _TOTAL else "epochs", int(value))
    elif key in _CLOCKS and 1e9 < value < math.inf:
        point.setdefault("time", value)
    elif key in _TIMES and before != "remaining":
        if 0 < value < math.inf:
            milliseconds = unit == "ms" or "(ms)" in name
            point["seconds"] = value / 1000 if milliseconds else value
            point["sure"] = bool(unit) or milliseconds or key != "time"
    elif not _take_rate(point, name, key, value) and _is_metric(key, name, assigned):
        point["metrics"].setdefault(key, value)


def _resolve_time(point: Point) -> None:
    """'time 1.2s' is the time of a step when the line counts steps, of an epoch when it counts only epochs."""
    seconds, sure = point.pop("seconds", None), point.pop("sure", False)
    if seconds and ("batch" in point or ("step" in point and sure)):
        point.setdefault("it_per_s", 1 / seconds)
    elif seconds and "epoch" in point and sure:
        point["epoch_time"] = seconds


def _take_rate(point: Point, name: str, key: str, value: float) -> bool:
    rate = _RATE_NAME.fullmatch(name.lower())
    if key in ("tps", "wps") or (rate and rate[1].startswith("tok")):
        point.setdefault("tokens_per_s", value)
    elif rate and not name.startswith("eval"):  # an evaluation's speed is not the training's
        samples = rate[1] in ("sample", "image", "img")
        (point["metrics"] if samples else point).setdefault("samples_per_s" if samples else "it_per_s", value)
    return bool(rate) or key in ("tps", "wps")


def _take_progress(point: Point, text: str, bar: re.Match[str] | None) -> None:
    """Bars, [12/100], rates and remaining times: numbers that have no name before them."""
    if bar:
        scale = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}
        done, total = _float(bar[2]) * scale[bar[3]], _float(bar[4]) * scale[bar[5]]
        if yolo := _YOLO.match(text[: bar.start()]):
            point["epoch"], point["epochs"] = int(yolo[1]), int(yolo[2])
        if math.isfinite(done) and math.isfinite(total):
            _set_progress(point, int(done), int(total))
        point.setdefault("epoch_eta" if "batch" in point else "eta", _seconds(bar[6]))
    elif keras := _KERAS.match(text):
        point["batch"], point["batches"] = int(keras[1]), int(keras[2])
    elif "/" in text and (count := _COUNT.search(text)):
        if timm := _TIMM.match(text):
            point["epoch"] = int(timm[1])
        _set_progress(point, *(int(group) for group in count.groups() if group))
    for amount, unit in _PER_SECOND.findall(text) if "/s" in text else ():
        if (value := _float(amount)) > 0:
            point.setdefault("tokens_per_s" if unit.lower().startswith("tok") else "it_per_s", value)
    slow = _SECONDS_PER.search(text) if "s/" in text else None
    if slow and (value := _float(slow[1])) > 0:
        point.setdefault("it_per_s", (1000 if slow[2].lower() == "ms" else 1) / value)
    if eta := _ETA.search(text):
        point.setdefault("epoch_eta" if "batch" in point and "epoch" not in point else "eta", _seconds(eta[1]))


def _set_progress(point: Point, done: int, total: int) -> None:
    """A count on a line that names an epoch starts anew with every epoch."""
    if "epoch" in point:
        point.setdefault("batch", done)
        point.setdefault("batches", total)
    elif "step" not in point:
        point["step"], point["total"] = done, total


def _key(name: str) -> tuple[str, str]:
    """The metric's own word with its qualifiers ('INFO val loss' is val_loss), and the word before it."""
    bare = re.sub(r"\([^)]*\)", "", name) if "(" in name else name
    # --epochs, *loss and the remains of a broken character: without the signs before the word
    words = [word for raw in bare.lower().replace("/", " ").split() if (word := _SIGNS.sub("", raw))]
    if not words:
        return "", ""
    key = [words.pop()]
    if key == ["val"]:  # LitGPT: "loss train: 2.31, val: 2.40"
        return "val_loss", ""
    if key[0] in _QUALIFIERS and words and words[-1] in LOG_WORDS:  # "loss train"
        return f"{key[0]}_{words[-1]}", ""
    before = words[-1] if words else ""
    while words and words[-1] in _QUALIFIERS:
        key.insert(0, words.pop())
    key[0] = _VAL.get(key[0], key[0])
    return "_".join(key).replace(".", "_").replace("-", "_"), before


def _is_metric(key: str, name: str, assigned: bool) -> bool:
    if key in _NOT_METRICS or not key or ".py" in name or not (key[0].isalpha() or key[0] == "_"):
        return False
    known = key in LOG_WORDS or key.rpartition("_")[2] in LOG_WORDS or key.endswith(("_norm", "learning_rate"))
    return known or (assigned and len(key) <= 40)


def _add_split(point: Point, split: str) -> None:
    prefix = f"{_VAL.get(split, split)}_"
    if split not in ("", "train"):
        named = point["metrics"].items()
        point["metrics"] = {name if name.startswith(prefix) else prefix + name: value for name, value in named}


def _float(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:  # "1.2.3"
        return math.nan


def _seconds(text: str) -> float | None:
    days, _, clock = text.rpartition(" day")
    try:
        return float(days or 0) * 86400 + units.duration(clock.lstrip("s, ") if days else text)
    except (RgtError, ValueError):
        return None
