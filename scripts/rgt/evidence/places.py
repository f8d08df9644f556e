"""The places that a claim names: documents that state it, lines of code that computed it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt.errors import bad_input

_LARGEST = 1 << 24  # bytes; more is no source file and no document


def problems(root: Path, claim: dict[str, Any]) -> Iterator[str]:
    """One sentence for each document or line that is not there, or not the one that was meant."""
    for anchor in claim.get("anchors", []):
        name, _, part = anchor.partition("#")
        if not (root / name).is_file():
            yield f"{name} does not exist"
        elif part and not _has_part(root / name, part):
            yield f"{name} has no heading, id or label {part!r}"
    for place in claim.get("code", []):
        yield from _code_problems(root, place, claim.get("code_text", {}).get(place))


def _has_part(path: Path, part: str) -> bool:
    """An id, a label, or a heading as GitHub links to it: lower case, without signs, spaces as dashes."""
    text = "\n".join(_lines(path))
    if not text:
        return True  # no text: what is in a PDF or a slide deck is not looked up
    named = rf"""(id|name)=["']?{re.escape(part)}["'\s>]|\\label\{{{re.escape(part)}\}}|\{{#{re.escape(part)}\}}"""
    headings = re.findall(r"^#{1,6}\s+(.+?)\s*#*$", text, re.M)
    slugs = {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}
    return part.lower() in slugs or re.search(named, text) is not None


def code_text(root: Path, places: list[str]) -> dict[str, str]:
    """What stands on these lines now."""
    return {place: _lines(root / name)[line - 1].strip() for place in places for name, line in [_parts(place)]}


def _code_problems(root: Path, place: str, remembered: str | None) -> Iterator[str]:
    name, line = _parts(place)
    if not (root / name).is_file():
        yield f"{name} does not exist"
        return
    lines = [text.strip() for text in _lines(root / name)]
    if remembered is None:
        if not 0 < line <= len(lines):
            yield f"{name} has {len(lines)} lines, not {line}"
    elif not 0 < line <= len(lines) or lines[line - 1] != remembered:
        now = [str(number) for number, text in enumerate(lines, 1) if text == remembered]
        moved = (
            f"moved to {name}:{now[0]}"
            if len(now) == 1
            else f"is now at lines {', '.join(now[:5])}"
            if now
            else "is gone"
        )
        yield f"the line of {place} {moved}: {remembered[:80]}"


def _parts(place: str) -> tuple[str, int]:
    name, _, line = place.rpartition(":")
    if not name or not line.isdecimal():
        raise bad_input(f"{place} is no file:line")
    return name, int(line)


def _lines(path: Path) -> list[str]:
    if path.stat().st_size > _LARGEST:
        return []
    data = path.read_bytes()
    return [] if b"\0" in data else data.decode("utf-8", "replace").splitlines()
