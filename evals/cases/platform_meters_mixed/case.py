"""Six meters on six platforms, each with its own idea of what stop means."""

from __future__ import annotations

from typing import Any

from trials.case import Box, Case
from worlds import facts, quiz

TRUTH: dict[str, Any] = {
    "lambda_bills_after_shutdown": True,
    "dstack_instance_bills_after_dstack_stop": True,
    "dstack_command_to_end_it": "dstack fleet delete -y lab",
    "dstack_idle_days_by_default": 3,
    "skypilot_command_to_end_it": "sky down -y sky-a",
    "skypilot_list_command_that_shows_controllers_too": "sky status -u --refresh",
    "paperspace_delete_keeps_snapshots": False,
    "paperspace_cli_name": "pspace",
    "colab_command_to_end_it": "colab stop -s c1",
    "kaggle_cli_can_stop_a_running_kernel": False,
}


def look_up(box: Box) -> dict[str, Any]:
    def of(variant: str) -> facts.Profile:
        return facts.Profile(box, "generic-ssh", variant)

    dstack, sky, paperspace = of("dstack"), of("skypilot"), facts.Profile(box, "paperspace")
    return {
        "lambda_bills_after_shutdown": facts.Profile(box, "lambda").says((), "shutdown on the box bills on"),
        "dstack_instance_bills_after_dstack_stop": dstack.says(
            ("meter", "stops_with"), "ends the run, not the instance"
        ),
        "dstack_command_to_end_it": dstack.value("verbs", "down").replace("<id>", "lab"),
        "dstack_idle_days_by_default": dstack.number(("meter", "stopped_still_bills"), r"for (\d+) days by default"),
        "skypilot_command_to_end_it": sky.value("verbs", "down").replace("<id>", "sky-a"),
        "skypilot_list_command_that_shows_controllers_too": " ".join(sky.front["meter"]["list"]["argv"]),
        "paperspace_delete_keeps_snapshots": paperspace.storage("snapshots")["destroy"] == "kept",
        "paperspace_cli_name": paperspace.front["verbs"]["down"]["argv"][0],
        "colab_command_to_end_it": of("colab").value("verbs", "down").replace("<id>", "c1"),
        "kaggle_cli_can_stop_a_running_kernel": not of("kaggle").says(("verbs", "down"), "has no verb that stops"),
    }


def verify(box: Box) -> list[str]:
    answer = box.read(quiz.FORM)
    key = "skypilot_list_command_that_shows_controllers_too"
    words = str(answer.get(key, "")).split()  # -u has a long name, and an order does not matter
    fine = words[:2] == ["sky", "status"] and bool({"-u", "--all-users"} & set(words))
    return quiz.wrong({**answer, key: TRUTH[key] if fine else answer.get(key)}, TRUTH)


CASE = Case(
    route="which platform, what survives, what bills?",
    reads=("profiles/generic-ssh.md", "profiles/lambda.md", "profiles/paperspace.md"),
    minutes=5,
    commands=12,
    make=quiz.note("stuff.txt", "lambda i-09, dstack fleet lab, sky-a, ps9, colab c1, kaggle kernel me/train\n"),
    verify=verify,
    reference=quiz.writer(look_up),
    naive=quiz.remembered(
        TRUTH,
        dstack_command_to_end_it="dstack stop lab",
        dstack_instance_bills_after_dstack_stop=False,
        paperspace_cli_name="gradient",
        colab_command_to_end_it="Runtime > Disconnect and delete runtime",
        skypilot_list_command_that_shows_controllers_too="sky status",
    ),
    held_out=True,
    expected="Ten facts over six platforms; nothing is stopped.",
)
