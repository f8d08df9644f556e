"""What of an overlap is said: findings, the data of --json with all matches, and the closing line."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from leakage.matching import Found, Match, Pair, Whole
from rgt import files
from rgt.report import Report

_SHOWN = 3  # examples in a finding
_LISTED = 10_000  # matches in --json; more go to a file
_FILES = 20  # findings about single files


def say_pair(report: Report, pair: Pair) -> None:
    a, b = pair.a.name, pair.b.name
    share = f"of {pair.items} {b} items"
    path = str(pair.b.path)
    fix = f"remove them from {a} (or from {b}) and report both numbers: with and without"
    if pair.exact:
        text = f"{len(pair.exact)} {share} ({_percent(pair.exact, pair)}) are in {a}, the same after normalisation"
        report.add("leak", "error", text, path=path, evidence=_examples(pair.exact), fix=fix)
    if pair.near:
        text = f"{len(pair.near)} {share} ({_percent(pair.near, pair)}) are near-duplicates of items in {a}"
        report.add("near-duplicate", "error", text, path=path, evidence=_examples(pair.near), fix=fix)
    if pair.coincidences:
        text = f"{len(pair.coincidences)} {share} match {a}, and are short or common enough to do so by chance"
        report.add("coincidence", "info", text, path=path, evidence=_examples(pair.coincidences))
    if pair.boilerplate:
        text = (
            f"{len(pair.boilerplate)} {share} are texts that stand three times or more in both {a} and {b}: boilerplate"
        )
        report.add("coincidence", "info", text, path=path, evidence=_examples(pair.boilerplate))


def _percent(matches: list[Match], pair: Pair) -> str:
    return f"{100 * len(matches) / max(1, pair.items):.2g} %"


def _examples(matches: list[Match]) -> str:
    shown = [f"{m.place} = {m.other}" if m.kind == "exact" else f"{m.place} ~ {m.other} ({m.similarity:.2f})"
             for m in matches[:_SHOWN]]  # fmt: skip
    return "; ".join(shown)


def say_splits(report: Report, found: Found) -> None:
    for whole in found.splits.values():
        name, path = whole.source.name, str(whole.source.path)
        blank = int((whole.exact == 0).sum())
        if blank == len(whole):
            report.add("empty", "warn", f"{name} holds no item with content, so nothing was compared", path=path)
        elif blank:
            report.add("empty", "info", f"{blank} of {len(whole)} items are blank and were not compared", path=path)
        repeated = _repeated(whole)
        if repeated:
            text = f"{repeated} of {len(whole)} items repeat another item of {name}: a random split of such data leaks"
            report.add("duplicate", "info", text, path=path)
        if whole.source.malformed:
            text = f"{whole.source.malformed} rows are not JSON or have another number of fields than the header"
            report.add("malformed", "warn", text, path=path, evidence=f"first: {whole.source.malformed_at}")
        if found.schema.lacking.get(name):
            text = f"has no column {', '.join(found.schema.lacking[name])[:200]}; other splits do; it was not compared"
            report.add("unjudged", "info", text, path=path)
        for place, code, said in whole.problems[:_FILES]:
            report.add(code, "info" if code == "unjudged" else "warn", said, path=place)
        if len(whole.problems) > _FILES:
            report.add("unreadable", "warn", f"{len(whole.problems) - _FILES} more files have such problems", path=path)


def _repeated(whole: Whole) -> int:
    content = whole.exact[whole.exact != 0]
    return len(content) - len(np.unique(content))


def data(found: Found, listing: Path | None) -> dict[str, Any]:
    splits = {}
    for name, whole in found.splits.items():
        splits[name] = {"path": str(whole.source.path), "kind": whole.source.kind, "items": len(whole)}
        splits[name]["repeated"] = _repeated(whole)
    pairs = []
    matches = []
    for pair in found.pairs:
        kinds = {
            "exact": pair.exact,
            "near": pair.near,
            "coincidence": pair.coincidences,
            "boilerplate": pair.boilerplate,
        }
        counts = {kind: len(some) for kind, some in kinds.items()}
        expected = round(min(pair.expected, 1e9), 6)
        pairs.append({"a": pair.a.name, "b": pair.b.name, **counts, "leaks_expected_by_chance": expected})
        for kind, some in kinds.items():
            said = {"a": pair.a.name, "b": pair.b.name, "kind": kind}
            matches += [{**said, "item": m.place, "same_as": m.other, "similarity": m.similarity} for m in some]
    schema = found.schema
    compared = {"columns": schema.used, "ignored": schema.ignored, "text": schema.text, "near_by": schema.near}
    made: dict[str, Any] = {"splits": splits, "compared": compared, "pairs": pairs, "matches": matches[:_LISTED]}
    if listing or len(matches) > _LISTED:
        made["full_list"] = str(_write_list(matches, listing))
    return made


def _write_list(matches: list[dict[str, Any]], listing: Path | None) -> Path:
    path = listing or Path(tempfile.mkdtemp(prefix="leak_probe-")) / "matches.jsonl"
    lines = (json.dumps(match, ensure_ascii=True) + "\n" for match in matches)
    files.write_with(path, lambda file: file.writelines(line.encode() for line in lines))
    return path


def summary(data: dict[str, Any]) -> str:
    splits = data["splits"]
    said = ", ".join(f"{name} {split['items']}" for name, split in splits.items())
    compared = data["compared"]
    by = f"; columns compared: {', '.join(compared['columns'])[:200]}" if compared["columns"] else ""
    ignored = f"; left out as ids or groups: {', '.join(compared['ignored'])[:200]}" if compared["ignored"] else ""
    full = f"\nall matches: {data['full_list']}" if "full_list" in data else ""
    clean = "no item is shared by two splits; " if not any(p["exact"] + p["near"] for p in data["pairs"]) else ""
    return f"{clean}items: {said}{by}{ignored}{full}"
