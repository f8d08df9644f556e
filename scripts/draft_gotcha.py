# /// script
# requires-python = ">=3.10"
# dependencies = ["click"]
# ///
"""META · drafts a catalogue entry and its test from the log line that shows a failure, as a patch to be read

Example:
    python scripts/draft_gotcha.py train.log --line 812 --name "mount lost in the night" --cause "..." --fix "..." \
        --check "mount | grep data" --source "reproduced" --reproduced "fusermount -u /data; python train.py"

Writes <ID>.patch and changes nothing else: a person reads it, then `git apply <ID>.patch`. A line that an entry knows
already, or that a healthy log has, too, gets no draft.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import click

from rgt import cli, files
from rgt.bundle import ROOT
from rgt.catalogue import entries
from rgt.errors import bad_input, from_os_error
from rgt.log.line import bare_line
from rgt.machine.trainers import redact
from rgt.report import Report

CATALOGUE = "references/run-remote/gotchas_universal.md"
LABELS = "tests/triage/labels.yaml"
_AROUND = 15  # lines of the log before and behind the one that shows it, for the test
_LONGEST = 160  # characters of a signature: what follows is this run's own
_VARIES = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)?|(?<![\w.])/[\w./-]+|'[^']{1,60}'|\"[^\"]{1,60}\"")
# a patch gets published: rather too much than too little
_SECRET = re.compile(r"(?i)((?:key|token|secret|password|passwd)\W{1,3})\S{8,}")


@click.command(cls=cli.Command)
@click.argument("log", type=click.Path(path_type=Path))
@click.option("--line", "number", type=click.IntRange(min=1), required=True, help="The line that shows the failure.")
@click.option("--name", required=True, help="What it is called, in a few words.")
@click.option("--cause", required=True, help="The root cause, not the symptom.")
@click.option("--fix", required=True, help="What to do.")
@click.option("--check", required=True, help="A command that tells it from its look-alikes.")
@click.option("--source", required=True, help="Where it is explained: an address, a man page, a source file.")
@click.option("--reproduced", required=True, help="The command that makes it happen again.")
@click.option("--into", default=CATALOGUE, show_default=True, help="The catalogue, below the bundle.")
@cli.report_options
def main(log: Path, number: int, name: str, into: str, fmt: str | None, **told: str) -> int:
    """Draft an entry for what line --line of LOG shows, as a patch for people to read.

    Example: python scripts/draft_gotcha.py train.log --line 812 --name ... --cause ... --fix ... --check ...
        --source ... --reproduced ...
    """
    lines = _lines(log)
    if number > len(lines):
        raise bad_input(f"{log} has {len(lines)} lines, so no line {number}")
    text = bare_line(lines[number - 1].rpartition(b"\r")[2]).text.strip()
    signature = generalised(text)
    report = Report("draft_gotcha")
    _refuse(report, text, signature)
    if report.findings:
        return report.emit(fmt, "no draft")
    try:
        document = (ROOT / into).read_text(encoding="utf-8")
    except OSError as error:
        raise from_os_error(error, f"read {ROOT / into}") from None
    entry_id = next_id(document, into)
    told["source"] += f"; reproduced by `{told['reproduced']}`"
    entry = f"### {entry_id} · {name}\nsignature: `{signature}`\n\n**Symptom** `{text}`\n"
    entry += "".join(f"**{key.title()}** {told[key]}\n" for key in ("cause", "fix", "check", "source"))
    patch = _diff(into, document, document.rstrip("\n") + "\n\n" + entry)
    if (ROOT / LABELS).is_file():  # an installed bundle has no tests
        slug = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
        around = b"\n".join(lines[max(0, number - 1 - _AROUND) : number + _AROUND])
        failure = around.decode("utf-8", "replace").replace("\r", "\n") + "\n"
        labels = (ROOT / LABELS).read_text(encoding="utf-8")
        labelled = labels.rstrip("\n") + f"\n{slug}: {{expect: [{entry_id}], made: real}}\n"
        patch += _diff(f"tests/triage/failures/{slug}.log", "", redact(_SECRET.sub(r"\1***", failure)))
        patch += _diff(LABELS, labels, labelled)
    path = Path(f"{entry_id}.patch")
    files.write_bytes(path, patch.encode())
    report.data = {"id": entry_id, "signature": signature, "patch": str(path)}
    return report.emit(fmt, f"{path}: {entry_id} for {into}; read it, then: git apply {path}")


def _lines(log: Path) -> list[bytes]:
    """As triage numbers them: the states of a progress bar are one line."""
    try:
        return log.read_bytes().replace(b"\r\n", b"\n").removesuffix(b"\n").split(b"\n")
    except OSError as error:
        raise from_os_error(error, f"read {log}") from None


def generalised(text: str) -> str:
    """A regex for this line in anybody's log: numbers, paths and quoted names may be others."""
    parts, end, text = [], 0, text[:_LONGEST]
    for match in _VARIES.finditer(text):
        first = match[0][0]
        kind = r"\S+" if first == "/" else f"{first}[^{first}]*{first}" if first in "'\"" else r"[\d.xa-f]+"
        parts += [re.escape(text[end : match.start()]), kind]
        end = match.end()
    return "".join([*parts, re.escape(text[end:])]).replace(r"\ ", " ")


def _refuse(report: Report, text: str, signature: str) -> None:
    """A second entry for a known disease hides both; a signature that healthy logs have is a false alarm."""
    if len(re.sub(r"\W|\d", "", text)) < 8:
        report.add("unknown", "error", f"{text!r} says too little to be told from other lines; choose another one")
    for entry in entries.load():
        hit, excluded = (any(re.search(one, text) for one in each) for each in (entry.signatures, entry.excluders))
        if hit and not excluded:
            report.add("known", "error", f"{entry.id} {entry.name} knows this line", path=entry.path, fix=entry.read)
    for healthy in sorted((ROOT / "tests/triage/healthy").glob("*")):
        if any(re.search(signature, bare_line(line).text) for line in _lines(healthy)):
            report.add("known", "error", "this healthy log has such a line, too; choose another one", path=healthy.name)
            return


def next_id(document: str, into: str) -> str:
    """One more than the highest of the catalogue; its letters are the catalogue's own."""
    ids = [re.fullmatch(r"([A-Z]+)(\d+)", entry.id) for entry in entries.parse(document, into)]
    found = [(match[1], int(match[2])) for match in ids if match]
    if not found:
        raise bad_input(f"{into} is no catalogue: it has no entry such as `### U7 · short name`")
    return f"{found[0][0]}{max(number for _, number in found) + 1}"


def _diff(name: str, old: str, new: str) -> str:
    before = f"a/{name}" if old else "/dev/null"
    head = f"diff --git a/{name} b/{name}\n" + ("" if old else "new file mode 100644\n")
    rows = difflib.unified_diff(old.splitlines(True), new.splitlines(True), before, f"b/{name}")
    return head + "".join(row if row.endswith("\n") else row + "\n" for row in rows)


if __name__ == "__main__":
    main()
