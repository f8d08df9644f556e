"""The proofs of a case that need no model: untouched fails, naive fails, the reference passes, twice the same world."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trials.case import ROOT, Box, Broken, Loaded, build, judge, load

_PROMPT_HINTS = ("skill", "SKILL.md", "remote-gpu-trainer", *(path.name for path in (ROOT / "scripts").glob("*.py")))


@dataclass
class Proof:
    name: str
    problems: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    naive: list[str] = field(default_factory=list)  # why the hurried way fails: worth reading

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def prove(name: str, folder: Path, scratch: Path | None = None) -> Proof:
    proof = Proof(name)
    root = Path(tempfile.mkdtemp(prefix=f"eval-{name}-", dir=scratch))
    try:
        loaded = load(name, folder)
        proof.problems += shape(loaded)
        _prove(proof, loaded, root)
    except Broken as error:
        proof.problems.append(str(error))
    except Exception as error:  # a case is a program: whatever it raises is a finding about it
        proof.problems.append(f"{type(error).__name__}: {error}")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return proof


def _prove(proof: Proof, loaded: Loaded, root: Path) -> None:
    first = _timed(proof, "make", lambda: build(loaded, root / "first"))
    before = fingerprint(first)
    if not judge(loaded, first):
        proof.problems.append("the untouched world passes: the verifier sees nothing")
    loaded.case.naive(first)
    proof.naive = judge(loaded, first)
    if not proof.naive:
        proof.problems.append("the naive solution passes: the case is too easy or the verifier too kind")
    second = build(loaded, root / "second")
    if fingerprint(second) != before:
        proof.problems.append("two worlds differ: make must be deterministic")
    _timed(proof, "reference", lambda: loaded.case.reference(second))
    wrong = judge(loaded, second)
    proof.problems += [f"the reference fails: {problem}" for problem in wrong]
    if proof.seconds["reference"] > loaded.case.minutes * 60:
        proof.problems.append("the reference needs longer than the budget")


def _timed(proof: Proof, what: str, work: Callable[[], Any]) -> Any:
    start = time.monotonic()
    result = work()
    proof.seconds[what] = round(time.monotonic() - start, 2)
    return result


def shape(loaded: Loaded) -> list[str]:
    """What every case must have, whatever it is about."""
    case, problems = loaded.case, []
    if not loaded.prompt:
        problems.append("prompt.md is empty")
    problems += [f"the prompt gives a hint: {word}" for word in _PROMPT_HINTS if word.lower() in loaded.prompt.lower()]
    problems += [f"reads {name}, which is not there" for name in case.reads if not (ROOT / name).is_file()]
    if case.minutes <= 0 or case.commands <= 0:
        problems.append("the budget must be positive")
    if case.kind == "use" and not case.expected:
        problems.append("expected is empty: say the outcome in a sentence")
    return problems


def fingerprint(box: Box) -> str:
    """Names and bytes of everything below, without clocks."""
    digest = hashlib.sha256()
    for path in sorted(box.root.rglob("*")):
        if ".git" in path.parts:  # its index has clocks
            continue
        digest.update(str(path.relative_to(box.root)).encode())
        if path.is_symlink():
            digest.update(str(path.readlink()).encode())
        elif path.suffix in (".docx", ".pptx"):  # zips with the clock inside
            with zipfile.ZipFile(path) as archive:
                for member in sorted(set(archive.namelist()) - {"docProps/core.xml"}):
                    digest.update(archive.read(member))
        elif path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()
