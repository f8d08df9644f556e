"""Sealed runs and computed claims: every tampering is named, every number comes from its runs."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rgt.run import record as rundir

import pytest

from . import front_door

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "manifest_scaffold.py"


def run(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return front_door.call("manifest_scaffold.py", *words, cwd=folder)


def findings(folder: Path, *words: object) -> list[tuple[str, str]]:
    done = run(folder, *words, "--json")
    report = json.loads(done.stdout)
    assert done.returncode == (1 if report["findings"] else 0)
    return [(finding["code"], finding["message"]) for finding in report["findings"]]


def make_run(folder: Path, value: float, **extra: Any) -> Path:
    made = rundir.create(folder / "runs", "tiny", command=["train"], config={"lr": 0.1}, seeds={"torch": 1})
    made.log_metrics(step=1, split="test", accuracy=value)
    row = {"name": "accuracy", "value": value, "split": "test", "n": 1000, "direction": "up", **extra}
    made.write_results({"run_id": made.id, "metrics": [row]})
    return made.path


def add(folder: Path, *runs: Path, words: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    given = [word for path in runs for word in ("--run", path)]
    return run(folder, "claim", "add", "acc", "--metric", "accuracy", *words, *given)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    assert run(tmp_path, "init").returncode == 0
    return tmp_path


def test_init_makes_the_tree_once(tmp_path: Path) -> None:
    assert run(tmp_path, "init").stdout == ".: made runs/, figures/, EVIDENCE.json, repro.sh\n"
    assert run(tmp_path, "init").stdout == ".: made nothing, all of it is there\n"


def test_a_claim_is_computed_from_its_runs(project: Path) -> None:
    runs = [make_run(project, value) for value in (0.90, 0.92, 0.94)]
    done = add(project, *runs, words=["--split", "test", "--method", "Ours"])
    assert done.stdout == "acc: accuracy Ours test = 0.92 ± 0.02 (3 runs)\n"
    claim = json.loads((project / "EVIDENCE.json").read_text())["claims"][0]
    assert (claim["n"], claim["direction"]) == (3, "up")
    assert all((path / "seal.json").exists() for path in runs)
    assert findings(project, "claim", "check") == []
    assert run(project, "claim", "list").stdout == done.stdout


def test_one_run_has_no_spread_and_a_typed_value_is_found(project: Path) -> None:
    assert add(project, make_run(project, 0.9)).stdout == "acc: accuracy test = 0.9 (1 run)\n"
    path = project / "EVIDENCE.json"
    path.write_text(path.read_text().replace("0.9,", "0.91,"))
    assert findings(project, "claim", "check") == [("drift", "value is 0.91 here and 0.9 in its runs")]


def test_the_first_claim_needs_no_init_and_a_run_may_be_named_by_its_id(tmp_path: Path) -> None:
    path = make_run(tmp_path, 0.9)
    done = run(tmp_path, "claim", "add", "acc", "--metric", "accuracy", "--run", path.name)
    assert (done.stdout, done.stderr) == ("acc: accuracy test = 0.9 (1 run)\n", "made EVIDENCE.json\n")
    assert findings(tmp_path, "claim", "check") == []


def test_a_failed_first_claim_makes_no_evidence(tmp_path: Path) -> None:
    done = run(tmp_path, "claim", "add", "acc", "--metric", "f1", "--run", make_run(tmp_path, 0.9))
    assert done.returncode == 2 and not (tmp_path / "EVIDENCE.json").exists()


@pytest.mark.parametrize("metric", ["accuracy", "val_accuracy", "val/accuracy"])
def test_a_metric_may_be_named_as_its_own_file_spells_it(project: Path, metric: str) -> None:
    """adopt makes `accuracy` of `val` out of a column val_accuracy; the gate wants the split in the claim."""
    path = make_run(project, 0.9, split="val")
    done = run(project, "claim", "add", "acc", "--metric", metric, "--run", path)
    assert done.stdout == "acc: accuracy val = 0.9 (1 run)\n"
    claim = json.loads((project / "EVIDENCE.json").read_text())["claims"][0]
    assert (claim["metric"], claim["split"]) == ("accuracy", "val")


def change_a_byte(path: Path) -> None:
    data = bytearray((path / "metrics.jsonl").read_bytes())
    data[-3] ^= 1
    (path / "metrics.jsonl").write_bytes(data)


def reseal(path: Path) -> None:
    """A forger who knows seal.json: change a result, then make the seal anew."""
    text = (path / "results.json").read_text()
    (path / "results.json").write_text(text.replace("0.9", "0.95"))
    record = json.loads((path / "seal.json").read_text())
    record["files"]["results.json"] = hashlib.sha256((path / "results.json").read_bytes()).hexdigest()
    (path / "seal.json").write_text(json.dumps(record))


TAMPERINGS = {
    "a byte": (change_a_byte, "metrics.jsonl changed since it was sealed"),
    "a file gone": (lambda path: (path / "metrics.jsonl").unlink(), "metrics.jsonl was sealed and is gone"),
    "a file more": (lambda path: (path / "note").write_text("x"), "note was added after the seal"),
    "no seal": (lambda path: (path / "seal.json").unlink(), "seal.json does not exist"),
    "a new seal": (reseal, "seal.json is not the seal that SEALS.jsonl recorded first"),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_is_named(project: Path, name: str) -> None:
    tamper, expected = TAMPERINGS[name]
    path = make_run(project, 0.9)
    assert run(project, "seal", path).returncode == 0
    assert findings(project, "seal", "--check", path) == []
    tamper(path)
    ((_, message),) = findings(project, "seal", "--check", path)
    assert expected in message


def test_a_seal_that_was_killed_before_the_ledger_knew_it_is_finished_by_the_next(project: Path) -> None:
    path = make_run(project, 0.9)
    run(project, "seal", path)
    (project / "runs" / "SEALS.jsonl").unlink()
    ((code, message),) = findings(project, "seal", "--check", path)
    assert code == "missing" and message.endswith("the ledger was cut")
    assert run(project, "seal", path).returncode == 0
    assert findings(project, "seal", "--check", path) == []
    with pytest.raises(Exception, match="is sealed; a sealed run never changes"):
        rundir.open_run(path).refuse_if_sealed()


def test_a_claim_notices_that_its_run_was_resealed(project: Path) -> None:
    path = make_run(project, 0.9)
    add(project, path)
    reseal(path)
    (project / "runs" / "SEALS.jsonl").unlink()
    said = " / ".join(message for _, message in findings(project, "claim", "check"))
    for words in (
        "the ledger was cut",
        "not the one this claim was computed from",
        "value is 0.9 here and 0.95 in its",
    ):
        assert words in said


def test_what_a_claim_names_must_exist(project: Path) -> None:
    path, words = (
        make_run(project, 0.9),
        "--figure curve --anchor paper.tex#tab --anchor README.md#our-results --code train.py:2",
    )
    done = add(project, path, words=words.split())
    assert done.returncode == 2 and "paper.tex does not exist; README.md does not exist; train.py does" in done.stderr
    (project / "paper.tex").write_text("\\label{tab}\n")
    (project / "README.md").write_text("# Results\n")
    (project / "train.py").write_text("import torch\n")
    done = add(project, path, words=words.split())
    assert "no heading, id or label 'our-results'" in done.stderr and "train.py has 1 lines, not 2" in done.stderr
    (project / "README.md").write_text("# Our results!\n")
    (project / "train.py").write_text("import torch\nloss.backward()\n")
    assert add(project, path, words=words.split()).returncode == 0
    assert findings(project, "claim", "check") == [("missing", "figures/curve does not exist")]
    (project / "train.py").write_text("import torch\n# why\n\nloss.backward()\n")
    moved = "the line of train.py:2 moved to train.py:4: loss.backward()"
    assert findings(project, "claim", "check")[1:] == [("missing", moved)]


def test_a_removed_claim_stays_in_the_ledger(project: Path) -> None:
    add(project, make_run(project, 0.9))
    add(project, make_run(project, 0.8))  # replaces it
    evidence = project / "EVIDENCE.json"
    data = json.loads(evidence.read_text())
    evidence.write_text(json.dumps(data | {"tables": {"main": ["acc"], "both": ["acc"]}}))
    assert run(project, "claim", "remove", "acc").returncode == 2  # why?
    assert run(project, "claim", "remove", "acc", "--because", "wrong split").returncode == 0
    assert run(project, "claim", "remove", "acc", "--because", "again").returncode == 2
    data = json.loads(evidence.read_text())
    assert data["claims"] == [] and data["tables"] == {}
    rows = [json.loads(line) for line in (project / "EVIDENCE.ledger.jsonl").read_text().splitlines()]
    assert [(row["act"], row["claim"]["value"]) for row in rows] == [("replaced", 0.9), ("removed", 0.8)]


def test_parallel_claims_and_seals_lose_nothing(project: Path) -> None:
    path = make_run(project, 0.9)
    add_claim = f'"{sys.executable}" "{SCRIPT}" claim add c$1-$n --metric accuracy --run "{path}"'
    words = ["sh", "-c", f"for n in 1 2 3; do {add_claim} || exit 9; done", "sh"]
    claims = [subprocess.Popen([*words, str(at)], cwd=project, stdout=subprocess.DEVNULL) for at in range(6)]
    assert [child.wait() for child in claims] == [0] * 6
    assert len(json.loads((project / "EVIDENCE.json").read_text())["claims"]) == 18
    other = make_run(project, 0.8)
    command = [sys.executable, str(SCRIPT), "seal", str(other)]
    seals = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    told = sorted(child.communicate()[0].splitlines()[-1] for child in seals)
    assert told == ["1 runs: 1 sealed already; 0 findings"] * 3 + ["1 runs: 1 sealed; 0 findings"]
    assert findings(project, "claim", "check") == [] and findings(project, "seal", other, "--check") == []


def test_a_seal_that_was_cut_off_is_finished(project: Path) -> None:
    path = make_run(project, 0.9)
    run(project, "seal", path)
    (project / "runs" / "SEALS.jsonl").unlink()  # killed between the two files
    rundir.Run(path).log_event("sealed")  # by a second one
    assert "1 finished" in run(project, "seal", path).stdout and findings(project, "seal", path, "--check") == []
    (project / "runs" / "SEALS.jsonl").unlink()
    change_a_byte(path)
    assert run(project, "seal", path).returncode == 2


BAD = {
    "seal nothing": "nothing is not a run directory: it has no run.json",
    "claim add a --metric f1 --run RUN": "has no f1; it has: accuracy test",
    "claim add a --metric accuracy --split val --run RUN": "has no accuracy val",
    "claim add a --metric accuracy --run RUN --run RUN": "a run is named twice",
    "claim add 1x --metric accuracy --run RUN": "1x",
    "claim add a --metric accuracy --run 20260101-000000-a-abcdef": "no run 20260101-000000-a-abcdef below",
    "claim check --evidence no.json": "no.json does not exist",
}


TWICE = {"id": "acc", "metric": "accuracy", "value": 1, "evidence": [{"run_id": "20260101-000000-a-abcdef"}]}


def test_bad_input(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = make_run(project, 0.9)
    for words, sentence in BAD.items():
        done = run(project, *words.replace("RUN", str(path)).split())
        assert done.returncode == 2 and sentence in done.stderr and "Traceback" not in done.stderr
    assert json.loads((project / "EVIDENCE.json").read_text())["claims"] == []
    assert not (path / "seal.json").exists()  # a claim that failed leaves its runs open to be mended
    done = add(project, make_run(tmp_path_factory.mktemp("elsewhere"), 0.9))
    assert done.returncode == 2 and "no run" in done.stderr
    done = add(project, *(make_run(project, 0.9, direction=way) for way in ("up", "down")))
    assert done.returncode == 2 and "the runs disagree on which way accuracy is better" in done.stderr
    (project / "EVIDENCE.json").write_text(json.dumps({"claims": [TWICE, TWICE]}))
    assert "has the claim acc twice" in run(project, "claim", "check").stderr
    (path / "results.json").unlink()
    done = run(project, "seal", path)
    assert done.returncode == 2 and "has no results.json" in done.stderr and not (path / "seal.json").exists()


@pytest.mark.parametrize("odd", ["NaN", "-Infinity"])
def test_a_diverged_run_is_no_result(project: Path, odd: str) -> None:
    runs = [make_run(project, value) for value in (0.9, 0.92)]
    assert add(project, *runs).returncode == 0
    results = runs[0] / "results.json"
    results.write_text(results.read_text().replace("0.9", odd))
    assert any("that is no result" in message for _, message in findings(project, "claim", "check"))
    for path in runs:
        (path / "seal.json").unlink()
    done = add(project, *runs)
    assert done.returncode == 2 and f"accuracy is {float(odd)}; that is no result" in done.stderr
