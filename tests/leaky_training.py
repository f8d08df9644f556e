"""A training with planted leaks of host memory: python leaky_training.py STEPS [hook] [graph] [cache]"""

from __future__ import annotations

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS, LEAKS = int(sys.argv[1]), set(sys.argv[2:])
torch.set_num_threads(1)


class Rows(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.cache: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        row = torch.randn(64)
        if "cache" in LEAKS:
            self.cache[index] = torch.ones(2048)  # 8 KB of every sample
        return row


def validate(model: nn.Module, history: list[torch.Tensor]) -> float:
    model.eval()
    total = torch.zeros(())
    for _ in range(4):
        time.sleep(0.05)  # as long as a real batch
        loss = model(torch.randn(256, 64)).square().mean()
        total = total + loss if "graph" in LEAKS else total + loss.detach()
    history.append(total)
    model.train()
    return float(total)


def main() -> None:
    model = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 1))
    optimizer = torch.optim.Adam(model.parameters())
    history: list[torch.Tensor] = []
    loader = DataLoader(Rows(), batch_size=16, num_workers=2, prefetch_factor=2, multiprocessing_context="fork")
    for step, batch in enumerate(loader, 1):
        if "hook" in LEAKS:
            seen = torch.ones(65536)  # 256 KB
            model[0].register_forward_hook(lambda module, inputs, output, seen=seen: None)
        time.sleep(0.02)  # as long as a real step
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 0:
            print(f"step {step} loss {loss.item():.4f}")
        if step % 20 == 0:
            print(f"step {step} val_loss {validate(model, history):.4f}")
        if step == STEPS:
            break


main()
