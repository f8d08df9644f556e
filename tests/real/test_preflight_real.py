"""preflight on cards, full disks, a small /dev/shm and a real cgroup: what the kernel and NVML say, not a mock."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ..front_door import executable
from .disk import TinyDisk
from .nvml import GIB, Gpu, Nvml
from .support import need, need_root, run

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "preflight.py"
AUDIT = [sys.executable, str(SCRIPT), "audit", "--json", "--python", "no-such-python"]
TORCH: dict[str, Any] = {"version": "2.6.0+cu124", "cuda": "12.4", "hip": None, "arch": ["sm_80", "sm_90"]}
TORCH |= {"available": True, "count": 1, "error": ""}
FACTS = {"executable": "/env/bin/python", "prefix": "/env", "version": "3.11.7"}

Rows = dict[str, list[tuple[str, str]]]


def audit(*words: str, env: dict[str, str] | None = None, before: list[str] | None = None) -> Rows:
    """Status and what was seen, by name."""
    done = run([*(before or []), *AUDIT, *words], env=env, check=False)
    assert done.stdout, done.stderr
    found: Rows = {}
    for row in json.loads(done.stdout)["checks"]:
        found.setdefault(row["name"], []).append((row["status"], row["seen"]))
    return found


@pytest.fixture
def box(nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Audits a job on the cards that `nvml` shows, with an interpreter that answers these facts about torch."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def ask(torch: dict[str, Any] | None = None, env: dict[str, str] | None = None, **settings: Any) -> Rows:
        facts = {**FACTS, "torch": {**TORCH, **(torch or {})}}
        python = executable(tmp_path / "python", f"cat <<'END'\n{json.dumps(facts)}\nEND")
        (tmp_path / "train.py").write_text("")
        spec = tmp_path / "job.json"
        spec.write_text(json.dumps({"name": "x", "script": "train.py", "python": str(python), **settings}))
        return audit(str(spec), env={**nvml.env, **(env or {})})

    return ask


# --- cards ----------------------------------------------------------------------------------------------------------


def test_cards_and_torch_fit(box: Any, nvml: Nvml) -> None:
    nvml.set([Gpu(), Gpu(processes=[(4242, GIB)])], driver="550.54.15", cuda=12040)
    found = box(gpus_per_node=2)
    assert found["gpus"] == [("ok", "2 x NVIDIA A100-SXM4-80GB 80 GiB, in use: 1, driver 550.54.15")]
    fits = "torch 2.6.0+cu124, built for CUDA 12.4, driver for CUDA 12.4, cards sm_80: they fit"
    assert found["torch"] == [("ok", fits)]


def test_the_versions_that_nvml_tells_reach_the_verdict(box: Any, nvml: Nvml) -> None:
    nvml.set([Gpu(name="RTX 5090", compute_capability=(12, 0))], cuda=12080)
    no_kernel = "no kernel image for RTX 5090 (sm_120): torch 2.6.0+cu124 has sm_80 sm_90"
    assert box(gpus_per_node=1)["torch"] == [("fail", no_kernel)]
    nvml.set([Gpu()], cuda=12040)
    old_driver = "torch 2.6.0+cu124, built for CUDA 13.0, the driver ends at CUDA 12.4"
    assert box({"cuda": "13.0", "available": False}, gpus_per_node=1)["torch"] == [("fail", old_driver)]


def test_cards_that_do_not_suffice(box: Any, nvml: Nvml) -> None:
    nvml.set([Gpu(), Gpu()])
    assert box(gpus_per_node=4)["gpus"] == [("fail", "2 of 2 usable, the job asks for 4")]
    hidden = box(gpus_per_node=2, env={"CUDA_VISIBLE_DEVICES": "1"})
    assert hidden["gpus"] == [("fail", "1 of 2 usable (CUDA_VISIBLE_DEVICES='1'), the job asks for 2")]
    small = box(gpus_per_node=1, hardware={"min_gpu_memory": "140GiB"})
    assert small["gpu memory"][0] == ("fail", "GPU 0 has 80 GiB, the job asks for 140 GiB")


def test_a_lost_card_is_a_row_and_the_others_count(box: Any, nvml: Nvml) -> None:
    nvml.set([Gpu(lost=True), Gpu()])
    ((status, lost), (other, _)) = box(gpus_per_node=1)["gpus"]
    assert (status, other) == ("warn", "ok") and lost.startswith("GPU 0: ")
    assert [row[0] for row in box(gpus_per_node=2)["gpus"]] == ["fail", "fail"]


def test_a_sick_card(box: Any, nvml: Nvml) -> None:
    nvml.set([Gpu(ecc_uncorrected=3, clocks_event_reasons=0x40)])
    found = box(gpus_per_node=1)
    assert found["gpu memory"] == [("warn", "GPU 0: 3 uncorrected memory errors since the driver was loaded")]
    assert found["gpu clocks"] == [("warn", "GPU 0: hw_thermal_slowdown")]


def test_a_driver_that_is_not_up(box: Any, nvml: Nvml) -> None:
    nvml.set([], init_error=9)  # NVML_ERROR_DRIVER_NOT_LOADED
    ((status, seen),) = box(gpus_per_node=1)["gpus"]
    assert status == "fail" and seen.startswith("NVML does not start: ")


# --- disks ----------------------------------------------------------------------------------------------------------


def test_a_full_disk(tiny_disk: TinyDisk) -> None:
    disk = tiny_disk(size="8m")
    with suppress(OSError), (disk / "big").open("wb", buffering=0) as file:
        while file.write(b"\0" * (1 << 20)):
            pass
    ((status, seen),) = audit("--write", str(disk))["disk write"]
    assert status == "fail"
    assert seen == f"{disk}: 0 B free, 48 inodes free (tmpfs), but a write fails: No space left on device"
    assert [path.name for path in disk.iterdir()] == ["big"]  # no probe file is left


def test_few_inodes(tiny_disk: TinyDisk) -> None:
    ((status, seen),) = audit("--write", str(tiny_disk(size="4g", inodes=60)))["disk write"]
    assert (status, seen.endswith("4 GiB free, 59 inodes free (tmpfs)")) == ("fail", True), seen


def test_output_in_memory_is_lost_at_a_stop(tiny_disk: TinyDisk) -> None:
    disk = str(tiny_disk(size="4g", inodes=20_000))
    ((status, seen),) = audit("--write", disk)["disk write"]
    assert (status, seen.partition(": memory, ")[2]) == ("warn", "gone at a stop, and counted as memory used")
    assert audit(env={"TMPDIR": disk})["disk TMPDIR"][0][0] == "ok"  # where it belongs


@pytest.mark.parametrize(("size", "status"), [("1GiB", "ok"), ("1200MiB", "warn"), ("2100MiB", "fail")])
def test_checkpoint_budget(tiny_disk: TinyDisk, size: str, status: str) -> None:
    """One kept and one being written: 2 x size must fit, 4 x size is comfortable."""
    disk = str(tiny_disk(size="4g", inodes=20_000))
    assert audit("--write", disk, "--checkpoint-size", size, "--keep", "1")["checkpoints"][0][0] == status


# --- limits of a container ------------------------------------------------------------------------------------------


def test_shared_memory_of_a_plain_container() -> None:
    need_root("a mount namespace of its own")
    mount = 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"'
    ((status, seen),) = audit(before=[need("unshare", "util-linux"), "-m", "sh", "-c", mount, "sh"])["/dev/shm"]
    assert (status, seen) == ("warn", "64 MiB: DataLoader workers die with a bus error when it is full")
