# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py", "wandb"]
# ///
"""VERIFY · what a tracker really holds: list, diff, curve, duplicates, export; offline files and the hosted API

Example:
    rgt wandb_forensics list wandb/
    rgt wandb_forensics diff wandb/ <id> <id>
    rgt wandb_forensics curve entity/project <id> val/loss
    rgt wandb_forensics export wandb/ <id> --into runs

SOURCE is a folder with run-*.wandb files (read as they are, also after a crash) or entity/project of the hosted
service. Nothing of it is changed.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from rgt import cli
from rgt.errors import RgtError, bad_input, lacking
from rgt.report import Report, progress
from rgt.run.foreign import Row, strict
from rgt.run.foreign.wandb_files import Offline, Tracked, joined, whole_runs

import click

_SHOWN = 40
_COMPARED = 50  # rows of two histories that decide whether they are one
_OWN = frozenset(["_timestamp", "_runtime", "_wandb", "_step"])
_PAGE = 1000
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}  # how the service says them
source_argument = click.argument("source")
run_argument = click.argument("run_id")


@click.group(cls=cli.Group)
def main() -> None:
    """Look at the runs of a tracker as evidence."""


def open_source(text: str) -> Offline | Hosted:
    """A path that exists is a folder; two or three words with slashes are the hosted service."""
    path = Path(text)
    if path.exists() or text.startswith((".", "/", "~")) or text.count("/") not in (1, 2):
        return Offline(path.expanduser())
    return Hosted(text)


@main.command("list")
@source_argument
@cli.report_options
def list_runs(source: str, fmt: str | None) -> int:
    """Every run with its state, length and last values; damaged, crashed and doubled ones are findings."""
    opened = open_source(source)
    runs = opened.runs()
    report = Report("wandb_forensics")
    for run in runs:
        if run.damage:
            report.add("truncated", "warn", f"{run.damage}; what came before is readable", path=run.where, where=run.id)
        if run.state in ("crashed", "failed"):
            code = "" if run.exit_code is None else f" with exit code {run.exit_code}"
            report.add("failed", "info", f"{run.state}{code} after {run.length} rows", path=run.where, where=run.id)
    for parts in (parts for parts in whole_runs(runs) if len(parts) > 1):
        message = f"{len(parts)} records, it was resumed; curve and export join them"
        report.add("duplicate", "info", message, path=parts[-1].where, where=parts[-1].id)
    for ids in copies(opened, runs):
        message = f"{', '.join(ids)} hold the same curve: one run counted {len(ids)} times"
        report.add("duplicate", "warn", message, where=ids[0])
    for sentence in opened.stopped:
        report.add("unseen", "warn", sentence, path=source)
    report.data = {"runs": [run.as_dict() for run in runs]}
    for run in runs[:_SHOWN] if fmt is None else []:
        numbers = [f"{key}={value:.4g}" for key, value in run.numbers().items() if isinstance(value, (int, float))]
        click.echo(f"{run.id}  {run.state:9} {run.length:>7} rows  {run.name}  {' '.join(numbers[:4])}")
    more = f", {len(runs) - _SHOWN} not shown" if len(runs) > _SHOWN else ""
    return report.emit(fmt, f"{len(runs)} runs{more}, {len(report.findings)} findings")


@main.command()
@source_argument
@click.argument("first")
@click.argument("second")
@cli.json_option
def diff(source: str, first: str, second: str, as_json: bool) -> int:
    """What differs between two runs: config, code commit, command, final values. Exit 1 when the config does."""
    opened = open_source(source)
    runs = opened.runs()
    a, b = (records_of(runs, run_id)[-1] for run_id in (first, second))
    for run in (a, b):
        opened.details(run)
    compared: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "config": (a.settings(), b.settings()),
        "code": ({**a.git, "command": a.command}, {**b.git, "command": b.command}),
        "summary": (a.numbers(), b.numbers()),
    }
    changed = {
        part: {key: (x.get(key), y.get(key)) for key in sorted({*x, *y}) if x.get(key) != y.get(key)}
        for part, (x, y) in compared.items()
    }
    rows = [(part, key, *pair) for part, keys in changed.items() for key, pair in keys.items()]
    lines = [f"{part:8} {key}: {left!r} -> {right!r}" for part, key, left, right in rows]
    data = {"first": a.id, "second": b.id, **changed}
    cli.show(data, as_json, [*lines, f"{len(changed['config'])} settings differ"])
    return 1 if changed["config"] else 0


@main.command()
@source_argument
@run_argument
@click.argument("metric")
@cli.json_option
def curve(source: str, run_id: str, metric: str, as_json: bool) -> None:
    """Every logged value of METRIC, unsampled, as CSV (step,value) or JSON; of a resumed run all records, joined."""
    opened = open_source(source)
    parts = records_of(opened.runs(), run_id)
    run = parts[-1]
    points = [(row["_step"], row[metric]) for row in joined_history(opened, parts) if metric in row]
    if not points:
        names = sorted({key for row in joined_history(opened, parts) for key in row if not key.startswith("_")})
        raise bad_input(f"{run.id} never logged {metric}; it logged: {', '.join(names[:20])}")
    data = {"run": run.id, "metric": metric, "points": strict(points)}
    cli.show(data, as_json, ["step,value", *(f"{step},{value!r}" for step, value in points)])


@main.command()
@source_argument
@run_argument
@click.option("--into", type=click.Path(path_type=Path), default="runs", show_default=True, help="Where runs live.")
@cli.json_option
def export(source: str, run_id: str, into: Path, as_json: bool) -> None:
    """Write a run directory from a tracked run, so that every script can read it."""
    from rgt.run import adopt

    opened = open_source(source)
    parts = records_of(opened.runs(), run_id)
    run = parts[-1]
    opened.details(run)
    where = Path(run.where) if Path(run.where).exists() else run.where
    foreign = run.as_foreign(joined_history(opened, parts), where)
    path = adopt.write(into, foreign).path
    cli.show({"run": str(path), "rows": len(foreign.points)}, as_json, [str(path)])


# -- the hosted service


@dataclass
class Hosted:
    """entity/project, or entity/project/run, through the wandb library's public API."""

    path: str
    stopped: tuple[str, ...] = ()  # the service lists every run
    _runs: dict[str, Any] = field(default_factory=dict)

    def runs(self) -> list[Tracked]:
        try:
            import wandb
        except ImportError:
            raise lacking("the hosted service needs the wandb package: pip install wandb") from None
        entity, project, *run = self.path.split("/")
        with _one_sentence(self.path):
            api = wandb.Api(timeout=30)  # a new one each time: it remembers its answers
            found: list[Any] = [api.run(self.path)] if run else list(api.runs(f"{entity}/{project}", lazy=False))
            self._runs |= {one.id: one for one in found}
            runs = []
            for one in found:
                summary = json.loads(json.dumps(dict(one.summary), default=str))
                names = (one.id, one.name or "", project, one.state, str(one.created_at or ""))
                runs.append(Tracked(*names, dict(one.config), summary, where=one.url))
            return runs

    def details(self, run: Tracked) -> None:
        """The metadata file is one request per run: asked for only where it is shown."""
        with _one_sentence(run.where):
            metadata = self._runs[run.id].metadata or {}
        git = metadata.get("git") or {}
        run.git = {"commit": git["commit"], "remote": git.get("remote", "")} if git.get("commit") else {}
        run.host = metadata.get("host", "")
        run.command = [metadata["program"], *metadata.get("args", [])] if metadata.get("program") else []

    def history(self, run: Tracked) -> Iterator[Row]:
        """scan_history gives every row; `history` would give 500 of them, sampled."""
        with _one_sentence(run.where):
            for row in self._runs[run.id].scan_history(page_size=_PAGE):
                numbers = {key: _WORDS.get(value, value) for key, value in row.items() if isinstance(value, str)}
                yield {key: value for key, value in {**row, **numbers}.items() if value is not None}


@contextlib.contextmanager
def _one_sentence(path: str) -> Iterator[None]:
    """Whatever the library raises becomes one sentence: it raises a dozen kinds for one broken link."""
    try:
        yield
    except RgtError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        raise lacking(f"the hosted service did not give {path}: {text or type(error).__name__}") from None


# -- which run a word of the command line means; a resumed run has several records


def records_of(runs: list[Tracked], run_id: str) -> list[Tracked]:
    """Every record of the run with this id, or else this name, the last one last; that there are several is told."""
    found = [run for run in runs if run.id == run_id] or [run for run in runs if run.name == run_id]
    if not found:
        raise bad_input(f"no run {run_id}; there are: {', '.join(run.id for run in runs[:10])}")
    whole = whole_runs(found)
    if len(whole) > 1:
        ids = ", ".join(dict.fromkeys(parts[0].id for parts in whole[:10]))
        raise bad_input(f"{run_id} names {len(whole)} runs: {ids}; name one by its id, or its own place as SOURCE")
    if len(found) > 1:
        places = ", ".join(part.where for part in whole[0])
        rule = "the later one counts where both have a step"
        progress(f"{len(found)} records of {found[0].id}, which was resumed; {rule}: {places}")
    return whole[0]


def joined_history(source: Offline | Hosted, parts: list[Tracked]) -> Iterator[Row]:
    """The history of a run, by step; of a resumed one the later record counts where both have a step."""
    return source.history(parts[0]) if len(parts) == 1 else joined(source.history(part) for part in parts)


def copies(source: Offline | Hosted, runs: list[Tracked]) -> list[list[str]]:
    """Ids of runs with the same config and the same curve: one run that was tracked several times."""
    by_config: dict[str, list[list[Tracked]]] = {}
    for parts in whole_runs(runs):
        key = parts[-1].project + json.dumps(parts[-1].settings(), sort_keys=True, default=str)
        by_config.setdefault(key, []).append(parts)
    by_curve: dict[tuple[str, str], list[str]] = {}
    for key, alike in by_config.items():
        for parts in alike if len(alike) > 1 else []:
            rows = list(islice(joined_history(source, parts), _COMPARED))
            values = [[row.get("_step"), {key: row[key] for key in row if key not in _OWN}] for row in rows]
            if rows:
                by_curve.setdefault((key, json.dumps(values, sort_keys=True, default=str)), []).append(parts[0].id)
    return [ids for ids in by_curve.values() if len(ids) > 1]


if __name__ == "__main__":
    main()
