"""A script of the agent's, run where its tools are stand-ins: they exist only while it is judged, and note each call.

A stand-in is Python. It finds `words` (its arguments), `option(...)`, `flag(...)`, `fail(...)`, and `HOME`, a folder
for state that all tools of a rehearsal share. `sleep` takes no time. The agent's folder is copied: judging changes
nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from trials.case import Box, Missing

_SECONDS = 240  # a careful script polls for a minute or two, and not only with sleep
_HEAD = """#!{python}
import json, sys
from pathlib import Path
HOME = Path(__file__).resolve().parent.parent
words = sys.argv[1:]
with (HOME / "calls.jsonl").open("a") as log:
    log.write(json.dumps([Path(__file__).name, *words]) + "\\n")
def option(*names, default=None):
    for number, word in enumerate(words):
        for name in names:
            if word == name and number + 1 < len(words):
                return words[number + 1]
            if name.startswith("--") and word.startswith(name + "="):
                return word[len(name) + 1:]
    return default
def flag(*names):
    return any(name in words for name in names)
def fail(text, code=2):
    print(text, file=sys.stderr)
    sys.exit(code)
def note(name, content=""):
    (HOME / name).write_text(content if isinstance(content, str) else json.dumps(content))
def noted(name):
    return (HOME / name).exists()
"""


@dataclass
class Stage:
    root: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def desk(self) -> Path:
        return self.root / "desk"

    def run(self, *words: str, seconds: float = _SECONDS) -> int:
        """The exit code; a script that waits for an answer or for ever has failed."""
        if not (self.desk / words[1]).is_file():
            raise Missing(f"{words[1]} is not there")
        try:
            return subprocess.run(
                words,
                cwd=self.desk,
                env=self.env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            raise Missing(f"{' '.join(words)} did not end") from None

    def calls(self, tool: str) -> list[list[str]]:
        log = self.root / "calls.jsonl"
        rows: list[list[str]] = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [row[1:] for row in rows if row[0] == tool]

    def has(self, name: str) -> bool:
        return (self.root / name).exists()

    def read(self, name: str) -> str:
        """A note of the tools, or (below desk/) a file of the script; empty when it is not there."""
        path = self.root / name
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


@contextmanager
def stage(box: Box, tools: dict[str, str], env: dict[str, str] | None = None) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="rehearsal-", ignore_cleanup_errors=True) as name:
        root = Path(name)
        shutil.copytree(box.work, root / "desk", ignore=shutil.ignore_patterns(".*", "__pycache__"), symlinks=True)
        (root / "bin").mkdir()
        for tool, text in {"sleep": "", **tools}.items():
            file = root / "bin" / tool
            file.write_text(_HEAD.replace("{python}", sys.executable) + text, encoding="utf-8")
            file.chmod(0o755)
        path = os.pathsep.join([str(root / "bin"), box.env["PATH"]])
        yield Stage(root, {**box.env, "PATH": path, **(env or {})})
