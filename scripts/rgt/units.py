"""Durations and sizes as people type them, and text of strangers as a terminal may have it.

Example:
    duration("1h30m") == duration("90m") == duration("1:30:00") == 5400.0      a bare number is seconds
    duration("1-02:03:04")                                                     days first, as Slurm prints it
    size("16GiB") == size("16G") == 16 * 2**30      size("16GB") == 16 * 10**9      a bare number is bytes
"""

from __future__ import annotations

import math
import re

from rgt.errors import bad_input

_SECONDS = {"w": 604800.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "min": 60.0, "s": 1.0, "sec": 1.0, "ms": 0.001}
_LONGEST = 60  # characters; longer is no unit, and would make the patterns slow
# ASCII: without it re.I lets "ſ" pass as s and "ı" as i
_NUMBER = r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+"
_PART = re.compile(rf"({_NUMBER})\s*(ms|min|sec|w|d|h|m|s)\s*", re.I | re.A)
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):([0-5]?\d)(?::([0-5]?\d(?:\.\d+)?))?", re.A)
_PREFIXES = "kmgtp"
_BINARY = ("KiB", "MiB", "GiB", "TiB", "PiB")
_SIZE = re.compile(rf"({_NUMBER})\s*([{_PREFIXES}]?)(i?)(b?)", re.I | re.A)


def duration(text: str) -> float:
    """Seconds; raises a sentence for anything else."""
    short = text.strip() if len(text) <= _LONGEST else ""
    if re.fullmatch(_NUMBER, short):
        return float(short)
    if clock := _CLOCK.fullmatch(short):
        days, first, second, third = clock.groups()
        # 1:30:00 is hours first; 1:30 is minutes:seconds; with days (1-02:03) it is hours:minutes, as in Slurm
        if third is None and days is None:
            return float(first) * 60 + float(second)
        return float(days or 0) * 86400 + float(first) * 3600 + float(second) * 60 + float(third or 0)
    parts = _PART.findall(short)
    if not parts or _PART.sub("", short):
        raise bad_input(f"{_shown(text)} is not a duration; write it like 90, 90s, 30m, 1h30m, 2d or 1:30:00")
    return sum(float(number) * _SECONDS[unit.lower()] for number, unit in parts)


def _shown(text: str) -> str:
    return repr(text if len(text) <= _LONGEST else text[:_LONGEST] + "...")


def size(text: str) -> int:
    """Bytes; raises a sentence for anything else."""
    match = _SIZE.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if not match or (match[3] and not match[2]):
        raise bad_input(f"{_shown(text)} is not a size; write it like 500M, 16GiB or 16GB")
    number, prefix, binary, byte = match.groups()
    # "16G" means GiB to docker, ulimit and tmpfs; only the spelt-out "GB" is decimal
    base = 1000 if byte and not binary else 1024
    power = _PREFIXES.find(prefix.lower()) + 1 if prefix else 0
    return round(float(number) * math.pow(base, power))


def show_duration(seconds: float) -> str:
    """Two units at most: 0.4s, 59s, 1m30s, 2h05m, 3d04h."""
    if seconds < 0:
        return "-" + show_duration(-seconds)
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def show_size(count: float) -> str:
    """Binary units, three digits: 512 B, 1.5 KiB, 13.5 GiB."""
    if abs(count) < 1024:
        return f"{round(count)} B"
    power = min(len(_BINARY) - 1, int(math.log(abs(count), 1000)) - 1)
    value = count / 1024 ** (power + 1)
    return f"{value:.3g} {_BINARY[power]}" if abs(value) < 999.5 else f"{value:.0f} {_BINARY[power]}"


# everything that moves the cursor, rings, retitles or turns the writing around, but for newline and tab
_UNSEEN = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def show_text(text: str) -> str:
    """Text of strangers for a terminal: control characters are shown, not sent."""
    return _UNSEEN.sub(lambda sign: ascii(sign[0])[1:-1], text)


def show_json(text: str) -> str:
    """The same for JSON, which reads back as it was."""
    return _UNSEEN.sub(lambda sign: f"\\u{ord(sign[0]):04x}", text)
