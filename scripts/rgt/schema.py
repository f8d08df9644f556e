"""The JSON Schemas of scripts/schemas, checked on write and on read.

Example:
    check(data, "run", "runs/x/run.json")     raises one sentence naming the file, the field and what was expected
    problems(data, "run")                     the same as a list of sentences

On a rented box, where the one-file bundle has no jsonschema (or Ubuntu's old one) and no folder of schemas, nothing is
checked; the file is checked when it is read after the pull.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rgt import bundle
from rgt.errors import bad_input

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

DIRECTORY = bundle.SCHEMAS
_SHOWN = 3  # problems named in one sentence; the rest is counted
_LONGEST = 160  # characters of one problem

Fits = Callable[[Any], bool]
_KINDS: dict[str, list[type]] = {"object": [dict], "array": [list], "string": [str], "integer": [int]}
_KINDS |= {"number": [int, float], "boolean": [bool], "null": [type(None)]}
_COMMENTS = {"$schema", "$defs", "title", "description"}
_QUICK = set(
    """type enum const anyOf $ref required properties additionalProperties minProperties maxProperties items minItems
    maxItems pattern minLength maxLength minimum maximum exclusiveMinimum exclusiveMaximum""".split()
)


@functools.cache
def load(name: str) -> dict[str, Any]:
    return json.loads((DIRECTORY / f"{name}.schema.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


@functools.cache
def _validator(name: str) -> Draft202012Validator | None:
    try:
        from jsonschema import Draft202012Validator
    except ImportError:
        return None
    return Draft202012Validator(load(name)) if DIRECTORY.is_dir() else None


@functools.cache
def _quick(name: str) -> Fits:
    """Whether data surely fits; False is only a doubt, which jsonschema settles.

    It takes 0.2 s to import and 80 microseconds for a row of a table, of which a pull of 5,000 files has 20,000.
    """
    return _compile(load(name), load(name).get("$defs", {}))


def _compile(rule: Any, shared: dict[str, Any]) -> Fits:
    if isinstance(rule, bool):
        return lambda data: rule
    values = rule.get("enum", [rule["const"]] if "const" in rule else None)
    if set(rule) - _QUICK - _COMMENTS or any(isinstance(value, (list, dict)) for value in values or ()):
        return lambda data: False
    words = rule.get("type", list(_KINDS))
    kinds = {kind for word in ([words] if isinstance(words, str) else words) for kind in _KINDS[word]}
    if set(rule) - _COMMENTS == {"type"}:
        return lambda data: type(data) in kinds
    # a rule may name itself, so it is compiled when it is met
    named = functools.cache(lambda: _compile(shared[rule["$ref"].removeprefix("#/$defs/")], shared))
    others = [_compile(one, shared) for one in rule.get("anyOf", ())]
    fields = {key: _compile(value, shared) for key, value in rule.get("properties", {}).items()}
    further = _compile(rule.get("additionalProperties", True), shared)
    item, required = _compile(rule.get("items", True), shared), set(rule.get("required", ()))
    search = re.compile(rule.get("pattern", "")).search
    lengths: list[tuple[type, str]] = [(dict, "Properties"), (list, "Items"), (str, "Length")]
    spans = {kind: (rule.get(f"min{word}", 0), rule.get(f"max{word}", math.inf)) for kind, word in lengths}
    low, high = rule.get("minimum", -math.inf), rule.get("maximum", math.inf)
    above, below = rule.get("exclusiveMinimum"), rule.get("exclusiveMaximum")

    def fits(data: Any) -> bool:
        kind = type(data)
        if kind not in kinds or (values is not None and not any(type(one) is kind and one == data for one in values)):
            return False
        if ("$ref" in rule and not named()(data)) or (others and not any(one(data) for one in others)):
            return False
        if kind in spans and not spans[kind][0] <= len(data) <= spans[kind][1]:
            return False
        if kind is dict:
            known = required <= data.keys()
            return known and all(fields.get(key, further)(value) for key, value in data.items())
        if kind is list:
            return all(map(item, data))
        if kind is str:
            return search(data) is not None
        if kind is int or kind is float:
            inside = low <= data <= high
            return inside and (above is None or data > above) and (below is None or data < below)
        return True

    return fits


def problems(data: Any, name: str) -> list[str]:
    if DIRECTORY.is_dir() and _quick(name)(data):
        return []
    validator = _validator(name)
    errors = validator.iter_errors(data) if validator else ()
    sentences = []
    for error in sorted(errors, key=lambda error: [str(part) for part in error.path]):
        parts = ("/".join(map(str, error.absolute_path)), error.message)  # a key can be anything, too
        lines = [part[: _LONGEST + 1].replace("\n", "\\n").replace("\r", "\\r") for part in parts if part]
        sentences.append(": ".join(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..." for text in lines))
    return sentences


def check(data: Any, name: str, where: str) -> None:
    found = problems(data, name)
    if found:
        more = f" (and {len(found) - _SHOWN} more)" if len(found) > _SHOWN else ""
        raise bad_input(f"{where} does not fit the {name} schema: {'; '.join(found[:_SHOWN])}{more}")
