"""triage on logs of public threads, collected by people who had not seen it: how often the first answer is right.

    python evals/strangers/triage.py                      evals/strangers/triage/*.jsonl
    python evals/strangers/triage.py --show more.jsonl    and list the misses

A row is {"id", "family", "log", "line": the decisive line, "accept": [ids of entries judged right], "exit_code"}, or
{"id", "healthy": true, "log"}. Rows without `accept` are judged by the line alone: right is an answer that shows it.
"""

from __future__ import annotations

import io
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "evals"), str(ROOT / "scripts")]

from rgt import cli  # noqa: E402
from rgt.triage import causes, scan  # noqa: E402
from strangers.scoring import read  # noqa: E402

import click  # noqa: E402

DATA = Path(__file__).with_suffix("")
VERDICTS = RIGHT, UNKNOWN, SILENT, WRONG = "right", "unknown", "silent", "wrong"
ALARM, QUIET = "false alarm", "healthy"


@dataclass
class Answer:
    row: dict[str, Any]
    verdict: str
    said: list[str] = field(default_factory=list)
    shown: str = ""
    line_right: bool = False

    @property
    def family(self) -> str:
        return "healthy" if self.row.get("healthy") else str(self.row.get("family", "?"))


def judge(row: dict[str, Any], what: scan.Plan) -> Answer:
    trace = scan.Scan(what, "log").run(io.BytesIO(row["log"].encode("utf-8", "surrogatepass")))
    verdict = causes.diagnose([trace], what, row.get("exit_code"))
    findings = [one for one in verdict if one.role in causes.FINDINGS]
    said = [one.entry.id if one.entry else UNKNOWN for one in findings]
    first = findings[0] if findings else None
    shown = first.place.text if first and first.place else ""
    if row.get("healthy"):
        return Answer(row, ALARM if findings else QUIET, said, shown)
    line = " ".join(row.get("line", "").split())
    near = " ".join(shown.split())
    same_line = bool(near) and (near in line or line in near or near[:60] in line)
    accept = row.get("accept")
    if not first:
        word = SILENT
    elif accept is None:
        word = UNKNOWN if first.role == causes.UNKNOWN else RIGHT if same_line else WRONG
    elif {said[0], *(first.entry.over if first.entry else ())} & set(accept):  # a special case of what was accepted
        word = RIGHT
    else:
        word = UNKNOWN if first.role == causes.UNKNOWN else WRONG
    return Answer(row, word, said, shown, same_line)


@click.command(cls=cli.Command)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option("--show", is_flag=True, help="List the misses: what was said, the line shown, the line that decides.")
@click.option("--only", help="Only this verdict: unknown, silent, wrong, false alarm.")
def main(files: tuple[Path, ...], show: bool, only: str | None) -> None:
    """Print right, unknown, silent, wrong and false alarms, in total and by family."""
    paths = files or tuple(sorted(DATA.glob("*.jsonl")))
    what = scan.plan()
    answers = [judge(row, what) for path in paths for row in read(path)]
    for one in answers if show else ():
        if one.verdict not in (RIGHT, QUIET) and only in (None, one.verdict):
            print(f"{one.row['id']} {one.family}: {one.verdict}, said {' '.join(one.said[:3]) or 'nothing'}")
            print(f"    shown:   {one.shown[:160]}\n    decides: {one.row.get('line', '')[:160]}")
    table(answers)


def table(answers: list[Answer]) -> None:
    failures = [one for one in answers if not one.row.get("healthy")]
    counts = Counter(one.verdict for one in answers)
    healthy = counts[ALARM] + counts[QUIET]
    if failures:
        words = (f"{word} {counts[word]} ({counts[word] / len(failures):.0%})" for word in VERDICTS)
        print(f"{len(failures)} failures: " + " · ".join(words))
        lines = sum(one.line_right for one in failures)
        print(f"the decisive line is the one shown: {lines} ({lines / len(failures):.0%})")
    print(f"{healthy} healthy logs: {counts[ALARM]} false alarms")
    families: dict[str, Counter[str]] = defaultdict(Counter)
    for one in failures:
        families[one.family][one.verdict] += 1
    for name, each in sorted(families.items(), key=lambda item: -item[1].total()):
        print(f"  {name:32} " + " · ".join(f"{word} {each[word]}" for word in VERDICTS if each[word]))


if __name__ == "__main__":
    main()
