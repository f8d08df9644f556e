"""takeover on projects whose state their author planted: how many facts the snapshot names, what it says of tidy ones.

    python evals/strangers/takeover.py FOLDER             FOLDER/labels.jsonl and the projects it names
    python evals/strangers/takeover.py FOLDER --show      and list the facts not named and the wrong alarms

A row is {"id", "path", "facts": [{"kind", "where": a file or folder of the project, "words": [regexes]}], "clean"};
without `clean` a project is not tidy.
A fact is named when one finding, or one line of the screen about its file or folder, has one of its words. What the
screen says of other directories and of this machine's processes does not count.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from rgt import cli  # noqa: E402

import click  # noqa: E402

Row = dict[str, Any]
LOUD = ("error", "warn")


def ask(folder: Path, row: Row) -> Row:
    project = (folder / row["path"]).resolve()
    command = [sys.executable, str(ROOT / "scripts" / "takeover.py"), "snapshot", str(project), "--seconds", "20"]
    command.append("--json")
    done = subprocess.run(command, capture_output=True, text=True, cwd=project)
    answer: Row = json.loads(done.stdout)
    answer["findings"] = [one for one in answer["findings"] if str(one["path"]).startswith((str(project), "."))]
    return answer


def named(fact: Row, answer: Row) -> bool:
    """By its finding, or by the record of its run, repository or checkpoint."""
    word = re.compile("|".join(fact["words"]), re.I)
    texts = [" ".join(map(str, one.values())) for one in answer["findings"]]
    place = fact["where"].rstrip("/")
    kept = [json.dumps(one) for key in ("runs", "git", "drift", "stopped") for one in answer.get(key, ())]
    about = [text for text in kept if place in text or str(Path(place).parent) in text]
    return any(word.search(text) for text in (*texts, *about))


@click.command(cls=cli.Command)
@click.argument("folder", type=click.Path(path_type=Path, exists=True))
@click.option("--show", is_flag=True, help="List the facts that are not named, and what is said of tidy projects.")
def main(folder: Path, show: bool) -> None:
    """Print facts named by kind, and tidy projects with a warning or an error."""
    rows = [json.loads(line) for line in (folder / "labels.jsonl").read_text(encoding="utf-8").splitlines() if line]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda row: ask(folder, row), rows))
    planted: Counter[str] = Counter()
    found: Counter[str] = Counter()
    tidy = alarmed = 0
    for row, answer in zip(rows, answers, strict=True):
        loud = [one for one in answer["findings"] if one["severity"] in LOUD]
        clean = bool(row.get("clean"))
        tidy, alarmed = tidy + clean, alarmed + (clean and bool(loud))
        if show and clean:
            print(*(f"{row['id']}: tidy, and: {one['code']}: {one['message']}" for one in loud), sep="\n")
        for fact in row.get("facts", ()):
            hit = named(fact, answer)
            planted[fact["kind"]] += 1
            found[fact["kind"]] += hit
            if show and not hit:
                print(f"{row['id']}: {fact['kind']} in {fact['where']}: {fact.get('note', '')}")
    print(f"named {found.total()} of {planted.total()} facts; {alarmed} of {tidy} tidy projects alarm")
    print(*(f"  {kind}: {found[kind]} of {count}" for kind, count in planted.most_common()), sep="\n")


if __name__ == "__main__":
    main()
