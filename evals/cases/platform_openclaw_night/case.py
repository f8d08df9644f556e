"""What ends a training that an OpenClaw agent started, and what does not: limits, units, nodes, containers."""

from __future__ import annotations

import re
from typing import Any

from trials.case import Box, Broken, Case
from worlds import quiz

TRUTH: dict[str, Any] = {
    "exec_killed_after_s_by_default": 1800,
    "also_when_it_runs_in_background": True,
    "exec_argument_that_changes_it": "timeoutSeconds",
    "value_for_never": 0,
    "background_sessions_survive_a_gateway_restart": False,
    "host_auto_may_pick_gpu2": False,
    "host_node_works_with_host_auto_while_a_sandbox_is_active": False,
    "exec_may_set_env_PATH_on_the_gateway_host": False,
    "setsid_nohup_job_survives_a_restart_of_the_gateway_unit": False,
    "docker_run_gpus_2_takes": "0,1",
    "containers_survive_a_restart_of_the_docker_daemon_by_default": False,
    "OOMKilled_true_proves_a_container_limit": False,
}
SCOPE = "what_to_put_before_the_command_so_that_it_does"


def look_up(box: Box) -> dict[str, Any]:
    """Out of the two files that an agent would read."""
    text = " ".join((box.skill / "references/containers.md").read_text(encoding="utf-8").split())
    launch = " ".join((box.skill / "references/run-local/launch.md").read_text(encoding="utf-8").split())

    def find(pattern: str, where: str = text) -> str:
        found = re.search(pattern, where)
        if not found:
            raise Broken(f"the reference no longer says {pattern}")
        return found[1] if found.groups() else found[0]

    return {
        "exec_killed_after_s_by_default": int(find(r"killed after ([\d,]+) s").replace(",", "")),
        "also_when_it_runs_in_background": bool(find("in the background too")),
        "exec_argument_that_changes_it": find(r"unless `(\w+)` says otherwise"),
        "value_for_never": int(find(r"says otherwise \((\d): never\)")),
        "background_sessions_survive_a_gateway_restart": not find("restart of the gateway or the node forgets them"),
        "host_auto_may_pick_gpu2": not find("never picks a node by itself"),
        "host_node_works_with_host_auto_while_a_sandbox_is_active": not find(
            "a sandbox is active it refuses `host=node`"
        ),
        "exec_may_set_env_PATH_on_the_gateway_host": not find("`env.PATH` and .* are rejected on the gateway host"),
        "setsid_nohup_job_survives_a_restart_of_the_gateway_unit": not find("new session or not", launch),
        SCOPE: find("systemd-run --user --scope", launch),
        "docker_run_gpus_2_takes": "0,1" if find("`--gpus N` means the cards 0 to N-1, free or not") else "",
        "containers_survive_a_restart_of_the_docker_daemon_by_default": not find(
            "Docker stops containers with its daemon by default", launch
        ),
        "OOMKilled_true_proves_a_container_limit": not find("does not tell a limit from a full host"),
    }


def verify(box: Box) -> list[str]:
    answer = box.read(quiz.FORM)
    if isinstance(answer.get("docker_run_gpus_2_takes"), str):
        answer["docker_run_gpus_2_takes"] = answer["docker_run_gpus_2_takes"].replace(" ", "")
    words = str(answer.get(SCOPE, "")).split()
    scope = words[:1] == ["systemd-run"] and {"--user", "--scope"} <= set(words)
    return quiz.wrong(answer, TRUTH) + ([] if scope else [f"{SCOPE} is wrong: {' '.join(words)[:80]}"])


CASE = Case(
    route="docker, or OpenClaw `exec` on a node",
    reads=("references/containers.md", "references/run-local/launch.md"),
    minutes=4,
    commands=8,
    make=quiz.note("box.txt", "gateway: openclaw-gateway.service (user unit), 4 cards; node: gpu2\n"),
    verify=verify,
    reference=quiz.writer(look_up),
    naive=quiz.remembered(
        {**TRUTH, SCOPE: "nohup setsid"},
        exec_argument_that_changes_it="timeout",
        also_when_it_runs_in_background=False,
        setsid_nohup_job_survives_a_restart_of_the_gateway_unit=True,
        OOMKilled_true_proves_a_container_limit=True,
    ),
    held_out=True,
    expected="The limits of exec today, and that only a scope of its own outlives a restart of the gateway's unit.",
)
