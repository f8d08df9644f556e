"""The state of a repository, asked without touching it: `git status` alone would rewrite its index."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from inventory import outside

_NAMED = 10  # files of each kind that are listed


def top(directory: Path) -> Path | None:
    """The repository around a directory, found without git."""
    for place in (directory, *directory.parents):
        if os.path.lexists(place / ".git"):
            return place
    return None


def state(repository: Path) -> dict[str, Any]:
    """Branch, commit, changed and untracked files, commits that no remote has; `problem` when git refuses."""
    status = _git(repository, "status", "--porcelain=v2", "--branch", "--show-stash", "--untracked-files=normal", "-z")
    row: dict[str, Any] = {"path": str(repository)}
    if status.problem:
        return {**row, "problem": status.problem}
    row |= _parse(status.text)
    if row["commit"]:
        remotes = _git(repository, "remote")
        unpushed = _git(repository, "rev-list", "--count", "HEAD", "--not", "--remotes")
        row["remote"] = bool(remotes.text.strip())
        row["unpushed"] = int(unpushed.text) if unpushed.text.strip().isdigit() else None
        row["subject"] = _git(repository, "log", "-1", "--format=%s").text.strip()[:100]
    return row


def _git(repository: Path, *arguments: str) -> outside.Answer:
    # a repository's own configuration may name a program as fsmonitor; somebody else's repository must not run one
    quiet = ("--no-optional-locks", "-c", "core.fsmonitor=false")
    return outside.tool("git", *quiet, "-C", str(repository), *arguments)


def _parse(text: str) -> dict[str, Any]:
    """porcelain v2 with -z: header lines, then one record per file."""
    row: dict[str, Any] = {"branch": "", "commit": None, "upstream": None, "stashes": 0}
    changed: list[str] = []
    untracked: list[str] = []
    records = iter(text.split("\0"))
    for record in records:
        kind, _, rest = record.partition(" ")
        if kind == "#":
            _header(row, rest)
        elif kind == "?":
            untracked.append(rest)
        elif kind in ("1", "u"):
            changed.append(rest.split(" ", 7 if kind == "1" else 9)[-1])
        elif kind == "2":
            changed.append(rest.split(" ", 8)[-1])
            next(records, None)  # a rename's old name is a record of its own
    row |= {"changed": len(changed), "untracked": len(untracked)}
    return {**row, "changed_files": changed[:_NAMED], "untracked_files": untracked[:_NAMED]}


def _header(row: dict[str, Any], text: str) -> None:
    name, _, value = text.partition(" ")
    if name == "branch.oid" and value != "(initial)":
        row["commit"] = value
    elif name in ("branch.head", "branch.upstream"):
        row[name.removeprefix("branch.").replace("head", "branch")] = value
    elif name == "stash":
        row["stashes"] = int(value)
