"""Where a job can run. One module per kind of target, each with the same few functions:

    render(order)  ->  [Step, ...]     what will be done: words, files, on which host; --dry-run shows exactly this
    status(order)  ->  Status          what is really there, asked of the engine itself
    stop(order)    ->  [Step, ...]     end it, with its grace
    resume(order)  ->  [Step, ...]     go on with the same run directory

A job is found again by its run id, which is its name everywhere: nothing that submit returned has to be remembered.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import shlex
from dataclasses import dataclass, field
from types import ModuleType

from rgt.errors import bad_input, lacking
from rgt.hosts import SECONDS, Host
from rgt.job import Job

KINDS = ("local", "ssh", "docker", "slurm", "k8s", "skypilot", "kaggle", "openclaw")
STATES = ("queued", "running", "done", "failed", "cancelled", "lost")

# sh: wait for $child to its end, also when traps (our signals) come in between; its exit code is $code
WAIT_FOR_CHILD = """\
while :; do
  wait "$child"; code=$?
  kill -0 "$child" 2>/dev/null || break   # a trap ended the wait, not the job
done
wait "$child" 2>/dev/null; last=$?          # its own code, where a trap ended the wait in the moment it ended
[ "$last" = 127 ] || code=$last
"""


@dataclass
class Order:
    """One job on one target: what every backend function gets."""

    job: Job
    run_id: str
    kind: str
    hosts: list[Host] = field(default_factory=lambda: [Host()])

    @property
    def run_dir(self) -> str:
        """On the machine the job runs on."""
        root = self.job.output if self.job.output.startswith(("/", "~")) else f"{self.job.workdir}/{self.job.output}"
        return f"{root}/{self.run_id}"

    @property
    def record_dir(self) -> str:
        """On this machine: the record of a run that is elsewhere, beside job.yaml."""
        return str(self.job.roots()[1] / self.run_id)

    @property
    def head(self) -> Host:
        return self.hosts[0]


@dataclass
class Step:
    """One command on one host, after its files are there. `secrets` are names; the values join at the last moment.

    Without words it is something that only someone else can do: its files are shown, and that is all.
    """

    words: list[str]
    host: Host = field(default_factory=Host)
    cwd: str = "."
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    expand: tuple[int, ...] = ()
    seconds: float = SECONDS  # that it may take: an engine that brings up machines needs minutes

    def show(self) -> str:
        """For --dry-run: what a person could type."""
        lines = [f"# {path}\n{text}" for path, text in self.files.items()]
        if not self.words:
            return "\n".join(lines)
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        hidden = [f"{name}=<secret>" for name in self.secrets]
        where = [f"# on {self.host.title}, in {self.cwd}"]
        return "\n".join([*lines, *where, " ".join([*variables, *hidden, shlex.join(self.words)])])


@dataclass
class Status:
    state: str
    exit_code: int | None = None
    detail: str = ""
    still_running: tuple[int, ...] = ()  # nodes that outlive the one that decided the state


def parse_target(target: str) -> tuple[str, list[Host]]:
    """'local', 'ssh:a,b', 'docker', 'docker:box', 'slurm:login', 'k8s', ..."""
    kind, _, names = target.partition(":")
    if kind not in KINDS:
        raise bad_input(f"unknown target {target!r}; it is one of {', '.join(KINDS)}, some with :host")
    hosts = [Host(name.strip()) for name in names.split(",") if name.strip()]
    if kind == "ssh" and not hosts:
        raise bad_input("the target ssh needs a host: --on ssh:HOST (a name that `ssh` knows)")
    if names and kind not in ("ssh", "docker", "slurm", "openclaw"):
        raise bad_input(f"the target {kind} takes no host")
    if len({host.name for host in hosts}) < len(hosts):
        raise bad_input(f"{target} names a host twice")
    return kind, hosts or [Host()]


def engine_name(run_id: str, longest: int = 52) -> str:
    """The run id where a name must be a DNS label: one id, one name, always the same.

    52, because Kubernetes adds "-<index>" and five random letters within 63.
    """
    name = "rgt-" + re.sub(r"[^a-z0-9]+", "-", run_id.lower()).strip("-")
    if name == f"rgt-{run_id}" and len(name) <= longest:
        return name
    return f"{name[: longest - 9].rstrip('-')}-{hashlib.sha256(run_id.encode()).hexdigest()[:8]}"


def backend(kind: str) -> ModuleType:
    return importlib.import_module(f"backends.{kind}")


def carry_out(order: Order, steps: list[Step]) -> None:
    """Do what was rendered. The first failure is a sentence; status tells what of it happened."""
    secrets = order.job.secret_values()
    for step in steps:
        for path, text in step.files.items():
            step.host.put(path, text.encode())
        hidden = {name: secrets[name] for name in step.secrets}
        env = {**step.env, **hidden}
        done = step.host.run(step.words, cwd=step.cwd, env=env, expand=step.expand, seconds=step.seconds)
        if done.code:
            raise lacking(f"{step.words[0]} failed on {step.host.title}: {done.sentence()}")
