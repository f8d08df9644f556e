"""What a checkpoint should hold: from a YAML or JSON spec, or from another checkpoint that is known to be good.

A spec:
    tensors:
      lm_head.weight: [50304, 768]                       # shape
      wte.weight: {shape: [50304, 768], dtype: bfloat16}
    step: 2000            parameters: 124439808           ema: true            optimizer: true
    extra: true           # other tensors may be there, too
    allow: {zero: ["*.lora_B.weight"]}                   # findings that are meant, by tensor name
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artifacts.examine import HEADERS, examine
from artifacts.model import Problem
from artifacts.survey import survey
from artifacts.units import Table, Unit, tables
from rgt.errors import bad_input

_KEYS = {"tensors", "step", "parameters", "ema", "optimizer", "extra", "allow"}
# what wrappers put before a key: DataParallel, torch.compile, FSDP, activation checkpointing, a plain outer module
_WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "model.")
_NAMED = 5


@dataclass
class Expectation:
    source: str
    tensors: Table = field(default_factory=dict)
    step: int | None = None
    parameters: int | None = None
    ema: bool = False
    optimizer: bool = False
    extra: bool = False
    allow: dict[str, list[str]] = field(default_factory=dict)
    format: str | None = None  # of a checkpoint to compare with: an export needs no optimizer because that has one


def load(path: Path) -> Expectation:
    if not path.exists():
        raise bad_input(f"{path} does not exist; --expect takes a YAML or JSON spec, or a good checkpoint")
    if path.is_file() and path.suffix in (".yaml", ".yml", ".json") and not path.name.endswith(".index.json"):
        return _from_spec(path)
    return _from_checkpoint(path)


def _from_spec(path: Path) -> Expectation:
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise bad_input(f"{path} is not YAML: {str(error).splitlines()[0][:200]}") from None
    if not isinstance(data, dict) or not set(data) <= _KEYS:
        odd = ", ".join(str(key) for key in data if key not in _KEYS)[:100] if isinstance(data, dict) else "no mapping"
        raise bad_input(f"{path} is not a spec: {odd}; it may have {', '.join(sorted(_KEYS))}")
    return Expectation(str(path), _tensors(path, data.get("tensors")), _number(path, data, "step"),
                       _number(path, data, "parameters"), bool(data.get("ema")), bool(data.get("optimizer")),
                       bool(data.get("extra")), _allow(path, data.get("allow")))  # fmt: skip


def _number(path: Path, data: dict[str, Any], key: str) -> int | None:
    value = data.get(key)
    if value is not None and type(value) is not int:
        raise bad_input(f"{path}: {key} should be a number and is {str(value)[:40]!r}")
    return value


def _tensors(path: Path, node: Any) -> Table:
    found: Table = {}
    for name, entry in (node or {}).items() if isinstance(node or {}, dict) else [("tensors", node)]:
        shape = entry.get("shape") if isinstance(entry, dict) else entry
        dtype = entry.get("dtype") if isinstance(entry, dict) else None
        if not _is_shape(shape) or not isinstance(dtype, (str, type(None))):
            raise bad_input(f"{path}: {str(name)[:80]} should be a shape like [768, 768] or {{shape: ..., dtype: ...}}")
        found[str(name)] = dtype.removeprefix("torch.") if dtype else None, None if shape is None else tuple(shape)
    return found


def _is_shape(node: Any) -> bool:
    return node is None or (isinstance(node, list) and all(type(size) is int for size in node))


def _allow(path: Path, node: Any) -> dict[str, list[str]]:
    node = node or {}
    good = isinstance(node, dict) and all(
        isinstance(names, list) and all(isinstance(name, str) for name in names) for names in node.values()
    )
    if not good:
        raise bad_input(f'{path}: allow should be like {{zero: ["*.lora_B.weight"]}}')
    return {str(code): list(names) for code, names in node.items()}


def _from_checkpoint(path: Path) -> Expectation:
    found = survey(path)
    units = list(tables(found, {p: examine(p, HEADERS, found.blobs(p)) for p in found.artifacts}))
    if not units:
        raise bad_input(f"{path} cannot be compared with: it is neither a spec nor a checkpoint that can be read")
    unit = max(units, key=lambda unit: len(unit.weights))
    return Expectation(str(path), unit.weights, ema=unit.ema, optimizer=unit.optimizer, format=unit.format)


def compare(expected: Expectation, unit: Unit) -> Iterator[Problem]:
    actual = dict(unit.weights)
    wanted = dict(expected.tensors)
    yield from _renamed(wanted, actual)
    missing = [name for name in wanted if name not in actual]
    extra = [name for name in actual if name not in wanted] if wanted and not expected.extra else []
    for code, names, what in (
        ("missing", missing, "expected and not there"),
        ("extra", extra, "there and not expected"),
    ):
        if names:
            shown = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
            yield Problem(code, "error", f"{len(names)} tensors are {what}", where=names[0][:200], evidence=shown[:400])
    for name, entry in wanted.items():
        if name in actual:
            yield from _entry(name, entry, actual[name])
    yield from _whole(expected, unit)


def _entry(name: str, wanted: tuple[Any, Any], actual: tuple[Any, Any]) -> Iterator[Problem]:
    if wanted[1] is not None and wanted[1] != actual[1]:
        message = f"has shape {list(actual[1])[:8]}, expected {list(wanted[1])[:8]}"
        yield Problem("shape", "error", message, where=name[:200])
    if wanted[0] is not None and wanted[0] != actual[0]:
        yield Problem("dtype", "error", f"is {actual[0]}, expected {wanted[0]}", where=name[:200])


def _renamed(wanted: Table, actual: Table) -> Iterator[Problem]:
    """Keys that differ by a wrapper's prefix are one finding, not two per tensor; `actual` gets the expected names."""
    for wrapper in _WRAPPERS:
        missing = {name for name in wanted if name not in actual}
        extra = {name for name in actual if name not in wanted}
        longer = {name: name.replace(wrapper, "") for name in extra if name.replace(wrapper, "") in missing}
        shorter = {name.replace(wrapper, ""): name for name in missing if name.replace(wrapper, "") in extra}
        if longer:
            fix = f'strip it: {{k.replace("{wrapper}", ""): v for k, v in state.items()}}'
            yield _prefix(longer, f"carry the prefix {wrapper!r}, the expected ones do not", fix)
        if shorter:
            yield _prefix(shorter, f"lack the prefix {wrapper!r} of the expected ones", "load into the inner module")
        for name, other in {**longer, **shorter}.items():
            actual[other] = actual.pop(name)


def _prefix(pairs: dict[str, str], what: str, fix: str) -> Problem:
    return Problem("renamed", "error", f"{len(pairs)} keys {what}", where=min(pairs)[:200], fix=fix)


def _whole(expected: Expectation, unit: Unit) -> Iterator[Problem]:
    if expected.parameters is not None and unit.parameters != expected.parameters:
        yield Problem("shape", "error", f"has {unit.parameters} parameters, expected {expected.parameters}")
    if expected.step is not None and unit.step != expected.step:
        seen = "says no step" if unit.step is None else f"is of step {unit.step}"
        yield Problem("step", "error", f"{seen}, expected {expected.step}")
    if expected.format not in (None, unit.format):
        return
    if expected.ema and not unit.ema:
        yield Problem("ema", "error", "holds no EMA of the weights, and one is expected")
    if expected.optimizer and not unit.optimizer:
        yield Problem("optimizer", "error", "holds no optimizer state, and one is expected")
