"""Push: the files git knows (or everything but rubbish), each compared by sha256 on the box before and after."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cargo import frames, tree, wire
from cargo.gauge import Gauge
from cargo.place import Place
from rgt.errors import bad_input, from_os_error, lacking
from rgt.report import Finding

RUBBISH = (".git", ".venv", "venv", "__pycache__", "node_modules", ".mypy_cache", ".pytest_cache", ".ruff_cache",
           ".rgt-pull", ".rgt-push", "*.pyc")  # fmt: skip
# names under which credentials lie; what they hold goes by stdin
SECRET = (".env", ".env.*", ".netrc", "*.pem", "id_rsa", "id_ed25519", "id_ecdsa", "credentials", "credentials.json",
          "kaggle.json", ".pypirc", ".npmrc", "service-account*.json")  # fmt: skip
_HARMLESS = (".env.example", ".env.sample", ".env.template")
_SCRIPT = (".sh", ".bash", ".zsh", ".slurm", ".sbatch")
_HEAD = 1 << 16


@dataclass
class Load:
    """What is to be sent."""

    root: Path
    files: list[dict[str, Any]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    by_git: bool = False

    @property
    def bytes(self) -> int:
        return sum(item["bytes"] for item in self.files)


def gather(root: Path, exclude: Sequence[str]) -> Load:
    if not root.is_dir():
        raise bad_input(f"{root} is not a directory; push takes the folder of the code, or - for a secret from stdin")
    names = _by_git(root)
    load = Load(root, by_git=names is not None)
    for name in names if names is not None else _walk(root):
        if any(tree.excluded(part, list(exclude)) for part in _above(name)):
            continue
        _add(load, name)
    if not load.files and not load.findings:
        raise bad_input(f"{root} holds no file to send")
    return load


def _above(name: str) -> Iterator[str]:
    """A path and the folders it is in."""
    while name:
        yield name
        name = name.rpartition("/")[0]


def _by_git(root: Path) -> list[str] | None:
    """Tracked, and new but not ignored; None outside a repository."""
    words = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(words, capture_output=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    return sorted({os.fsdecode(name) for name in done.stdout.split(b"\0") if name})


def _walk(root: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not _matches(name, RUBBISH))
        for name in sorted(names):
            if not _matches(name, RUBBISH):
                yield os.path.relpath(os.path.join(folder, name), root)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _add(load: Load, name: str) -> None:
    path = load.root / name
    base = name.rpartition("/")[2]
    if _matches(base, SECRET) and base not in _HARMLESS:
        fix = f"push - HOST:{name} < {name} puts it there from stdin, readable by its owner only"
        load.findings.append(Finding("secret", "warn", "is named like a credential and was not sent", name, fix=fix))
        return
    try:
        seen = path.lstat()
        if stat.S_ISLNK(seen.st_mode):
            _add_link(load, name, path)
            return
        if not stat.S_ISREG(seen.st_mode):  # a submodule's folder, a socket
            return
        sha256, head = _digest(path)
    except FileNotFoundError:  # tracked, but deleted here
        return
    except OSError as error:
        raise from_os_error(error, f"read {path}") from None
    if b"\r\n" in head and (base.endswith(_SCRIPT) or head.startswith(b"#!")):
        fix = f"sed -i 's/\\r$//' {name}, and `*.sh text eol=lf` in .gitattributes"
        message = "has Windows line ends: the box would look for an interpreter called 'bash\\r'"
        load.findings.append(Finding("crlf", "error", message, name, fix=fix))
    mode = 0o755 if seen.st_mode & 0o100 else 0o644
    load.files.append(
        {"path": name, "bytes": seen.st_size, "mtime_ns": seen.st_mtime_ns, "mode": mode, "sha256": sha256}
    )


def _add_link(load: Load, name: str, path: Path) -> None:
    message = f"is a link to {os.readlink(path)!r} and was not sent"
    load.findings.append(Finding("unjudged", "info", message, name, fix="push what it leads to by its own path"))


def _digest(path: Path) -> tuple[str, bytes]:
    state, head = hashlib.sha256(), b""
    with path.open("rb") as file:
        while data := file.read(frames.CHUNK):
            head = head or data[:_HEAD]
            state.update(data)
    return state.hexdigest(), head


# -- sending


@dataclass
class Sent:
    files: int = 0
    bytes: int = 0
    drops: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)


def send(load: Load, place: Place, patience: float) -> Sent:
    """Until the box has every file with its sha256. A broken connection goes on where it was."""
    waiting, sent = wire.Patience(patience), Sent()
    gauge = Gauge(load.bytes, f"push {place.text}")

    def begin() -> wire.Session:
        return wire.Session(place.host, "receive").ask({"root": place.path, "files": load.files})

    session: wire.Session | None = wire.first(place.host, begin)
    try:
        while True:
            try:
                with session or begin() as opened:
                    _send_once(load, opened, sent, waiting, gauge)
                break
            except (wire.Dropped, BrokenPipeError) as drop:
                session = None
                waiting.wait(place.host, str(drop) if isinstance(drop, wire.Dropped) else "the connection was lost")
    finally:
        gauge.close()
    sent.drops = waiting.drops
    return sent


def _send_once(load: Load, session: wire.Session, sent: Sent, waiting: wire.Patience, gauge: Gauge) -> None:
    wanted = session.line().get("wanted", [])
    gauge.begin(load.bytes - sum(load.files[number]["bytes"] - offset for number, offset in wanted))

    def tick(count: int) -> None:
        sent.bytes += count
        waiting.progress()
        gauge.show(gauge.done + count)

    for number, offset in wanted:
        _send_file(session, load.root / load.files[number]["path"], offset, tick)
        _answer(load, session.line(), sent)
    for row in session.lines():
        _answer(load, row, sent)


def _answer(load: Load, row: dict[str, Any], sent: Sent) -> None:
    if row.get("e"):
        sent.failed.append((load.files[row["i"]]["path"], str(row["e"])))
    else:
        sent.files += 1


def _send_file(session: wire.Session, path: Path, offset: int, tick: Callable[[int], None]) -> None:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            while data := file.read(frames.CHUNK):
                frames.write_chunk(session.input, data)
                tick(len(data))
        frames.end_file(session.input)
        session.input.flush()
    except BrokenPipeError:
        session.fail()
    except OSError as error:
        raise from_os_error(error, f"read {path}") from None


def send_secret(data: bytes, place: Place, dry_run: bool) -> None:
    """From stdin into a file that only its owner can read: in no argument list, no log, no history."""
    if not data:
        raise bad_input("stdin is empty; a secret is piped in: push - HOST:FILE < FILE")
    if not place.host.name:
        raise bad_input("a secret is pushed to HOST:FILE")
    if dry_run:
        return
    path = place.path if "/" in place.path else f"./{place.path}"
    place.host.put(path, data, 0o600)
    seen = place.host.run(["sh", "-c", 'wc -c < "$0" && ls -l "$0"', path], expand=(3,))
    words = seen.out.split()
    if seen.code or words[:1] != [str(len(data))] or words[1][:10] != "-rw-------":
        raise lacking(f"{place.text} was written, and is not a file of mode 0600 there: {seen.sentence()}")
