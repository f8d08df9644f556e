"""Pretraining with transformers.Trainer, by training_config.yaml. Started by train.sh; edit build_model to taste.

What the Trainer itself gets wrong for a resume is settled by what it is given: the order of samples is a pure function
of the step (tokens.Stream with the sequential sampler), and so is the learning rate.
"""

from __future__ import annotations

import time
from typing import Any

from rgt.scaffold_training.tokens import Stream, Validation
from rgt.scaffold_training.training_session import Session, conduct

import torch
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed


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

    def __init__(self, session: Session) -> None:
        self.session, self.clock = session, time.perf_counter()
        self.busy, self.steps = 0.0, 0  # since the last log, without evaluation and saves

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        now = time.perf_counter()
        self.busy, self.steps, self.clock = self.busy + now - self.clock, self.steps + 1, now
        if state.global_step in self.session.schedule.ends:
            control.should_evaluate = control.should_save = control.should_log = True
        if self.session.stop.requested():
            control.should_save = control.should_training_stop = True

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if not self.session.first_rank or not logs:
            return
        if "eval_loss" in logs:
            self.session.run.log_metrics(step=state.global_step, split="val", loss=logs["eval_loss"])
        elif "loss" in logs:
            rate = self.steps * self.session.step_tokens / max(self.busy, 1e-9)
            self.busy, self.steps = 0.0, 0
            row = {"loss": logs["loss"], "lr": logs["learning_rate"], "grad_norm": logs.get("grad_norm", 0.0)}
            self.session.run.log_metrics(step=state.global_step, split="train", **row, tokens_per_s=rate)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.clock = time.perf_counter()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.session.saved(state.global_step)
        self.clock = time.perf_counter()


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


def train(session: Session) -> int:
    validation = Validation(session.config, session.data)
    if session.step < session.schedule.total:
        trainer = PhasedTrainer(
            model=build_model(session),
            args=arguments(session),
            train_dataset=Rows(Stream(session.config, session.data)),
            eval_dataset=Rows(validation),
            callbacks=[Record(session)],
        )
        trainer.schedule = session.schedule
        trainer.train(resume_from_checkpoint=str(session.resume) if session.resume else None)
        if trainer.state.global_step < session.schedule.total:
            return session.preempted(trainer.state.global_step)
    return session.finished(validation)


if __name__ == "__main__":
    conduct(train)
