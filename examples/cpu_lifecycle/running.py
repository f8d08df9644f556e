"""RUN: preflight, the gate, a detached launch, a preemption, the resume, and the status."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from rgt import errors, files
from rgt.run import record

import yaml
from examples.cpu_lifecycle import bit_equal, box, trainings
from examples.cpu_lifecycle.settings import SEEDS
from examples.cpu_lifecycle.story import Demo, here

ACTIVE = ("queued", "running")
SMOKE_RUN = "20000101-000000-smoke-000000"  # results.json wants an id; this one is thrown away
SMOKE = {"steps": 2, "eval_interval": 1, "checkpoint_interval": 1, "text_bytes": 5_000, "warmup_steps": 1}


def preflight(demo: Demo) -> None:
    """Writes job.yaml, which says what is to run, once for every place it can run."""
    every = {"seeds": SEEDS}
    files.write_json(demo.folder / "config.json", {"config": demo.config, **every})
    files.write_json(demo.folder / "smoke.json", {"config": {**demo.config, **SMOKE}, **every})
    train = [sys.executable, str(trainings.TRAIN), "--run"]
    job = {
        "name": "preempted",
        "command": [*train, "{run}", "--config", str(demo.folder / "config.json")],
        "smoke": [*train, "{run}/" + SMOKE_RUN, "--config", str(demo.folder / "smoke.json")],
        "env": {"RGT_QUEUE": str(demo.queue)},
        "output": str(demo.folder / "box" / "runs"),
        "time_limit": "10m",
        "grace": "5s",
        "max_restarts": 0,  # so that the next step can show what a resume by hand looks like
    }
    (demo.folder / "job.yaml").write_text(yaml.safe_dump(job, sort_keys=False))
    # what it finds is this machine's business; 1 means findings
    demo.last(demo.tool("preflight", "audit", here(demo.folder / "job.yaml"), codes=(errors.OK, errors.FINDINGS)))
    demo.last(demo.tool("preflight", "smoke", here(demo.folder / "job.yaml")))


def gate(demo: Demo) -> None:
    """Honestly: without a card it says so, and queues on slots when asked to."""
    queue = ("--queue", here(demo.queue))
    hello = ("python3", "--version")
    lacking = (errors.OK, errors.ENVIRONMENT)
    demo.last(demo.tool("gpu_gate", "-n", "on-a-card", "-t", "1m", *queue, "--", *hello, codes=lacking))
    demo.tool("gpu_gate", "-n", "on-a-slot", "-t", "1m", "--slots", "1", *queue, "--", *hello)
    listed = demo.tool("gpu_gate", "list", *queue)
    demo.tell(next(line for line in listed.splitlines() if "on-a-slot" in line))


def launch(demo: Demo) -> None:
    rented = box.rent((demo.folder / "ssh").absolute(), (demo.folder / "box").absolute())
    if isinstance(rented, str):
        demo.tell(f"{rented}, so the box is this machine; everything else is the same")
    else:
        demo.box, demo.target = rented, "ssh:box"
        demo.show(f"export RGT_SSH_CONFIG={here(rented.config)}")
        demo.tell(f"a private sshd listens on 127.0.0.1:{rented.port}, with throw-away keys and a home of its own")
    said = demo.tool("launch", "submit", here(demo.folder / "job.yaml"), "--on", demo.target)
    demo.record = record.open_run(Path(said.strip()))
    demo.killed = record.Run(demo.folder / "box" / "runs" / demo.record.id)
    demo.last(demo.tool("launch", "status", here(demo.record.path)))


def preempt(demo: Demo) -> None:
    """The part of the provider is ours: no signal that could be caught, no time to save."""
    pid = gate_job(demo)["job"]["pid"]
    trainings.wait_for_step(demo.killed, half_way(demo.config), lambda: gate_job(demo)["state"] in ACTIVE)
    demo.show(f"kill -KILL -{pid}")
    os.killpg(pid, signal.SIGKILL)
    wait_until_over(demo)
    demo.killed_at = trainings.last_step(demo.killed)
    demo.tell(f"gone at step {demo.killed_at} of {demo.config['steps']}")
    demo.last(demo.tool("launch", "status", here(demo.record.path), codes=(errors.FINDINGS,)))
    demo.tell(decision(demo.tool("watch", "show", here(demo.record.path), codes=(errors.FINDINGS,))))


def resume(demo: Demo) -> None:
    demo.tool("launch", "resume", here(demo.record.path))
    began = time.monotonic()
    demo.reference = trainings.create(demo.folder / "runs", "reference", demo.config, SEEDS)
    demo.show(f"python {here(trainings.TRAIN)} --run {here(demo.reference.path)}")
    trainings.finish([demo.reference])
    losses = list(demo.reference.curve("loss", "val").values())
    demo.tell(
        f"meanwhile, never interrupted: val loss {losses[0]:.3f} -> {losses[-1]:.3f}, {time.monotonic() - began:.0f} s"
    )
    wait_until_over(demo)
    demo.last(demo.tool("launch", "status", here(demo.record.path)))
    rows = files.read_jsonl(demo.killed.events)
    demo.resumed_from = [row["step"] for row in rows if row["event"] == "resumed" and "step" in row][-1]
    demo.tell(f"the killed one went on from the checkpoint of step {demo.resumed_from} to the end")


def watch(demo: Demo) -> None:
    said = demo.tool("watch", "show", here(demo.record.path), codes=(errors.OK, errors.FINDINGS))
    demo.tell(decision(said))


def decision(said: str) -> str:
    return next(line.replace("*", "") for line in said.splitlines() if line.startswith("**Decision"))


def compare(demo: Demo) -> None:
    demo.show(f"python {here(Path(bit_equal.__file__))} {here(demo.reference.path)} {here(demo.killed.path)}")
    sentences = bit_equal.sentences(demo.reference, demo.killed)
    demo.equal = sentences[0].partition(": ")[2]
    for sentence in sentences:
        demo.tell(sentence)


def half_way(config: dict[str, Any]) -> int:
    """Half of the steps, but never a checkpoint's step: then nothing would have to be computed twice."""
    half: int = config["steps"] // 2
    return half if half % config["checkpoint_interval"] else half + 1


def gate_job(demo: Demo) -> dict[str, Any]:
    """The newest job of that name, which is the run's id."""
    said = demo.quiet_tool("gpu_gate", "status", demo.record.id, "--queue", demo.queue, "--json")
    answer: dict[str, Any] = json.loads(said)
    return answer


def wait_until_over(demo: Demo) -> None:
    words = (demo.record.id, "--timeout", f"{trainings.DEADLINE:.0f}s", "--queue", demo.queue)
    demo.quiet_tool("gpu_gate", "wait", *words, codes=(errors.OK, errors.FINDINGS))
    if gate_job(demo)["state"] in ACTIVE:
        raise trainings.broken(demo.killed, f"was not done after {trainings.DEADLINE:.0f} seconds")


def end_jobs(demo: Demo) -> None:
    """What the demo launched ends with it, also when it was stopped in the middle."""
    if not demo.queue.exists():
        return
    jobs = json.loads(demo.quiet_tool("gpu_gate", "list", "--queue", demo.queue, "--json"))["jobs"]
    active = [job["id"] for job in jobs if job["state"] in ACTIVE]
    if active:
        demo.quiet_tool("gpu_gate", "cancel", *active, "--queue", demo.queue)
        demo.quiet_tool("gpu_gate", "wait", *active, "--queue", demo.queue, codes=tuple(range(256)))
