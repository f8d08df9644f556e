"""Trackers as evidence: real offline runs are read bit by bit, and nothing is removed by accident."""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt.run import record as rundir
from rgt.run.foreign import wandb_files as sources

import pytest
import wandb.proto.wandb_internal_pb2 as wandb_proto

from . import front_door
from .tracker_service import Service

HERE = Path(__file__).resolve().parent
pb: Any = wandb_proto
pytestmark = pytest.mark.xdist_group("wandb_forensics")  # the runs are made once


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tracked")
    for kind in ("killed", "rest"):
        done = subprocess.run([sys.executable, HERE / "tracked_runs.py", folder, kind], capture_output=True, text=True)
        assert done.returncode == (-9 if kind == "killed" else 0), done.stderr
    return folder


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may harm."""
    shutil.copytree(made, tmp_path / "w", symlinks=True)
    return tmp_path / "w"


def record_file(path: Path, *records: Any) -> Path:
    """A .wandb file of these records; each must fit into what is left of its block."""
    data = b":W&B\xe1\xbe\x00"
    for record in records:
        payload = record.SerializeToString()
        assert len(data) % 32768 + 7 + len(payload) <= 32768
        data += struct.pack("<IHB", zlib.crc32(payload, zlib.crc32(b"\x01")), len(payload), 1) + payload
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def started(run_id: str, name: str = "", **config: str) -> Any:
    """The first record of a run; settings as JSON."""
    record = pb.Record()
    record.run.run_id, record.run.display_name, record.run.project = run_id, name or run_id, "forensics"
    for key, value in config.items():
        record.run.config.update.add(key=key, value_json=value)
    return record


def row(step: int, **values: str) -> Any:
    record = pb.Record()
    record.history.step.num = step
    for key, value in values.items():
        record.history.item.add(key=key, value_json=value)
    return record


def ended(code: int = 0) -> Any:
    record = pb.Record()
    record.exit.exit_code = code
    return record


@pytest.fixture
def resumed(tmp_path: Path) -> Path:
    """One run in two records that overlap by five steps, and the whole of it under another id."""
    first = [row(step, loss=f"{1 / (step + 1)}", early="1") for step in range(30)]
    second = [row(step, loss=f"{2 / (step + 1)}") for step in range(25, 55)]
    both = [row(step, loss=f"{2 / (step + 1)}", early="1") for step in range(25, 30)]
    whole = [*first[:25], *both, *second[5:]]
    for number, (run_id, rows) in enumerate((("halves01", first), ("halves01", second), ("twin0001", whole))):
        record_file(tmp_path / "w" / f"part{number}" / f"run-{run_id}.wandb", started(run_id), *rows, ended())
    return tmp_path / "w"


def run(*words: object) -> subprocess.CompletedProcess[str]:
    """In this process, which imports wandb (a second) once."""
    return front_door.call("wandb_forensics.py", *words)


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
    source = sources.Offline(made)
    read = {run.id: {row["_step"]: row for row in source.history(run)} for run in source.runs()}
    checked = 0
    for entry in map(json.loads, (made / "logged.jsonl").read_text().splitlines()):
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
    assert states.pop("killed01")[0] in ("running", "crashed")
    whole = dict.fromkeys(("good0001", "copy0001", "other001"), ("finished", 40))
    assert states == {**whole, "failed01": ("failed", 2)}
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


def test_the_curve_of_a_resumed_run_is_joined_and_exported_whole(resumed: Path, tmp_path: Path) -> None:
    done = run("curve", resumed, "halves01", "loss", "--json")
    twin = answer("curve", resumed, "twin0001", "loss")["points"]
    assert len(twin) == 55 and json.loads(done.stdout)["points"] == twin  # the later record wins from step 25 on
    assert "2 records of halves01, which was resumed; the later one counts where both have a step: " in done.stderr
    early = answer("curve", resumed, "halves01", "early")["points"]
    assert [step for step, _ in early] == list(range(30))  # what only the earlier record logged at a step stays
    path = Path(answer("export", resumed, "halves01", "--into", tmp_path / "runs")["run"])
    assert list(rundir.open_run(path).curve("loss")) == list(range(55))


def test_a_copy_of_a_resumed_run_is_found(resumed: Path) -> None:
    assert [finding["message"] for finding in answer("list", resumed, code=1)["findings"]] == [
        "2 records, it was resumed; curve and export join them",
        "halves01, twin0001 hold the same curve: one run counted 2 times",
    ]


@pytest.mark.parametrize("harm", ["cut", "flip"])
def test_a_damaged_file_is_read_up_to_the_damage(runs: Path, harm: str) -> None:
    path = next((runs / "wandb").glob("*good0001/*.wandb"))
    data = bytearray(path.read_bytes())
    middle = len(data) * 3 // 4
    data[middle] ^= 0xFF
    path.write_bytes(data[:middle] if harm == "cut" else data)
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


def test_a_file_that_ends_where_its_block_has_no_room_for_another_header(tmp_path: Path) -> None:
    """The padding is written together with the next record, and there was none."""
    filler, first = pb.Record(), started("edge0001")
    filler.output.line = "x" * 30000
    short = 32768 - 3 - len(record_file(tmp_path / "run-edge0001.wandb", first, filler).read_bytes())
    filler.output.line += "x" * short
    path = record_file(tmp_path / "run-edge0001.wandb", first, filler)
    assert path.stat().st_size == 32768 - 3
    assert [row["id"] for row in answer("list", path)["runs"]] == ["edge0001"]


def test_a_name_that_several_runs_have_is_refused(tmp_path: Path) -> None:
    for run_id in ("aa", "bb"):
        record_file(tmp_path / "w" / run_id / f"run-{run_id}.wandb", started(run_id, "baseline"), ended())
    done = run("curve", tmp_path / "w", "baseline", "loss")
    assert done.returncode == 2 and "baseline names 2 runs: aa, bb; name one by its id" in done.stderr


def test_an_export_keeps_its_own_step_and_what_strict_json_has_no_word_for(tmp_path: Path) -> None:
    first = started("odd00001", dropout="NaN", lr="0.1")
    rows = [row(7, **{"train/step": "900", "train/time": "0.25", "loss": "Infinity", "_timestamp": "5.0"})]
    record_file(tmp_path / "w" / "run-odd00001.wandb", first, *rows, ended())
    listed = json.loads(run("list", tmp_path / "w", "--json").stdout, parse_constant=pytest.fail)
    assert listed["runs"][0]["config"] == {"dropout": "NaN", "lr": 0.1}
    exported = rundir.open_run(Path(answer("export", tmp_path / "w", "odd00001", "--into", tmp_path / "runs")["run"]))
    assert exported.record()["config"]["dropout"] == "NaN" and exported.curve("loss") == {7: math.inf}
    assert json.loads(exported.metrics.read_text())["time"] == 5.0


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    rows = [{"_step": step, "_timestamp": 1.0, "loss": 1 / (step + 3)} for step in range(1200)]
    whole = {"state": "finished", "config": {"lr": 0.1}, "summary": {"loss": 0.1, "_step": 1199}, "rows": rows}
    short = {"state": "crashed", "config": {"lr": 0.2}, "summary": {"_step": 2}, "rows": rows[:3]}
    service = Service({"a1": whole, "b2": short})
    monkeypatch.setenv("WANDB_BASE_URL", service.start())
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    yield service
    service.stop()


def test_the_hosted_service_through_its_real_client(service: Service) -> None:
    assert {row["id"]: row["state"] for row in answer("list", "me/p")["runs"]} == {"a1": "finished", "b2": "crashed"}
    points = answer("curve", "me/p", "a1", "loss")["points"]
    assert points == [[step, 1 / (step + 3)] for step in range(1200)]  # `history` would have sampled 500 of them
    assert answer("diff", "me/p", "a1", "b2", code=1)["config"] == {"lr": [0.1, 0.2]}


def test_a_service_says_nan_as_a_word(service: Service, tmp_path: Path) -> None:
    service.runs["a1"]["rows"] = [{"_step": 0, "_timestamp": 1.0, "loss": 0.5}, {"_step": 1, "loss": "NaN"}]
    exported = rundir.open_run(Path(answer("export", "me/p", "a1", "--into", tmp_path)["run"]))
    assert math.isnan(exported.curve("loss")[1])


def test_a_service_that_does_not_know_us(service: Service) -> None:
    service.runs, service.viewer = {}, {}
    done = run("list", "me/p")
    assert (done.returncode, "Traceback" in done.stderr) == (3, False)
    assert "the hosted service did not give me/p: " in done.stderr


BAD_INPUT = [
    (["list", "./nothing"], "nothing does not exist; name a folder, or entity/project"),
    (["list", "EMPTY"], "no run-*.wandb below"),
    (["list", "JUNK"], "is not a W&B record file"),
    (["diff", "MADE", "a", "b"], "no run a; there are:"),
]


@pytest.mark.parametrize(("words", "sentence"), BAD_INPUT)
def test_bad_input(made: Path, tmp_path: Path, words: list[str], sentence: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "junk.wandb").write_bytes(b"junk")
    places = {"EMPTY": str(tmp_path / "empty"), "JUNK": str(tmp_path / "junk.wandb"), "MADE": str(made)}
    done = run(*(places.get(word, word) for word in words))
    assert done.returncode == 2 and sentence in done.stderr and "Traceback" not in done.stderr
