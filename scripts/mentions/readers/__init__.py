"""A document -> its passages and tables. One module per kind of file; each has read(path) -> iterator of blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from mentions.passages import Block, with_leads
from rgt.errors import bad_input, from_os_error

KINDS = {
    ".md": "markdown", ".markdown": "markdown", ".rst": "markdown", ".txt": "markdown", ".tex": "latex",
    ".csv": "sheet", ".tsv": "sheet", ".html": "html", ".htm": "html", ".ipynb": "notebook",
    ".docx": "office", ".pptx": "office",
}  # fmt: skip
MAX_BYTES = 256 * 2**20  # a document; whatever is larger is data


def read(path: Path) -> Iterator[Block]:
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        raise bad_input(f"{path} is not a document this reads: {' '.join(KINDS)}")
    reader: Callable[[Path], Iterator[Block]] = import_module(f"mentions.readers.{kind}").read
    return with_leads(reader(path))


def text_of(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise bad_input(f"{path} has more than {MAX_BYTES >> 20} MB: that is data, not a document")
        raw = path.read_bytes()
    except OSError as error:
        raise from_os_error(error, f"read {path}") from None
    if b"\x00" in raw[:4096] and not raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise bad_input(f"{path} is not text: it has zero bytes")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", errors="replace")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("gb18030", errors="replace")  # what Chinese Windows writes; Latin text passes, too
