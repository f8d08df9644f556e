"""Reads a pickle as data. Nothing is imported and nothing is called: a global stays a name, a call stays a node.

Example:
    pickle = read(Cursor(window, 0, MAX_PICKLE))      pickle.root, pickle.globals, pickle.faults
    judge(pickle, layout)                             adds what speaks against loading it

Time and memory are bounded by the number of opcodes and by the bytes a Cursor gives out. Readers differ in what they
make of frames and memos that no pickler writes (C's drops what is left of a frame), so those are refused. Long bytes,
such as those of arrays, stay in the file: they are a Window of it.
"""

from __future__ import annotations

import codecs
import functools
import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rgt.checkpoint.formats import pickle_names
from rgt.checkpoint.formats.container import Cursor, Window
from rgt.checkpoint.formats.pickle_names import ALLOWED, ENUMS, GETATTR
from rgt.checkpoint.layout import Broken, Layout, from_numpy

MAX_PICKLE = 64 << 20  # bytes; the pickle of a model of 10,000 tensors has 2 MB
MAX_OPCODES = 3_000_000
_LONG = 4096  # bytes that are not copied out of the file
_AT_ONCE = 8192  # bytes of opcodes between two looks at their number

# -- the machine

NESTED = "torch.storage._load_from_bytes"  # calls torch.load without weights_only
ARRAYS = ("joblib.numpy_pickle.NumpyArrayWrapper", "sklearn.externals.joblib.numpy_pickle.NumpyArrayWrapper")
_FAULTS = 10  # kept
_DO_NOT_LOAD = "do not load this file; get it from its source again"
_KEY_DEPTH = 4  # of tuples used as keys: hashing a deep one overflows the C stack


@dataclass(eq=False, slots=True)
class Global:
    module: str
    name: str
    dotted: str = field(init=False)

    def __post_init__(self) -> None:
        self.dotted = f"{self.module}.{self.name}"


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
        self.called: set[str] = set()  # names that are called, not only made without a constructor
        self.keys: set[str] = set()  # names of classes whose objects are keys of a dict
        self.faults: list[str] = []  # what no pickler writes and what runs code
        self.nested: list[bytes | Window] = []  # pickles that are loaded from inside of it
        self.sources = False  # holds classes with their source, as torch's old format does
        self.lookups = 0  # times that getattr came onto the stack for anything but a member of an enum
        self.count = 0  # opcodes so far
        self.root: Any = None
        self.end = 0  # offset behind the STOP

    def push(self, value: Any) -> None:
        if isinstance(value, Global) and value.dotted in GETATTR:
            self.lookups += 1
        self.stack.append(value)

    def fault(self, what: str) -> None:
        if len(self.faults) < _FAULTS and what not in self.faults:
            self.faults.append(what)

    def finish(self, end: int) -> Machine:
        self.root, self.end = self.pop(), end
        if not self.lookups:  # all that getattr did was to look up members of enums
            self.globals = {name: one for name, one in self.globals.items() if name not in GETATTR}
        return self

    def pop(self) -> Any:
        self.top()
        return self.stack.pop()

    def top(self) -> Any:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise Broken("malformed", "the pickle takes a value from an empty stack")
        return self.stack[-1]

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

    def call(self, function: Any, arguments: Any, made: bool = False) -> None:
        """`made`: without its constructor. getattr(Outer, "Inner"), as protocol 2 writes it, names Outer.Inner."""
        match function, arguments:
            case Global() as get, (Global() | Call(function=Global()) as owner, str(inner)) if get.dotted in GETATTR:
                if isinstance(arguments, tuple) and inner.isidentifier() and not inner.startswith("_"):
                    self.lookups -= 1
                    outer: Global = owner.function if isinstance(owner, Call) else owner  # a method of an object
                    if outer.dotted in ENUMS:  # Python 3.11.0 to 3.11.3 write members of enums so
                        self.push(Call(outer, (inner,)))
                    else:
                        self.push(self.global_(outer.module, f"{outer.name}.{inner}"))
                    return
        if not isinstance(function, Global):
            self.fault("calls a value that it computed itself")
        else:
            name, given = function.dotted, arguments if isinstance(arguments, tuple) else ()
            if name in pickle_names.RECONSTRUCTORS and given and isinstance(given[0], Global):
                bases = (part for part in given[1:2] if isinstance(part, Global))
                made, name = all(base.dotted in ALLOWED for base in bases), given[0].dotted
                function, given = given[0], ()
            if not made:
                self.called.add(name)
            if name == NESTED:
                self.nested += [part for part in given if isinstance(part, (bytes, Window))]
                if len(given) != 1 or not isinstance(given[0], (bytes, Window)):
                    self.fault(f"calls {NESTED} with something else than bytes")
            names = [part.dotted if isinstance(part, Global) else None if part is None else "" for part in given]
            fault = pickle_names.call_fault(name, given, names)
            if fault:
                self.fault(fault)
        self.push(Call(function, arguments))

    def get(self, index: Any) -> None:
        if index not in self.memo:
            raise Broken("malformed", f"the pickle refers to value {index}, which was never stored")
        self.push(self.memo[index])

    def append(self, values: list[Any]) -> None:
        target = self.top()
        if isinstance(target, list):
            target.extend(values)
        elif isinstance(target, set):
            target.update(hashable(value) for value in values)
        elif isinstance(target, Call):
            if target.state is not None:  # then `append` may be an attribute that it set
                self.fault("appends to an object whose attributes it has set")
            target.items = target.items if target.items is not None else []
            target.items.extend(values)
        else:
            raise Broken("malformed", f"the pickle appends to a {type(target).__name__}")

    def set_items(self, values: list[Any]) -> None:
        target = self.top()
        if isinstance(target, Call) and target.pairs is None:
            target.pairs = {}
        pairs = target.pairs if isinstance(target, Call) else target
        if not isinstance(pairs, dict) or len(values) % 2:
            raise Broken("malformed", f"the pickle sets keys of a {type(target).__name__}")
        for key, value in zip(values[::2], values[1::2], strict=True):
            pairs[hashable(key)] = value
            if isinstance(key, Call):
                self.keys.add(key.dotted)

    # what opcodes do; the argument is what stands behind the opcode

    def build(self, _: Any) -> None:
        state = self.pop()
        target = self.top()
        if isinstance(target, Global):
            self.fault(f"sets attributes of {target.dotted} itself")
        elif not isinstance(target, Call):
            raise Broken("malformed", f"the pickle sets attributes of a {type(target).__name__}")
        else:
            if target.state is not None:  # then __setstate__ may be an attribute that it set
                self.fault("sets the attributes of an object twice")
            for part in state if isinstance(state, tuple) else (state,):
                if isinstance(part, dict) and "__class__" in part:
                    self.fault("gives an object another class")
            target.state = state

    def reduce(self, _: Any, made: bool = False) -> None:
        arguments = self.pop()
        self.call(self.pop(), arguments, made)

    def new_object_ex(self, _: Any) -> None:
        keywords = self.pop()
        self.reduce(None, made=True)
        self.top().pairs = keywords if isinstance(keywords, dict) and keywords else None

    def old_object(self, argument: str | None) -> None:
        """OBJ has the class behind the mark, INST in its argument."""
        values = self.to_mark()
        if argument:
            self.push(self.global_(*argument.partition(" ")[::2]))  # push counts what comes onto the stack
            values.insert(0, self.pop())
        if not values:
            raise Broken("malformed", "the pickle makes an object of nothing")
        self.call(values[0], tuple(values[1:]))

    def new_dict(self, _: Any) -> None:
        values = self.to_mark()
        self.push({})
        self.set_items(values)

    def remember(self, argument: Any) -> None:
        """A pickler counts up; a far index makes C's reader reserve the room for all before it."""
        index = len(self.memo) if argument is None else argument
        if index in self.memo or not 0 <= index <= 2 * self.count + 256:
            raise Broken("malformed", f"the pickle stores value {index} out of order, as no pickler does")
        self.memo[index] = self.top()

    def persistent(self, identity: Any) -> None:
        """What is kept elsewhere: a storage; a class with its source, for which torch's old format takes the class."""
        match identity:
            case ("module", Global() as kind, *_):
                self.sources = True
                self.push(kind)
            case _:
                self.push(Persistent(identity))

    def drop(self, _: Any) -> None:
        """POP also drops a mark, which the stack of the real machine holds as a value."""
        if self.marks and self.marks[-1] == len(self.stack):
            self.marks.pop()
        else:
            self.pop()


def hashable(value: Any, depth: int = _KEY_DEPTH) -> Any:
    """A value that can be hashed without running into the depth of the C stack."""
    if isinstance(value, tuple) and depth:
        for part in value:
            hashable(part, depth - 1)
    elif not isinstance(value, (str, int, float, bytes, type(None), Global, Call, Persistent, Window)):
        raise Broken("malformed", f"the pickle uses a {type(value).__name__} as a key")
    return value


def _pushes(make: Callable[[Machine, Any], Any]) -> Callable[[Machine, Any], None]:
    return lambda machine, argument: machine.push(make(machine, argument))


_LITERALS = (
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8"
    " UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 FLOAT BINFLOAT BYTEARRAY8"
)
ACTIONS: dict[str, Callable[[Machine, Any], Any]] = {
    **dict.fromkeys(_LITERALS.split(), Machine.push),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), Machine.get),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), Machine.remember),
    "PROTO": lambda machine, argument: None,
    "REDUCE": Machine.reduce,
    "NEWOBJ": lambda machine, _: machine.reduce(None, made=True),
    **dict.fromkeys(("APPENDS", "ADDITEMS"), lambda machine, _: machine.append(machine.to_mark())),
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
    "TUPLE1": _pushes(lambda machine, _: (machine.pop(),)),
    "TUPLE2": _pushes(lambda machine, _: (machine.pop(), machine.pop())[::-1]),
    "TUPLE3": _pushes(lambda machine, _: (machine.pop(), machine.pop(), machine.pop())[::-1]),
    "DICT": Machine.new_dict,
    "APPEND": lambda machine, _: machine.append([machine.pop()]),
    "SETITEM": lambda machine, _: machine.set_items([machine.pop(), machine.pop()][::-1]),
    "SETITEMS": lambda machine, _: machine.set_items(machine.to_mark()),
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "POP": Machine.drop,
    "POP_MARK": lambda machine, _: machine.to_mark(),
    "DUP": _pushes(lambda machine, _: machine.top()),
    "GLOBAL": _pushes(lambda machine, argument: machine.global_(*argument.partition(" ")[::2])),
    "STACK_GLOBAL": _pushes(lambda machine, _: machine.global_(*(machine.pop(), machine.pop())[::-1])),
    "NEWOBJ_EX": Machine.new_object_ex,
    **dict.fromkeys(("INST", "OBJ"), Machine.old_object),
    "BUILD": Machine.build,
    "PERSID": Machine.persistent,
    "BINPERSID": lambda machine, _: machine.persistent(machine.pop()),
}


def _read_string(cursor: Cursor) -> str:
    """A string of Python 2: quoted, and any byte; arrays of that time keep their contents in one."""
    line = cursor.readline().rstrip(b"\n")
    if len(line) < 2 or line[:1] not in (b"'", b'"') or line[:1] != line[-1:]:
        raise ValueError("a string without quotes")
    return codecs.escape_decode(line[1:-1])[0].decode("latin-1")


def _read_bytes(cursor: Cursor, width: int, kind: type[Any]) -> Any:
    length = int.from_bytes(cursor.read(width), "little", signed=kind is str)
    if length >= _LONG:
        return cursor.take(length)
    data = cursor.read(length)
    return data.decode("latin-1") if kind is str else kind(data)


_READERS: dict[str, Callable[[Cursor], Any]] = {
    "STRING": _read_string,
    "BINSTRING": functools.partial(_read_bytes, width=4, kind=str),
    "BINBYTES": functools.partial(_read_bytes, width=4, kind=bytes),
    "BINBYTES8": functools.partial(_read_bytes, width=8, kind=bytes),
    "BYTEARRAY8": functools.partial(_read_bytes, width=8, kind=bytearray),
}
_OPCODES: dict[int, tuple[str, Any]] = {
    ord(opcode.code): (opcode.name, _READERS.get(opcode.name, opcode.arg and opcode.arg.reader))
    for opcode in pickletools.opcodes
}


# what _run_plain does with an opcode: the bytes of its argument, whether that is signed, and its action
_PUSH, _TEXT = object(), object()
_WIDTHS = {"BININT": 4, "BININT1": 1, "BININT2": 2, "BINPUT": 1, "LONG_BINPUT": 4, "BINGET": 1, "LONG_BINGET": 4}
_PLAIN: list[tuple[int, bool, Any] | None] = [None] * 256
for _opcode in pickletools.opcodes:
    _name, _action = _opcode.name, ACTIONS.get(_opcode.name)
    if _name == "BINUNICODE":
        _PLAIN[ord(_opcode.code)] = 4, False, _TEXT
    elif _action and _name not in ("BUILD", "STOP") and (_name in _WIDTHS or not _opcode.arg):
        _PLAIN[ord(_opcode.code)] = (
            _WIDTHS.get(_name, 0),
            _name == "BININT",
            _PUSH if _action is Machine.push else _action,
        )


def _run_plain(machine: Machine, cursor: Cursor, frame: int) -> None:
    """The opcodes in the buffer up to one that needs more: of a state dict nearly all, a million of them."""
    data, push = cursor.ahead(_AT_ONCE), machine.stack.append
    at = cursor.at
    # the opcode that a frame ends with is not plain: whether it ends there is to be looked at
    limit = min(len(data), at + _AT_ONCE, at + frame - cursor.tell() - 1 if frame >= 0 else len(data))
    while at <= limit - 5 and (plain := _PLAIN[data[at]]):
        width, signed, action = plain
        behind = at + 1 + width
        argument: Any = int.from_bytes(data[at + 1 : behind], "little", signed=signed) if width else None
        if action is _TEXT:
            behind += argument
            if behind > limit:
                break
            argument = str(data[at + 5 : behind], "utf-8", "surrogatepass")
        machine.count += 1
        if action is _PUSH or action is _TEXT:
            push(argument)
        else:
            action(machine, argument)
        at = behind
    cursor.at = at


def read(cursor: Cursor) -> Machine:
    """One pickle; the cursor stands behind it afterwards."""
    machine, frame = Machine(), -1  # where the frame ends that an opcode is in
    try:
        while True:
            _run_plain(machine, cursor, frame)
            begin = cursor.tell()
            code = cursor.read(1)
            if code[0] not in _OPCODES:
                raise ValueError(f"opcode {code!r} unknown")
            name, reader = _OPCODES[code[0]]
            argument = reader(cursor) if reader else None
            end = cursor.tell()
            machine.count += 1
            if machine.count > MAX_OPCODES:
                raise Broken("unknown", f"the pickle has more than {MAX_OPCODES} opcodes and was not read to its end")
            if frame >= 0 and (end > frame or name == "FRAME" or (name == "STOP" and end != frame)):
                message = "the pickle's opcodes cross the borders of its frames: readers differ in what they make of it"
                raise Broken("hostile", message, fix=_DO_NOT_LOAD)
            if name == "STOP":
                return machine.finish(end)
            if name == "FRAME":
                frame = end + int(argument or 0)
                continue
            # 010 is 8 in C and 10 in Python; True and False are written as 01 and 00
            odd = name == "INT" and not isinstance(argument, bool) and end - begin - 2 != len(str(argument))
            if odd or (name == "PROTO" and int(argument or 0) > 5):
                raise Broken("malformed", f"the pickle has a {name} of {argument!s:.40}, as no pickler writes it")
            if name not in ACTIONS:
                raise Broken("refused-global", f"the pickle uses {name}, which no checkpoint needs")
            ACTIONS[name](machine, argument)
            frame = -1 if end == frame else frame
            if name == "BUILD":
                _take_array(machine, cursor)
    except (ValueError, OverflowError, RecursionError, MemoryError, IndexError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise Broken("malformed", f"not a whole pickle: {reason[:200]}") from None


def _take_array(machine: Machine, cursor: Cursor) -> None:
    """joblib writes an array's bytes into the pickle, behind the object that describes it; they become its item."""
    made = machine.stack[-1]
    if not isinstance(made, Call) or made.dotted not in ARRAYS or not isinstance(made.state, dict):
        return
    described, shape = made.state.get("dtype"), made.state.get("shape")
    code = described.arguments[0] if isinstance(described, Call) and isinstance(described.arguments, tuple) else None
    if not isinstance(shape, tuple) or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise Broken("malformed", "an array of joblib has no shape")
    if code in ("O", "O8"):  # objects: a pickle of their own
        inner = read(cursor)
        machine.globals |= inner.globals
        machine.called |= inner.called
        machine.faults += inner.faults
        machine.nested += inner.nested
        made.items = [inner.root]
        return
    dtype, _ = from_numpy(code)
    if made.state.get("numpy_array_alignment_bytes") is not None:
        cursor.read(cursor.read(1)[0])
    made.items = [cursor.take(math.prod(shape) * dtype.size)]


def judge(pickle: Machine, layout: Layout, script: bool = False) -> None:
    """Add what loading it would do to the layout: hostile names as problems, unknown ones as `refused`."""
    layout.facts.setdefault("libraries", set()).update(name.partition(".")[0] for name in pickle.globals)
    unknown = [name for name in pickle.globals if not pickle_names.is_known(name, name in pickle.called, script)]
    unknown += [NESTED] if pickle.nested else []  # that nobody looked into
    hostile = sorted(name for name in unknown if name == NESTED or pickle_names.is_hostile(name))
    for name in hostile[:_FAULTS]:
        layout.error("hostile", f"the pickle wants to call {name[:120]}, which can run any code", fix=_DO_NOT_LOAD)
    for fault in pickle.faults:
        layout.error("hostile", f"the pickle {fault[:200]}", fix=_DO_NOT_LOAD)
    layout.refused += sorted({*unknown} - {*hostile, *layout.refused})
