"""A box behind an ssh that breaks: each connection carries a few megabytes, then closes or goes silent.

The stand-in takes ssh's words, runs the command in the box's home and counts what it carried. Silence ends after a
moment where keep-alives were asked for, and never where they were not. The box has neither rsync nor an sftp server;
with a file .banner in its home it greets at each login, on stdout; .environment holds variables of its own, as JSON.
"""

from __future__ import annotations

import stat
from pathlib import Path

_SSH = """#!/usr/bin/env python3
import json, os, signal, subprocess, sys, time
from pathlib import Path
WORLD = Path(__file__).resolve().parent.parent
HOST, LIMIT = "box", {limit}
words, alive = sys.argv[1:], False
while words and words[0].startswith("-"):
    word = words.pop(0)
    if word == "--":
        break
    if word in ("-G", "-V"):
        print("hostname box" if word == "-G" else "OpenSSH_9.6p1")
        sys.exit(0)
    if word[:2] in ("-o", "-F", "-p", "-i", "-l", "-e", "-E", "-J", "-L", "-R", "-D", "-S", "-c", "-m", "-b", "-W"):
        value = word[2:] or words.pop(0)
        alive = alive or (word[:2] == "-o" and value.replace(" ", "").lower().startswith("serveraliveinterval"))
if not words or words[0].split("@")[-1] != HOST:
    sys.exit("ssh: Could not resolve hostname %s: Name or service not known" % (words[0] if words else ""))
command = " ".join(words[1:])
if not command:
    sys.exit("Pseudo-terminal will not be allocated because stdin is not a terminal.")
count = WORLD / "connections"
with open(count, "a+") as file:
    file.write("x")
    file.flush()
    number = file.tell()
home = WORLD / "box"
env = dict(os.environ, HOME=str(home), PATH=str(home / ".bin") + ":" + os.environ["PATH"])
if (home / ".environment").exists():
    env.update(json.loads((home / ".environment").read_text()))
child = subprocess.Popen(["sh", "-c", command], cwd=home, env=env, stdout=subprocess.PIPE, start_new_session=True)
carried = 0
if (home / ".banner").exists():
    sys.stdout.buffer.write((home / ".banner").read_bytes())
    sys.stdout.buffer.flush()
def lost():
    os.killpg(child.pid, signal.SIGKILL)
    if number % 3 == 0:  # the router forgot us: nothing closes
        time.sleep(1 if alive else 3600)
        print("Timeout, server box not responding.", file=sys.stderr)
    print("client_loop: send disconnect: Broken pipe", file=sys.stderr)
    sys.stderr.flush()
    os._exit(255)
while True:
    data = os.read(child.stdout.fileno(), 65536)
    if not data:
        break
    if carried + len(data) > LIMIT:
        lost()
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.killpg(child.pid, signal.SIGKILL)
        break
    carried += len(data)
    with open(WORLD / "carried", "a") as file:
        file.write("%d\\n" % len(data))
code = child.wait()
sys.exit(code if code >= 0 else 255)
"""
_NO_SERVER = (
    "#!/bin/sh\necho 'subsystem request failed on channel 0' >&2\necho '{name}: Connection closed' >&2\nexit 255\n"
)
_NO_RSYNC = "#!/bin/sh\necho 'sh: 1: rsync: not found' >&2\nexit 127\n"


def put_up(world: Path, limit: int) -> Path:
    """The box's home, where its files are to be written."""
    home = world / "box"
    (home / ".bin").mkdir(parents=True)
    tools = {world / "bin" / "ssh": _SSH.replace("{limit}", str(limit)), home / ".bin" / "rsync": _NO_RSYNC}
    tools |= {world / "bin" / name: _NO_SERVER.format(name=name) for name in ("scp", "sftp")}
    for path, text in tools.items():
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return home


def carried(world: Path) -> int:
    """Bytes that came through the link."""
    path = world / "carried"
    return sum(map(int, path.read_text().split())) if path.exists() else 0
