# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy>=2", "pillow"]
# ///
"""VERIFY · is the test set clean: items, near-duplicates, groups or the future shared by splits; pins of splits

Example:
    python scripts/leak_probe.py overlap --train train.jsonl --test test.jsonl --group patient_id
    python scripts/leak_probe.py pin --train data/train --test data/test --out SPLITS.json

A split is a file (txt: an item per line; jsonl, json, csv, tsv: per row; npy, npz: per row of the array) or a folder
(an item per file: images by pixels, arrays by values, text by its words; a folder of nothing but csv, tsv or jsonl is
one table).
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rgt import cli, errors
from rgt.report import SEVERITIES, Report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rgt.leak_probe.splits import Source

F = TypeVar("F", bound="Callable[..., Any]")
SPLITS = {"train": "training", "val": "validation", "test": "test"}


def _split_options(function: F) -> F:
    for name, word in reversed(SPLITS.items()):
        text = f"The {word} split."
        function = click.option(f"--{name}", type=click.Path(path_type=Path), metavar="PATH", help=text)(function)
    return function


@click.group(cls=cli.Group)
def main() -> None:
    """Is the test set clean? Overlap of splits, and pins of splits."""


@main.command()
@_split_options
@click.option("--group", multiple=True, metavar="COLUMN", help="Each value must be in one split only; repeatable.")
@click.option("--time", metavar="COLUMN", help="Train must end before val and test begin.")
@click.option("--list", "listing", type=click.Path(path_type=Path), metavar="FILE", help="Write all matches as jsonl.")
@cli.report_options
def overlap(
    group: tuple[str, ...], time: str | None, listing: Path | None, fmt: str | None, **paths: Path | None
) -> int:
    """Find items of one split in another: exact after normalisation, near-duplicates, shared groups, the future.

    Coincidences (short or low-information items that chance explains) and boilerplate are counted apart, as
    information. Not looked for: a test item quoted inside a much longer training document, translations, paraphrases.

    Example: python scripts/leak_probe.py overlap --train train.csv --test test.csv --group patient_id
    """
    sources = _open(paths)
    from rgt.leak_probe import leak_findings

    if len(sources) < 2:
        raise errors.bad_input("one split cannot leak into itself; give at least two of --train, --val, --test")
    kinds = {name: source.kind for name, source in sources.items()}
    if len(set(kinds.values())) > 1:
        said = ", ".join(f"{name} is {kind}" for name, kind in kinds.items())
        raise errors.bad_input(f"the splits are of different kinds ({said}) and cannot be compared; use one form")
    if (group or time) and "rows" not in kinds.values():
        raise errors.bad_input("--group and --time need columns; expected csv, tsv, json or jsonl")
    found = leak_findings.compare(sources, group, time)
    report = Report("leak_probe")
    report.findings += [finding for pair in found.pairs for finding in leak_findings.pair_findings(pair)]
    report.findings += leak_findings.group_findings(found, group)
    if time:
        report.findings += leak_findings.time_findings(found, time)
    leak_findings.say_splits(report, found)
    report.findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    report.data = leak_findings.data(found, listing)
    return report.emit(fmt, leak_findings.summary(report.data))


@main.command()
@_split_options
@click.option("--out", type=click.Path(path_type=Path), default=Path("SPLITS.json"), show_default=True, help="The pin.")
@click.option("--check", is_flag=True, help="Compare the splits with the pin instead of writing it.")
@click.option("--dry-run", is_flag=True, help="Say what would be pinned; write nothing.")
@cli.report_options
def pin(out: Path, check: bool, dry_run: bool, fmt: str | None, **paths: Path | None) -> int:
    """Write down by hash which items each split holds, or --check that they still do.

    Without --train, --val and --test, --check looks where the pin says the splits were.

    Example: python scripts/leak_probe.py pin --train train.csv --test test.csv --out SPLITS.json
    """
    sources = _open(paths)
    from rgt.leak_probe import pins

    report = Report("leak_probe", data={"pin": str(out)})
    if check:
        pinned = pins.read(out)
        for name in sources:
            if name not in pinned:
                raise errors.bad_input(f"{out} has no pin of {name}; it has {', '.join(pinned)}")
        sources = sources or _open({name: Path(entry["path"]) for name, (entry, _) in pinned.items()})
        report.findings += pins.check(pinned, sources)
        report.data["checked"] = list(sources)
        return report.emit(fmt, "" if report.findings else f"{', '.join(sources)}: every item is as pinned in {out}")
    if not sources:
        raise errors.bad_input("nothing to pin; give at least one of --train, --val, --test")
    if dry_run:
        report.data["would_pin"] = {name: str(source.path) for name, source in sources.items()}
        return report.emit(fmt, f"would pin {', '.join(sources)} in {out}")
    entries = pins.write(sources, out)["splits"]
    report.data["splits"] = {name: {key: entry[key] for key in ("items", "sha256")} for name, entry in entries.items()}
    said = ", ".join(f"{name} {entry['items']} items" for name, entry in entries.items())
    return report.emit(fmt, f"pinned in {out}: {said}")


def _open(given: Mapping[str, Path | None]) -> dict[str, Source]:
    """The splits that were given, in the order train, val, test."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # its matrices are small: on a busy machine threads only wait for each other
    try:
        import numpy as np
    except ImportError:
        raise errors.lacking("numpy cannot be imported; pip install 'numpy>=2'") from None
    if not hasattr(np, "bitwise_count"):
        raise errors.lacking(f"numpy {np.__version__} is too old (np.bitwise_count is missing); pip install 'numpy>=2'")
    from rgt.leak_probe.splits import open_source

    sources = {name: open_source(name, path) for name in SPLITS if (path := given.get(name))}
    for (a, one), (b, two) in itertools.combinations(sources.items(), 2):
        first, second = os.path.realpath(one.path), os.path.realpath(two.path)
        if first == second:
            raise errors.bad_input(f"--{a} and --{b} are the same path {first}; give two splits")
        if os.path.commonpath([first, second]) in (first, second):
            raise errors.bad_input(f"--{a} {one.path} and --{b} {two.path} overlap as paths; give two separate folders")
    return sources


if __name__ == "__main__":
    main()
