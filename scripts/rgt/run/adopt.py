"""A run directory for a run that others made: run.json with `adopted_from`, metrics.jsonl, train.log, results.json.

Example:
    made = adopt(Path("runs"), foreign, adopted_already(Path("runs")))
    made.run.path, made.state        adopted | updated | unchanged | sealed

The source stays as it is. Adopting it again changes nothing, or brings the run directory up to date: one run never
becomes two.
"""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from rgt import files
from rgt.errors import RgtError
from rgt.metrics.table import known
from rgt.run import record, results
from rgt.run.foreign import Foreign, Row
from rgt.run.record import Run
from rgt.run.seal import digest_of

_SLUG = 40

Origins = dict[tuple[str, str], Run]  # source and key -> the run directory that was made for it


@dataclass
class Adopted:
    run: Run
    state: str
    results: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def adopted_already(root: Path) -> Origins:
    found: Origins = {}
    for run in record.find(root) if root.is_dir() else []:
        with contextlib.suppress(RgtError):
            origin = files.read_json(run.run_json).get("adopted_from") or {}
            found[str(origin.get("source")), str(origin.get("key", ""))] = run
    return found


def write(root: Path, foreign: Foreign) -> Run:
    return adopt(root, foreign, adopted_already(root)).run


def adopt(root: Path, foreign: Foreign, already: Origins, metrics: tuple[str, ...] = (), command: str = "") -> Adopted:
    """The run directory of a foreign run. `metrics`: those of results.json; default: all whose direction is known."""
    fields, (began, ended) = foreign.record(), foreign.span
    origin = fields["adopted_from"]
    place = origin["source"], origin.get("key", "")
    run, state = already.get(place), "updated"
    if run is None:
        run = already[place] = Run(root / record.mint_id(foreign.name[-_SLUG:], began or None))
        state = "adopted"
    elif files.read_json(run.run_json, "run")["adopted_from"]["sha256"] == origin["sha256"]:
        return Adopted(run, "unchanged")
    elif run.seal.exists():
        note = "its source changed since it was sealed: move the sealed run away to adopt it again"
        return Adopted(run, "sealed", notes=[note])
    made, rows = Adopted(run, state), foreign.rows
    run.checkpoints.mkdir(parents=True, exist_ok=True)
    if rows:
        files.write_bytes(run.metrics, b"".join(files.dump(row, str(run.metrics)) + b"\n" for row in rows))
    if foreign.log:
        with foreign.log.open("rb") as log:
            files.write_with(run.log, lambda out: shutil.copyfileobj(log, out, 1 << 20))
    # only what its record says, at its own times: hours up and cost are counted from these
    if foreign.state in record.OVER and foreign.state in record.AFTER_EVENT and not run.events.exists():
        for when, event in ((began, "launched"), (ended, foreign.state)):
            row = {"time": when, "event": event, "source": f"as {foreign.format} recorded it"}
            files.append_jsonl(run.events, row, "events")
    made.results = _results(made, foreign, rows, metrics, command)
    if made.results:
        run.write_results({"run_id": run.id, "metrics": made.results})
    run.write_record({"run_id": run.id, **fields})  # last: a directory with a run.json is a run
    return made


def _results(made: Adopted, foreign: Foreign, rows: list[Row], metrics: tuple[str, ...], command: str) -> list[Row]:
    """The last point of every curve, the values that have none, and what `rgt results` had computed before, anew."""
    run, asked = made.run, set(metrics)
    questions: dict[tuple[str, str], results.Question] = {}
    for name, split in dict.fromkeys((name, row["split"]) for row in rows for name in row):
        wanted = asked & {name, f"{split}_{name}", f"{split}/{name}", f"{name}/{split}"} if asked else known(name)
        if wanted and name not in ("step", "time", "split"):
            questions[name, split] = results.Question(name, split=split)
    kept: list[Row] = []
    for row in files.read_json(run.results, "results")["metrics"] if run.results.exists() else []:
        if row.get("source") == run.metrics.name:
            told = {key: row.get(key) for key in ("rule", "split", "direction", "n", "dataset")}
            questions[row["name"], row["split"]] = results.Question(row["name"], **told)
        elif not any(results.same_row(row, new) for new in foreign.results):
            kept.append(row)
    for row in foreign.results:
        source = str(row.get("source") or foreign.source)
        kept.append({**row, "source": source, "source_sha256": digest_of(Path(source))})
    for question in questions.values():
        try:
            kept.append(results.measure(run, question, rows=rows))
        except RgtError as error:
            made.notes.append(f"no result: {error.message}")
    return [{**row, "command": command} if command and "command" not in row else row for row in kept]
