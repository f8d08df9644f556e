"""compare_runs on campaigns whose truth their author planted: how many verdicts are right, how many confounds are told.

    python evals/strangers/compare_runs.py FOLDER              FOLDER/labels.jsonl and the campaigns it names
    python evals/strangers/compare_runs.py FOLDER --show       and list the wrong ones

A row is {"id", "root", "a": [runs of arm A below root, or FILE.csv::COLUMN=VALUE], "b", "metric", "intended",
"verdict", "also_fine": [other verdicts nobody would argue with], "direction": "A better" or "B better", "disclose":
["confound:KEY", ...]}.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from strangers.scoring import Row, answer, asked, command

NAMES = {"inconclusive": "undecided", "bug?": "bug-suspect"}  # the authors' words, and the program's


def ask(folder: Path, row: Row) -> Row:
    words = [*row["a"], "--vs", *row["b"], "--metric", row["metric"]]
    words += ["--split", row["split"]] if row.get("split") else []
    words += ["--intended", row["intended"]] if row.get("intended") else []
    if row.get("lower_is_better") is not None:
        words.append("--lower-is-better" if row["lower_is_better"] else "--higher-is-better")
    return {"verdict": "error", **answer("compare_runs", *words, cwd=folder / row.get("root", "."))}


@command("List the wrong verdicts, the confounds not told and those wrongly told.")
def main(folder: Path, show: bool) -> None:
    """Print right verdicts by kind, directions, and confounds told, missed and invented."""
    counts: Counter[str] = Counter()
    table: Counter[tuple[str, str]] = Counter()
    for row, found in asked(ask, folder):
        counts["campaigns"] += 1
        said, right = found["verdict"], str(NAMES.get(row["verdict"], row["verdict"]))
        reasons = " ".join(reason for one in found.get("comparisons", ()) for reason in one["reasons"])
        if right == "effect" and row["disclose"] and "cannot be attributed" in reasons:
            said = "effect"  # it is larger than the noise, and the planted confound may be why
        table[right, said] += 1
        fine = said in (right, *(NAMES.get(word, word) for word in row.get("also_fine", ())))
        counts["right"] += fine
        codes = ("confound", "undeclared", "budget", "hardware", "mixed")  # mixed: one run of an arm is set otherwise
        told = " ".join(
            one["message"] for one in found["findings"] if one["code"] in codes and one["severity"] != "info"
        )
        confounds = [word.partition(":")[2] for word in row["disclose"] if word.startswith("confound:")]
        missed = [key for key in confounds if not re.search(rf"\b{re.escape(key.rpartition('.')[2])}\b", told)]
        counts["confounds"] += len(confounds)
        counts["missed"] += len(missed)
        counts["invented"] += bool(told and not row["disclose"])
        if row.get("direction") and said == right:
            first = found["comparisons"][0]
            ahead = "A better" if mean(first["values"][0]) > mean(first["values"][1]) else "B better"
            behind = "B better" if ahead == "A better" else "A better"
            better = {"up": ahead, "down": behind}.get(first["direction"], "not known")
            counts["directions"] += 1
            counts["direction right"] += better == row["direction"]
        if show and (not fine or missed or (told and not row["disclose"])):
            why = found.get("error") or " | ".join(one["message"][:160] for one in found["findings"][:3])
            print(f"{row['id']} {row.get('form', '')}: {right}, said {said}; confounds missed {missed}\n    {why}")
            print(f"    {row.get('note', '')}")
    share = counts["right"] / max(1, counts["campaigns"])
    print(f"{counts['campaigns']} campaigns: {counts['right']} verdicts right ({share:.1%})", end="")
    print(f"; direction right {counts['direction right']} of {counts['directions']}")
    for right in sorted({pair[0] for pair in table}):
        words = " · ".join(f"{said} {count}" for (of, said), count in table.most_common() if of == right)
        print(f"  {right:12} said: {words}")
    print(f"confounds told {counts['confounds'] - counts['missed']} of {counts['confounds']}", end="")
    print(f"; told where nothing was planted: {counts['invented']} campaigns")


if __name__ == "__main__":
    main()
