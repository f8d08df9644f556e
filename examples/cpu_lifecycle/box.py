"""A box to rent for a minute: a private OpenSSH server on a loopback port, with a home of its own and throw-away keys.

Nothing outside of its folder is written or changed: not ~/.ssh, not the machine's own sshd. `close` ends it by its pid.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from rgt.machine import processes

from examples.cpu_lifecycle import interrupts

NEEDED = ("sshd", "ssh", "ssh-keygen")
SECONDS = 10.0  # for the server to answer; it takes a tenth

# StrictModes: a folder's parents may be writable for others. SetEnv: the box's home is not the user's.
SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey "{folder}/host_key"
AuthorizedKeysFile "{folder}/user_key.pub"
PidFile none
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintMotd no
SetEnv "HOME={home}" "PATH={path}"
"""

CLIENT = """\
Host box
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile "{folder}/user_key"
  IdentitiesOnly yes
  IdentityAgent none
  StrictHostKeyChecking yes
  UserKnownHostsFile "{folder}/known_hosts"
  GlobalKnownHostsFile /dev/null
  ControlPath none
  LogLevel ERROR
"""


@dataclass
class Box:
    config: Path  # for RGT_SSH_CONFIG
    port: int
    server: subprocess.Popen[bytes]

    def close(self) -> None:
        """The server and what it started; the commands behind it are short."""
        started = [self.server.pid, *processes.descendants(self.server.pid)]
        for pid in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        self.server.wait()


def rent(folder: Path, home: Path) -> Box | str:
    """A box, or the sentence why there is none."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    programs = {name: shutil.which(name, path=path) for name in NEEDED}
    missing = [name for name, found in programs.items() if not found]
    if missing:
        return f"{missing[0]} is not installed"
    folder.mkdir(parents=True)
    for name in ("host_key", "user_key"):
        words = [str(programs["ssh-keygen"]), "-q", "-t", "ed25519", "-N", "", "-C", "demo", "-f", str(folder / name)]
        made = subprocess.run(words, capture_output=True, text=True)
        if made.returncode:
            return f"ssh-keygen: {made.stderr.strip()}"
    port = _free_port()
    values = {
        "port": port,
        "folder": folder,
        "home": home,
        "path": os.environ.get("PATH", ""),
        "user": getpass.getuser(),
    }
    (folder / "sshd_config").write_text(SERVER.format(**values))
    (folder / "ssh_config").write_text(CLIENT.format(**values))
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / 'host_key.pub').read_text()}")
    return _start([str(programs["sshd"]), "-D", "-e", "-f", str(folder / "sshd_config")], folder, port)


def _start(words: list[str], folder: Path, port: int) -> Box | str:
    said = subprocess.run([*words, "-t"], capture_output=True, text=True).stderr
    if wanted := re.search(r"Missing privilege separation directory: (\S+)", said):
        with contextlib.suppress(OSError):  # a container without an init never made this empty folder
            os.makedirs(wanted[1], mode=0o755, exist_ok=True)
    box = None
    try:
        with (folder / "sshd.log").open("wb") as log, interrupts.held():
            server = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
            box = Box(folder / "ssh_config", port, server)
        if _answers(box):
            return box
    except BaseException:
        if box:
            box.close()
        raise
    box.close()
    lines = (folder / "sshd.log").read_text(errors="replace").strip().splitlines()
    return f"sshd does not work here: {lines[-1] if lines else 'it says nothing'}"


def _answers(box: Box) -> bool:
    """By a real login: where sshd starts but lets nobody in, the demo goes on without it."""
    deadline = time.monotonic() + SECONDS
    login = ["ssh", "-F", str(box.config), "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "box", "python3 -c 0"]
    while time.monotonic() < deadline and box.server.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", box.port), timeout=1):
            return subprocess.run(login, capture_output=True, stdin=subprocess.DEVNULL).returncode == 0
        time.sleep(0.02)
    return False


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port
