"""Bug, effect, noise or undecided: every planted confound is found, and noise is not called an effect."""

from __future__ import annotations

import csv
import json
import math
import random
import subprocess
from pathlib import Path
from typing import Any

import compare_runs
from bench import compare_runs as bench
from rgt.compare_runs import flat_settings, plan, stats
from rgt.metrics import table as names
from rgt.report import CODES

import numpy as np
import pytest

from . import front_door
from .confounds import DIFF, NEW, OLD, PLANTED, Spec, arm, rising, second_change, with_curves, write


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return front_door.call("compare_runs.py", *arguments)


def compare(tmp_path: Path, a: list[Spec], b: list[Spec], *options: str) -> dict[str, Any]:
    for name, specs in (("a", a), ("b", b)):
        for number, spec in enumerate(specs):
            write(tmp_path / name, spec, number)
    return report(tmp_path / "a", "--vs", tmp_path / "b", "--metric", a[0].metric, *options)


def report(*arguments: object) -> dict[str, Any]:
    return front_door.report("compare_runs.py", *arguments)


def codes(found: dict[str, Any], *severities: str) -> set[str]:
    return {f["code"] for f in found["findings"] if f["severity"] in (severities or ("error", "warn"))}


def table(path: Path, header: str, rows: list[Any]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header.split(","), *rows])
    return path


# -- what a clean experiment looks like


def test_one_variable_five_seeds_is_an_effect_with_nothing_to_disclose(tmp_path: Path) -> None:
    found = compare(tmp_path, arm(NEW, 3e-4), arm(OLD, 1e-3), "--intended", "lr")
    assert (found["verdict"], found["ok"], codes(found)) == ("effect", True, set())
    (row,) = found["comparisons"]
    assert (row["variable"], row["confounds"], row["direction"]) == ("lr", [], "up")
    test = row["seeds_test"]
    assert test["paired"] and test["n"] == [5, 5] and test["test"] == "paired t test"
    assert test["p_permutation"] == pytest.approx(2 / 32) and test["permutation_floor"] == 2 / 32
    assert test["bootstrap95"][0] < test["difference"] < test["bootstrap95"][1]
    assert row["disclosure"] == (
        "accuracy (test, higher is better): A (a) 0.9155 ± 0.00248 (sd, n=5) vs B (b) 0.8945 ± 0.002346 (sd, n=5), "
        "difference +0.02105 (A better), 95 % CI [+0.02048, +0.02162]; paired t test p = 5.5e-08, permutation p = "
        "0.062 (cannot go below 0.062 at this n); smallest effect this n could show 0.001002; varied: lr: 0.0003 vs "
        "0.001. Verdict: effect."
    )


def test_text_report(tmp_path: Path) -> None:
    found = table(tmp_path / "a.csv", "seed,wer", [(s, 0.11 + s / 1000) for s in range(3)])
    other = table(tmp_path / "b.csv", "seed,wer", [(s + 5, 0.15 + s / 1000) for s in range(3)])
    done = run(found, "--vs", other, "--metric", "wer")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[:3] == [
        "EFFECT: A vs B in wer (split not recorded; lower is better, known metric)",
        "  because the difference is larger than the noise between runs (p = 1e-06); a permutation test cannot go "
        "below 0.1 with 3 runs, so the t test decides alone",
        "  A (a.csv): n=3 mean 0.111 sd 0.001  (0.11 0.111 0.112)",
    ]
    assert "difference -0.04 (A better), 95 % CI [" in lines[-1]
    assert "warn  unrecorded: not recorded for all runs: config, code, environment" in done.stdout
    assert lines[-1].startswith("disclose: wer (split not recorded, lower is better): A (a.csv) 0.111")


def test_undecided_names_its_bars_once_and_the_next_command(tmp_path: Path) -> None:
    a = table(tmp_path / "a.csv", "seed,accuracy", list(enumerate((0.90, 0.93, 0.95))))
    b = table(tmp_path / "b.csv", "seed,accuracy", list(enumerate((0.88, 0.89, 0.94))))
    done = run(a, "--vs", b, "--metric", "accuracy")
    assert done.stdout.count(": below 0.02 would be an effect, 0.2 and more noise") == 1
    planned = f"compare_runs plan --metric accuracy --delta 0.0233 --from {a} --from {b}\n"
    assert done.returncode == 1 and planned in done.stdout
    again = run(*planned.split()[1:])
    assert again.returncode == 0 and again.stdout.startswith("175 seeds per arm"), again.stdout


# -- planted confounds: each is found and named, and the verdict is what it must be


@pytest.mark.parametrize("name", PLANTED)
def test_planted_confound_is_found(tmp_path: Path, name: str) -> None:
    make, code, words, verdict = PLANTED[name]
    found = compare(tmp_path, *make(), "--intended", "lr")
    told = [f for f in found["findings"] if f["code"] == code and f["severity"] in ("error", "warn")]
    assert any(words in f"{f['message']} {f.get('evidence')}" for f in told), (code, found["findings"])
    assert (found["verdict"], found["ok"]) == (verdict, False)
    assert set(CODES) >= codes(found, "error", "warn", "info")


def test_without_intended_two_changes_are_both_confounds_and_one_is_the_variable(tmp_path: Path) -> None:
    found = compare(tmp_path, *second_change())
    assert found["comparisons"][0]["confounds"] == ["lr", "model.depth"]
    assert "name the variable you meant with --intended" in str(found["findings"])
    found = compare(tmp_path / "2", arm(NEW, 3e-4), arm(OLD, 1e-3))
    assert (found["comparisons"][0]["variable"], found["verdict"]) == ("lr", "effect")
    found = compare(tmp_path / "3", arm(NEW, 3e-4), arm(OLD, 1e-3), "--lower-is-better")
    assert "direction" in codes(found)  # the option contradicts what is known of the metric


def test_intended_may_be_the_code_or_a_group_of_settings(tmp_path: Path) -> None:
    a, b = arm(NEW, 1e-3, commit="b" * 40, diff=DIFF), arm(OLD, 1e-3)
    assert compare(tmp_path / "1", a, b, "--intended", "code")["verdict"] == "effect"
    a, b = (arm(values, 1e-3, config={"opt": {"name": values[0], "m": values[1]}}) for values in (NEW, OLD))
    assert compare(tmp_path / "2", a, b, "--intended", "opt")["verdict"] == "effect"
    a, b = arm(NEW, 1e-3, config={"max_steps": 2000}, step=2000), arm(OLD, 1e-3)  # a planned budget is one variable
    found = compare(tmp_path / "3", a, b)
    assert (found["comparisons"][0]["variable"], found["verdict"]) == ("max_steps", "effect")


def test_an_effect_without_any_recorded_change_is_undecided(tmp_path: Path) -> None:
    found = compare(tmp_path, arm(NEW, 1e-3), arm(OLD, 1e-3))
    assert found["verdict"] == "undecided"
    assert "not in the records" in found["comparisons"][0]["reasons"][1]


def test_seeds_paths_hosts_names_and_times_are_no_confounds(tmp_path: Path) -> None:
    keys = "run_name output_dir master_port log_every".split()
    noise, other = ({"wandb": {"id": n}, "device": f"cuda:{n}", **dict.fromkeys(keys, n)} for n in (1, 2))
    found = compare(tmp_path, arm(NEW, 3e-4, config=noise), arm(OLD, "1e-3", config=other), "--intended", "lr")  # type: ignore[arg-type]
    assert (found["verdict"], found["ok"]) == ("effect", True)


def test_config_files_in_the_run_folder_count(tmp_path: Path) -> None:
    for name, specs, depth in (("a", arm(NEW, 3e-4), 6), ("b", arm(OLD, 1e-3), 12)):
        for number, spec in enumerate(specs):
            folder = write(tmp_path / name, spec, number)
            text = f"!!python/object:argparse.Namespace\nmodel: {{n_layer: {depth}}}\nlr: {spec.config['lr']}\n"
            (folder / "hparams.yaml").write_text(text)
    found = report(tmp_path / "a", "--vs", tmp_path / "b", "--metric", "accuracy", "--intended", "lr")
    assert found["comparisons"][0]["confounds"] == ["model.n_layer"]


# -- direction


DIRECTIONS = {
    "up": "PSNR ms_ssim mAP@0.5:0.95 val/top1_acc F1-macro test_auroc bleu-4 rougeL recall@10 AP50 R2 pass@1 mIoU",
    "down": "LPIPS NMSE eval/loss perplexity FID wer val_error_rate bits_per_byte rmse ECE",
    None: "acc_drop loss_scale gap my_metric cifar_acc time grad_norm psnr_delta",
}


def test_directions_are_known_or_not_guessed() -> None:
    found = {name: names.known(name) for text in DIRECTIONS.values() for name in ["", *text.split()]}
    expected = {name: way for way, text in DIRECTIONS.items() for name in ["", *text.split()]}
    assert {name: metric and metric.direction for name, metric in found.items()} == expected


def test_direction_of_an_unknown_metric_is_told_or_recorded(tmp_path: Path) -> None:
    paths = [table(tmp_path / f"{k}.csv", "seed,zap", [(s, k + s / 10) for s in range(3)]) for k in (1, 2)]
    arguments = [paths[0], "--vs", paths[1], "--metric", "zap"]
    (row,) = report(*arguments)["comparisons"]
    assert (row["direction"], row["verdict"]) == ("", "undecided")
    assert "which way is better unknown" in row["disclosure"] and "(B higher)" in row["disclosure"]
    assert "B better" in report(*arguments, "--higher-is-better")["comparisons"][0]["disclosure"]
    a, b = (arm(values, lr, metric="zap", direction="down") for values, lr in ((NEW, 1e-4), (OLD, 1e-3)))
    (row,) = compare(tmp_path / "recorded", a, b)["comparisons"]
    assert (row["direction"], row["direction_from"]) == ("down", "results.json")


# -- variance


def test_one_run_is_called_that_and_two_decide_nothing(tmp_path: Path) -> None:
    found = compare(tmp_path, arm(NEW[:1], 3e-4), arm(OLD[:1], 1e-3))
    assert found["verdict"] == "undecided" and "single-run" in codes(found)
    assert "single run per arm, no estimate of seed noise" in found["comparisons"][0]["disclosure"]

    two = compare(tmp_path / "2", arm((0.91231, 0.91232), 3e-4), arm((0.11231, 0.11233), 1e-3))
    assert two["verdict"] == "undecided"  # however far apart


def test_noise_says_what_could_have_been_seen(tmp_path: Path) -> None:
    found = compare(tmp_path, arm((0.71, 0.74, 0.69, 0.75, 0.7123), 3e-4), arm((0.72, 0.70, 0.735, 0.71, 0.69), 1e-3))
    assert found["verdict"] == "noise" and not found["ok"]
    assert "only effects from about" in found["comparisons"][0]["reasons"][0]


def test_unpaired_when_seeds_differ_and_paired_on_common_seeds(tmp_path: Path) -> None:
    a, b = arm(NEW, 3e-4), arm(OLD, 1e-3)
    for spec in b:
        spec.seed = spec.config["seed"] = spec.seed + 10
    assert compare(tmp_path / "1", a, b)["comparisons"][0]["seeds_test"]["test"] == "Welch's t test"
    for spec in b[:3]:
        spec.seed = spec.config["seed"] = spec.seed - 10
    found = compare(tmp_path / "2", a, b)
    assert found["comparisons"][0]["seeds"] == [["0", "1", "2"]] * 2
    assert "only the 3 common seeds are compared; 4 runs without a partner left out" in str(found["findings"])


def test_datasets_in_both_arms_pair_with_the_seed(tmp_path: Path) -> None:
    a, b = [], []
    for shift, fold in ((0.0, "x"), (0.1, "y")):
        a += arm(tuple(v - shift for v in NEW[:3]), 3e-4, config={"fold": fold})
        b += arm(tuple(v - shift for v in OLD[:3]), 1e-3, config={"fold": fold})
    found = compare(tmp_path, a, b)
    assert found["comparisons"][0]["seeds_test"]["n"] == [6, 6] and found["comparisons"][0]["seeds_test"]["paired"]
    assert found["verdict"] == "effect" and found["ok"]


def test_several_arms_and_metrics_are_corrected(tmp_path: Path) -> None:
    rng = random.Random(3)
    paths = []
    for name, shift in (("a", 0.10), ("b", 0.0), ("c", 0.0)):
        rows = [(s, 0.5 + shift + rng.gauss(0, 0.03), 0.4 + shift + rng.gauss(0, 0.03)) for s in range(6)]
        paths.append(table(tmp_path / f"{name}.csv", "seed,acc,f1", rows))
    found = report(paths[0], "--vs", paths[1], "--vs", paths[2], "--metric", "acc", "--metric", "f1")
    assert [row["arms"] for row in found["comparisons"]] == [["A", "B"], ["A", "B"], ["A", "C"], ["A", "C"]]
    p = [row["seeds_test"]["p"] for row in found["comparisons"]]
    adjusted = [row["seeds_test"]["p_holm"] for row in found["comparisons"]]
    assert min(adjusted) == pytest.approx(4 * min(p)) and all(x >= y for x, y in zip(adjusted, p, strict=True))
    assert "adjusted for 4 comparisons" in str(found["comparisons"][0]["reasons"])


def test_arms_without_spread_have_no_p_and_no_interval(tmp_path: Path) -> None:
    paths = [table(tmp_path / f"{k}.csv", "seed,acc", [(s, f"0.{k}1234") for s in range(3)]) for k in (7, 8)]
    row = report(paths[0], "--vs", paths[1], "--metric", "acc")["comparisons"][0]
    assert (row["verdict"], row["seeds_test"]["p"], row["seeds_test"]["ci95"]) == ("bug-suspect", None, [None, None])
    assert "no test: the runs do not vary" in row["disclosure"]


def test_holm() -> None:
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert str(stats.holm([math.nan, 0.02])) == "[nan, 0.02]"


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("n", [3, 5, 8])
def test_statistics_agree_with_scipy_and_the_quick_form(n: int, paired: bool) -> None:
    from scipy import stats as reference

    rng = np.random.default_rng(n)
    words = set()
    for shift in (0.0, 1.0, 2.0, 4.0):
        a, b = rng.normal(shift, 1, n), rng.normal(0, 2, n)
        found = stats.compare(list(a), list(b), paired)
        expected = reference.ttest_rel(a, b) if paired else reference.ttest_ind(a, b, equal_var=False)
        assert found.p == pytest.approx(expected.pvalue)
        assert found.ci == pytest.approx(tuple(expected.confidence_interval()))
        assert found.decision() == stats.decide(list(a), list(b), paired)
        words.add(found.decision())
    assert len(words) > 1


def test_the_smallest_effect_is_seen_in_about_80_percent() -> None:
    rng = np.random.default_rng(0)
    found = stats.compare(list(rng.normal(0, 1, 5)), list(rng.normal(0, 1, 5)), paired=True)
    spread = found.smallest / stats._smallest(4.0) * math.sqrt(5)  # the sd of the differences behind it
    draws = rng.normal(found.smallest, spread, (4000, 5))
    t = draws.mean(1) / (draws.std(1, ddof=1) / math.sqrt(5))
    assert 0.77 < (t > 3.7469).mean() < 0.83  # the two-sided 2 % point of t with 4 degrees of freedom


@pytest.mark.parametrize("noise", bench.NOISES)
def test_noise_is_rarely_called_an_effect(noise: str) -> None:
    """The small version of the benchmark: the lower end of the interval must not be above 5 %."""
    for n in bench.SEEDS:
        for design in bench.DESIGNS:
            low, _ = bench.interval(bench.effects(n, noise, design, comparisons=150), 150)
            assert low < 5.0, (n, design)
    assert bench.effects(10, noise, "unpaired", 3.0, 50) > 40


# -- eval items


def items(path: Path, shift: float, count: int, seed: int = 0, skip: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    scores = 25 + np.random.default_rng(99).normal(0, 4, count) + rng.normal(shift, 0.5, count)
    return table(path, "image_id,psnr", [(f"img{i}", score) for i, score in enumerate(scores)][skip:])


def test_items_pair_and_must_be_the_same_but_one_checkpoint_stays_one_run(tmp_path: Path) -> None:
    a, b, c, d = (items(tmp_path / f"{n}.csv", 0.4 if n == 1 else 0, 200, n) for n in (1, 2, 3, 4))
    row = report(a, "--vs", b, "--metric", "psnr")["comparisons"][0]
    assert (row["verdict"], row["items_test"]["n"], row["items_test"]["paired"]) == ("undecided", [200, 200], True)
    assert row["reasons"][0].startswith("these checkpoints: effect (over 200 paired eval items")
    assert 0.2 < row["items_test"]["difference"] < 0.6
    assert "over 200 paired eval items, these checkpoints only: 95 % CI [" in row["disclosure"]
    found = report(c, "--vs", d, "--metric", "psnr")
    assert found["verdict"] == "noise" and "noise of the eval set alone" in found["comparisons"][0]["reasons"][0]
    found = report(a, "--vs", items(tmp_path / "5.csv", 0, 200, 2, skip=3), "--metric", "psnr")
    assert found["verdict"] == "bug-suspect" and "3 eval items in one arm only" in str(found["findings"])


def test_items_of_several_seeds_count_as_seeds(tmp_path: Path) -> None:
    paths: list[Path] = []
    for name, shift in (("a", 0.4), ("b", 0.0)):
        rng = np.random.default_rng(len(paths))
        rows = [(seed, i, rng.random() < 0.6 + shift / 2) for seed in range(4) for i in range(300)]
        paths.append(table(tmp_path / f"{name}.csv", "seed,item,acc", [(s, i, int(v)) for s, i, v in rows]))
    found = report(paths[0], "--vs", paths[1], "--metric", "acc")
    assert found["comparisons"][0]["seeds_test"]["n"] == [4, 4] and found["verdict"] == "effect"


# -- other sources


def test_metrics_jsonl_alone_gives_the_last_point(tmp_path: Path) -> None:
    for name, values in (("a", NEW), ("b", OLD)):
        for number, spec in enumerate(with_curves(arm(values, values[0]), 1000, val=rising)):
            folder = write(tmp_path / name, spec, number)
            (folder / "results.json").unlink()
    row = report(tmp_path / "a", "--vs", tmp_path / "b", "--metric", "accuracy")["comparisons"][0]
    assert (row["split"], row["values"][0]) == ("val", list(NEW))


def test_the_same_run_twice_counts_once_and_in_both_arms_is_a_bug(tmp_path: Path) -> None:
    a, b = ([write(tmp_path / str(lr), s, n) for n, s in enumerate(arm(v, lr))] for v, lr in ((NEW, 3e-4), (OLD, 1e-3)))
    found = report(*a, a[0] / "results.json", "--vs", *b, "--metric", "accuracy", "--intended", "lr")
    assert codes(found) == {"duplicate"} and found["comparisons"][0]["seeds_test"]["n"] == [5, 5]
    assert found["verdict"] == "effect"
    found = report(*a, "--vs", *b, a[0], "--metric", "accuracy")
    assert found["verdict"] == "bug-suspect" and "is in both arms, A and B" in str(found["findings"])


def test_wandb_table_with_a_crashed_run_and_rows_selected(tmp_path: Path) -> None:
    rows: list[tuple[object, ...]] = [
        (f"{m}-{s}", "finished", m, s, v, 1000) for m, vs in (("ours", NEW), ("base", OLD)) for s, v in enumerate(vs)
    ]
    rows.append(("ours-9", "crashed", "ours", 9, "", 10))
    path = table(tmp_path / "wandb.csv", "Name,State,method,seed,val/acc,_step", rows)
    found = report(f"{path}::method=ours", "--vs", f"{path}::method=base", "--metric", "val/acc")
    row = found["comparisons"][0]
    assert (row["variable"], row["split"], row["values"][0]) == ("method", "val", list(NEW))
    assert "this run has no value" in str(found["findings"]) and "missing" in codes(found)


# -- bad input: one sentence, exit 2


BAD = {
    b"": "T/a.csv is empty; expected a header line and rows",
    b"seed,acc\n": "T/a.csv has no rows (or none that were selected)",
    b"seed,acc\n1,0.5,7\n": "T/a.csv line 2 has another number of fields than the header",
    b"seed,acc\n1,good\n": "T/a.csv line 2: acc is not a number: 'good'",
    b"seed,acc,acc\n1,1,2\n": "T/a.csv has the column 'acc' twice; rename one of them",
    b"seed,acc\n1,\xff\n": "T/a.csv is not text: byte 11 is not UTF-8",
    b"acc\n0.1\n0.2\n": "T/a.csv has 2 rows and does not say what a row is: a seed or run column makes them runs, "
    "an item or id column makes them examples; add one",
    b"id,acc\nx,0.1\nx,0.2\n": "T/a.csv line 3 has the item 'x' a second time",
    b'seed,acc\n1,"%s"\n' % (b"x" * 200_000): "T/a.csv is not usable CSV: field larger than field limit (131072)",
    b"seed,acc\n1,\n": "no run of arm A has 'acc'; they have acc, seed",
}


def test_bad_tables(tmp_path: Path) -> None:
    good = table(tmp_path / "good.csv", "seed,acc", [(s, 0.5 + s / 100) for s in range(3)])
    for content, sentence in BAD.items():
        (tmp_path / "a.csv").write_bytes(content)
        done = run(tmp_path / "a.csv", "--vs", good, "--metric", "acc")
        shown = done.stderr.replace(str(tmp_path), "T")
        assert (done.returncode, done.stdout, shown) == (2, "", f"error: {sentence}\n")


def test_an_arm_in_which_every_run_diverged_is_a_bug_suspect(tmp_path: Path) -> None:
    bad = table(tmp_path / "bad.csv", "seed,acc", [(1, "nan"), (2, "inf"), (3, "nan")])
    good = table(tmp_path / "good.csv", "seed,acc", [(s, 0.5 + s / 100) for s in range(3)])
    found = report(bad, "--vs", good, "--metric", "acc")
    assert (found["verdict"], found["comparisons"][0]["values"][0]) == ("bug-suspect", [])
    assert {"nan", "bug-suspect"} <= codes(found, "error")


def test_bad_calls(tmp_path: Path) -> None:
    good = table(tmp_path / "good.csv", "seed,acc", [(s, 0.5 + s / 100) for s in range(3)])
    split = table(tmp_path / "split.csv", "seed,split,acc", [(s, "val", 0.5) for s in range(3)])
    empty = tmp_path / "empty"
    empty.mkdir()
    deep = tmp_path / "a.json"
    deep.write_text('{"a": ' * 100_000)
    for arguments, expected in (
        (["--vs", deep], "a.json is not usable JSON: nested too deep"),
        (["--vs", compare_runs.__file__], "holds no run: "),
        (["--vs"], "arm B is empty"),
        (["--vs", empty], "holds no run"),
        (["--vs", tmp_path / "no"], "does not exist"),
        (["--vs", f"{good}::seed"], "expected FILE.csv::COLUMN=VALUE"),
        (["--vs", f"{good}::fold=1"], "no column 'fold' to select by"),
        (["--vs", f"{empty}::a=1"], "rows can only be selected from a CSV"),
        (["--split", "test", "--vs", good], "the arms have 'acc' not both on test: A on None, B on None"),
        (["--vs", split], "the arms have 'acc' on different splits: A on None, B on val"),
        ([], "Missing option '--vs'"),
    ):
        done = run(good, *arguments, "--metric", "acc")
        assert done.returncode == 2 and expected in done.stderr, (arguments, done.stderr)


def test_bad_run_directories(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", arm(NEW, 3e-4)[0], 0)
    other = write(tmp_path / "b", arm(OLD, 1e-3)[0], 0)
    good = (folder / "results.json").read_text()

    def message(text: str, name: str = "results.json") -> str:
        (folder / name).write_text(text)
        done = run(folder, "--vs", other, "--metric", "accuracy")
        assert done.returncode == 2, done.stderr
        return done.stderr

    assert "does not fit the results schema" in message(good.replace('"up"', '"max"'))
    assert "belongs to another run" in message((other / "results.json").read_text())
    assert "is empty" in message("")
    twice = json.loads(good)
    twice["metrics"].append({**twice["metrics"][0], "value": 0.5})
    assert "reports accuracy on test 2 times" in message(json.dumps(twice))
    (folder / "results.json").write_text(good)
    assert "config.yaml is not YAML: " in message("a: [", "config.yaml")
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{k}: &a{k} [*a{k - 1}, *a{k - 1}]\n" for k in range(1, 30))
    assert "config.yaml is not YAML: its aliases make more than" in message(bomb, "config.yaml")
    (folder / "config.yaml").unlink()
    changed = (folder / "run.json").read_text().replace("0.0003", "0.5")
    assert "config has another sha256" in message(changed, "run.json")


def test_thousands_of_eval_items_are_compared_without_resampling() -> None:
    a, b = (list(np.random.default_rng(seed).normal(seed / 10, 1, 100_000)) for seed in (0, 1))
    found = stats.compare(a, b, paired=True)
    assert found.p_permutation is None and found.difference == pytest.approx(-0.1, abs=0.02)


def test_settings_are_flat_and_spelled_one_way() -> None:
    found = flat_settings.flatten(
        {"a": {"b": "1e-3", "c": [1, 2]}, "args": ["--x", "-1", "--flag", "y=2"], "d": {"e": True}}
    )
    assert found == {"a.b": 0.001, "a.c": "[1.0, 2.0]", "--x": -1.0, "--flag": "true", "y": 2.0, "d.e": "true"}


# -- which columns are settings


def test_measured_columns_are_no_confounds(tmp_path: Path) -> None:
    """runtime_s was taken for a setting, and nothing could exclude it."""
    rng = random.Random(3)
    rows = [
        (m, s, 0.7 + 0.1 * (m == "new") + rng.random() / 100, 60 + rng.random(), 3, s % 2)
        for m in ("new", "old")
        for s in range(5)
    ]
    path = table(tmp_path / "all.csv", "method,seed,acc,runtime_s,layers,odd,width", [(*r, rng.random()) for r in rows])
    words = (f"{path}::method=new", "--vs", f"{path}::method=old", "--metric", "acc")
    found = report(*words)
    assert (found["verdict"], found["comparisons"][0]["variable"]) == ("effect", "method")
    assert "left out as no settings: runtime_s (measured); width (varies within an arm)" in str(found["findings"])
    found = report(*words, "--settings", "width")
    assert any("width" in f["message"] and f["severity"] == "warn" for f in found["findings"])
    found = report(*words, "--ignore", "method")
    assert found["comparisons"][0]["changed"] == []
    paired = report(*words, "--pair-by", "seed")["comparisons"][0]["seeds_test"]
    assert paired["paired"] and paired["n"] == [5, 5]
    assert "records no fold to pair by" in run(*words, "--pair-by", "fold").stderr


# -- planned beforehand


def test_false_effects_and_power_over_ten_thousand_campaigns() -> None:
    """Old runs give a plan; the campaign stops at the first look below its bar."""
    from scipy import stats as oracle

    rng = np.random.default_rng(7)
    campaigns = 10_000
    for count in (1, 3):
        n = plan.seeds_per_arm(1.5, 1.0, 0.8, plan.last_bar(count))
        steps = plan.looks(n, count)
        assert math.fsum(step.bar for step in steps) == pytest.approx(stats.CLAIM)
        for effect, low, high in ((0.0, 0.0, stats.CLAIM + 0.003), (1.5, 0.79, 0.9)):
            x, y = rng.normal(effect, 1, (campaigns, n)), rng.normal(0, 1, (campaigns, n))
            crossed = np.zeros(campaigns, dtype=bool)
            for step in steps:
                p = oracle.ttest_ind(x[:, : step.n], y[:, : step.n], axis=1, equal_var=False).pvalue
                crossed |= p < step.bar
            assert low <= crossed.mean() <= high, (count, effect, crossed.mean())
    hits = 0
    for _ in range(1000):  # the interval of the power knows that the spread itself is an estimate
        noise = plan.spread([list(rng.normal(0, 1, 6))])
        n = plan.seeds_per_arm(1.5, noise.sd, 0.8, stats.CLAIM)
        low, true, high = (plan.power_of(1.5, sd, n, stats.CLAIM) for sd in (noise.high, 1.0, noise.low))
        hits += low <= true <= high
    assert 0.87 <= hits / 1000 <= 0.93


def test_a_plan_is_written_first_and_checked_later(tmp_path: Path) -> None:
    old = table(tmp_path / "old.csv", "seed,accuracy", [(s, v) for s, v in enumerate((0.90, 0.93, 0.91, 0.92))])
    words = (
        "plan",
        "--metric",
        "accuracy",
        "--delta",
        "0.02",
        "--from",
        old,
        "--looks",
        "2",
        "--write",
        tmp_path / "plan.json",
    )
    done = run(*words)
    assert done.returncode == 0, done.stderr
    assert "74 seeds per arm find a difference of 0.02 in accuracy in 80% of cases" in done.stdout
    assert "look 1: " in done.stdout and "unknown, the old runs record no hours" in done.stdout
    assert "a plan is written once" in run(*words).stderr
    data = json.loads((tmp_path / "plan.json").read_text())
    data |= {"looks": [{"n": 5, "bar": 1e-12}, {"n": 8, "bar": 0.01}], "written": 0}
    (tmp_path / "plan.json").write_text(json.dumps(data))
    found = compare(tmp_path, arm(NEW, 3e-4), arm(OLD, 1e-3), "--intended", "lr", "--plan", str(tmp_path / "plan.json"))
    assert found["verdict"] == "undecided" and "planned: look 1 of 2" in found["comparisons"][0]["disclosure"]
    assert "go on to the next one" in found["comparisons"][0]["reasons"][0]
    again = (tmp_path / "a", "--vs", tmp_path / "b", "--metric", "accuracy", "--plan", tmp_path / "plan.json")
    (tmp_path / "plan.json").write_text(json.dumps(data | {"looks": [{"n": 4, "bar": 0.02}]}))
    assert "not as planned: 5 runs per arm" in str(report(*again)["findings"])
    (tmp_path / "plan.json").write_text(json.dumps(data | {"written": 1e12}))
    assert "found afterwards" in report(*again)["comparisons"][0]["disclosure"]
    (tmp_path / "plan.json").write_text(json.dumps(data | {"metric": "f1"}))
    assert "found afterwards: the plan is about f1" in str(report(*again)["findings"])


def test_a_plan_needs_a_spread(tmp_path: Path) -> None:
    for name, values in {"few": (0.9, 0.91), "flat": (0.9, 0.9, 0.9)}.items():
        path = table(tmp_path / f"{name}.csv", "seed,accuracy", list(enumerate(values)))
        done = run("plan", "--metric", "accuracy", "--delta", "0.1", "--from", path)
        assert done.returncode == 2 and done.stderr.count("\n") == 1
    path = table(tmp_path / "wide.csv", "seed,accuracy", list(enumerate((0.1, 0.5, 0.9))))
    assert "needs more than 10000" in run("plan", "--metric", "accuracy", "--delta", "1e-5", "--from", path).stderr
