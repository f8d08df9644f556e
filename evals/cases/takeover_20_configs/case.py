"""Twenty inherited configs; seven have a path that looks right and is not."""

from __future__ import annotations

from pathlib import Path

from trials.case import Box, Case, same_names
from worlds import weights

JOBS = [f"job{number:02d}" for number in range(1, 21)]
# job: what is wrong with it
BLOCKED = {
    "job03": "resume file cut", "job06": "data folder empty", "job09": "data link dangles",
    "job12": "resume from a file of another name",
    "job14": "output is a file", "job17": "pretrained weights are an LFS pointer", "job19": "data file missing",
}  # fmt: skip


def make(box: Box) -> None:
    work = box.work
    for job in JOBS:
        data = work / "data" / job
        data.mkdir(parents=True)
        (data / "train.bin").write_bytes(bytes(range(256)) * 64)
        (data / "val.bin").write_bytes(bytes(range(256)) * 16)
        weights.torch_file(work / "prev" / job / "step_2000.pt", 100 + int(job[3:]), 2000)
        _config(work, job, "step_2000.pt" if job != "job12" else "step_2500.pt")
    cut = work / "prev/job03/step_2000.pt"
    cut.write_bytes(cut.read_bytes()[:70_000])
    for path in (work / "data/job06").iterdir():
        path.unlink()
    (work / "data/job09").rename(work / "data/job09-old")
    (work / "data/job09").symlink_to("/mnt/nas2/job09")
    (work / "out").mkdir()
    (work / "out/job14").write_text("old notes\n")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "a1" * 32 + "\nsize 1342177280\n"
    (work / "prev/job17/step_2000.pt").write_text(pointer)
    (work / "data/job19/val.bin").unlink()


def _config(work: Path, job: str, resume: str) -> None:
    path = work / "configs" / f"{job}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        f"name: {job}\nlr: 3.0e-4\ndata_dir: data/{job}\n"
        f"train_file: ${{data_dir}}/train.bin\nval_file: ${{data_dir}}/val.bin\n"
        f"resume_from: prev/{job}/{resume}\noutput_dir: out/{job}\nmax_steps: 4000\n"
    )


def verify(box: Box) -> list[str]:
    return same_names("blocked jobs", box.read("blocked.json"), BLOCKED)


def reference(box: Box) -> None:
    # the configs' paths, then what only a look inside the weights shows
    found = box.script("verify_local.py", *(f"prev/{job}/step_2000.pt" for job in JOBS))["findings"]
    blocked = {f["path"].split("/")[1]: f["message"] for f in found if f["severity"] == "error"}
    for job in JOBS:
        report = box.script("takeover.py", "validate", f"configs/{job}.yaml", "--no-load")
        errors = [finding["message"] for finding in report["findings"] if finding["severity"] == "error"]
        if errors:
            blocked[job] = errors[0]
    box.write("blocked.json", blocked)


def naive(box: Box) -> None:
    """Every path exists, so it runs."""
    blocked = {}
    for job in JOBS:
        for line in (box.work / "configs" / f"{job}.yaml").read_text().splitlines():
            key, _, value = line.partition(": ")
            if key in ("data_dir", "resume_from") and not (box.work / value).exists():
                blocked[job] = f"{value} is missing"
    box.write("blocked.json", blocked)


CASE = Case(
    route="a run is already going: take over",
    reads=("references/takeover.md",),
    minutes=6,
    commands=15,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    expected="blocked.json names the seven jobs that cannot start.",
)
