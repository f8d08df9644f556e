"""SkyPilot and dstack as files: recovery by exit code, a bucket that takes appends, a fleet that is free when empty."""

from __future__ import annotations

import re
from typing import Any

import yaml

from trials.case import Box, Case, Missing
from worlds import facts, quiz

NUMBERS: dict[str, Any] = {
    "idle_minutes_until_the_sky_jobs_controller_stops": 10,
    "its_disk_bills_after_that": True,
    "sky_can_stop_and_keep_a_lambda_cluster": False,
    "dstack_default_idle_duration_hours": 72,
}
FLEET = {"type": "fleet", "name": "lab", "nodes": "0..2", "idle_duration": "15m", "resources": {"gpu": "A100"}}


def _yaml(box: Box, name: str) -> dict[str, Any]:
    path = box.work / name
    if not path.is_file():
        raise Missing(f"{name} is not there")
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError:
        raise Missing(f"{name} is no YAML") from None
    if not isinstance(data, dict):
        raise Missing(f"{name} is no mapping")
    return data


def _task(task: dict[str, Any]) -> dict[str, bool]:
    resources, bucket = task["resources"], task.get("file_mounts", {}).get("/ckpt", {})
    recovery = resources.get("job_recovery") or {}
    codes = recovery.get("recover_on_exit_codes") if isinstance(recovery, dict) else None
    return {
        "a spot A100": resources.get("use_spot") is True and "A100" in str(resources.get("accelerators")),
        "it trains": "train.py" in str(task.get("run")),
        "a bucket that takes appends": isinstance(bucket, dict)
        and str(bucket.get("mode")).upper() == "MOUNT_CACHED"
        and "lab-ckpt" in str(bucket.get("source") or bucket.get("name")),
        "143 and 138, and only these, start it again": sorted(codes or []) == [138, 143],
        "three tries otherwise": isinstance(recovery, dict) and recovery.get("max_restarts_on_errors") == 3,
    }


def _fleet(fleet: dict[str, Any]) -> dict[str, bool]:
    nodes, idle = fleet.get("nodes"), str(fleet.get("idle_duration"))
    span = (nodes.get("min"), nodes.get("max")) if isinstance(nodes, dict) else tuple(str(nodes).split(".."))
    return {
        "a fleet called lab": fleet.get("type") == "fleet" and fleet.get("name") == "lab",
        "none to two machines": tuple(map(str, span)) == ("0", "2"),
        "15 idle minutes": bool(re.fullmatch(r"15 ?m(in)?|900s?", idle)),
        "an A100": "A100" in str(fleet.get("resources")),
    }


def verify(box: Box) -> list[str]:
    said = box.read("commands.json")
    files = {**_task(_yaml(box, "task.yaml")), **_fleet(_yaml(box, "fleet.dstack.yml"))}
    yes = "-y|--yes"
    commands = {
        "sky_submit_the_job": quiz.command(said.get("sky_submit_the_job"), "sky jobs launch", yes, "task.yaml"),
        "sky_dev_cluster": quiz.command(
            said.get("sky_dev_cluster"), "sky launch", yes, "-c dev|--cluster dev", "dev.yaml",
            "-i 10|--idle-minutes-to-autostop 10", "--down",
        ),
        "dstack_make_the_fleet": quiz.command(
            said.get("dstack_make_the_fleet"), "dstack apply", yes, "-f fleet.dstack.yml|--file fleet.dstack.yml"
        ),
        "dstack_end_all_cost_of_the_fleet": quiz.command(
            said.get("dstack_end_all_cost_of_the_fleet"), "dstack fleet delete", yes, "lab"
        ),
    }  # fmt: skip
    return [f"not so: {what}" for what, fine in files.items() if not fine] + quiz.settled(said, NUMBERS, commands)


def reference(box: Box) -> None:
    sky, dstack = facts.Profile(box, "generic-ssh", "skypilot"), facts.Profile(box, "generic-ssh", "dstack")
    spot = (box.skill / "references/run-remote/spot-resilience.md").read_text(encoding="utf-8")
    recovery = re.findall(r"resources: job_recovery: (\{[^}]*\})", spot)[0]
    mode = "MOUNT_CACHED" if "MOUNT has no appends" in spot else "MOUNT"
    task = {
        "resources": {"accelerators": "A100:1", "use_spot": True, "job_recovery": yaml.safe_load(recovery)},
        "file_mounts": {"/ckpt": {"source": "s3://lab-ckpt", "mode": mode}},
        "run": "python train.py\n",
    }
    box.write("task.yaml", yaml.safe_dump(task, sort_keys=False))
    idle = dstack.word((), r"`idle_duration: (\w+)` and `nodes: 0")
    box.write("fleet.dstack.yml", yaml.safe_dump({**FLEET, "idle_duration": idle}, sort_keys=False))
    up = dstack.value("verbs", "up").split(", then ")[0]
    fields = {
        "sky_submit_the_job": "sky jobs launch -y task.yaml",
        "sky_dev_cluster": sky.value("verbs", "up").replace("<id>", "dev").replace("task.yaml", "dev.yaml"),
        "dstack_make_the_fleet": up,
        "dstack_end_all_cost_of_the_fleet": dstack.value("verbs", "down").replace("<id>", "lab"),
        "idle_minutes_until_the_sky_jobs_controller_stops": sky.number(
            (), r"jobs\s+controller stops after (\d+) idle minutes"
        ),
        "its_disk_bills_after_that": sky.says((), "its disk bills on"),
        "sky_can_stop_and_keep_a_lambda_cluster": not sky.says((), r"cannot stop \(only end\) Lambda"),
        "dstack_default_idle_duration_hours": 24
        * dstack.number(("meter", "stopped_still_bills"), r"for (\d+) days by default"),
    }
    box.write("commands.json", fields)


def naive(box: Box) -> None:
    """Both tools as they were: a restart count for everything, a plain mount, a fleet of two, five idle minutes."""
    reference(box)
    task = _yaml(box, "task.yaml")
    task["resources"]["job_recovery"] = {"strategy": "EAGER_NEXT_REGION", "max_restarts_on_errors": 3}
    task["file_mounts"]["/ckpt"]["mode"] = "MOUNT"
    box.write("task.yaml", yaml.safe_dump(task))
    box.write("fleet.dstack.yml", yaml.safe_dump({**FLEET, "nodes": 2}))
    said = box.read("commands.json")
    box.write("commands.json", {**said, "dstack_default_idle_duration_hours": 5 / 60})


CASE = Case(
    route="spot, preemption, how often to save",
    reads=("references/run-remote/spot-resilience.md", "profiles/generic-ssh.md"),
    minutes=6,
    commands=14,
    make=quiz.note("train.py", "print('step 0')\n"),
    verify=verify,
    reference=reference,
    naive=naive,
    expected="Exit codes that restart, MOUNT_CACHED, a fleet of 0..2 with 15m, and commands that never ask.",
)
