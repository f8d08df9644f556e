"""Trainings for two ranks: a healthy one, and some in which the ranks part."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from rgt.probes.factory import Training


def data(rank: int, world: int, count: int = 32) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    dataset = TensorDataset(torch.randn(count, 4, generator=generator), torch.arange(count) % 3)
    return DataLoader(dataset, batch_size=4, sampler=DistributedSampler(dataset, world, rank))


def by_hand(
    rank: int, world: int, at: tuple[int, int] = (-1, -1), act: Any = None, skip: int = 0, batches: Any = None
) -> Training:
    """Averages gradients itself; rank and step `at` do `act` first, and do not average when it returns True."""
    torch.manual_seed(0)
    model, count = nn.Linear(4, 3), [0]

    def step(t: Training, batch: Any) -> Any:
        count[0] += 1
        loss = t.loss(t.model(batch[0]), batch[1])
        t.optimizer.zero_grad()
        loss.backward()
        stop = act() if (rank, count[0]) == at else False
        for parameter in [] if stop is True else list(t.model.parameters())[skip:]:
            dist.all_reduce(parameter.grad)
            parameter.grad.div_(world)
        t.optimizer.step()
        return loss

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Training(model, batches or data(rank, world), nn.CrossEntropyLoss(), optimizer, step=step)


def healthy(rank: int, world: int) -> Training:
    dist.init_process_group("gloo")
    torch.manual_seed(rank)  # DDP brings rank 0's weights to all
    model = DistributedDataParallel(nn.Linear(4, 3))
    return Training(model, data(rank, world), nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1))


def skips_a_collective(rank: int, world: int) -> Training:
    return by_hand(rank, world, (1, 3), lambda: True)


def rank_zero_only(rank: int, world: int) -> Training:
    return by_hand(rank, world, (0, 2), dist.barrier)


def forgets_a_parameter(rank: int, world: int) -> Training:
    return by_hand(rank, world, skip=1)


def same_data(rank: int, world: int) -> Training:
    return by_hand(rank, world, batches=data(0, 2))


def dies(rank: int, world: int) -> Training:
    return by_hand(rank, world, (1, 2), lambda: os.kill(os.getpid(), signal.SIGKILL))


def raises(rank: int, world: int) -> Training:
    return by_hand(rank, world, (1, 2), lambda: dict[str, int]()["image_017"])


def uneven(rank: int, world: int) -> Training:
    """Rank 0 has one batch more; DDP waits for it in backward."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 3))
    batches = list(data(rank, world))[: 3 - rank]
    return Training(model, batches, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1))
