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
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from strangers.scoring import Row, answer, asked, command

LOUD = ("error", "warn")


def ask(folder: Path, row: Row) -> Row:
    project = (folder / row["path"]).resolve()
    found = answer("takeover", "snapshot", project, "--seconds", "20", cwd=project)
    found["findings"] = [one for one in found["findings"] if str(one["path"]).startswith((str(project), "."))]
    return found


def named(fact: Row, found: Row) -> bool:
    """By its finding, or by the record of its run, repository or checkpoint."""
    word = re.compile("|".join(fact["words"]), re.I)
    texts = [" ".join(map(str, one.values())) for one in found["findings"]]
    place = fact["where"].rstrip("/")
    kept = [json.dumps(one) for key in ("runs", "git", "drift", "stopped") for one in found.get(key, ())]
    about = [text for text in kept if place in text or str(Path(place).parent) in text]
    return any(word.search(text) for text in (*texts, *about))


@command("List the facts that are not named, and what is said of tidy projects.")
def main(folder: Path, show: bool) -> None:
    """Print facts named by kind, and tidy projects with a warning or an error."""
    planted: Counter[str] = Counter()
    found: Counter[str] = Counter()
    tidy = alarmed = 0
    for row, answered in asked(ask, folder):
        loud = [one for one in answered["findings"] if one["severity"] in LOUD]
        clean = bool(row.get("clean"))
        tidy, alarmed = tidy + clean, alarmed + (clean and bool(loud))
        if show and clean:
            print(*(f"{row['id']}: tidy, and: {one['code']}: {one['message']}" for one in loud), sep="\n")
        for fact in row.get("facts", ()):
            hit = named(fact, answered)
            planted[fact["kind"]] += 1
            found[fact["kind"]] += hit
            if show and not hit:
                print(f"{row['id']}: {fact['kind']} in {fact['where']}: {fact.get('note', '')}")
    print(f"named {found.total()} of {planted.total()} facts; {alarmed} of {tidy} tidy projects alarm")
    print(*(f"  {kind}: {found[kind]} of {count}" for kind, count in planted.most_common()), sep="\n")


if __name__ == "__main__":
    main()
