"""Which runs crashed, which were resumed, and which are there twice."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeVar

from tracker.shape import Source, Tracked, in_order, joined

_COMPARED = 50  # rows of two histories that decide whether they are one
_OWN = frozenset(["_timestamp", "_runtime", "_wandb", "_step"])

Item = TypeVar("Item")


@dataclass
class Group:
    """Records of runs that are one, or that share a config."""

    kind: str  # copy: the same curve; resume: parts of one run; rerun: the same config, another curve
    runs: list[Tracked]

    @property
    def keep(self) -> Tracked:
        """The longest record of the longest run, and of equals the one that ended well."""
        return max(self.runs, key=lambda run: (self._whole(run), run.length, run.state == "finished", run.created))

    @property
    def ids(self) -> list[str]:
        return list(dict.fromkeys(run.id for run in self.runs))

    def _whole(self, run: Tracked) -> int:
        return sum(part.length for part in self.runs if part.id == run.id)


def groups(source: Source, runs: list[Tracked]) -> list[Group]:
    whole = list(_by(runs, lambda run: f"{run.project}/{run.id}").values())  # every run as its records
    found = [Group("resume", parts) for parts in whole if len(parts) > 1]
    for same in _by(whole, _config_key).values():
        if len(same) > 1:
            found += _split(source, same)
    return found


def _by(items: list[Item], key: Callable[[Item], str]) -> dict[str, list[Item]]:
    result: dict[str, list[Item]] = {}
    for item in items:
        result.setdefault(key(item), []).append(item)
    return result


def _config_key(parts: list[Tracked]) -> str:
    last = max(parts, key=in_order)
    return last.project + json.dumps(last.settings(), sort_keys=True, default=str)


def _split(source: Source, same: list[list[Tracked]]) -> list[Group]:
    """Of runs with one config: those whose curves are equal are copies, the others re-runs."""
    by_curve = _by(same, lambda parts: _curve_key(source, parts))
    found = [Group("copy", list(chain(*copies))) for key, copies in by_curve.items() if len(copies) > 1 and key]
    if len(by_curve) > 1:
        found.append(Group("rerun", list(chain(*(copies[0] for copies in by_curve.values())))))
    return found


def _curve_key(source: Source, parts: list[Tracked]) -> str:
    digest = hashlib.sha256()
    count = 0
    for row in islice(joined(source, parts), _COMPARED):
        values = {key: value for key, value in row.items() if key not in _OWN}
        digest.update(json.dumps([row.get("_step"), values], sort_keys=True, default=str).encode())
        count += 1
    return digest.hexdigest() if count else ""


def prunable(source: Source, runs: list[Tracked], shorter_than: int) -> list[tuple[Tracked, str]]:
    """What could go, each with its reason: copies beside a longer one, and runs that died before they began."""
    plan = []
    for group in groups(source, runs):
        if group.kind == "copy":
            plan += [(run, f"a copy of {group.keep.id}") for run in group.runs if run.id != group.keep.id]
    planned = {run.where for run, _ in plan}
    records = Counter((run.project, run.id) for run in runs)
    for run in runs:
        if run.where in planned or records[run.project, run.id] > 1:  # part of a run that was resumed
            continue
        if run.state in ("crashed", "failed") and run.length < shorter_than:
            plan.append((run, f"{run.state} after {run.length} rows"))
    return plan
