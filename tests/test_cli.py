"""rgt.cli: every way a script can end, seen from outside: exit code, stdout, stderr. Each case is a real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

from rgt import cli

import pytest

SCRIPTS = Path(cli.__file__).resolve().parents[1]

TOOL = '''
import errno, os, pathlib, signal, sys
import click
from rgt import cli, errors, report

@click.group(cls=cli.Group)
def main():
    """Do things."""

@main.command()
@click.argument("code", type=int)
@cli.report_options
def give(code, fmt):
    """Give CODE back."""
    click.echo(f"{fmt}")
    return code if code else None

@main.command()
@click.argument("kind")
def fail(kind):
    """Fail in the way KIND."""
    if kind == "input": raise errors.bad_input("config.yaml line 3 has no value")
    if kind == "lacking": raise errors.lacking("rsync is not installed; apt-get install rsync")
    if kind == "refused": raise errors.refused("nothing is pulled yet")
    if kind == "bug": raise KeyError("lr")
    if kind == "long": raise RuntimeError("a\\n  b" + "x" * 100_000)
    if kind == "eof": raise EOFError("Ran out of input")
    if kind == "missing": pathlib.Path("no/such/file").read_text()
    if kind == "full": raise OSError(errno.ENOSPC, "No space left on device", "runs/x.json")
    if kind == "surrogate": raise errors.bad_input("cannot read " + os.fsdecode(b"caf\\xe9.pt"))
    if kind == "pipe":
        reader, writer = os.pipe()
        os.close(reader)
        os.write(writer, b"x")

@main.command()
@click.option("--count", type=int, required=True, help="How many lines.")
def lines(count):
    """Print lines."""
    for number in range(count):
        click.echo(f"line {number}")

@main.command()
def buffered():
    """Print without flushing."""
    print("x" * 10)
    return 1

@main.command()
def pause():
    """Wait for a signal."""
    click.echo("ready")
    signal.pause()

@main.command()
def name():
    """Print a file name that is not UTF-8."""
    found = report.Report("tool")
    found.add("stale", "warn", "old", path=os.fsdecode(b"caf\\xe9.pt"))
    return found.emit(None) + found.emit("json") + found.emit("github")

main()
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "tool.py").write_text(TOOL)
    return folder


def start(
    folder: Path, *arguments: str, stdout: int | IO[bytes] = subprocess.PIPE, environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    inherited = {key: value for key, value in os.environ.items() if key not in ("RGT_DEBUG", "PYTHONUNBUFFERED")}
    return subprocess.Popen(
        [sys.executable, "tool.py", *arguments],
        cwd=folder,
        env={**inherited, "PYTHONPATH": str(SCRIPTS), **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: void(signal.signal(signal.SIGINT, signal.SIG_DFL)),  # a background shell ignores it
    )


def void(_: object) -> None:
    """For a lambda whose value nobody wants."""


def run(folder: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    process = start(folder, *arguments, environment=environment)
    stdout, stderr = process.communicate(timeout=60)
    return process.returncode, stdout.decode(), stderr.decode()


# --- return values and errors ------------------------------------------------------------------------------------

HINT = "(RGT_DEBUG=1 shows where; please report it)"
OURS = "error: internal error in rgt tool: "
ENDS = {
    "give 0 --sarif": (0, "sarif\n", ""),
    "give 3": (3, "None\n", ""),
    "fail input": (2, "", "error: config.yaml line 3 has no value\n"),
    "fail lacking": (3, "", "error: rsync is not installed; apt-get install rsync\n"),
    "fail refused": (4, "", "error: nothing is pulled yet\n"),
    "fail missing": (2, "", "error: cannot access no/such/file: No such file or directory\n"),
    "fail full": (3, "", "error: cannot access runs/x.json: No space left on device\n"),
    "fail surrogate": (2, "", "error: cannot read caf\\udce9.pt\n"),
    "fail pipe": (2, "", "error: cannot do that: Broken pipe\n"),  # ssh died: silence would look like `| head`
    "fail bug": (5, "", f"{OURS}KeyError: 'lr' {HINT}\n"),
    "fail long": (5, "", f"{OURS}RuntimeError: a b{'x' * 283}... {HINT}\n"),
    "fail eof": (5, "", f"{OURS}EOFError: Ran out of input {HINT}\n"),
}


@pytest.mark.parametrize("words", ENDS)
def test_exit_code_stdout_and_one_sentence_on_stderr(folder: Path, words: str) -> None:
    assert run(folder, *words.split()) == ENDS[words]


def test_rgt_debug_shows_where(folder: Path) -> None:
    code, _, stderr = run(folder, "fail", "bug", RGT_DEBUG="1")
    assert code != 0 and stderr.lstrip().startswith("Traceback (most recent call last):") and 'tool.py", line' in stderr


def test_a_usage_error_is_2_and_names_what_is_wrong(folder: Path) -> None:
    code, stdout, stderr = run(folder, "lines", "--cuont", "1")
    assert (code, stdout) == (2, "")
    assert stderr.startswith("Usage: rgt tool lines") and "--cuont" in stderr.splitlines()[-1]


# --- signals and pipes -----------------------------------------------------------------------------------------


def test_ctrl_c_is_130_without_a_traceback(folder: Path) -> None:
    process = start(folder, "pause")
    assert process.stdout
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr.decode().strip()) == (130, "")


def test_a_reader_that_leaves_is_no_error(folder: Path) -> None:
    """As in `tool.py lines | head -1`."""
    process = start(folder, "lines", "--count", "100000")
    assert process.stdout and process.stderr
    assert process.stdout.readline() == b"line 0\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 128 + signal.SIGPIPE


@pytest.mark.parametrize("arguments", [["buffered"], ["--help"]], ids=str)
def test_a_reader_that_was_never_there(folder: Path, arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        process = start(folder, *arguments, stdout=writer)
    finally:
        os.close(writer)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize("word", ["buffered", "--help"])
def test_a_full_disk_behind_stdout_is_told(folder: Path, word: str) -> None:
    with open("/dev/full", "wb") as full:
        process = start(folder, word, stdout=full)
        _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (3, b"error: cannot write to stdout: No space left on device\n")


def test_a_closed_stdout_is_nobody_s_loss(folder: Path) -> None:
    """As in `tool.py give 1 >&-`, where Python has no stdout at all."""
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    words = ["sh", "-c", 'exec "$0" tool.py give 1 >&-', sys.executable]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True)
    assert (done.returncode, done.stderr) == (1, b"")


def test_any_file_name_can_be_printed(folder: Path) -> None:
    code, stdout, stderr = run(folder, "name", PYTHONIOENCODING="utf-8")
    assert (code, stderr) == (3, "")
    text, *block, annotation = stdout.splitlines()
    assert text == "warn  stale: caf\\udce9.pt: old"
    assert json.loads("\n".join(block))["findings"][0]["path"] == os.fsdecode(b"caf\xe9.pt")
    assert annotation == "::warning file=caf\\udce9.pt,title=stale::old"
    assert run(folder, "name", PYTHONIOENCODING="ascii")[::2] == (3, "")
