"""The interpreter, the GPUs, and the triangle of driver, CUDA build of torch and card: three versions, one verdict."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rgt import units
from rgt.job.audit import PlannedJob, Row, fail, ok, warn
from rgt.machine import disks, outside
from rgt.machine import gpus as gpu

Version = tuple[int, ...]
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
    facts = python.facts
    seen = f"{facts['executable']} ({facts['version']})"
    system = facts["prefix"] == facts["base_prefix"] and facts["prefix"] in ("/usr", "/usr/local")
    other = shutil.which("python", path=planned.environ.get("PATH")) or shutil.which("python3")
    if own := python.other_environment(planned.workdir):
        fix = f"python: {own / 'bin' / 'python'} in the job"
        yield warn(name, name, f"{seen}, but the job's directory has {own.name}", fix)
    elif facts.get("conda") and facts.get("base"):
        fix = "conda create -n train python=3.11, and name its python in the job"
        yield warn(name, name, f"{seen}: conda's base environment, which every install changes", fix)
    elif system and not facts.get("conda") and not disks.is_container():
        fix = "python3 -m venv .venv, and python: .venv/bin/python in the job"
        yield warn(name, name, f"{seen}: the system's Python", fix)
    elif planned.spec and other and Path(other).parent != Path(facts["executable"]).parent:
        yield ok(name, f"{seen}; a shell's python here is {other}")
    else:
        yield ok(name, seen)


def gpus(planned: PlannedJob) -> Iterator[Row]:
    reading, wanted, mask = planned.reading, planned.job.gpus_per_node, planned.environ.get("CUDA_VISIBLE_DEVICES")
    level = fail if wanted else warn
    if not reading.gpus and reading.problem:
        fix = "`nvidia-smi` must work first; after a driver update: reboot; in a container: docker run --gpus all"
        yield level("gpus", "gpu", reading.problem, fix)
    elif not reading.gpus and wanted:
        fix = "take a machine with GPUs; in a container: docker run --gpus all"
        yield fail("gpus", "gpu", f"none here, the job asks for {wanted}", fix)
    elif not reading.gpus:
        yield ok("gpus", "none here, none asked for")
    if not reading.gpus:
        return
    usable, here = planned.usable_cards, len(reading.gpus)
    lost = [card for card in reading.gpus if card.error]
    level = fail if wanted > len(usable) else warn
    for card in lost:
        fix = "reset or reboot (`dmesg | grep Xid` tells why); on a rented machine: take another one"
        yield level("gpus", "gpu", f"GPU {card.index}: {card.error}", fix)
    if wanted <= len(usable) or (lost and wanted <= len(usable) + len(lost)):
        names = [f"{c.name} {units.show_size(c.memory_total)}" if c.memory_total else c.name for c in usable]
        kinds = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or "none visible"
        busy = ", ".join(str(card.index) for card in usable if card.processes)
        driver = f", driver {reading.driver}" if reading.driver else ""
        yield ok("gpus", kinds + (f", in use: {busy}" if busy else "") + driver)
    elif mask is not None and here >= wanted:
        seen = f"{len(usable)} of {here} visible (CUDA_VISIBLE_DEVICES={mask!r}), the job asks for {wanted}"
        yield fail("gpus", "gpu", seen, "unset CUDA_VISIBLE_DEVICES, or correct it in the job's env")
    else:
        fix = "lower gpus_per_node, or take a machine with more"
        yield fail("gpus", "gpu", f"{len(usable)} here, the job asks for {wanted}", fix)


def card_health(planned: PlannedJob) -> Iterator[Row]:
    """Too little memory, memory that errs, a card that is slowed down."""
    least = units.size(planned.hardware("min_gpu_memory"))
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
        yield Triangle(torch, cards, driver_cuda() if cards else None, planned.job.gpus_per_node).verdict()


@dataclass
class Triangle:
    torch: dict[str, Any]  # as the job's interpreter describes it
    cards: list[gpu.Gpu]
    driver: Version | None  # the newest CUDA the driver knows
    wanted: int = 0

    def verdict(self) -> Row:
        """The first cause that explains everything after it."""
        torch, name, works = self.torch, f"torch {self.torch['version']}", self.torch["available"]
        if torch["hip"]:
            return ok("torch", f"{name} for ROCm {torch['hip']}, available: {works}")
        if not torch["cuda"] and (self.cards or self.wanted):
            fix = "install the torch build of this machine's CUDA version (cu<version>); pytorch.org lists them"
            return fail("torch", "cuda", f"{name} is a CPU-only build: it will never see a GPU", fix)
        if not torch["cuda"]:
            return ok("torch", f"{name}, a CPU-only build; no GPU asked for")
        if not self.cards and not works:
            return ok("torch", f"{name}, built for CUDA {torch['cuda']}; no card here to try it on")
        built, driver = tuple(int(part) for part in str(torch["cuda"]).split(".")[:2]), self.driver
        # within a major version a newer CUDA runs on an older driver; across it only with the compatibility package
        if driver and built[0] > driver[0] and not works:
            seen = f"{name} is built for CUDA {_dots(built)}, the driver ends at CUDA {_dots(driver)}"
            fix = f"install a torch built for CUDA {driver[0]}.x, or take a machine with a newer driver"
            return fail("torch", "cuda", seen, fix)
        for card in self.cards:
            if row := self._without_kernel(card, name, built):
                return row
        if not works:
            said = " ".join(str(torch["error"]).split())[:200] or "torch.cuda.is_available() is False"
            fix = "versions fit: look at docker run --gpus all, CUDA_VISIBLE_DEVICES, rights of /dev/nvidia*; reboot"
            return fail("torch", "cuda", f"{name} sees no card: {said}", fix)
        newest = f", driver for CUDA {_dots(driver)}" if driver else ""
        caps = ", ".join(sorted({_sm(card) for card in self.cards if card.compute_cap})) or "unknown"
        return ok("torch", f"{name}, built for CUDA {_dots(built)}{newest}, cards {caps}: they fit")

    def _without_kernel(self, card: gpu.Gpu, name: str, built: Version) -> Row | None:
        archs, driver = self.torch["arch"], self.driver
        how, too_new = runs(card.compute_cap, archs), driver is not None and built > driver
        if how == "no" or (how == "ptx" and too_new):
            seen = f"no kernel image for {card.name} ({_sm(card)}): {name} has {' '.join(archs)}"
            if how == "ptx":
                seen += f", and the driver (CUDA {_dots(driver)}) cannot compile PTX of CUDA {_dots(built)}"
            newest = max((int(match[2]) for text in archs if (match := _ARCH.fullmatch(text))), default=0)
            age = "a newer" if _capability(card.compute_cap) > newest else "an older"
            return fail("torch", "cuda", seen, f"install {age} torch whose torch.cuda.get_arch_list() has this card")
        if how == "ptx":
            seen = f"{name} has no kernels for {card.name} ({_sm(card)}), only PTX: minutes of compiling at first"
            return warn("torch", "cuda", seen, f"install a build that lists {_sm(card)}")
        return None


def _dots(version: Version | None) -> str:
    return ".".join(map(str, version or ()))


def _sm(card: gpu.Gpu) -> str:
    return f"sm_{(card.compute_cap or '').replace('.', '')}"


def _capability(text: str | None) -> int:
    """As CUDA writes it in names: 8.6 is 86."""
    major, _, minor = (text or "0.0").partition(".")
    return int(major) * 10 + int(minor or 0)


def runs(compute_cap: str | None, archs: list[str]) -> str:
    """'yes' by a kernel of the same major and no newer minor, 'ptx' by compiling older PTX, 'no', or '?'."""
    matches = [match for text in archs if (match := _ARCH.fullmatch(text))]
    if not compute_cap or not matches:
        return "?"
    card = _capability(compute_cap)
    for kind, number, suffix in (match.groups() for match in matches):
        same = int(number) // 10 == card // 10 and int(number) <= card
        if kind == "sm" and same and (suffix != "a" or int(number) == card):  # sm_90a runs on 9.0 only
            return "yes"
    return "ptx" if any(m[1] == "compute" and not m[3] and int(m[2]) <= card for m in matches) else "no"


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
