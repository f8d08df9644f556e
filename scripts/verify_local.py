# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy"]
# ///
"""VERIFY · is this checkpoint real: loads, finite, nonzero, shaped, in range, complete

Example:
    python scripts/verify_local.py checkpoints/step_2000.pt --expect checkpoints/step_1000.pt
    python scripts/verify_local.py runs/20261116-083000-tiny-gpt-1f00ab --expect-count 3
    python scripts/verify_local.py pulled --json

Reads every byte once, executes nothing that a file holds, and needs neither torch nor much memory. When everything
passes, PULL_VERIFIED.json is written beside PULL_MANIFEST.json, or into the folder that was given; a proof that no
longer holds is renamed to PULL_VERIFIED.json.stale.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rgt import cli, errors, report, units
from rgt.report import Report

if TYPE_CHECKING:
    from artifacts.expect import Expectation
    from artifacts.model import Artifact, Problem
    from artifacts.survey import Survey
    from artifacts.verify import Request, Verdict

MAX_ABS = 1e6
_LINES = 200  # of artifacts, and of tensors with --list; --json has them all
_BAR = 30
_SEVERITIES = ("error", "warn", "info")

# The hand-over checklist, and the findings that speak against each point.
CHECKLIST = {
    "loads": ("truncated", "malformed", "crc", "bounds", "overlap", "duplicate", "gap", "trailing", "empty", "bomb",
              "path-name", "error-page", "lfs-pointer", "not-a-checkpoint", "object-array", "hostile", "refused-global",
              "unloadable", "unreadable", "changed", "no-crc", "unjudged"),
    "no NaN or Inf": ("nan", "inf"),
    "not all zero": ("zero", "hole", "constant"),
    "expected dimensions": ("shape", "dtype", "renamed"),
    "in range": ("range", "denormal"),
    "complete": ("missing", "extra", "partial", "count", "stale-index", "optimizer", "step", "ema"),
    "as pulled": ("digest", "size", "stale-proof"),
}  # fmt: skip
VALUES = ("no NaN or Inf", "not all zero", "in range")


@click.command(cls=cli.Command)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--expect", type=click.Path(path_type=Path),
              help="Names, shapes and dtypes: a YAML or JSON spec, or a good checkpoint.")  # fmt: skip
@click.option("--expect-count", type=click.IntRange(1), help="Fewest artifacts (files with tensors) to find.")
@click.option("--max-abs", type=click.FloatRange(0, min_open=True), default=MAX_ABS, show_default=True,
              help="Largest magnitude of a weight.")  # fmt: skip
@click.option("--list", "listing", is_flag=True, help="Show what is inside, from the headers, and check nothing else.")
@click.option("--allow-pickle", is_flag=True,
              help="Also load files with unknown pickle names, in a subprocess. RUNS THE CODE IN THEM.")  # fmt: skip
@click.option("--deep", is_flag=True, help="Also load each file for real: torch.load, weights only, mmap.")
@click.option("--jobs", type=click.IntRange(1, 64), help="Files at once. [default: one per core, at most 4]")
@click.option("--no-digest", "digest", flag_value=False, default=True, help="Leave sha256 out: faster, but no proof.")
@cli.report_options
def main(paths: tuple[Path, ...], expect: Path | None, expect_count: int | None, listing: bool, fmt: str | None,
         **how: Any) -> int:  # fmt: skip
    """Check checkpoints, folders of them, run directories and pulled trees: PATHS.

    \b
    Formats: torch (zip and legacy), safetensors, sharded Hugging Face, torch.distributed.checkpoint, DeepSpeed,
    Lightning, Accelerate, numpy; results and metrics JSON beside them.

    Example: python scripts/verify_local.py checkpoints/step_2000.pt --expect checkpoints/step_1000.pt
    """
    _need_numpy()
    from artifacts import expect as expectations
    from artifacts.survey import survey

    surveys = [survey(path) for path in dict.fromkeys(paths)]
    if listing:
        return _list(surveys, fmt)
    expectation = expectations.load(expect) if expect else None
    start = time.perf_counter()
    verdicts = _verify(surveys, _request(expectation, **how))
    return _report(verdicts, expectation, expect_count, how, time.perf_counter() - start, fmt)


def _need_numpy() -> None:
    try:
        import numpy  # noqa: F401
    except ImportError:
        message = "numpy cannot be imported, and values cannot be checked without it; pip install numpy"
        raise errors.lacking(message) from None


def _request(expectation: Expectation | None, *, max_abs: float, digest: bool, deep: bool, allow_pickle: bool,
             jobs: int | None) -> Request:  # fmt: skip
    from artifacts.examine import Options
    from artifacts.verify import JOBS, Request

    if allow_pickle:
        report.progress("warning: --allow-pickle runs whatever code the files hold, as you, in a subprocess")
    options = Options(digest=digest, max_abs=max_abs, allow=expectation.allow if expectation else {})
    return Request(options, expectation, deep, allow_pickle, jobs or JOBS)


def _verify(surveys: list[Survey], request: Request) -> list[Verdict]:
    from artifacts import verify

    bar = Progress(sum(map(verify.sizes, surveys)))
    try:
        return [verify.verify(found, request, bar.tick) for found in surveys]
    finally:
        bar.close()


class Progress:
    """A bar on a terminal; nothing in a log."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.shown = total, 0, -1
        self.start = time.perf_counter()
        self.visible = sys.stderr.isatty()

    def tick(self, count: int) -> None:
        self.done += count
        percent = 100 * self.done // max(self.total, 1)
        if not self.visible or percent == self.shown:
            return
        self.shown = percent
        full = "#" * (_BAR * percent // 100)
        rate = units.show_size(self.done / max(time.perf_counter() - self.start, 1e-9))
        click.echo(f"\r[{full:{_BAR}}] {percent:3d} %  {rate}/s ", nl=False, err=True)

    def close(self) -> None:
        if self.shown >= 0:
            click.echo("\r\033[K", nl=False, err=True)


# -- the report


def _report(verdicts: list[Verdict], expectation: Expectation | None, expect_count: int | None, how: dict[str, Any],
            seconds: float, fmt: str | None) -> int:  # fmt: skip
    from artifacts import verify

    artifacts = [artifact for verdict in verdicts for artifact in verdict.artifacts]
    problems = [entry for verdict in verdicts for entry in verdict.problems]
    short = _short(verdicts, artifacts, expect_count)
    record = {"max_abs": how["max_abs"], "expect": expectation.source if expectation else None, "deep": how["deep"]}
    proofs = [] if short else [path for verdict in verdicts for path in verify.prove(verdict, record)]
    problems += short + [entry for verdict in verdicts if short or verdict.failed for entry in verify.withdraw(verdict)]
    found = Report("verify_local")
    for path, problem in sorted(problems, key=lambda entry: _SEVERITIES.index(entry[1].severity)):
        found.add(problem.code, problem.severity, problem.message, path=str(path), where=problem.where,
                  evidence=problem.evidence, fix=problem.fix)  # fmt: skip
    found.data = {
        "artifacts": [_row(artifact) for artifact in artifacts],
        "checklist": _checklist(problems, artifacts, how["max_abs"]),
        "proof": [str(path) for path in proofs],
        "seconds": round(seconds, 3),
    }
    if fmt is None:
        _print_artifacts(artifacts)
    return found.emit(fmt, _summary(found, artifacts, seconds))


def _short(verdicts: list[Verdict], artifacts: list[Artifact], wanted: int | None) -> list[tuple[Path, Problem]]:
    from artifacts.model import Problem

    if wanted is None or len(artifacts) >= wanted:
        return []
    message = f"{_count(artifacts, 'artifact')} found, {wanted} expected"
    return [(verdicts[0].found.given, Problem("count", "error", message))]


def _checklist(problems: list[tuple[Path, Problem]], artifacts: list[Artifact], max_abs: float) -> dict[str, str]:
    """yes | NO | look (a warning) | why there is no answer."""
    found = {}
    for point, codes in CHECKLIST.items():
        worst = {problem.severity for _, problem in problems if problem.code in codes}
        answer = "NO" if "error" in worst else "look" if "warn" in worst else _no_answer(point, artifacts) or "yes"
        found[f"|x| <= {max_abs:g}" if point == "in range" else point] = answer
    return found


def _no_answer(point: str, artifacts: list[Artifact]) -> str | None:
    """Nothing speaks against a point that was not looked at, and nothing for it either."""
    checks = {check for artifact in artifacts for check in artifact.checks}
    if point in VALUES and (not artifacts or any(not a.real and "finite" not in a.checks for a in artifacts)):
        return "not checked (unreadable)"
    if point == "expected dimensions" and "dimensions" not in checks:
        return "not asked (--expect)"
    if point == "as pulled" and "digest" not in checks:
        return "not asked (no PULL_MANIFEST.json)"
    return None


def _row(artifact: Artifact) -> dict[str, Any]:
    return {
        "path": str(artifact.path),
        "ok": artifact.real,
        "format": artifact.format,
        "bytes": artifact.bytes,
        "sha256": artifact.sha256,
        "tensors": len(artifact.layout.tensors),
        "parameters": artifact.parameters,
        "seconds": round(artifact.seconds, 3),
        "checks": sorted(set(artifact.checks)),
    }


def _print_artifacts(artifacts: list[Artifact]) -> None:
    for artifact in artifacts[:_LINES]:
        parts = [str(artifact.path), artifact.format, units.show_size(artifact.bytes)]
        if artifact.layout.tensors:
            parts += [_count(artifact.layout.tensors, "tensor"), f"{artifact.parameters:,} parameters"]
        click.echo(f"{'ok' if artifact.real else 'FAIL':5} " + "  ".join(parts))
    if len(artifacts) > _LINES:
        click.echo(f"... and {len(artifacts) - _LINES} more; --json lists them all")


def _summary(found: Report, artifacts: list[Artifact], seconds: float) -> str:
    failed = sum(not artifact.real for artifact in artifacts)
    errors_, warnings = (sum(f.severity == level for f in found.findings) for level in _SEVERITIES[:2])
    verdict = "NOT VERIFIED" if errors_ else "verified with warnings" if warnings else "verified"
    count = f"{failed} of {_count(artifacts, 'artifact')} failed" if failed else _count(artifacts, "artifact")
    proofs = "".join(f"; proof: {path}" for path in found.data["proof"])
    points = " · ".join(f"{point}: {answer}" for point, answer in found.data["checklist"].items())
    last = f"{verdict}: {count}, {errors_} errors, {warnings} warnings, {units.show_duration(seconds)}{proofs}"
    return f"checklist: {points}\n{last}"


def _count(things: Sized, word: str) -> str:
    return f"{len(things)} {word}{'' if len(things) == 1 else 's'}"


# -- --list


def _list(surveys: list[Survey], fmt: str | None) -> int:
    from artifacts.examine import HEADERS, examine

    found = Report("verify_local")
    artifacts = [examine(path, HEADERS, part.blobs(path)) for part in surveys for path in part.artifacts]
    for artifact in artifacts:
        for problem in artifact.problems:
            found.add(problem.code, problem.severity, problem.message, path=str(artifact.path), where=problem.where)
    found.data = {"artifacts": [{**_row(artifact), "contents": _contents(artifact)} for artifact in artifacts]}
    if fmt is None:
        _print_contents(artifacts)
    return found.emit(fmt, f"{_count(artifacts, 'artifact')}, headers only: nothing was verified")


def _contents(artifact: Artifact) -> list[dict[str, Any]]:
    return [
        {"name": tensor.name, "dtype": tensor.dtype.name, "shape": list(tensor.shape), "role": tensor.role}
        for tensor in artifact.layout.tensors
    ]


def _print_contents(artifacts: list[Artifact]) -> None:
    left = _LINES
    for artifact in artifacts:
        rows = artifact.layout.tensors
        click.echo(f"{artifact.path}  {artifact.format}  {_count(rows, 'tensor')}  {artifact.parameters:,} parameters")
        for tensor in rows[: max(left, 0)]:
            shape = "x".join(map(str, tensor.shape)) or "scalar"
            click.echo(f"  {tensor.name[:120]}  {tensor.dtype.name}  {shape}  {tensor.role}")
        left -= len(rows)
    if left < 0:
        click.echo(f"... and {-left} more tensors; --json lists them all")


if __name__ == "__main__":
    main()
