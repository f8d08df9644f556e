"""What a smoke means: how it ended and why, whether its numbers are numbers, what it wrote and what it left behind."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from checks import Check, fail, ok, warn
from checks.smoke import Smoke, last_lines
from rgt import logs, procs, units
from rgt.job import RUN, RUN_VARIABLE
from rgt.logline import parse_line, plain

_NEEDS_GPU = re.compile(
    r"Found no NVIDIA driver|No CUDA GPUs are available|Torch not compiled with CUDA enabled|no CUDA-capable device"
    r"|CUDA driver version is insufficient|Attempting to deserialize object on (?:a )?CUDA|invalid device ordinal"
    r"|Unexpected error from cudaGetDeviceCount|no GPUs found|CUDA is not available|requires? (?:a )?(?:CUDA|GPU)"
    r"|Could not find (?:a )?CUDA|libcuda\.so|CUDA_ERROR_NO_DEVICE|(?:CUDA|cuda) (?:must|needs to) be available", re.I
)  # fmt: skip


def rows(smoke: Smoke, timeout: float) -> Iterator[Check]:
    yield _ending(smoke, timeout)
    yield from _numbers(smoke)
    if smoke.exit_code == 0:
        yield from _traces(smoke)
    memory = units.show_size(smoke.peak_memory)
    yield ok("cost", f"{units.show_duration(smoke.seconds)} of wall time, {memory} of memory at the peak")


def _ending(smoke: Smoke, timeout: float) -> Check:
    limit = units.show_duration(timeout)
    if smoke.exit_code is None:
        seen = f"still running after {limit}; it and its {len(smoke.ended) or 'no'} remaining processes were ended"
        return fail("smoke", "timeout", _with(seen, _stack(smoke.log)), "1 or 2 batches must do; else --timeout 10m")
    if smoke.exit_code == 0:
        return ok("smoke", "exit code 0")
    cause = _cause(smoke)
    if _needs_gpu(smoke, cause):
        fix = "device = 'cuda' if torch.cuda.is_available() else 'cpu'; map_location='cpu'; backend gloo on the CPU"
        return fail("smoke", "gpu", _with("it needs a GPU, so it shows nothing before one is rented", cause), fix)
    code = smoke.exit_code
    if code < 0:
        seen = _with(f"ended by {procs.signal_name(-code)}", cause)
        return fail("smoke", "killed", seen, "SIGKILL is the memory limit's; SIGBUS is /dev/shm's; else read the log")
    found = {problem.code for problem in logs.summarise(smoke.log).problems}
    word = next((one for one in ("oom", "no-space") if one in found), "crash")
    return fail("smoke", word, _with(f"exit code {code}", cause), "mend it here, where it costs nothing")


def _needs_gpu(smoke: Smoke, cause: str) -> bool:
    """By the error itself or the lines before the end; warnings about CUDA stand in every log of a CPU."""
    lines = [line for line in last_lines(smoke.log) if "warn" not in line.lower()]
    return any(_NEEDS_GPU.search(line) for line in [cause, *lines])


def _with(seen: str, detail: str) -> str:
    return f"{seen}: {detail}" if detail else seen


def _cause(smoke: Smoke) -> str:
    problems = [problem.line for problem in logs.summarise(smoke.log).problems if problem.code != "nan"]
    lines = last_lines(smoke.log)
    return problems[0] if problems else lines[-1] if lines else "it said nothing"


def _stack(log: str) -> str:
    """Where the job's own code waits: faulthandler's innermost frame that is not of a library."""
    match = re.search(r"\(most recent call first\):\n((?:\s+File .*\n?)+)", log)
    frames = [line.strip() for line in match[1].splitlines()] if match else []
    own = [frame for frame in frames if not re.search(r"/lib(?:64)?/python3|<frozen", frame)]
    return f"it was at {(own or frames)[0]}" if frames else ""


def _numbers(smoke: Smoke) -> Iterator[Check]:
    """A loss that is no number, in any line."""
    values: dict[str, float] = {}
    for line in smoke.log.splitlines():
        for name, value in parse_line(line).get("metrics", {}).items():
            if not math.isfinite(value):
                fix = "`probes.py` finds the first layer; check the data for NaN, and the learning rate"
                yield fail("numbers", "nan", f"{name} is {value}: {plain(line).strip()[:160]}", fix)
                return
            values[name] = value
    if values:
        yield ok("numbers", ", ".join(f"{name} {value:g}" for name, value in list(values.items())[:4]))


def _traces(smoke: Smoke) -> Iterator[Check]:
    if smoke.written:
        more = f" and {len(smoke.written) - 3} more" if len(smoke.written) > 3 else ""
        yield ok("written", ", ".join(smoke.written[:3]) + more)
    else:
        seen = "nothing was written to the run directory: saving is not covered, and fails at the first checkpoint"
        yield warn("written", "empty", seen, f"let it save one checkpoint to {RUN} (or ${RUN_VARIABLE})")
    if smoke.elsewhere:
        seen = f"new in the real output folder: {', '.join(smoke.elsewhere[:3])}"
        yield warn(
            "scratch", "extra", seen, f"write below {RUN} (or ${RUN_VARIABLE}); remove what the smoke left there"
        )
    if smoke.ended:
        seen = f"{len(smoke.ended)} processes outlived it and were ended: {smoke.ended[0]}"
        yield warn("leftovers", "leftover", seen, "join or end what you start: on a GPU it would hold the memory")
