"""Logs of trainings that go well or badly, in the shapes of several trainers; all made, the same bytes each time."""

from __future__ import annotations

import json
import math
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Format = Callable[[int, int, float, float], str]  # step, of how many, loss, seconds a step takes


def _left(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60:02d}:{rest % 60:02d}"


def _rate(pace: float) -> str:
    return f"{pace:.2f}s/it" if pace > 1 else f"{1 / pace:.2f}it/s"


def _number(loss: float) -> str:
    return f"{loss:.4f}" if math.isfinite(loss) else str(loss)


def prose(step: int, total: int, loss: float, pace: float) -> str:
    return f"step {step}/{total} | loss {_number(loss)} | lr 2.9e-04 | {pace:.2f} s/step\n"


def nanogpt(step: int, total: int, loss: float, pace: float) -> str:
    return f"iter {step}: loss {_number(loss)}, time {pace * 1000:.2f}ms, mfu 38.12%\n"


def hf_bar(step: int, total: int, loss: float, pace: float) -> str:
    """A progress bar that overwrites itself, and a dict now and then."""
    share = step / total
    bar = "█" * int(share * 10) + " " * (10 - int(share * 10))
    left = _left((total - step) * pace)
    state = f"\r{share:4.0%}|{bar}| {step}/{total} [{_left(step * pace)}<{left}, {_rate(pace)}]"
    row = f"{{'loss': {_number(loss)}, 'grad_norm': 0.8123, 'learning_rate': 2.1e-05, 'epoch': {share * 3:.2f}}}"
    return f"{state}\r{' ' * 40}\r{row}\n{state}"


def bar(step: int, total: int, loss: float, pace: float) -> str:
    """Lightning: nothing but states of one line."""
    done, of = step % 500, 500
    times = f"[{_left(done * pace)}<{_left((of - done) * pace)}, {_rate(pace)}"
    bar = "█" * (done // 50)
    return f"\rEpoch {step // 500}: {done / of:4.0%}|{bar:<10}| {done}/{of} {times}, train_loss={_number(loss)}]"


def json_rows(step: int, total: int, loss: float, pace: float) -> str:
    return json.dumps({"level": "info", "step": step, "loss": round(loss, 6), "lr": 0.0003}) + "\n"


def coloured(step: int, total: int, loss: float, pace: float) -> str:
    return (
        f"[titan] 2026-11-14 04:00:00,123 - root - INFO - \x1b[31mstep: {step}  \x1b[32mloss: {_number(loss)}  "
        f"\x1b[33mmemory: 41.25GiB(52.1%)  \x1b[34mtps: {8192 / pace:,.0f}\x1b[39m\n"
    )


def docker(step: int, total: int, loss: float, pace: float) -> str:
    row = {"log": prose(step, total, loss, pace), "stream": "stdout", "time": "2026-11-14T04:00:00.123456789Z"}
    return json.dumps(row) + "\n"


def key_value(step: int, total: int, loss: float, pace: float) -> str:
    return f"2026-11-14 04:00:00 INFO step={step}/{total} train/loss={_number(loss)} sec_per_step={pace:.2f}\n"


FORMATS: tuple[Format, ...] = (prose, nanogpt, hf_bar, bar, json_rows, coloured, docker, key_value)


def falling(dice: random.Random, count: int, floor: float = 1.6, height: float = 6.0) -> list[float]:
    """A healthy loss."""
    return [(floor + height * (1 + n / 4) ** -0.5) * (1 + dice.gauss(0, 0.015)) for n in range(count)]


def text(
    form: Format, losses: list[float], first: int = 0, every: int = 10, total: int = 40000, pace: float = 0.4
) -> str:
    return "".join(form(first + n * every, total, loss, pace) for n, loss in enumerate(losses))


@dataclass
class Part:
    """What is in the log by the next look."""

    text: str
    word: str = ""  # the right one; empty: whatever is said is fine
    age: float = 20.0  # seconds since the last line
    how: str = "a"  # a: appended, w: truncated and written, r: rotated away first


def grow(path: Path, part: Part, last: bool) -> None:
    if part.how == "r":
        path.rename(path.with_name(path.name + ".1"))
    with path.open("w" if part.how == "w" else "a", encoding="utf-8", newline="") as file:
        file.write(part.text)
    at = time.time() - part.age - (0 if last else 60)
    os.utime(path, (at, at))
