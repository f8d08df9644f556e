"""Which Python is the user's: the one rule, as every tool that runs the user's code asks it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rgt.machine.interpreter import job_python

import pytest

from .front_door import executable


def python(folder: Path, name: str = "python") -> str:
    """One more interpreter; nobody runs it here."""
    return str(executable(folder / "bin" / name, ""))


@pytest.fixture(autouse=True)
def users_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Called as rgt, with nothing active and nothing on PATH."""
    monkeypatch.setenv("RGT_COMMAND", "/opt/skill/bin/rgt")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_the_users_environment_as_a_shell_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert job_python() == sys.executable  # there is no other
    later = python(tmp_path / "usr")
    monkeypatch.setenv("PATH", str(tmp_path / "usr" / "bin"))
    assert job_python() == later
    first = python(tmp_path / "usr", "python3")
    assert job_python() == first
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "conda"))
    assert job_python() == first  # a prefix that is gone
    conda = python(tmp_path / "conda")
    assert job_python() == conda
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    venv = python(tmp_path / "venv")
    assert job_python() == venv
    assert job_python("python3") == first and job_python("usr/bin/python") == later  # the one given beats them all


def test_rgts_own_environment_is_never_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also through a link, and although its python is the same file as another environment's."""
    (tmp_path / "link").symlink_to(sys.prefix)
    (tmp_path / "other" / "bin").mkdir(parents=True)
    (tmp_path / "other" / "bin" / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "link"))
    monkeypatch.setenv("PATH", str(tmp_path / "other" / "bin"))
    assert job_python() == str(tmp_path / "other" / "bin" / "python3")


def test_a_script_that_was_called_with_a_python_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(Path(python(tmp_path / "venv")).parents[1]))
    monkeypatch.delenv("RGT_COMMAND")
    assert job_python() == sys.executable


def test_the_command_says_which_python_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = python(tmp_path / "train")
    python(tmp_path / "train", "torchrun")
    newer = python(tmp_path / "train", "python3.12")
    monkeypatch.setenv("PATH", os.path.dirname(beside))
    assert job_python(command=["torchrun", "train.py"]) == beside
    assert job_python(command=["python3.12", "-m", "train"]) == newer
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    active = python(tmp_path / "venv")
    assert job_python(command=["bash", "train.sh"]) == active  # not a python: the user's, as without a command
