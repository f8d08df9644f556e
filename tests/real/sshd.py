"""A real OpenSSH server on a loopback port: `ssh -F {sshd.config} box` logs in as the user who runs the tests."""

from __future__ import annotations

import functools
import getpass
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from .support import Daemon, children, descendants, free_port, kill, need, private_dir, run

# StrictModes: the temp directory's parents are world-writable. MaxStartups: a burst of logins is not an attack here.
SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey "{dir}/host_key"
AuthorizedKeysFile "{dir}/user_key.pub"
PidFile none
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintMotd no
MaxStartups 100
MaxSessions 100
Subsystem sftp internal-sftp
LogLevel VERBOSE
"""

# No ControlMaster: a test that cuts the connection must cut the one its own ssh opened.
CLIENT = """\
Host box
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile "{dir}/user_key"
  IdentitiesOnly yes
  IdentityAgent none
  BatchMode yes
  StrictHostKeyChecking no
  UserKnownHostsFile "{dir}/known_hosts"
  GlobalKnownHostsFile /dev/null
  ControlMaster no
  ControlPath none
  ConnectTimeout 10
  LogLevel ERROR
"""


_HELD = 2.0  # seconds for which a child of the last sshd may hold the port


@dataclass
class Sshd:
    host: str
    port: int
    user: str
    key: Path  # the user's private key
    config: Path  # ssh client config that names this server `box`
    daemon: Daemon

    @property
    def ssh(self) -> list[str]:
        return ["ssh", "-F", str(self.config)]

    def run(self, cmd: str, *, check: bool = True, timeout: float = 90.0) -> subprocess.CompletedProcess[str]:
        return run([*self.ssh, "box", cmd], check=check, timeout=timeout)

    def start(self) -> None:
        """Its log says when it listens. A probe could be answered by another server: one that took the port before us,
        or a dying child of our last sshd; then the test's first connection is refused."""
        log, deadline = self.daemon.log, time.monotonic() + _HELD
        while True:
            seen = len(log.read_bytes()) if log.exists() else 0
            try:
                self.daemon.start(functools.partial(_listens, log, seen))
                return
            except RuntimeError as error:
                if time.monotonic() > deadline or "Address already in use" not in str(error):
                    raise
            time.sleep(0.1)

    def stop(self) -> None:
        """The box is gone: no listener, no live connection."""
        connections = self._connections()  # asked first: orphans of the listener are no longer its children
        self.daemon.stop()
        self._drop(connections)

    def restart(self) -> None:
        self.stop()
        self.start()

    def cut(self) -> None:
        """Kill the sshd behind every live connection, as a dropped network does."""
        self._drop(self._connections())

    def _connections(self) -> list[int]:
        return children(self.daemon.process.pid) if self.daemon.process else []

    @staticmethod
    def _drop(connections: list[int]) -> None:
        for connection in connections:
            kill([connection, *(pid for pid in descendants(connection) if _is_sshd(pid))])


def _listens(log: Path, seen: int) -> bool:
    return b"Server listening on 127.0.0.1" in log.read_bytes()[seen:]


def _is_sshd(pid: int) -> bool:
    """Not the command it runs: that one must find out by itself that its pipe is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().startswith("sshd")
    return False


def started(directory: Path) -> Sshd:
    need("ssh", "openssh-client")
    server, keygen = need("sshd", "openssh-server"), need("ssh-keygen", "openssh-client")
    for name in ("host_key", "user_key"):
        run([keygen, "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(directory / name)])
    argv = [server, "-D", "-e", "-f", str(directory / "sshd_config")]
    for _ in range(5):  # between free_port and sshd somebody else may take it
        port, user = free_port(), getpass.getuser()
        (directory / "sshd_config").write_text(SERVER.format(port=port, dir=directory))
        (directory / "ssh_config").write_text(CLIENT.format(port=port, dir=directory, user=user))
        _privilege_separation(argv)
        daemon = Daemon(argv, directory / "sshd.log")
        made = Sshd("127.0.0.1", port, user, directory / "user_key", directory / "ssh_config", daemon)
        with suppress(RuntimeError):
            made.start()
            return made
    raise RuntimeError(f"sshd found no port to listen on; its log ends:\n{daemon.tail()}")


def _privilege_separation(argv: list[str]) -> None:
    """Without systemd nobody made the empty directory sshd wants; it names the one it was compiled with."""
    said = run([*argv, "-t"], check=False).stderr
    if wanted := re.search(r"Missing privilege separation directory: (\S+)", said):
        os.makedirs(wanted[1], mode=0o755, exist_ok=True)


@pytest.fixture
def sshd() -> Iterator[Sshd]:
    """Per test: it starts in a few hundredths of a second, and tests break it on purpose."""
    with private_dir("sshd-") as directory:
        server = started(directory)
        try:
            yield server
        finally:
            server.stop()
