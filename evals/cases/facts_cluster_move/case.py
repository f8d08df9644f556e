"""A plan for a cluster: defaults and refusals of OpenClaw, SkyPilot, docker and torchrun as they are now."""

from __future__ import annotations

from typing import Any

from trials.case import Box, Case
from worlds import facts, quiz

READS = (
    "references/containers.md",
    "references/run-remote/spot-resilience.md",
    "references/run-remote/multinode.md",
)
TRUTH: dict[str, Any] = {
    "openclaw_exec_parameter_that_sets_the_time_limit_of_a_call": "timeoutSeconds",
    "openclaw_exec_time_limit_by_default_seconds": 1800,
    "openclaw_LD_PRELOAD_in_env_of_an_exec_on_the_gateway": "rejected",
    "openclaw_host_node_in_a_call_while_host_is_auto_and_a_sandbox_is_active": "refused",
    "sky_exit_code_that_must_not_be_in_recover_on_exit_codes_because_sky_uses_it": 137,
    "sky_restarts_for_listed_exit_codes_count_against_max_restarts_on_errors": False,
    "docker_gpus_2_on_a_box_with_4_cards_takes_cards": [0, 1],
    "GLOO_SOCKET_IFNAME_accepts_a_prefix_such_as_eth": False,
    "GLOO_SOCKET_IFNAME_accepts_^docker0": False,
    "NCCL_IB_TIMEOUT_default": 20,
    "torchrun_static_rendezvous_waits_for_a_missing_node_seconds": 900,
    "torchrun_whose_workers_ended_well_waits_for_the_other_nodes_at_most_seconds": 300,
}


def look_up(box: Box) -> dict[str, Any]:
    word = facts.said
    containers, spot, nodes = (facts.page(box, name) for name in READS)
    limit = word(containers, r"An exec command is killed after ([\d,]+) s")
    exact = bool(word(nodes, r"exact names only; `\^docker0`, `eth`"))
    return dict(
        zip(
            TRUTH,
            (
                word(containers, r"unless `(\w+)` says otherwise"),
                float(limit.replace(",", "")),
                word(containers, r"`env.PATH` and `LD_\*` of an exec call are (\w+)"),
                word(containers, r"while a sandbox is active it (refuse)s") + "d",
                float(word(spot, r"never list (\d+): SkyPilot uses it itself")),
                not word(spot, r"those codes do not count against the 3"),
                [0, 1] if word(containers, r"`--gpus N` means the cards 0 to N-1, free or not") else None,
                not exact,
                not exact,
                float(word(nodes, r"`NCCL_IB_TIMEOUT` is (\d+) already")),
                float(word(nodes, r"1/2 clients joined` \| - \| (\d+) s")),
                float(word(nodes, r"waits for the others \| - \| at most (\d+) s")),
            ),
            strict=True,
        )
    )


def verify(box: Box) -> list[str]:
    answer = box.read(quiz.FORM)
    cards = "docker_gpus_2_on_a_box_with_4_cards_takes_cards"
    return quiz.settled(answer, TRUTH, {cards: answer.get(cards) == TRUTH[cards]})


CASE = Case(
    route="several GPUs, torchrun, a hang",
    reads=READS,
    minutes=6,
    commands=12,
    make=quiz.note("plan.txt", "mon: sign\ntue: 2x4 A100, eth0, skypilot\n"),
    verify=verify,
    reference=quiz.writer(look_up),
    naive=quiz.remembered(
        TRUTH,
        openclaw_exec_parameter_that_sets_the_time_limit_of_a_call="timeout",
        sky_restarts_for_listed_exit_codes_count_against_max_restarts_on_errors=True,
        torchrun_static_rendezvous_waits_for_a_missing_node_seconds=600,
        GLOO_SOCKET_IFNAME_accepts_a_prefix_such_as_eth=True,
    ),
    held_out=True,
    expected="Twelve defaults and refusals of four tools, out of three files.",
)
