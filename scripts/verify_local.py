# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""VERIFY · is this checkpoint real: loads, finite, nonzero, shaped, in range, complete

Example:
    rgt verify_local checkpoints/step_2000.pt --expect checkpoints/step_1000.pt
    rgt verify_local runs/20261116-083000-tiny-gpt-1f00ab --expect-count 3
    rgt verify_local pulled --json

Reads every byte, executes nothing that a file holds, and needs neither torch nor much memory. The verdict, in
words, in --json and as exit code:

    sound      0  every file that was opened is whole and its values are in order; warnings are for you to read
    strangers  4  the same, but loading it imports code that is no known library's: the names are said; allow yours
    damaged    1  at least one file is broken, incomplete or hostile
    unknown    1  nothing here is of a format that can be opened; size and sha256 are said, no more

A pull (PULL_MANIFEST.json is there) that is not damaged gets PULL_VERIFIED.json, with the verdict and with every file
that was not opened; a proof that no longer holds is renamed to PULL_VERIFIED.json.stale. Files of unknown formats are
listed as not checked.

A spec for --expect:
    tensors:
      lm_head.weight: [50304, 768]                       # shape
      wte.weight: {shape: [50304, 768], dtype: bfloat16}
    extra: true                                          # other tensors may be there, too
    allow:
      zero: ["*.lora_B.weight"]                          # findings that are meant, by tensor name
      refused-global: ["mymodel.*"]                      # names in the pickle; nothing of it is run
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgt import bundle, cli, errors, units
from rgt.report import SEVERITIES, Report, plural

import click

if TYPE_CHECKING:
    from rgt.checkpoint.layout import Artifact, Problem

MAX_ABS = 1e6
WORDS = {"damaged": errors.FINDINGS, "unknown": errors.FINDINGS, "strangers": errors.REFUSED, "sound": errors.OK}
_SHOWN = {"damaged": "NOT VERIFIED", "unknown": "NOT CHECKED", "strangers": "sound, from strangers", "sound": "sound"}
_LINES = 200  # of artifacts; --json has them all
_NAMED = 5

# The hand-over checklist, and the findings that speak against each point.
_LOADS = """
    truncated malformed crc bounds overlap duplicate gap trailing empty bomb path-name error-page lfs-pointer
    not-a-checkpoint object-array hostile refused-global unreadable changed no-crc unjudged unknown code
"""
CHECKLIST = {
    "loads": _LOADS.split(),
    "no NaN or Inf": ["nan", "inf"],
    "not all zero": ["zero", "hole", "constant"],
    "expected dimensions": ["shape", "dtype", "renamed"],
    "in range": ["range"],
    "complete": ["missing", "extra", "partial", "count", "stale-index", "step"],
    "as pulled": ["digest", "size", "stale-proof"],
}
VALUES = ("no NaN or Inf", "not all zero", "in range")
_PATH, _ABOVE_0 = click.Path(path_type=Path), click.FloatRange(0, min_open=True)


@click.command(cls=cli.Command)
@click.argument("paths", nargs=-1, required=True, type=_PATH)
@click.option(
    "--expect",
    type=_PATH,
    help="Names, shapes and dtypes: a spec, or a good checkpoint of the same training, whose values count, too.",
)
@click.option("--expect-count", type=click.IntRange(1), help="Fewest artifacts (files with tensors) to find.")
@click.option("--max-abs", type=_ABOVE_0, default=MAX_ABS, show_default=True, help="Largest magnitude of a weight.")
@click.option("--no-digest", "digest", flag_value=False, default=True, help="Leave sha256 out: faster, but no proof.")
@cli.report_options
def main(
    paths: tuple[Path, ...],
    expect: Path | None,
    expect_count: int | None,
    max_abs: float,
    digest: bool,
    fmt: str | None,
) -> int:
    """Check checkpoints, folders of them, run directories and pulled trees: PATHS.

    \b
    Formats: torch (zip and legacy), safetensors, sharded Hugging Face, torch.distributed.checkpoint, DeepSpeed,
    Lightning, Accelerate, numpy; results and index JSON beside them.

    Example: rgt verify_local checkpoints/step_2000.pt --expect checkpoints/step_1000.pt
    """
    from rgt.checkpoint import expectation, verify
    from rgt.checkpoint.examine import Options
    from rgt.checkpoint.layout import Problem
    from rgt.checkpoint.survey import survey

    if not importlib.util.find_spec("numpy"):  # imported later, while the digest is already under way
        raise errors.lacking("values cannot be checked without numpy; pip install numpy")
    gc.set_threshold(1_000_000)  # 50,000 tensors are a million objects without cycles: looking for some took a sixth
    surveys = [survey(path) for path in dict.fromkeys(paths)]
    expected = expectation.load_expectation(expect) if expect else None
    options = Options(digest=digest, max_abs=max_abs, allow=expected.allow if expected else {})
    start, total = time.perf_counter(), sum(map(verify.sizes, surveys))
    shown = click.progressbar(length=total, file=sys.stderr) if sys.stderr.isatty() else contextlib.nullcontext()
    with shown as bar:
        verdicts = [verify.verify(found, options, bar.update if bar else None) for found in surveys]
    artifacts = [artifact for verdict in verdicts for artifact in verdict.artifacts]
    if expected:
        for verdict in verdicts:
            expectation.compare(expected, verdict)
    problems = [entry for verdict in verdicts for entry in verdict.problems]
    short = expect_count is not None and len(artifacts) < expect_count
    if short:
        message = f"{plural(len(artifacts), 'artifact')} found, {expect_count} expected"
        problems.append((verdicts[0].found.given, Problem("count", "error", message)))
    record = {"max_abs": max_abs, "expect": str(expect) if expect else None}
    proofs = [] if short else [path for verdict in verdicts for path in verify.prove(verdict, record)]
    problems += [entry for verdict in verdicts if short or verdict.failed for entry in verify.withdraw(verdict)]
    words = [verdict.word for verdict in verdicts]
    word = "damaged" if short else next(filter(words.__contains__, WORDS))
    data = {
        "ok": word == "sound",
        "verdict": word,
        "strangers": sorted({name for verdict in verdicts for name in verdict.strangers}),
        "artifacts": [
            {"path": str(one.path), "ok": one.real, **one.as_dict(), "parameters": one.parameters} for one in artifacts
        ],
        "checklist": checklist(problems, artifacts, max_abs),
        "unchecked": [row for verdict in verdicts for row in verdict.unchecked],
        "proof": [str(path) for path in proofs],
        "seconds": round(time.perf_counter() - start, 3),
    }
    return emit(problems, artifacts, data, fmt)


# -- the report


def emit(problems: list[tuple[Path, Problem]], artifacts: list[Artifact], data: dict[str, Any], fmt: str | None) -> int:
    from rgt.checkpoint import names

    found = Report("verify_local", data=data)
    for path, problem in sorted(problems, key=lambda entry: SEVERITIES.index(entry[1].severity)):
        found.add(**vars(problem), path=str(path))
    for artifact in artifacts[:_LINES] if fmt is None else ():
        parts = [str(artifact.path), artifact.format, units.show_size(artifact.bytes)]
        if artifact.layout.tensors:
            parts += [plural(len(artifact.layout.tensors), "tensor"), f"{artifact.parameters:,} parameters"]
        click.echo(f"{'ok' if artifact.real else 'FAIL':5} " + "  ".join(parts))
    if fmt is None and len(artifacts) > _LINES:
        click.echo(f"... and {len(artifacts) - _LINES} more; --json lists them all")
    failed = sum(not artifact.real for artifact in artifacts)
    errors_, warnings = (sum(problem.severity == level for _, problem in problems) for level in SEVERITIES[:2])
    count = f"{failed} of {plural(len(artifacts), 'artifact')} failed" if failed else plural(len(artifacts), "artifact")
    proofs = "".join(f"; proof: {path}" for path in data["proof"])
    points = " · ".join(f"{point}: {answer}" for point, answer in data["checklist"].items())
    took = units.show_duration(data["seconds"])
    last = f"{_SHOWN[data['verdict']]}: {count}, {errors_} errors, {warnings} warnings, {took}{proofs}"
    if data["strangers"]:
        last += f"\nloading imports: {', '.join(data['strangers'][:_NAMED])}"
    if data["unchecked"]:
        size = units.show_size(sum(row["bytes"] for row in data["unchecked"]))
        some = ", ".join(Path(row["path"]).name for row in data["unchecked"][:_NAMED])
        last += f"\nnot checked: {plural(len(data['unchecked']), 'file')}, {size}: {some}"
    broken = next((one.path for one in artifacts if not one.real), None)
    if broken and "digest" not in {check for one in artifacts for check in one.checks}:  # else: pull it again
        folder = broken.parent.parent if names.is_step_folder(broken.parent.name) else broken.parent
        last += f"\nthe newest whole one: {bundle.command('checkpoints', 'latest', folder)}"
    found.emit(fmt, f"checklist: {points}\n{last}")
    return WORDS[data["verdict"]]


def checklist(problems: list[tuple[Path, Problem]], artifacts: list[Artifact], max_abs: float) -> dict[str, str]:
    """yes | NO | look (a warning) | why there is no answer: nothing speaks for a point that was not looked at."""
    checks = {check for artifact in artifacts for check in artifact.checks}
    unreadable = not artifacts or any(not a.real and "finite" not in a.checks for a in artifacts)
    unknown = (*VALUES, "expected dimensions", "complete")
    open_points = dict.fromkeys(unknown, "not checked (unreadable)") if unreadable else {}
    if "dimensions" not in checks:
        open_points.setdefault("expected dimensions", "not asked (--expect)")
    if "digest" not in checks:
        open_points["as pulled"] = "not asked (no PULL_MANIFEST.json)"
    answers = {}
    for point, codes in CHECKLIST.items():
        severities = {problem.severity for _, problem in problems if problem.code in codes}
        against = "NO" if "error" in severities else "look" if "warn" in severities else None
        name = f"|x| <= {max_abs:g}" if point == "in range" else point
        answers[name] = against or open_points.get(point, "yes")
    return answers


if __name__ == "__main__":
    main()
