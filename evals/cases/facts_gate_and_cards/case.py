"""House rules for shared cards: two allocator names, what docker's flag proves, which libraries win, which Xid."""

from __future__ import annotations

from trials.case import Case
from worlds import quiz, sheet
from worlds.sheet import Fact

MEMORY, BOXES, ENVS = (
    "references/training/oom-memory.md",
    "references/containers.md",
    "references/run-local/env-hygiene.md",
)
SHEET: sheet.Sheet = {
    "torch_2.9.1_obeys_PYTORCH_ALLOC_CONF=expandable_segments:True": Fact(
        False, MEMORY, r"torch 2\.9\.1 ignores the new name silently"
    ),
    "oom_message_recommends_expandable_segments_even_when_it_is_on": Fact(
        True, MEMORY, r"The hint to set expandable_segments is printed even when it is on"
    ),
    "oom_message_in_a_container_gives_our_own_process_by_its_pid": Fact(
        "on the host", MEMORY, r"Inside a container your own process is shown by its host pid", (r"host",)
    ),
    "docker_OOMKilled_true_proves_that_a_memory_limit_was_hit": Fact(
        False, BOXES, r"The flag does not tell a limit from a full host"
    ),
    "nvml_unknown_error_in_a_container_after_hours_comes_from_this_systemctl_verb": Fact(
        "daemon-reload",
        BOXES,
        r"`systemctl (daemon-reload)` \(often an unattended upgrade\)",
        (r"systemctl daemon-reload",),
    ),
    "LD_LIBRARY_PATH_beats_the_libraries_that_torch_cuda_wheels_bring": Fact(
        False, ENVS, r"PyTorch's CUDA wheels carry RPATH, which is searched \*before\* it"
    ),
    "uv_run_--frozen_leaves_the_.venv_as_it_is": Fact(False, ENVS, r"`--frozen` skips only the locking"),
    "uv_run_removes_a_package_that_is_not_in_the_lock": Fact(
        False, ENVS, r"it removes what is not in the lock \(`uv run`'s sync does not\)"
    ),
    "trl_sft_default_loss_type": Fact("chunked_nll", MEMORY, r"SFT in trl 1\.10 uses `loss_type=\"(\w+)\"` by default"),
    "accelerate_1.15_find_executable_batch_size_multiplies_by": Fact(
        0.9, MEMORY, r"accelerate 1\.15 takes ([\d.]+) of the batch per retry"
    ),
    "xid_94_first_time": Fact(
        "restart the job",
        MEMORY,
        r"and 94 \(error contained to this process\): restart, and give the card back when they return",
    ),
    "xid_64": Fact(
        "give the card back", MEMORY, r"64 \(repair failed\), 74 \(NVLink\), 79 \(off the bus\), 95: hardware"
    ),
    "openclaw_exec_in_background_ends_after_its_time_limit_too": Fact(
        True, BOXES, r"An exec command is killed after 1,800 s, in the background too"
    ),
    "openclaw_exec_timeout_value_that_means_never": Fact(
        0, BOXES, r"unless `timeoutSeconds` says otherwise \((\d): never\)"
    ),
}

CASE = Case(
    route="docker, or OpenClaw `exec` on a node",
    reads=(MEMORY, BOXES, ENVS),
    minutes=6,
    commands=12,
    make=quiz.note(
        "rules.txt", "8 cards, 5 people\nexport PYTORCH_ALLOC_CONF=expandable_segments:True\nuv run --frozen train.py\n"
    ),
    verify=sheet.verifier(SHEET),
    reference=sheet.look_up(SHEET),
    naive=quiz.remembered(
        sheet.truth(SHEET),
        **{
            "torch_2.9.1_obeys_PYTORCH_ALLOC_CONF=expandable_segments:True": True,
            "accelerate_1.15_find_executable_batch_size_multiplies_by": 0.5,
        },
        LD_LIBRARY_PATH_beats_the_libraries_that_torch_cuda_wheels_bring=True,
        trl_sft_default_loss_type="nll",
    ),
    expected="Fourteen behaviours of allocator, docker, environments, Xids and OpenClaw that house rules get wrong.",
)
