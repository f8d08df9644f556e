"""Vast.ai's command line (1.5) as it is in what matters here, on a state file of its own.

`destroy` asks; with a closed stdin it prints Aborted. and exits 0.
"""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from trials.case import Box

_VASTAI = """#!/usr/bin/env python3
import json, sys
from pathlib import Path
STATE = Path(__file__).resolve().parent.parent / "vastai.json"
LOG = STATE.with_suffix(".log")
words = [w for w in sys.argv[1:] if w not in ("--raw", "-a", "--all", "-y", "--yes", "-q")]
flags = set(sys.argv[1:]) - set(words)
state = json.loads(STATE.read_text())
with LOG.open("a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
def save():
    STATE.write_text(json.dumps(state, indent=1))
def fail(text):
    print(text, file=sys.stderr)
    sys.exit(2)
def line(i):
    return "%-8s %-10s %-12s %s/hr" % (i["id"], i["status"], i.get("label") or "-", i["dph"])
def yes():
    if flags & {"-y", "--yes"}:
        return True
    print("Are you sure you want to delete the instance? This is irreversible. [y/N] ", end="", flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print("Aborted.")
    return False
if words == ["--version"]:
    print("1.5.2")
elif words[:2] in (["show", "instances"], ["show", "instances-v1"]):
    rows = [{**row, "cur_state": row["status"]} for row in state["instances"].values()]
    if "--raw" in flags and "--limit" in words:  # one page, with all that the API says about it
        print(json.dumps({"instances": rows[:25], "next_token": rows[25:] and "x", "total_instances": len(rows)}))
    elif "--raw" in flags:
        print(json.dumps(rows, indent=1))
    else:
        print("ID       STATUS     LABEL        PRICE")
        for row in rows:
            print(line(row))
elif words[:2] == ["show", "instance"]:
    found = state["instances"].get(words[2])
    print(json.dumps(found if found else {"instances": None}, indent=1))
elif words[:2] == ["show", "volumes"]:
    print("[]")
elif words[:2] == ["destroy", "instance"]:
    if words[2] not in state["instances"]:
        fail("no such instance " + words[2])
    if yes():
        del state["instances"][words[2]]
        save()
        print("destroying instance %s." % words[2])
elif words[:2] == ["destroy", "instances"]:
    if yes():
        for name in words[2:]:
            state["instances"].pop(name, None)
        save()
        print("destroying instances.")
elif words[:2] == ["stop", "instance"]:
    state["instances"][words[2]]["status"] = "stopped"
    save()
    print("stopping instance %s." % words[2])
elif words[:2] == ["delete", "volume"]:
    fail("no such volume")
else:
    fail("usage: vastai {show instances|show instance ID|show volumes|destroy instance ID|stop instance ID|...}")
"""


def vastai(box: Box, instances: list[dict[str, Any]]) -> None:
    path = box.world / "bin" / "vastai"
    path.write_text(_VASTAI, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    rows = {str(row["id"]): {"status": "running", "dph": 0.62, **row} for row in instances}
    _state(box).write_text(json.dumps({"instances": rows}, indent=1), encoding="utf-8")


def left(box: Box) -> dict[str, Any]:
    """What the provider still has, and so still bills: instances by their id."""
    data: dict[str, Any] = json.loads(_state(box).read_text(encoding="utf-8"))
    return dict(data["instances"])


def _state(box: Box) -> Path:
    return box.world / "vastai.json"
