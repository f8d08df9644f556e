"""bin/rgt: every tool from any directory, in an environment of its own that the first call makes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import bundle

import pytest

ROOT = Path(__file__).resolve().parent.parent
RGT = ROOT / "bin" / "rgt"
TOOLS = sorted(path.stem for path in (ROOT / "scripts").glob("*.py"))


def call(
    *words: object, cwd: Path, rgt: Path = RGT, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, **(env or {})}
    return subprocess.run([str(rgt), *map(str, words)], cwd=cwd, env=environ, capture_output=True, text=True)


def test_alone_it_lists_every_tool_by_phase_also_through_a_link(tmp_path: Path) -> None:
    link = tmp_path / "commands" / "rgt"
    link.parent.mkdir()
    link.symlink_to(RGT)
    done = call(cwd=tmp_path, rgt=link)
    assert done.returncode == 0
    assert re.findall(r"^([A-Z]+):$", done.stdout, re.M) == ["RUN", "VERIFY", "DELIVER", "META"]
    assert sorted(re.findall(r"^  (\w+)  ", done.stdout, re.M)) == TOOLS


@pytest.mark.parametrize("word", ["../evals/docs", "wat"])
def test_an_unknown_tool_is_one_sentence(tmp_path: Path, word: str) -> None:
    done = call(word, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "") and f"No such command '{word}'" in done.stderr


def test_a_misspelt_tool_gets_the_nearest_one(tmp_path: Path) -> None:
    assert "did you mean triage?" in call("triag", "x.log", cwd=tmp_path).stderr


def test_the_shell_completes_tools_and_their_verbs(tmp_path: Path) -> None:
    def completed(words: str) -> list[str]:
        place = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        return call(cwd=tmp_path, env={"_RGT_COMPLETE": "bash_complete", **place}).stdout.split()

    assert completed("rgt wat") == ["plain,watch"]
    assert completed("rgt launch su") == ["plain,submit"]
    assert "rgt" in call(cwd=tmp_path, env={"_RGT_COMPLETE": "bash_source"}).stdout


@pytest.mark.parametrize("tool", TOOLS[::6])
def test_a_python_without_click_gets_one_sentence(tmp_path: Path, tool: str) -> None:
    words = [sys.executable, "-S", str(ROOT / "scripts" / f"{tool}.py"), "--help"]  # -S: no installed packages
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert done.stderr.startswith("error: ") and f"{RGT} {tool}" in done.stderr


# -- without a .venv beside it


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    folder = tmp_path / "skills" / bundle.NAME
    for path, (data, mode) in bundle.skill().items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        place.chmod(mode)
    return folder


def bare(tmp_path: Path, **env: str) -> dict[str, str]:
    """A user's machine: no uv, no active environment, an empty cache."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    path = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if not os.path.exists(f"{part}/uv"))
    return {"HOME": str(home), "XDG_CACHE_HOME": "", "VIRTUAL_ENV": "", "PYTHONPATH": "", "PATH": path, **env}


def test_the_first_call_makes_an_environment_once_though_two_start_together(tmp_path: Path, installed: Path) -> None:
    project, cache = tmp_path / "project", tmp_path / "home" / ".cache" / "rgt"
    project.mkdir()
    (project / "train.log").write_text("RuntimeError: CUDA error: out of memory\n")
    dead = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True).stdout.strip()
    (cache / f"env-0123456789ab.{dead}").mkdir(parents=True)  # of a first call that was killed
    env = {**os.environ, **bare(tmp_path)}
    words, pipe = [str(installed / "bin" / "rgt"), "triage", "train.log"], subprocess.PIPE
    calls = [subprocess.Popen(words, cwd=project, env=env, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
    for process in calls:
        out, err = process.communicate()
        assert process.returncode == 1 and "OOM12" in out, out + err
        assert err.startswith("rgt: first call: making ") and err.count("\n") == 1
    (made,) = cache.glob("env-*")
    assert re.fullmatch(r"env-[0-9a-f]{12}", made.name)
    again = call("triage", "train.log", cwd=project, rgt=installed / "bin" / "rgt", env=bare(tmp_path))
    assert (again.returncode, again.stderr) == (1, "")
    assert (cache / "pycache").is_dir() and not list(installed.rglob("__pycache__"))


def test_a_python_that_has_all_of_it_runs_the_tool_at_once(tmp_path: Path, installed: Path) -> None:
    (tmp_path / "train.log").write_text("RuntimeError: CUDA error: out of memory\n")
    env = bare(tmp_path)
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    done = call("triage", "train.log", cwd=tmp_path, rgt=installed / "bin" / "rgt", env=env)
    assert (done.returncode, done.stderr) == (1, "") and "OOM12" in done.stdout
    assert not list((tmp_path / "home").rglob("env-*"))


def test_without_an_index_it_says_so_and_leaves_nothing(tmp_path: Path, installed: Path) -> None:
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
    done = call("triage", "log", cwd=tmp_path, rgt=installed / "bin" / "rgt", env=bare(tmp_path, **nowhere))
    assert (done.returncode, done.stdout) == (3, "")
    first, second = done.stderr.splitlines()
    assert first.startswith("rgt: first call: ") and second.startswith("error: cannot install click, ")
    assert list((tmp_path / "home" / ".cache" / "rgt").iterdir()) == []


def test_without_python_it_says_so(tmp_path: Path, installed: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("readlink", "sh"):
        (tools / name).symlink_to(str(shutil.which(name)))
    done = call("triage", "log", cwd=tmp_path, rgt=installed / "bin" / "rgt", env={"PATH": str(tools)})
    assert (done.returncode, done.stderr) == (
        3,
        "error: rgt needs python3 (3.10 or newer), and there is none on PATH\n",
    )


@pytest.mark.parametrize(
    ("tool", "said"), [("check_staleness", "has no profiles/ and references/"), ("triage", "no catalogue")]
)
def test_scripts_without_their_knowledge_are_no_all_clear(tmp_path: Path, tool: str, said: str) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "toolbox", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "train.log").write_text("step 1 loss 2.0\n")
    words = [sys.executable, str(tmp_path / "toolbox" / f"{tool}.py"), *(["train.log"] if tool == "triage" else [])]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode in (2, 3) and done.stdout == "" and said in done.stderr
