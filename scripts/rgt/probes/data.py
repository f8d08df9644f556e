"""Probes of the data: batches and what is in them, their order, workers."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

from rgt.probes.factory import Result, Unjudged, sentence, several, site
from rgt.probes.probe_session import Session, describe, digest, inputs_of, target_of, tensors

from torch.utils.data import DataLoader, IterableDataset

_BATCHES = 16  # looked at
_DRAWS = 4  # of the same sample, per worker
_MOST = 2048  # samples of one epoch that are compared
_SIZES = ("batch_size", "drop_last")


def data(session: Session, result: Result) -> None:
    """Ragged samples, NaN and Inf, constants, one sample repeated, images from 0 to 255, an empty loader, the order."""
    try:
        batches = session.batches(min(_BATCHES, session.steps))
    except Exception as error:  # a dataset may raise anything
        _unreadable(session, result, error)
        return
    if not batches:
        source = session.training.data
        shown = ", ".join(f"{name} {getattr(source, name)}" for name in _SIZES if hasattr(source, name))
        result.add("empty", "the data gives no batch", shown)
        result.fix("fewer samples than batch_size with drop_last=True gives an empty epoch")
        return
    _order(session, result)
    for index, (name, tensor) in ((i, pair) for i, batch in enumerate(batches) for pair in tensors(batch)):
        if tensor.is_floating_point() and not tensor.isfinite().all():
            rows = (~tensor.isfinite()).flatten(1).any(1).nonzero().flatten().tolist() if tensor.dim() > 1 else []
            shown = f"{describe(tensor)}; rows {several([str(row) for row in rows])}"
            result.add("nan", f"batch {index} holds NaN or Inf", shown, where=name)
            result.fix("repair the source, or drop the rows; one NaN spreads to every weight")
            break
    fields = [dict(tensors(inputs_of(batch))) for batch in batches]
    for name, first in fields[0].items():
        whole = [part[name] for part in fields if name in part]
        rows = sum(len(t) for t in whole) if first.dim() >= 2 and first.is_floating_point() else 0
        integral = rows and all(bool((t == t.round()).all() and t.min() >= 0) for t in whole)
        if rows and all(bool((t == first.flatten()[0]).all()) for t in whole):
            result.add("constant", "the input is one constant number in every batch", describe(first), where=name)
            result.fix("follow one sample from the file to here")
        # 0 to 255 as floats; not masks, which end at 1
        elif rows and first.dim() == 4 and integral and 2 < max(float(t.max()) for t in whole) <= 255:
            result.add("image", "float images of whole numbers: not divided by 255", describe(first), where=name)
            result.fix("x / 255, then normalise")
        elif rows > 2 and all(bool((t == first[0]).all()) for t in whole):
            result.add("duplicate", "every sample of every batch is the same", f"{rows} rows, 1 distinct", where=name)
            result.fix("does __getitem__ use its index?")
    targets = [t for batch in batches if isinstance(batch, (tuple, list)) for _, t in [*tensors(target_of(batch))][:1]]
    labels = [label for t in targets if t.dim() == 1 and not t.is_floating_point() for label in t.tolist()]
    if len(labels) >= 16 and len(set(labels)) == 1:
        result.add("constant", f"all {len(labels)} labels are {labels[0]}", where="target")
        result.fix("look at how the label is read; sorted files without a shuffle look like this too")
    result.evidence = f"{len(batches)} batches: " + "; ".join(f"{n} {describe(t)}" for n, t in tensors(batches[0]))


def _unreadable(session: Session, result: Result, error: Exception) -> None:
    """Which field of which samples is ragged, if it is that."""
    shapes: dict[str, list[str]] = {}  # of each field over the first samples
    with contextlib.suppress(Exception):  # no dataset with indices, or one whose samples raise
        for index in range(min(len(session.training.data.dataset), 64)):
            for name, tensor in tensors(session.training.data.dataset[index]):
                shapes.setdefault(name, []).append("x".join(map(str, tensor.shape)) or "scalar")
    uneven = [f"{name} is {several(list(dict.fromkeys(s)))}" for name, s in shapes.items() if len(set(s)) > 1]
    if uneven:
        message = f"samples of different shape cannot be stacked: {'; '.join(uneven)}"
        result.add("ragged", message, sentence(error)[:200])
        result.fix("pad in a collate_fn, and keep a mask of the padding")
    else:
        result.add("crash", f"the data raises: {sentence(error)}", where=site(error))


def _order(session: Session, result: Result) -> None:
    """The order of two epochs, by the sampler's indices: the contents may be random."""
    loader = session.training.data
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return  # it is not the loader's choice
    first, second = (list(itertools.islice(iter(loader.batch_sampler or loader.sampler), _MOST)) for _ in range(2))
    if first == second and len(loader.dataset) > 2:  # type: ignore[arg-type]
        shown = f"{len(first)} batches, the same order in two epochs"
        result.add("order", "every epoch has the same order", shown, severity="warn")
        result.fix("shuffle=True; set_epoch(epoch) of a DistributedSampler; no new seed of its generator each epoch")


# -- workers


def workers(session: Session, result: Result) -> None:
    """Random augmentations that repeat over workers or epochs; an IterableDataset that every worker reads whole."""
    loader = session.training.data
    if not isinstance(loader, DataLoader) or loader.num_workers < 1:
        raise Unjudged("the data is no DataLoader with workers")
    count: Any = loader.num_workers
    if isinstance(loader.dataset, IterableDataset):
        seen: list[str] = []  # one digest per row of each batch
        for batch in loader:
            parts = [tensor for _, tensor in tensors(batch) if tensor.dim()]
            even = parts and len({len(part) for part in parts}) == 1
            rows = range(len(parts[0])) if even else ()
            seen += [digest([part[index] for part in parts]) for index in rows] if even else [digest(batch)]
            if len(seen) >= _MOST:
                break
        copies = len(seen) / max(len(set(seen)), 1)
        result.evidence = f"{len(seen)} samples, {len(set(seen))} distinct, from {count} workers"
        result.data = {"samples": len(seen), "distinct": len(set(seen))}
        if count > 1 and copies > 1.5:
            message = f"every sample comes {copies:.0f} times: each worker reads the whole stream"
            result.add("duplicate", message, result.evidence)
            result.fix("in __iter__, keep only get_worker_info().id of num_workers (and of the ranks)")
        return
    # the first sample over and over, from the same dataset (worker_init_fn may change it): what differs is random
    same = {name: getattr(loader, name) for name in ("num_workers", "worker_init_fn", "multiprocessing_context")}
    again: Any = DataLoader(loader.dataset, sampler=[0] * (count * _DRAWS), collate_fn=digest, timeout=60, **same)
    epochs = [list(again) for _ in range(2)]
    first = [tuple(epochs[0][worker::count]) for worker in range(count)]  # batch i is read by worker i mod n
    sequences, spread = len(set(first)), len(set(first[0]))
    result.data = {"workers": count, "distinct_draws_of_one_sample": spread}
    if spread == 1 and sequences == 1:
        result.evidence = "a sample is read the same every time: nothing random in the dataset"
        return
    result.evidence = f"{count} workers draw different random numbers, and others in the next epoch"
    if sequences < count:
        shown = f"{count} workers, the same sample read {_DRAWS} times by each: {sequences} distinct sequences"
        result.add("worker-rng", "workers draw the same random numbers: augmentations come in copies", shown)
        result.fix("make the generator in worker_init_fn from torch.initial_seed(), not in __init__")
    if epochs[0] == epochs[1]:
        shown = "two epochs, identical draws in every worker"
        result.add("worker-rng", "the random numbers are the same in every epoch", shown)
        result.fix("seed the generator from torch.initial_seed() in worker_init_fn, or persistent_workers=True")
