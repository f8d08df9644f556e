"""job.yaml: one description of a job for every place it can run (scripts/schemas/job.schema.json).

Example:
    job = load(Path("job.yaml"))
    job.words("/data/runs/x")                                 the command line, the same on every node
    job.variables("/data/runs/x", node=1, head="node-a")      what differs is in the environment
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt import bundle, files, schema, units
from rgt.errors import bad_input, lacking
from rgt.job import settings

RUN = "{run}"
RESTARTS = 3
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
    seed: int | None = None
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
    max_restarts: int | None = None  # None: nobody said; RESTARTS where the engine restarts
    max_cost: float | None = None
    restart_delay: float = 10.0
    resume_args: list[str] = field(default_factory=list)
    after_memory_kill: dict[str, str] = field(default_factory=dict)
    master_addr: str = ""
    port: int = 29500
    slurm: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)  # by target: what this has no field for
    shm_size: str = "8GiB"
    store: str = ""  # hf:// or s3://: where its supervisor sends the run directory at its end
    smoke: list[str] = field(default_factory=list)
    rate: float | None = None  # money per hour

    @property
    def restarts(self) -> int:
        return RESTARTS if self.max_restarts is None else self.max_restarts

    @property
    def distributed(self) -> bool:
        return self.nodes > 1 or self.gpus_per_node > 1

    def words(self, run_dir: str) -> list[str]:
        """The command line. A script is started by torchrun when there is more than one process."""
        given = [word.replace(RUN, run_dir) for word in self.command or (self.script, *self.args)]
        if self.command or not self.distributed:
            return given if self.command else [self.python, *given]
        # torchrun expands $ in the words after its own; $$ stands for $
        return [self.python, "-m", "torch.distributed.run", *(word.replace("$", "$$") for word in given)]

    def variables(self, run_dir: str, node: int | str = 0, head: str = "127.0.0.1") -> dict[str, str]:
        """The environment of every process, without the secrets.

        torchrun reads its own options from PET_<OPTION>: so the words are the same on every node, and a backend that
        learns rank and head only on the node (Slurm, Kubernetes) sets two variables and nothing else.
        """
        chosen = {name: value.replace(RUN, run_dir) for name, value in self.env.items()}
        own = {RUN_VARIABLE: run_dir, "PYTHONUNBUFFERED": "1"}
        if self.distributed:
            # torchrun kills its workers 30 s after a signal, and dies of signals that it does not handle
            chosen.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", f"{self.grace:.0f}")
            chosen.setdefault("PET_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1")
            own |= {"PET_NNODES": str(self.nodes), "PET_NPROC_PER_NODE": str(max(1, self.gpus_per_node))}
        if self.nodes > 1:
            own |= {"PET_NODE_RANK": str(node), "PET_MASTER_ADDR": head, "PET_MASTER_PORT": str(self.port)}
        return {**chosen, **own}

    def roots(self) -> tuple[Path, Path]:
        """Where run directories go on this machine: those of runs that are here, and the records of remote ones."""
        here = Path(self.output) if self.output.startswith("/") else Path(self.workdir) / self.output
        return here, Path(self.folder) / Path(self.output).name

    def seeds(self) -> dict[str, int]:
        """For run.json: its own field, or what command, args or env name. Two different answers are refused."""
        named = settings.seeds(self.env, [*self.command, *self.args])
        if self.seed is None:
            return named
        for name, value in named.items():
            if value != self.seed:
                raise bad_input(f"job.yaml says seed {self.seed}, its command or env {name} {value}; make them one")
        return {"seed": self.seed}

    def secret_values(self) -> dict[str, str]:
        """Values read from our own environment now; they are never written to a file."""
        for name in sorted(set(self.secrets) - set(os.environ)):
            raise lacking(f"the secret {name} is not set in this environment; export it, then submit again")
        return {name: os.environ[name] for name in self.secrets}

    def spec(self) -> dict[str, Any]:
        """For run.json: everything that is set. Secrets are only named here."""
        return {name: value for name, value in self.__dict__.items() if value not in ("", [], {}, None)}


def load(path: Path) -> Job:
    """Read and check job.yaml; every problem is a sentence."""
    return from_dict(load_yaml(path, "job"), path.parent)


def load_yaml(path: Path, name: str = "") -> dict[str, Any]:
    """Read a YAML mapping and check it against the schema of that name; every problem is a sentence."""
    from rgt import yaml_text

    try:
        data = yaml_text.parse(files.read_text(path))
    except yaml_text.YamlError as error:
        raise bad_input(f"{path} is not YAML: {error}") from None
    if name:
        schema.check(data, name, str(path))
    elif not isinstance(data, dict):
        raise bad_input(f"{path} holds no settings; expected lines such as  epochs: 200")
    return dict(data)


def from_dict(data: dict[str, Any], folder: Path) -> Job:
    """A checked mapping as a Job: durations in seconds, everything for the command line as text."""
    data, here = dict(data), folder.absolute()
    for name in ("time_limit", "grace", "restart_delay"):
        if name in data:
            data[name] = units.duration(str(data[name]))
    data["args"] = [str(word) for word in data.get("args", [])]
    for name in ("env", "after_memory_kill"):
        data[name] = {key: text(value) for key, value in data.get(name, {}).items()}
    for name in sorted(set(data["env"]) & set(data.get("secrets", []))):
        raise bad_input(f"{name} is in env and in secrets; a secret's value does not belong in a file")
    units.size(data.get("shm_size", Job.shm_size))
    workdir = data.get("workdir", ".")
    absolute = workdir if workdir.startswith(("/", "~")) else os.path.normpath(here / workdir)
    return Job(**{**data, "folder": str(here), "workdir": absolute})


def text(value: Any) -> str:
    """A YAML scalar as a word of a command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def seconds_word(seconds: float) -> str:
    """A duration for a command line: two weeks are 1209600, where :g would write 1.2096e+06."""
    return f"{seconds:.3f}".rstrip("0").rstrip(".")


def from_record(record: dict[str, Any]) -> Job:
    """The job of an existing run, from its run.json; fields that another version wrote are left out."""
    spec = record["job"]["spec"]
    return Job(**{name: value for name, value in spec.items() if name in Job.__dataclass_fields__})


# -- For scripts that put jobs through launch.py: fill in a description, call launch, find the run it made


_HOLE = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")  # ${HOME} belongs to the shell of whoever wrote it
_RUN = "run"  # {run} is launch's own
_WORDS = ("command", "args", "smoke")


# -- placeholders


def holes(data: dict[str, Any]) -> set[str]:
    """The names in braces that a job description leaves open."""
    words = [*(word for key in _WORDS for word in data.get(key, [])), *data.get("env", {}).values()]
    return {name for word in words for name in _HOLE.findall(text(word))} - {_RUN}


def fill(data: dict[str, Any], values: dict[str, str]) -> dict[str, Any]:
    """The description with its holes filled. A value stays one word, whatever is in it: no shell sees it."""

    def put(word: Any) -> str:
        return _HOLE.sub(lambda hole: values.get(hole[1], hole[0]), text(word))

    words = {key: [put(word) for word in data[key]] for key in _WORDS if key in data}
    env = {name: put(value) for name, value in data.get("env", {}).items()}
    seed = {"seed": int(values["seed"])} if values.get("seed", "").isdecimal() else {}
    return {**data, **words, **({"env": env} if env else {}), **seed}


# -- launch


@dataclass
class Reply:
    """What launch said: its JSON, or the sentence that it failed with."""

    code: int
    data: dict[str, Any]
    sentence: str


def launch(*words: str, env: dict[str, str] | None = None, keep_open: tuple[int, ...] = ()) -> Reply:
    """Call rgt launch in a session of its own: what ends us, Ctrl-C included, does not end a half-done submit."""
    command = [sys.executable, str(bundle.SCRIPTS / "launch.py"), *words, "--json"]
    pipes: dict[str, Any] = {"capture_output": True, "stdin": subprocess.DEVNULL}
    done = subprocess.run(command, env=env, pass_fds=keep_open, start_new_session=True, **pipes)
    lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"launch ended with {done.returncode}"]
    reply = Reply(done.returncode, {}, lines[-1].removeprefix("error: "))
    with contextlib.suppress(ValueError):
        reply.data = json.loads(done.stdout)
    return reply
