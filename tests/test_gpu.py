"""rgt.gpu through nvidia-smi and through nothing. (NVML itself: tests/real.)

Each case is a small nvidia-smi on PATH that prints what a real one prints in that situation.
"""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rgt.machine import gpus
from rgt.machine.gpus import Gpu, Process, Reading, read

import pytest

from .front_door import executable

MIB = 1 << 20
QUERY = "--query-gpu=index,uuid,name,memory.total,memory.used,utilization.gpu,temperature.gpu,power.draw,compute_cap"
A100 = "0, GPU-aaaa, NVIDIA A100-SXM4-80GB, 81920, 1024, 97, 61, 312.45, 8.0"
T4 = "1, GPU-bbbb, Tesla T4, 15360, 0, 0, 35, [N/A], 7.5"
LOST = "2, " + ", ".join(["[GPU is lost]"] * 8)


@pytest.fixture(autouse=True)
def no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without nvidia-ml-py: `import pynvml` raises ImportError."""
    monkeypatch.setitem(sys.modules, "pynvml", None)


class Smi:
    """Writes an nvidia-smi that answers the two questions it is asked, and keeps its arguments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, cards: str = "", apps: str = "", code: int = 0, stderr: str = "", act: str = "") -> None:
        for name, text in (("cards", cards), ("apps", apps), ("stderr", stderr)):
            (self.folder / name).write_text(text + "\n" if text else "")
        self.script(
            f'cd "{self.folder}"\necho "$*" >> calls\n{act}\ncat stderr >&2\n'
            f'case "$1" in --query-gpu=*) cat cards; exit {code};; *) cat apps;; esac\n'
        )

    def script(self, text: str) -> None:
        executable(self.folder / "nvidia-smi", text)

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Smi:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return Smi(folder)


NOTHING = Reading("none", [], driver=None, problem=None)


def test_a_machine_without_driver_has_no_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read() == NOTHING
    if not ctypes.util.find_library("nvidia-ml"):  # nvidia-ml-py alone shows none either
        monkeypatch.delitem(sys.modules, "pynvml")
        pytest.importorskip("pynvml")
        assert read() == NOTHING


# --- a healthy machine -----------------------------------------------------------------------------------------


def test_two_cards_and_their_processes(smi: Smi) -> None:
    smi(f"{A100}\n{T4}", apps="GPU-aaaa, 4711, 1000\nGPU-bbbb, 4712, [N/A]\nGPU-aaaa, 4713, 24")
    a100 = Gpu(0, "GPU-aaaa", "NVIDIA A100-SXM4-80GB", 81920 * MIB, 1024 * MIB, 97, 61, 312.45, "8.0")
    a100.processes = [Process(4711, 1000 * MIB), Process(4713, 24 * MIB)]
    t4 = Gpu(1, "GPU-bbbb", "Tesla T4", 15360 * MIB, 0, 0, 35, None, "7.5", processes=[Process(4712, None)])
    assert read() == Reading("nvidia-smi", [a100, t4])
    csv = "--format=csv,noheader,nounits"
    assert smi.calls == [f"{QUERY} {csv}", f"--query-compute-apps=gpu_uuid,pid,used_memory {csv}"]


def test_unknown_facts_are_none_and_noise_is_left_out(smi: Smi) -> None:
    for unknown in ("[N/A]", "[Not Supported]", "N/A", "[Insufficient Permissions]", ""):
        smi("0, GPU-aaaa, Some Card, " + ", ".join([unknown] * 6))
        assert read().gpus == [Gpu(0, "GPU-aaaa", "Some Card")]
    smi(A100, apps="GPU-zzzz, 1, 1\nGPU-aaaa, [N/A], 5\nGPU-aaaa\n\nNo running processes found")
    assert read().gpus[0].processes == []


# --- sick machines ---------------------------------------------------------------------------------------------


def test_a_sick_card_is_a_row_with_an_error(smi: Smi) -> None:
    smi(f"{A100}\n{T4}\n{LOST}")
    reading = read()
    assert [(card.index, card.error) for card in reading.gpus] == [(0, None), (1, None), (2, "GPU is lost")]
    assert reading.gpus[2].memory_total is None and reading.gpus[2].compute_cap is None
    smi(A100.replace("312.45", "[Unknown Error]"))
    (card,) = read().gpus
    assert (card.error, card.power_draw, card.memory_total) == ("Unknown Error", None, 81920 * MIB)


def test_the_cards_printed_before_a_failure_still_count(smi: Smi) -> None:
    """Exit code 15: a card fell off the bus, its neighbours were already printed."""
    lost = "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot the system to recover it"
    smi(f"{A100}\n{T4}\n{lost}", apps="GPU-aaaa, 4711, 1000", code=15)
    reading = read()
    names = [(card.name, card.error) for card in reading.gpus]
    assert names == [("NVIDIA A100-SXM4-80GB", None), ("Tesla T4", None)]
    assert (reading.source, reading.problem) == ("nvidia-smi", lost)
    assert [process.pid for process in reading.gpus[0].processes] == [4711]
    # exit code 14: common on cloud machines, and the cards work
    smi(f"{A100}\n{T4}\nWARNING: infoROM is corrupted", code=14)
    assert ([card.index for card in read().gpus], read().problem) == ([0, 1], "WARNING: infoROM is corrupted")


FAILED = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that it runs."


def test_a_driver_that_does_not_answer_is_a_problem(smi: Smi) -> None:
    answers: dict[str, list[dict[str, Any]]] = {
        FAILED: [{"cards": f"{FAILED}\n\nmore", "code": 9}, {"stderr": f"{FAILED}\n\nmore", "code": 9}],
        # older drivers say so with exit code 0, newer ones with 6
        "No devices were found": [{"cards": "No devices were found", "code": code} for code in (0, 6)],
        "nvidia-smi ended with exit code 3 and no message": [
            {"act": act} for act in ("exit 3", "echo; exit 3", "echo >&2; exit 3")
        ],
    }
    for problem, cases in answers.items():
        for case in cases:
            smi(**case)
            assert read() == Reading("none", [], problem=problem)
    (smi.folder / "nvidia-smi").write_text("not a program")
    assert read() == Reading("none", [], problem="nvidia-smi does not start: Exec format error")


def test_an_nvidia_smi_that_hangs_is_given_up_once(smi: Smi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_SMI_SECONDS", 0.5)
    smi(act="exec sleep 60")
    assert read() == Reading("none", [], problem="nvidia-smi did not answer within 0.5 s")
    assert len(smi.calls) == 1, "a second question to a hanging driver only doubles the wait"
    smi(act="sleep 5 & wait")  # a helper that keeps the pipe open
    assert read().problem == "nvidia-smi did not answer within 0.5 s"


def test_an_nvidia_smi_that_cannot_even_be_killed_is_not_waited_for(smi: Smi, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside a sick driver a process is in state D, where SIGKILL has no effect: the same as no SIGKILL."""
    monkeypatch.setattr(subprocess.Popen, "kill", lambda process: None)
    monkeypatch.setattr(gpus, "_SMI_SECONDS", 0.2)
    smi(act="exec sleep 5")
    before = time.monotonic()
    assert read().problem == "nvidia-smi did not answer within 0.2 s"
    assert time.monotonic() - before < 4


NOISE = (
    r"printf '\377\376\000 garbage\n'",
    r"printf '0, \"GPU-quote, x\n1, GPU-b\n'",
    "printf '0, u, n, nan, inf, 1e999, -, , ,\\n'",
    "printf ',,,,,,,,\\n'",
    "head -c 300000 /dev/zero | tr '\\0' x",
    "yes '0,' | head -c 20000",
)


@pytest.mark.parametrize("output", NOISE)
def test_any_output_is_read_without_an_exception(smi: Smi, output: str) -> None:
    smi.script(output)
    assert all(card.memory_total is None and card.utilization is None for card in read().gpus)


def test_cuda_visible_devices() -> None:
    """As CUDA reads it: in this order, and the first word that is no device ends the list."""
    cards = [Gpu(0, "GPU-aaaa"), Gpu(1, "GPU-bbbb")]
    seen = {None: [0, 1], "": [], "1": [1], " 1, 0 ": [1, 0], "GPU-b": [1], "0,7,1": [0], "-1": []}
    assert {mask: [card.index for card in gpus.visible(cards, mask)] for mask in seen} == seen
