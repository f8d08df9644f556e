"""Runs inside an unmodified Python program for `rgt probes memory --inside`: which containers, hooks and graphs grow.

A thread counts what the garbage collector knows and appends a JSON line per look to <folder>/<pid>.jsonl. It changes
nothing but this: torch.nn.Module.train notes the mode, and a hook of torch counts optimizer steps.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import threading
import time
from collections import OrderedDict, defaultdict, deque
from typing import Any

_CONTAINERS = {list, dict, set, deque, OrderedDict, defaultdict}
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_SHARE = 0.1  # of the time that looking may take
_SHOWN = 8
_SUSPECTS = 64
_IDLE = 20  # looks without growth
_GRAPH = 1 << 16  # bytes that a graph is taken to hold
_OWN: set[int] = set()  # ids of what we hold ourselves
_CELL = "a closure's variable"
_MODES = ("training", "validation")


class Suspect:
    """A container that keeps growing, and in which mode it did."""

    def __init__(self, thing: Any) -> None:
        self.thing, self.mark = thing, len(thing)
        self.by = dict.fromkeys(_MODES, 0)

    def count(self, mode: str) -> None:
        size = len(self.thing)
        self.by[mode] += max(0, size - self.mark)
        self.mark = size


class Look:
    """What was seen so far in this process."""

    def __init__(self, folder: str, forked: bool) -> None:
        self.forked = forked
        self.path = os.path.join(folder, f"{os.getpid()}.jsonl")
        self.sizes: dict[int, int] = {}  # by id
        self.grown: dict[int, dict[str, int]] = {}  # by id: elements and looks
        self.suspects: list[Suspect] = []
        self.steps = self.evaluations = 0
        self.mode = _MODES[0]
        self.attached = False
        self.depth = 0

    def attach(self) -> None:
        """Once torch is imported: follow train and eval mode, count optimizer steps."""
        torch: Any = sys.modules.get("torch")
        if self.attached or torch is None or getattr(torch.__spec__, "_initializing", False):
            return
        self.attached, original = True, torch.nn.Module.train

        def train(module: Any, mode: bool = True) -> Any:
            self.depth += 1  # the children follow: only the outermost call counts
            try:
                return original(module, mode)
            finally:
                self.depth -= 1
                if not self.depth and next(module.children(), None) is not None and _MODES[not mode] != self.mode:
                    for suspect in self.suspects:
                        suspect.count(self.mode)
                    self.mode = _MODES[not mode]
                    self.evaluations += not mode

        torch.nn.Module.train = train

        def count(*_: Any) -> None:
            self.steps += 1

        sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(count)

    def take(self) -> dict[str, Any]:
        if self.attached and not self.steps and not self.forked:
            self.grown.clear()  # imports and building the model fill many containers
        containers, tensors, modules = self.interesting()
        _OWN.clear()
        own = {id(self.sizes), id(self.grown), id(self.__dict__), id(self.suspects), id(_OWN)}
        kept = {}
        for thing in containers:
            place, size = id(thing), len(thing)
            before = self.sizes.get(place, size + 1)
            self.sizes[place] = size
            if size < before:
                self.grown.pop(place, None)  # a new object, or one that is emptied again
            elif size > before and place not in own:
                growth = self.grown.setdefault(place, {"elements": 0, "looks": 0, "idle": 0})
                growth["elements"] += size - before
                growth["looks"] += 1
                growth["idle"] = -1
            if place in self.grown:
                self.grown[place]["idle"] += 1
                kept[place] = thing
        _OWN.update((id(kept), id(tensors), id(modules)))
        if len(self.sizes) > 2 * len(containers):
            self.sizes = {id(thing): len(thing) for thing in containers}  # without those that are gone
        containers.clear()
        known = {id(suspect.thing): suspect for suspect in self.suspects}
        # one that stopped growing is let go: nothing of the program is kept alive for long
        self.grown = {place: growth for place, growth in self.grown.items() if place in kept and growth["idle"] < _IDLE}
        growing = [(place, kept[place]) for place, growth in self.grown.items() if growth["looks"] >= 3][:_SUSPECTS]
        self.suspects = [known.get(place) or Suspect(thing) for place, thing in growing]
        return {
            "steps": self.steps,
            "evaluations": self.evaluations,
            "tensors": len(tensors),
            "graph_tensors": sum(tensor.grad_fn is not None for tensor in tensors),
            "hooks": sum(len(module.__dict__.get(name) or ()) for module in modules for name in HOOKS),
            "growing": self.holders(),
        }

    def interesting(self) -> tuple[list[Any], list[Any], list[Any]]:
        """Containers, tensors and modules of a few hundred thousand objects: by type, which is quick."""
        torch: Any = sys.modules.get("torch") if self.attached else None
        objects = gc.get_objects()
        kinds = set(map(type, objects))
        bases = (torch.Tensor, torch.nn.Module) if torch else ()
        tensors, modules = ({kind for kind in kinds if issubclass(kind, base)} for base in bases or ((), ()))
        return (
            [thing for thing in objects if type(thing) in _CONTAINERS],
            [thing for thing in objects if type(thing) in tensors],
            [thing for thing in objects if type(thing) in modules],
        )

    def holders(self) -> list[dict[str, Any]]:
        """Containers that keep growing, the heaviest growth first."""
        rows: list[tuple[dict[str, Any], Any]] = []
        for suspect in self.suspects:
            with contextlib.suppress(Exception):  # the program goes on meanwhile
                suspect.count(self.mode)
                thing, (weight, graph) = suspect.thing, last_weight(suspect.thing)
                growth = self.grown[id(thing)]
                row = {"kind": type(thing).__name__, "length": len(thing), "by": suspect.by, **growth}
                rows.append(({**row, "each": weight, "graph": graph}, thing))
        rows.sort(key=lambda pair: -pair[0]["elements"] * (pair[0]["each"] + (_GRAPH if pair[0]["graph"] else 0)))
        _OWN.add(id(rows))
        return [{**row, "name": name_of(thing)} for row, thing in rows[:_SHOWN]]


def last_weight(thing: Any) -> tuple[int, bool]:
    """Bytes of the newest element, and whether it drags a graph along."""
    if isinstance(thing, dict):
        newest = next(reversed(list(thing.values())), None)
    elif isinstance(thing, (list, deque)):
        newest = thing[-1]
    else:
        newest = next(iter(thing))
    return weigh(newest, 3), getattr(newest, "grad_fn", None) is not None


def weigh(thing: Any, depth: int) -> int:
    size = getattr(thing, "nbytes", None)  # tensors and arrays
    if isinstance(size, int):
        return size
    if hasattr(thing, "__code__"):  # a hook keeps what it closes over
        thing = [*(thing.__defaults__ or ()), *(cell.cell_contents for cell in thing.__closure__ or ())]
    parts = (
        list(thing.values())[:32]
        if isinstance(thing, dict)
        else list(thing)[:32]
        if depth and type(thing) in (list, tuple)
        else []
    )
    return sys.getsizeof(thing) + sum(weigh(part, depth - 1) for part in parts if depth)


def name_of(thing: Any, depth: int = 3) -> str:
    """Where the program holds it: a local, a global, an attribute."""
    name = local_name(thing)
    for holder in [] if name else gc.get_referrers(thing):
        name = held_by(holder, thing, depth)
        if name and name != _CELL:
            break
    return name


def local_name(thing: Any) -> str:
    for identity, frame in list(sys._current_frames().items()):
        at: Any = frame if identity != threading.get_ident() else None
        while at is not None:
            name = key_of(thing, at.f_locals)
            if name is not None:
                code = at.f_code
                where = "the module" if code.co_name == "<module>" else f"{code.co_name}()"
                return f"{name} in {where}, {os.path.basename(code.co_filename)}:{at.f_lineno}"
            at = at.f_back
    return ""


def held_by(holder: Any, thing: Any, depth: int) -> str:
    if id(holder) in _OWN or type(holder) is Suspect:
        return ""
    if isinstance(holder, dict):
        key = key_of(thing, holder)
        if key is None:
            return ""
        if "__name__" in holder and "__spec__" in holder:
            return f"global {key} of {holder['__name__']}"
        owner = next((one for one in gc.get_referrers(holder) if getattr(one, "__dict__", None) is holder), None)
        if owner is not None:
            return f"{key} of {type(owner).__name__}"
        return f"[{key!r}] of {name_of(holder, depth - 1) if depth else 'a dict'}"[:200]
    if type(holder).__name__ == "cell":
        closures = [one for one in gc.get_referrers(holder) if type(one) is tuple]
        functions = [one for closure in closures for one in gc.get_referrers(closure) if hasattr(one, "__code__")]
        named = ((one, one.__closure__.index(holder)) for one in functions if holder in (one.__closure__ or ()))
        return next((f"{one.__code__.co_freevars[index]} of {one.__qualname__}" for one, index in named), _CELL)
    if type(holder) in (list, deque):
        return f"an element of {name_of(holder, depth - 1)}"[:200] if depth and len(holder) < 100_000 else ""
    key = key_of(thing, getattr(holder, "__dict__", None) or {})
    return f"{key} of {holder.__name__ if isinstance(holder, type) else type(holder).__name__}" if key else ""


def key_of(thing: Any, mapping: Any) -> Any:
    return next((key for key, value in list(mapping.items()) if value is thing), None)


def watch(folder: str, forked: bool) -> None:
    look, pause = Look(folder, forked), 0.25
    while True:
        time.sleep(pause)
        start = time.thread_time()
        with contextlib.suppress(Exception):  # never the program's problem
            look.attach()
            row = {"time": time.time(), "pid": os.getpid(), **look.take()}
            with open(look.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        pause = max(0.25, (time.thread_time() - start) / _SHARE)


def begin(folder: str, forked: bool) -> None:
    threading.Thread(target=watch, args=(folder, forked), daemon=True, name="rgt-inside").start()
