"""Every speed claim as a ratio to a peer, both measured in this run: `make bench`, or one: `run.py start_up`.

RESULTS.md keeps the newest run of each.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.measure import Row

RESULTS = Path(__file__).with_name("RESULTS.md")
HEAD = """# What was measured

By `make bench`. Both sides of a ratio were measured in one run, taking turns where that is possible: seconds mean
little on another machine, ratios more. The goal is the highest ratio that we accept; `-` is shown without one.
"""

BENCHES = (
    "start_up",
    "guard",
    "gpu_gate",
    "takeover",
    "checkpoints",
    "watch",
    "board",
    "triage",
    "transfer",
    "verify_local",
    "compare_runs",
    "leak_probe",
    "reconcile",
)


def main(names: list[str]) -> None:
    for name in names:
        if name not in BENCHES:
            print(f"error: no bench is called {name}; there are: {', '.join(BENCHES)}", file=sys.stderr)
            sys.exit(2)
    print(f"{'claim':58} {'ours':>10} {'peer':>10} {'ratio':>7} goal (at most)")
    sections = _read()
    for name in names or BENCHES:
        rows = []
        for row in importlib.import_module(f"bench.{name}").rows():
            print(row, flush=True)
            rows.append(row)
        sections[name] = _section(rows)
        RESULTS.write_text(HEAD + "".join(f"\n## {key}\n{sections[key]}" for key in BENCHES if key in sections))


def _read() -> dict[str, str]:
    """What earlier runs left, by bench: a bench replaces its own section only."""
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    parts = text.split("\n## ")[1:]
    return {name: rest for name, _, rest in (part.partition("\n") for part in parts)}


def _section(rows: list[Row]) -> str:
    head = f"\n{time.strftime('%Y-%m-%d')}, {_machine()}\n\n"
    return (
        head
        + "| claim | ours | peer | ratio | goal |\n|---|---|---|---|---|\n"
        + "".join(f"{row.markdown()}\n" for row in rows)
    )


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores, python = os.cpu_count(), platform.python_version()
    return f"{platform.system()} {platform.machine()}, {cores} cores, {memory:.0f} GiB, Python {python}"


if __name__ == "__main__":
    main(sys.argv[1:])
