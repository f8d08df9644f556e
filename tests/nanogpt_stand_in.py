"""Stands in for nanoGPT's train.py: its command line, its config names, its printed lines, its ckpt.pt, a tiny model.

train.py [config.py] [--key=value ...]     as published: a config file is executed, a --key must exist and keep its type
Like the original it seeds at start, saves in place at iterations divisible by eval_interval, and knows no signals.
"""

from __future__ import annotations

import ast
import math
import os
import pickle
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

# the optimizer asks for the compiler, whose import would take as long as all the rest
STUB: Any = SimpleNamespace(disable=lambda function, *_, **__: function, graph_break=lambda: None)
torch._dynamo = sys.modules["torch._dynamo"] = STUB

DEFAULTS: dict[str, Any] = {"out_dir": "out", "eval_interval": 2000, "log_interval": 1, "eval_iters": 200}
DEFAULTS |= {"eval_only": False, "always_save_checkpoint": True, "init_from": "scratch", "wandb_log": False}
DEFAULTS |= {"wandb_project": "owt", "wandb_run_name": "gpt2", "dataset": "openwebtext", "batch_size": 12}
DEFAULTS |= {"gradient_accumulation_steps": 40, "block_size": 1024, "n_layer": 12, "n_head": 12, "n_embd": 768}
DEFAULTS |= {"dropout": 0.0, "bias": False, "learning_rate": 6e-4, "max_iters": 600000, "weight_decay": 1e-1}
DEFAULTS |= {"beta1": 0.9, "beta2": 0.95, "grad_clip": 1.0, "decay_lr": True, "warmup_iters": 2000}
DEFAULTS |= {"lr_decay_iters": 600000, "min_lr": 6e-5, "backend": "nccl", "device": "cuda", "dtype": "float16"}
DEFAULTS["compile"] = True


def read_settings(words: list[str]) -> dict[str, Any]:
    values = dict(DEFAULTS)
    for word in words:
        if "=" not in word:
            assert not word.startswith("--")
            exec(Path(word).read_text(), values)
            unknown = {name for name in values if name not in DEFAULTS and not name.startswith("_")}
            assert not unknown, unknown  # the original would ignore them: a misspelt name must be seen here
            continue
        key, value = word.split("=")
        key = key[2:]
        if key not in DEFAULTS:
            raise ValueError(f"Unknown config key: {key}")
        try:
            given: Any = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            given = value
        assert type(given) is type(values[key]), key
        values[key] = given
    return values


def learning_rate(it: int, g: dict[str, Any]) -> float:
    if it < g["warmup_iters"]:
        return float(g["learning_rate"] * (it + 1) / (g["warmup_iters"] + 1))
    if it > g["lr_decay_iters"]:
        return float(g["min_lr"])
    ratio = (it - g["warmup_iters"]) / (g["lr_decay_iters"] - g["warmup_iters"])
    return float(g["min_lr"] + (g["learning_rate"] - g["min_lr"]) * (1 + math.cos(math.pi * ratio)) / 2)


class Training:
    def __init__(self, g: dict[str, Any]) -> None:
        self.g, self.folder = g, os.path.join("data", g["dataset"])
        torch.manual_seed(1337)
        with open(os.path.join(self.folder, "meta.pkl"), "rb") as file:
            vocab = pickle.load(file)["vocab_size"]
        self.model = torch.nn.Sequential(torch.nn.Embedding(vocab, g["n_embd"]), torch.nn.Linear(g["n_embd"], vocab))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), g["learning_rate"], (g["beta1"], g["beta2"]))
        self.iter_num = 0
        if g["init_from"] == "resume":
            state = torch.load(os.path.join(g["out_dir"], "ckpt.pt"), map_location=g["device"])
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.iter_num = state["iter_num"]

    def loss(self, split: str) -> Any:
        data = np.memmap(os.path.join(self.folder, f"{split}.bin"), dtype=np.uint16, mode="r")
        block = self.g["block_size"]
        starts = torch.randint(len(data) - block, (self.g["batch_size"],))
        rows = torch.stack([torch.from_numpy(data[i : i + block + 1].astype(np.int64)) for i in starts])
        logits = self.model(rows[:, :-1])
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())

    @torch.no_grad()
    def evaluate(self) -> None:
        mean = {
            split: sum(self.loss(split).item() for _ in range(self.g["eval_iters"])) / self.g["eval_iters"]
            for split in ("train", "val")
        }
        print(f"step {self.iter_num}: train loss {mean['train']:.4f}, val loss {mean['val']:.4f}", flush=True)
        if self.iter_num > 0:
            state = {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "model_args": {},
                "iter_num": self.iter_num,
                "best_val_loss": mean["val"],
                "config": {},
            }
            print(f"saving checkpoint to {self.g['out_dir']}", flush=True)
            torch.save(state, os.path.join(self.g["out_dir"], "ckpt.pt"))

    def run(self) -> None:
        g = self.g
        while True:
            rate = learning_rate(self.iter_num, g) if g["decay_lr"] else g["learning_rate"]
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            if self.iter_num % g["eval_interval"] == 0:
                self.evaluate()
            began = time.time()
            for _ in range(g["gradient_accumulation_steps"]):
                loss = self.loss("train")
                torch.autograd.backward(loss / g["gradient_accumulation_steps"])
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), g["grad_clip"])
            self.optimizer.step()
            self.optimizer.zero_grad()
            if self.iter_num % g["log_interval"] == 0:
                took = (time.time() - began) * 1000
                print(f"iter {self.iter_num}: loss {loss.item():.4f}, time {took:.2f}ms, mfu -100.00%", flush=True)
            self.iter_num += 1
            if self.iter_num > g["max_iters"]:
                break


if __name__ == "__main__":
    Training(read_settings(sys.argv[1:])).run()
