"""Four inherited pretrainings: what a stop saves, what a resume reads again, which limit is none."""

from __future__ import annotations

from trials.case import Case
from worlds import quiz, sheet
from worlds.sheet import Fact

PRE, SAVED, OVER = "references/pretraining.md", "references/training/checkpoint-resume.md", "references/takeover.md"
SHEET: sheet.Sheet = {
    "nanogpt_updates_done_when_it_stops_by_itself_from_scratch": Fact(
        600001, PRE, r"It trains one update past `max_iters`"
    ),
    "nanogpt_batches_after_a_resume": Fact(
        "start with the first ones again", PRE, r"each resume reads the first batches again", (r"start.* again",)
    ),
    "nanogpt_--learning_rate=1_on_the_command_line": Fact("refused", PRE, r"`--learning_rate=1` fails: int for float"),
    "litgpt_plain_dataloader_resume": Fact(
        "fails", PRE, r"is pickled whole, and the resume (fails) with `UnpicklingError"
    ),
    "litgpt_litdata_epochs_after_a_resume_inside_an_epoch_begin": Fact(
        "at their beginning", PRE, r"goes on there, and later epochs begin (at their beginning)"
    ),
    "litgpt_litdata_logged_epoch_after_a_resume": Fact(
        "starts over", PRE, r"The logged epoch (starts over) after each"
    ),
    "litgpt_pretrain_ends_at_train.max_steps": Fact(False, PRE, r"`train\.max_steps` is not a limit in `pretrain`"),
    "litgpt_logged_iter_counts": Fact(
        "micro-batches",
        PRE,
        r"the logged `iter` and every logger's x-axis count (micro-batches)",
        (r"micro[- ]?batch(es)?",),
    ),
    "litgpt_resume_auto_takes_the_folder_final": Fact(
        False, PRE, r"takes the highest `step-\*` below out_dir.{0,25}, and not `final/`"
    ),
    "hf_jit_checkpoint_seconds_between_the_signal_and_the_start_of_the_save": Fact(
        3, PRE, r"`enable_jit_checkpoint` waits (\d+) s after SIGTERM before it asks for a save"
    ),
    "hf_jit_checkpoint_exit_code_after_a_preemption": Fact(
        0, PRE, r"and ends with exit code (\d): a scheduler takes that for done"
    ),
    "hf_jit_checkpoint_saves_on_SIGUSR1": Fact(False, PRE, r"knows no SIGUSR1"),
    "hf_resume_True_skips_a_folder_marked_checkpoint-is-incomplete.txt": Fact(
        False, SAVED, r"looks at nothing else \(transformers 5\.3\); not even at `checkpoint-is-incomplete\.txt`"
    ),
    "kaggle_default_gpu_first_cuda_operation_with_the_default_image": Fact(
        "fails", PRE, r"default machine is a P100, .{30,90} CUDA is \"available\" and the first operation fails"
    ),
}

CASE = Case(
    route="pretrain from scratch: nanoGPT, LitGPT, HF Trainer, phases",
    reads=(PRE, SAVED, OVER),
    minutes=6,
    commands=12,
    make=quiz.note(
        "inherited.txt",
        "a nanoGPT it 412000\nb litgpt own data step 90000\nc litgpt litdata epoch 2\nd hf trainer slurm\ne kaggle\n",
    ),
    verify=sheet.verifier(SHEET),
    reference=sheet.look_up(SHEET),
    naive=quiz.remembered(
        sheet.truth(SHEET),
        **{"litgpt_pretrain_ends_at_train.max_steps": True},
        nanogpt_updates_done_when_it_stops_by_itself_from_scratch=600000,
        litgpt_plain_dataloader_resume="repeats data",
        litgpt_litdata_epochs_after_a_resume_inside_an_epoch_begin="where the resume was",
        kaggle_default_gpu_first_cuda_operation_with_the_default_image="works",
    ),
    expected="Fourteen outcomes of stopping and resuming with three trainers, and one card that no longer works.",
)
