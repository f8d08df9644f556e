"""Pretraining with transformers.Trainer, by training_config.yaml. Started by train.sh; edit build_model to taste.

What the Trainer itself gets wrong for a resume is settled by what it is given: the order of samples is a pure function
of the step (tokens.Stream with the sequential sampler), and so is the learning rate.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed

from pipelines.progress import PREEMPTED, Progress
from pipelines.session import Session, conduct
from pipelines.tokens import Stream, Validation


def build_model(session: Session) -> Any:
    set_seed(session.config["seed"])
    model = dict(session.config["model"])
    build: Any = AutoModelForCausalLM.from_config
    return build(AutoConfig.for_model(model.pop("model_type"), **model))


class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Samples as the Trainer wants them. The model shifts the labels itself, so the last token is left out."""

    def __init__(self, samples: Stream | Validation) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = torch.from_numpy(self.samples[index][:-1])
        return {"input_ids": row, "labels": row}


class PhasedTrainer(Trainer):
    schedule: Any

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        if self.lr_scheduler is None:
            chosen: Any = optimizer or self.optimizer
            share = lambda step: self.schedule.lr(step) / self.schedule.peak  # noqa: E731
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(chosen, share)
            self._created_lr_scheduler = True
        return self.lr_scheduler


class Record(TrainerCallback):
    """Saves and validates at the end of a phase, hears the stop signal, and writes the run's records."""

    def __init__(self, session: Session, progress: Progress | None) -> None:
        self.session, self.progress = session, progress
        self.ends = {phase.end for phase in session.schedule.phases}
        self.clock, self.clock_step = time.perf_counter(), session.step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step in self.ends:
            control.should_evaluate = control.should_save = control.should_log = True
        if _any_rank(bool(self.session.stop)):
            self.session.stop = self.session.stop or "SIGTERM"
            control.should_save = control.should_training_stop = True

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if self.progress is None or not logs:
            return
        if "eval_loss" in logs:
            self.session.run.log_metrics(step=state.global_step, split="val", loss=logs["eval_loss"])
        elif "loss" in logs:
            config, now = self.session.config, time.perf_counter()
            samples = config["batch"]["micro_batch"] * config["batch"]["accumulation"] * config["devices"]
            tokens = (state.global_step - self.clock_step) * samples * config["data"]["block_size"]
            rate = tokens / max(now - self.clock, 1e-9)
            self.clock, self.clock_step = now, state.global_step
            self.session.run.log_metrics(
                step=state.global_step, split="train", loss=logs["loss"], lr=logs["learning_rate"],
                grad_norm=logs.get("grad_norm", 0.0), tokens_per_s=rate,
            )  # fmt: skip

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.progress:
            self.progress.saved(Path(args.output_dir) / f"checkpoint-{state.global_step}", state.global_step)
            self.progress.stop_if_missed(state.global_step)


def _any_rank(flag: bool) -> bool:
    """One rank hears the signal first; all must stop after the same step."""
    if not torch.distributed.is_initialized():
        return flag
    device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
    shared = torch.tensor(int(flag), device=device)
    torch.distributed.all_reduce(shared, op=torch.distributed.ReduceOp.MAX)
    return bool(shared.item())


def arguments(session: Session) -> TrainingArguments:
    config = session.config
    optimizer, precision = config["optimizer"], config["precision"]
    return TrainingArguments(
        output_dir=str(session.run.checkpoints),
        max_steps=session.schedule.total,
        per_device_train_batch_size=config["batch"]["micro_batch"],
        per_device_eval_batch_size=config["batch"]["micro_batch"],
        gradient_accumulation_steps=config["batch"]["accumulation"],
        learning_rate=optimizer["learning_rate"],
        weight_decay=optimizer["weight_decay"],
        adam_beta1=optimizer["beta1"],
        adam_beta2=optimizer["beta2"],
        max_grad_norm=optimizer["grad_clip"],
        bf16=precision == "bf16",
        fp16=precision == "fp16",
        use_cpu=config["device"] == "cpu",
        torch_compile=config["compile"],
        seed=config["seed"],
        data_seed=config["seed"],
        train_sampling_strategy="sequential",
        save_strategy="steps",
        save_steps=config["checkpoints"]["every_steps"],
        eval_strategy="steps",
        eval_steps=config["eval"]["every_steps"],
        logging_strategy="steps",
        logging_steps=config["log_every_steps"],
        logging_nan_inf_filter=False,  # its default shows an average in place of a NaN
        dataloader_num_workers=config["data"]["workers"],
        disable_tqdm=True,
        report_to="none",
    )


def train(session: Session, progress: Progress | None) -> int:
    total = session.schedule.total
    if session.step < total:
        model = build_model(session)
        trainer = PhasedTrainer(
            model=model,
            args=arguments(session),
            train_dataset=Rows(Stream(session.config, session.data)),
            eval_dataset=Rows(Validation(session.config, session.data)),
            callbacks=[Record(session, progress)],
        )
        trainer.schedule = session.schedule
        trainer.train(resume_from_checkpoint=str(session.resume) if session.resume else None)
        if trainer.state.global_step < total:
            return progress.preempted(trainer.state.global_step, session.stop) if progress else PREEMPTED
    if progress:
        progress.finished(total, Validation(session.config, session.data))
    return 0


if __name__ == "__main__":
    conduct(train)
