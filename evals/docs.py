"""Documents and code in step: `python evals/docs.py check` lists what differs, `write` regenerates the blocks."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "evals"), str(ROOT / "scripts")]

from doccheck import generate, rules  # noqa: E402
from rgt import cli, errors  # noqa: E402

import click  # noqa: E402


@click.group(cls=cli.Group)
def main() -> None:
    """Keep the documents and the code in step."""


@main.command()
def check() -> int:
    """List every broken link, path, command, budget and generated block."""
    repository = rules.Repository(ROOT)
    problems = [problem for rule in rules.RULES for problem in rule(repository)]
    for problem in problems:
        click.echo(problem)
    click.echo(f"{len(repository.documents)} documents, {len(problems)} problems")
    return errors.FINDINGS if problems else errors.OK


@main.command()
def write() -> None:
    """Rewrite the generated blocks that are out of date."""
    for path in generate.write(ROOT):
        click.echo(f"wrote {path}")


if __name__ == "__main__":
    main()
