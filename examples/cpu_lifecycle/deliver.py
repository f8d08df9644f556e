"""DELIVER: claims from sealed runs, everything that shows them, a stale number caught, and two ends of the box.

Every step is a command of scripts/; nothing here computes or types a number that is shipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from rgt import errors
from rgt.platform import profiles

import yaml
from examples.cpu_lifecycle.proving import finding
from examples.cpu_lifecycle.story import SCRIPTS, Demo, here

METHODS = {"fast": "Fast", "slow": "Slow"}  # arm -> as the documents call it
DOCUMENT = """\
# Two learning rates

After the same number of steps the val loss of Fast is <!-- value:loss-fast spread --><!-- /value -->,
that of Slow <!-- value:loss-slow spread --><!-- /value -->.
"""
PROVIDER = """\
#!/bin/sh
# a provider with one box: list, and stop
cd "${0%/*}" || exit 1
[ "$1" = stop ] && echo STOPPED > state
echo "{\\"boxes\\": [{\\"id\\": \\"box-1\\", \\"status\\": \\"$(cat state)\\"}]}"
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


def forget(demo: Demo) -> None:
    """A lease of seconds, and nobody comes back: the keeper pulls, verifies, stops, and tells."""
    folder = demo.folder / "provider"
    folder.mkdir()
    (folder / "state").write_text("RUNNING\n")
    (folder / "boxctl").write_text(PROVIDER)
    (folder / "boxctl").chmod(0o755)
    facts, boxctl = profiles.load("local"), str(folder / "boxctl")
    facts["verbs"]["down"] = {"value": "boxctl stop <id>", "argv": [boxctl, "stop", "<id>"]}
    answer = {"rows": "boxes", "id": "id", "status": "status", "stopped": ["STOPPED"]}
    facts["meter"]["list"] = {"value": "boxctl list", "argv": [boxctl, "list"], "answer": answer}
    facts["storage"] = [{"tier": "disk", "path": "/", "stop": "kept", "destroy": "lost"}]
    (folder / "demo.md").write_text(f"---\n{yaml.safe_dump(facts)}---\n")
    told = {"kind": "command", "argv": ["sh", "-c", 'cat >> "$0"', str(folder / "told.txt")]}
    (folder / "notify.yaml").write_text(yaml.safe_dump({"channels": [told]}))
    own = {"XDG_STATE_HOME": str(folder), "RGT_CONFIG": str(folder / "notify.yaml")}  # the user's leases stay untouched
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        words = ("--profile", here(folder / "demo.md"), "--id", "box-1", "--run", here(demo.pulled), "--until", "4s")
        demo.tool("lease", "start", *words, "--rate", "1.89", "--on-end", "stop", "--every", "1s")
        end, heard = time.monotonic() + 120, folder / "told.txt"
        while not (heard.exists() and "stopped at the end" in heard.read_text()) and time.monotonic() < end:
            time.sleep(0.5)
        demo.last(demo.tool("lease", "cost", here(demo.pulled)))
    finally:
        demo.quiet_tool("lease", "end", "box-1", codes=(errors.OK, errors.BAD_INPUT))
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    for line in (folder / "told.txt").read_text().splitlines():
        if line.startswith("box-1"):
            demo.tell(f"told: {line}")


def tear_down(demo: Demo) -> None:
    """With the profile of an own machine: its command is shown, not run. Before it, what an agent's hook refuses."""
    for line in ("runpodctl pod delete abc123", f"ssh box 'rm -rf {demo.killed.path}'"):
        event = json.dumps({"tool_name": "Bash", "tool_input": {"command": line}, "cwd": str(demo.inside)})
        hook = [sys.executable, "-I", "-S", str(SCRIPTS / "rgt" / "guard" / "hook.py")]
        done = subprocess.run(hook, input=event, capture_output=True, text=True)
        demo.tell(f"an agent types: {line}")
        demo.tell(f"its hook: exit {done.returncode}, {done.stderr.partition('. ')[0]}")
    words = ("down", here(demo.pulled), "--profile", "local")
    said = demo.tool("transfer", *words, codes=(errors.REFUSED,))
    demo.tell("exit 4, " + finding(said, "unapproved"))
    demo.last(said)
    phrase = finding(said, "to approve, the user says").partition('"')[2].rstrip('"')
    demo.last(demo.tool("transfer", *words, "--approve", f"I have read it. {phrase}"))  # here the demo is the user
