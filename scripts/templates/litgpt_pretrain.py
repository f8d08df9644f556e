"""Pretraining with LitGPT's own model and training loop, by training_config.yaml. Started by train.sh.

litgpt.pretrain.fit is called from checkpoint to checkpoint. Around it stands what `litgpt pretrain` leaves out: phases,
a stop signal that saves, checkpoints that appear whole or not at all, and data by step, not by the state of a loader.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

from rgt.scaffold_training.tokens import Stream, Validation
from rgt.scaffold_training.training_session import Session, conduct

import lightning
import litgpt.pretrain as lit
import torch
from lightning.fabric.strategies.fsdp import FSDPStrategy
from litgpt.args import EvalArgs, TrainArgs
from litgpt.config import Config
from litgpt.model import GPT, Block
from litgpt.utils import save_config

PRECISION = {"bf16": "bf16-mixed", "fp16": "16-mixed", "fp32": "32-true"}


class Stopped(Exception):
    """Raised between two optimizer steps when a signal has asked to stop."""


class Loader:
    """Batches of one rank, from a given sample on. It has no state: fabric.save would pickle a DataLoader as it is."""

    def __init__(self, samples: Stream | Validation, batch: int, fabric: Any) -> None:
        self.samples, self.batch, self.fabric = samples, batch, fabric

    def __iter__(self) -> Iterator[torch.Tensor]:
        world, rank = self.fabric.world_size, self.fabric.global_rank
        for first in range(0, len(self.samples) - self.batch * world + 1, self.batch * world):
            rows = [self.samples[first + rank * self.batch + row] for row in range(self.batch)]
            yield torch.stack([torch.from_numpy(row) for row in rows]).to(self.fabric.device)


class Training:
    """One process's model, optimizer and place in the run."""

    def __init__(self, session: Session) -> None:
        self.session, self.config = session, session.config
        self.accumulation = self.config["batch"]["accumulation"]
        devices, optimizer = self.config["devices"], self.config["optimizer"]
        strategy: Any = "auto"
        if devices > 1:
            strategy = FSDPStrategy(auto_wrap_policy={Block}, state_dict_type="full", sharding_strategy="HYBRID_SHARD")
        self.fabric = lightning.Fabric(
            accelerator="cpu" if self.config["device"] == "cpu" else "auto",
            devices=devices,
            strategy=strategy,
            precision=PRECISION[self.config["precision"]],  # type: ignore[arg-type]
        )
        self.fabric.launch()
        self.fabric.seed_everything(self.config["seed"])
        with self.fabric.init_module(empty_init=True):
            model = GPT(Config(**self.config["model"]))
        lit.initialize_weights(self.fabric, model, n_layer=model.config.n_layer, n_embd=model.config.n_embd)
        model.transformer.wte.weight = model.lm_head.weight  # one matrix, as the estimate of parameters counts it
        model.max_seq_length = self.config["data"]["block_size"]
        compiled: Any = torch.compile(model) if self.config["compile"] else model
        prepared = self.fabric.setup(compiled)
        adam = torch.optim.AdamW(
            prepared.parameters(),
            lr=optimizer["learning_rate"],
            betas=(optimizer["beta1"], optimizer["beta2"]),
            weight_decay=optimizer["weight_decay"],
            fused=self.fabric.device.type == "cuda",
        )
        self.state: dict[str, Any] = {"model": prepared, "optimizer": self.fabric.setup_optimizers(adam)}
        self.state |= {"iter_num": 0, "step_count": 0}
        if self.config["precision"] == "fp16":
            self.state["precision"] = self.fabric.strategy.precision  # the loss scale, which `litgpt pretrain` forgets
        if session.resume:
            self.fabric.load(session.resume / "lit_model.pth", self.state)
        lit.get_lr = self._lr  # fit asks for it by this name, before every iteration
        self.fabric.log_dict = self._log  # type: ignore[method-assign]  # and hands its numbers to this one

    def _lr(self, learning_rate: float, it: int, warmup_iters: int, max_iters: int, min_lr: float) -> float:
        step, inside = divmod(it, self.accumulation)
        if not inside and self.session.stop.requested():
            raise Stopped
        return self.session.schedule.lr(step)

    def _log(self, metrics: Any, step: int | None = None) -> None:
        """LitGPT counts iterations (micro-batches); the run's records are by optimizer steps."""
        if not self.session.first_rank:
            return
        if "val_loss" in metrics:
            self.session.run.log_metrics(step=self.step, split="val", loss=float(metrics["val_loss"]))
        elif "loss" in metrics:
            rate = self.session.step_tokens / self.accumulation / max(metrics["iter_time"], 1e-9)
            row = {"loss": metrics["loss"], "lr": metrics["learning_rate"], "tokens_per_s": rate}
            self.session.run.log_metrics(step=metrics["step"], split="train", **row)

    @property
    def step(self) -> int:
        return int(self.state["step_count"])

    def run_phase(self, end: int) -> None:
        """LitGPT's loop from here to step `end`, in pieces that end with a checkpoint."""
        every = self.config["checkpoints"]["every_steps"]
        while self.step < end:
            target = min(end, (self.step // every + 1) * every)
            batch, block = self.config["batch"]["micro_batch"], self.config["data"]["block_size"]
            world = self.fabric.world_size
            done = int(self.state["iter_num"]) * batch * world
            stream = Stream(self.config, self.session.data, start=done)
            train = TrainArgs(
                save_interval=None,
                log_interval=self.config["log_every_steps"],
                global_batch_size=batch * self.accumulation * world,
                micro_batch_size=batch,
                lr_warmup_steps=None,
                max_tokens=target * self.accumulation * batch * block * world,
                max_norm=self.config["optimizer"]["grad_clip"],
            )
            validation = Validation(self.config, self.session.data)
            last = target in self.session.schedule.ends
            evaluation = EvalArgs(
                interval=self.config["eval"]["every_steps"], max_iters=len(validation), final_validation=last
            )
            try:
                lit.fit(
                    fabric=self.fabric,
                    devices=world,
                    state=self.state,
                    train_dataloader=Loader(stream, batch, self.fabric),
                    val_dataloader=Loader(validation, 1, self.fabric),
                    out_dir=self.session.run.checkpoints,
                    tokenizer_dir=None,
                    train=train,
                    eval=evaluation,
                )
            except Stopped:
                self.save()
                raise
            self.save()

    def save(self) -> None:
        """Written beside, then renamed: a checkpoint with its real name is whole."""
        final = self.session.checkpoint(self.step)
        if final.exists() or not self.step:  # stopped before the first step behind a checkpoint
            return
        beside = final.with_name(f".{final.name}.tmp")
        if self.session.first_rank:
            shutil.rmtree(beside, ignore_errors=True)
            beside.mkdir(parents=True)
        self.fabric.barrier()
        self.fabric.save(beside / "lit_model.pth", self.state)
        self.fabric.barrier()
        if self.session.first_rank:
            save_config(self.state["model"].config, beside)
            for path in [*beside.iterdir(), beside]:
                descriptor = os.open(path, os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)
            os.rename(beside, final)
            self.session.saved(self.step)
        self.fabric.barrier()


def train(session: Session) -> int:
    if session.step < session.schedule.total:
        training = Training(session)
        try:
            for phase in session.schedule.phases:
                training.run_phase(phase.end)
        except Stopped:
            return session.preempted(training.step)
    return session.finished(Validation(session.config, session.data))


if __name__ == "__main__":
    conduct(train)
