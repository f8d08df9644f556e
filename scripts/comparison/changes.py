"""What differs between two arms besides the seeds: settings, code, data, environment, budget.

Exactly one variable is an experiment. More than one: each is a confound until somebody says which one was meant, and
the others stay confounds even then.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from comparison import settings
from comparison.model import Arm, Note, Sample, Trial, count

_SHOWN = 12  # confounds with a line of their own
_VALUES = 4
_SAME = 0.01  # relative difference of budgets that is no difference
PARTS = ("config", "code", "environment")


@dataclass
class Change:
    key: str
    kind: str  # config | code | data | env | budget
    a: str
    b: str
    evidence: str | None = None

    def __str__(self) -> str:
        return f"{self.key}: {self.a} vs {self.b}"


@dataclass
class Changes:
    found: list[Change]
    variable: Change | None  # the one thing that was varied, if it is one
    confounds: list[Change]
    notes: list[Note]
    recorded: bool  # config, code and environment are known for all runs


def compare(a: Arm, b: Arm, intended: str | None) -> Changes:
    found = [*_settings(a, b), *_code(a, b), *_environment(a, b), *_data(a, b)]
    found += _budget(a, b, found)
    missing = [part for part in PARTS if not _has(a, part) or not _has(b, part)]
    notes = [*_doubted(a), *_doubted(b), *_mixed(a, b), *_mixed(b, a), *_devices(a, b)]
    if missing:
        notes.append(_unrecorded(missing))
    variable, confounds = _variable(found, intended)
    notes += [_confound_note(change, intended) for change in confounds[:_SHOWN]]
    if len(confounds) > _SHOWN:
        more = count(len(confounds) - _SHOWN, "more difference")
        notes.append(Note("confound", "warn", f"{more}; --json lists them all", blocks="undecided"))
    if intended and variable is None:
        notes.append(_unapplied(intended, a, b))
    elif not found and not missing:
        message = "nothing that was recorded differs between the arms except the seeds"
        notes.append(Note("confound", "info", message, disclose="no recorded setting differs"))
    return Changes(found, variable, confounds, notes, not missing)


def _variable(found: list[Change], intended: str | None) -> tuple[Change | None, list[Change]]:
    if intended:
        mine = [change for change in found if _matches(change.key, intended)]
        return (mine[0] if mine else None), [change for change in found if change not in mine]
    return (found[0], []) if len(found) == 1 else (None, found)


def _matches(key: str, intended: str) -> bool:
    key, wanted = key.lower().lstrip("-"), intended.lower().lstrip("-")
    return key == wanted or key.startswith(wanted + ".") or key.endswith("." + wanted)


def _confound_note(change: Change, intended: str | None) -> Note:
    meant = f"beside the intended {intended}" if intended else "and it is not the only change"
    fix = None if intended else "name the variable you meant with --intended; the others stay confounds"
    code = "budget" if change.kind == "budget" else "confound"
    return Note(code, "warn", f"{change} differs, {meant}", "undecided", str(change), fix, change.evidence)


def _unapplied(intended: str, a: Arm, b: Arm) -> Note:
    keys = {key for arm in (a, b) for trial in arm.trials for key in trial.config or {}}
    if any(_matches(key, intended) for key in keys):
        message = f"the intended variable {intended} has the same value in both arms: the change was not applied"
    else:
        near = sorted(key for key in keys if settings.kind(key) == "config")[:12]
        message = f"the intended variable {intended} is in no record; known are {', '.join(near) or 'none'}"
    return Note(
        "unapplied", "error", message, "bug-suspect", f"{intended} does not differ between the recorded configs"
    )


def _unrecorded(missing: list[str]) -> Note:
    what = ", ".join(missing)
    message = f"not recorded for all runs: {what}; a confound there cannot be seen"
    return Note("unrecorded", "warn", message, disclose=f"{what} not recorded, so confounds there cannot be excluded")


def _has(arm: Arm, part: str) -> bool:
    field = {"config": "config", "code": "code", "environment": "env"}[part]
    return all(getattr(trial, field) for trial in arm.trials)


# -- the five kinds


def _values(arm: Arm, key: str) -> list[str]:
    return sorted({settings.show((trial.config or {}).get(key)) for trial in arm.trials})


def _settings(a: Arm, b: Arm) -> Iterator[Change]:
    if not (_has(a, "config") and _has(b, "config")):
        return
    keys = {key for arm in (a, b) for trial in arm.trials for key in trial.config or {}}
    for key in sorted(keys):
        what = settings.kind(key)
        if what not in ("seed", "harmless"):
            yield from _change(key, what, _values(a, key), _values(b, key))


def _change(key: str, what: str, a: list[str], b: list[str], evidence: str | None = None) -> Iterator[Change]:
    if a != b:
        yield Change(key, what, _shown(a), _shown(b), evidence)


def _shown(values: list[str]) -> str:
    cut = [value if len(value) <= 80 else value[:77] + "..." for value in values[:_VALUES]]
    return "/".join(cut) + (f"/... ({len(values)} values)" if len(values) > _VALUES else "")


def _code(a: Arm, b: Arm) -> Iterator[Change]:
    if not (_has(a, "code") and _has(b, "code")):
        return
    for name in ("commit", "diff"):
        left, right = (sorted({(t.code or {}).get(name, "not recorded")[:12] for t in arm.trials}) for arm in (a, b))
        files = sorted({file for arm in (a, b) for trial in arm.trials for file in _diff_files(trial)})
        evidence = f"uncommitted changes in {', '.join(files[:8])}" if name == "diff" and files else None
        yield from _change(f"code.{name}", "code", left, right, evidence)


def _diff_files(trial: Trial) -> list[str]:
    return re.findall(r"^diff --git a/(\S+)", trial.diff, re.M)[:50]


def _environment(a: Arm, b: Arm) -> Iterator[Change]:
    if not (_has(a, "environment") and _has(b, "environment")):
        return
    for name in sorted({name for arm in (a, b) for trial in arm.trials for name in trial.env or {}}):
        left, right = (sorted({(trial.env or {}).get(name, "not there") for trial in arm.trials}) for arm in (a, b))
        yield from _change(f"env.{name}", "env", left, right)
    cards = [sorted({str(trial.cards) for trial in arm.trials if trial.cards}) for arm in (a, b)]
    if all(cards):
        yield from _change("env.cards", "env", cards[0], cards[1])


def _data(a: Arm, b: Arm) -> Iterator[Change]:
    for name in sorted({name for arm in (a, b) for trial in arm.trials for name in trial.data}):
        left, right = (sorted({trial.data.get(name, "not recorded")[:12] for trial in arm.trials}) for arm in (a, b))
        yield from _change(f"data.{name}", "data", left, right)


def _budget(a: Arm, b: Arm, found: list[Change]) -> Iterator[Change]:
    """What was spent; it is no second variable where the config already says so (max_steps: 1000 vs 2000)."""
    planned = any(change.kind == "budget" for change in found)
    for name in ("steps", "tokens", "tuning_trials"):
        sides = [[t.budget[name] for t in arm.trials if name in t.budget] for arm in (a, b)]
        if not all(sides) or (planned and name != "tuning_trials") or any(name in c.key for c in found):
            continue
        middles = [statistics.median(side) for side in sides]
        if abs(middles[0] - middles[1]) > _SAME * max(map(abs, middles)):
            yield Change(f"budget.{name}", "budget", *(f"{middle:g}" for middle in middles))


# -- within one arm


def _doubted(arm: Arm) -> Iterator[Note]:
    for doubt in sorted({doubt for trial in arm.trials for doubt in trial.doubts}):
        those = [trial for trial in arm.trials if doubt in trial.doubts]
        message = f"arm {arm.name}, {count(len(those), 'run')}: {doubt}; what ran cannot be told from the record"
        yield Note("unrecorded", "error", message, "undecided", message, path=those[0].source)


def _mixed(arm: Arm, other: Arm) -> Iterator[Note]:
    """An arm is one setting at several seeds. The same mix in both arms (folds, datasets) is a design, not a slip."""
    keys = sorted({key for trial in arm.trials for key in trial.config or {}})
    for key in keys:
        values = _values(arm, key)
        if len(values) > 1 and values != _values(other, key) and settings.kind(key) not in ("seed", "harmless"):
            message = f"arm {arm.name} mixes runs with {key} = {_shown(values)}"
            yield Note("mixed", "warn", message, "undecided", message, "give each setting its own arm: another --vs")
    commits = {(t.code or {}).get("commit") for t in arm.trials}
    if len(commits) > 1:
        message = f"arm {arm.name} mixes runs of {len(commits)} code commits"
        yield Note("mixed", "warn", message, "undecided", message)


def _devices(a: Arm, b: Arm) -> Iterator[Note]:
    sides = [sorted({name for trial in arm.trials for name in trial.devices}) for arm in (a, b)]
    if all(sides) and sides[0] != sides[1]:
        message = f"arm {a.name} ran on {_shown(sides[0])}, arm {b.name} on {_shown(sides[1])}"
        yield Note("hardware", "warn", message, disclose=message)


# -- the eval set


def eval_set(a: Sample, b: Sample) -> Iterator[Note]:
    hashes = {reading.eval_set for sample in (a, b) for reading in sample.readings}
    sizes = {reading.n for sample in (a, b) for reading in sample.readings if reading.n is not None}
    if len(hashes - {None}) > 1:
        shown = " vs ".join(_shown(sorted({(r.eval_set or "none")[:12] for r in s.readings})) for s in (a, b))
        message = f"the eval sets differ: {shown}; the numbers are not of the same thing"
        yield Note("eval-set", "error", message, "bug-suspect", "the arms were evaluated on different sets")
    elif len(sizes) > 1:
        message = f"the values rest on different numbers of examples: {', '.join(map(str, sorted(sizes)))}"
        yield Note("eval-set", "error", message, "bug-suspect", message)
    elif None in hashes and not any(trial.items for trial in a.trials):
        message = "the eval set's hash is not recorded for all runs: that both arms saw the same one is not shown"
        yield Note("unrecorded", "warn", message, disclose="eval-set hash not recorded")
