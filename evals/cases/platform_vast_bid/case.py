"""Vast.ai as it is now: a destroy that asks, a bid that is not one, volumes tied to a machine."""

from __future__ import annotations

from typing import Any

from trials.case import Box, Case
from worlds import facts, quiz

TRUTH: dict[str, Any] = {
    "seconds_of_notice_when_outbid": 0,
    "search_type_bid_then_plain_create_gives": "on-demand",
    "exit_code_of_destroy_without_confirmation_flag_and_no_stdin": 0,
    "and_is_the_instance_gone_then": False,
    "stopped_instance_still_bills": "disk",
    "volume_can_move_to_another_machine": False,
    "hours_after_end_date_until_data_may_be_deleted": 48,
    "destroy_command_for_id_777_in_a_script": "vastai destroy instance 777 -y",
}


def look_up(box: Box) -> dict[str, Any]:
    vast = facts.Profile(box, "vastai")
    aborted = r"the output ends in `Aborted.`, the exit code is (\d)"
    return {
        "seconds_of_notice_when_outbid": 0 if vast.says(("spot",), "no notice documented") else None,
        "search_type_bid_then_plain_create_gives": "on-demand" if vast.says((), r"rents \*\*on demand\*\*") else None,
        "exit_code_of_destroy_without_confirmation_flag_and_no_stdin": vast.number((), aborted),
        "and_is_the_instance_gone_then": not vast.says((), r"takes that as no and still exits 0"),
        "stopped_instance_still_bills": vast.word(("meter", "stopped_still_bills"), r"the whole (disk)"),
        "volume_can_move_to_another_machine": not vast.says((), r"mounted on that physical host only"),
        "hours_after_end_date_until_data_may_be_deleted": vast.number(("auto_release",), r"(\d+) h after"),
        "destroy_command_for_id_777_in_a_script": vast.value("verbs", "down").replace("<id>", "777"),
    }


CASE = Case(
    route="which platform, what survives, what bills?",
    reads=("profiles/vastai.md",),
    minutes=4,
    commands=8,
    make=quiz.note("plan.txt", "4x RTX 5090, interruptible, bid 0.31, script on cron\n"),
    verify=quiz.verifier(TRUTH),
    reference=quiz.writer(look_up),
    naive=quiz.remembered(
        TRUTH,
        search_type_bid_then_plain_create_gives="interruptible",
        exit_code_of_destroy_without_confirmation_flag_and_no_stdin=1,
        destroy_command_for_id_777_in_a_script="vastai destroy instance 777",
    ),
    expected="All eight facts as Vast.ai's pages and client have them in November 2026.",
)
