"""The batches themselves: NaN, constants, repeats, labels; images in the wrong scale or order; what does not stack."""

from __future__ import annotations

import hashlib
from typing import Any

from probing.results import Result, several
from probing.session import Session, describe, inputs_of, sentence, site, target_of, tensors

_MOST = 16  # batches looked at


def data(session: Session) -> Result:
    """NaN and Inf in batches, constant inputs or labels, one sample repeated, an empty loader."""
    result = Result("data")
    batches = session.batches(min(_MOST, session.steps))
    if not batches:
        result.add("empty", "error", "the data gives no batch", evidence=_why_empty(session.training.data),
                   fix="fewer samples than batch_size with drop_last=True gives an empty epoch")  # fmt: skip
        return result
    for index, batch in enumerate(batches):
        for name, tensor in tensors(batch):
            if tensor.is_floating_point() and not tensor.isfinite().all() and not result.findings:
                rows = (~tensor.isfinite()).flatten(1).any(1).nonzero().flatten().tolist() if tensor.dim() > 1 else []
                result.add("nan", "error", f"batch {index} holds NaN or Inf", where=name,
                           evidence=f"{describe(tensor)}; rows {several([str(r) for r in rows])}",
                           fix="mend the source, or drop the rows; one NaN poisons every weight")  # fmt: skip
    _inputs(result, batches)
    _labels(result, batches)
    result.evidence = f"{len(batches)} batches: " + "; ".join(f"{n} {describe(t)}" for n, t in tensors(batches[0]))
    return result


def _why_empty(source: Any) -> str:
    dataset, size = getattr(source, "dataset", None), getattr(source, "batch_size", None)
    count = len(dataset) if dataset is not None and hasattr(dataset, "__len__") else None
    return f"{count} samples, batch_size {size}, drop_last {getattr(source, 'drop_last', None)}" if size else ""


def _inputs(result: Result, batches: list[Any]) -> None:
    found = [dict(tensors(inputs_of(batch) if not isinstance(batch, dict) else batch)) for batch in batches]
    for name, first in found[0].items():
        whole = [part[name] for part in found if name in part]
        if first.dim() < 2 or not first.is_floating_point():
            continue
        if all(bool((t == first.flatten()[0]).all()) for t in whole):
            result.add("constant", "error", "the input is one constant number in every batch", where=name or "inputs",
                       evidence=describe(first), fix="follow one sample from the file to here")  # fmt: skip
        elif _same_rows(whole):
            result.add("duplicate", "error", "every sample of every batch is the same", where=name or "inputs",
                       evidence=f"{sum(len(t) for t in whole)} rows, 1 distinct",
                       fix="does __getitem__ use its index?")  # fmt: skip


def _same_rows(whole: list[Any]) -> bool:
    rows = sum(len(t) for t in whole)
    return rows > 2 and all(bool((t == whole[0][0]).all()) for t in whole)


def _labels(result: Result, batches: list[Any]) -> None:
    import torch

    labels = [next((t for _, t in tensors(target_of(batch))), None) for batch in batches if not isinstance(batch, dict)]
    flat = [t.flatten() for t in labels if t is not None and t.dim() == 1 and not t.is_floating_point()]
    if not flat:
        return
    every = torch.cat(flat)
    if len(every) >= 16 and bool((every == every[0]).all()):
        result.add("constant", "error", f"all {len(every)} labels are {int(every[0])}", where="target",
                   fix="look at how the label is read; sorted files without a shuffle look like this too")  # fmt: skip


# -- images


def images(session: Session) -> Result:
    """Images: 0-255 instead of 0-1, divided twice, channels last, BGR against the declared channel means."""
    result = Result("images")
    batches = session.batches(min(_MOST, session.steps))
    found = [t for batch in batches for t in _images(batch)]
    if not found:
        result.unjudged = "no batch of images (4 dimensions, 1, 3 or 4 channels)"
        return result
    first = found[0]
    if first.shape[1] not in (1, 3, 4):
        result.add("image", "error", f"channels are last ({tuple(first.shape)}); convolutions want them at dimension 1",
                   fix="permute(0, 3, 1, 2)")  # fmt: skip
        return result
    if first.is_floating_point():
        _scale(result, found)
        _order(result, session, found)
    result.evidence = describe(first)
    return result


def _images(batch: Any) -> list[Any]:
    chosen = [t for _, t in tensors(inputs_of(batch) if not isinstance(batch, dict) else batch) if t.dim() == 4]
    return [t for t in chosen if t.shape[1] in (1, 3, 4) or (t.shape[-1] in (1, 3, 4) and t.shape[1] > 4)]


def _scale(result: Result, found: list[Any]) -> None:
    low, high = min(float(t.min()) for t in found), max(float(t.max()) for t in found)
    whole = all(bool((t == t.round()).all()) for t in found)
    if low >= 0 and 2 < high <= 255 and whole:
        result.add("image", "error", f"float images from {low:g} to {high:g}: not divided by 255",
                   evidence="every value is a whole number", fix="x / 255, then normalise")  # fmt: skip
    elif low >= 0 and 0 < high <= 1.01 / 255:
        result.add("image", "error", f"images from {low:g} to {high:.4g}: divided by 255 twice",
                   fix="ToTensor divides already")  # fmt: skip


def _order(result: Result, session: Session, found: list[Any]) -> None:
    import torch

    means = session.training.channel_mean
    if means is None or found[0].shape[1] != 3 or result.findings:
        return
    seen = torch.stack([t.double().mean((0, 2, 3)) for t in found])
    wanted = torch.tensor(means, dtype=torch.double)
    if session.training.channel_std is not None:  # back to what it was before normalisation
        seen = seen * torch.tensor(session.training.channel_std, dtype=torch.double) + wanted
    straight, swapped = (seen - wanted).abs().sum(1), (seen.flip(1) - wanted).abs().sum(1)
    # each batch votes: chance alone rarely makes all of them agree, and the margin must be clear
    if bool((swapped < straight).all()) and float(swapped.mean()) < 0.5 * float(straight.mean()):
        shown = ", ".join(f"{v:.3f}" for v in seen.mean(0))
        result.add("image", "error", "the channels are in reverse order (BGR for RGB)",
                   evidence=f"means {shown}; declared {', '.join(f'{m:.3f}' for m in means)}",
                   fix="cv2.cvtColor(x, cv2.COLOR_BGR2RGB), or x[..., ::-1].copy()")  # fmt: skip


# -- collate


def collate(session: Session) -> Result:
    """Do samples stack into batches; if not, which field of which samples is ragged."""
    result = Result("collate")
    try:
        batches = session.batches(min(_MOST, session.steps))
    except Exception as error:  # a dataset may raise anything
        ragged = _ragged(session.training.data)
        if ragged:
            result.add(
                "ragged",
                "error",
                f"samples of different shape cannot be stacked: {ragged}",
                evidence=sentence(error)[:200],
                fix="pad in a collate_fn, and keep a mask of the padding",
            )
        else:
            result.add("crash", "error", f"the data raises: {sentence(error)}", where=site(error))
        return result
    sizes = sorted({len(t) for batch in batches for _, t in list(tensors(batch))[:1] if t.dim()})
    result.evidence = f"{len(batches)} batches of {several([str(s) for s in sizes])} samples"
    for index, batch in enumerate(batches):
        lengths = {name: len(t) for name, t in tensors(batch) if t.dim()}
        if len(set(lengths.values())) > 1 and not isinstance(inputs_of(batch), dict):
            shown = ", ".join(f"{name} {length}" for name, length in lengths.items())
            result.add("ragged", "warn", f"batch {index} has a different number of rows per field", evidence=shown,
                       fix="samples were dropped or repeated in one field only")  # fmt: skip
            break
    return result


def _ragged(source: Any) -> str:
    """Shapes per field over the first samples of the dataset, for fields where they differ."""
    dataset = getattr(source, "dataset", None)
    if dataset is None or not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        return ""
    shapes: dict[str, list[str]] = {}
    try:
        for index in range(min(len(dataset), 64)):
            for name, tensor in tensors(dataset[index], ""):
                shape = f"{'x'.join(map(str, tensor.shape)) or 'scalar'}"
                shapes.setdefault(name, []).append(shape)
    except Exception:
        return ""
    uneven = {name: seen for name, seen in shapes.items() if len(set(seen)) > 1}
    return "; ".join(f"{name} is {several(list(dict.fromkeys(seen)))}" for name, seen in uneven.items())


def digest(item: Any) -> str:
    """Of everything in a sample or batch: equal contents, equal digest."""
    state = hashlib.blake2b(digest_size=12)
    _feed(state, item)
    return state.hexdigest()


def _feed(state: Any, item: Any) -> None:
    import torch

    if isinstance(item, torch.Tensor):
        values = item.detach().cpu().contiguous()
        state.update(str((values.dtype, tuple(values.shape))).encode())
        state.update(values.reshape(-1).view(torch.uint8).numpy().tobytes() if values.numel() else b"")
    elif isinstance(item, dict):
        for key in sorted(item, key=str):
            state.update(str(key).encode())
            _feed(state, item[key])
    elif isinstance(item, (tuple, list)):
        for part in item:
            _feed(state, part)
    elif hasattr(item, "tobytes"):
        state.update(item.tobytes())
    else:
        state.update(repr(item).encode())
