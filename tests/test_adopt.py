"""Runs that others made: what the real libraries wrote is read back equal, and every later verb works on it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rgt import files, schema
from rgt.run import record, seal

import pytest

from . import front_door
from .foreign_runs import NEEDS, STEPS, losses
from .test_wandb_forensics import ended, pb, record_file, row, started

HERE = Path(__file__).resolve().parent
pytestmark = pytest.mark.xdist_group("adopt")  # what the libraries write is made once
_made: dict[str, Path] = {}


def written_by(kind: str, factory: pytest.TempPathFactory) -> Path:
    """A folder that the real library wrote; made once."""
    if importlib.util.find_spec(NEEDS[kind]) is None:
        pytest.skip(f"{NEEDS[kind]} is not installed")
    if kind not in _made:
        folder = factory.mktemp("foreign") / kind
        done = subprocess.run([sys.executable, HERE / "foreign_runs.py", kind, folder], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        _made[kind] = folder
    return _made[kind]


def adopt(*words: object, into: Path, code: int | None = None) -> dict[str, Any]:
    done = front_door.call("adopt.py", *words, "--into", into, "--json")
    assert done.stdout and done.returncode in ((0, 1) if code is None else (code,)), done.stderr
    found: dict[str, Any] = json.loads(done.stdout, parse_constant=pytest.fail)
    assert schema.problems(found, "report") == []
    return found


def only(found: dict[str, Any]) -> record.Run:
    (row,) = found["runs"]
    return record.open_run(Path(row["run"]))


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# -- the real libraries


@pytest.mark.parametrize("kind", NEEDS)
def test_what_a_library_wrote_is_read_back_equal(
    kind: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    source = written_by(kind, tmp_path_factory)
    before = snapshot(source)
    run = only(adopt(source, into=tmp_path / "runs"))
    assert snapshot(source) == before
    name = {"tensorboard": "Loss", "tensors": "epoch_loss"}.get(kind, "loss")
    exact = kind != "tensorboard"  # simple_value is a float of 32 bits
    for split, which in (("train", 0), ("val", 1)):
        curve = run.curve(name, split)
        assert list(curve) == list(range(STEPS)), (split, files.read_jsonl(run.metrics))
        wanted = [losses(step)[which] for step in range(STEPS)]
        assert list(curve.values()) == (wanted if exact else pytest.approx(wanted, rel=1e-7))
    told = run.record()
    assert told["adopted_from"]["source"].startswith(str(source)) and record.RUN_ID.fullmatch(run.id)
    if kind != "tensors":
        assert told["seeds"] == {"seed": 7}
        assert 0.1 in (told["config"].get("lr"), told["config"].get("learning_rate"))
    rows = {(row["split"], row["name"]): row for row in files.read_json(run.results, "results")["metrics"]}
    assert rows["val", name]["value"] == pytest.approx(losses(STEPS - 1)[1], rel=1e-7)
    assert rows["val", name]["rule"] == "last" and f"{source} --into" in rows["val", name]["command"]


def test_mlflow_says_infinity_and_nan_in_its_own_way(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    for kind in ("mlflow-db", "mlflow-folder"):
        run = only(adopt(written_by(kind, tmp_path_factory), into=tmp_path / kind))
        assert run.curve("gap") == {0: math.inf} and math.isnan(run.curve("hole")[0])
        assert record.state_after(files.read_jsonl(run.events)) == "finished"


def test_the_mean_loss_of_hf_is_no_point_of_its_curve(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    run = only(adopt(written_by("transformers", tmp_path_factory), into=tmp_path))
    assert run.curve("loss")[STEPS - 1] == losses(STEPS - 1)[0] and run.curve("train_loss") == {STEPS - 1: 0.99}
    assert run.curve("num_input_tokens_seen") == {STEPS - 1: 4096.0}
    done = front_door.call("results.py", run.path, "--metric", "train_loss", "--replace", "--json")
    assert json.loads(done.stdout)["rows"][0]["value"] == 0.99


# -- cut off, altered, alive, hostile


@pytest.mark.parametrize("kind", NEEDS)
@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "noise"])
def test_a_damaged_file_is_read_as_far_as_it_goes(
    kind: str, harm: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    source = tmp_path / "source"
    shutil.copytree(written_by(kind, tmp_path_factory), source, symlinks=True)
    rng = random.Random(kind + harm)
    for path in (path for path in source.rglob("*") if path.is_file() and path.stat().st_size > 200):
        data = bytearray(path.read_bytes())
        if harm == "cut":
            del data[len(data) * 2 // 3 :]
        elif harm == "flip":
            data[len(data) // 2] ^= 0xFF
        else:
            data = bytearray(rng.randbytes(len(data)) if harm == "noise" else b"")
        path.write_bytes(data)
    done = front_door.call("adopt.py", source, "--into", tmp_path / "runs")
    assert done.returncode in (0, 1, 2), done.stderr
    if harm == "cut" and kind in ("tensorboard", "wandb"):
        assert "ends inside a record" in done.stdout and record.find(tmp_path / "runs")
    if harm in ("empty", "noise") and kind != "mlflow-folder":
        said = done.stdout + done.stderr
        assert "unreadable" in said or "no run was understood" in said or "partial" in said


def test_a_file_that_is_still_written_is_read_and_brought_up_to_date(tmp_path: Path) -> None:
    log, runs = tmp_path / "exp" / "train.log", tmp_path / "runs"
    log.parent.mkdir()
    log.write_text("seed: 3\nstep 1 loss 2.5\nstep 2 loss 2.25\nstep 3 loss 2.")
    found = adopt(log.parent, into=runs)
    run = only(found)
    assert run.curve("loss") == {1: 2.5, 2: 2.25} and "may still be going" in str(found["findings"])
    front_door.call("results.py", run.path, "--metric", "loss", "--split", "train", "--rule", "best", "--replace")
    with log.open("a") as file:
        file.write("125\nstep 4 loss 2.75\n")
    again = adopt(log.parent, into=runs)
    assert (again["runs"][0]["state"], only(again).path) == ("updated", run.path)
    (row,) = files.read_json(run.results, "results")["metrics"]
    assert (row["value"], row["rule"], row["points"]) == (2.125, "best", 4)  # by the rule that was chosen
    assert run.log.read_bytes() == log.read_bytes() and run.record()["seeds"] == {"seed": 3}
    assert adopt(log.parent, into=runs)["runs"][0]["state"] == "unchanged"
    seal.seal(run)
    with log.open("a") as file:
        file.write("step 5 loss 3\n")
    assert adopt(log.parent, into=runs, code=1)["runs"][0]["state"] == "sealed" and seal.problems(run) == []
    assert len(record.find(runs)) == 1


HOSTILE = {
    "deep.jsonl": b'{"step": 1, "loss": 2}\n' + b'{"a":' * 50_000 + b"\n" + b'{"step": 2, "loss": 1}\n',
    "names.csv": b"step,loss,\x1b[31mred\n1,2,3\n2,1,4\n3,0.5,4\n",
    "huge.jsonl": b'{"step": 1, "loss": 1e999, "n": ' + b"9" * 5000 + b'}\n{"step": 2, "loss": 1}\n',
    "steps.csv": b"step,loss\n-1,9\nnan,9\n1e300,9\n1,2\n2,1\n",
    "run.wandb": b":W&B\xe1\xbe\x00" + b"\xff" * 40_000,
    "events.out.tfevents.1.x": b"\xff" * 100,
    "trainer_state.json": b'{"log_history": [1, {"step": "x"}, {"step": 5, "loss": 1}], "global_step": null}',
    "view.db": None,
}


ROWS = '{"mode": "train", "epoch": %d, "iter": %d, "loss": %.2f}\n'
MMCV = '{"env_info": "x", "seed": 7, "exp_name": "r.py"}\n' + "".join(
    ROWS % (epoch, at, 3 - epoch - at / 1000)
    + (f'{{"mode": "val", "epoch": {epoch}, "iter": 480, "bbox_mAP": 0.{epoch}}}\n' if at == 100 else "")
    for epoch in (1, 2)
    for at in (50, 100)
)
MMENGINE = '{"loss": 2.0, "epoch": 1, "iter": 50, "step": 50}\n{"loss": 1.0, "epoch": 2, "iter": 50, "step": 150}\n'
RAY = "".join(f'{{"reward": {n}.5, "training_iteration": {n}, "config": {{"lr": 0.1}}}}\n' for n in (1, 2))
LAYOUTS: list[tuple[dict[str, str], str, dict[int, float], dict[str, Any]]] = [
    ({"nohup.out": "{'loss': 1.5, 'epoch': 0.5}\n{'loss': 1.2, 'epoch': 1.0}\n"}, "loss", {1: 1.5, 2: 1.2}, {}),
    (
        {"keras.txt": "".join(f"Epoch {n}/3\n9/9 - 4s - loss: 0.{9 - n}\n" for n in (1, 2, 3))},
        "loss",
        {1: 0.8, 3: 0.6},
        {},
    ),
    ({"2024.log.json": MMCV}, "loss", {50: 1.95, 100: 1.9, 150: 0.95, 200: 0.9}, {"seed": 7}),
    ({"2024.log.json": MMCV}, "bbox_mAP", {100: 0.1, 200: 0.2}, {}),
    (
        {"vis_data/20240110_091500.json": MMENGINE, "vis_data/scalars.json": MMENGINE, "20240110_091500.log": "x\n"},
        "loss",
        {50: 2.0, 150: 1.0},
        {},
    ),
    ({"result.json": RAY, "params.json": '{"seed": 3}'}, "reward", {1: 1.5, 2: 2.5}, {"lr": 0.1, "seed": 3}),
]


@pytest.mark.parametrize(("layout", "metric", "points", "settings"), LAYOUTS)
def test_what_trainers_leave_without_a_tracker(
    layout: dict[str, str], metric: str, points: dict[int, float], settings: dict[str, Any], tmp_path: Path
) -> None:
    """Each epoch counts its own steps, or parts of epochs, or lines under a name of its own: no value hides another."""
    for name, text in layout.items():
        (tmp_path / "work" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "work" / name).write_text(text)
    run = only(adopt(tmp_path / "work", into=tmp_path / "runs"))
    found = {row["step"]: row[metric] for row in files.read_jsonl(run.metrics) if metric in row}
    assert {step: value for step, value in found.items() if step in points} == points and len(found) <= 4
    assert files.read_json(run.run_json)["config"].items() >= settings.items()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_break_nothing(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "exp"
    folder.mkdir()
    data = HOSTILE[name]
    if data is None:
        with sqlite3.connect(folder / name) as database:
            endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS run_uuid FROM c"
            database.execute(f"CREATE VIEW runs AS {endless}")
            database.execute("CREATE TABLE metrics (key, value, step, run_uuid)")
    else:
        (folder / name).write_bytes(data)
    os.mkfifo(folder / "pipe.log")
    begun = time.monotonic()
    done = front_door.call("adopt.py", folder, "--into", tmp_path / "runs")
    assert done.returncode in (0, 1, 2) and "\x1b" not in done.stdout + done.stderr and time.monotonic() - begun < 20
    curves = [run.curve("loss") for run in record.find(tmp_path / "runs")]
    expected = {"deep.jsonl": {1: 2, 2: 1}, "steps.csv": {1: 2, 2: 1}, "trainer_state.json": {5: 1}}
    assert curves == [expected[name]] if name in expected else len(curves) <= 1


# -- tables


def test_a_row_per_run(tmp_path: Path) -> None:
    table = tmp_path / "final.csv"
    rows = [f"{method},{seed},{0.5 + seed / 100},{seed * 3.7},64" for method in "ab" for seed in (1, 2, 3)]
    table.write_text("\n".join(["method,s,acc,runtime_s,width", *rows]) + "\n")
    words = ("--group", "method", "--seed", "s", "--metric", "acc")
    done = front_door.call("adopt.py", table, *words, "--into", tmp_path / "runs")
    assert done.returncode == 2 and "acc = 0.51 is no result: its split is not known" in done.stderr
    found = adopt(table, *words, "--split", "test", into=tmp_path / "runs", code=0)
    assert [(row["name"], row["seeds"]) for row in found["runs"]][:2] == [("a-1", {"seed": 1}), ("a-2", {"seed": 2})]
    runs = [record.open_run(Path(row["run"])) for row in found["runs"]]
    assert runs[3].record()["config"] == {
        "method": "b",
        "s": 1,
        "width": 64,
        "seed": 1,
    }  # what was measured is no setting
    (row,) = files.read_json(runs[3].results, "results")["metrics"]
    assert (row["value"], row["split"], row["rule"], row["source"]) == (0.51, "test", "reported", str(table))
    assert len(adopt(table, *words, "--split", "test", into=tmp_path / "runs")["runs"]) == len(record.find(tmp_path))


NOT_UNDERSTOOD = {
    "a,b\n1,2\n3,4\n": "no column of steps, and none that makes a row a run: name one, --seed or --group",
    "seed,zap\n1,2\n2,3\n": "no column that is known to be a metric; name it, --metric",
    "": "has no row",
}


@pytest.mark.parametrize("text", NOT_UNDERSTOOD)
def test_a_table_that_does_not_say_what_it_is(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    done = front_door.call("adopt.py", tmp_path / "t.csv", "--into", tmp_path / "runs")
    assert done.returncode == 2 and NOT_UNDERSTOOD[text] in done.stderr and not (tmp_path / "runs").exists()


# -- many at once


def mixed(root: Path, count: int) -> None:
    """Three formats by turns, as people leave them in one folder; and four files that are no runs."""
    rng = random.Random(1)
    for number in range(count):
        points = [(step, 2 / step + rng.random() / 50, 2.1 / step + rng.random() / 50) for step in range(1, 60)]
        folder = root / ("arm_a" if number % 2 else "arm_b") / f"seed_{number // 2}"
        folder.mkdir(parents=True)
        kind = number // 2 % 3
        if kind == 0:
            (folder / "train.log").write_text("".join(f"step {s} loss {a} val_loss {b}\n" for s, a, b in points))
        elif kind == 1:
            rows = "".join(f"{s},{a},\n{s},,{b}\n" for s, a, b in points)
            (folder / "metrics.csv").write_text("step,train_loss,val_loss\n" + rows)
        else:
            history = [{"step": s, "loss": a, "eval_loss": b} for s, a, b in points]
            (folder / "checkpoint-59").mkdir()
            text = json.dumps({"global_step": 59, "log_history": history})
            (folder / "checkpoint-59" / "trainer_state.json").write_text(text)
    (root / "odds").mkdir()
    (root / "odds" / "notes.log").write_text("nothing to see\n")
    (root / "odds" / "data.csv").write_text("id,text\n1,a\n2,b\n")
    (root / "odds" / "broken.db").write_bytes(b"SQLite format 3\0" + b"\1" * 50)
    (root / "odds" / "x.wandb").write_bytes(b"junk")


def test_two_hundred_mixed_runs_in_one_call(tmp_path: Path) -> None:
    mixed(tmp_path / "old", 200)
    begun = time.monotonic()
    done = front_door.call("adopt.py", tmp_path / "old", "--into", tmp_path / "runs")
    assert time.monotonic() - begun < 30 and done.returncode == 1
    last = done.stdout.splitlines()[-1]
    assert last.startswith("200 runs (68 ") and "200 adopted; 4 files not understood" in last
    assert all(name in done.stdout for name in ("notes.log", "data.csv", "broken.db", "x.wandb"))
    runs = record.find(tmp_path / "runs")
    assert len(runs) == 200 and all(len(run.curve("loss", "val")) == 59 and run.results.is_file() for run in runs)
    assert front_door.call("adopt.py", tmp_path / "old", "--dry-run", "--into", tmp_path / "no").returncode == 1
    assert not (tmp_path / "no").exists()


# -- the whole way


def test_adopt_compare_claim_render_reconcile(tmp_path: Path) -> None:
    for arm, offset in (("new", 0.0), ("base", 0.3)):
        for seed in range(4):
            folder = tmp_path / "old" / arm / f"s{seed}"
            folder.mkdir(parents=True)
            (folder / "hparams.yaml").write_text(f"seed: {seed}\nlr: {0.1 + offset}\n")
            rows = [f"{step},{2 / step + offset + seed / 1000}" for step in (1, 2, 4, 8)]
            (folder / "metrics.csv").write_text("\n".join(["step,val_loss", *rows]) + "\n")
    plain = front_door.report(
        "compare_runs.py", tmp_path / "old" / "new", "--vs", tmp_path / "old" / "base", "--metric", "val_loss"
    )
    found = adopt(tmp_path / "old", into=tmp_path / "runs", code=0)
    paths = {arm: [row["run"] for row in found["runs"] if f"{arm}/" in row["name"]] for arm in ("new", "base")}
    words = (*paths["new"], "--vs", *paths["base"], "--metric", "val_loss")
    (ours,), (theirs,) = (report["comparisons"] for report in (front_door.report("compare_runs.py", *words), plain))
    assert ours["seeds_test"] == theirs["seeds_test"] and ours["variable"] == theirs["variable"] == "lr"
    assert ours["seeds"] == [["0", "1", "2", "3"]] * 2
    calls: list[tuple[str, ...]] = [("manifest_scaffold.py", "init")]
    for arm, runs in paths.items():
        given = [word for run in runs for word in ("--run", run)]
        words = ("claim", "add", f"loss-{arm}", "--metric", "loss", "--split", "val", "--method", arm)
        calls.append(("manifest_scaffold.py", *words, *given))
    (tmp_path / "README.md").write_text("Ours has a val loss of <!-- value:loss-new --><!-- /value -->.\n")
    calls += [("render.py", "tables"), ("render.py", "values"), ("reconcile.py", "README.md")]
    for call in calls:
        done = front_door.call(call[0], *call[1:], cwd=tmp_path)
        assert done.returncode == 0, (call, done.stdout, done.stderr)
    assert "0.25" in (tmp_path / "README.md").read_text() and "new" in (tmp_path / "tables" / "results.md").read_text()


PLAIN = {
    "train.log": "seed 1\nstep 1 val_loss 2.5\nstep 2 val_loss {}\n",
    "out.txt": "Namespace(lr=0.1, seed=1)\nepoch 1: val_loss=2.5\nepoch 2: val_loss={}\n",
    "results.json": '{{"val_loss": {}, "seed": 1}}',
    "metrics.csv": "step,val_loss\n1,2.5\n2,{}\n",
}


@pytest.mark.parametrize("name", PLAIN)
def test_compare_runs_reads_a_plain_folder(name: str, tmp_path: Path) -> None:
    for arm, value in (("a", 1.25), ("b", 1.5)):
        (tmp_path / arm).mkdir()
        (tmp_path / arm / name).write_text(PLAIN[name].format(value))
    found = front_door.report("compare_runs.py", tmp_path / "a", "--vs", tmp_path / "b", "--metric", "val_loss")
    (row,) = found["comparisons"]
    assert "A (a) 1.25" in row["disclosure"] and "B (b) 1.5" in row["disclosure"]
    assert ("typed, not computed" in row["disclosure"]) == (name == "results.json")
    if name != "metrics.csv":
        assert row["seeds"] == [["1"], ["1"]]


def test_a_typed_number_is_told_with_the_claim(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    row = {"name": "accuracy", "value": 0.9, "split": "test", "direction": "up"}
    (tmp_path / "old" / "results.json").write_text(json.dumps({"metrics": [row]}))
    run = only(adopt(tmp_path / "old", into=tmp_path / "runs"))
    (kept,) = files.read_json(run.results, "results")["metrics"]
    assert (kept["rule"], len(kept["source_sha256"])) == ("typed", 64)
    front_door.call("manifest_scaffold.py", "init", cwd=tmp_path)
    claim = ("claim", "add", "acc", "--metric", "accuracy", "--split", "test", "--run", run.path)
    assert front_door.call("manifest_scaffold.py", *claim, cwd=tmp_path).returncode == 0
    done = front_door.call("render.py", "gate", "--json", cwd=tmp_path)
    assert "1 value typed: no rule says how it was computed" in done.stdout


def test_files_beside_a_record_are_its_settings_and_log(tmp_path: Path) -> None:
    folder = tmp_path / "exp"
    (folder / "logs").mkdir(parents=True)
    (folder / "progress.csv").write_text("step,loss\n1,2\n2,1\n")
    (folder / "logs" / "stdout.log").write_text("step 1 loss 2\n")
    (folder / "logs" / "zz_stderr.log").write_text("a warning\n")
    (folder / "config.yaml").write_text("opt: {lr: 0.1}\nseed: 5\n")
    run = only(adopt(folder, into=tmp_path / "runs"))
    assert run.record()["config"] == {"opt.lr": 0.1, "seed": 5} and run.log.read_text() == "step 1 loss 2\n"
    assert run.record()["adopted_from"]["format"] == "csv"


def test_cards_and_tokens_that_a_tracker_recorded_are_confounds(tmp_path: Path) -> None:
    for arm, cards, tokens in (("a", 8, 200), ("b", 1, 100)):
        for seed in range(3):
            first, where = started(f"{arm}{seed}", lr="0.1", seed=str(seed)), pb.Record()
            where.environment.gpu_type, where.environment.gpu_count = "A100", cards
            rows = [
                row(step, **{"val/loss": str(1 / (step + 1) + seed / 99), "tokens": str(tokens)}) for step in (0, 1)
            ]
            record_file(tmp_path / arm / f"run-{arm}{seed}.wandb", first, where, *rows, ended())
    found = front_door.report("compare_runs.py", tmp_path / "a", "--vs", tmp_path / "b", "--metric", "val_loss")
    assert found["comparisons"][0]["confounds"] == ["env.cards", "budget.tokens"]
    assert "env.cards: 8 vs 1" in str(found["findings"]) and "budget.tokens: 200 vs 100" in str(found["findings"])


def test_a_database_that_is_being_written_is_read_without_a_trace(tmp_path: Path) -> None:
    """Trackio's own settings: a write-ahead log, which holds what was written last."""
    place = tmp_path / "trackio"
    place.mkdir()
    with contextlib.closing(sqlite3.connect(place / "p.db")) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp TEXT, run_name TEXT, step INT, metrics TEXT)"
        )
        for step in range(3):
            cells = ("2026-11-17T22:50:09+00:00", "r1", step, json.dumps({"val/loss": 1 / (step + 1)}))
            writer.execute("INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?)", cells)
        writer.commit()
        before = snapshot(place)
        assert f"{place / 'p.db'}-wal" in before
        run = only(adopt(place, into=tmp_path / "runs"))
        assert run.curve("loss", "val") == {0: 1.0, 1: 0.5, 2: 1 / 3} and snapshot(place) == before


def test_a_run_directory_of_ours_is_left_alone(tmp_path: Path) -> None:
    made = record.create(tmp_path / "runs", "x", command=["x"], config={})
    made.log_metrics(step=1, split="val", loss=1.0)
    found = adopt(tmp_path / "runs", into=tmp_path / "runs", code=0)
    assert found["runs"] == [] and "with a run.json already" in found["findings"][0]["message"]
