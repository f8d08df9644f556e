# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "nvidia-ml-py"]
# ///
"""RUN · checks a production config against the machine it will run on, says how long it takes, and launches it

Example:
    scripts/remote_train.sh --cluster box --config prod.yaml --gpus 4 --name base --epoch-time 95s
    scripts/remote_train.sh --cluster local --config prod.yaml --gpus 1 --name base --dry-run

Writes <name>.job.yaml beside the config, starts it with launch.py, leaves its findings in the run directory as
remote_train.json, and prints the commands that watch, pull and verify the run.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

import backends
from production.checks import check
from production.plan import Plan
from rgt import cli, errors, files, job, rundir, submit, units
from rgt.errors import RgtError, bad_input
from rgt.ids import slugify
from rgt.report import Report

MAX_LOSS = "1h"
_HEAD = "# written by remote_train.py"


@click.command(cls=cli.Command)
@click.option("--cluster", required=True, help="local, a host that ssh knows (several: a,b), or a target of launch.py "
              "such as slurm:login.")  # fmt: skip
@click.option(
    "--config", required=True, type=click.Path(path_type=Path, dir_okay=False), help="Production config, YAML."
)
@click.option("--gpus", required=True, type=click.IntRange(0), help="GPUs on each node; 0 trains on the CPU.")
@click.option("--name", required=True, help="Name of the run.")
@click.option("--epoch-time", type=units.Duration(), help="Measured time of one epoch, validation included: 95s, 12m.")
@click.option("--max-loss", type=units.Duration(), default=MAX_LOSS, show_default=True,
              help="Work that a preemption may cost without a warning: the time between two checkpoints.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Check everything, print the exact commands, and start nothing.")
@cli.report_options
def main(config: Path, cluster: str, dry_run: bool, fmt: str | None, **how: Any) -> int:
    """Check a production config, say how long it will take, launch it, and say what comes next.

    A world_size that is not the number of GPUs, or a path that is not there, stops it: exit 1, nothing started. All
    else is a warning that stays with the run; exit 0 means that the run was submitted.

    Example: scripts/remote_train.sh --cluster box --config prod.yaml --gpus 4 --name base --epoch-time 95s
    """
    path = config.absolute()
    plan = Plan(job.load_yaml(path, "production_config"), path, target=_target(cluster), **how)
    report = Report("remote_train")
    check(plan, report)
    report.data = {"target": plan.target, "estimate": plan.estimate, "run": None, "next": {}}
    blocked = any(finding.severity == "error" for finding in report.findings)
    lines = ["nothing was started"] if blocked else _dry_run(plan, report) if dry_run else _start(plan, report)
    if fmt is None:
        click.echo("\n".join(_facts(plan)))
    report.emit(fmt, "\n".join(lines))
    return errors.FINDINGS if blocked else errors.OK


def _target(cluster: str) -> str:
    """A bare word is a host."""
    kind, colon, _ = cluster.partition(":")
    target = cluster if cluster == "local" or (colon and kind in backends.KINDS) else f"ssh:{cluster}"
    backends.parse_target(target)
    return target


# -- what is printed


def _facts(plan: Plan) -> list[str]:
    config = plan.config
    processes = "1 process" if plan.processes == 1 else f"{plan.processes} processes"
    lines = [f"run        {plan.name} on {plan.target}: {processes} ({plan.nodes} x {plan.gpus} GPUs)"]
    if "batch_size" in config:
        steps = config.get("gradient_accumulation_steps", 1)
        total = config["batch_size"] * plan.processes * steps
        lines.append(f"batch      {config['batch_size']} x {processes} x {steps} accumulated = {total}")
    return [*lines, f"duration   {_duration(plan)}"]


def _duration(plan: Plan) -> str:
    estimate = plan.estimate
    if estimate is None:
        return (
            "unknown; measure it: run a copy of the config with epochs: 2, take the second epoch's time from its log "
            "(the first warms up), and give it as --epoch-time"
        )
    each, all_ = units.show_duration(estimate["epoch_time"]), units.show_duration(estimate["seconds"])
    early = "; early stopping can end it sooner" if plan.config.get("early_stopping_patience") else ""
    resumed = "; what resume_from has done already comes off" if plan.config.get("resume_from") else ""
    return f"{all_} = {estimate['epochs']} epochs x {each} an epoch{early}{resumed}"


def _next(plan: Plan, run: str) -> dict[str, str]:
    """The commands for later."""
    word = shlex.quote(run)
    ours = {
        "watch": f"watch.py {word}",
        "state": f"launch.py status {word}",
        "log": f"launch.py logs {word} --follow",
        "pull": f"transfer.py pull {word}",
        "verify": f"verify_local.py {word}",
    }
    if not plan.hosts[0].name:  # it is here, or its engine has its own way to hand out files
        del ours["pull"]
    return {key: f"python scripts/{line}" for key, line in ours.items()}


# -- the launch


def _write_description(plan: Plan) -> Path:
    path = plan.path.with_name(f"{slugify(plan.name)}.job.yaml")
    if path.exists() and not path.read_bytes().startswith(_HEAD.encode()):
        raise bad_input(f"{path} is not of our making and would be overwritten; choose another --name, or move it")
    text = files.dump(plan.spec(), str(path), indent=2).decode()
    files.write_text(path, f"{_HEAD} from {plan.path.name}\n{text}\n")
    return path


def _refuse_twin(plan: Plan) -> None:
    """The same name twice at once is a slip of the hand that costs a second set of GPUs."""
    for run, record in submit.runs(plan.job(), slugify(plan.name)):
        if record["config"].get("name") != plan.name or _ended(run):
            continue
        reply = submit.launch("status", str(run.path))
        state = reply.data.get("state")
        if state is None:
            raise bad_input(f"{run.path} may be running: {reply.sentence}; choose another --name")
        if state in ("queued", "running"):
            raise bad_input(f"{plan.name} is {state} already: {run.path}; stop it with launch.py, or change --name")


def _ended(run: rundir.Run) -> bool:
    """By its own record; a submit that failed half-way is recorded, too, but its job may be there."""
    try:
        last = run.last_event()
    except RgtError:
        return False
    if last is None:
        return False
    return last["event"] in ("finished", "stopped") or (last["event"] == "failed" and last.get("exit_code") is not None)


def _dry_run(plan: Plan, report: Report) -> list[str]:
    words = shlex.join(plan.job().words("{run}"))
    report.data["next"] = _next(plan, f"{plan.job().roots()[-1]}/<run-id>")
    shipped = [f"would put  {plan.there(plan.shipped)}"] if plan.ships_config else []
    return [*shipped, f"would run  {words}", f"in         {plan.job().workdir} on {plan.target}", "nothing was started"]


def _start(plan: Plan, report: Report) -> list[str]:
    _refuse_twin(plan)
    if plan.ships_config:
        for host in plan.hosts:
            host.put(plan.there(plan.shipped), plan.path.read_bytes())
    reply = submit.launch("submit", str(_write_description(plan)), "--on", plan.target)
    if reply.code:
        raise RgtError(reply.sentence, reply.code)
    run = reply.data["run"]
    report.data |= {"run": run, "next": _next(plan, run)}
    files.write_json(Path(run) / "remote_train.json", report.as_dict(), "report")
    return [f"started    {run}", *(f"{key:10} {line}" for key, line in report.data["next"].items())]


if __name__ == "__main__":
    main()
