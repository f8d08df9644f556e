"""Would the description load the skill? Prompts that should, near-misses that should not.

Whether a model loads it, only a model tells (`run_evals.py triggers --agent CMD`). Without one, a proxy stands in: the
description's words, weighted by how rare they are among the prompts, minus those of its "Not for" sentence. The proxy
says nothing about a model's judgement; it notices when a change drops a topic or opens the door to another.
"""

from __future__ import annotations

import math
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trials.agents import Agent
from trials.case import ROOT

import yaml

FILE = ROOT / "evals" / "triggers.yaml"
THRESHOLD = 0.8
_STOP = set(
    "a an and any are as at be before but by can do does for from has have how i if in into is it its just like make"
    " me my need no not of on one only or our out over please so some than that the then there this to up use user want"
    " wants was we were what when which while who will with without you your".split()
)


@dataclass(frozen=True)
class Prompts:
    should: tuple[str, ...]
    should_not: tuple[str, ...]


def prompts(path: Path = FILE) -> Prompts:
    data: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return Prompts(tuple(data["should"]), tuple(data["should_not"]))


def description(root: Path = ROOT) -> str:
    front = yaml.safe_load((root / "SKILL.md").read_text(encoding="utf-8").split("---\n", 2)[1])
    return str(front["description"])


def words(text: str) -> set[str]:
    """Stems of Latin words, pairs of Chinese characters."""
    latin = {_stem(word) for word in re.findall(r"[a-z][a-z0-9.+-]*[a-z0-9]", text.lower()) if word not in _STOP}
    han = "".join(ch if "\u4e00" <= ch <= "\u9fff" else " " for ch in text)
    return latin | {run[i : i + 2] for run in han.split() for i in range(len(run) - 1)}


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


class Proxy:
    def __init__(self, text: str, everything: Prompts) -> None:
        wanted, _, unwanted = text.partition("Not for ")
        self.wanted, self.unwanted = words(wanted), words(unwanted)
        seen = Counter(word for prompt in (*everything.should, *everything.should_not) for word in words(prompt))
        total = len(everything.should) + len(everything.should_not)
        self.weight = {word: math.log(total / count) / math.log(total) for word, count in seen.items()}

    def score(self, prompt: str) -> float:
        found = words(prompt)
        good = sum(self.weight.get(word, 1.0) for word in found & self.wanted)
        bad = sum(self.weight.get(word, 1.0) for word in found & (self.unwanted - self.wanted))
        return good - 2 * bad

    def fires(self, prompt: str) -> bool:
        return self.score(prompt) >= THRESHOLD


def ask(agent: Agent, prompt: str, seconds: float = 120) -> bool:
    """An agent's own word, with nothing but name and description before it; anything but a last word yes is a no."""
    question = (
        f"You may load one skill. Its name is remote-gpu-trainer, its description:\n{description()}\n\n"
        f"A user says:\n{prompt}\n\nWould you load the skill for this? Do not do the task. The last word is yes or no."
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "question.md"
        file.write_text(question, encoding="utf-8")
        argv, stdin = agent.argv(question, file, Path(folder))
        done = subprocess.run(
            argv, cwd=folder, input=stdin or "", capture_output=True, text=True, timeout=seconds, check=False
        )
    said = re.findall(r"\b(yes|no)\b", done.stdout.lower())
    return bool(said) and said[-1] == "yes"


def measure(
    text: str | None = None, everything: Prompts | None = None, fires: Callable[[str], bool] | None = None
) -> dict[str, Any]:
    everything = everything or prompts()
    fires = fires or Proxy(text if text is not None else description(), everything).fires
    missed = [prompt for prompt in everything.should if not fires(prompt)]
    false = [prompt for prompt in everything.should_not if fires(prompt)]
    return {
        "should": len(everything.should),
        "should_not": len(everything.should_not),
        "recall": round(1 - len(missed) / len(everything.should), 3),
        "specificity": round(1 - len(false) / len(everything.should_not), 3),
        "missed": missed,
        "false": false,
    }
