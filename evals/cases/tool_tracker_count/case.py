"""How many experiments are in an offline tracker folder, and what became of them? For folders nobody has seen."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from trials.case import Box, Case
from worlds import records, tool

SEEDS = range(20, 30)
WRONG, ENOUGH = 1, 4
_SCRIPT = """#!/usr/bin/env python
import json, subprocess, sys
def ask(verb):
    command = [sys.executable, {script!r}, verb, sys.argv[1], "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
runs, groups = ask("list")["runs"], ask("dupes")["groups"]
last = {{}}
for run in sorted(runs, key=lambda run: (run["created"], run["rows"])):
    last[run["id"]] = run["state"] if run["state"] in ("finished", "failed") else "crashed"
ids = {{run["where"]: run["id"] for run in runs}}
copies = [sorted({{ids[where] for where in group["runs"]}}) for group in groups if group["kind"] == "copy"]
fates = {{fate: sorted(i for i in last if last[i] == fate) for fate in ("finished", "failed", "crashed")}}
print(json.dumps({{"experiments": len(last) - sum(len(c) - 1 for c in copies), **fates, "copies": copies}}))
"""


def make(box: Box) -> None:
    for name, seed in (("a", 1), ("b", 2)):
        box.write(f"samples/{name}.json", records.build(box.work / "samples" / name / "wandb", seed))


def verify(box: Box) -> list[str]:
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in SEEDS:
            root = Path(folder) / str(seed) / "wandb"
            right = records.build(root, seed)
            before = _files(root)
            problem = _compare(tool.call(box, "runs", root, seconds=15).out, right)
            wrong += [f"folder {seed}: {problem}"] if problem else []
            if _files(root) != before:
                return ["the folder was changed"]
            if len(wrong) >= ENOUGH:
                break
    return [] if len(wrong) <= WRONG else [f"{len(wrong)} folders wrong: {'; '.join(wrong)}"]


def _files(root: Path) -> list[tuple[str, int]]:
    return [(str(path), path.lstat().st_size) for path in sorted(root.rglob("*")) if not path.is_dir()]


def _compare(out: str, right: dict[str, Any]) -> str:
    try:
        given = json.loads(out)
        for fate in ("finished", "failed", "crashed"):
            given[fate] = sorted(given[fate])
        given["copies"] = sorted(sorted(group) for group in given["copies"])
    except (ValueError, TypeError, KeyError):
        return "no such object"
    return ", ".join(key for key, value in right.items() if given.get(key) != value)


def reference(box: Box) -> None:
    tool.leave(box, "runs", _SCRIPT.format(script=str(box.skill / "scripts" / "wandb_forensics.py")))


def naive(box: Box) -> None:
    """Every file up to where it breaks; the end of the latest start; equal curves are copies."""
    tool.leave(
        box,
        "runs",
        """#!/usr/bin/env python
import json, struct, sys
from collections import defaultdict
from pathlib import Path
from wandb.proto import wandb_internal_pb2 as proto
def records(data):
    at, whole = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[at:at + 7])
        piece = data[at + 7:at + 7 + length]
        if len(piece) < length:
            return
        at += 7 + length
        whole += piece
        if kind in (1, 4):
            yield proto.Record.FromString(whole)
            whole = b""
starts, curves, configs = defaultdict(dict), defaultdict(dict), {}
for path in sorted(Path(sys.argv[1]).rglob("*.wandb")):
    name, begun, code = path.stem[4:], 0, None
    try:
        for record in records(path.read_bytes()):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                name, begun = record.run.run_id, record.run.start_time.seconds
                pairs = [(i.key, i.value_json) for i in record.run.config.update]
                configs[name] = str(sorted(pair for pair in pairs if "_wandb" not in pair[0]))
            elif kind == "history":
                values = {i.key: i.value_json for i in record.history.item if i.key not in ("_timestamp", "_runtime")}
                curves[name][record.history.step.num] = values
            elif kind == "exit":
                code = record.exit.exit_code
    except Exception:
        pass
    starts[name][begun] = code
fates = {"finished": [], "failed": [], "crashed": []}
for name, codes in starts.items():
    code = codes[max(codes)]
    fates["crashed" if code is None else "failed" if code else "finished"].append(name)
same = defaultdict(list)
for name in starts:
    if curves[name]:
        same[configs.get(name), json.dumps(sorted(curves[name].items()))].append(name)
copies = [sorted(names) for names in same.values() if len(names) > 1]
print(json.dumps({"experiments": len(starts) - sum(len(c) - 1 for c in copies), **fates, "copies": copies}))
""",
    )


CASE = Case(
    route="what did the tracker really record? copies, crashes, resumed runs",
    reads=(),
    minutes=4,
    commands=30,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    held_out=True,
    expected="runs tells finished, failed, crashed, resumed and copied runs apart in all but one of ten folders.",
)
