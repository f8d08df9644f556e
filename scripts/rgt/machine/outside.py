"""Other programs and slow places, each with a time limit: nothing here hangs, whatever the machine does.

Example:
    tool("squeue", "-h")                        Answer(text, problem): never raises, never waits longer than its limit
    together({"git": ask_git, "disk": ask_disk}, seconds=3)     runs all at once; a late one is its own problem
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from subprocess import DEVNULL, PIPE, STDOUT
from typing import Any

SECONDS = 2.0
LATE = "no answer within"  # how a problem begins when the time was over
Environ = Mapping[str, str] | None
_NOTICE = 0.1  # seconds of one wait: a Ctrl-C just before it, or given to another thread, is seen only after it
_START = threading.Lock()  # held while a child starts, so that it is either known or not there
_living: set[int] = set()  # process groups that wait for their answer
_over = threading.Event()  # this process ends, and starts no more of them


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
    environ, errors = {**os.environ, "LC_ALL": "C", **(env or {})}, STDOUT if merge else PIPE
    process: subprocess.Popen[bytes] | None = None
    try:
        with _START, _interrupt_later():
            if _over.is_set():
                return Answer(problem="not asked: this process ends")
            process = subprocess.Popen(  # with a session of its own, so that its children can be ended with it
                command, stdin=DEVNULL, stdout=PIPE, stderr=errors, cwd=cwd, env=environ, start_new_session=True
            )
            _living.add(process.pid)
        out, err = process.communicate(timeout=seconds)
    except OSError as error:
        return Answer(problem=f"does not start: {error.strerror}")
    except subprocess.TimeoutExpired:
        return Answer(problem=f"{LATE} {seconds:g} s")
    finally:
        if process:
            if process.returncode is None:  # late, or Ctrl-C
                _end(process.pid)
                for stream in filter(None, (process.stdout, process.stderr)):  # a grandchild may hold them open
                    stream.close()
                process.wait()
            _living.discard(process.pid)
    text = out.decode("utf-8", "replace")
    if process.returncode:
        lines = (err or out).decode("utf-8", "replace").strip().splitlines() or [f"exit code {process.returncode}"]
        return Answer(text, lines[-1 if "Traceback (most recent call last):" in lines else 0][:200])
    return Answer(text)


def _end(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


@atexit.register
def _end_all() -> None:
    """Ctrl-C ends the main thread, while others may wait for an answer, or be about to start a child."""
    _over.set()
    if _START.acquire(timeout=SECONDS):  # a start that hangs (a dead network mount) must not keep us
        _START.release()
    for group in list(_living):
        _end(group)


@contextlib.contextmanager
def _interrupt_later() -> Iterator[None]:
    """Ctrl-C in here counts at the end. Not a signal mask: the child would inherit it, and other threads have none."""
    if threading.current_thread() is not threading.main_thread():
        yield  # KeyboardInterrupt comes in the main thread only
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


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
        while thread.is_alive() and (left := deadline - time.monotonic()) > 0:
            thread.join(min(left, _NOTICE))
        if thread.is_alive():
            problems[name] = f"{LATE} {seconds:g} s"
    return {name: results[name] for name in asks if name in results and name not in problems}, problems
