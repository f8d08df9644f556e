"""Workers and order: random numbers that repeat, shards that overlap, epochs that are all the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from probing.results import Result
from probing.samples import digest
from probing.session import Session, target_of, tensors
from probing.state import same_random

_DRAWS = 4  # of the same sample, per worker
_MOST = 2048  # samples of one epoch that are compared
_LABELS = 256  # samples that are read for their label


def _digest_of(samples: list[Any]) -> str:
    """As collate_fn, it runs in the worker."""
    return digest(samples)


def workers(session: Session) -> Result:
    """Random augmentations that repeat over workers or epochs; an IterableDataset that every worker reads whole."""
    from torch.utils.data import DataLoader, IterableDataset

    result = Result("workers")
    loader = session.training.data
    if not isinstance(loader, DataLoader) or loader.num_workers < 1:
        result.unjudged = "the data is no DataLoader with workers"
        return result
    with same_random(loader):
        if isinstance(loader.dataset, IterableDataset):
            _sharding(result, loader)
        else:
            _draws(result, loader)
    return result


def _draws(result: Result, loader: Any) -> None:
    first, second = _epoch(loader), _epoch(loader)
    spread = len(set(first[0]))
    result.data = {"workers": loader.num_workers, "distinct_draws_of_one_sample": spread}
    if spread == 1 and len({tuple(seen) for seen in first}) == 1:
        result.evidence = "a sample is read the same every time: nothing random in the dataset"
        return
    result.evidence = f"{loader.num_workers} workers draw different random numbers, and others in the next epoch"
    repeated = len(first) > 1 and len({tuple(seen) for seen in first}) < len(first)
    if repeated:
        result.add("worker-rng", "error", "workers draw the same random numbers: augmentations come in copies",
                   evidence=f"{loader.num_workers} workers, the same sample read {_DRAWS} times by each: "
                   f"{len({tuple(seen) for seen in first})} distinct sequences",
                   fix="make the generator in worker_init_fn from torch.initial_seed(), not in __init__")  # fmt: skip
    if first == second:
        result.add("worker-rng", "error", "the random numbers are the same in every epoch",
                   evidence="two epochs, identical draws in every worker",
                   fix="workers are forked anew each epoch from the same generator: seed it from "
                       "torch.initial_seed() in worker_init_fn, or persistent_workers=True")  # fmt: skip


def _epoch(loader: Any) -> list[list[str]]:
    """Digests of one sample, by worker; batch i is read by worker i mod n."""
    from torch.utils.data import DataLoader

    count = loader.num_workers
    # the first sample over and over, from the very dataset (worker_init_fn may reach into it): what differs is random
    again = DataLoader(
        loader.dataset, sampler=[0] * (count * _DRAWS), batch_size=1, num_workers=count, collate_fn=_digest_of,
        worker_init_fn=loader.worker_init_fn, multiprocessing_context=loader.multiprocessing_context, timeout=60,
    )  # fmt: skip
    seen = list(again)
    return [seen[worker::count] for worker in range(count)]


def _sharding(result: Result, loader: Any) -> None:
    seen = list(itertools.islice(_samples(loader), _MOST))
    copies = len(seen) / max(len(set(seen)), 1)
    result.evidence = f"{len(seen)} samples, {len(set(seen))} distinct, from {loader.num_workers} workers"
    result.data = {"samples": len(seen), "distinct": len(set(seen))}
    if loader.num_workers > 1 and copies > 1.5:
        result.add("duplicate", "error", f"every sample comes {copies:.0f} times: each worker reads the whole stream",
                   evidence=result.evidence, fix="in __iter__, keep only get_worker_info().id of num_workers "
                   "(and of the ranks)")  # fmt: skip


def _samples(source: Any) -> Iterator[str]:
    """One digest per row of each batch."""
    for batch in source:
        parts = [tensor for _, tensor in tensors(batch) if tensor.dim()]
        if not parts or len({len(part) for part in parts}) > 1:
            yield digest(batch)
            continue
        for index in range(len(parts[0])):
            yield digest([part[index] for part in parts])


# -- order


def order(session: Session) -> Result:
    """The order of two epochs: all the same, or sorted by label."""
    from torch.utils.data import DataLoader

    training, result = session.training, Result("order")
    source = training.make_loader or training.data
    if not (training.make_loader or isinstance(source, DataLoader)) or _fixed(source):
        result.unjudged = "the order of a list of batches or of a stream is not the loader's choice"
        return result
    with same_random(training.data):
        loaders = [training.make_loader(n) if training.make_loader else training.data for n in range(2)]
        seen, labels = zip(*(_order(loader, n == 0) for n, loader in enumerate(loaders)), strict=True)
    if len(set(seen[0])) < 3:
        result.unjudged = "fewer than three distinct samples"
        return result
    sorted_by = _blocks(labels[0])
    result.evidence = f"{len(seen[0])} samples in two epochs, in different order"
    if sorted_by is not None:
        result.add("order", "error", "the samples come sorted by label", evidence=f"{sorted_by[0]} label changes "
                   f"where a shuffle has about {sorted_by[1]:.0f}", fix="shuffle=True")  # fmt: skip
    elif seen[0] == seen[1]:
        result.evidence = f"{len(seen[0])} samples, the same order in two epochs"
        result.add("order", "warn", "every epoch has the same order", evidence=result.evidence,
                   fix="shuffle=True; sampler.set_epoch(epoch) with a DistributedSampler; do not seed the loader's "
                       "generator anew each epoch")  # fmt: skip
    return result


def _fixed(source: Any) -> bool:
    from torch.utils.data import DataLoader, IterableDataset

    return isinstance(source, DataLoader) and isinstance(source.dataset, IterableDataset)


def _order(loader: Any, with_labels: bool) -> tuple[list[str], list[int]]:
    """The order, by the sampler's indices where there is one: contents may be random. And the labels in that order."""
    sampler = getattr(loader, "batch_sampler", None) or getattr(loader, "sampler", None)
    if sampler is None:
        return list(itertools.islice(_samples(loader), _MOST)), []
    indices = [i for batch in itertools.islice(iter(sampler), _MOST) for i in _flat(batch)][:_MOST]
    labels = [_label(loader.dataset[i]) for i in indices[:_LABELS]] if with_labels else []
    known = [label for label in labels if label is not None]
    return [str(i) for i in indices], known if len(known) == len(labels) else []


def _label(sample: Any) -> int | None:
    value = target_of(sample)
    if hasattr(value, "numel"):
        return int(value) if value.numel() == 1 and not value.is_floating_point() else None
    return value if isinstance(value, int) else None


def _flat(batch: Any) -> list[Any]:
    return list(batch) if isinstance(batch, (list, tuple)) else [batch]


def _blocks(labels: list[int]) -> tuple[int, float] | None:
    """(changes, expected) when labels come in far longer runs than a random order gives them."""
    count = len(labels)
    if count < 16:
        return None
    same = sum((labels.count(label) / count) ** 2 for label in set(labels))
    expected = (count - 1) * (1 - same)
    changes = sum(a != b for a, b in itertools.pairwise(labels))
    # standard deviation of the number of changes is at most that of a coin per neighbour pair
    spread = (max((count - 1) * same * (1 - same), 1e-9)) ** 0.5
    return (changes, expected) if changes < expected - 6 * spread and changes < 0.5 * expected else None
