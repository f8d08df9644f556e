"""A night on call: where the evidence of a hang lies now, what torchrun's exit codes mean, what NCCL says this year."""

from __future__ import annotations

from trials.case import Case
from worlds import quiz, sheet
from worlds.sheet import Fact

RANKS, CARDS = "references/training/distributed-launch.md", "references/run-local/multi-gpu.md"
NODES = "references/run-remote/multinode.md"
SHEET: sheet.Sheet = {
    "flight_recorder_dumps_on_a_timeout_with_no_variable_set": Fact(
        True, CARDS, r"the flight recorder is \*\*on by default\*\* \(2,000 entries, dump on timeout\)"
    ),
    "file_it_dumps_to_by_default_on_rank_3": Fact(
        "~/.cache/torch/comm_lib_trace_rank_3",
        CARDS,
        r"`~/\.cache/torch/comm_lib_trace_rank_<rank>`, on each node",
        (r"(~|\$HOME|/root|/home/\w+)/\.cache/torch/comm_lib_trace_rank_3",),
    ),
    "variable_of_today_for_that_path": Fact(
        "TORCH_FR_DUMP_TEMP_FILE", CARDS, r"`TORCH_FR_BUFFER_SIZE` and `(TORCH_FR_DUMP_TEMP_FILE)`"
    ),
    "nccl_version_that_first_has_a_switch_to_allow_two_ranks_on_one_card": Fact(
        "2.30", RANKS, r"NCCL ([\d.]+) and later: `Multiple Ranks are using", (r"(nccl )?v?2\.30([.-]\d+)*\+?",)
    ),
    "name_of_that_switch": Fact(
        "NCCL_MULTI_RANK_GPU_ENABLE",
        RANKS,
        r"Set (NCCL_MULTI_RANK_GPU_ENABLE)=1 to enable",
        (r"NCCL_MULTI_RANK_GPU_ENABLE=1",),
    ),
    "setting_for_unhandled_cuda_error_at_init_in_a_container_that_hides_numa": Fact(
        "NCCL_CUMEM_HOST_ENABLE=0", RANKS, r"else `(NCCL_CUMEM_HOST_ENABLE=0)`"
    ),
    "TORCH_DISTRIBUTED_DEBUG=DETAIL_with_ddp_over_gloo_in_2.13": Fact(
        "segfault", RANKS, r"DETAIL with DDP over gloo ends in SIGSEGV in 2\.13", (r"segfaults?", r"sigsegv")
    ),
    "torchrun_exit_code_after_sigterm_when_all_ranks_saved_and_exited_0": Fact(
        1,
        CARDS,
        r"the exit code is (\d) for every failure, and also after a stop in which all ranks saved and exited 0",
    ),
    "torchrun_that_gets_SIGUSR1_leaves_its_workers": Fact(
        "alive", CARDS, r"torchrun dies of it \(exit 138\), its workers live on"
    ),
    "seconds_the_other_ranks_have_when_one_failed_and_TORCH_ELASTIC_SHUTDOWN_TIMEOUT=120": Fact(
        30, CARDS, r"After the failure of \*one\* rank the others get (\d+) s in any case"
    ),
    "two_torchruns_on_one_box_without_a_port_collide": Fact(
        False, CARDS, r"one node without a port: a free port is taken"
    ),
    "NCCL_IB_GID_INDEX_default": Fact(-1, NODES, r"NCCL finds the RoCE v2 GID itself \(default (-1)\)"),
    "minutes_after_the_nccl_timeout_until_a_rank_that_sticks_in_its_own_shutdown_is_aborted_at_most": Fact(
        8, NODES, r"a process that then sticks in its own shutdown is aborted up to (\d+) min later"
    ),
}

CASE = Case(
    route="several GPUs, torchrun, a hang",
    reads=(RANKS, CARDS, NODES),
    minutes=6,
    commands=12,
    make=quiz.note("oncall.txt", "mon 22:00-08:00\n6 jobs, 8 ranks each\nTORCH_NCCL_DEBUG_INFO_TEMP_FILE=?\n"),
    verify=sheet.verifier(SHEET),
    reference=sheet.look_up(SHEET),
    naive=quiz.remembered(
        sheet.truth(SHEET),
        file_it_dumps_to_by_default_on_rank_3="/tmp/nccl_trace_rank_3",
        variable_of_today_for_that_path="TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
        torchrun_exit_code_after_sigterm_when_all_ranks_saved_and_exited_0=143,
        two_torchruns_on_one_box_without_a_port_collide=True,
    ),
    expected="Thirteen behaviours of torchrun, torch's flight recorder and NCCL as they are now.",
)
