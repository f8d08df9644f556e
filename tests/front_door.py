"""A script's command line in this process: its answer is the same, without a Python that starts for each question.

That each script starts as a process of its own is seen in tests/test_docs.py, and what becomes of stdout, signals and
exit codes there in tests/test_cli.py.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rgt import schema

import pytest
from click.testing import CliRunner

from .real.support import need


def call(
    script: str,
    *words: object,
    cwd: Path | None = None,
    env: Mapping[str, str | None] | None = None,
    input: bytes = b"",
) -> subprocess.CompletedProcess[str]:
    """`env` is added to ours for the time of the call; None takes a variable away."""
    main = importlib.import_module(script.removesuffix(".py")).main
    before = Path.cwd()
    os.chdir(cwd or before)
    try:
        done = CliRunner(env=env).invoke(main, list(map(str, words)), input=input)
    finally:
        os.chdir(before)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess([script], done.exit_code, done.stdout, done.stderr)


def report(script: str, *words: object, cwd: Path | None = None) -> dict[str, Any]:
    """What it finds: JSON without NaN that fits its schema and agrees with the exit code."""
    done = call(script, *words, "--json", cwd=cwd)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout, parse_constant=pytest.fail)
    assert (done.returncode, schema.problems(found, "report")) == (0 if found["ok"] else 1, [])
    return found


def executable(path: Path, body: str) -> Path:
    """A shell script of this body; for PATH, its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def git(folder: Path, *words: object) -> str:
    """git with a name and an address of its own."""
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main"]
    return subprocess.check_output([need("git", "git"), "-C", folder, *who, *map(str, words)], text=True).strip()
