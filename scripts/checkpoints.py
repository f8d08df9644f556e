# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy"]
# ///
"""RUN · checkpoints that survive anything: atomic and verified save, last good one, retention, index, save cadence

Example:
    store = checkpoints.Checkpoints(run, keep_last=2, best="val_loss", every=1000)
    found = store.load_latest()                     # the last good one, or None for a fresh start
    if found:
        checkpoints.restore(found.state, model=model, optimizer=optimizer)
    store.save(step, checkpoints.capture(model=model, optimizer=optimizer), metrics={"val_loss": 2.3})
    python scripts/checkpoints.py list runs/<run-id>

Writes <run>/checkpoints/step_000040.pt and <run>/checkpoints_index.json. As a library it needs torch and nothing else:
put this folder on PYTHONPATH, or copy this file and checkpointing/ beside the training code.
"""

from __future__ import annotations

import sys
import time as clock
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checkpointing import disk, index, retention
from checkpointing.cadence import Cadence, cadence
from checkpointing.errors import CheckpointError, from_os_error
from checkpointing.signals import StopSignals
from checkpointing.snapshot import Background, Snapshot
from checkpointing.state import capture, rank, restore, rng_state

__all__ = ["Cadence", "CheckpointError", "Checkpoints", "Loaded", "StopSignals", "cadence", "capture", "load_latest",
           "restore", "rng_state", "save"]  # fmt: skip


@dataclass
class Loaded:
    path: Path
    step: int
    state: dict[str, Any]
    skipped: list[str] = field(default_factory=list)  # why newer ones were not used, newest first


class Checkpoints:
    """The checkpoints of one run directory. With torch.distributed only rank 0 writes; the others may call, too."""

    def __init__(self, run: Path | str, *, keep_last: int = 2, best: str | None = None, direction: str = "down",
                 every: int | None = None) -> None:  # fmt: skip
        self.run = index.run_directory(Path(run))
        self.keep = retention.Keep(keep_last, best, direction, every)
        self._background, self._snapshot = Background(), Snapshot()

    def path(self, step: int) -> Path:
        return self.run / index.FOLDER / index.file_name(step)

    def save(self, step: int, state: Mapping[str, Any], metrics: Mapping[str, Any] | None = None, *,
             wait: bool = True) -> Path:  # fmt: skip
        """Write, verify, index, and only then delete what retention lets go.

        With wait=False training goes on as soon as the state is copied; a save that is still under way is waited for
        first, and what went wrong with it is raised here.
        """
        self._background.wait()
        if not isinstance(state, Mapping):
            raise CheckpointError(f"the state is a {type(state).__name__}; expected a dict, as capture() gives")
        whole = {**state, "step": _whole_number(step), "time": clock.time(), "metrics": dict(metrics or {})}
        if rank() != 0:
            return self.path(step)
        index.numbers(whole["metrics"])  # refuses what is no number before anything is written
        if wait:
            self._save(whole)
        else:
            taken = self._snapshot.take(whole)
            self._background.start(lambda: self._save(taken))
        return self.path(step)

    def _save(self, state: dict[str, Any]) -> None:
        """File first, index second, deletion last: killed in between, what the index names is there and whole."""
        path = self.path(state["step"])
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._sweep()
        except OSError as error:
            raise from_os_error(error, f"save {path}") from error
        name = index.relative(self.run, path)
        before = [entry for entry in index.entries(self.run) if entry["path"] != name]
        if path.exists():  # its record must not outlive it: a kill after the rename would make the new one look damaged
            index.write(self.run, before)
        written = disk.write(path, state)
        entry = {
            "path": name,
            "step": state["step"],
            "time": state["time"],
            "bytes": written.bytes,
            "metrics": index.numbers(state["metrics"]),
            "sha256": written.sha256,
            "verified": True,
        }
        everything = sorted([*before, entry], key=lambda each: (each["step"], each["time"]))
        index.write(self.run, everything)
        self._let_go(everything, entry)

    def _let_go(self, everything: list[index.Entry], newest: index.Entry) -> None:
        """Index first: what it names is there. The one just written stays even when it is not the highest step."""
        doomed = retention.doomed(everything, self.keep, retention.whole(self.run))
        gone = [entry for entry in doomed if entry is not newest and index.NAME.fullmatch(Path(entry["path"]).name)]
        if not gone:
            return
        index.write(self.run, [entry for entry in everything if entry not in gone])
        for entry in gone:
            try:
                (self.run / entry["path"]).unlink(missing_ok=True)
            except OSError as error:  # no reason to end a training: the save itself is whole
                print(f"cannot delete {entry['path']}: {error.strerror}", file=sys.stderr, flush=True)

    def _sweep(self) -> None:
        """Remove what a SIGKILL in the middle of a save left behind; nobody else writes these names."""
        for half in (*(self.run / index.FOLDER).glob(".step_*.pt.tmp"), self.run / f".{index.INDEX}.tmp"):
            half.unlink(missing_ok=True)

    def load_latest(self, map_location: Any = "cpu") -> Loaded | None:
        """The newest whose every byte checks out; None when there are none. Damaged ones are named and set aside.

        When there are some and none is good, it raises: starting over silently would cost all of the run.
        """
        known = {entry["path"]: entry for entry in index.read(self.run) or []}
        damaged: dict[Path, str] = {}
        for step, path in reversed(index.files(self.run).items()):
            try:
                state = disk.load(path, known.get(index.relative(self.run, path)), map_location)
            except disk.Damaged as why:
                damaged[path] = str(why)
            except OSError as error:
                if not disk.unreadable(error):
                    raise from_os_error(error, f"read {path}") from None
                damaged[path] = f"{error.strerror}"
            else:
                return Loaded(path, step, state, [self._set_aside(bad, why) for bad, why in damaged.items()])
        if damaged:
            first = f"{next(iter(damaged)).name}: {next(iter(damaged.values()))}"
            advice = "move them away to start over"
            raise CheckpointError(f"none of the {len(damaged)} checkpoints of {self.run} is whole ({first}); {advice}")
        return None

    def _set_aside(self, path: Path, why: str) -> str:
        """Renamed, not deleted: someone may want to look at it. By one rank only, as all of them load."""
        text = f"{path.name} is damaged ({why})"
        if rank() == 0:
            try:
                path.rename(path.with_name(f"{path.name}.damaged"))
                index.write(self.run, index.entries(self.run))
                text += f"; set aside as {path.name}.damaged, trying the one before it"
            except (OSError, CheckpointError) as error:
                text += f"; trying the one before it ({error})"
            print(text, file=sys.stderr, flush=True)
        return text

    def entries(self) -> list[index.Entry]:
        """What checkpoints_index.json says, corrected by what is on disk; oldest first."""
        return index.entries(self.run)

    def tidy(self) -> None:
        """After a resume: remove the half of a killed save, index what a kill left out, let go what is too much."""
        self.wait()
        everything = self.entries()
        if rank() == 0 and everything:
            self._sweep()
            index.write(self.run, everything)
            self._let_go(everything, everything[-1])

    def wait(self) -> None:
        """Until a save in the background is on disk; raises what went wrong with it."""
        self._background.wait()

    close = wait

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.wait()
        except CheckpointError:
            if kind is None:  # otherwise the exception that ends training is the one to see
                raise


def save(run: Path | str, step: int, state: Mapping[str, Any], metrics: Mapping[str, Any] | None = None,
         **keep: Any) -> Path:  # fmt: skip
    """Checkpoints(run, **keep).save(...) for code that has no place to hold an object."""
    return Checkpoints(run, **keep).save(step, state, metrics)


def load_latest(run: Path | str, map_location: Any = "cpu") -> Loaded | None:
    return Checkpoints(run).load_latest(map_location)


def _whole_number(step: Any) -> int:
    if isinstance(step, bool) or not hasattr(step, "__index__") or int(step) < 0:
        raise CheckpointError(f"the step is {step!r}; expected a whole number from 0")
    return int(step)


def __getattr__(name: str) -> Any:
    """The command line needs click; a training box may not have it, so it is loaded only when asked for."""
    if name == "main":
        from checkpointing.commands import main

        return main
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if __name__ == "__main__":
    from checkpointing.commands import main

    main()
