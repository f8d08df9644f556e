"""Vast.ai without a terminal: a destroy that asks and exits 0, volumes that bill on, a bid that is not one."""

from __future__ import annotations

import json

from trials.case import Box, Case
from worlds import facts, rehearsal

OLD_CLEANUP = """#!/bin/sh
vastai show instances --raw > instances.json || exit 1
pick='import json; print(*[i["id"] for i in json.load(open("instances.json")) if i["label"] == "done"])'
for id in $(python3 -c "$pick"); do
  vastai destroy instance "$id" && echo "cleaned $id"
done
"""
OLD_RENT = """#!/bin/sh
vastai search offers "id=$1" --type bid
vastai create instance "$1" --image pytorch/pytorch:2.8 --disk 60 --ssh --direct
"""
INSTANCES = {str(7000 + n): "done" if n % 3 == 0 else f"exp-{n}" for n in range(12)}
VOLUMES = {str(90 + n): str(7000 + n) for n in (0, 3, 6, 7)}  # volume to instance; 97 belongs to one that stays
DONE = [name for name, label in INSTANCES.items() if label == "done"]
KEPT = sorted(set(INSTANCES) - set(DONE))
_VASTAI = """
state = json.loads((HOME / "vast.json").read_text())
yes = flag("-y", "--yes")
plain = [w for w in words if not w.startswith("-")]
def keep():
    note("vast.json", state)
def sure(what):
    if yes:
        return True
    print("Are you sure you want to delete %s? This is irreversible. [y/N] " % what, end="", flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print("Aborted.")
    return False
def row(name):
    return {"id": int(name), "label": state["instances"][name], "actual_status": "running", "dph_total": 0.4}
if plain[:2] in (["show", "instances"], ["show", "instances-v1"]):
    rows = [row(n) for n in state["instances"]]
    print(json.dumps(rows, indent=1) if flag("--raw") else "\\n".join(map(str, rows)))
elif plain[:2] == ["show", "instance"]:
    print(json.dumps(row(plain[2]) if plain[2] in state["instances"] else {"instances": None}))
elif plain[:2] == ["show", "volumes"]:
    rows = [{"id": int(v), "instances": [int(i)] if i in state["instances"] else [], "label": "vol-of-" + i}
            for v, i in state["volumes"].items()]
    print(json.dumps(rows, indent=1) if flag("--raw") else "\\n".join(map(str, rows)))
elif plain[:2] in (["destroy", "instance"], ["destroy", "instances"]):
    if sure("the instance"):
        for name in plain[2:]:
            if noted("stubborn") and name == plain[-1]:
                continue
            state["instances"].pop(name, None)
        keep()
        print("destroying instance %s." % plain[2])
elif plain[:2] == ["delete", "volume"]:
    if state["volumes"].get(plain[2]) in state["instances"]:
        fail("volume is in use", 1)
    state["volumes"].pop(plain[2], None)
    keep()
elif plain[:2] == ["search", "offers"]:
    print("[]" if flag("--raw") else "ID  CUDA  NUM  MODEL")
elif plain[:2] == ["create", "instance"]:
    note("created", {"words": words, "bid": option("--bid_price", "--bid-price"), "cancel": flag("--cancel-unavail")})
    print('{"success": true, "new_contract": 9001}')
else:
    fail("usage: vastai [-h] command")
"""


def make(box: Box) -> None:
    box.write("cleanup.sh", OLD_CLEANUP)
    box.write("rent.sh", OLD_RENT)
    note = "volumes: vastai show volumes --raw gives id and instances (where it is mounted, [] when that is gone)\n"
    box.write("volumes.txt", note + "".join(f"volume {v} is on instance {i}\n" for v, i in VOLUMES.items()))


def _play(box: Box, stubborn: bool) -> tuple[int, dict[str, dict[str, str]], dict[str, object]]:
    with rehearsal.stage(box, {"vastai": _VASTAI}) as stage:
        (stage.root / "vast.json").write_text(json.dumps({"instances": INSTANCES, "volumes": VOLUMES}))
        if stubborn:
            (stage.root / "stubborn").touch()
        code = stage.run("sh", "cleanup.sh")
        left = json.loads(stage.read("vast.json"))
        if not stubborn:
            stage.run("sh", "rent.sh", "4455")
        return code, left, json.loads(stage.read("created") or "{}")


def verify(box: Box) -> list[str]:
    code, left, made = _play(box, stubborn=False)
    checks = {
        "only the done ones are gone": sorted(left["instances"]) == KEPT,
        "their volumes too, the other one stays": left["volumes"] == {v: i for v, i in VOLUMES.items() if i in KEPT},
        "exit 0": code == 0,
        "exit 1 when one of them stays": _play(box, stubborn=True)[0] == 1,
        "an interruptible at 0.31": made.get("bid") == "0.31",
        "nothing is left when the card is gone": bool(made.get("cancel")),
        "the offer, image, disk": {"4455", "pytorch/pytorch:2.8", "60"} <= set(made.get("words", [])),  # type: ignore[call-overload]
    }
    return [f"not so: {what}" for what, fine in checks.items() if not fine]


_CLEANUP = """#!/usr/bin/env python3
import json, subprocess, sys
def vast(*words):
    return subprocess.run(["vastai", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
done = [str(i["id"]) for i in json.loads(vast("show", "instances", "--raw")) if i["label"] == "done"]
volumes = json.loads(vast("show", "volumes", "--raw"))
hanging = [str(v["id"]) for v in volumes if {str(i) for i in v["instances"]} & set(done)]
for name in done:
    vast(*"{down}".replace("<id>", name).split()[1:])
left = [name for name in done if "{gone}" not in vast("show", "instance", name, "--raw")]
for name in hanging:
    vast(*"{volume}".replace("<id>", name).split()[1:])
volumes = [str(v["id"]) for v in json.loads(vast("show", "volumes", "--raw"))]
sys.exit(1 if left or set(hanging) & set(volumes) else 0)
"""


def reference(box: Box) -> None:
    vast = facts.Profile(box, "vastai")
    gone = vast.word((), r"prints `\{(\"instances\": null)\}` when it is gone").replace('"', r"\"")
    volume = vast.word((), r"until `(vastai delete volume <id>)`")
    text = _CLEANUP.replace("{down}", vast.value("verbs", "down")).replace("{gone}", gone).replace("{volume}", volume)
    box.write("cleanup.py", text)
    box.write("cleanup.sh", '#!/bin/sh\ncd "$(dirname "$0")" && exec python3 cleanup.py\n')
    up = vast.value("verbs", "up").replace("<offer>", '"$1"').replace("<image>", "pytorch/pytorch:2.8")
    bid = vast.word((), r"unless `(--bid_price)` is given")
    box.write("rent.sh", f"#!/bin/sh\n{up.replace('<gb>', '60')} {bid} 0.31\n")


def naive(box: Box) -> None:
    """Destroys harder, bids by the old name, trusts exit codes."""
    box.write("cleanup.sh", OLD_CLEANUP.replace("destroy instance", "destroy instance --force"))
    box.write("rent.sh", OLD_RENT.replace("--direct", "--direct --price 0.31"))


CASE = Case(
    route="which platform, what survives, what bills?",
    reads=("profiles/vastai.md",),
    minutes=6,
    commands=14,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    expected="destroy -y, volumes after their instances, the list as proof, --bid_price and --cancel-unavail.",
)
