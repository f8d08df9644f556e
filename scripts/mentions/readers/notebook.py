"""Jupyter notebooks: Markdown cells and what the code cells printed. Lines are those of the .ipynb file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mentions.passages import Block, Passage, plain
from mentions.readers import html, markdown, text_of
from rgt.errors import bad_input


def read(path: Path) -> Iterator[Block]:
    text = text_of(path)
    try:
        cells = json.loads(text)["cells"]
        parts = [part for number, cell in enumerate(cells, 1) for part in _parts(number, cell)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise bad_input(f"{path} is not a notebook: expected JSON with `cells`") from None
    places = _Places(text)
    for where, kind, source in parts:
        yield from _blocks(where, kind, source, places)


def _parts(number: int, cell: dict[str, Any]) -> Iterator[tuple[str, str, list[str]]]:
    """(where, kind of text, its lines)"""
    if cell["cell_type"] == "markdown":
        yield f"cell {number}", "markdown", _lines(cell["source"])
    for output in cell.get("outputs", []):
        if "text" in output:
            yield f"output of cell {number}", "markdown", _lines(output["text"])
        data = output.get("data", {})
        kind = next((kind for kind in ("text/markdown", "text/html", "text/plain") if kind in data), None)
        if kind:
            yield f"output of cell {number}", "html" if kind == "text/html" else "markdown", _lines(data[kind])


def _lines(source: str | list[str]) -> list[str]:
    return "".join(source).splitlines(keepends=True)


def _blocks(where: str, kind: str, source: list[str], places: _Places) -> Iterator[Block]:
    numbers = [places.next(line) for line in source]
    text = "".join(source)
    reader = html.blocks if kind == "html" else markdown.blocks
    for block in reader(plain(text), 1, where):
        if isinstance(block, Passage):
            block.line = _at(numbers, block.line)
        else:
            for row in block.rows:
                for cell in row:
                    cell.line = _at(numbers, cell.line)
        yield block


def _at(numbers: list[int], line: int) -> int:
    return numbers[min(line, len(numbers)) - 1] if line <= 10**6 and numbers else 1


class _Places:
    """Where each line of a cell stands in the file: looked for from where the last one was found."""

    def __init__(self, text: str) -> None:
        self.text, self.offset, self.line = text, 0, 1

    def next(self, line: str) -> int:
        for written in (json.dumps(line.rstrip("\n"), ensure_ascii=False)[1:-1], json.dumps(line.rstrip("\n"))[1:-1]):
            found = self.text.find(written, self.offset) if written.strip() else -1
            if found >= 0:
                self.line += self.text.count("\n", self.offset, found)
                self.offset = found
                break
        return self.line
