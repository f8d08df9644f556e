"""reconcile on documents of authors who had not seen it: what it finds, what it flags wrongly, how sure it may be.

    python evals/strangers/reconcile.py FOLDER ...             folders of cases, or of folders of cases
    python evals/strangers/reconcile.py FOLDER --show          and list what was missed or wrongly flagged
    python evals/strangers/reconcile.py FOLDER --filled        with the sheets (numbers.jsonl) that readers filled there

A case is a folder: a truth file (results.json, .yaml or .csv), docs/, and labels.json with
{"planted": [{"file", "line" or "cell" or "slide", "text": the wrong number as written, "should_be", "kind"}]}.
A planted error is found when a finding names its file, its line or one next to it, and its number; it is covered when
it is found, or when the sheet asks for that number.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "evals"), str(ROOT / "scripts")]

from rgt import cli  # noqa: E402
from strangers.scoring import answer, read  # noqa: E402

import click  # noqa: E402

_TRUTHS = ("results.json", "results.yaml", "results.yml", "results.csv", "truth.json", "truth.yaml", "truth.csv")
_PLACES = ("line", "cell", "slide")


@dataclass
class Score:
    planted: Counter[str] = field(default_factory=Counter)  # by kind
    found: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)  # findings, by how sure
    wrong: Counter[str] = field(default_factory=Counter)
    covered: int = 0  # planted: found or asked
    asked: int = 0  # rows of the sheets
    documents: int = 0
    clean: int = 0
    flagged: int = 0
    notes: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        right, wrong = self.right.total(), self.wrong.total()
        found, planted = self.found.total(), self.planted.total()
        yield f"precision {_share(right, right + wrong)} · recall {_share(found, planted)}"
        yield f"clean documents flagged {_share(self.flagged, self.clean)}"
        each = self.asked / (self.documents or 1)
        yield f"found or asked {_share(self.covered, planted)} · rows asked per document {each:.1f}"
        sure = self.right["certain"]
        yield f"of the certain ones right {_share(sure, sure + self.wrong['certain'])}"
        for kind, count in sorted(self.planted.items()):
            yield f"  {kind:24} {self.found[kind]} of {count}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3f} ({part} of {whole})" if whole else "- (0)"


def numbers(text: str) -> set[str]:
    """Every number of a text, one spelling each."""
    plain = unescape(text).replace("\u2212", "-").replace("\\,", "").replace("{,}", "")
    plain = re.sub(r"(?<=\d)[,\u2009\u202f\u00a0 '](?=\d{3}(?!\d))", "", plain)
    return {match.lstrip("0") or "0" for match in re.findall(r"\d+(?:\.\d+)?(?:[eE]-?\d+)?", plain)} or {
        plain.lower().strip()
    }


def cases(folders: tuple[Path, ...]) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(label.parent for label in folder.rglob("labels.json"))


def run(case: Path, filled: bool) -> dict[str, Any]:
    labels = json.loads((case / "labels.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:  # a copy: what a reader filled stays as it is
        copy = Path(shutil.copytree(case, Path(folder) / case.name))
        sheet, truth = copy / "numbers.jsonl", next((name for name in _TRUTHS if (case / name).exists()), _TRUTHS[0])
        if not filled:
            sheet.unlink(missing_ok=True)
        documents = sorted(path for path in (copy / "docs").rglob("*") if path.is_file())
        report = answer("reconcile", "--values", copy / labels.get("truth", truth), "--sheet", sheet, *documents)
        rows = read(sheet) if sheet.exists() else []
    asked = [{**row, "path": row["file"], "evidence": row["number"]} for row in rows]
    return {"case": case, "labels": labels["planted"], "report": report, "documents": documents, "asked": asked}


def same_place(label: dict[str, Any], finding: dict[str, Any]) -> bool:
    if Path(label["file"]).name != Path(finding["path"]).name:
        return False
    where = str(finding.get("where") or "")
    if label.get("slide") is not None or label.get("cell") is not None:
        return label.get("slide") is None or re.search(rf"slide {label['slide']}\b", where) is not None
    return label.get("line") is None or abs(label["line"] - (finding.get("line") or 0)) <= 1


def is_about(finding: dict[str, Any], label: dict[str, Any]) -> bool:
    return same_place(label, finding) and bool(numbers(label["text"]) & numbers(finding["evidence"]))


def judge(result: dict[str, Any], score: Score) -> None:
    case, labels, report = result["case"], result["labels"], result["report"]
    findings = [finding for finding in report["findings"] if finding["code"] in ("drift", "unknown-claim")]
    if "error" in report:
        score.notes.append(f"ERROR {case}: {report['error']}")
    for other in report["findings"]:
        if other["code"] == "unreadable":
            score.notes.append(f"UNREADABLE {other['path']}: {other['message']}")
    score.documents += len(result["documents"])
    score.asked += len(result["asked"])
    hit: set[int] = set()
    for finding in findings:
        sure = "likely" if "[likely]" in finding["message"] else "certain"
        fits = [at for at, label in enumerate(labels) if is_about(finding, label)]
        (score.right if fits else score.wrong)[sure] += 1
        hit.update(fits)
        if not fits:
            score.notes.append(f"WRONG {sure} {_short(finding['path'])}:{finding.get('line')}: {finding['message']}")
    for at, label in enumerate(labels):
        kind = str(label.get("kind", "?"))
        score.planted[kind] += 1
        score.found[kind] += at in hit
        score.covered += at in hit or any(is_about(row, label) for row in result["asked"])
        if at not in hit:
            place = next((f"{name} {label[name]}" for name in _PLACES if label.get(name) is not None), "?")
            where = f"{_short(case / 'docs' / label['file'])} {place}"
            score.notes.append(f"MISSED {kind} {where}: {label['text']} for {label.get('should_be')}")
    dirty = {Path(label["file"]).name for label in labels}
    flagged = {Path(finding["path"]).name for finding in findings}
    names = {path.name for path in result["documents"]}
    score.clean += len(names - dirty)
    score.flagged += len((names - dirty) & flagged)


def _short(path: str | Path) -> str:
    return "/".join(Path(path).parts[-4:])


@click.command(cls=cli.Command)
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--show", is_flag=True, help="List what was missed, and what was flagged wrongly.")
@click.option(
    "--filled", is_flag=True, help="With numbers.jsonl of each case as a reader filled it; cases without are out."
)
def main(folders: tuple[Path, ...], show: bool, filled: bool) -> None:
    """Print precision, recall by kind of error, clean documents flagged and how many of the certain ones are right."""
    score = Score()
    with ThreadPoolExecutor(2) as pool:
        chosen = [case for case in cases(folders) if not filled or (case / "numbers.jsonl").exists()]
        for result in pool.map(lambda case: run(case, filled), chosen):
            judge(result, score)
    for note in score.notes:
        if show or note.startswith("ERROR"):
            print(note)
    for line in score.lines():
        print(line)


if __name__ == "__main__":
    main()
