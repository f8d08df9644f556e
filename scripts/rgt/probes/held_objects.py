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
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_SHARE = 0.1  # of the time that looking may take
_SHOWN = 8
_SUSPECTS = 64
_LOOKS = 3  # in which a container has grown, before it is suspected
_IDLE = 20  # looks without growth, after which a container is let go: nothing is kept alive for long
_GRAPH = 1 << 16  # bytes that a graph is taken to hold
_MODES = ("training", "validation")


class Suspect:
    """A container that keeps growing: by how much since it is suspected, and in which mode."""

    def __init__(self, thing: Any) -> None:
        self.thing, self.size = thing, len(thing)
        self.idle = self.told = 0
        self.by = dict.fromkeys(_MODES, 0)  # elements

    def count(self, mode: str) -> None:
        more = len(self.thing) - self.size
        self.size += more
        self.by[mode] += more
        if more < 0:  # it is emptied again
            self.by, self.told = dict.fromkeys(_MODES, 0), 0

    def look(self, mode: str) -> None:
        self.count(mode)
        grew = sum(self.by.values()) > self.told
        self.told = sum(self.by.values())
        self.idle = 0 if grew else self.idle + 1

    def as_dict(self) -> dict[str, Any]:
        """With the weight of its newest element, and whether that drags a graph along."""
        thing = self.thing
        newest = next(reversed(list(thing.values() if isinstance(thing, dict) else thing)))
        facts = {"kind": type(thing).__name__, "length": len(thing), "by": self.by, "elements": sum(self.by.values())}
        return {**facts, "each": weigh(newest, 3), "graph": getattr(newest, "grad_fn", None) is not None}


class Look:
    """What was seen so far in this process."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}  # of all containers, by id
        self.grown: dict[int, int] = {}  # in so many looks, by id: what is only passing by is not kept alive
        self.suspects: dict[int, Suspect] = {}
        self.steps = self.evaluations = self.depth = 0
        self.mode = _MODES[0]
        self.attached = False

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
                    for suspect in list(self.suspects.values()):
                        suspect.count(self.mode)
                    self.mode = _MODES[not mode]
                    self.evaluations += not mode

        torch.nn.Module.train = train

        def count(*_: Any) -> None:
            if not self.steps:  # imports and building the model fill many containers
                self.suspects.clear()
                self.grown.clear()
            self.steps += 1

        sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(count)

    def take(self) -> dict[str, Any]:
        """Count tensors and hooks, and follow the containers that grow."""
        torch: Any = sys.modules.get("torch")
        objects = gc.get_objects()  # a few hundred thousand: looked through by type, which is quick
        kinds = set(map(type, objects))
        bases = (torch.Tensor, torch.nn.Module) if torch and hasattr(torch, "nn") else ((), ())
        tensor_kinds, module_kinds = ({kind for kind in kinds if issubclass(kind, base)} for base in bases)
        tensors = [thing for thing in objects if type(thing) in tensor_kinds]
        modules = [thing for thing in objects if type(thing) in module_kinds]
        containers = [thing for thing in objects if type(thing) in _CONTAINERS]
        del objects
        own = {id(self.sizes), id(self.grown), id(self.suspects)}
        for thing in containers:  # in place: what we allocate ourselves is noise in the memory that is watched
            place, size = id(thing), len(thing)
            before = self.sizes.get(place, size)
            self.sizes[place] = size
            if size < before:
                self.grown.pop(place, None)  # another object, or one that is emptied again
            elif size > before and place not in self.suspects and place not in own:
                self.grown[place] = self.grown.get(place, 0) + 1
                if self.grown[place] >= _LOOKS and len(self.suspects) < _SUSPECTS:
                    self.suspects[place] = Suspect(thing)
        if len(self.sizes) > 2 * len(containers):
            self.sizes = {id(thing): len(thing) for thing in containers}  # without those that are gone
        for place, suspect in list(self.suspects.items()):
            suspect.look(self.mode)
            if suspect.idle > _IDLE:
                del self.suspects[place]
                self.grown.pop(place, None)
        return {
            "steps": self.steps,
            "evaluations": self.evaluations,
            "tensors": len(tensors),
            "tensor_bytes": sum(tensor.numel() * tensor.element_size() for tensor in tensors),
            "graph_tensors": sum(tensor.grad_fn is not None for tensor in tensors),
            "hooks": hook_count(modules),
        }

    def holders(self) -> list[dict[str, Any]]:
        """Containers that keep growing, the heaviest growth first, with their names."""
        rows = []
        for suspect in list(self.suspects.values()):
            with contextlib.suppress(Exception):  # the program goes on meanwhile
                if suspect.told:
                    rows.append((suspect.as_dict(), suspect))
        rows.sort(key=lambda pair: -pair[0]["elements"] * (pair[0]["each"] + (_GRAPH if pair[0]["graph"] else 0)))
        return [{**row, "name": name_of(suspect.thing)} for row, suspect in rows[:_SHOWN]]


def hook_count(modules: Any) -> int:
    return sum(len(module.__dict__.get(name) or ()) for module in modules for name in _HOOKS)


def weigh(thing: Any, depth: int) -> int:
    size = getattr(thing, "nbytes", None)  # tensors and arrays
    if isinstance(size, int):
        return size
    if hasattr(thing, "__code__"):  # a hook keeps what it closes over
        thing = [*(thing.__defaults__ or ()), *(cell.cell_contents for cell in thing.__closure__ or ())]
    parts = list(thing.values()) if isinstance(thing, dict) else thing if type(thing) in (list, tuple) else ()
    return sys.getsizeof(thing) + (sum(weigh(part, depth - 1) for part in parts[:32]) if depth else 0)


def name_of(thing: Any, depth: int = 3) -> str:
    """Where the program holds it: a local, a global, an attribute."""
    name = local_name(thing)
    for holder in [] if name else gc.get_referrers(thing):
        name = held_by(holder, thing, depth)
        if name:
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
    if isinstance(holder, Suspect) or (type(holder) is dict and "told" in holder and holder.get("thing") is thing):
        return ""  # it is ours
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
        return next((f"{one.__code__.co_freevars[index]} of {one.__qualname__}" for one, index in named), "")
    if type(holder) in (list, deque):
        return f"an element of {name_of(holder, depth - 1)}"[:200] if depth and len(holder) < 100_000 else ""
    key = key_of(thing, getattr(holder, "__dict__", None) or {})
    return f"{key} of {holder.__name__ if isinstance(holder, type) else type(holder).__name__}" if key else ""


def key_of(thing: Any, mapping: Any) -> Any:
    return next((key for key, value in list(mapping.items()) if value is thing), None)


def watch(folder: str) -> None:
    look, pause = Look(), 0.25
    path = os.path.join(folder, f"{os.getpid()}.jsonl")
    while True:
        time.sleep(pause)
        start = time.thread_time()
        with contextlib.suppress(Exception):  # never the program's problem
            look.attach()
            row = {"time": time.time(), "pid": os.getpid(), **look.take(), "growing": look.holders()}
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        pause = max(0.25, (time.thread_time() - start) / _SHARE)


def begin(folder: str, forked: bool) -> None:
    threading.Thread(target=watch, args=(folder,), daemon=True, name="rgt-inside").start()
