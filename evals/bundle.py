"""Pack the skill as users install it: `make dist` writes dist/remote-gpu-trainer.zip, the same bytes each time.

Unpack it in an agent's skills folder. Tests and evals stay behind: an agent does not need them, and they hold the
answers of the cases.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAME = "remote-gpu-trainer"
BUNDLE = (
    "SKILL.md",
    "README.md",
    "SECURITY.md",
    "LICENSE",
    "pyproject.toml",
    "references",
    "profiles",
    "scripts",
    "examples",
)
_TIME = (2026, 1, 1, 0, 0, 0)  # a zip has no time zone, and a build no opinion on time


def files() -> list[Path]:
    """What git knows of the bundle; without git, what is there but caches."""
    with contextlib.suppress(FileNotFoundError):
        listed = subprocess.run(["git", "ls-files", "-z", *BUNDLE], cwd=ROOT, capture_output=True, text=True)
        if listed.returncode == 0 and listed.stdout:
            return sorted(Path(name) for name in listed.stdout.split("\0") if name)
    found = [path for name in BUNDLE for path in (ROOT / name, *(ROOT / name).rglob("*")) if path.is_file()]
    return sorted(path.relative_to(ROOT) for path in found if "__pycache__" not in path.parts)


def pack(target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files():
            entry = zipfile.ZipInfo(f"{NAME}/{path.as_posix()}", _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            mode = 0o755 if os.access(ROOT / path, os.X_OK) else 0o644
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, (ROOT / path).read_bytes())
    return target


if __name__ == "__main__":
    made = pack(ROOT / "dist" / f"{NAME}.zip")
    print(f"{made.relative_to(ROOT)}  {made.stat().st_size // 1024} KiB, {len(files())} files")
