# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""DELIVER · every number in every document against EVIDENCE.json or a file of results; edits nothing

Example:
    rgt reconcile                                      # the documents of this repository
    rgt reconcile --values results.json docs/ paper.tex --sheet numbers.jsonl
    rgt reconcile paper.tex slides.pptx --evidence EVIDENCE.json --sheet numbers.jsonl --strict --github    # in CI

Each number is a match, a drift (and which value it should be), derived from values (recomputed), cited (somebody
else's) or unexplained. The machine alone finds about half of a new author's errors, because what a sentence's number is
about is a matter of reading. --sheet splits the work: it gets a row for each number that is not settled beyond doubt;
whoever reads fills `means`; the next call compares, and so does every later one, whatever the number has become.
`certain` drifts are meant to be right 99 times in 100; `likely` ones are to be looked at, never to be obeyed.
PDF needs pypdf; the line is then the page.
<!-- claim:C1 --> (or \\claim{C1}) behind a number decides without guessing.
"""

from __future__ import annotations

import gc
import importlib.util
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgt import cli
from rgt.errors import lacking
from rgt.report import Report

import click

if TYPE_CHECKING:
    from rgt.reconcile.facts import Truth
    from rgt.reconcile.one_document import Examined, Task
    from rgt.reconcile.places import Outcome
    from rgt.reconcile.sheet import Asked, Sheet
    from rgt.reconcile.vocabulary import Vocabulary

_MANY = 64  # documents: from here on a second process pays for its start
_LISTED = 200  # numbers without an explanation in --json; the rest is counted
_SHOWN = 12  # of them in the text


@click.command(cls=cli.Command)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@cli.evidence_option
@click.option(
    "--values",
    type=click.Path(path_type=Path),
    help="The truth: any JSON, YAML or CSV of results, instead of --evidence.",
)
@click.option(
    "--sheet",
    type=click.Path(path_type=Path),
    help="JSON lines to write or bring up to date: what each unsettled number means.",
)
@click.option("--ids", is_flag=True, help="Print every id of the truth with its value, and stop.")
@click.option("--explain", is_flag=True, help="List every number with its outcome, also what matches.")
@click.option("--fix", is_flag=True, help="Print a diff of the certain drifts; nothing is written.")
@click.option(
    "--strict", is_flag=True, help="For CI: unexplained numbers and rows that wait for a meaning are findings, too."
)
@cli.report_options
def main(
    paths: tuple[Path, ...],
    evidence: Path,
    values: Path | None,
    sheet: Path | None,
    ids: bool,
    explain: bool,
    fix: bool,
    strict: bool,
    fmt: str | None,
) -> int:
    """Compare the numbers in PATHS (documents, folders; the repository by default) with the values.

    Example: rgt reconcile --values results.json docs/ paper.tex --sheet numbers.jsonl

    The sheet gets a row for each number that is not settled. Fill its `means` by what the words say, then run the same
    command: the number of one of the row's `values` (2), a value's id (--ids lists all, settings and counts too), an
    expression over ids or over v1, v2 (the row's first, second value), "cited" (somebody else's) or "other" (no number
    of the file). An id needs quotes only inside an expression: + - * / with constants, mean median sum min max abs,
    "spread(v1)", "n(v1)", "mean('unet/iou/*')" with a star for one part of an id, "argmin('window/*')" for the number
    that the star stands for at the least value.

    Fractions, percentages and points are scaled to what is written, and a ratio with % is 100 times itself. The sign is
    that of the words: "3 below B" and "falls by 3" are "v2 - v1" where v2 is B's or the old one, "less than B" takes B
    as the base, "x times slower than B" is "v1 / v2" of times with B's as v2.

    A row is found again by the words around its number and asked anew when they change: keep the sheet in the project,
    and let CI call with --strict.

    Exit 1 when a document says another number than the values. Exit 0 is no proof: the last line says how many numbers
    were compared and how many nobody could explain.
    """
    from rgt.evidence import claims as evidence_layer
    from rgt.reconcile import facts as fact_files
    from rgt.reconcile import truth_file
    from rgt.reconcile.one_document import Task, corrected
    from rgt.reconcile.sheet import Sheet
    from rgt.reconcile.vocabulary import Vocabulary

    truth = values or evidence
    known = truth_file.from_file(values) if values else fact_files.from_evidence(evidence_layer.load(evidence))
    vocabulary = Vocabulary(known)
    report = Report("reconcile")
    if ids:
        return _list(vocabulary, report, fmt)
    chosen = _documents(paths, truth)
    task = Task(explain, Sheet(sheet) if sheet else None)
    counts: Counter[str] = Counter()
    asked: dict[str, Asked] = {}
    rows: list[dict[str, Any]] = []
    patch: list[str] = []
    for path, examined in _examined(chosen, vocabulary, task):
        if examined.unreadable:
            report.add("unreadable", "warn", examined.unreadable, path=str(path))
        if task.sheet and examined.asked:
            asked[task.sheet.name(path)] = examined.asked
        counts.update(examined.counts)
        for outcome in examined.kept:
            _add(report, path, outcome, truth.name, strict and not sheet)
        rows += [_row(path, outcome) for outcome in examined.kept if outcome.kind == "unexplained" or explain]
        patch += corrected(path, examined.kept) if fix else []
    data = _counted(counts)
    report.data = {"documents": len(chosen), "values": len(known.facts), "others": len(known.others), **data}
    report.data |= {"numbers": rows if explain else rows[:_LISTED], **({"patch": "".join(patch)} if fix else {})}
    if fmt is None:
        _show(rows, explain)
        click.echo("".join(patch), nl=False)
    told = f"{len(chosen)} documents against {len(known.facts)} values: {data.pop('compared')} numbers compared; "
    told += ", ".join(f"{count} {name}" for name, count in data.items())
    if known.others:
        told += f"\n{len(known.others)} more numbers of {truth.name} (settings, counts, spreads, single runs) are no "
        told += "results: a number is one of them only where the sheet names its id; --ids lists all"
    if task.sheet:
        told += f"\n{_kept(task.sheet, asked, strict, report)}"
    elif counts["unexplained"]:
        told += "\nNext: --sheet numbers.jsonl asks what the numbers mean that are not settled"
    return report.emit(fmt, told)


def _documents(paths: tuple[Path, ...], truth: Path) -> list[Path]:
    from rgt.evidence import claims as evidence_layer
    from rgt.reconcile.packed_reader import PDF_NEEDS
    from rgt.reconcile.passages import READERS

    pdf = importlib.util.find_spec("pypdf") is not None
    if not pdf and any(path.suffix.lower() == ".pdf" for path in paths):
        raise lacking(PDF_NEEDS)
    suffixes = frozenset(READERS) - (frozenset() if pdf else {".pdf"})
    chosen = evidence_layer.chosen_documents(paths, truth.resolve().parent, suffixes)
    return [path for path in chosen if path.resolve() != truth.resolve()]


def _counted(counts: Counter[str]) -> dict[str, int]:
    compared = counts["match"] + counts["drift"] + counts["likely"] + counts["derived"]
    kinds = ("derived", "drift", "likely", "cited", "unexplained")
    return {"compared": compared, "matched": counts["match"], **{kind: counts[kind] for kind in kinds}}


def _list(vocabulary: Vocabulary, report: Report, fmt: str | None) -> int:
    report.data = {"ids": {name: fact.value for name, fact in vocabulary.by_id.items()}}
    for name, fact in vocabulary.by_id.items() if fmt is None else ():
        spread = "" if fact.spread is None else f" ± {fact.spread:.6g}"
        click.echo(f"{name}\t{fact.value:.10g}{spread}" + (f"\tn = {fact.n}" if fact.n else ""))
    return report.emit(fmt, f"{len(vocabulary.by_id)} ids")


def _show(rows: list[dict[str, Any]], explain: bool) -> None:
    for row in rows if explain else rows[:_SHOWN]:
        about = " ".join([row["reported"], *row["values"][:3], f"({row['why']})"])
        click.echo(f"{row['outcome']} {row['path']}:{row['line']}: {about}")
    if len(rows) > _SHOWN and not explain:
        click.echo(f"unexplained: {len(rows) - _SHOWN} more; --explain lists every number")


def _kept(sheet: Sheet, asked: dict[str, Asked], strict: bool, report: Report) -> str:
    """Writes the sheet; says what waits in it."""
    for line, problem in [*sheet.broken, *(each for one in asked.values() for each in one.malformed)]:
        fix = "mend the line, then run the same command" + ("; until then nothing is written" if sheet.broken else "")
        report.add("malformed", "error", problem, path=str(sheet.path), line=line, fix=fix)
    sheet.save(asked)
    waiting = [row for one in asked.values() for row in one.rows if row.means == ""]
    for row in waiting if strict else ():
        why = f"{row.number} waits for a meaning in {sheet.path}"
        report.add("unexplained", "warn", why, path=row.file, line=row.line)
    report.data["waiting"] = len(waiting)
    bad = sum(finding.code == "malformed" for finding in report.findings)
    if bad:
        return f"{bad} rows of {sheet.path} cannot be read, {len(waiting)} wait for a meaning"
    if not waiting:
        left = report.data["unexplained"]  # short numbers that no sheet asks for
        rest = f"; {left} numbers are unexplained: --explain lists them" if left else ""
        return f"every {'row' if left else 'number is settled or'} has a meaning in {sheet.path}{rest}"
    files = len({row.file for row in waiting})
    return (
        f"{len(waiting)} numbers of {files} documents wait for a meaning in {sheet.path}: fill `means` (the number of "
        "one of `values`, an id, an expression such as v1 - v2, cited, other), then run the same command"
    )


def _add(report: Report, path: Path, outcome: Outcome, truth: str, strict: bool) -> None:
    place, facts = outcome.place, outcome.facts
    if outcome.kind == "unexplained" and strict:
        message = f"{place.reported}: {outcome.why}"
        report.add("unexplained", "warn", message, path=str(path), line=place.line)
    if outcome.kind != "drift":
        return
    if outcome.sure == "anchored" and not facts:
        report.add("unknown-claim", "error", outcome.why, path=str(path), line=place.line, evidence=place.reported)
        return
    name = outcome.formula or (facts[0].id if facts else "")
    written = "spread " if outcome.why.startswith("the spread differs") else ""
    has = f"{'gives' if outcome.formula else 'has'} {written}{outcome.expected or 0:.6g}{' %' * outcome.percent}"
    should = "" if outcome.expected is None else f"; {truth} {has}"
    message = f"{name}{': ' if name else ''}{place.reported}{should} ({outcome.why}) [{outcome.sure}]"
    fix = f"generate it from {name or 'the values'}, or correct {truth}"
    if outcome.equals:  # never to be "corrected" in place: it is another value's right number
        fix = f"{place.reported} is the value of {outcome.equals[0].id}: see which of the two names is wrong"
    severity = "warn" if outcome.sure == "likely" else "error"
    where = {"path": str(path), "line": place.line, "where": place.where or None}
    report.add("drift", severity, message, evidence=place.reported, fix=fix, **where)


def _row(path: Path, outcome: Outcome) -> dict[str, Any]:
    place = outcome.place
    row = {"path": str(path), "line": place.line, "where": place.where, "reported": place.reported}
    row |= {"outcome": outcome.kind, "values": [fact.id for fact in outcome.facts[:8]]}
    row |= {"sure": outcome.sure, "expected": outcome.expected}
    names = [term for terms in (place.own or place.around).values() for term in terms]
    return row | {"why": outcome.why or "by " + ", ".join(names or ["its digits alone"])}


# -- several processes

_shared: list[tuple[Vocabulary, Task]] = []  # of a worker process


def _examined(paths: list[Path], vocabulary: Vocabulary, task: Task) -> Iterator[tuple[Path, Examined]]:
    from rgt.reconcile.one_document import examine

    if len(paths) < _MANY or (os.cpu_count() or 1) < 2:
        yield from ((path, examine(path, vocabulary, task)) for path in paths)
        return
    from concurrent.futures import ProcessPoolExecutor  # here, because --help and a few documents need none

    shared = (vocabulary.truth, task)
    with ProcessPoolExecutor(os.cpu_count(), initializer=_prepare, initargs=shared) as pool:
        yield from zip(paths, pool.map(_in_worker, paths, chunksize=max(1, len(paths) // 64)), strict=True)


def _prepare(truth: Truth, task: Task) -> None:
    from rgt.reconcile.vocabulary import Vocabulary

    gc.disable()  # workers live for seconds and make no reference cycles
    _shared.append((Vocabulary(truth), task))


def _in_worker(path: Path) -> Examined:
    from rgt.reconcile.one_document import examine

    return examine(path, *_shared[0])


if __name__ == "__main__":
    main()
