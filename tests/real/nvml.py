"""NVML without a GPU: fake_nvml.c compiled into libnvidia-ml.so.1, its devices driven by a file the test writes.

The loader reads LD_LIBRARY_PATH when a process starts, so only a subprocess given `nvml.env` sees these GPUs:

    nvml.set([Gpu(utilization=97), Gpu(lost=True)])
    run([sys.executable, "scripts/gpu_gate.py", ...], env=nvml.env)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from .support import need, run

GIB = 1 << 30
GPU_IS_LOST = 15  # NVML_ERROR_GPU_IS_LOST
UNKNOWN_BYTES = (1 << 64) - 1  # NVML_VALUE_NOT_AVAILABLE: what a driver says of a process in another container

# Words for Gpu.not_supported: one per NVML question, and the C side asks by the same words.
FIELDS = (
    *("index", "name", "uuid", "pci", "memory", "utilization", "processes", "temperature", "power_usage"),
    *("power_limit", "compute_capability", "ecc", "clocks_event_reasons", "persistence_mode", "mig_mode"),
)

Processes = Sequence[tuple[int, "int | None"]]  # pid, bytes of GPU memory


@dataclass(frozen=True)
class Gpu:
    """One healthy idle card; a test names what differs. Bytes, percent, Celsius, milliwatts, as NVML has them."""

    name: str = "NVIDIA A100-SXM4-80GB"
    uuid: str = ""  # empty: made from the index
    memory_total: int = 80 * GIB
    memory_used: int = 0
    memory_reserved: int = 0  # the driver's own share; the old call counts it as used
    utilization: int = 0
    memory_utilization: int = 0
    processes: Processes = ()
    graphics_processes: Processes = ()
    temperature: int = 35
    power_usage: int = 60_000
    power_limit: int = 400_000
    compute_capability: tuple[int, int] = (8, 0)
    ecc_corrected: int = 0  # since boot; `aggregate` is over the card's life
    ecc_uncorrected: int = 0
    ecc_corrected_aggregate: int = 0
    ecc_uncorrected_aggregate: int = 0
    clocks_event_reasons: int = 0
    persistence_mode: int = 1
    mig_mode: int = 0
    pci_bus: int = -1  # negative: index + 1
    lost: bool = False  # fell off the bus: no handle, and a handle taken before answers GPU_IS_LOST
    error: int = 0  # every call on the handle returns this NVML code
    handle_error: int = 0  # getting the handle returns it
    not_supported: Sequence[str] = ()

    def lines(self, index: int) -> list[str]:
        """The device as fake_nvml.c reads it."""
        if unknown := set(self.not_supported) - set(FIELDS):
            raise ValueError(f"not_supported has no {sorted(unknown)}; it knows {FIELDS}")
        values = {f.name: getattr(self, f.name) for f in fields(self) if isinstance(getattr(self, f.name), int)}
        del values["lost"]
        if self.lost:
            values |= {"error": GPU_IS_LOST, "handle_error": GPU_IS_LOST}
        if self.pci_bus < 0:
            values["pci_bus"] = index + 1
        values["cc_major"], values["cc_minor"] = self.compute_capability
        values["name"] = self.name
        values["uuid"] = self.uuid or f"GPU-00000000-0000-0000-0000-{index:012d}"
        values["not_supported"] = f",{','.join(self.not_supported)},"
        return [
            "[gpu]",
            *(f"{key}={value}" for key, value in values.items()),
            *_processes("compute", self.processes),
            *_processes("graphics", self.graphics_processes),
        ]


def _processes(key: str, processes: Processes) -> list[str]:
    return [f"{key}={pid} {UNKNOWN_BYTES if used is None else used}" for pid, used in processes]


@dataclass
class Nvml:
    library: Path
    state: Path

    @property
    def env(self) -> dict[str, str]:
        """What a subprocess needs to load this NVML, to be added to its environment."""
        search = [str(self.library.parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        return {"LD_LIBRARY_PATH": os.pathsep.join(search), "FAKE_NVML_STATE": str(self.state)}

    def set(self, gpus: Sequence[Gpu], *, init_error: int = 0, driver: str = "550.54.15", cuda: int = 12040) -> None:
        """Replace the machine's GPUs at once, also under a running process; `init_error` is a driver that is not up."""
        lines = [f"driver={driver}", f"nvml=12.{driver}", f"cuda={cuda}", f"init={init_error}"]
        lines += [line for index, gpu in enumerate(gpus) for line in gpu.lines(index)]
        beside = self.state.with_suffix(".new")
        beside.write_text("\n".join(lines) + "\n")
        beside.replace(self.state)


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    source = Path(__file__).with_name("fake_nvml.c")
    run([need("gcc", "gcc libc6-dev"), *flags, f"-Wl,-soname,{library.name}", "-o", str(library), str(source)])
    return library


@pytest.fixture
def nvml(nvml_library: Path, tmp_path: Path) -> Nvml:
    """A machine with one idle GPU until the test says otherwise."""
    machine = Nvml(nvml_library, tmp_path / "nvml.state")
    machine.set([Gpu()])
    return machine
