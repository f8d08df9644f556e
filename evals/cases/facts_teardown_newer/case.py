"""What ends by itself, what bills on, which calls go away: rules of four providers, new or rare."""

from __future__ import annotations

from typing import Any

from trials.case import Box, Case
from worlds import facts, quiz

TRUTH: dict[str, Any] = {
    "runpod_last_client_version_that_still_calls_rest_v1": "2.14.0",
    "runpod_rest_v1_ends_on_by_its_migration_page": "2026-12-01",
    "runpod_http_status_of_v1_after_that": 410,
    "runpod_graphql_api_ends_in_year": 2027,
    "runpod_cost_field_of_an_exited_pod_with_a_volume_disk_in_the_api": 0,
    "vast_command_that_shows_which_hosts_want_more_money_for_an_extension": "vastai show pending-price-increases",
    "vast_page_size_at_which_older_clients_cut_the_list_of_instances": 25,
    "vast_zero_balance_no_card_saved": "data destroyed after a while",
    "paperspace_machines_are_shut_down_after_hours_unpaid": 72,
    "paperspace_everything_may_be_purged_after_days_unpaid": 60,
    "paperspace_auto_shutdown_clock_is_held_by_an_open_ssh_session": False,
    "lambda_delete_corpus": "DELETE /api/v1/filesystems/f7",
    "lambda_bills_are_issued_every": "week",
}


def look_up(box: Box) -> dict[str, Any]:
    runpod, vast, paperspace, lambda_ = (
        facts.Profile(box, name) for name in ("runpod", "vastai", "paperspace", "lambda")
    )
    destroyed = r"without a saved card instances, volumes and data are destroyed after a buffer"
    return dict(
        zip(
            TRUTH,
            (
                runpod.word((), r"versions up to ([\d.]+\d) call REST v1"),
                runpod.word((), r"the migration page later said ([\d-]+)"),
                runpod.number((), r"answers (\d+) Gone"),
                runpod.number((), r"GraphQL API ends in early (\d+)"),
                runpod.number((), r"`cost` of a pod is ([\d.]+), status EXITED"),
                vast.word((), r"`(vastai show pending-price-increases)`"),
                vast.number((), r"gives pages of (\d+)"),
                "data destroyed after a while" if vast.says(("meter", "zero_balance"), destroyed) else None,
                paperspace.number(("meter", "zero_balance"), r"unpaid (\d+) h"),
                paperspace.number(("meter", "zero_balance"), r"over (\d+) days"),
                not paperspace.says((), r"which an ssh session is not"),
                lambda_.word((), r"`(DELETE /api/v1/filesystems/<id>)`").replace("<id>", "f7"),
                lambda_.word(("meter", "zero_balance"), r"invoiced (week)ly"),
            ),
            strict=True,
        )
    )


def verify(box: Box) -> list[str]:
    answer = box.read(quiz.FORM)
    version, delete = "runpod_last_client_version_that_still_calls_rest_v1", "lambda_delete_corpus"
    asked, called = "vast_command_that_shows_which_hosts_want_more_money_for_an_extension", str(answer.get(delete))
    checks = {
        version: str(answer.get(version)).strip().lstrip("v") == TRUTH[version],
        delete: called.startswith("DELETE") and called.rstrip("/ `").endswith("/api/v1/filesystems/f7"),
        asked: quiz.command(answer.get(asked), str(TRUTH[asked])),
    }
    return quiz.settled(answer, TRUTH, checks)


CASE = Case(
    route="which platform, what survives, what bills?",
    reads=(
        "profiles/runpod.md",
        "profiles/vastai.md",
        "profiles/paperspace.md",
        "profiles/lambda.md",
    ),
    minutes=6,
    commands=12,
    make=quiz.note("left.txt", "runpod 2 pods\nvast 1 rental\npaperspace ps4 + invoice\nlambda f7\n"),
    verify=verify,
    reference=quiz.writer(look_up),
    naive=quiz.remembered(
        TRUTH,
        runpod_last_client_version_that_still_calls_rest_v1="1.14.4",
        runpod_rest_v1_ends_on_by_its_migration_page="2026-11-15",
        lambda_delete_corpus="DELETE /api/v1/file-systems/f7",
        paperspace_everything_may_be_purged_after_days_unpaid=30,
    ),
    expected="Thirteen rules of four providers, most of which changed this year or stand in one place only.",
)
