"""HANDOFF.md: one block per launch, failure, decision or commit, each saying only what changed since the last one.

## 2026-11-16T06:40:00Z failure → stop

- hypothesis: the spike at step 900 is shard 17, not the learning rate
- next: `python train.py --resume ckpt.pt --skip-shard 17`
- state run runs/a: step 912 of 5000, loss nan; newest checkpoint step_900.pt
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from inventory.screen import key_metrics
from inventory.snapshot import Snapshot
from inventory.survey import Run
from rgt import logs
from rgt.errors import bad_input, from_os_error

_RUNS = 5  # newest runs in a block, beside those that are alive
_STATE = "- state "
_GONE = "gone"
_LONGEST = 300


@dataclass
class Block:
    event: str
    decision: str
    hypothesis: str
    next: str
    paths: list[str]
    note: str
    state: dict[str, str]

    def render(self, known: dict[str, str], now: float) -> str:
        """The block, with only those states that differ from `known`."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
        tick = "``" if "`" in self.next else "`"
        rows = [f"## {stamp} {self.event} → {self.decision}", "", f"- hypothesis: {self.hypothesis}"]
        rows.append(f"- next: {tick}{' ' * (len(tick) - 1)}{self.next}{' ' * (len(tick) - 1)}{tick}")
        rows += [f"- paths: {', '.join(self.paths)}"] if self.paths else []
        rows += [f"- note: {self.note}"] if self.note else []
        rows += [f"{_STATE}{key}: {value}" for key, value in self.changes(known).items()]
        # a file name need not be UTF-8, a Markdown file is
        return ("\n".join(rows) + "\n").encode("utf-8", "backslashreplace").decode()

    def changes(self, known: dict[str, str]) -> dict[str, str]:
        fresh = {key: value for key, value in self.state.items() if known.get(key) != value}
        return fresh | {key: _GONE for key, value in known.items() if value != _GONE and self._is_gone(key)}

    def _is_gone(self, key: str) -> bool:
        """A process that is no longer listed has ended, a run is gone when its files are; only on this host."""
        kind, _, name = key.partition(" ")
        host, _, place = name.partition(":")
        if key in self.state or host != socket.gethostname():
            return False
        return kind == "process" or (kind == "run" and not os.path.exists(place))


def state_of(box: Snapshot) -> dict[str, str]:
    """What a successor needs, in words that stay the same while nothing happens."""
    state: dict[str, str] = {}
    here = box.host["name"]
    for row in box.git:
        if "problem" not in row:
            counts = [f"{row[name]} {name}" for name in ("changed", "untracked", "unpushed") if row.get(name)]
            state[f"git {here}:{row['path']}"] = ", ".join([f"{row['branch']} {(row['commit'] or '')[:10]}", *counts])
    for process in box.processes:
        trainer = process.trainer
        log = f", log {trainer.log.path}" if trainer.log.path else ""
        state[f"process {here}:{trainer.pid}"] = f"{trainer.text} (cwd {trainer.cwd}{log})"
    living = [run for run in box.runs if run.pid]
    for run in [*living, *(run for run in box.runs[:_RUNS] if not run.pid)]:
        state[f"run {here}:{run.path}"] = _run_state(run)
    return {_flat(key).replace(": ", ":"): _flat(value) for key, value in state.items()}


def _run_state(run: Run) -> str:
    facts = [_progress(run.summary)]
    facts += [f"problem {problem.code}" for problem in run.summary.problems if not problem.recovered]
    if run.checkpoints:
        state = f" ({run.check.state})" if run.check and run.check.state != "ok" else ""
        facts.append(f"newest checkpoint {os.path.basename(run.checkpoints[-1].path)}{state}")
    facts += ["finished"] if run.finished else []
    return "; ".join(fact for fact in facts if fact) or "no numbers"


def _progress(summary: logs.Summary) -> str:
    facts = (
        [f"step {summary.step}" + (f" of {summary.total}" if summary.total else "")] if summary.step is not None else []
    )
    facts += [f"epoch {summary.epoch:g}"] if summary.epoch is not None else []
    return ", ".join([*facts, *(f"{name} {value:.4g}" for name, value in key_metrics(summary.metrics))])


def _flat(text: str) -> str:
    """As it stands in the file, so that it can be compared with what was read from there."""
    text = " ".join(text.split()).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def one_line(text: str, option: str) -> str:
    """What the user typed, refused when it is not one line: a block must stay compact and readable back."""
    if len(text.strip().splitlines()) != 1:
        raise bad_input(f"{option} must be one line of text")
    return text.strip()


def append(path: Path, block: Block, dry_run: bool) -> str:
    """Write the block to the end of the file and return it; empty when it would only repeat the last one."""
    try:
        if dry_run:
            text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
            return _new_text(block, text)
        with open(path, "ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # two agents may hand over at once
            file.seek(0)
            old = file.read().decode("utf-8", "replace")
            return _write(file.fileno(), _new_text(block, old), old)
    except OSError as error:
        raise from_os_error(error, f"write {path}") from None


def _write(descriptor: int, new: str, old: str) -> str:
    if not new:
        return ""
    gap = "" if not old else "\n" if old.endswith("\n") else "\n\n"
    data = (("" if old else "# Handoff\n\n") + gap + new).encode()
    end = os.fstat(descriptor).st_size
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)
    except OSError:
        with contextlib.suppress(OSError):  # half a block would be read as a whole one
            os.ftruncate(descriptor, end)
        raise
    return new


def _new_text(block: Block, old: str) -> str:
    known = known_state(old)
    new = block.render(known, time.time())
    last = old.rpartition("\n## ")[2] if "\n## " in old else ""
    same = all(line in last.splitlines() for line in new.splitlines()[2:]) and f" {block.event} → " in last
    return "" if same and not block.changes(known) else new


def known_state(text: str) -> dict[str, str]:
    """The state that all blocks together tell."""
    known: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith(_STATE):
            key, _, value = line.removeprefix(_STATE).partition(": ")
            known[key] = value
    return known


def check_paths(paths: tuple[str, ...]) -> list[str]:
    for path in paths:
        if not os.path.lexists(path):
            raise bad_input(f"--path {path} does not exist; a hand-over names only what the next one will find")
    return [os.path.abspath(path) for path in paths]
