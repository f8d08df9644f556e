"""The paths of a training config, checked before the job is started: there, whole, writable, with room.

Example:
    check = Checker(Path("train.yaml"), cwd=Path("/data/exp"), python=None, report=report)
    check.run()

Keys are recognised by their names, at any depth: resume_from, ckpt_path, data_dir, output_dir, python and their kin.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

from inventory import ckpt, git, outside, survey
from inventory.settings import Setting, read
from rgt import units
from rgt.report import Report

READ = 4 << 30  # bytes of a checkpoint that are read to check them
READ_SECONDS, LOAD_SECONDS, PYTHON_SECONDS = 60.0, 120.0, 20.0
LITTLE, FEW = 1 << 30, 1000  # bytes and inodes that are too few for any run
_NO_RESUME = {"", "none", "null", "false", "no", "scratch", "0"}
_NEWEST = {"resume", "auto", "latest", "last", "true", "best", "1"}
_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
_REMOTE = re.compile(r"[a-z][a-z0-9+.-]*://", re.I)
_HUB = re.compile(r"[\w.-]+/[\w.-]+")

_ASK_PYTHON = """
import json, sys, importlib.util as u
found = [name for name in ("torch", "jax", "tensorflow") if u.find_spec(name)]
print(json.dumps({"executable": sys.executable, "prefix": sys.prefix, "base_prefix": sys.base_prefix,
                  "version": sys.version.split()[0], "frameworks": found}))
"""
_LOAD = """
import sys, torch
try:
    torch.load(sys.argv[1], map_location="cpu", weights_only=True, mmap=True)
except RuntimeError:  # written in the old format, which cannot be mapped
    torch.load(sys.argv[1], map_location="cpu", weights_only=True)
"""


class Checker:
    """Collects all findings; `paths` and `python` of the report's data say what was looked at."""

    def __init__(self, config: Path, cwd: Path, python: str | None, report: Report, load: bool = True) -> None:
        self.config, self.cwd, self.report, self.load = config, Path(os.path.abspath(cwd)), report, load
        self.settings = read(config)
        self.values = {setting.key: setting.value for setting in self.settings}
        self.meant = python
        self.interpreter: dict[str, Any] = {}
        self.paths: list[dict[str, Any]] = []
        self.checkpoint_bytes = 0

    def run(self) -> None:
        self._check_interpreter()
        ordered = sorted(self.settings, key=lambda setting: setting.kind == "output")  # room needs a checkpoint's size
        for setting in ordered:
            if setting.kind in ("resume", "data", "path", "output"):
                self._check(setting)
        self.report.data = {
            "config": str(self.config), "cwd": str(self.cwd), "python": self.interpreter, "paths": self.paths,
        }  # fmt: skip

    def _add(self, setting: Setting, code: str, severity: str, message: str, fix: str | None = None) -> None:
        place = {"path": str(self.config), "line": setting.line, "where": setting.key}
        self.report.add(code, severity, message, fix=fix, **place)

    def _check(self, setting: Setting) -> None:
        values = setting.value if isinstance(setting.value, list) else [setting.value]
        for value in values:
            if setting.kind == "resume":
                self._check_resume(setting, value)
            elif isinstance(value, str) and _is_path(value, setting):
                self._check_path(setting, value)

    def _check_path(self, setting: Setting, value: str) -> None:
        path = self._resolve(setting, value)
        if path is None:
            return
        check = {"data": self._check_data, "output": self._check_output}.get(setting.kind, self._check_other)
        check(setting, path, value)
        self._note(setting, value, path)

    def _note(self, setting: Setting, value: Any, path: Path) -> None:
        row = {"key": setting.key, "kind": setting.kind, "value": value, "path": str(path), "exists": path.exists()}
        self.paths.append(row)

    def _resolve(self, setting: Setting, value: str) -> Path | None:
        """As the job would: from its directory, with ~, $VARIABLES and references to other settings."""
        text = value
        for _ in range(5):  # a reference may lead to a reference
            text = _REFERENCE.sub(lambda match: str(self.values.get(match[1], match[0])), text)
        text = os.path.expandvars(os.path.expanduser(text))
        if "$" in text:
            self._add(
                setting, "unresolved", "info", f"{text} holds a variable that is not set here; it was not checked"
            )
            return None
        return Path(os.path.normpath(self.cwd / text))

    def _missing(self, setting: Setting, path: Path, value: str, severity: str = "error") -> None:
        """Say so, and where else a relative path would lead."""
        bases = [self.config.resolve().parent, git.top(self.cwd), *self.cwd.parents[:2]]
        if not os.path.isabs(os.path.expanduser(value)):
            for base in bases:
                if base and base != self.cwd and (base / value).exists():
                    message = f"{value} does not exist from {self.cwd}, where the job runs, but it does from {base}"
                    self._add(setting, "unresolved", "error", message, fix=f"write {base / value}")
                    return
        nearest = _nearest(path)
        self._add(setting, "missing", severity, f"{path} does not exist (the path is there up to {nearest})")

    def _check_data(self, setting: Setting, path: Path, value: str) -> None:
        if glob.has_magic(str(path)):
            if not next(glob.iglob(str(path), recursive=True), None):
                self._add(setting, "missing", "error", f"nothing matches {path}")
        elif not path.exists():
            if _HUB.fullmatch(value) and not value.startswith("."):
                self._add(setting, "missing", "info", f"{path} does not exist; taken for the id of a hub data set")
            else:
                self._missing(setting, path, value)
        elif path.is_dir() and not any(path.iterdir()):
            self._add(setting, "missing", "error", f"{path} is empty")

    def _check_other(self, setting: Setting, path: Path, value: str) -> None:
        if not path.exists() and not path.parent.exists():
            self._missing(setting, path, value, "warn")

    # -- outputs

    def _check_output(self, setting: Setting, path: Path, value: str) -> None:
        if setting.name.endswith("_path") and path.suffix and not path.is_dir():  # output_path: out/model.pt
            path = path.parent
        place = path if path.exists() else _nearest(path)
        if not path.exists():
            if place == path.parent:
                self._add(
                    setting, "missing", "info", f"{path} does not exist yet; the job must make it", f"mkdir {path}"
                )
            else:
                self._missing(setting, path, value, "warn")
        if not place.is_dir():
            self._add(setting, "missing", "error", f"{place} is a file, not a directory")
        elif not os.access(place, os.W_OK | os.X_OK):
            self._add(setting, "missing", "error", f"{place} cannot be written to")
        else:
            self._check_room(setting, place)

    def _check_room(self, setting: Setting, place: Path) -> None:
        """Two checkpoints must fit: the old one stays until the new one is whole."""
        room = os.statvfs(place)
        free = room.f_bavail * room.f_frsize
        needed = 2 * (self.checkpoint_bytes or _newest_bytes(place))
        if free < needed:
            sizes = f"{units.show_size(free)} free, two checkpoints take {units.show_size(needed)}"
            self._add(setting, "no-space", "error", f"{place}: {sizes}")
        elif free < LITTLE:
            self._add(setting, "no-space", "warn", f"{place}: only {units.show_size(free)} free")
        if room.f_files and room.f_favail < FEW:
            self._add(setting, "no-space", "warn", f"{place}: only {room.f_favail} inodes free")

    # -- the checkpoint to go on from

    def _check_resume(self, setting: Setting, value: Any) -> None:
        path = self._resume_path(setting, value)
        if path is None:
            return
        may_be_hub = setting.name == "init_from" or setting.name.startswith("pretrained")
        if path.exists():
            self._check_loads(setting, path)
        elif may_be_hub and _HUB.fullmatch(str(value)) and not ckpt.is_checkpoint(str(value)):
            self._add(setting, "missing", "info", f"{path} does not exist; taken for the id of a hub model")
        else:
            self._missing(setting, path, str(value))
        self._note(setting, value, path)

    def _resume_path(self, setting: Setting, value: Any) -> Path | None:
        """The checkpoint that is meant; None for `scratch`, `pretrained: true`, `weights: imagenet` and their kin."""
        word = str(value).strip().lower() if value is not None else ""
        if word in _NO_RESUME or _REMOTE.match(word) or word.startswith("gpt2"):
            return None
        sure = setting.name.startswith("resume") or setting.name.endswith("_from")
        if not sure and word not in ("last", "best") and not _is_checkpoint_path(str(value)):
            return None
        if word not in _NEWEST:
            return self._resolve(setting, str(value))
        newest = self._newest_output()
        if newest is None:
            message = f"{setting.key} is {value}, but no output directory has a checkpoint"
            self._add(setting, "missing", "error", message)
        return newest

    def _newest_output(self) -> Path | None:
        for setting in self.settings:
            if setting.kind == "output" and isinstance(setting.value, str):
                path = self._resolve(setting, setting.value)
                newest = _newest_checkpoint(path) if path else None
                if newest:
                    return Path(newest.path)
        return None

    def _check_loads(self, setting: Setting, path: Path) -> None:
        check = ckpt.inspect(path, READ, time.monotonic() + READ_SECONDS)
        self.checkpoint_bytes = max(self.checkpoint_bytes, check.bytes)
        if path.is_dir() and check.message == "no weight file in it":
            newest = _newest_checkpoint(path)
            fix = f"write {newest.path}" if newest else None
            self._add(setting, "missing", "error", f"{path} is a directory without a weight file in it", fix=fix)
        elif check.state in ("broken", "writing"):
            self._add(setting, "truncated", "error", f"{path}: {check.message}")
        elif self.load and "torch" in self.interpreter.get("frameworks", []):
            for file in ckpt.torch_files(path):
                self._load(setting, file)

    def _load(self, setting: Setting, path: Path) -> None:
        """With the job's own interpreter, tensors only: no code of the file is run."""
        python = self.interpreter["executable"]
        answer = outside.tool(python, "-c", _LOAD, str(path), seconds=LOAD_SECONDS, last=True)
        if not answer.problem:
            return
        if "weights_only" in answer.problem or "Weights only" in answer.problem:
            message = (
                f"{path} holds more than tensors: whole, but it loads only with weights_only=False, which runs its code"
            )
            self._add(setting, "untrusted", "info", message)
        else:
            self._add(setting, "unloadable", "error", f"{path} does not load: {answer.problem}")

    # -- the interpreter

    def _check_interpreter(self) -> None:
        named = next((s for s in self.settings if s.kind == "interpreter" and isinstance(s.value, str)), None)
        setting = named or Setting("python", None)
        word = named.value if named else self.meant or "python"
        program = self._program(word)
        if program is None:
            self._add(setting, "interpreter", "error", f"{word} is not a program here (from {self.cwd})")
            return
        self.interpreter = facts = _ask(program)
        if "problem" in facts:
            self._add(setting, "interpreter", "error", f"{program} does not run: {facts['problem']}")
            return
        if not facts["frameworks"]:
            self._add(setting, "interpreter", "warn", f"{facts['executable']} has no torch, jax or tensorflow")
        self._check_meant(setting, facts)

    def _program(self, word: str) -> str | None:
        if "/" in word:
            path = os.path.normpath(self.cwd / os.path.expanduser(word))
            return path if os.access(path, os.X_OK) and os.path.isfile(path) else None
        return shutil.which(word) or (shutil.which("python3") if word == "python" else None)

    def _check_meant(self, setting: Setting, facts: dict[str, Any]) -> None:
        """Against --python, or against the environment that lies in the job's own directory."""
        if self.meant and (program := self._program(self.meant)):
            other = _ask(program)
            if other.get("prefix") != facts["prefix"]:
                message = f"the job would use {facts['executable']}, not {self.meant}"
                self._add(setting, "interpreter", "error", message, fix=f"name it: {program}")
            return
        for name in (".venv", "venv"):
            own = self.cwd / name
            if (own / "pyvenv.cfg").is_file() and os.path.realpath(own) != os.path.realpath(facts["prefix"]):
                message = f"the job would use {facts['executable']}, but its directory has {name}"
                self._add(setting, "interpreter", "warn", message, fix=f"name it: {own / 'bin' / 'python'}")
                return


def _ask(program: str) -> dict[str, Any]:
    answer = outside.tool(program, "-c", _ASK_PYTHON, seconds=PYTHON_SECONDS, env={"PYTHONDONTWRITEBYTECODE": "1"})
    try:
        facts: dict[str, Any] = json.loads(answer.text)
        return facts
    except ValueError:
        return {"problem": answer.problem or "it is no Python"}


def _is_path(value: str, setting: Setting) -> bool:
    """A word without a slash is a name (dataset: openwebtext) unless the key itself says path, dir or file."""
    if not value.strip() or _REMOTE.match(value) or "\n" in value:
        return False
    says = setting.name.endswith(("_dir", "_path", "_file", "_root", "_folder", "_files")) or setting.kind == "output"
    return says or "/" in value or value.startswith(("~", "."))


def _is_checkpoint_path(value: str) -> bool:
    return "/" in value or value.startswith(("~", ".")) or ckpt.is_checkpoint(value)


def _nearest(path: Path) -> Path:
    """The last part of a path that is there."""
    return next((parent for parent in path.parents if parent.exists()), Path("/"))


def _newest_checkpoint(directory: Path) -> survey.File | None:
    if not directory.is_dir():
        return None
    found = survey.look(directory, time.monotonic() + 2.0, check=False)
    newest = [run.checkpoints[-1] for run in found.runs if run.checkpoints]
    return max(newest, key=lambda file: file.mtime, default=None)


def _newest_bytes(directory: Path) -> int:
    newest = _newest_checkpoint(directory)
    return newest.bytes if newest else 0
