"""Every call goes through nvidia-ml-py in a process of its own: its ctypes declarations are the layout to match."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pynvml

from .nvml import FIELDS, GIB, Gpu, Nvml
from .support import run

# Answers one expression per line; an NVML error is its number, so that a test can name it by pynvml's constant.
ASK = """
import sys, json
from pynvml import *
def plain(value):
    if isinstance(value, list): return [plain(one) for one in value]
    names = getattr(value, "_fields_", None)
    if names: return {name: plain(getattr(value, name)) for name, _ in names}
    if isinstance(value, bytes): return value.decode()
    return vars(value) if hasattr(value, "__dict__") else value
for line in sys.stdin:
    try: answer = plain(eval(line))
    except NVMLError as error: answer = {"NVMLError": error.value}
    print(json.dumps(answer), flush=True)
"""


def ask(nvml: Nvml, *expressions: str) -> list[Any]:
    code = "\n".join(("nvmlInit()", *expressions)) + "\n"
    answers = run([sys.executable, "-c", ASK], env=nvml.env, input=code, timeout=30).stdout.splitlines()
    return [json.loads(answer) for answer in answers[1:]]


WORK = [(101, 30 * GIB), (102, None)]
FACTS: dict[str, Any] = {"name": "NVIDIA H100", "uuid": "GPU-feed", "compute_capability": (9, 0), "pci_bus": 0x3B}
FACTS |= {"memory_total": 80 * GIB, "memory_used": 50 * GIB, "memory_reserved": 1 * GIB, "memory_utilization": 40}
FACTS |= {"power_usage": 690_123, "power_limit": 700_000, "temperature": 81, "clocks_event_reasons": 0x44}
FACTS |= {"ecc_corrected": 1, "ecc_uncorrected": 2, "ecc_corrected_aggregate": 3, "ecc_uncorrected_aggregate": 4}
FACTS |= {"utilization": 97, "processes": WORK, "graphics_processes": [(103, 5)], "persistence_mode": 1, "mig_mode": 1}
BUSY = Gpu(**FACTS)
NO_INSTANCE = {"gpuInstanceId": 0xFFFFFFFF, "computeInstanceId": 0xFFFFFFFF}
COMPUTE = [{"pid": pid, "usedGpuMemory": used, **NO_INSTANCE} for pid, used in WORK]
GRAPHICS = [{"pid": 103, "usedGpuMemory": 5, **NO_INSTANCE}]
PCI = {"busIdLegacy": "0000:3B:00.0", "domain": 0, "bus": 0x3B, "device": 0, "busId": "00000000:3B:00.0"}
DEVICE = "nvmlDeviceGetHandleByIndex(1)"
# field -> every way to ask for it, with the answer for BUSY
MEMORY_V2 = {"version": pynvml.nvmlMemory_v2, "total": 80 * GIB, "reserved": GIB, "free": 29 * GIB, "used": 50 * GIB}
ANSWERS: dict[str, dict[str, Any]] = {
    "index": {"nvmlDeviceGetIndex({})": 1},
    "name": {"nvmlDeviceGetName({})": "NVIDIA H100"},
    "uuid": {"nvmlDeviceGetUUID({})": "GPU-feed"},
    "pci": {"nvmlDeviceGetPciInfo_v3({})": {**PCI, "pciDeviceId": 0x20B210DE, "pciSubSystemId": 0}},
    "memory": {
        "nvmlDeviceGetMemoryInfo({})": {"total": 80 * GIB, "free": 29 * GIB, "used": 51 * GIB},
        "nvmlDeviceGetMemoryInfo({}, version=nvmlMemory_v2)": MEMORY_V2,
    },
    "utilization": {"nvmlDeviceGetUtilizationRates({})": {"gpu": 97, "memory": 40}},
    "temperature": {f"nvmlDeviceGetTemperature{v}({{}}, NVML_TEMPERATURE_GPU)": 81 for v in ("", "V")},
    "power_usage": {"nvmlDeviceGetPowerUsage({})": 690_123},
    "power_limit": {"nvmlDeviceGetEnforcedPowerLimit({})": 700_000},
    "compute_capability": {"nvmlDeviceGetCudaComputeCapability({})": [9, 0]},
    "ecc": {
        f"nvmlDeviceGetTotalEccErrors({{}}, NVML_MEMORY_ERROR_TYPE_{kind}, NVML_{span}_ECC)": number
        for span, first in (("VOLATILE", 1), ("AGGREGATE", 3))
        for number, kind in enumerate(("CORRECTED", "UNCORRECTED"), first)
    },
    "clocks_event_reasons": {f"nvmlDeviceGetCurrentClocks{word}Reasons({{}})": 0x44 for word in ("Event", "Throttle")},
    "persistence_mode": {"nvmlDeviceGetPersistenceMode({})": 1},
    "mig_mode": {"nvmlDeviceGetMigMode({})": [1, 1]},
    "processes": {
        f"nvmlDeviceGet{kind}RunningProcesses{version}({{}})": answer
        for kind, answer in (("Compute", COMPUTE), ("Graphics", GRAPHICS))
        for version in ("", "_v2")
    },
}
CALLS = {call.format(DEVICE): answer for calls in ANSWERS.values() for call, answer in calls.items()}


def error(code: int) -> dict[str, int]:
    return {"NVMLError": code}


def test_every_call_of_a_busy_gpu(nvml: Nvml) -> None:
    nvml.set([Gpu(), BUSY])
    assert dict(zip(CALLS, ask(nvml, *CALLS), strict=True)) == CALLS
    assert sorted(ANSWERS) == sorted(FIELDS)


def test_a_running_process_sees_a_gpu_fall_off_the_bus(nvml: Nvml) -> None:
    nvml.set([Gpu(), BUSY])
    pipe, environment = subprocess.PIPE, {**os.environ, **nvml.env}
    argv = [sys.executable, "-c", ASK]
    with subprocess.Popen(argv, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def now(expression: str) -> Any:
            asked.write(f"{expression}\n")
            asked.flush()
            return json.loads(answers.readline())

        now("nvmlInit()")
        now(f"globals().update(taken={DEVICE})")
        assert now("nvmlDeviceGetTemperature(taken, 0)") == 81
        nvml.set([Gpu(), Gpu(temperature=44)])
        assert now("nvmlDeviceGetTemperature(taken, 0)") == 44
        nvml.set([Gpu(), Gpu(lost=True)])
        assert now("nvmlDeviceGetTemperature(taken, 0)") == error(pynvml.NVML_ERROR_GPU_IS_LOST)
        assert now(DEVICE) == error(pynvml.NVML_ERROR_GPU_IS_LOST)
        nvml.set([Gpu()])  # and gone from the list altogether
        assert now("nvmlDeviceGetTemperature(taken, 0)") == error(pynvml.NVML_ERROR_GPU_IS_LOST)
        assert now("nvmlDeviceGetCount()") == 1


def test_a_driver_that_is_not_loaded(nvml: Nvml) -> None:
    nvml.set([], init_error=pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    assert ask(nvml, "nvmlInit()") == [error(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)]
    nvml.state.unlink()
    assert ask(nvml, "nvmlInit()") == [error(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)]
