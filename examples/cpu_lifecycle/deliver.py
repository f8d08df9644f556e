"""The demo's VERIFY and DELIVER: two variants with three seeds each, from the comparison to a document that cannot lie.

Every step is a command of scripts/, run in the demo's folder; nothing here computes or types a number.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rgt import errors
from rgt.rundir import Run

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
SEEDS = (1, 2, 3)
CLAIMS = {"loss-fast": "Fast", "loss-slow": "Slow"}  # claim -> method
DOCUMENT = """\
# Two learning rates

After the same number of steps the val loss of Fast is <!-- value:loss-fast spread --><!-- /value -->,
that of Slow <!-- value:loss-slow spread --><!-- /value -->.
"""

Tell = Callable[[str], None]


def tool(folder: Path, tell: Tell, name: str, *words: str, code: int = errors.OK) -> str:
    """Run a script in `folder` and show the command as a person would type it; it must end with `code`."""
    tell(f"$ python scripts/{name}.py {' '.join(words)}")
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / f"{name}.py"), *words], cwd=folder, capture_output=True, text=True
    )
    if done.returncode != code:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise errors.RgtError(
            f"{name}.py ended with {done.returncode}, not {code}: {said[-1] if said else ''}", errors.FINDINGS
        )
    return done.stdout


def compare(folder: Path, fast: list[Run], slow: list[Run], tell: Tell) -> str:
    """An effect: one variable, three seeds each. And noise: the same runs with the arms mixed."""
    verdict = _verdict(folder, tell, fast, slow, "--intended", "learning_rate", keep="compare.json")
    mixed = _verdict(folder, tell, [fast[0], slow[1], fast[2]], [slow[0], fast[1], slow[2]])
    tell(f"fast against slow: {verdict}; with the arms mixed: {mixed}")
    if mixed == "effect":
        raise errors.RgtError("mixed arms were called an effect", errors.FINDINGS)
    return verdict


def _verdict(folder: Path, tell: Tell, a: list[Run], b: list[Run], *more: str, keep: str = "") -> str:
    arms = [*_names(a), "--vs", *_names(b), "--metric", "loss", "--split", "val", *more]
    tell(
        f"$ python scripts/compare_runs.py {a[0].id} ... --vs {b[0].id} ... --metric loss --split val {' '.join(more)}"
    )
    command = [sys.executable, str(SCRIPTS / "compare_runs.py"), *arms, "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode not in (errors.OK, errors.FINDINGS):
        raise errors.RgtError(f"compare_runs.py: {done.stderr.strip()}", errors.FINDINGS)
    if keep:
        (folder / keep).write_text(done.stdout)
    report: dict[str, Any] = json.loads(done.stdout)
    return str(report["verdict"])


def _names(runs: list[Run]) -> list[str]:
    return [f"runs/{run.id}" for run in runs]


def deliver(folder: Path, arms: dict[str, list[Run]], tell: Tell) -> None:
    """Claims from sealed runs, then everything that shows them."""
    tool(folder, tell, "manifest_scaffold", "init", ".")
    for claim, runs in arms.items():
        words = [word for name in _names(runs) for word in ("--run", name)]
        tell(f"$ python scripts/manifest_scaffold.py claim add {claim} --metric loss --split val --run ...")
        given = [
            "claim",
            "add",
            claim,
            "--metric",
            "loss",
            "--split",
            "val",
            "--method",
            CLAIMS[claim],
            "--figure",
            "loss",
        ]
        tell(tool(folder, lambda _: None, "manifest_scaffold", *given, *words).strip())
    (folder / "REPORT.md").write_text(DOCUMENT)
    tool(folder, tell, "render", "tables")
    tool(folder, tell, "render", "figures", "loss", "--kind", "curve", "--metric", "loss", "--split", "val")
    tool(folder, tell, "render", "values", "REPORT.md")
    tool(folder, tell, "render", "gate", "--compare", "compare.json", code=_gate_code(folder))
    tool(folder, tell, "render", "report", "--compare", "compare.json")
    tell((folder / "REPORT.md").read_text().splitlines()[2].split("<!--")[0] + "...")


def _gate_code(folder: Path) -> int:
    """Whether there is something to disclose is the runs' business; the gate says so by 1 and blocks nothing."""
    command = [sys.executable, str(SCRIPTS / "render.py"), "gate", "--compare", "compare.json"]
    return subprocess.run(command, cwd=folder, capture_output=True).returncode


def plant_a_stale_number(folder: Path, tell: Tell) -> None:
    """What happens to every document sooner or later: somebody types a number from an older run."""
    tool(folder, tell, "reconcile", "REPORT.md")
    claims = json.loads((folder / "EVIDENCE.json").read_text())["claims"]
    older = next(claim["value"] for claim in claims if claim["id"] == "loss-fast") + 0.11
    (folder / "STALE.md").write_text(f"Fast reaches a val loss of {older:.2f} here.\n")
    said = tool(folder, tell, "reconcile", "REPORT.md", "STALE.md", code=errors.FINDINGS)
    (folder / "STALE.md").unlink()
    tell("caught: " + next(line for line in said.splitlines() if "drift" in line).strip())
