"""Train a character-level GPT on CPU inside a run directory, and survive being killed at any moment.

Usage:
    python examples/cpu_lifecycle/train.py --run RUN_DIR

Reads config and seeds from run.json, or from the file of --config. Writes metrics.jsonl, events.jsonl, checkpoints/,
checkpoints_index.json and, at the end, results.json. The same command again goes on from the newest checkpoint that
loads, and the loss curve is the one of a run that was never stopped, bit for bit.
"""

from __future__ import annotations

import hashlib
import math
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import click
import numpy
import torch
from torch import Tensor, nn

# neither examples/ nor rgt is installed: the bundle is used from its folder
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import checkpoints
from rgt import cli, errors, files
from rgt.run import record

from examples.cpu_lifecycle import settings, text
from examples.cpu_lifecycle.model import GPT
from examples.cpu_lifecycle.settings import Config


class Batches:
    """Windows of the training text in shuffled order, epoch after epoch. The place in it is part of a checkpoint."""

    def __init__(self, windows: Tensor, size: int) -> None:
        self.windows, self.size = windows, size
        self.order: list[int] = []
        self.position = 0

    def next(self) -> Tensor:
        if self.position + self.size > len(self.order):
            self.order = list(range(len(self.windows)))
            random.shuffle(self.order)  # python's global generator: its state is in the checkpoint
            self.position = 0
        self.position += self.size
        return self.windows[self.order[self.position - self.size : self.position]]

    def state_dict(self) -> dict[str, Any]:
        return {"order": self.order, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.order, self.position = state["order"], state["position"]


def windows(characters: str, block_size: int) -> Tensor:
    """Rows of block_size + 1 characters; the last of a row is the first of the next, so each is predicted once."""
    tokens = torch.tensor([text.ALPHABET.index(character) for character in characters])
    return tokens.unfold(0, block_size + 1, block_size)


class Trainer:
    """Everything that changes while training, and therefore everything a checkpoint must hold."""

    def __init__(self, config: Config, seeds: dict[str, int]) -> None:
        corpus = text.make(seeds["data"], config.text_bytes)
        if len(corpus.val) <= config.block_size or len(corpus.train) <= config.block_size * config.batch_size:
            raise errors.bad_input(f"text_bytes = {config.text_bytes} is less than one batch; make it larger")
        random.seed(seeds["train"])
        numpy.random.seed(seeds["train"])  # nothing here draws from it, but a checkpoint holds its state
        torch.manual_seed(seeds["train"])
        self.config, self.step = config, 0
        self.batches = Batches(windows(corpus.train, config.block_size), config.batch_size)
        self.val = windows(corpus.val, config.block_size)
        self.val_sha256 = hashlib.sha256(corpus.val.encode()).hexdigest()
        shape = (config.block_size, config.n_layer, config.n_head, config.n_embd)
        self.model = GPT(len(text.ALPHABET), *shape, config.dropout)
        # beta2 0.95 instead of 0.999: a memory of 1,000 steps is too long for a run of 200
        self.optimizer = torch.optim.AdamW(self.model.parameters(), betas=(0.9, 0.95), weight_decay=config.weight_decay)

    def state(self) -> dict[str, Any]:
        """With the generators: python's shuffles the next epoch, torch's drops out."""
        return checkpoints.capture(model=self.model, optimizer=self.optimizer, sampler=self.batches)

    def load(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        checkpoints.restore(state, model=self.model, optimizer=self.optimizer, sampler=self.batches)

    def train_step(self) -> dict[str, float]:
        began = time.perf_counter()
        rows = self.batches.next()
        loss, lr, norm = self.update(rows[:, :-1], rows[:, 1:])
        tokens_per_s = rows[:, 1:].numel() / (time.perf_counter() - began)
        return {"loss": loss.item(), "lr": lr, "grad_norm": norm.item(), "tokens_per_s": tokens_per_s}

    def update(self, tokens: Tensor, targets: Tensor) -> tuple[Tensor, float, Tensor]:
        """One step on this batch: its loss, the learning rate, the norm of the gradient."""
        self.step += 1
        lr = lr_at(self.step, self.config)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        loss = self.model.loss(tokens, targets)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)  # loss.backward(), in the spelling that has type hints
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_clip)
        self.optimizer.step()
        return loss, lr, norm

    @torch.no_grad()
    def val_loss(self) -> float:
        """Mean over all of val. It draws no random number: evaluating more often does not change the training."""
        self.model.eval()
        total = sum(self.model.loss(rows[:, :-1], rows[:, 1:], "sum").item() for rows in torch.split(self.val, 64))
        self.model.train()
        return total / self.val[:, 1:].numel()


def lr_at(step: int, config: Config) -> float:
    """Linear warm-up, then half a cosine down to min_lr at the last step."""
    if step <= config.warmup_steps:
        return config.learning_rate * step / config.warmup_steps
    done = (step - config.warmup_steps) / (config.steps - config.warmup_steps)
    return config.min_lr + (config.learning_rate - config.min_lr) * (1 + math.cos(math.pi * done)) / 2


def start(run: record.Run, config: Path | None = None) -> Trainer:
    """A fresh trainer, or the one that was stopped, in the state it had then."""
    trainer = Trainer(*settings.read(run, config))
    store = checkpoints.Checkpoints(run.path)
    found = store.load_latest()
    if found:
        trainer.load(found.state)
        store.tidy()  # the run may have been killed in a save, or between the file and the index
    if run.metrics.exists():
        say(f"resumed at step {trainer.step}")
        run.log_event("resumed", step=trainer.step)
    if trainer.step == 0:
        run.log_metrics(step=0, split="val", loss=trainer.val_loss())
    return trainer


def train(run: record.Run, trainer: Trainer, stop: checkpoints.StopSignals) -> int:
    config, store = trainer.config, checkpoints.Checkpoints(run.path)
    while trainer.step < config.steps:
        metrics = one_step(run, trainer)
        last = trainer.step == config.steps
        stopping = stop.requested() and not last
        if last or stopping or trainer.step % config.checkpoint_interval == 0:
            path = store.save(trainer.step, trainer.state(), metrics)
            run.log_event("checkpoint", step=trainer.step, path=path.relative_to(run.path).as_posix())
        if stopping:
            name = signal.Signals(stop.number).name
            say(f"{name}: saved at step {trainer.step}; the same command goes on from there")
            run.log_event("preempted", step=trainer.step, signal=name)
            return stop.exit_code
    finish(run, trainer)
    return errors.OK


def one_step(run: record.Run, trainer: Trainer) -> dict[str, float]:
    """Train, log, evaluate when due; gives the losses of this step."""
    metrics, config = trainer.train_step(), trainer.config
    run.log_metrics(step=trainer.step, split="train", **metrics)
    if not math.isfinite(metrics["loss"]):
        run.log_event("failed", step=trainer.step, reason="the loss is not finite")
        raise errors.RgtError(f"the loss is {metrics['loss']} at step {trainer.step}", errors.FINDINGS)
    losses = {"train_loss": metrics["loss"]}
    if trainer.step == config.steps or trainer.step % config.eval_interval == 0:
        losses["val_loss"] = trainer.val_loss()
        run.log_metrics(step=trainer.step, split="val", loss=losses["val_loss"])
        numbers = "  ".join(f"{name} {value:.4g}" for name, value in {**metrics, **losses}.items() if name != "loss")
        say(f"step {trainer.step:4d}  {numbers}")
    return losses


def finish(run: record.Run, trainer: Trainer) -> None:
    final = checkpoints.Checkpoints(run.path).entries()[-1]
    loss = {
        "name": "loss",
        "value": final["metrics"]["val_loss"],
        "split": "val",
        "n": trainer.val[:, 1:].numel(),
        "direction": "down",
        "eval_set_sha256": trainer.val_sha256,
        "step": final["step"],
        "rule": "last",
        "checkpoint": final["path"],
    }
    run.write_results({"run_id": run.id, "metrics": [loss]})
    run.log_event("finished", step=final["step"])
    say(f"finished: val loss {loss['value']:.4f} over {loss['n']} characters")


def is_finished(run: record.Run) -> bool:
    """By the event, which comes last: a run killed between results.json and the event still has to end properly."""
    return run.events.exists() and any(row["event"] == "finished" for row in files.read_jsonl(run.events))


def say(line: str) -> None:
    click.echo(line, err=True)


@click.command(cls=cli.Command)
@click.option("--run", "directory", type=click.Path(path_type=Path), required=True, help="Run directory.")
@click.option("--config", type=click.Path(path_type=Path), help="JSON with config and seeds. [default: its run.json]")
def main(directory: Path, config: Path | None) -> int:
    """Train the run in --run from its config, or go on where it was stopped.

    SIGTERM saves a checkpoint after the step at hand and ends with exit code 143; SIGUSR1 does the same with 138.
    """
    run = record.Run(directory) if config else record.open_run(directory)
    run.path.mkdir(parents=True, exist_ok=True)  # a smoke's: it has no run.json
    run.refuse_if_sealed()
    if is_finished(run):
        say(f"{run.path} is finished already; a re-run needs a new run directory")
        return errors.OK
    stop = checkpoints.StopSignals()
    torch.use_deterministic_algorithms(True)  # an operation that cannot repeat its result raises instead
    torch.set_num_threads(1)  # the order of a sum over several threads may depend on how busy the machine is
    return train(run, start(run, config), stop)


if __name__ == "__main__":
    main()
