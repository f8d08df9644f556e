"""The newest release of every client that the documents quote still has their verbs, flags and messages.

The releases come from the registries into .pytest_cache/ (2 GB, minutes), so this is a soak. runpodctl, pspace and the
providers' consoles are in no registry that pip reads: nobody checks those here.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from doccheck import commands, documents
from rgt.catalogue import entries

import pytest

from .support import missing

ROOT = Path(__file__).resolve().parents[2]
OPENCLAW = [ROOT / ".clients" / name / "node_modules" / ".bin" for name in ("openclaw", "node")]
# the word that calls it, and what pip is told
PACKAGES = {
    "vastai": ["vastai"],
    "kaggle": ["kaggle", "six"],  # 2.2 imports six and does not ask for it
    "colab": ["google-colab-cli"],
    "dstack": ["dstack"],
    "sky": ["skypilot"],
    "hf": ["huggingface_hub"],
    "featurize": ["--no-deps", "featurize", "click"],  # what it depends on cannot be installed
}
SOURCES = ("trl", "transformers", "huggingface_hub")  # read, not run
# featurize without its dependencies and without its token
FEATURIZE = """import sys; from unittest.mock import MagicMock
sys.modules.update({name: MagicMock() for name in "oss2 requests simple_uploader tabulate tqdm wcwidth".split()})
from featurize.cli import cli; cli.callback = None; cli(prog_name="featurize")"""
CLAUSE = re.compile(r"[;,(){}\[\]\"`]|:\s|\b(?:and|or|then)\s")  # a value of the front matter is a sentence
GROUP = re.compile(r"command|\{[\w,-]+\}", re.I)  # in a usage line: a verb must follow
GONE = r"(?:before|up to) [\w .]+"  # so the documents date a message of an older release
PYTHON = re.compile("unexpected keyword argument|No module named|cannot import name")  # the interpreter's own words
# one worker: they share the environments that the first of them makes
pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("newest-clients")]


@functools.cache
def knowledge() -> list[documents.Document]:
    return [document for document in documents.load_all(ROOT) if document.path.parts[0] in ("profiles", "references")]


def newest_python() -> str:
    """A client's newest release may ask for a newer Python than ours."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    kept = sorted(map(str, pyenv.glob("3.1[2-9].*/bin/python")), reverse=True)
    names = [name for name in (*(f"python3.{minor}" for minor in (14, 13, 12)), *kept) if shutil.which(name)]
    works = (name for name in names if not subprocess.run([name, "-c", ""], capture_output=True).returncode)
    return next(works, sys.executable)


def install(folder: Path, packages: list[str]) -> Path:
    """The folder of the scripts of the newest releases; the environment is kept for the next session."""
    if not (folder / "bin" / "python").exists():
        subprocess.run([newest_python(), "-m", "venv", folder], check=True)
    # then without dependencies: pip takes an older release in silence where the newest asks for what is not there
    for words in ([*packages], ["--no-deps", *packages]):
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-U", *words]
        done = subprocess.run(pip, capture_output=True, text=True, timeout=1200)
        if done.returncode:
            missing(f"{packages} cannot be installed from the registry: {done.stderr[-300:]}")
    freeze = subprocess.run([*pip[:3], "freeze", "--all"], capture_output=True, text=True, check=True).stdout
    print(*(line for line in freeze.splitlines() if line.partition("==")[0] in packages))
    return folder / "bin"


@pytest.fixture
def cache_folder(pytestconfig: pytest.Config) -> Path:
    assert pytestconfig.cache is not None
    return pytestconfig.cache.mkdir("newest-clients")


def client_lines(client: str) -> Iterator[tuple[str, list[str]]]:
    """FILE:LINE and the words of every command of this client: shell blocks, inline code, front matter."""
    for document in knowledge():
        matter = document.text.partition("\n---\n")[0] if document.text.startswith("---\n") else ""
        snippets = [(one.line, one.text) for one in (*commands.shell_lines(document), *document.codes)]
        for number, line in enumerate(matter.splitlines(), 1):
            snippets += [(number, clause.strip()) for clause in CLAUSE.split(line)]
            for argv in re.findall(rf"argv: \[({client}, [^\]]*)\]", line):
                snippets.append((number, argv.replace(", ", " ")))
        for number, text in snippets:
            if re.search(rf"(?<![\w.:/-]){client} ", text):
                for words in commands.simple_commands(text):
                    if client in words[:-1] and all("=" in word for word in words[: words.index(client)]):
                        yield f"{document.path}:{number}", words[words.index(client) :]


def command_problems(client: str, program: list[str], environ: dict[str, str]) -> tuple[list[str], int, int]:
    """What the client does not know of its commands in the documents, and how many verbs and flags were asked for."""

    @functools.cache
    def usage(path: tuple[str, ...]) -> str:
        argv = [*program, *path[1:], "--help"]
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=120)
        # from the usage on: some greet with another sentence each time
        return "" if done.returncode else done.stdout[done.stdout.lower().find("usage:") :]

    problems, verbs, flags = [], set(), set()
    for where, words in client_lines(client):
        path: tuple[str, ...] = (client,)
        rest = words[1:]
        assert usage(path), f"{client} --help says nothing"
        while rest and re.fullmatch("[a-z][a-z0-9-]*", rest[0]):
            # one word, or two: vastai's verbs are pairs
            deeper = [(*path, *rest[:size]) for size in (1, 2) if usage((*path, *rest[:size])) not in ("", usage(path))]
            if not deeper:
                if GROUP.search(usage(path).partition("\n\n")[0]):
                    problems.append(f"{where}: `{' '.join(path)}` has no verb `{rest[0]}`")
                break
            rest, path = words[len(deeper[0]) :], deeper[0]
        verbs.add(path)
        options = re.findall(r"^[\s│*]*(-.*)", usage(path) + usage(path[:1]), re.M)
        for flag in (word.partition("=")[0] for word in rest if re.fullmatch(r"--?[A-Za-z][\w-]*(=.*)?", word)):
            flags.add((path, flag))
            if not any(re.search(rf"(?<![\w-]){flag}(?![\w-])", option) for option in options):
                problems.append(f"{where}: `{' '.join(path)}` has no flag `{flag}`")
    return problems, len(verbs), len(flags)


@pytest.mark.parametrize("client", [*PACKAGES, "openclaw"])
def test_every_verb_and_flag_is_there(client: str, cache_folder: Path, tmp_path: Path) -> None:
    environ = {**os.environ, "HOME": str(tmp_path), "COLUMNS": "300", "NO_COLOR": "1", "VASTAI_NO_UPDATE_CHECK": "1"}
    if client == "openclaw":
        if not (OPENCLAW[0] / client).exists():
            missing("openclaw is not there (make clients)")
        folder, environ["PATH"] = OPENCLAW[0], os.pathsep.join([*map(str, OPENCLAW), os.environ["PATH"]])
    else:
        folder = install(cache_folder / client, PACKAGES[client])
    program = [str(folder / "python"), "-c", FEATURIZE] if client == "featurize" else [str(folder / client)]
    problems, verbs, flags = command_problems(client, program, environ)
    print(f"{client}: {verbs} verbs and {flags} flags checked")
    assert verbs and not problems, "\n".join(problems)


def said(folder: Path) -> Iterator[str]:
    """Every text that a package can print: its strings, its classes, its functions as a traceback shows them."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield " ".join(node.value.split())
            elif isinstance(node, ast.JoinedStr):
                yield "".join(str(one.value) if isinstance(one, ast.Constant) else "\0" for one in node.values)
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                yield f'{path.name}", line 0, in {node.name}'


def test_every_message_still_stands_in_the_source(cache_folder: Path) -> None:
    """An entry is a library's when its heading or source names that one and not torch; else a quoted line must."""
    folder = install(cache_folder / "sources", ["--no-deps", *SOURCES]).parent
    (place,) = folder.glob("lib/python3*/site-packages")
    text = {name: "\n\n".join(said(place / name)) for name in SOURCES}
    named = re.compile(rf"\b({'|'.join(SOURCES)})\b")
    problems, checked, left_out = [], 0, 0
    for document in knowledge():
        for name, line, body in documents.catalogue_entries(document):
            head = document.text.splitlines()[line - 1]
            (entry,) = entries.parse(f"{head}\n{body}", str(document.path))
            source = re.sub(r"https://(?!github\.com/huggingface/\w+/blob)\S+", "", body.partition("**Source**")[2])
            mixed = re.search(r"\b(torch|peft|accelerate|lightning)\b", source)
            for message in (part for one in entry.signatures for part in re.split(r"(?<!\\)\|(?![^(]*\))", one)):
                quoted = [line for line in entry.examples if re.search(message, line)]
                owners = set(named.findall("" if mixed else f"{head} {source}") + named.findall(" ".join(quoted)))
                marks = [rf"{GONE}:\s*`+ ?{re.escape(one)}|{re.escape(one)} ?`+\s*\({GONE}\)" for one in quoted]
                if (
                    not owners
                    or PYTHON.search(message)
                    or any(re.search(mark, " ".join(body.split())) for mark in marks)
                ):
                    left_out += bool(named.search(f"{head} {body}"))
                    continue
                checked += 1
                ways = [[run.strip(" |") for run in way] for way in entries.literal_ways(message)]
                if not any(all(run in text[owner] for run in way) for owner in owners for way in ways):
                    problems.append(f"{document.path}:{line}: {name}'s `{message}` is not in {sorted(owners)}")
    print(f"{checked} messages checked, {left_out} left out of entries that name {', '.join(SOURCES)}")
    assert checked and not problems, "\n".join(problems)
