"""What differs between two arms besides the seeds: settings, code, data, environment, budget.

Exactly one variable is an experiment. More than one: each is a confound until somebody says which one was meant, and
the others stay confounds even then.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from rgt import bundle
from rgt.compare_runs import flat_settings
from rgt.compare_runs.trial import Arm, Note, Sample, Trial, bug, told
from rgt.errors import bad_input
from rgt.report import plural

_SHOWN = 12  # confounds with a line of their own
_VALUES = 4
_SAME = 0.01  # budgets that differ by less than this share are the same
_PARTS = {"config": "config", "code": "code", "environment": "env"}  # part -> field of a Trial


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


def keep_settings(arms: list[Arm], wanted: tuple[str, ...], ignored: tuple[str, ...]) -> list[Note]:
    """Take out what is no setting; one note says what and why.

    What has its own value in each of several runs names the run. A table does not say which columns were set and which
    were measured: there a column that varies within an arm is left out, unless all arms hold the same mix of it (folds,
    data sets) or nearly all runs one value.
    """
    trials = [trial for arm in arms for trial in arm.trials]
    left: dict[str, list[str]] = {}
    for key in sorted({key for trial in trials for key in trial.config or {}}):
        values = [{setting(key, trial) for trial in arm.trials} for arm in arms]
        of_table = all(trial.table for trial in trials if key in (trial.config or {}))
        if any(_matches(key, word) for word in ignored):
            why = "--ignore"
        elif flat_settings.kind(key) in ("seed", "harmless"):
            continue
        elif wanted:
            why = "" if any(_matches(key, word) for word in wanted) else "not in --settings"
        elif of_table and flat_settings.is_measured(key):
            why = "measured"
        elif _names_runs(key, trials, values):
            why = "another one in every run"
        else:
            mixed = of_table and any(len(one) > 1 for one in values) and any(one != values[0] for one in values)
            most = Counter(setting(key, trial) for trial in trials).most_common(1)[0][1]
            # what is measured rarely repeats itself
            why = "varies within an arm" if mixed and 2 * most <= len(trials) else ""
        if why:
            left.setdefault(why, []).append(key)
    for trial in trials:
        gone = {key for keys in left.values() for key in keys}
        trial.left_out = {key: value for key, value in (trial.config or {}).items() if key in gone}
        trial.config = {key: value for key, value in trial.config.items() if key not in gone} if trial.config else None
    if not left:
        return []
    message = "left out as no settings: " + "; ".join(f"{', '.join(keys[:8])} ({why})" for why, keys in left.items())
    return [Note("confound", "info", message, disclose=message)]


def _names_runs(key: str, trials: list[Trial], values: list[set[str]]) -> bool:
    """A path, an id, a card, a time; 0.013 and 0.002 are rather drawn by a search, and other data is other data."""
    given = [(trial.config or {}).get(key) for trial in trials]
    if flat_settings.last(key) == "gpu" and all(isinstance(one, float) for one in given if one is not None):
        return True
    if all(re.match(r"\d{4}-\d\d-\d\d[T_ ]\d\d[-:]?\d\d", str(one)) for one in given if one is not None):
        return True
    ids = all(isinstance(one, str) or (isinstance(one, float) and one == int(one) and one >= 1000) for one in given)
    several = max(map(len, values)) > 1 and len(set(given)) == len(trials) > 2
    return ids and several and flat_settings.kind(key) != "data"


def paired_value(key: str, trial: Trial) -> str:
    """What --pair-by names, in one run."""
    known = {**trial.left_out, **(trial.config or {}), **({"seed": trial.seed} if trial.seed else {})}
    found = [flat_settings.show(value) for name, value in known.items() if _matches(name, key)]
    if not found:
        raise bad_input(
            f"{trial.source} records no {key} to pair by; it has {', '.join(sorted(known)[:20]) or 'nothing'}"
        )
    return found[0]


def compare(a: Arm, b: Arm, intended: str | None) -> Changes:
    runs = [*a.trials, *b.trials]
    missing = [part for part, name in _PARTS.items() if not all(getattr(trial, name) for trial in runs)]
    found = _changes(a, b, missing)
    notes = [*_arm_notes(a, b), *_arm_notes(b, a)]
    devices = [sorted({name for trial in arm.trials for name in trial.devices}) for arm in (a, b)]
    if all(devices) and devices[0] != devices[1]:
        message = f"arm {a.name} ran on {_shown(devices[0])}, arm {b.name} on {_shown(devices[1])}"
        notes.append(told("hardware", message))
    if missing:
        what = ", ".join(missing)
        message = f"not recorded for all runs: {what}; a confound there cannot be seen"
        notes.append(told("unrecorded", message, f"{what} not recorded, so confounds there cannot be excluded"))
    if intended:
        meant = [change for change in found if _matches(change.key, intended)]
        labels = {trial.label for trial in runs} if meant else set()  # `arm=new` in a table names what was meant
        variable = meant[0] if meant else None
        confounds = [change for change in found if change not in meant and change.key not in labels]
    else:
        variable, confounds = (found[0], []) if len(found) == 1 else (None, found)
    beside = f"beside the intended {intended}" if intended else "and it is not the only change"
    fix = None if intended else "name the variable you meant with --intended; the others stay confounds"
    for change in confounds[:_SHOWN]:
        code = "budget" if change.kind == "budget" else "confound"
        message = f"{change} differs, {beside}"
        notes.append(Note(code, "warn", message, "undecided", str(change), fix, change.evidence))
    if len(confounds) > _SHOWN:
        more = plural(len(confounds) - _SHOWN, "more difference")
        notes.append(Note("confound", "warn", f"{more}; --json lists them all", blocks="undecided"))
    known = [flat_settings.kind(key) for trial in runs for key in trial.config or {}]
    if intended and variable is None and set(known) - {"seed", "harmless"}:
        keys = {key for trial in runs for key in trial.config or {}}
        if any(_matches(key, intended) for key in keys):
            message = f"the intended variable {intended} has the same value in both arms: the change was not applied"
        else:
            near = sorted(key for key in keys if flat_settings.kind(key) == "config")[:12]
            message = f"the intended variable {intended} is in no record; known are {', '.join(near) or 'none'}"
        notes.append(bug("unapplied", message, f"{intended} does not differ between the recorded configs"))
    elif not found and not missing:
        message = "nothing that was recorded differs between the arms except the seeds"
        notes.append(Note("confound", "info", message, disclose="no recorded setting differs"))
    return Changes(found, variable, confounds, notes, not missing)


def _matches(key: str, intended: str) -> bool:
    key, wanted = key.lower().lstrip("-"), intended.lower().lstrip("-")
    return key == wanted or key.startswith(wanted + ".") or key.endswith("." + wanted)


def _changes(a: Arm, b: Arm, missing: list[str]) -> list[Change]:
    """Settings, code, environment, data and what was spent. A part that some run did not record is left out."""
    runs = [*a.trials, *b.trials]
    touched = sorted({file for trial in runs for file in re.findall(r"^diff --git a/(\S+)", trial.diff, re.M)[:50]})
    edited = f"uncommitted changes in {', '.join(touched[:8])}" if touched else None
    rows: list[tuple[str, str, Callable[[Trial], str]]] = []  # key, kind, its value in a run

    def entry(part: str, name: str, trial: Trial) -> str:
        value: str = (getattr(trial, part) or {}).get(name, "not there" if part == "env" else "not recorded")
        return value if part == "env" else value[:12]

    for part in [*(name for what, name in _PARTS.items() if what not in missing), "data"]:
        names = sorted({name for trial in runs for name in getattr(trial, part) or {}})
        if part == "config":
            rows += [(key, flat_settings.kind(key), partial(setting, key)) for key in names]
        else:
            rows += [(f"{part}.{name}", part, partial(entry, part, name)) for name in names]
    found = []
    for key, kind, value_of in rows:
        ours, theirs = ({value_of(trial) for trial in arm.trials} for arm in (a, b))
        if ours != theirs and kind not in ("seed", "harmless"):
            found.append(Change(key, kind, _shown(ours), _shown(theirs), edited if key == "code.diff" else None))
    ours, theirs = ({str(len(trial.devices)) for trial in arm.trials if trial.devices} for arm in (a, b))
    if ours and theirs and ours != theirs:  # a tracker knows the cards also where nobody recorded the packages
        found.append(Change("env.cards", "env", _shown(ours), _shown(theirs)))
    # a budget is not a second variable where the config already says so (max_steps: 1000 vs 2000)
    planned = any(change.kind == "budget" for change in found)
    for name in ("tuning_trials",) if planned else ("steps", "tokens", "tuning_trials"):
        sides = [[t.budget[name] for t in arm.trials if name in t.budget] for arm in (a, b)]
        if all(sides) and not any(name in change.key for change in found):
            one, other = map(statistics.median, sides)
            spread = max(max(side) - min(side) for side in sides)  # of runs that stopped early
            if abs(one - other) > max(spread, _SAME * max(abs(one), abs(other))):
                found.append(Change(f"budget.{name}", "budget", f"{one:g}", f"{other:g}"))
    return found


def setting(key: str, trial: Trial) -> str:
    return flat_settings.show((trial.config or {}).get(key))


def _shown(values: Iterable[str]) -> str:
    ordered = sorted(values)
    cut = [value if len(value) <= 80 else value[:77] + "..." for value in ordered[:_VALUES]]
    return "/".join(cut) + (f"/... ({len(ordered)} values)" if len(ordered) > _VALUES else "")


# -- within one arm


def _arm_notes(arm: Arm, other: Arm) -> Iterator[Note]:
    """An arm is one setting at several seeds. The same mix in both arms (folds, datasets) is a design, not a slip."""
    for doubt in sorted({doubt for trial in arm.trials for doubt in trial.doubts}):
        those = [trial for trial in arm.trials if doubt in trial.doubts]
        message = f"arm {arm.name}, {plural(len(those), 'run')}: {doubt}; what ran cannot be told from the record"
        yield Note("unrecorded", "error", message, "undecided", message, path=those[0].source)
    for key in sorted({key for trial in arm.trials for key in trial.config or {}}):
        values, others = ({setting(key, trial) for trial in side.trials} for side in (arm, other))
        if len(values) > 1 and values != others and flat_settings.kind(key) not in ("seed", "harmless"):
            message = f"arm {arm.name} mixes runs with {key} = {_shown(values)}"
            yield Note("mixed", "warn", message, "undecided", message, "give each setting its own arm: another --vs")
    commits = {(trial.code or {}).get("commit") for trial in arm.trials}
    if len(commits) > 1:
        message = f"arm {arm.name} mixes runs of {len(commits)} code commits"
        yield Note("mixed", "warn", message, "undecided", message)


# -- the eval set


def eval_set(a: Sample, b: Sample) -> Iterator[Note]:
    hashes = {reading.eval_set for sample in (a, b) for reading in sample.readings}
    for sample in (a, b):
        if typed := sum(reading.typed for reading in sample.readings):
            message = (
                f"arm {sample.arm.name}, {plural(typed, 'run')}: the value is typed, no rule says how it was computed"
            )
            fix = f"compute it: {bundle.command('results', '<run>', '--metric', '<name>', '--replace')}"
            yield told("unrecorded", message, f"values of {sample.arm.name} typed, not computed", fix=fix)
    sizes = {reading.n for sample in (a, b) for reading in sample.readings if reading.n is not None}
    if len(hashes - {None}) > 1:
        shown = " vs ".join(_shown({(r.eval_set or "none")[:12] for r in sample.readings}) for sample in (a, b))
        message = f"the eval sets differ: {shown}; the numbers are not of the same thing"
        yield bug("eval-set", message, "the arms were evaluated on different sets")
    elif len(sizes) > 1:
        yield bug("eval-set", f"the values rest on different numbers of examples: {', '.join(map(str, sorted(sizes)))}")
    elif None in hashes and not any(trial.items for trial in a.trials):
        message = "the eval set's hash is not recorded for all runs: that both arms saw the same one is not shown"
        yield told("unrecorded", message, "eval-set hash not recorded")
