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

from probing.contract import Training


def data(rank: int, world: int, count: int = 32) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    dataset = TensorDataset(torch.randn(count, 4, generator=generator), torch.arange(count) % 3)
    return DataLoader(dataset, batch_size=4, sampler=DistributedSampler(dataset, world, rank))


def average(model: nn.Module, skip: int = 0) -> None:
    for parameter in list(model.parameters())[skip:]:
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad)
        parameter.grad.div_(dist.get_world_size())


def by_hand(rank: int, world: int, change: Any = None, **more: Any) -> Training:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    count = [0]

    def step(t: Training, batch: Any) -> Any:
        count[0] += 1
        loss = t.loss(t.model(batch[0]), batch[1])
        t.optimizer.zero_grad()
        loss.backward()
        (change or (lambda model, step: average(model)))(t.model, count[0])
        t.optimizer.step()
        return loss

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Training(model, more.get("data") or data(rank, world), nn.CrossEntropyLoss(), optimizer, step=step)


def healthy(rank: int, world: int) -> Training:
    dist.init_process_group("gloo")
    torch.manual_seed(rank)  # DDP brings rank 0's weights to all
    model = DistributedDataParallel(nn.Linear(4, 3))
    return Training(model, data(rank, world), nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1))


def skips_a_collective(rank: int, world: int) -> Training:
    def change(model: nn.Module, step: int) -> None:
        if not (rank == 1 and step == 3):
            average(model)

    return by_hand(rank, world, change)


def rank_zero_only(rank: int, world: int) -> Training:
    def change(model: nn.Module, step: int) -> None:
        average(model)
        if rank == 0 and step == 2:
            dist.barrier()

    return by_hand(rank, world, change)


def forgets_a_parameter(rank: int, world: int) -> Training:
    return by_hand(rank, world, lambda model, step: average(model, skip=1))


def same_data(rank: int, world: int) -> Training:
    return by_hand(rank, world, data=data(0, 2))


def dies(rank: int, world: int) -> Training:
    def change(model: nn.Module, step: int) -> None:
        if rank == 1 and step == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        average(model)

    return by_hand(rank, world, change)


def raises(rank: int, world: int) -> Training:
    def change(model: nn.Module, step: int) -> None:
        if rank == 1 and step == 2:
            raise KeyError("image_017")
        average(model)

    return by_hand(rank, world, change)


def uneven(rank: int, world: int) -> Training:
    """Rank 0 has one batch more; DDP waits for it in backward."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 3))
    batches = list(data(rank, world))[: 3 - rank]
    return Training(model, batches, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1))
