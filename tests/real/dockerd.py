"""A real Docker engine of our own: private socket, storage and cgroup, no bridge, no iptables, nothing to pull.

The one image is Debian's static busybox. It is enough to run torch: the host's Python and libraries are mounted
read-only over it (`torch_mounts`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from .hosts import TwoHosts
from .support import Daemon, missing, need, need_root, private_dir, run

IMAGE = "busybox:local"


@dataclass
class Dockerd:
    env: dict[str, str]  # what a command needs to find this engine: DOCKER_HOST, and a DOCKER_CONFIG of our own
    image: str
    torch_mounts: list[str]  # `-v` options after which sys.executable runs, with torch, in the container

    def run(
        self, args: Sequence[str], *, check: bool = True, timeout: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """`docker ARGS`."""
        return run([need("docker", "docker.io"), *args], env=self.env, check=check, timeout=timeout)

    def clear(self) -> None:
        if containers := self.run(["ps", "--all", "--quiet"]).stdout.split():
            self.run(["rm", "--force", "--volumes", *containers])


def torch_mounts() -> list[str]:
    """Python, its venv, and the loader and libraries below them. busybox lives in /bin, so /usr may be covered."""
    roots = [Path(root) for root in ("/usr", "/lib", "/lib64", sys.base_prefix, sys.prefix)]
    outer = [root for root in roots if root.exists() and not any(other in root.parents for other in roots)]
    return [word for root in dict.fromkeys(outer) for word in ("-v", f"{root}:{root}:ro")]


def write_rootfs(path: Path, busybox: str) -> Path:
    """A tar of the smallest root file system: busybox, under each of its names, and a /tmp."""
    with tarfile.open(path, "w") as tar:
        tar.add(Path(busybox).resolve(), "bin/busybox")
        for applet in set(run([busybox, "--list"]).stdout.split()) - {"busybox"}:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        tmp = tarfile.TarInfo("tmp")
        tmp.type, tmp.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(tmp)
    return path


def _daemon(directory: Path, cgroup: str, enter: Sequence[str]) -> Daemon:
    binary = need("dockerd", "docker.io")
    # Docker up to 20.10 writes a key below /etc unless told otherwise; later versions refuse the setting.
    old = " version 20." in run([binary, "--version"]).stdout
    config = {"deprecated-key-path": str(directory / "key.json")} if old else {}
    (directory / "daemon.json").write_text(json.dumps(config))
    options = {
        "config-file": directory / "daemon.json",
        "data-root": directory / "data",
        "exec-root": directory / "exec",
        "pidfile": directory / "docker.pid",
        "host": f"unix://{directory}/docker.sock",
        "storage-driver": "vfs",
        "bridge": "none",
        "iptables": "false",
        "ip6tables": "false",
        "exec-opt": "native.cgroupdriver=cgroupfs",
        "cgroup-parent": f"/{cgroup}",
    }
    argv = [*enter, binary, *(f"--{name}={value}" for name, value in options.items())]
    # TMPDIR: a containerd that is slow to start is killed by dockerd and leaves a stack trace there.
    return Daemon(argv, directory / "dockerd.log", {"TMPDIR": str(directory)})


def _start(daemon: Daemon, engine: Dockerd, rootfs: Path) -> None:
    """Up to the first container: without privileges the engine may start and still not be able to run one."""
    try:
        daemon.start(lambda: engine.run(["info"], check=False).returncode == 0, 30)
        engine.run(["import", str(rootfs), IMAGE])
        engine.run(["run", "--rm", IMAGE, "true"])
    except (RuntimeError, AssertionError) as error:
        missing(f"dockerd cannot run a container here: {error}")


def _unmount_and_forget(directory: Path, cgroup: str) -> None:
    """What a dockerd that was killed leaves behind, and the cgroup that even a clean stop leaves."""
    points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for point in sorted((p for p in points if p.startswith(f"{directory}/")), reverse=True):
        run([need("umount", "mount"), "-l", point], check=False)
    groups = Path("/sys/fs/cgroup")
    for group in (*groups.glob(f"*/{cgroup}"), *groups.glob(cgroup)):
        group.rmdir()


@contextmanager
def start_engine(enter: Sequence[str] = ()) -> Iterator[Dockerd]:
    """`enter` is the prefix that starts it in a network namespace: that is then the network of its host."""
    need_root("dockerd")
    need("docker", "docker.io")
    busybox = need("busybox", "busybox-static")
    with private_dir("dockerd-") as directory:
        daemon = _daemon(directory, directory.name, enter)
        env = {"DOCKER_HOST": f"unix://{directory}/docker.sock", "DOCKER_CONFIG": str(directory / "client")}
        engine = Dockerd(env, IMAGE, torch_mounts())
        try:
            _start(daemon, engine, write_rootfs(directory / "rootfs.tar", busybox))
            yield engine
        finally:
            daemon.stop()
            _unmount_and_forget(directory, directory.name)


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[Dockerd]:
    with start_engine() as engine:
        yield engine


@pytest.fixture
def two_engines(two_hosts: TwoHosts) -> Iterator[list[Dockerd]]:
    """An engine on each of two hosts."""
    # not by `ip netns exec`, which mounts another /sys, without the cgroups
    enter = [[need("nsenter", "util-linux"), f"--net=/run/netns/{h.namespace}"] for h in (two_hosts.a, two_hosts.b)]
    with start_engine(enter[0]) as a, start_engine(enter[1]) as b:
        yield [a, b]
        a.clear()
        b.clear()


@pytest.fixture
def dockerd(docker_engine: Dockerd) -> Iterator[Dockerd]:
    """One engine per worker, no container left for the next test."""
    yield docker_engine
    docker_engine.clear()
