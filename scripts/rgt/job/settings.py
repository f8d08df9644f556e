"""The settings of a YAML, JSON or Python config, flat, with their lines and what kind of path each key names.

Example:
    read(Path("train.yaml"))       [Setting("trainer.output_dir", "out", line=7), ...]; YAML scalars stay text
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

from rgt.errors import bad_input, from_os_error, lacking

_CONFIG_BYTES = 10 << 20
_DEPTH = 50
# by the last word of a key; the first that fits
_KINDS = {
    "interpreter": r"python|interpreter|python_(?:bin|exe|executable)",
    "output": r"""(?:output|out|save|log|logging|work|run|results?|default_root|tensorboard)_(?:dir|path|root|folder)
                  |(?:checkpoint|ckpt)s?_(?:dir|root|folder)|output""",
    "resume": r"""resume(?:_from(?:_checkpoint)?|_path|_ckpt|_checkpoint)?|(?:init|load|restore|start)_from
                  |(?:init|initial|pretrained|load)_(?:checkpoint|ckpt|weights|path)(?:_dir|_path)?
                  |(?:ckpt|checkpoint|weights)(?:_path|_file)?|pretrained""",
    "data": r"""(?:.*_)?(?:data|datasets?|corpus)(?:_(?:dir|path|root|files?|folder))?
                |(?:train|val|valid|validation|test|eval)_(?:dir|path|root|files?|folder|data|set)""",
    "path": r".*_(?:dir|path|file|root|folder)",
}
_PATTERNS = {kind: re.compile(pattern, re.X) for kind, pattern in _KINDS.items()}


@dataclass
class Setting:
    key: str
    value: Any
    line: int | None = None

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
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise bad_input(f"{path} is not text in UTF-8; expected YAML, JSON or Python settings") from None
    except OSError as error:
        raise from_os_error(error, f"read {path}") from None
    try:
        if path.suffix == ".json":
            settings = list(flatten(json.loads(text)))
        else:
            settings = list((_from_python if path.suffix == ".py" else _from_yaml)(text, str(path)))
    except json.JSONDecodeError as error:
        raise bad_input(f"{path} is not JSON: {error}") from None
    except RecursionError:
        raise bad_input(f"{path} is nested too deep to be a config") from None
    if not settings:
        raise bad_input(f"{path} has no settings; expected keys such as output_dir and resume_from")
    return settings


def flatten(data: Any, key: str = "", depth: int = 0) -> Iterator[Setting]:
    """Plain data as settings: a list of scalars is one value, other lists give keys such as layers.0.width."""
    if depth > _DEPTH:
        return
    nested = isinstance(data, list) and any(isinstance(item, (dict, list)) for item in data)
    if isinstance(data, dict) or nested:
        for name, inner in data.items() if isinstance(data, dict) else enumerate(data):
            yield from flatten(inner, f"{key}.{name}" if key else str(name), depth + 1)
    else:
        yield Setting(key, data)


def _from_python(text: str, where: str) -> Iterator[Setting]:
    """nanoGPT's configs: assignments of plain values. They are parsed, never run."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise bad_input(f"{where} is not Python: {error}") from None
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            with contextlib.suppress(ValueError, TypeError, MemoryError):
                yield Setting(node.targets[0].id, ast.literal_eval(node.value), node.lineno)


def _from_yaml(text: str, where: str) -> Iterator[Setting]:
    try:
        import yaml
    except ImportError:
        raise lacking("reading YAML needs pyyaml: pip install pyyaml, or give the config as JSON") from None
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark else ""
        raise bad_input(f"{where}{line} is not YAML: {getattr(error, 'problem', None) or error}") from None
    if not isinstance(root, yaml.MappingNode):
        raise bad_input(f"{where} is not a mapping; expected keys such as output_dir and resume_from")
    yield from _flat_nodes(root, "", set())


def _flat_nodes(node: Any, key: str, seen: set[int]) -> Iterator[Setting]:
    """Over nodes, which know their lines. An alias is the same node again: visited once, so no file explodes."""
    line = node.start_mark.line + 1
    if id(node) in seen:
        return
    if node.id == "scalar":
        yield Setting(key, None if node.tag.endswith(":null") else node.value, line)
        return
    seen.add(id(node))
    if node.id == "sequence" and all(item.id == "scalar" for item in node.value):
        yield Setting(key, [item.value for item in node.value], line)
        return
    pairs = enumerate(node.value) if node.id == "sequence" else ((name.value, inner) for name, inner in node.value)
    for name, inner in pairs:
        yield from _flat_nodes(inner, f"{key}.{name}" if key else str(name), seen)
