"""Every speed claim as a ratio to a peer, both measured in this run: `make bench`, or one: `run.py start_up`.

A whole run is written to RESULTS.md.
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

BENCHES = (
    "start_up",
    "gpu_gate",
    "takeover",
    "checkpoints",
    "watch",
    "triage",
    "probes",
    "transfer",
    "verify_local",
    "compare_runs",
    "leak_probe",
    "reconcile",
)


def main(names: list[str]) -> None:
    print(f"{'claim':58} {'ours':>10} {'peer':>10} {'ratio':>7} goal (at most)")
    measured = []
    for name in names or BENCHES:
        for row in importlib.import_module(f"bench.{name}").rows():
            print(row, flush=True)
            measured.append(row)
    if not names:
        RESULTS.write_text(_page(measured), encoding="utf-8")


def _page(rows: list[Row]) -> str:
    """Of a whole run only: a table put together from several machines or days would compare nothing."""
    head = [
        "# What was measured",
        "",
        f"By `make bench`, {time.strftime('%Y-%m-%d')}, on {_machine()}.",
        "Both sides of a ratio were measured in this run: seconds mean little elsewhere, ratios more. The goal is the",
        "highest ratio that we accept; `-` is shown without one.",
        "",
        "| claim | ours | peer | ratio | goal |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(row.markdown() for row in rows)]) + "\n"


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores, python = os.cpu_count(), platform.python_version()
    return f"{platform.system()} {platform.machine()}, {cores} cores, {memory:.0f} GiB, Python {python}"


if __name__ == "__main__":
    main(sys.argv[1:])
