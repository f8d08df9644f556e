"""Runs that others made, as one thing whatever wrote them. Each sibling reads one format and fills this contract.

Example:
    run = Foreign("seed0", "csv", Path("seed0.csv"))
    run.add(10, {"train/loss": 2.3, "val/loss": 2.5})       two rows: loss of train, loss of val
    run.record()                                            the fields of run.json

A reader gives what can be read; the rest is a sentence in `gaps`. It never changes, locks or links its source.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rgt import files
from rgt.job import settings
from rgt.metrics.table import SPLIT_WORDS, SPLITS, known, split_and_rest, split_of
from rgt.run import record

MOST_BYTES = 1 << 30  # of one text file
LIVE = 300  # seconds since the last write: it may still be going
MAY_GO_ON = "it was written to within the last minutes and may still be going: adopt it again at its end"
NO_SPLIT = "counted as train, because no split is named (--split)"
NAMED_SEED = "its seed is read from its name"
_LONGEST_NAME = 200
_HEAD = ("step", "time", "split")
_IN_NAME = re.compile(r"(?:^|[^a-z])seed[-_= ]?(\d{1,9})(?!\d)", re.I)
_SETTINGS = 2000  # of one run
Row = dict[str, Any]


@dataclass(frozen=True)
class Ask:
    """What the user says about tables, which do not say it themselves."""

    metrics: tuple[str, ...] = ()
    group: str | None = None  # column: the arm of a run
    seed: str | None = None  # column
    split: str | None = None  # of values that name none


@dataclass
class Foreign:
    name: str  # as its maker called it
    format: str
    source: Path | str  # the file or folder it was read from, or an address
    key: str = ""  # which run of a source that holds several
    points: dict[tuple[int, str], Row] = field(default_factory=dict)  # (step, split or "") -> values
    unnamed: str = "train"  # the split of values that name none
    results: list[Row] = field(default_factory=list)  # rows of results.json: values that have no curve
    values: list[tuple[str, float]] = field(default_factory=list)  # every number of an evaluation, by its dotted key
    config: dict[str, Any] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    commit: str = ""
    host: str = ""
    devices: list[str] = field(default_factory=list)  # a name per card
    began: float = 0.0  # seconds since 1970; 0 when nobody recorded it
    ended: float = 0.0
    state: str = record.UNKNOWN
    log: Path | None = None
    gaps: list[str] = field(default_factory=list)  # what could not be read, or was not taken for granted

    def add(self, step: int, values: Mapping[str, Any], when: float = 0.0, split: str | None = None) -> None:
        """The numbers of one step. val/loss is the loss of the split val; of a step computed twice the later counts."""
        if not 0 <= step < 1 << 53:
            return
        for key, value in values.items():
            number = as_number(value)
            if number is None or key in _HEAD or len(key) > _LONGEST_NAME:
                continue
            told, name = (split, key) if split else split_and_rest(key)
            told = told or split_of(key) or ""
            if name != key and name in values and told == "train":
                name = key  # `loss` and `train/loss` side by side are two things
            row = self.points.setdefault((step, told), {})
            row[name if name not in _HEAD else key] = files.json_number(number)
            row["time"] = when if 0 < when < 1e12 else row.get("time", 0.0)

    def report(self, name: str, value: float, split: str | None, source: Path, **more: Any) -> None:
        """A value without a curve; what results.json needs and nobody says is named."""
        told, rest = split_and_rest(name)
        metric = known(rest)
        split = split or told or split_of(name)
        if metric is None or split not in SPLITS:
            lacking = "split" if metric else "direction"
            self.gaps.append(f"{name} = {value:g} is no result: its {lacking} is not known")
            return
        if not math.isfinite(value):
            self.gaps.append(f"{name} = {value} is no result")
            return
        row = {"name": rest, "value": value, "split": split, "direction": metric.direction, "source": str(source)}
        self.results.append({**row, "rule": "reported", **more})

    @property
    def rows(self) -> list[Row]:
        """For metrics.jsonl, in the order of steps."""
        merged: dict[tuple[int, str], Row] = {}
        for (step, split), row in sorted(self.points.items()):
            merged.setdefault((step, split or self.unnamed), {}).update(row)
        return [{**row, "step": step, "split": split} for (step, split), row in sorted(merged.items())]

    @property
    def metrics(self) -> dict[str, int]:
        """`val loss` -> its number of points."""
        return Counter(
            f"{split or self.unnamed} {name}"
            for (_, split), row in self.points.items()
            for name in row.keys() - {"time"}
        )

    @property
    def seeds(self) -> dict[str, int]:
        """As its settings or its command say; else as its name does, which is told."""
        found = settings.seeds(self.config, self.command)
        if not found and (named := _IN_NAME.search(self.name)):
            found = {"seed": int(named[1])}
        return found

    @property
    def span(self) -> tuple[float, float]:
        """When it began and ended, by its own record or the clocks of its rows; 0 when neither says it."""
        clocks = [row["time"] for row in self.points.values() if row["time"] > 1e9]
        return self.began or min(clocks, default=0.0), self.ended or max(clocks, default=0.0)

    @property
    def digest(self) -> str:
        """sha256 of what was read: the same run adopted again gives the same."""
        told = {"config": self.config, "rows": self.rows, "results": self.results, "command": self.command}
        return hashlib.sha256(files.dump(told, self.name, sort_keys=True)).hexdigest()

    def record(self) -> dict[str, Any]:
        """The fields of run.json but its id. What nobody recorded is null, not a guess."""
        place = self.source.resolve() if isinstance(self.source, Path) else self.source
        began = self.span[0] or (os.stat(place).st_mtime if os.path.exists(place) else time.time())
        git: Row | None = {"commit": self.commit, "branch": "", "dirty": None, "untracked": []} if self.commit else None
        origin: Row = {"name": self.name, "format": self.format, "source": str(place), "sha256": self.digest}
        origin |= {"key": self.key} if self.key else {}
        origin |= {"gaps": self.gaps[:20]} if self.gaps else {}
        return {
            "created": datetime.fromtimestamp(began, timezone.utc).isoformat(timespec="seconds"),
            "command": self.command,
            "cwd": "",
            "config": self.config,
            "config_sha256": record.config_hash(self.config),
            "seeds": self.seeds,
            "backend": self.format,
            "job": {},
            "git": git,
            "env": {"python": None, "executable": None, "packages": None},
            "host": {"name": self.host, "platform": "", "cpus": None} if self.host else None,
            "devices": [{"index": at, "name": name} for at, name in enumerate(self.devices)] or None,
            "adopted_from": origin,
        }

    def settle(self, *paths: Path) -> Foreign:
        """After reading: is it still being written?"""
        self.config = dict(list(self.config.items())[:_SETTINGS])
        newest = max((os.stat(path).st_mtime for path in paths), default=0.0)
        if self.state in (record.UNKNOWN, record.RUNNING) and time.time() - newest < LIVE:
            self.gaps.append(MAY_GO_ON)
        return self

    def doubts(self) -> list[str]:
        """What is taken for granted: a seed in its name, and train for metrics that name no split."""
        seed = [NAMED_SEED] if self.seeds and not settings.seeds(self.config, self.command) else []
        bare = {name for (_, split), row in self.points.items() if not split for name in row}
        guessed = sorted(name for name in bare if (metric := known(name)) and metric.name != "loss")
        return [*seed, *([f"{NO_SPLIT}: {', '.join(guessed[:5])}"] if guessed else [])]


def as_number(value: Any) -> float | None:
    """None for what is no number; a word such as NaN is one."""
    try:
        is_one = "_" not in value if isinstance(value, str) else isinstance(value, (int, float))
        return float(value) if is_one and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        return None


def as_setting(value: str) -> Any:
    """A setting that a tracker wrote as text: `0.1` is a number again."""
    number = as_number(value)
    if number is None or not math.isfinite(number):
        return value[:1000]
    return int(value) if re.fullmatch(r"-?\d{1,15}", value) else number


def flat(config: Any) -> dict[str, Any]:
    """Nested settings as strict JSON with dotted keys."""
    return {one.key: strict(one.value) for one in settings.flatten(config) if one.key} if config else {}


def strict(value: Any) -> Any:
    """NaN and infinities as the words that stand for them in JSON; what JSON has no form for as text."""
    if isinstance(value, dict):
        return {str(key): strict(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(inner) for inner in value]
    if isinstance(value, float):
        return files.json_number(value)
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def split_word(value: Any) -> str | None:
    return SPLIT_WORDS.get(str(value or "").strip().lower())
