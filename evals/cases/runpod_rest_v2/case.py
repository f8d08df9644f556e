"""RunPod moved: another host, one action call, other verbs, and a flag that never did anything (profiles/runpod.md)."""

from __future__ import annotations

import json
import re
import time

from trials.case import Box, Case
from worlds import facts, rehearsal

POD = "k3x9pod"
OLD_UP = """#!/bin/sh
runpodctl create pod --name night --imageName runpod/pytorch:2.8 --gpuType 'NVIDIA A100 80GB PCIe' --gpuCount 1 \\
  --volumeSize 80 --ports 22/tcp --startSSH --terminate-after 6h
"""
OLD_STOP = """#!/bin/sh
curl -fsS -X POST -H "Authorization: Bearer $RUNPOD_API_KEY" "https://rest.runpod.io/v1/pods/$1/stop" || exit 1
runpodctl get pod
"""
_CURL = (
    """
if flag("-K", "--config") or "@-" in words:
    words += sys.stdin.read().split("\\n")
url = next((w for w in words if w.startswith("https://")), "")
body = option("-d", "--data", "--data-raw", "--json", "--data-binary", default="")
if body == "@-":
    body = words[-1]
method = option("-X", "--request", default="POST" if body else "GET")
short = "".join(w for w in words if w.startswith("-") and not w.startswith("--"))
fails = "f" in short or flag("--fail", "--fail-with-body")
def answer(status, text):
    if option("-w", "--write-out"):
        print(text if option("-o", "--output") is None else "", status, sep="" if option("-o", "--output") else "\\n")
    else:
        print(text)
    sys.exit(22 if fails and status >= 400 else 0)
if not any(POD_KEY in w for w in words):
    answer(401, '{"error": "unauthorized"}')
if url.startswith("https://rest.runpod.io/v1"):
    answer(410, '{"error": "gone"}')
if method == "GET" and url in ("https://api.runpod.io/v2/pods", "https://api.runpod.io/v2/pods/POD"):
    answer(200, '{"id": "POD", "status": "%s"}' % ("EXITED" if noted("stopped") else "RUNNING"))
if url != "https://api.runpod.io/v2/pods/POD/action" or method != "POST":
    answer(404, '{"error": "not found"}')
try:
    action = json.loads(body)["action"]
except (ValueError, KeyError, TypeError):
    answer(400, '{"error": "bad request"}')
if action != "stop" or noted("api-down"):
    answer(500, '{"error": "no"}')
note("stopped")
answer(200, '{"id": "POD", "status": "STOPPING"}')
""".replace("POD_KEY", '"secret-key"')
    .replace("/pods/POD", f"/pods/{POD}")
    .replace('"POD"', f'"{POD}"')
)
_RUN = "import os\nos.execvp({0}[0], {0})\n"
_WAITS = {
    "nohup": _RUN.format("words"),
    "setsid": _RUN.format("[w for w in words if w not in ('-f', '--fork')]"),
    "at": "import os\nos.execvp('sh', ['sh'])\n",
    "systemd-run": _RUN.format("[w for w in words if not w.startswith('--')]"),
}
_RUNPODCTL = """
KNOWN = ["--image", "--gpu-id", "--volume-in-gb", "--ports"]
GONE = ["--stop-after", "--terminate-after"]
if words[:2] == ["pod", "create"]:
    flags = [w.split("=")[0] for w in words[2:] if w.startswith("--")]
    unknown = [name for name in flags if name != name.lower() or name in GONE]
    if unknown:
        fail("Error: unknown flag: " + unknown[0], 1)
    note("created", {name: option(name) for name in KNOWN})
    print('{"id": "k3x9pod"}')
elif words[:2] == ["pod", "list"]:
    print("NOW-RUNNING" + (" STOPPED-TOO" if flag("--all", "-a") else ""))
elif words[:2] == ["pod", "get"]:
    print('{"id": "k3x9pod", "desiredStatus": "%s"}' % ("EXITED" if noted("stopped") else "RUNNING"))
elif words[:2] in (["pod", "stop"], ["stop", "pod"]):
    note("timer-stopped", " ".join(words[2:]))
else:
    fail("Error: unknown command", 1)
"""


def make(box: Box) -> None:
    for name, text in {"up.sh": OLD_UP, "stop.sh": OLD_STOP, "arm.sh": "#!/bin/sh\n"}.items():
        box.write(name, text)


def verify(box: Box) -> list[str]:
    env = {"RUNPOD_API_KEY": "secret-key", "RUNPOD_POD_ID": POD}
    tools = {"curl": _CURL, "runpodctl": _RUNPODCTL}
    with rehearsal.stage(box, tools, env) as stage:
        up, made = stage.run("sh", "up.sh"), json.loads(stage.read("created") or "{}")
        checks = {
            "up.sh makes the pod": up == 0 and made.get("--image") == "runpod/pytorch:2.8",
            "its card and its disk": "A100" in str(made.get("--gpu-id")) and made.get("--volume-in-gb") == "80",
            "its ssh port": "22/tcp" in str(made.get("--ports")),
            "stop.sh ends with 0": stage.run("sh", "stop.sh", POD) == 0,
            "the pod is stopped over v2": stage.has("stopped"),
            "the stopped ones are listed": any(
                call[:2] == ["pod", "list"] and {"--all", "-a"} & set(call) for call in stage.calls("runpodctl")
            ),
        }
    with rehearsal.stage(box, tools, env) as stage:
        (stage.root / "api-down").touch()
        checks["stop.sh fails when the api does"] = stage.run("sh", "stop.sh", POD) != 0
    checks["the timer on the pod"] = _armed(box, tools, env)
    return [f"not so: {what}" for what, fine in checks.items() if not fine]


def _armed(box: Box, tools: dict[str, str], env: dict[str, str]) -> bool:
    """arm.sh returns at once; after six hours (which take no time here) this very pod is stopped, not deleted."""
    with rehearsal.stage(box, {**tools, **_WAITS}, env) as stage:
        if stage.run("sh", "arm.sh"):
            return False
        end = time.monotonic() + 10
        while not stage.has("timer-stopped") and time.monotonic() < end:
            time.sleep(0.05)
        waited = [word for tool in ("sleep", "at", "systemd-run") for call in stage.calls(tool) for word in call]
        six = re.search(r"(?<!\d)(?:6h|21600s?|360m|6 hours?|360 min\w*)(?!\d)", " ".join(waited))
        return bool(six) and stage.read("timer-stopped") == POD


def reference(box: Box) -> None:
    pod = facts.Profile(box, "runpod")
    up = pod.value("verbs", "up").replace("<image>", "runpod/pytorch:2.8").replace("<gb>", "80")
    host = pod.word((), r"REST v2 at `(https://[\w./]+)`")
    path = pod.word((), r"`stop` is `POST (/pods/<id>/action)`")
    body = pod.word((), r"with `(\{\"action\": \"stop\"\})`")
    timer = pod.word((), r"`(nohup sh -c 'sleep 6h; runpodctl stop pod\s+\$RUNPOD_POD_ID;[^`]*)`")
    listing = pod.value("meter", "list")
    box.write("up.sh", "#!/bin/sh\n" + up.replace("<gpu>", "NVIDIA A100 80GB PCIe") + " --name night\n")
    box.write("arm.sh", "#!/bin/sh\n" + " ".join(timer.split()) + "\n")
    head = "curl -fsS -X POST -H \"Authorization: Bearer $RUNPOD_API_KEY\" -H 'Content-Type: application/json'"
    url = host + path.replace("<id>", "$1")
    box.write("stop.sh", f"#!/bin/sh\n{head} -d '{body}' \"{url}\" || exit 1\n{listing}\n")


def naive(box: Box) -> None:
    """The new client's verbs, the old flag, and v1's path on v2's number."""
    reference(box)
    stop = OLD_STOP.replace("/v1/", "/v2/").replace("get pod", "pod list")
    box.write("stop.sh", stop)


CASE = Case(
    route="which platform, what survives, what bills?",
    reads=("profiles/runpod.md",),
    minutes=6,
    commands=14,
    expected="runpodctl 2's verbs, the action call of REST v2, stopped pods listed, and a timer that really exists.",
)
