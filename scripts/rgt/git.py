"""git in a folder that somebody else may have made: asked so that nothing of its configuration runs.

Example:
    git.command(folder, "status", "--porcelain")      the words to start

A repository's own .git/config can name programs: filters, fsmonitor, hooks, pagers, diff drivers. The user's own
configuration stays in force.
"""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

_QUIET = (
    "core.fsmonitor=false",
    f"core.hooksPath={os.devnull}",
    "core.pager=cat",
    "diff.external=",
    "submodule.recurse=false",
)


def command(folder: Path, *arguments: str) -> list[str]:
    """The words of one git call. A submodule is a repository of its own: its work tree is not looked at."""
    words = ["git", "--no-pager", "--no-optional-locks", "-C", str(folder)]
    for setting in (*_QUIET, *(f"{name}=" for name in _local_programs(str(folder)))):
        words += ["-c", setting]
    if arguments[0] in ("status", "diff"):
        return [*words, arguments[0], "--ignore-submodules=dirty", *arguments[1:]]
    return [*words, *arguments]


@functools.lru_cache(maxsize=64)
def _local_programs(folder: str) -> tuple[str, ...]:
    """The filters that this repository's own configuration names; reading a configuration runs nothing."""
    names: set[str] = set()
    for scope in ("--local", "--worktree"):
        pattern = r"^filter\..*\.(clean|smudge|process|required)$"
        words = ["git", "-C", folder, "config", scope, "--includes", "-z", "--name-only", "--get-regexp", pattern]
        try:
            done = subprocess.run(words, capture_output=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return ()
        names |= {os.fsdecode(name) for name in done.stdout.split(b"\0") if name}
    return tuple(sorted(names))
