# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""DELIVER · every number in every document against EVIDENCE.json; edits nothing

Example:
    rgt reconcile                                  # the documents of this repository
    rgt reconcile paper.tex slides.pptx --evidence EVIDENCE.json --github

A number is compared when its sentence, or its row and column, says which claim it states; correct rounding, percent
for fraction and a spread behind ± are understood. <!-- claim:C1 --> (or \\claim{C1}) behind a number decides
without guessing. What may be a claim's number but does not say which is listed apart as ambiguous.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgt import cli
from rgt.errors import RgtError
from rgt.report import Report

import click

if TYPE_CHECKING:
    from rgt.reconcile.agreement import Mention
    from rgt.reconcile.claim_index import Evidence
    from rgt.reconcile.passages import Block

_MANY = 64  # documents: from here on a second process pays for its start
_LISTED = 200  # ambiguous mentions in --json; the rest is counted


@click.command(cls=cli.Command)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@cli.evidence_option
@click.option("--ambiguous", "show_ambiguous", is_flag=True, help="Print the ambiguous mentions, too.")
@cli.report_options
def main(paths: tuple[Path, ...], evidence: Path, show_ambiguous: bool, fmt: str | None) -> int:
    """Compare the numbers in PATHS (documents, folders; the repository by default) with the claims.

    Example: rgt reconcile docs/ paper.tex

    Exit 1 when a document says another number than the evidence. Ambiguous mentions are listed apart and do not count.
    """
    from rgt.evidence import claims as evidence_layer
    from rgt.evidence.claims import chosen_documents
    from rgt.reconcile.claim_index import Evidence
    from rgt.reconcile.passages import READERS

    project = evidence_layer.load(evidence)
    known = Evidence(project.claims, project.data.get("aliases", {}))
    chosen = chosen_documents(paths, evidence.resolve().parent, frozenset(READERS))
    report = Report("reconcile")
    compared = drifts = 0
    ambiguous: list[dict[str, Any]] = []
    for path, examined in _examined(chosen, known):
        if examined.unreadable:
            report.add("unreadable", "warn", examined.unreadable, path=str(path))
        compared += examined.agreed
        for mention in examined.differing:
            ids = [claim["id"] for claim in mention.claims]
            place: dict[str, Any] = {"path": str(path), "line": mention.line}
            if mention.verdict == "ambiguous":
                about = {"where": mention.where, "reported": mention.reported, "claims": ids, "why": mention.why}
                ambiguous.append({**place, **about})
                continue
            drifts += 1
            code, message = "unknown-claim", mention.why
            if ids:
                name = " ".join(evidence_layer.words_of(mention.claims[0]))
                right = mention.authoritative
                should = "" if right is None else f"; EVIDENCE.json has {right:.6g}"
                why = f" ({mention.why})" if mention.why else ""
                code, message = "drift", f"{'/'.join(ids[:3])} {name}: {mention.reported}{should}{why} [{mention.sure}]"
                fix = f"generate it from {ids[0]} (rgt render values), or correct the evidence"
                place |= {"where": mention.where or None, "fix": fix}
            report.add(code, "error", message, evidence=mention.reported, **place)
    compared += drifts
    report.data = {"documents": len(chosen), "compared": compared, "drifts": drifts}
    report.data |= {"ambiguous": ambiguous[:_LISTED], "ambiguous_count": len(ambiguous)}
    for row in ambiguous if show_ambiguous and fmt is None else []:
        which = " or ".join(row["claims"][:4])
        click.echo(f"maybe {row['path']}:{row['line']}: {row['reported']} ({row['why']}; {which})")
    numbers = f"{len(chosen)} documents, {compared} numbers compared with {len(known.claims)} claims"
    return report.emit(fmt, f"{numbers}: {drifts} differ, {len(ambiguous)} ambiguous")


# -- reading the documents


@dataclass
class Examined:
    """One document: what agrees is only counted, because most of it does and it comes from another process."""

    agreed: int = 0
    differing: list[Mention] = field(default_factory=list)  # drifts and ambiguous ones
    unreadable: str = ""


_shared: list[Evidence] = []  # of a worker process


def _examined(paths: list[Path], evidence: Evidence) -> Iterator[tuple[Path, Examined]]:
    if len(paths) < _MANY or (os.cpu_count() or 1) < 2:
        yield from ((path, examine(path, evidence)) for path in paths)
        return
    from concurrent.futures import ProcessPoolExecutor  # here, because --help and a few documents need none

    shared = (evidence.claims, evidence.aliases)
    with ProcessPoolExecutor(os.cpu_count(), initializer=_prepare, initargs=shared) as pool:
        yield from zip(paths, pool.map(examine, paths, chunksize=max(1, len(paths) // 64)), strict=True)


def _prepare(claims: list[dict[str, Any]], aliases: dict[str, list[str]]) -> None:
    from rgt.reconcile.claim_index import Evidence

    gc.disable()  # workers live for seconds and make no reference cycles
    _shared.append(Evidence(claims, aliases))


def mentions(block: Block, evidence: Evidence) -> Iterator[Mention]:
    from rgt.reconcile.passages import Table
    from rgt.reconcile.sentences import sentence_mentions
    from rgt.reconcile.table_numbers import table_mentions

    return table_mentions(block, evidence) if isinstance(block, Table) else sentence_mentions(block, evidence)


def examine(path: Path, evidence: Evidence | None = None) -> Examined:
    """The numbers of one document, or the sentence why it could not be read. A worker process has its evidence."""
    from rgt.reconcile.passages import read_document

    evidence = evidence or _shared[0]
    examined = Examined()
    try:
        for block in read_document(path):
            for mention in mentions(block, evidence):
                if mention.verdict == "ok":
                    examined.agreed += 1
                else:
                    examined.differing.append(mention)
    except RgtError as error:
        examined.unreadable = error.message
    except Exception as error:  # markup can be anything; one document hides no other
        examined.unreadable = f"{path} has something no reader knows: {type(error).__name__}: {str(error)[:100]}"
    return examined


if __name__ == "__main__":
    main()
