"""A connection to the part of us that runs on the box (boxside.py), and what to do when it breaks.

A broken connection is waited out; what waiting cannot mend (a refused key, a missing directory, a full disk) is said.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TypeVar, cast

from backends import ssh
from cargo import frames
from rgt import hosts, units
from rgt.errors import ENVIRONMENT, RgtError, bad_input, lacking
from rgt.hosts import Done, Host
from rgt.report import progress

_SCRIPTS = Path(__file__).resolve().parents[1]
_HERE = [
    sys.executable,
    "-c",
    f"import sys; sys.path.insert(0, {str(_SCRIPTS)!r}); from cargo.boxside import main; main()",
]
FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0
_END_SECONDS = 20.0
_NOISE = 1 << 16  # bytes that a login script may print before us
_LINE = 1 << 24
_ONLY_TERMINALS = "SSH client doesn't support PTY"  # what ssh.runpod.io says
T = TypeVar("T")


class Dropped(Exception):
    """The connection ended before the answer did."""


class Patience:
    """Waits longer after each drop that brought nothing, and gives up after `seconds` without a byte."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.drops, self.delay = seconds, 0, FIRST_WAIT
        self.moved = time.monotonic()

    def progress(self) -> None:
        self.moved, self.delay = time.monotonic(), FIRST_WAIT

    def wait(self, host: Host, why: str) -> None:
        self.drops += 1
        quiet = time.monotonic() - self.moved
        if quiet + self.delay > self.seconds:
            raise lacking(f"{host.title} sent nothing for {units.show_duration(quiet)}: {why}; what has arrived is "
                          "kept, the same command goes on from there")  # fmt: skip
        progress(f"{host.title}: {why}; trying again in {self.delay:g} s")
        time.sleep(self.delay)
        self.delay = min(2 * self.delay, LONGEST_WAIT)


class NotShipped(Exception):
    """The box does not have this version of us yet."""


def first(host: Host, action: Callable[[], T], known: bool = False) -> T:
    """First contact: a drop here is a wrong name or port, and is said at once, unless it has answered before."""
    try:
        try:
            return action()
        except NotShipped:
            ssh.ship(host)
            return action()
    except Dropped as drop:
        if known:
            raise
        raise hosts.unreachable(host.name, Done(hosts.LOST, "", str(drop))) from None


class Session:
    """One verb on the box: connected at once, asked when it suits. Leaving the block ends it."""

    def __init__(self, host: Host, verb: str, keep_open: tuple[int, ...] = ()) -> None:
        self.host, self.noise = host, ""
        python, *tool = ssh.tool_words("cargo") if host.name else _HERE
        # -S: the standard library is enough, and some boxes' site-packages take a second to look through
        head = {"w": [python, "-S", *tool, verb], "d": ".", "e": {}, "x": [2] if host.name else []}
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the session)
        pipe = subprocess.PIPE
        try:
            self.process = subprocess.Popen(
                host.argv(), stdin=pipe, stdout=pipe, stderr=self.errors, pass_fds=keep_open, start_new_session=True
            )
        except FileNotFoundError as error:
            raise lacking(f"{error.filename} is not installed here") from None
        self.input, self.output = cast(IO[bytes], self.process.stdin), cast(IO[bytes], self.process.stdout)
        self._write(head)

    def ask(self, asked: dict[str, Any]) -> Session:
        self._write(asked)
        self._skip_noise()
        return self

    def _write(self, data: dict[str, Any]) -> None:
        try:
            self.input.write(json.dumps(data).encode() + b"\n")
            self.input.flush()
        except BrokenPipeError:
            self.fail()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for stream in (self.input, self.output):
            with contextlib.suppress(OSError):
                stream.close()
        with contextlib.suppress(OSError):
            self.process.kill()
        self.process.wait()
        self.errors.close()

    def _skip_noise(self) -> None:
        seen = 0
        while (line := self.output.readline(_NOISE)) != frames.MARK:
            seen += len(line)
            self.noise = line.decode(errors="replace").strip() or self.noise
            if not line:
                self.fail()
            if seen > _NOISE:
                self.process.kill()
                raise lacking(f"{self.host.title} prints text at log-in and never our answer; does a login script "
                              "start another program?")  # fmt: skip

    def line(self) -> dict[str, Any]:
        raw = self.output.readline(_LINE)
        if not raw.endswith(b"\n"):
            self.fail()
        with contextlib.suppress(ValueError, RecursionError):
            data = json.loads(raw)
            if isinstance(data, dict):
                return data
        raise self.strange(raw)

    def strange(self, answer: object) -> RgtError:
        return bad_input(f"{self.host.title} answered something that is not ours: {str(answer)[:60]}")

    def lines(self) -> Iterator[dict[str, Any]]:
        while "end" not in (data := self.line()):
            yield data

    def _end(self) -> int:
        """Its exit code; one that said nonsense and does not end is ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(_END_SECONDS)
        self.process.kill()
        return self.process.wait()

    def fail(self) -> None:
        """Always raises: Dropped when another try may help, else a sentence."""
        with contextlib.suppress(OSError):
            self.input.close()
        code = self._end()
        self.errors.seek(0)
        said = Done(code, "", self.errors.read().decode(errors="replace"))
        problem = hosts.failure(self.host, said)
        if problem:
            raise problem
        if "can't open file" in said.err and "/rgt/box-" in said.err:
            raise NotShipped
        sentences = [line for line in said.err.splitlines() if line.startswith("error: ")]
        if sentences:
            raise bad_input(f"{sentences[0].removeprefix('error: ')} on {self.host.title}")
        if _ONLY_TERMINALS in self.noise + said.err:
            raise lacking(f"{self.host.title} serves terminals only ({_ONLY_TERMINALS}): no command, scp, sftp or "
                          "rsync goes through it; use the box's direct address, or object storage")  # fmt: skip
        if 0 < code < 128:
            last = said.sentence() if said.err.strip() else self.noise or f"exit code {code}"
            raise RgtError(f"python3 on {self.host.title} failed: {last}", ENVIRONMENT)
        raise Dropped(said.sentence() if said.err.strip() else "the connection was lost")
