"""PULL_MANIFEST.json and PULL_VERIFIED.json: what was to arrive, and the proof that it did."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rgt import VERSION, files
from rgt.checkpoint import index
from rgt.checkpoint.layout import Artifact, Problem
from rgt.checkpoint.names import MANIFEST, PROOF, STALE
from rgt.checkpoint.survey import Survey
from rgt.errors import RgtError

_UP = 3  # folders above the named path in which its manifest is looked for


@dataclass
class Expected:
    """Digests that are known beforehand, and the manifest they come from."""

    folder: Path  # where the proof belongs
    digests: dict[Path, list[tuple[str, str, int | None]]] = field(default_factory=dict)  # source, sha256, bytes
    steps: dict[Path, int] = field(default_factory=dict)  # as the index of their run says
    listed: list[Path] = field(default_factory=list)  # everything the manifest names
    outside: list[Path] = field(default_factory=list)  # listed, but not below the path that was given
    manifest_sha256: str | None = None
    problems: list[tuple[Path, Problem]] = field(default_factory=list)


def gather(found: Survey) -> Expected:
    folders = [found.root, *found.root.absolute().parents][: _UP + 1]
    manifest = next((folder / MANIFEST for folder in folders if (folder / MANIFEST).is_file()), None)
    expected = Expected(manifest.parent if manifest else found.root)
    if manifest:
        _read_manifest(manifest, found, expected)
    for run in {found.root, found.root.parent} | {path.parent for path in found.sides if path.name == index.INDEX}:
        for entry in index.read(run) or []:
            expected.steps[run / entry["path"]] = entry["step"]
            if isinstance(entry.get("sha256"), str):
                known = index.INDEX, entry["sha256"], entry.get("bytes")
                expected.digests.setdefault(run / entry["path"], []).append(known)
    return expected


def _read_manifest(path: Path, found: Survey, expected: Expected) -> None:
    try:
        entries = files.read_json(path, "pull_manifest")["files"]
        expected.manifest_sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    except (RgtError, OSError) as error:
        message = getattr(error, "message", str(error)).removeprefix(f"{path} ")
        expected.problems.append((path, Problem("malformed", "error", message)))
        return
    if not entries:
        expected.problems.append((path, Problem("empty", "error", "lists no file")))
    folder = path.parent
    whole = found.given == found.root == folder
    for entry in entries:
        target = folder / entry["path"]
        if not whole:
            with contextlib.suppress(ValueError):  # as the survey writes it, when the manifest is above a relative path
                target = found.root / target.absolute().relative_to(found.root.absolute())
        if ".." in entry["path"].split("/"):
            message = f"names {entry['path'][:100]!r}, outside of its folder"
            expected.problems.append((path, Problem("path-name", "error", message)))
            continue
        expected.listed.append(target)
        expected.digests.setdefault(target, []).append((MANIFEST, entry["sha256"], entry["bytes"]))
        if not whole and not target.is_relative_to(found.given):
            expected.outside.append(target)
        # Path's raises for a name that is too long
        elif found.others.get(target) is None and not os.path.isfile(target):
            expected.problems.append((target, Problem("missing", "error", f"is listed in {MANIFEST} and not there")))


def compare(artifact: Artifact, expected: Expected) -> Iterator[Problem]:
    step = artifact.layout.facts.get("step")
    if step is not None and step != expected.steps.get(artifact.path, step):
        yield Problem("step", "error", f"is of step {step}, {index.INDEX} says {expected.steps[artifact.path]}")
    for source, sha256, size in expected.digests.get(artifact.path, ()):
        if size is not None and size != artifact.bytes:
            fix = "the copy is not finished, or the file changed since; pull it again"
            yield Problem("size", "error", f"has {artifact.bytes} bytes, {source} says {size}", fix=fix)
        elif artifact.sha256 and sha256 != artifact.sha256:
            message = f"its sha256 is {artifact.sha256[:16]}..., {source} says {sha256[:16]}..."
            fix = "pull it again; if it still differs, the source changed since"
            yield Problem("digest", "error", message, fix=fix)
        elif artifact.sha256:
            artifact.checks.append("digest")


def relative(path: Path | str, folder: Path) -> str:
    """os.path.relpath, which takes long for thousands of files."""
    text, above = str(path), f"{folder}/"
    return text[len(above) :] if text.startswith(above) and "/.." not in text else os.path.relpath(path, folder)


def write(expected: Expected, artifacts: list[Artifact], said: dict[str, Any]) -> Path:
    """Only called when nothing failed."""
    import numpy  # it read the values

    proof = {
        "verified": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "tool_version": VERSION,
        "versions": {"python": platform.python_version(), "numpy": numpy.__version__},
        "artifacts": [{"path": relative(each.path, expected.folder), **each.as_dict()} for each in artifacts],
        **said,
    }
    if expected.manifest_sha256:
        proof["manifest_sha256"] = expected.manifest_sha256
    path = expected.folder / PROOF
    files.write_json(path, proof, "pull_verified")
    with contextlib.suppress(OSError):
        (expected.folder / STALE).unlink()
    return path


def withdraw(folder: Path) -> bool:
    """A proof that no longer holds must not be found: it is renamed, so that its content is not lost."""
    there = (folder / PROOF).is_file()
    if there:
        os.replace(folder / PROOF, folder / STALE)
    return there
