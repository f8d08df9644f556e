"""Run directories and their seals as the sealing script writes them, with a fixed clock."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def seal(folder: Path) -> str:
    """Write seal.json anew; the digest of it is what the ledger holds."""
    names = sorted(path.name for path in folder.iterdir() if path.name != "seal.json")
    record = {
        "run_id": folder.name,
        "sealed": "2026-10-21T08:00:00+00:00",
        "files": {name: sha256(folder / name) for name in names},
    }
    (folder / "seal.json").write_text(json.dumps(record, indent=2) + "\n")
    return sha256(folder / "seal.json")


def ledger(root: Path, folders: Iterable[Path]) -> dict[str, str]:
    """Seal the runs and write SEALS.jsonl beside them; run id -> digest of its seal."""
    digests = {folder.name: seal(folder) for folder in folders}
    rows = [{"run_id": name, "seal_sha256": digest, "time": 1792569600} for name, digest in digests.items()]
    (root / "SEALS.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return digests
