"""What each pickle opcode does to the machine of pickles.py; an opcode that is not here is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from artifacts.formats.machine import Machine, Persistent, hashable
from artifacts.model import Broken


def _pushes(make: Callable[[Machine, Any], Any]) -> Callable[[Machine, Any], None]:
    return lambda machine, argument: machine.push(make(machine, argument))


def _tuple(count: int) -> Callable[[Machine, Any], None]:
    return _pushes(lambda machine, _: tuple(reversed([machine.pop() for _ in range(count)])))


def _reduce(machine: Machine, _: Any) -> None:
    arguments = machine.pop()
    machine.call(machine.pop(), arguments)


def _new_object_ex(machine: Machine, _: Any) -> None:
    keywords, arguments = machine.pop(), machine.pop()
    machine.call(machine.pop(), arguments)
    machine.top().state = keywords


def _old_object(machine: Machine, _: Any) -> None:
    values = machine.to_mark()
    if not values:
        raise Broken("malformed", "the pickle makes an object of nothing")
    machine.call(values[0], tuple(values[1:]))


def _instance(machine: Machine, argument: str) -> None:
    arguments = tuple(machine.to_mark())
    machine.push(machine.global_(*_two(argument)))  # the machine counts what comes onto its stack
    machine.call(machine.pop(), arguments)


def _two(argument: str) -> tuple[str, str]:
    module, _, name = argument.partition(" ")
    return module, name


def _stack_global(machine: Machine, _: Any) -> None:
    name = machine.pop()
    machine.push(machine.global_(machine.pop(), name))


def _append(machine: Machine, _: Any) -> None:
    value = machine.pop()
    machine.add_items(machine.top(), [value])


def _set_item(machine: Machine, _: Any) -> None:
    value, key = machine.pop(), machine.pop()
    machine.set_pairs(machine.top(), [key, value])


def _append_all(machine: Machine, _: Any) -> None:
    values = machine.to_mark()
    machine.add_items(machine.top(), values)


def _set_items(machine: Machine, _: Any) -> None:
    values = machine.to_mark()
    machine.set_pairs(machine.top(), values)


def _dict(machine: Machine, _: Any) -> None:
    values = machine.to_mark()
    machine.push({})
    machine.set_pairs(machine.top(), values)


def _remember(machine: Machine, argument: Any) -> None:
    machine.memo[len(machine.memo) if argument is None else argument] = machine.top()


def _pop(machine: Machine, _: Any) -> None:
    """POP also drops a mark, which the stack of the real machine holds as a value."""
    if machine.marks and machine.marks[-1] == len(machine.stack):
        machine.marks.pop()
    else:
        machine.pop()


_LITERALS = (
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8"
    " UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 FLOAT BINFLOAT BYTEARRAY8"
)
ACTIONS: dict[str, Callable[[Machine, Any], Any]] = {
    **dict.fromkeys(_LITERALS.split(), Machine.push),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), Machine.get),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _remember),
    **dict.fromkeys(("PROTO", "FRAME"), lambda machine, argument: None),
    **dict.fromkeys(("REDUCE", "NEWOBJ"), _reduce),
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_SET": lambda machine, _: machine.push(set()),
    "LIST": _pushes(lambda machine, _: machine.to_mark()),
    "TUPLE": _pushes(lambda machine, _: tuple(machine.to_mark())),
    "FROZENSET": _pushes(lambda machine, _: frozenset(map(hashable, machine.to_mark()))),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "DICT": _dict,
    "APPEND": _append,
    "APPENDS": _append_all,
    "ADDITEMS": _append_all,
    "SETITEM": _set_item,
    "SETITEMS": _set_items,
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "POP": _pop,
    "POP_MARK": lambda machine, _: machine.to_mark(),
    "DUP": _pushes(lambda machine, _: machine.top()),
    "GLOBAL": _pushes(lambda machine, argument: machine.global_(*_two(argument))),
    "STACK_GLOBAL": _stack_global,
    "NEWOBJ_EX": _new_object_ex,
    "INST": _instance,
    "OBJ": _old_object,
    "BUILD": lambda machine, _: machine.build(),
    "PERSID": _pushes(lambda machine, argument: Persistent(argument)),
    "BINPERSID": _pushes(lambda machine, _: Persistent(machine.pop())),
}
