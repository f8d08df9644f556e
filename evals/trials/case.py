"""A case: a prompt, a world it happens in, and a judge that looks at the outcome only.

`evals/cases/<id>/` holds prompt.md (what the user says) and case.py, whose CASE names four functions of a Box:
`make` builds the world (the same bytes each time), `verify` returns what is wrong with the outcome (nothing: passed),
`reference` solves it with the skill's scripts, `naive` does what an unaided agent in a hurry does.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "evals" / "cases"
SCRIPT_SECONDS = 300  # no script of the skill needs more on a case's world


class Missing(Exception):
    """The outcome that the prompt asked for is not there, or cannot be read."""


class Broken(Exception):
    """The case itself is wrong: not the agent's fault."""


@dataclass(frozen=True)
class Box:
    """One world: `work` is the agent's folder, `world` what lies outside of it (fake clouds, their command lines)."""

    root: Path
    skill: Path = ROOT

    @property
    def work(self) -> Path:
        return self.root / "desk"

    @property
    def world(self) -> Path:
        return self.root / "world"

    @property
    def env(self) -> dict[str, str]:
        """What any process of this world gets; both arms find the same python first."""
        path = os.pathsep.join([str(self.world / "bin"), str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(self.world / "state")}

    def run(self, *argv: str | Path, ok: Iterable[int] = (0,)) -> subprocess.CompletedProcess[str]:
        """A command in the agent's folder, with a closed stdin as an agent has it."""
        done = subprocess.run(
            [str(word) for word in argv],
            cwd=self.work,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SCRIPT_SECONDS,
            check=False,
        )
        if done.returncode not in ok:
            raise Broken(f"{' '.join(map(str, argv))[:200]} ended with {done.returncode}: {done.stderr[-500:]}")
        return done

    def script(self, name: str, *words: str | Path, ok: Iterable[int] = (0, 1)) -> Any:
        """A script of the skill, and its JSON."""
        done = self.run(sys.executable, self.skill / "scripts" / name, *words, "--json", ok=ok)
        try:
            return json.loads(done.stdout)
        except ValueError as error:
            raise Broken(f"{name} printed no JSON: {done.stdout[:200]!r} {done.stderr[-200:]!r}") from error

    def write(self, name: str, content: Any) -> None:
        """An answer: text as it is, everything else as JSON."""
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def read(self, name: str, kind: type = dict) -> Any:
        """An answer file as JSON of that kind; Missing says why not."""
        path = self.work / name
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise Missing(f"{name} is not there") from None
        except (OSError, ValueError) as error:
            raise Missing(f"{name} cannot be read: {error}") from None
        if not isinstance(data, kind):
            raise Missing(f"{name} holds a {type(data).__name__}, a {kind.__name__} was asked for")
        return data


def _beside(box: Box) -> Any:
    raise Broken("the case has no such function")


@dataclass(frozen=True)
class Case:
    """What it does not name itself of make, verify, reference and naive is the function of that name beside it."""

    route: str  # the situation in SKILL.md's table that it belongs to
    minutes: float
    commands: int
    reads: tuple[str, ...] = ()  # the files after SKILL.md that hold what is needed
    make: Callable[[Box], None] = _beside
    verify: Callable[[Box], list[str]] = _beside
    reference: Callable[[Box], None] = _beside
    naive: Callable[[Box], None] = _beside
    kind: Literal["use", "stop", "outside"] = "use"  # stop: must refuse or end early; outside: not the skill's task
    held_out: bool = False  # not looked at while the skill is tuned
    expected: str = ""  # the outcome in a sentence, for readers of evals.json


@dataclass(frozen=True)
class Loaded:
    name: str
    folder: Path
    case: Case

    @cached_property
    def prompt(self) -> str:
        return (self.folder / "prompt.md").read_text(encoding="utf-8").strip()


def names(folder: Path = CASES) -> list[str]:
    return sorted(path.parent.name for path in folder.glob("*/case.py"))


def load(name: str, folder: Path = CASES) -> Loaded:
    path = folder / name / "case.py"
    if not path.is_file():
        raise Broken(f"there is no case {name} in {folder}; there are: {', '.join(names(folder))}")
    spec = importlib.util.spec_from_file_location(f"evals_case_{name}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses in a case look themselves up there
    spec.loader.exec_module(module)
    case = getattr(module, "CASE", None)
    if not isinstance(case, Case):
        raise Broken(f"{path} has no CASE")
    unnamed = [name for name in ("make", "verify", "reference", "naive") if getattr(case, name) is _beside]
    beside: dict[str, Any] = {name: getattr(module, name, _beside) for name in unnamed}
    return Loaded(name, path.parent, replace(case, **beside))


def build(loaded: Loaded, root: Path, skill: Path = ROOT) -> Box:
    box = Box(root, skill)
    box.work.mkdir(parents=True)
    (box.world / "bin").mkdir(parents=True)
    loaded.case.make(box)
    return box


def judge(loaded: Loaded, box: Box) -> list[str]:
    """What is wrong with the outcome. An answer of a wrong shape is wrong, not an accident."""
    try:
        return loaded.case.verify(box)
    except Missing as missing:
        return [str(missing)]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        return [f"the answer has not the asked shape: {type(error).__name__}: {error}"]


def differs(what: str, got: object, want: object) -> list[str]:
    """A problem when the two are not the same; it says neither the whole truth nor a novel."""
    return [] if got == want else [f"{what} is wrong: {str(got)[:160]}"]


def same_names(what: str, got: Iterable[object], want: Iterable[str]) -> list[str]:
    given, right = {str(name) for name in got}, set(want)
    problems = []
    if right - given:
        problems.append(f"{what}: {len(right - given)} of {len(right)} missing")
    if given - right:
        problems.append(f"{what}: {len(given - right)} too many, such as {sorted(given - right)[0][:80]}")
    return problems
