"""Whatever files and words a command gets: one documented exit code in bounded time, and never an error of ours."""

from __future__ import annotations

import json
import os
import random
import signal
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from rgt.run import record

import pytest

from . import front_door

SECONDS = 60  # of one call; a call that hangs is a failure
DEEP = 3000
NUMBERS = [
    "0",
    "-1",
    "1e999",
    "nan",
    "NaN",
    "Infinity",
    "-0.0",
    "9" * 400,
    "1e-400",
    "0x10",
    "١٢",
    "½",
    "true",
    "null",
    '""',
    "[]",
]
WORDS = [
    "",
    " ",
    "-",
    "--",
    "--json",
    "-h",
    "*",
    "~",
    "..",
    "/",
    "a:b",
    "box:",
    "host:/x",
    "%s",
    "{0}",
    "$(x)",
    "\n",
    "训练",
    "😀" * 50,
]
# {file}: a hostile file, {dir}: a folder of them, {run}: a run directory with one of its files replaced, {word}: a word
COMMANDS = """
watch {run} | watch {file} | watch {dir} | takeover snapshot {dir} | takeover snapshot {run} | triage {file} |
triage {dir} | triage {run} | triage --flight {dir} | verify_local {file} | verify_local {dir} |
verify_local {file} --expect {file} | checkpoints list {run} | checkpoints latest {run} |
checkpoints prune {run} --dry-run | compare_runs {run} --vs {run} --metric {word} |
compare_runs {file} --vs {file} --metric loss | compare_runs plan {run} --metric loss |
reconcile --values {file} {file} | reconcile --evidence {file} {file} |
leak_probe overlap --train {file} --test {file} | adopt {file} --dry-run | adopt {dir} --dry-run |
results {run} --metric {word} | wandb_forensics list {dir} | wandb_forensics list {file} |
launch submit {file} --on local --dry-run | launch status {run} | sweep plan {file} | preflight {file} |
remote_train --config {file} --dry-run | check_staleness {file} | manifest_scaffold claim check --evidence {file} |
render tables --evidence {file} | transfer pull {dir} {word} | transfer bills --profile {word} | lease cost {run} |
gpu_gate list --queue {dir} | guard check -- {word} | gpu_gate status {word} --queue {dir} | lease status {word}
""".split("|")


def hostile_bytes(chance: random.Random) -> bytes:
    """Nothing, noise, and texts that are nearly what a reader wants."""
    number, word = chance.choice(NUMBERS), chance.choice(WORDS)
    text = chance.choice(
        [
            "",
            "\n" * chance.randrange(2000),
            "[" * DEEP,
            '{"a":' * DEEP,
            f'{{"claims": [{{"id": "x", "value": {number}}}], "metrics": {number}, "files": {number}}}',
            json.dumps({"step": 1, "loss": word, "run_id": word, "config": {}, "command": [word]}),
            f"step,loss,{word}\n1,{number},{word}\n2,{number}\n,,,,\n",
            f"step {number} loss {number} lr {number}\r" * 50,
            f"name: {word!r}\ncommand: {number}\nenv: {{a: {number}}}\nnodes: {number}\n",
            f"# {word}\n\n| method | acc |\n|---|---|\n| {word} | {number} |\n\nWe reach {number} % in 2024.\n",
            f"\\begin{{tabular}}{{ll}} {word} & {number} \\\\ \\end{{tabular}} {number}\\%",
            "Traceback (most recent call last):\n" * 40 + f"{word}Error: {number}",
            "<table><tr><td>" * 500 + number,
            "---\n" + f"id: {number}\n" * 20 + "---\n",
            "a" * 300_000,
            "\ufeff\u202e\x1b[2J" + word + number,
        ]
    )
    data = text.encode(chance.choice(["utf-8", "utf-16", "utf-8-sig"]), "surrogatepass")
    if chance.random() < 0.3:  # a magic number, then something else
        heads = [
            b"PK\x03\x04",
            b"\x80\x04",
            b"\x80\x02",
            b"\x93NUMPY\x01\x00",
            b"\x89HDF\r\n\x1a\n",
            b"GGUF\x03\0\0\0",
            b"%PDF-1.7\n",
        ]
        heads += [
            b":W&B\xe1\xbe\x00",
            b"SQLite format 3\0",
            (1 << 62).to_bytes(8, "little"),
            (9).to_bytes(8, "little") + b"{}",
            b"\x1f\x8b",
        ]
        data = chance.choice(heads) + data[: chance.randrange(400)] + chance.randbytes(chance.randrange(400))
    if chance.random() < 0.2:
        data = data[: chance.randrange(len(data) + 1)]
    return data


NAMES = ["train.log", "x"] + [
    f"a.{ending}"
    for ending in "json yaml csv jsonl log pt safetensors md tex html ipynb npz onnx gguf db wandb docx".split()
]


RECORDS = ["run.json", "metrics.jsonl", "events.jsonl", "results.json", "checkpoints_index.json", "seal.json"]
RECORDS += ["train.log", "checkpoints"]


def hostile_file(path: Path, chance: random.Random) -> Path:
    kind = chance.random()
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind < 0.03:
        os.mkfifo(path)
    elif kind < 0.05:
        path.symlink_to(path)  # leads in circles
    elif kind < 0.07:
        path.symlink_to("/nowhere")
    elif kind < 0.09:
        path.mkdir()
    elif kind < 0.11:
        with zipfile.ZipFile(path, "w") as packed:
            packed.writestr(chance.choice(["x/data.pkl", "../x", "word/document.xml"]), hostile_bytes(chance))
    else:
        path.write_bytes(hostile_bytes(chance))
    return path


class Hang(BaseException):
    """Not an Exception: a tool may take a TimeoutError for a sick disk, and say so."""


class Room:
    """Hostile things, each made for one call."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self.chance, self.count = folder, chance, 0

    def fill(self, template: str) -> list[str]:
        makers: dict[str, Callable[[], str]] = {
            "{file}": self.file,
            "{dir}": self.directory,
            "{run}": self.run,
            "{word}": self.word,
        }
        words = [makers[part]() if part in makers else part for part in template.split()]
        if self.chance.random() < 0.1:
            words.append(self.word())
        return [word.replace("\0", "") for word in words]

    def _new(self) -> Path:
        self.count += 1
        return self.folder / str(self.count)

    def file(self) -> str:
        return str(hostile_file(self._new() / self.chance.choice(NAMES), self.chance))

    def directory(self) -> str:
        place = self._new()
        for name in self.chance.sample(NAMES, 4):
            hostile_file(place / name, self.chance)
        return str(place)

    def run(self) -> str:
        run = record.create(self._new(), "a", command=["x"], config={}, seeds={})
        run.log_metrics(step=1, split="train", loss=1.0)
        for name in self.chance.sample(RECORDS, 2):
            path = run.path / name
            path.unlink() if path.is_file() else path.rmdir() if path.is_dir() else None
            hostile_file(path, self.chance)
        return str(run.path)

    def word(self) -> str:
        return self.chance.choice(WORDS + NUMBERS)


def calls(folder: Path, seed: int) -> Iterator[list[str]]:
    room = Room(folder, random.Random(seed))
    while True:
        yield room.fill(room.chance.choice(COMMANDS))


def fuzz(folder: Path, seed: int, most: int, until: float, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    monkeypatch.chdir(folder)
    failures, slowest, done = [], (0.0, [""]), 0

    def late(*_: object) -> None:
        raise Hang(f"no end within {SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    for words in calls(folder, seed):
        if done == most or time.monotonic() > until:
            break
        signal.alarm(SECONDS)
        began = time.monotonic()
        try:
            told = front_door.call(f"{words[0]}.py", *words[1:])
            if told.returncode not in (0, 1, 2, 3, 4):
                failures.append(f"exit {told.returncode}: {words}: {told.stderr[-400:]}")
        except (Exception, Hang) as error:
            failures.append(f"{type(error).__name__} {error}: {words}")
        finally:
            signal.alarm(0)
        done, slowest = done + 1, max(slowest, (time.monotonic() - began, words))
    print(f"\nfuzz, seed {seed}: {done} calls, {len(failures)} failures, slowest {slowest[0]:.1f} s: {slowest[1]}")
    assert not failures, f"{len(failures)} of {done}:\n" + "\n".join(failures[:20])
    return done


@pytest.mark.parametrize("seed", range(2))
def test_no_input_is_an_error_of_ours(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fuzz(tmp_path, seed, 120, time.monotonic() + 240, monkeypatch)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 104))
def test_no_input_is_an_error_of_ours_for_minutes(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fuzz(tmp_path, seed, 100_000, time.monotonic() + 600, monkeypatch) > 200
