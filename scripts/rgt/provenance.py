"""Where a run came from: code, interpreter, packages, machine, devices. Nothing here may fail a launch."""

from __future__ import annotations

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
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def git_state(directory: Path) -> dict[str, Any] | None:
    """Commit, branch, and the uncommitted diff (with its hash); None outside a repository or without git."""
    commit = _git(directory, "rev-parse", "HEAD")
    if commit is None:
        return None
    diff = _git(directory, "diff", "HEAD", "--binary") or ""
    untracked = (_git(directory, "ls-files", "--others", "--exclude-standard") or "").splitlines()
    state: dict[str, Any] = {
        "commit": commit.strip(),
        "branch": (_git(directory, "rev-parse", "--abbrev-ref", "HEAD") or "").strip(),
        "dirty": bool(diff or untracked),
        "untracked": untracked[:100],
    }
    if diff:
        state["diff_sha256"] = hashlib.sha256(diff.encode()).hexdigest()
        state["diff"] = diff if len(diff) <= _DIFF_BYTES else None
    return state


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(directory), *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
