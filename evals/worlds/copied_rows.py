"""Pairs of train and test tables in which some test rows are copies, and many others only look like ones."""

from __future__ import annotations

import csv
import io
import json
import random
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Any

from worlds import parts

Rows = list[dict[str, Any]]
Pair = tuple[str, Rows, Rows, set[int]]  # format, train, test, the copies among test
LARGE = 80_000
FORM = (
    "dear {0} we confirm that your order {1} was handed over to our carrier this morning and will arrive within three"
    " working days if you have any question about it please quote the number above and write to our desk"
)
SUMS = (
    "A baker sells {0} rolls in the morning and {1} rolls in the afternoon. How many rolls does she sell that day?",
    "A train covers {0} kilometres in the first part of its way and {1} kilometres in the second. How long is the way?",
    "There are {0} apples in a basket and {1} apples beside it. How many apples are there altogether?",
)
CODE = (
    "def {0}_{1}(values, {2}={3}):\n    {4} = [v * {3} for v in values if v != {5}]\n    return sum({4}) / ({2} + {6})"
)


def _planted() -> Any:
    return parts.of_tests("tests.planted")


def _as(train: list[str], test: list[str], copies: set[int], form: str, name: str = "text") -> Pair:
    return form, [{name: row} for row in train], [{name: row} for row in test], copies


def mails(form: str, seed: int, size: int = 700) -> Pair:
    train, test, exact, near = _planted().texts(size, seed)
    return _as(train, test, exact | near, form)


def renumbered(seed: int) -> Pair:
    """The columns in another order, ids of their own, and labels that the copy does not share."""
    form, train, test, copies = mails("csv", seed)
    left = [{"id": f"a{n}", "text": row["text"], "label": n % 3} for n, row in enumerate(train)]
    right = [{"label": (n + 1) % 3, "text": row["text"], "id": f"q{n}"} for n, row in enumerate(test)]
    return form, left, right, copies


def chats(seed: int) -> Pair:
    _, train, test, copies = mails("jsonl", seed)

    def turns(row: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": row["text"]}]}

    return "jsonl", [turns(row) for row in train], [turns(row) for row in test], copies


def measured(form: str, seed: int) -> Pair:
    """Numbers: copies are rounded, written otherwise or shaken a little; others differ in one column only."""
    names = ("a", "b", "c", "d", "e", "f", "calls", "hits", "on", "kind")
    train, test, exact, near = _planted().rows(800, seed)
    order = list(names)
    random.Random(seed).shuffle(order)
    left = [dict(zip(names, row, strict=True)) for row in train]
    right = [dict(zip(names, row, strict=True)) for row in test]
    return form, left, [{name: row[name] for name in order} for row in right], exact | near


def _free(seed: int, count: int) -> list[str]:
    noise = random.Random(seed)
    vocabulary = ["".join(noise.choices("abcdefghijklmnopqrstuvwxyz", k=noise.randint(2, 9))) for _ in range(3000)]
    return [_planted().words(noise, vocabulary, noise.randint(25, 70)) for _ in range(count)]


def _mixed(seed: int, others: Callable[[random.Random], str], change: Callable[[random.Random, str], str]) -> Pair:
    """Half of both tables are `others`, which are no copies; some of the rest of test are changed rows of train."""
    noise = random.Random(seed)
    texts = _free(seed, 450)
    train = [*texts[:300], *(others(noise) for _ in range(300))]
    test = [*(change(noise, text) for text in noise.sample(texts[:300], 30)), *texts[300:400]]
    test += [others(noise) for _ in range(100)]
    order = list(range(len(test)))
    noise.shuffle(order)
    return _as(train, [test[at] for at in order], {n for n, at in enumerate(order) if at < 30}, "jsonl")


def _edit(noise: random.Random, text: str) -> str:
    return str(_planted()._edit(noise, text, ["other", "words", "instead"]))


def _spelt(noise: random.Random, text: str) -> str:
    wide = "".join(chr(ord(c) + 0xFEE0) if "a" <= c <= "z" else c for c in text)
    ways = (wide, text.replace(" ", "\u00a0"), f"\u201c{text}\u201d", unicodedata.normalize("NFD", text).upper())
    return noise.choice(ways)


def _shortened(noise: random.Random, text: str) -> str:
    tokens = text.split()
    lost = max(1, len(tokens) // 10)
    return " ".join(tokens[lost:] if noise.random() < 0.5 else tokens[:-lost])


def forms(seed: int) -> Pair:
    """Alike but for a name and a number."""
    names = _free(seed + 1, 1)[0].split()
    return _mixed(seed, lambda noise: FORM.format(noise.choice(names), noise.randrange(10**6, 10**7)), _edit)


def sums(seed: int) -> Pair:
    def problem(noise: random.Random) -> str:
        return noise.choice(SUMS).format(noise.randrange(1000, 99999), noise.randrange(1000, 99999))

    return _mixed(seed, problem, _edit)


def licences(seed: int) -> Pair:
    """A long header above a few words or a function of one's own."""
    header = _planted().LICENCE
    own = iter(_free(seed + 2, 600))
    return _mixed(seed, lambda noise: f"{header}\n{' '.join(next(own).split()[:18])}", _edit)


def code(seed: int) -> Pair:
    words = sorted({word for text in _free(seed + 3, 20) for word in text.split() if len(word) > 3})

    def function(noise: random.Random) -> str:
        a, b, c, d = noise.sample(words, 4)
        return CODE.format(a, b, c, noise.randrange(99), d, noise.randrange(99), noise.randrange(99))

    return _mixed(seed, function, _shortened)


def answers(seed: int) -> Pair:
    return _mixed(seed, lambda noise: noise.choice(("yes", "No.", "thank you", "I do not know")), _spelt)


def chinese(seed: int) -> Pair:
    noise = random.Random(seed)
    signs = [chr(noise.randrange(0x4E00, 0x9000)) for _ in range(1500)]
    texts = ["".join(noise.choices(signs, k=noise.randint(60, 120))) for _ in range(500)]
    copies = [text[:20] + noise.choice(signs) + text[21:] for text in noise.sample(texts[:400], 25)]
    return _as(texts[:400], [*copies, *texts[400:]], set(range(25)), "txt")


def clean(seed: int) -> Pair:
    texts = _free(seed, 900)
    return _as(texts[:700], texts[700:], set(), "txt")


@cache
def large() -> Pair:
    noise = random.Random(9)
    words = ["".join(noise.choices("abcdefghijklmnopqrstuvwxyz", k=noise.randint(3, 9))) for _ in range(20_000)]
    picks = noise.choices(words, weights=[1 / (rank + 3) for rank in range(len(words))], k=30 * (LARGE + LARGE // 4))
    texts = [" ".join(picks[30 * n : 30 * n + 30]) for n in range(LARGE + LARGE // 4)]
    train, test = texts[:LARGE], texts[LARGE:]
    places = noise.sample(range(len(test)), 400)
    for place in places:
        test[place] = _edit(noise, noise.choice(train))
    return _as(train, test, set(places), "jsonl")


SETS: dict[str, Callable[[], Pair]] = {
    "forms": lambda: forms(1),
    "measured": lambda: measured("csv", 2),
    "sums": lambda: sums(3),
    "chats": lambda: chats(4),
    "licences": lambda: licences(5),
    "measured_tsv": lambda: measured("tsv", 6),
    "mails": lambda: mails("jsonl", 7),
    "lines": lambda: mails("txt", 8),
    "renumbered": lambda: renumbered(9),
    "code": lambda: code(10),
    "answers": lambda: answers(11),
    "chinese": lambda: chinese(12),
    "clean": lambda: clean(13),
    "measured_jsonl": lambda: measured("jsonl", 14),
    "large": large,
}


def dump(form: str, rows: Rows) -> str:
    """One record per line; csv and tsv with a header."""
    if form == "txt":
        return "".join(f"{row['text']}\n" for row in rows)
    if form == "jsonl":
        return "".join([json.dumps(row, ensure_ascii=False) + "\n" for row in rows])
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), delimiter="\t" if form == "tsv" else ",", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
