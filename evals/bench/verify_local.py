"""A check that nobody skips: as fast as hashing the file, in memory that does not grow with it.

2 GiB as .pt and as .safetensors, against Python's own sha256 and crc32 of the same bytes and against torch.load with
isfinite; the peak of anonymous memory also for 8 GiB; the seconds for 50,000 small tensors.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import ROOT, Row, quiet, take_turns, timed, tool

SIZE, LARGE = 2 << 30, 8 << 30
ROUNDS = 3
MANY = 50_000
_TENSOR = 128 << 20  # bytes of one tensor: a large linear layer

_PEER = """
import hashlib, sys, zlib
state, buffer = hashlib.sha256() if sys.argv[1] == "sha256" else 0, bytearray(1 << 22)
with open(sys.argv[2], "rb", buffering=0) as file:
    while count := file.readinto(buffer):
        part = memoryview(buffer)[:count]
        if sys.argv[1] == "sha256":
            state.update(part)
        else:
            state = zlib.crc32(part, state)
"""
_NAIVE = """
import sys, torch
if sys.argv[1].endswith(".pt"):
    tensors = torch.load(sys.argv[1], weights_only=True)
else:
    from safetensors.torch import load_file
    tensors = load_file(sys.argv[1])
assert all(torch.isfinite(tensor).all() for tensor in tensors.values())
"""


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="rgt-bench-") as folder:
        path = make_torch(Path(folder) / "model.pt", SIZE)
        yield from _speed(path)
        yield _memory(path, "2 GiB .pt")
        path.unlink()
        path = make_safetensors(Path(folder) / "model.safetensors", SIZE)
        yield from _speed(path)
        small = _memory(path, "2 GiB .safetensors")
        yield small
        path.unlink()
        large = _memory(make_safetensors(path, LARGE), "8 GiB .safetensors")
        yield large
        # 3 MB for each GiB, by which lost and repeated pages are found where no checksum speaks
        yield Row("peak anonymous memory, 8 GiB / 2 GiB", large.ours, small.ours, 2.0, "M")
        path.unlink()
        for many in (make_torch(path.with_suffix(".pt"), MANY * 64, 64), make_safetensors(path, MANY * 64, 64)):
            took = min(timed(quiet(*tool("verify_local", many))) for _ in range(ROUNDS))
            yield Row(f"verify {MANY} tensors, {many.suffix} / 7 s", took, 7.0, 1.0)


def _speed(path: Path) -> Iterator[Row]:
    name, file, python = path.suffix, str(path), sys.executable
    ours = quiet(*tool("verify_local", file))
    quick = quiet(*tool("verify_local", file, "--no-digest"))
    sha256, crc32, naive = (
        quiet(python, "-c", *words, file) for words in ((_PEER, "sha256"), (_PEER, "crc32"), (_NAIVE,))
    )
    ours()  # the first reading fills the page cache for all
    yield Row(f"verify {name} / Python's sha256 of it", *take_turns(ours, sha256, ROUNDS), 1.15)
    yield Row(f"verify {name} --no-digest / Python's crc32 of it", *take_turns(quick, crc32, ROUNDS), 1.5)
    # neither side takes a digest here
    yield Row(f"verify {name} --no-digest / load + isfinite", *take_turns(quick, naive, ROUNDS), 0.25)
    # two yardsticks without a goal: another implementation of sha256, and the cost of reading alone
    yield Row(f"verify {name} / sha256sum", *take_turns(ours, quiet("sha256sum", file), ROUNDS), math.inf)
    yield Row(f"verify {name} --no-digest / cat", *take_turns(quick, quiet("cat", file), ROUNDS), math.inf)


def _memory(path: Path, what: str) -> Row:
    peak, _ = anonymous_peak(tool("verify_local", path))
    return Row(f"peak anonymous memory, {what} / 200 MB", peak / 1e6, 200.0, 1.0, "M")


def anonymous_peak(command: list[str]) -> tuple[float, int]:
    """Peak bytes of RssAnon, sampled every few milliseconds, and the exit code."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, _anonymous(process.pid))
        time.sleep(0.005)
    return peak * 1024.0, process.returncode


def _anonymous(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)


def _block() -> bytes:
    """16 MiB of weights: small, finite, neither constant nor compressible."""
    import numpy as np

    values = np.random.default_rng(0).standard_normal(4 << 20, dtype=np.float32)
    return bytes((values * np.float32(0.02)).tobytes())


def make_safetensors(path: Path, size: int, each: int = _TENSOR) -> Path:
    """Written by hand, because the library would hold the whole file in memory."""
    header = {
        f"layers.{n}.weight": {"dtype": "F32", "shape": [each // 64, 16], "data_offsets": [n * each, (n + 1) * each]}
        for n in range(size // each)
    }
    text, block = json.dumps(header).encode(), _block()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for at in range(0, size, len(block)):
            file.write(block[: size - at])
    return path


def make_torch(path: Path, size: int, each: int = _TENSOR) -> Path:
    script = f"""
import sys, torch
sys.path.insert(0, {str(ROOT / "evals")!r})
from bench.verify_local import _block
block = torch.frombuffer(bytearray(_block()), dtype=torch.float32)[: {each} // 4]
copies = {each} // block.nbytes
tensors = {{f"layers.{{n}}.weight": block.repeat(copies).view(-1, 16) for n in range({size} // {each})}}
torch.save(tensors, {str(path)!r})
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    return path
