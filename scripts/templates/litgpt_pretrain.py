"""Pretraining with LitGPT's own model and training loop, by training_config.yaml. Started by train.sh.

litgpt.pretrain.fit is called from checkpoint to checkpoint. Around it stands what `litgpt pretrain` leaves out: phases,
a stop signal that saves, checkpoints that appear whole or not at all, and data by step, not by the state of a loader.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning
import litgpt.pretrain as lit
import torch
from lightning.fabric.loggers.logger import Logger
from lightning.fabric.strategies.fsdp import FSDPStrategy
from litgpt.args import EvalArgs, TrainArgs
from litgpt.config import Config
from litgpt.model import GPT, Block
from litgpt.utils import save_config

from pipelines.progress import PREEMPTED, Progress
from pipelines.session import Session, conduct
from pipelines.tokens import Stream, Validation

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


class RunLogger(Logger):
    """LitGPT logs by iterations (micro-batches); the run's records are by optimizer steps."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.state: dict[str, Any] = {}

    @property
    def name(self) -> str:
        return "run"

    @property
    def version(self) -> int:
        return 0

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        pass

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        if not self.session.first_rank or step is None:
            return
        if "val_loss" in metrics:
            # `step` is an iteration's index inside the loop and a count of iterations behind it; the state is neither
            done = self.state["step_count"]
            self.session.run.log_metrics(step=done, split="val", loss=float(metrics["val_loss"]))
        elif "loss" in metrics:
            tokens = self.session.config["data"]["block_size"] * self.session.config["batch"]["micro_batch"]
            rate = tokens * self.session.config["devices"] / max(metrics["iter_time"], 1e-9)
            self.session.run.log_metrics(step=metrics["step"], split="train", loss=metrics["loss"],
                                         lr=metrics["learning_rate"], tokens_per_s=rate)  # fmt: skip


class Training:
    """One process's model, optimizer and place in the run."""

    def __init__(self, session: Session, progress: Progress | None) -> None:
        self.session, self.progress, self.config = session, progress, session.config
        self.accumulation = self.config["batch"]["accumulation"]
        devices = self.config["devices"]
        strategy: Any = "auto"
        if devices > 1:
            strategy = FSDPStrategy(auto_wrap_policy={Block}, state_dict_type="full", sharding_strategy="HYBRID_SHARD")
        accelerator = "cpu" if self.config["device"] == "cpu" else "auto"
        logger = RunLogger(session)
        self.fabric = lightning.Fabric(accelerator=accelerator, devices=devices, strategy=strategy,
                                       precision=PRECISION[self.config["precision"]],  # type: ignore[arg-type]
                                       loggers=[logger])  # fmt: skip
        self.fabric.launch()
        self.state = logger.state = self._build()
        lit.get_lr = self._lr  # fit asks for it by this name, before every iteration

    def _build(self) -> dict[str, Any]:
        optimizer = self.config["optimizer"]
        self.fabric.seed_everything(self.config["seed"])
        with self.fabric.init_module(empty_init=True):
            model = GPT(Config(**self.config["model"]))
        lit.initialize_weights(self.fabric, model, n_layer=model.config.n_layer, n_embd=model.config.n_embd)
        model.transformer.wte.weight = model.lm_head.weight  # one matrix, as the estimate of parameters counts it
        model.max_seq_length = self.config["data"]["block_size"]
        compiled: Any = torch.compile(model) if self.config["compile"] else model
        prepared = self.fabric.setup(compiled)
        adam = torch.optim.AdamW(prepared.parameters(), lr=optimizer["learning_rate"],
                                 betas=(optimizer["beta1"], optimizer["beta2"]),
                                 weight_decay=optimizer["weight_decay"],
                                 fused=self.fabric.device.type == "cuda")  # fmt: skip
        state: dict[str, Any] = {
            "model": prepared,
            "optimizer": self.fabric.setup_optimizers(adam),
            "iter_num": 0,
            "step_count": 0,
        }
        if self.config["precision"] == "fp16":
            state["precision"] = self.fabric.strategy.precision  # the loss scale, which `litgpt pretrain` forgets
        if self.session.resume:
            self.fabric.load(self.session.resume / "lit_model.pth", state)
        return state

    def _lr(self, learning_rate: float, it: int, warmup_iters: int, max_iters: int, min_lr: float) -> float:
        step, inside = divmod(it, self.accumulation)
        if not inside and self._asked_to_stop():
            raise Stopped
        return self.session.schedule.lr(step)

    def _asked_to_stop(self) -> bool:
        """One rank hears the signal first; all must stop after the same step."""
        heard = bool(self.session.stop)
        if self.fabric.world_size > 1:
            votes: Any = self.fabric.all_reduce(torch.tensor(float(heard)), reduce_op="sum")
            heard = bool(votes.item())
        self.session.stop = self.session.stop or ("SIGTERM" if heard else "")
        return heard

    @property
    def step(self) -> int:
        return int(self.state["step_count"])

    def run_phase(self, end: int) -> None:
        """LitGPT's loop from here to step `end`, in pieces that end with a checkpoint."""
        every = self.config["checkpoints"]["every_steps"]
        while self.step < end:
            target = min(end, (self.step // every + 1) * every)
            try:
                self._fit(target)
            except Stopped:
                self.save()
                raise
            self.save()

    def _fit(self, target: int) -> None:
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
        last = target in {phase.end for phase in self.session.schedule.phases}
        validation = Validation(self.config, self.session.data)
        evaluation = EvalArgs(interval=self.config["eval"]["every_steps"], max_iters=len(validation),
                              final_validation=last)  # fmt: skip
        lit.fit(fabric=self.fabric, devices=world, state=self.state,
                train_dataloader=Loader(stream, batch, self.fabric),
                val_dataloader=Loader(validation, 1, self.fabric),
                out_dir=self.session.run.checkpoints, tokenizer_dir=None, train=train, eval=evaluation)  # fmt: skip

    def save(self) -> None:
        """Written beside, then renamed: a checkpoint with its real name is whole."""
        final = self.session.run.checkpoints / f"step-{self.step:08d}"
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
            _sync(beside)
            os.rename(beside, final)
            if self.progress:
                self.progress.saved(final, self.step)
        self.fabric.barrier()


def _sync(folder: Path) -> None:
    for path in [*folder.iterdir(), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def train(session: Session, progress: Progress | None) -> int:
    if session.step < session.schedule.total:
        training = Training(session, progress)
        try:
            for phase in session.schedule.phases:
                training.run_phase(phase.end)
                if progress:
                    progress.stop_if_missed(training.step)
        except Stopped:
            return progress.preempted(training.step, session.stop) if progress else PREEMPTED
    if progress:
        progress.finished(session.schedule.total, Validation(session.config, session.data))
    return 0


if __name__ == "__main__":
    conduct(train)
