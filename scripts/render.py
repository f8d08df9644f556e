# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py", "matplotlib"]
# ///
"""DELIVER · tables, TeX macros, numbers in documents, figures and a page, all from EVIDENCE.json; the delivery gate

Example:
    rgt render tables --percent accuracy    # tables/results.md, .tex, macros.tex
    rgt render values                       # between the markers of this project's documents
    rgt render figures loss --kind curve    # figures/loss/, drawn and compared with its data
    rgt render gate --compare compare.json  # DISCLOSURES.md
    rgt render report                       # report.html

Everything is written from the claims and their runs; the same evidence gives the same bytes, so git shows what changed.
figures --check draws nothing and exits 1 when a figure is not what the evidence gives; rgt reconcile checks values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgt import bundle, cli, files
from rgt.errors import RgtError, bad_input
from rgt.report import Report

import click

if TYPE_CHECKING:
    from rgt.evidence.claims import Project

_PATH = click.Path(path_type=Path)
_FIXES = {
    ("digest", "stale", "stale-source", "missing"): "rgt render figures {name} draws it again",
    ("blank", "clipped", "drawn", "font"): "edit figures/{name}/figure.py",
    ("undeclared",): "a gid such as beside-chance in figures/{name}/figure.py declares what is no data",
}

compare_option = click.option("--compare", multiple=True, type=_PATH, help="A file that rgt compare_runs --json wrote.")
Command = Callable[..., int]
Words = tuple[str, ...]
Fmt = str | None  # of the report: json, github; None is text


def from_evidence(function: Command) -> Command:
    """--evidence, which the function gets as the loaded project, and the formats of its report."""
    from rgt.evidence import claims as evidence_layer

    @functools.wraps(function)
    def command(evidence: Path, **options: Any) -> int:
        project = evidence_layer.load(evidence)
        if not project.claims:
            how = bundle.command("manifest_scaffold", "claim", "add", "--help")
            raise bad_input(f"{evidence} has no claims yet; how to add one: {how}")
        return function(project, **options)

    return cli.evidence_option(cli.report_options(command))


@click.group(cls=cli.Group)
def main() -> None:
    """What a delivery shows, generated from its evidence."""


# -- tables, values


@main.command("tables")
@click.argument("claims", nargs=-1)
@click.option("--name", default="results", show_default=True, help="Of a table of the given CLAIMS; it is remembered.")
@click.option("--percent", multiple=True, help="A metric to write as percent, remembered.")
@from_evidence
def tables_command(project: Project, claims: Words, name: str, percent: Words, fmt: Fmt) -> int:
    r"""Write tables/: one table of all claims (or of CLAIMS, as NAME) as Markdown and LaTeX, and macros.tex.

    Example: rgt render tables acc-ours acc-base --name main --percent accuracy

    Methods are rows. macros.tex has a \newcommand per claim: \valAccOurs is the number, \valAccOursPm the number ± its
    spread.
    """
    from rgt.evidence import claims as evidence_layer
    from rgt.render import claim_tables, document_numbers

    known = {claim["metric"].lower() for claim in project.claims}
    for metric in percent:
        if metric.lower() not in known:
            raise bad_input(f"--percent {metric}: no claim has this metric; they have {', '.join(sorted(known))}")
    if percent:
        project.data["percent"] = sorted(set(percent))
    if claims:
        for claim in claims:
            project.claim(claim)  # refuses an unknown one before it is remembered
        project.data.setdefault("tables", {})[evidence_layer.checked_name(name)] = list(claims)
    in_percent = frozenset(metric.lower() for metric in project.data.get("percent", []))
    texts = {"macros.tex": document_numbers.macros(project.claims, in_percent)}
    for table, chosen in claim_tables.named(project).items():
        made = claim_tables.grid(project, chosen)
        texts |= {f"{table}.{kind}": text(made) for kind, text in claim_tables.KINDS.items()}
    if percent or claims:
        project.save()
    folder = project.path.parent / "tables"
    for file, text in texts.items():
        _write(folder / file, text)
    written = [str(folder / file) for file in texts]
    names = {claim["id"]: "\\" + document_numbers.macro_name(claim["id"]) for claim in project.claims}
    report = Report("render", data={"written": written, "macros": names})
    return report.emit(fmt, f"wrote {', '.join(written)}")


@main.command("values")
@click.argument("paths", nargs=-1, type=_PATH)
@from_evidence
def values_command(project: Project, paths: tuple[Path, ...], fmt: Fmt) -> int:
    """Write the numbers between the markers of PATHS (.md .html; the project's documents by default).

    \b
    <!-- value:acc-ours percent spread --><!-- /value -->

    A document with a broken marker or an unknown claim is left as it is and named.
    """
    from rgt.evidence.claims import chosen_documents
    from rgt.render import document_numbers

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
        if document.new != document.old and not document.problems:
            files.write_bytes(path, document.new.encode())
            written.append(str(path))
    report.data |= {"markers": markers, "written": written}
    return report.emit(fmt, f"{markers} markers, {len(written)} documents written, {len(report.findings)} findings")


# -- figures


@main.command("figures")
@click.argument("names", nargs=-1)
@click.option(
    "--kind", type=click.Choice(("points", "curve")), help="points: means and runs; curve: metric over steps."
)
@click.option("--metric", help="What a curve shows, as metrics.jsonl names it.")
@click.option("--split", type=click.Choice(["train", "val", "test"]), help="Of a curve.")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 when something is out of date.")
@from_evidence
def figures_command(project: Project, names: Words, check: bool, fmt: Fmt, **words: str | None) -> int:
    """Draw the figures NAMES (all that claims name by default) into figures/<name>/ and compare them with their data.

    Example: rgt render figures loss --kind curve --metric loss --split val

    --kind, --metric and --split are remembered.
    """
    from rgt.render import figure_data, figures

    spec = {key: words[key] for key in ("kind", "metric", "split") if words[key]}
    if spec and (check or not names):
        raise bad_input("--kind, --metric and --split describe the figures you name, and are not part of a --check")
    for name in names if spec else ():
        figure_data.claims_of(project, name)
        project.data.setdefault("figures", {})[name] = spec
        project.save()
    report = Report("render")
    passed: dict[str, str] = {}
    for name in names or figure_data.names(project):
        problems = figures.audit(project, name) if check else figures.build(project, name)
        for problem in problems:
            fix = next((fix for codes, fix in _FIXES.items() if problem.code in codes), "").format(name=name)
            report.add(problem.code, problem.severity, problem.message, path=f"figures/{name}", fix=fix or None)
        if all(problem.severity == "info" for problem in problems):
            passed[name] = figures.compared(project, name)
    report.data |= {"figures": passed}
    lines = [f"{name}: {text}" for name, text in passed.items()]
    return report.emit(fmt, "\n".join([*lines, f"{len(passed)} figures pass, {len(report.findings)} findings"]))


# -- the gate and the page


@main.command()
@compare_option
@from_evidence
def gate(project: Project, compare: tuple[Path, ...], fmt: Fmt) -> int:
    """Go through every number's checklist and write DISCLOSURES.md, which travels with the deliverable.

    Exit 1 means that there is something to disclose. It blocks nothing: the user decides what to ship.
    """
    from rgt.render import disclosures, figures

    lists = disclosures.checklists(project, compare, figures.audits(project))
    target = project.path.parent / "DISCLOSURES.md"
    report = Report("render", data=disclosures.as_data(lists))
    _write(target, disclosures.markdown(project, lists, compare))
    for name, items in lists.items():
        for item in items:
            severity = "info" if item.state == "own" else "warn"
            report.add("disclose", severity, item.sentence, path=project.path.name, where=name)
    clean = sum(not items for items in lists.values())
    return report.emit(fmt, f"{len(lists)} numbers, {clean} with nothing to disclose; the rest is in {target}")


@main.command("report")
@compare_option
@from_evidence
def report_command(project: Project, compare: tuple[Path, ...], fmt: Fmt) -> int:
    """Write report.html, one page of the delivery: results, figures, every number with its disclosures and its runs."""
    from rgt.render import disclosures, figures, report_page

    audits = figures.audits(project)
    target = project.path.parent / "report.html"
    _write(target, report_page.html(project, disclosures.checklists(project, compare, audits), audits))
    return Report("render", data={"written": [str(target)]}).emit(fmt, f"wrote {target}")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(path, text)


if __name__ == "__main__":
    main()
