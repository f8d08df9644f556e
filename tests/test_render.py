"""What a delivery shows is generated: tables, macros and values agree with reconcile; the gate names what is to be
disclosed; one command rebuilds all of it from a clean clone."""

from __future__ import annotations

import base64
import importlib.metadata
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rgt.reconcile import facts, numerals, readings
from rgt.render import document_numbers
from rgt.render.document_numbers import Style
from rgt.run import record as rundir
from rgt.run import seal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from .delivered import SCRIPTS, call, edit, everything, findings, render
from .front_door import git


@pytest.fixture
def delivered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return everything(tmp_path_factory)


@pytest.fixture
def project(delivered: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(delivered, tmp_path / "project"))


# -- digits


SPREAD = Style(spread=True)
# style -> text: value, spread, n
DIGITS: list[tuple[Style, dict[str, tuple[float, ...]]]] = [
    (Style(), {"31.42": (31.4159,), "0.9": (0.9,), "3": (3.0,), "0": (0.0,), "3.215e-9": (3.2154e-9,)}),
    (Style(tex=True), {r"$3.215 \times 10^{-9}$": (3.2154e-9,)}),
    (SPREAD, {"0.914 ± 0.003": (0.91423, 0.0031), "0.9142 ± 0.0013": (0.91423, 0.0013), "0.5 ± 0.0": (0.5, 0.0)}),
    (SPREAD, {"0.9142 ± 0.0010": (0.91423, 0.00097), "12346 ± 40": (12345.6, 40.0), "1950.4 ± 40.0": (1950.4, 40.0)}),
    (SPREAD, {"0.000 ± 0.010": (-0.0004, 0.01), "2.000e30 ± 3e27": (2e30, 3e27)}),
    (Style(True, True, True), {"91.4 ± 0.3 % (n = 5)": (0.91423, 0.0031, 5)}),
    (Style(True, True, True, True), {r"$91.4 \pm 0.3$\,\% ($n = 5$)": (0.91423, 0.0031, 5)}),
]


def test_digits_come_from_the_spread() -> None:
    for style, texts in DIGITS:
        claims = [dict(zip(("value", "spread", "n"), known, strict=False)) for known in texts.values()]
        assert [style.text(claim) for claim in claims] == list(texts)
    assert Style(percent=True).text({"value": 92.04, "unit": "%"}) == "92.04 %"
    with pytest.raises(Exception, match=r"psnr is 31\.4, no fraction"):
        Style(percent=True).text({"id": "psnr", "value": 31.4})


@given(
    st.floats(-1e6, 1e6).filter(lambda value: abs(value) > 1e-6 or value == 0),
    st.none() | st.floats(1e-6, 1e4),
    st.booleans(),
)
@example(1000.0, 6e-5, False)  # 1000.00000 is no arXiv id when a spread follows
def test_reconcile_accepts_every_number_that_is_written(value: float, spread: float | None, percent: bool) -> None:
    claim = {"id": "c", "metric": "accuracy", "value": value, "n": 3, **({} if spread is None else {"spread": spread})}
    style = Style(percent=percent and abs(value) <= 1, spread=True, n=True)
    text = style.text(claim)
    numeral, *_ = numerals.find_numerals(text, in_cell=True)  # behind it the number of runs
    assert readings.agrees(facts.from_claims([claim])[0], numeral), text


# -- tables


def test_tables_show_methods_metrics_and_spread(delivered: Path) -> None:
    folder = delivered / "tables"
    expected = """\
| method | accuracy CIFAR-10 test ↑ | loss CIFAR-10 val ↓ |
|---|---|---|
| Ours | 92.0 ± 0.4 % <!-- claim:acc-ours --> | 0.310 ± 0.010 <!-- claim:loss-ours --> |
| Baseline | 88.0 ± 0.4 % <!-- claim:acc-baseline --> | 0.310 ± 0.010 <!-- claim:loss-baseline --> |

3 runs each; ± is the sample standard deviation over runs
"""
    assert (folder / "results.md").read_text() == expected
    row = r"Ours & $92.0 \pm 0.4$\,\% & $0.310 \pm 0.010$ \\"
    assert row in (folder / "results.tex").read_text()


def test_a_named_table_is_remembered_and_names_are_escaped(project: Path) -> None:
    edit(project / "EVIDENCE.json", '"method": "Ours"', '"method": "A&B | 50%_x"')
    done = render(project, "tables", "acc-ours", "acc-baseline", "--name", "main")
    assert done.stdout.endswith("wrote tables/macros.tex, tables/main.md, tables/main.tex\n")
    assert r"A\&B | 50\%\_x &" in (project / "tables/main.tex").read_text()
    assert r"| A&B \| 50%_x |" in (project / "tables/main.md").read_text()


# -- macros and values


def test_macro_names_are_letters_and_macros_carry_their_claim(delivered: Path) -> None:
    assert document_numbers.macro_name("acc-ours_10") == "valAccOursOneZero"
    claims = [{"id": name, "metric": "m", "value": 1.0} for name in ("a-b", "aB")]
    with pytest.raises(Exception, match=r"a-b and aB would both be \\valAB; rename"):
        document_numbers.macros(claims, frozenset())
    text = (delivered / "tables/macros.tex").read_text()
    assert r"\newcommand{\valAccOurs}{92.0\,\%} % claim:acc-ours" in text
    assert r"\newcommand{\valLossOursPm}{\ensuremath{0.310 \pm 0.010}} % claim:loss-ours" in text


def test_values_are_written_between_the_markers_only_and_reconcile_agrees(delivered: Path) -> None:
    expected = """# Results

Ours reaches <!-- value:acc-ours percent spread -->92.0 ± 0.4 %<!-- claim:acc-ours --><!-- /value --> accuracy
on CIFAR-10, the baseline <!-- value:acc-baseline percent -->88.0 %<!-- claim:acc-baseline --><!-- /value -->.
"""
    assert (delivered / "README.md").read_text() == expected
    report = json.loads(call(delivered, "reconcile.py", "--json").stdout)
    assert (report["findings"], report["unexplained"]) == ([], 0)
    assert report["compared"] >= 17


def test_a_stale_value_is_named_by_reconcile_and_written_anew(project: Path) -> None:
    edit(project / "README.md", "92.0", "92.3")
    assert [code for code, _ in findings(call(project, "reconcile.py", "README.md", "--json"))] == ["drift"]
    before = (project / "README.md").read_text()
    assert render(project, "values").returncode == 0
    assert (project / "README.md").read_text() == before.replace("92.3", "92.0")


BROKEN = {
    "unclosed": ("<!-- value:acc-ours -->1", "malformed", "the marker of acc-ours is not closed"),
    "nested": ("<!-- value:acc-ours -->\n<!-- value:loss-ours --><!-- /value -->", "malformed", "before the next"),
    "unknown": ("<!-- value:nope -->1<!-- /value -->", "unknown-claim", "has no claim nope"),
    "percent of 31": ("<!-- value:acc-ours percent -->1<!-- /value -->", "malformed", "no fraction"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_document_with_a_broken_marker_is_left_alone(project: Path, name: str) -> None:
    text, code, sentence = BROKEN[name]
    if name == "percent of 31":
        edit(project / "EVIDENCE.json", '"value": 0.92,', '"value": 31.0,')
    rest = "\n\n<!-- value:loss-ours -->9<!-- /value -->\n"
    (project / "a.md").write_text(text if name == "unclosed" else text + rest)
    before = (project / "a.md").read_bytes()
    found = findings(render(project, "values", "a.md", "--json"))
    assert [(one, sentence in message) for one, message in found] == [(code, True)]
    assert (project / "a.md").read_bytes() == before


def test_markers_in_code_and_line_ends_stay(project: Path) -> None:
    example = b"```\r\n<!-- value:acc-ours -->x<!-- /value -->\r\n```\r\n`<!-- value:acc-ours -->y<!-- /value -->`\r\n"
    (project / "a.md").write_bytes(example + b"<!-- value:acc-ours -->z<!-- /value -->\r\n")
    assert render(project, "values", "a.md").returncode == 0
    assert (project / "a.md").read_bytes() == example + (
        b"<!-- value:acc-ours -->0.920<!-- claim:acc-ours --><!-- /value -->\r\n"
    )
    (project / "b.md").write_bytes(b"<!-- value:acc-ours -->\xff<!-- /value -->")
    assert "b.md is not UTF-8 (byte 23)" in render(project, "values", "b.md").stdout


# -- the delivery gate


@pytest.fixture
def clean(project: Path) -> Path:
    """One claim on the test split, from committed code, with nothing to disclose."""
    git = {"commit": "c" * 40, "branch": "m", "dirty": False, "untracked": []}
    for run in (project / "runs").glob("2*"):
        edit_json(run / "run.json", lambda record: record.update(git=git))
    edit_json(project / "EVIDENCE.json", lambda data: data.update(claims=data["claims"][:1]))
    edit_json(project / "EVIDENCE.json", lambda data: data["claims"][0].pop("figure"))
    reseal(project)
    return project


def edit_json(path: Path, change: Callable[[Any], object]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def reseal(project: Path) -> None:
    """What a test changed counts as sealed."""
    (project / "runs/SEALS.jsonl").unlink()
    seals = {}
    for run in (project / "runs").glob("2*"):
        (run / "seal.json").unlink()
        seals[run.name] = seal.seal(rundir.open_run(run)).digest

    def adopt(data: Any) -> None:
        for item in data["claims"][0]["evidence"]:
            item["seal_sha256"] = seals[item["run_id"]]

    edit_json(project / "EVIDENCE.json", adopt)


def runs_of(project: Path) -> list[Path]:
    return sorted((project / "runs").glob("*-ours-*"))


Change = Callable[[Path], object]


def runs(name: str, change: Callable[[Any], object], count: int = 3) -> Change:
    """The first `count` runs of the claim were made otherwise."""

    def apply(project: Path) -> None:
        for run in runs_of(project)[:count]:
            edit_json(run / name, change)
        reseal(project)

    return apply


def results(change: Callable[[Any], object], count: int = 3) -> Change:
    return runs("results.json", lambda data: change(data["metrics"][0]), count)


def claim(change: Callable[[Any], object]) -> Change:
    return lambda project: edit_json(project / "EVIDENCE.json", lambda data: change(data["claims"][0]))


def one_run(claim: Any) -> None:
    del claim["evidence"][1:], claim["spread"]


def logged_curve(*others: str) -> Change:
    """Four evaluations on the test set, the third the best and the reported one; `others` were logged as well."""

    def apply(project: Path) -> None:
        for run in runs_of(project):
            value = json.loads((run / "results.json").read_text())["metrics"][0]["value"]
            for step, seen in ((0, math.nan), (1, value - 0.1), (2, value), (3, value - 0.01)):
                for split in ("test", *others):
                    rundir.open_run(run).log_metrics(step=step, split=split, accuracy=seen)
        reseal(project)

    return apply


DISCLOSED: dict[str, tuple[Change, list[str]]] = {
    "nothing": (lambda project: None, []),
    "one run": (claim(one_run), ["one run: no spread", "value is 0.92 here and 0.916 in its runs"]),
    "one seed": (runs("run.json", lambda record: record.update(seeds={"torch": 1})), ["runs share a seed"]),
    "no seed": (runs("run.json", lambda record: record.update(seeds={})), ["recorded no seed"]),
    "val": (claim(lambda claim: claim.update(split="val")), ["measured on val", "has no accuracy val"]),
    "no split": (claim(lambda claim: claim.pop("split")), ["does not name its split"]),
    "no hash": (results(lambda row: row.pop("eval_set_sha256")), ["hash of the evaluation set is not recorded"]),
    "other set": (results(lambda row: row.update(eval_set_sha256="f" * 64), 1), ["different evaluation sets"]),
    "tampered": (lambda p: (runs_of(p)[0] / "train.log").write_text("x"), ["train.log was added after the seal"]),
    "unsealed": (claim(lambda claim: claim["evidence"][0].pop("seal_sha256")), ["is not sealed: it may change unseen"]),
    "picked": (logged_curve(), ["the best of 3 evaluations on the test set is reported"]),
    "picked on val": (logged_curve("val"), []),
    "dirty": (runs("run.json", lambda record: record["git"].update(dirty=True)), ["uncommitted changes"]),
    "no git": (runs("run.json", lambda record: record.update(git=None)), ["its code is not known"]),
    "typed": (claim(lambda claim: claim.update(value=0.93)), ["value is 0.93 here and 0.92 in its runs"]),
    "figure": (claim(lambda claim: claim.update(figure="none")), ["figure.provenance.json does not exist"]),
    "own": (claim(lambda claim: claim.update(disclosures=["trained on a subset"])), ["trained on a subset"]),
    "run gone": (lambda project: shutil.rmtree(runs_of(project)[0]), ["no run "]),
}


@pytest.mark.parametrize("name", DISCLOSED)
def test_every_number_has_its_checklist(clean: Path, name: str) -> None:
    change, sentences = DISCLOSED[name]
    change(clean)
    done = render(clean, "gate", "--json")
    told = json.loads(done.stdout)["claims"][0]["disclose"]
    assert done.returncode == int(bool(told) and name != "own")
    assert bool(told) == bool(sentences)
    assert all(any(sentence in text for text in told) for sentence in sentences), told
    text = (clean / "DISCLOSURES.md").read_text()
    assert all(sentence in text for sentence in told) and ("nothing to disclose" in text) == (not told)
    report = json.loads(call(clean, "reconcile.py", "DISCLOSURES.md", "--json").stdout)
    assert name == "typed" or not report["findings"]


def test_what_a_comparison_found_travels_with_its_numbers(clean: Path) -> None:
    mine, other = runs_of(clean)[0].name, next((clean / "runs").glob("*-baseline-*")).name
    finding = {"code": "confound", "severity": "error", "message": "lr and batch size changed together"}
    about = {"code": "confound", "severity": "warn", "message": "another seed", "where": other}
    found = [finding, about, {**finding, "severity": "info"}]
    data = {"tool": "compare_runs", "ok": False, "findings": found, "runs": [mine, other]}
    (clean / "compare.json").write_text(json.dumps(data))
    done = render(clean, "gate", "--compare", "compare.json", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["claims"][0]["disclose"] == ["confound: lr and batch size changed together"]
    assert "Looked at: value, runs," in (clean / "DISCLOSURES.md").read_text()


# -- the page


def test_the_report_needs_nothing_but_itself(project: Path) -> None:
    edit(project / "EVIDENCE.json", '"method": "Baseline"', '"method": "<script>alert(1)</script>"')
    claim(lambda claim: claim.update(text="It's <b>better</b>", code=["train.py:1"]))(project)
    for run in runs_of(project):  # they are sealed: it is written beside them
        rundir.log_decision(run, "lease", what="started", rate=0.0)
        rundir.log_decision(run, "box_stopped")
    assert render(project, "report").returncode == 0
    assert "cost of these runs: 0.00" in (project / "report.html").read_text()
    text = (project / "report.html").read_text()
    assert "<script" not in text and "<b>better" not in text and "&lt;script&gt;alert(1)" in text
    sources = re.findall(r'(?:src|href)="([^"]*)"', text)
    pictures = [source for source in sources if source.startswith("data:image/svg+xml;base64,")]
    assert base64.b64decode(pictures[1].partition(",")[2]) == (project / "figures/loss/figure.svg").read_bytes()
    links = [source for source in sources if not source.startswith(("data:", "#"))]
    assert len(links) == 8 + 12 and all((project / link).is_file() for link in links)
    assert "source_data.csv is not what the runs and claims say now" in text  # the method was renamed
    shutil.rmtree(project / "figures")
    shutil.rmtree(runs_of(project)[0])
    assert render(project, "report").returncode == 0
    text = (project / "report.html").read_text()
    assert "Figure acc is not drawn yet" in text and "(not here)" in text


# -- one command from a clean clone


def repro(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Nothing is set; PYTHON only names the project's own."""
    settings = {name: value for name, value in os.environ.items() if name != "RGT"} | {"PYTHON": sys.executable}
    return subprocess.run(["./repro.sh", *words], cwd=folder, capture_output=True, text=True, env=settings)


def test_repro_from_a_clean_clone(project: Path, tmp_path: Path) -> None:
    shutil.rmtree(project / "figures/loss")  # one figure is enough here
    edit_json(project / "EVIDENCE.json", lambda data: [claim.pop("figure") for claim in data["claims"][1::2]])
    assert render(project, "gate").returncode == 1 and render(project, "report").returncode == 0
    pin = f"click=={importlib.metadata.version('click')}"
    (project / "requirements.lock").write_text(f"{pin}\nnone==1 ; sys_platform == 'x'\n")
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "commit", "-qm", "deliver")
    git(tmp_path, "clone", "-q", project, "clone")
    done = repro(tmp_path / "clone")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("reproduced: every number, table and figure is what was committed\n")
    assert "not reproduced: the evaluations; ./repro.sh --evaluate repeats them\n" in done.stdout
    assert "not reproduced: the training of " in done.stdout
    shutil.rmtree(tmp_path / "clone/figures")
    edit_json(tmp_path / "clone/EVIDENCE.json", lambda data: [claim.pop("figure", None) for claim in data["claims"]])
    (tmp_path / "clone/requirements.lock").write_text("click==0.1\n")
    (tmp_path / "clone/notes.md").write_text("Ours reaches 93.4% accuracy on CIFAR-10 test.\n")
    done = repro(tmp_path / "clone")
    assert done.returncode == 1 and "reproduced: every" not in done.stdout
    assert "pin: click 0.1 is locked" in done.stdout and "notes.md:1" in done.stdout and "?? notes.md" in done.stdout
    assert " D figures/acc/figure.png" in done.stdout


def test_repro_evaluates_again_and_says_what_it_does_not_repeat(tmp_path: Path) -> None:
    call(tmp_path, "manifest_scaffold.py", "init")
    for name, value in (("20260101-120000-a-a1b2c3", 0.91), ("20260101-120000-b-a1b2c3", 0.95)):
        (tmp_path / "runs" / name / "checkpoints").mkdir(parents=True)
        (tmp_path / "runs" / name / "checkpoints" / "w.npy").touch()
        row = {"name": "acc", "value": value, "split": "test", "direction": "up"}
        (tmp_path / "runs" / name / "results.json").write_text(json.dumps({"run_id": name, "metrics": [row]}))
    (tmp_path / "evaluate.sh").write_text('#!/bin/sh\necho \'{"test_acc": 0.91}\' > "$2"\n')
    (tmp_path / "evaluate.sh").chmod(0o755)
    lines = repro(tmp_path, "--evaluate").stdout.splitlines()
    assert "evaluated: 20260101-120000-a-a1b2c3: test_acc 0.91 as in results.json" in lines
    assert "evaluated: 20260101-120000-b-a1b2c3: test_acc is 0.91 now, results.json says 0.95" in lines


def test_repro_is_a_clean_shell_script() -> None:
    script = SCRIPTS / "templates/repro.sh"
    if checker := shutil.which("shellcheck"):
        assert subprocess.run([checker, str(script)], capture_output=True, text=True).stdout == ""
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 3 and "or set RGT to its folder" in done.stderr


# -- bad input


def test_without_matplotlib_the_rest_works(project: Path) -> None:
    hidden = "import sys, runpy; sys.modules['matplotlib'] = None; sys.path.insert(0, sys.argv[1]); del sys.argv[0]; "
    code = hidden + "runpy.run_path(sys.argv[0] + '/render.py', run_name='__main__')"
    command = [sys.executable, "-c", code, str(SCRIPTS), "figures", "acc"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert done.returncode == 3 and "figures need matplotlib in this Python" in done.stderr


BAD = {
    "figures nope": "no claim names the figure nope (claim add --figure does); named are: acc, loss",
    "figures ../x": "'../x' is no name of a figure or table",
    "figures --kind curve": "describe the figures you name",
    "figures loss --kind curve --metric psnr": "has no psnr of the split val",
    "tables nope": "has no claim nope",
    "tables acc-ours --name ../x": "'../x' is no name of a figure or table",
    "tables --percent psnr": "--percent psnr: no claim has this metric; they have accuracy, loss",
    "values nope.md": "nope.md does not exist",
    "gate --compare README.md": "README.md line 1 is not JSON",
    "gate --compare EVIDENCE.json": "EVIDENCE.json is no report with findings",
    "tables --evidence no.json": "no.json does not exist",
}


def test_bad_input(project: Path) -> None:
    for words, sentence in BAD.items():
        done = render(project, *words.split())
        assert done.returncode == 2 and sentence in done.stderr and "Traceback" not in done.stderr, done.stderr
    edit(project / "EVIDENCE.json", '"figure": "acc"', '"figure": "../acc"')  # it leads out of its folder
    assert render(project, "report").returncode == 0
    told = json.loads(render(project, "gate", "--json").stdout)["claims"][0]["disclose"]
    assert "'../acc' is no name of a figure" in told[-1]


def test_claims_that_cannot_be_told_apart(project: Path) -> None:
    path = project / "EVIDENCE.json"
    edit_json(path, lambda data: data["claims"].append({**data["claims"][0], "id": "again"}))
    assert "acc-ours and again would share a cell" in render(project, "tables").stderr
    assert "two claims would be drawn as Ours in accuracy CIFAR-10 test" in render(project, "figures", "acc").stderr
    first = json.loads(path.read_text())["claims"][0]
    path.write_text(json.dumps({"claims": [{**first, "id": f"c{n}", "method": f"M{n}"} for n in range(8)]}))
    assert "acc has 8 methods; more than 7 colours" in render(project, "figures", "acc").stderr
    path.write_text('{"claims": []}')
    assert "EVIDENCE.json has no claims yet" in render(project, "gate").stderr
