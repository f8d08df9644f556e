"""A plan for a cluster: defaults and refusals of OpenClaw, SkyPilot, docker and torchrun as they are now."""

from __future__ import annotations

from worlds import quiz, sheet

BOXES = {
    "openclaw_exec_parameter_that_sets_the_time_limit_of_a_call": ("timeoutSeconds", r"unless `(\w+)` says otherwise"),
    "openclaw_exec_time_limit_by_default_seconds": (1800, r"An exec command is killed after ([\d,]+) s"),
    "openclaw_LD_PRELOAD_in_env_of_an_exec_on_the_gateway": (
        "rejected",
        r"`env.PATH` and `LD_\*` of an exec call are (\w+)",
    ),
    "openclaw_host_node_in_a_call_while_host_is_auto_and_a_sandbox_is_active": (
        "refused",
        r"while a sandbox is active it refuses",
    ),
    "docker_gpus_2_on_a_box_with_4_cards_takes_cards": ([0, 1], r"`--gpus N` means the cards 0 to N-1, free or not"),
}
SPOT = {
    "sky_exit_code_that_must_not_be_in_recover_on_exit_codes_because_sky_uses_it": (
        137,
        r"never list (\d+): SkyPilot uses it itself",
    ),
    "sky_restarts_for_listed_exit_codes_count_against_max_restarts_on_errors": (
        False,
        r"those codes do not count against the 3",
    ),
}
_EXACT = r"exact names only; `\^docker0`, `eth`"
NODES = {
    "GLOO_SOCKET_IFNAME_accepts_a_prefix_such_as_eth": (False, _EXACT),
    "GLOO_SOCKET_IFNAME_accepts_^docker0": (False, _EXACT),
    "NCCL_IB_TIMEOUT_default": (20, r"`NCCL_IB_TIMEOUT` is (\d+) already"),
    "torchrun_static_rendezvous_waits_for_a_missing_node_seconds": (900, r"1/2 clients joined` \| - \| (\d+) s"),
    "torchrun_whose_workers_ended_well_waits_for_the_other_nodes_at_most_seconds": (
        300,
        r"waits for the others \| - \| at most (\d+) s",
    ),
}
OLD = {
    "openclaw_exec_parameter_that_sets_the_time_limit_of_a_call": "timeout",
    "sky_restarts_for_listed_exit_codes_count_against_max_restarts_on_errors": True,
    "torchrun_static_rendezvous_waits_for_a_missing_node_seconds": 600,
    "GLOO_SOCKET_IFNAME_accepts_a_prefix_such_as_eth": True,
}
_RUN = "references/run-remote"

CASE = sheet.case(
    {"references/containers.md": BOXES, f"{_RUN}/spot-resilience.md": SPOT, f"{_RUN}/multinode.md": NODES},
    OLD,
    route="several GPUs, torchrun, a hang",
    minutes=6,
    commands=12,
    make=quiz.note("plan.txt", "mon: sign\ntue: 2x4 A100, eth0, skypilot\n"),
    held_out=True,
    expected="Twelve defaults and refusals of four tools, out of three files.",
)
