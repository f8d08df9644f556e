"""rgt.schema: every schema is one, every rejection names the field, and a box without jsonschema still works."""

from __future__ import annotations

import math
import random
from typing import Any

from rgt import schema
from rgt.errors import BAD_INPUT, RgtError

import pytest
from jsonschema import Draft202012Validator

RUN_ID = "20261116-083000-tiny-1f00ab"
NAMES = sorted(path.name.removesuffix(".schema.json") for path in schema.DIRECTORY.glob("*.schema.json"))


def refusal(data: Any, name: str, where: str = "file.json") -> str:
    with pytest.raises(RgtError) as caught:
        schema.check(data, name, where)
    assert caught.value.exit_code == BAD_INPUT
    return caught.value.message


@pytest.mark.parametrize("name", NAMES)
def test_each_schema_is_a_2020_12_schema(name: str) -> None:
    loaded = schema.load(name)
    Draft202012Validator.check_schema(loaded)
    assert loaded["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert loaded["title"] == name and loaded["description"] and loaded["type"] == "object"

    def walk(node: Any) -> None:
        """A required name that no property describes is a misspelling."""
        if isinstance(node, dict) and isinstance(node.get("required"), list) and "properties" in node:
            assert set(node["required"]) <= set(node["properties"])
        for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            walk(child)

    walk(loaded)


PATTERN = "^[0-9]{8}-[0-9]{6}-[a-z0-9][a-z0-9._-]*-[0-9a-f]{6}$"
ROW = {"step": 1, "time": 0, "split": "val", "loss": 1}
SEAL = {"run_id": RUN_ID, "sealed": "", "files": {}}
ACC = {"name": "acc", "value": 1, "split": "test", "n": 0, "direction": "up"}
LISTED = [{"path": "a", "step": 1, "time": 0}, {"path": "b", "step": 1.5, "time": 0}]
UNFIT: list[tuple[str, dict[str, Any], str]] = [
    ("metrics", {**ROW, "step": "1"}, "step: '1' is not of type 'integer'"),
    ("metrics", {**ROW, "split": "dev"}, "split: 'dev' is not one of ['train', 'val', 'test']"),
    ("metrics", {**ROW, "loss": "low"}, "loss: 'low' is not valid under any of the given schemas"),
    ("results", {"run_id": RUN_ID, "metrics": [ACC]}, "metrics/0/n: 0 is less than the minimum of 1"),
    ("seal", {**SEAL, "run_id": "x"}, f"run_id: 'x' does not match '{PATTERN}'"),
    ("seal", {**SEAL, "note": 1}, "Additional properties are not allowed ('note' was unexpected)"),
    ("checkpoints_index", {"checkpoints": LISTED}, "checkpoints/1/step: 1.5 is not of type 'integer'"),
]


def test_the_sentence_names_the_field_and_the_value() -> None:
    for name, data, expected in UNFIT:
        assert refusal(data, name, "x.json") == f"x.json does not fit the {name} schema: {expected}"
        assert schema.problems(data, name) == [expected]


HUGE: list[tuple[str, Any]] = [
    ("metrics", {**ROW, "k" * 10**6: "x" * 10**6}),
    ("metrics", {**ROW, "two\nlines": None}),
    ("metrics", {str(number): None for number in range(2_000)}),
    ("run", [[[[["deep"] * 1000] * 100]]]),
]


def test_a_huge_value_gives_a_short_sentence_and_the_rest_is_counted() -> None:
    assert refusal({}, "run").endswith("(and 10 more)")
    for name, data in HUGE:
        message = refusal(data, name)
        assert len(message) < 1000 and "\n" not in message


def sample(rule: Any, shared: dict[str, Any], chance: random.Random) -> Any:
    """A value that mostly fits the rule; now and then a part of it is something else."""
    if isinstance(rule, bool) or chance.random() < 0.03:
        return chance.choice([None, True, False, 0, 1, 1.0, -1, 2**70, 0.5, math.nan, "", "a", "x" * 9000, [], [1], {}])
    rule = shared[rule["$ref"].rpartition("/")[2]] if "$ref" in rule else rule
    for options in (rule.get("enum"), [rule["const"]] if "const" in rule else None):
        if options:
            return chance.choice(options)
    if "anyOf" in rule:
        return sample(chance.choice(rule["anyOf"]), shared, chance)
    words = rule.get("type", "object")
    kind = words if isinstance(words, str) else chance.choice(words)
    if kind == "object":
        wanted = [key for key in rule.get("properties", {}) if key in rule.get("required", ()) or chance.random() < 0.5]
        wanted += ["more"] if chance.random() < (0.02 if rule.get("additionalProperties") is False else 0.5) else []
        rest = {} if rule.get("additionalProperties") is False else rule.get("additionalProperties", {})
        return {key: sample(rule.get("properties", {}).get(key, rest), shared, chance) for key in wanted}
    if kind == "array":
        return [sample(rule.get("items", {}), shared, chance) for _ in range(chance.randrange(4))]
    low = rule.get("minimum", rule.get("exclusiveMinimum", -3))
    text = "pattern" in rule and chance.random() < 0.98
    numbers = {"integer": chance.randrange(low, low + 4), "number": low + chance.random() - 0.02, "null": None}
    word = RUN_ID if text and rule["pattern"] == PATTERN else "0123456789abcdef" * 4 if text else "word"
    return {**numbers, "boolean": chance.random() < 0.5, "string": word}[kind]


@pytest.mark.parametrize("name", NAMES)
def test_the_quick_check_accepts_only_what_jsonschema_accepts(name: str) -> None:
    rule, chance, validator = schema.load(name), random.Random(name), Draft202012Validator(schema.load(name))
    quick, verdicts = schema._quick(name), set()
    for _ in range(300):
        data = sample(rule, rule.get("$defs", {}), chance)
        verdicts.add((quick(data), validator.is_valid(data)))
    assert (True, False) not in verdicts
    if name in ("events", "pull_manifest", "pull_verified", "seal", "results"):
        assert verdicts >= {(True, True), (False, False)}, "a quick check that settles nothing is no use"
