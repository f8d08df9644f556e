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

from artifacts.folders import runs
from artifacts.model import Artifact, Problem
from artifacts.survey import Survey
from rgt import VERSION, files
from rgt.errors import RgtError

MANIFEST, PROOF, STALE = "PULL_MANIFEST.json", "PULL_VERIFIED.json", "PULL_VERIFIED.json.stale"
_UP = 3  # folders above the named path in which its manifest is looked for


@dataclass
class Expected:
    """Digests that are known beforehand, and the manifest they come from."""

    folder: Path  # where the proof belongs
    digests: dict[Path, list[tuple[str, str, int | None]]] = field(default_factory=dict)  # source, sha256, bytes
    listed: list[Path] = field(default_factory=list)  # everything the manifest names
    outside: list[Path] = field(default_factory=list)  # listed, but not below the path that was given
    manifest_sha256: str | None = None
    problems: list[tuple[Path, Problem]] = field(default_factory=list)

    def add(self, path: Path, source: str, sha256: str, size: int | None) -> None:
        self.digests.setdefault(path, []).append((source, sha256, size))


def gather(found: Survey) -> Expected:
    manifest = _find_manifest(found)
    expected = Expected(manifest.parent if manifest else found.root)
    if manifest:
        _read_manifest(manifest, found, expected)
    for run in {found.root, found.root.parent} | {path.parent for path in found.sides if path.name == runs.INDEX}:
        for entry in runs.entries(run):
            if "sha256" in entry:
                expected.add(run / entry["path"], runs.INDEX, entry["sha256"], entry.get("bytes"))
    return expected


def _find_manifest(found: Survey) -> Path | None:
    folders = [found.root, *found.root.absolute().parents][: _UP + 1]
    return next((folder / MANIFEST for folder in folders if (folder / MANIFEST).is_file()), None)


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
    for entry in entries:
        target = _same(path.parent / entry["path"], found)
        if ".." in Path(entry["path"]).parts:
            message = f"names {entry['path'][:100]!r}, outside of its folder"
            expected.problems.append((path, Problem("path-name", "error", message)))
            continue
        expected.listed.append(target)
        expected.add(target, MANIFEST, entry["sha256"], entry["bytes"])
        if not target.is_relative_to(found.given) and target != found.given:
            expected.outside.append(target)
        elif not os.path.isfile(target):  # unlike Path's, it answers for a name that is too long
            expected.problems.append((target, Problem("missing", "error", f"is listed in {MANIFEST} and not there")))


def _same(path: Path, found: Survey) -> Path:
    """The path as the survey writes it, when the manifest was found above a relative path."""
    with contextlib.suppress(ValueError):
        return found.root / path.absolute().relative_to(found.root.absolute())
    return path


def compare(artifact: Artifact, expected: Expected) -> Iterator[Problem]:
    known = expected.digests.get(artifact.path, ())
    for source, sha256, size in known:
        if size is not None and size != artifact.bytes:
            yield Problem("size", "error", f"has {artifact.bytes} bytes, {source} says {size}",
                          fix="the copy is not finished, or the file changed since; pull it again")  # fmt: skip
        elif artifact.sha256 and sha256 != artifact.sha256:
            yield Problem("digest", "error", f"its sha256 is {artifact.sha256[:16]}..., {source} says {sha256[:16]}...",
                          fix="pull it again; if it still differs, the source changed since")  # fmt: skip
        elif artifact.sha256:
            artifact.checks.append("digest")


def write(expected: Expected, artifacts: list[Artifact], warnings: int, how: dict[str, Any]) -> Path:
    """Only called when nothing failed."""
    rows = [
        {
            "path": os.path.relpath(artifact.path, expected.folder),
            "bytes": artifact.bytes,
            "sha256": artifact.sha256,
            "format": artifact.format,
            "tensors": len(artifact.layout.tensors),
            "checks": sorted(set(artifact.checks)),
        }
        for artifact in artifacts
    ]
    proof: dict[str, Any] = {
        "verified": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "tool_version": VERSION,
        "versions": _versions(any("load" in artifact.checks for artifact in artifacts)),
        "artifacts": rows,
        "warnings": warnings,
        **how,
    }
    if expected.manifest_sha256:
        proof["manifest_sha256"] = expected.manifest_sha256
    path = expected.folder / PROOF
    files.write_json(path, proof, "pull_verified")
    with contextlib.suppress(OSError):
        (expected.folder / STALE).unlink()
    return path


def _versions(loaded: bool) -> dict[str, str]:
    from importlib import metadata  # slow to import, and only a proof needs it

    found = {"python": platform.python_version(), "numpy": metadata.version("numpy")}
    for name in ("torch", "safetensors") if loaded else ():
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def withdraw(expected: Expected) -> Path | None:
    """A proof that no longer holds must not be found: it is renamed, so that its content is not lost."""
    path = expected.folder / PROOF
    if not path.is_file():
        return None
    os.replace(path, expected.folder / STALE)
    return expected.folder / STALE
