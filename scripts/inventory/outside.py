"""Other programs and slow places, each with a time limit: nothing here hangs, whatever the machine does.

Example:
    tool("squeue", "-h")                        Answer(text, problem): never raises, never waits longer than its limit
    together({"git": ask_git, "disk": ask_disk}, seconds=3)     runs all at once; a late one is its own problem
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

SECONDS = 2.0


@dataclass
class Answer:
    text: str = ""
    problem: str | None = None


def tool(
    *command: str,
    seconds: float = SECONDS,
    env: Mapping[str, str] | None = None,
    last: bool = False,
    merge: bool = False,
) -> Answer:
    """What the command prints (with `merge` also on stderr); `problem` when it is missing, fails or takes too long.

    `problem` is the first line of what it complains, or the last (where Python names the error).
    """
    if not shutil.which(command[0]):
        return Answer(problem="not installed")
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merge else subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C", **(env or {})},
            start_new_session=True,  # so that its children can be ended with it
        )
    except OSError as error:
        return Answer(problem=f"does not start: {error.strerror}")
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _end(process)
        return Answer(problem=f"no answer within {seconds:g} s")
    text = out.decode("utf-8", "replace")
    if process.returncode:
        words = (err or out).decode("utf-8", "replace").strip().splitlines()
        return Answer(text, words[-1 if last else 0][:200] if words else f"exit code {process.returncode}")
    return Answer(text)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    for stream in (process.stdout, process.stderr):
        if stream:
            stream.close()
    process.wait()


def together(asks: Mapping[str, Callable[[], Any]], seconds: float) -> tuple[dict[str, Any], dict[str, str]]:
    """Results by name, and the problems of those that failed or are late (a dead network mount, a sick driver)."""
    results: dict[str, Any] = {}
    problems: dict[str, str] = {}

    def ask(name: str, question: Callable[[], Any]) -> None:
        try:
            results[name] = question()
        except Exception as error:  # one source must not take the others down
            problems[name] = f"{type(error).__name__}: {error}"

    # daemon threads: a read that never returns must not keep the process from ending
    threads = {
        name: threading.Thread(target=ask, args=(name, question), daemon=True) for name, question in asks.items()
    }
    for thread in threads.values():
        thread.start()
    deadline = time.monotonic() + seconds
    for name, thread in threads.items():
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            problems[name] = f"no answer within {seconds:g} s"
    return {name: results[name] for name in asks if name in results and name not in problems}, problems
