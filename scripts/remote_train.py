# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""RUN · checks a production config against the machine it will run on, says how long it takes, and launches it

Example:
    rgt remote_train --cluster box --config prod.yaml --gpus 4 --name base --epoch-time 95s
    rgt remote_train --cluster local --config prod.yaml --gpus 1 --name base --dry-run

Writes <name>.job.yaml beside the config, starts it with launch.py, leaves its findings in the run directory as
remote_train.json, and prints the commands that watch, pull and verify the run.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgt import bundle, cli, errors, files, schema
from rgt.errors import RgtError, bad_input
from rgt.host.ssh import Host
from rgt.report import Report
from rgt.units import show_duration

import click

if TYPE_CHECKING:
    from rgt.job import description
    from rgt.job.audit import Row

FILE = click.Path(path_type=Path, dir_okay=False)
WITH_FILES = ("local", "ssh", "slurm", "docker")  # targets whose disk we can look at
# fields of job.yaml that a config may have among its own; all the others stand below its key `job`
JOB_KEYS = "command script args workdir python env secrets image time_limit grace max_restarts seed".split()
_HEAD = "# written by remote_train.py"
# what a training is started by when the config does not say so, and how it takes its config
_STARTERS = ("train.sh", "train.py")
_PYTHONS = (".venv/bin/python", "venv/bin/python")
_CONFIG_OPTION = re.compile(r"""['"](--(?:config|cfg|conf)(?:[-_](?:file|path|yaml))?)['"]""")
_SPAWNS = re.compile(r"\bspawn\(|elastic_launch|torchrun|accelerate launch|deepspeed ")  # it starts its ranks itself


@click.command(cls=cli.Command)
@click.option("--cluster", required=True, help="local, ssh hosts (a or a,b), or a target of launch.py (slurm:login).")
@click.option("--config", required=True, type=FILE, help="Production config, YAML.")
@click.option("--gpus", required=True, type=click.IntRange(0), help="GPUs on each node; 0 trains on the CPU.")
@click.option("--name", required=True, help="Name of the run.")
@click.option("--epoch-time", type=cli.Duration(), help="Measured time of one epoch, validation included: 95s, 12m.")
@click.option("--max-loss", type=cli.Duration(), default="1h", show_default=True, help="What a preemption may cost.")
@click.option("--dry-run", is_flag=True, help="Check everything, print the exact commands, and start nothing.")
@cli.report_options
def main(config: Path, cluster: str, dry_run: bool, fmt: str | None, **how: Any) -> int:
    """Check a production config, say how long it will take, launch it, and say what comes next.

    A world_size that is not the number of GPUs, or a path that is not there, stops it: exit 1, nothing started. All
    else is a warning that stays with the run; exit 0 means that the run was submitted.

    Example: rgt remote_train --cluster box --config prod.yaml --gpus 4 --name base --epoch-time 95s
    """
    from rgt.job import backends, description
    from rgt.job.audit import add_findings

    kind, colon, _ = cluster.partition(":")
    target = cluster if cluster == "local" or (colon and kind in backends.KINDS) else f"ssh:{cluster}"
    path = config.absolute()
    run = ProductionRun(description.load_yaml(path), path, target=target, **how)
    rows = [replace(row, path=str(path) if row.name else "") for row in run.rows()]
    report = Report("remote_train", data={"target": target, "estimate": run.estimate, "run": None, "next": {}})
    add_findings(report, rows)
    blocked = any(row.status == "fail" for row in rows)
    lines = ["nothing was started"]
    if dry_run and not blocked:
        report.data["next"] = _next_commands(run, f"{run.job.roots()[-1]}/<run-id>")
        words = shlex.join(run.job.words("{run}"))
        lines = [f"would run  {words}", f"in         {run.job.workdir} on {target}", *lines]
        lines = [f"would put  {run.there(run.shipped)}", *lines] if run.ships_config else lines
    elif not blocked:
        lines = _start(run, report)
    if fmt is None:
        click.echo("\n".join(run.facts()))
    report.emit(fmt, "\n".join(lines))
    return errors.FINDINGS if blocked else errors.OK


@dataclass
class ProductionRun:
    """A production config, and where it goes: as a job description for launch, with what can be said against it."""

    config: dict[str, Any]
    path: Path
    name: str
    target: str
    gpus: int
    epoch_time: float | None
    max_loss: float

    def __post_init__(self) -> None:
        from rgt.job import backends, description, settings

        self.kind, self.hosts = backends.parse_target(self.target)
        self.known = settings.plain_names(self.config)
        self.said = {name: setting.value for name, setting in self.known.items()}
        schema.check(self.said, "production_config", str(self.path))
        self.nodes = int(self.config.get("nodes", len(self.hosts)))
        self.processes = self.nodes * max(1, self.gpus)
        # epochs x measured time of one; None when nobody measured, or the config counts steps
        epochs, each = self.said.get("epochs"), self.epoch_time
        self.estimate = {"epochs": epochs, "epoch_time": each, "seconds": epochs * each} if epochs and each else None
        # where {config} is, seen from workdir: its own file for each content, so that a run keeps what it read
        self.shipped = f".rgt/{self.path.stem}-{hashlib.sha256(self.path.read_bytes()).hexdigest()[:8]}.yaml"
        self.given = {key: self.config[key] for key in JOB_KEYS if key in self.config}
        if not isinstance(self.given.get("env", {}), dict):  # env: CartPole-v1
            del self.given["env"]
        below = self.config.get("job")
        self.given |= below if isinstance(below, dict) else {}
        if isinstance(self.given.get("command"), str):  # as people write it
            self.given["command"] = shlex.split(self.given["command"])
        if "command" not in self.given and "script" not in self.given:
            self.given |= self._found_start()
        self.ships_config = "config" in description.holes(self.given)

    def _found_start(self) -> dict[str, Any]:
        """train.sh or train.py of the workdir, with the config by its own option, and the workdir's own Python."""
        given = str(self.config.get("workdir", "."))
        workdir = given if given.startswith(("/", "~")) else f"{self.path.parent}/{given}"
        host = self.hosts[0] if self.kind in WITH_FILES else Host()
        texts = {name: host.read(f"{workdir}/{name}") for name in _STARTERS}
        name = next((name for name, data in texts.items() if data is not None), None)
        if name is None:
            example = 'script: main.py and args: [--config, "{config}"], or command: [bash, run.sh]'
            looked = f"{workdir} on {host.title} has neither {' nor '.join(_STARTERS)}"
            raise bad_input(f"{self.path} does not say what to start, and {looked}; add to it: {example}")
        text = (texts[name] or b"").decode(errors="replace")
        if name == "train.sh":
            return {"command": ["bash", name, *(["{config}"] if re.search(r"\$\{?[1@*]", text) else [])]}
        option = _CONFIG_OPTION.search(text)
        words = [option[1], "{config}"] if option else ["{config}"] if "sys.argv[1]" in text else []
        own = (path for path in _PYTHONS if not host.run(["test", "-x", f"{workdir}/{path}"], expand=(2,)).code)
        python = str(self.config.get("python") or next(own, "python3"))
        if _SPAWNS.search(text) and "LOCAL_RANK" not in text:  # torchrun around it would start N x N processes
            return {"command": [python, name, *words]}
        return {"script": name, "args": words, "python": python}

    @functools.cached_property
    def spec(self) -> dict[str, Any]:
        """The job description for launch."""
        from rgt.job import description

        scalars = {**self.config, **self.said}.items()
        values = {key: description.text(value) for key, value in scalars if isinstance(value, (str, int, float))}
        values["config"] = self.shipped
        for name in sorted(description.holes(self.given) - set(values)):
            raise bad_input(f"{self.path} asks for {{{name}}} in its words, but has no {name}")
        spec = {**description.fill(self.given, values), "name": self.name, "nodes": self.nodes}
        spec |= {"gpus_per_node": self.gpus, "output": self.config.get("output_dir", "runs")}
        schema.check(spec, "job", f"the job of {self.path}")
        return {**spec, "workdir": description.from_dict(spec, self.path.parent).workdir}

    @functools.cached_property
    def job(self) -> description.Job:
        from rgt.job import description

        return description.from_dict(self.spec, self.path.parent)

    def there(self, path: str) -> str:
        """A path of the config on the machine of the job."""
        return path if path.startswith(("/", "~")) else f"{self.job.workdir}/{path}"

    def facts(self) -> Iterator[str]:
        config, estimate = self.said, self.estimate
        processes = "1 process" if self.processes == 1 else f"{self.processes} processes"
        yield f"run        {self.name} on {self.target}: {processes} ({self.nodes} x {self.gpus} GPUs)"
        if "batch_size" in config:
            steps = config.get("gradient_accumulation_steps", 1)
            total = config["batch_size"] * self.processes * steps
            yield f"batch      {config['batch_size']} x {processes} x {steps} accumulated = {total}"
        renamed = [f"{each.key} is {ours}" for ours, each in self.known.items() if each.key != ours]
        if renamed:
            yield f"read as    {', '.join(renamed)}; the trainer gets its own words"
        if estimate is None:
            epochs = self.known["epochs"].key if "epochs" in self.known else "epochs"
            how = f"run a copy of the config with {epochs}: 2, take the second epoch's time from its log"
            yield f"duration   unknown; measure it: {how} (the first warms up), and give it as --epoch-time"
        else:
            each = f"{estimate['epochs']} epochs x {show_duration(estimate['epoch_time'])} an epoch"
            yield f"duration   {show_duration(estimate['seconds'])} = {each} at most"

    # -- what can be said against it before money is spent; a row is named by the key of the config that it is about

    def rows(self) -> Iterator[Row]:
        """fail is what cannot work; the rest is told."""
        from rgt.job import settings
        from rgt.job.audit import Row, fail, warn

        for key, meant in settings.misspelt(self.config).items():
            yield warn(key, "unknown", f"{key} is passed on to the trainer as it is; did you mean {meant}?")
        wanted = self.said.get("world_size")
        if wanted not in (None, self.processes):
            machines = f"{self.nodes} x {self.gpus} GPUs" if self.gpus else f"{self.nodes} x 1 process without a GPU"
            seen = f"world_size is {wanted}, but {machines} make {self.processes} processes"
            yield fail("world_size", "world-size", seen, f"world_size: {self.processes}, or another --gpus")
        yield from self._cadence()
        limit, estimate = self.job.time_limit, self.estimate
        if limit and estimate and estimate["seconds"] > limit:
            seen = f"it will take {show_duration(estimate['seconds'])} and is ended after {show_duration(limit)}"
            yield warn("time_limit", "time-limit", seen)
        if self.kind not in WITH_FILES:
            seen = f"paths and disk were not looked at: {self.kind} has no disk before the job runs"
            yield Row("", "info", seen, code="unjudged")
            return
        named = {key: self.there(value) for key, value in self.spec.items() if key == "script"}
        if isinstance(resume := self.said.get("resume_from"), str):
            named["resume_from"] = self.there(resume)
        for host in self.hosts:
            place = f"{host.name}:{self.job.workdir}" if host.name else self.job.workdir
            bring = bundle.command("transfer", "push", self.path.parent, place)
            for key, path in {"workdir": self.job.workdir, **named}.items():
                if host.run(["test", "-e", path], expand=(2,)).code:
                    seen = f"{path} does not exist on {host.title}"
                    yield fail(key, "missing", seen, f"mend the path, or bring it: {bring}")

    def _cadence(self) -> Iterator[Row]:
        """How much a preemption costs, and whether early stopping can do what it is for."""
        from rgt.job.audit import Row, warn

        unit = "epochs" if "epochs" in self.said else "steps"
        epochs, every = self.said.get("epochs", self.said.get("max_steps")), self.said.get("save_every")
        if not epochs:
            seen = "it names no number of epochs or steps: neither duration nor cadence was judged"
            yield Row("", "info", seen, code="unjudged")
            return
        word = {name: setting.key for name, setting in self.known.items()}
        if every is None or every > epochs:
            saves = f"{word.get('save_every', 'save_every')} is {every}"
            yield warn("save_every", "cadence", f"{saves}: no checkpoint before the end, {epochs} {unit}")
        elif unit == "epochs" and self.epoch_time and every * self.epoch_time > self.max_loss:
            loss, each, most = map(show_duration, (every * self.epoch_time, self.epoch_time, self.max_loss))
            seen = f"a preemption loses up to {loss} of work: {every} epochs x {each} between checkpoints"
            fix = f"save_every: {max(1, int(self.max_loss // self.epoch_time))}"
            yield warn("save_every", "cadence", f"{seen} (--max-loss is {most})", fix)
        patience, validated = self.said.get("early_stopping_patience"), self.said.get("validate_every")
        if patience and (validated is None or patience * validated >= epochs):
            seen = f"it never fires: patience {patience} x validate_every {validated}, and there are {epochs} {unit}"
            yield warn("early_stopping_patience", "early-stopping", seen)


# -- the launch


def _start(run: ProductionRun, report: Report) -> list[str]:
    # the same name twice at once is a slip of the hand that costs a second set of GPUs
    from rgt.job import backends, description
    from rgt.run.record import ACTIVE, find, slugify

    slug = slugify(run.name)
    for twin in (one for root in dict.fromkeys(run.job.roots()) for one in find(root) if slug in one.id):
        name, last = "", dict[str, Any]()
        with contextlib.suppress(RgtError):  # an unreadable one is passed over
            name = files.read_json(twin.run_json, "run")["config"].get("name")
            last = twin.last_event() or {}
        # a submit that failed half-way is recorded without an exit code: its job may be there
        ends = ("finished", "stopped", "failed") if last.get("exit_code") is not None else ("finished", "stopped")
        if name != run.name or last.get("event") in ends:
            continue
        try:
            state = backends.settle(*backends.open_order(twin.path)).state
        except RgtError as error:
            raise bad_input(f"{twin.path} may be running: {error.message}; choose another --name") from None
        if state in ACTIVE:
            raise bad_input(f"{run.name} is {state} already: {twin.path}; stop it with launch.py, or change --name")
    if run.ships_config:
        for host in run.hosts:
            host.put(run.there(run.shipped), run.path.read_bytes())
    path = run.path.with_name(f"{slug}.job.yaml")
    if path.exists() and not path.read_bytes().startswith(_HEAD.encode()):
        raise bad_input(f"{path} was not written by remote_train and would be overwritten; choose another --name")
    text = files.dump(run.spec, str(path), indent=2).decode()
    files.write_text(path, f"{_HEAD} from {run.path.name}\n{text}\n")
    reply = description.launch("submit", str(path), "--on", run.target)
    if reply.code:
        raise RgtError(reply.sentence, reply.code)
    directory = reply.data["run"]
    report.data |= {"run": directory, "next": _next_commands(run, directory)}
    files.write_json(Path(directory) / "remote_train.json", report.as_dict(), "report")
    return [f"started    {directory}", *(f"{key:10} {line}" for key, line in report.data["next"].items())]


def _next_commands(run: ProductionRun, directory: str) -> dict[str, str]:
    ours = {"watch": ["watch"], "state": ["launch", "status"], "log": ["launch", "logs"]}
    if run.hosts[0].name:  # else it is here, or its engine has its own way to hand out files
        ours["pull"] = ["transfer", "pull"]
    ours["verify"] = ["verify_local"]
    return {key: bundle.command(*words, directory) for key, words in ours.items()}


if __name__ == "__main__":
    main()
