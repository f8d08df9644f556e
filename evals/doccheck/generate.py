"""Blocks of documents that are computed from code and profiles, between markers:

    <!-- generated:platforms -->  ...  <!-- /generated:platforms -->

`python evals/docs.py write` (make docs) rewrites them, and the guard's table; a test says when one is out of date.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from doccheck.documents import Document, load_all, parse
from rgt.guard import verb_table

_BLOCK = re.compile(r"(<!-- generated:([a-z-]+) -->\n)(.*?)(<!-- /generated:\2 -->)", re.S)
EVIDENCE_LAYER = ("evidence", "results", "seal", "figure_provenance")
GUARD_TABLE = Path("scripts", "rgt", "guard", "verb_table.json")
PHASES = ("RUN", "VERIFY", "DELIVER", "META")


def platforms(root: Path) -> str:
    """One row per profile: what stops the meter, what goes on billing, what is kept, what is deleted by itself."""
    rows = [
        "| platform | the meter stops with | stopped, it bills | stop keeps | destroy keeps | deletes by itself |",
        "|---|---|---|---|---|---|",
    ]
    rows += [_platform_row(path.name, _profile(path)) for path in profile_paths(root)]
    return "\n".join(rows) + "\n"


def profile_paths(root: Path) -> list[Path]:
    return sorted(path for path in (root / "profiles").glob("*.md") if not path.name.startswith("_"))


def _profile(path: Path) -> dict[str, Any]:
    return parse(path, path.read_text(encoding="utf-8")).front_matter()


def _platform_row(name: str, profile: dict[str, Any]) -> str:
    meter, storage = profile["meter"], profile["storage"]
    cells = [
        f"[{profile['title']}](profiles/{name})",
        _stops(meter["stops_with"]),
        _brief(meter["stopped_still_bills"]),
        _survivors(storage, "stop"),
        _survivors(storage, "destroy"),
        _brief(profile["auto_release"]),
    ]
    if "variants" in profile:
        cells = [cells[0], *(cell.replace("unknown", "by variant") for cell in cells[1:])]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _stops(fact: dict[str, Any]) -> str:
    text = _brief(fact)
    return f"{text} (final)" if fact["irreversible"] and text != "unknown" else text


def _brief(fact: dict[str, Any]) -> str:
    """A table takes what stands before the first semicolon; the rest is for who opens the profile."""
    return str(fact["value"]).partition(";")[0]


def _survivors(storage: list[dict[str, Any]], act: str) -> str:
    """The tiers that are kept; where nobody knows of any of them, that."""
    kept = [tier["tier"] for tier in storage if tier[act] == "kept"]
    unknown = any(tier[act] == "unknown" for tier in storage)
    return ", ".join(kept) or ("unknown" if unknown else "nothing")


def scripts(root: Path) -> str:
    """One row per script, from the first line of its docstring: `PHASE · what it does`."""
    jobs = sorted(_jobs(root), key=lambda job: (PHASES.index(job[0]), job[1]))
    rows = ["| phase | command | job |", "|---|---|---|"]
    return "\n".join([*rows, *(f"| {phase} | `{name}` | {job} |" for phase, name, job in jobs)]) + "\n"


def _jobs(root: Path) -> Iterator[tuple[str, str, str]]:
    shells = [path for path in (root / "scripts").glob("*.sh") if not path.with_suffix(".py").exists()]
    for path in sorted([*(root / "scripts").glob("*.py"), *shells]):
        phase, _, job = first_line(path).partition(" · ")
        called = f"scripts/{path.name}" if path.suffix == ".sh" else f"rgt {path.stem}"
        yield (phase if phase in PHASES else "META"), called, job


def first_line(path: Path) -> str:
    """Of a Python file's docstring; of a shell script, the comment below `#!`."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sh":
        return text.split("\n")[1].removeprefix("# ")
    return (ast.get_docstring(ast.parse(text)) or "").split("\n")[0]


def schemas(root: Path) -> str:
    """The files of the evidence layer, field by field, from their JSON Schemas."""
    return "\n".join(_schema(root / "scripts" / "schemas" / f"{name}.schema.json") for name in EVIDENCE_LAYER)


def _schema(path: Path) -> str:
    schema = json.loads(path.read_text(encoding="utf-8"))
    rows = [f"| `{name}` | {kind} | {text} |" for name, kind, text in _fields(schema, "")]
    head = f"### {path.name}\n\n{schema['description']} `*` is required.\n\n| field | type | meaning |\n|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


def _fields(schema: dict[str, Any], above: str) -> Iterator[tuple[str, str, str]]:
    for name, field in schema.get("properties", {}).items():
        inner = field.get("items", field)
        many = "[]" if "items" in field else ""
        star = "*" if name in schema.get("required", []) else ""
        text = field.get("description") or inner.get("description") or ""
        yield f"{above}{name}{many}{star}", _kind(inner), text.replace("|", "\\|")
        yield from _fields(inner, f"{above}{name}{many}.")
        keyed = inner.get("additionalProperties")
        if isinstance(keyed, dict):
            yield f"{above}{name}.<key>", _kind(keyed.get("items", keyed)), keyed.get("description", "")
            yield from _fields(keyed, f"{above}{name}.<key>.")


def _kind(field: dict[str, Any]) -> str:
    if "enum" in field:
        return " or ".join(map(str, field["enum"]))
    return "sha256" if field.get("pattern") == "^[0-9a-f]{64}$" else str(field.get("type", "any"))


GENERATORS: dict[str, Callable[[Path], str]] = {"platforms": platforms, "schemas": schemas, "scripts": scripts}


def fresh(root: Path, document: Document) -> str:
    """The document's text with every generated block computed anew."""

    def block(match: re.Match[str]) -> str:
        make = GENERATORS.get(match[2])
        return match[1] + make(root) + match[4] if make else match[0]

    return _BLOCK.sub(block, document.text)


def guard_table(root: Path) -> str:
    return verb_table.text(verb_table.build(root / "profiles"))


def write(root: Path) -> list[Path]:
    """Rewrite what is out of date; the paths that changed."""
    changed = []
    if (root / GUARD_TABLE).read_text(encoding="utf-8") != guard_table(root):
        (root / GUARD_TABLE).write_text(guard_table(root), encoding="utf-8")
        changed.append(GUARD_TABLE)
    for document in load_all(root):
        text = fresh(root, document)
        if text != document.text:
            (root / document.path).write_text(text, encoding="utf-8")
            changed.append(document.path)
    return changed
