"""Reads a pickle as data. Nothing is imported and nothing is called: a global stays a name, a call stays a node.

Example:
    pickle = read(Cursor(window, 0, MAX_PICKLE))      pickle.root, pickle.globals

Time and memory are bounded by the number of opcodes and by the bytes a Cursor gives out.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass
from typing import Any

from artifacts.formats.machine import Global, Machine
from artifacts.formats.opcodes import ACTIONS
from artifacts.formats.window import Cursor
from artifacts.model import Broken

MAX_PICKLE = 64 << 20  # bytes; the pickle of a model of 10,000 tensors has 2 MB
MAX_OPCODES = 3_000_000


@dataclass
class Pickle:
    root: Any
    globals: dict[str, Global]
    end: int  # offset behind the STOP
    odd_calls: int  # calls of something that is not a name


def read(cursor: Cursor) -> Pickle:
    """One pickle; the cursor stands behind it afterwards."""
    machine = Machine()
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(cursor)):  # type: ignore[arg-type]
            if count > MAX_OPCODES:
                raise Broken("bounds", f"the pickle has more than {MAX_OPCODES} opcodes")
            if opcode.name == "STOP":
                break
            action = ACTIONS.get(opcode.name)
            if action is None:
                raise Broken("refused-global", f"the pickle uses {opcode.name}, which no checkpoint needs")
            action(machine, argument)
        return Pickle(machine.pop(), machine.names(), cursor.tell(), machine.odd_calls)
    except Broken:
        raise
    except (ValueError, OverflowError, RecursionError, MemoryError, IndexError) as error:
        raise Broken(cursor.verdict(), f"not a whole pickle: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    return (str(error).partition("\n")[0] or type(error).__name__)[:200]
