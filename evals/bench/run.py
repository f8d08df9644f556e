"""Every speed claim as a ratio to a peer, both measured in this run: `make bench`, or one: `run.py start_up`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

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
    for name in names or BENCHES:
        for row in importlib.import_module(f"bench.{name}").rows():
            print(row, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
