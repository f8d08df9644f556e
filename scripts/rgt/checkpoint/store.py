"""For a training loop: save to a run directory, load the last good checkpoint, restore it, stop after a step.

Example:
    store = Checkpoints(run, keep_last=2, best="val_loss", every=1000)
    found = store.load_latest()                     the last good one, or None for a fresh start
    store.save(step, state, metrics={"val_loss": 2.3})

    stop = StopSignals()                            SIGTERM and SIGUSR1 as a stop request
    for batch in loader:
        train_step(batch)
        if stop.requested():                        with several ranks: all of them answer the same
            store.save(step, state)
            sys.exit(stop.exit_code)                143 after SIGTERM, 138 after SIGUSR1
"""

from __future__ import annotations

import errno
import os
import random
import signal
import sys
import threading
import time as clock
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from rgt.checkpoint import index, names, saved_file, whole
from rgt.checkpoint.index import Keep
from rgt.errors import RgtError, bad_input, from_os_error


@dataclass
class Loaded:
    path: Path
    step: int
    state: dict[str, Any]
    skipped: list[str] = field(default_factory=list)  # why newer ones were not used, newest first


class Checkpoints:
    """The checkpoints of one run directory. With torch.distributed only rank 0 writes; the others may call, too."""

    def __init__(
        self,
        run: Path | str,
        *,
        keep_last: int = 2,
        best: str | None = None,
        direction: str = "down",
        every: int | None = None,
    ) -> None:
        self.run = index.run_directory(Path(run))
        self.keep = Keep(keep_last, best, direction, every)

    def path(self, step: int) -> Path:
        return self.run / index.FOLDER / names.own(step)

    def save(self, step: int, state: Mapping[str, Any], metrics: Mapping[str, Any] | None = None) -> Path:
        """Write, verify, index, and only then delete what retention lets go: the index names only what is there."""
        if not isinstance(state, Mapping):
            raise bad_input(f"the state is a {type(state).__name__}; expected a dict, as capture() gives")
        if isinstance(step, bool) or not hasattr(step, "__index__") or int(step) < 0:
            raise bad_input(f"the step is {step!r}; expected a whole number from 0")
        path = self.path(step)
        if rank() != 0:
            return path
        saved = {**state, "step": int(step), "time": clock.time(), "metrics": dict(metrics or {})}
        numbers = index.numbers(saved["metrics"])  # refuses what is no number before anything is written
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            index.sweep(self.run)
        except OSError as error:
            raise from_os_error(error, f"save {path}") from error
        name = index.relative(self.run, path)
        entry = {"path": name, "step": saved["step"], "time": saved["time"], "metrics": numbers}
        if path.exists():  # its record must not outlive it: a kill after the rename would make the new one look damaged
            index.write(self.run, [old for old in index.entries(self.run) if old["path"] != name])
        written = saved_file.write(path, saved)
        entry |= {"bytes": written.size, "sha256": written.sha256, "verified": True}
        self._let_go(index.record(self.run, entry), path)
        return path

    def _let_go(self, listed: list[index.Entry], newest: Path) -> None:
        """The one just written stays even when it is not the highest step; only files of ours are ever deleted."""

        def good(entry: index.Entry) -> bool:
            path = self.run / entry["path"]  # it was read back when it was written: a look at its headers is enough
            return names.own_step(path.name) is not None and whole.verdict(path, read=0).whole

        gone = [entry for entry in self.keep.doomed(listed, good) if self.run / entry["path"] != newest]
        if gone:
            index.delete(self.run, listed, gone)

    def load_latest(self, map_location: Any = "cpu") -> Loaded | None:
        """The newest whose every byte checks out; None when there are none. Damaged ones are named and set aside.

        When there are some and none is good, it raises: starting over silently would cost all of the run.
        """
        known = {entry["path"]: entry for entry in index.read(self.run) or []}
        damaged: dict[Path, str] = {}
        for step, path in reversed(index.on_disk(self.run / index.FOLDER)):
            if names.own_step(path.name) is None:
                continue
            try:
                state = saved_file.load(path, known.get(index.relative(self.run, path), {}), map_location)
            except saved_file.Damaged as why:
                damaged[path] = str(why)
            except OSError as error:
                if error.errno != errno.EIO:  # a bad sector damages this file; another error says nothing about it
                    raise from_os_error(error, f"read {path}") from None
                damaged[path] = f"{error.strerror}"
            else:
                return Loaded(path, step, state, [self._set_aside(bad, why) for bad, why in damaged.items()])
        if damaged:
            first = f"{next(iter(damaged)).name}: {next(iter(damaged.values()))}"
            advice = "move them away to start over"
            raise bad_input(f"none of the {len(damaged)} checkpoints of {self.run} is whole ({first}); {advice}")
        return None

    def _set_aside(self, path: Path, why: str) -> str:
        """By one rank only, as all of them load."""
        text = f"{path.name} is damaged ({why})"
        if rank() == 0:
            try:
                text += f"; set aside as {index.set_aside(self.run, path).name}, trying the one before it"
            except (OSError, RgtError) as error:
                text += f"; trying the one before it ({error})"
            print(text, file=sys.stderr, flush=True)
        return text

    def entries(self) -> list[index.Entry]:
        """What checkpoints_index.json says, corrected by what is on disk; oldest first."""
        return index.entries(self.run)

    def tidy(self) -> None:
        """After a resume: remove the half of a killed save, index what a kill left out, let go what is too much."""
        listed = self.entries()
        if rank() == 0 and listed:
            index.sweep(self.run)
            index.write(self.run, listed)
            self._let_go(listed, self.run / listed[-1]["path"])


# -- everything that changes while training, taken apart into what torch.load(weights_only=True) accepts, and put back


def capture(**parts: Any) -> dict[str, Any]:
    """The state of each part, and of all random generators. A collective call when torch.distributed is up.

    A part (model, optimizer, scheduler, scaler, ema, sampler, ...) is an object with state_dict(), or the state itself;
    lists and dicts of parts work too.
    """
    generators: list[Any] = [rng_state()] * world()
    if ranks := distributed():
        ranks.all_gather_object(generators, rng_state())
    return {**{name: _state_of(part) for name, part in parts.items() if part is not None}, "rng": generators}


def _state_of(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _state_of(each) for name, each in part.items()}
    if isinstance(part, (list, tuple)):
        return type(part)(_state_of(each) for each in part)
    part = _unwrap(part)
    return part.state_dict() if hasattr(part, "state_dict") else part


def _unwrap(model: Any) -> Any:
    """Without DistributedDataParallel and torch.compile around it, whose prefixes a plain model does not know."""
    if getattr(model, "_orig_mod", None) is not None:
        return _unwrap(model._orig_mod)
    wrapped = type(model).__name__ in ("DistributedDataParallel", "DataParallel")
    return _unwrap(model.module) if wrapped else model


def restore(state: dict[str, Any], **parts: Any) -> list[str]:
    """Put the state back into the objects and the random generators; gives the names that nobody asked for.

    The parts are the ones given to capture(). A part that the checkpoint lacks is an error, not a fresh start of it.
    """
    for name, part in parts.items():
        if name not in state:
            held = ", ".join(sorted(map(str, state)))
            raise bad_input(f"the checkpoint has no {name!r}; it holds {held}. Leave it out to start it afresh")
        _load_into(part, state[name], name)
    if "rng" in state:
        restore_rng(state["rng"])
    return sorted(set(state) - set(parts) - {"rng", "step", "time", "metrics"})


def _load_into(part: Any, state: Any, name: str) -> None:
    if isinstance(part, (list, tuple)) and len(part) != len(state):
        raise bad_input(f"the checkpoint has {len(state)} of {name!r}, and {len(part)} are to be restored")
    if isinstance(part, (dict, list, tuple)):
        for key, each in part.items() if isinstance(part, dict) else enumerate(part):
            if isinstance(part, dict) and key not in state:
                raise bad_input(f"the checkpoint's {name!r} has no {key!r}")
            _load_into(each, state[key], f"{name}.{key}")
        return
    part = _unwrap(part)
    if not hasattr(part, "load_state_dict"):
        what = f"{name!r} is a {type(part).__name__} without load_state_dict"
        raise bad_input(f"{what}; take state[{name!r}] yourself")
    try:
        part.load_state_dict(state)
    except (ValueError, KeyError, RuntimeError) as error:  # torch has a line for each of a thousand names
        seen = " ".join(str(error).split())[:200]
        raise bad_input(f"the checkpoint's {name!r} does not fit this {type(part).__name__}: {seen}") from None


# -- random generators


def rng_state() -> dict[str, Any]:
    """Of python, torch, and numpy and CUDA when they are in use, of this process."""
    import torch

    state: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, keys, *rest = numpy.random.get_state()
        state["numpy"] = (kind, keys.tolist(), *map(float, rest))  # weights_only refuses arrays
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        # a rank has one device; asking for all would start a context on each of the others
        state["cuda"] = [torch.cuda.get_rng_state()] if world() > 1 else torch.cuda.get_rng_state_all()
    return state


def restore_rng(states: list[dict[str, Any]]) -> None:
    """This rank's. With another number of ranks than at the save there is none: then say so and leave them alone."""
    import torch

    if len(states) != world():
        ranks = f"the checkpoint has the random state of {len(states)} ranks, this run has {world()}"
        print(f"{ranks}: generators are left as seeded, and the run is not bit-equal from here", file=sys.stderr)
        return
    state = states[rank()]
    random.setstate(state["python"])
    torch.set_rng_state(state["torch"])
    if "numpy" in state:
        import numpy

        kind, keys, position, has_gauss, gauss = state["numpy"]
        numpy.random.set_state((kind, keys, int(position), int(has_gauss), gauss))
    if "cuda" in state and torch.cuda.is_available():
        if len(state["cuda"]) > 1:
            torch.cuda.set_rng_state_all(state["cuda"])
        else:
            torch.cuda.set_rng_state(state["cuda"][0])


def distributed() -> Any:
    """torch.distributed when it is up, else None; torch is not imported for this."""
    torch = sys.modules.get("torch")
    up = torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed if up and torch else None


def rank() -> int:
    return int(distributed().get_rank()) if distributed() else 0


def world() -> int:
    return int(distributed().get_world_size()) if distributed() else 1


# -- stop signals


SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
AGAIN = 10.0  # seconds: launchers repeat a signal at once (Slurm to every process, torchrun once more to its workers)


class StopSignals:
    """The handler takes a note and nothing else: saving inside of it could cut another save in half.

    The same signal once more, `again` seconds after the first or later, means "now": the process ends with the same
    exit code, and what was saved last stays whole. `then` is called at each signal, such as to end a child process.
    """

    def __init__(self, signals: tuple[signal.Signals, ...] = SIGNALS, again: float = AGAIN) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise bad_input("signals can only be caught in the main thread; make StopSignals() there")
        self.seen: dict[int, float] = {}
        self.again = again
        self.then: Callable[[], None] | None = None
        self._before: dict[int, Any] = {number: signal.signal(number, self._note) for number in signals}

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = clock.monotonic()
        if now - self.seen.setdefault(number, now) >= self.again:
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"second signal: ending without another save\n")
            os._exit(128 + number)
        if self.then:
            self.then()

    @property
    def number(self) -> int:
        """The signal that came first, 0 when none did."""
        return min(self.seen, key=lambda number: self.seen[number], default=0)

    @property
    def exit_code(self) -> int:
        """What a shell shows for a process that ended on that signal; 0 when none came."""
        return 128 + self.number if self.number else 0

    def requested(self) -> bool:
        """Whether to save and end. A collective call when torch.distributed is up: every rank must make it.

        A signal reaches ranks at different steps, or only one of them; they must stop at the same step or hang.
        """
        number, ranks = self.number, distributed()
        if ranks:
            import torch

            flag = torch.tensor([number], device="cuda" if ranks.get_backend() == "nccl" else "cpu")
            ranks.all_reduce(flag, op=ranks.ReduceOp.MAX)
            number = int(flag.item())
        if number and not self.number:
            self.seen[number] = clock.monotonic()  # another rank's signal: the same exit code on all
        return number != 0

    def restore(self) -> None:
        """The handlers from before; for code that goes on after training."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
