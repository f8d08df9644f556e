"""Which Python is the user's, and what it says about itself. rgt has an environment of its own, which never stands in.

Example:
    job_python("../venv/bin/python")                    the one given
    job_python(command=["torchrun", "train.py"])        the one that the command starts
    interrogate(job_python(), Path.cwd(), os.environ)   Interpreter(word, facts | problem, fix)
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt.machine import outside

ASK_SECONDS, TORCH_SECONDS = 20.0, 120.0  # torch may come from a cold network disk
_INSIDE = Path(__file__).parents[1] / "inside"
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed")  # installed beside the python that they start

# torch is imported there, never by us
_ASK = """
import importlib.util, json, sys, warnings
try:
    from importlib.metadata import version
except ImportError:
    version = None
packages = {}
for name in "torch numpy transformers accelerate lightning litgpt deepspeed safetensors wandb".split():
    try:
        packages[name] = version(name)
    except Exception:
        pass
found = [name for name in ("torch", "jax", "tensorflow") if importlib.util.find_spec(name)]
facts = {"executable": sys.executable, "prefix": sys.prefix, "frameworks": found, "version": sys.version.split()[0],
         "packages": {name: told for name, told in packages.items() if told}}  # None: pip left it half removed
if "torch" in found and sys.argv[1:] == ["torch"]:
    try:
        import torch
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            available, count = torch.cuda.is_available(), torch.cuda.device_count()
        flags = getattr(torch._C, "_cuda_getArchFlags", lambda: "")() or ""
        error = str(said[-1].message) if said else ""
        facts["torch"] = {"version": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip,
                          "arch": flags.split(), "available": available, "count": count, "error": error}
    except Exception as problem:
        facts["torch"] = {"problem": type(problem).__name__ + ": " + str(problem)}
print("\\n" + json.dumps(facts))
"""


def job_python(given: str | None = None, command: Sequence[str] = ()) -> str:
    """The Python for everything that runs the user's code: `--python`, the command's own, else the user's."""
    here = Path.cwd()
    word = os.path.expanduser(given) if given else python_word(command, here, os.environ)
    if word:
        return program(word, here, os.environ) or word
    if "RGT_COMMAND" not in os.environ:
        return sys.executable  # `python scripts/probes.py`: whoever called it chose this one
    homes = [os.environ.get("VIRTUAL_ENV"), os.environ.get("CONDA_PREFIX")]
    users = [os.path.join(home, "bin", "python") for home in homes if home]
    users += [found for name in ("python3", "python") if (found := shutil.which(name))]
    # our own is known by its folder: the file itself is a link to the Python that several environments were made from
    own = os.path.join(os.path.realpath(sys.prefix), "bin")
    theirs = (path for path in users if os.path.realpath(os.path.dirname(path)) != own)
    return next((path for path in theirs if os.access(path, os.X_OK)), sys.executable)


def python_word(command: Sequence[str], cwd: Path, environ: Mapping[str, str]) -> str | None:
    """The Python that a command starts; None when it is another program, of whose Python nothing is known."""
    name = os.path.basename(command[0]) if command else ""
    if name in _LAUNCHERS and (launcher := program(command[0], cwd, environ)):
        return str(Path(launcher).with_name("python"))
    return command[0] if re.fullmatch(r"python[\d.]*", name) else None


def program(word: str, cwd: Path, environ: Mapping[str, str]) -> str | None:
    """The file that execvp would start from `cwd`."""
    if "/" not in word:
        return shutil.which(word, path=environ.get("PATH"))
    path = cwd / word
    return str(path) if path.is_file() else None


def observed(observer: Path, folder: Path) -> dict[str, str]:
    """Settings that start `observer` in every Python of a command; it writes what it sees to `folder`."""
    paths = [str(_INSIDE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths), "RGT_OBSERVER": str(observer), "RGT_INSIDE": str(folder)}


@dataclass
class Interpreter:
    """`facts` is what it says about itself; empty when there is a `problem`, which `fix` mends."""

    word: str  # as the job names it
    facts: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    fix: str = ""

    def other_environment(self, folder: Path) -> Path | None:
        """The virtual environment in the job's directory, when that is not the one in use."""
        own = next((folder / name for name in (".venv", "venv") if (folder / name / "pyvenv.cfg").is_file()), None)
        return own if own and os.path.realpath(own) != os.path.realpath(self.facts["prefix"]) else None


def interrogate(word: str, cwd: Path, environ: Mapping[str, str], torch: bool = False) -> Interpreter:
    """Find the interpreter as the job would, from `cwd`, and ask it; with `torch` it imports torch, too."""
    if word.startswith("~"):
        return Interpreter(word, problem="no shell expands the ~", fix=f"write {os.path.expanduser(word)}")
    path = program(word, cwd, environ)
    if path is None:
        where = f"from {cwd}" if "/" in word else "on PATH"
        return Interpreter(word, problem=f"there is no such program {where}", fix="correct the name of the interpreter")
    if not os.access(path, os.X_OK):
        return Interpreter(word, problem=f"{path} is not executable", fix=f"chmod +x {shlex.quote(path)}")
    # it runs in the job's directory: a torch.py there would be imported by the job, too
    words, seconds = (["torch"], TORCH_SECONDS) if torch else ([], ASK_SECONDS)
    env = {**environ, "PYTHONDONTWRITEBYTECODE": "1"}
    answer = outside.tool(path, "-c", _ASK, *words, seconds=seconds, env=env, cwd=str(cwd))
    facts = None
    with contextlib.suppress(ValueError, IndexError):
        facts = json.loads(answer.text.strip().splitlines()[-1])
    if isinstance(facts, dict):
        return Interpreter(word, facts)
    fix = "make the environment anew; it was moved, or its base was removed"
    return Interpreter(word, problem=answer.problem or "it is not a Python (exit code 0)", fix=fix)
