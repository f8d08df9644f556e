"""A pull with proof against plain rsync, through a real sshd and a line of a known speed.

Ours lists, copies, takes sha256 on the box meanwhile, loads every value here and writes the proof; rsync only copies.
Without a limit on the line (loopback) both are bound by the processor: shown, without a goal.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.link import Link
from bench.measure import ROOT, Row, timed, tool

sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "scripts"))

import numpy as np
from examples.cpu_lifecycle import box

GIB, FILES, ROUNDS = 1 << 30, 5000, 3
GIGABIT = 125e6  # bytes a second


def rows() -> Iterator[Row]:
    # not a version manager's script in place of the box's python3
    os.environ["PATH"] = f"{Path(os.path.realpath(sys.executable)).parent}:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory(prefix="rgt-bench-") as name:
        folder = Path(name)
        rented = box.rent(folder / "ssh", folder)
        if isinstance(rented, str):
            sys.exit(rented)
        try:
            yield from _over(folder, rented.port)
        finally:
            rented.close()


def _over(folder: Path, port: int) -> Iterator[Row]:
    large, small = folder / "large", folder / "small"
    large.mkdir()
    np.save(large / "w.npy", np.random.default_rng(0).standard_normal(GIB // 4, dtype=np.float32))
    small.mkdir()
    np.save(small / "w.npy", np.ones(8) + np.arange(8))
    for number in range(FILES):
        (small / f"{number}.json").write_text(json.dumps({"step": number, "text": "x" * 8000}))
    with Link(port, GIGABIT) as line:
        yield from _compare(folder, line, large, "1 GiB, 1 Gbit/s", 1.2)
        yield from _compare(folder, line, small, f"{FILES} files, 1 Gbit/s", 1.5)
        yield _resumed(folder, line, large)
    with Link(port) as line:
        yield from _compare(folder, line, large, "1 GiB, loopback", math.inf)


def _compare(folder: Path, line: Link, there: Path, what: str, goal: float) -> Iterator[Row]:
    config = _config(folder, line.port)
    here, plain, done = folder / "here", folder / "plain", folder / "done"
    done.mkdir()
    env = {**os.environ, "RGT_SSH_CONFIG": str(config)}
    rsync = ["rsync", "-a", "-e", f"ssh -F {config}", f"box:{there}/", f"{plain}/"]

    def ours() -> None:
        _run(tool("transfer", "pull", f"box:{there}", here), env)

    def aside(path: Path) -> None:
        """Not deleted before the end: for some seconds after it, ext4 takes a millisecond for each new file."""
        path.rename(Path(tempfile.mkdtemp(dir=done)) / "copy")

    ours()  # brings the bundle there
    aside(here)
    pairs = []
    for _ in range(ROUNDS):
        os.sync()  # a pull waits until all is on the disk: not for what the copy before it left to be written
        pairs.append((timed(ours), timed(lambda: _run(rsync, env))))
        aside(here)
        aside(plain)
    shutil.rmtree(done)
    middle = sorted(pairs)[ROUNDS // 2][0], sorted(peer for _, peer in pairs)[ROUNDS // 2]
    yield Row(f"pull with proof / rsync -a, {what}", *middle, goal)


def _resumed(folder: Path, line: Link, there: Path) -> Row:
    """Bytes on the line for a pull that is cut ten times, against the file's own."""
    before, here = line.down, folder / "here"
    line.cut_at = [before + GIB * (number + 1) // 11 for number in range(10)]
    env = {**os.environ, "RGT_SSH_CONFIG": str(_config(folder, line.port))}
    _run(tool("transfer", "pull", f"box:{there}", here), env)
    shutil.rmtree(here)
    return Row("bytes of a pull cut 10 times / the file's, 1 GiB", (line.down - before) / 1e6, GIB / 1e6, 1.05, "M")


def _run(words: list[str], env: dict[str, str]) -> None:
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{words} ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}")


def _config(folder: Path, port: int) -> Path:
    """The box's own, through the line in front of it: another port, whose host key is not known."""
    path, text = folder / f"config.{port}", (folder / "ssh" / "ssh_config").read_text()
    text = text.replace("StrictHostKeyChecking yes", "StrictHostKeyChecking no")
    path.write_text(re.sub(r"Port \d+", f"Port {port}", text))
    return path
