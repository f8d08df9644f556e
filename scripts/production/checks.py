"""What can be said against a production run before money is spent. Errors are what cannot work; the rest is told."""

from __future__ import annotations

from production.plan import Plan
from rgt import submit, units
from rgt.hosts import Host
from rgt.report import Report

# Accelerate and the HF Trainer say no, fp16, bf16, fp8; Lightning says 16-mixed and so on. YAML reads `no` as false.
PRECISIONS = ("no", "none", "false", "fp32", "tf32", "fp16", "bf16", "fp8", "16-mixed", "bf16-mixed", "16-true",
              "bf16-true", "32-true")  # fmt: skip
WITH_FILES = ("local", "ssh", "slurm", "docker")  # targets whose disk we can look at
# Finds the nearest folder that exists (the output folder may not yet), prints the KiB that are free there.
_FREE = (
    'p=$0; while [ ! -e "$p" ] && [ "$p" != / ] && [ "$p" != . ]; do p=$(dirname "$p"); done; df -Pk "$p" | tail -n 1'
)


def check(plan: Plan, report: Report) -> None:
    """Everything that can be said before money is spent."""
    plan.job()
    _check_world(plan, report)
    _check_precision(plan, report)
    _check_saving(plan, report)
    _check_stopping(plan, report)
    _check_time(plan, report)
    if plan.kind in WITH_FILES:
        _check_paths(plan, report)
        _check_disk(plan, report)
    else:
        report.add(
            "unjudged", "info", f"paths and disk were not looked at: {plan.kind} has no disk before the job runs"
        )


def _check_world(plan: Plan, report: Report) -> None:
    wanted = plan.config.get("world_size")
    if wanted not in (None, plan.processes):
        machines = f"{plan.nodes} x {plan.gpus} GPUs" if plan.gpus else f"{plan.nodes} x 1 process without a GPU"
        other = "" if wanted % plan.nodes else f", or --gpus {wanted // plan.nodes}"
        report.add("world-size", "error", f"world_size is {wanted}, but {machines} make {plan.processes} processes",
                   path=str(plan.path), where="world_size", fix=f"world_size: {plan.processes}{other}")  # fmt: skip


def _check_precision(plan: Plan, report: Report) -> None:
    given = submit.text(plan.config.get("mixed_precision") or "no")
    if given.lower() not in PRECISIONS:
        report.add("precision", "warn", f"mixed_precision is {given!r}; known are {', '.join(PRECISIONS)}",
                   path=str(plan.path), where="mixed_precision")  # fmt: skip


def _check_saving(plan: Plan, report: Report) -> None:
    every, epochs = plan.config.get("save_every"), plan.config["epochs"]
    place = {"path": str(plan.path), "where": "save_every"}
    if every is None:
        report.add("cadence", "warn", "save_every is not set: nobody knows when a checkpoint is saved", **place)
    elif every > epochs:
        report.add("cadence", "warn", f"save_every {every} is more than epochs {epochs}: no checkpoint before the end",
                   **place)  # fmt: skip
    elif plan.epoch_time and every * plan.epoch_time > plan.max_loss:
        loss, most = units.show_duration(every * plan.epoch_time), units.show_duration(plan.max_loss)
        fewer = max(1, int(plan.max_loss // plan.epoch_time))
        report.add("cadence", "warn", f"a preemption loses up to {loss} of work: {every} epochs x "
                   f"{units.show_duration(plan.epoch_time)} between checkpoints (--max-loss is {most})", **place,
                   fix=f"save_every: {fewer}")  # fmt: skip


def _check_stopping(plan: Plan, report: Report) -> None:
    patience, every = plan.config.get("early_stopping_patience"), plan.config.get("validate_every")
    epochs = plan.config["epochs"]
    if not patience:
        return
    place = {"path": str(plan.path), "where": "early_stopping_patience"}
    if every is None:
        report.add("early-stopping", "warn", "early stopping needs validations, and validate_every is not set", **place)
    elif every > epochs:
        report.add("early-stopping", "warn", f"validate_every {every} is more than epochs {epochs}: it never validates "
                   "before the end, so it never stops early", **place)  # fmt: skip
    elif patience * every >= epochs:
        report.add("early-stopping", "warn", f"counted in validations it never fires: {patience} x {every} = "
                   f"{patience * every} epochs without progress, and there are {epochs}", **place)  # fmt: skip
    elif every > patience:
        report.add("early-stopping", "warn", f"validate_every {every} is more than the patience {patience}: counted in "
                   f"epochs, the first bad validation stops the run; counted in validations, it goes on for "
                   f"{patience * every} epochs", **place)  # fmt: skip


def _check_time(plan: Plan, report: Report) -> None:
    limit, estimate = plan.job().time_limit, plan.estimate
    if limit and estimate and estimate["seconds"] > limit:
        report.add("time-limit", "warn", f"it will take {units.show_duration(estimate['seconds'])} and is ended after "
                   f"{units.show_duration(limit)}", path=str(plan.path), where="time_limit")  # fmt: skip


def _check_paths(plan: Plan, report: Report) -> None:
    wanted = {"workdir": plan.job().workdir}
    if "script" in plan.config:
        wanted["script"] = plan.there(plan.config["script"])
    if plan.config.get("resume_from"):
        wanted["resume_from"] = plan.there(plan.config["resume_from"])
    for host in plan.hosts:
        for key, path in wanted.items():
            if host.run(["test", "-e", path], expand=(2,)).code:
                report.add("missing", "error", f"{path} does not exist on {host.title}", path=str(plan.path), where=key,
                           fix="bring it there, or mend the path")  # fmt: skip


def _check_disk(plan: Plan, report: Report) -> None:
    size, every = plan.config.get("checkpoint_size"), plan.config.get("save_every")
    if size is None:
        report.add("unjudged", "info", "the disk was not looked at: checkpoint_size is not in the config")
        return
    kept = plan.config.get("keep") or max(1, plan.config["epochs"] // (every or plan.config["epochs"]))
    each = units.size(str(size))
    need = each * kept * 2  # the new one is written beside the old ones before they go; logs and other runs need room
    for host in plan.hosts:
        free = _free(host, plan.output)
        if free is not None and free < need:
            formula = f"{units.show_size(each)} x {kept} kept x 2"
            report.add("no-space", "warn", f"checkpoints need {units.show_size(need)} ({formula}), {host.title} has "
                       f"{units.show_size(free)} free", path=str(plan.path), where="checkpoint_size",
                       fix=f"keep: {free // (2 * each)}" if free >= 2 * each else "another disk")  # fmt: skip


def _free(host: Host, path: str) -> int | None:
    done = host.run(["sh", "-c", _FREE, path], expand=(3,))
    fields = done.out.split()
    return int(fields[3]) * 1024 if done.code == 0 and len(fields) > 3 and fields[3].isdigit() else None
