"""A judge for pairs of arms, on pairs it has not seen: a few dozen ways to fool oneself, clean effects and noise."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

from trials.case import Box, Case
from worlds import parts, tool

EVERY, CLEAN, NOISE = 2, 6, 6
WRONG = 0.1  # the share that may be judged wrongly
_REFERENCE = """#!/bin/sh
python {scripts}/compare_runs.py "$1" --vs "$2" --metric "$3" --intended lr --json 2>/dev/null | python -c '
import json, sys
verdict = json.load(sys.stdin)["verdict"]
print({"effect": "publish", "noise": "noise"}.get(verdict, "hold"))'
"""


def make(box: Box) -> None:
    confounds = parts.of_tests("confounds")
    for name, specs in (("new", confounds.arm(confounds.NEW, 3e-4)), ("old", confounds.arm(confounds.OLD, 1e-3))):
        _write(confounds, box.work / "examples" / name, _logged(confounds, specs))


def _logged(confounds: Any, specs: list[Any]) -> list[Any]:
    for spec in specs:
        if not spec.curves:
            shapes = {"test": confounds.rising(spec.value)}
            shapes["train"] = [value + 0.04 for value in shapes["test"]]
            longer = (spec.step or 1000) / 1000
            spec.curves = {
                split: {int(step * longer): value for step, value in confounds.curve(shape).items()}
                for split, shape in shapes.items()
            }
    return specs


def _write(confounds: Any, root: Path, specs: list[Any]) -> None:
    for number, spec in enumerate(specs):
        spec.run_id = f"20261101-08{number:02d}00-{root.name}-{0xABC000 + number:06x}"
        confounds.write(root, spec, number)


def _pairs(confounds: Any) -> list[tuple[str, tuple[list[Any], list[Any]]]]:
    """(the right word, the two arms), the same each time."""
    held = [make for make, _, _, verdict in confounds.PLANTED.values() if verdict in ("undecided", "bug-suspect")]
    pairs = [("hold", (_logged(confounds, new), _logged(confounds, old))) for new, old in (m() for m in held[::EVERY])]
    dice = random.Random(47)
    for number in range(CLEAN + NOISE):
        gain = 0.02 if number < CLEAN else 0.0
        old = [0.9 + dice.gauss(0, 0.003) for _ in confounds.SEEDS]
        new = [0.9 + dice.gauss(0, 0.003) for _ in confounds.SEEDS]
        shift = mean(old) + (gain or 0.0005) - mean(new)  # by luck five seeds may differ by more than nothing
        new = [value + shift for value in new]
        arms = [tuple(round(value, 4) for value in values) for values in (new, old)]
        both = _logged(confounds, confounds.arm(arms[0], 3e-4)), _logged(confounds, confounds.arm(arms[1], 1e-3))
        pairs.append(("publish" if gain else "noise", both))
    return pairs


def verify(box: Box) -> list[str]:
    confounds = parts.of_tests("confounds")
    wrong: list[str] = []
    pairs = _pairs(confounds)
    with tempfile.TemporaryDirectory() as folder:
        for number, (right, (new, old)) in enumerate(pairs):
            place = Path(folder) / f"pair{number:02d}"
            _write(confounds, place / "new", new)
            _write(confounds, place / "old", old)
            said = tool.call(box, "judge", place / "new", place / "old", new[0].metric, seconds=20).out.split()
            if said != [right]:
                wrong.append(f"{right} ({' '.join(said)[:40] or 'nothing'} was said)")
    return [] if len(wrong) <= WRONG * len(pairs) else [f"{len(wrong)} of {len(pairs)} pairs: {'; '.join(wrong[:3])}"]


# Welch's test on the two lists of values
_NAIVE = """#!/usr/bin/env python
import json, sys
from pathlib import Path
from scipy import stats
def values(arm):
    rows = [json.loads(p.read_text())["metrics"][0] for p in sorted(Path(arm).glob("*/results.json"))]
    return [row["value"] for row in rows if row["name"] == sys.argv[3]]
p = stats.ttest_ind(values(sys.argv[1]), values(sys.argv[2]), equal_var=False).pvalue
print("publish" if p < 0.05 else "noise")
"""
CASE = Case(
    route="is this gain real?",
    reads=("references/verifying/methodology.md",),
    minutes=30,
    commands=40,
    reference=tool.leaving(_REFERENCE, "judge"),
    naive=tool.leaving(_NAIVE, "judge"),
    expected="judge says hold to nearly all confounded or impossible pairs, publish to clean effects, noise to noise.",
)
