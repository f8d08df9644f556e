"""Facts that moved in 2026: what memory says about RunPod is mostly old."""

from __future__ import annotations

from trials.case import Box, Case, differs
from worlds import facts

TRUTH = {
    "workspace_survives_zero_balance": False,
    "terminate_after_will_end_the_pod": False,
    "usd_per_month_if_i_only_stop_it": 16.0,
    "spot_pods_exist": False,
    "scp_works_over_the_ssh_runpod_io_proxy": False,
    "list_including_stopped": "runpodctl pod list --all",
    "end_all_billing": "runpodctl pod delete abc123",
}


def make(box: Box) -> None:
    box.write(
        "pod.txt", "abc123  A100 SXM  RUNNING  volume 80 GB /workspace  $1.19/hr  created with --terminate-after 6h\n"
    )


def verify(box: Box) -> list[str]:
    answer = box.read("answer.json")
    return [problem for key, value in TRUTH.items() for problem in differs(key, facts.plain(answer.get(key)), value)]


def reference(box: Box) -> None:
    """Every answer out of the profile, so that a fact that changes there turns this red."""
    profile = facts.Profile(box, "runpod")
    doubled = profile.number(("meter", "stopped_still_bills"), r"\$([\d.]+)/GB/month instead of")
    box.write(
        "answer.json",
        {
            "workspace_survives_zero_balance": not profile.says(
                ("meter", "zero_balance"), r"without a network volume are terminated"
            ),
            "terminate_after_will_end_the_pod": not profile.says(("auto_release",), r"--terminate-after never worked"),
            "usd_per_month_if_i_only_stop_it": 80 * doubled,
            "spot_pods_exist": not profile.says(("spot",), r"withdrawn"),
            "scp_works_over_the_ssh_runpod_io_proxy": not profile.says(("ssh",), r"proxy has no scp"),
            "list_including_stopped": profile.value("meter", "list"),
            "end_all_billing": profile.value("verbs", "down").replace("<id>", "abc123"),
        },
    )


def naive(box: Box) -> None:
    """What a model remembers of 2024."""
    answer = {
        **TRUTH,
        "workspace_survives_zero_balance": True,
        "terminate_after_will_end_the_pod": True,
        "usd_per_month_if_i_only_stop_it": 8.0,
        "spot_pods_exist": True,
        "end_all_billing": "runpodctl remove pod abc123",
        "list_including_stopped": "runpodctl get pod",
    }
    box.write("answer.json", answer)


CASE = Case(
    route="which platform, what survives, what bills?",
    reads=("profiles/runpod.md",),
    minutes=4,
    commands=8,
    expected="All seven facts as RunPod's pages have them in November 2026.",
)
