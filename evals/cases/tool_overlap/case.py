"""Which rows of a test table are copies? Asked for fifteen pairs of tables that the agent has not seen."""

from __future__ import annotations

import tempfile
from pathlib import Path

from trials.case import Box, Case
from worlds import copied_rows, tool

WRONG, ENOUGH = 2, 4
FOUND, FALSE = 0.95, 0.03
_REFERENCE = """#!/bin/sh
list=$(mktemp)
python {scripts}/leak_probe.py overlap --train "$1" --test "$2" --list "$list" --json >/dev/null 2>&1
python - "$list" <<'EOF'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
for row in rows:
    if row["kind"] in ("exact", "near"):
        print(row["item"].rpartition(":")[2])
EOF
rm -f "$list"
"""


def _write(folder: Path, pair: copied_rows.Pair) -> tuple[Path, Path, set[int]]:
    form, train, test, copies = pair
    folder.mkdir(parents=True)
    paths = folder / f"train.{form}", folder / f"test.{form}"
    for path, rows in zip(paths, (train, test), strict=True):
        path.write_text(copied_rows.dump(form, rows), encoding="utf-8")
    first = 2 if form in ("csv", "tsv") else 1
    return *paths, {first + index for index in copies}


def make(box: Box) -> None:
    for name, pair in (("a", copied_rows.mails("jsonl", 100, 300)), ("b", copied_rows.measured("csv", 101))):
        _, _, lines = _write(box.work / "samples" / name, pair)
        box.write(f"samples/{name}/copies.txt", "".join(f"{line}\n" for line in sorted(lines)))


def verify(box: Box) -> list[str]:
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, pair in copied_rows.SETS.items():
            train, test, copies = _write(Path(folder) / name, pair())
            said = tool.call(box, "overlap", train, test, seconds=60)
            problem = "no answer in time" if said.code is None else _compare(said.out, copies)
            wrong += [f"{name}: {problem}"] if problem else []
            if len(wrong) >= ENOUGH:
                break
    return [] if len(wrong) <= WRONG else [f"{len(wrong)} pairs wrong: {'; '.join(wrong)}"]


def _compare(out: str, copies: set[int]) -> str:
    try:
        given = {int(word) for word in out.split()}
    except ValueError:
        return f"no line numbers: {out[:40]!r}"
    hit = len(given & copies)
    if hit < FOUND * len(copies):
        return f"{len(copies) - hit} of {len(copies)} missing"
    return f"{len(given) - hit} of {len(given)} too many" if len(given) - hit > FALSE * len(given) else ""


# words without case and punctuation; the same, or nearly the same set of three words in a row
_NAIVE = """#!/usr/bin/env python
import csv, json, re, sys, unicodedata
from collections import Counter, defaultdict
def rows(path):
    lines = open(path, encoding="utf-8", newline="")
    if path.endswith(".jsonl"):
        for number, line in enumerate(lines, 1):
            yield number, " ".join(map(str, json.loads(line).values()))
    elif path.endswith((".csv", ".tsv")):
        for number, row in enumerate(csv.DictReader(lines, delimiter="\\t" if path.endswith("tsv") else ","), 2):
            yield number, " ".join(row[key] for key in sorted(row) if key not in ("id", "label"))
    else:
        yield from enumerate(lines, 1)
def pieces(text):
    words = re.findall(r"[\\w.-]+", unicodedata.normalize("NFKC", text).casefold())
    if len(words) < 3:
        words = list("".join(words))
    return frozenset(zip(words, words[1:], words[2:])) if len(words) > 4 else frozenset()
index, train = defaultdict(list), []
for _, text in rows(sys.argv[1]):
    found = pieces(text)
    for piece in found:
        index[piece].append(len(train))
    train.append(found)
for number, text in rows(sys.argv[2]):
    found = pieces(text)
    shared = Counter(other for piece in found for other in index.get(piece, ())[:200])
    for other, count in shared.most_common(5):
        if count >= 0.7 * min(len(found), len(train[other])):
            print(number)
            break
"""
CASE = Case(
    route="is the test set clean? copies, near-duplicates, shared patients, changed splits",
    minutes=4,
    commands=30,
    reference=tool.leaving(_REFERENCE, "overlap"),
    naive=tool.leaving(_NAIVE, "overlap"),
    expected="overlap names the copied rows of nearly all of fifteen pairs, and no form letter or chance match.",
)
