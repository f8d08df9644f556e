"""reconcile on a corpus with known drifts: its budget, linear in documents, flat in claims, precision and recall."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.measure import ROOT, Row, timed, tool

sys.path.insert(0, str(ROOT))

DOCUMENTS, CLAIMS = 2000, 600
BUDGET = 10.0  # seconds


def rows() -> Iterator[Row]:
    from tests import reconcile_corpus

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        planted = reconcile_corpus.write(folder, DOCUMENTS, CLAIMS, seed=7)
        half = [str(path) for path in sorted(folder.glob("d*"))[: DOCUMENTS // 2]]
        whole = timed(lambda: _reconcile(folder, str(folder)))
        yield Row(f"reconcile: {DOCUMENTS} documents x {CLAIMS} claims / its {BUDGET:g} s", whole, BUDGET, goal=1)
        slow = 2 * timed(lambda: _reconcile(folder, *half))
        yield Row("reconcile: twice the documents / 2 x the time", whole, slow, goal=1.2)
        _double_claims(folder)
        double = timed(lambda: _reconcile(folder, str(folder), evidence="twice.json"))
        yield Row("reconcile: twice the claims", double, whole, goal=1.2)
        sheet = folder / "numbers.jsonl"
        found = reconcile_corpus.score(_reconcile(folder, str(folder), "--sheet", str(sheet)), planted, sheet)
        missed = "reconcile: drifts neither found nor asked / 5 % of those planted"
        yield Row(missed, found.missed, 0.05 * found.planted, goal=1, unit="")
        yield Row("reconcile: false alarms / 2 % of the alarms", found.false, 0.02 * found.alarms, goal=1, unit="")


def _reconcile(folder: Path, *paths: str, evidence: str = "EVIDENCE.json") -> dict[str, object]:
    command = tool("reconcile", *paths, "--evidence", folder / evidence, "--json")
    report: dict[str, object] = json.loads(subprocess.run(command, stdout=subprocess.PIPE).stdout)
    return report


def _double_claims(folder: Path) -> None:
    """As many claims again, about other methods, so that the documents say the same."""
    claims = json.loads((folder / "EVIDENCE.json").read_text())["claims"]
    others = [{**claim, "id": f"Z{claim['id']}", "method": f"Unheard {n}"} for n, claim in enumerate(claims)]
    (folder / "twice.json").write_text(json.dumps({"claims": claims + others}))
