"""job.yaml: one description of a job for every place it can run (scripts/schemas/job.schema.json).

Example:
    job = load(Path("job.yaml"))
    job.words("/data/runs/x")                                 the command line, the same on every node
    job.variables("/data/runs/x", node=1, head="node-a")      what differs is in the environment
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rgt import schema, units
from rgt.errors import bad_input, from_os_error, lacking

RUN = "{run}"
RUN_VARIABLE = "RGT_RUN_DIR"


@dataclass(frozen=True)
class Job:
    name: str
    folder: str = "."  # of job.yaml
    command: list[str] = field(default_factory=list)
    script: str = ""
    args: list[str] = field(default_factory=list)
    workdir: str = "."
    python: str = "python3"
    env: dict[str, str] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    nodes: int = 1
    gpus_per_node: int = 0
    hardware: dict[str, Any] = field(default_factory=dict)
    image: str = ""
    mounts: list[dict[str, Any]] = field(default_factory=list)
    data: list[str] = field(default_factory=list)
    output: str = "runs"
    time_limit: float | None = None  # seconds
    grace: float = 60.0
    signal: str = "TERM"
    max_restarts: int = 3
    port: int = 29500
    shm_size: str = "8GiB"
    smoke: list[str] = field(default_factory=list)

    @property
    def distributed(self) -> bool:
        return self.nodes > 1 or self.gpus_per_node > 1

    def words(self, run_dir: str) -> list[str]:
        """The command line. A script is started by torchrun when there is more than one process."""
        if self.distributed and not self.command:
            # it takes every word behind its own for a template in which $$ means $
            plain = [word.replace(RUN, run_dir).replace("$", "$$") for word in (self.script, *self.args)]
            return [self.python, "-m", "torch.distributed.run", *plain]
        words = self.command or [self.python, self.script, *self.args]
        return [word.replace(RUN, run_dir) for word in words]

    def variables(self, run_dir: str, node: int | str = 0, head: str = "127.0.0.1") -> dict[str, str]:
        """What every process finds in its environment, secrets apart.

        torchrun reads its own options from PET_<OPTION>: so the words are the same on every node, and a backend that
        learns rank and head only on the node (Slurm, Kubernetes) sets two variables and nothing else.
        """
        chosen = {name: value.replace(RUN, run_dir) for name, value in self.env.items()}
        own = {RUN_VARIABLE: run_dir, "PYTHONUNBUFFERED": "1"}
        if self.distributed:
            # torchrun kills its workers 30 s after a signal, and itself dies of one it does not know
            chosen = {
                "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": f"{self.grace:.0f}",
                "PET_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1",
                **chosen,
            }
            own |= {"PET_NNODES": str(self.nodes), "PET_NPROC_PER_NODE": str(max(1, self.gpus_per_node))}
        if self.nodes > 1:
            own |= {"PET_NODE_RANK": str(node), "PET_MASTER_ADDR": head, "PET_MASTER_PORT": str(self.port)}
        return {**chosen, **own}

    def roots(self) -> tuple[Path, Path]:
        """Where run directories go on this machine: those of runs that are here, and the records of remote ones."""
        here = Path(self.output) if self.output.startswith("/") else Path(self.workdir) / self.output
        return here, Path(self.folder) / Path(self.output).name

    def secret_values(self) -> dict[str, str]:
        """Read now, from our own environment; written nowhere."""
        missing = [name for name in self.secrets if name not in os.environ]
        if missing:
            raise lacking(f"the secret {missing[0]} is not set in this environment; export it, then submit again")
        return {name: os.environ[name] for name in self.secrets}

    def spec(self) -> dict[str, Any]:
        """For run.json: everything but the values of secrets, which were never here."""
        return {name: value for name, value in self.__dict__.items() if value not in ("", [], {}, None)}


def load(path: Path) -> Job:
    """Read and check job.yaml; every problem is a sentence."""
    return from_dict(load_yaml(path, "job"), path.parent)


def load_yaml(path: Path, name: str) -> dict[str, Any]:
    """Read a YAML file and check it against the schema of that name; every problem is a sentence."""
    import yaml

    class Loader(yaml.SafeLoader):
        """A file written as JSON has an emoji as two escaped halves, which YAML leaves apart. One half is no text."""

        def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
            return str(super().construct_scalar(node)).encode("utf-16", "surrogatepass").decode("utf-16")

    try:
        data = yaml.load(path.read_text(encoding="utf-8"), Loader)
    except OSError as error:
        raise from_os_error(error, f"read {path}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: no UTF-8, or a date such as 2026-02-30
        raise bad_input(f"{path} is not YAML: {' '.join(str(error).split())[:200]}") from None
    schema.check(data, name, str(path))
    checked: dict[str, Any] = data
    return checked


def from_dict(data: dict[str, Any], folder: Path) -> Job:
    """A checked mapping as a Job: durations in seconds, everything for the command line as text."""
    data = dict(data)
    for name in ("time_limit", "grace"):
        if name in data:
            data[name] = units.duration(str(data[name]))
    data["args"] = [str(word) for word in data.get("args", [])]
    data["env"] = {name: _text(value) for name, value in data.get("env", {}).items()}
    shared = sorted(set(data["env"]) & set(data.get("secrets", [])))
    if shared:
        raise bad_input(f"{shared[0]} is in env and in secrets; a secret's value does not belong in a file")
    units.size(data.get("shm_size", Job.shm_size))
    return Job(**{**data, "folder": str(folder.absolute()), "workdir": _workdir(data.get("workdir", "."), folder)})


def _text(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def _workdir(workdir: str, folder: Path) -> str:
    if workdir.startswith(("/", "~")):
        return workdir
    return os.path.normpath(folder.absolute() / workdir)


def from_record(record: dict[str, Any]) -> Job:
    """The job of an existing run, from its run.json."""
    names = set(Job.__dataclass_fields__)
    return replace(
        Job(name=record["job"]["spec"]["name"]), **{k: v for k, v in record["job"]["spec"].items() if k in names}
    )
