"""A quarter of a million mails: disguised copies, re-typed copies, shared customers; form letters are none of it."""

from __future__ import annotations

import json
import random
from functools import cache

import numpy as np

from trials.case import Box, Case

TRAIN, TEST, SHARDS = 240_000, 30_000, 8
EXACT, NEAR, GROUPED = 220, 360, 180
FORMS = 0.15
CANNED = ("thank you, we will look into it", "please send the invoice again", "your ticket was closed")
FORM = (
    "dear {0} {1} we confirm that your order number {2} of {3} pieces was handed over to our carrier in {4} and will "
    "arrive within {5} working days if you have any question about it please quote the number above and write to {6}"
)
Row = tuple[str, str, str]  # id, customer, text


@cache
def _vocabulary() -> list[str]:
    rng = random.Random(1)
    return ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 10))) for _ in range(20_000)]


def _texts(count: int, seed: int) -> list[str]:
    """Zipf: unrelated mails share words. Some are form letters, a few are canned."""
    noise, words = np.random.default_rng(seed), _vocabulary()
    weights = 1 / (np.arange(len(words)) + 3)
    lengths = noise.integers(28, 46, count)
    picks = noise.choice(len(words), int(lengths.sum()), p=weights / weights.sum()).tolist()
    ends = np.cumsum(lengths).tolist()
    kinds, fill = noise.random(count), noise.integers(0, len(words), (count, 4)).tolist()
    numbers = noise.integers(10**6, 10**7, count).tolist()
    made, start = [], 0
    for item, end in enumerate(ends):
        if kinds[item] < FORMS:
            a, b, c, d = (words[index] for index in fill[item])
            number = numbers[item]
            made.append(FORM.format(a, b, number, number % 97, c, 2 + number % 7, d))
        elif kinds[item] < FORMS + 0.01:
            made.append(CANNED[numbers[item] % len(CANNED)])
        else:
            made.append(" ".join([words[index] for index in picks[start:end]]))
        start = end
    return made


def _disguise(rng: random.Random, text: str) -> str:
    wide = "".join(chr(ord(c) + 0xFEE0) if "a" <= c <= "z" else c for c in text[:40]) + text[40:]
    return rng.choice((text.upper(), f"  {text} !!", text.replace(" ", " \t "), text.title() + ".", wide))


def _retyped(rng: random.Random, text: str) -> str:
    tokens = text.split()
    for _ in range(rng.randint(2, 3)):
        at = rng.randrange(len(tokens))
        way = rng.randrange(4)
        if way == 0:
            tokens[at] = rng.choice(_vocabulary())
        elif way == 1:
            del tokens[at]
        elif way == 2:
            tokens.insert(at, rng.choice(_vocabulary()))
        else:
            tokens[at] = tokens[at][:2] + rng.choice("qxz") + tokens[at][2:]
    return " ".join(tokens)


@cache
def _mails() -> tuple[list[Row], list[Row], frozenset[str]]:
    """Train, test, and the ids that are compromised."""
    rng = random.Random(270)
    train = [(f"a{n:06d}", f"C-{rng.randrange(60_000):05d}", text) for n, text in enumerate(_texts(TRAIN, 2))]
    test = [(f"t{n:05d}", f"C-{60_000 + rng.randrange(9_000):05d}", text) for n, text in enumerate(_texts(TEST, 3))]
    places = rng.sample(range(TEST), EXACT + NEAR + GROUPED)
    free = [text for _, _, text in train if len(text) > 120 and not text.startswith("dear ")]
    for count, place in enumerate(places):
        name, customer, text = test[place]
        if count < EXACT:
            text = _disguise(rng, rng.choice(free))
        elif count < EXACT + NEAR:
            text = _retyped(rng, rng.choice(free))
        else:
            customer = rng.choice(train)[1]
        test[place] = (name, customer, text)
    return train, test, frozenset(test[place][0] for place in places)


def _dump(rows: list[Row]) -> str:
    keys = ("id", "customer", "text")
    return "".join([json.dumps(dict(zip(keys, row, strict=True)), ensure_ascii=False) + "\n" for row in rows])


def make(box: Box) -> None:
    train, test, _ = _mails()
    (box.work / "data" / "train").mkdir(parents=True)
    for shard in range(SHARDS):
        (box.work / "data" / "train" / f"{shard}.jsonl").write_text(_dump(train[shard::SHARDS]), encoding="utf-8")
    (box.work / "data" / "test.jsonl").write_text(_dump(test), encoding="utf-8")


def verify(box: Box) -> list[str]:
    given, truth = {str(name) for name in box.read("compromised.json", list)}, _mails()[2]
    hit = len(given & truth)
    problems = []
    if hit < 0.98 * len(truth):
        problems.append(f"{len(truth) - hit} of {len(truth)} compromised mails are missing")
    if len(given) - hit > 0.02 * max(1, len(given)):
        problems.append(f"{len(given) - hit} of {len(given)} named mails are clean")
    return problems


def reference(box: Box) -> None:
    report = box.script("leak_probe.py", "overlap", "--train", "data/train", "--test", "data/test.jsonl",
                        "--group", "customer")  # fmt: skip
    test = [json.loads(line) for line in (box.work / "data/test.jsonl").read_text(encoding="utf-8").splitlines()]
    lines = {int(m["item"].rpartition(":")[2]) for m in report["matches"] if m["kind"] in ("exact", "near")}
    known = set()
    for path in (box.work / "data/train").iterdir():
        known |= {json.loads(line)["customer"] for line in path.read_text(encoding="utf-8").splitlines()}
    box.write("compromised.json", [r["id"] for n, r in enumerate(test, 1) if n in lines or r["customer"] in known])


def naive(box: Box) -> None:
    """Lower case without punctuation, equal or not; and the customers."""
    import re

    def plain(text: str) -> str:
        return " ".join(re.sub(r"[^\w ]", " ", text.lower()).split())

    train, test, _ = _mails()
    known, seen = {customer for _, customer, _ in train}, {plain(text) for _, _, text in train}
    box.write("compromised.json", [name for name, customer, text in test if customer in known or plain(text) in seen])


CASE = Case(
    route="is the test set clean? copies, near-duplicates, shared patients, changed splits",
    reads=(),
    minutes=6,
    commands=8,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    expected="compromised.json names the copies, the re-typed copies and the shared customers, no form letter.",
)
