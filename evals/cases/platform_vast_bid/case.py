"""Vast.ai as it is now: a destroy that asks, a bid that is not one, volumes tied to a machine."""

from __future__ import annotations

from worlds import quiz, sheet

PROFILE = {
    "seconds_of_notice_when_outbid": (0, r'spot: \{value: "[^"]*no notice documented'),
    "search_type_bid_then_plain_create_gives": ("on-demand", r"rents \*\*on demand\*\*"),
    "exit_code_of_destroy_without_confirmation_flag_and_no_stdin": (
        0,
        r"the output ends in `Aborted.`, the exit code is (\d)",
    ),
    "and_is_the_instance_gone_then": (False, r"takes that as no and still exits 0"),
    "stopped_instance_still_bills": ("disk", r'stopped_still_bills: \{value: "the whole (disk)'),
    "volume_can_move_to_another_machine": (False, r"mounted on that physical host only"),
    "hours_after_end_date_until_data_may_be_deleted": (48, r"may be deleted (\d+) h after"),
    "destroy_command_for_id_777_in_a_script": (
        "vastai destroy instance 777 -y",
        r'down: \{value: "vastai destroy instance <id> -y"',
        r"vastai destroy instance (?:777 --yes|(?:-y|--yes) 777)",
    ),
}
OLD = {
    "search_type_bid_then_plain_create_gives": "interruptible",
    "exit_code_of_destroy_without_confirmation_flag_and_no_stdin": 1,
    "destroy_command_for_id_777_in_a_script": "vastai destroy instance 777",
}

CASE = sheet.case(
    {"profiles/vastai.md": PROFILE},
    OLD,
    route="which platform, what survives, what bills?",
    minutes=4,
    commands=8,
    make=quiz.note("plan.txt", "4x RTX 5090, interruptible, bid 0.31, script on cron\n"),
    expected="All eight facts as Vast.ai's pages and client have them in November 2026.",
)
