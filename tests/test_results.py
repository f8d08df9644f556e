"""results.py: the final number of a run, by a rule, from a file that is named with its sha256."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from rgt import files
from rgt.run import record, seal
from rgt.run.record import Run

import pytest

from . import front_door


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = record.create(tmp_path / "runs", "tiny", command=["x"], config={})
    for step, loss in ((100, 3.0), (200, 1.0), (300, 2.0), (200, 1.5)):  # 200 was computed again after a resume
        made.log_metrics(step=step, split="val", loss=loss, acc=1 - loss / 10)
        made.log_metrics(step=step, split="train", loss=loss - 0.5, zap=loss)
    made.log_metrics(step=300, split="train", val_f1=0.5)
    return made


def results(run: Run, *words: object, expect: int = 0) -> Any:
    """The rows that were written; of a failure the sentence."""
    done = front_door.call("results.py", run.path, *words)
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stderr if expect > 1 else files.read_json(run.results, "results")["metrics"]


def test_a_folder_that_is_no_run_points_to_adopt(tmp_path: Path) -> None:
    said = results(Run(tmp_path), "--metric", "loss", expect=2)
    assert f"{tmp_path} has no run.json; others' runs get one by " in said and f" adopt {tmp_path}" in said


RULES = [
    ("val_loss", ("loss", 2.0, 300, "last")),
    ("loss --split train", ("loss", 1.5, 300, "last")),
    ("val_loss --rule best", ("loss", 1.5, 200, "best")),
    ("val/acc --rule best", ("acc", 0.85, 200, "best")),
    ("val_loss --rule mean-last-2", ("loss", 1.75, 300, "mean-last-2")),
]


@pytest.mark.parametrize(("words", "expected"), RULES)
def test_a_rule_takes_its_number_from_the_curve(run: Run, words: str, expected: tuple[Any, ...]) -> None:
    (row,) = results(run, "--metric", *words.split())
    assert (row["name"], row["value"], row["step"], row["rule"]) == expected and row["points"] == 3
    assert row["source"] == "metrics.jsonl"
    assert row["source_sha256"] == hashlib.sha256(run.metrics.read_bytes()).hexdigest()


def test_other_rows_stay_and_a_different_one_is_not_overwritten(run: Run) -> None:
    results(run, "--metric", "val_loss", "--metric", "val_acc")
    before = run.results.read_bytes()
    assert len(results(run, "--metric", "val_loss")) == 2 and set(run.results.read_bytes()) == set(before)
    sentence = results(run, "--metric", "val_loss", "--rule", "best", expect=4)
    assert "has another val loss already (value 2.0, rule last); --replace puts 1.5 there" in sentence
    rows = results(run, "--metric", "val_loss", "--rule", "best", "--replace")
    assert {row["name"]: row["value"] for row in rows} == {"acc": 0.8, "loss": 1.5}
    seal.seal(run)
    assert "is sealed" in results(run, "--metric", "val_loss", "--replace", expect=2)


def test_the_best_of_the_test_points_is_disclosed(run: Run) -> None:
    for step in (100, 200):
        run.log_metrics(step=step, split="test", acc=step / 1000)
    done = front_door.call("results.py", run.path, "--metric", "test_acc", "--rule", "best", "--json")
    (finding,) = json.loads(done.stdout)["findings"]
    assert (done.returncode, finding["code"]) == (1, "selection") and run.results.exists()


def test_the_checkpoint_of_its_step_is_named(run: Run) -> None:
    entry = {"path": "checkpoints/step_200.pt", "step": 200, "time": 1.0, "bytes": 1, "sha256": "0" * 64}
    files.write_json(run.checkpoints_index, {"checkpoints": [entry]}, "checkpoints_index")
    assert results(run, "--metric", "val_loss", "--rule", "best")[0]["checkpoint"] == "checkpoints/step_200.pt"
    assert "checkpoint" not in results(run, "--metric", "val_acc")[1]


EVALUATIONS = [
    ("e.json", '{"eval_accuracy": 0.5, "eval_samples": 64}', "eval_accuracy", ("val", 0.5, "reported", 64)),
    ("e.json", '{"a": {"acc": 0.5, "n": 8}, "b": {"acc": 1}}', "a.acc --split test", ("test", 0.5, "reported", 8)),
    ("e.json", '{"task": {"acc": 0.25}}', "acc --split test -n 9", ("test", 0.25, "reported", 9)),
    ("e.csv", "item,acc\na,1\nb,0\nc,1\nd,1\n", "acc --split test", ("test", 0.75, "mean", 4)),
    ("e.csv", "acc,loss\n0.5,1\n", "acc --split test", ("test", 0.5, "reported", None)),
]


@pytest.mark.parametrize(("name", "text", "words", "expected"), EVALUATIONS)
def test_the_output_of_an_evaluation(
    run: Run, tmp_path: Path, name: str, text: str, words: str, expected: tuple[Any, ...]
) -> None:
    (tmp_path / name).write_text(text)
    (row,) = results(run, "--from", tmp_path / name, "--metric", *words.split())
    assert (row["split"], row["value"], row["rule"], row.get("n")) == expected
    assert (row["source"], len(row["source_sha256"])) == (str(tmp_path / name), 64)


UNANSWERED = [
    ("loss", None, "has loss of train, loss of val: say --metric and --split"),
    ("gone", None, "metrics.jsonl has no gone"),
    ("zap", None, "which way zap is better is not known; say --direction up or --direction down"),
    ("val_loss --rule mean-last-9", None, "has 3 points of loss, fewer than mean-last-9 needs"),
    ("acc --split test", '{"a": {"acc": 1}, "b": {"acc": 1}}', "more than one acc; it has a.acc, b.acc"),
    ("acc", '{"acc": 0.5}', "does not say of which split acc is; say --split train, val or test"),
    ("acc --split val --rule best", '{"acc": 0.5}', "--rule best chooses from a curve, and"),
    ("acc --split val", "item,acc\na,oops\n", "has a cell that is not a number"),
    ("acc --split val", "step,acc\n1,0.5\n2,0.6\n", "has a row per step"),
]


@pytest.mark.parametrize(("words", "text", "sentence"), UNANSWERED)
def test_what_cannot_be_answered_is_a_sentence(
    run: Run, tmp_path: Path, words: str, text: str | None, sentence: str
) -> None:
    arguments = ["--metric", *words.split()]
    if text:
        path = tmp_path / ("e.csv" if text[0] not in "[{" else "e.json")
        path.write_bytes(text.encode("latin-1"))
        arguments += ["--from", str(path)]
    assert sentence in results(run, *arguments, expect=2)
    assert not run.results.exists()


def test_a_last_point_that_is_not_a_number_is_no_result(run: Run) -> None:
    run.log_metrics(step=400, split="val", loss=float("nan"))
    assert "val_loss is nan; a result is a number" in results(run, "--metric", "val_loss", expect=2)
    assert results(run, "--metric", "val_loss", "--rule", "best")[0]["value"] == 1.5
