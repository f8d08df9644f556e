"""The machine: interpreter, cards, memory, CPUs, limits, port, proxies, and every place the job writes to."""

from __future__ import annotations

import errno
import math
import os
import re
import resource
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt import files
from rgt.errors import RgtError
from rgt.job.audit import PlannedJob, Row, fail, ok, warn
from rgt.job.config_paths import newest_checkpoint
from rgt.machine import disks, outside
from rgt.machine import gpus as gpu
from rgt.machine import memory as machine_memory
from rgt.units import show_size
from rgt.units import size as units_size

Version = tuple[int, int]
_ARCH = re.compile(r"(sm|compute)_(\d+)([af]?)")
LITTLE_SHM = 1 << 30  # a worker passes batches through it; docker gives 64 MiB
FILES = 4096  # DataLoader workers pass tensors as descriptors; 1024 ends as "received 0 items of ancdata"
FULL = 0.9  # part of the memory limit
TOO_LITTLE, LITTLE = 100 << 20, 2 << 30  # bytes: nothing fits, hardly anything fits
TOO_FEW, FEW = 100, 10_000  # inodes; a data set of small files takes millions
PROBE = 1 << 20  # bytes that are really written: a quota shows only then
_ANY = resource.RLIM_INFINITY
# file systems where a result should not stay, what they are, and what to do
_VOLATILE = (
    (disks.MEMORY, "memory, gone at a stop, and counted as memory used", "write to a disk"),
    (disks.LAYER, "the container's own layer, gone when it is removed", "write to a volume, or pull before that"),
    (disks.OBJECTS, "an object store: no append, a rename copies", "write to a disk, copy finished checkpoints there"),
)


# -- the interpreter, the GPUs, and the triangle of driver, CUDA build of torch and card: three versions, one verdict


def interpreter(planned: PlannedJob) -> Iterator[Row]:
    name, python, job = "interpreter", planned.interpreter, planned.job
    if python is None:
        why = f"that of the image {job.image}" if job.image else "chosen by the command itself"
        yield ok(name, f"{why}; run this audit in there, too")
        return
    if python.problem:
        yield fail(name, name, f"{python.word}: {python.problem}", python.fix)
        return
    seen = f"{python.facts['executable']} ({python.facts['version']})"
    if own := python.other_environment(planned.workdir):
        fix = f"python: {own / 'bin' / 'python'} in the job"
        yield warn(name, name, f"{seen}, but the job's directory has {own.name}", fix)
    else:
        yield ok(name, seen)


def gpus(planned: PlannedJob) -> Iterator[Row]:
    reading, wanted, mask = planned.reading, planned.job.gpus_per_node, planned.environ.get("CUDA_VISIBLE_DEVICES")
    usable, here = planned.usable_cards, len(reading.gpus)
    level = fail if wanted > len(usable) else warn
    for card in reading.gpus:
        if card.error:
            fix = "reset or reboot (`dmesg | grep Xid` tells why); on a rented machine: take another one"
            yield level("gpus", "gpu", f"GPU {card.index}: {card.error}", fix)
    if not here and reading.problem:
        fix = "`nvidia-smi` must work first; after a driver update: reboot; in a container: docker run --gpus all"
        yield level("gpus", "gpu", reading.problem, fix)
    elif wanted > len(usable):
        seen = f"{len(usable)} of {here} usable" + (f" (CUDA_VISIBLE_DEVICES={mask!r})" if mask is not None else "")
        fix = "lower gpus_per_node, correct CUDA_VISIBLE_DEVICES, docker run --gpus all, or take a larger machine"
        yield fail("gpus", "gpu", f"{seen}, the job asks for {wanted}", fix)
    elif not usable:
        yield ok("gpus", "none here, none asked for")
    else:
        names = [f"{c.name} {show_size(c.memory_total)}" if c.memory_total else c.name for c in usable]
        kinds = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
        busy = ", ".join(str(card.index) for card in usable if card.processes)
        driver = f", driver {reading.driver}" if reading.driver else ""
        yield ok("gpus", kinds + (f", in use: {busy}" if busy else "") + driver)


def card_health(planned: PlannedJob) -> Iterator[Row]:
    """Too little memory, memory that errs, a card that is slowed down."""
    least = units_size(planned.job.hardware.get("min_gpu_memory", "0"))
    for card in planned.usable_cards:
        where = f"GPU {card.index}"
        if card.memory_total is not None and card.memory_total < least * 0.9:  # an "80GB" card has a little less
            seen = f"{where} has {show_size(card.memory_total)}, the job asks for {show_size(least)}"
            yield fail("gpu memory", "gpu", seen, "take a larger card, or lower hardware.min_gpu_memory")
        if card.ecc_errors:
            seen = f"{where}: {card.ecc_errors} uncorrected memory errors since the driver was loaded"
            yield warn("gpu memory", "gpu", seen, "reset the card, or take another machine: results may be wrong")
        if hot := ", ".join(word for word in card.slowdown if "thermal" in word or word.startswith("hw_")):
            yield warn("gpu clocks", "gpu", f"{where}: {hot}", "cooling or power of the machine; it will be slow")


def triangle(planned: PlannedJob) -> Iterator[Row]:
    python = planned.interpreter
    if python is None or python.problem:
        return
    torch = python.facts.get("torch")
    if torch is None:
        seen = f"not installed in {python.facts['executable']}"
        fix = "install it there, or name the right python in the job"
        yield warn("torch", "interpreter", seen, fix) if planned.job.gpus_per_node else ok("torch", seen)
    elif "problem" in torch:
        fix = "install it anew in that environment; the last line names the library that is missing"
        yield fail("torch", "interpreter", f"does not import: {torch['problem']}", fix)
    else:
        cards = planned.usable_cards
        yield verdict(torch, cards, driver_cuda() if cards else None, planned.job.gpus_per_node)


def verdict(torch: dict[str, Any], cards: list[gpu.Gpu], driver: Version | None, wanted: int = 0) -> Row:
    """The first cause that explains everything after it. `driver` is the newest CUDA that the driver knows."""
    name, works = f"torch {torch['version']}", torch["available"]
    if torch["hip"]:
        return ok("torch", f"{name} for ROCm {torch['hip']}, available: {works}")
    if not torch["cuda"] and (cards or wanted):
        fix = "install the torch build of this machine's CUDA version (cu<version>); pytorch.org lists them"
        return fail("torch", "cuda", f"{name} is a CPU-only build: it will never see a GPU", fix)
    built = f"{name}, built for CUDA {torch['cuda']}" if torch["cuda"] else f"{name}, a CPU-only build"
    if not cards and not works:
        return ok("torch", f"{built}; no card here to try it on")
    # within a major version a newer CUDA runs on an older driver; across it only with the compatibility package
    if driver and int(torch["cuda"].split(".")[0]) > driver[0] and not works:
        fix = f"install a torch built for CUDA {driver[0]}.x, or take a machine with a newer driver"
        return fail("torch", "cuda", f"{built}, the driver ends at CUDA {driver[0]}.{driver[1]}", fix)
    for card in cards:
        if card.compute_cap and torch["arch"] and not has_kernels(card.compute_cap, torch["arch"]):
            seen = f"no kernel image for {card.name} ({_sm(card)}): {name} has {' '.join(torch['arch'])}"
            return fail("torch", "cuda", seen, "install a torch whose torch.cuda.get_arch_list() has this card")
    if not works:
        said = " ".join(str(torch["error"]).split())[:200] or "torch.cuda.is_available() is False"
        fix = "versions fit: look at docker run --gpus all, CUDA_VISIBLE_DEVICES, rights of /dev/nvidia*; reboot"
        return fail("torch", "cuda", f"{name} sees no card: {said}", fix)
    newest = f", driver for CUDA {driver[0]}.{driver[1]}" if driver else ""
    caps = ", ".join(sorted({_sm(card) for card in cards if card.compute_cap})) or "unknown"
    return ok("torch", f"{built}{newest}, cards {caps}: they fit")


def _sm(card: gpu.Gpu) -> str:
    return f"sm_{(card.compute_cap or '').replace('.', '')}"


def has_kernels(compute_cap: str, archs: list[str]) -> bool:
    """A kernel of the same major and no newer minor, or PTX (compute_NN) of an older card, compiled at the start."""
    card = int(compute_cap.replace(".", ""))
    for kind, text, suffix in (match.groups() for arch in archs if (match := _ARCH.fullmatch(arch))):
        number = int(text)
        same = number // 10 == card // 10 and number <= card
        if kind == "sm" and same and (suffix != "a" or number == card):  # sm_90a runs on 9.0 only
            return True
        if kind == "compute" and not suffix and number <= card:
            return True
    return False


def driver_cuda() -> Version | None:
    """The newest CUDA this driver can run, by NVML, else by nvidia-smi."""
    try:
        import pynvml

        pynvml.nvmlInit()
        number = int(pynvml.nvmlSystemGetCudaDriverVersion_v2())
        pynvml.nvmlShutdown()
        return number // 1000, number % 1000 // 10
    except Exception:  # no package, no library, no driver: each has its own class, and all mean the same here
        match = re.search(r"CUDA Version:\s*(\d+)\.(\d+)", outside.tool("nvidia-smi", seconds=20).text)
        return (int(match[1]), int(match[2])) if match else None


# -- memory, CPUs, limits


def _limit(name: str, seen: str, low: bool, problem: str, fix: str) -> Row:
    return warn(name, "limit", seen + problem, fix) if low else ok(name, seen)


def memory(planned: PlannedJob) -> Iterator[Row]:
    limits, host = machine_memory.limits(), machine_memory.host_memory().total
    limit = min(host, limits.memory or host)
    seen = f"{show_size(limit)} may be used"
    if limit < host:
        seen += f" (cgroup limit; free and top show the host's {show_size(host)})"
    used = limits.used or 0
    full = f", {show_size(used)} of it is in use"
    fix = "end what holds it: the kernel kills at the limit (exit code 137)"
    yield _limit("memory", seen, used > FULL * limit, full, fix)


def size(planned: PlannedJob) -> Iterator[Row]:
    """What hardware: of the job asks for, where nobody can choose another machine for it."""
    asked, allowed = planned.job.hardware, machine_memory.limits()
    total = min(machine_memory.host_memory().total, allowed.memory or machine_memory.host_memory().total)
    cores = min(len(os.sched_getaffinity(0)), allowed.cpus or len(os.sched_getaffinity(0)))
    if (least := units_size(str(asked.get("memory", "0")))) > total:
        seen = f"{show_size(total)} may be used, the job asks for {show_size(least)}"
        yield fail("memory", "limit", seen, "take a larger machine, or lower hardware.memory")
    if asked.get("cpus", 0) > cores:
        fix = "take a larger machine, or lower hardware.cpus"
        yield fail("cpus", "limit", f"{cores:g} may be used, the job asks for {asked['cpus']}", fix)


def cpus(planned: PlannedJob) -> Iterator[Row]:
    visible, quota = len(os.sched_getaffinity(0)), machine_memory.limits().cpus
    allowed = min(visible, quota or visible)
    threads = planned.environ.get("OMP_NUM_THREADS", "")
    seen = f"{visible} visible, {allowed:g} may be used" + (f", OMP_NUM_THREADS={threads}" if threads else "")
    each = max(1, math.floor(allowed / max(1, planned.job.gpus_per_node)))
    many = f" (cgroup quota): every process would start {visible} threads"
    fix = f"put OMP_NUM_THREADS: {each} into the job's env"
    yield _limit("cpus", seen, visible > math.ceil(allowed) and not threads, many, fix)


def shared_memory(planned: PlannedJob) -> Iterator[Row]:
    name = "/dev/shm"
    if planned.job.image:
        yield ok(name, f"the container gets its own: {planned.job.shm_size} (shm_size of the job)")
        return
    try:
        total = disks.room(name).total
    except OSError:
        yield fail(name, "limit", "it is not there", "mount -t tmpfs tmpfs /dev/shm, or docker run --shm-size=8g")
        return
    fix = "docker run --shm-size=8g (or --ipc=host); else num_workers=0"
    little = ": DataLoader workers die with a bus error when it is full"
    yield _limit(name, show_size(total), total < LITTLE_SHM, little, fix)


def limits(planned: PlannedJob) -> Iterator[Row]:
    """Too few descriptors break a job hours later."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    seen = f"ulimit -n is {'unlimited' if files == _ANY else files}"
    fix = "ulimit -n 65536 before the start; in a container: docker run --ulimit nofile=65536:65536"
    few = "; DataLoader workers need thousands"
    yield _limit("open files", seen, files != _ANY and files < FILES, few, fix)


def port(planned: PlannedJob) -> Iterator[Row]:
    if planned.job.nodes < 2:
        return
    number = planned.job.port
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as torch's store does: TIME_WAIT is free
        try:
            probe.bind(("", number))
        except OSError as error:
            fix = f"`ss -ltnp 'sport = :{number}'` names its owner; or choose another `port` in the job"
            yield fail("port", "port", f"{number} cannot be taken: {error.strerror}", fix)
            return
    yield ok("port", f"{number} is free (as seen on this node)")


def proxies(planned: PlannedJob) -> Iterator[Row]:
    names = ("http_proxy", "https_proxy", "all_proxy")
    active = {name: value for name, value in sorted(planned.environ.items()) if name.lower() in names and value}
    if not active:
        yield ok("proxies", "none set")
        return
    hosts = ", ".join(f"{name}={re.sub(r'//[^/@]*@', '//***@', value)}" for name, value in active.items())
    fix = f"unset {' '.join(active)} before the launch; keep it for the download only"
    yield warn("proxies", "proxy", f"{hosts}: the training process would inherit it", fix)


# -- every place the job writes to: room, inodes, a real write, and whether it outlives a stop


def written_places(planned: PlannedJob) -> Iterator[Row]:
    """Caches may be lost with the machine; the output, and what --write names, may not."""
    environ, home = planned.environ, Path(planned.environ.get("HOME") or os.path.expanduser("~"))
    cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    places = [("output", planned.output)] if planned.output else []
    places += [("write", path) for path in planned.write]
    places.append(("TMPDIR", Path(environ.get("TMPDIR") or tempfile.gettempdir())))
    places.append(("HF_HOME", Path(environ.get("HF_HOME") or cache / "huggingface")))
    if planned.spec and planned.workdir.is_dir():
        places.append(("workdir", planned.workdir))  # wandb/, outputs/ and lightning_logs/ are made there
    for name, path in places:
        yield _place(f"disk {name}", Path(os.path.abspath(path.expanduser())), keeps=name in ("output", "write"))


def output_place(planned: PlannedJob) -> Iterator[Row]:
    """Of the places, the one that a run directory is made in."""
    if planned.output:
        yield _place("disk output", Path(os.path.abspath(planned.output)), keeps=True)


def _place(name: str, path: Path, keeps: bool) -> Row:
    place = disks.nearest_existing(path)
    if not place.is_dir():
        return fail(name, "missing", f"{place} is a file, not a directory", "name a directory", str(path))
    mount = disks.mount_of(place, disks.mounts())
    kind = mount.fstype if mount else "unknown"
    problem, probe, room = None, place / f".preflight.{os.getpid()}", disks.room(place)
    try:  # write, sync, rename and remove a file
        files.write_bytes(probe, b"\0" * PROBE)
        probe.unlink()
    except (OSError, RgtError) as error:
        cause = error.__cause__ if isinstance(error, RgtError) else error
        problem = cause if isinstance(cause, OSError) else OSError(str(error))
    inodes = f", {room.inodes_free:,} inodes free" if room.inodes else ""
    seen = f"{path}: {show_size(room.free)} free{inodes} ({kind})"
    roomier = "free room there, or write elsewhere"
    fewer = "remove small files (`find -xdev | wc -l`), or pack the data into archives"
    if problem:
        full = problem.errno in (errno.ENOSPC, errno.EDQUOT)
        fix = roomier if full else "choose a place that can be written to"
        seen += f", but a write fails: {problem.strerror}"
        return fail(name, "no-space" if full else "missing", seen, fix, str(path))
    for level, least, fewest in ((fail, TOO_LITTLE, TOO_FEW), (warn, LITTLE, FEW)):
        if room.free < least or (room.inodes and room.inodes_free < fewest):
            return level(name, "no-space", seen, roomier if room.free < least else fewer, str(path))
    for kinds, what, fix in _VOLATILE:
        if keeps and kind in kinds:
            return warn(name, "volatile", f"{seen}: {what}", fix, str(path))
    return ok(name, seen + (", a network file system: slow for many small files" if kind in disks.NETWORK else ""))


def checkpoints(planned: PlannedJob) -> Iterator[Row]:
    """Kept ones and the one being written must fit; twice that is comfortable (a second run, a larger optimizer)."""
    if planned.output is None and not planned.write and planned.checkpoint_size is None:
        return
    target = planned.output or (planned.write[0] if planned.write else Path.cwd())
    size, source = planned.checkpoint_size, "--checkpoint-size"
    if size is None and (newest := newest_checkpoint(target)):
        size, source = newest.bytes, f"as {newest.path}"
    if not size:
        yield ok("checkpoints", "size unknown; no checkpoint is there yet, and --checkpoint-size was not given")
        return
    free, need = disks.room(disks.nearest_existing(target)).free, size * (planned.keep + 1)
    seen = f"{planned.keep} kept + 1 being written x {show_size(size)} ({source}) = {show_size(need)}, "
    seen += f"twice that to be safe; {show_size(free)} free at {target}"
    fix = f"keep fewer, save without the optimizer, or free {show_size(max(1, 2 * need - free))}"
    level = fail if free < need else warn
    yield ok("checkpoints", seen) if free >= 2 * need else level("checkpoints", "no-space", seen, fix, str(target))


CHECKS = (
    interpreter,
    gpus,
    card_health,
    triangle,
    memory,
    cpus,
    shared_memory,
    limits,
    port,
    proxies,
    written_places,
    checkpoints,
)
