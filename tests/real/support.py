"""What every real server here needs: a reason to skip, a bounded wait, a start and a stop by pid."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, TypeVar

import pytest

T = TypeVar("T")

# Debian keeps daemons in sbin, which is not on every user's PATH.
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])

# Below Linux's ephemeral range (32768 and up): no outgoing connection can take the port of a server that restarts.
PORTS = range(20000, 32000)


def missing(reason: str) -> NoReturn:
    """Skip the test, or fail it where the real thing must be there (REQUIRE_REAL=1, as in CI)."""
    if os.environ.get("REQUIRE_REAL") == "1":
        pytest.fail(f"REQUIRE_REAL=1, but {reason}", pytrace=False)
    pytest.skip(reason)


def need(binary: str, package: str) -> str:
    """The absolute path of a binary; without it the test is `missing`."""
    found = shutil.which(binary, path=SEARCH_PATH)
    return found or missing(f"{binary} is not installed (Debian: apt-get install {package})")


def need_root(why: str) -> None:
    if os.geteuid() != 0:
        missing(f"{why} needs root")


def wait_for(what: str, ready: Callable[[], T], timeout: float = 60.0) -> T:
    """Poll until `ready()` is truthy and return its value; the deadline is what keeps a broken test short."""
    deadline = time.monotonic() + timeout
    while not (value := ready()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout:g} s")
        time.sleep(0.05)
    return value


# Shuffled, so that two workers rarely want the same port; never twice in one process.
_candidates = iter(random.Random().sample(PORTS, len(PORTS)))


def free_port() -> int:
    """A loopback port nobody listens on."""
    for port in itertools.islice(_candidates, 50):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no free port among 50 tried in {PORTS.start}-{PORTS.stop}")


@contextmanager
def private_dir(prefix: str) -> Iterator[Path]:
    """A short directory that is gone afterwards: tmp_path is too long for a Unix socket and outlives the test."""
    path = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield path
    finally:
        # A daemon's last child may still be deleting its own files: try again instead of failing on that race.
        wait_for(f"removing {path}", lambda: _removed(path))


def _removed(path: Path) -> bool:
    shutil.rmtree(path, ignore_errors=True)
    return not path.exists()


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    check: bool = True,
    timeout: float = 60.0,
    input: str | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run to the end, with `env` added to ours; a failure shows what was said, which CalledProcessError does not."""
    done = subprocess.run(
        argv, env={**os.environ, **(env or {})}, timeout=timeout, input=input, cwd=cwd, capture_output=True, text=True
    )
    if check and done.returncode:
        raise AssertionError(f"{list(argv)} exited {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def _parent(pid: int) -> int | None:
    """The parent of a process that lives; None for one that ended, collected or not."""
    with suppress(OSError):
        state, parent = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:2]
        return int(parent) if state not in (b"Z", b"X") else None
    return None


def children(pid: int) -> list[int]:
    """Direct children that live, read from /proc: the only list that cannot be confused by names."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [one for one in pids if _parent(one) == pid]


def descendants(pid: int) -> list[int]:
    return [one for child in children(pid) for one in (child, *descendants(child))]


def kill(pids: Sequence[int]) -> None:
    """SIGKILL, and wait for the end: a dying process closes its sockets well before it stops counting as alive."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_for(f"the end of {list(pids)}", lambda: all(_parent(pid) is None for pid in pids))


@dataclass
class Daemon:
    """One server in the foreground, with its log; it dies with us even when pytest itself is killed."""

    argv: list[str]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)  # added to ours
    process: subprocess.Popen[bytes] | None = None

    def start(self, ready: Callable[[], object], timeout: float = 60.0) -> None:
        setpriv = shutil.which("setpriv", path=SEARCH_PATH)
        leash = [setpriv, "--pdeathsig", "TERM"] if setpriv else []
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C reaches pytest only, and the teardown stops the server in order.
            self.process = subprocess.Popen(
                leash + self.argv,
                env={**os.environ, **self.env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            wait_for(self.argv[0], lambda: self.exited() or ready(), timeout)
            if self.exited():
                raise RuntimeError(f"{self.argv[0]} exited {self.process.returncode}")
        except (RuntimeError, TimeoutError) as error:
            self.stop()
            raise RuntimeError(f"{error}; its log ends:\n{self.tail()}") from None

    def exited(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def tail(self, lines: int = 15) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self, timeout: float = 20.0) -> None:
        """SIGTERM, then SIGKILL after the deadline; stopping twice is fine."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
