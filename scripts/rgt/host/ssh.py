"""A machine to run things on: this one, or one behind ssh. argv is passed verbatim, without shell quoting.

Example:
    host = Host("box")                           "" is this machine; else a name that `ssh` knows, or ssh://root@box:2222
    done = host.run(["sbatch", "job.sh"], cwd="~/exp", env={"A": "$(not run)"})
    host.put("~/exp/job.sh", text)

Nothing that varies is ever part of the remote command line: a constant one-liner there reads one line of JSON (words,
directory, environment) from its stdin and becomes the program. So no quoting rule of any shell applies, and a secret is
in no argument list.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field

from rgt.errors import RgtError, bad_input, lacking
from rgt.host import bounded
from rgt.host.bounded import Done

SECONDS = 60.0  # for one short command; ssh's own ConnectTimeout comes first
# reads byte by byte, because what follows the first line belongs to the program
_BOOTSTRAP = (
    "import json,os,shutil,sys;d=json.loads(open(0,'rb',buffering=0,closefd=False).readline());"
    "os.environ.update(d['e']);p=os.path.expanduser(d['d']);"
    "os.path.isdir(p) or sys.exit('rgt: there is no directory '+p);os.chdir(p);"
    "w=[os.path.expanduser(x) if i in d['x'] else x for i,x in enumerate(d['w'])];"
    "shutil.which(w[0]) or sys.exit('rgt: '+w[0]+' is not installed');os.execvp(w[0],w)"
)
_REFUSED = "rgt: "  # how the one-liner starts what it has to say
_SSH = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15"]
_URL = "ssh://"  # a host with a port is named ssh://USER@HOST:PORT, so that one word says it all
LOST = 255  # ssh's own exit code: the connection, not the command
_NOT_FOUND = 127  # a shell's: there is no such program
_HOST_KEY = "Host key verification failed"
_WRONG = ("Permission denied", _HOST_KEY, "Bad configuration", "Too many authentication failures")


@dataclass
class Host:
    """`name` is empty for this machine. `ssh_config` is passed to ssh -F (tests, jump hosts)."""

    name: str = ""
    ssh_config: str | None = field(default_factory=lambda: os.environ.get("RGT_SSH_CONFIG"))

    def argv(self) -> list[str]:
        """What reaches the one-liner on that machine."""
        if not self.name:
            return [sys.executable, "-S", "-c", _BOOTSTRAP]
        return [*_SSH, *self.destination(), f"exec python3 -S -c {shlex.quote(_BOOTSTRAP)}"]

    def destination(self) -> list[str]:
        """ssh's words for the name. It reads a URL, too, but not one with an IPv6 address (OpenSSH 9.2)."""
        config = ["-F", self.ssh_config] if self.ssh_config else []
        match = re.fullmatch(rf"{_URL}(.*?)(?::(\d+))?", self.name)
        if not match:
            return [*config, "--", self.name]
        address, port = match.groups()
        return [*config, *(["-p", port] if port else []), "--", re.sub(r"[][]", "", address)]

    def run(
        self,
        words: list[str],
        *,
        cwd: str = ".",
        env: dict[str, str] | None = None,
        input: bytes = b"",
        seconds: float = SECONDS,
        expand: tuple[int, ...] = (),
    ) -> Done:
        """Run to the end. `expand` names the words in which a leading ~ means the home directory there."""
        head = {"w": words, "d": cwd, "e": env or {}, "x": list(expand)}
        data = json.dumps(head).encode() + b"\n" + input
        try:
            done = bounded.collect(self.argv(), data, seconds)
        except FileNotFoundError as error:
            raise lacking(f"{error.filename} is not installed here") from None
        except TimeoutError:
            raise lacking(f"{self.title} did not answer within {seconds:.0f} s: {words[0]}") from None
        except bounded.TooMuch:
            raise bad_input(f"{self.title} answered {words[0]} with more than {bounded.MOST >> 20} MiB") from None
        if self.name and done.code == LOST:
            raise unreachable(self.name, done)
        problem = failure(self, done)
        if problem:
            raise problem
        return done

    def address(self) -> str:
        """Where other machines find this one, as ssh itself resolves the name."""
        if not self.name:
            return "127.0.0.1"
        try:
            shown = subprocess.run(["ssh", "-G", *self.destination()], capture_output=True, text=True).stdout
        except FileNotFoundError:  # then nothing resolves names but the network, and OpenClaw needs no ssh
            return self.name
        found = [line.split(maxsplit=1)[1] for line in shown.splitlines() if line.startswith("hostname ")]
        return found[0] if found else self.name

    def absolute(self, path: str) -> str:
        """With a leading ~ resolved there: a job that is told '~/runs' would make a folder of that name."""
        if not path.startswith("~"):
            return path
        done = self.run(["sh", "-c", 'printf %s "$0"', path], expand=(3,))
        return done.out if done.code == 0 else path

    @property
    def title(self) -> str:
        return self.name or "this machine"

    def put(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Write a file whole or not at all; its folder is made."""
        # a name of its own ($$), because two of us may bring the same file at the same time
        script = 'mkdir -p "${0%/*}" && umask 077 && t="$0.$$.part" && cat > "$t" && chmod "$1" "$t" && mv "$t" "$0"'
        done = self.run(["sh", "-c", script, path, f"{mode:o}"], input=data, expand=(3,), seconds=10 * SECONDS)
        if done.code:
            raise RgtError(f"cannot write {path} on {self.title}: {done.sentence()}")

    def read(self, path: str, start: int = 0) -> bytes | None:
        """A file's bytes from `start` on (negative: that many from its end); None when it is not there."""
        where = f"+{start + 1}" if start >= 0 else str(-start)
        script = 'test -e "$0" || exit 44; tail -c "$1" "$0" | base64'
        done = self.run(["sh", "-c", script, path, where], expand=(3,))
        return base64.b64decode(done.out) if done.code == 0 else None


def failure(host: Host, done: Done) -> RgtError | None:
    """What no second try can mend: a refused key, another host key, no python3. None for a mere drop, or success."""
    if done.code == LOST and any(word in done.err for word in _WRONG):
        return unreachable(host.name, done)
    if done.code == _NOT_FOUND and "python3" in done.err:
        return lacking(f"{host.title} has no python3 that a plain `ssh {host.name} python3` finds; install it there")
    refusals = [line for line in done.err.splitlines() if line.startswith(_REFUSED)]  # ssh may warn of something first
    if done.code and refusals:
        return lacking(f"{refusals[0].removeprefix(_REFUSED).strip()} on {host.title}")
    return None


def unreachable(name: str, done: Done) -> RgtError:
    said = done.sentence()
    if "Permission denied" in said:
        return lacking(f"{name} refused the key: {said}; check `ssh {name}` by hand")
    if _HOST_KEY in done.err:
        why = "a rebuilt box has a new one; so has an attacker"
        fix = "compare it with what the provider shows, `ssh-keygen -R` the old one, log in once by hand"
        return lacking(f"the host key of {name} is not the known one, or not known yet ({why}): {fix}")
    return lacking(f"{name} cannot be reached: {said}; check `ssh {name}` by hand")


# -- Where something is: HOST:DIR behind ssh, or a directory here. The one parser of such words


_HOST = r"(?:[^/:@\s]+@)?(?:\[[^][/@\s]+\]|[^][/:@\s]+)"
_PLACE = re.compile(rf"(?:({_URL}{_HOST}(?::\d+)?)/|({_HOST}):(?!//))(.*)", re.S)


@dataclass(frozen=True)
class Place:
    host: Host
    path: str

    @property
    def text(self) -> str:
        """What `parse_place` reads as the same place."""
        name, path = self.host.name, self.path
        if not name:
            return f"./{path}" if ":" in path.partition("/")[0] else path
        if name.startswith(_URL):
            return name + (path if path.startswith("/") else f"/~/{path.removeprefix('~/')}")
        user, at, address = name.rpartition("@")
        return f"{user}{at}[{address}]:{path}" if ":" in address else f"{name}:{path}"


def parse_place(text: str) -> Place:
    if not text or "\0" in text:
        raise bad_input("a place is HOST:DIR or a directory here; this one is empty")
    if ":" not in text.partition("/")[0]:
        return Place(Host(), text)
    match = _PLACE.fullmatch(text)
    if not match or re.match(r"[A-Za-z]:\\", text):
        here = f"a directory here with a colon in its name is ./{text}"
        raise bad_input(f"{text!r} is neither HOST:DIR nor ssh://USER@HOST:PORT/DIR; {here}")
    url, name, path = match.groups()
    name = url or re.sub(r"[][]", "", name)  # ssh takes an IPv6 address bare
    if name.removeprefix(_URL).startswith("-"):
        raise bad_input(f"{name!r} is not a host: ssh would read it as an option")
    if not path:
        raise bad_input(f"{text} names no directory on {name}; write {text}DIR")
    # in a URL a path is absolute, or below the home as /~/DIR
    return Place(Host(name), f"/{path}" if url and not path.startswith("~") else path)
