"""Small trainings that resume, one per kind of trainer, and with --forget those that leave something behind.

    resuming.py nanogpt --out DIR --steps 24 [--forget sampler,lr,rng,optimizer,ema,step]

Each saves every 4 steps into DIR and goes on from the newest save there. The loops are the trainers' own; what they do
not restore by themselves (Lightning and LitGPT: random state, averages) is added here, in the places meant for it.
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

torch.set_num_threads(1)
EVERY, WIDTH, WORDS, BATCH, SAMPLES = 4, 16, 32, 4, 80
DECAY = 0.9
Options = argparse.Namespace


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: torch.Tensor) -> Any:
        return self.head(self.drop(self.embed(tokens)))


def corpus() -> torch.Tensor:
    return torch.randint(0, WORDS, (SAMPLES, 9), generator=torch.Generator().manual_seed(5))


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.reshape(-1, WORDS), targets.reshape(-1))


def blend(average: nn.Module, model: nn.Module) -> None:
    with torch.no_grad():
        for mine, theirs in zip(average.parameters(), model.parameters(), strict=True):
            mine.lerp_(theirs, 1 - DECAY)


def random_state() -> dict[str, Any]:
    return {"torch": torch.get_rng_state(), "python": random.getstate()}


def restore_random(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])


class Batches(torch.utils.data.DataLoader[torch.Tensor]):
    """Shuffled by a generator of its own; it knows how many batches it has given out."""

    def __init__(self, noisy: bool = False, forget: bool = False) -> None:
        super().__init__(corpus(), batch_size=BATCH, generator=torch.Generator().manual_seed(3))  # type: ignore[arg-type]
        self.given, self.noisy, self.forget = 0, noisy, forget
        self.random_state: dict[str, Any] | None = None  # put back before the first batch

    def __iter__(self) -> Iterator[torch.Tensor]:  # type: ignore[override]
        while True:
            epoch, start = divmod(self.given * BATCH, SAMPLES)
            order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch))
            self.given += 1
            if self.random_state:
                restore_random(self.random_state)
            self.random_state = None
            rows = corpus()[order[start : start + BATCH]]
            yield torch.where(torch.rand(rows.shape) < 0.1, 0, rows) if self.noisy else rows

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.given = 0 if self.forget else state["given"]


def nanogpt(options: Options, forget: set[str]) -> None:
    """One file, no scheduler object, no loader: the rate is a function of the iteration."""
    model = Tiny()
    average = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data, draw = corpus(), torch.Generator().manual_seed(3)
    path, first, since = options.out / "ckpt.pt", 0, 0
    if path.exists() and "weights" not in forget:
        saved = torch.load(path, weights_only=False)
        model.load_state_dict(saved["model"])
        average.load_state_dict(saved["model" if "ema" in forget else "ema"])
        if "optimizer" not in forget:
            optimizer.load_state_dict(saved["optimizer"])
        if "sampler" not in forget:
            draw.set_state(saved["data_generator"])
        first = 0 if "step" in forget else saved["iter_num"]
        since = first if "lr" in forget else 0
    for it in range(first, options.steps):
        rate = 1e-2 * 0.5 * (1 + math.cos(math.pi * (it - since) / options.steps))
        for group in optimizer.param_groups:
            group["lr"] = rate
        tokens = data[torch.randint(0, SAMPLES, (BATCH,), generator=draw)]
        if it == first and it and "rng" not in forget:
            restore_random(saved["rng"])
        optimizer.zero_grad()
        loss = loss_of(model(tokens[:, :-1]), tokens[:, 1:])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        blend(average, model)
        print(f"iter {it}: loss {loss.item():.4f}, lr {rate:.2e}", flush=True)
        if (it + 1) % EVERY == 0:
            state: dict[str, Any] = {
                "model": model.state_dict(),
                "ema": average.state_dict(),
                "optimizer": optimizer.state_dict(),
            }
            state |= {"iter_num": it + 1, "rng": random_state(), "data_generator": draw.get_state()}
            torch.save(state, f"{path}.tmp")
            os.replace(f"{path}.tmp", path)


def plain(options: Options, forget: set[str]) -> None:
    """A loop as in a tutorial: loader, scheduler, epochs; one file per save; it saves and ends on SIGTERM."""
    model, told = Tiny(), []
    average = torch.optim.swa_utils.AveragedModel(model, avg_fn=lambda mine, theirs, _: mine.lerp(theirs, 1 - DECAY))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, options.steps * 3)
    loader = Batches(forget="sampler" in forget)
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    parts: dict[str, Any] = {
        "model": model,
        "ema": average,
        "optimizer": optimizer,
        "scheduler": scheduler,
        "loader": loader,
    }
    parts = {
        name: part
        for name, part in parts.items()
        if name not in forget and not (name == "scheduler" and "lr" in forget)
    }
    step, found = 0, sorted(options.out.glob("step_*.pt"))
    if found:
        saved = torch.load(found[-1], weights_only=False)
        for name, part in parts.items():
            part.load_state_dict(saved[name])
        step = 0 if "step" in forget else saved["step"]
        if "rng" in saved:
            restore_random(saved["rng"])
    for tokens in loader:
        loss = loss_of(model(tokens[:, :-1]), tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        scheduler.step()
        average.update_parameters(model)
        step += 1
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % EVERY == 0 or told:
            state = {name: part.state_dict() for name, part in parts.items()} | {"step": step}
            torch.save(
                state | ({} if "rng" in forget else {"rng": random_state()}), options.out / f"step_{step:04d}.pt"
            )
        if told or step == options.steps:
            break


def hf(options: Options, forget: set[str]) -> None:
    """transformers.Trainer with its own sampler, scheduler and random states; the average is a callback's."""
    import transformers

    class Average(transformers.TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            self.model = copy.deepcopy(model)
            file = options.out / f"checkpoint-{state.global_step}" / "ema.pt"
            if file.exists() and "ema" not in forget:
                self.model.load_state_dict(torch.load(file))

        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            blend(self.model, model)

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            torch.save(self.model.state_dict(), options.out / f"checkpoint-{state.global_step}" / "ema.pt")

    small = transformers.LlamaConfig(
        vocab_size=WORDS,
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=16,
        attention_dropout=0.2,
    )
    arguments = transformers.TrainingArguments(
        output_dir=str(options.out),
        max_steps=options.steps,
        per_device_train_batch_size=BATCH,
        save_steps=EVERY,
        logging_steps=1,
        learning_rate=1e-2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        seed=1,
        ignore_data_skip="sampler" in forget,
    )
    rows = [{"input_ids": row, "labels": row} for row in corpus()]
    model = transformers.LlamaForCausalLM(small)  # type: ignore[no-untyped-call]
    trainer = transformers.Trainer(model, arguments, train_dataset=rows, callbacks=[Average()])
    newest = transformers.trainer_utils.get_last_checkpoint(str(options.out))  # type: ignore[no-untyped-call]
    removed = {"optimizer": "optimizer.pt", "rng": "rng_state.pth"}
    for name in forget & removed.keys():
        for file in options.out.glob(f"checkpoint-*/{removed[name]}"):
            file.unlink()
    if newest and "lr" in forget:
        real = trainer._load_optimizer_and_scheduler

        def without_schedule(checkpoint: str | None) -> None:
            real(checkpoint)
            trainer.lr_scheduler.__init__(trainer.optimizer, trainer.lr_scheduler.lr_lambdas)  # type: ignore[misc,union-attr]

        trainer._load_optimizer_and_scheduler = without_schedule  # type: ignore[method-assign]
    if newest and "step" in forget:  # weights by hand, as many scripts do
        trainer._load_from_checkpoint(newest)
        newest = None
    trainer.train(resume_from_checkpoint=newest)


def lightning(options: Options, forget: set[str]) -> None:  # noqa: C901
    """lightning.Trainer; a loader with a state, and a callback that keeps random states and the average."""
    import lightning as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Tiny()

        def training_step(self, tokens: torch.Tensor, index: int) -> torch.Tensor:
            loss = loss_of(self.net(tokens[:, :-1]), tokens[:, 1:])
            print(f"step {self.global_step + 1} loss {loss.item():.4f}", flush=True)
            return loss

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

        def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            if "optimizer" in forget:
                checkpoint["optimizer_states"][0]["state"] = {}
            if "lr" in forget:
                checkpoint["lr_schedulers"] = [dict(checkpoint["lr_schedulers"][0], last_epoch=0, _step_count=1)]
                checkpoint["optimizer_states"][0]["param_groups"][0]["lr"] = 1e-2

    class Extras(pl.Callback):
        saved: dict[str, Any] | None = None

        def on_train_start(self, trainer: Any, module: Any) -> None:
            self.average = copy.deepcopy(module.net)
            if self.saved and "ema" not in forget:
                self.average.load_state_dict(self.saved["ema"])

        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
            if self.saved and "rng" not in forget:
                restore_random(self.saved["rng"])
            self.saved = None

        def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
            blend(self.average, module.net)

        def state_dict(self) -> dict[str, Any]:
            return {"ema": self.average.state_dict(), "rng": random_state()}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.saved = state

    keep = pl.pytorch.callbacks.ModelCheckpoint(
        options.out, "{step}", save_top_k=-1, every_n_train_steps=EVERY, save_last=True
    )
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=options.steps,
        callbacks=[Extras(), keep],
        logger=False,
        default_root_dir=options.out,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    last, module = options.out / "last.ckpt", Module()
    if last.exists() and "step" in forget:  # weights by hand, as many scripts do
        module.load_state_dict(torch.load(last, weights_only=False)["state_dict"])
    path = str(last) if last.exists() and "step" not in forget else None
    trainer.fit(module, Batches(forget="sampler" in forget), ckpt_path=path, weights_only=False)


def litgpt(options: Options, forget: set[str]) -> None:
    """litgpt.pretrain.main; random states and the average lie beside lit_model.pth."""
    import lightning as pl
    import litgpt.pretrain as lit
    from litgpt.args import EvalArgs, TrainArgs
    from litgpt.config import Config
    from litgpt.data import DataModule

    class Data(DataModule):  # type: ignore[misc]
        def connect(self, *_: Any, **__: Any) -> None: ...

        def train_dataloader(self) -> Batches:
            return Batches(noisy=True, forget="sampler" in forget)  # the model itself draws no random number

        def val_dataloader(self) -> Batches:
            return Batches()

    fit, save, rate = lit.fit, lit.save_checkpoint, lit.get_lr
    held: dict[str, Any] = {}

    def around_fit(*, state: dict[str, Any], **words: Any) -> None:
        model, optimizer = state["model"]._forward_module, state["optimizer"].optimizer
        held["average"] = average = copy.deepcopy(model)
        held["since"] = state["iter_num"] if "lr" in forget else 0
        extras = options.out / f"step-{state['step_count']:08d}" / "extras.pt"
        saved = torch.load(extras, weights_only=False) if extras.exists() else {}
        if saved and "ema" not in forget:
            average.load_state_dict(saved["ema"])
        if saved and "rng" not in forget:
            words["train_dataloader"]._dataloader.random_state = saved["rng"]
        if "optimizer" in forget:
            optimizer.state.clear()
        if "step" in forget:
            state["iter_num"] = state["step_count"] = 0
        optimizer.register_step_post_hook(lambda *_: blend(average, model))
        fit(state=state, **words)

    def around_save(fabric: Any, state: Any, folder: Any, file: Path) -> None:
        save(fabric, state, folder, file)
        torch.save({"ema": held["average"].state_dict(), "rng": random_state()}, file.with_name("extras.pt"))

    def around_rate(top: float, it: int, *words: Any) -> float:
        return float(rate(top, it - held["since"], *words))

    lit.fit, lit.save_checkpoint, lit.get_lr = around_fit, around_save, around_rate
    lit.torch.compile = lambda model: model
    lit.save_hyperparameters = lambda *_: None  # it reads the command line of litgpt
    config = Config(block_size=8, vocab_size=WORDS, padded_vocab_size=WORDS, n_layer=1, n_head=2, n_embd=WIDTH)
    fabric = pl.Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    train = TrainArgs(
        save_interval=EVERY,
        log_interval=1,
        global_batch_size=BATCH,
        micro_batch_size=BATCH,
        max_tokens=options.steps * BATCH * 8,
        max_norm=1.0,
        lr_warmup_steps=3,
    )
    shared = {"devices": 1, "seed": 1, "initial_checkpoint_dir": None, "tokenizer_dir": None, "tokenizer": None}
    evaluation = EvalArgs(interval=1000, max_iters=1, final_validation=False)
    lit.main(
        fabric,
        resume="auto",
        config=config,
        data=Data(),
        out_dir=options.out,
        train=train,
        eval=evaluation,
        optimizer="AdamW",
        **shared,
    )


TRAINERS = {"nanogpt": nanogpt, "plain": plain, "hf": hf, "lightning": lightning, "litgpt": litgpt}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("trainer", choices=TRAINERS)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--forget", default="")
    parser.add_argument("--unseeded", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    torch.seed() if options.unseeded else torch.manual_seed(1)
    TRAINERS[options.trainer](options, set(filter(None, options.forget.split(","))))


if __name__ == "__main__":
    main()
