"""Every place the job writes to: room, inodes, a real write, and whether it outlives a stop."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from checks import Check, Plan, fail, mounts, ok, warn
from rgt import units

TOO_LITTLE, LITTLE = 100 << 20, 2 << 30  # bytes: nothing fits, hardly anything fits
TOO_FEW, FEW = 100, 10_000  # inodes; a data set of small files takes millions
PROBE = 1 << 20  # bytes that are really written: a quota shows only then
SKEW = 5.0  # seconds between our clock and a file server's
SURVEY_SECONDS = 3.0
HOT = ("output", "--write")  # what must outlive the machine; caches need not


def places(plan: Plan) -> dict[str, Path]:
    """Name -> path of everything that will be written."""
    environ, home = plan.environ, Path(plan.environ.get("HOME") or os.path.expanduser("~"))
    cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    found = {"output": plan.output} if plan.output else {}
    found |= {f"--write {path}": path for path in plan.write}
    found["TMPDIR"] = Path(environ.get("TMPDIR") or tempfile.gettempdir())
    found["HF_HOME"] = Path(environ.get("HF_HOME") or cache / "huggingface")
    if plan.job and plan.workdir.is_dir():
        found["workdir"] = plan.workdir  # wandb/, outputs/ and lightning_logs/ are made there
    return {name: Path(os.path.abspath(os.path.expanduser(path))) for name, path in found.items()}


def disks(plan: Plan) -> Iterator[Check]:
    table = mounts.read()
    for name, path in places(plan).items():
        yield _place(name, path, table)


def nearest(path: Path) -> Path:
    """The path itself, or the last part of it that is there."""
    return next((place for place in (path, *path.parents) if place.exists()), Path("/"))


def _place(name: str, path: Path, table: list[mounts.Mount]) -> Check:
    row, place = f"disk {name.split()[0].lstrip('-')}", nearest(path)
    if not place.is_dir():
        return fail(row, "missing", f"{place} is a file, not a directory", "name a directory", str(path))
    mount = mounts.of(place, table)
    kind = mount.fstype if mount else "unknown"
    problem, skew = probe(place)
    room = os.statvfs(place)
    free, files = room.f_bavail * room.f_frsize, room.f_favail if room.f_files else None
    seen = (
        f"{path}: {units.show_size(free)} free" + ("" if files is None else f", {files:,} inodes free") + f" ({kind})"
    )
    if problem:
        code = "no-space" if problem.errno in (errno.ENOSPC, errno.EDQUOT) else "missing"
        fix = "free room there, or write elsewhere" if code == "no-space" else "choose a place that can be written to"
        return fail(row, code, f"{seen}, but a write fails: {problem.strerror}", fix, str(path))
    return _judge_room(row, seen, free, files, path) or _judge_kind(row, name, seen, kind, skew, path)


def probe(place: Path) -> tuple[OSError | None, float]:
    """Write, sync, rename and remove a file; the error, and how far the file server's clock is ahead of ours."""
    before = time.time()
    name = other = ""
    try:
        descriptor, name = tempfile.mkstemp(prefix=".preflight.", dir=place)
        with os.fdopen(descriptor, "wb") as file:
            file.write(b"\0" * PROBE)
            file.flush()
            os.fsync(file.fileno())
            stamp = os.fstat(file.fileno()).st_mtime
        other = name + ".renamed"
        os.replace(name, other)
    except OSError as error:
        return error, 0.0
    finally:
        for path in (name, other):
            with contextlib.suppress(OSError):
                os.unlink(path)
    early, late = stamp - time.time(), stamp - before
    return None, early if early > 0 else min(0.0, late)


def _judge_room(row: str, seen: str, free: int, files: int | None, path: Path) -> Check | None:
    fix = "free room there, or write elsewhere"
    many = "remove small files (`find -xdev | wc -l`), or pack the data into archives"
    if free < TOO_LITTLE:
        return fail(row, "no-space", seen, fix, str(path))
    if files is not None and files < TOO_FEW:
        return fail(row, "no-space", seen, many, str(path))
    if free < LITTLE:
        return warn(row, "no-space", seen, fix, str(path))
    if files is not None and files < FEW:
        return warn(row, "no-space", seen, many, str(path))
    return None


def _judge_kind(row: str, name: str, seen: str, kind: str, skew: float, path: Path) -> Check:
    place = str(path)
    if abs(skew) > SKEW:
        side = "ahead of" if skew > 0 else "behind"
        seen = f"{seen}, its server's clock is {units.show_duration(abs(skew))} {side} this one"
        return warn(row, "clock", seen, "set both clocks by NTP; make, rsync -u and caches compare them", place)
    if name.startswith(HOT):
        if kind in mounts.MEMORY:
            seen = f"{seen}: memory, gone at a stop, and counted as memory used"
            return warn(row, "volatile", seen, "write to a disk", place)
        if kind in mounts.LAYER:
            seen = f"{seen}: the container's own layer, gone when the container is removed"
            return warn(row, "volatile", seen, "write to a mounted volume, or pull before the teardown", place)
        if kind in mounts.OBJECTS:
            seen = f"{seen}: an object store, where a rename is a copy and nothing can be appended"
            return warn(row, "volatile", seen, "write to a disk, and copy finished checkpoints there", place)
    if kind in mounts.NETWORK:
        seen += ", a network file system: slow for many small files"
    return ok(row, seen)


def atomic_rename(plan: Plan) -> Iterator[Check]:
    """A file that is written to TMPDIR and moved to the output is copied when these are two file systems."""
    if plan.output is None:
        return
    found = places(plan)
    temp, output = nearest(found["TMPDIR"]), nearest(found["output"])
    if temp.stat().st_dev == output.stat().st_dev:
        yield ok("atomic rename", "TMPDIR and output are on one file system")
    else:
        yield ok("atomic rename", "TMPDIR is another file system than output: save beside the final name, not there")


def checkpoints(plan: Plan) -> Iterator[Check]:
    """Kept ones and the one being written must fit; twice that is comfortable (a second run, a larger optimizer)."""
    if plan.output is None and not plan.write and plan.checkpoint_size is None:
        return
    target = plan.output or (plan.write[0] if plan.write else Path.cwd())
    size, source = plan.checkpoint_size, "--checkpoint-size"
    if size is None:
        size, source = _newest(target)
    if not size:
        seen = "size unknown; no checkpoint is there yet, and --checkpoint-size was not given"
        yield ok("checkpoints", seen)
        return
    room = os.statvfs(nearest(target))
    free, need = room.f_bavail * room.f_frsize, size * (plan.keep + 1)
    seen = (
        f"{plan.keep} kept + 1 being written x {units.show_size(size)} ({source}) = {units.show_size(need)}, "
        f"twice that to be safe; {units.show_size(free)} free at {target}"
    )
    fix = f"keep fewer, save without the optimizer, or free {units.show_size(max(1, 2 * need - free))}"
    if free < need:
        yield fail("checkpoints", "no-space", seen, fix, str(target))
    elif free < 2 * need:
        yield warn("checkpoints", "no-space", seen, fix, str(target))
    else:
        yield ok("checkpoints", seen)


def _newest(folder: Path) -> tuple[int, str]:
    """Size and name of the newest checkpoint of earlier runs."""
    if not folder.is_dir():
        return 0, ""
    from inventory import survey  # here, because it is needed only without --checkpoint-size

    runs = survey.look(folder, time.monotonic() + SURVEY_SECONDS, check=False).runs
    newest = max((run.checkpoints[-1] for run in runs if run.checkpoints), key=lambda file: file.mtime, default=None)
    return (newest.bytes, f"as {newest.path}") if newest else (0, "")


def quota(plan: Plan) -> Iterator[Check]:
    """`quota -q` speaks only when a limit is passed; df does not know of quotas."""
    if not shutil.which("quota"):
        return
    try:
        done = subprocess.run(["quota", "-q"], capture_output=True, text=True, errors="replace", timeout=20)
    except subprocess.TimeoutExpired:
        yield warn("quota", "unjudged", "`quota -q` did not answer within 20 s", "ask again by hand")
        return
    said = " ".join((done.stdout or (done.stderr if done.returncode else "")).split())
    if said:
        yield warn("quota", "no-space", said[:200], "free room or files on that file system, or have the quota raised")
    else:
        yield ok("quota", "not exceeded")


CHECKS = [disks, atomic_rename, checkpoints, quota]
