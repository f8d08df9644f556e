"""The settings of a YAML, JSON or Python config, flat, and what kind of path each key names.

Example:
    read(Path("train.yaml"))       [Setting("trainer.output_dir", "out"), ...]
    flatten({"a": {"b": 1}})       [Setting("a.b", 1)]
"""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rgt import files
from rgt.errors import bad_input, lacking

_CONFIG_BYTES = 10 << 20
# by the last word of a key; the first that fits
_KINDS = {
    "output": r"""(?:output|out|save|log|logging|work|run|results?|default_root|tensorboard)_(?:dir|path|root|folder)
                  |(?:checkpoint|ckpt)s?_(?:dir|root|folder)|output""",
    "resume": r"""resume(?:_from(?:_checkpoint)?|_path|_ckpt|_checkpoint)?|(?:init|load|restore|start)_from
                  |(?:init|initial|pretrained|load)_(?:checkpoint|ckpt|weights|path)(?:_dir|_path)?
                  |(?:ckpt|checkpoint|weights)(?:_path|_file)?|pretrained""",
    "data": r"""(?:.*_)?(?:data|datasets?|corpus)(?:_(?:dir|path|root|files?|folder))?
                |(?:train|val|valid|validation|test|eval)_(?:dir|path|root|files?|folder|data|set)""",
}
_PATTERNS = {kind: re.compile(pattern, re.X) for kind, pattern in _KINDS.items()}
_SEED = re.compile(r"(.*_)?(seed|seeds|rng_seed|seed_everything)")


@dataclass
class Setting:
    key: str
    value: Any

    @property
    def name(self) -> str:
        return self.key.rpartition(".")[2].lower().replace("-", "_")

    @property
    def kind(self) -> str:
        return next((kind for kind, pattern in _PATTERNS.items() if pattern.fullmatch(self.name)), "")


def read(path: Path) -> list[Setting]:
    """Every scalar of a YAML, JSON or Python config with its dotted key."""
    try:
        if not path.is_file() or path.stat().st_size > _CONFIG_BYTES:
            raise bad_input(f"{path} is not a config: expected a YAML, JSON or Python file of at most 10 MiB")
        data = _parsed(files.read_text(path), path.suffix)
    except RecursionError:
        raise bad_input(f"{path} is nested too deep to be a config") from None
    except (SyntaxError, ValueError) as error:
        language = {".json": "JSON", ".py": "Python"}.get(path.suffix, "YAML")
        raise bad_input(f"{path} is not {language}: {' '.join(str(error).split())[:200]}") from None
    settings = flatten(data) if isinstance(data, dict) else []
    if not settings:
        raise bad_input(f"{path} has no settings; expected keys such as output_dir and resume_from")
    return settings


def _parsed(text: str, suffix: str) -> Any:
    if suffix == ".json":
        return json.loads(text)
    if suffix != ".py":
        try:
            from rgt import yaml_text
        except ImportError:
            raise lacking("reading YAML needs pyyaml: pip install pyyaml, or give the config as JSON") from None
        return yaml_text.parse(text)
    values = {}  # nanoGPT's configs: assignments of plain values. They are parsed, never run
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            with contextlib.suppress(ValueError, TypeError, MemoryError):
                values[node.targets[0].id] = ast.literal_eval(node.value)
    return values


def flatten(data: Any) -> list[Setting]:
    return list(_flat(data, "", set()))


def _flat(data: Any, key: str, seen: set[int]) -> Iterator[Setting]:
    """A list of scalars is one value, other lists give keys such as layers.0.width.

    An alias of YAML is the same object again: visited once, so no file explodes.
    """
    nested = isinstance(data, list) and any(isinstance(item, (dict, list)) for item in data)
    if not isinstance(data, dict) and not nested:
        yield Setting(key, data)
    elif id(data) not in seen:
        seen.add(id(data))
        for name, inner in data.items() if isinstance(data, dict) else enumerate(data):
            yield from _flat(inner, f"{key}.{name}" if key else str(name), seen)


def is_seed(key: str) -> bool:
    return bool(_SEED.fullmatch(key.rpartition(".")[2].lstrip("-+").replace("-", "_").lower()))


def seeds(config: Any, words: list[str]) -> dict[str, int]:
    """The seeds that settings name, and those of a command line: --seed 3, --seed=3, trainer.seed=3."""
    given: list[tuple[str, Any]] = [(one.key, one.value) for one in flatten(config)]
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        given.append((name, value if equals else following if word.startswith("-") else ""))
    return {
        key.lstrip("-+"): int(value)
        for key, value in given
        if is_seed(key) and not isinstance(value, bool) and re.fullmatch(r"\d{1,18}", str(value))
    }
