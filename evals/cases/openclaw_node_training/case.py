"""OpenClaw's exec is no place for a training: what kills it, what forgets it, what does not."""

from __future__ import annotations

import re
from typing import Any

from trials.case import Box, Case
from worlds import quiz

SESSION = "session_command_that_sends_exec_to_gpu1_while_a_sandbox_is_active"
PREFIX = "prefix_before_python_train_py_that_makes_it_survive"
LOOK = "look_at_it_every_20_minutes_in_a_session_of_its_own"
TRUTH: dict[str, Any] = {
    "exec_is_killed_after_seconds_unless_told_otherwise": 1800,
    "that_hits_background_exec_too": True,
    "timeout_value_that_means_never": 0,
    "exec_moves_to_the_background_by_itself_after_seconds": 10,
    "background_sessions_survive_a_gateway_restart": False,
    "host_auto_may_pick_gpu1_by_itself": False,
    SESSION: "/exec host=node node=gpu1",
    "PATH_in_the_env_of_an_exec_on_the_gateway_host": "rejected",
    "setsid_nohup_child_of_the_gateway_survives_a_restart_of_its_unit": False,
    PREFIX: "systemd-run --user --scope",
    LOOK: "openclaw cron add --every 20m --session isolated --message 'check the run'",
    "that_is_forgotten_when_the_gateway_restarts": False,
}


def look_up(box: Box) -> dict[str, Any]:
    """containers.md has exec, monitoring_patterns.md the yield and the cron, launch.md the unit."""

    def text(name: str) -> str:
        return " ".join((box.skill / "references" / name).read_text(encoding="utf-8").split())

    exec_, watch, launch = text("containers.md"), text("run-remote/monitoring_patterns.md"), text("run-local/launch.md")

    def one(where: str, pattern: str) -> str:
        found = re.search(pattern, where)
        return found[1] if found else "-1"

    cron = one(watch, r"`(openclaw cron add --every 20m --session isolated --message) \"...\"`: kept on disk")
    return {
        "exec_is_killed_after_seconds_unless_told_otherwise": int(
            one(exec_, r"is killed after ([\d,]+) s, in the background too").replace(",", "")
        ),
        "that_hits_background_exec_too": "s, in the background too" in exec_,
        "timeout_value_that_means_never": int(one(exec_, r"\((\d): never\)")),
        "exec_moves_to_the_background_by_itself_after_seconds": int(one(watch, r"by itself after (\d+) s \(`yieldMs`")),
        "background_sessions_survive_a_gateway_restart": "a restart of the gateway or the node forgets them"
        not in exec_,
        "host_auto_may_pick_gpu1_by_itself": "`host=auto` never picks a node by itself" not in exec_,
        SESSION: one(exec_, r"set `(/exec host=node node=<id>)`").replace("<id>", "gpu1"),
        "PATH_in_the_env_of_an_exec_on_the_gateway_host": one(exec_, r"of an exec call are (\w+) on the gateway host"),
        "setsid_nohup_child_of_the_gateway_survives_a_restart_of_its_unit": "OpenClaw's gateway unit has it"
        not in launch,
        PREFIX: one(launch, r"(systemd-run --user --scope) python"),
        LOOK: f"{cron} 'check the run'",
        "that_is_forgotten_when_the_gateway_restarts": cron == "-1",
    }


def verify(box: Box) -> list[str]:
    answer = box.read(quiz.FORM)
    checks = {
        SESSION: quiz.command(answer.get(SESSION), "/exec", "host node", "node gpu1"),
        PREFIX: quiz.command(answer.get(PREFIX), "systemd-run", "--user"),  # a scope or a service: both leave the unit
        LOOK: quiz.command(
            answer.get(LOOK), "openclaw cron add", "--every 20m", "--session isolated", "--message check the run"
        ),
    }
    return quiz.settled(answer, TRUTH, checks)


CASE = Case(
    route="docker, or OpenClaw `exec` on a node",
    reads=(
        "references/containers.md",
        "references/run-remote/monitoring_patterns.md",
        "references/run-local/launch.md",
    ),
    minutes=5,
    commands=12,
    make=quiz.note("setup.txt", "gateway: lab server, systemd --user\nnode: gpu1, 4x H100\n"),
    verify=verify,
    reference=quiz.writer(look_up),
    naive=quiz.remembered(
        TRUTH,
        that_hits_background_exec_too=False,
        host_auto_may_pick_gpu1_by_itself=True,
        PATH_in_the_env_of_an_exec_on_the_gateway_host="used",
        setsid_nohup_child_of_the_gateway_survives_a_restart_of_its_unit=True,
        exec_is_killed_after_seconds_unless_told_otherwise=600,
    ),
    expected="Twelve facts about exec, nodes, the gateway's unit and cron.",
)
