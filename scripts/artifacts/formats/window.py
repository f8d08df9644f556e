"""Bounded reading: a part of a file, read by position, never beyond its end and never more than asked for."""

from __future__ import annotations

import os
from dataclasses import dataclass

from artifacts.model import Broken

_CHUNK = 64 * 1024
_LONGEST_LINE = 1 << 20  # of a pickle's text argument


@dataclass(frozen=True)
class Window:
    """Bytes start .. start+length of an open file; a checkpoint inside another file is one, too."""

    descriptor: int
    start: int
    length: int

    def part(self, start: int, length: int) -> Window:
        if start < 0 or length < 0 or start + length > self.length:
            raise Broken("bounds", f"bytes {start} to {start + length} lie outside of {self.length}")
        return Window(self.descriptor, self.start + start, length)

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes, or Broken."""
        if offset < 0 or size < 0 or offset + size > self.length:
            raise Broken("truncated", f"bytes {offset} to {offset + size} are wanted, there are {self.length}")
        data = self._read(offset, size)
        if len(data) != size:
            raise Broken("truncated", f"the file ended at byte {self.start + offset + len(data)} while it was read")
        return data

    def head(self, size: int) -> bytes:
        return self.read(0, min(size, self.length))

    def _read(self, offset: int, size: int) -> bytes:
        parts = []
        while size:  # one call gives 2 GiB at most
            data = os.pread(self.descriptor, size, self.start + offset)
            if not data:
                break
            parts.append(data)
            offset, size = offset + len(data), size - len(data)
        return b"".join(parts)


class Memory(Window):
    """Bytes that were unpacked, under the same face."""

    def __init__(self, data: bytes) -> None:
        super().__init__(-1, 0, len(data))
        object.__setattr__(self, "_data", data)

    def _read(self, offset: int, size: int) -> bytes:
        data: bytes = self._data  # type: ignore[attr-defined]
        return data[offset : offset + size]


class Cursor:
    """A Window as the file object that pickletools reads from; ends at `limit`, so no argument can be longer."""

    def __init__(self, window: Window, position: int, limit: int) -> None:
        self._window = window
        self._limit = min(window.length, position + limit)
        self._buffer = b""
        self._base = position  # where the buffer starts
        self._at = 0

    def tell(self) -> int:
        return self._base + self._at

    def verdict(self) -> str:
        """Why reading failed here: the file ended, our limit was met, or what is written makes no sense."""
        if self._base + len(self._buffer) < self._limit:
            return "malformed"
        return "truncated" if self._limit == self._window.length else "bounds"

    def read(self, size: int) -> bytes:
        """Like a file: fewer bytes at the end."""
        end = self._at + size
        if end > len(self._buffer):
            self._fill(size)
            end = self._at + size
        data = self._buffer[self._at : end]
        self._at += len(data)
        return data

    def readline(self) -> bytes:
        line = b""
        while not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
            if self._at == len(self._buffer):
                self._fill(1)
            newline = self._buffer.find(b"\n", self._at)
            part = self._buffer[self._at : newline + 1 if newline >= 0 else len(self._buffer)]
            if not part:
                break
            self._at += len(part)
            line += part
        return line

    def _fill(self, size: int) -> None:
        """Keep what is unread and add at least `size` bytes, as far as there are any."""
        self._base += self._at
        self._buffer = self._buffer[self._at :]
        self._at = 0
        end = self._base + len(self._buffer)
        more = min(max(size - len(self._buffer), _CHUNK), self._limit - end)
        if more > 0:
            self._buffer += self._window.read(end, more)
