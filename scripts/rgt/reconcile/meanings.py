"""What a reader says that a number means, read and held against the values.

Example:
    meaning("v1 - v2", ["fox/acc", "owl/acc"], vocabulary)     the difference of the first two candidates
    misses(meaning, numeral, unit, text)                       None when the number says that

A meaning is the number of a candidate (1 ... 8), a value's id, `cited`, `other`, or an expression over ids: + - * /,
constants, mean median sum min max abs, spread(id), n(id), argmin argmax (the number in the id). In it v1 ... v8 are
the candidates, an id that is no plain word stands in quotes, and 'fox/*' is every id with one part for the star. Its
sign is that of the words: a drop of 2 is old - new. It is parsed with `ast` and computed here, never evaluated as
Python.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import math
import operator
import re
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rgt.reconcile.facts import UNITS, Fact, is_share
from rgt.reconcile.numerals import Numeral
from rgt.reconcile.readings import rounds_to, scales, slip, spread_agrees
from rgt.reconcile.vocabulary import Vocabulary

CITED, OTHER = "cited", "other"
_LONGEST, _DEEPEST = 1000, 30  # characters and levels of an expression
_LARGEST = 1e15  # constant
_OPERATORS: dict[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_FUNCTIONS: dict[str, Callable[[list[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "sum": math.fsum,
    "min": min,
    "max": max,
    "abs": lambda values: abs(values[0]),
}
_CHOICES = {"argmin": min, "argmax": max}
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_DIGITS = (5, 4, 3)  # significant ones, to which people round before they compute
_ABOUT = 0.05  # relative: "about 90" for 88.2
_FLOOR = re.compile(
    r"over|above|more|greater|exceed|least|beyond|surpass|better|higher|[>≥≫]|超|至少|高于|大于|不低|不少", re.I
)
_CEILING = re.compile(r"under|below|less|fewer|at most|within|lower|worse|[<≤≪]|至多|低于|小于|不到|不超|以内", re.I)
_MAXIMUM = re.compile(r"\bup to\b|\bas (?:much|many|high|low|few|little) as\b", re.I)  # says the value itself
_FAR = 0.5  # relative: no bound of that value, but another number


class Malformed(ValueError):
    """A meaning that is none; says why."""


@dataclass
class Meaning:
    text: str
    kind: str = ""  # cited, other, or "" for what is computed
    tree: ast.expr | None = None
    leaves: dict[ast.expr, Fact] = field(default_factory=dict)
    keys: dict[ast.expr, float] = field(default_factory=dict)  # the number in an id: the k of a sweep

    @property
    def facts(self) -> list[Fact]:
        return list({fact.id: fact for fact in self.leaves.values()}.values())

    @property
    def alone(self) -> Fact | None:
        """The value that it is, where nothing is computed."""
        return self.leaves.get(self.tree) if self.tree else None


@dataclass
class Miss:
    expected: float
    why: str
    percent: bool = False  # a ratio of two values, as it was written


def meaning(means: str | int, candidates: list[str], vocabulary: Vocabulary) -> Meaning:
    if isinstance(means, int) or re.fullmatch(r"\d", means.strip()):
        means = _candidate(int(means), candidates)
    means = means.strip()
    if means in (CITED, OTHER):
        return Meaning(means, means)
    if means in vocabulary.by_id:
        leaf = ast.Constant(means)
        return Meaning(means, tree=leaf, leaves={leaf: vocabulary.by_id[means]})
    if len(means) > _LONGEST:
        raise Malformed(f"an expression has at most {_LONGEST} characters")
    try:
        tree = ast.parse(means, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Malformed(f"{means!r} is no id of a value, no expression, and neither cited nor other") from None
    found = Meaning(means, tree=tree)
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            call.args = [each for one in call.args for each in _widened(one, found, vocabulary)]
    _gather(tree, found, candidates, vocabulary, 0)
    if not found.leaves:
        raise Malformed(f"{means!r} names no value; a number that is no result is `other`")
    found.text = means if "*'" in means or '*"' in means else ast.unparse(tree)
    return found


def _widened(node: ast.expr, found: Meaning, vocabulary: Vocabulary) -> list[ast.expr]:
    """'sweep/*' as all ids with something for the star."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or node.value in vocabulary.by_id:
        return [node]
    pattern = re.compile("([^/]*)".join(map(re.escape, node.value.split("*"))))
    made: list[ast.expr] = []
    for match in filter(None, map(pattern.fullmatch, vocabulary.by_id)):
        made.append(ast.Constant(match[0]))
        if number := _NUMBER.search(" ".join(match.groups())):
            found.keys[made[-1]] = float(number[0])
    return made or [node]


def _candidate(number: int, candidates: list[str]) -> str:
    if not 0 < number <= len(candidates):
        raise Malformed(f"there is no candidate {number}: the row has {len(candidates)}")
    return candidates[number - 1]


def _gather(node: ast.expr, found: Meaning, candidates: list[str], vocabulary: Vocabulary, depth: int) -> None:
    """Checks an expression and finds its values."""
    if depth > _DEEPEST:
        raise Malformed("the expression is too deep")
    if isinstance(node, ast.Name) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        found.leaves[node] = _leaf(node, candidates, vocabulary)
        return
    inner: list[ast.expr] = []
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        inner = [node.left, node.right]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        inner = [node.operand]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args and not node.keywords:
        known = (*_FUNCTIONS, *_CHOICES, "spread", "n")
        if node.func.id not in known:
            raise Malformed(f"{node.func.id} is no function here; there are {', '.join(known)}")
        inner = node.args
        if node.func.id in _CHOICES and not all(one in found.keys for one in inner):
            raise Malformed(f"{node.func.id} takes ids with a * that stands for a number, such as 'sweep/*'")
    elif not (isinstance(node, ast.Constant) and _is_plain(node.value)):
        raise Malformed(f"{ast.unparse(node)[:60]!r} is not allowed in an expression")
    for one in inner:
        _gather(one, found, candidates, vocabulary, depth + 1)
    if isinstance(node, ast.Call) and node.func.id in ("spread", "n"):  # type: ignore[attr-defined]
        fact = found.leaves.get(node.args[0])
        if not fact or getattr(fact, node.func.id) is None:  # type: ignore[attr-defined]
            raise Malformed(f"{ast.unparse(node)[:60]!r}: the file has no such thing")


def _is_plain(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -_LARGEST < value < _LARGEST


def _leaf(node: ast.Name | ast.Constant, candidates: list[str], vocabulary: Vocabulary) -> Fact:
    name = node.id if isinstance(node, ast.Name) else str(node.value)
    if isinstance(node, ast.Name) and re.fullmatch(r"v\d", name):
        name = _candidate(int(name[1]), candidates)
    if name not in vocabulary.by_id:
        raise Malformed(f"{name!r} is no id of a value; --ids lists them")
    if isinstance(node, ast.Name):
        node.id = name if name.isidentifier() else repr(name)  # as it is told
    return vocabulary.by_id[name]


# -- values


def computed(found: Meaning, value_of: Callable[[Fact], float] = lambda fact: fact.value) -> float:
    assert found.tree is not None
    try:
        return _value(found.tree, found, value_of)
    except (ZeroDivisionError, OverflowError):
        raise Malformed(f"{found.text!r} divides by zero or is too large") from None


def _value(node: ast.expr, found: Meaning, value_of: Callable[[Fact], float]) -> float:
    if node in found.leaves:
        return value_of(found.leaves[node])
    if isinstance(node, ast.BinOp):
        sides = (_value(side, found, value_of) for side in (node.left, node.right))
        return _OPERATORS[type(node.op)](*sides)
    if isinstance(node, ast.UnaryOp):
        return _value(node.operand, found, value_of) * (-1 if isinstance(node.op, ast.USub) else 1)
    if isinstance(node, ast.Call):
        name = node.func.id  # type: ignore[attr-defined]
        if name in ("spread", "n"):
            return float(getattr(found.leaves[node.args[0]], name))
        if name in _CHOICES:
            return found.keys[_CHOICES[name](node.args, key=lambda one: value_of(found.leaves[one]))]
        return float(_FUNCTIONS[name]([_value(one, found, value_of) for one in node.args]))
    return float(node.value)  # type: ignore[attr-defined]


def _dimension(node: ast.expr, found: Meaning) -> str:
    """value (measured as the values are), ratio (of two of them), or plain (a count, or scaled by its author)."""
    if node in found.leaves:
        return "value"
    if isinstance(node, ast.UnaryOp):
        return _dimension(node.operand, found)
    if isinstance(node, ast.Call):
        return "plain" if node.func.id in ("n", *_CHOICES) else _dimension(node.args[0], found)  # type: ignore[attr-defined]
    if not isinstance(node, ast.BinOp):
        return "plain"
    left, right = (_dimension(side, found) for side in (node.left, node.right))
    if isinstance(node.op, ast.Div) and left == right == "value":
        return "ratio"
    if isinstance(node.op, ast.Add | ast.Sub):
        return next((kind for kind in ("value", "ratio") if kind in (left, right)), "plain")
    return "value" if "value" in (left, right) else "plain"


def misses(found: Meaning, numeral: Numeral, unit: str, text: str) -> Miss | None:
    """None when a number says what it means, to the digits that were written."""
    fact = found.alone
    if fact and numeral.role in ("spread", "runs"):
        wanted = fact.spread if numeral.role == "spread" else fact.n
        if wanted is not None:
            return _nearest(found, numeral, [wanted * scale for scale in {1.0, *scales(fact, numeral, unit)}], text)
    exact = computed(found)
    kind = _dimension(found.tree, found) if found.tree else ""
    factors: tuple[float, ...] = (1.0,)
    if kind == "value":
        largest = max(found.facts, key=lambda one: abs(one.value))
        factors = _written_as(largest, numeral, unit)
    elif kind == "ratio":
        percent = numeral.percent or unit == "%"
        factors = (100.0,) if percent else (1.0,) if numeral.role == "ratio" else (1.0, 100.0)
    miss = _nearest(found, numeral, [exact * factor for factor in factors], text)
    if miss and not fact:
        for value_of in _roundings(numeral, factors):
            with contextlib.suppress(Malformed):  # an operand that is rounded to zero
                rounded = computed(found, value_of)
                if not _nearest(found, numeral, [rounded * factor for factor in factors], text):
                    return None
    if fact and not miss and numeral.spread is not None and numeral.role == "":
        agree = (spread_agrees(fact, numeral, factor, other=True) for factor in factors)
        scale = next((each for each in factors if rounds_to(exact * each, numeral.value, numeral.ulp)), factors[0])
        return None if any(agree) else Miss((fact.spread or 0.0) * scale, "the spread differs")
    if miss and kind == "ratio":
        miss.percent = miss.expected != exact
    if miss and fact and (slipped := slip(fact, numeral, unit)):
        miss.why = slipped.what
    return miss


def _written_as(fact: Fact, numeral: Numeral, unit: str) -> tuple[float, ...]:
    """What a value that is known to be meant is multiplied with, the likelier way to write it first."""
    kind, factor = UNITS.get(numeral.unit, ("", 1.0))
    factors = scales(fact, numeral, unit) or ((1 / factor,) if kind == "count" else (1.0,))  # 61400 hours as 6.14 万
    fraction = numeral.percent and factors == (100.0, 1.0) and any(map(is_share, fact.id.split("/")))
    return (100.0,) if fraction else factors


def _roundings(numeral: Numeral, factors: tuple[float, ...]) -> Iterator[Callable[[Fact], float]]:
    """Ways to round the operands first, as people do who compute from what they have written."""
    yield from (functools.partial(_to_place, place=numeral.ulp / factor) for factor in factors)
    yield from (functools.partial(_to_digits, digits=digits) for digits in _DIGITS)


def _to_place(fact: Fact, place: float) -> float:
    return round(fact.value / place) * place


def _to_digits(fact: Fact, digits: int) -> float:
    return float(f"{fact.value:.{digits}g}")


def _nearest(found: Meaning, numeral: Numeral, possible: list[float], text: str) -> Miss | None:
    written = numeral.value
    if any(_says(value, numeral, text) for value in possible):
        return None
    # beside 0.49 the fraction 0.0098 is to be written so, and not as 0.98
    alike = [value for value in possible if (abs(value) <= 1) == (abs(written) <= 1)]
    expected = min(
        alike or possible, key=lambda value: abs(math.log(abs(value / written))) if value and written else 1e9
    )
    turned = any(_says(-value, numeral, text) for value in possible)
    return Miss(expected, "the sign or the order is wrong" if turned else "the value differs")


def _says(value: float, numeral: Numeral, text: str) -> bool:
    if rounds_to(value, numeral.value, numeral.ulp):
        return True
    if numeral.role == "about":
        return abs(value - numeral.value) <= _ABOUT * abs(value)
    if numeral.role == "bound":
        near = text[max(0, numeral.start - 25) : numeral.end + 6]
        apart = abs(value - numeral.value) > _FAR * max(abs(value), abs(numeral.value))
        if _MAXIMUM.search(near) or (apart and numeral.digits > 1):
            return False
        floor, ceiling = _FLOOR.search(near), _CEILING.search(near)
        if floor and not ceiling:
            return value >= numeral.value
        return value <= numeral.value if ceiling and not floor else True
    return False
