# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "jsonschema", "matplotlib"]
# ///
"""DELIVER · tables, TeX macros, numbers in documents, figures and a page, all from EVIDENCE.json; the delivery gate

Example:
    python scripts/render.py tables --percent accuracy    # tables/results.md, .tex, .csv
    python scripts/render.py macros                       # tables/macros.tex
    python scripts/render.py values                       # between the markers of this project's documents
    python scripts/render.py figures loss --kind curve    # figures/loss/, drawn, opened again and read back
    python scripts/render.py gate --compare compare.json  # DISCLOSURES.md
    python scripts/render.py report                       # report.html

Everything is written from the claims and their runs; the same evidence gives the same bytes. --check writes nothing and
exits 1 when something on disk is not what would be written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from delivery import macros, sources, tables, values
from rgt import cli, documents, evidence, files
from rgt.errors import RgtError, bad_input, from_os_error
from rgt.evidence import Project
from rgt.report import Report

evidence_option = click.option(
    "--evidence",
    type=click.Path(path_type=Path),
    default=Path("EVIDENCE.json"),
    show_default=True,
    help="The claims.",
)
check_option = click.option("--check", is_flag=True, help="Write nothing; exit 1 when something is out of date.")
percent_option = click.option(
    "--percent", multiple=True, help="A metric to write as percent, like accuracy; it is remembered."
)


@click.group(cls=cli.Group)
def main() -> None:
    """What a delivery shows, generated from its evidence."""


# -- tables, macros, values


@main.command("tables")
@click.argument("claims", nargs=-1)
@click.option("--name", default="results", show_default=True, help="Of a table of the given CLAIMS; it is remembered.")
@click.option("--out", type=click.Path(path_type=Path), help="Their folder; tables/ beside EVIDENCE.json by default.")
@percent_option
@check_option
@evidence_option
@cli.report_options
def tables_command(
    claims: tuple[str, ...],
    name: str,
    out: Path | None,
    percent: tuple[str, ...],
    check: bool,
    evidence: Path,
    fmt: str | None,
) -> int:
    """Write one table of all claims (or of CLAIMS, as NAME) as Markdown, LaTeX and CSV; methods are rows.

    Example: python scripts/render.py tables acc-ours acc-base --name main --percent accuracy
    """
    project = _load(evidence)
    if claims:
        for claim in claims:
            project.claim(claim)  # refuses an unknown one before it is remembered
        _remember(project, "tables", tables.checked(name), list(claims), check)
    _in_percent(project, percent, check)
    report = Report("render")
    notes = []
    for table, chosen in tables.named(project).items():
        made = tables.grid(project, chosen)
        notes += made.notes
        for kind, text in tables.KINDS.items():
            _put(report, (out or evidence.parent / "tables") / f"{table}.{kind}", text(made), check)
    report.data |= {"notes": notes}
    return report.emit(fmt, "\n".join([*notes, _summary(report, check)]))


@main.command("macros")
@click.option(
    "--out", type=click.Path(path_type=Path), help="The file; tables/macros.tex beside EVIDENCE.json by default."
)
@percent_option
@check_option
@evidence_option
@cli.report_options
def macros_command(out: Path | None, percent: tuple[str, ...], check: bool, evidence: Path, fmt: str | None) -> int:
    r"""Write a \newcommand per claim: \valAccOurs is the number, \valAccOursPm the number ± its spread."""
    project = _load(evidence)
    report = Report("render")
    in_percent = _in_percent(project, percent, check)
    _put(report, out or evidence.parent / "tables" / "macros.tex", macros.text(project.claims, in_percent), check)
    report.data |= {"macros": {claim["id"]: "\\" + macros.name(claim["id"]) for claim in project.claims}}
    return report.emit(fmt, _summary(report, check))


@main.command("values")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@check_option
@evidence_option
@cli.report_options
def values_command(paths: tuple[Path, ...], check: bool, evidence: Path, fmt: str | None) -> int:
    """Write the numbers between the markers of PATHS (.md .html .tex; the project's documents by default).

    \b
    <!-- value:acc-ours percent spread --><!-- /value -->       Markdown, HTML
    \\claimvalue[percent spread]{acc-ours}{}                     LaTeX

    A document with a broken marker or an unknown claim is left as it is and named.
    """
    project = _load(evidence)
    report = Report("render")
    written, markers = [], 0
    for path in documents.chosen(paths, project.root, values.SUFFIXES):
        try:
            document = values.rendered(path, project)
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
@click.option(
    "--kind", type=click.Choice(sources.KINDS), help="points: means and runs; curve: metrics over steps. Remembered."
)
@click.option("--metric", help="What a curve shows, as metrics.jsonl names it.")
@click.option("--split", type=click.Choice(["train", "val", "test"]), help="Of a curve.")
@check_option
@evidence_option
@cli.report_options
def figures_command(
    names: tuple[str, ...],
    kind: str | None,
    metric: str | None,
    split: str | None,
    check: bool,
    evidence: Path,
    fmt: str | None,
) -> int:
    """Draw the figures NAMES (all that claims name by default) into figures/<name>/, open them again, read them back.

    Example: python scripts/render.py figures loss --kind curve --metric loss --split val
    """
    from delivery import figures, inspection

    project = _load(evidence)
    spec = {key: word for key, word in (("kind", kind), ("metric", metric), ("split", split)) if word}
    if spec and (check or not names):
        raise bad_input("--kind, --metric and --split describe the figures you name, and are not part of a --check")
    for name in names if spec else ():
        sources.claims_of(project, name)
        _remember(project, "figures", name, spec, check)
    report = Report("render")
    seen: dict[str, str] = {}
    for name in names or sources.names(project):
        found = figures.audit(project, name) if check else figures.build(project, name)
        _figure_findings(report, name, found)
        if not found:
            seen[name] = inspection.seen(figures.folder_of(project, name))
    report.data |= {"figures": seen}
    lines = [f"{name}: {text}" for name, text in seen.items()]
    return report.emit(fmt, "\n".join([*lines, f"{len(seen)} figures pass, {len(report.findings)} findings"]))


def _figure_findings(report: Report, name: str, found: list[Any]) -> None:
    for problem in found:
        severity = "warn" if problem.code in ("colour", "unjudged") else "error"
        report.add(problem.code, severity, problem.message, path=f"figures/{name}", fix=_fix(problem.code, name))


def _fix(code: str, name: str) -> str | None:
    if code in ("digest", "stale", "stale-source", "missing"):
        return f"render.py figures {name} draws it again"
    return (
        f"edit figures/{name}/figure.py"
        if code in ("blank", "clipped", "drawn", "wrong-order", "font", "size")
        else None
    )


# -- the gate and the page


@main.command()
@click.option(
    "--compare", multiple=True, type=click.Path(path_type=Path), help="A file that `compare_runs.py --json` wrote."
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder of DISCLOSURES.md; that of EVIDENCE.json by default."
)
@evidence_option
@cli.report_options
def gate(compare: tuple[Path, ...], out: Path | None, evidence: Path, fmt: str | None) -> int:
    """Go through every number's checklist and write DISCLOSURES.md and .json, which travel with the deliverable.

    Exit 1 means that there is something to disclose. It blocks nothing: the user decides what to ship.
    """
    from delivery import disclosures, figures

    project = _load(evidence)
    compared = [disclosures.read_comparison(path) for path in compare]
    lists = disclosures.checklists(project, compared, figures.audits(project))
    folder = out or evidence.parent
    report = Report("render")
    _write(folder / "DISCLOSURES.md", disclosures.markdown(project, lists))
    data = disclosures.as_data(lists)
    files.write_json(folder / "DISCLOSURES.json", data)
    for name, items in lists.items():
        for item in disclosures.told(items):
            report.add(
                "disclose", "info" if item.state == "own" else "warn", item.sentence, path=evidence.name, where=name
            )
    report.data |= data
    clean = sum(not disclosures.told(items) for items in lists.values())
    return report.emit(
        fmt, f"{len(lists)} numbers, {clean} with nothing to disclose; the rest is in {folder / 'DISCLOSURES.md'}"
    )


@main.command("report")
@click.option("--out", type=click.Path(path_type=Path), help="The file; report.html beside EVIDENCE.json by default.")
@click.option(
    "--compare", multiple=True, type=click.Path(path_type=Path), help="A file that `compare_runs.py --json` wrote."
)
@check_option
@evidence_option
@cli.report_options
def report_command(out: Path | None, compare: tuple[Path, ...], check: bool, evidence: Path, fmt: str | None) -> int:
    """Write one HTML page of the delivery: results, figures, every number with its disclosures and its runs."""
    from delivery import disclosures, figures, page

    project = _load(evidence)
    compared = [disclosures.read_comparison(path) for path in compare]
    audits = figures.audits(project)
    lists = disclosures.checklists(project, compared, audits)
    report = Report("render")
    _put(report, out or evidence.parent / "report.html", page.html(project, lists, audits), check)
    return report.emit(fmt, _summary(report, check))


# -- shared


def _load(path: Path) -> Project:
    project = evidence.load(path)
    if not project.claims:
        raise bad_input(f"{path} has no claims yet; `manifest_scaffold.py claim add` makes them")
    return project


def _remember(project: Project, what: str, name: str, spec: Any, check: bool) -> None:
    """How a table or figure was asked for, so that a rebuild needs no options."""
    project.data.setdefault(what, {})[name] = spec
    if not check:
        project.save()


def _in_percent(project: Project, metrics: tuple[str, ...], check: bool) -> frozenset[str]:
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
    try:
        same = path.read_bytes() == text.encode()
    except FileNotFoundError:
        same = False
    except OSError as error:
        raise from_os_error(error, f"read {path}") from None
    if check and not same:
        message = "is not what the evidence gives now" if path.exists() else "does not exist"
        report.add("stale" if path.exists() else "missing", "error", message, path=str(path), fix="render it again")
    elif not check:
        _write(path, text)
        report.data.setdefault("written", []).append(str(path))


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise from_os_error(error, f"make {path.parent}") from None
    files.write_text(path, text)


def _summary(report: Report, check: bool) -> str:
    if check:
        return f"{len(report.findings)} out of date"
    return "wrote " + ", ".join(report.data.get("written", []))


if __name__ == "__main__":
    main()
