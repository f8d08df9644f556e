"""`--help` must cost little more than click itself: an agent pays it at every call."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from bench.measure import ROOT, Row, quiet, take_turns


def rows() -> Iterator[Row]:
    peer = quiet(sys.executable, "-c", "import click")
    for script in sorted((ROOT / "scripts").glob("*.py")):
        ours, base = take_turns(quiet(str(ROOT / "bin" / "rgt"), script.stem, "--help"), peer, rounds=15)
        yield Row(f"rgt {script.stem} --help / import click", ours, base, goal=1.6)
