"""Where a job can run. One module per kind of target (local and ssh are one), each with the same few functions:

    render(order)  ->  [Step, ...]     what will be done: words, files, on which host; --dry-run shows exactly this
    status(order)  ->  Status          what is really there, asked of the engine itself
    stop(order)    ->  [Step, ...]     end it, with its grace
    resume(order)  ->  [Step, ...]     continue on the same run directory
    logs(order, lines)                 only where the log is not a file that we can read

A job is found again by its run id, which is its name everywhere: nothing that submit returned has to be remembered.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import shlex
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from rgt import bundle
from rgt.errors import bad_input, lacking, refused
from rgt.host import box
from rgt.host.bounded import Done
from rgt.host.ssh import SECONDS, Host, Place
from rgt.job import supervisor
from rgt.job.description import RUN, Job, from_record, seconds_word
from rgt.run.record import ACTIVE, FAILED, FINISHED, LOST, OVER, STOPPED, Run, open_run

SUPERVISED = ("local", "ssh", "docker")  # where rgt.job.supervisor restarts a job; the others have an engine that does
KINDS = ("local", "ssh", "docker", "slurm", "k8s", "skypilot", "kaggle", "openclaw")

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

    @property
    def label(self) -> str:
        """The job's name at engines that want a DNS label."""
        return engine_name(self.run_id)

    @property
    def master(self) -> str:
        """Where the other nodes find the first."""
        return self.job.master_addr or self.head.address()

    def log(self, node: int = 0) -> str:
        if self.kind == "slurm" and "array" in self.job.slurm:
            first_task = re.findall(r"\d+", str(self.job.slurm["array"]))[0]
            return f"{self.run_dir}/train.{first_task}.log"
        return f"{self.run_dir}/train.{node}.log" if node else f"{self.run_dir}/train.log"

    @property
    def supervised(self) -> bool:
        """Whether our own supervisor restarts it; over several nodes nobody can tell alone that all have ended."""
        return self.kind in SUPERVISED and self.job.nodes == 1 and (self.job.restarts > 0 or bool(self.job.store))

    def supervisor_files(self, **how: Any) -> dict[str, str]:
        """The supervisor's order, for its machine; see rgt/job/supervisor.py."""
        job = self.job
        plan = {"restarts": job.restarts, "delay": job.restart_delay, "grace": job.grace, "rate": job.rate, **how}
        plan |= {"max_cost": job.max_cost, "after_memory_kill": job.after_memory_kill}
        plan["store"] = f"{job.store.rstrip('/')}/{self.run_id}" if job.store else ""
        plan["resume_args"] = [word.replace(RUN, self.run_dir) for word in job.resume_args]
        return {f"{self.run_dir}/{supervisor.FOLDER}/job.json": json.dumps(plan, indent=1, ensure_ascii=False)}

    def check_nodes(self) -> None:
        if len(self.hosts) != self.job.nodes:
            wanted = f"the job wants {self.job.nodes} nodes, --on names {len(self.hosts)}"
            raise bad_input(f"{wanted}: --on {self.kind}:HOST1,HOST2")


# What a target cannot honour, by the field of job.yaml: refused, never dropped. Whatever else an engine lacks, its
# own render refuses; what it has no choice in (accelerators of a machine that is there) is preflight's to compare.
_NO_CONTAINER = "it starts no container; --on docker does"
_GATE: dict[str, str] = {"image": _NO_CONTAINER, "mounts": _NO_CONTAINER, "signal": "its warning is TERM"}
_ADDRESS = "the engine itself tells the nodes who is first"
_KAGGLE = "Kaggle has no word for it"
CANNOT: dict[str, dict[str, str]] = {
    "local": {**_GATE, "nodes": "it is one machine; --on ssh:HOST1,HOST2 takes several"},
    "ssh": _GATE,
    "slurm": {
        "image": "Slurm itself starts no container; with Pyxis: extra: {slurm: {container-image: IMAGE}}",
        "mounts": "Slurm mounts nothing; with Pyxis: extra: {slurm: {container-mounts: FROM:TO}}",
        "master_addr": _ADDRESS,
    },
    "k8s": {"master_addr": _ADDRESS},
    "skypilot": {"master_addr": _ADDRESS, "shm_size": "SkyPilot chooses it"},
    "kaggle": dict.fromkeys(("image", "grace", "signal", "shm_size", "max_restarts", "master_addr"), _KAGGLE),
    "docker": {},
    "openclaw": {"max_restarts": "nobody is there to restart it but the agent"},
}
# fields about restarts, which slurm, k8s and skypilot do in their own way
_OWN_RESTARTS = ("max_cost", "resume_args", "after_memory_kill")


def steps(order: Order) -> list[Step]:
    """What will be done on a target, for submit; refused is what it could not honour."""
    job, cannot = order.job, dict(CANNOT[order.kind])
    if order.kind not in SUPERVISED:
        cannot |= dict.fromkeys(_OWN_RESTARTS, "it is for restarts by our own supervisor, on local, ssh and docker")
        cannot["store"] = "nobody of ours is there at its end; push it then: rgt transfer push"
    elif order.job.nodes > 1:
        several = "no node can tell alone that all have ended; resume by hand, or leave it to Slurm or Kubernetes"
        cannot |= dict.fromkeys(("max_restarts", "store", *_OWN_RESTARTS), several)
    for name, why in cannot.items():
        if getattr(job, name) != getattr(Job(""), name) and not (name == "max_restarts" and job.max_restarts == 0):
            raise bad_input(f"--on {order.kind} cannot honour `{name}`: {why}")
    rendered: list[Step] = backend(order.kind).render(order)
    return rendered


@dataclass
class Step:
    """One command on one host, after its files are there. `secrets` are names; values are added when it runs.

    Without words it is a step that only somebody else can take: its files are shown, nothing runs.
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
    state: str  # one of rgt.run.record
    exit_code: int | None = None
    detail: str = ""
    still_running: tuple[int, ...] = ()  # nodes that outlive the one that decided the state


def parse_target(target: str) -> tuple[str, list[Host]]:
    """'local', 'ssh:a,b', 'ssh://root@a:2222', 'docker', 'docker:box', 'slurm:login', 'k8s', ..."""
    kind, _, names = target.partition(":")
    if kind not in KINDS:
        raise bad_input(f"unknown target {target!r}; it is one of {', '.join(KINDS)}, some with :host")
    names = target if names.startswith("//") else names  # the name of a host with a port
    hosts = [Host(name.strip().rstrip("/")) for name in names.split(",") if name.strip()]
    if kind == "ssh" and not hosts:
        raise bad_input("the target ssh needs a host: --on ssh:HOST (a name that `ssh` knows) or ssh://USER@HOST:PORT")
    if names and kind not in ("ssh", "docker", "slurm", "openclaw"):
        raise bad_input(f"the target {kind} takes no host")
    if len({host.name for host in hosts}) < len(hosts):
        raise bad_input(f"{target} names a host twice")
    return kind, hosts or [Host()]


def order_of(run: Run) -> Order | None:
    """The order by which launch started this run; None when something else did, or a box wrote its run.json."""
    if not run.is_recorded_here:
        return None
    record = run.record()
    if "target" not in record["job"]:
        return None
    kind, hosts = parse_target(record["job"]["target"])
    return Order(from_record(record), run.id, kind, hosts)


def places(run: Run) -> list[Place]:
    """Where launch started this run behind ssh, the first node first; none when it did not."""
    order = order_of(run)
    return [Place(host, order.run_dir) for host in order.hosts if host.name] if order else []


def open_order(path: Path) -> tuple[Run, Order]:
    """A run that launch started, and by which order."""
    run = open_run(path)
    order = order_of(run)
    if order:
        return run, order
    if not run.is_recorded_here:
        why = "its run.json came with a pull, and nothing that a box wrote is run or contacted from here"
        raise refused(f"{path}: {why}; name the run directory that launch made")
    look = bundle.command("takeover", "snapshot")
    raise bad_input(f"{path} was not started by launch; see what runs here: {look}")


def settle(run: Run, order: Order) -> Status:
    """What the engine says; an end that nobody recorded becomes an event now."""
    now: Status = backend(order.kind).status(order)
    last = (run.last_event() or {}).get("event")
    under_way = now.state == LOST and last == "launched"  # the submit may still be on its way there
    if now.state in OVER and not under_way and last not in (FINISHED, FAILED, STOPPED):
        event = FAILED if now.state == LOST else now.state
        run.log_event(event, state=now.state, exit_code=now.exit_code, detail=now.detail)
    return now


def engine_name(run_id: str, longest: int = 52) -> str:
    """The run id where a name must be a DNS label: one id, one name, always the same.

    52, because Kubernetes adds "-<index>" and five random letters within 63.
    """
    name = "rgt-" + re.sub(r"[^a-z0-9]+", "-", run_id.lower()).strip("-")
    if name == f"rgt-{run_id}" and len(name) <= longest:
        return name
    return f"{name[: longest - 9].rstrip('-')}-{hashlib.sha256(run_id.encode()).hexdigest()[:8]}"


def backend(kind: str) -> ModuleType:
    return importlib.import_module(f"rgt.job.backends.{'gate' if kind in ('local', 'ssh') else kind}")


def carry_out(order: Order, steps: list[Step]) -> None:
    """Run the steps in order; stop with one sentence at the first failure. status tells how far it got."""
    secrets = order.job.secret_values() if any(step.secrets for step in steps) else {}
    for step in steps:
        for path, text in step.files.items():
            step.host.put(path, text.encode())
        env = {**step.env, **{name: secrets[name] for name in step.secrets}}
        done = step.host.run(step.words, cwd=step.cwd, env=env, expand=step.expand, seconds=step.seconds)
        if done.code:
            raise lacking(f"{step.words[0]} failed on {step.host.title}: {done.sentence()}")


# -- what several backends render


# with -c the first entry of sys.path is the job's directory, whose modules are not ours
_SUPERVISE_HERE = "import sys; sys.path[0] = sys.argv.pop(1); from rgt.job.supervisor import main; main()"


def supervisor_words(host: Host) -> list[str]:
    """What starts the supervisor there; a run directory comes behind it."""
    if host.name:
        return box.tool_words("supervise")
    return [sys.executable, "-c", _SUPERVISE_HERE, str(bundle.SCRIPTS)]


def exports(variables: dict[str, str]) -> str:
    """For a shell script, each value quoted."""
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())


def limit_words(job: Job) -> list[str]:
    """timeout(1) with the job's signal and grace, for engines without a time limit of their own."""
    if not job.time_limit:
        return []
    return ["timeout", "-s", job.signal, "-k", seconds_word(job.grace), seconds_word(job.time_limit)]


# -- what several backends make of an answer


def engine_states(**words: str) -> dict[str, str]:
    """Map each of the engine's words to our state, from keywords such as queued="PENDING CONFIGURING"."""
    return {word: state for state, text in words.items() for word in text.split()}


def ask(host: Host, words: list[str], doing: str, gone: str = "", seconds: float = SECONDS) -> Done | None:
    """The engine's answer; None when it says that there is no such job. Any other failure raises."""
    done = host.run(words, seconds=seconds)
    if done.code and gone and re.search(gone, done.out + done.err):
        return None
    if done.code:
        raise lacking(f"cannot {doing}: {done.sentence()}")
    return done


def ended(code: int, detail: str = "") -> Status:
    return Status(FAILED if code else FINISHED, code, detail)


def combine(parts: list[Status]) -> Status:
    """Several nodes: one that failed, or is lost, decides; the job is finished when all are."""
    worst_first = (FAILED, LOST, STOPPED, *ACTIVE, FINISHED)
    first = min(parts, key=lambda part: worst_first.index(part.state))
    if first.state in (*ACTIVE, FINISHED):
        return first
    living = tuple(node for node, part in enumerate(parts) if part.state in ACTIVE)
    return replace(first, still_running=living)
