"""A scene is a box behind a bad line, a folder to bring its files to, and calls of the command."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from trials.case import Box
from worlds import link, parts, tool

import numpy as np

SECONDS = 90  # the user's sixty, on a machine that others use too
WIDE = 1 << 30
# kinds of damage that nobody would dispute, by the names that the tests' generators have
DAMAGED = """torch_cut_in_half torch_preallocated_and_half_copied torch_one_bit_flipped torch_zero_filled_hole
torch_storage_missing torch_empty_file legacy_cut_in_half safetensors_cut safetensors_tail_never_written file_of_zeros
lfs_pointer html_page nan_in_one_moment nan_in_bf16 nan_in_fp8_e4m3 nan_at_the_very_end_of_a_large_tensor
infinities_in_a_weight weight_all_zero npz_deflated_bytes_changed bin_shard_damaged shard_missing shard_of_another_save
shard_lost_a_tensor tensor_in_two_shards dcp_file_cut dcp_bytes_changed deepspeed_last_rank_missing""".split()
SOUND = """torch_zip torch_legacy lightning safetensors hf_sharded hf_sharded_bin hf_trainer distributed deepspeed
numpy_arrays""".split()


@dataclass(frozen=True)
class Scene(Box):
    """The agent's folder stays where it is; what lies outside of it is new."""

    desk: Path = field(default=Path())

    @property
    def work(self) -> Path:
        return self.desk

    @property
    def there(self) -> Path:
        return self.world / "box" / "exp"

    @property
    def here(self) -> Path:
        return self.root / "got"

    @property
    def carried(self) -> int:
        return link.carried(self.world)

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(self.work / "fetch"), "box:exp", str(self.here)],
            cwd=self.work,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def call(self, place: str = "box:exp") -> tool.Answer:
        return tool.call(self, "fetch", place, self.here, seconds=SECONDS)

    def when(self, arrived: int, running: subprocess.Popen[bytes], act: Callable[[], object]) -> int | None:
        """Act once when that many bytes have come through; its exit code, None when it does not end."""
        end = time.monotonic() + SECONDS
        while self.carried < arrived and running.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        act()
        return ended(running)

    def other(self) -> list[str]:
        """What is not here as it is there; a link may have become what it leads to."""
        wrong = []
        for path in sorted(self.there.rglob("*")):
            mine = self.here / path.relative_to(self.there)
            if path.is_file() and not (mine.is_file() and mine.read_bytes() == path.read_bytes()):
                wrong.append(str(path.relative_to(self.there)))
        return wrong

    def whole(self, when: str) -> Iterator[str]:
        """One more call brings everything, or it is said what is wrong."""
        answer = self.call()
        if answer.code != 0:
            yield f"{when}: exit code {'none in time' if answer.code is None else answer.code}"
        elif others := self.other():
            yield f"{when}: exit code 0, and {others[0]!r} is not as it is there"

    def half(self) -> list[str]:
        """Files that have their final name and not the content."""
        names = (str(path.relative_to(self.there)) for path in self.there.rglob("*") if path.is_file())
        missing = set(self.other())
        return [name for name in names if name in missing and (self.here / name).exists()]


def ended(running: subprocess.Popen[bytes]) -> int | None:
    try:
        return running.wait(SECONDS)
    except subprocess.TimeoutExpired:
        kill(running)
        return None


def kill(running: subprocess.Popen[bytes]) -> None:
    """As the kernel would: at once, with all that belongs to it."""
    if running.poll() is None:
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()


@contextmanager
def scene(box: Box, root: Path, limit: int = WIDE, banner: bool = False) -> Iterator[Scene]:
    made = Scene(root, box.skill, box.work)
    (made.world / "bin").mkdir(parents=True)
    home = link.put_up(made.world, limit)
    made.there.mkdir()
    if banner:
        (home / ".banner").write_text("=== Welcome to gpu-cloud ===\nyour balance is 3.20, top up at the console\n\n")
    yield made


def weights(path: Path, seed: int, size: int) -> Path:
    from safetensors.numpy import save_file

    rows = size // 1024
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).standard_normal((rows, 256), dtype=np.float32)
    save_file({"layers.0.weight": noise * np.float32(0.02)}, str(path), {"format": "pt"})
    return path


def rot(path: Path) -> None:
    """A byte in the middle changes; size and times stay."""
    was = path.stat()
    with path.open("r+b") as file:
        file.seek(was.st_size // 2)
        byte = file.read(1)
        file.seek(was.st_size // 2)
        file.write(bytes([byte[0] ^ 0x11]))
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


def menagerie(there: Path) -> dict[str, str]:
    """One of each kind, sound and damaged, and the folder it is in."""
    zoo, corruption = parts.of_tests("tests.zoo"), parts.of_tests("tests.corruption")
    runs = {name: f"run {number:02d}" for number, name in enumerate(SOUND + DAMAGED)}
    for name, folder in runs.items():
        (there / folder).mkdir()
        getattr(zoo if name in SOUND else corruption, name)(there / folder)
    return runs


def sample(exp: Path) -> None:
    for step in (100, 200, 300):
        weights(exp / "checkpoints" / f"step_{step}.safetensors", step, 2_000_000)
    cut = exp / "checkpoints" / "step_200.safetensors"
    cut.write_bytes(cut.read_bytes()[:1_100_000])
    (exp / "logs of today").mkdir()
    for rank in range(8):
        (exp / "logs of today" / f"rank {rank}.log").write_text(f"step 1 loss {2 - rank / 9:.3f}\n" * 30)
