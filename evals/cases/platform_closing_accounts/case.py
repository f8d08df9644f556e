"""Lambda's renamed host and its two spellings of filesystems; Paperspace's third command line."""

from __future__ import annotations

import json
from typing import Any

from trials.case import Box, Case
from worlds import facts, quiz

API = "https://cloud.lambda.ai/api/v1"
TRUTH: dict[str, Any] = {
    "lambda_api_host": "cloud.lambda.ai",
    "lambda_terminate_instance_i9": {
        "method": "POST",
        "url": f"{API}/instance-operations/terminate",
        "json": {"instance_ids": ["i9"]},
    },
    "lambda_delete_filesystem_f7": {"method": "DELETE", "url": f"{API}/filesystems/f7"},
    "lambda_filesystem_deletes_while_an_instance_mounts_it": False,
    "lambda_where_filesystem_corpus_is_mounted_on_new_instances": "/lambda/nfs/corpus",
    "lambda_launch_requests_at_most_one_per_seconds": 12,
    "lambda_attach_filesystem_to_a_running_instance": False,
    "paperspace_delete_machine_ps9": "pspace machine delete ps9",
    "paperspace_state_the_machine_must_be_in_for_that": "stopped",
    "paperspace_show_public_addresses": "pspace public-ip list --json",
    "paperspace_show_templates": "pspace custom-template list --json",
    "paperspace_variable_with_the_api_key": "PAPERSPACE_API_KEY",
    "paperspace_flag_for_the_hours_until_auto_shutdown": "--auto-shutdown-timeout",
    "old_gradient_python_cli_still_works": False,
}


def look_up(box: Box) -> dict[str, Any]:
    cloud, space = facts.Profile(box, "lambda"), facts.Profile(box, "paperspace")
    down = cloud.front["verbs"]["down"]["argv"]
    host = cloud.word((), r"The host is `([^`]+)`")
    method, path = cloud.word((), r"`(DELETE) /api"), cloud.word((), r"`DELETE (/api/v1/filesystems/<id>)`")
    return {
        "lambda_api_host": host,
        "lambda_terminate_instance_i9": {
            "method": down[down.index("-X") + 1],
            "url": down[-1],
            "json": json.loads(down[down.index("-d") + 1].replace("<id>", "i9")),
        },
        "lambda_delete_filesystem_f7": {"method": method, "url": f"https://{host}{path.replace('<id>', 'f7')}"},
        "lambda_filesystem_deletes_while_an_instance_mounts_it": not cloud.says(
            (), "works only while no instance mounts it"
        ),
        "lambda_where_filesystem_corpus_is_mounted_on_new_instances": cloud.storage("filesystem")["path"].replace(
            "<filesystem>", "corpus"
        ),
        "lambda_launch_requests_at_most_one_per_seconds": cloud.number((), r"one request in (\d+) s"),
        "lambda_attach_filesystem_to_a_running_instance": not cloud.says((), r"cannot be attached later"),
        "paperspace_delete_machine_ps9": space.value("verbs", "down").replace("<id>", "ps9"),
        "paperspace_state_the_machine_must_be_in_for_that": space.word((), r"must be given a (\w+) machine"),
        "paperspace_show_public_addresses": space.word((), r"`(pspace public-ip list --json)`"),
        "paperspace_show_templates": space.word((), r"`(pspace custom-template list --json)`"),
        "paperspace_variable_with_the_api_key": space.word((), r"read the key from `(\w+)`"),
        "paperspace_flag_for_the_hours_until_auto_shutdown": space.word((), r"`(--auto-shutdown-timeout) <hours>`"),
        "old_gradient_python_cli_still_works": not space.says((), "speak to APIs that were switched off in 2024"),
    }


_STOPPED = ("stopped", "off", "shutdown", "shut down", "powered off", "deactivated")


def verify(box: Box) -> list[str]:
    answer = box.read(quiz.FORM)
    state = str(answer.get("paperspace_state_the_machine_must_be_in_for_that", "")).lower().strip()
    checks = {
        key: answer.get(key) == TRUTH[key] for key in ("lambda_terminate_instance_i9", "lambda_delete_filesystem_f7")
    }
    checks["paperspace_state_the_machine_must_be_in_for_that"] = state in _STOPPED
    for key, start in {
        "paperspace_show_public_addresses": "pspace public-ip list",
        "paperspace_show_templates": "pspace custom-template list",
    }.items():
        checks[key] = quiz.command(answer.get(key), start, "--json")
    mount = "lambda_where_filesystem_corpus_is_mounted_on_new_instances"
    checks[mount] = str(answer.get(mount, "")).rstrip("/") == TRUTH[mount]
    return quiz.settled(answer, TRUTH, checks)


CASE = Case(
    route="which platform, what survives, what bills?",
    reads=("profiles/lambda.md", "profiles/paperspace.md"),
    minutes=5,
    commands=12,
    make=quiz.note("runbook.md", "lambda: i9, filesystem f7 (corpus)\npaperspace: ps9, two addresses, a template\n"),
    verify=verify,
    reference=quiz.writer(look_up),
    naive=quiz.remembered(
        TRUTH,
        lambda_api_host="cloud.lambdalabs.com",
        lambda_delete_filesystem_f7={"method": "DELETE", "url": "https://cloud.lambdalabs.com/api/v1/file-systems/f7"},
        lambda_where_filesystem_corpus_is_mounted_on_new_instances="/home/ubuntu/corpus",
        paperspace_show_public_addresses="paperspace networks list",
        paperspace_delete_machine_ps9="gradient machines destroy --id ps9",
    ),
    held_out=True,
    expected="Lambda's current host, paths and bodies, Paperspace's pspace commands, and what must be ended apart.",
)
