"""Cards by name, and which CUDA build runs on which card and driver: one table, asked before renting.

Example:
    lookup("NVIDIA H100 80GB HBM3")                                  Sheet("H100", 989e12, 80, "9.0")
    problems("pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime", "B200", "550.54")      sentences; none when it fits

Sources, verified: 2026-11:
    compute capability  https://developer.nvidia.com/cuda-gpus and /cuda-legacy-gpus
    oldest driver       https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html (one per
                        major version), https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/
    kernels of a build  https://github.com/pytorch/pytorch/blob/main/RELEASE.md (support matrix), pulls 147607 (torch
                        2.7: 12.8 without Volta) and 158301 (2.8: with it), issue 172352 (2.11: without it again)
Peaks and memory are from NVIDIA's data sheets, NGC's CUDA is a lower bound; neither could be read again then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Dense peak of 16-bit matrix products with fp32 accumulation (V100, T4, P100: fp16), memory, compute capability
_SHEETS = """
    B200=2250e12/180/10.0 H200=989e12/141/9.0 H100=989e12/80/9.0 A100=312e12/80/8.0
    L40S=362e12/48/8.9 A6000=155e12/48/8.6 A10=125e12/24/8.6 L4=121e12/24/8.9 5090=209e12/32/12.0 4090=165e12/24/8.9
    3090=71e12/24/8.6 V100=125e12/32/7.0 T4=65e12/16/7.5 P100=18.7e12/16/6.0
"""
# major CUDA -> oldest driver on Linux
_DRIVERS = {11: (450, 80), 12: (525, 60), 13: (580, 65)}
# from this CUDA build of torch on: the oldest and the newest card its kernels are for
_BUILDS = {(11, 0): ("3.7", "8.6"), (11, 8): ("3.7", "9.0"), (12, 0): ("5.0", "9.0"), (12, 8): ("7.0", "12.1")}
_BUILDS |= {(13, 0): ("7.5", "12.1")}
_NGC = {24: (12, 3), 25: (12, 8), 26: (13, 1)}  # nvcr.io/nvidia/pytorch:YY.MM, at the least


@dataclass(frozen=True)
class Sheet:
    name: str
    flops: float
    gibibytes: int
    compute_cap: str


SHEETS: dict[str, Sheet] = {}
for _name, _flops, _gibibytes, _cap in (re.split("[=/]", pair) for pair in _SHEETS.split()):
    SHEETS[_name] = Sheet(_name, float(_flops), int(_gibibytes), _cap)


def lookup(name: str) -> Sheet | None:
    found = (key for key in SHEETS if re.search(rf"(?<![A-Z0-9]){key}(?![0-9])", name.upper().replace("RTX", "RTX ")))
    return SHEETS.get(next(found, ""))


def versions(image: str) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """CUDA and torch of an image, as far as its name says."""
    cuda = re.search(r"(?:cuda|cu)[-_:]?(\d{2})\.?(\d)", image)
    torch = re.search(r"(?:py)?torch[:/-][\w/-]*?:?(\d)\.(\d{1,2})", image)
    ngc = re.search(r"nvcr\.io/nvidia/pytorch:(\d\d)\.\d\d", image)
    named = re.search(r"nvidia/cuda:(\d{2})\.(\d)", image)
    built = cuda or named
    known = (int(built[1]), int(built[2])) if built else _NGC.get(int(ngc[1])) if ngc else None
    return known, (int(torch[1]), int(torch[2])) if torch and not ngc else None


def driver_for(cuda: tuple[int, int]) -> str:
    least = _DRIVERS.get(cuda[0])
    return f"{least[0]}.{least[1]}" if least else "unknown"


def problems(image: str, card: str, driver: str = "") -> list[str]:
    """Why an image will not run there. Empty also when the names do not tell: see `versions`."""
    cuda, torch = versions(image)
    sheet, told = lookup(card), []
    if not cuda:
        return []
    text = f"{cuda[0]}.{cuda[1]}"
    if sheet:
        oldest, newest = next((_BUILDS[key] for key in sorted(_BUILDS, reverse=True) if key <= cuda), ("", ""))
        if torch and cuda >= (12, 8) and (torch == (2, 7) or torch >= (2, 11)):  # between them it had Volta
            oldest = "7.5"
        if newest and not float(oldest) <= float(sheet.compute_cap) <= float(newest):
            kernels = f"torch built for CUDA {text} has kernels for compute capability {oldest} to {newest}"
            told.append(f"{image} does not run on {sheet.name} ({sheet.compute_cap}): {kernels}")
    least = _DRIVERS.get(cuda[0])
    have = tuple(int(part) for part in re.findall(r"\d+", driver)[:2])
    if have and least and have < least[: len(have)]:
        told.append(f"CUDA {text} of {image} wants driver {least[0]}.{least[1]} or newer, offered is {driver}")
    return told
