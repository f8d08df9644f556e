"""A program whose answer is not trusted: silent, endless or huge, it still ends in time and in little memory.

Example:
    done = collect(["ssh", "box", "ls"], b"", seconds=60)      Done(code, out, err); TimeoutError when it is late
    talk = Talk(argv, silence=900)                              a conversation: write, read_line, read; then end

Its whole process group ends with the answer, and with us: also when we are killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MOST = 8 << 20  # bytes of one answer: as text, or as JSON of nothing but [], it takes 25 times as much
_KEPT = 1 << 16  # bytes of stderr, its end: that is where programs say why
_SHOWN = 300  # characters of its line that a message quotes
_CHUNK = 1 << 20
_PDEATHSIG = 1  # PR_SET_PDEATHSIG of linux/prctl.h


@dataclass
class Done:
    code: int
    out: str
    err: str

    def sentence(self) -> str:
        """The line of what it said that names the failure: the first with "error" in it, else the last."""
        lines = [line.strip() for line in (self.err or self.out).splitlines() if line.strip()]
        named = [line for line in lines if "error" in line.lower()]
        return (named or lines[-1:] or [f"exit code {self.code}"])[0][:_SHOWN]


class TooMuch(Exception):
    """The answer is larger than any true one."""


class Talk:
    """A process in a session of its own, spoken to through pipes that are never waited for longer than `silence`.

    TimeoutError: nothing moved for that long, or `deadline` (a time.monotonic()) came. EOFError: it ended.
    """

    def __init__(self, argv: list[str], silence: float) -> None:
        pipe = subprocess.PIPE
        first: Callable[[], Any] | None = None
        if sys.platform == "linux":  # the kernel ends the child when the thread that started it ends
            import ctypes  # here, not in the child: an import there could meet a lock that nobody holds any more

            prctl = ctypes.CDLL(None).prctl
            first = lambda: prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # noqa: E731
        self.process = subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True, preexec_fn=first
        )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self._in, self._out, self._err = self.process.stdin, self.process.stdout, self.process.stderr
        for stream in (self._in, self._out, self._err):
            os.set_blocking(stream.fileno(), False)
            with contextlib.suppress(OSError, AttributeError):  # Linux; fewer and larger pieces for whoever waits
                fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, _CHUNK)
        self.silence, self.deadline = silence, float("inf")
        self._buffer, self._said, self._chunk = bytearray(), bytearray(), bytearray(_CHUNK)

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self._wait(writing=True)
            with contextlib.suppress(BlockingIOError):
                rest = rest[os.write(self._in.fileno(), rest[:_CHUNK]) :]

    def hang_up(self) -> None:
        """It gets no more input."""
        with contextlib.suppress(OSError):
            self._in.close()

    def read_line(self, most: int) -> bytes:
        """Up to and with a newline; what there is when it ended, or when `most` bytes have none."""
        seen = 0
        while (end := self._buffer.find(b"\n", seen, most)) < 0 and len(self._buffer) < most:
            seen = len(self._buffer)
            if not self._more():
                break
        return self._take(end + 1 if end >= 0 else min(len(self._buffer), most))

    def read(self, count: int) -> bytes:
        """Exactly so many bytes, or fewer when it ended."""
        while len(self._buffer) < count and self._more():
            pass
        return self._take(count)

    def end(self, seconds: float = 0.0) -> Done:
        """Its exit code and the end of its stderr, after at most so long; then it and its children are killed."""
        self.hang_up()
        limit, open_ = time.monotonic() + seconds, True
        while self.process.poll() is None and (left := limit - time.monotonic()) > 0:
            if open_:
                select.select([self._err], [], [], min(left, 0.05))
                open_ = self._listen()
            else:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(left)
        if self.process.poll() is None:  # one that ended by itself may have left a job behind, on purpose
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        code = self.process.wait()
        self._listen()
        for stream in (self._in, self._out, self._err):
            with contextlib.suppress(OSError):
                stream.close()
        return Done(code, "", self._said.decode(errors="replace"))

    def _take(self, count: int) -> bytes:
        data = bytes(memoryview(self._buffer)[:count])
        del self._buffer[:count]
        return data

    def _more(self) -> bool:
        self._wait()
        try:
            count = os.readv(self._out.fileno(), [self._chunk])
        except BlockingIOError:
            return True
        self._buffer += memoryview(self._chunk)[:count]
        return count > 0

    def _wait(self, writing: bool = False) -> None:
        """Until its pipe can be used. stderr is emptied meanwhile: a full one would stop it."""
        until = min(time.monotonic() + self.silence, self.deadline)
        reading, ready = [self._err, *([] if writing else [self._out])], [self._in] if writing else []
        while (left := until - time.monotonic()) > 0:
            can_read, can_write, _ = select.select(reading, ready, [], left)
            if self._err in can_read and not self._listen():
                reading.remove(self._err)
            if can_write or self._out in can_read:
                return
        raise TimeoutError

    def _listen(self) -> bool:
        """Take what is on stderr and keep its end; False when nothing comes any more."""
        if self._err.closed:
            return False
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._err.fileno(), _CHUNK)
            self._said = (self._said + data)[-_KEPT:]
            return bool(data)
        return True


def collect(argv: list[str], data: bytes, seconds: float, most: int = MOST) -> Done:
    """Run to the end. TimeoutError after `seconds`, TooMuch when it prints more than `most` bytes."""
    talk, out = Talk(argv, seconds), b""
    talk.deadline = time.monotonic() + seconds
    try:
        with contextlib.suppress(BrokenPipeError):  # it may need no input, and has its answer
            talk.write(data)
        talk.hang_up()
        out = talk.read(most + 1)
        if len(out) > most:
            raise TooMuch
        done = talk.end(max(0.1, talk.deadline - time.monotonic()))
        if done.code == -signal.SIGKILL and time.monotonic() >= talk.deadline:
            raise TimeoutError
    finally:
        talk.end()
    return Done(done.code, out.decode(errors="replace"), done.err)
