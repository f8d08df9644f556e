"""One run of a tracker."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from rgt.files import json_number

Row = dict[str, Any]


@dataclass
class Tracked:
    id: str
    name: str
    project: str
    state: str  # finished, failed, crashed, running, preempted
    created: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    group: str = ""
    tags: list[str] = field(default_factory=list)
    git: dict[str, str] = field(default_factory=dict)
    host: str = ""
    command: list[str] = field(default_factory=list)
    exit_code: int | None = None
    resumed: bool = False
    where: str = ""  # path or address
    damage: str = ""  # what is wrong with the record itself
    rows: int | None = None  # of its history; None when nobody counted yet

    @property
    def steps(self) -> int:
        """The last step the summary knows."""
        step = self.summary.get("_step")
        return int(step) if isinstance(step, (int, float)) and math.isfinite(step) else 0

    @property
    def length(self) -> int:
        """Its rows, or where nobody counted them its steps."""
        return self.steps if self.rows is None else self.rows

    def settings(self) -> dict[str, Any]:
        """The config without what the tracker adds, flattened and in strict JSON: {"optim.lr": 0.1}."""
        return dict(_flat({key: value for key, value in self.config.items() if not key.startswith("_wandb")}))


def _flat(data: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", strict(value)


def strict(value: Any) -> Any:
    """NaN and infinities as the words that stand for them in JSON."""
    if isinstance(value, dict):
        return {key: strict(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(inner) for inner in value]
    return json_number(value) if isinstance(value, float) else value


class Source(Protocol):
    def runs(self) -> list[Tracked]: ...

    def details(self, run: Tracked) -> None:
        """Fill in code, command and host, where the list does not give them."""
        ...

    def history(self, run: Tracked) -> Iterator[Row]:
        """Every row that was logged, in order; never a sample."""
        ...

    def delete(self, run: Tracked) -> str:
        """Take the run away; says where it went."""
        ...

    def remaining(self, deleted: list[Tracked]) -> list[Tracked]:
        """Those that are still there, or that nobody could see gone."""
        ...


def in_order(run: Tracked) -> tuple[str, str]:
    """Of the records of one run: as they were begun."""
    return run.created, run.where


def joined(source: Source, parts: list[Tracked]) -> Iterator[Row]:
    """The history of a resumed run, by step. Where two records have a step, the later one's values count."""
    if len(parts) == 1:
        yield from source.history(parts[0])
        return
    rows: dict[int, Row] = {}
    for part in sorted(parts, key=in_order):
        for row in source.history(part):
            rows[row["_step"]] = {**rows.get(row["_step"], {}), **row}
    yield from (rows[step] for step in sorted(rows))
