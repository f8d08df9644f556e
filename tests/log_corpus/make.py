"""Make the corpus: run each trainer for real, keep what it printed and, beside it, what it computed.

    python tests/log_corpus/make.py [NAME...]

`<name>.log` is the output of a subprocess, stdout and stderr in one pipe as in `> train.log 2>&1`. `<name>.json` is
what the trainer itself recorded, rounded as its format rounds: [{"step"?, "epoch"?, metric: value}, ...] in order.
"""

# mypy: disable-error-code="import-untyped,no-untyped-call,misc,arg-type,assignment"
from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
Rows = list[dict[str, Any]]


# -- real trainers


def hf_trainer(bars: bool = True) -> Rows:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    class Tokens(torch.utils.data.Dataset[dict[str, Any]]):
        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> dict[str, Any]:
            row = torch.randint(0, 64, (16,), generator=torch.Generator().manual_seed(index))
            return {"input_ids": row, "labels": row}

    often = {"logging_steps": 4, "eval_strategy": "epoch", "save_strategy": "epoch", "lr_scheduler_type": "cosine"}
    quiet = {"report_to": [], "disable_tqdm": not bars, "use_cpu": True}
    with tempfile.TemporaryDirectory() as folder:
        options = TrainingArguments(folder, num_train_epochs=3, per_device_train_batch_size=8, **often, **quiet)
        model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=1, n_head=2))
        trainer = Trainer(model, options, train_dataset=Tokens(), eval_dataset=Tokens())
        trainer.train()
    names = ("loss", "grad_norm", "learning_rate", "eval_loss", "epoch")
    # HF Trainer prints four significant digits
    rows = [{name: float(f"{row[name]:.4g}") for name in names if name in row} for row in trainer.state.log_history]
    return [row for row in rows if len(row) > 1]


def hf_printer() -> Rows:
    return hf_trainer(bars=False)


def litgpt() -> Rows:
    import torch
    from litgpt import Config, pretrain
    from litgpt.args import EvalArgs, TrainArgs
    from litgpt.data import DataModule

    class Tokens(DataModule):
        def connect(self, *args: Any, **options: Any) -> None:
            pass

        def train_dataloader(self) -> Any:
            data = torch.randint(0, 64, (64, 17), generator=torch.Generator().manual_seed(0))
            return torch.utils.data.DataLoader(list(data), batch_size=2)

        val_dataloader = train_dataloader

    from lightning.fabric import Fabric

    seen: Rows = []
    sys.argv = ["litgpt", "tiny"]  # it reads them again when it saves its hyperparameters
    torch.compile = lambda model, **options: model  # minutes for nothing
    log = Fabric.log_dict

    def keep(self: Any, metrics: Any, step: Any = None) -> None:
        if "loss" in metrics:
            loss = float(f"{metrics['loss']:.3f}")
            seen.append({"step": metrics["step"], "train_loss": loss, "epoch": metrics["epoch"] + 1})
        log(self, metrics, step)

    Fabric.log_dict = keep
    batches = {"global_batch_size": 4, "micro_batch_size": 2, "max_tokens": 2000}
    often = {"save_interval": 10, "log_interval": 1}
    train = TrainArgs(**batches, **often, max_norm=1.0, min_lr=1e-5, lr_warmup_steps=2, tie_embeddings=False)
    model = Config(name="tiny", block_size=16, n_layer=1, n_embd=16, n_head=2, padded_vocab_size=64)
    plain = {"precision": "32-true", "devices": 1, "logger_name": "csv", "eval": EvalArgs(interval=10, max_iters=2)}
    with tempfile.TemporaryDirectory(dir=".") as folder:
        pretrain.setup("tiny", model_config=model, out_dir=Path(folder), data=Tokens(), train=train, **plain)
    return seen


def lightning() -> Rows:
    import lightning as pl
    import torch

    seen: Rows = []

    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            loss = self.layer(batch[0]).square().mean()
            self.log("train_loss", loss, prog_bar=True)
            seen.append({"epoch": self.current_epoch, "train_loss": float(f"{loss.item():#.3g}")})
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    torch.manual_seed(0)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(40, 8)), batch_size=4)
    with tempfile.TemporaryDirectory() as folder:
        bar = pl.pytorch.callbacks.TQDMProgressBar(refresh_rate=1)
        trainer = pl.Trainer(max_epochs=3, accelerator="cpu", logger=False, default_root_dir=folder, callbacks=[bar])
        trainer.fit(Model(), data)
    return seen


def accelerate_tqdm() -> Rows:
    import torch
    from accelerate import Accelerator
    from tqdm import tqdm

    seen: Rows = []
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(160, 8)), batch_size=4)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    bar = tqdm(total=40, disable=not accelerator.is_local_main_process, mininterval=0)
    for step, (batch,) in enumerate(data, 1):
        loss = model(batch).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        bar.update(1)
        bar.set_postfix(loss=loss.item(), lr=optimizer.param_groups[0]["lr"])
        seen.append({"step": step, "loss": float(f"{loss.item():.3g}"), "lr": 0.01})
    bar.close()
    return seen


# -- printers of our own, after the published formats


def _curve(count: int, seed: int) -> list[float]:
    noise = random.Random(seed)
    return [2 + 6 / math.sqrt(1 + n) + noise.gauss(0, 0.05) for n in range(count)]


def nanogpt() -> Rows:
    """karpathy/nanoGPT train.py: one line an iteration, an estimate of both losses at each evaluation."""
    seen: Rows = []
    print("Overriding: max_iters = 60\ntokens per iteration will be: 491,520\nnumber of parameters: 10.65M")
    for step, loss in enumerate(_curve(61, 1)):
        if step % 20 == 0:
            train, val = round(loss + 0.01, 4), round(loss + 0.2, 4)
            print(f"step {step}: train loss {train:.4f}, val loss {val:.4f}")
            seen.append({"step": step, "train_loss": train, "val_loss": val})
            if step:
                print("saving checkpoint to out")
        print(f"iter {step}: loss {loss:.4f}, time {100 + step / 10:.2f}ms, mfu {30 + step / 100:.2f}%")
        seen.append({"step": step, "loss": round(loss, 4), "mfu": round(30 + step / 100, 2)})
    return seen


def keras_like() -> Rows:
    seen: Rows = []
    losses = _curve(30, 2)
    for epoch in range(3):
        print(f"Epoch {epoch + 1}/3")
        for batch in range(1, 11):
            loss = losses[epoch * 10 + batch - 1]
            head = f"\r{batch}/10 {'━' * batch}{' ' * (10 - batch)} 1s 25ms/step"
            print(f"{head} - accuracy: {batch / 20:.4f} - loss: {loss:.4f}", end="", flush=True)
            row = {"accuracy": round(batch / 20, 4), "loss": round(loss, 4)}
            if batch == 10:
                print(f" - val_accuracy: {0.4:.4f} - val_loss: {loss + 0.1:.4f}")
                row |= {"val_accuracy": 0.4, "val_loss": round(loss + 0.1, 4)}
            seen.append(row)
    return seen


def torchtitan() -> Rows:
    """pytorch/torchtitan torchtitan/components/metrics.py, with its colours; validation every 20 steps."""
    seen: Rows = []
    red, green, blue, reset = "\x1b[31m", "\x1b[32m", "\x1b[34m", "\x1b[39m"
    head = "[titan] 2026-01-01 10:00:00,123 - root - INFO - "
    for step, loss in enumerate(_curve(60, 3), 1):
        if step != 1 and step % 10:
            continue
        print(
            f"{head}{red}step: {step:2}  {green}loss: {loss:7.4f}  {red}grad_norm: {loss / 2:7.4f}  "
            f"{blue}memory:  1.25GiB(1.57%)  tps: {12345 + step:,}  tflops: 12.34  mfu: 23.45%{reset}"
        )
        seen.append({"step": step, "loss": round(loss, 4), "grad_norm": round(loss / 2, 4), "mfu": 23.45})
        if step % 20 == 0:
            print(f"{head}{red}validate step: {step:2}  {green}loss: {loss + 0.1:7.4f}  {blue}tps: 9,000{reset}")
            seen.append({"step": step, "val_loss": round(loss + 0.1, 4)})
    return seen


def key_value() -> Rows:
    seen: Rows = []
    for step, loss in enumerate(_curve(40, 4)):
        lr = 3e-4 * (1 - step / 40)
        head = f"2026-01-01 10:00:{step:02d} INFO step={step}/40"
        print(f"{head} train/loss={loss:.5f} lr={lr:.3e} samples/s={512 + step}")
        rounded = {"train_loss": round(loss, 5), "lr": float(f"{lr:.3e}"), "samples_per_s": 512.0 + step}
        seen.append({"step": step, **rounded})
    return seen


def json_lines() -> Rows:
    seen: Rows = []
    for step, loss in enumerate(_curve(40, 5)):
        row = {"step": step, "loss": round(loss, 6), "grad_norm": round(loss / 3, 6), "lr": 0.0003}
        print(json.dumps({"level": "info", **row}))
        seen.append(row)
    return seen


def metrics_jsonl() -> Rows:
    """Written by rgt.rundir, as every run of ours writes it."""
    from rgt.run.record import Run

    seen: Rows = []
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder))
        for step, loss in enumerate(_curve(30, 6)):
            run.log_metrics(step=step, split="train", loss=round(loss, 6))
            seen.append({"step": step, "loss": round(loss, 6)})
            if step % 10 == 9:
                run.log_metrics(step=step, split="val", loss=round(loss + 0.1, 6), acc=0.5)
                seen.append({"step": step, "val_loss": round(loss + 0.1, 6), "val_acc": 0.5})
        sys.stdout.write(run.metrics.read_text())
    return seen


def docker_json() -> Rows:
    """Docker's json-file driver: one object a line, and a progress bar's states inside of one."""
    seen: Rows = []
    for step, loss in enumerate(_curve(30, 7)):
        bar = f"\r {step * 100 // 30}%|###   | {step}/30 [00:{step:02d}<00:{30 - step:02d},  1.00it/s]"
        text = f"{bar}\nstep {step}: loss {loss:.4f}, lr 3.0e-04\n"
        print(json.dumps({"log": text, "stream": "stdout", "time": f"2026-01-01T10:00:{step:02d}.123456789Z"}))
        seen.append({"step": step, "loss": round(loss, 4)})
    return seen


def slurm() -> Rows:
    """slurm-<job>.out of two tasks with `srun -l`, ended by the time limit."""
    seen: Rows = []
    for step, loss in enumerate(_curve(30, 8)):
        print(f"0: iter {step}: loss {loss:.4f}, time 250.00ms, mfu 12.00%")
        print(f"1: [rank1] data ready for batch {step}")
        seen.append({"step": step, "loss": round(loss, 4), "mfu": 12.0})
    print("slurmstepd: error: *** JOB 4711 ON node07 CANCELLED AT 2026-01-01T12:00:00 DUE TO TIME LIMIT ***")
    return seen


_REAL = (hf_trainer, hf_printer, litgpt, lightning, accelerate_tqdm)
_OURS = (nanogpt, keras_like, torchtitan, key_value, json_lines, metrics_jsonl, docker_json, slurm)
MAKERS: dict[str, Callable[[], Rows]] = {maker.__name__: maker for maker in (*_REAL, *_OURS)}


def make(name: str) -> None:
    """In a process of its own, so that the log has what a shell's redirection would have."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        env["PYTHONPATH"] = str(HERE.parents[1] / "scripts")
        command = [sys.executable, "-u", str(HERE / "make.py"), "--inside", name, str(Path(folder) / "truth.json")]
        done = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise SystemExit(f"{name} failed:\n{done.stdout.decode(errors='replace')[-3000:]}")
        text = done.stdout  # without this machine's paths, and without the advertisements that name other hosts
        for path, word in ((folder, "/exp"), (sys.prefix, "/venv"), (str(HERE.parents[1]), "/repo")):
            text = text.replace(path.encode(), word.encode())
        text = b"\n".join(line for line in text.split(b"\n") if b"Tip: " not in line)
        (HERE / f"{name}.log").write_bytes(text)
        rows = json.loads((Path(folder) / "truth.json").read_text())
        (HERE / f"{name}.json").write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    print(f"{name}: {len(text)} bytes, {len(rows)} rows")


def main(words: list[str]) -> None:
    if words[:1] == ["--inside"]:
        Path(words[2]).write_text(json.dumps(MAKERS[words[1]]()))
    else:
        for name in words or MAKERS:
            make(name)


if __name__ == "__main__":
    main(sys.argv[1:])
