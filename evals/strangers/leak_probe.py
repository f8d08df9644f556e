"""leak_probe on splits whose leaks their author planted: leaky cases named, clean ones flagged, leaked items found.

    python evals/strangers/leak_probe.py FOLDER             FOLDER/labels.jsonl and the splits it names
    python evals/strangers/leak_probe.py FOLDER --show      and list the cases that are not right

A row is {"id", "train": path, "test": path, "group": column or null, "leaky", "kinds": [...], "items": [the leaked test
items: row numbers from 0, or file names]}. A case is flagged when leak_probe gives a warning or an error.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from strangers.scoring import Row, answer, asked, command, read


def ask(folder: Path, row: Row) -> Row:
    matches = folder / f"{row['id']}.matches"
    words = ["overlap", "--train", row["train"], "--test", row["test"], "--list", matches]
    found = answer("leak_probe", *words, *(["--group", row["group"]] if row.get("group") else []), cwd=folder)
    if "error" not in found:
        found["items"] = {one["item"] for one in read(matches) if one["kind"] != "coincidence"}
    return found


def expected(folder: Path, row: Row) -> set[str]:
    """The leaked items as leak_probe names them: FILE:LINE, or a file below the split's folder."""
    test = folder / row["test"]
    if test.is_dir():
        return {Path(str(item)).name for item in row["items"]}
    if test.suffix == ".jsonl":
        lines = list(range(1, 1 + len(test.read_text(encoding="utf-8").splitlines())))
    else:
        with test.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            ends = [reader.line_num for _ in reader]
        lines = [end + 1 for end in ends[:-1]]
    return {f"{test.name}:{lines[int(item)]}" for item in row["items"]}


@command("List the cases that are not right.")
def main(folder: Path, show: bool) -> None:
    """Print leaky cases missed, clean ones flagged, and leaked items found and wrongly named."""
    counts: Counter[str] = Counter()
    for row, found in asked(ask, folder):
        flagged = any(one["severity"] != "info" and one["code"] != "unknown" for one in found["findings"])
        kind = "leaky" if row["leaky"] else "clean"
        counts[kind] += 1
        counts[f"{kind} flagged"] += flagged
        said = {Path(item).name for item in found.get("items", ())}
        true = set() if row["kinds"] == ["group"] else expected(folder, row)
        counts["items"] += len(true)
        counts["found"] += len(true & said)
        counts["wrong"] += len(said - true)
        if show and (flagged != row["leaky"] or "error" in found or true - said or said - true):
            print(f"{row['id']} {kind} {row['kinds']}: missed {len(true - said)} of {len(true)}", end="")
            print(f", wrong {len(said - true)}")
            print(f"    {found.get('error') or ' | '.join(one['message'][:150] for one in found['findings'][:2])}")
            print(f"    {row.get('note', '')}")
    print(f"leaky cases flagged {counts['leaky flagged']} of {counts['leaky']}", end="")
    print(f"; clean ones flagged {counts['clean flagged']} of {counts['clean']}")
    print(f"leaked items found {counts['found']} of {counts['items']}; wrongly named {counts['wrong']}")


if __name__ == "__main__":
    main()
