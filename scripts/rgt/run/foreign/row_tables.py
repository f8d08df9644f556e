"""CSV and JSON lines: a row per step (Lightning's CSVLogger, metrics.jsonl, progress.csv) or a row per run.

A table with a column of steps or epochs is a curve; columns that name a run (run, seed, `--group`) cut it into runs.
Without steps each row is a run, and only when such a column says so: a row may as well be an example.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rgt.errors import bad_input
from rgt.job import settings
from rgt.metrics.table import known, split_of
from rgt.run.foreign import LIVE, MOST_BYTES, Ask, Foreign, Row, as_number, as_setting, flat, split_word

_STEPS = "step _step global_step iteration iter iterations num_updates total_timesteps timesteps epoch epochs".split()
_RUNS = "run_id run run_name name experiment exp trial".split()
_CLOCKS = "time timestamp _timestamp wall_time date".split()
_SPLITS = "split phase mode subset".split()
# what is measured beside the metrics: it differs from run to run, and is no setting
_MEASURED = re.compile(
    r".*(runtime|duration|elapsed|wall|seconds|_time|time_|hours|memory|_mem|throughput|per_s(ec(ond)?)?|flops?|gpu_util)"
    r".*|.*_(s|ms|gb|mb)|time|date|timestamp",
    re.I,
)
_LONGEST = 1 << 20  # characters of a cell


def read(path: Path, ask: Ask) -> Iterator[Foreign]:
    if path.stat().st_size > MOST_BYTES:
        raise bad_input(f"{path} is larger than 1 GiB; cut it into runs first")
    gaps: list[str] = []
    text = path.read_bytes().decode("utf-8-sig", "replace").replace("\0", "")
    live = time.time() - path.stat().st_mtime < LIVE
    if text and not text.endswith("\n") and live:  # its writer may be in the middle of 0.1234
        text = text.rpartition("\n")[0]
        gaps.append("its last line has no end and was written just now: left out")
    kind = "jsonl" if path.suffix.lower() in (".jsonl", ".ndjson") else "csv"
    rows = list(_objects(text, gaps) if kind == "jsonl" else _cells(path, text, gaps))
    if not rows:
        raise bad_input(f"{path} has no row" + "".join(f"; {gap}" for gap in gaps[:1]))
    yield from _runs(path, kind, rows, gaps, ask)


def _objects(text: str, gaps: list[str]) -> Iterator[Row]:
    bad = 0
    for line in filter(str.strip, text.split("\n")):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            yield flat(row)
        else:
            bad += 1
    if bad:
        gaps.append(f"{bad} lines are no JSON objects")


def _cells(path: Path, text: str, gaps: list[str]) -> Iterator[Row]:
    csv.field_size_limit(_LONGEST)
    first = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count))
    header: list[str] = []
    bad = 0
    try:
        for cells in reader:
            if not header:
                header = [cell.strip() for cell in cells]
                if len(set(header)) < len(header) or any(as_number(name) is not None for name in header):
                    raise bad_input(f"{path} has no header of its own names: {first[:80]!r}")
            elif len(cells) == len(header) and cells != header:
                yield {name: cell.strip() for name, cell in zip(header, cells, strict=True) if name and cell.strip()}
            elif cells and cells != header:  # a resumed writer writes its header again
                bad += 1
    except csv.Error as error:
        gaps.append(f"is no CSV from line {reader.line_num} on: {error}")
    if bad:
        gaps.append(f"{bad} rows have another number of cells than the header")


def _runs(path: Path, kind: str, rows: list[Row], gaps: list[str], ask: Ask) -> Iterator[Foreign]:
    columns = dict.fromkeys(name for row in rows for name in row)
    step, run, split, clock = (_column(columns, names) for names in (_STEPS, _RUNS, _SPLITS, _CLOCKS))
    seed = ask.seed or next((name for name in columns if settings.is_seed(name)), None)
    for name in (name for name in (*ask.metrics, ask.seed, ask.group) if name and name not in columns):
        raise bad_input(f"{path} has no column {name!r}; it has {', '.join(list(columns)[:20])}")
    own = [name for name in dict.fromkeys((ask.group, run, seed)) if name]
    if step is None and not own and len(rows) > 1:
        raise bad_input(f"{path} has no column of steps, and none that makes a row a run: name one, --seed or --group")
    measured = {name for name in columns if name in ask.metrics or (not ask.metrics and _is_metric(name))}
    if not measured and step is None:
        raise bad_input(f"{path} has no column that is known to be a metric; name it, --metric")
    parts: dict[tuple[Any, ...], list[Row]] = {}
    for number, row in enumerate(rows):
        key = tuple(row.get(name) for name in own)
        parts.setdefault(key if step else (*key, number), []).append(row)
    apart = {name for name in (step, run, split, clock) if name} - {ask.group}
    candidates = [name for name in columns if name not in apart | measured and not _MEASURED.fullmatch(name)]
    if varying := _varying(candidates, rows, {*own}, ask.group):
        gaps.append(f"no settings, because they vary within {ask.group}: {', '.join(sorted(varying))}")
    for key, part in parts.items():
        words = [str(word) for word in key if word is not None][: len(own)]
        several = len(parts) > 1
        found = Foreign("-".join(words) if several and words else path.stem, kind, path, gaps=list(gaps))
        found.key = " ".join(map(str, key)) if several else ""
        found.config = _settings([name for name in candidates if name not in varying], part, several)
        if ask.seed:
            found.config["seed"] = as_setting(str(part[0].get(ask.seed)))
        if step is None:
            _report(found, part[0], measured, split, ask, path)
        else:
            _add_curve(found, part, step, apart | set(own) | set(found.config), ask)
        if not found.points and not found.results:
            raise bad_input(f"{path}: " + ("; ".join(found.gaps) or "no column of it is a number"))
        yield found.settle(path)


def _varying(names: list[str], rows: list[Row], own: set[str], group: str | None) -> set[str]:
    """Columns that are not the same for all runs of a group, and so were not set for it."""
    values: dict[tuple[str, Any], set[Any]] = {}
    for row in rows if group else ():
        for name in names:
            values.setdefault((name, row.get(group or "")), set()).add(row.get(name))
    return {name for (name, _), seen in values.items() if len(seen) > 1 and name not in own}


def _column(columns: Iterable[str], names: list[str]) -> str | None:
    by_word = {name.lower(): name for name in columns}
    return next((by_word[name] for name in names if name in by_word), None)


def _is_metric(name: str) -> bool:
    return known(name) is not None or split_of(name) is not None


def _settings(names: list[str], rows: list[Row], several: bool) -> dict[str, Any]:
    """What stays the same in all rows of a run. A number in the only run of a table is rather a flat curve."""
    found = {}
    for name in names:
        values = {row.get(name) for row in rows}
        value = values.pop()
        plain = several or len(rows) == 1 or settings.is_seed(name) or as_number(value) is None
        if not values and value is not None and plain and not name.startswith("_"):
            found[name] = as_setting(value) if isinstance(value, str) else value
    return found


def _add_curve(run: Foreign, rows: list[Row], step: str, apart: set[str], ask: Ask) -> None:
    for row in rows:
        by_word = {name.lower(): name for name in row}
        at = as_number(row.get(step))
        if at is None or not math.isfinite(at):  # Lightning's rows have holes
            continue
        clock = next((number for name in _CLOCKS if (number := as_number(row.get(by_word.get(name, ""))))), 0.0)
        told = split_word(next((row[by_word[name]] for name in _SPLITS if name in by_word), None))
        values = {name: row[name] for name in row if name not in apart and (not ask.metrics or name in ask.metrics)}
        run.add(int(at), values, clock, told)


def _report(run: Foreign, row: Row, measured: set[str], split: str | None, ask: Ask, path: Path) -> None:
    for name in sorted(measured & row.keys()):
        value = as_number(row[name])
        if value is not None:
            run.report(name, value, split_word(row.get(split or "")) or ask.split, path)
