"""The CPU smoke: the job's own short command, with no GPU, no logger and a scratch run directory, in bounded time.

Whatever it starts is ended with it, also what called setsid: orphans come to us, and the whole tree is ours to end.
`verdict` says how it ended and why, whether its numbers are numbers, and what it wrote.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt import units
from rgt.errors import lacking
from rgt.job.audit import PlannedJob, Row, fail, ok, warn
from rgt.job.description import RUN, RUN_VARIABLE
from rgt.log import summary
from rgt.log.line import parse_line, plain
from rgt.machine import processes

THREADS = 4
POLL = 0.05
STACKS = 3.0  # for Python to write its stacks after SIGABRT
UNKILLABLE = 10.0  # a process stuck in a driver or a network mount does not even die
LINES = 15  # of the log that are shown
_LOG_BYTES = 4 << 20
# Off switches that the trackers themselves document. TensorBoard has none: it writes files, into the scratch directory.
# COMET_MODE and DISABLE_MLFLOW_INTEGRATION are for transformers' callbacks; other users of MLflow get a local store.
LOGGERS_OFF = {"WANDB_MODE": "disabled", "SWANLAB_MODE": "disabled", "NEPTUNE_MODE": "debug", "COMET_MODE": "DISABLED"}
LOGGERS_OFF |= {"CLEARML_OFFLINE_MODE": "1", "DISABLE_MLFLOW_INTEGRATION": "TRUE"}
NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}


@dataclass
class Smoke:
    """What happened."""

    exit_code: int | None = None  # None: it had to be ended
    seconds: float = 0.0
    peak_memory: int = 0  # bytes of its largest process
    log: str = ""
    written: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        shown = {name: value for name, value in vars(self).items() if name != "log"}
        return {**shown, "seconds": round(self.seconds, 2), "last_lines": last_lines(self.log)}


def run(planned: PlannedJob, timeout: float) -> tuple[Smoke, Path]:
    """Run job.smoke; the scratch directory (with smoke.log and run/) is the caller's to remove."""
    scratch = Path(tempfile.mkdtemp(prefix="preflight-smoke-"))
    folder = scratch / "run"
    folder.mkdir()
    words = [word.replace(RUN, str(folder)) for word in planned.job.smoke]
    threads = str(min(THREADS, len(os.sched_getaffinity(0))))
    environ = {**planned.environ, **LOGGERS_OFF, **NO_GPU, RUN_VARIABLE: str(folder)}
    environ |= {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    environ |= {"MLFLOW_TRACKING_URI": (scratch / "mlruns").as_uri()}
    environ |= {"TENSORBOARD_LOGGING_DIR": str(scratch / "tensorboard")}
    environ |= {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}  # so that a hang can be asked where it is
    processes.become_subreaper()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # the same endings as Ctrl-C
    try:
        with (scratch / "smoke.log").open("wb") as log:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
            try:
                process = subprocess.Popen(words, cwd=planned.workdir, env=environ, start_new_session=True, **streams)
            except OSError as error:
                where = f"{words[0]}, from {planned.workdir}"
                raise lacking(f"the smoke does not start: {where}: {error.strerror}") from None
            smoke = _follow(process, timeout)
    except BaseException:  # Ctrl-C as well, even inside Popen: nobody else knows the processes and the folder
        _end_all()
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    smoke.log = "\n".join(summary.tail(scratch / "smoke.log", _LOG_BYTES))
    smoke.written = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return smoke, scratch


def _follow(process: subprocess.Popen[bytes], timeout: float) -> Smoke:
    start = time.monotonic()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout)
    smoke = Smoke(process.poll(), time.monotonic() - start)
    if smoke.exit_code is None:
        for pid in _tree():  # SIGABRT makes Python's faulthandler write where every thread is, into the log
            with contextlib.suppress(OSError):
                resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
                os.kill(pid, signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STACKS)
    _end_all()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(UNKILLABLE)
    smoke.peak_memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return smoke


def _tree() -> list[int]:
    """Everything below us that still runs."""
    return [pid for pid in processes.descendants(os.getpid()) if processes.alive(processes.identify(pid))]


def _end_all() -> None:
    """SIGKILL, again and again: something may be forked between two looks."""
    deadline = time.monotonic() + UNKILLABLE
    while (tree := _tree()) and time.monotonic() < deadline:
        for pid in tree:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL)


def last_lines(text: str) -> list[str]:
    return [plain(line).rstrip()[:300] for line in text.splitlines() if line.strip()][-LINES:]


# -- what it means


def verdict(smoke: Smoke, timeout: float) -> Iterator[Row]:
    yield _ending(smoke, timeout)
    values: dict[str, float] = {}
    for line in smoke.log.splitlines():
        values |= (new := parse_line(line).get("metrics", {}))
        if bad := next((name for name, value in new.items() if not math.isfinite(value)), ""):
            fix = "`probes.py` finds the first layer; check the data for NaN, and the learning rate"
            yield fail("numbers", "nan", f"{bad} is {values[bad]}: {plain(line).strip()[:160]}", fix)
            break
    else:
        if values:
            yield ok("numbers", ", ".join(f"{name} {value:g}" for name, value in list(values.items())[:4]))
    if smoke.exit_code == 0 and smoke.written:
        more = f" and {len(smoke.written) - 3} more" if len(smoke.written) > 3 else ""
        yield ok("written", ", ".join(smoke.written[:3]) + more)
    elif smoke.exit_code == 0:
        seen = "nothing was written to the run directory: saving is not covered, and fails at the first checkpoint"
        yield warn("written", "empty", seen, f"let it save one checkpoint to {RUN} (or ${RUN_VARIABLE})")
    cost = f"{units.show_duration(smoke.seconds)} of wall time, {units.show_size(smoke.peak_memory)}"
    yield ok("cost", f"{cost} of memory in the largest process")


def _ending(smoke: Smoke, timeout: float) -> Row:
    code, lines = smoke.exit_code, last_lines(smoke.log)
    if code == 0:
        return ok("smoke", "exit code 0")
    if code is None:
        seen = f"still running after {units.show_duration(timeout)}; it was ended, with all its processes"
        fix = "the log ends with where Python was; 1 or 2 batches must do, else --timeout 10m"
        return fail("smoke", "timeout", seen, fix)
    causes = [problem.line for problem in summary.summarise(smoke.log).problems if problem.code != "nan"]
    cause = causes[0] if causes else lines[-1] if lines else "it printed nothing"
    if code < 0:
        fix = "SIGKILL is the memory limit's; SIGBUS is /dev/shm's; else read the log"
        return fail("smoke", "killed", f"ended by {processes.signal_name(-code)}: {cause}", fix)
    fix = "mend it here, where it costs nothing; it must run without a GPU (device, map_location, gloo)"
    return fail("smoke", "crash", f"exit code {code}: {cause}", fix)
