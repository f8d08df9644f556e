"""Two hosts on one machine: two network namespaces joined by a veth cable that a test can cut.

Each host has its own loopback, ports and routes; files and processes are shared. The addresses exist in the
namespaces only, so every test and every worker may use the same ones.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from .support import kill, missing, need, need_root, run, wait_for

_serial = itertools.count()


@dataclass
class Host:
    namespace: str
    interface: str
    address: str
    ip: str  # path of iproute2's `ip`
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def enter(self) -> list[str]:
        """Prefix of a command that runs here; it replaces itself, so the pid is the command's own."""
        return [self.ip, "netns", "exec", self.namespace]

    def run(
        self,
        cmd: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        check: bool = True,
        timeout: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        return run([*self.enter, *cmd], env=env, check=check, timeout=timeout)

    def popen(self, cmd: Sequence[str], *, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """stdout and stderr come as one text; whatever still runs at the end of the test is killed."""
        process = subprocess.Popen(
            [*self.enter, *cmd],
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    def link(self, state: str) -> None:
        run([self.ip, "-n", self.namespace, "link", "set", self.interface, state])

    def setup(self) -> None:
        run([self.ip, "-n", self.namespace, "link", "set", "lo", "up"])
        run([self.ip, "-n", self.namespace, "address", "add", f"{self.address}/24", "dev", self.interface])

    def remove(self) -> None:
        """Whatever still runs here ends with the host; a fork in between is caught by looking again."""
        wait_for(f"{self.namespace} without processes", lambda: not self._kill())
        for process in self.started:
            process.communicate(timeout=10)
        run([self.ip, "netns", "delete", self.namespace], check=False)

    def _kill(self) -> list[int]:
        pids = [int(pid) for pid in run([self.ip, "netns", "pids", self.namespace], check=False).stdout.split()]
        kill(pids)
        return pids


@dataclass
class TwoHosts:
    a: Host
    b: Host

    def cut(self) -> None:
        """Unplug b. It says "unreachable" there at once; a hears nothing, as when the other machine loses power."""
        self.b.link("down")

    def mend(self) -> None:
        self.a.link("up")
        self.b.link("up")


@pytest.fixture
def two_hosts() -> Iterator[TwoHosts]:
    need_root("a network namespace")
    ip, unique = need("ip", "iproute2"), f"{os.getpid():x}-{next(_serial):x}"  # 15 characters bound a device name
    a = Host(f"rgt-a-{unique}", f"va{unique}", "10.77.0.1", ip)
    b = Host(f"rgt-b-{unique}", f"vb{unique}", "10.77.0.2", ip)
    try:
        for host in (a, b):
            made = run([ip, "netns", "add", host.namespace], check=False)
            if made.returncode:  # a container without CAP_SYS_ADMIN
                missing(f"a network namespace cannot be made: {made.stderr.strip()}")
        cable = ["type", "veth", "peer", "name", b.interface, "netns", b.namespace]
        run([ip, "-n", a.namespace, "link", "add", a.interface, *cable])
        for host in (a, b):
            host.setup()
        pair = TwoHosts(a, b)
        pair.mend()
        yield pair
    finally:
        for host in (a, b):
            host.remove()
