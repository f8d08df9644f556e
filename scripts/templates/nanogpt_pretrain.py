"""Pretraining with nanoGPT's train.py, by training_config.yaml. Started by train.sh; nanoGPT itself is not changed.

train.py runs once a phase, as `train.py <config.py> --init_from=... --max_iters=...`. It writes ckpt.pt in place, so
each one is copied, verified and kept as checkpoints/step-N.pt before the next can destroy it; a resume starts from such
a copy.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from rgt import files
from rgt.checkpoint.examine import Options, examine
from rgt.checkpoint.inventory import Checkpoint
from rgt.errors import FINDINGS, RgtError, bad_input, lacking
from rgt.run.phases import Phase
from rgt.scaffold_training.tokens import mixed
from rgt.scaffold_training.training_session import Session, conduct

DTYPE = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
PR_SET_PDEATHSIG = 1
_EVAL = re.compile(r"step (\d+): train loss ([\d.naif]+), val loss ([\d.naif]+)")
_ITER = re.compile(r"iter (\d+): loss ([\d.naif]+), time ([\d.]+)ms")
_NUMBERED = """
# nanoGPT seeds 1337 at every start and saves no generator: a resumed run would read the batches of step 0 again. So a
# training batch is drawn by its number in the run, and a validation always by the same numbers: a resume is bit-equal.
import torch as _torch
_draw, _seed, _at = _torch.randint, _torch.manual_seed, {{"rank": 0, "training": {first}, "validation": 0}}


def _manual_seed(number):
    _at["rank"] = (number + {seed}) * 1_000_000_007
    return _seed(_at["rank"])


def _randint(*words, **more):
    if "generator" in more or not _torch.is_grad_enabled():
        _at["validation"] = (_at["validation"] + 1) % {validations}
        return _draw(*words, **{{"generator": _torch.Generator().manual_seed(_at["validation"]), **more}})
    _seed(_at["rank"] + _at["training"])  # also what dropout draws from
    _at["training"] += 1
    return _draw(*words, **more)


_torch.manual_seed, _torch.randint = _manual_seed, _randint
"""


def die_with_parent(number: int) -> None:
    """In the child before exec: whoever kills us with SIGKILL ends the training, too."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def settings_of(session: Session, phase: Phase, step: int, every: int, dataset: Path, out_dir: Path) -> str:
    """nanoGPT's config file: assignments in its own names. A file, because its --key=value stops at a second '='."""
    config, peak = session.config, session.schedule.peak
    model = {key: value for key, value in config["model"].items() if key != "vocab_size"}
    values: dict[str, Any] = {
        "out_dir": str(out_dir),
        "dataset": str(dataset),  # an absolute path wins over nanoGPT's data/
        "eval_interval": every,
        "eval_iters": max(1, config["eval"]["samples"] // config["batch"]["micro_batch"]),
        "log_interval": config["log_every_steps"],
        "always_save_checkpoint": True,
        "gradient_accumulation_steps": config["batch"]["accumulation"] * config["devices"],
        "batch_size": config["batch"]["micro_batch"],
        "block_size": config["data"]["block_size"],
        **model,
        "learning_rate": peak * phase.lr["start"],
        "min_lr": peak * phase.lr["end"],
        "decay_lr": phase.lr["policy"] == "cosine" or bool(phase.lr.get("warmup_steps")),
        # its cosine begins where the warm-up ends; a later phase was warm before it began
        "warmup_iters": phase.lr.get("warmup_steps", 0) if phase.start == 0 else phase.start,
        "lr_decay_iters": phase.end,
        **{name: config["optimizer"][name] for name in ("weight_decay", "beta1", "beta2", "grad_clip")},
        "device": config["device"],
        "dtype": DTYPE[config["precision"]],
        "compile": config["compile"],
    }
    lines = [f"{name} = {value!r}" for name, value in values.items()]
    numbers = {"seed": config["seed"], "first": step * config["batch"]["accumulation"]}
    return "\n".join(lines) + _NUMBERED.format(**numbers, validations=2 * values["eval_iters"])  # of two splits


class Trainer:
    """One train.py after another, and the copies of what it saves."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.out = session.run.path / "nanogpt_out"
        self.ckpt = self.out / "ckpt.pt"
        self.step = self.begin = session.step
        self.evaluated = 0  # step of the last validation whose line was read
        self.timed = True  # nanoGPT's time of an iteration includes a validation before it
        self.end = session.schedule.total
        session.stop.then = self._terminate
        self.child: subprocess.Popen[str] | None = None
        self.folder = session.home / session.config.get("nanogpt_dir", "nanoGPT")
        if not (self.folder / "train.py").is_file():
            advice = "clone https://github.com/karpathy/nanoGPT there, or set nanogpt_dir in training_config.yaml"
            raise lacking(f"{self.folder}/train.py does not exist; {advice}")

    def run_phase(self, phase: Phase) -> None:
        """nanoGPT saves at multiples of eval_interval only; a last piece with its end as interval reaches a phase's."""
        every = self.session.config["eval"]["every_steps"]
        whole = phase.end // every * every
        for end, interval in ((whole, every), (phase.end, phase.end)):
            if self.step >= end or self.session.stop.number:
                continue
            self.begin, self.end = self.step, end
            self.out.mkdir(parents=True, exist_ok=True)
            resume = self.session.checkpoint(self.step) if self.step else None
            if resume:
                files.write_with(self.ckpt, functools.partial(shutil.copyfileobj, resume.open("rb")))
            dataset = (self.session.run.path / "nanogpt_data" / phase.name).absolute()
            if not (dataset / "meta.pkl").exists():  # the phase's mix as one folder; made once
                mixed(self.session.config, self.session.data, phase.name, dataset)
                meta = pickle.dumps({"vocab_size": self.session.config["model"]["vocab_size"]})  # train.py reads it
                files.write_bytes(dataset / "meta.pkl", meta)
            config = self.out / f"{phase.name}.py"
            files.write_text(config, settings_of(self.session, phase, self.step, interval, dataset, self.out))
            devices, init = self.session.config["devices"], "resume" if resume else "scratch"
            torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={devices}"]
            words = [sys.executable, *(torchrun if devices > 1 else []), "train.py", str(config.absolute())]
            self._watch([*words, f"--init_from={init}", f"--max_iters={end}"])
            if self.step < end and not self.session.stop.number:
                raise RgtError(f"train.py ended at step {self.step} of phase {phase.name}, before {end}", FINDINGS)

    def _watch(self, words: list[str]) -> None:
        """Print and log its lines, keep what it saves; a failure here or a stop signal ends it."""
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        pipes |= {"errors": "replace", "start_new_session": True, "close_fds": False}  # it inherits the lock
        # torchrun ends its workers when it is told to; train.py alone has no handler
        number = signal.SIGTERM if self.session.config["devices"] > 1 else signal.SIGKILL
        pipes["preexec_fn"] = functools.partial(die_with_parent, number)
        self.child = subprocess.Popen(words, cwd=self.folder, **pipes)
        if self.session.stop.number:  # it came while train.py was being started
            self._terminate()
        saving = False
        try:
            for line in self.child.stdout or ():
                print(line, end="", flush=True)
                self._log(line)
                if saving and _ITER.search(line):  # printed behind the save: ckpt.pt is complete now
                    self._keep()
                    saving = False
                saving = saving or line.startswith("saving checkpoint")
        except BaseException:
            self._terminate()
            raise
        finally:
            try:
                code = self.child.wait(timeout=30 if self.session.stop.number else None)
            except subprocess.TimeoutExpired:
                os.killpg(self.child.pid, signal.SIGKILL)
                code = self.child.wait()
        self._keep()
        if code and not self.session.stop.number:
            raise RgtError(f"train.py ended with exit code {code}; its last lines are above", FINDINGS)

    def _terminate(self) -> None:
        """train.py has no handler and would not save: what it saved last is what there is, so it may end at once."""
        if self.child is not None and self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGTERM)

    def _log(self, line: str) -> None:
        run = self.session.run
        evaluated, iterated = _EVAL.search(line), _ITER.search(line)
        if evaluated:
            self.evaluated, self.timed = int(evaluated[1]), False
            if not 0 < self.evaluated <= self.begin:  # measured before the stop; other batches give another number
                run.log_metrics(step=self.evaluated, split="val", loss=float(evaluated[3]))
        elif iterated and int(iterated[1]) < self.end:  # not the one update behind max_iters, which nothing saves
            step, loss = int(iterated[1]), float(iterated[2])
            row = {"loss": loss, "lr": self.session.schedule.lr(step)}
            if self.timed:
                row["tokens_per_s"] = self.session.step_tokens * 1000 / max(float(iterated[3]), 1e-6)
            run.log_metrics(step=step + 1, split="train", **row)  # it counts from 0: the loss before update step + 1
        self.timed = self.timed or bool(iterated)

    def _keep(self) -> None:
        """Copy, verify, then give it its name."""
        if not self.ckpt.exists():
            return
        step = self._step_of(self.ckpt)
        if step is None or not self.step < step <= self.evaluated:  # its validation is not read yet: next time
            return
        final = self.session.checkpoint(step)
        beside = final.with_name(f".{final.name}.tmp")
        files.write_with(beside, lambda file: shutil.copyfileobj(self.ckpt.open("rb"), file))
        if Checkpoint(beside, step).damage() or self._step_of(beside) != step:
            beside.unlink()  # train.py was already writing the next one; that will be copied
            return
        os.rename(beside, final)
        files.sync_directory(final.parent)
        self.step = step
        self.session.saved(step)

    def _step_of(self, path: Path) -> int | None:
        artifact = examine(path, Options(digest=False, values=False))
        step: int | None = artifact.layout.facts.get("step")  # nanoGPT's iter_num
        return step if artifact.real else None


def train(session: Session) -> int:
    if not session.first_rank:
        raise bad_input("nanoGPT's pipeline is started once; train.py starts its own processes")
    if session.step < session.schedule.total:
        trainer = Trainer(session)
        for phase in session.schedule.phases:
            if trainer.step < phase.end:
                trainer.run_phase(phase)
            if session.stop.number:
                return session.preempted(trainer.step)
    return session.finished()


if __name__ == "__main__":
    conduct(train)
