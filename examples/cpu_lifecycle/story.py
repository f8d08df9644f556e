"""How the demo speaks, and what one stage leaves for the next.

Each stage says why it matters, shows every command as a person would type it, and the one line that came of it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt import errors
from rgt.run import record as rundir

import click
from examples.cpu_lifecycle import interrupts
from examples.cpu_lifecycle.box import Box

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
PATIENCE = 60.0  # seconds for a command to end after it was told to; they take one or two


@dataclass
class Told:
    """One stage as it was told, for the page at the end."""

    title: str
    why: str
    lines: list[tuple[str, str]] = field(default_factory=list)  # ("$" or "->", text)


@dataclass
class Demo:
    out: Path  # of all demos; index.html is there
    folder: Path  # of this one
    config: dict[str, Any]
    told: list[Told] = field(default_factory=list)
    box: Box | None = None
    target: str = "local"
    killed: rundir.Run = field(init=False)  # where it trains: on the box
    record: rundir.Run = field(init=False)  # what launch keeps of it here; the same where the box is this machine
    reference: rundir.Run = field(init=False)
    killed_at: int = 0
    resumed_from: int = 0
    equal: str = ""
    pulled: Path = field(init=False)
    arms: dict[str, list[rundir.Run]] = field(default_factory=dict)
    verdicts: dict[str, str] = field(default_factory=dict)
    inside: Path = field(default_factory=Path.cwd)  # where the reader is, who types along

    @property
    def queue(self) -> Path:
        """A gate of its own: the demo neither waits for the user's jobs nor touches them."""
        return self.folder / "queue"

    @property
    def delivery(self) -> Path:
        return self.folder / "delivery"

    def begin(self, number: int, of: int, title: str, why: str) -> None:
        self.told.append(Told(title, why))
        click.echo(f"\n{number:2}/{of}  {title}\n       {why}")

    def show(self, command: str) -> None:
        self._line("$", command)

    def tell(self, outcome: str) -> None:
        self._line("->", outcome)

    def _line(self, kind: str, text: str) -> None:
        self.told[-1].lines.append((kind, text))
        click.echo(f"       {kind} {text}")

    def tool(self, name: str, *words: object, codes: tuple[int, ...] = (errors.OK,), inside: Path | None = None) -> str:
        """Run a script of the bundle, by default here, and show the command; it must end with one of `codes`."""
        folder = (inside or Path()).absolute()
        if folder != self.inside:
            self.show(f"cd {shlex.quote(os.path.relpath(folder, self.inside))}")
            self.inside = folder
        script = os.path.relpath(SCRIPTS / f"{name}.py", folder)
        self.show(shlex.join(["python", script, *map(str, words)]))
        return self.quiet_tool(name, *words, codes=codes, inside=inside)

    def quiet_tool(self, name: str, *words: object, codes: tuple[int, ...] = (0,), inside: Path | None = None) -> str:
        command = [sys.executable, str(SCRIPTS / f"{name}.py"), *map(str, words)]
        variables = {**os.environ, **({"RGT_SSH_CONFIG": str(self.box.config)} if self.box else {})}
        child = None
        try:
            with interrupts.held():
                # a session of its own: Ctrl-C reaches the demo alone, which then ends things in their order
                child = subprocess.Popen(
                    command,
                    cwd=inside,
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
            out, err = child.communicate()
        except BaseException:
            if child:
                _end(child, name)
            raise
        if child.returncode not in codes:
            click.echo((out + err).rstrip(), err=True)
            wanted = " or ".join(map(str, codes))
            raise errors.RgtError(f"{name}.py ended with {child.returncode}, not {wanted}", errors.FINDINGS)
        return out if out.strip() else err

    def last(self, said: str) -> None:
        """Most of the scripts end with the line that matters."""
        self.tell(next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "(nothing was said)"))


def _end(child: subprocess.Popen[str], name: str) -> None:
    """A launch under way is let finish: cut in the middle it could leave a job that nobody knows."""
    if name != "launch":
        child.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.communicate(timeout=PATIENCE)
        return
    child.kill()
    child.communicate()


def here(path: Path) -> str:
    """As a person in this directory would type it."""
    return os.path.relpath(path)
