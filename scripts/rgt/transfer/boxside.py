"""What runs on the box: `python3 box.pyz transfer` answers questions until its stdin ends. Standard library only.

A question is one line of JSON, {"verb": ..., ...}; its answer is lines of JSON, each with some rows, up to the row
{"end": true}. `send` puts raw bytes behind the line whose rows announce them, `receive` reads raw bytes. Those of
several small files may be packed: the line's first row is then {"z": bytes that follow}. A path is never taken from a
stream of bytes.

`disks` says what else is on the box, and who still works there. A file counts when it is in a run directory, large,
named like weights, or changed since the run began. System folders and package caches are left out, and each of them is
named. Time and rows are bounded: what was not reached is said.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import io
import itertools
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from rgt.checkpoint.names import OUR_RECORDS
from rgt.machine import open_files, processes

MARK = b"rgt-transfer-2\n"  # before it, a login script may have printed anything
CHUNK = 1 << 20
STAGE = ".rgt-push"
OURS = (".rgt-pull", STAGE, *OUR_RECORDS)
ROWS = 16  # in one line
_OUT = 1 << 17  # bytes written at once: ssh takes long over small pieces
PACKED = 2 * _OUT  # bytes that were packed in one line, at most
_SAMPLE = 4096  # bytes that tell whether the rest can be packed
_RUN_JSON = 4 << 20  # bytes; a larger one is not ours
_SHOWN = 20  # processes
LARGE = 1_000_000  # bytes
WEIGHTS = tuple(
    """.pt .pth .ckpt .bin .safetensors .gguf .ggml .onnx .h5 .hdf5 .keras .msgpack .npy .npz .pkl .pickle .joblib
    .distcp .tflite .pb .params .pdparams .mlmodel .engine .orbax .cbm .ubj""".split()
)
SYSTEM = {f"/{name}" for name in "bin boot dev etc lib lib32 lib64 libx32 opt proc run sbin snap sys usr var".split()}
CACHES = set(
    """.cache .conda .config .cargo .cursor-server .git .ipynb_checkpoints .ipython .jupyter .local .npm .nv .rustup
    .ssh .triton .venv .vscode-server __pycache__ dist-packages lost+found node_modules site-packages""".split()
)
_INSTALLED = {"pyvenv.cfg", "conda-meta"}  # a folder with one of these is an installed Python
_MOUNTS = "/proc/self/mountinfo"

Row = dict[str, Any]


def main() -> None:
    out = open(1, "wb", _OUT, closefd=False)  # noqa: SIM115
    try:
        out.write(MARK)
        out.flush()
        while line := sys.stdin.buffer.readline():
            asked = json.loads(line)
            for data in _lines(VERBS[asked.pop("verb")](**asked)):
                out.write(data) if data else out.flush()
            out.write(b'[{"end": true}]\n')
            out.flush()
    except (BrokenPipeError, EOFError):  # the other side is gone: it will come back and ask again
        os._exit(1)
    except OSError as error:
        sys.exit(f"error: cannot use {error.filename or 'the disk'}: {error.strerror}")


def _lines(answer: Iterator[Row | bytes | None]) -> Iterator[bytes]:
    """Several rows as one line, then their bytes; nothing (b"") where the other side waits."""
    rows: list[Row] = []
    load: list[bytes] = []
    held = 0
    for one in itertools.chain(answer, [None]):
        if isinstance(one, bytes):
            load.append(one)
            held += len(one)
            continue
        if rows and (one is None or len(rows) == ROWS or held >= _OUT):
            if packed := _pack(b"".join(load)) if len(load) > 1 and held <= PACKED else b"":
                rows, load = [{"z": len(packed)}, *rows], [packed]
            yield json.dumps(rows).encode() + b"\n"  # ASCII: a name that is not UTF-8 travels as escapes
            yield from filter(None, load)
            rows, load, held = [], [], 0
        if one is None:
            yield b""
        else:
            rows.append(one)


def _pack(data: bytes) -> bytes:
    """Nothing when it is not worth it; most of thousands of small files are configs, logs and tables."""
    try:
        import zlib
    except ImportError:
        return b""
    sample = data[: len(data) // 2][-_SAMPLE:]
    if len(zlib.compress(sample, 1)) > len(sample) // 2:
        return b""
    return zlib.compress(data, 1)


def _existing(directory: str) -> str:
    root = os.path.realpath(os.path.expanduser(directory))
    if not os.path.isdir(root):
        sys.exit(f"error: there is no directory {directory}")
    return root


def open_plain(path: str | os.PathLike[str]) -> io.FileIO:
    """For reading, and not through a link."""
    return io.FileIO(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC))


def sha256_of(path: str | os.PathLike[str]) -> str:
    state, buffer = hashlib.sha256(), bytearray(CHUNK)
    with open_plain(path) as file:
        while count := file.readinto(buffer):
            state.update(memoryview(buffer)[:count])
    return state.hexdigest()


# -- what is there


def list_tree(root: str, exclude: list[str], env: str) -> Iterator[Row]:
    """First what is known of the run, then one row for each file, link or thing that cannot be copied."""
    root = _existing(root)
    head: Row = {"root": root, "record": None, "last_event": None, "env": ""}
    with contextlib.suppress(OSError, ValueError):
        path = os.path.join(root, "run.json")
        if os.path.getsize(path) <= _RUN_JSON:
            with open(path, encoding="utf-8") as file:
                head["record"] = json.load(file)
    with contextlib.suppress(OSError), open(os.path.join(root, "events.jsonl"), "rb") as lines:
        from rgt.run.record import AFTER_EVENT  # on a box each import is compiled anew, so only what a question needs

        for line in lines:
            with contextlib.suppress(ValueError, TypeError, KeyError):
                word = json.loads(line)["event"]
                head["last_event"] = word if word in AFTER_EVENT else head["last_event"]
    if env:  # a container's variables belong to its first process; an ssh session often has none of them
        head["env"] = os.environ.get(env) or processes.environment(1).get(env, "")
    pids = open_files.writers([root]) or []
    yield {**head, "writers": [f"{pid} ({' '.join(processes.command(pid))[:80]})" for pid in pids[:_SHOWN]]}
    yield from walk(root, exclude)


def excluded(path: str, patterns: list[str]) -> bool:
    """A pattern is a name or a path with * and ?; what is below an excluded folder is excluded, too."""
    name = path.rpartition("/")[2]
    return any(fnmatch.fnmatchcase(part, pattern.strip("/")) for pattern in patterns for part in (path, name))


def walk(root: str, exclude: list[str]) -> Iterator[Row]:
    """One row per file, link or thing that cannot be copied. Links are never followed."""
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            names = sorted(os.listdir(os.path.join(root, folder)))
        except OSError as error:
            yield {"x": folder or ".", "why": "unreadable", "say": error.strerror}
            continue
        below = []
        for path in (f"{folder}/{name}" if folder else name for name in names):
            if path in OURS:
                continue
            with contextlib.suppress(FileNotFoundError):  # gone since it was listed
                full = f"{root}/{path}"
                seen = os.lstat(full)
                if exclude and excluded(path, exclude):
                    yield {"x": path, "why": "excluded"}
                elif stat.S_ISDIR(seen.st_mode):
                    below.append(path)
                else:
                    yield _row(root, path, full, seen)
        folders += reversed(below)


def _row(root: str, path: str, full: str, seen: os.stat_result) -> Row:
    if stat.S_ISLNK(seen.st_mode):
        raw, target = os.readlink(full), os.path.realpath(full)
        if not os.path.exists(target):
            return {"x": path, "why": "broken", "say": raw}
        if target != root and not target.startswith(root + os.sep):
            return {"x": path, "why": "outside", "say": raw}
        return {"l": path, "t": os.path.relpath(target, root)}
    if not stat.S_ISREG(seen.st_mode):
        return {"x": path, "why": "special"}
    if not os.access(full, os.R_OK):
        return {"x": path, "why": "unreadable", "say": "Permission denied"}
    return {"p": path, "b": seen.st_size, "m": seen.st_mtime_ns, "o": stat.S_IMODE(seen.st_mode)}


def list_runs(root: str, depth: int) -> Iterator[Row]:
    """Run directories below a folder."""
    root = _existing(root)
    for folder, folders, names in os.walk(root):
        if "run.json" in names:
            yield {"run": folder}
        if "run.json" in names or os.path.relpath(folder, root).count(os.sep) >= depth:
            folders.clear()


# -- contents


def send(root: str, files: list[tuple[str, int, int]], exclude: list[str] | None = None) -> Iterator[Row | bytes]:
    """Of each (path, offset, size) the bytes from offset to size; the last row of a file has the digest of it all.

    A file that is there already is asked for from its end on: then only its digest travels. With `exclude`,
    what is there now follows.
    """
    root = _existing(root)
    for number, (path, offset, size) in enumerate(files):
        state, position, fresh = hashlib.sha256(), 0, b""
        try:
            file = open_plain(os.path.join(root, path))
        except OSError:  # gone, or not readable: the next listing says it
            continue
        with file:
            while position < size and (data := file.read(min(CHUNK, size - position))):
                if fresh:
                    yield {"i": number, "o": position - len(fresh), "n": len(fresh)}
                    yield fresh
                state.update(data)
                fresh = data[max(0, offset - position) :]
                position += len(data)
            seen = os.fstat(file.fileno())
        row = {"i": number, "o": position - len(fresh), "n": len(fresh)}
        yield {**row, "b": seen.st_size, "m": seen.st_mtime_ns, "s": state.hexdigest()}
        yield fresh
    if exclude is not None:
        yield {"sent": len(files)}
        yield from list_tree(root, exclude, "")


def receive(root: str, files: list[Row]) -> Iterator[Row | None]:
    """Say from which offset each file is wanted, read exactly that from stdin, put each whole file in its place."""
    root = os.path.abspath(os.path.expanduser(root))
    stage = os.path.join(root, STAGE)
    os.makedirs(stage, exist_ok=True)
    wanted = []
    for number, item in enumerate(files):
        path = os.path.join(root, item["path"])
        name = hashlib.sha256(os.fsencode(item["path"]) + item["sha256"].encode()).hexdigest()
        item["part"] = os.path.join(stage, name)  # of this version of this file
        with contextlib.suppress(OSError):
            if os.path.getsize(path) == item["bytes"] and sha256_of(path) == item["sha256"]:
                os.chmod(path, item["mode"])
                continue
        wanted.append((number, os.path.getsize(item["part"]) if os.path.exists(item["part"]) else 0))
    yield {"wanted": wanted}
    yield None
    for number, offset in wanted:
        yield {"i": number, "e": _receive(os.path.join(root, files[number]["path"]), files[number], offset)}
        yield None
    with contextlib.suppress(OSError):
        os.rmdir(stage)


def _receive(path: str, item: Row, offset: int) -> str | None:
    """What was wrong; the file's bytes are read from stdin in any case."""
    part, left, problem = item["part"], item["bytes"] - offset, None
    with open(part, "r+b" if offset else "wb") as file:
        file.seek(offset)  # not at its end: one whose connection broke may still be writing the same bytes
        while left:
            data = sys.stdin.buffer.read(min(CHUNK, left))
            if not data:
                raise EOFError
            left -= len(data)
            try:
                file.write(data)
            except OSError as error:
                problem = problem or error.strerror
    try:
        if not problem and sha256_of(part) != item["sha256"]:
            os.unlink(part)
            problem = "arrived with another sha256"
        if not problem:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.chmod(part, item["mode"])
            os.utime(part, ns=(item["mtime_ns"], item["mtime_ns"]))
            os.replace(part, path)
    except OSError as error:
        return error.strerror
    return problem


# -- the disks


def is_inside(path: str, folders: list[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _real(path: str) -> str:
    return os.path.realpath(os.path.expandvars(os.path.expanduser(path)))


def _named(path: str) -> str:
    """The thing of that name itself: a link that is given up does not give up what it leads to."""
    folder, name = os.path.split(os.path.abspath(os.path.expanduser(path)))
    return os.path.join(os.path.realpath(folder), name)


def sweep(places: list[str], apart: list[str], since: float, seconds: float, most: int) -> Iterator[Row]:
    """Rows: {"f": file}, {"run": folder}, {"left": folder}, {"denied": folder}, {"late": folder not reached}."""
    from rgt.machine import disks

    end, rows = time.monotonic() + seconds, 0
    points = {mount.point for mount in disks.mounts()} if os.path.exists(_MOUNTS) else set()
    folders = [(place, False) for place in reversed(places)]
    while folders:
        folder, in_run = folders.pop()
        if time.monotonic() > end or rows > most:
            yield {"late": folder}
            return
        try:
            names = sorted(os.listdir(folder))
        except OSError as error:
            yield {"denied": folder, "say": error.strerror}
            continue
        if _INSTALLED & set(names):
            yield {"left": folder}
            continue
        if "run.json" in names and not in_run:
            in_run = True
            yield {"run": folder}
        for name in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):  # gone since it was listed
                seen = os.lstat(path)
                if is_inside(path, apart):
                    continue
                if stat.S_ISDIR(seen.st_mode) and (path in SYSTEM or name in CACHES):
                    yield {"left": path}
                elif stat.S_ISDIR(seen.st_mode) and path not in points:
                    folders.append((path, in_run))
                elif stat.S_ISREG(seen.st_mode) and seen.st_size and (in_run or counts(name, seen, since)):
                    rows += 1
                    yield {"f": path, "b": seen.st_size}


def counts(name: str, seen: os.stat_result, since: float) -> bool:
    weighty = seen.st_size >= LARGE or name.lower().endswith(WEIGHTS)
    return weighty or (seen.st_mtime >= since and not name.startswith("."))


def true_size(path: str, seconds: float) -> Row:
    """Files and bytes below a path that is given up; `whole` is False when the time did not suffice."""
    end, path = time.monotonic() + seconds, _named(path)
    row: Row = {"given": path, "n": 0, "b": 0, "whole": True, "there": os.path.lexists(path)}
    if os.path.islink(path) or os.path.isfile(path):
        return {**row, "n": 1, "b": os.lstat(path).st_size}
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                row["b"] += os.lstat(os.path.join(folder, name)).st_size
                row["n"] += 1
            except OSError:
                continue
        if time.monotonic() > end:
            return {**row, "whole": False}
    return row


def examine_disks(
    run: str, whole_disk: bool, roots: list[str], kept: list[str], abandoned: list[str], **bounds: Any
) -> Iterator[Row]:
    """What is given up, what is there, who works there: one answer, because only together they are a state.

    `whole_disk`: the run's own file system ends with the box; `roots`: other places that end with it; `kept`: places
    that outlive it. Paths may begin with ~ or $NAME. `bounds` are those of sweep.
    """
    from pathlib import Path

    from rgt.machine import disks

    for path in abandoned:
        yield true_size(path, bounds["seconds"])
    table = disks.mounts() if os.path.exists(_MOUNTS) else []
    disk = disks.mount_of(Path(run), table)
    real = {root for root in map(_real, roots) if os.path.isabs(root) and os.path.isdir(root)}
    real |= {disk.point if disk else "/"} if whole_disk else set()
    on = {root: disks.mount_of(Path(root), table) for root in real}
    # a place inside another one of the same mount counts once
    places = sorted(root for root in real if not is_inside(root, [o for o in real - {root} if on[o] == on[root]]))
    yield {"roots": places}
    runs, apart = [run], [run, *map(_real, kept), *map(_named, abandoned)]
    for row in sweep(places, apart, **bounds):
        runs += [row["run"]] if "run" in row else []
        yield row
    yield from busy([run, *places], runs)


def busy(roots: list[str], runs: list[str]) -> Iterator[Row]:
    """Processes that write to these disks, work in a run, or use a GPU; {"blind": n} were not ours to ask."""
    from rgt.machine import gpus

    ours, blind = {os.getpid()}, 0
    above = os.getppid()
    while above > 1 and above not in ours:
        ours.add(above)
        above = processes.parent(above) or 0
    doing: dict[int, str] = {}
    for pid in processes.pids() if os.path.isdir("/proc/self") else []:
        if pid in ours:
            continue
        if is_inside(here := processes.link(pid, "cwd"), runs):
            doing[pid] = f"works in {here}"
        held = processes.descriptors(pid)
        blind += held is None
        for number, path in held or []:
            parts = path.split("/")
            system = "/" + parts[1] in SYSTEM if len(parts) > 1 else True
            if not system and is_inside(path, roots) and not CACHES & set(parts) and processes.writes_to(pid, number):
                doing[pid] = f"writes {path}"
    reading = gpus.read()
    doing |= {p.pid: f"uses GPU {gpu.index}" for gpu in reading.gpus for p in gpu.processes if p.type == "C"}
    for pid, what in sorted(doing.items())[:_SHOWN]:
        yield {"pid": pid, "what": what, "command": " ".join(processes.command(pid))[:80]}
    if blind:
        yield {"blind": blind}
    if reading.problem:
        yield {"sick": reading.problem}


VERBS: dict[str, Callable[..., Iterator[Row | bytes | None]]]  # None: the other side waits for what was said so far
VERBS = {"list": list_tree, "runs": list_runs, "send": send, "receive": receive, "disks": examine_disks}
