"""Where a run came from: code, interpreter, packages, machine, devices. Nothing here may fail a launch.

Example:
    collect(Path("project"), "python3")  the fields of run.json that are read off the machine
    repository_state(Path.cwd())         branch, changed and untracked files, commits that no remote has
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rgt import git, secrets
from rgt.machine import gpus, outside
from rgt.machine.interpreter import interrogate

_GIT_SECONDS = 10.0
_DIFF_BYTES = 1 << 20  # a larger diff is named by its hash only
_NAMED = 10  # changed and untracked files that a look at a repository lists
_ASKED = {
    "branch": ("symbolic-ref", "--short", "HEAD"),
    "stashes": ("rev-list", "--walk-reflogs", "--count", "refs/stash"),
    "unpushed": ("rev-list", "--count", "HEAD", "--not", "--remotes"),
}


def collect(
    directory: Path, python: str | None, environ: Mapping[str, str] = os.environ, here: bool = True
) -> dict[str, Any]:
    """The fields of run.json that are read off the machine; null is what cannot be known from here.

    `python` is the job's, as it would be found from `directory`; None when nobody knows it. `here`: on this machine.
    """
    facts = interrogate(python, directory, environ).facts if python else {}
    host = {"name": socket.gethostname(), "platform": platform.platform(), "cpus": os.cpu_count()}
    return {
        "git": git_state(directory),
        "env": {"python": facts.get("version"), **{name: facts.get(name) for name in ("executable", "packages")}},
        "host": host if here else None,
        "devices": [device.as_dict() for device in gpus.read().gpus] if here else None,
    }


def git_commit(directory: Path) -> str | None:
    return (_git_output(directory, "rev-parse", "HEAD") or "").strip() or None


def git_state(directory: Path) -> dict[str, Any] | None:
    """Commit, branch, and the uncommitted diff (with its hash); None outside a repository or without git."""
    commit = git_commit(directory)
    if commit is None:
        return None
    # the user's own diff tool and colours are for eyes; this diff is for `git apply`
    changed = _git_output(directory, "diff", "HEAD", "--name-only", "-z", "--no-ext-diff", "--no-textconv")
    hidden = [name for name in (changed or "").split("\0") if secrets.is_secret(name)]  # run.json travels
    plain = ("diff", "HEAD", "--binary", "--no-ext-diff", "--no-textconv", "--no-color")
    diff = _git_output(directory, *plain, "--", ":/", *(f":(top,exclude,literal){name}" for name in hidden))
    untracked = _git_output(directory, "ls-files", "-z", "--others", "--exclude-standard", "--full-name", ":/")
    state: dict[str, Any] = {
        "commit": commit,
        "branch": (_git_output(directory, "rev-parse", "--abbrev-ref", "HEAD") or "").strip(),
        "dirty": changed != "" or untracked != "",  # None: git could not say, so it is not called clean
        "untracked": (untracked or "").split("\0")[:-1][:100],
    }
    if diff:
        state["diff_sha256"] = hashlib.sha256(diff.encode(errors="surrogateescape")).hexdigest()
        state["diff"] = diff if len(diff) <= _DIFF_BYTES else None
    return state


def _git_output(directory: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(git.command(directory, *arguments), capture_output=True, timeout=_GIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    # byte for byte, also in a file that is not UTF-8: \r stays, and the escapes encode back
    return done.stdout.decode(errors="surrogateescape") if done.returncode == 0 else None


def drift(run: Path) -> dict[str, Any] | None:
    """Files of the tree that are not what the run recorded (its commit, and its patch on top); None when all are."""
    try:
        state = json.loads((run / "run.json").read_text(encoding="utf-8"))["git"]
        commit, patch = str(state["commit"]), str(state.get("diff") or "")
    except (OSError, ValueError, KeyError, TypeError):
        return None
    repository = top(run.resolve())
    now = _git_output(repository, "diff", "--no-ext-diff", "--no-textconv", commit) if repository else None
    if now is None:  # no repository here, or one that does not have the commit
        return None
    then, today = _by_file(patch), _by_file(now)
    files = sorted(name for name in {**then, **today} if then.get(name) != today.get(name))
    inside = os.path.relpath(run.resolve(), repository) if repository else ""
    files = [name for name in files if not name.startswith(f"{inside}/")]
    return {"path": str(run), "commit": commit, "files": files} if files else None


def _by_file(patch: str) -> dict[str, list[str]]:
    """Added and removed lines of each file: hunks move, and index lines are abbreviated differently."""
    parts = re.split(r"^diff --git a/.* b/(.*)$", patch, flags=re.M)
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    return {
        name: [line for line in text.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
        for name, text in pairs
    }


# -- a repository that somebody else may own: asked without touching it (`git status` alone would rewrite its index)


def top(directory: Path) -> Path | None:
    """The repository around a directory, found without git."""
    return next((place for place in (directory, *directory.parents) if os.path.lexists(place / ".git")), None)


def repository_state(directory: Path) -> dict[str, Any] | None:
    """Branch, commit, changed and untracked files, commits that no remote has; `problem` when git refuses.

    None outside of a repository.
    """
    repository = top(directory)
    if repository is None:
        return None
    status = outside.tool(*git.command(repository, "status", "--porcelain", "--untracked-files=normal", "-z"))
    if status.problem:
        return {"path": str(repository), "problem": status.problem}
    files: dict[str, list[str]] = {"changed": [], "untracked": []}
    entries = iter(status.text.split("\0")[:-1])
    for entry in entries:  # two letters, a space, the path
        files["untracked" if entry.startswith("??") else "changed"].append(entry[3:])
        if entry[0] in "RC":
            next(entries, None)  # a rename's old name is an entry of its own
    told = {name: (_git_output(repository, *words) or "").strip() for name, words in _ASKED.items()}
    row: dict[str, Any] = {"path": str(repository), "branch": told["branch"] or "(detached)"}
    row |= {"commit": git_commit(repository), "stashes": int(told["stashes"] or 0)}
    for name, paths in files.items():
        row |= {name: len(paths), f"{name}_files": paths[:_NAMED]}
    if row["commit"]:
        row["unpushed"] = int(told["unpushed"]) if told["unpushed"].isdigit() else None
    return row
