"""A real OpenSSH server on a loopback port: `ssh -F {sshd.config} box` logs in as the user who runs the tests."""

from __future__ import annotations

import getpass
import os
import re
import shlex
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from .support import Daemon, children, descendants, free_port, kill, need, private_dir, run, wait_for

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

    @property
    def rsh(self) -> str:
        """For `rsync -e` and GIT_SSH_COMMAND."""
        return shlex.join(self.ssh)

    def run(self, cmd: str, *, check: bool = True, timeout: float = 90.0) -> subprocess.CompletedProcess[str]:
        return run([*self.ssh, "box", cmd], check=check, timeout=timeout)

    def popen(self, cmd: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen([*self.ssh, "box", cmd], stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def start(self) -> None:
        self.daemon.start(self._listening)
        wait_for("the end of our own probe", lambda: not self._connections())

    def stop(self) -> None:
        """The box is gone: no listener, no live connection."""
        connections = self._connections()  # asked first: orphans of the listener are no longer its children
        self.daemon.stop()
        self._drop(connections)

    def restart(self) -> None:
        self.stop()
        self.start()

    def cut(self) -> int:
        """Kill the sshd behind every live connection, as a dropped network does; returns how many there were."""
        connections = self._connections()
        self._drop(connections)
        return len(connections)

    def _connections(self) -> list[int]:
        return children(self.daemon.process.pid) if self.daemon.process else []

    @staticmethod
    def _drop(connections: list[int]) -> None:
        for connection in connections:
            kill([connection, *(pid for pid in descendants(connection) if _is_sshd(pid))])

    def _listening(self) -> bool:
        with suppress(OSError), socket.create_connection((self.host, self.port), timeout=1):
            return True
        return False


def _is_sshd(pid: int) -> bool:
    """Not the command it runs: that one must find out by itself that its pipe is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().startswith("sshd")
    return False


def _make(directory: Path) -> Sshd:
    need("ssh", "openssh-client")
    server, keygen = need("sshd", "openssh-server"), need("ssh-keygen", "openssh-client")
    for name in ("host_key", "user_key"):
        run([keygen, "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(directory / name)])
    port, user = free_port(), getpass.getuser()
    (directory / "sshd_config").write_text(SERVER.format(port=port, dir=directory))
    (directory / "ssh_config").write_text(CLIENT.format(port=port, dir=directory, user=user))
    argv = [server, "-D", "-e", "-f", str(directory / "sshd_config")]
    _privilege_separation(argv)
    daemon = Daemon(argv, directory / "sshd.log")
    return Sshd("127.0.0.1", port, user, directory / "user_key", directory / "ssh_config", daemon)


def _privilege_separation(argv: list[str]) -> None:
    """Without systemd nobody made the empty directory sshd wants; it names the one it was compiled with."""
    said = run([*argv, "-t"], check=False).stderr
    if wanted := re.search(r"Missing privilege separation directory: (\S+)", said):
        os.makedirs(wanted[1], mode=0o755, exist_ok=True)


@pytest.fixture
def sshd() -> Iterator[Sshd]:
    """Per test: it starts in a few hundredths of a second, and tests break it on purpose."""
    with private_dir("sshd-") as directory:
        server = _make(directory)
        try:
            server.start()
            yield server
        finally:
            server.stop()
