"""EVIDENCE.json: the claims, and their values computed anew from the runs they rest on.

Example:
    project = load(Path("EVIDENCE.json"))
    value, spread, n = project.measure(claim)         from the results.json of its runs
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt import bundle, files, git
from rgt.errors import bad_input
from rgt.metrics.table import split_and_rest
from rgt.run import record, seal
from rgt.run.record import Run
from rgt.walk import walk

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

    def claim(self, claim_id: str) -> Claim:
        for claim in self.claims:
            if claim["id"] == claim_id:
                return claim
        known = ", ".join(claim["id"] for claim in self.claims[:8]) or "none"
        raise bad_input(f"{self.path} has no claim {claim_id}; it has: {known}")

    def run(self, run_id: str) -> Run:
        """The run of that id, anywhere below the project."""
        if not self._runs:
            self._runs = {run.id: run for run in record.find(self.root)}
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
        values: list[float] = []
        for run_id in runs_of(claim):
            values.append(self.result(run_id, claim)["value"])
            if not math.isfinite(values[-1]):
                raise bad_input(f"{self.run(run_id).results}: {claim['metric']} is {values[-1]}; that is no result")
        spread = statistics.stdev(values) if len(values) > 1 else None
        return math.fsum(values) / len(values), spread, len(values)

    def value_problems(self, claim: Claim) -> Iterator[str]:
        """Which number of a claim its runs do not give."""
        for name, number in zip(("value", "spread", "n"), self.measure(claim), strict=True):
            # a claim holds the very numbers of its runs: only what a rounding in the last bit changes is allowed
            if name in claim and (number is None or not math.isclose(claim[name], number, rel_tol=1e-9, abs_tol=1e-15)):
                yield f"{name} is {claim[name]!r} here and {number!r} in its runs"

    def sealing_problems(self, claim: Claim) -> Iterator[tuple[str, str]]:
        """Which run is not sealed, or sealed anew since: code and sentence."""
        for item in claim["evidence"]:
            run = self.run(item["run_id"])
            if "seal_sha256" not in item or not run.seal.exists():
                yield "unsealed", f"{run.id} is not sealed: it may change unseen"
            elif seal.digest_of(run.seal) != item["seal_sha256"]:
                yield "digest", f"the seal of {run.id} is not the one this claim was computed from"

    def result(self, run_id: str, claim: Claim) -> dict[str, Any]:
        """The row of a run's results.json that a claim speaks of."""
        run = self.run(run_id)
        rows: list[dict[str, Any]] = files.read_json(run.results, "results")["metrics"]
        named = [item["metric"] for item in claim["evidence"] if item["run_id"] == run_id and "metric" in item]
        name = named[0] if named else claim["metric"]
        fitting = [row for row in rows if row["name"].lower() == name.lower()]
        if not fitting:  # as the run's own file spells it: val_acc is the acc of val
            split, rest = split_and_rest(name)
            fitting = [row for row in rows if split and (row["name"], row.get("split")) == (rest, split)]
        for key in ("split", "dataset"):
            fitting = [row for row in fitting if key not in claim or row.get(key, claim[key]) == claim[key]]
        if len(fitting) == 1:
            return fitting[0]
        have = ", ".join(sorted({_title(row) for row in rows}))
        many = "no" if not fitting else "more than one"
        raise bad_input(f"{run.results} has {many} {_title({**claim, 'name': name})}; it has: {have}")

    @property
    def ledger(self) -> Path:
        return self.path.with_name(f"{self.path.stem}.ledger.jsonl")

    def note(self, act: str, claim: Claim, because: str = "") -> None:
        """A claim that leaves EVIDENCE.json stays on record."""
        row = {"time": time.time(), "act": act, "claim": claim, **({"because": because} if because else {})}
        files.append_jsonl(self.ledger, row)

    def save(self) -> None:
        files.write_json(self.path, self.data, "evidence")


def _title(row: dict[str, Any]) -> str:
    return " ".join(str(row[key]) for key in ("name", "split", "dataset") if row.get(key))


def empty(path: Path) -> Project:
    """The project of an EVIDENCE.json that is not written yet."""
    return Project(path, {"claims": [], "aliases": {}})


def load(path: Path) -> Project:
    if not path.exists():
        how = bundle.command("manifest_scaffold", "init", path.parent)
        raise bad_input(f"{path} does not exist; make it with {how}")
    data = files.read_json(path, "evidence")
    counts = Counter(claim["id"] for claim in data["claims"])
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise bad_input(f"{path} has the claim {twice[0]} twice; ids must be unique")
    for claim in data["claims"]:
        odd = [f"{key} is {claim[key]}" for key in ("value", "spread") if not math.isfinite(claim.get(key, 0))]
        if odd:
            raise bad_input(f"{path}, claim {claim['id']}: {odd[0]}; that is no result, compute it with claim add")
    return Project(path, data)


def runs_of(claim: Claim) -> list[str]:
    return [item["run_id"] for item in claim["evidence"]]


def checked_name(name: str) -> str:
    """The name of a figure or table, which stays inside its folder: EVIDENCE.json may be somebody else's."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,80}", name):
        raise bad_input(f"{name!r} is no name of a figure or table: letters, digits, dash, underscore and dot make one")
    return name


def words_of(claim: Claim) -> list[str]:
    """What it is about: metric, method, dataset and split, as far as it names them."""
    return [str(claim[key]) for key in ("metric", "method", "dataset", "split") if claim.get(key)]


# -- The documents of a project: those git knows, or every file; never inside runs, environments or hidden folders


_SKIPPED = frozenset(["runs", "node_modules", "site-packages", "__pycache__", "wandb", "build", "dist"])
_DATA = "source_data.csv"  # what a figure is drawn from: single runs, which state no claim; rgt render checks it


def chosen_documents(paths: tuple[Path, ...], root: Path, suffixes: frozenset[str]) -> list[Path]:
    """The documents among `paths` (files as they are, folders searched); without paths, those of `root`."""
    if not paths:
        return sorted(_in_folder(root, suffixes))
    documents: list[Path] = []
    for path in paths:
        if path.is_dir():
            documents += sorted(_in_folder(path, suffixes))
        elif path.exists():
            documents.append(path)
        else:
            raise bad_input(f"{path} does not exist; name documents or folders of them")
    return list(dict.fromkeys(documents))


def _in_folder(folder: Path, suffixes: frozenset[str]) -> Iterator[Path]:
    words = git.command(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    tracked: list[Path] = []
    with contextlib.suppress(FileNotFoundError):  # no git
        done = subprocess.run(words, capture_output=True)
        names = done.stdout.split(b"\0") if done.returncode == 0 else []
        tracked = [folder / os.fsdecode(name) for name in names if name]
    for path in filter(Path.is_file, tracked or (Path(entry.path) for _, entry, _ in walk(str(folder), links=False))):
        skipped = any(part in _SKIPPED or part.startswith(".") for part in path.relative_to(folder).parts)
        if path.suffix.lower() in suffixes and path.name != _DATA and not skipped:
            yield path


# -- the places that a claim names: documents that state it, lines of code that computed it


_LARGEST = 1 << 24  # bytes; more is no source file and no document


def place_problems(root: Path, claim: dict[str, Any]) -> Iterator[str]:
    """One sentence for each document or line that is not there, or not the one that was meant."""
    for anchor in claim.get("anchors", []):
        name, _, part = anchor.partition("#")
        if not (root / name).is_file():
            yield f"{name} does not exist"
        elif part and (text := "\n".join(_lines(root / name))):  # what is in a PDF or a slide deck is not looked up
            # an id, a label, or a heading as GitHub links to it: lower case, without signs, spaces as dashes
            word = re.escape(part)
            named = rf"""(id|name)=["']?{word}["'\s>]|\\label\{{{word}\}}|\{{#{word}\}}"""
            headings = re.findall(r"^#{1,6}\s+(.+?)\s*#*$", text, re.M)
            slugs = {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}
            if part.lower() not in slugs and not re.search(named, text):
                yield f"{name} has no heading, id or label {part!r}"
    for place in claim.get("code", []):
        name, line = _parts(place)
        if not (root / name).is_file():
            yield f"{name} does not exist"
            continue
        lines, remembered = [text.strip() for text in _lines(root / name)], claim.get("code_text", {}).get(place)
        there = 0 < line <= len(lines)
        if remembered is None and not there:
            yield f"{name} has {len(lines)} lines, not {line}"
        elif remembered is not None and not (there and lines[line - 1] == remembered):
            now = [str(number) for number, text in enumerate(lines, 1) if text == remembered]
            several = f"is now at lines {', '.join(now[:5])}" if now else "is gone"
            yield f"the line of {place} {f'moved to {name}:{now[0]}' if len(now) == 1 else several}: {remembered[:80]}"


def code_text(root: Path, places: list[str]) -> dict[str, str]:
    """What stands on these lines now."""
    return {place: _lines(root / name)[line - 1].strip() for place in places for name, line in [_parts(place)]}


def _parts(place: str) -> tuple[str, int]:
    name, _, line = place.rpartition(":")
    if not name or not line.isdecimal():
        raise bad_input(f"{place} is no file:line")
    return name, int(line)


def _lines(path: Path) -> list[str]:
    if path.stat().st_size > _LARGEST:
        return []
    data = path.read_bytes()
    return [] if b"\0" in data else data.decode("utf-8", "replace").splitlines()
