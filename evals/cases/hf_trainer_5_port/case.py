"""transformers 4 to 5: renamed, removed, and two defaults that moved without a word."""

from __future__ import annotations

from typing import Any

from trials.case import Box, Case, differs

OLD: dict[str, Any] = {
    "output_dir": "out",
    "overwrite_output_dir": True,
    "evaluation_strategy": "steps",
    "eval_steps": 500,
    "save_strategy": "steps",
    "save_steps": 500,
    "save_safetensors": True,
    "per_device_train_batch_size": 8,
    "learning_rate": 2e-5,
    "warmup_ratio": 0.03,
    "group_by_length": True,
    "include_inputs_for_metrics": False,
    "bf16": True,
    "half_precision_backend": "auto",
    "max_steps": 20000,
    "seed": 42,
}
RENAMED = {"eval_strategy": "steps", "train_sampling_strategy": "group_by_length", "warmup_steps": 0.03}
GONE = [
    "overwrite_output_dir", "evaluation_strategy", "save_safetensors", "group_by_length", "half_precision_backend",
    "include_inputs_for_metrics", "warmup_ratio",
]  # fmt: skip
KEPT = {key: value for key, value in OLD.items() if key not in GONE}


def make(box: Box) -> None:
    box.write("training_args.json", OLD)


def verify(box: Box) -> list[str]:
    new, notes = box.read("training_args_v5.json"), box.read("notes.json")
    problems = [f"{key} is not accepted in 5.3" for key in GONE if key in new and key != "warmup_ratio"]
    # deprecated but there; a float below 1 as steps is a ratio, too; or 3 % of the 20000 steps
    if new.get("warmup_ratio") != 0.03 and new.get("warmup_steps") not in (0.03, 600):
        problems.append("the warm-up is another one")
    for key, value in {**KEPT, **{k: v for k, v in RENAMED.items() if k != "warmup_steps"}}.items():
        problems += differs(key, new.get(key), value)
    report = new.get("report_to")
    if not ({"wandb", "all"} & set([report] if isinstance(report, str) else report or [])):
        problems.append("nothing goes to wandb: report_to is none by default now")
    problems += differs("optim", new.get("optim"), "adamw_torch")
    problems += differs("trainer_tokenizer_kwarg", notes.get("trainer_tokenizer_kwarg"), "processing_class")
    return problems + differs("loss_in_log_is", notes.get("loss_in_log_is"), "str")


def reference(box: Box) -> None:
    """The renames are read off the catalogue's entries, DOM1 and DOM2."""
    text = (box.skill / "references/training/by-domain.md").read_text(encoding="utf-8")
    new = {**KEPT, **RENAMED, "report_to": ["wandb"], "optim": "adamw_torch"}
    said = all(
        word in text for word in ("`eval_strategy`", 'train_sampling_strategy="group_by_length"', "`report_to` is now")
    )
    box.write("training_args_v5.json", new if said else OLD)
    fused = "processing_class" if "`processing_class=`" in text else "?"
    box.write(
        "notes.json",
        {"trainer_tokenizer_kwarg": fused, "loss_in_log_is": "str" if "Log values are strings" in text else "?"},
    )


def naive(box: Box) -> None:
    """Renames until it constructs."""
    box.write("training_args_v5.json", {**KEPT, **RENAMED})
    box.write("notes.json", {"trainer_tokenizer_kwarg": "processing_class", "loss_in_log_is": "float"})


CASE = Case(
    route="SFT/DPO, vision, diffusion, RL, trackers",
    reads=("references/training/by-domain.md",),
    minutes=6,
    commands=12,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    expected="Kwargs that transformers 5.3 takes, with the old optimizer and wandb written out.",
)
