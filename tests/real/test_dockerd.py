from __future__ import annotations

import sys
from pathlib import Path

from .dockerd import Dockerd
from .support import wait_for


def test_a_container_runs_busybox_and_passes_its_code(dockerd: Dockerd) -> None:
    assert dockerd.run(["run", "--rm", dockerd.image, "echo", "hello"]).stdout == "hello\n"
    assert dockerd.run(["run", "--rm", dockerd.image, "sh", "-c", "exit 7"], check=False).returncode == 7


def test_torch_runs_inside_on_the_mounted_host_python(dockerd: Dockerd, tmp_path: Path) -> None:
    code = "import torch; print(torch.ones(3).sum().item()); open('/out/x', 'w'); open('/usr/x', 'w')"
    options = ["--rm", *dockerd.torch_mounts, "-v", f"{tmp_path}:/out"]
    done = dockerd.run(["run", *options, dockerd.image, sys.executable, "-c", code], check=False)
    assert done.stdout == "3.0\n", done.stderr
    assert (tmp_path / "x").exists()
    assert "Read-only file system: '/usr/x'" in done.stderr


def test_a_detached_container_logs_and_stops(dockerd: Dockerd) -> None:
    dockerd.run(["run", "-d", "--name", "job", dockerd.image, "sh", "-c", "echo started; exec sleep 600"])
    wait_for("the log", lambda: dockerd.run(["logs", "job"]).stdout == "started\n")
    dockerd.run(["stop", "-t", "1", "job"])
    assert dockerd.run(["inspect", "--format", "{{.State.ExitCode}}", "job"]).stdout == "137\n"  # sleep is pid 1


def test_clear_removes_even_a_running_container(dockerd: Dockerd) -> None:
    dockerd.run(["run", "-d", dockerd.image, "sleep", "600"])
    dockerd.clear()
    assert dockerd.run(["ps", "--all", "--quiet"]).stdout == ""


def test_its_storage_is_not_the_machine_s(dockerd: Dockerd) -> None:
    private = Path(dockerd.env["DOCKER_CONFIG"]).parent
    assert dockerd.run(["info", "--format", "{{.Driver}} {{.DockerRootDir}}"]).stdout == f"vfs {private}/data\n"
