# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py", "pillow"]
# ///
"""VERIFY · is the test set clean: items, near-duplicates or groups shared by splits; pins splits by hash

Example:
    rgt leak_probe overlap --train train.jsonl --test test.jsonl --group patient_id
    rgt leak_probe pin --train data/train --test data/test

A split is a file (txt: an item per line; jsonl, json, csv, tsv: per row; npy, npz: per row of the array) or a folder
(an item per file: images by pixels, arrays by values, text by its words; a folder of nothing but csv, tsv or jsonl is
one table).
"""

from __future__ import annotations

import itertools
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rgt import cli, errors, files
from rgt.report import SEVERITIES, Report

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rgt.leak_probe.splits import Source

F = TypeVar("F", bound="Callable[..., Any]")
SPLITS = {"train": "training", "val": "validation", "test": "test"}
_PATH = click.Path(path_type=Path)
_SHOWN = 5  # files that a finding about a pin names


@click.group(cls=cli.Group)
def main() -> None:
    """Is the test set clean, and still the same?"""


def split_options(function: F) -> F:
    for name, word in reversed(SPLITS.items()):
        function = click.option(f"--{name}", type=_PATH, metavar="PATH", help=f"The {word} split.")(function)
    return function


@main.command()
@split_options
@click.option("--group", multiple=True, metavar="COLUMN", help="Each value must be in one split only; repeatable.")
@click.option("--list", "listing", type=_PATH, metavar="FILE", help="Write all matches as jsonl.")
@cli.report_options
def overlap(group: tuple[str, ...], listing: Path | None, fmt: str | None, **paths: Path | None) -> int:
    """Find items of one split in another: exact after normalisation, near-duplicates, shared groups.

    Coincidences (short or low-information items that chance explains, boilerplate) are counted apart, as information.
    Not looked for: a test item quoted inside a much longer training document, translations, paraphrases, training data
    that is younger than the test data.

    Example: rgt leak_probe overlap --train train.csv --test test.csv --group patient_id
    """
    sources = _open(paths)
    from rgt.leak_probe import leak_findings

    if len(sources) < 2:
        raise errors.bad_input("one split cannot leak into itself; give at least two of --train, --val, --test")
    kinds = {name: source.kind for name, source in sources.items()}
    if len(set(kinds.values())) > 1:
        said = ", ".join(f"{name} is {kind}" for name, kind in kinds.items())
        raise errors.bad_input(f"the splits are of different kinds ({said}) and cannot be compared; use one form")
    if group and "rows" not in kinds.values():
        raise errors.bad_input("--group needs columns; expected csv, tsv, json or jsonl")
    found = leak_findings.compare(sources, group)
    report = Report("leak_probe")
    report.findings += [finding for pair in found.pairs for finding in leak_findings.pair_findings(pair)]
    report.findings += leak_findings.group_findings(found, group)
    leak_findings.say_splits(report, found)
    report.findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    report.data = leak_findings.data(found, listing)
    return report.emit(fmt, leak_findings.summary(report.data))


@main.command()
@split_options
@click.option("--out", type=_PATH, default=Path("SPLITS.json"), show_default=True, help="The pin.")
@click.option("--check", is_flag=True, help="Compare the splits with the pin instead of writing it.")
@click.option("--dry-run", is_flag=True, help="Say what would be pinned; write nothing.")
@cli.report_options
def pin(out: Path, check: bool, dry_run: bool, fmt: str | None, **paths: Path | None) -> int:
    """Write down by sha256 which files each split holds, or --check that they still do: other bytes are a change.

    Without --train, --val and --test, --check looks at all splits of the pin, where they were.

    Example: rgt leak_probe pin --train train.csv --test test.csv
    """
    from rgt.run.seal import digest_of

    report, sources = Report("leak_probe", data={"pin": str(out)}), _open(paths)
    pinned: dict[str, Any] = files.read_json(out, "split_pins")["splits"] if check else {}
    for name in sources.keys() - pinned.keys() if check else ():
        raise errors.bad_input(f"{out} has no pin of {name}; it has {', '.join(pinned)}")
    sources = sources or _open({name: out.parent / pinned[name]["path"] for name in pinned})
    if not sources:
        raise errors.bad_input("nothing to pin; give at least one of --train, --val, --test")
    made = {}
    for name, source in sources.items():
        base = source.path if source.path.is_dir() else source.path.parent
        now = {part.relative_to(base).as_posix(): digest_of(part) for part in source.parts}
        made[name] = {"path": os.path.relpath(source.path, out.parent), "files": now}
        if check:
            _compare(report, name, source, now, pinned)
    if check:
        report.data["checked"] = list(sources)
        return report.emit(fmt, "" if report.findings else f"{', '.join(sources)}: every byte is as pinned in {out}")
    if not dry_run:
        created = datetime.now(timezone.utc).isoformat(timespec="seconds")
        files.write_json(out, {"created": created, "splits": made}, "split_pins")
    report.data["splits"] = made
    counts = ", ".join(f"{name} {source.path} ({len(source.parts)} files)" for name, source in sources.items())
    return report.emit(fmt, f"{'would pin' if dry_run else 'pinned'} in {out}: {counts}")


def _compare(report: Report, name: str, source: Source, now: dict[str, str], pinned: dict[str, Any]) -> None:
    then: dict[str, str] = pinned[name]["files"]
    if now == then:
        return
    differing = [file for file in now if now[file] != then.get(file)]
    words = [f"{file} {'changed' if file in then else 'is new'}" for file in differing]
    words += [f"{file} is gone" for file in then if file not in now]
    seen = "; ".join(words[:_SHOWN]) + (f"; and {len(words) - _SHOWN} more" if len(words) > _SHOWN else "")
    message = f"{name} is not what was pinned: {len(then)} files then, {len(now)} now"
    fix = "numbers from before and after are not comparable; take the pinned files, or pin anew and measure all again"
    report.add("digest", "error", message, path=str(source.path), evidence=seen, fix=fix)
    for other in (split for split in pinned if split != name):
        moved = [file for file in differing if now[file] in pinned[other]["files"].values()]
        if moved:
            text = f"{len(moved)} files of {name} were in {other} when the splits were pinned"
            report.add("moved", "error", text, path=str(source.path), evidence="; ".join(moved[:_SHOWN]))


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
