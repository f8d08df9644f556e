"""Forty failed runs, nine bins; the loud line is often not the cause."""

from __future__ import annotations

import json
import random

import yaml

from trials.case import ROOT, Box, Case, Missing

CORPUS = ROOT / "tests" / "triage"
BINS = {
    "gpu-memory": "oom_interleaved ansi_oom oom_hf_bar cublas_alloc restart_loop_oom oom_wandb_tail",
    "host-memory": "rank_host_memory rank_sigkill slurm_oom killed_nohup k8s_oomkilled worker_killed",
    "disk": "disk_full_save hf_disk_full recovered_oom_then_quota inodes_full",
    "preempted": "slurm_preempt slurm_time_limit sigterm_torchrun sighup_torchrun",
    "numerics": "nan_loss hf_nan_grad slurm_label_nan lightning_bar_nan loss_scale_min",
    "network": "name_resolution hf_offline ssh_refused hf_gated",
    "gpu-stack": "no_kernel_image driver_too_old nvml_mismatch libcudart ecc",
    "checkpoint": "ckpt_truncated ckpt_module_prefix ckpt_weights_only",
    "code": "backward_twice inplace shape_mismatch",
}
# the catalogue's ids, as an agent would read them off a report
BIN_OF = {
    "gpu-memory": "OOM1 OOM2 OOM12 OOM13",
    "host-memory": "U9 U10 OOM9 OOM10 DP1",
    "disk": "U6 U7 C3",
    "preempted": "U3",
    "numerics": "PS1 PS2 PS3 PS7",
    "network": "U38 U39 U13 DOM22 U40",
    "gpu-stack": "OOM17 OOM18 OOM20 U24 U32 U35 DOM23",
    "checkpoint": "C2 C4 C5 C6 CV14",
    "code": "CV2 CV3 CV8 U33",
}


def _truth() -> dict[str, tuple[str, str]]:
    """run -> (bin, log of the corpus), in an order that tells nothing."""
    pairs = [(bin_, log) for bin_, logs in BINS.items() for log in logs.split()]
    random.Random(40).shuffle(pairs)
    return {f"r{number:02d}": pair for number, pair in enumerate(pairs, 1)}


def make(box: Box) -> None:
    labels = yaml.safe_load((CORPUS / "labels.yaml").read_text())
    (box.work / "failed").mkdir()
    exits = {}
    for run, (_, log) in _truth().items():
        (box.work / "failed" / f"{run}.log").write_bytes((CORPUS / "failures" / f"{log}.log").read_bytes())
        if "exit" in labels[log]:
            exits[run] = labels[log]["exit"]
    box.write("exit_codes.json", exits)


def verify(box: Box) -> list[str]:
    answer, truth = box.read("bins.json"), _truth()
    wrong = [run for run, (bin_, _) in truth.items() if answer.get(run) != bin_]
    if len(answer) != len(truth):
        raise Missing(f"bins.json has {len(answer)} runs, {len(truth)} failed")
    # two may be argued about; more is a bad Monday
    return [f"{len(wrong)} of {len(truth)} runs are in the wrong bin"] if len(wrong) > 2 else []


def reference(box: Box) -> None:
    by_id = {id_: bin_ for bin_, ids in BIN_OF.items() for id_ in ids.split()}
    exits = json.loads((box.work / "exit_codes.json").read_text())
    bins = {}
    for run in _truth():
        words = ["--exit-code", str(exits[run])] if run in exits else []
        report = box.script("triage.py", f"failed/{run}.log", *words)
        ids = [d["id"] for d in report["diagnoses"] if "id" in d and d["role"] != "aftermath"]
        bins[run] = next((by_id[id_] for id_ in ids if id_ in by_id), "code")
    box.write("bins.json", bins)


def naive(box: Box) -> None:
    """The last line with a known word decides."""
    words = {
        "out of memory": "gpu-memory",
        "Killed": "host-memory",
        "space": "disk",
        "nan": "numerics",
        "SIGTERM": "preempted",
        "connect": "network",
        "CUDA": "gpu-stack",
        "load": "checkpoint",
    }
    bins = {}
    for run in _truth():
        tail = (box.work / "failed" / f"{run}.log").read_text(errors="replace").splitlines()[-3:]
        bins[run] = next((bin_ for word, bin_ in words.items() for line in tail if word in line), "code")
    box.write("bins.json", bins)


CASE = Case(
    route="a run failed, what does this log mean?",
    reads=(),
    minutes=10,
    commands=25,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    held_out=True,
    expected="At least 38 of the 40 runs are in the bin of their cause, not of their loudest line.",
)
