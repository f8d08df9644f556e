"""DELIVER: claims from sealed runs, everything that shows them, a stale number caught, and the end of the box.

Every step is a command of scripts/; nothing here computes or types a number that is shipped.
"""

from __future__ import annotations

import json

from rgt import errors

from examples.cpu_lifecycle.proving import finding
from examples.cpu_lifecycle.story import Demo, here

METHODS = {"fast": "Fast", "slow": "Slow"}  # arm -> as the documents call it
DOCUMENT = """\
# Two learning rates

After the same number of steps the val loss of Fast is <!-- value:loss-fast spread --><!-- /value -->,
that of Slow <!-- value:loss-slow spread --><!-- /value -->.
"""
COMPARISON = ("--compare", "compare-slow.json")


def deliver(demo: Demo) -> None:
    folder = demo.delivery
    demo.tool("manifest_scaffold", "init", ".", inside=folder)
    for arm, method in METHODS.items():
        given = (f"loss-{arm}", "--metric", "loss", "--split", "val", "--method", method, "--figure", "loss")
        runs = [word for run in demo.arms[arm] for word in ("--run", f"runs/{arm}/{run.id}")]
        demo.last(demo.tool("manifest_scaffold", "claim", "add", *given, *runs, inside=folder))
    (folder / "REPORT.md").write_text(DOCUMENT)
    demo.tool("render", "tables", inside=folder)
    demo.tool("render", "figures", "loss", "--kind", "curve", "--metric", "loss", "--split", "val", inside=folder)
    demo.tool("render", "values", "REPORT.md", inside=folder)
    # whether there is something to disclose is the runs' business; the gate says so by 1 and blocks nothing
    demo.last(demo.tool("render", "gate", *COMPARISON, inside=folder, codes=(errors.OK, errors.FINDINGS)))
    demo.last(demo.tool("render", "report", *COMPARISON, inside=folder))


def catch_a_stale_number(demo: Demo) -> None:
    """What happens to every document sooner or later: somebody types a number from an older run."""
    folder = demo.delivery
    demo.last(demo.tool("reconcile", "REPORT.md", inside=folder))
    claims = json.loads((folder / "EVIDENCE.json").read_text())["claims"]
    older = next(claim["value"] for claim in claims if claim["id"] == "loss-fast") + 0.11
    (folder / "STALE.md").write_text(f"Fast reaches a val loss of {older:.2f} here.\n")
    demo.tell(f'planted: STALE.md says "Fast reaches a val loss of {older:.2f} here."')
    said = demo.tool("reconcile", "REPORT.md", "STALE.md", inside=folder, codes=(errors.FINDINGS,))
    (folder / "STALE.md").unlink()
    demo.tell("caught: " + finding(said, "drift"))


def tear_down(demo: Demo) -> None:
    """With the profile of an own machine: its command is shown, and not run."""
    words = ("down", here(demo.pulled), "--profile", "local")
    said = demo.tool("transfer", *words, codes=(errors.REFUSED,))
    demo.tell("exit 4, " + finding(said, "unapproved"))
    demo.last(said)
    phrase = finding(said, "to approve, the user says").partition('"')[2].rstrip('"')
    demo.last(demo.tool("transfer", *words, "--approve", f"I have read it. {phrase}"))  # here the demo is the user
