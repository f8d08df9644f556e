# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""DELIVER · stamps the evidence tree, seals runs, and keeps the map from claims to the runs they rest on

Example:
    rgt manifest_scaffold init .
    rgt manifest_scaffold seal runs/<id> runs/<id>
    rgt manifest_scaffold claim add acc-ours --metric accuracy --split test --run runs/<id>
    rgt manifest_scaffold claim check
    rgt manifest_scaffold claim remove acc-ours --because "the split was wrong"

A claim's value is computed from the results.json of its runs, never typed. A sealed run cannot change unseen: one byte
is found against its seal.json, a new seal against runs/SEALS.jsonl.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgt import cli, files, schema
from rgt.bundle import ROOT, TEMPLATES
from rgt.errors import RgtError, bad_input
from rgt.report import Report, progress

import click

if TYPE_CHECKING:
    from rgt.evidence.claims import Claim
    from rgt.run.record import Run

_PATH = click.Path(path_type=Path)


@click.group(cls=cli.Group)
def main() -> None:
    """One evidence layer: sealed runs, and claims that are computed from them."""


@main.command()
@click.argument("folder", type=_PATH, default=Path("."))
@cli.json_option
def init(folder: Path, as_json: bool) -> None:
    """Make EVIDENCE.json, runs/, figures/ and repro.sh in FOLDER; what is there already stays as it is."""
    from rgt.evidence import claims

    made = [name for name in ("runs/", "figures/") if not (folder / name).is_dir()]
    for name in made:
        (folder / name).mkdir(parents=True)
    target = folder / "EVIDENCE.json"
    if not target.exists():
        claims.empty(target).save()
        made.append(target.name)
    claims.load(target)
    script = folder / "repro.sh"
    if not script.exists():
        text = (TEMPLATES / "repro.sh").read_text(encoding="utf-8")
        files.write_text(script, text.replace("@RGT@", str(ROOT)))  # the last place where it looks for us
        script.chmod(0o755)
        made.append(script.name)
    text = f"{folder}: made {', '.join(made) or 'nothing, all of it is there'}"
    cli.show({"folder": str(folder), "made": made}, as_json, [text])


@main.command("seal")
@click.argument("runs", nargs=-1, required=True, type=_PATH)
@click.option("--check", is_flag=True, help="Seal nothing; say what changed since.")
@cli.report_options
def seal_command(runs: tuple[Path, ...], check: bool, fmt: str | None) -> int:
    """Make RUNS immutable: record the sha256 of every file. Sealing an intact sealed run again changes nothing.

    Example: rgt manifest_scaffold seal runs/* --check
    """
    from rgt.run import record, seal

    opened = [record.open_run(path) for path in runs if path.name != seal.LEDGER]
    report = Report("manifest_scaffold")
    sealed = {} if check else {run.id: seal.seal(run) for run in opened}
    for run in opened if check else []:
        _add_seal_problems(report, run)
    report.data = {"runs": [run.id for run in opened], "seals": {name: one.digest for name, one in sealed.items()}}
    report.data["how"] = {name: one.how for name, one in sealed.items()}
    counts = Counter(one.how for one in sealed.values()) or {"checked": len(opened)}
    done = ", ".join(f"{count} {how}" for how, count in counts.items())
    return report.emit(fmt, f"{len(opened)} runs: {done}; {len(report.findings)} findings")


def _add_seal_problems(report: Report, run: Run) -> None:
    from rgt.run import seal

    for problem in seal.problems(run):
        report.add(problem.code, "error", f"{problem.name} {problem.message}", path=str(run.path / problem.name))


@main.group()
def claim() -> None:
    """The map from claims to evidence."""


@claim.command()
@click.argument("claim_id")
@click.option("--metric", required=True, help="As results.json or the adopted file names it.")
@click.option("--run", "runs", multiple=True, required=True, type=_PATH, help="Its directory or its id; one per seed.")
@click.option("--split", type=click.Choice(["train", "val", "test"]), help="Of the metric.")
@click.option("--dataset", help="What it was measured on.")
@click.option("--method", help="What was measured.")
@click.option("--unit", help="Such as dB, %, tokens/s.")
@click.option("--text", help="The claim as a sentence.")
@click.option("--figure", help="The folder in figures/ that shows it.")
@click.option("--anchor", "anchors", multiple=True, help="A document that states it: paper.tex, README.md#results.")
@click.option("--code", multiple=True, help="file:line of what computed it.")
@click.option("--disclose", "disclosures", multiple=True, help="A sentence that must travel with it.")
@cli.evidence_option
@cli.json_option
def add(claim_id: str, metric: str, runs: tuple[Path, ...], evidence: Path, as_json: bool, **words: Any) -> None:
    """Add or replace the claim CLAIM_ID; its value, spread, n and, where only one fits, its split come from the runs.

    EVIDENCE.json is made when there is none; `init` adds the rest of the tree. The runs are sealed.
    """
    from rgt import files
    from rgt.evidence import claims
    from rgt.run import record, seal

    given = {key: list(value) if isinstance(value, tuple) else value for key, value in words.items() if value}
    with files.locked(files.lock_beside(evidence)):  # several agents add claims at once
        is_new = not evidence.exists()
        project = claims.empty(evidence) if is_new else claims.load(evidence)
        is_id = record.RUN_ID.fullmatch  # of a run below the project
        opened = [project.run(str(r)) if is_id(str(r)) and not r.is_dir() else record.open_run(r) for r in runs]
        if len({run.id for run in opened}) < len(opened):
            raise bad_input("a run is named twice; every run counts once")
        items = [{"run_id": project.run(run.id).id} for run in opened]  # outside of the project nobody can rebuild it
        new: Claim = {"id": claim_id, "metric": metric, **given, "evidence": items}
        if wrong := list(claims.place_problems(project.root, new)):
            raise bad_input("; ".join(wrong))
        if "code" in new:
            new["code_text"] = claims.code_text(project.root, new["code"])
        value, spread, n = project.measure(new)
        rows = [project.result(run.id, new) for run in opened]
        directions, names = {row["direction"] for row in rows}, {(row["name"], row["split"]) for row in rows}
        if len(directions) > 1:
            raise bad_input(f"the runs disagree on which way {new['metric']} is better")
        if len(names) == 1:
            ((name, split),) = names
            new |= {"metric": metric if name.lower() == metric.lower() else name, "split": split}
        new |= {"value": value, "n": n, "direction": directions.pop(), **({} if spread is None else {"spread": spread})}
        old = [one for one in project.claims if one["id"] == new["id"]]
        project.data["claims"] = [*(one for one in project.claims if one not in old), new]
        schema.check(project.data, "evidence", str(project.path))  # now, because a seal cannot be taken back
        for item, run in zip(items, opened, strict=True):
            item["seal_sha256"] = seal.seal(run).digest
        for one in old:
            project.note("replaced", one)
        project.save()
    if is_new:
        progress(f"made {evidence}")
    cli.show(new, as_json, [_line(new)])


@claim.command()
@click.argument("claim_id")
@click.option("--because", required=True, help="Why; kept with the claim in EVIDENCE.ledger.jsonl.")
@cli.evidence_option
@cli.json_option
def remove(claim_id: str, because: str, evidence: Path, as_json: bool) -> None:
    """Take the claim CLAIM_ID out of EVIDENCE.json and its tables; the ledger keeps it. Documents are not touched."""
    from rgt import files
    from rgt.evidence import claims

    with files.locked(files.lock_beside(evidence)):
        project = claims.load(evidence)
        gone = project.claim(claim_id)
        project.data["claims"] = [one for one in project.claims if one is not gone]
        tables = project.data.get("tables", {})
        for name, members in list(tables.items()):
            tables[name] = [one for one in members if one != claim_id]
            if not tables[name]:
                del tables[name]
        project.note("removed", gone, because)
        project.save()
    cli.show({"removed": gone, "because": because}, as_json, [f"removed {_line(gone)}; {project.ledger} keeps it"])


def _line(claim: Claim) -> str:
    from rgt.evidence import claims

    spread = f" ± {claim['spread']:.4g}" if "spread" in claim else ""
    name = " ".join(claims.words_of(claim))
    runs = "1 run" if claim.get("n", 1) == 1 else f"{claim['n']} runs"
    return f"{claim['id']}: {name} = {claim['value']:.6g}{spread} ({runs})"


@claim.command("list")
@cli.evidence_option
@cli.json_option
def list_claims(evidence: Path, as_json: bool) -> None:
    """Print every claim with its value."""
    from rgt.evidence import claims

    known = claims.load(evidence).claims
    cli.show({"claims": known}, as_json, map(_line, known))


@claim.command()
@cli.evidence_option
@cli.report_options
def check(evidence: Path, fmt: str | None) -> int:
    """Compute every claim anew from its runs, and look at every seal, figure, document and line of code it names."""
    from rgt.evidence import claims

    project = claims.load(evidence)
    report = Report("manifest_scaffold")
    for run_id in sorted({run_id for claim in project.claims for run_id in claims.runs_of(claim)}):
        try:
            _add_seal_problems(report, project.run(run_id))
        except RgtError as error:
            report.add("missing", "error", error.message, path=str(project.path), where=run_id)
    for one in project.claims:
        place = {"path": str(project.path), "where": one["id"]}
        try:
            for code, message in project.sealing_problems(one):
                report.add(code, "warn" if code == "unsealed" else "error", message, **place)
            for message in project.value_problems(one):
                report.add("drift", "error", message, fix="claim add computes it", **place)
        except RgtError as error:
            report.add("missing", "error", error.message, **place)
        named = [f"figures/{one['figure']}"] if "figure" in one else []  # drawn later than it is named
        drawn = [f"{name} does not exist" for name in named if not (project.root / name).is_dir()]
        for problem in (*drawn, *claims.place_problems(project.root, one)):
            report.add("missing", "warn", problem, **place)
    report.data = {"claims": len(project.claims)}
    return report.emit(fmt, f"{len(project.claims)} claims checked, {len(report.findings)} findings")


if __name__ == "__main__":
    main()
