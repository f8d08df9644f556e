"""JSON without the module `json`, whose import compiles expressions and costs a hook more than reading does."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Context:
    """What json.JSONDecoder tells the reader in C; importing `json` itself compiles expressions that we do not need."""

    strict, object_hook, object_pairs_hook, parse_float, parse_int = False, None, None, float, int
    parse_constant, memo = float, {}  # type: ignore[var-annotated]


def read_json(raw: bytes) -> Any:
    text = raw.decode("utf-8", "replace").strip()
    try:
        import _json

        value, end = _json.make_scanner(_Context())(text, 0)  # type: ignore[arg-type]
        if end == len(text):
            return value
    except (ImportError, StopIteration, AttributeError, TypeError):
        pass
    import json

    return json.loads(text)
