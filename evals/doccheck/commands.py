"""Every command a document shows is parsed by the real click command, without running it.

`<placeholders>` and `...` stand for any value. Unknown options, missing arguments and wrong choices are problems.
"""

from __future__ import annotations

import copy
import importlib
import itertools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from doccheck.documents import Document, Snippet

import click

_SHELL = {"bash", "sh", "shell", "console"}
_SCRIPT = re.compile(r"(?:\S*/)?scripts/([\w-]+)\.(?:py|sh)")
_RGT = re.compile(r"(?:\S*/bin/)?rgt")
_CALL = re.compile(rf"{_SCRIPT.pattern}|(?<![\w./-]){_RGT.pattern} [a-z_]+")
_NAME = re.compile(rf"{_RGT.pattern} [a-z_]+( [a-z_]+){{0,2}}")  # in a sentence: a tool or one of its verbs
_HOLE = "\N{WHITE SQUARE}"  # stands for <placeholder> while a line is split: never part of a real command
_OPERATORS = set("();|&")
_REDIRECTS = set("<>")


class _Lenient(click.ParamType):  # type: ignore[type-arg]  # not generic in older click
    """Accepts placeholders, and paths that are not on this machine; otherwise the option's own type decides."""

    name = "lenient"

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(self.inner, (click.Path, click.File)) or _is_open(value):
            return value
        return self.inner.convert(value, param, ctx)


def _is_open(value: Any) -> bool:
    return isinstance(value, str) and (_HOLE in value or "..." in value or "$" in value)


def load_command(root: Path, stem: str) -> click.Command:
    """The click command of scripts/<stem>.py, by convention called `main`."""
    folder = str(root / "scripts")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(stem).main  # type: ignore[no-any-return]


def script_stems(root: Path) -> list[str]:
    return sorted(path.stem for path in (root / "scripts").glob("*.py"))


def command_lines(document: Document) -> Iterator[Snippet]:
    """Shell lines of the fenced blocks (continuations joined) and inline code, if they call one of our scripts."""
    yield from (line for line in shell_lines(document) if _CALL.search(line.text))
    for code in document.codes:
        if _CALL.search(code.text) and " " in code.text.strip() and not _NAME.fullmatch(code.text.strip()):
            yield code


def shell_lines(document: Document) -> Iterator[Snippet]:
    """Every line of the fenced shell blocks."""
    for fence in document.fences:
        if fence.info.split(" ")[0] in _SHELL:
            yield from _logical_lines(fence)


def _logical_lines(fence: Snippet) -> Iterator[Snippet]:
    """Lines as the shell sees them: continuations joined, here-documents and a console's output left out."""
    lines = fence.text.splitlines()
    index = 0
    while index < len(lines):
        start, text = index, lines[index]
        while text.endswith("\\") and index + 1 < len(lines):
            index += 1
            text = text[:-1] + " " + lines[index].strip()
        here = re.search(r"<<-?\s*['\"]?(\w+)", text)
        while here and index + 1 < len(lines) and lines[index].strip() != here[1]:
            index += 1
        index += 1
        if fence.info != "console" or text.startswith("$ "):
            yield Snippet(text.removeprefix("$ "), fence.line + 1 + start)


def problems(root: Path, line: str) -> list[str]:
    """What the scripts on this shell line would refuse."""
    found = []
    for words in simple_commands(line):
        for stem, arguments in calls(words):
            found += _script_problems(root, stem, arguments)
    return found


def calls(words: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Tool and arguments: `rgt TOOL ...`, or a script by its path, python or not before it."""
    for position, word in enumerate(words):
        script, rest = _SCRIPT.fullmatch(word), words[position + 1 :]
        if script:
            yield script[1], rest
        elif _RGT.fullmatch(word) and rest and re.fullmatch("[a-z_]+", rest[0]):
            yield rest[0], rest[1:]


def simple_commands(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(re.sub(r"<[^<>]*>", _HOLE, line), posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    words: list[str] = []
    skip = False
    for token in lexer:
        if set(token) <= _OPERATORS:
            yield words
            words = []
        elif set(token) <= _REDIRECTS | {"&"}:
            skip = True  # the next word is a file name
        elif skip:
            skip = False
        else:
            words.append(token)
    yield words


def _script_problems(root: Path, stem: str, arguments: list[str]) -> list[str]:
    if (root / "scripts" / f"{stem}.sh").is_file() and not (root / "scripts" / f"{stem}.py").is_file():
        return _shell_problems(root / "scripts" / f"{stem}.sh", arguments)
    if not (root / "scripts" / f"{stem}.py").is_file():
        return [f"scripts/{stem}.py does not exist"]
    return [f"scripts/{stem}.py: {text}" for text in parse_problems(load_command(root, stem), stem, arguments)]


def _shell_problems(script: Path, arguments: list[str]) -> list[str]:
    """A script without a Python twin: its own --help says which words it knows."""
    known = subprocess.run(["sh", str(script), "--help"], capture_output=True, text=True, check=True).stdout.split()
    words = itertools.takewhile(lambda word: not word.startswith("#"), arguments)
    return [f"{script.name}: no option {word}" for word in words if word not in known and not _is_open(word)]


def parse_problems(command: click.Command, name: str, arguments: list[str]) -> list[str]:
    """Parse like click would, down to the verb; an empty list when it would run."""
    try:
        context = _lenient(command).make_context(name, list(arguments))
        if isinstance(command, click.Group) and not command.invoke_without_command:
            verb, child, rest = command.resolve_command(context, [*context._protected_args, *context.args])
            return parse_problems(child, f"{name} {verb}", rest) if child else [f"no verb {verb}"]
    except click.exceptions.Exit:  # --help, --version
        return []
    except click.ClickException as error:
        return [error.format_message()]
    return []


def _lenient(command: click.Command) -> click.Command:
    twin = copy.copy(command)
    twin.params = [copy.copy(parameter) for parameter in command.params]
    for parameter in twin.params:
        parameter.type = _Lenient(parameter.type)
        parameter.callback = None  # a callback may look at the machine
    return twin


def all_commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """The command and every verb below it, with the words that call it."""
    yield name, command
    if isinstance(command, click.Group):
        for verb, child in command.commands.items():
            yield from all_commands(child, f"{name} {verb}")
