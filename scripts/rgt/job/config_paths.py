"""The paths that a training config names, checked before the job is started: there, whole, writable, with room.

Example:
    config = ConfigPaths(settings.read(path), path, cwd=Path("/data/exp"))
    rows = list(config.rows())          config.paths: what was looked at

Keys are recognised by their names, at any depth: resume_from, ckpt_path, data_dir, output_dir and their kin.
"""

from __future__ import annotations

import glob
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt import units
from rgt.checkpoint import names
from rgt.job.audit import Row, fail, warn
from rgt.job.settings import Setting
from rgt.machine import disks
from rgt.machine.interpreter import Interpreter, interrogate, job_python
from rgt.run import discovery, provenance

READ = 4 << 30  # bytes of a checkpoint that are read to check them
READ_SECONDS, SURVEY_SECONDS = 60.0, 3.0
_NO_RESUME = {"", "none", "null", "false", "no", "scratch", "0"}
_NEWEST = {"resume", "auto", "latest", "last", "true", "best", "1"}
_REMOTE = re.compile(r"[a-z][a-z0-9+.-]*://", re.I)
_PATH_ENDINGS = ("output", "_dir", "_path", "_file", "_root", "_folder", "_files")
_HUB = re.compile(r"\w[\w.-]*/[\w.-]+")


def newest_checkpoint(folder: Path) -> discovery.File | None:
    """Of all runs below a folder."""
    if not folder.is_dir():
        return None
    runs = discovery.discover(folder, time.monotonic() + SURVEY_SECONDS, check=False).runs
    return max((run.checkpoints[-1] for run in runs if run.checkpoints), key=lambda file: file.mtime, default=None)


def _expanded(value: str) -> str:
    """With ~ and $VARIABLES; what is still open then (${a.b} of Hydra) is told, not checked."""
    return os.path.expandvars(os.path.expanduser(value))


class ConfigPaths:
    """The paths of one config, as a job in `cwd` would read them."""

    def __init__(self, settings: list[Setting], config: Path, cwd: Path) -> None:
        self.settings, self.config, self.cwd = settings, config, Path(os.path.abspath(cwd))
        self.paths: list[dict[str, Any]] = []
        self.checkpoint_bytes = 0

    def rows(self) -> Iterator[Row]:
        checks = {"resume": self._resume, "output": self._output, "data": self._data}
        # outputs come last: how much room they need is known from the checkpoint to resume from
        for setting in sorted(self.settings, key=lambda setting: setting.kind == "output"):
            for value in setting.value if isinstance(setting.value, list) else [setting.value]:
                text = self._path_text(setting, value) if setting.kind in checks else ""
                if "$" in text:
                    seen = f"{text} holds a variable that is not known here; it was not checked"
                    yield self._row(setting, "info", "unresolved", seen)
                elif text:
                    path = Path(os.path.normpath(self.cwd / text))
                    facts = {"key": setting.key, "kind": setting.kind, "value": value}
                    self.paths.append({**facts, "path": str(path), "exists": path.exists()})
                    yield from checks[setting.kind](setting, path, str(value))

    def resume_paths(self) -> Iterator[tuple[str, str]]:
        """The key and the path of each checkpoint that is named to go on from; whether it is there is not looked at."""
        for setting in (setting for setting in self.settings if setting.kind == "resume"):
            value = str(setting.value)
            text = "" if value.strip().lower() in _NEWEST else self._path_text(setting, value)
            if text and "$" not in text:
                yield setting.key, text

    def _path_text(self, setting: Setting, value: Any) -> str:
        """The path that a value means, as the job would read it; empty for what is no path.

        A word without a slash is a name (dataset: openwebtext) unless the key itself says path, dir or file; `scratch`,
        `pretrained: true`, `weights: imagenet` and their kin name no checkpoint, `latest` is the newest of the outputs.
        """
        word, slash = str(value).strip().lower() if value is not None else "", re.match(r"[~.]|.*/", str(value))
        if _REMOTE.match(word) or not word or "\n" in word:
            return ""
        if setting.kind == "resume":
            sure = setting.name.startswith("resume") or setting.name.endswith("_from") or word in ("last", "best")
            if word in _NO_RESUME or word.startswith("gpt2") or not (sure or slash or names.is_checkpoint(str(value))):
                return ""
            if word in _NEWEST:
                outputs = [other.value for other in self.settings if other.kind == "output"]
                folders = [self.cwd / _expanded(output) for output in outputs if isinstance(output, str)]
                newest = next((file for folder in folders if (file := newest_checkpoint(folder))), None)
                return newest.path if newest else word
        elif not isinstance(value, str) or not (slash or setting.name.endswith(_PATH_ENDINGS)):
            return ""
        return _expanded(str(value))

    def _row(self, setting: Setting, status: str, code: str, seen: str, fix: str = "") -> Row:
        return Row(setting.key, status, seen, fix, code, str(self.config))

    def _missing(self, setting: Setting, path: Path, value: str, hub: bool = False) -> Row:
        """Say so, and where else a relative path would lead."""
        if not os.path.isabs(os.path.expanduser(value)):
            for base in (self.config.resolve().parent, provenance.top(self.cwd), *self.cwd.parents[:2]):
                if base and base != self.cwd and (base / value).exists():
                    seen = f"{value} does not exist from {self.cwd}, where the job runs, but it does from {base}"
                    return self._row(setting, "fail", "unresolved", seen, f"write {base / value}")
        if hub and _HUB.fullmatch(value) and not names.is_checkpoint(value):
            return self._row(setting, "info", "missing", f"{path} does not exist; taken for an id of the hub")
        seen = f"{path} does not exist (the path is there up to {disks.nearest_existing(path)})"
        return self._row(setting, "fail", "missing", seen)

    def _data(self, setting: Setting, path: Path, value: str) -> Iterator[Row]:
        if glob.has_magic(str(path)):
            if not next(glob.iglob(str(path), recursive=True), None):
                yield self._row(setting, "fail", "missing", f"nothing matches {path}")
        elif path.is_dir() and not any(path.iterdir()):
            yield self._row(setting, "fail", "missing", f"{path} is empty")
        elif not path.exists():
            yield self._missing(setting, path, value, hub=True)

    def _output(self, setting: Setting, path: Path, value: str) -> Iterator[Row]:
        place = disks.nearest_existing(path)
        if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
            problem = "cannot be written to" if place.is_dir() else "is a file, not a directory"
            yield self._row(setting, "fail", "missing", f"{place} {problem}")
            return
        newest = None if self.checkpoint_bytes else newest_checkpoint(place)
        # the old checkpoint stays until the new one is whole
        needed = 2 * (newest.bytes if newest else self.checkpoint_bytes)
        if (free := disks.room(place).free) < needed:
            seen = f"{place}: {units.show_size(free)} free, two checkpoints take {units.show_size(needed)}"
            yield self._row(setting, "fail", "no-space", seen)

    # -- the checkpoint to go on from

    def _resume(self, setting: Setting, path: Path, value: str) -> Iterator[Row]:
        if not path.exists():
            hub = setting.name == "init_from" or setting.name.startswith("pretrained")
            row = self._missing(setting, path, value, hub=hub)
            if value.strip().lower() in _NEWEST:
                seen = f"{setting.key} is {value}, but no output directory has a checkpoint"
                row = self._row(setting, "fail", "missing", seen)
            elif row.status == "fail" and not row.fix:
                row.fix = "mend the path: many trainers start at step 0, without a word, when it is missing"
            yield row
            return
        from rgt.checkpoint import whole  # the readers of all formats: few configurations name a checkpoint

        check = whole.verdict(path, read=READ, read_until=time.monotonic() + READ_SECONDS)
        self.checkpoint_bytes = max(self.checkpoint_bytes, check.bytes)
        if path.is_dir() and not check.files:
            newest = newest_checkpoint(path)
            seen = f"{path} is a directory without a weight file in it"
            yield self._row(setting, "fail", "missing", seen, f"write {newest.path}" if newest else "")
        elif check.state in ("broken", "writing"):
            code = "untrusted" if check.code == "hostile" else "truncated"
            yield self._row(setting, "fail", code, f"{path}: {check.message}")


def job_interpreter(word: str | None, cwd: Path) -> tuple[Interpreter, list[Row]]:
    """The one given, else the user's; it must run, have a framework, and be the one of the job's directory."""
    found = interrogate(os.path.expanduser(word) if word else job_python(), cwd, os.environ)
    if found.problem:
        return found, [fail("python", "interpreter", f"{found.word}: {found.problem}", found.fix)]
    rows, program = [], found.facts["executable"]
    if not found.facts["frameworks"]:
        rows.append(warn("python", "interpreter", f"{program} has no torch, jax or tensorflow"))
    if own := found.other_environment(cwd):
        seen = f"the job would use {program}, but its directory has {own.name}"
        rows.append(warn("python", "interpreter", seen, f"name it: --python {own / 'bin' / 'python'}"))
    return found, rows
