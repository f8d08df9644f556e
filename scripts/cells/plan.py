"""sweep.yaml as cells: a job description each, checked before anything starts."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import backends
from cells import MARK
from rgt import files, job, rundir, schema, submit
from rgt.errors import bad_input
from rgt.ids import slugify


@dataclass(frozen=True)
class Cell:
    id: str
    values: dict[str, str]
    spec: dict[str, Any]  # the job description with the values in it

    @property
    def title(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.values.items())

    @property
    def name(self) -> str:
        """Name of its job; the run id is cut at 40 characters and must still end in the cell's id."""
        return f"{slugify(self.spec['name'])[:31]}-{self.id}"

    @property
    def job_sha256(self) -> str:
        """Of what the job is told; a longer time limit does not make it another experiment."""
        told = {key: self.spec.get(key) for key in ("command", "script", "args", "env", "workdir", "image")}
        return rundir.config_hash(told)


@dataclass(frozen=True)
class Sweep:
    path: Path
    cells: list[Cell]
    targets: list[str]
    verify: dict[str, Any]

    @property
    def directory(self) -> Path:
        return self.path.with_suffix(".sweep")

    def description(self, cell: str) -> Path:
        """The job description that launch reads."""
        return self.directory / f"{cell}.job.yaml"

    def job(self, cell: Cell) -> job.Job:
        return job.from_dict(cell.spec, self.directory)


def load(path: Path) -> Sweep:
    """Read sweep.yaml and every job description it makes, before anything starts."""
    path = path.absolute()
    data = job.load_yaml(path, "sweep")
    spec = _job_spec(path, data["job"])
    values = _values(path, data)
    _check_holes(path, spec, values, data.get("verify", {}))
    cells = [Cell(_cell_id(each), each, submit.fill(spec, each)) for each in values]
    twice = [cell for cell, count in Counter(cell.id for cell in cells).items() if count > 1]
    if twice:
        same = next(cell for cell in cells if cell.id == twice[0])
        raise bad_input(f"{path} has a cell twice: {same.title}; for repeats of a cell use seeds")
    sweep = Sweep(path, cells, data.get("targets", ["local"]), data.get("verify", {}))
    for target in sweep.targets:
        backends.parse_target(target)
    for cell in cells:
        sweep.job(cell)
    return sweep


def _job_spec(path: Path, given: str | dict[str, Any]) -> dict[str, Any]:
    """The description, with its folder made absolute: the cells' descriptions lie elsewhere."""
    source = path.parent / given if isinstance(given, str) else path
    spec = job.load_yaml(source, "job") if isinstance(given, str) else given
    schema.check(spec, "job", str(source) if isinstance(given, str) else f"{path} job")
    if MARK in spec.get("env", {}):
        raise bad_input(f"{source} sets {MARK}, which is how a sweep finds its runs; take it out of env")
    return {**spec, "workdir": job.from_dict(spec, source.parent).workdir}


def _values(path: Path, data: dict[str, Any]) -> list[dict[str, str]]:
    if ("grid" in data) == ("cells" in data) and not ("seeds" in data and "grid" not in data):
        both = "gives both grid and cells" if "grid" in data else "names no cells"
        raise bad_input(f"{path} {both}; it needs grid (every combination) or cells (exactly these), or seeds alone")
    grid = data.get("grid", {})
    rows = data.get("cells") or [
        dict(zip(grid, combination, strict=True)) for combination in itertools.product(*grid.values())
    ]
    if "seeds" in data:
        if any("seed" in row for row in rows):
            raise bad_input(f"{path} gives seed twice: in seeds and among the values")
        rows = [{**row, "seed": seed} for row in rows for seed in data["seeds"]]
    return [{name: submit.text(value) for name, value in row.items()} for row in rows]


def _check_holes(path: Path, spec: dict[str, Any], values: list[dict[str, str]], verify: dict[str, Any]) -> None:
    """Each placeholder has a value in every cell, and each value has a place: else cells would differ only in name."""
    open_ = submit.holes(spec)
    judged = submit.holes({"command": verify.get("command", [])})
    for row in values:
        lacking = sorted((open_ | judged) - set(row))
        if lacking:
            raise bad_input(f"{path}: the job asks for {{{lacking[0]}}}, but a cell has no {lacking[0]}: {row}")
        unused = sorted(set(row) - open_)
        if unused:
            name = unused[0]
            raise bad_input(f"{path}: {name} never reaches the job; write {{{name}}} in command, args or env")


def _cell_id(values: dict[str, str]) -> str:
    """The same for the same values, whatever their order."""
    return hashlib.sha256(files.dump(values, "a cell", sort_keys=True)).hexdigest()[:8]
