"""Are two runs the same to the last bit? Each function counts what is equal, or raises a sentence with the first
difference.

Usage:
    python examples/cpu_lifecycle/bit_equal.py REFERENCE_RUN RESUMED_RUN
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

# rgt is not installed: the bundle is used from its folder
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from rgt import cli, errors, files
from rgt.run import record


def curves(a: record.Run, b: record.Run, split: str) -> int:
    """How many losses of this split are the same number in both runs: all of them, or it raises."""
    left, right = a.curve("loss", split), b.curve("loss", split)
    for step in sorted(left.keys() | right.keys()):
        if left.get(step) != right.get(step):
            values = f"{left.get(step, 'missing')} in {a.id}, {right.get(step, 'missing')} in {b.id}"
            raise differ(f"the {split} loss first differs at step {step}: {values}")
    return len(left)


def redone_steps(run: record.Run) -> int:
    """How many steps were computed more than once. A curve keeps the last row of a step; here all have a say."""
    seen: dict[int, list[float]] = {}
    for row in files.read_jsonl(run.metrics):
        if row["split"] == "train":
            seen.setdefault(row["step"], []).append(row["loss"])
    for step, losses in seen.items():
        if len(set(losses)) > 1:
            raise differ(f"step {step} was computed {len(losses)} times, with the losses {losses}")
    return sum(len(losses) > 1 for losses in seen.values())


def final_states(a: record.Run, b: record.Run) -> int:
    """How many tensors of the last checkpoints are equal; every other value in them must be equal as well."""
    import torch

    tensors = 0
    pairs = [("checkpoint", last_state(a), last_state(b))]
    while pairs:
        where, left, right = pairs.pop()
        if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
            pairs += [(f"{where}.{key}", left[key], right[key]) for key in left]
        elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
            pairs += [(f"{where}[{number}]", *both) for number, both in enumerate(zip(left, right, strict=True))]
        elif isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor) and torch.equal(left, right):
            tensors += 1
        elif isinstance(left, torch.Tensor) or left != right:
            raise differ(f"{where} is not the same in the last checkpoints of {a.id} and {b.id}")
    return tensors


def last_state(run: record.Run) -> dict[str, Any]:
    import torch

    last = files.read_json(run.checkpoints_index, "checkpoints_index")["checkpoints"][-1]["path"]
    state: dict[str, Any] = torch.load(run.path / Path(last), weights_only=True)
    del state["time"]  # when it was saved: the one thing that may differ
    return state


def differ(what: str) -> errors.RgtError:
    return errors.RgtError(f"the two runs are not bit-equal: {what}", errors.FINDINGS)


def sentences(reference: record.Run, resumed: record.Run) -> list[str]:
    """All of it; the first difference raises."""
    steps, evaluations = (curves(reference, resumed, split) for split in ("train", "val"))
    return [
        f"loss curves bit-equal: {steps} of {steps} steps, {evaluations} of {evaluations} evaluations",
        f"computed twice, with the same loss both times: {redone_steps(resumed)} steps",
        f"final checkpoints bit-equal: {final_states(reference, resumed)} tensors of weights, optimizer, random state",
    ]


@click.command(cls=cli.Command)
@click.argument("reference", type=click.Path(path_type=Path))
@click.argument("resumed", type=click.Path(path_type=Path))
def main(reference: Path, resumed: Path) -> None:
    """Compare a run that was killed and RESUMED with the REFERENCE that never was. Exit 1 names what differs."""
    for sentence in sentences(record.open_run(reference), record.open_run(resumed)):
        click.echo(sentence)


if __name__ == "__main__":
    main()
