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
from typing import TYPE_CHECKING, Any

from rgt import bundle
from rgt.errors import bad_input

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

DIRECTORY = bundle.SCHEMAS
_SHOWN = 3  # problems named in one sentence; the rest is counted
_LONGEST = 160  # characters of one problem


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


def problems(data: Any, name: str) -> list[str]:
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
