"""Settings as flat `a.b.c` keys, so that two runs can be compared word by word.

Example:
    flatten({"opt": {"lr": "1e-3"}, "args": ["--wd", "0.1"]})  -> {"opt.lr": 0.001, "--wd": 0.1}
    kind("opt.lr") -> "config"    kind("max_steps") -> "budget"    kind("run_name") -> "harmless"
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rgt.job import settings

_WORD = 300  # characters of a value
_ABSENT = "(not set)"

_HARMLESS = re.compile(
    r"""(output|out|save|log|logs|logging|run|work|result|results|ckpt|checkpoint|experiment|exp|default_root|tensorboard)_?(dir|path|folder|root)
    |(output|out|save|log|logs|result|results|stdout|stderr|prediction|predictions|event|events|trace|profile)_?(file|name|path|prefix|url)
    |(run|exp|experiment|trial|job|worker|process|attempt|launch|session)_?(idx|index|num|number|no|url|uuid|key)|pid|attempt
    |machine|server|node_?name|region|zone|pod(_name)?|(\w+_)?(timestamp|datetime)|(start|end|finish|launch|submit)(ed)?_(at|on|time|date)
    |tb_(dir|log)|cache_dir|logdir|workdir|cwd|run_?(id|name|tag)|exp(eriment)?(_?(id|name))?|name|job_?(id|name|type)|display_name|id|uuid|tags?|notes?
    |description|group|project|entity|user(name)?|author|host(name)?|node|nodelist|port|master_(addr|port)|rdzv_\w+|local_rank|rank
    |gpu_?ids?|(cuda_|gpu_)?device(_?ids?)?|cuda_visible_devices|(slurm|pbs|lsf)_?\w+|comments?|remarks?|timestamp|date|time|created(_at)?|started(_at)?|start_time|runtime|_timestamp|_runtime|state
    |wandb\w*|_wandb|python|executable|log_?(level|every|interval|freq\w*|steps)|logging_steps|verbose|progress\w*|target|gate|timeout|time_limit
    |sweep|rgt_(cell|queue|run_dir)""",
    re.X,
)
_OF_THE_RUN = ("", *"run exp experiment project wandb logger logging job slurm trainer meta hydra metadata".split())
_BUDGET = re.compile(
    r"(max|num|total|n|train)?_?(train(ing)?_)?(steps?|iters?|iterations?|epochs?|tokens|samples_seen|updates)|max_time"
    r"|(tuning|n|num|max)_?trials|trials"
)
_DATA = re.compile(
    r".*(data|dataset|corpus|train_(file|files|set)|(val|test|eval)_(file|files|set)|split|fold)(_?(dir|path|name|root|hash|sha256|version|revision))?"
)
_MEASURED = re.compile(
    r"(.*_)?(run_?time|duration|elapsed|latency|wall(_?(clock|time))?|(train|eval|test|inference)(ing)?_time|throughput|(tokens|samples|images|it|steps)_per_\w+"
    r"|fps|flops|mfu|(peak|max|gpu|cuda|host)_?(gpu_?|cuda_?)?mem(ory)?(_\w+)?|memory|rss|vram|energy|cost|grad_norm)"
    r"(_(s|secs?|seconds|ms|mins?|minutes|h|hrs?|hours|[gmk]i?b|k?wh|usd))?"
)


def is_measured(key: str) -> bool:
    """A column that a run gave, by its name; only asked of tables."""
    return bool(_MEASURED.fullmatch(last(key)))


def last(key: str) -> str:
    return key.rpartition(".")[2].lstrip("-").replace("-", "_").lower()


def is_seed(key: str) -> bool:
    return settings.is_seed(key)


def kind(key: str) -> str:
    """seed | harmless | budget | data | config. A data path is not harmless: another path may be other data."""
    word, above = last(key), last(key.rpartition(".")[0])
    if settings.is_seed(key):
        return "seed"
    if word in ("name", "group", "target", "gate") and above not in _OF_THE_RUN:
        return "config"  # optim.name is adamw, model.target a class
    for name, pattern in (("harmless", _HARMLESS), ("budget", _BUDGET), ("data", _DATA)):
        if pattern.fullmatch(word):
            return name
    return "harmless" if re.search(r"(^|\.)(_?wandb|hydra)\.", key.lower()) else "config"


def flatten(config: Any) -> dict[str, Any]:
    return _one_spelling(settings.flatten(config))


def read_file(path: Path) -> dict[str, Any]:
    """A YAML or JSON config beside a run, flat."""
    return _one_spelling(settings.read(path))


def _one_spelling(found: Iterable[settings.Setting]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for setting in found:
        if setting.name == "args" and isinstance(setting.value, list):
            flat |= flags([str(word) for word in setting.value])
        else:
            flat[setting.key[:_WORD]] = plain(setting.value)
    return flat


def plain(value: Any) -> Any:
    """One spelling: YAML reads 1e-3 as a word, wandb writes True as "true", `cuda:1` is the same kind as `cuda:0`."""
    if isinstance(value, list):
        return "[" + ", ".join(str(plain(entry)) for entry in value)[:_WORD] + "]"
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, (int, float)):
        return float(value) if abs(value) < 1 << 53 else str(value)
    text = str(value).strip()
    if text.lower() in ("true", "false", "none", "null"):
        return text.lower().replace("null", "none")
    if re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", text, re.I | re.A) and len(text) < 40:
        return float(text)
    return re.sub(r"^cuda:\d+$", "cuda", text)[:_WORD]


def flags(words: list[str]) -> dict[str, Any]:
    """--lr 1e-3 --bf16 wd=0.1 -> {"--lr": 0.001, "--bf16": "true", "wd": 0.1}; what is no option is left out."""
    found: dict[str, Any] = {}
    option = None  # whose value may follow; -1 is a value, `key=value` after a bare flag is Hydra's
    for word in words:
        name, equals, value = word.partition("=")
        if option and not re.match(r"-(?![\d.])|[A-Za-z][\w.]*=", word):
            found[option], option = plain(word), None
            continue
        option = word if word.startswith("--") and len(word) > 2 and not equals else None
        if option:
            found[option] = "true"
        elif equals and re.fullmatch(r"-{0,2}\+{0,2}[A-Za-z][\w./-]*", name):
            found[name] = plain(value)
    return found


def merged(config: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """The config with more settings; one that only repeats another under a longer name is not a second variable."""
    have = {(last(key), value) for key, value in config.items()}
    return {**{key: value for key, value in more.items() if (last(key), value) not in have}, **config}


def show(value: Any) -> str:
    if value is None:
        return _ABSENT
    return f"{value:g}" if isinstance(value, float) else str(value)
