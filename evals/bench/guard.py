"""The hook runs before every command of an agent, so it must cost little more than Python itself."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator

from bench.measure import ROOT, Row, take_turns

PYTHON = sys.executable
HOOK = ROOT / "scripts" / "rgt" / "guard" / "hook.py"
# most commands leave at the first look; what is parsed pays for `re` and `json`, a refusal is rare
LINES = {
    "harmless at the first look": ("ls -la && git status --short && tail -n 20 train.log", 2.5),
    "parsed and walked": ("cd build && rm -rf lib.o && python -m pytest -q", 2.5),
    "refused": ("ssh box 'rm -rf /workspace/runs'", math.inf),
}


def judged(line: str) -> Callable[[], object]:
    event = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "cwd": "/", "tool_input": {"command": line}}
    data = json.dumps(event).encode()
    return lambda: subprocess.run([PYTHON, "-I", "-S", str(HOOK)], input=data, capture_output=True)


def rows() -> Iterator[Row]:
    def peer() -> object:
        return subprocess.run([PYTHON, "-c", "pass"], capture_output=True)

    for name, (line, goal) in LINES.items():
        ours, base = take_turns(judged(line), peer, rounds=25)
        yield Row(f"guard hook, {name} / python3 -c pass", ours, base, goal)
