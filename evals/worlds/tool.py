"""The agent leaves a command behind, and it is judged on inputs that the agent has not seen."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from trials.case import Box, Missing


@dataclass(frozen=True)
class Answer:
    code: int | None  # None: it took too long
    out: str


def leaving(script: str, *names: str) -> Callable[[Box], None]:
    """A solution: this command under these names. {scripts} in it is the skill's folder of scripts, {work} the desk."""

    def solve(box: Box) -> None:
        text = script.replace("{scripts}", str(box.skill / "scripts")).replace("{work}", str(box.work))
        for name in names:
            box.write(name, text)
            (box.work / name).chmod(0o755)

    return solve


def call(box: Box, name: str, *words: object, seconds: float = 60) -> Answer:
    """The command as the user's automation calls it: no terminal, a time limit for it and all that it starts."""
    path = box.work / name
    if not os.access(path, os.X_OK):
        raise Missing(f"{name} is not there, or cannot be executed")
    try:
        process = subprocess.Popen(
            [str(path), *map(str, words)],
            cwd=box.work,
            env=box.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise Missing(f"{name} cannot be started: {error.strerror}") from None
    try:
        out, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return Answer(None, "")
    return Answer(process.returncode, out)
