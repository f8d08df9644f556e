"""The house: nouns in rgt/, verbs in the tools; no tool imports a tool, no import cycle, names that say of what."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
TOOLS = {path.stem for path in SCRIPTS.glob("*.py")}
SIBLINGS = {"backends", "readers", "child"}  # folders whose modules fill one contract


@functools.cache
def modules(base: Path = SCRIPTS) -> dict[str, set[str]]:
    """Dotted name -> what it imports, templates left out: they are copied elsewhere before they run."""
    found = {}
    for path in base.rglob("*.py"):
        parts = path.relative_to(base).with_suffix("").parts
        if parts[0] != "templates":
            found[".".join(parts).removesuffix(".__init__")] = imports(ast.parse(path.read_text(encoding="utf-8")))
    return found


def imports(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def graph() -> dict[str, set[str]]:
    return {name: used & modules().keys() - {name} for name, used in modules().items()}


def test_scripts_holds_tools_and_one_package() -> None:
    assert {path.name for path in SCRIPTS.iterdir() if path.is_dir()} - {"__pycache__"} == {
        "rgt",
        "schemas",
        "templates",
    }


def circle(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_nothing_imports_in_a_circle() -> None:
    assert circle({"a": {"b"}, "b": {"a"}}) != []
    assert circle(graph()) == []


def tool(name: str) -> str | None:
    """The tool whose own code this is; None for a noun."""
    parts = name.split(".")
    owner = parts[1] if parts[0] == "rgt" and len(parts) > 1 else parts[0]
    return owner if owner in TOOLS else None


def test_no_tool_imports_a_tool() -> None:
    assert tool("rgt.watch.status") == tool("watch") == "watch" and tool("rgt.run.record") is None
    uses = [(name, other) for name, used in graph().items() for other in used if tool(other)]
    assert [pair for pair in uses if tool(pair[0]) != tool(pair[1])] == []


def test_a_name_says_of_what() -> None:
    places = defaultdict(list)
    for name in modules():
        *folders, last = name.split(".")
        if folders and folders[-1] not in SIBLINGS:
            places[last].append(name)
    assert {last: names for last, names in places.items() if len(names) > 1} == {}


def test_only_the_command_line_knows_click() -> None:
    knowing = {name for name, used in modules().items() if "click" in used}
    assert {name for name in knowing if tool(name) is None} == {"rgt.cli", "rgt.__main__"}
