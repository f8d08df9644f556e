"""Providers' command lines that behave like the real ones in what matters here, on a state file of their own.

vastai (1.5): `destroy` asks; with a closed stdin it prints Aborted. and exits 0. runpodctl (2.15): delete asks nothing,
`pod list` hides what is stopped.
"""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from trials.case import Box

_HEAD = """#!/usr/bin/env python3
import json, sys
from pathlib import Path
STATE = Path(__file__).resolve().parent.parent / "{state}"
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
"""

_VASTAI = (
    _HEAD
    + """
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
    print(json.dumps(list(state["volumes"].values()), indent=1))
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
    volume = state["volumes"].get(words[2]) or fail("no such volume")
    if str(volume.get("instance")) in state["instances"]:
        fail("volume is in use")
    del state["volumes"][words[2]]
    save()
    print("deleted volume.")
else:
    fail("usage: vastai {show instances|show instance ID|show volumes|destroy instance ID|stop instance ID|...}")
"""
)

_RUNPODCTL = (
    _HEAD
    + """
if words == ["version"]:
    print("runpodctl 2.15.1")
elif words[:2] == ["pod", "list"]:
    rows = [p for p in state["pods"].values() if "--all" in flags or "-a" in flags or p["desiredStatus"] == "RUNNING"]
    print(json.dumps(rows, indent=1))
elif words[:2] == ["pod", "get"]:
    print(json.dumps(state["pods"].get(words[2]) or fail("pod not found"), indent=1))
elif words[:2] == ["pod", "stop"]:
    (state["pods"].get(words[2]) or fail("pod not found"))["desiredStatus"] = "EXITED"
    save()
    print("pod stopped")
elif words[:2] == ["pod", "delete"]:
    state["pods"].pop(words[2], None) or fail("pod not found")
    save()
    print("pod deleted")
elif words[:2] in (["network-volume", "list"], ["volume", "list"]):
    print(json.dumps(list(state["volumes"].values()), indent=1))
else:
    fail("usage: runpodctl pod {list [--all]|get ID|stop ID|delete ID} | network-volume list")
"""
)


def _install(box: Box, name: str, text: str, state: dict[str, Any]) -> None:
    path = box.world / "bin" / name
    path.write_text(text.replace("{state}", f"{name}.json"), encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    _state(box, name).write_text(json.dumps(state, indent=1), encoding="utf-8")


def _state(box: Box, name: str) -> Path:
    return box.world / f"{name}.json"


def vastai(box: Box, instances: list[dict[str, Any]], volumes: list[dict[str, Any]] | None = None) -> None:
    rows = {str(i["id"]): {"status": "running", "dph": 0.62, **i} for i in instances}
    _install(box, "vastai", _VASTAI, {"instances": rows, "volumes": {str(v["id"]): v for v in volumes or []}})


def runpodctl(box: Box, pods: list[dict[str, Any]], volumes: list[dict[str, Any]] | None = None) -> None:
    rows = {p["id"]: {"desiredStatus": "RUNNING", "cost": 1.19, **p} for p in pods}
    _install(box, "runpodctl", _RUNPODCTL, {"pods": rows, "volumes": {v["id"]: v for v in volumes or []}})


def left(box: Box, name: str) -> dict[str, Any]:
    """What the provider still has, and so still bills."""
    data: dict[str, Any] = json.loads(_state(box, name).read_text(encoding="utf-8"))
    return data
