"""A connection to the part of us that runs on the box (boxside.py), and what to do when it breaks.

A broken connection is waited out; what waiting cannot mend (a refused key, a missing directory, a full disk) is said.
"""

from __future__ import annotations

import json
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from rgt import units
from rgt.bundle import SCRIPTS
from rgt.errors import ENVIRONMENT, RgtError, bad_input, lacking
from rgt.host import bounded, box, ssh
from rgt.host.bounded import Done
from rgt.host.ssh import Host
from rgt.report import progress
from rgt.transfer import boxside

_HERE = f"import sys; sys.path.insert(0, {str(SCRIPTS)!r}); from rgt.transfer.boxside import main; main()"
FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0
_END_SECONDS = 20.0
_NOISE = 1 << 16  # bytes that a login script may print before us
_FIRST_LINE = 7 << 20  # bytes; a run.json of 4 MiB is the longest, and other rows follow it
_LINE = boxside.ROWS << 16  # bytes; a row has two paths of 4,000 bytes each, escaped
_ANSWER = 40 << 20  # bytes of rows without progress; 150,000 files with paths of 200
_START = 4.0  # seconds on top of a patience: ssh and a Python start before the first byte
_SILENCE = 300.0  # seconds without progress, where nobody gave a patience
T = TypeVar("T")


class Dropped(Exception):
    """The connection ended before the answer did."""


class Connection:
    """Asks boxside.py on a host. It connects with the first question, and again with the first one after a drop.

    Every question ends with Dropped, or with the TimeoutError of a silent box, when another try may help.
    """

    talk: bounded.Talk

    def __init__(
        self, host: Host, patience: float = 0.0, known: bool = False, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """`patience`: seconds without progress after which it gives up. `known`: the host has answered before.

        `meanwhile`: what to do while the host logs us in.
        """
        self.host, self.patience, self.known, self.meanwhile = host, patience, known, meanwhile
        self.silence = patience + _START if patience else _SILENCE
        self.connected, self.noise, self.drops = False, "", 0
        self._unpacked = b""  # the bytes behind the rows of one line
        self.advance()

    def advance(self) -> None:
        """Something has moved: the next drop is waited out from the shortest wait on."""
        self.moved, self.delay, self.unused = time.monotonic(), FIRST_WAIT, 0

    def again(self, action: Callable[[], T]) -> T:
        """The action's result, drops waited out. At first contact a drop is a wrong name or port, and is said."""
        while True:
            try:
                return action()
            except (Dropped, TimeoutError) as drop:
                why = str(drop) or "it is silent"
            if not self.known:
                raise ssh.unreachable(self.host.name, Done(ssh.LOST, "", why))
            self.drops += 1
            quiet = time.monotonic() - self.moved
            if quiet + self.delay > self.patience:
                silence = f"{self.host.title} sent nothing for {units.show_duration(quiet)}"
                raise lacking(f"{silence}: {why}; what has arrived is kept, the same command goes on from there")
            progress(f"{self.host.title}: {why}; trying again in {self.delay:g} s")
            time.sleep(self.delay)
            self.delay = min(2 * self.delay, LONGEST_WAIT)

    def answer(self, verb: str, **asked: Any) -> Iterator[dict[str, Any]]:
        """The rows of one answer. A row alone is no progress, or a box could go on for ever: the caller says `advance`
        for what it could use."""
        whole, longest, self.unused, self._unpacked = False, _FIRST_LINE, 0, b""
        try:
            if not self.connected:
                self._connect()
            started = time.monotonic()
            self.write(json.dumps({"verb": verb, **asked}).encode() + b"\n")
            while True:
                raw = self.talk.read_line(longest)
                self.unused += len(raw)
                if len(raw) == longest or self.unused > _ANSWER:
                    raise bad_input(f"{self.host.title} answers without end; nothing of it is used")
                if not raw.endswith(b"\n"):
                    self._fail()
                longest = _LINE
                if time.monotonic() - max(started, self.moved) > self.talk.silence:
                    raise Dropped("its answer has no end")
                for row in self._rows(raw):
                    if "end" in row:
                        whole = True
                        self.advance()
                        return
                    yield row
        finally:
            if not whole:
                self.close()

    def _rows(self, raw: bytes) -> list[dict[str, Any]]:
        """Of one line; what is packed behind it is opened."""
        try:
            told = json.loads(raw.decode())
        except (ValueError, RecursionError):
            told = None
        rows = told if isinstance(told, list) else [told]
        if self._unpacked or not all(isinstance(row, dict) for row in rows):
            raise self.strange(raw)
        if rows and "z" in rows[0]:
            self._unpack(rows.pop(0)["z"])
        return rows

    def write(self, data: bytes) -> None:
        try:
            self.talk.write(data)
        except BrokenPipeError:
            self._fail()

    def _unpack(self, count: object) -> None:
        """What small files have in common travels once; a box cannot make more of it than it could send anyway."""
        if not isinstance(count, int) or not 0 < count <= boxside.PACKED:
            raise self.strange({"z": count})
        packed = self.talk.read(count)
        if len(packed) < count:
            self._fail()
        opened = zlib.decompressobj()
        try:
            self._unpacked = opened.decompress(packed, boxside.PACKED + 1)
        except zlib.error:
            raise self.strange({"z": count}) from None
        if len(self._unpacked) > boxside.PACKED or not opened.eof:
            raise self.strange({"z": count})

    def read(self, count: int) -> bytes:
        if self._unpacked:
            data, self._unpacked = self._unpacked[:count], self._unpacked[count:]
            if len(data) < count:
                raise self.strange(f"{len(data)} bytes in place of {count}")
            self.advance()
            return data
        data = self.talk.read(count)
        if len(data) < count:
            self._fail()
        self.advance()
        return data

    def strange(self, answer: object) -> RgtError:
        return bad_input(f"{self.host.title} answered something that is not ours: {str(answer)[:60]}")

    def close(self) -> None:
        if self.connected:
            self.talk.end()
            self.connected = False

    def _connect(self) -> None:
        try:
            self.talk, self.connected = bounded.Talk(self.host.argv(), self.silence), True
        except FileNotFoundError as error:
            raise lacking(f"{error.filename} is not installed here") from None
        # -S: the standard library is enough, and some boxes' site-packages take a second to look through
        python, *words = box.tool_words("transfer") if self.host.name else [sys.executable, "-c", _HERE]
        head = {"w": [python, "-S", *words], "d": ".", "e": {}, "x": [2] if self.host.name else []}
        self.write(json.dumps(head).encode() + b"\n")
        self.meanwhile()
        seen, started = 0, time.monotonic()
        while (line := self.talk.read_line(_NOISE)) != boxside.MARK:
            seen += len(line)
            self.noise = line.decode(errors="replace").strip() or self.noise
            if not line:
                self._fail(ship=True)
                self._connect()
                return
            if seen > _NOISE or time.monotonic() - started > self.silence:
                why = "does a login script start another program?"
                raise lacking(f"{self.host.title} prints text at log-in and never our answer; {why}")
        self.known, self.talk.silence = True, self.patience or _SILENCE

    def _fail(self, ship: bool = False) -> None:
        """Dropped when another try may help, else a sentence. `ship`: a bundle that is not there yet is brought."""
        done = self.talk.end(min(_END_SECONDS, self.silence))
        if ship and box.is_missing(done):
            self.close()
            box.ship(self.host)
            return
        if problem := ssh.failure(self.host, done):
            raise problem
        for line in done.err.splitlines():
            if line.startswith("error: "):
                raise bad_input(f"{line.removeprefix('error: ')} on {self.host.title}")
        if 0 < done.code < 128:
            last = done.sentence() if done.err.strip() else self.noise or f"exit code {done.code}"
            raise RgtError(f"python3 on {self.host.title} failed: {last}", ENVIRONMENT)
        raise Dropped(done.sentence() if done.err.strip() else "the connection was lost")
