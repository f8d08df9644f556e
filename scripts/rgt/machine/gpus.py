"""The only place that talks to GPUs: NVML, else nvidia-smi, else none.

Example:
    reading = read()
    reading.source        "nvml", "nvidia-smi" or "none"; reading.problem says why, when a driver is there but sick
    for gpu in reading.gpus: gpu.memory_used, gpu.processes, gpu.error

A card that fell off the bus is a row with `error`, never an exception: the other cards still work.
"""

from __future__ import annotations

import functools
import math
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

_SMI_SECONDS = 20.0  # nvidia-smi hangs on a sick driver
_MESSAGE = 300  # characters of a driver's message
# field of Gpu -> nvidia-smi's own name for it
_SMI_FIELDS = {name: name for name in ("index", "uuid", "name")}
_SMI_FIELDS |= {"memory_total": "memory.total", "memory_used": "memory.used", "utilization": "utilization.gpu"}
_SMI_FIELDS |= {"temperature": "temperature.gpu", "power_draw": "power.draw", "compute_cap": "compute_cap"}
_MIB = 1 << 20

# nvml.h, nvmlClocksEventReason*: only those that slow a card down against the user's wish
SLOWDOWN_REASONS = {
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}


@dataclass
class Process:
    pid: int
    used_memory: int | None  # None: the driver does not say (containers, WDDM)
    type: str = "C"  # as nvidia-smi prints it: C computes, G only draws (a desktop's server)


@dataclass
class Gpu:
    """One card. Bytes, percent, degrees Celsius, watts; None where the card does not say."""

    index: int
    uuid: str = ""
    name: str = ""
    memory_total: int | None = None
    memory_used: int | None = None
    utilization: int | None = None
    temperature: int | None = None
    power_draw: float | None = None
    compute_cap: str | None = None
    ecc_errors: int | None = None
    slowdown: list[str] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    error: str | None = None

    @property
    def memory_free(self) -> int | None:
        if self.memory_total is None or self.memory_used is None:
            return None
        return max(0, self.memory_total - self.memory_used)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Reading:
    source: str
    gpus: list[Gpu] = field(default_factory=list)
    driver: str | None = None
    problem: str | None = None


def read() -> Reading:
    """What is there right now. Never raises."""
    reading = _read_nvml()
    if reading.source == "none" and shutil.which("nvidia-smi"):
        by_command = _read_smi()
        reading = by_command if by_command.gpus else Reading("none", problem=by_command.problem or reading.problem)
    return reading


def visible(cards: list[Gpu], mask: str | None) -> list[Gpu]:
    """As CUDA reads CUDA_VISIBLE_DEVICES (None: not set): the first word that is no device ends the list."""
    if mask is None:
        return cards
    chosen = []
    for word in (part.strip() for part in mask.split(",")):
        match = [c for c in cards if word == str(c.index) or (word.startswith("GPU-") and c.uuid.startswith(word))]
        if not match:
            break
        chosen.append(match[0])
    return chosen


def _read_nvml() -> Reading:
    try:
        import pynvml
    except ImportError:
        return Reading("none")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        missing = isinstance(error, pynvml.NVMLError_LibraryNotFound)
        return Reading("none", problem=None if missing else f"NVML does not start: {error}")
    try:
        count = pynvml.nvmlDeviceGetCount()
        driver = _ask(lambda: str(pynvml.nvmlSystemGetDriverVersion()))
        return Reading("nvml", [_nvml_gpu(pynvml, index) for index in range(count)], driver)
    except pynvml.NVMLError as error:
        return Reading("none", problem=f"NVML does not answer: {error}")
    finally:
        _ask(pynvml.nvmlShutdown)


def _nvml_gpu(nvml: Any, index: int) -> Gpu:
    gpu = Gpu(index)
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        gpu.uuid, gpu.name = str(nvml.nvmlDeviceGetUUID(handle)), str(nvml.nvmlDeviceGetName(handle))
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        gpu.memory_total, gpu.memory_used = int(memory.total), int(memory.used)
    except nvml.NVMLError as error:
        gpu.error = str(error)
        return gpu
    gpu.utilization = _ask(lambda: int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu))
    gpu.temperature = _ask(lambda: int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)))
    gpu.power_draw = _ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000)
    gpu.compute_cap = _ask(lambda: "{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(handle)))
    error_type, since = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    gpu.ecc_errors = _ask(lambda: int(nvml.nvmlDeviceGetTotalEccErrors(handle, error_type, since)))
    reasons = _ask(lambda: int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))) or 0
    gpu.slowdown = [name for bit, name in SLOWDOWN_REASONS.items() if reasons & bit]
    by_pid: dict[int, Process] = {}
    lists = {"G": nvml.nvmlDeviceGetGraphicsRunningProcesses, "C": nvml.nvmlDeviceGetComputeRunningProcesses}
    for kind, question in lists.items():  # compute last: who does both counts as computing
        for row in _ask(functools.partial(question, handle)) or []:
            used = None if row.usedGpuMemory is None else int(row.usedGpuMemory)
            by_pid[int(row.pid)] = Process(int(row.pid), used, kind)
    gpu.processes = list(by_pid.values())
    return gpu


def _ask(question: Callable[[], Any]) -> Any:
    """One optional fact. Drivers and cards differ in what they answer; a missing answer is None."""
    try:
        return question()
    except Exception:
        return None


def _read_smi() -> Reading:
    text, problem = _smi(f"--query-gpu={','.join(_SMI_FIELDS.values())}")
    gpus = [_smi_gpu(row) for row in _rows(text) if row[0].isdigit()]
    if not gpus:  # older drivers say "No devices were found" with exit code 0
        return Reading("nvidia-smi", problem=problem or text.strip().partition("\n")[0][:_MESSAGE] or None)
    by_uuid = {gpu.uuid: gpu for gpu in gpus}
    text, _ = _smi("--query-compute-apps=gpu_uuid,pid,used_memory")
    for row in _rows(text):
        pid, memory = (_number(row[1]), _number(row[2])) if len(row) == 3 else (None, None)
        if pid is not None and row[0] in by_uuid:
            by_uuid[row[0]].processes.append(Process(int(pid), None if memory is None else int(memory) * _MIB))
    return Reading("nvidia-smi", gpus, problem=problem)


def _rows(text: str) -> list[list[str]]:
    """nvidia-smi quotes nothing: its csv is lines and commas."""
    return [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]


def _smi(query: str) -> tuple[str, str | None]:
    """stdout and, when it failed, the reason. Rows printed before a failure still count: one card may be lost."""
    command, pipe = ["nvidia-smi", query, "--format=csv,noheader,nounits"], subprocess.PIPE
    try:
        process = subprocess.Popen(command, stdout=pipe, stderr=pipe, encoding="utf-8", errors="replace")
        stdout, stderr = process.communicate(timeout=_SMI_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()  # and not waited for: what hangs inside a sick driver does not even die
        return "", f"nvidia-smi did not answer within {_SMI_SECONDS:g} s"
    except OSError as error:
        return "", f"nvidia-smi does not start: {error.strerror}"
    if process.returncode == 0:
        return stdout, None
    words = [line for line in (stderr + stdout).splitlines() if line.strip() and not line[0].isdigit()]
    silent = f"nvidia-smi ended with exit code {process.returncode} and no message"
    return stdout, words[0][:_MESSAGE] if words else silent


def _smi_gpu(row: list[str]) -> Gpu:
    """One row; '[N/A]' is an unknown fact, '[GPU is lost]' or '[Unknown Error]' a sick card."""
    values = dict(zip(_SMI_FIELDS, row, strict=False))
    gpu = Gpu(int(_number(values.get("index", "")) or 0), values.get("uuid", ""), values.get("name", ""))
    for name in ("utilization", "temperature"):
        number = _number(values.get(name, ""))
        setattr(gpu, name, None if number is None else int(number))
    for name in ("memory_total", "memory_used"):
        number = _number(values.get(name, ""))
        setattr(gpu, name, None if number is None else int(number) * _MIB)
    gpu.power_draw = _number(values.get("power_draw", ""))
    gpu.compute_cap = values.get("compute_cap") if _number(values.get("compute_cap", "")) else None
    broken = [value for value in row if "lost" in value.lower() or "error" in value.lower()]
    gpu.error = broken[0].strip("[]") if broken else None
    return gpu


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
