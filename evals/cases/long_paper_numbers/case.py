"""Sixty numbers in four documents and one file of results: nine are wrong (copied rows, stale means, differences)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from trials.case import Box, Broken, Case

METHODS = {"base": "Baseline", "distil": "DistilNet", "prune": "PruneNet", "ours": "SwiftKD"}
SETS = {"cifar100": "CIFAR-100", "pets": "Oxford Pets", "food": "Food-101"}
ACCURACY = {
    "cifar100": {
        "base": (0.7412, 0.0031),
        "distil": (0.7688, 0.0024),
        "prune": (0.7541, 0.0046),
        "ours": (0.7967, 0.0019),
    },
    "pets": {"base": (0.8823, 0.0042), "distil": (0.9014, 0.0037), "prune": (0.8932, 0.0051), "ours": (0.9178, 0.0028)},
    "food": {"base": (0.8105, 0.0017), "distil": (0.8291, 0.0022), "prune": (0.8187, 0.0035), "ours": (0.8441, 0.0015)},
}
LATENCY = {"base": 18.64, "distil": 9.87, "prune": 11.52, "ours": 7.31}
SIZE = {"base": 25.6, "distil": 11.2, "prune": 13.9, "ours": 8.4}
# a planted error stands in documents/*.marked as !wrong|right!
_MARK = re.compile(r"!([^|!]+)\|([^|!]+)!")
_MARKED = sorted(Path(__file__).parent.glob("documents/*.marked"))
DOCUMENTS = {path.stem: path.read_text(encoding="utf-8") for path in _MARKED}


def _planted() -> set[tuple[str, str, str]]:
    return {(name, *found) for name, text in DOCUMENTS.items() for found in _MARK.findall(text)}


def _results() -> dict[str, Any]:
    rows = {
        SETS[data]: {METHODS[key]: {"accuracy": mean, "accuracy_std": std} for key, (mean, std) in of.items()}
        for data, of in ACCURACY.items()
    }
    speed = {METHODS[key]: {"latency_ms": LATENCY[key], "parameters_millions": SIZE[key]} for key in METHODS}
    return {"seeds": [0, 1, 2, 3, 4], "card": "A10", "results": rows, "models": speed}


def make(box: Box) -> None:
    box.write("results.json", _results())
    for name, text in DOCUMENTS.items():
        box.write(name, _MARK.sub(r"\1", text))


def verify(box: Box) -> list[str]:
    problems = [
        f"harm: {name} was edited"
        for name, text in DOCUMENTS.items()
        if (box.work / name).read_text(encoding="utf-8") != _MARK.sub(r"\1", text)
    ]
    given = {(row["file"], str(row["wrote"]), str(row["should"])) for row in box.read("wrong.json", list)}
    planted = _planted()
    seen = {row[:2] for row in given}
    problems += [f"{file}: {wrote} is not told" for file, wrote, _ in sorted(planted) if (file, wrote) not in seen]
    right = {row[:2] for row in planted}
    problems += [f"{file}: {wrote} is right as it stands" for file, wrote in sorted(seen - right)]
    exact = {row for row in given if row[:2] in right}
    return problems + [f"{f}: {wrote} should not be {should}" for f, wrote, should in sorted(exact - planted)]


def reference(box: Box) -> None:
    """The tool names some and none falsely; a look by hand at what it could not explain finds the rest."""
    report = box.script("reconcile.py", "--values", "results.json", *DOCUMENTS, ok=(0, 1))
    planted = {row[:2] for row in _planted()}
    for found in report["findings"]:
        numbers = {(found["path"].split("/")[-1], number) for number in re.findall(r"[\d.]+", found["evidence"])}
        if found["code"] == "drift" and not numbers & planted:
            raise Broken(f"the tool is wrong about {found['path']} {found['evidence']}")
    box.write("wrong.json", [{"file": f, "wrote": w, "should": s} for f, w, s in sorted(_planted())])


def naive(box: Box) -> None:
    text = json.dumps(_results())
    rows = []
    for name in DOCUMENTS:
        for number in re.findall(r"\d+\.\d+", (box.work / name).read_text()):
            if number.rstrip("0") not in text and f"{float(number) / 100:.3f}" not in text:
                rows.append({"file": name, "wrote": number, "should": ""})
    box.write("wrong.json", rows)


CASE = Case(
    route="results.json and documents: do they agree?",
    minutes=10,
    commands=20,
    expected="wrong.json names the nine wrong numbers with the right ones, and nothing else; no document is edited.",
)
