"""CSV: one row per run (a seed, run or name column says so) or per eval item.

A row is a run or an example, never guessed: taking 1,000 examples for 1,000 runs would make any difference "real".
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rgt.compare_runs import flat_settings
from rgt.compare_runs.trial import Reading, Trial, number
from rgt.errors import bad_input
from rgt.metrics import table

_RUN = ("run_id", "run", "run_name", "name")
_ITEM = (
    "item item_id example example_id sample sample_id image image_id filename file question_id qid doc_id utt_id uid "
    "uuid key idx index id"
).split()
_STEP = ("step", "global_step", "iteration", "iter", "epoch", "trainer/global_step")
_SPLIT = ("split", "subset")
_FIELD = 1 << 17  # characters

Row = dict[str, str]


def load(path: Path, wanted: tuple[str, ...], where: tuple[str, str] | None) -> list[Trial]:
    """The runs of a table; `where` (column, value) selects rows."""
    numbered = list(_rows(path, where))
    if not numbered:
        raise bad_input(f"{path} has no rows (or none that were selected)")
    header = list(numbered[0][1])
    metrics = [name for name in wanted if name in header]
    if not metrics:
        raise bad_input(f"{path} has no column {wanted[0]!r}; it has {', '.join(header[:30])}")
    columns = {name.lower(): name for name in reversed(header)}
    run, split, item, step = (
        next((columns[name] for name in names if name in columns), None)
        for names in (_RUN, _SPLIT, () if "State" in header else _ITEM, _STEP)  # wandb's table has an ID of runs
    )
    seed = next(filter(flat_settings.is_seed, header), None)
    own = [name for name in (run, seed) if name]  # the columns that name a run
    if item is None and not own and len(numbered) > 1:
        raise bad_input(
            f"{path} has {len(numbered)} rows and says not what a row is: a seed or run column makes them runs, an "
            "item or id column makes them examples; add one"
        )
    found: dict[tuple[str, ...], Trial] = {}
    for line, row in numbered:
        key = tuple(row[name] for name in own)
        if item is None and step is None:
            key = (*key, f"(line {line})")
        elif item is None and key in found:
            raise bad_input(f"{path} line {line}: a row per {step} is a curve; keep the row of each run that counts")
        if key not in found:
            shown = flat_settings.show(flat_settings.plain(row[seed])) if seed else None
            name = row[run] if run else None
            found[key] = Trial(" ".join((str(path), *key)), name, shown, available=set(header))
        values = {name: number(row[name], f"{path} line {line}: {name}") for name in metrics if row[name].strip()}
        if item is None:
            _add_run(found[key], row, values, split, {*own, *metrics})
        else:
            _add_item(found[key], row[item], values, f"{path} line {line}")
    for trial in found.values():
        for name, scores in trial.items.items():
            mean = sum(scores.values()) / len(scores)
            trial.readings[name] = [Reading(mean, table.split_of(name), len(scores))]
    return list(found.values())


def _rows(path: Path, where: tuple[str, str] | None) -> Iterator[tuple[int, Row]]:
    """The selected rows with their lines; every row has every column."""
    csv.field_size_limit(_FIELD)  # one for the whole process: said, so that nobody else's holds here
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline(1 << 20)
            file.seek(0)
            reader = csv.DictReader(file, delimiter=max(",;\t", key=first.count), strict=True)
            header = reader.fieldnames = [column.strip() for column in reader.fieldnames or []]
            if not any(header):
                raise bad_input(f"{path} is empty; expected a header line and rows")
            twice = [name for name, times in Counter(header).items() if name and times > 1]
            if twice:
                raise bad_input(f"{path} has the column {twice[0][:60]!r} twice; which one counts is not knowable")
            if where and where[0] not in header:
                raise bad_input(f"{path} has no column {where[0]!r} to select by; it has {', '.join(header[:30])}")
            for row in reader:
                if None in row or None in row.values():
                    raise bad_input(f"{path} line {reader.line_num} has another number of fields than the header")
                meant = where is None or flat_settings.plain(row[where[0]]) == flat_settings.plain(where[1])
                if meant and any(row.values()):
                    yield reader.line_num, row
    except UnicodeDecodeError as error:
        raise bad_input(f"{path} is not text: byte {error.start} is not UTF-8") from None
    except csv.Error as error:
        raise bad_input(f"{path} is not usable CSV: {error}") from None


def _add_run(trial: Trial, row: Row, values: dict[str, float], split: str | None, not_settings: set[str]) -> None:
    """The other columns are settings, unless they are metrics, which differ because runs differ."""
    word = row[split].strip().lower() if split else ""
    for name, value in values.items():
        of_split = table.SPLIT_WORDS.get(word, word or None) if split else table.split_of(name)
        trial.readings[name] = [Reading(value, of_split)]
    given = {
        name: value
        for name, value in row.items()
        if value.strip() and name not in not_settings and name != split and name and not name.startswith("_")
        if table.known(name) is None and table.split_of(name) is None
    }
    trial.config = flat_settings.flatten(given) or None


def _add_item(trial: Trial, item: str, values: dict[str, float], where: str) -> None:
    for name, value in values.items():
        scores = trial.items.setdefault(name, {})
        if item in scores:
            raise bad_input(f"{where} has the item {item[:60]!r} a second time")
        scores[item] = value
