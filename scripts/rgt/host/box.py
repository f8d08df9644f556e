"""box.pyz: one file that gives a rented machine our scripts. It needs only that machine's own python3 (3.10 or newer).

python3 box.pyz gpu_gate list
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import os
import zipfile
from pathlib import Path
from typing import Any

from rgt.bundle import SCRIPTS
from rgt.catalogue import entries
from rgt.host.bounded import Done
from rgt.host.ssh import Host

# what a box is asked to do; transfer is transfer.py's other end
TOOLS = ("gpu_gate", "preflight", "takeover", "triage", "watch")
NOUNS = ("run", "metrics", "log", "checkpoint", "machine", "host", "job", "catalogue")
PACKAGES = ("click", "pynvml", "yaml")  # pure Python; jsonschema is not: schemas are checked where results arrive
_STAMP = (2026, 1, 1, 0, 0, 0)  # the same bytes for the same content

MAIN = """\
import importlib, sys
if sys.version_info < (3, 10):
    sys.exit("error: box.pyz needs Python 3.10 or newer; this is " + sys.version.split()[0])
TOOLS = {tools!r}
OWN = {{"transfer": "rgt.transfer.boxside", "supervise": "rgt.job.supervisor"}}
if sys.argv[1:] and sys.argv[1] in OWN:
    sys.exit(importlib.import_module(OWN[sys.argv.pop(1)]).main())
if len(sys.argv) < 2 or sys.argv[1] not in TOOLS:
    sys.exit("usage: python3 box.pyz {{" + ",".join(TOOLS) + "}} ...")
sys.argv = [sys.argv[1] + ".py", *sys.argv[2:]]
importlib.import_module(sys.argv[0][:-3]).main()
"""


@functools.cache
def _contents() -> tuple[str, dict[str, bytes]]:
    """The bundle's file name, which has their hash, and its files by name."""
    contents = {"__main__.py": MAIN.format(tools=TOOLS).encode()}
    for tool in TOOLS:
        contents[f"{tool}.py"] = (SCRIPTS / f"{tool}.py").read_bytes()
    for path in (path for ending in ("py", "txt") for path in (SCRIPTS / "rgt").rglob(f"*.{ending}")):
        parts = path.relative_to(SCRIPTS / "rgt").parts
        if (len(parts) == 1 or parts[0] in (*NOUNS, *TOOLS, "transfer")) and parts[:2] != ("job", "backends"):
            contents[str(path.relative_to(SCRIPTS))] = path.read_bytes()
            # zipimport sees a folder without __init__.py only when the zip lists it
            contents[f"{path.parent.relative_to(SCRIPTS)}/"] = b""
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec and spec.origin:
            origin = Path(spec.origin)
            package = origin.name == "__init__.py"
            above = origin.parents[1] if package else origin.parent
            for path in origin.parent.rglob("*.py") if package else [origin]:
                contents[str(path.relative_to(above))] = path.read_bytes()
    texts = [(path.name, path.read_bytes()) for path in entries.documents()]
    digests = [f"{name} {hashlib.sha256(data).hexdigest()}" for name, data in (*sorted(contents.items()), *texts)]
    return f"box-{hashlib.sha256(os.fsencode(' '.join(digests))).hexdigest()[:12]}.pyz", contents


def build() -> tuple[str, bytes]:
    """The bundle's file name and its bytes."""
    (file, contents), buffer = _contents(), io.BytesIO()
    contents[f"rgt/{entries.PACKED}"] = entries.pack()  # there are no documents on a box
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, data in sorted(contents.items()):
            bundle.writestr(zipfile.ZipInfo(name, _STAMP), data, zipfile.ZIP_DEFLATED)
    return file, b"#!/usr/bin/env python3\n" + buffer.getvalue()


def tool_words(tool: str) -> list[str]:
    """The command that runs a tool of the bundle on a box; the second word has a ~ to be expanded there."""
    return ["python3", f"~/.cache/rgt/{_contents()[0]}", tool]


def ship(host: Host) -> None:
    """Bring the bundle to the box unless it is there already: its name has its hash."""
    path = tool_words("")[1]
    if host.run(["test", "-s", path], expand=(2,)).code != 0:
        host.put(path, build()[1], 0o755)


def is_missing(done: Done) -> bool:
    """Whether a command of `tool_words` failed because the bundle is not on the box yet."""
    return "can't open file" in done.err and "/rgt/box-" in done.err


def run_tool(host: Host, tool: str, words: list[str], expand: tuple[int, ...] = (), **how: Any) -> Done:
    """Run a tool of the bundle on the box; the bundle is shipped when it is not there. `expand` counts in `words`."""
    argv = [*tool_words(tool), *words]
    places = (1, *(3 + number for number in expand))
    done = host.run(argv, expand=places, **how)
    if is_missing(done):
        ship(host)
        done = host.run(argv, expand=places, **how)
    return done
