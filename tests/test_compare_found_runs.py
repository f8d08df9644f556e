"""Runs as people have them: a folder with config.json and a results.json of any shape, or a table of folds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from . import front_door
from .test_compare_runs import report, table

LOW, HIGH = (0.701, 0.704, 0.699, 0.703, 0.702), (0.731, 0.735, 0.729, 0.733, 0.730)


def folder(path: Path, results: object, **config: Any) -> Path:
    path.mkdir(parents=True)
    (path / "results.json").write_text(json.dumps(results))
    (path / "config.json").write_text(json.dumps({"lr": 0.1, "seed": int(path.name), **config}))
    return path


def arms(home: Path, shape: Any, a: tuple[float, ...] = LOW, b: tuple[float, ...] = HIGH, **each: Any) -> list[object]:
    """The words of a call; `each` is a config's key and what makes its value of an arm and a number."""
    words: list[object] = []
    for name, values, lr in (("a", a, 0.1), ("b", b, 0.3)):
        more = [{key: make(name, at) for key, make in each.items()} for at in range(len(values))]
        runs = [folder(home / name / str(at), shape(v), **{"lr": lr} | more[at]) for at, v in enumerate(values)]
        words += ["--vs", *runs] if words else runs
    return [*words, "--intended", "lr", "--metric"]


@pytest.mark.parametrize(
    ("shape", "ask", "split"),
    [
        (lambda v: {"acc": v, "loss": 1 - v}, ["acc"], None),
        (lambda v: {"metrics": {"eer": v}}, ["eer"], None),
        (lambda v: {"dev": {"f1": v - 0.1}, "test": {"f1": v}}, ["f1"], "test"),
        (lambda v: {"dev": {"f1": v}, "test": {"f1": 0.5}}, ["f1", "--split", "valid"], "val"),
        (lambda v: {"mmlu": {"acc": v}, "gsm8k": {"acc": 0.5}}, ["acc", "--split", "mmlu"], "mmlu"),
        (
            lambda v: {"test-clean": {"wer": v}, "test-other": {"wer": 0.9}},
            ["wer", "--split", "Test-Clean"],
            "test clean",
        ),
    ],
)
def test_the_metric_that_is_named_is_found_wherever_it_stands(
    tmp_path: Path, shape: Any, ask: list[str], split: str | None
) -> None:
    found = report(*arms(tmp_path, shape), *ask)
    assert (found["verdict"], found["comparisons"][0]["split"]) == ("effect", split)


def test_of_several_data_sets_one_has_to_be_named(tmp_path: Path) -> None:
    words = arms(tmp_path, lambda v: {"mmlu": {"acc": v}, "gsm8k": {"acc": 0.5}})
    done = front_door.call("compare_runs.py", *words, "acc")
    assert (done.returncode, done.stderr) == (2, "error: the arms have 'acc' of gsm8k, mmlu: say which, --split\n")


def test_what_names_a_run_is_no_confound(tmp_path: Path) -> None:
    ids: dict[str, Any] = {
        "out": lambda arm, at: f"/data/{arm}{at}",
        "number": lambda arm, at: 77000 + 10 * at + (arm == "b"),
        "comment": lambda arm, at: "rerun" if at == 1 else "",
        "cuda_device": lambda arm, at: at % 2,
    }
    found = report(*arms(tmp_path, lambda v: {"acc": v}, **ids), "acc")
    assert (found["verdict"], found["comparisons"][0]["confounds"]) == ("effect", [])


def test_settings_that_a_search_drew_stay_confounds(tmp_path: Path) -> None:
    drawn: dict[str, Any] = {"dropout": lambda arm, at: 0.1 + at / 100 + (arm == "b") / 7}
    found = report(*arms(tmp_path, lambda v: {"acc": v}, **drawn), "acc")
    assert (found["verdict"], found["comparisons"][0]["confounds"]) == ("undecided", ["dropout"])


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (lambda v: {"val": {"acc": v}, "test": {"acc": v}}, "the same acc on two splits in every run"),
        (lambda v: {"acc": v if v < 0.72 else v + 0.4}, "is not possible beside"),
    ],
)
def test_numbers_that_cannot_be_are_suspect(tmp_path: Path, shape: Any, words: str) -> None:
    found = report(*arms(tmp_path, shape), "acc")
    assert found["verdict"] == "bug-suspect" and words in str(found["findings"])


def test_equal_values_are_suspect_when_all_are_or_chance_is_small(tmp_path: Path) -> None:
    def verdict(name: str, a: tuple[float, ...], b: tuple[float, ...]) -> str:
        return str(report(*arms(tmp_path / name, lambda v: {"acc": v}, a, b), "acc")["verdict"])

    assert verdict("all", LOW, LOW) == "bug-suspect"  # three digits only, but every run
    crowded = tuple(0.73001 + at / 1e5 for at in range(8))
    assert verdict("crowded", crowded, tuple(value + 5e-5 for value in crowded)) != "bug-suspect"
    assert verdict("rare", (0.7012345, 0.71, 0.72), (0.7012345, 0.75, 0.74)) == "bug-suspect"


def test_a_difference_above_half_the_spread_is_not_called_noise(tmp_path: Path) -> None:
    words = arms(tmp_path, lambda v: {"acc": v}, (0.70, 0.72, 0.74, 0.71), (0.735, 0.718, 0.722, 0.738))
    (row,) = report(*words, "acc")["comparisons"]
    assert row["seeds_test"]["p"] > 0.2 and row["verdict"] == "undecided"
    assert "of the runs' spread apart" in row["reasons"][0]


def test_a_run_without_a_value_is_told_and_the_others_compared(tmp_path: Path) -> None:
    words = arms(tmp_path, lambda v: {"acc": v} if v else {}, LOW, (*HIGH[:4], 0.0))
    found = report(*words, "acc")
    assert found["verdict"] == "effect" and "this run has no value" in str(found["findings"])


def test_a_table_of_folds_is_paired_by_fold_and_its_arm_column_is_a_label(tmp_path: Path) -> None:
    sides = (("base", 64, LOW), ("wide", 128, HIGH))
    rows = [(arm, fold, dim, value + fold / 50) for arm, dim, values in sides for fold, value in enumerate(values)]
    path = table(tmp_path / "cv.csv", "arm,fold,dim,auc", rows)
    found = report(f"{path}::arm=base", "--vs", f"{path}::arm=wide", "--metric", "auc", "--intended", "dim")
    assert (found["verdict"], found["comparisons"][0]["confounds"]) == ("effect", [])
    assert found["comparisons"][0]["seeds_test"]["paired"]
