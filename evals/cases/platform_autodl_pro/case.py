"""AutoDL's two products and its API, asked in Chinese."""

from __future__ import annotations

from worlds import quiz, sheet

PROFILE = {
    "days_powered_off_until_released": (15, r"after (\d+) days powered off in a row"),
    "pro_instance_has_root_autodl_tmp": (False, r"and no `/root/autodl-tmp`"),
    "authorization_header_needs_bearer": (False, r"in `Authorization` without `Bearer`"),
    "http_status_of_a_failed_api_call": (200, r"answers HTTP (\d+) for failures too"),
    "expanded_data_disk_bills_while_off": (True, r'stopped_still_bills: \{value: "a data disk expanded beyond'),
    "saved_image_contains_data_disk": (False, r"saves the system disk and not the data disk"),
    "autodl_fs_survives_release": (True, r"tier: file storage, path: /root/autodl-fs, stop: kept, destroy: kept"),
    "api_can_start_without_a_card": (False, r"cannot start an instance without a card"),
    "wallet_balance_unit_yuan": (0.001, r"dev/wallet/balance tells what is left, in thousandths of a yuan"),
}
OLD = {
    "pro_instance_has_root_autodl_tmp": True,
    "authorization_header_needs_bearer": True,
    "http_status_of_a_failed_api_call": 400,
    "wallet_balance_unit_yuan": 0.01,
}

CASE = sheet.case(
    {"profiles/autodl.md": PROFILE},
    OLD,
    route="which platform, what survives, what bills?",
    minutes=4,
    commands=8,
    make=quiz.note("计划.txt", "Pro 实例 x3，4090，跑完 power_off，结果放 /root/autodl-tmp\n"),
    expected="All nine facts about AutoDL's Pro instances and its API.",
)
