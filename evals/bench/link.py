"""A network between us and a server on loopback: it counts bytes, can be slow, and can break.

Example:
    with Link(port_of_the_server) as link:
        link.cut_at = [6 << 20, 12 << 20]      every connection dies when so many bytes have come down in total
        ...  connect to link.port  ...
        link.down                              bytes that came from the server
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType

_BLOCK = 1 << 16


class Link:
    def __init__(self, target: int, rate: float | None = None) -> None:
        self.target, self.rate = target, rate  # bytes a second, in each direction
        self.down = self.up = self.cuts = 0
        self.cut_at: list[int] = []
        self.at: list[tuple[int, Callable[[], object]]] = []  # (bytes that came down, what happens then)
        self._lock = threading.Lock()
        self._live: set[socket.socket] = set()
        self._free_at = [0.0, 0.0]  # when the line is idle again: up, down
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self.listener.getsockname()[1])

    def __enter__(self) -> Link:
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Wake accept and wait for its end first: after a mere close, its thread accepts for whatever socket gets this
        # file descriptor next, which is the next test's Link.
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self.listener.close()
        self.cut()

    def cut(self) -> None:
        """As a dropped network does: both sides lose every connection, without a good-bye."""
        with self._lock:
            live, self._live = self._live, set()
        for one in live:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            with self._lock:
                self._live |= {near, far}
            for source, sink, downward in ((near, far, 0), (far, near, 1)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pump, args=(source, sink, downward), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, downward: int) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_BLOCK):
                self._wait(len(data), downward)
                self._count(len(data), downward)
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _wait(self, count: int, downward: int) -> None:
        if not self.rate:
            return
        with self._lock:
            start = max(time.monotonic(), self._free_at[downward])
            self._free_at[downward] = start + count / self.rate
        time.sleep(max(0.0, self._free_at[downward] - time.monotonic()))

    def _count(self, count: int, downward: int) -> None:
        with self._lock:
            if not downward:
                self.up += count
                return
            self.down += count
            due = [action for place, action in self.at if place <= self.down]
            self.at = [(place, action) for place, action in self.at if place > self.down]
            cut = bool(self.cut_at) and self.cut_at[0] <= self.down
            if cut:
                self.cut_at = [place for place in self.cut_at if place > self.down]
                self.cuts += 1
        for action in due:
            action()
        if cut:
            self.cut()
            raise OSError("cut")
