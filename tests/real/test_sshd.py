from __future__ import annotations

import socket
from pathlib import Path

import pytest

from . import sshd as fixture
from .sshd import Sshd
from .support import free_port, need, run


def test_a_command_runs_on_the_box(sshd: Sshd) -> None:
    assert sshd.run("echo $SSH_CONNECTION").stdout.split()[2:] == [sshd.host, str(sshd.port)]
    assert sshd.run("exit 7", check=False).returncode == 7


def test_rsync_arrives_with_nothing_but_the_client_config(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"\0\1" * 5000)
    run([need("rsync", "rsync"), "-e", sshd.rsh, str(tmp_path / "weights.bin"), f"box:{tmp_path}/pulled.bin"])
    assert (tmp_path / "pulled.bin").read_bytes() == b"\0\1" * 5000


def test_cut_ends_a_live_connection_and_the_next_one_works(sshd: Sshd) -> None:
    with sshd.popen("echo up; cat") as live:  # cat ends when its pipe does: nothing is left on the box
        assert live.stdout is not None and live.stdout.readline() == "up\n"
        assert sshd.cut() == 1
        assert live.wait(timeout=10) == 255  # ssh's own code for "the connection failed"
    assert sshd.cut() == 0
    assert sshd.run("echo again").stdout == "again\n"


def test_stop_refuses_and_restart_answers_on_the_same_port(sshd: Sshd) -> None:
    with sshd.popen("echo up; cat") as live:
        assert live.stdout is not None and live.stdout.readline() == "up\n"
        sshd.stop()
        assert live.wait(timeout=10) == 255
    refused = sshd.run("true", check=False)
    assert (refused.returncode, "Connection refused" in refused.stderr) == (255, True)
    sshd.restart()
    assert sshd.run("echo back").stdout == "back\n"


def test_a_port_that_somebody_took_meanwhile_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([taken.getsockname()[1], free_port()])
        monkeypatch.setattr(fixture, "free_port", lambda: next(ports))
        monkeypatch.setattr(fixture, "_HELD", 0.0)
        server = fixture.started(tmp_path)
        try:
            assert server.port != taken.getsockname()[1] and server.run("echo up").stdout == "up\n"
        finally:
            server.stop()
