"""gpu_gate on cards: foreign processes, cards that fall off the bus, many cards at once, a disk that is full."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..gate_box import Gate, kill, until
from .disk import TinyDisk
from .nvml import GIB, Gpu, Nvml


@pytest.fixture
def box(tmp_path: Path, nvml: Nvml) -> Iterator[Gate]:
    box = Gate(tmp_path)
    box.environment |= nvml.env
    box.environment.pop("CUDA_VISIBLE_DEVICES", None)
    yield box
    box.clean()


def reason(box: Gate, job: str) -> str:
    return str(box.queue.find(job)["reason"])


def test_a_job_sees_its_cards_and_cards_hidden_from_us_are_not_given_away(box: Gate, nvml: Nvml) -> None:
    nvml.set([Gpu(), Gpu(), Gpu()])
    show = ("--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER")
    done = box.run("-n", "a", "--gpus", 2, *show, env={**box.environment, "CUDA_VISIBLE_DEVICES": "2, 0"})
    assert (done.stdout, box.record("a")["gpus"]) == ("0,2 PCI_BUS_ID\n", [0, 2])
    none = box.run("-n", "d", "--", "true", env={**box.environment, "CUDA_VISIBLE_DEVICES": "7"})
    assert (none.returncode, box.tickets()) == (2, [])
    assert none.stderr == "error: --gpus 1: only 0 can be seen here (CUDA_VISIBLE_DEVICES is '7')\n"
    many = box.run("-n", "e", "--gpus", 4, "--", "true")
    assert many.stderr == "error: --gpus 4: only 3 can be seen here (nvidia-smi -L lists them)\n"


def test_free_card_is_taken_past_a_busy_one_also_with_a_desktop_on_it(box: Gate, nvml: Nvml) -> None:
    desktop = Gpu(graphics_processes=[(1000, 2 * GIB)], memory_used=2 * GIB)
    nvml.set([Gpu(processes=[(4242, None)]), desktop])
    assert box.run("-n", "a", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES").stdout == "1\n"


WAITS_FOR = [
    (Gpu(processes=[(4242, GIB)], memory_used=GIB), (), "GPU 0 is used by pids [4242], not started through"),
    (Gpu(memory_used=30 * GIB), (), "GPU 0 has 30 GiB in use by no visible process"),
    (Gpu(memory_used=70 * GIB), ("--min-free-mem", "20GiB"), "GPU 0 has 10 GiB free"),
]


@pytest.mark.parametrize(("busy", "options", "expected"), WAITS_FOR)
def test_what_a_job_waits_for(box: Gate, nvml: Nvml, busy: Gpu, options: tuple[str, ...], expected: str) -> None:
    nvml.set([busy])
    job = box.detach("a", "true", slots=None, options=options)
    until(lambda: expected in reason(box, job))
    nvml.set([Gpu()])
    assert box.run("wait", job, "--timeout", "30s").returncode == 0


def test_lost_card_is_reported_and_never_used(box: Gate, nvml: Nvml) -> None:
    nvml.set([Gpu(processes=[(4242, None)]), Gpu(processes=[(4242, None)])])
    box.environment["CUDA_VISIBLE_DEVICES"] = "1"
    job = box.detach("a", "true", slots=None)
    until(lambda: "4242" in reason(box, job))
    nvml.set([Gpu(), Gpu(lost=True)])
    until(lambda: "GPU 1: GPU is lost" in reason(box, job))
    box.environment["CUDA_VISIBLE_DEVICES"] = "0"
    assert box.run("-n", "b", "--", "true").returncode == 0  # the healthy card still works
    nvml.set([], init_error=9)
    until(lambda: "NVML does not start" in reason(box, job))
    nvml.set([Gpu(), Gpu()])
    assert box.run("wait", job, "--timeout", "30s").returncode == 0


def test_running_job_does_not_care_when_nvml_dies(box: Gate, nvml: Nvml) -> None:
    job = box.detach("a", "sh", "-c", "until [ -e go ]; do sleep 0.05; done", slots=None)
    box.running(job)
    nvml.set([], init_error=9)
    (box.directory / "go").touch()
    assert box.run("wait", job).returncode == 0


def test_jobs_that_share_a_card_by_their_memory(box: Gate, nvml: Nvml) -> None:
    """Two of 30 GiB fit on 80, a third does not although nobody has allocated yet; one alone waits for all of them."""
    nvml.set([Gpu()])
    share = ("--share", 3, "--min-free-mem", "30GiB")
    first, second, third = (box.detach(name, "sleep", 60, slots=None, options=share) for name in ("a", "b", "c"))
    assert [box.running(job)["gpus"] for job in (first, second)] == [[0], [0]]
    until(lambda: reason(box, third) == "GPU 0 has 20 GiB free")
    pid = box.running(first)["job"]["pid"]
    nvml.set([Gpu(processes=[(pid, 29 * GIB)], memory_used=29 * GIB)])  # what it takes was promised to it before
    alone = box.detach("alone", "true", slots=None)
    until(lambda: reason(box, alone) == "others are ahead in line")
    assert box.run("cancel", first).returncode == 0
    nvml.set([Gpu()])
    box.running(third)
    until(lambda: "taken by other jobs" in reason(box, alone))
    kill(box.running(second)["gate"]["pid"])  # its job lives on, and keeps its place on the card
    assert box.run("cancel", third).returncode == 0
    assert box.state(alone) == "queued"
    kill(box.queue.find(second)["job"]["pid"])
    assert box.run("wait", alone, "--timeout", "30s").returncode == 0


def test_a_shared_card_has_no_more_places_than_said(box: Gate, nvml: Nvml) -> None:
    nvml.set([Gpu()])
    share = ("--share", 2, "--min-free-mem", "1GiB")
    jobs = [box.detach(name, "sleep", 60, slots=None, options=share) for name in "abc"]
    until(lambda: "has its 2 jobs" in reason(box, jobs[2]))
    assert box.run("cancel", jobs[0]).returncode == 0
    box.running(jobs[2])
    wrong = box.run("-n", "d", "--share", 2, "--", "true")
    assert wrong.returncode == 2 and "--share 3 --min-free-mem 20GiB" in wrong.stderr


def test_big_request_is_not_starved_by_small_ones(box: Gate, nvml: Nvml) -> None:
    nvml.set([Gpu(), Gpu()])
    small = box.detach("small", "sleep", 300, slots=None)
    box.running(small)
    big = box.detach("big", "true", slots=None, options=("--gpus", 2))
    late = box.detach("late", "true", slots=None)
    until(lambda: reason(box, late) == "others are ahead in line")
    kill(box.running(small)["job"]["pid"])
    assert box.run("wait", big, late).returncode == 0
    assert box.record(big)["started"] < box.record(late)["started"]


def test_requests_for_different_cards_pass_each_other(box: Gate, nvml: Nvml) -> None:
    nvml.set([Gpu(), Gpu()])
    box.environment["CUDA_VISIBLE_DEVICES"] = "0"
    box.running(box.detach("holder", "sleep", 300, slots=None))
    box.detach("stuck", "true", slots=None)
    box.environment["CUDA_VISIBLE_DEVICES"] = "1"
    assert box.run("-n", "free", "--", "true").returncode == 0
    assert box.state("stuck") == "queued"


def test_full_disk_leaves_no_ticket_behind(box: Gate, tiny_disk: TinyDisk) -> None:
    disk = tiny_disk(size="64k", inodes=40)
    queue = disk / "queue"
    box.environment["RGT_QUEUE"] = str(queue)
    assert box.run("-n", "before", "--slots", 1, "--", "true").returncode == 0
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(b"x" * 4096)
    done = box.run("-n", "a", "--slots", 1, "--", "true")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"error: cannot queue the job in {queue}: No space left on device\n"
    assert list((queue / "line").iterdir()) == []
    assert [job["name"] for job in json.loads(box.run("list", "--json").stdout)["jobs"]] == ["before"]
    filler.unlink()
    assert box.run("-n", "after", "--slots", 1, "--", "true").returncode == 0
