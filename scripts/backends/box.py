"""box.pyz: one file that gives a rented machine our scripts. It needs only that machine's own python3 (3.10 or newer).

python3 box.pyz gpu_gate list
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1]
TOOLS = ("gpu_gate", "preflight", "takeover", "watch")  # what a box is asked to do; cargo is transfer.py's other end
PARTS = ("rgt", "gatekeeper", "checks", "inventory", "health", "cargo")
PACKAGES = ("click", "pynvml")  # pure Python; jsonschema is not, so schemas are checked where the results arrive
_STAMP = (2026, 1, 1, 0, 0, 0)  # the same bytes for the same content, so that the name can be its hash

MAIN = """\
import importlib, sys
if sys.version_info < (3, 10):
    sys.exit("error: box.pyz needs Python 3.10 or newer; this is " + sys.version.split()[0])
TOOLS = {tools!r}
if sys.argv[1:2] == ["cargo"]:
    del sys.argv[1]
    sys.exit(importlib.import_module("cargo.boxside").main())
if len(sys.argv) < 2 or sys.argv[1] not in TOOLS:
    sys.exit("usage: python3 box.pyz {{" + ",".join(TOOLS) + "}} ...")
sys.argv = [sys.argv[1] + ".py", *sys.argv[2:]]
importlib.import_module(sys.argv[0][:-3]).main()
"""


def build() -> tuple[str, bytes]:
    """The bundle's file name (with its hash) and its bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, data in sorted(_contents()):
            bundle.writestr(zipfile.ZipInfo(name, _STAMP), data, zipfile.ZIP_DEFLATED)
    data = b"#!/usr/bin/env python3\n" + buffer.getvalue()
    return f"box-{hashlib.sha256(data).hexdigest()[:12]}.pyz", data


def _contents() -> Iterator[tuple[str, bytes]]:
    yield "__main__.py", MAIN.format(tools=TOOLS).encode()
    for tool in TOOLS:
        yield f"{tool}.py", (SCRIPTS / f"{tool}.py").read_bytes()
    for folder in [SCRIPTS / part for part in PARTS] + list(_packages()):
        files = sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]
        for path in files:
            yield str(path.relative_to(folder.parent)), path.read_bytes()


def _packages() -> Iterator[Path]:
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec and spec.origin:
            origin = Path(spec.origin)
            yield origin.parent if origin.name == "__init__.py" else origin
