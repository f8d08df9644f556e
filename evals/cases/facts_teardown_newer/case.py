"""What ends by itself, what bills on, which calls go away: rules of four providers, new or rare."""

from __future__ import annotations

from worlds import quiz, sheet

_PENDING = "vastai show pending-price-increases"
RUNPOD = {
    "runpod_last_client_version_that_still_calls_rest_v1": (
        "2.14.0",
        r"versions up to ([\d.]+\d) call REST v1",
        r"v2\.14\.0",
    ),
    "runpod_rest_v1_ends_on_by_its_migration_page": ("2026-11-15", r"moved forward to ([\d-]+)"),
    "runpod_http_status_of_v1_after_that": (410, r"answers (\d+) Gone"),
    "runpod_graphql_api_ends_in_year": (2027, r"GraphQL API ends in early (\d+)"),
    "runpod_cost_field_of_an_exited_pod_with_a_volume_disk_in_the_api": (
        0,
        r"`cost` of a pod is ([\d.]+), status EXITED",
    ),
}
VAST = {
    "vast_command_that_shows_which_hosts_want_more_money_for_an_extension": (
        _PENDING,
        f"`({_PENDING})`",
        f"{_PENDING} .*",
    ),
    "vast_page_size_at_which_older_clients_cut_the_list_of_instances": (25, r"gives pages of (\d+)"),
    "vast_zero_balance_no_card_saved": (
        "data destroyed after a while",
        r"without a saved card instances, volumes and data are destroyed after a buffer",
    ),
}
PAPERSPACE = {
    "paperspace_machines_are_shut_down_after_hours_unpaid": (72, r"unpaid (\d+) h"),
    "paperspace_everything_may_be_purged_after_days_unpaid": (60, r"over (\d+) days"),
    "paperspace_auto_shutdown_clock_is_held_by_an_open_ssh_session": (False, r"which an ssh session is not"),
}
LAMBDA = {
    "lambda_delete_corpus": (
        "DELETE /api/v1/filesystems/f7",
        r"`DELETE /api/v1/filesystems/<id>`",
        r"DELETE.*/api/v1/filesystems/f7[/ ]*",
    ),
    "lambda_bills_are_issued_every": ("week", r"invoiced (week)ly"),
}
OLD = {
    "runpod_last_client_version_that_still_calls_rest_v1": "1.14.4",
    "runpod_rest_v1_ends_on_by_its_migration_page": "2026-12-01",
    "lambda_delete_corpus": "DELETE /api/v1/file-systems/f7",
    "paperspace_everything_may_be_purged_after_days_unpaid": 30,
}

CASE = sheet.case(
    {
        "profiles/runpod.md": RUNPOD,
        "profiles/vastai.md": VAST,
        "profiles/paperspace.md": PAPERSPACE,
        "profiles/lambda.md": LAMBDA,
    },
    OLD,
    route="which platform, what survives, what bills?",
    minutes=6,
    commands=12,
    make=quiz.note("left.txt", "runpod 2 pods\nvast 1 rental\npaperspace ps4 + invoice\nlambda f7\n"),
    expected="Thirteen rules of four providers, most of which changed this year or stand in one place only.",
)
