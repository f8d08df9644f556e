from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .hosts import Host, TwoHosts
from .support import wait_for

ALL_REDUCE = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([10.0 ** dist.get_rank()])
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} sums to {total.item():.0f}")
dist.destroy_process_group()
"""

SERVE = (
    "import socket, sys; s = socket.create_server((sys.argv[1], 5000)); print('up', flush=True)\nwhile True: s.accept()"
)
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 5000), timeout=2); print('connected')"


def torchrun(host: Host, rank: int, master: Host, script: Path) -> subprocess.Popen[str]:
    where = ["--nnodes=2", f"--node-rank={rank}", f"--master-addr={master.address}", "--master-port=29500"]
    env = {"GLOO_SOCKET_IFNAME": host.interface, "OMP_NUM_THREADS": "1", "TMPDIR": str(script.parent)}
    return host.popen([sys.executable, "-m", "torch.distributed.run", *where, str(script)], env=env)


@pytest.mark.soak
def test_torchrun_all_reduces_across_two_nodes(two_hosts: TwoHosts, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ALL_REDUCE)
    hosts = (two_hosts.a, two_hosts.b)
    nodes = [torchrun(host, rank, two_hosts.a, tmp_path / "train.py") for rank, host in enumerate(hosts)]
    for rank, node in enumerate(nodes):
        said, _ = node.communicate(timeout=60)
        assert (node.returncode, f"rank {rank} of 2 sums to 11" in said) == (0, True), said


def test_a_cut_link_loses_the_peer_and_a_mended_one_finds_it(two_hosts: TwoHosts) -> None:
    def reach(host: Host, peer: Host) -> str:
        done = host.run([sys.executable, "-c", CONNECT, peer.address], check=False, timeout=10)
        return done.stdout.strip() or done.stderr.splitlines()[-1]

    for host in (two_hosts.a, two_hosts.b):
        server = host.popen([sys.executable, "-c", SERVE, host.address])
        assert server.stdout is not None and server.stdout.readline() == "up\n"
    assert reach(two_hosts.a, two_hosts.b) == "connected"
    two_hosts.cut()
    assert reach(two_hosts.a, two_hosts.b) == "TimeoutError: timed out"
    assert reach(two_hosts.b, two_hosts.a) == "OSError: [Errno 101] Network is unreachable"
    two_hosts.mend()
    wait_for("the mended link", lambda: reach(two_hosts.a, two_hosts.b) == "connected")
