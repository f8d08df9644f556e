"""The draft of an entry: a patch that applies, and that makes triage name the failure."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from . import front_door
from .real.support import need

ROOT = Path(__file__).resolve().parents[1]
SHOWS = b"FrobnicatorError: rank 3 lost its flux capacitor at '/data/x.bin' after 1.21 GW"
LOG = b"step 1 loss 2.0\nstep 2 loss 1.9\nwandb: api_key=0123456789abcdef hf_0123456789abcdef\n" + SHOWS + b"\n"
GIVEN = (
    *("--name", "flux capacitor lost", "--cause", "the capacitor was never charged", "--fix", "charge it"),
    *("--check", "flux --status", "--source", "https://example.org/flux"),
    *("--reproduced", "flux --drain; python train.py"),
)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    for name in ("scripts", "references", "profiles", "tests/triage"):
        shutil.copytree(ROOT / name, tmp_path / "bundle" / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "bundle" / "train.log").write_bytes(LOG)
    return tmp_path / "bundle"


def run(bundle: Path, script: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(bundle / "scripts" / script), *map(str, words)]
    return subprocess.run(command, cwd=bundle, capture_output=True, text=True)


def draft(bundle: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return run(bundle, "draft_gotcha.py", "train.log", *GIVEN, *words)


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}


def test_the_patch_applies_and_triage_then_names_the_failure(bundle: Path) -> None:
    need("git", "git")
    before = json.loads(run(bundle, "triage.py", "train.log", "--json").stdout)["diagnoses"]
    assert all(one["id"] != "U44" for one in before)
    files_before = files(bundle)
    done = draft(bundle, "--line", 4, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    files_after = files(bundle)
    assert files_after.pop(bundle / said["patch"]) and files_after == files_before  # nothing but the patch is written
    subprocess.run(["git", "init", "-q"], cwd=bundle, check=True)
    subprocess.run(["git", "apply", said["patch"]], cwd=bundle, check=True)
    other = SHOWS.replace(b"rank 3", b"rank 11").replace(b"/data/x.bin", b"/mnt/y.bin").replace(b"1.21", b"7")
    (bundle / "other.log").write_bytes(b"step 1 loss 2.0\n" + other + b"\n")
    named = json.loads(run(bundle, "triage.py", "other.log", "--json").stdout)["diagnoses"]
    assert named[0]["id"] == said["id"]
    test = (bundle / "tests/triage/failures/flux_capacitor_lost.log").read_text()
    assert "FrobnicatorError" in test and "0123456789abcdef" not in test
    label = f"flux_capacitor_lost: {{expect: [{said['id']}], made: real}}"
    assert label in (bundle / "tests/triage/labels.yaml").read_text()


def test_a_line_has_the_number_that_triage_gives_it(bundle: Path) -> None:
    """The states of a progress bar are one line there, whatever ends them."""
    bars = b"".join(b"\r%3d%%|#| %d/50 [00:01<00:01]" % (n * 2, n) for n in range(50))
    (bundle / "train.log").write_bytes(b"step 1 loss 2.0\r\n" + bars + b"\r" + SHOWS + b"\nstep 2 loss 1.9\n")
    done = draft(bundle, "--line", 2, "--json")
    assert json.loads(done.stdout)["signature"].startswith("FrobnicatorError: rank "), done.stderr
    assert "\r" not in Path(bundle / "U44.patch").read_bytes().decode()


@pytest.mark.parametrize(
    ("text", "words", "code", "sentence"),
    [
        (b"OSError: [Errno 28] No space left on device\n", ("--line", 1), 1, "U6"),
        (b"step 2 loss 1.9\n", ("--line", 1), 1, "healthy log has such a line"),
        (b"----\n", ("--line", 1), 1, "says too little"),
        (LOG, ("--line", 99), 2, "train.log has 4 lines, so no line 99"),
        (LOG, ("--line", 4, "--into", "references/takeover.md"), 2, "references/takeover.md is no catalogue"),
        (LOG, ("--line", 4, "--into", "references/none.md"), 2, "none.md"),
    ],
)
def test_what_gets_no_draft(tmp_path: Path, text: bytes, words: tuple[object, ...], code: int, sentence: str) -> None:
    (tmp_path / "train.log").write_bytes(text)
    done = front_door.call("draft_gotcha.py", "train.log", *GIVEN, *words, cwd=tmp_path)
    assert done.returncode == code and sentence in done.stdout + done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["train.log"]
    gone = front_door.call("draft_gotcha.py", "none.log", *GIVEN, "--line", 1, cwd=tmp_path)
    assert (gone.returncode, gone.stdout) == (2, "") and "none.log" in gone.stderr
