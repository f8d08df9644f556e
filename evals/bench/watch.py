"""watch: the speed of a first look against grep, what one more megabyte costs, flat memory, and how well it judges."""

from __future__ import annotations

import functools
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.measure import ROOT, Row, ran, take_turns, timed, tool

sys.path.insert(0, str(ROOT / "scripts"))

from bench import watch_curves

FAST = 1536 << 20  # bytes of the log that grep reads, too
HUGE = 5 << 30
SEEDS = 200
BROKEN = 40


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="watch-bench-") as name:
        folder = Path(name)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        for kind, line in (("every line a step", dense), ("one line of ten a step", mixed)):
            yield from _against_grep(folder, kind, line)
        yield from _huge(folder)
    yield from _judging()


def dense(dice: random.Random, step: int) -> str:
    loss, took = dice.uniform(2, 3), dice.uniform(10, 12)
    return f"iter HHH{step:06d}: loss {loss:.4f}, time {took:.2f}ms, mfu 31.{step % 10}%\n"


def mixed(dice: random.Random, step: int) -> str:
    noise = "".join(
        f"2026-01-01 10:00:00,123 INFO worker {n} fetched shard {step} in {dice.uniform(1, 9):.2f}s, /data/x/{n}\n"
        for n in range(9)
    )
    return noise + dense(dice, step)


def write(path: Path, size: int, line: object = dense) -> None:
    """A log of `size` bytes: a stretch of 16 MB, repeated with rising step numbers (HHH are their leading digits)."""
    dice = random.Random(0)
    text: list[str] = []
    length = step = 0
    while length < 16 << 20:
        text.append(line(dice, step))  # type: ignore[operator]
        length += len(text[-1])
        step += 1
    stretch = "".join(text).encode()
    with path.open("wb") as file:
        file.write(b"max_iters = 100000000\n")
        for number in range(999):
            if file.tell() >= size:
                return
            file.write(stretch.replace(b"HHH", b"%03d" % number))


def _first_look(log: Path, cache: Path) -> None:
    subprocess.run(["rm", "-rf", str(cache)], check=True)
    done = subprocess.run(tool("watch", log, "--json"), stdout=subprocess.PIPE)
    found = json.loads(done.stdout)
    if found["roles"].get("loss") != "loss" or found["now"]["step"] is None:
        raise AssertionError(f"nothing was read: {found['now']}")


def _against_grep(folder: Path, kind: str, line: object) -> Iterator[Row]:
    log = folder / "speed.log"
    write(log, FAST, line)
    # into a pipe: into /dev/null grep stops at the first match
    grep = functools.partial(subprocess.run, ["grep", "-cE", "loss|step", str(log)], check=True, stdout=subprocess.PIPE)
    ours, peer = take_turns(lambda: _first_look(log, folder / "cache"), grep, rounds=3)
    yield Row(f"watch: first look, {kind} / grep -cE", ours, peer, goal=4)
    log.unlink()


def _huge(folder: Path) -> Iterator[Row]:
    """A log of 5 GB: flat memory at the first look, and a poll after 1 MB more against one of a log that is 1 MB."""
    log, small = folder / "huge.log", folder / "small.log"
    write(log, HUGE)
    write(small, 1)
    os.truncate(small, 1 << 20)
    base = ran(tool("watch", small, "--json")).peak
    yield Row("watch: memory at 5 GB / at 1 MB", ran(tool("watch", log, "--json")).peak, base, goal=1.3, unit=" MB")
    more = small.read_bytes()
    costs = []
    for n in range(5):
        with log.open("ab") as file:
            file.write(more)
        alone = folder / f"alone-{n}.log"
        alone.write_bytes(more)
        costs.append([timed(functools.partial(_run, tool("watch", path, "--json"))) for path in (log, alone)])
    ours, peer = sorted(pair[0] for pair in costs)[2], sorted(pair[1] for pair in costs)[2]
    yield Row("watch: poll of 5 GB + 1 MB / first look at 1 MB", ours, peer, goal=1.3)
    log.unlink()


def _run(command: list[str]) -> None:
    """Exit 1 is a finding, and still a look."""
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode > 1:
        raise AssertionError(f"{command} failed")


def _judging() -> Iterator[Row]:
    wrong, codes = watch_curves.false_alarms(range(SEEDS), every=30)
    told = ", ".join(f"{code} {count}" for code, count in codes.items()) or "none"
    yield Row(f"watch: false alarms of {SEEDS} healthy runs ({told})", 100 * wrong / SEEDS, 2, goal=1, unit=" %")
    for name in watch_curves.BREAKS:
        score = watch_curves.run(name, range(BROKEN))
        missed = 100 * (1 - score.recall)
        yield Row(f"watch: {name} missed; delay {score.delay:.0f} points", missed, 10, goal=1, unit=" %")
