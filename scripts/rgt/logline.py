"""What one line of a training log says, whatever framework printed it.

Example:
    parse_line("iter 100: loss 2.34, time 12.5ms")     {"step": 100, "it_per_s": 80.0, "metrics": {"loss": 2.34}}

Knows nanoGPT, LitGPT, HF Trainer, Lightning, Keras, Megatron, DeepSpeed, torchtitan, the loops of torchvision, timm,
mmengine and detectron2, tqdm bars, key=value, JSON lines and metrics.jsonl.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from rgt import units
from rgt.errors import RgtError

_LONGEST = 2000  # characters of a line that are looked at
_METRICS = 40  # of one line
_LARGEST = 1e15  # no counter, speed or time is larger, none but 0 smaller than its inverse

Point = dict[str, Any]  # the fields of Summary that the line tells, and `time` (seconds since 1970)

_FLOAT = r"\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?"
_NUMBER = rf"[-+]?(?:\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?|{_FLOAT}|(?i:nan|inf(?:inity)?))"
# not a part of a word, a path, a date or a clock
_NUMBERS = re.compile(rf"(?<![\w.@/-])(?<!\d:)({_NUMBER})(?:\s*/\s*(\d+)(?!\w|\.\d))?\s?(ms|s|%)?(?!\w|\.\d|[:-]\d)")
_CUT = re.compile(r"[|,;{}<>\"'\t]|  |\] ?| - |[:=] ")  # what stands before one of these belongs to another number
_QUOTED = re.compile(rf"""["']([\w ./@-]{{1,60}})["']\s*:\s*["']?({_NUMBER})["']?(?=\s*[,}}\]]|\s*$)""")
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
_QUALIFIERS = set(
    """train training val valid validation eval test dev best avg mean running total grad learning lm max num global
    optimization iter step elapsed per time""".split()
)
# "Gradient Accumulation steps = 4" and "number of skipped iterations: 10" count something else
_SPOILERS = set(
    """accumulation skipped nan warmup per save saving eval evaluation logging log decay of micro every inner max
    best""".split()
)
# names that need no ':' or '=' before their number
_METRIC_WORDS = set(
    """loss acc accuracy ppl perplexity lr learning_rate grad_norm gnorm mfu f1 auc map iou miou dice psnr ssim fid wer
    cer bleu reward return score top1 top5 acc@1 acc@5 mse mae rmse kl entropy nll bpb bpc precision recall""".split()
)
_NOT_METRICS = set("v_num rank local_rank world_size cuda gpu pid port seed line node version eta train time".split())
_VAL = {"valid": "val", "validation": "val"}


def unwrap(text: str) -> str:
    """The line inside of one of Docker's json-file log; any other line as it is."""
    if not text.startswith('{"log":'):
        return text
    try:
        return str(json.loads(text)["log"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return text


def says_saved(text: str) -> bool:
    """A checkpoint was written, or is being written: a claim until the file has been loaded."""
    return bool(_SAVED.search(text))


def says_ended(text: str) -> bool:
    """The trainer says of itself that it reached its end."""
    return bool(_ENDED.search(text))


def parse_line(text: str) -> Point:
    """What a line says; empty when it says nothing about training. Never raises."""
    nested = _NESTED in text
    text = plain(text[: _LONGEST * 2])[:_LONGEST]
    point: Point = {"metrics": {}}
    quoted = _QUOTED.findall(text) if "'" in text or '"' in text else []
    if quoted:
        _take_object(point, quoted, text)
    else:
        _take_prose(point, text)
    if nested and not point["metrics"] and "poch" not in text:  # an evaluation inside of the training
        return {}
    return {
        name: value
        for name, value in point.items()
        if value not in (None, {}) and (isinstance(value, dict) or is_sane(value))
    }


def is_sane(value: float) -> bool:
    """A counter of a thousand digits is noise that only looks like one, and so is a speed of 1e-300; not a metric."""
    return value == 0 or 1 / _LARGEST < abs(value) < _LARGEST


def plain(text: str) -> str:
    """Without colours and control characters."""
    return text if text.isprintable() else _ANSI.sub("", text.replace("\t", "  "))


def _take_object(point: Point, quoted: list[tuple[str, str]], text: str) -> None:
    """A JSON line, or a Python dict as HF Trainer prints it; a torn or nested one gives what can be read."""
    for name, value in quoted[:_METRICS]:
        _take(point, name, True, value, "", "")
    _resolve_time(point)
    split = _SPLIT.search(text)
    if split:
        point["metrics"] = {_with_split(name, split[1]): value for name, value in point["metrics"].items()}


def _take_prose(point: Point, text: str) -> None:
    bar = _BAR.search(text) if "%|" in text else None
    if bar and _OTHER_BAR.match(text):
        return
    end = 0
    for match in _NUMBERS.finditer(text):
        name, assigned = _name_before(text[end : match.start()])
        end = match.end()
        if name and not (bar and match.start(1) == bar.start(1)):  # "Steps: 41%|" is no step
            _take(point, name, assigned, match[1], match[2] or "", match[3] or "")
    _take_progress(point, text, bar)
    _resolve_time(point)
    if _EVAL_LINE.search(text):
        point["metrics"] = {_with_split(name, "val"): value for name, value in point["metrics"].items()}
        point.pop("tokens_per_s", None)
    if (bar and _EVAL_BAR.search(text[: bar.start()])) or _PAST.search(text) or _RAISED.search(text):
        for counter in [name for name in point if name != "metrics"]:
            del point[counter]


def _name_before(gap: str) -> tuple[str, bool]:
    """The words before a number, and whether ':' or '=' ties them to it."""
    gap = gap.rstrip().removesuffix("tensor(").rstrip("[(# ")
    assigned = gap.endswith((":", "="))
    return " ".join(_CUT.split(gap.rstrip(":= "))[-1].split(" ")[-5:]).strip(" [("), assigned


def _take(point: Point, name: str, assigned: bool, number: str, total: str, unit: str) -> None:
    """Put one 'name: number' where it belongs."""
    value = _float(number)
    key, before = _key(name)
    if key in _STEPS or key in _PLURALS or key == "epoch" or key.endswith(("_step", "_epoch")):
        if before not in _SPOILERS and not (key in _PLURALS and before):
            _take_counter(point, key, value, total)
    elif key in _TOTAL or key in _TOTAL_EPOCHS:
        if 1 <= value < math.inf:  # max_steps = -1 means "not set" to HF
            point.setdefault("total" if key in _TOTAL else "epochs", int(value))
    elif key in _CLOCKS and 1e9 < value < math.inf:
        point.setdefault("time", value)
    elif key in _TIMES and before != "remaining":
        _take_time(point, key, value, "ms" if "(ms)" in name else unit)
    elif not _take_rate(point, name, key, value) and _is_metric(key, name, assigned):
        point["metrics"].setdefault(key, value)


def _take_counter(point: Point, key: str, value: float, total: str) -> None:
    """`step` outranks `iter` on one line (LitGPT's iter counts micro-batches); an epoch may be a fraction.

    fairseq's `update` is one, too: its steps are `num_updates`.
    """
    if not math.isfinite(value):
        return
    if key.endswith("epoch"):
        point.setdefault("epoch", int(value) if value.is_integer() else value)
    elif value.is_integer() and ("step" not in point or key in ("step", "global_step", "num_updates")):
        point["step"] = int(value)
    if total:
        point.setdefault("epochs" if key.endswith("epoch") else "total", int(total))


def _take_time(point: Point, key: str, value: float, unit: str) -> None:
    if value > 0 and math.isfinite(value):
        point["seconds"] = value / 1000 if unit == "ms" else value
        point["sure"] = bool(unit) or key != "time"


def _resolve_time(point: Point) -> None:
    """'time 1.2s' is that of a step when the line counts steps, that of an epoch when it counts only epochs."""
    seconds, sure = point.pop("seconds", None), point.pop("sure", False)
    if not seconds:
        return
    if "batch" in point or ("step" in point and sure):
        point.setdefault("it_per_s", 1 / seconds)
    elif "epoch" in point and sure:
        point["epoch_time"] = seconds


def _take_rate(point: Point, name: str, key: str, value: float) -> bool:
    rate = _RATE_NAME.fullmatch(name.lower())
    if key in ("tps", "wps") or (rate and rate[1].startswith("tok")):
        point.setdefault("tokens_per_s", value)
    elif rate and rate[1] in ("sample", "image", "img"):
        if not name.startswith("eval"):
            point["metrics"].setdefault("samples_per_s", value)
    elif rate and not name.startswith("eval"):
        point.setdefault("it_per_s", value)
    return bool(rate) or key in ("tps", "wps")


def _take_progress(point: Point, text: str, bar: re.Match[str] | None) -> None:
    """Bars, [12/100], rates and remaining times: numbers that have no name before them."""
    if bar:
        _take_bar(point, bar, text[: bar.start()])
    elif keras := _KERAS.match(text):
        point["batch"], point["batches"] = int(keras[1]), int(keras[2])
    elif "/" in text and (count := _COUNT.search(text)):
        if timm := _TIMM.match(text):
            point["epoch"] = int(timm[1])
        done, total = [int(group) for group in count.groups() if group]
        _set_progress(point, done, total)
    if "/s" in text or "s/" in text:
        _take_speed(point, text)
    if eta := _ETA.search(text):
        keras_bar = "batch" in point and "epoch" not in point
        point.setdefault("epoch_eta" if keras_bar else "eta", _seconds(eta[1]))


def _take_speed(point: Point, text: str) -> None:
    for amount, unit in _PER_SECOND.findall(text):
        if (value := _float(amount)) > 0:
            point.setdefault("tokens_per_s" if unit.lower().startswith("tok") else "it_per_s", value)
    slow = _SECONDS_PER.search(text)
    if slow and (value := _float(slow[1])) > 0:
        point.setdefault("it_per_s", (1000 if slow[2].lower() == "ms" else 1) / value)


def _take_bar(point: Point, bar: re.Match[str], description: str) -> None:
    scale = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}
    done, total = _float(bar[2]) * scale[bar[3]], _float(bar[4]) * scale[bar[5]]
    if yolo := _YOLO.match(description):
        point["epoch"], point["epochs"] = int(yolo[1]), int(yolo[2])
    if math.isfinite(done) and math.isfinite(total):
        _set_progress(point, int(done), int(total))
    point.setdefault("epoch_eta" if "batch" in point else "eta", _seconds(bar[6]))


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
    words = [word for word in map(_bare, bare.lower().replace("/", " ").split()) if word]
    if not words:
        return "", ""
    key = [words.pop()]
    if key == ["val"]:  # LitGPT: "loss train: 2.31, val: 2.40"
        return "val_loss", ""
    if key[0] in _QUALIFIERS and words and words[-1] in _METRIC_WORDS:  # "loss train"
        return f"{key[0]}_{words[-1]}", ""
    before = words[-1] if words else ""
    while words and words[-1] in _QUALIFIERS:
        key.insert(0, words.pop())
    key[0] = _VAL.get(key[0], key[0])
    return "_".join(key).replace(".", "_").replace("-", "_"), before


def _bare(word: str) -> str:
    """Without the sign before it: --epochs, *loss, the remains of a broken character."""
    while word and not (word[0].isalnum() or word[0] == "_"):
        word = word[1:]
    return word


def _is_metric(key: str, name: str, assigned: bool) -> bool:
    if key in _NOT_METRICS or not key or ".py" in name or not (key[0].isalpha() or key[0] == "_"):
        return False
    known = key in _METRIC_WORDS or key.rpartition("_")[2] in _METRIC_WORDS or key.endswith(("_norm", "learning_rate"))
    return known or (assigned and len(key) <= 40)


def _with_split(name: str, split: str) -> str:
    split = _VAL.get(split, split)
    return name if split == "train" or name.startswith(f"{split}_") else f"{split}_{name}"


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
