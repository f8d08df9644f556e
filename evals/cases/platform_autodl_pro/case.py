"""AutoDL's two products and its API, asked in Chinese."""

from __future__ import annotations

from typing import Any

from trials.case import Box, Case
from worlds import facts, quiz

TRUTH: dict[str, Any] = {
    "days_powered_off_until_released": 15,
    "pro_instance_has_root_autodl_tmp": False,
    "authorization_header_needs_bearer": False,
    "http_status_of_a_failed_api_call": 200,
    "expanded_data_disk_bills_while_off": True,
    "saved_image_contains_data_disk": False,
    "autodl_fs_survives_release": True,
    "api_can_start_without_a_card": False,
    "wallet_balance_unit_yuan": 0.001,
}


def look_up(box: Box) -> dict[str, Any]:
    autodl = facts.Profile(box, "autodl")
    return {
        "days_powered_off_until_released": autodl.number(("auto_release",), r"after (\d+) days"),
        "pro_instance_has_root_autodl_tmp": not autodl.says((), r"and no `/root/autodl-tmp`"),
        "authorization_header_needs_bearer": not autodl.says((), r"in `Authorization` without `Bearer`"),
        "http_status_of_a_failed_api_call": autodl.number((), r"answers HTTP (\d+) for failures too"),
        "expanded_data_disk_bills_while_off": autodl.says(("meter", "stopped_still_bills"), r"expanded beyond"),
        "saved_image_contains_data_disk": not autodl.says((), r"saves the system disk and not the data\s+disk"),
        "autodl_fs_survives_release": autodl.storage("file storage")["destroy"] == "kept",
        "api_can_start_without_a_card": not autodl.says((), r"cannot start an instance without a card"),
        "wallet_balance_unit_yuan": 0.001 if autodl.says(("meter", "zero_balance"), "thousandths of a yuan") else None,
    }


CASE = Case(
    route="which platform, what survives, what bills?",
    reads=("profiles/autodl.md",),
    minutes=4,
    commands=8,
    make=quiz.note("计划.txt", "Pro 实例 x3，4090，跑完 power_off，结果放 /root/autodl-tmp\n"),
    verify=quiz.verifier(TRUTH),
    reference=quiz.writer(look_up),
    naive=quiz.remembered(
        TRUTH,
        pro_instance_has_root_autodl_tmp=True,
        authorization_header_needs_bearer=True,
        http_status_of_a_failed_api_call=400,
        wallet_balance_unit_yuan=0.01,
    ),
    expected="All nine facts about AutoDL's Pro instances and its API.",
)
