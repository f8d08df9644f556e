"""Other programs and slow places, each with a time limit: nothing here hangs, whatever the machine does.

Example:
    tool("squeue", "-h")                        Answer(text, problem): never raises, never waits longer than its limit
    together({"git": ask_git, "disk": ask_disk}, seconds=3)     runs all at once; a late one is its own problem
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from subprocess import DEVNULL, PIPE, STDOUT
from typing import Any

SECONDS = 2.0
LATE = "no answer within"  # how a problem begins when the time was over
Environ = Mapping[str, str] | None


@dataclass
class Answer:
    text: str = ""
    problem: str | None = None


def tool(
    *command: str, seconds: float = SECONDS, env: Environ = None, cwd: str | None = None, merge: bool = False
) -> Answer:
    """What the command prints (with `merge` also on stderr); `problem` when it is missing, fails or takes too long.

    `problem` is the first line of what it complains, or the last of a traceback, where Python names the error.
    """
    if not shutil.which(command[0]):
        return Answer(problem="not installed")
    try:
        environ, errors = {**os.environ, "LC_ALL": "C", **(env or {})}, STDOUT if merge else PIPE
        process = subprocess.Popen(  # with a session of its own, so that its children can be ended with it
            command, stdin=DEVNULL, stdout=PIPE, stderr=errors, cwd=cwd, env=environ, start_new_session=True
        )
    except OSError as error:
        return Answer(problem=f"does not start: {error.strerror}")
    kill = functools.partial(os.killpg, process.pid, signal.SIGKILL)
    atexit.register(kill)  # Ctrl-C ends the main thread, while another one may wait here
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        kill()
        for stream in filter(None, (process.stdout, process.stderr)):  # a grandchild may hold them open
            stream.close()
        process.wait()
        return Answer(problem=f"{LATE} {seconds:g} s")
    finally:
        atexit.unregister(kill)
    text = out.decode("utf-8", "replace")
    if process.returncode:
        lines = (err or out).decode("utf-8", "replace").strip().splitlines() or [f"exit code {process.returncode}"]
        return Answer(text, lines[-1 if "Traceback (most recent call last):" in lines else 0][:200])
    return Answer(text)


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
    threads = {item[0]: threading.Thread(target=ask, args=item, daemon=True) for item in asks.items()}
    for thread in threads.values():
        thread.start()
    deadline = time.monotonic() + seconds
    for name, thread in threads.items():
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            problems[name] = f"{LATE} {seconds:g} s"
    return {name: results[name] for name in asks if name in results and name not in problems}, problems
