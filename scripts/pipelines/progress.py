"""Where a pipeline is: events, the verdict on each phase, training_status.md.

Example:
    progress = Progress(run, config)
    progress.saved(path, step)               after every checkpoint; at a phase's end it also judges the phase
    text = status(run, config)["text"]
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from pipelines import ledger
from pipelines.schedule import Phase, Schedule
from pipelines.tokens import Validation
from rgt import files
from rgt.errors import FINDINGS, RgtError
from rgt.ids import RUN_ID
from rgt.report import progress as say
from rgt.rundir import Run

PREEMPTED = 143  # what a shell shows for SIGTERM; launchers and schedulers know it


class Progress:
    """What one training process writes about itself. Only the first rank makes one."""

    def __init__(self, run: Run, config: dict[str, Any]) -> None:
        self.run, self.config, self.schedule = run, config, Schedule.of(config)
        self.framework = config["framework"]

    def started(self, step: int, resumed: bool) -> None:
        self.run.log_event("resumed" if resumed else "launched", step=step, phase=self.schedule.at(step).name)
        say(f"{'resumed at' if resumed else 'started at'} step {step} of {self.schedule.total}, phase "
            f"{self.schedule.at(step).name}")  # fmt: skip
        ledger.refresh(self.run, self.framework)
        for phase in self.schedule.phases:  # killed between the last checkpoint of a phase and its verdict
            if phase.end <= step and phase.name not in verdicts(self.run):
                self._judge(phase, None)
        self.render()

    def saved(self, path: Path, step: int) -> None:
        phase = self.schedule.ending(step)
        verified = phase is not None and self._verified(path, step)
        ledger.record(self.run, path, step, verified, _losses(self.run, step))
        self.run.log_event("checkpoint", step=step, path=path.relative_to(self.run.path).as_posix())
        ends = {each.end for each in self.schedule.phases}
        ledger.retain(self.run, self.framework, self.config["checkpoints"]["keep"], ends)
        if phase and phase.name not in verdicts(self.run):
            self._judge(phase, path)
        self.render()

    def _verified(self, path: Path, step: int) -> bool:
        why = ledger.damage(ledger.Checkpoint(step, path), self.framework)
        if why:
            raise RgtError(f"{path} was just saved and is damaged: {why}; is the disk full or failing?", FINDINGS)
        return True

    def _judge(self, phase: Phase, path: Path | None) -> None:
        verdict = judge(self.run, phase)
        place = {"checkpoint": path.relative_to(self.run.path).as_posix()} if path else {}
        following = self.schedule.at(phase.end)
        after = {"next": following.name} if following.start == phase.end else {}
        self.run.log_event("phase", step=phase.end, phase=phase.name, **verdict, **place, **after)
        say(f"phase {phase.name} ended at step {phase.end}: {sentence(verdict)}")

    def stop_if_missed(self, step: int) -> None:
        """`on_miss: stop` is the user's own word; without it a miss is disclosed and the run goes on."""
        for phase in self.schedule.phases:
            verdict = verdicts(self.run).get(phase.name, {})
            if phase.on_miss == "stop" and phase.end <= step and verdict.get("verdict") == "missed":
                self.run.log_event("stopped", step=step, reason=f"phase {phase.name} missed its criterion")
                self.render()
                raise RgtError(f"phase {phase.name} missed its criterion ({sentence(verdict)}) and says on_miss: stop; "
                               "set it to continue in training_config.yaml to go on", FINDINGS)  # fmt: skip

    def preempted(self, step: int, signal: str) -> int:
        self.run.log_event("preempted", step=step, signal=signal)
        self.render()
        say(f"{signal}: step {step} is saved; the same command goes on from there")
        return PREEMPTED

    def finished(self, step: int, validation: Validation | None = None) -> None:
        if validation is not None:
            self._write_results(step, validation)
        if not any(row["event"] == "finished" for row in events(self.run)):
            self.run.log_event("finished", step=step)
        self.render()
        missed = [name for name, row in verdicts(self.run).items() if row["verdict"] == "missed"]
        say(f"finished at step {step}" + (f"; criterion not met: {', '.join(missed)}" if missed else ""))

    def _write_results(self, step: int, validation: Validation) -> None:
        """For a run with a run id, as launch makes it: other scripts find results by it."""
        value = self.run.curve("loss", "val").get(step)
        if value is None or not math.isfinite(value) or not RUN_ID.fullmatch(self.run.id):
            return
        saved = [entry["path"] for entry in ledger.entries(self.run) if entry["step"] == step]
        loss: dict[str, Any] = {
            "name": "loss", "value": value, "split": "val", "n": len(validation), "direction": "down",
            "eval_set_sha256": validation.sha256, "step": step,
        }  # fmt: skip
        if saved:
            loss["checkpoint"] = saved[0]
        self.run.write_results({"run_id": self.run.id, "metrics": [loss]})

    def render(self) -> None:
        files.write_text(self.run.status, status(self.run, self.config)["text"])


# -- verdicts


def events(run: Run) -> list[dict[str, Any]]:
    return list(files.read_jsonl(run.events, bad=[])) if run.events.exists() else []


def verdicts(run: Run) -> dict[str, dict[str, Any]]:
    return {row["phase"]: row for row in events(run) if row["event"] == "phase"}


def judge(run: Run, phase: Phase) -> dict[str, Any]:
    """met | missed | unjudged, with the number and the bound it was held against."""
    wanted = phase.criterion
    if wanted is None:
        return {"verdict": "unjudged", "why": "no criterion"}
    split, metric = wanted.get("split", "val"), wanted["metric"]
    word = "at_most" if "at_most" in wanted else "at_least"
    curve = run.curve(metric, split)
    value = curve.get(phase.end)
    facts = {"metric": metric, "split": split, "bound": word}
    threshold = wanted[word]
    if threshold == "previous":
        threshold = curve.get(phase.start) if phase.start else None
    if value is None or threshold is None:
        lacking = f"{split} {metric} at step {phase.end if value is None else phase.start}"
        return {**facts, "verdict": "unjudged", "why": f"there is no {lacking}"}
    good = math.isfinite(value) and (value <= threshold if word == "at_most" else value >= threshold)
    shown = value if math.isfinite(value) else str(value)
    return {**facts, "verdict": "met" if good else "missed", "value": shown, "threshold": threshold}


def sentence(verdict: dict[str, Any]) -> str:
    if verdict["verdict"] == "unjudged":
        return f"not judged, {verdict['why']}"
    word = {"at_most": "at most", "at_least": "at least"}[verdict["bound"]]
    value = verdict["value"]
    seen = f"{value:.4g}" if isinstance(value, float) else str(value)
    return (
        f"{verdict['verdict']}: {verdict['split']} {verdict['metric']} {seen}, wanted {word} {verdict['threshold']:.4g}"
    )


def _losses(run: Run, step: int) -> dict[str, float]:
    found = {f"{split}_loss": run.curve("loss", split).get(step) for split in ("train", "val")}
    return {name: value for name, value in found.items() if value is not None and math.isfinite(value)}


# -- the status


def status(run: Run, config: dict[str, Any]) -> dict[str, Any]:
    """Everything from the files of the run; nothing is asked of a process."""
    schedule, known, rows = Schedule.of(config), verdicts(run), events(run)
    saved = ledger.entries(run)
    step = saved[-1]["step"] if saved else 0
    train, val = run.curve("loss", "train"), run.curve("loss", "val")
    state = _state(rows)
    phases = [_phase_row(phase, known.get(phase.name), step, state) for phase in schedule.phases]
    facts = {
        "state": state,
        "step": max([step, *train]),
        "total": schedule.total,
        "checkpoint": saved[-1]["path"] if saved else None,
        "loss": {"train": _last(train), "val": _last(val)},
        "phases": phases,
    }
    return {**facts, "text": _markdown(config, schedule, facts, rows)}


def _last(curve: dict[int, float]) -> float | None:
    return next(reversed(curve.values())) if curve else None


def _state(rows: list[dict[str, Any]]) -> str:
    last = next(
        (row["event"] for row in reversed(rows) if row["event"] not in ("checkpoint", "phase", "set_aside")), None
    )
    words = {None: "not started", "launched": "started", "resumed": "started", "finished": "finished",
             "preempted": "preempted", "stopped": "stopped", "failed": "failed"}  # fmt: skip
    return words.get(last, str(last))


def _phase_row(phase: Phase, verdict: dict[str, Any] | None, step: int, state: str) -> dict[str, Any]:
    if verdict:
        result = sentence(verdict)
    elif state != "not started" and phase.start <= step < phase.end:
        result = f"under way: {step - phase.start} of {phase.steps} steps saved"
    else:
        result = "not reached"
    return {"name": phase.name, "start": phase.start, "end": phase.end, "result": result,
            "verdict": verdict["verdict"] if verdict else None}  # fmt: skip


def _markdown(config: dict[str, Any], schedule: Schedule, facts: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    lines = [
        f"# {config['name']}: {facts['state']}, step {facts['step']} of {facts['total']}",
        "",
        f"- framework: {config['framework']}, {config['precision']}, {config['devices']} device(s)",
        f"- newest checkpoint: {facts['checkpoint'] or 'none yet'}",
        *(f"- {split} loss: {value:.4f}" for split, value in facts["loss"].items() if value is not None),
        "",
        "| phase | steps | data mix | learning rate | criterion | result |",
        "|---|---|---|---|---|---|",
    ]
    for phase, row in zip(schedule.phases, facts["phases"], strict=True):
        mix = ", ".join(f"{name} {weight:g}" for name, weight in phase.mix.items())
        rate = f"{phase.lr['policy']} {schedule.peak * phase.lr['start']:.3g} to {schedule.peak * phase.lr['end']:.3g}"
        lines.append(f"| {phase.name} | {phase.start} to {phase.end} | {mix} | {rate} | {_criterion(phase)} | "
                     f"{row['result']} |")  # fmt: skip
    aside = [row["reason"] for row in rows if row["event"] == "set_aside"]
    if aside:
        lines += ["", "Set aside:", "", *(f"- {line}" for line in aside[-10:])]
    lines += ["", "Start, or go on after a stop: `./train.sh` in the pipeline's folder."]
    return "\n".join(lines) + "\n"


def _criterion(phase: Phase) -> str:
    if phase.criterion is None:
        return "none"
    word = "at_most" if "at_most" in phase.criterion else "at_least"
    bound = phase.criterion[word]
    shown = "the value before the phase" if bound == "previous" else f"{bound:g}"
    return f"{phase.criterion.get('split', 'val')} {phase.criterion['metric']} {word.replace('_', ' ')} {shown}"
