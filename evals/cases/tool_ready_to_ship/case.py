"""May this delivery leave? Asked for twenty folders that the agent has not seen, most with one thing wrong."""

from __future__ import annotations

import tempfile
from pathlib import Path

from trials.case import Box, Case
from worlds import bundles, sealed, tool

WRONG, ENOUGH = 1, 5
_REFERENCE = """#!/bin/sh
cd "$1" || exit 2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
if python {scripts}/manifest_scaffold.py claim check >/dev/null 2>&1 &&
    python {scripts}/render.py gate --out "$out" >/dev/null 2>&1 &&
    python {scripts}/reconcile.py . >/dev/null 2>&1; then
    echo ship
else
    echo no
fi
"""


def make(box: Box) -> None:
    bundles.build(box.work / "samples" / "a", 100)
    bundles.build(box.work / "samples" / "b", 101, bundles.other_cards)


def verify(box: Box) -> list[str]:
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, (right, before, after)) in enumerate(bundles.KINDS.items()):
            root = Path(folder) / f"delivery{number:02d}"
            bundles.build(root, number, before, after)
            state = _state(root)
            said = tool.call(box, "ready", root, seconds=20).out.split()
            if _state(root) != state:
                return ["the delivery was changed"]
            wrong += [f"{name} ({' '.join(said)[:20] or 'nothing'})"] if said != [right] else []
            if len(wrong) >= ENOUGH:
                break
    return [] if len(wrong) <= WRONG else [f"{len(wrong)} deliveries judged wrongly: {', '.join(wrong)}"]


def _state(root: Path) -> dict[str, str]:
    return {str(path): sealed.sha256(path) for path in sorted(root.rglob("*")) if path.is_file()}


# every word of the request as it reads; each run against its own seal
_NAIVE = r"""#!/usr/bin/env python
import hashlib, json, re, statistics, sys
from pathlib import Path
root = Path(sys.argv[1])
claims = {c["id"]: c for c in json.loads((root / "EVIDENCE.json").read_text())["claims"]}
def bad(claim):
    folders = [root / "runs" / e["run_id"] for e in claim["evidence"]]
    records = [json.loads((f / "run.json").read_text()) for f in folders]
    rows = [json.loads((f / "results.json").read_text())["metrics"][0] for f in folders]
    values = [row["value"] for row in rows]
    for folder in folders:
        for name, digest in json.loads((folder / "seal.json").read_text())["files"].items():
            if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
                return True
    return (
        abs(statistics.fmean(values) - claim["value"]) > 1e-6 or claim["n"] != len(values) or len(values) < 3
        or len({str(r["seeds"]) for r in records}) < len(records) or claim["split"] != "test"
        or len({row["eval_set_sha256"] for row in rows}) > 1 or len({r["git"]["commit"] for r in records}) > 1
    )
def stale(text):
    for number, name in re.findall(r"(\d+\.\d+)[^\d\n]*(?:[\d.]+ %)? *(?:<!-- claim:|\\claim\{)([\w-]+)", text):
        value, digits = claims[name]["value"], len(number.split(".")[1])
        if float(number) not in (round(value, digits), round(100 * value, digits)):
            return True
try:
    no = any(map(bad, claims.values())) or any(stale((root / n).read_text()) for n in ("README.md", "paper.tex"))
except Exception:
    no = True
print("no" if no else "ship")
"""
CASE = Case(
    route='tables, figures, LaTeX numbers, a report to hand over; "is it ready to ship?"',
    reads=("references/delivering/principles.md",),
    minutes=4,
    commands=30,
    make=make,
    verify=verify,
    reference=tool.leaving(_REFERENCE, "ready"),
    naive=tool.leaving(_NAIVE, "ready"),
    held_out=True,
    expected="ready says ship to the sound deliveries and no to nearly all that have something wrong with them.",
)
