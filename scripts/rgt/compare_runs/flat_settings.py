"""Settings as flat `a.b.c` keys, so that two runs can be compared word by word.

Example:
    flatten({"opt": {"lr": "1e-3"}, "args": ["--wd", "0.1"]})  -> {"opt.lr": 0.001, "--wd": 0.1}
    kind("opt.lr") -> "config"    kind("max_steps") -> "budget"    kind("run_name") -> "harmless"
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt.errors import bad_input

_KEYS = 20_000  # of one config; a YAML alias bomb has more
_DEPTH = 60
_WORD = 300  # characters of a value
_ABSENT = "(not set)"

_SEED = re.compile(r"(.*_)?(seed|seeds|rng_seed|seed_everything)")
_HARMLESS = re.compile(
    r"""(output|out|save|log|logs|logging|run|work|result|results|ckpt|checkpoint|experiment|exp|default_root|tensorboard)_?(dir|path|folder|root)
    |logdir|workdir|cwd|run_?(id|name|tag)|exp(eriment)?(_?(id|name))?|name|job_?(id|name|type)|display_name|id|uuid|tags?|notes?
    |description|group|project|entity|user(name)?|author|host(name)?|node|nodelist|port|master_(addr|port)|rdzv_\w+|local_rank|rank
    |gpu_?ids?|cuda_visible_devices|timestamp|date|time|created(_at)?|started(_at)?|start_time|runtime|_timestamp|_runtime|state
    |wandb\w*|_wandb|python|executable|log_?(level|every|interval|freq\w*|steps)|logging_steps|verbose|progress\w*|target|gate|timeout|time_limit
    |sweep|rgt_(cell|queue|run_dir)""",
    re.X,
)
_BUDGET = re.compile(
    r"(max|num|total|n|train)?_?(train(ing)?_)?(steps?|iters?|iterations?|epochs?|tokens|samples_seen|updates)|max_time"
    r"|(tuning|n|num|max)_?trials|trials"
)
_DATA = re.compile(
    r".*(data|dataset|corpus|train_(file|files|set)|(val|test|eval)_(file|files|set)|split|fold)(_?(dir|path|name|root|hash|sha256|version|revision))?"
)
TRIALS = re.compile(r"(tuning|n|num|max)_?trials|trials")


def last(key: str) -> str:
    return key.rpartition(".")[2].lstrip("-").replace("-", "_").lower()


def is_seed(key: str) -> bool:
    return bool(_SEED.fullmatch(last(key)))


def kind(key: str) -> str:
    """seed | harmless | budget | data | config. A data path is not harmless: another path may be other data."""
    word = last(key)
    for name, pattern in (("seed", _SEED), ("harmless", _HARMLESS), ("budget", _BUDGET), ("data", _DATA)):
        if pattern.fullmatch(word):
            return name
    return "harmless" if re.search(r"(^|\.)(_?wandb|hydra)\.", key.lower()) else "config"


def flatten(config: Any, where: str = "the config") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in _walk(config, "", 0, where):
        if len(found) >= _KEYS:
            raise bad_input(f"{where} has more than {_KEYS} settings; compare the part that matters")
        found[key[:_WORD]] = value
    return found


def _walk(value: Any, key: str, depth: int, where: str) -> Iterator[tuple[str, Any]]:
    if depth > _DEPTH:
        raise bad_input(f"{where} is nested deeper than {_DEPTH} levels")
    # a string that holds a JSON object is a config within a config (Hydra overrides, wandb, CSV cells)
    if isinstance(value, str) and value[:1] in "{[" and len(value) < 1 << 20:
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(value)
    if last(key) == "args" and isinstance(value, list):
        yield from flags([str(word) for word in value]).items()
    elif isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _walk(inner, f"{key}.{name}" if key else str(name), depth + 1, where)
    elif isinstance(value, list) and any(isinstance(entry, (dict, list)) for entry in value):
        for index, inner in enumerate(value):
            yield from _walk(inner, f"{key}.{index}", depth + 1, where)
    elif key:
        yield key, plain(value)


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


def read_file(path: Path) -> dict[str, Any]:
    """A YAML or JSON config beside a run, flat; wandb's {"value": ...} wrapping is undone."""
    import yaml

    class Plain(yaml.SafeLoader):
        """An unknown tag (!!python/object of a saved argparse.Namespace) is plain data."""

    def construct(loader: Any, _: str, node: Any) -> Any:
        if isinstance(node, yaml.MappingNode):
            return loader.construct_mapping(node, deep=True)
        if isinstance(node, yaml.SequenceNode):
            return loader.construct_sequence(node, deep=True)
        return loader.construct_scalar(node)

    Plain.add_multi_constructor("", construct)
    try:
        text = path.read_text(encoding="utf-8")
        data = yaml.load(text, Loader=Plain) if path.suffix in (".yaml", ".yml") else json.loads(text)
    except UnicodeDecodeError as error:
        raise bad_input(f"{path} is not text: byte {error.start} is not UTF-8") from None
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise bad_input(f"{path} cannot be read as a config: {' '.join(str(error).split())[:200]}") from None
    config = {}
    for key, inner in data.items() if isinstance(data, dict) else ():
        wrapped = isinstance(inner, dict) and "value" in inner and set(inner) <= {"desc", "value"}
        if key not in ("_wandb", "wandb_version"):
            config[key] = inner["value"] if wrapped else inner
    return flatten(config, str(path))
