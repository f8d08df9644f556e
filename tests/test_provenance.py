"""rgt.provenance: the commit and everything that differs from it, or None; and nothing here fails a launch."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from rgt import files
from rgt.run import provenance
from rgt.run import record as rundir
from rgt.run.provenance import git_commit, git_state

import pytest
from pytest import MonkeyPatch

from . import front_door
from .real.support import wait_for

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")


@pytest.fixture(autouse=True)
def own_git_settings(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """The developer's git settings and an enclosing repository have no say here."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_EXTERNAL_DIFF"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "gitconfig").write_text("[user]\nname = A\nemail = a@example.org\n[init]\ndefaultBranch = main\n")


def git(directory: Path, *arguments: str, stdin: bytes = b"") -> str:
    done = subprocess.run(["git", "-C", directory, *arguments], input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One commit with two files, and nothing else."""
    folder = tmp_path / "repository"
    (folder / "src").mkdir(parents=True)
    (folder / "train.py").write_text("lr = 0.1\nsteps = 10\n")
    (folder / "src" / "model.py").write_bytes(b"layers = 2\r\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def state_of(directory: Path) -> dict[str, Any]:
    state = git_state(directory)
    assert state is not None
    return state


def test_a_clean_repository_and_a_detached_head(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    assert git_state(repository) == {"commit": commit, "branch": "main", "dirty": False, "untracked": []}
    assert git_commit(repository) == commit and len(commit) == 40
    git(repository, "checkout", "-q", "--detach")
    assert state_of(repository)["branch"] == "HEAD"


def test_a_changed_file_is_dirty_and_its_diff_is_kept(repository: Path) -> None:
    (repository / "train.py").write_text("lr = 0.2\nsteps = 10\n")
    state = state_of(repository)
    assert state["dirty"] and state["untracked"] == []
    assert state["diff"].endswith("@@ -1,2 +1,2 @@\n-lr = 0.1\n+lr = 0.2\n steps = 10\n")
    assert state["diff_sha256"] == hashlib.sha256(state["diff"].encode()).hexdigest()
    git(repository, "add", "train.py")  # a staged change is one, too
    assert state_of(repository) == state == git_state(repository / "src")  # of the whole repository, from anywhere


def test_the_diff_brings_the_working_tree_back(repository: Path, tmp_path: Path) -> None:
    """Also where a file has Windows line ends, no last newline, another encoding, is not text, or is gone."""
    contents = {"src/model.py": b"layers = 4\r\nheads = 2\r\n", "new.py": "名 = 'x'".encode()}
    contents |= {"gbk.py": "# 学习率\n".encode("gbk"), "weights.bin": bytes(range(256))}
    for name, content in contents.items():
        (repository / name).write_bytes(content)
    git(repository, "add", ".")
    (repository / "train.py").unlink()
    files.write_json(tmp_path / "state.json", state_of(repository))
    state = files.read_json(tmp_path / "state.json")
    diff = state["diff"].encode(errors="surrogateescape")
    assert hashlib.sha256(diff).hexdigest() == state["diff_sha256"]
    git(tmp_path, "clone", "-q", str(repository), "copy")
    git(tmp_path / "copy", "apply", "--whitespace=nowarn", stdin=diff)
    assert {name: (tmp_path / "copy" / name).read_bytes() for name in contents} == contents
    assert not (tmp_path / "copy" / "train.py").exists()


def test_the_diff_does_not_depend_on_the_users_git_settings(repository: Path, monkeypatch: MonkeyPatch) -> None:
    """With a diff tool for eyes, such as difftastic, the diff could not be applied, or a dirty run would look clean."""
    (repository / "train.py").write_text("lr = 0.2\n")
    expected = state_of(repository)
    for name, value in (("color.ui", "always"), ("color.diff", "always"), ("diff.external", "true")):
        git(repository, "config", "--global", name, value)
        assert state_of(repository) == expected and expected["dirty"]
    monkeypatch.setattr(provenance, "_DIFF_BYTES", 10)  # a large one is named by its hash only
    assert state_of(repository) == expected | {"diff": None}


def test_no_repository_no_commit_no_git(repository: Path, tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    git(tmp_path, "init", "-q", "empty")
    assert [git_state(tmp_path / name) for name in (".", "nowhere", "empty")] == [None, None, None]
    assert git_commit(tmp_path) is None
    monkeypatch.setenv("PATH", str(repository / "src"))
    assert git_state(repository) is None


@pytest.mark.parametrize(
    "case", ["diff exit 128", "diff exec sleep 60", "ls-files exit 128", "rev-parse exec sleep 60"]
)
def test_not_compared_is_not_clean(repository: Path, tmp_path: Path, monkeypatch: MonkeyPatch, case: str) -> None:
    """A diff of gigabytes runs into the time limit; `dirty: false` would be a claim nobody checked."""
    monkeypatch.setattr(provenance, "_GIT_SECONDS", 1.0 if "sleep" in case else 60.0)
    pattern, act = case.split(" ", 1)
    body = f'case " $* " in *" {pattern} "*) {act};; esac\nexec {shutil.which("git")} "$@"'
    wrapper = front_door.executable(tmp_path / "bin" / "git", body)  # does something else for one sub-command
    monkeypatch.setenv("PATH", f"{wrapper.parent}{os.pathsep}{os.environ['PATH']}")
    state = git_state(repository)
    assert state is None if "rev-parse" in case else state and state["dirty"] is True and "diff" not in state


# -- launch, called from a directory that has nothing to do with the job


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: MonkeyPatch) -> Path:
    """The current directory: a repository of its own, as the skill's would be."""
    git(tmp_path, "init", "-q", "stranger")
    git(tmp_path / "stranger", "commit", "-q", "--allow-empty", "-m", "not the job's")
    monkeypatch.chdir(tmp_path / "stranger")
    return tmp_path / "stranger"


def submitted(repository: Path, target: str, **job: Any) -> dict[str, Any]:
    spec = repository / "job.json"
    spec.write_text(json.dumps({"name": "tiny", "output": str(repository.parent / "runs"), **job}))
    queue = {"RGT_QUEUE": str(repository.parent / "queue")}

    def launch(*words: object) -> str:
        return front_door.call("launch.py", *words, "--json", env=queue).stdout

    launch("submit", spec, "--on", target)
    (run,) = rundir.find(repository.parent)
    if target == "local":
        wait_for("the job's end", lambda: json.loads(launch("status", run.path))["state"] in rundir.OVER)
    record = run.record()
    assert record["git"]["commit"] == git_commit(repository) != git_commit(Path.cwd())
    return record


def test_a_job_that_runs_here_is_recorded_with_its_own_python(repository: Path, tmp_path: Path, stranger: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(repository / ".venv")], check=True)
    (found,) = (repository / ".venv").glob("lib/python*/site-packages")
    (found / "torch-9.8.7.dist-info").mkdir()
    (found / "torch-9.8.7.dist-info" / "METADATA").write_text("Name: torch\nVersion: 9.8.7\n")
    record = submitted(repository, "local", python=".venv/bin/python", script="train.py")
    own = repository / ".venv" / "bin" / "python"
    expected = {"python": sys.version.split()[0], "executable": str(own), "packages": {"torch": "9.8.7"}}
    assert record["env"] == expected and record["host"]["cpus"] == os.cpu_count()


def test_a_job_elsewhere_has_nothing_of_this_machine(
    repository: Path, stranger: Path, monkeypatch: MonkeyPatch
) -> None:
    """Its code is the project's in which job.yaml lies; workdir is a path of the other machine."""
    front_door.executable(stranger / "kubectl", "exit 1")  # the record is written before anything is started
    monkeypatch.setenv("PATH", f"{stranger}{os.pathsep}{os.environ['PATH']}")
    place = {"image": "img", "workdir": "/exp", "output": "/exp/x", "mounts": [{"from": "pvc:a", "to": "/exp"}]}
    record = submitted(repository, "k8s", command=[sys.executable, "train.py"], **place)
    assert record["env"] == {"python": None, "executable": None, "packages": None}
    assert record["host"] is None and record["devices"] is None
