"""The zip of `make dist`: unpacked into an empty home, it works from there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import bundle

import pytest

from . import zoo


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    skills = home / ".claude" / "skills"
    bundle.pack(home / "dist")
    with zipfile.ZipFile(home / "dist" / f"{bundle.NAME}.zip") as opened:
        opened.extractall(skills)
    return skills / bundle.NAME


def test_it_has_what_an_agent_needs_and_no_answers(installed: Path) -> None:
    names = {path.name for path in installed.iterdir()}
    assert {"SKILL.md", "references", "profiles", "scripts", "LICENSE"} <= names
    assert not names & {"tests", "evals", ".git", ".venv"}
    links = re.findall(r"\]\(([^)#]+)", (installed / "SKILL.md").read_text(encoding="utf-8"))
    missing = [link for link in links if not link.startswith("http") and not (installed / link).exists()]
    assert links and missing == []


def test_a_script_works_from_there(installed: Path, tmp_path: Path) -> None:
    checkpoint = zoo.torch_zip(tmp_path)
    environment = {**os.environ, "HOME": str(installed.parents[2]), "PYTHONPATH": ""}
    words = [sys.executable, str(installed / "scripts" / "verify_local.py"), str(checkpoint)]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_two_builds_are_the_same_bytes(tmp_path: Path) -> None:
    bundle.pack(tmp_path / "a")
    bundle.pack(tmp_path / "b")
    for name in (f"{bundle.NAME}.zip", "rgt.pyz"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_manifests_fit_what_clients_demand(tmp_path: Path) -> None:
    """The rules of Agent Plugins 1.0; the real clients judge the rest in tests/real/test_agent_clients.py."""
    bundle.pack(tmp_path)
    plugin = tmp_path / "marketplace" / "plugins" / bundle.NAME
    manifest = json.loads((plugin / "plugin.json").read_text(encoding="utf-8"))
    allowed = "$schema name version description author homepage repository license keywords extensions".split()
    assert set(manifest) <= set(allowed) and manifest["$schema"].endswith("/1.0.0/plugin.schema.json")
    assert re.fullmatch(r"(?!.*(--|\.\.))[a-z0-9]([a-z0-9.-]*[a-z0-9])?", manifest["name"])
    assert (plugin / "skills" / bundle.NAME / "SKILL.md").is_file()
