"""The CPU smoke: the job's own short command, with no GPU, no logger and a scratch run directory, in bounded time.

Whatever it starts is ended with it, also what called setsid: orphans come to us, and the whole tree is ours to end.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from checks import Plan
from rgt import logs, procs
from rgt.errors import lacking
from rgt.job import RUN, RUN_VARIABLE
from rgt.logline import plain
from rgt.procs import become_subreaper

THREADS = 4
POLL = 0.05
SAMPLE = 0.5  # between two looks at the memory of the tree
LEAVE = 3.0  # for helpers that end after the command (a logger's)
STACKS = 3.0  # for Python to write its stacks after SIGABRT
UNKILLABLE = 10.0  # a process stuck in a driver or a network mount does not even die
LINES = 15  # of the log that are shown
_LOG_BYTES = 4 << 20
# Off switches that the trackers themselves document. TensorBoard has none: it writes files, into the scratch directory.
LOGGERS_OFF = {
    "WANDB_MODE": "disabled",
    "SWANLAB_MODE": "disabled",
    "NEPTUNE_MODE": "debug",
    "COMET_MODE": "DISABLED",  # transformers' callback
    "CLEARML_OFFLINE_MODE": "1",
    "DISABLE_MLFLOW_INTEGRATION": "TRUE",  # transformers' callback; other callers get a local store, below
}
NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}


@dataclass
class Smoke:
    """What happened."""

    exit_code: int | None = None  # None: it had to be ended
    seconds: float = 0.0
    peak_memory: int = 0  # bytes of the whole tree
    ended: list[str] = field(default_factory=list)  # commands of processes that we had to end
    log: str = ""
    written: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)  # new entries in the job's real output folder

    def as_dict(self) -> dict[str, Any]:
        shown = {name: value for name, value in vars(self).items() if name != "log"}
        return {**shown, "seconds": round(self.seconds, 2), "last_lines": last_lines(self.log)}


def variables(plan: Plan, scratch: Path) -> dict[str, str]:
    assert plan.job is not None
    threads = str(min(THREADS, len(os.sched_getaffinity(0))))
    return {
        **plan.inherited,
        **plan.job.env,
        **LOGGERS_OFF,
        **NO_GPU,
        RUN_VARIABLE: str(scratch / "run"),
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "MLFLOW_TRACKING_URI": (scratch / "mlruns").as_uri(),
        "TENSORBOARD_LOGGING_DIR": str(scratch / "tensorboard"),
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",  # so that a hang can be asked where it is
    }


def run(plan: Plan, timeout: float) -> tuple[Smoke, Path]:
    """Run job.smoke; the scratch directory (with smoke.log and run/) is the caller's to remove."""
    assert plan.job is not None
    scratch = Path(tempfile.mkdtemp(prefix="preflight-smoke-"))
    folder = scratch / "run"
    folder.mkdir()
    words = [word.replace(RUN, str(folder)) for word in plan.job.smoke]
    before = _names(plan.output)
    become_subreaper()
    signal.signal(signal.SIGTERM, _leave)
    try:
        with (scratch / "smoke.log").open("wb") as log:
            smoke = _follow(_start(words, plan, scratch, log), timeout)
    except BaseException:  # Ctrl-C as well, even inside Popen: nobody else knows the processes and the folder
        _end_all()
        remove(scratch)
        raise
    smoke.log = _end_of(scratch / "smoke.log")
    smoke.written = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    smoke.elsewhere = sorted(_names(plan.output) - before)
    return smoke, scratch


def _start(words: list[str], plan: Plan, scratch: Path, log: Any) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            words,
            cwd=plan.workdir,
            env=variables(plan, scratch),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise lacking(f"the smoke does not start: {words[0]}, from {plan.workdir}: {error.strerror}") from None


def _end_of(path: Path) -> str:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _LOG_BYTES))
        return logs.to_text(file.read())


def _names(folder: Path | None) -> set[str]:
    with contextlib.suppress(OSError):
        return set(os.listdir(folder)) if folder else set()
    return set()


# -- the tree


def _follow(process: subprocess.Popen[bytes], timeout: float) -> Smoke:
    smoke, start = Smoke(), time.monotonic()
    look = start
    while process.poll() is None and time.monotonic() < start + timeout:
        if time.monotonic() >= look:
            smoke.peak_memory, look = max(smoke.peak_memory, _tree_memory()), time.monotonic() + SAMPLE
        time.sleep(POLL)
    smoke.seconds = time.monotonic() - start
    smoke.exit_code = process.poll()
    if smoke.exit_code is None:
        _ask_for_stacks(process)
    else:
        _wait_for_helpers()
    smoke.ended = _end_all()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(UNKILLABLE)
    _collect_the_dead()
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    smoke.peak_memory = max(smoke.peak_memory, largest)
    return smoke


def _tree() -> list[int]:
    """Everything below us that still runs."""
    return [pid for pid in procs.descendants(os.getpid()) if procs.alive(procs.identify(pid))]


def _tree_memory() -> int:
    return sum(_memory(pid) for pid in _tree())


def _memory(pid: int) -> int:
    """Proportional set size: pages that workers share with their parent are counted once."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
    except OSError:  # it has just ended, or belongs to somebody else
        return 0
    match = re.search(r"^Pss:\s+(\d+) kB", text, re.M)
    return int(match[1]) * 1024 if match else 0


def _ask_for_stacks(process: subprocess.Popen[bytes]) -> None:
    """SIGABRT makes Python's faulthandler write where every thread is, into the log."""
    for pid in _tree():
        with contextlib.suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
            os.kill(pid, signal.SIGABRT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STACKS)


def _wait_for_helpers() -> None:
    deadline = time.monotonic() + LEAVE
    while _tree() and time.monotonic() < deadline:
        time.sleep(POLL)


def _end_all() -> list[str]:
    """SIGKILL, again and again: something may be forked between two looks."""
    ended: list[str] = []
    deadline = time.monotonic() + UNKILLABLE
    while (tree := _tree()) and time.monotonic() < deadline:
        for pid in tree:
            words = " ".join(procs.command(pid))[:100]
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                if words and words not in ended:
                    ended.append(words)
        time.sleep(POLL)
    return ended


def _collect_the_dead() -> None:
    """Orphans that came to us, so that their memory is counted."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _leave(number: int, frame: object) -> NoReturn:
    """SIGTERM must run the same endings as Ctrl-C: the tree is ours to end."""
    raise SystemExit(128 + number)


def last_lines(text: str) -> list[str]:
    return [plain(line).rstrip()[:300] for line in text.splitlines() if line.strip()][-LINES:]


def remove(scratch: Path) -> None:
    shutil.rmtree(scratch, ignore_errors=True)
