"""Counts of wins: "best on 3 of 4 data sets", "ranks first everywhere", recounted from the values."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rgt.reconcile.facts import FULL_NAMES, Fact
from rgt.reconcile.judgement import LIKELY, Outcome, Place, Terms
from rgt.reconcile.numerals import NUMBER_WORDS, Numeral
from rgt.reconcile.vocabulary import Vocabulary

_WORDS = {"one": 1, "一": 1, "all": -1, "both": -1, "every": -1, "全部": -1, **NUMBER_WORDS}
_NUMBER = rf"(?P<{{}}>\d{{{{1,2}}}}|{'|'.join(sorted(_WORDS, key=len, reverse=True))})"
_THINGS = r"(?:data ?sets?|benchmarks?|tasks?|corpora|test sets?|environments?|domains?|languages?|suites?|cases)"
_WINS = re.compile(
    r"\b(?:best|wins?|first|top|leads?|leading|outperforms?|beats?|ahead|highest|lowest|surpass\w*|state of the art)\b"
    r"|最优|最好|第一|领先|最佳",
    re.I,
)
_OF = re.compile(
    rf"\b{_NUMBER.format('wins')}\s(?:out\s)?of\s(?:the\s|our\s|all\s)*"
    rf"{_NUMBER.format('total')}\s(?:\w+\s){{0,2}}{_THINGS}"
    rf"|{_NUMBER.format('total2')}\s?个(?:数据集|任务|基准)(?:中|里)?(?:的|有)\s?{_NUMBER.format('wins2')}\s?个",
    re.I,
)


def count_outcomes(
    text: str, line: int, where: str, named: Terms, ours: str, vocabulary: Vocabulary
) -> Iterator[Outcome]:
    """The number of wins that a sentence states, against the number that the values give."""
    if not (_WINS.search(text) and ("of" in text or "个" in text)):
        return
    for match in _OF.finditer(text):
        group = "wins" if match["wins"] else "wins2"
        said, total = (_value(match[name]) for name in (group, "total" if match["total"] else "total2"))
        methods = [term for axis, terms in named.items() if axis == "method" for term in terms]
        method = methods[0] if len(methods) == 1 else ours if ours in methods or not methods else ""
        metrics = [metric for metric in named.get("metric", ()) if ("metric", metric) in vocabulary.named]
        counted = [
            wins
            for metric in metrics or vocabulary.axes.get("metric", [])
            if (wins := _wins(method, metric, vocabulary))
        ]
        numeral = Numeral(match.start(group), match.end(group), float(said), 1.0, role="wins")
        place = Place(numeral, match[group], line + text.count("\n", 0, match.start()), where, text, {}, named, {})
        if said == -1 or not counted or any(wins == (said, of) for wins, _ in counted for of in (total, wins[1])):
            yield Outcome(place, "match" if counted else "unexplained", why="a count of wins")
        elif len(metrics) == 1 and counted[0][0][1] == total:
            (right, _), facts = counted[0]
            why = f"{method} is the best on {right} of {total}"
            yield Outcome(place, "drift", facts[:1], float(right), "likely", why, score=LIKELY)


def _value(text: str) -> int:
    return int(text) if text.isdigit() else _WORDS[text.lower()]


def _wins(method: str, metric: str, vocabulary: Vocabulary) -> tuple[tuple[int, int], list[Fact]] | None:
    """On how many data sets a method is the best, and of how many."""
    groups: dict[str, list[Fact]] = {}
    for fact in vocabulary.facts:
        own = fact.terms.get("method", "")
        plain = own and not own.startswith("no ") and own not in FULL_NAMES
        if plain and fact.terms.get("metric") == metric and {*fact.terms} <= {"method", "metric", "dataset", "split"}:
            groups.setdefault(fact.terms.get("dataset", ""), []).append(fact)
    groups = {
        name: same for name, same in groups.items() if len(same) > 1 and any(f.terms["method"] == method for f in same)
    }
    if len(groups) < 2 or not next(iter(groups.values()))[0].direction:
        return None
    won = [(min if same[0].direction == "down" else max)(same, key=lambda fact: fact.value) for same in groups.values()]
    first = [fact for fact in won if fact.terms["method"] == method]
    return (len(first), len(groups)), first or won
