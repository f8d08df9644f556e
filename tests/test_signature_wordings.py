"""A library that rewords its message leaves a signature behind: each signature of an entry with `from:` must still
share words with the module, its Python source or the strings of its binaries. Of several wordings those that the
entry's Symptom shows count. What is not installed here is read from its newest wheel, in the soak.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from rgt.catalogue.entries import Entry, literal_ways, load

import pytest

SHORTEST = 12  # characters in a row, of two words at least: less is found anywhere
LARGE = {"torch"}  # its binaries take a minute
# "one message " <newline> f"in two pieces": as it is printed
_PIECES = re.compile(rb"""(["'])[ )]*\n[ (]*[rfbuRFBU]{0,2}["']""")
_PRINTED = re.compile(rb"[ -~]{%d,}" % SHORTEST)


DISTRIBUTIONS = {"hydra": "hydra-core"}  # where the package is not called like its module


@functools.cache
def installed(module: str) -> Path | None:
    spec = importlib.util.find_spec(module)
    return Path(spec.origin).parent if spec and spec.origin else None


@functools.cache
def folder(module: str) -> Path:
    if here := installed(module):
        return here
    into = Path(tempfile.mkdtemp(prefix="rgt-wheel-"))
    atexit.register(shutil.rmtree, into, ignore_errors=True)
    words = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(into)]
    subprocess.run([sys.executable, "-m", "pip", *words, DISTRIBUTIONS.get(module, module)], check=True)
    for wheel in into.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(into)
    return into / module


@functools.cache
def source(module: str) -> bytes:
    texts = (path.read_bytes() for path in sorted(folder(module).rglob("*.py")))
    return b"\n".join(_PIECES.sub(b"", text).replace(b"\\", b"") for text in texts)


@functools.cache
def strings(module: str) -> bytes:
    """Of its binaries."""
    paths = (path for path in sorted(folder(module).rglob("*.so*")) if path.is_file() and not path.is_symlink())
    return b"\n".join(text for path in paths for text in _PRINTED.findall(path.read_bytes()))


def runs(signature: str) -> set[bytes]:
    words = {run.strip() for way in literal_ways(signature) for run in way}
    return {run.encode() for run in words if len(run) >= SHORTEST and " " in run}


def printed_by(module: str, words: set[bytes]) -> bool:
    return any(word in text(module) for text in (source, strings) for word in words)


def cases() -> Iterator[object]:
    for entry in load():
        if entry.modules:
            slow = LARGE & set(entry.modules) or not all(map(installed, entry.modules))
            marks = [pytest.mark.soak] if slow else []
            yield pytest.param(entry, id=entry.id, marks=marks)


@pytest.mark.parametrize("entry", list(cases()))
def test_the_library_still_prints_it(entry: Entry) -> None:
    for signature in entry.signatures:
        words = runs(signature)
        shown = {word for word in words if any(word in line.encode() for line in entry.examples)} or words
        assert any(printed_by(module, shown) for module in entry.modules), f"{entry.path}: {shown}"


def test_a_reworded_message_is_noticed() -> None:
    assert printed_by("yaml", runs("mapping values are not allowed here"))
    assert not printed_by("yaml", runs("mapping values are forbidden in this place"))
