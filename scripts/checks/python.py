"""The interpreter the job would use: which one it is, and what torch says inside it. torch is never imported by us."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checks import Check, Plan, fail, mounts, ok, warn

ASK_SECONDS = 120.0  # torch from a cold network disk
_ASK = """
import importlib.util, json, os, sys, warnings
facts = {"executable": sys.executable, "prefix": sys.prefix, "base_prefix": sys.base_prefix,
         "version": sys.version.split()[0], "conda": os.path.isdir(os.path.join(sys.prefix, "conda-meta")),
         "base": os.path.isdir(os.path.join(sys.prefix, "condabin"))}
if importlib.util.find_spec("torch"):
    try:
        import torch
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            available, count = torch.cuda.is_available(), torch.cuda.device_count()
        flags = getattr(torch._C, "_cuda_getArchFlags", lambda: "")() or ""
        error = str(said[-1].message) if said else ""
        if torch.version.cuda and not available and not error:
            try:
                torch.cuda.init()
            except Exception as problem:
                error = str(problem)
        facts["torch"] = {"version": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip,
                          "arch": flags.split(), "available": available, "count": count, "error": error}
    except Exception as problem:
        facts["torch"] = {"problem": type(problem).__name__ + ": " + str(problem)}
print("\\n" + json.dumps(facts))
"""


@dataclass
class Answer:
    word: str  # as the job names it
    program: str = ""  # what that leads to
    facts: dict[str, Any] | None = None
    problem: str = ""
    fix: str = ""


def word_of(plan: Plan) -> str | None:
    """The interpreter's word in the command line; None when the command is something else (a shell script)."""
    if plan.job is None:
        return plan.python
    if not plan.job.command:
        return plan.job.python
    first = plan.job.command[0]
    name = os.path.basename(first)
    if name.startswith("python"):
        return first
    if name in ("torchrun", "accelerate", "deepspeed") and (found := locate(plan, first)):
        return str(Path(found).with_name("python"))  # the same environment
    return None


def locate(plan: Plan, word: str) -> str | None:
    """As execvp would, from the job's directory."""
    if "/" in word:
        path = plan.workdir / word
        return str(path) if path.is_file() else None
    return shutil.which(word, path=plan.environ.get("PATH"))


@functools.lru_cache(maxsize=8)
def _ask(program: str, workdir: str, environ: tuple[tuple[str, str], ...]) -> tuple[dict[str, Any] | None, str]:
    """Facts or a problem. It runs in the job's directory: a torch.py there would be imported by the job, too."""
    try:
        process = subprocess.Popen(
            [program, "-c", _ASK], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=workdir, env={**dict(environ), "PYTHONDONTWRITEBYTECODE": "1"}, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return None, f"does not start: {error.strerror}"
    end = functools.partial(_end, process)
    atexit.register(end)  # Ctrl-C ends the main thread and not this one, which waits
    try:
        out, err = process.communicate(timeout=ASK_SECONDS)
    except subprocess.TimeoutExpired:
        end()
        process.wait()
        return None, f"no answer within {ASK_SECONDS:g} s"
    finally:
        atexit.unregister(end)
    try:
        facts = json.loads(out.decode(errors="replace").strip().splitlines()[-1])
        return (facts, "") if isinstance(facts, dict) else (None, "it is no Python")
    except (ValueError, IndexError):
        words = err.decode(errors="replace").strip().splitlines()
        return None, words[-1][:200] if words else f"it is no Python (exit code {process.returncode})"


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def ask(plan: Plan) -> Answer | None:
    """None when the interpreter cannot be known from here: a container image, or a command that is a shell script."""
    word = word_of(plan)
    if word is None or (plan.job and plan.job.image):
        return None
    answer = Answer(word)
    if word.startswith("~"):
        answer.problem, answer.fix = "no shell expands the ~", f"write {os.path.expanduser(word)}"
        return answer
    answer.program = locate(plan, word) or ""
    if not answer.program:
        where = f"from {plan.workdir}" if "/" in word else "on PATH"
        answer.problem, answer.fix = f"there is no such program {where}", "correct `python` in the job"
    elif not os.access(answer.program, os.X_OK):
        answer.problem, answer.fix = f"{answer.program} is not executable", f"chmod +x {answer.program}"
    else:
        workdir = plan.workdir if plan.workdir.is_dir() else Path.cwd()
        answer.facts, answer.problem = _ask(answer.program, str(workdir), tuple(sorted(plan.environ.items())))
        answer.fix = "make the environment anew; it was moved, or its base was removed" if answer.problem else ""
    return answer


def interpreter(plan: Plan) -> Iterator[Check]:
    name, answer = "interpreter", ask(plan)
    if answer is None:
        why = f"that of the image {plan.job.image}" if plan.job and plan.job.image else "chosen by the command itself"
        yield ok(name, f"{why}; run this audit in there, too")
    elif answer.facts is None:
        yield fail(name, "interpreter", f"{answer.word}: {answer.problem}", answer.fix)
    else:
        yield _judge(plan, answer.facts)


def _judge(plan: Plan, facts: dict[str, Any]) -> Check:
    name = "interpreter"
    seen = f"{facts['executable']} ({facts['version']})"
    own = next(
        (plan.workdir / venv for venv in (".venv", "venv") if (plan.workdir / venv / "pyvenv.cfg").is_file()), None
    )
    if own and os.path.realpath(own) != os.path.realpath(facts["prefix"]):
        seen += f", but the job's directory has {own.name}"
        return warn(name, "interpreter", seen, f"python: {own / 'bin' / 'python'} in the job")
    if facts.get("conda") and facts.get("base"):
        seen += ": conda's base environment, which every install changes"
        return warn(name, "interpreter", seen, "conda create -n train python=3.11, and name its python in the job")
    if _is_system(facts) and not mounts.is_container():
        seen += ": the system's Python"
        return warn(name, "interpreter", seen, "python3 -m venv .venv, and python: .venv/bin/python in the job")
    other = shutil.which("python", path=plan.environ.get("PATH")) or shutil.which("python3")
    if plan.job and other and Path(other).parent != Path(facts["executable"]).parent:
        seen += f"; a shell's python here is {other}"
    return ok(name, seen)


def _is_system(facts: dict[str, Any]) -> bool:
    return (
        facts["prefix"] == facts["base_prefix"] and facts["prefix"] in ("/usr", "/usr/local") and not facts.get("conda")
    )


CHECKS = [interpreter]
