"""`--help` must cost little more than click itself: an agent pays it at every call."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from bench.measure import ROOT, Row, quiet, take_turns


def rows() -> Iterator[Row]:
    peer = quiet(sys.executable, "-c", "import click")
    for script in sorted((ROOT / "scripts").glob("*.py")):
        ours, base = take_turns(quiet(sys.executable, str(script), "--help"), peer, rounds=15)
        yield Row(f"{script.name} --help / import click", ours, base, goal=2.5)
