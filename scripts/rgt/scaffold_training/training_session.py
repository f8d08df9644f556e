"""What every trainer of a pipeline does the same way: settings, the checkpoint to go on from, records, stop signals.

Example:
    conduct(train)                           in pretrain.py, on every rank; train(session) gives the exit code
    session.resume, session.step             what `python -m rgt.scaffold_training.training_session` chose just before
    session.stop.requested()                 whether to save and end
    session.saved(step)                      after every checkpoint; at a phase's end it also judges the phase

Only the first rank writes records; the others may call, too.
"""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgt import files
from rgt.checkpoint import index, inventory
from rgt.checkpoint.index import Keep
from rgt.checkpoint.inventory import Checkpoint
from rgt.checkpoint.store import StopSignals
from rgt.errors import FINDINGS, RgtError
from rgt.report import progress as say
from rgt.run.phases import Phase, Schedule, sentence, verdicts
from rgt.run.record import RUN_ID, Run
from rgt.scaffold_training import pipeline

if TYPE_CHECKING:
    from rgt.scaffold_training.tokens import Validation

CHOSEN, ENDED = ".resume.json", ".exit_code"
READ_BACK = 1 << 30  # bytes: a save up to this size is read back whole at once, a larger one at a phase's end
PREEMPTED = 143  # what a shell shows for SIGTERM; launchers and schedulers know it
_NAMES = {"hf-trainer": "checkpoint-{}", "litgpt": "step-{:08d}", "nanogpt": "step-{:08d}.pt"}
# What a resume reads. The Trainer writes trainer_state.json last.
_PARTS: dict[str, tuple[str, ...]] = {
    "hf-trainer": ("model*.safetensors", "optimizer.pt", "scheduler.pt", "rng_state*.pth", "trainer_state.json"),
    "litgpt": ("lit_model.pth",),
    "nanogpt": (),
}


class Session:
    """One training process: `home` is the pipeline's folder, may be read-only; everything is written to `run`."""

    def __init__(self, home: Path, run: Run) -> None:
        self.home, self.run = home, run
        self.config = pipeline.load_config(home / pipeline.CONFIG)
        self.schedule = Schedule.of(self.config)
        self.parts = _PARTS[self.config["framework"]]
        self.resume: Path | None = None
        self.step = 0
        self.first_rank = os.environ.get("RANK", "0") == "0"

    @property
    def data(self) -> Path:
        return self.home / (os.environ.get("RGT_DATA_DIR") or self.config["data"]["folder"])

    @property
    def step_tokens(self) -> int:
        batch, block = self.config["batch"], self.config["data"]["block_size"]
        return int(batch["micro_batch"] * batch["accumulation"] * self.config["devices"] * block)

    def checkpoint(self, step: int) -> Path:
        return self.run.checkpoints / _NAMES[self.config["framework"]].format(step)

    def choose_checkpoint(self) -> None:
        """Before the trainer, in a process without torch: damaged ones set aside, the checkpoint to resume from."""
        run = self.run.path
        self.run.refuse_if_sealed()
        self.run.checkpoints.mkdir(parents=True, exist_ok=True)
        index.sweep(run)
        if self.run.checkpoints_index.exists() and index.read(run) is None:
            say(f"warning: {self.run.checkpoints_index} is torn or not an index; it is made anew")
        own = [each for each in inventory.find(run) if each.path == self.checkpoint(each.step)]
        chosen, skipped = inventory.newest_whole(own, self.parts)
        for each, why in skipped:
            aside = index.set_aside(run, each.path)
            reason = f"{each.path.name} is damaged: {why.message}; set aside as {aside.name}"
            self.run.log_event("set_aside", step=each.step, reason=reason)
            say(f"warning: {reason}, trying the one before it")
        if chosen:
            index.record(run, chosen.new_entry(run))
        path = index.relative(run, chosen.path) if chosen else None
        files.write_json(run / CHOSEN, {"path": path, "step": chosen.step if chosen else 0})

    def open(self) -> None:
        chosen = files.read_json(self.run.path / CHOSEN)
        self.resume = self.run.path / chosen["path"] if chosen["path"] else None
        self.step = chosen["step"]
        self.stop = StopSignals((signal.SIGTERM, signal.SIGUSR1, signal.SIGINT), again=math.inf)

    # -- records

    def events(self) -> list[dict[str, Any]]:
        return list(files.read_jsonl(self.run.events, bad=[])) if self.run.events.exists() else []

    def started(self) -> None:
        before = any(row["event"] in ("launched", "resumed") and "phase" in row for row in self.events())
        word, phase = "resumed" if before else "launched", self.schedule.at(self.step).name
        self.run.log_event(word, step=self.step, phase=phase, phases=self.schedule.plan())
        begun = "resumed" if before else "started"
        say(f"{begun} at step {self.step} of {self.schedule.total}, phase {phase}")
        index.write(self.run.path, index.entries(self.run.path))  # a kill may have come between a save and its entry
        for each in self.schedule.phases:  # killed between the last checkpoint of a phase and its verdict
            if each.end <= self.step:
                self._judge(each)

    def saved(self, step: int) -> None:
        """Index it, then delete what is too much, then judge the phase that it ends."""
        if not self.first_rank:
            return
        run, new = self.run.path, Checkpoint(self.checkpoint(step), step)
        read_all = step in self.schedule.ends or new.bytes <= READ_BACK
        if why := new.damage(self.parts, values=read_all):
            message = f"{new.path} was just saved and is damaged: {why.message}; is the disk full or failing?"
            raise RgtError(message, FINDINGS)
        losses = {f"{split}_loss": self.run.curve("loss", split).get(step) for split in ("train", "val")}
        metrics = index.numbers({name: value for name, value in losses.items() if value is not None})
        entry = {**new.new_entry(run), **({"metrics": metrics} if metrics else {})}
        entry["verified"] = entry["verified"] and read_all  # else only its parts and headers were looked at
        listed = index.record(run, entry)
        self.run.log_event("checkpoint", step=step, path=entry["path"])

        def whole(entry: index.Entry) -> bool:
            one = Checkpoint(run / entry["path"], entry["step"], entry)
            return one.path == self.checkpoint(one.step) and one.damage(self.parts, values=False) is None

        kept = self.config["checkpoints"]
        keep = Keep(max(2, kept["keep"]), best="val_loss", every=kept.get("keep_every"), steps=self.schedule.ends)
        gone = keep.doomed(listed, whole)
        if gone:
            index.delete(run, listed, gone)
        for phase in self.schedule.phases:
            if phase.end == step:
                self._judge(phase)

    def _judge(self, phase: Phase) -> None:
        """Once for each phase: a resumed run may save the end of a phase again."""
        if phase.name in verdicts(self.events()):
            return
        verdict, path, following = phase.verdict(self.run), self.checkpoint(phase.end), self.schedule.at(phase.end)
        place = {"checkpoint": index.relative(self.run.path, path)} if path.exists() else {}
        after = {"next": following.name} if following.start == phase.end else {}
        self.run.log_event("phase", step=phase.end, phase=phase.name, **verdict, **place, **after)
        say(f"phase {phase.name} ended at step {phase.end}: {sentence(verdict)}")

    def preempted(self, step: int) -> int:
        if self.first_rank:
            name = signal.Signals(self.stop.number).name
            self.run.log_event("preempted", step=step, signal=name)
            say(f"{name}: step {step} is saved; the same command goes on from there")
        return PREEMPTED

    def finished(self, validation: Validation | None = None) -> int:
        """results.json is for a run with a run id, as launch makes it: other scripts find results by it."""
        step = self.schedule.total
        if self.first_rank:
            value = self.run.curve("loss", "val").get(step, math.nan)
            if validation is not None and math.isfinite(value) and RUN_ID.fullmatch(self.run.id):
                facts = {"n": len(validation), "eval_set_sha256": validation.sha256, "step": step, "rule": "last"}
                loss = {"name": "loss", "value": value, "split": "val", "direction": "down", **facts}
                if self.checkpoint(step).exists():
                    loss["checkpoint"] = index.relative(self.run.path, self.checkpoint(step))
                self.run.write_results({"run_id": self.run.id, "metrics": [loss]})
            if not any(row["event"] == "finished" for row in self.events()):
                self.run.log_event("finished", step=step)
            missed = [name for name, row in verdicts(self.events()).items() if row["verdict"] == "missed"]
            say(f"finished at step {step}" + (f"; criterion not met: {', '.join(missed)}" if missed else ""))
        return 0


def conduct(train: Callable[[Session], int]) -> None:
    """Run a trainer; every foreseen failure is one sentence and an exit code, and the run's own record says so."""
    session = None
    try:
        home = Path(sys.argv[0]).resolve().parent
        session = Session(home, Run(Path(os.environ.get("RUN") or home)))
        session.open()
        if session.first_rank:
            session.started()
        code = train(session)
    except RgtError as error:
        error.show()
        if session and session.first_rank:
            session.run.log_event("failed", reason=error.message)
        code = error.exit_code
    if session and session.first_rank:
        files.write_text(session.run.path / ENDED, f"{code}\n")
    sys.stdout.flush()
    sys.exit(code)


if __name__ == "__main__":
    try:
        Session(Path(sys.argv[1]), Run(Path(sys.argv[2]))).choose_checkpoint()
    except RgtError as error:
        error.show()
        sys.exit(error.exit_code)
