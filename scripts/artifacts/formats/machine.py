"""The pickle virtual machine with inert values: a global stays a name, a call stays a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from artifacts.formats.allowed import ENUMS
from artifacts.model import Broken

_GETATTR = ("builtins.getattr", "__builtin__.getattr")
_KEY_DEPTH = 4  # of tuples used as keys: hashing a deep one overflows the C stack


@dataclass(eq=False, slots=True)
class Global:
    module: str
    name: str

    @property
    def dotted(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False, slots=True)
class Call:
    """`function(*arguments)`, then BUILD's `state`, appended `items` and set `pairs`. Never called."""

    function: Any
    arguments: Any
    state: Any = None
    items: list[Any] | None = None
    pairs: dict[Any, Any] | None = None

    @property
    def dotted(self) -> str:
        return self.function.dotted if isinstance(self.function, Global) else ""


@dataclass(eq=False, slots=True)
class Persistent:
    """What torch stores outside of the pickle: ('storage', type, key, location, numel)."""

    id: Any


class Machine:
    """The pickle virtual machine with inert values."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.globals: dict[str, Global] = {}
        self.odd_calls = 0
        self.lookups = 0  # times that getattr came onto the stack for anything but a member of an enum

    def push(self, value: Any) -> None:
        if isinstance(value, Global) and value.dotted in _GETATTR:
            self.lookups += 1
        self.stack.append(value)

    def names(self) -> dict[str, Global]:
        """Every global; not getattr when all that it did was to look up members of enums."""
        return {name: found for name, found in self.globals.items() if self.lookups or name not in _GETATTR}

    def pop(self) -> Any:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise Broken("malformed", "the pickle takes a value from an empty stack")
        return self.stack.pop()

    def top(self) -> Any:
        value = self.pop()
        self.stack.append(value)
        return value

    def to_mark(self) -> list[Any]:
        if not self.marks:
            raise Broken("malformed", "the pickle looks for a mark that was never set")
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def global_(self, module: Any, name: Any) -> Global:
        if not isinstance(module, str) or not isinstance(name, str):
            raise Broken("malformed", "the pickle names a global by something that is not text")
        found = Global(module, name)
        return self.globals.setdefault(found.dotted, found)

    def call(self, function: Any, arguments: Any) -> None:
        if _is_member(function, arguments):
            self.lookups -= 1
            function, arguments = arguments[0], arguments[1:]
        elif not isinstance(function, Global):
            self.odd_calls += 1
        self.push(Call(function, arguments))

    def get(self, index: Any) -> None:
        if index not in self.memo:
            raise Broken("malformed", f"the pickle refers to value {index}, which was never stored")
        self.push(self.memo[index])

    def add_items(self, target: Any, values: list[Any]) -> None:
        if isinstance(target, list):
            target.extend(values)
        elif isinstance(target, set):
            target.update(hashable(value) for value in values)
        elif isinstance(target, Call):
            target.items = target.items if target.items is not None else []
            target.items.extend(values)
        else:
            raise Broken("malformed", f"the pickle appends to a {type(target).__name__}")

    def set_pairs(self, target: Any, values: list[Any]) -> None:
        if isinstance(target, Call) and target.pairs is None:
            target.pairs = {}
        pairs = target.pairs if isinstance(target, Call) else target
        if not isinstance(pairs, dict) or len(values) % 2:
            raise Broken("malformed", f"the pickle sets keys of a {type(target).__name__}")
        for key, value in zip(values[::2], values[1::2], strict=True):
            pairs[hashable(key)] = value

    def build(self) -> None:
        state = self.pop()
        target = self.top()
        if isinstance(target, Call):
            target.state = state


def _is_member(function: Any, arguments: Any) -> bool:
    """getattr(IntervalStrategy, "NO"), as some Pythons write IntervalStrategy("no")."""
    if not isinstance(function, Global) or function.dotted not in _GETATTR:
        return False
    if not isinstance(arguments, tuple) or len(arguments) != 2 or not isinstance(arguments[0], Global):
        return False
    name = arguments[1]
    return arguments[0].dotted in ENUMS and isinstance(name, str) and name.isidentifier() and not name.startswith("_")


def hashable(value: Any, depth: int = _KEY_DEPTH) -> Any:
    """A value that can be hashed without running into the depth of the C stack."""
    if isinstance(value, tuple) and depth:
        for part in value:
            hashable(part, depth - 1)
    elif not isinstance(value, (str, int, float, bytes, type(None), Global, Call, Persistent)):
        raise Broken("malformed", f"the pickle uses a {type(value).__name__} as a key")
    return value
