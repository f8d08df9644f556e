"""How long a process really has on each kind of spot capacity, and what fits into it."""

from __future__ import annotations

import re
from typing import Any

from trials.case import Box, Case, same_names
from worlds import facts, quiz

SAVE = 40 / 1.6
TRUTH: dict[str, Any] = {
    "aws_spot": 120,
    "gcp_spot_vm": 30,
    "gke_spot_pod": 15,
    "azure_spot": 30,
    "vast_interruptible": 0,
    "slurm_preemption_default_gracetime": 0,
    "longer_terminationGracePeriodSeconds_helps_on_gke_spot": False,
    "does_aws_send_sigterm_to_my_process_with_the_notice": False,
}
FITS = ["aws_spot", "gcp_spot_vm", "azure_spot"]


def look_up(box: Box) -> dict[str, Any]:
    table = (box.skill / "references/run-remote/spot-resilience.md").read_text(encoding="utf-8")
    cloud = facts.Profile(box, "generic-ssh").value("spot")
    aws, azure, gcp = (int(n) for n in re.findall(r"AWS (\d+) s, Azure (\d+) s, GCP (\d+) s", cloud)[0])
    k8s, slurm = facts.Profile(box, "generic-ssh", "k8s"), facts.Profile(box, "generic-ssh", "slurm")
    seconds = {"aws_spot": aws, "gcp_spot_vm": gcp, "gke_spot_pod": k8s.front["spot"]["grace"], "azure_spot": azure}
    return {
        **seconds,
        "vast_interruptible": 0 if "| Vast.ai interruptible | none" in table else None,
        "slurm_preemption_default_gracetime": slurm.number(("spot",), r"GraceTime, which is (\d+) by default"),
        "longer_terminationGracePeriodSeconds_helps_on_gke_spot": not k8s.says(("spot",), "above that is ignored"),
        "save_fits_on": [name for name, time in seconds.items() if time >= SAVE],
        "does_aws_send_sigterm_to_my_process_with_the_notice": "SIGTERM only at OS shutdown" not in table,
    }


def verify(box: Box) -> list[str]:
    return quiz.verifier(TRUTH)(box) + same_names("save_fits_on", box.read(quiz.FORM).get("save_fits_on", []), FITS)


CASE = Case(
    route="spot, preemption, how often to save",
    reads=("references/run-remote/spot-resilience.md", "profiles/generic-ssh.md"),
    minutes=4,
    commands=8,
    make=quiz.note("measured.txt", "save: 40 GB at 1.6 GB/s\n"),
    verify=verify,
    reference=quiz.writer(look_up),
    naive=quiz.remembered(
        {**TRUTH, "save_fits_on": ["aws_spot", "gcp_spot_vm", "gke_spot_pod", "azure_spot"]},
        gke_spot_pod=30,
        longer_terminationGracePeriodSeconds_helps_on_gke_spot=True,
        slurm_preemption_default_gracetime=30,
    ),
    held_out=True,
    expected="The seconds of six platforms, and that 25 s fit everywhere but on GKE spot pods.",
)
