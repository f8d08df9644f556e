"""The real agent clients take what `make dist` builds; none of this needs a login.

They are some 600 MB from the npm registry, so this is a soak: `make soak` brings them into .clients/ first.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import bundle

import pytest

from . import stub_model
from .support import missing

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / ".clients"
PLUGIN = f"{bundle.NAME}@{bundle.NAME}"
Run = Callable[..., str]
pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    bundle.pack(folder)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.log").write_text("step 1 loss 2.0\nRuntimeError: CUDA error: out of memory\n")
    return folder


@pytest.fixture
def run(tmp_path: Path, project: Path) -> Run:
    """A command with a home of its own, from the user's project: what it printed, when its exit code is `code`."""
    if not (CLIENTS / "stamp").exists():
        missing("the agent clients are not there (make clients)")
    bins = [CLIENTS / name / "node_modules" / ".bin" for name in ("node", "openclaw", "others")]
    environ = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": "", "NO_COLOR": "1"}
    environ["PATH"] = os.pathsep.join([*map(str, bins), os.environ["PATH"]])

    def run(*words: object, code: int = 0, **more: str) -> str:
        argv, env = list(map(str, words)), {**environ, **more}
        done = subprocess.run(argv, cwd=project, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert done.returncode == code, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    return run


def test_claude_code_accepts_marketplace_and_plugin_and_finds_the_skill(dist: Path, run: Run, tmp_path: Path) -> None:
    market = dist / "marketplace"
    for folder in (market, market / "plugins" / bundle.NAME):
        assert "Validation passed" in run("claude", "plugin", "validate", "--strict", folder)
    run("claude", "plugin", "marketplace", "add", market)
    run("claude", "plugin", "install", PLUGIN)
    assert re.search(rf"Skills \(1\)\s+{bundle.NAME}", run("claude", "plugin", "details", bundle.NAME))
    (command,) = (tmp_path / ".claude" / "plugins" / "cache" / bundle.NAME / bundle.NAME).glob("*/bin/rgt")
    assert "OOM12" in run(command, "triage", "train.log", code=1)


def test_codex_installs_the_plugin(dist: Path, run: Run, tmp_path: Path) -> None:
    run("codex", "plugin", "marketplace", "add", dist / "marketplace")
    run("codex", "plugin", "add", PLUGIN)
    assert re.search(rf"{PLUGIN}\s+installed", run("codex", "plugin", "list"))
    assert list((tmp_path / ".codex" / "plugins").rglob(f"skills/{bundle.NAME}/agents/openai.yaml"))


def test_npx_skills_installs_a_skill_that_works_from_the_project(dist: Path, run: Run, project: Path) -> None:
    source = dist / "marketplace" / "plugins" / bundle.NAME
    run("skills", "add", source, "-y", "--copy", "-a", "claude-code")
    skill = project / ".claude" / "skills" / bundle.NAME
    assert not {"tests", "evals", ".git"} & {path.name for path in skill.iterdir()}
    assert "OOM12" in run(skill / "bin" / "rgt", "triage", "train.log", code=1)


def test_openclaw_calls_it_ready(dist: Path, run: Run, tmp_path: Path) -> None:
    with zipfile.ZipFile(dist / f"{bundle.NAME}.zip") as archive:
        archive.extractall(tmp_path / ".openclaw" / "skills")
    listed = json.loads(run("openclaw", "skills", "list", "--json"))
    (skill,) = [row for row in listed["skills"] if row["name"] == bundle.NAME]
    assert skill["eligible"] is True, skill


def test_the_skill_is_valid(dist: Path, run: Run) -> None:
    agentskills = Path(sys.executable).with_name("agentskills")
    folder = dist / "marketplace" / "plugins" / bundle.NAME / "skills" / bundle.NAME
    assert "Valid skill" in run(agentskills, "validate", folder)


def test_a_bundle_runs_by_uvx_by_pip_and_as_one_file(dist: Path, run: Run, tmp_path: Path) -> None:
    archive = dist / f"{bundle.NAME}.zip"
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    pip = [tmp_path / "venv" / "bin" / "python", "-m", "pip", "install", "-q"]
    run(*pip, "uv", archive)
    for rgt in ([tmp_path / "venv/bin/rgt"], [tmp_path / "venv/bin/uvx", "--from", archive, "rgt"]):
        assert "OOM12" in run(*rgt, "triage", "train.log", code=1)
    assert "OOM12" in run("python3", dist / "rgt.pyz", "triage", "train.log", code=1)


@pytest.mark.parametrize(("host", "way"), [("claude", "settings"), ("claude", "plugin"), ("codex", "settings")])
def test_the_guard_blocks_a_real_agent(dist: Path, run: Run, project: Path, host: str, way: str) -> None:
    """The model is ours and asks for one command; the client, its hooks and its shell are real."""
    (project / "runs" / "a").mkdir(parents=True)
    (project / "runs" / "a" / "run.json").write_text("{}")
    if way == "settings":
        run(ROOT / "bin" / "rgt", "guard", "install", "--host", host)
    else:
        run("claude", "plugin", "marketplace", "add", dist / "marketplace")
        run("claude", "plugin", "install", PLUGIN)

    def ask(command: str) -> str:
        with stub_model.serving(command) as (address, bodies):
            if host == "claude":
                own = {
                    "ANTHROPIC_BASE_URL": address,
                    "ANTHROPIC_API_KEY": "x",
                    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                }
                run("claude", "-p", "go on", "--allowedTools", "Bash", **own)
            else:
                stub = f'model_providers.stub={{name="stub",base_url="{address}/v1",wire_api="responses"}}'
                trust = ("--dangerously-bypass-hook-trust", "--skip-git-repo-check", "-s", "danger-full-access")
                run("codex", "exec", *trust, "-c", stub, "-c", "model_provider=stub", "-m", "x", "go on")
            return bodies[-1]

    assert "refused by rgt guard: removes runs" in ask("rm -rf runs")
    assert (project / "runs" / "a" / "run.json").exists()
    assert "refused by" not in ask("touch made")
    assert (project / "made").exists()
