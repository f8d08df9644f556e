"""GPUs, and the triangle of driver, CUDA build of torch and card: three versions, one verdict."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from checks import Check, Plan, fail, ok, python, warn
from rgt import gpu, units

Version = tuple[int, ...]
_ARCH = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")


def gpus(plan: Plan) -> Iterator[Check]:
    reading, wanted = gpu.read(), plan.gpus
    if not reading.gpus:
        yield _none(reading, wanted)
        return
    usable = [card for card in visible(reading.gpus, plan.environ.get("CUDA_VISIBLE_DEVICES")) if not card.error]
    lost = [card for card in reading.gpus if card.error]
    for card in lost:
        level = fail if wanted > len(usable) else warn
        fix = "reset or reboot (`dmesg | grep Xid` tells why); on a rented machine: take another one"
        yield level("gpus", "gpu", f"GPU {card.index}: {card.error}", fix)
    if len(usable) < wanted and not (lost and len(usable) + len(lost) >= wanted):
        yield _hidden(plan, len(reading.gpus), len(usable), wanted)
    else:
        yield ok("gpus", _list(usable) + (f", driver {reading.driver}" if reading.driver else ""))
    yield from _unfit(plan, usable)


def _none(reading: gpu.Reading, wanted: int) -> Check:
    if reading.problem:
        level = fail if wanted else warn
        fix = "`nvidia-smi` must work first; after a driver update: reboot; in a container: docker run --gpus all"
        return level("gpus", "gpu", reading.problem, fix)
    if wanted:
        fix = "take a machine with GPUs; in a container: docker run --gpus all"
        return fail("gpus", "gpu", f"none here, the job asks for {wanted}", fix)
    return ok("gpus", "none here, none asked for")


def visible(cards: list[gpu.Gpu], mask: str | None) -> list[gpu.Gpu]:
    """As CUDA reads CUDA_VISIBLE_DEVICES: the first word that is no device ends the list."""
    if mask is None:
        return cards
    found = []
    for word in (part.strip() for part in mask.split(",")):
        match = [c for c in cards if word == str(c.index) or (word.startswith("GPU-") and c.uuid.startswith(word))]
        if not match:
            break
        found.append(match[0])
    return found


def _hidden(plan: Plan, here: int, usable: int, wanted: int) -> Check:
    mask = plan.environ.get("CUDA_VISIBLE_DEVICES")
    if mask is not None and here >= wanted:
        seen = f"{usable} of {here} visible (CUDA_VISIBLE_DEVICES={mask!r}), the job asks for {wanted}"
        return fail("gpus", "gpu", seen, "unset CUDA_VISIBLE_DEVICES, or correct it in the job's env")
    fix = "lower gpus_per_node, or take a machine with more"
    return fail("gpus", "gpu", f"{usable} here, the job asks for {wanted}", fix)


def _list(cards: list[gpu.Gpu]) -> str:
    names = [f"{card.name} {units.show_size(card.memory_total)}" if card.memory_total else card.name for card in cards]
    kinds = [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)]
    busy = [str(card.index) for card in cards if card.processes]
    return ", ".join(kinds or ["none visible"]) + (f", in use: {', '.join(busy)}" if busy else "")


def _unfit(plan: Plan, cards: list[gpu.Gpu]) -> Iterator[Check]:
    """Too little memory, memory that errs, a card that is slowed down."""
    least = units.size(str(plan.job.hardware.get("min_gpu_memory", "0"))) if plan.job else 0
    for card in cards:
        if card.memory_total is not None and card.memory_total < least * 0.9:  # an "80GB" card has a little less
            seen = (
                f"GPU {card.index} has {units.show_size(card.memory_total)}, the job asks for {units.show_size(least)}"
            )
            yield fail("gpu memory", "gpu", seen, "take a larger card, or lower hardware.min_gpu_memory")
        if card.ecc_errors:
            seen = f"GPU {card.index}: {card.ecc_errors} uncorrected memory errors since the driver was loaded"
            yield warn("gpu memory", "gpu", seen, "reset the card, or take another machine: results may be wrong")
        hot = [word for word in card.slowdown if "thermal" in word or word.startswith("hw_")]
        if hot:
            seen = f"GPU {card.index}: {', '.join(hot)}"
            yield warn("gpu clocks", "gpu", seen, "cooling or power of the machine; it will be slow")


# -- the triangle


@dataclass
class Triangle:
    torch: dict[str, Any]
    cards: list[gpu.Gpu]
    cuda: Version | None  # the newest CUDA the driver knows
    wanted: int = 0

    @property
    def built(self) -> Version:
        return tuple(int(part) for part in str(self.torch["cuda"]).split(".")[:2])

    @property
    def name(self) -> str:
        return f"torch {self.torch['version']}"


def triangle(plan: Plan) -> Iterator[Check]:
    answer = python.ask(plan)
    if answer is None or answer.facts is None:
        return
    torch = answer.facts.get("torch")
    reading = gpu.read()
    cards = [card for card in visible(reading.gpus, plan.environ.get("CUDA_VISIBLE_DEVICES")) if not card.error]
    if torch is None:
        yield _no_torch(answer.facts, plan.gpus)
    elif "problem" in torch:
        fix = "install it anew in that environment; the last line names the library that is missing"
        yield fail("torch", "interpreter", f"does not import: {torch['problem']}", fix)
    else:
        yield verdict(Triangle(torch, cards, driver_cuda() if cards else None, plan.gpus))


def _no_torch(facts: dict[str, Any], wanted: int) -> Check:
    seen = f"not installed in {facts['executable']}"
    if wanted:
        return warn("torch", "interpreter", seen, "install it there, or name the right python in the job")
    return ok("torch", seen)


def verdict(the: Triangle) -> Check:
    """The first cause that explains everything after it."""
    if the.torch["hip"]:
        return ok("torch", f"{the.name} for ROCm {the.torch['hip']}, available: {the.torch['available']}")
    if not the.torch["cuda"]:
        return _cpu_build(the)
    if not the.cards and not the.torch["available"]:
        return ok("torch", f"{the.name}, built for CUDA {the.torch['cuda']}; no card here to try it on")
    return _old_driver(the) or _no_kernel(the) or _not_available(the) or ok("torch", _fits(the))


def _cpu_build(the: Triangle) -> Check:
    if the.cards or the.wanted:
        fix = "install the torch build of this machine's CUDA version (cu<version>); pytorch.org lists them"
        return fail("torch", "cuda", f"{the.name} is a CPU-only build: it will never see a GPU", fix)
    return ok("torch", f"{the.name}, a CPU-only build; no GPU asked for")


def _old_driver(the: Triangle) -> Check | None:
    """Within a major version a newer CUDA runs on an older driver; across it only with the compatibility package."""
    if the.cuda is None or the.built[0] <= the.cuda[0] or the.torch["available"]:
        return None
    seen = f"{the.name} is built for CUDA {_dots(the.built)}, the driver ends at CUDA {_dots(the.cuda)}"
    fix = f"install a torch built for CUDA {the.cuda[0]}.x (cu{the.cuda[0]}...), or take a machine with a newer driver"
    return fail("torch", "cuda", seen, fix)


def _no_kernel(the: Triangle) -> Check | None:
    for card in the.cards:
        how = runs(card.compute_cap, the.torch["arch"])
        late = the.cuda is not None and the.built > the.cuda
        arch = f"sm_{(card.compute_cap or '').replace('.', '')}"
        if how == "no" or (how == "ptx" and late):
            seen = f"no kernel image for {card.name} ({arch}): {the.name} has {' '.join(the.torch['arch'])}"
            if how == "ptx":
                seen += f", and the driver (CUDA {_dots(the.cuda)}) cannot compile PTX of CUDA {_dots(the.built)}"
            return fail("torch", "cuda", seen, _other_build(card, the.torch["arch"]))
        if how == "ptx":
            seen = (
                f"{the.name} has no kernels for {card.name} ({arch}), only PTX: minutes of compiling at the first start"
            )
            return warn("torch", "cuda", seen, f"install a build that lists {arch}")
    return None


def _other_build(card: gpu.Gpu, archs: list[str]) -> str:
    newest = max((_number(match) for text in archs if (match := _ARCH.fullmatch(text))), default=0)
    age = "newer" if _capability(card.compute_cap) > newest else "older"
    return f"install {'a' if age == 'newer' else 'an'} {age} torch whose torch.cuda.get_arch_list() has this card"


def _not_available(the: Triangle) -> Check | None:
    if the.torch["available"]:
        return None
    said = " ".join(str(the.torch["error"]).split())[:200] or "torch.cuda.is_available() is False"
    fix = (
        "versions fit, so it is the access: docker run --gpus all, CUDA_VISIBLE_DEVICES, /dev/nvidia* rights, a reboot"
    )
    return fail("torch", "cuda", f"{the.name} sees no card: {said}", fix)


def _fits(the: Triangle) -> str:
    driver = f", driver for CUDA {_dots(the.cuda)}" if the.cuda else ""
    caps = sorted({f"sm_{card.compute_cap.replace('.', '')}" for card in the.cards if card.compute_cap})
    return f"{the.name}, built for CUDA {_dots(the.built)}{driver}, cards {', '.join(caps) or 'unknown'}: they fit"


def _dots(version: Version | None) -> str:
    return ".".join(map(str, version or ()))


def runs(compute_cap: str | None, archs: list[str]) -> str:
    """'yes' by a kernel of the same major and no newer minor, 'ptx' by compiling older PTX, 'no', or '?'."""
    matches = [match for text in archs if (match := _ARCH.fullmatch(text))]
    if not compute_cap or not matches:
        return "?"
    card = _capability(compute_cap)
    for match in matches:
        same = _number(match) // 10 == card // 10 and _number(match) <= card
        exact = match[4] != "a" or _number(match) == card  # sm_90a runs on 9.0 only
        if match[1] == "sm" and same and exact:
            return "yes"
    return "ptx" if any(m[1] == "compute" and not m[4] and _number(m) <= card for m in matches) else "no"


def _number(match: re.Match[str]) -> int:
    return int(match[2]) * 10 + int(match[3])


def _capability(text: str | None) -> int:
    major, _, minor = (text or "0.0").partition(".")
    return int(major) * 10 + int(minor or 0)


def driver_cuda() -> Version | None:
    """The newest CUDA this driver can run."""
    return _cuda_by_nvml() or _cuda_by_smi()


def _cuda_by_nvml() -> Version | None:
    try:
        import pynvml

        pynvml.nvmlInit()
        number = int(pynvml.nvmlSystemGetCudaDriverVersion_v2())
        pynvml.nvmlShutdown()
    except Exception:  # no package, no library, no driver: each has its own class, and all mean the same here
        return None
    return number // 1000, number % 1000 // 10


def _cuda_by_smi() -> Version | None:
    if not shutil.which("nvidia-smi"):
        return None
    try:
        text = subprocess.run(["nvidia-smi"], capture_output=True, text=True, errors="replace", timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"CUDA Version:\s*(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


CHECKS = [gpus, triangle]
