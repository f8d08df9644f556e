"""Where a run came from: code, interpreter, packages, machine, devices. Nothing here may fail a launch."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from rgt import gpu

PACKAGES = ("torch", "numpy", "transformers", "accelerate", "lightning", "litgpt", "deepspeed", "safetensors", "wandb")
_GIT_SECONDS = 10.0
_DIFF_BYTES = 1 << 20  # a larger diff is named by its hash only


def collect(directory: Path | None = None) -> dict[str, Any]:
    """The fields of run.json that are read off the machine."""
    return {
        "git": git_state(directory or Path.cwd()),
        "env": {"python": platform.python_version(), "executable": sys.executable, "packages": _versions()},
        "host": {"name": socket.gethostname(), "platform": platform.platform(), "cpus": os.cpu_count()},
        "devices": [device.as_dict() for device in gpu.read().gpus],
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError, KeyError):
            found[name] = importlib.metadata.version(name)
    return {name: version for name, version in found.items() if version}  # None: pip left it half removed


def git_commit(directory: Path) -> str | None:
    commit = _git(directory, "rev-parse", "HEAD")
    return commit.strip() if commit else None


def git_state(directory: Path) -> dict[str, Any] | None:
    """Commit, branch, and the uncommitted diff (with its hash); None outside a repository or without git."""
    commit = git_commit(directory)
    if commit is None:
        return None
    # what a user's diff tool and colours make of a diff is for eyes; this one is for `git apply`
    diff = _git(directory, "diff", "HEAD", "--binary", "--no-ext-diff", "--no-textconv", "--no-color")
    untracked = _git(directory, "ls-files", "-z", "--others", "--exclude-standard", "--full-name", ":/")
    state: dict[str, Any] = {
        "commit": commit,
        "branch": (_git(directory, "rev-parse", "--abbrev-ref", "HEAD") or "").strip(),
        "dirty": diff != "" or untracked != "",  # None: git could not say, so it is not called clean
        "untracked": (untracked or "").split("\0")[:-1][:100],
    }
    if diff:
        state["diff_sha256"] = hashlib.sha256(diff.encode(errors="surrogateescape")).hexdigest()
        state["diff"] = diff if len(diff) <= _DIFF_BYTES else None
    return state


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(directory), *arguments],
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # byte for byte, also in a file that is not UTF-8: \r stays, and the escapes encode back
    return done.stdout.decode(errors="surrogateescape") if done.returncode == 0 else None
