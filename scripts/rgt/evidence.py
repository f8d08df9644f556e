"""EVIDENCE.json: the claims, and their values computed anew from the runs they rest on.

Example:
    project = load(Path("EVIDENCE.json"))
    value, spread, n = project.measure(claim)         from the results.json of its runs
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt import files, rundir, seal
from rgt.errors import bad_input
from rgt.rundir import Run

Claim = dict[str, Any]


@dataclass
class Project:
    path: Path
    data: dict[str, Any]
    _runs: dict[str, Run] = field(default_factory=dict)
    _seals: dict[str, list[seal.Problem]] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return self.path.resolve().parent

    @property
    def claims(self) -> list[Claim]:
        claims: list[Claim] = self.data["claims"]
        return claims

    @property
    def aliases(self) -> dict[str, list[str]]:
        aliases: dict[str, list[str]] = self.data.get("aliases", {})
        return aliases

    def claim(self, claim_id: str) -> Claim:
        for claim in self.claims:
            if claim["id"] == claim_id:
                return claim
        known = ", ".join(claim["id"] for claim in self.claims[:8]) or "none"
        raise bad_input(f"{self.path} has no claim {claim_id}; it has: {known}")

    def run(self, run_id: str) -> Run:
        """The run of that id, anywhere below the project."""
        if not self._runs:
            self._runs = {run.id: run for run in rundir.find(self.root)}
        if run_id not in self._runs:
            raise bad_input(f"no run {run_id} below {self.root}")
        return self._runs[run_id]

    def seal_problems(self, run_id: str) -> list[seal.Problem]:
        """What differs from a run's seal; its files are hashed once, whatever the number of claims on it."""
        if run_id not in self._seals:
            self._seals[run_id] = seal.problems(self.run(run_id))
        return self._seals[run_id]

    def measure(self, claim: Claim) -> tuple[float, float | None, int]:
        """Mean, spread (sample standard deviation, None for one run) and number of runs."""
        values = [self._value(run_id, claim) for run_id in runs_of(claim)]
        spread = statistics.stdev(values) if len(values) > 1 else None
        return math.fsum(values) / len(values), spread, len(values)

    def _value(self, run_id: str, claim: Claim) -> float:
        value: float = self.result(run_id, claim)["value"]
        if not math.isfinite(value):
            raise bad_input(f"{self.run(run_id).results}: {claim['metric']} is {value}; that is no result")
        return value

    def result(self, run_id: str, claim: Claim) -> dict[str, Any]:
        """The row of a run's results.json that a claim speaks of."""
        run = self.run(run_id)
        rows = files.read_json(run.results, "results")["metrics"]
        name = next(
            (item["metric"] for item in claim["evidence"] if item["run_id"] == run_id and "metric" in item),
            claim["metric"],
        )
        fitting = [row for row in rows if row["name"].lower() == name.lower() and _fits(row, claim)]
        if len(fitting) == 1:
            found: dict[str, Any] = fitting[0]
            return found
        have = ", ".join(sorted({_title(row) for row in rows}))
        many = "no" if not fitting else "more than one"
        raise bad_input(f"{run.results} has {many} {_title({**claim, 'name': name})}; it has: {have}")

    def save(self) -> None:
        files.write_json(self.path, self.data, "evidence")


def _fits(row: dict[str, Any], claim: Claim) -> bool:
    return all(key not in claim or key not in row or row[key] == claim[key] for key in ("split", "dataset"))


def _title(row: dict[str, Any]) -> str:
    return " ".join(str(row[key]) for key in ("name", "split", "dataset") if row.get(key))


def load(path: Path) -> Project:
    data = files.read_json(path, "evidence")
    seen: set[str] = set()
    for claim in data["claims"]:
        if claim["id"] in seen:
            raise bad_input(f"{path} has the claim {claim['id']} twice; ids must be unique")
        seen.add(claim["id"])
    return Project(path, data)


def runs_of(claim: Claim) -> Iterator[str]:
    for item in claim["evidence"]:
        yield item["run_id"]
