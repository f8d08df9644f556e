"""Kaggle in late 2026: the default machine no longer runs the default torch; the CLI has new verbs."""

from __future__ import annotations

import json

from trials.case import Box, Case
from worlds import facts, rehearsal

HOURS = 5
OLD = """#!/bin/sh
cd "$(dirname "$0")" || exit 1
kaggle kernels push -p kernel || exit 1
while sleep 60; do
  case $(kaggle kernels status lab/night-train) in
    *[Cc][Oo][Mm][Pp][Ll][Ee][Tt][Ee]*) break ;;
    *[Ee][Rr][Rr][Oo][Rr]*|*[Cc][Aa][Nn][Cc][Ee][Ll]*) exit 1 ;;
  esac
done
kaggle kernels output lab/night-train -p out
"""
METADATA = {
    "id": "lab/night-train",
    "title": "night-train",
    "code_file": "train.py",
    "language": "python",
    "kernel_type": "script",
    "is_private": True,
    "enable_gpu": True,
    "enable_internet": True,
    "dataset_sources": ["lab/corpus"],
}
# pretraining.md (Kaggle): a P100 unless a machine is named, and its kernels are not in the image's torch
_KAGGLE = """
if words[:1] == ["k"]:
    words[0] = "kernels"
if words[:1] == ["quota"]:
    note("asked-quota" if not noted("pushed") else "asked-late")
    print("GPU 21.4 h left of 30")
elif words[:2] == ["kernels", "push"]:
    folder = Path(option("-p", "--path", default="."))
    data = json.loads((folder / "kernel-metadata.json").read_text())
    machine = option("--accelerator") or data.get("machine_shape") or "NvidiaTeslaP100"
    note("pushed", {"machine": machine, "limit": option("-t", "--timeout"), "gpu": str(data.get("enable_gpu"))})
    print("Kernel version 7 successfully pushed.")
elif words[:2] == ["kernels", "status"]:
    if not noted("pushed"):
        fail("404 Client Error", 1)
    good = "T4" in json.loads((HOME / "pushed").read_text())["machine"] and not noted("training-fails")
    print('lab/night-train has status "KernelWorkerStatus.%s"' % ("COMPLETE" if good else "ERROR"))
elif words[:2] == ["kernels", "logs"]:
    print("RuntimeError: at step 812")
elif words[:2] == ["kernels", "output"]:
    target = Path(option("-p", "--path", default="."))
    target.mkdir(parents=True, exist_ok=True)
    (target / "model.safetensors").write_text("weights")
else:
    fail("usage: kaggle [-h] {competitions,c,datasets,d,kernels,k,models,m,files,f,config} ...")
"""


def make(box: Box) -> None:
    box.write("night.sh", OLD)
    box.write("kernel/kernel-metadata.json", METADATA)
    box.write("kernel/train.py", "import torch\nx = torch.ones(8, device='cuda')\n")


def verify(box: Box) -> list[str]:
    problems = []
    with rehearsal.stage(box, {"kaggle": _KAGGLE}) as stage:
        code = stage.run("sh", "night.sh")
        pushed = json.loads(stage.read("pushed") or "{}")
        machine = str(pushed.get("machine"))
        checks = {
            "a machine that the image's torch still runs on": machine.startswith("NvidiaTeslaT4"),
            "an end after 5 hours": str(pushed.get("limit")) == str(HOURS * 3600),
            "exit 0 and the output": code == 0 and (stage.desk / "out/model.safetensors").is_file(),
            "the quota, before the push": stage.has("asked-quota") and "21.4" in stage.read("desk/quota.txt"),
        }
        problems += [f"not so: {what}" for what, fine in checks.items() if not fine]
    with rehearsal.stage(box, {"kaggle": _KAGGLE}) as stage:
        (stage.root / "training-fails").touch()
        code, log = stage.run("sh", "night.sh"), stage.read("desk/kernel.log")
        if code != 1 or "at step 812" not in log:
            problems.append(f"a failed kernel: exit {code}, kernel.log holds {len(log)} characters")
    return problems


def reference(box: Box) -> None:
    kaggle, name = facts.Profile(box, "generic-ssh", "kaggle"), "lab/night-train"
    pretraining = (box.skill / "references/pretraining.md").read_text(encoding="utf-8")
    machine = "NvidiaTeslaT4" if "the scaffold asks for\nNvidiaTeslaT4" in pretraining else "?"
    push = kaggle.value("verbs", "up").replace("<dir>", "kernel").replace("<name>", machine)
    logs = kaggle.value("verbs", "watch").split("; ")[1].replace("<id>", name)
    quota = kaggle.value("meter", "list").split(";")[0]
    text = OLD.replace("kaggle kernels push -p kernel", push.replace("<seconds>", str(HOURS * 3600)))
    text = text.replace("|| exit 1\nkaggle", f"|| exit 1\n{quota} > quota.txt\nkaggle", 1)
    box.write("night.sh", text.replace(") exit 1 ;;", f") {logs} > kernel.log; exit 1 ;;"))


def naive(box: Box) -> None:
    """The accelerator in the file, by a name of the website, and the log out of the output."""
    box.write("kernel/kernel-metadata.json", {**METADATA, "accelerator": "GPU T4 x2"})
    text = OLD.replace("|| exit 1\nkaggle", "|| exit 1\nkaggle config view > quota.txt\nkaggle", 1)
    box.write("night.sh", text.replace(") exit 1 ;;", ") kaggle kernels output lab/night-train -p out; exit 1 ;;"))


CASE = Case(
    route="which platform, what survives, what bills?",
    reads=("profiles/generic-ssh.md", "references/pretraining.md"),
    minutes=5,
    commands=12,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    expected="A T4 asked for by name, a timeout of 18000 s, quota and logs by their own verbs.",
)
