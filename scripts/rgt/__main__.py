# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""`rgt`: one command for every tool. Alone it lists them by phase; `rgt TOOL ...` is `python scripts/TOOL.py ...`.

bin/rgt starts a tool's script directly and comes here for the rest; an installed package comes here always.
Completion is click's own: eval "$(_RGT_COMPLETE=bash_source rgt)".
"""

from __future__ import annotations

import ast
import difflib
import importlib
import os
import sys
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[1]
if str(SCRIPTS) not in sys.path:
    sys.path.insert(0, str(SCRIPTS))  # in a wheel nobody has put it there

from rgt import VERSION, cli  # noqa: E402  # before click: it says in one sentence what is missing

import click  # noqa: E402

PHASES = ("RUN", "VERIFY", "DELIVER", "META")
COMPLETE = "_RGT_COMPLETE"


def tools() -> dict[str, tuple[str, str]]:
    """Name -> phase and job of every tool, from the first line of its docstring: `PHASE · what it does`."""
    found = {}
    for path in sorted(SCRIPTS.glob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        phase, _, job = text.partition("\n")[0].partition(" · ")
        found[path.stem] = (phase, job)
    return found


class Tools(cli.Group):
    """The tools as commands; each is imported only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(tools())

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        command: click.Command | None = None
        if name in tools():
            command = importlib.import_module(name).main
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        near = difflib.get_close_matches(args[0], tools(), 1)
        if near and near[0] != args[0]:
            ctx.fail(f"No such command {args[0]!r}: did you mean {near[0]}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        by_name = tools()
        for phase in PHASES:
            rows = [(name, job) for name, (of, job) in by_name.items() if of == phase]
            with formatter.section(phase):
                formatter.write_dl(rows)


@click.group(cls=Tools)
@click.version_option(VERSION, prog_name="rgt")
def rgt() -> None:
    """Deep-learning experiments: RUN, VERIFY, DELIVER. `rgt TOOL --help` explains a tool.

    Example: rgt verify_local model.pt
    """


def main() -> None:
    os.environ.setdefault("RGT_COMMAND", os.path.abspath(sys.argv[0]))
    if COMPLETE in os.environ:
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(rgt, {}, "rgt", COMPLETE, os.environ[COMPLETE]))
    words = sys.argv[1:]
    if words and words[0] in tools():
        importlib.import_module(words[0]).main(args=words[1:], prog_name=f"rgt {words[0]}")
    rgt.main(args=words or ["--help"], prog_name="rgt")


if __name__ == "__main__":
    main()
