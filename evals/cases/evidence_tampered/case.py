"""A hundred and fifty sealed runs: edited, deleted, added to, and one whose seal was made anew after the edit."""

from __future__ import annotations

import json
from pathlib import Path

from trials.case import Box, Case, same_names
from worlds import parts, sealed

COUNT = 150
EDITED, DELETED, ADDED, RESEALED = [11, 74], [39], [102], [58, 131]


def _name(number: int) -> str:
    return f"20261020-{10 + number // 60:02d}{number % 60:02d}00-cell-{0xC0FFE0 + number:06x}"


def _results(folder: Path, value: float) -> None:
    metric = {"name": "accuracy", "value": value, "split": "test", "n": 10000, "direction": "up"}
    (folder / "results.json").write_text(json.dumps({"run_id": folder.name, "metrics": [metric]}))


def make(box: Box) -> None:
    confounds = parts.of_tests("confounds")
    root = box.work / "runs"
    folders = []
    for number in range(COUNT):
        spec = confounds.Spec(0.9, number, {"lr": 1e-3}, run_id=_name(number))
        folder = confounds.write(root, spec, number % 60)
        _results(folder, round(0.9 + number * 1e-4, 5))
        (folder / "train.log").write_text(f"step 1000 accuracy {0.9 + number * 1e-4:.5f}\n")
        (folder / "metrics.jsonl").write_text(
            json.dumps({"step": 1000, "time": 1.79e9, "split": "test", "accuracy": 0.9}) + "\n"
        )
        folders.append(folder)
    sealed.ledger(root, folders)
    for number in EDITED + RESEALED:
        _results(root / _name(number), 0.9333)
    for number in RESEALED:
        sealed.seal(root / _name(number))
    for number in DELETED:
        (root / _name(number) / "metrics.jsonl").unlink()
    for number in ADDED:
        (root / _name(number) / "results_best.json").write_text("{}")


def verify(box: Box) -> list[str]:
    bad = [_name(number) for number in EDITED + DELETED + ADDED + RESEALED]
    return same_names("tampered runs", (str(name).split("/")[-1] for name in box.read("tampered.json", list)), bad)


def reference(box: Box) -> None:
    runs = sorted(path for path in (box.work / "runs").iterdir() if path.is_dir())
    report = box.script("manifest_scaffold.py", "seal", *(f"runs/{run.name}" for run in runs), "--check")
    box.write("tampered.json", sorted({finding["path"].split("/")[1] for finding in report["findings"]}))


def naive(box: Box) -> None:
    """Each file against its own seal."""
    bad = []
    for folder in sorted(path for path in (box.work / "runs").iterdir() if path.is_dir()):
        files = json.loads((folder / "seal.json").read_text())["files"]
        if any(
            not (folder / name).exists() or sealed.sha256(folder / name) != digest for name, digest in files.items()
        ):
            bad.append(folder.name)
    box.write("tampered.json", bad)


CASE = Case(
    route="a number goes into a paper, slide or README",
    reads=(),
    minutes=5,
    commands=12,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    held_out=True,
    expected="The six runs that changed after sealing, with the two whose seal was renewed.",
)
