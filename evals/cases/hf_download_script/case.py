"""The old client prints a warning, does nothing and exits 0; the old speed switch is ignored."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from trials.case import Box, Case

COMMIT = "4f2c9e1d7b60a35c8e94d1f0b7a6c5d4e3f2a1b0"
OLD = f"""#!/bin/sh
set -e
cd "$(dirname "$0")"
export HF_HUB_ENABLE_HF_TRANSFER=1
huggingface-cli download org/base-7b --revision {COMMIT} --exclude "*.bin" \\
  --local-dir models/base-7b --local-dir-use-symlinks False
"""
_OLD_CLIENT = """#!/bin/sh
echo "Warning: \\`huggingface-cli\\` is deprecated and no longer works. Use \\`hf\\` instead." >&2
exit 0
"""
_NEW_CLIENT = """#!/usr/bin/env python3
import json, os, sys
from pathlib import Path
words = sys.argv[1:]
if "--help" in words or words[:1] != ["download"] or "--local-dir-use-symlinks" in words:
    print("usage: hf download REPO [FILES] [--revision R] [--include P] [--exclude P] [--local-dir D]", file=sys.stderr)
    sys.exit(0 if "--help" in words else 2)
def option(name, default=None):
    return words[words.index(name) + 1] if name in words else default
target = Path(option("--local-dir") or sys.exit("the cache is not mounted here: give --local-dir"))
target.mkdir(parents=True, exist_ok=True)
for name in ("config.json", "model-00001.safetensors", "model-00002.safetensors", "pytorch_model.bin"):
    if option("--exclude") != "*.bin" or not name.endswith(".bin"):
        (target / name).write_text(name)
fast = os.environ.get("HF_XET_HIGH_PERFORMANCE", "").lower() in ("1", "true", "yes", "on")
log = Path(__file__).resolve().parent.parent / "hf.json"
log.write_text(json.dumps({"repo": words[1], "revision": option("--revision"), "fast": fast}))
"""


def _executable(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(file.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def make(box: Box) -> None:
    _executable(box.world / "bin/huggingface-cli", _OLD_CLIENT)
    _executable(box.world / "bin/hf", _NEW_CLIENT)
    _executable(box.work / "fetch.sh", OLD)


def verify(box: Box) -> list[str]:
    """The script is run once more, from nothing."""
    import shutil

    shutil.rmtree(box.work / "models", ignore_errors=True)
    (box.world / "hf.json").unlink(missing_ok=True)
    box.run("sh", "fetch.sh", ok=range(256))
    found = sorted(path.name for path in (box.work / "models/base-7b").glob("*") if path.is_file())
    problems = (
        []
        if found == ["config.json", "model-00001.safetensors", "model-00002.safetensors"]
        else [f"models has {found}"]
    )
    if not (box.world / "hf.json").exists():
        return [*problems, "nothing was downloaded"]
    call = json.loads((box.world / "hf.json").read_text())
    if call["repo"] != "org/base-7b" or call["revision"] != COMMIT:
        problems.append("another repository or revision")
    return problems if call["fast"] else [*problems, "not at full speed"]


def reference(box: Box) -> None:
    text = (box.skill / "references/run-remote/china-network.md").read_text(encoding="utf-8")
    assert "`hf download`" in text and "HF_XET_HIGH_PERFORMANCE=1" in text
    new = OLD.replace("HF_HUB_ENABLE_HF_TRANSFER", "HF_XET_HIGH_PERFORMANCE").replace("huggingface-cli", "hf")
    box.write("fetch.sh", new.replace(" --local-dir-use-symlinks False", ""))


def naive(box: Box) -> None:
    """Renames the command, keeps the old switch."""
    box.write("fetch.sh", OLD.replace("huggingface-cli", "hf").replace(" --local-dir-use-symlinks False", ""))


CASE = Case(
    route="mirrors: China",
    reads=("references/run-remote/china-network.md",),
    minutes=5,
    commands=12,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    expected="fetch.sh downloads the pinned commit with hf, without .bin files, in Xet's fast mode.",
)
