# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "jsonschema"]
# ///
"""DELIVER · stamps the evidence tree, seals runs, and keeps the map from claims to the runs they rest on

Example:
    python scripts/manifest_scaffold.py init .
    python scripts/manifest_scaffold.py seal runs/<id> runs/<id>
    python scripts/manifest_scaffold.py claim add acc-ours --metric accuracy --split test --run runs/<id>
    python scripts/manifest_scaffold.py claim check

A claim's value is computed from the results.json of its runs, never typed. A sealed run cannot change unseen: one byte
is found against its seal.json, a new seal against runs/SEALS.jsonl.
"""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path
from typing import Any

import click

from rgt import cli, evidence, files, rundir, schema, seal
from rgt.errors import RgtError, bad_input
from rgt.evidence import Claim, Project
from rgt.report import Report, print_json
from rgt.rundir import Run

TEMPLATES = Path(__file__).resolve().parent / "templates"
_SAME = 1e-9  # relative: a claim holds the very numbers of its runs

evidence_option = click.option(
    "--evidence",
    "path",
    type=click.Path(path_type=Path),
    default=Path("EVIDENCE.json"),
    show_default=True,
    help="The claims.",
)
runs_argument = click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))


@click.group(cls=cli.Group)
def main() -> None:
    """One evidence layer: sealed runs, and claims that are computed from them."""


@main.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path("."))
@cli.json_option
def init(folder: Path, as_json: bool) -> None:
    """Make EVIDENCE.json, runs/, figures/ and repro.sh in FOLDER; what is there already stays as it is."""
    made: list[str] = []
    for name in ("runs", "figures"):
        if not (folder / name).is_dir():
            (folder / name).mkdir(parents=True)
            made.append(f"{name}/")
    target = folder / "EVIDENCE.json"
    if not target.exists():
        files.write_json(target, {"claims": [], "aliases": {}}, "evidence")
        made.append(target.name)
    evidence.load(target)
    script = folder / "repro.sh"
    if not script.exists():
        shutil.copy(TEMPLATES / "repro.sh", script)
        script.chmod(0o755)
        made.append(script.name)
    if as_json:
        print_json({"folder": str(folder), "made": made})
    else:
        click.echo(f"{folder}: made {', '.join(made) or 'nothing, all of it is there'}")


@main.command("seal")
@runs_argument
@click.option("--check", is_flag=True, help="Seal nothing; say what changed since.")
@cli.report_options
def seal_command(runs: tuple[Path, ...], check: bool, fmt: str | None) -> int:
    """Make RUNS immutable: record the sha256 of every file. Sealing an intact sealed run again changes nothing.

    Example: python scripts/manifest_scaffold.py seal runs/* --check
    """
    opened = [rundir.open_run(path) for path in runs if path.name != seal.LEDGER]
    report = Report("manifest_scaffold")
    digests = {}
    for run in opened:
        if not check:
            digests[run.id] = seal.seal(run)
        else:
            _say(report, run)
    report.data = {"runs": [run.id for run in opened], "seals": digests}
    done = "checked" if check else "sealed"
    return report.emit(fmt, f"{len(opened)} runs {done}, {len(report.findings)} findings")


def _say(report: Report, run: Run) -> None:
    for problem in seal.problems(run):
        report.add(problem.code, "error", f"{problem.name} {problem.message}", path=str(run.path / problem.name))


@main.group()
def claim() -> None:
    """The map from claims to evidence."""


@claim.command()
@click.argument("claim_id")
@click.option("--metric", required=True, help="As results.json names it.")
@click.option(
    "--run",
    "runs",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    help="A sealed run; give one per seed.",
)
@click.option("--split", type=click.Choice(["train", "val", "test"]), help="Of the metric.")
@click.option("--dataset", help="What it was measured on.")
@click.option("--method", help="What was measured.")
@click.option("--unit", help="Such as dB, %, tokens/s.")
@click.option("--text", help="The claim as a sentence.")
@click.option("--figure", help="The folder in figures/ that shows it.")
@click.option("--anchor", "anchors", multiple=True, help="A document that states it: paper.tex, README.md#results.")
@click.option("--code", multiple=True, help="file:line of what computed it.")
@click.option("--disclose", "disclosures", multiple=True, help="A sentence that must travel with it.")
@evidence_option
@cli.json_option
def add(claim_id: str, metric: str, runs: tuple[Path, ...], path: Path, as_json: bool, **words: Any) -> None:
    """Add or replace the claim CLAIM_ID; its value, spread and n come from the runs."""
    project = evidence.load(path)
    opened = [rundir.open_run(run) for run in runs]
    if len({run.id for run in opened}) < len(opened):
        raise bad_input("a run is named twice; every run counts once")
    given = {key: list(value) if isinstance(value, tuple) else value for key, value in words.items() if value}
    items = [{"run_id": project.run(run.id).id} for run in opened]  # outside of the project nobody can rebuild it
    new = _measured(project, {"id": claim_id, "metric": metric, **given, "evidence": items})
    project.data["claims"] = [*(one for one in project.claims if one["id"] != claim_id), new]
    schema.check(project.data, "evidence", str(path))  # now, because a seal cannot be taken back
    for item, run in zip(items, opened, strict=True):
        item["seal_sha256"] = seal.seal(run)
    project.save()
    if as_json:
        print_json(project.claim(claim_id))
    else:
        click.echo(_line(project.claim(claim_id)))


def _measured(project: Project, claim: Claim) -> Claim:
    value, spread, n = project.measure(claim)
    directions = {project.result(run_id, claim)["direction"] for run_id in evidence.runs_of(claim)}
    if len(directions) > 1:
        raise bad_input(f"the runs disagree on which way {claim['metric']} is better")
    measured = {**claim, "value": value, "n": n, "direction": directions.pop()}
    return measured if spread is None else {**measured, "spread": spread}


def _line(claim: Claim) -> str:
    spread = f" ± {claim['spread']:.4g}" if "spread" in claim else ""
    name = " ".join(str(claim[key]) for key in ("metric", "method", "dataset", "split") if key in claim)
    runs = "1 run" if claim.get("n", 1) == 1 else f"{claim['n']} runs"
    return f"{claim['id']}: {name} = {claim['value']:.6g}{spread} ({runs})"


@claim.command("list")
@evidence_option
@cli.json_option
def list_claims(path: Path, as_json: bool) -> None:
    """Print every claim with its value."""
    project = evidence.load(path)
    if as_json:
        print_json({"claims": project.claims})
        return
    for one in project.claims:
        click.echo(_line(one))


@claim.command()
@evidence_option
@cli.report_options
def check(path: Path, fmt: str | None) -> int:
    """Compute every claim anew from its runs, and look at every seal, figure, document and line of code it names."""
    project = evidence.load(path)
    report = Report("manifest_scaffold")
    for run_id in sorted({run_id for claim in project.claims for run_id in evidence.runs_of(claim)}):
        _check_run(report, project, run_id)
    for one in project.claims:
        _check_claim(report, project, one)
    report.data = {"claims": len(project.claims)}
    return report.emit(fmt, f"{len(project.claims)} claims checked, {len(report.findings)} findings")


def _check_run(report: Report, project: Project, run_id: str) -> None:
    try:
        _say(report, project.run(run_id))
    except RgtError as error:
        report.add("missing", "error", error.message, path=str(project.path), where=run_id)


def _check_claim(report: Report, project: Project, claim: Claim) -> None:
    place = {"path": str(project.path), "where": claim["id"]}
    try:
        value, spread, n = project.measure(claim)
    except RgtError as error:
        report.add("missing", "error", error.message, **place)
    else:
        _check_number(report, "value", claim["value"], value, place)
        _check_number(report, "spread", claim.get("spread"), spread, place)
        _check_number(report, "n", claim.get("n"), n, place)
    for item in claim["evidence"]:
        _check_seal(report, project, item, place)
    for name in _named_files(claim):
        if not (project.root / name).exists():
            report.add("missing", "warn", f"{name} does not exist", **place)


def _check_number(report: Report, name: str, said: float | None, computed: float | None, place: dict[str, str]) -> None:
    if said is None or (computed is not None and math.isclose(said, computed, rel_tol=_SAME, abs_tol=1e-15)):
        return
    report.add(
        "drift", "error", f"{name} is {said!r} here and {computed!r} in its runs", fix="claim add computes it", **place
    )


def _check_seal(report: Report, project: Project, item: dict[str, Any], place: dict[str, str]) -> None:
    if "seal_sha256" not in item:
        report.add("unsealed", "warn", f"{item['run_id']} was not sealed when the claim was made", **place)
        return
    try:
        now = seal.digest_of(project.run(item["run_id"]).seal)
    except RgtError:
        return  # said by the check of the run
    if now != item["seal_sha256"]:
        report.add(
            "digest", "error", f"the seal of {item['run_id']} is not the one this claim was computed from", **place
        )


def _named_files(claim: Claim) -> list[str]:
    figure = [f"figures/{claim['figure']}"] if "figure" in claim else []
    documents = [anchor.partition("#")[0] for anchor in claim.get("anchors", [])]
    code = [re.sub(r":\d+$", "", place) for place in claim.get("code", [])]
    return [*figure, *documents, *code]


if __name__ == "__main__":
    main()
