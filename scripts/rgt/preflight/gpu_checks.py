"""The interpreter, the GPUs, and the triangle of driver, CUDA build of torch and card: three versions, one verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rgt import units
from rgt.job.audit import PlannedJob, Row, fail, ok, warn
from rgt.machine import gpus as gpu
from rgt.machine import outside

Version = tuple[int, int]
_ARCH = re.compile(r"(sm|compute)_(\d+)([af]?)")


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
        names = [f"{c.name} {units.show_size(c.memory_total)}" if c.memory_total else c.name for c in usable]
        kinds = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
        busy = ", ".join(str(card.index) for card in usable if card.processes)
        driver = f", driver {reading.driver}" if reading.driver else ""
        yield ok("gpus", kinds + (f", in use: {busy}" if busy else "") + driver)


def card_health(planned: PlannedJob) -> Iterator[Row]:
    """Too little memory, memory that errs, a card that is slowed down."""
    least = units.size(planned.job.hardware.get("min_gpu_memory", "0"))
    for card in planned.usable_cards:
        where = f"GPU {card.index}"
        if card.memory_total is not None and card.memory_total < least * 0.9:  # an "80GB" card has a little less
            seen = f"{where} has {units.show_size(card.memory_total)}, the job asks for {units.show_size(least)}"
            yield fail("gpu memory", "gpu", seen, "take a larger card, or lower hardware.min_gpu_memory")
        if card.ecc_errors:
            seen = f"{where}: {card.ecc_errors} uncorrected memory errors since the driver was loaded"
            yield warn("gpu memory", "gpu", seen, "reset the card, or take another machine: results may be wrong")
        if hot := ", ".join(word for word in card.slowdown if "thermal" in word or word.startswith("hw_")):
            yield warn("gpu clocks", "gpu", f"{where}: {hot}", "cooling or power of the machine; it will be slow")


# -- the triangle


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


CHECKS = (interpreter, gpus, card_health, triangle)
