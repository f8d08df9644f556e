# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "jsonschema"]
# ///
"""DELIVER · every number in every document against EVIDENCE.json; edits nothing

Example:
    python scripts/reconcile.py                                  # the documents of this repository
    python scripts/reconcile.py paper.tex slides.pptx --evidence EVIDENCE.json --github

A number is compared when its sentence, or its row and column, says which claim it states; correct rounding, percent
for fraction, a spread and a count of runs are understood. <!-- claim:C1 --> (or \\claim{C1}) behind a number decides
without guessing. What may be a claim's number but does not say which is listed apart as ambiguous.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from mentions import cells, readers, sentences
from mentions.evidence import Evidence
from mentions.passages import Block, Table
from mentions.verdict import Mention
from rgt import cli, documents
from rgt import evidence as evidence_layer
from rgt.errors import RgtError
from rgt.report import Report

_MANY = 64  # documents: from here on a second process pays for its start
_LISTED = 200  # ambiguous mentions in --json; the rest is counted


@click.command(cls=cli.Command)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--evidence", type=click.Path(path_type=Path), default=Path("EVIDENCE.json"), show_default=True, help="The claims."
)
@click.option("--ambiguous", "show_ambiguous", is_flag=True, help="Print the ambiguous mentions, too.")
@cli.report_options
def main(paths: tuple[Path, ...], evidence: Path, show_ambiguous: bool, fmt: str | None) -> int:
    """Compare the numbers in PATHS (documents, folders; the repository by default) with the claims.

    Example: python scripts/reconcile.py docs/ paper.tex

    Exit 1 when a document says another number than the evidence. Ambiguous mentions are listed apart and do not count.
    """
    known = load(evidence)
    chosen = documents.chosen(paths, evidence.resolve().parent, frozenset(readers.KINDS))
    report = Report("reconcile")
    seen = _Tally()
    for path, examined in _read_all(chosen, known):
        if examined.unreadable:
            report.add("unreadable", "warn", examined.unreadable, path=str(path))
        seen.compared += examined.agreed
        seen.agreed |= examined.ids
        for mention in examined.rest:
            seen.add(path, mention, report)
    report.data = seen.data(known, len(chosen))
    if show_ambiguous and fmt is None:
        for row in seen.ambiguous:
            click.echo(
                f"maybe {row['path']}:{row['line']}: {row['reported']} ({row['why']}; {' or '.join(row['claims'][:4])})"
            )
    return report.emit(fmt, seen.summary(known, len(chosen)))


def load(path: Path) -> Evidence:
    project = evidence_layer.load(path)
    return Evidence(project.claims, project.aliases)


# -- reading them


@dataclass
class Examined:
    """One document: what agrees is only counted, because most of it does and it comes from another process."""

    agreed: int = 0
    ids: set[str] = field(default_factory=set)
    rest: list[Mention] = field(default_factory=list)  # drifts and ambiguous ones
    unreadable: str = ""


def _read_all(paths: list[Path], evidence: Evidence) -> Iterable[tuple[Path, Examined]]:
    if len(paths) < _MANY or (os.cpu_count() or 1) < 2:
        return ((path, examine(path, evidence)) for path in paths)
    return _in_processes(paths, evidence)


def _in_processes(paths: list[Path], evidence: Evidence) -> Iterator[tuple[Path, Examined]]:
    from concurrent.futures import ProcessPoolExecutor  # here, because --help and a few documents need none

    with ProcessPoolExecutor(
        os.cpu_count(), initializer=_prepare, initargs=(evidence.claims, evidence.aliases)
    ) as pool:
        yield from zip(paths, pool.map(_examine, paths, chunksize=max(1, len(paths) // 64)), strict=True)


_shared: list[Evidence] = []  # of a worker process


def _prepare(claims: list[dict[str, Any]], aliases: dict[str, list[str]]) -> None:
    gc.disable()  # workers live for seconds and make no rings
    _shared.append(Evidence(claims, aliases))


def _examine(path: Path) -> Examined:
    return examine(path, _shared[0])


def examine(path: Path, evidence: Evidence) -> Examined:
    """The numbers of one document, or the sentence why it could not be read."""
    seen = Examined()
    try:
        for block in readers.read(path):
            for mention in _find(block, evidence):
                if mention.verdict == "ok":
                    seen.agreed += 1
                    seen.ids.update(claim["id"] for claim in mention.claims)
                else:
                    seen.rest.append(mention)
    except RgtError as error:
        seen.unreadable = error.message
    except Exception as error:  # markup can be anything; one document hides no other
        seen.unreadable = f"{path} has something no reader knows: {type(error).__name__}: {str(error)[:100]}"
    return seen


def _find(block: Block, evidence: Evidence) -> Iterator[Mention]:
    return cells.find(block, evidence) if isinstance(block, Table) else sentences.find(block, evidence)


# -- what was found


@dataclass
class _Tally:
    compared: int = 0
    agreed: set[str] = field(default_factory=set)
    drifts: int = 0
    ambiguous: list[dict[str, Any]] = field(default_factory=list)

    def add(self, path: Path, mention: Mention, report: Report) -> None:
        ids = [claim["id"] for claim in mention.claims]
        if mention.verdict == "ambiguous":
            row = {"path": str(path), "line": mention.line, "where": mention.where, "reported": mention.reported}
            self.ambiguous.append({**row, "claims": ids, "why": mention.why})
            return
        self.compared += 1
        self.drifts += 1
        _report(path, mention, ids, report)

    def data(self, evidence: Evidence, count: int) -> dict[str, Any]:
        return {
            "documents": count,
            "compared": self.compared,
            "drifts": self.drifts,
            "ambiguous": self.ambiguous[:_LISTED],
            "ambiguous_count": len(self.ambiguous),
            "unmentioned": sorted(set(evidence.by_id) - self.agreed),
        }

    def summary(self, evidence: Evidence, count: int) -> str:
        return (
            f"{count} documents, {self.compared} numbers compared with {len(evidence.claims)} claims: "
            f"{self.drifts} differ, {len(self.ambiguous)} ambiguous"
        )


def _report(path: Path, mention: Mention, ids: list[str], report: Report) -> None:
    claim = mention.claims[0] if mention.claims else None
    if claim is None:
        report.add("unknown-claim", "error", mention.why, path=str(path), line=mention.line, evidence=mention.reported)
        return
    name = " ".join(str(claim[key]) for key in ("metric", "method", "dataset", "split") if claim.get(key))
    should = f"; EVIDENCE.json has {mention.authoritative:.6g}" if mention.authoritative is not None else ""
    why = f" ({mention.why})" if mention.why else ""
    report.add(
        "drift",
        "error",
        f"{'/'.join(ids[:3])} {name}: {mention.reported}{should}{why} [{mention.sure}]",
        path=str(path),
        line=mention.line,
        where=mention.where or None,
        evidence=mention.reported,
        fix=f"generate it from {ids[0]} (render.py), or correct the evidence",
    )


if __name__ == "__main__":
    main()
