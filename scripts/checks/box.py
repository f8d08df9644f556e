"""The machine: memory, CPUs, shared memory, limits, clock, port, proxies."""

from __future__ import annotations

import math
import os
import re
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from checks import Check, Plan, cgroups, fail, ok, quote, warn
from rgt import units

LITTLE_SHM = 1 << 30  # a worker passes batches through it; docker gives 64 MiB
TINY_SHM = 128 << 20
FILES = 4096  # DataLoader workers pass tensors as descriptors; 1024 ends as "received 0 items of ancdata"
PROCESSES = 1024  # threads count, too
FULL = 0.9  # part of the memory limit
EARLIEST = 2025  # no certificate of today is valid before it
SKEW = 60.0  # seconds a file may lie in the future


def memory(plan: Plan) -> Iterator[Check]:
    limits, host = cgroups.read(), _host_memory()
    limit = min(host, limits.memory or host)
    seen = f"{units.show_size(limit)} may be used"
    if limit < host:
        seen += f" (cgroup limit; free and top show the host's {units.show_size(host)})"
    asked = units.size(str(plan.job.hardware.get("memory", "0"))) if plan.job else 0
    if asked > limit:
        fix = "take a larger machine or container, or lower hardware.memory in the job"
        yield fail("memory", "limit", f"{seen}, the job asks for {units.show_size(asked)}", fix)
    elif limits.used is not None and limits.used > FULL * limit:
        seen += f", {units.show_size(limits.used)} of it is in use"
        yield warn("memory", "limit", seen, "end what holds it: the kernel kills at the limit (exit code 137)")
    elif limits.memory_high is not None and limits.memory_high < limit:
        seen += f", above memory.high {units.show_size(limits.memory_high)} it is slowed to a crawl"
        yield warn("memory", "limit", seen, "stay below memory.high, or have it raised")
    else:
        yield ok("memory", seen)


def _host_memory() -> int:
    match = re.search(r"^MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
    return int(match[1]) * 1024 if match else 0


def cpus(plan: Plan) -> Iterator[Check]:
    visible, quota = len(os.sched_getaffinity(0)), cgroups.read().cpus
    allowed = min(visible, quota or visible)
    asked = int(plan.job.hardware.get("cpus", 0)) if plan.job else 0
    seen = f"{visible} visible, {allowed:g} may be used"
    threads = plan.environ.get("OMP_NUM_THREADS", "")
    if asked > allowed:
        fix = "take a larger machine or container, or lower hardware.cpus in the job"
        yield fail("cpus", "limit", f"{seen}, the job asks for {asked}", fix)
    elif visible > math.ceil(allowed) and not threads:
        each = max(1, math.floor(allowed / max(1, plan.gpus)))
        seen += f" (cgroup quota): every process would start {visible} threads"
        yield warn("cpus", "limit", seen, f"put OMP_NUM_THREADS: {each} into the job's env")
    else:
        yield ok("cpus", seen + (f", OMP_NUM_THREADS={threads}" if threads else ""))


def shared_memory(plan: Plan) -> Iterator[Check]:
    name = "/dev/shm"
    if plan.job and plan.job.image:
        yield ok(name, f"the container gets its own: {plan.job.shm_size} (shm_size of the job)")
        return
    total = _room(name)
    if total is None:
        yield fail(name, "limit", "it is not there", "mount -t tmpfs tmpfs /dev/shm, or docker run --shm-size=8g")
        return
    seen = units.show_size(total) + (f" for {plan.workers} DataLoader workers" if plan.workers else "")
    fix = "docker run --shm-size=8g (or --ipc=host); else num_workers=0"
    if plan.workers == 0 or total >= LITTLE_SHM:
        yield ok(name, seen)
    elif total <= TINY_SHM and plan.workers:
        yield fail(name, "limit", f"{seen}: they die with a bus error", fix)
    else:
        yield warn(name, "limit", f"{seen}: DataLoader workers die with a bus error when it is full", fix)


def _room(path: str) -> int | None:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_blocks * found.f_frsize


def open_files(plan: Plan) -> Iterator[Check]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < FILES:
        enough = hard == resource.RLIM_INFINITY or hard >= FILES
        more = "65536" if hard == resource.RLIM_INFINITY else str(min(hard, 65536))
        fix = f"ulimit -n {more} before the start" if enough else "docker run --ulimit nofile=65536:65536"
        yield warn("open files", "limit", f"ulimit -n is {soft}; DataLoader workers need thousands", fix)
    else:
        yield ok("open files", f"ulimit -n is {_limit(soft)}")


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def locked_memory(plan: Plan) -> Iterator[Check]:
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    seen = "unlimited" if soft == resource.RLIM_INFINITY else units.show_size(soft)
    several = plan.job is not None and plan.job.nodes > 1
    if several and soft != resource.RLIM_INFINITY and Path("/sys/class/infiniband").is_dir():
        fix = "ulimit -l unlimited, or docker run --ulimit memlock=-1"
        yield warn("locked memory", "limit", f"ulimit -l is {seen}; InfiniBand registers its buffers", fix)
    else:
        yield ok("locked memory", f"ulimit -l is {seen}")


def other_limits(plan: Plan) -> Iterator[Check]:
    """A file size or an address space with a limit breaks a job hours later."""
    size, space = (resource.getrlimit(which)[0] for which in (resource.RLIMIT_FSIZE, resource.RLIMIT_AS))
    users = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    pids = min((number for number in (users, cgroups.read().pids) if number not in (None, -1)), default=None)
    if size != resource.RLIM_INFINITY:
        seen = f"ulimit -f cuts every file at {units.show_size(size)}"
        yield fail("file size", "limit", seen, "ulimit -f unlimited before the start")
    if space != resource.RLIM_INFINITY:
        seen = f"ulimit -v is {units.show_size(space)}; CUDA alone reserves more than the card's memory"
        yield warn("address space", "limit", seen, "ulimit -v unlimited before the start")
    if pids is not None and pids < PROCESSES:
        seen = f"{pids} processes and threads at most"
        yield warn("processes", "limit", seen, "ulimit -u 4096, or docker run --pids-limit=-1")
    else:
        yield ok("processes", f"{pids or 'any number of'} processes and threads at most")


def clock(plan: Plan) -> Iterator[Check]:
    now = time.time()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    several = plan.job is not None and plan.job.nodes > 1
    synced = _ntp()
    future = _from_the_future(plan.workdir, now)
    fix = "set the clock (timedatectl set-ntp true); in a container: on the host"
    if time.gmtime(now).tm_year < EARLIEST:
        yield fail("clock", "clock", f"{stamp}: every TLS certificate is refused", fix)
    elif future:
        seen = f"{stamp}, but {future} is from the future: this clock, or the one of its writer, is wrong"
        yield warn("clock", "clock", seen, f"{fix}; then touch {quote(future)}")
    elif several and synced == "no":
        yield warn("clock", "clock", f"{stamp}, not synchronised; logs of several nodes will not line up", fix)
    else:
        yield ok("clock", stamp + {"yes": ", synchronised", "no": ", not synchronised"}.get(synced, ""))


def _ntp() -> str:
    """'yes', 'no', or '' where nobody can tell (containers)."""
    if not shutil.which("timedatectl"):
        return ""
    try:
        done = subprocess.run(
            ["timedatectl", "show", "-p", "NTPSynchronized", "--value"], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _from_the_future(folder: Path, now: float) -> Path | None:
    """The newest file at the top of the job's directory, if it lies ahead of our clock."""
    try:
        entries = [(entry.stat(follow_symlinks=False).st_mtime, entry.path) for entry in os.scandir(folder)]
    except OSError:
        return None
    newest, path = max(entries, default=(0.0, ""))
    return Path(path) if newest > now + SKEW else None


def port(plan: Plan) -> Iterator[Check]:
    if plan.job is None or plan.job.nodes < 2:
        return
    number = plan.job.port
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as torch's store does: TIME_WAIT is free
        try:
            probe.bind(("", number))
        except OSError as error:
            seen = f"{number} cannot be taken: {error.strerror}"
            fix = f"`ss -ltnp 'sport = :{number}'` names its owner; or choose another `port` in the job"
            yield fail("port", "port", seen, fix)
            return
    yield ok("port", f"{number} is free (as seen on this node)")


def proxies(plan: Plan) -> Iterator[Check]:
    names = ("http_proxy", "https_proxy", "all_proxy")
    set_now = [name for name, value in sorted(plan.environ.items()) if name.lower() in names and value]
    if not set_now:
        yield ok("proxies", "none set")
        return
    hosts = ", ".join(f"{name}={_without_password(plan.environ[name])}" for name in set_now)
    fix = f"unset {' '.join(set_now)} before the launch; keep it for the download only"
    yield warn("proxies", "proxy", f"{hosts}: the training process would inherit it", fix)


def _without_password(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//***@", url)


CHECKS = [memory, cpus, shared_memory, open_files, locked_memory, other_limits, clock, port, proxies]
