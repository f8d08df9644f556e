"""Which runs crashed, which were resumed, and which are there twice."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from tracker.shape import Source, Tracked

_COMPARED = 50  # rows of two histories that decide whether they are one
_OWN = frozenset(["_timestamp", "_runtime", "_wandb", "_step"])


@dataclass
class Group:
    """Runs that are one, or that share a config."""

    kind: str  # copy: the same curve; resume: parts of one run; rerun: the same config, another curve
    runs: list[Tracked]

    @property
    def keep(self) -> Tracked:
        """The longest, and of equals the one that ended well."""
        return max(self.runs, key=lambda run: (run.rows or run.steps, run.state == "finished", run.created))


def groups(source: Source, runs: list[Tracked]) -> list[Group]:
    found: list[Group] = []
    by_id = _by(runs, lambda run: f"{run.project}/{run.id}")
    found += [Group("resume", parts) for parts in by_id.values() if len(parts) > 1]
    single = [parts[0] for parts in by_id.values() if len(parts) == 1]
    for same in _by(single, _config_key).values():
        if len(same) > 1:
            found += _split(source, same)
    return found


def _by(runs: list[Tracked], key: Any) -> dict[str, list[Tracked]]:
    result: dict[str, list[Tracked]] = {}
    for run in runs:
        result.setdefault(key(run), []).append(run)
    return result


def _config_key(run: Tracked) -> str:
    return run.project + json.dumps(run.settings(), sort_keys=True, default=str)


def _split(source: Source, same: list[Tracked]) -> list[Group]:
    """Of runs with one config: those whose curves are equal are copies, the others re-runs."""
    by_curve = _by(same, lambda run: _curve_key(source, run))
    found = [Group("copy", runs) for key, runs in by_curve.items() if len(runs) > 1 and key]
    if len(by_curve) > 1:
        found.append(Group("rerun", [runs[0] for runs in by_curve.values()]))
    return found


def _curve_key(source: Source, run: Tracked) -> str:
    digest = hashlib.sha256()
    count = 0
    for row in source.history(run):
        values = {key: value for key, value in row.items() if key not in _OWN}
        digest.update(json.dumps([row.get("_step"), values], sort_keys=True, default=str).encode())
        count += 1
        if count == _COMPARED:
            break
    return digest.hexdigest() if count else ""


def prunable(source: Source, runs: list[Tracked], shorter_than: int) -> list[tuple[Tracked, str]]:
    """What could go, each with its reason: copies beside a longer one, and runs that died before they began."""
    plan = []
    for group in groups(source, runs):
        if group.kind == "copy":
            plan += [(run, f"a copy of {group.keep.id}") for run in group.runs if run is not group.keep]
    planned = {run.where for run, _ in plan}
    for run in runs:
        if run.where not in planned and run.state in ("crashed", "failed") and (run.rows or run.steps) < shorter_than:
            plan.append((run, f"{run.state} after {run.rows if run.rows is not None else run.steps} rows"))
    return plan
