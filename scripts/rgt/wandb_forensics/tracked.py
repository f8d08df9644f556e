"""Runs of a tracker: its files on disk or the hosted service; which run a word means, copies of one, the export."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from rgt.errors import RgtError, bad_input, lacking
from rgt.report import progress
from rgt.run import adopt
from rgt.run.foreign import Row
from rgt.run.foreign.wandb_files import Offline, Tracked, joined, whole_runs

_COMPARED = 50  # rows of two histories that decide whether they are one
_OWN = frozenset(["_timestamp", "_runtime", "_wandb", "_step"])
_PAGE = 1000
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}  # how the service says them


@dataclass
class Hosted:
    """entity/project, or entity/project/run, through the wandb library's public API."""

    path: str
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


Source = Offline | Hosted


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


def joined_history(source: Source, parts: list[Tracked]) -> Iterator[Row]:
    """The history of a run, by step; of a resumed one the later record counts where both have a step."""
    return source.history(parts[0]) if len(parts) == 1 else joined(source.history(part) for part in parts)


def copies(source: Source, runs: list[Tracked]) -> list[list[str]]:
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


# -- export


def write_run(into: Path, tracked: Tracked, history: Iterator[Row]) -> tuple[Path, int]:
    """A run directory; its path and the number of its rows. All is read before anything is written."""
    place = Path(tracked.where)
    foreign = tracked.as_foreign(history, place if place.exists() else tracked.where)
    return adopt.write(into, foreign).path, len(foreign.points)
