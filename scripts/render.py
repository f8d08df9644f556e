# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "jsonschema", "matplotlib"]
# ///
"""DELIVER · tables, TeX macros, numbers in documents, figures and a page, all from EVIDENCE.json; the delivery gate

Example:
    python scripts/render.py tables --percent accuracy    # tables/results.md, .tex, .csv
    python scripts/render.py macros                       # tables/macros.tex
    python scripts/render.py values                       # between the markers of this project's documents
    python scripts/render.py figures loss --kind curve    # figures/loss/, drawn and compared with its data
    python scripts/render.py gate --compare compare.json  # DISCLOSURES.md
    python scripts/render.py report                       # report.html

Everything is written from the claims and their runs; the same evidence gives the same bytes. --check writes nothing and
exits 1 when something on disk is not what would be written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from rgt import cli, files
from rgt.errors import RgtError, bad_input
from rgt.evidence import claims as evidence_layer
from rgt.evidence.claims import Project, chosen_documents
from rgt.render import claim_tables, document_numbers, figure_data
from rgt.report import Report

_PATH = click.Path(path_type=Path)
_FIXES = {
    ("digest", "stale", "stale-source", "missing"): "render.py figures {name} draws it again",
    ("blank", "clipped", "drawn", "wrong-order", "font", "size"): "edit figures/{name}/figure.py",
    ("undeclared",): "a gid such as beside-chance in figures/{name}/figure.py declares what is no data",
}

check_option = click.option("--check", is_flag=True, help="Write nothing; exit 1 when something is out of date.")
percent_option = click.option("--percent", multiple=True, help="A metric to write as percent, remembered.")
compare_option = click.option("--compare", multiple=True, type=_PATH, help="A file that compare_runs.py --json wrote.")
Command = Callable[..., int]
Words = tuple[str, ...]
Fmt = str | None  # of the report: json, github; None is text


def from_evidence(function: Command) -> Command:
    """--evidence, which the function gets as the loaded project, and the formats of its report."""

    @functools.wraps(function)
    def command(evidence: Path, **options: Any) -> int:
        project = evidence_layer.load(evidence)
        if not project.claims:
            raise bad_input(f"{evidence} has no claims yet; `manifest_scaffold.py claim add` makes them")
        return function(project, **options)

    return cli.evidence_option(cli.report_options(command))


@click.group(cls=cli.Group)
def main() -> None:
    """What a delivery shows, generated from its evidence."""


# -- tables, macros, values


@main.command("tables")
@click.argument("claims", nargs=-1)
@click.option("--name", default="results", show_default=True, help="Of a table of the given CLAIMS; it is remembered.")
@click.option("--out", type=_PATH, help="Their folder; tables/ beside EVIDENCE.json by default.")
@percent_option
@check_option
@from_evidence
def tables_command(
    project: Project, claims: Words, name: str, out: Path | None, percent: Words, check: bool, fmt: Fmt
) -> int:
    """Write one table of all claims (or of CLAIMS, as NAME) as Markdown, LaTeX and CSV; methods are rows.

    Example: python scripts/render.py tables acc-ours acc-base --name main --percent accuracy
    """
    if claims:
        for claim in claims:
            project.claim(claim)  # refuses an unknown one before it is remembered
        _remember(project, "tables", {claim_tables.checked(name): list(claims)}, check)
    _in_percent(project, percent, check)
    report = Report("render")
    notes = []
    for table, chosen in claim_tables.named(project).items():
        made = claim_tables.grid(project, chosen)
        notes += made.notes
        for kind, text in claim_tables.KINDS.items():
            _put(report, (out or project.path.parent / "tables") / f"{table}.{kind}", text(made), check)
    report.data |= {"notes": notes}
    return report.emit(fmt, "\n".join([*notes, _summary(report, check)]))


@main.command("macros")
@click.option("--out", type=_PATH, help="The file; tables/macros.tex beside EVIDENCE.json by default.")
@percent_option
@check_option
@from_evidence
def macros_command(project: Project, out: Path | None, percent: Words, check: bool, fmt: Fmt) -> int:
    r"""Write a \newcommand per claim: \valAccOurs is the number, \valAccOursPm the number ± its spread."""
    report = Report("render")
    text = document_numbers.macros(project.claims, _in_percent(project, percent, check))
    _put(report, out or project.path.parent / "tables" / "macros.tex", text, check)
    names = [claim["id"] for claim in project.claims]
    report.data |= {"macros": {name: "\\" + document_numbers.macro_name(name) for name in names}}
    return report.emit(fmt, _summary(report, check))


@main.command("values")
@click.argument("paths", nargs=-1, type=_PATH)
@check_option
@from_evidence
def values_command(project: Project, paths: tuple[Path, ...], check: bool, fmt: Fmt) -> int:
    """Write the numbers between the markers of PATHS (.md .html .tex; the project's documents by default).

    \b
    <!-- value:acc-ours percent spread --><!-- /value -->       Markdown, HTML
    \\claimvalue[percent spread]{acc-ours}{}                     LaTeX

    A document with a broken marker or an unknown claim is left as it is and named.
    """
    report = Report("render")
    written, markers = [], 0
    for path in chosen_documents(paths, project.root, document_numbers.SUFFIXES):
        try:
            document = document_numbers.rendered(path, project)
        except RgtError as error:
            report.add("unreadable", "warn", error.message, path=str(path))
            continue
        markers += document.markers
        for line, code, sentence in document.problems:
            report.add(code, "error", sentence, path=str(path), line=line)
        for line, sentence in document.stale if check else []:
            report.add("drift", "error", sentence, path=str(path), line=line, fix="render.py values writes it")
        if document.new != document.old and not check and not document.problems:
            files.write_bytes(path, document.new.encode())
            written.append(str(path))
    report.data |= {"markers": markers, "written": written}
    return report.emit(fmt, f"{markers} markers, {len(written)} documents written, {len(report.findings)} findings")


# -- figures


@main.command("figures")
@click.argument("names", nargs=-1)
@click.option("--kind", type=click.Choice(figure_data.KINDS), help="points: means and runs; curve: metrics over steps.")
@click.option("--metric", help="What a curve shows, as metrics.jsonl names it.")
@click.option("--split", type=click.Choice(["train", "val", "test"]), help="Of a curve.")
@check_option
@from_evidence
def figures_command(project: Project, names: Words, check: bool, fmt: Fmt, **words: str | None) -> int:
    """Draw the figures NAMES (all that claims name by default) into figures/<name>/ and compare them with their data.

    Example: python scripts/render.py figures loss --kind curve --metric loss --split val

    --kind, --metric and --split are remembered.
    """
    from rgt.render import figure_check, figures

    spec = {key: words[key] for key in ("kind", "metric", "split") if words[key]}
    if spec and (check or not names):
        raise bad_input("--kind, --metric and --split describe the figures you name, and are not part of a --check")
    for name in names if spec else ():
        figure_data.claims_of(project, name)
        _remember(project, "figures", {name: spec}, check)
    report = Report("render")
    passed: dict[str, str] = {}
    for name in names or figure_data.names(project):
        problems = figures.audit(project, name) if check else figures.build(project, name)
        for problem in problems:
            fix = next((fix for codes, fix in _FIXES.items() if problem.code in codes), "").format(name=name)
            report.add(problem.code, problem.severity, problem.message, path=f"figures/{name}", fix=fix or None)
        if all(problem.severity == "info" for problem in problems):
            passed[name] = figure_check.summary(figures.folder_of(project, name))
    report.data |= {"figures": passed}
    lines = [f"{name}: {text}" for name, text in passed.items()]
    return report.emit(fmt, "\n".join([*lines, f"{len(passed)} figures pass, {len(report.findings)} findings"]))


# -- the gate and the page


@main.command()
@compare_option
@click.option("--out", type=_PATH, help="Folder of DISCLOSURES.md; that of EVIDENCE.json by default.")
@from_evidence
def gate(project: Project, compare: tuple[Path, ...], out: Path | None, fmt: Fmt) -> int:
    """Go through every number's checklist and write DISCLOSURES.md and .json, which travel with the deliverable.

    Exit 1 means that there is something to disclose. It blocks nothing: the user decides what to ship.
    """
    from rgt.render import disclosures, figures

    lists = disclosures.checklists(project, compare, figures.audits(project))
    folder, data = out or project.path.parent, disclosures.as_data(lists)
    report = Report("render", data=data)
    _write(folder / "DISCLOSURES.md", disclosures.markdown(project, lists))
    files.write_json(folder / "DISCLOSURES.json", data)
    clean = 0
    for name, items in lists.items():
        told = disclosures.to_disclose(items)
        clean += not told
        for item in told:
            severity = "info" if item.state == "own" else "warn"
            report.add("disclose", severity, item.sentence, path=project.path.name, where=name)
    where = f"the rest is in {folder / 'DISCLOSURES.md'}"
    return report.emit(fmt, f"{len(lists)} numbers, {clean} with nothing to disclose; {where}")


@main.command("report")
@click.option("--out", type=_PATH, help="The file; report.html beside EVIDENCE.json by default.")
@compare_option
@check_option
@from_evidence
def report_command(project: Project, out: Path | None, compare: tuple[Path, ...], check: bool, fmt: Fmt) -> int:
    """Write one HTML page of the delivery: results, figures, every number with its disclosures and its runs."""
    from rgt.render import disclosures, figures, report_page

    audits = figures.audits(project)
    page = report_page.html(project, disclosures.checklists(project, compare, audits), audits)
    report = Report("render")
    _put(report, out or project.path.parent / "report.html", page, check)
    return report.emit(fmt, _summary(report, check))


# -- shared


def _remember(project: Project, what: str, spec: dict[str, Any], check: bool) -> None:
    """How a table or figure was asked for, so that a rebuild needs no options."""
    project.data.setdefault(what, {}).update(spec)
    if not check:
        project.save()


def _in_percent(project: Project, metrics: Words, check: bool) -> frozenset[str]:
    known = {claim["metric"].lower() for claim in project.claims}
    for metric in metrics:
        if metric.lower() not in known:
            raise bad_input(f"--percent {metric}: no claim has this metric; they have {', '.join(sorted(known))}")
    if metrics:
        project.data["percent"] = sorted(set(metrics))
        if not check:
            project.save()
    return frozenset(metric.lower() for metric in project.data.get("percent", []))


def _put(report: Report, path: Path, text: str, check: bool) -> None:
    """Write a generated file, or say that the one on disk differs."""
    if not check:
        _write(path, text)
        report.data.setdefault("written", []).append(str(path))
    elif not path.exists():
        report.add("missing", "error", "does not exist", path=str(path), fix="render it again")
    elif path.read_bytes() != text.encode():
        report.add("stale", "error", "is not what the evidence gives now", path=str(path), fix="render it again")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(path, text)


def _summary(report: Report, check: bool) -> str:
    return f"{len(report.findings)} out of date" if check else "wrote " + ", ".join(report.data.get("written", []))


if __name__ == "__main__":
    main()
