"""JSON from files of unknown origin: bounded before it is parsed, duplicate keys and NaN reported."""

from __future__ import annotations

import json
from typing import Any

from artifacts.model import Broken

MAX_TEXT = 64 << 20
# A bracket costs a container, a comma a value: 50 times the bytes of the text
MAX_CONTAINERS, MAX_VALUES = 1_000_000, 4_000_000


def parse(data: bytes, what: str) -> Any:
    if len(data) > MAX_TEXT:
        raise Broken("bounds", f"{what} has {len(data)} bytes of JSON; at most {MAX_TEXT} are read")
    if data.count(b"[") + data.count(b"{") > MAX_CONTAINERS or data.count(b",") > MAX_VALUES:
        raise Broken("bounds", f"{what} holds more than {MAX_CONTAINERS} lists and objects")
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise Broken("malformed", f"{what} is not text: byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise Broken("malformed", f"{what} is not JSON: {error.msg} at character {error.pos}") from None
    except (RecursionError, ValueError):
        raise Broken("malformed", f"{what} is nested too deep or holds a number that is too long") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise Broken("duplicate", f"the key {twice[:100]!r} is there twice")
    return found
