"""What ends by itself, what bills on, which calls go away: rules of four providers, new or rare."""

from __future__ import annotations

from trials.case import Box, Case
from worlds import quiz, sheet
from worlds.sheet import Fact

RUNPOD, VAST, PAPERSPACE, LAMBDA = (f"profiles/{name}.md" for name in ("runpod", "vastai", "paperspace", "lambda"))
SHEET: sheet.Sheet = {
    "runpod_last_client_version_that_still_calls_rest_v1": Fact(
        "2.14.0", RUNPOD, r"versions up to ([\d.]+\d) call REST v1"
    ),
    "runpod_rest_v1_ends_on_by_its_migration_page": Fact("2026-11-15", RUNPOD, r"moved forward to ([\d-]+)"),
    "runpod_http_status_of_v1_after_that": Fact(410, RUNPOD, r"answers (\d+) Gone"),
    "runpod_graphql_api_ends_in_year": Fact(2027, RUNPOD, r"GraphQL API ends in early (\d+)"),
    "runpod_cost_field_of_an_exited_pod_with_a_volume_disk_in_the_api": Fact(
        0, RUNPOD, r"`cost` of a pod is ([\d.]+), status EXITED"
    ),
    "vast_command_that_shows_which_hosts_want_more_money_for_an_extension": Fact(
        "vastai show pending-price-increases", VAST, r"`(vastai show pending-price-increases)`"
    ),
    "vast_page_size_at_which_older_clients_cut_the_list_of_instances": Fact(25, VAST, r"gives pages of (\d+)"),
    "vast_zero_balance_no_card_saved": Fact(
        "data destroyed after a while",
        VAST,
        r"without a saved card instances, volumes and data are destroyed after a buffer",
    ),
    "paperspace_machines_are_shut_down_after_hours_unpaid": Fact(72, PAPERSPACE, r"unpaid (\d+) h"),
    "paperspace_everything_may_be_purged_after_days_unpaid": Fact(60, PAPERSPACE, r"over (\d+) days"),
    "paperspace_auto_shutdown_clock_is_held_by_an_open_ssh_session": Fact(
        False, PAPERSPACE, r"which an ssh session is not"
    ),
    "lambda_delete_corpus": Fact("DELETE /api/v1/filesystems/f7", LAMBDA, r"`DELETE /api/v1/filesystems/<id>`"),
    "lambda_bills_are_issued_every": Fact("week", LAMBDA, r"invoiced (week)ly"),
}
TRUTH = sheet.truth(SHEET)


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
    reads=sheet.pages(SHEET),
    minutes=6,
    commands=12,
    make=quiz.note("left.txt", "runpod 2 pods\nvast 1 rental\npaperspace ps4 + invoice\nlambda f7\n"),
    reference=sheet.look_up(SHEET),
    naive=quiz.remembered(
        TRUTH,
        runpod_last_client_version_that_still_calls_rest_v1="1.14.4",
        runpod_rest_v1_ends_on_by_its_migration_page="2026-12-01",
        lambda_delete_corpus="DELETE /api/v1/file-systems/f7",
        paperspace_everything_may_be_purged_after_days_unpaid=30,
    ),
    expected="Thirteen rules of four providers, most of which changed this year or stand in one place only.",
)
