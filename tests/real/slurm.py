"""A real one-node Slurm: munged, slurmctld and slurmd with their own ports, sockets, key and directories.

The node offers more CPUs than the machine may have, and two GPUs that are /dev/null and /dev/zero: enough for
`--gres=gpu:1` to be scheduled and for CUDA_VISIBLE_DEVICES to be set.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from .support import Daemon, free_port, need, need_root, private_dir, run, wait_for

# No...AddrAny: bind loopback only. linuxproc, task/none: no cgroup, no systemd. config_overrides: trust CPUs=
# over the hardware. KillWait: seconds from SIGTERM to SIGKILL, 30 by default.
CONF = """\
ClusterName=test
SlurmctldHost={node}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmdPort={slurmd_port}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket={dir}/munge.sock
SlurmUser=root
SlurmdUser=root
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=2
GresTypes=gpu
NodeName={node} NodeAddr=127.0.0.1 CPUs=4 Gres=gpu:2 State=UNKNOWN
PartitionName=test Nodes={node} Default=YES MaxTime=INFINITE State=UP
"""

GRES = """\
Name=gpu File=/dev/null
Name=gpu File=/dev/zero
"""


@dataclass
class Slurm:
    env: dict[str, str]  # what a command needs to find this cluster: SLURM_CONF
    node: str

    def run(
        self, cmd: Sequence[str], *, check: bool = True, timeout: float = 90.0, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return run(cmd, env=self.env, check=check, timeout=timeout, cwd=cwd)

    def submit(self, script: str, *options: str) -> str:
        """The id of a new batch job; its output is thrown away unless an option says where it goes."""
        argv = [need("sbatch", "slurm-client"), "--parsable", "--output=/dev/null", *options]
        return run(argv, env=self.env, input=f"#!/bin/sh\n{script}\n").stdout.strip()

    def show(self, job: str) -> Mapping[str, str]:
        """The fields of `scontrol show job`, which remembers a job for five minutes after its end."""
        words = self.run(["scontrol", "--oneliner", "show", "job", job]).stdout.split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, job: str, state: str, timeout: float = 90.0) -> Mapping[str, str]:
        """Its fields once it is in `state`; a job that ends otherwise fails the test with the state it is in."""
        try:
            wait_for(state, lambda: self.show(job)["JobState"] == state, timeout)
        except TimeoutError:
            raise AssertionError(
                f"job {job} is {self.show(job)['JobState']} after {timeout:g} s, not {state}"
            ) from None
        return self.show(job)

    def requeue(self, job: str) -> None:
        """As after a preemption, without the two minutes for which Slurm then holds the job back (BeginTime)."""
        self.run(["scontrol", "requeue", job])
        self.release(job)

    def release(self, job: str) -> None:
        """Start a requeued job now. Slurm may set its two minutes after we cleared them: clear them until it runs."""
        self.wait(job, "PENDING")

        def started() -> bool:
            self.run(["scontrol", "update", f"JobId={job}", "StartTime=now"], check=False)
            return self.show(job)["JobState"] != "PENDING"

        wait_for("the start of the requeued job", started, 60)

    def idle(self) -> bool:
        return self.run(["sinfo", "--noheader", "--format=%T"], check=False).stdout.strip() == "idle"

    def answers(self) -> bool:
        return "is UP" in self.run(["scontrol", "ping"], check=False).stdout

    def clear(self) -> None:
        """Cancel every job and wait for the node to be free of them: between tests and before the daemons stop."""
        if jobs := self.run(["squeue", "--noheader", "--format=%A"]).stdout.split():
            self.run(["scancel", *jobs])
        wait_for("an empty queue", lambda: not self.run(["squeue", "--noheader"]).stdout, 20)


def _munged(directory: Path) -> Daemon:
    (directory / "munge.key").write_bytes(os.urandom(128))
    (directory / "munge.key").chmod(0o600)
    files = {"socket": "munge.sock", "key-file": "munge.key", "pid-file": "munge.pid", "seed-file": "munge.seed"}
    options = [f"--{option}={directory / name}" for option, name in files.items()]
    return Daemon([need("munged", "munge"), "--foreground", *options], directory / "munged.log")


def _configure(directory: Path) -> Slurm:
    node = socket.gethostname().partition(".")[0]  # slurmd finds its NodeName by `hostname -s`
    for name in ("state", "spool"):
        (directory / name).mkdir()
    conf = CONF.format(node=node, dir=directory, ctld_port=free_port(), slurmd_port=free_port())
    (directory / "slurm.conf").write_text(conf)
    (directory / "gres.conf").write_text(GRES)
    return Slurm({"SLURM_CONF": str(directory / "slurm.conf")}, node)


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[Slurm]:
    need_root("slurmd")
    controller, node = need("slurmctld", "slurmctld"), need("slurmd", "slurmd")
    need("sbatch", "slurm-client")
    with private_dir("slurm-") as directory, ExitStack() as stack:
        directory.chmod(0o755)  # munged insists that everybody can reach its socket
        cluster = _configure(directory)
        conf = cluster.env["SLURM_CONF"]
        for daemon, ready in (
            (_munged(directory), (directory / "munge.sock").is_socket),
            (Daemon([controller, "-D", "-f", conf], directory / "slurmctld.log"), cluster.answers),
            (Daemon([node, "-D", "-f", conf], directory / "slurmd.log"), cluster.idle),
        ):
            stack.callback(daemon.stop)
            daemon.start(ready, 30)
        yield cluster


@pytest.fixture
def slurm(slurm_cluster: Slurm) -> Iterator[Slurm]:
    """One cluster per worker, an empty queue per test."""
    yield slurm_cluster
    slurm_cluster.clear()
