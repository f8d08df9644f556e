"""Runs as people have them: a folder with config.json and a results.json of any shape, or a table of folds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rgt.metrics import table as metrics

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


# -- shapes of other people's folders: each writes one run with its value, and is asked for it as a user would


def wandb_folder(run: Path, value: float, lr: float, seed: int) -> None:
    config = {"wandb_version": 1, "lr": {"desc": None, "value": lr}, "seed": {"desc": None, "value": seed}}
    write(run / "files", **{"config.yaml": config, "wandb-summary.json": {"test/top1": value, "_step": 7}})


def lm_eval(run: Path, value: float, lr: float, seed: int) -> None:
    scores = {"results": {"gsm8k": {"em,none": value, "em_stderr,none": 0.01}}, "config": {"batch_size": "auto"}}
    write(run, **{"eval_results.json": scores, "args.json": {"lr": lr, "seed": seed, "batch_size": 8}})


def one_file(run: Path, value: float, lr: float, seed: int) -> None:
    config = {"lr": lr, "seed": seed, "started": f"2024-05-0{seed + 1}T10:00:0{seed}"}
    write(run, **{"results.json": {"config": config, "final": {"test": {"acc": value}}}})


def no_nesting(run: Path, value: float, lr: float, seed: int) -> None:
    write(run, **{"metrics.json": {"lr": lr, "seed": seed, "dropout": 0.1, "test_acc": value}})


def keras_history(run: Path, value: float, lr: float, seed: int) -> None:
    write(run, **{"history.json": {"loss": [2, 1], "val_acc": [0.1, value]}, "params.json": {"lr": lr, "seed": seed}})


def list_of_rows(run: Path, value: float, lr: float, seed: int) -> None:
    rows = [{"epoch": 1, "val_acc": 0.1}, {"epoch": 2, "val_acc": value}]
    write(run, **{"metrics.json": rows, "hparams.yaml": {"lr": lr, "seed": seed, "gpu": seed % 3}})


def progress_csv(run: Path, value: float, lr: float, seed: int) -> None:
    write(run, **{"config.json": {"lr": lr, "seed": seed}})
    (run / "progress.csv").write_text(f"time/total_timesteps,rollout/ep_rew_mean\n100,1\n200,{value}\n")


def long_table(run: Path, value: float, lr: float, seed: int) -> None:
    write(run, **{"config.json": {"lr": lr, "seed": seed}})
    (run / "metrics.csv").write_text(f"step,metric,value\n1,val/acc,0.1\n1,train/acc,0.2\n2,val/acc,{value}\n")


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("make", "metric", "split"),
    [
        (wandb_folder, "test top-1 accuracy", "test"),
        (lm_eval, "exact match", "gsm8k"),
        (one_file, "Test Accuracy", "test"),
        (no_nesting, "acc", "test"),
        (keras_history, "val accuracy", "val"),
        (list_of_rows, "accuracy", "val"),
        (progress_csv, "mean reward", "train"),
        (long_table, "val/accuracy", "val"),
    ],
)
def test_a_run_is_taken_in_the_shape_that_its_program_wrote(tmp_path: Path, make: Any, metric: str, split: str) -> None:
    words: list[object] = ["--metric", metric, "--intended", "lr"]
    for arm, values, lr in (("a", LOW, 0.1), ("b", HIGH, 0.3)):
        for seed, value in enumerate(values):
            make(tmp_path / arm / str(seed), value, lr, seed)
    found = report(*sorted((tmp_path / "a").iterdir()), "--vs", *sorted((tmp_path / "b").iterdir()), *words)
    (row,) = found["comparisons"]
    assert (found["verdict"], row["split"], row["confounds"], row["variable"]) == ("effect", split, [], "lr")
    assert row["values"][0] == list(LOW)


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("test top-1 accuracy", ["test_top1", "test_cifar_acc", "acc", None, "val_top1", "test_top5", "top5"]),
        ("ndcg@10", ["NDCG10", "test/ndcg_at_10", None, "ndcg@5", "ndcg"]),
        ("macro f1", ["test_macro_f1", "f1_macro", None, "f1", "micro_f1"]),
        ("mAP", ["map", "val_mAP", "bbox_mAP", None, "mAP50", "mAP_std"]),
        ("val loss", ["loss/val", "val_mlm_loss", "loss", None, "train_loss"]),
        ("em,strict", ["gsm8k/em,strict", "em,flexible"]),
    ],
)
def test_the_recorded_name_that_comes_nearest_is_meant(asked: str, names: list[str | None]) -> None:
    good = names[: names.index(None)] if None in names else names
    ranks = [metrics.rank(asked, name) for name in good if name]
    assert None not in ranks and ranks == sorted(ranks, key=lambda rank: rank or 0) and len(set(ranks)) == len(ranks)
    assert all(metrics.rank(asked, name) is None for name in names[len(good) :] if name)


def test_two_names_that_fit_alike_have_to_be_told_apart(tmp_path: Path) -> None:
    words = arms(tmp_path, lambda v: {"em,strict": v, "em,flexible": v + 0.1})
    done = front_door.call("compare_runs.py", *words, "em")
    assert done.returncode == 2 and "has 'em' as em,strict, em,flexible: name one of them" in done.stderr
    assert report(*words, "em,strict")["comparisons"][0]["values"][0] == list(LOW)


def test_a_run_that_crashed_before_its_first_value_is_told(tmp_path: Path) -> None:
    words = arms(tmp_path, lambda v: {"acc": v})
    crashed = tmp_path / "b" / "9"
    write(crashed, **{"config.json": {"lr": 0.3, "seed": 9}})
    (crashed / "train.log").write_text("epoch 1 ...\nRuntimeError: CUDA error\n")
    found = report(*words[:-3], crashed, *words[-3:], "acc")
    assert found["verdict"] == "effect" and "this run has no value" in str(found["findings"])


def test_train_written_as_test_is_suspect_in_a_table_too(tmp_path: Path) -> None:
    rows = [(arm, seed, v, v) for arm, values in (("a", LOW), ("b", HIGH)) for seed, v in enumerate(values)]
    path = table(tmp_path / "t.csv", "arm,seed,train_auroc,test_auroc", rows)
    found = report(f"{path}::arm=a", "--vs", f"{path}::arm=b", "--metric", "test AUC")
    assert found["verdict"] == "bug-suspect" and "on two splits" in str(found["findings"])


def test_a_long_table_has_a_run_per_seed_and_one_odd_setting_is_told(tmp_path: Path) -> None:
    rows = []
    for arm, values in (("a", LOW), ("b", HIGH)):
        for seed, v in enumerate(values):
            epochs = 20 if (arm, seed) == ("b", 3) else 10
            rows += [(arm, seed, epochs, "light", "acc", v), (arm, seed, epochs, "light", "loss", 1 - v)]
    path = table(tmp_path / "long.csv", "arm,seed,epochs,recall,metric,value", rows)
    found = report(f"{path}::arm=a", "--vs", f"{path}::arm=b", "--metric", "accuracy", "--intended", "arm")
    (row,) = found["comparisons"]
    assert (row["values"][0], row["confounds"]) == (list(LOW), ["epochs"])


def test_runs_that_stopped_early_have_no_other_budget(tmp_path: Path) -> None:
    steps = {"a": (10, 14, 12, 11, 15), "b": (12, 11, 9, 10, 13)}
    words: list[object] = []
    for arm, values, lr in (("a", LOW, 0.1), ("b", HIGH, 0.3)):
        words += ["--vs"] if words else []
        for seed, (value, last) in enumerate(zip(values, steps[arm], strict=True)):
            rows = [{"step": at, "val_acc": value if at == last else 0.1} for at in range(1, last + 1)]
            write(tmp_path / arm / str(seed), **{"metrics.json": rows, "config.json": {"lr": lr, "seed": seed}})
            words.append(tmp_path / arm / str(seed))
    found = report(*words, "--metric", "val_acc", "--intended", "lr")
    assert (found["verdict"], found["comparisons"][0]["confounds"]) == ("effect", [])


def test_nothing_recorded_of_the_settings_is_not_a_change_that_was_not_applied(tmp_path: Path) -> None:
    words = arms(tmp_path, lambda v: {"acc": v})
    for config in tmp_path.rglob("config.json"):
        config.unlink()
    found = report(*words, "acc")
    assert found["verdict"] == "effect" and "not recorded for all runs: config" in str(found["findings"])


def test_a_curve_that_names_no_split_is_not_another_split(tmp_path: Path) -> None:
    words = arms(tmp_path, lambda v: {"mean_reward": v})
    for results in tmp_path.rglob("results.json"):
        value = json.loads(results.read_text())["mean_reward"]
        (results.parent / "progress.csv").write_text(f"timesteps,mean_reward\n1,0.1\n2,{value}\n")
    assert report(*words, "mean reward")["verdict"] == "effect"
