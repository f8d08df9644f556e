"""adopt on runs that their author wrote with other tools: how many values, settings and seeds are read back, and where.

    python evals/strangers/adopt.py FOLDER              FOLDER/labels.jsonl and the folders or files it names
    python evals/strangers/adopt.py FOLDER --show       and list what was not read, or read wrongly

A row is {"id", "path", "runs": [{"name", "values": [[metric, split or null, step or null, value], ...], "config": {},
"seed"}]}. A value is read when one run has it at that step (or, where the log counts parts of epochs, at that epoch),
under the metric's name and on that split; a value without a step, anywhere on its curve or as a result. `wrong` counts
values that stand there differently, `invented` runs too many.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "evals"), str(ROOT / "scripts")]

from rgt import files  # noqa: E402
from rgt.compare_runs import flat_settings  # noqa: E402
from rgt.metrics import table  # noqa: E402
from strangers.scoring import Row, answer, asked, command  # noqa: E402

Point = tuple[str, str, int | None]  # metric, split, step


def spelled(metric: str, split: str | None) -> tuple[str, str]:
    of, name = table.split_and_rest(metric)
    return " ".join(table.words(name)), table.SPLIT_WORDS.get(split or "", split) or of or ""


def read(home: Path) -> Row:
    """What one adopted run holds; the last value of a curve and a result have no step."""
    points: dict[Point, float] = {}
    ever: dict[tuple[str, str], list[tuple[float | None, float]]] = {}  # with its epoch
    rows = list(files.read_jsonl(home / "metrics.jsonl")) if (home / "metrics.jsonl").exists() else []
    epochs = {row["step"]: row["epoch"] for row in rows if "epoch" in row}
    for row in rows:
        for key, value in row.items():
            if isinstance(value, float | int) and key not in ("step", "time"):
                name, of = spelled(key, row.get("split"))
                points[name, of, row["step"]] = points[name, of, None] = float(value)
                ever.setdefault((name, of), []).append((epochs.get(row["step"]), float(value)))
    if (home / "results.json").exists():
        for one in json.loads((home / "results.json").read_text(encoding="utf-8"))["metrics"]:
            name, of = spelled(one["name"], one.get("split"))
            points[name, of, None] = float(one["value"])
    record = json.loads((home / "run.json").read_text(encoding="utf-8"))
    settings = flat_settings.flatten(record.get("config") or {})
    return {"points": points, "ever": ever, "config": settings, "seeds": list((record.get("seeds") or {}).values())}


def judge(run: Row, found: Row) -> Counter[str]:
    """What of a planted run this adopted one holds."""
    count: Counter[str] = Counter()
    for metric, split, step, value in run["values"]:
        name, of = spelled(metric, split)
        splits = [of] if of else ["", "train", "val", "test"]
        known = [found["points"][name, each, step] for each in splits if (name, each, step) in found["points"]]
        rows = [row for each in splits for row in found["ever"].get((name, each), ())]
        known += [one for epoch, one in rows if step is None or step == epoch]
        right = any(math.isclose(one, value, rel_tol=1e-5, abs_tol=1e-9) for one in known)
        count["read" if right else "wrong" if known else "missed"] += 1
    for key, value in run.get("config", {}).items():
        same = [one for name, one in found["config"].items() if name == key or name.endswith(f".{key}")]
        count["set" if any(flat_settings.plain(one) == flat_settings.plain(value) for one in same) else "unset"] += 1
    if run.get("seed") is not None:
        count["seeded" if any(str(one) == str(run["seed"]) for one in found["seeds"]) else "unseeded"] += 1
    return count


def ask(folder: Path, row: Row) -> tuple[Counter[str], list[str]]:
    with tempfile.TemporaryDirectory() as into:
        said = answer("adopt", row["path"], "--into", into, cwd=folder)
        homes = sorted(path.parent for path in Path(into).glob("*/run.json"))
        adopted = [read(home) for home in homes]
    total: Counter[str] = Counter(invented=max(0, len(adopted) - len(row["runs"])))
    notes = []
    nothing: Row = {"points": {}, "ever": {}, "config": {}, "seeds": []}
    for run in row["runs"]:
        counts = [judge(run, one) for one in adopted or [nothing]]
        best = max(counts, key=lambda count: (count["read"], count["set"]))
        total += best
        if best["missed"] or best["wrong"] or best["unset"] or best["unseeded"]:
            notes.append(f"{row['id']} {run['name']}: {dict(best)}; {said.get('error', '')[-150:]}")
    return total, notes


@command("List the runs of which something is missing or wrong.")
def main(folder: Path, show: bool) -> None:
    """Print values, settings and seeds read, missed and wrong."""
    total: Counter[str] = Counter()
    for row, (count, notes) in asked(ask, folder):
        total += count + Counter(places=1, runs=len(row["runs"]))
        print(*notes, sep="\n", end="\n" if notes else "") if show else None
    values = total["read"] + total["missed"] + total["wrong"]
    print(f"{total['places']} places, {total['runs']} runs; invented runs {total['invented']}")
    print(f"values read {total['read']} of {values}; wrong {total['wrong']}")
    print(f"settings read {total['set']} of {total['set'] + total['unset']}", end="")
    print(f"; seeds read {total['seeded']} of {total['seeded'] + total['unseeded']}")


if __name__ == "__main__":
    main()
