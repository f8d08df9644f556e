"""What the scorers share: the rows of labels.jsonl, a tool asked about each of them, the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from rgt import cli  # noqa: E402

import click  # noqa: E402

Row = dict[str, Any]
T = TypeVar("T")


def command(shown: str) -> Callable[[Callable[..., None]], click.Command]:
    """A scorer of FOLDER, with --show."""

    def made(score: Callable[..., None]) -> click.Command:
        folder = click.argument("folder", type=click.Path(path_type=Path, exists=True))
        return click.command(cls=cli.Command)(folder(click.option("--show", is_flag=True, help=shown)(score)))

    return made


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def asked(ask: Callable[[Path, Row], T], folder: Path) -> Iterator[tuple[Row, T]]:
    """Every row of FOLDER/labels.jsonl with its answer."""
    rows = read(folder / "labels.jsonl")
    with ThreadPoolExecutor(2) as pool:
        yield from zip(rows, pool.map(lambda row: ask(folder, row), rows), strict=True)


def answer(tool: str, *words: object, cwd: Path | None = None) -> Row:
    """What the tool says with --json; `error` is the end of what it said instead."""
    command = [sys.executable, str(ROOT / "scripts" / f"{tool}.py"), *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    try:
        said: Row = json.loads(done.stdout)
    except ValueError:
        return {"findings": [], "error": done.stderr.strip()[-300:]}
    return said
