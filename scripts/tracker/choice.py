"""Which run a word of the command line means. A resumed run has several records, and they are one run."""

from __future__ import annotations

from collections import Counter

from rgt.errors import bad_input
from rgt.report import progress
from tracker.shape import Source, Tracked, in_order


def records(runs: list[Tracked], run_id: str) -> list[Tracked]:
    """Every record of the run with this id, or else this name, as they were begun."""
    found = [run for run in runs if run.id == run_id] or [run for run in runs if run.name == run_id]
    if not found:
        raise bad_input(f"no run {run_id}; there are: {', '.join(run.id for run in runs[:10])}")
    named = list(dict.fromkeys((run.project, run.id) for run in found))
    if len(named) > 1:
        ids = ", ".join(dict.fromkeys(one for _, one in named[:10]))
        raise bad_input(f"{run_id} names {len(named)} runs: {ids}; name one by its id, or its own place as SOURCE")
    return sorted(found, key=in_order)


def longest(runs: list[Tracked], run_id: str) -> Tracked:
    found = records(runs, run_id)
    chosen = max(found, key=lambda run: run.length)
    if len(found) > 1:
        progress(f"{len(found)} records of {run_id} (a resumed or copied run); this is the longest: {chosen.where}")
    return chosen


def whole(source: Source, run_id: str) -> list[Tracked]:
    """Every record of one run, the last one last; that they are joined is told."""
    parts = records(source.runs(), run_id)
    if len(parts) > 1:
        _say_joined(source, parts)
    return parts


def _say_joined(source: Source, parts: list[Tracked]) -> None:
    count: Counter[int] = Counter()
    said = []
    for part in parts:
        steps = {row["_step"] for row in source.history(part)}
        count.update(steps)
        said.append(f"{part.where} ({f'steps {min(steps)} to {max(steps)}' if steps else 'no steps'})")
    both = sum(times > 1 for times in count.values())
    progress(
        f"{len(parts)} records of {parts[0].id} were joined by step, the later one counts where both have a step "
        f"({both}): {', '.join(said)}"
    )
