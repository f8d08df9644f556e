"""Trackers as evidence: real offline runs are read bit by bit, and nothing is removed by accident."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tracker.offline import Offline

from . import front_door
from .tracker_service import Service

HERE = Path(__file__).resolve().parent
SCRIPT = HERE.parent / "scripts" / "wandb_forensics.py"
pytestmark = pytest.mark.xdist_group("wandb_forensics")  # the runs are made once


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tracked")
    for kind in ("killed", "rest"):
        done = subprocess.run([sys.executable, HERE / "tracked_runs.py", folder, kind], capture_output=True, text=True)
        assert done.returncode == (-9 if kind == "killed" else 0), done.stderr
    return folder


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resumed")
    subprocess.run([sys.executable, HERE / "tracked_runs.py", folder, "resumed"], check=True)
    return folder


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may harm."""
    shutil.copytree(made, tmp_path / "w", symlinks=True)
    return tmp_path / "w"


def run(*words: object) -> subprocess.CompletedProcess[str]:
    """In this process, which imports wandb (a second) once; the hosted service has a client with a memory."""
    if "WANDB_BASE_URL" not in os.environ:
        return front_door.call("wandb_forensics.py", *words)
    return subprocess.run([sys.executable, SCRIPT, *map(str, words)], capture_output=True, text=True)


def answer(*words: object, code: int = 0) -> dict[str, Any]:
    done = run(*words, "--json")
    assert done.returncode == code, done.stderr
    data: dict[str, Any] = json.loads(done.stdout)
    return data


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return type(a) is type(b) and a == b


def test_history_is_what_was_logged_bit_by_bit(made: Path) -> None:
    source = Offline(made)
    by_id = {tracked.id: tracked for tracked in source.runs()}
    logged = [json.loads(line) for line in (made / "logged.jsonl").read_text().splitlines()]
    read = {run_id: {row["_step"]: row for row in source.history(by_id[run_id])} for run_id in by_id}
    checked = 0
    for entry in logged:
        row = read[entry["id"]].get(entry["step"], {})
        if entry["id"] == "killed01" and not row:
            continue  # died before it was written
        for key, value in entry["values"].items():
            for name, part in {f"{key}.er": value["er"]}.items() if isinstance(value, dict) else ((key, value),):
                assert same(row[name], part), (entry["id"], entry["step"], name)
                checked += 1
    assert checked >= 3 * 40 * 9  # three whole runs, nine values a step


def test_list_knows_every_fate(made: Path) -> None:
    report = answer("list", made, code=1)
    states = {row["id"]: (row["state"], row["rows"]) for row in report["runs"]}
    assert {key: value for key, value in states.items() if key != "killed01"} == {
        "good0001": ("finished", 40),
        "copy0001": ("finished", 40),
        "other001": ("finished", 40),
        "failed01": ("failed", 2),
    }
    assert states["killed01"][0] in ("running", "crashed")
    assert [finding["code"] for finding in report["findings"] if finding["severity"] == "warn"] == ["duplicate"]
    good = next(row for row in report["runs"] if row["id"] == "good0001")
    assert good["config"] == {"lr": 0.1, "seed": 1, "optim.name": "adam", "optim.eps": 1e-8}


def test_diff_names_the_settings_that_changed(made: Path) -> None:
    changed = answer("diff", made, "good0001", "other001", code=1)["config"]
    assert changed == {"lr": [0.1, 0.2], "seed": [1, 2]}
    assert "config   lr: 0.1 -> 0.2" in run("diff", made, "good", "other").stdout
    assert answer("diff", made, "good0001", "copy0001")["config"] == {}


def test_curve_is_unsampled(made: Path) -> None:
    points = answer("curve", made, "good0001", "val/acc")["points"]
    assert [step for step, _ in points] == list(range(40))
    done = run("curve", made, "good0001", "no")
    assert done.returncode == 2 and "never logged no; it logged: bad, count, deep.er" in done.stderr


def test_dupes(made: Path) -> None:
    groups = answer("dupes", made, code=1)["groups"]
    assert [(group["kind"], len(group["runs"])) for group in groups] == [("copy", 2)]


def test_a_resumed_run_is_parts_of_one(runs: Path) -> None:
    folder = next((runs / "wandb").glob("*good0001"))
    shutil.copytree(folder, folder.with_name("offline-run-20991231_000000-good0001"))
    groups = answer("dupes", runs, code=1)["groups"]
    assert [(group["kind"], len(group["runs"])) for group in groups] == [("resume", 2), ("copy", 3)]
    assert "this is the longest" in run("diff", runs, "good0001", "other001").stderr


def test_the_curve_of_a_resumed_run_is_joined(resumed: Path) -> None:
    done = run("curve", resumed, "halves01", "loss", "--json")
    twin = answer("curve", resumed, "twin0001", "loss")["points"]
    assert len(twin) == 55 and json.loads(done.stdout)["points"] == twin  # the later record wins from step 25 on
    assert "2 records of halves01 were joined by step, the later one counts where both have a step (5):" in done.stderr
    assert "part0" in done.stderr and "steps 0 to 29" in done.stderr and "steps 25 to 54" in done.stderr
    early = answer("curve", resumed, "halves01", "early")["points"]
    assert [step for step, _ in early] == list(range(30))  # what only the earlier record logged at a step stays


def test_a_resumed_run_is_exported_whole(resumed: Path, tmp_path: Path) -> None:
    from rgt import rundir

    path = Path(answer("export", resumed, "halves01", "--into", tmp_path / "runs")["run"])
    assert list(rundir.open_run(path).curve("loss")) == list(range(55))


def test_a_copy_of_a_resumed_run_is_found(resumed: Path) -> None:
    groups = answer("dupes", resumed, code=1)["groups"]
    assert [(group["kind"], group["keep"], len(group["runs"])) for group in groups] == [
        ("resume", "halves01", 2),
        ("copy", "halves01", 3),
    ]
    said = [finding["message"] for finding in answer("list", resumed, code=1)["findings"]]
    assert "halves01, twin0001 hold the same curve: one run counted 2 times" in said
    assert [row["id"] for row in answer("prune", resumed)["plan"]] == ["twin0001"]


def test_a_resumed_run_is_pruned_whole_and_its_short_first_record_never_alone(resumed: Path) -> None:
    plan = answer("prune", resumed, "--shorter-than", "1000")["plan"]
    assert "halves01" not in {row["id"] for row in plan}
    done = answer("prune", resumed, "halves01", "--yes")
    assert [row["id"] for row in done["removed"]] == ["halves01", "halves01"] and done["still_listed"] == []
    assert [row["id"] for row in answer("list", resumed)["runs"]] == ["twin0001"]


@pytest.mark.parametrize("harm", ["cut", "flip"])
def test_a_damaged_file_is_read_up_to_the_damage(runs: Path, harm: str) -> None:
    path = next((runs / "wandb").glob("*good0001/*.wandb"))
    data = bytearray(path.read_bytes())
    middle = len(data) * 3 // 4
    if harm == "cut":
        path.write_bytes(data[:middle])
    else:
        data[middle] ^= 0xFF
        path.write_bytes(data)
    report = answer("list", runs, code=1)
    row = next(row for row in report["runs"] if row["id"] == "good0001")
    assert 5 < row["rows"] < 40
    said = next(finding["message"] for finding in report["findings"] if finding["code"] == "truncated")
    assert ("ends inside a record" if harm == "cut" else "its checksum does not fit") in said


def test_one_empty_file_does_not_hide_the_others(runs: Path) -> None:
    """Killed, or out of disk, before the first block was written."""
    place = runs / "wandb" / "offline-run-20261101_080000-empty001"
    place.mkdir()
    (place / "run-empty001.wandb").touch()
    os.utime(place / "run-empty001.wandb", (0, 0))
    report = answer("list", runs, code=1)
    states = {row["id"]: row["state"] for row in report["runs"]}
    assert states["empty001"] == "crashed" and states["good0001"] == "finished"
    assert any("run-empty001.wandb is not a W&B record file" in finding["message"] for finding in report["findings"])


def test_prune_plans_refuses_and_moves(runs: Path) -> None:
    plan = {row["id"]: row["why"] for row in answer("prune", runs)["plan"]}
    assert plan["failed01"] == "failed after 2 rows"
    assert ("copy0001" in plan) != ("good0001" in plan)
    assert len(answer("list", runs, code=1)["runs"]) == 5  # a plan removes nothing
    refused = run("prune", runs, "--yes")
    assert refused.returncode == 4 and "--yes needs the ids" in refused.stderr
    done = answer("prune", runs, "failed01", "--yes")
    assert done["still_listed"] == [] and Path(done["removed"][0]["now"]).is_dir()
    assert len(answer("list", runs, code=1)["runs"]) == 4


def test_a_running_run_is_never_pruned(runs: Path) -> None:
    next((runs / "wandb").glob("*killed01/*.wandb")).touch()
    done = run("prune", runs, "killed01", "--yes")
    if "still runs" in done.stderr:  # its file was whole when it was killed
        assert done.returncode == 4
    assert list((runs / "wandb").glob("*killed01")) or done.returncode == 0


def test_export_gives_a_run_directory(made: Path, tmp_path: Path) -> None:
    from rgt import rundir

    path = Path(answer("export", made, "good0001", "--into", tmp_path / "runs")["run"])
    exported = rundir.open_run(path)
    assert exported.record()["config"]["lr"] == 0.1 and exported.record()["seeds"] == {"seed": 1}
    assert len(exported.curve("loss")) == 40 and len(exported.curve("acc", split="val")) == 40
    source = Offline(made)
    tracked = next(one for one in source.runs() if one.id == "good0001")
    assert list(exported.curve("loss").values()) == [row["loss"] for row in source.history(tracked)]


@pytest.fixture
def service() -> Iterator[Service]:
    rows = [{"_step": step, "_timestamp": 1.0, "loss": 1 / (step + 3)} for step in range(1200)]
    end = {"loss": 0.1, "_step": 1199}
    service = Service(
        {
            "a1": {"state": "finished", "config": {"lr": 0.1}, "summary": end, "rows": rows},
            "b2": {"state": "crashed", "config": {"lr": 0.2}, "summary": {"_step": 2}, "rows": rows[:3]},
        }
    )
    yield service
    service.stop()


def test_the_hosted_service_through_its_real_client(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", service.start())
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert [(row["id"], row["state"]) for row in answer("list", "me/p")["runs"]] == [
        ("a1", "finished"),
        ("b2", "crashed"),
    ]
    points = answer("curve", "me/p", "a1", "loss")["points"]
    assert points == [[step, 1 / (step + 3)] for step in range(1200)]  # `history` would have sampled 500 of them
    assert answer("diff", "me/p", "a1", "b2", code=1)["config"] == {"lr": [0.1, 0.2]}
    assert [row["id"] for row in answer("prune", "me/p")["plan"]] == ["b2"] and service.deleted == []
    done = answer("prune", "me/p", "b2", "--yes")
    assert (service.deleted, done["still_listed"]) == (["b2"], [])  # listed once more, as the real one does, then gone


def test_a_service_that_does_not_know_us(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.runs, service.viewer = {}, {}
    monkeypatch.setenv("WANDB_BASE_URL", service.start())
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    done = run("list", "me/p")
    assert (
        done.returncode == 3
        and "the hosted service did not give me/p: " in done.stderr
        and "Traceback" not in done.stderr
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["list", "./nothing"], "nothing does not exist; name a folder, or entity/project"),
        (["list", "EMPTY"], "no run-*.wandb below"),
        (["list", "JUNK"], "is not a W&B record file"),
        (["diff", "MADE", "a", "b"], "no run a; there are:"),
    ],
)
def test_bad_input(made: Path, tmp_path: Path, words: list[str], sentence: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "junk.wandb").write_bytes(b"junk")
    places = {"EMPTY": str(tmp_path / "empty"), "JUNK": str(tmp_path / "junk.wandb"), "MADE": str(made)}
    done = run(*(places.get(word, word) for word in words))
    assert done.returncode == 2 and sentence in done.stderr and "Traceback" not in done.stderr
