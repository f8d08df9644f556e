"""YAML that a stranger may have written: no object is made, a key twice is an error, aliases cannot explode.

Example:
    parse("a: 1\na: 2")      YamlError: line 2: the key a is there twice
"""

from __future__ import annotations

from typing import Any

import yaml

_VALUES = 200_000  # of a file with its aliases written out; a config has hundreds


class YamlError(ValueError):
    """What is wrong, in one line."""


def parse(text: str) -> Any:
    """Plain values only: of a tagged one (Lightning's hparams.yaml names classes) what it holds."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if _size(node, {}) > _VALUES:
            raise YamlError(f"its aliases make more than {_VALUES} values of it")
        return loader.construct_document(node)
    except YamlError:
        raise
    except RecursionError:
        raise YamlError("it is nested too deep") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2026-02-30
        raise YamlError(" ".join(str(error).split())[:200]) from None


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[tuple[str, str]] = set()
        for key, _ in node.value:
            name = (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else ("", "")
            if name in keys and key.value != "<<":
                raise YamlError(f"line {key.start_mark.line + 1}: the key {key.value[:60]} is there twice")
            if name[0]:
                keys.add(name)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: Any) -> str:
        """JSON escapes an emoji as a surrogate pair, which YAML does not join; a lone surrogate cannot be encoded."""
        text = str(super().construct_scalar(node))
        return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16")


def _inside(loader: _Loader, _: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node)
    return loader.construct_sequence(node) if isinstance(node, yaml.SequenceNode) else node.value


_Loader.add_multi_constructor("", _inside)


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """Values of a node with its aliases written out; a node inside itself counts as too many."""
    if id(node) not in known:
        known[id(node)] = _VALUES + 1
        below = node.value if isinstance(node, yaml.CollectionNode) else []
        parts = [part for entry in below for part in (entry if isinstance(entry, tuple) else (entry,))]
        known[id(node)] = min(_VALUES + 1, 1 + sum(_size(part, known) for part in parts))
    return known[id(node)]
