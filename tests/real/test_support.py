from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from .support import Daemon, children, need, private_dir, wait_for


def outcome(required: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Both endings are caught here: a skip that gets out of a test would pass for a success."""
    monkeypatch.setenv("REQUIRE_REAL", required)
    try:
        return "found", need("no-such-binary", "some-package")
    except (pytest.skip.Exception, pytest.fail.Exception) as end:
        return type(end).__name__, str(end)


def test_what_is_missing_skips_and_fails_where_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "no-such-binary is not installed (Debian: apt-get install some-package)"
    assert outcome("", monkeypatch) == ("Skipped", reason)
    assert outcome("1", monkeypatch) == ("Failed", f"REQUIRE_REAL=1, but {reason}")


def test_only_living_children_count() -> None:
    with subprocess.Popen(["sleep", "60"]) as living, subprocess.Popen(["true"]) as zombie:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has collected it
        assert {living.pid, zombie.pid}.intersection(children(os.getpid())) == {living.pid}
        living.kill()


def test_a_wait_ends_at_its_deadline() -> None:
    with pytest.raises(TimeoutError, match=r"a miracle: not within 0\.1 s"):
        wait_for("a miracle", lambda: False, timeout=0.1)


def test_a_server_that_dies_at_once_shows_its_log(tmp_path: Path) -> None:
    daemon = Daemon(["/bin/sh", "-c", "echo port is taken; exit 3"], tmp_path / "log")
    with pytest.raises(RuntimeError, match=r"/bin/sh exited 3; its log ends:\nport is taken"):
        daemon.start(lambda: False)


def test_a_private_directory_is_gone_afterwards() -> None:
    with private_dir("real-") as directory:
        (directory / "inside").mkdir(mode=0o500)
    assert not directory.exists()
