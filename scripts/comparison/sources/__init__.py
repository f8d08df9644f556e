"""Readers: run directories, results.json, CSV and wandb exports, each into the same Trial."""

from __future__ import annotations

from pathlib import Path

from comparison.model import Trial
from comparison.sources import runs, tables
from rgt.errors import bad_input

_TABLES = (".csv", ".tsv")


def load(word: str, wanted: tuple[str, ...]) -> list[Trial]:
    """`path`, or `file.csv::column=value` for some of its rows."""
    name, marked, condition = word.partition("::")
    path = Path(name)
    column, equals, value = condition.rpartition("=")
    if marked and not equals:
        raise bad_input(f"{word}: expected FILE.csv::COLUMN=VALUE")
    if not path.exists():
        raise bad_input(f"{path} does not exist")
    if path.suffix.lower() in _TABLES:
        return tables.load(path, wanted, (column, value) if marked else None)
    if marked:
        raise bad_input(f"{word}: rows can only be selected from a CSV")
    if path.is_file() and path.suffix.lower() != ".json":
        raise bad_input(f"{path} is no run: expected a run directory, a .json or a .csv")
    return runs.load(path, wanted)
