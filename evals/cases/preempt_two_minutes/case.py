"""Two minutes of notice: what Google sells since this autumn, what a site must set, and what torchrun swallows."""

from __future__ import annotations

import re
from typing import Any

from trials.case import Box, Case
from worlds import quiz

# references/run-remote/spot-resilience.md
SITE = "slurm_option_of_the_site_that_sends_my_signal_at_a_preemption_too"
TRUTH: dict[str, Any] = {
    "gcloud_create": "gcloud beta compute instances create trainer-1 --zone=us-central1-a --machine-type=a2-highgpu-1g "
    "--provisioning-model=SPOT --preemption-notice-duration=120s",
    "gcp_notice_can_be_turned_on_for_a_vm_that_exists": False,
    "gcp_metadata_entry_that_shows_it": "instance/preempted",
    "gcp_guest_gets_acpi_or_a_signal_when_the_long_notice_begins": False,
    "gke_longest_notice_seconds_a_node_pool_can_have": 120,
    "gke_first_minor_version_for_that": "1.35",
    "azure_event_type": "Preempt",
    "azure_events_are_switched_off_after_hours_without_a_call": 24,
    SITE: "send_user_signal",
    "slurm_signal_may_come_earlier_than_asked_by_seconds": 60,
    "slurm_B_signal_reaches_the_steps": False,
    "torchrun_seconds_until_workers_are_killed_by_default": 30,
    "torchrun": "torchrun --nproc-per-node 8 --signals-to-handle SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1 "
    "--shutdown-timeout 110 train.py",
    "same_timeout_as_environment_variable": "TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
    "hf_trainer_jit_checkpoint_waits_seconds_after_sigterm": 3,
}
SIGNALS = {"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1"}


def _one(text: str, pattern: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else "?"


def look_up(box: Box) -> dict[str, Any]:
    text = (box.skill / "references/run-remote/spot-resilience.md").read_text(encoding="utf-8")
    signals, shutdown = _one(text, r"`--signals-to-handle ([\w,]+)`"), _one(text, r"`(--shutdown-timeout 110)`")
    notice = _one(text, r"made with `(--preemption-notice-duration=120s)` \(0 or 120, at creation")
    spot = "trainer-1 --zone=us-central1-a --machine-type=a2-highgpu-1g --provisioning-model=SPOT"
    return {
        "gcloud_create": f"gcloud beta compute instances create {spot} {notice}",
        "gcp_notice_can_be_turned_on_for_a_vm_that_exists": "(0 or 120, at creation" not in text,
        "gcp_metadata_entry_that_shows_it": _one(text, r"metadata `(instance/preempted)` → TRUE"),
        "gcp_guest_gets_acpi_or_a_signal_when_the_long_notice_begins": "nothing, then ACPI soft off" not in text,
        "gke_longest_notice_seconds_a_node_pool_can_have": int(_one(text, r"up to (\d+) s in all by node pool")),
        "gke_first_minor_version_for_that": _one(text, r"from GKE (\d+\.\d+)"),
        "azure_event_type": _one(text, r"`EventType: (\w+)`"),
        "azure_events_are_switched_off_after_hours_without_a_call": int(
            _one(text, r"off again after (\d+) h without a call")
        ),
        SITE: _one(text, r"the site's `(\w+)`"),
        "slurm_signal_may_come_earlier_than_asked_by_seconds": int(_one(text, r"\(up to (\d+) s early")),
        "slurm_B_signal_reaches_the_steps": "with `B:` only the batch shell" not in text,
        "torchrun_seconds_until_workers_are_killed_by_default": int(_one(text, r"kills workers after (\d+) s")),
        "torchrun": f"torchrun --nproc-per-node 8 --signals-to-handle {signals} {shutdown} train.py",
        "same_timeout_as_environment_variable": _one(text, r"\(env `(\w+)`\)"),
        "hf_trainer_jit_checkpoint_waits_seconds_after_sigterm": int(_one(text, r"and that waits (\d) s first")),
    }


def verify(box: Box) -> list[str]:
    answer = box.read(quiz.FORM)
    notice = "--preemption-notice-duration 120s|--preemption-notice-duration 120|--preemption-notice-duration 2m"
    create = answer.get("gcloud_create")
    wants = ("trainer-1", "--zone us-central1-a", "--machine-type a2-highgpu-1g", "--provisioning-model SPOT", notice)
    starts = [f"gcloud{part} compute instances create" for part in (" beta", "", " alpha")]
    run = str(answer.get("torchrun")).replace("_", "-")
    handled = _one(run.replace("=", " "), r"--signals-to-handle ([\w,]+)").split(",")
    entry = str(answer.get("gcp_metadata_entry_that_shows_it"))
    version = "gke_first_minor_version_for_that"
    checks = {
        "gcloud_create": any(quiz.command(create, start, *wants) for start in starts),
        "torchrun": quiz.command(run, "torchrun", "--nproc-per-node 8", "--shutdown-timeout 110", "train.py")
        and {name if name.startswith("SIG") else f"SIG{name}" for name in handled} == SIGNALS,
        version: str(answer.get(version)).lstrip("v").startswith("1.35"),
        SITE: str(answer.get(SITE)).split("=")[-1] in ("send_user_signal", "preempt_send_user_signal"),  # by version
        "gcp_metadata_entry_that_shows_it": entry.split("?")[0].strip("/ ").endswith("instance/preempted"),
    }
    return quiz.settled(
        {**answer, "azure_event_type": str(answer.get("azure_event_type")).strip().capitalize()}, TRUTH, checks
    )


CASE = Case(
    route="spot, preemption, how often to save",
    reads=("references/run-remote/spot-resilience.md",),
    minutes=5,
    commands=12,
    make=quiz.note("measured.txt", "save: 100 s\n"),
    verify=verify,
    reference=quiz.writer(look_up),
    naive=quiz.remembered(
        TRUTH,
        gcloud_create="gcloud compute instances create trainer-1 --zone=us-central1-a --machine-type=a2-highgpu-1g "
        "--provisioning-model=SPOT --instance-termination-action=STOP",
        gke_longest_notice_seconds_a_node_pool_can_have=25,
        gke_first_minor_version_for_that="1.26",
        slurm_option_of_the_site_that_sends_my_signal_at_a_preemption_too="PreemptMode",
        torchrun="torchrun --nproc-per-node 8 train.py",
    ),
    held_out=True,
    expected="Google's notice flag, what shows it, GKE's, Azure's and Slurm's limits, and torchrun's two options.",
)
