"""For scripts that put jobs through launch.py: fill in a description, call launch, find the run it made.

Example:
    data = job.load_yaml(path, "job")
    fill(data, {"lr": "0.1"})                    {lr} in the words of command, args, smoke and in the values of env
    reply = launch("submit", "job.yaml", "--on", "local")
    find(job, "tiny", "RGT_CELL", "x/1")         the run whose job carries that mark, when nobody wrote its path down
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rgt import files, rundir
from rgt.errors import RgtError
from rgt.job import Job

LAUNCH = Path(__file__).resolve().parents[1] / "launch.py"
_HOLE = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")  # ${HOME} belongs to the shell of whoever wrote it
_RUN = "run"  # {run} is launch's own
_WORDS = ("command", "args", "smoke")


def text(value: Any) -> str:
    """A YAML scalar as a word of a command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- placeholders


def holes(data: dict[str, Any]) -> set[str]:
    """The names in braces that a job description leaves open."""
    return {name for word in _open_words(data) for name in _HOLE.findall(word)} - {_RUN}


def _open_words(data: dict[str, Any]) -> Iterator[str]:
    for key in _WORDS:
        yield from map(text, data.get(key, []))
    yield from map(text, data.get("env", {}).values())


def fill(data: dict[str, Any], values: dict[str, str]) -> dict[str, Any]:
    """The description with its holes filled. A value stays one word, whatever is in it: no shell sees it."""

    def put(word: Any) -> str:
        return _HOLE.sub(lambda hole: values.get(hole[1], hole[0]), text(word))

    words = {key: [put(word) for word in data[key]] for key in _WORDS if key in data}
    env = {name: put(value) for name, value in data.get("env", {}).items()}
    return {**data, **words, **({"env": env} if env else {})}


# -- launch


@dataclass
class Reply:
    """What launch said: its JSON, or the sentence that it failed with."""

    code: int
    data: dict[str, Any]
    sentence: str


def launch(*words: str, env: dict[str, str] | None = None, keep_open: tuple[int, ...] = ()) -> Reply:
    """Call launch.py in a session of its own: what ends us, Ctrl-C included, does not end a half-done submit."""
    command = [sys.executable, str(LAUNCH), *words, "--json"]
    done = subprocess.run(
        command, env=env, pass_fds=keep_open, start_new_session=True, capture_output=True, stdin=subprocess.DEVNULL
    )
    lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"launch.py ended with {done.returncode}"]
    with contextlib.suppress(ValueError):
        return Reply(done.returncode, json.loads(done.stdout), lines[-1].removeprefix("error: "))
    return Reply(done.returncode, {}, lines[-1].removeprefix("error: "))


def runs(job: Job, slug: str) -> Iterator[tuple[rundir.Run, dict[str, Any]]]:
    """Runs of jobs whose name has `slug` in it, each with its record, oldest first; unreadable ones are passed over."""
    for run in (run for root in dict.fromkeys(job.roots()) for run in rundir.find(root)):
        if slug in run.id:
            with contextlib.suppress(RgtError):
                yield run, files.read_json(run.run_json, "run")


def find(job: Job, slug: str, variable: str, value: str) -> rundir.Run | None:
    """The run of the job that was given variable=value in its environment."""
    for run, record in runs(job, slug):
        if record["config"].get("env", {}).get(variable) == value:
            return run
    return None
