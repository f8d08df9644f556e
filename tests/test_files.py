"""rgt.files: a file is the old one or the new one, an acknowledged row is never lost, a full disk is a sentence."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import json
import math
import os
import random
import re
import signal
import stat
import struct
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rgt import files
from rgt.errors import BAD_INPUT, ENVIRONMENT, RgtError
from rgt.files import append_jsonl, read_json, read_jsonl, write_json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .real import disk
from .real.disk import TinyDisk

NUMBERS = st.integers() | st.integers(-(10**1000), 10**1000) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | st.text() | NUMBERS
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)
ROWS = st.lists(st.dictionaries(st.text(), SCALARS | st.lists(SCALARS, max_size=2), max_size=3), max_size=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples of a property."""
    return tmp_path_factory.mktemp("files")


def rows_of(path: Path) -> list[dict[str, Any]]:
    return list(read_jsonl(path))


def refused(act: Callable[..., object], *words: Any, code: int = BAD_INPUT) -> str:
    """The message with which `act` fails, having checked that it is one readable line."""
    with pytest.raises(RgtError) as caught:
        act(*words)
    message = caught.value.message
    assert message and "\n" not in message and len(message) < 1000 and caught.value.exit_code == code
    return message


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


# --- round trips -----------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(VALUES)
def test_write_json_then_read_json_gives_the_same(folder: Path, value: Any) -> None:
    write_json(folder / "value.json", value)
    assert read_json(folder / "value.json") == value


@settings(deadline=None, max_examples=30)
@given(ROWS)
def test_append_jsonl_then_read_jsonl_gives_the_same_rows(folder: Path, rows: list[dict[str, Any]]) -> None:
    path = folder / "rows.jsonl"
    path.write_bytes(b"")
    for row in rows:
        append_jsonl(path, row)
    assert rows_of(path) == rows
    assert path.read_bytes().count(b"\n") == len(rows)


def test_the_name_of_a_file_that_is_not_utf_8_survives(tmp_path: Path) -> None:
    """os.listdir gives lone surrogates for such a name; they must not end in a UnicodeEncodeError."""
    name = os.fsdecode(b"caf\xe9.pt")
    write_json(tmp_path / "a.json", {"path": name})
    append_jsonl(tmp_path / "a.jsonl", {"path": name})
    assert read_json(tmp_path / "a.json") == {"path": name}
    assert list(read_jsonl(tmp_path / "a.jsonl")) == [{"path": name}]


# --- killed writers --------------------------------------------------------------------------------------------

ACK = struct.Struct("<q")
READ_BACK_SECONDS = 0.005  # a kill comes at a random moment in this time: about the length of one fsynced write


Acknowledge = Callable[[int], object]
Work = Callable[[Acknowledge], None]


class Writer:
    """A forked child that works until SIGKILL and acknowledges each finished write over a pipe."""

    def __init__(self, work: Work) -> None:
        self.pipe, acks = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                work(lambda number: os.write(acks, ACK.pack(number)))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(acks)

    def wait_for_ack(self) -> int:
        data = os.read(self.pipe, ACK.size)
        assert data, "the writer died by itself"
        return int(ACK.unpack(data)[0])

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def reap(self) -> list[int]:
        """Acknowledgements not yet read. The pipe ends when the child is dead."""
        _, status = os.waitpid(self.pid, 0)
        with os.fdopen(self.pipe, "rb") as pipe:
            rest = pipe.read()
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, "the writer died by itself"
        return [int(number) for (number,) in ACK.iter_unpack(rest)]


@contextlib.contextmanager
def writers(*works: Work) -> Iterator[list[Writer]]:
    """Writers that are dead afterwards, also when the test fails in between."""
    running = [Writer(work) for work in works]
    try:
        yield running
    except BaseException:
        for writer in running:
            writer.kill()
            writer.reap()
        raise


def document(version: int, length: int) -> dict[str, Any]:
    payload = f"{version} 损失 " * length
    return {"version": version, "payload": payload, "sha256": hashlib.sha256(payload.encode()).hexdigest()}


def version_of(path: Path) -> int:
    """The version in the file, having checked that the file is whole."""
    data = json.loads(path.read_bytes())
    assert hashlib.sha256(data["payload"].encode()).hexdigest() == data["sha256"]
    return int(data["version"])


def rewrite_forever(path: Path, seed: int) -> Work:
    def work(acknowledge: Acknowledge) -> None:
        dice = random.Random(seed)
        for version in itertools.count(read_json(path)["version"] + 1):
            write_json(path, document(version, dice.choice([0, 10, 1_000, 10_000])))
            acknowledge(version)

    return work


@pytest.mark.parametrize("kills", [50, pytest.param(5000, marks=pytest.mark.soak)])
def test_write_json_under_sigkill_leaves_the_old_file_or_the_new_one(tmp_path: Path, kills: int) -> None:
    path = tmp_path / "state.json"
    write_json(path, document(0, 1))
    dice, seen = random.Random(kills), 0
    for kill in range(kills):
        with writers(rewrite_forever(path, kill)) as (writer,):
            acked = writer.wait_for_ack()
            deadline = time.monotonic() + dice.uniform(0, READ_BACK_SECONDS)
            while time.monotonic() < deadline:  # whoever reads meanwhile sees a whole file, too
                now = version_of(path)
                assert now >= seen
                seen = now
            writer.kill()
        acked = max([acked, *writer.reap()])
        seen = version_of(path)
        assert seen in (acked, acked + 1), "an acknowledged write is lost or an unknown one appeared"
    assert seen >= kills
    left_over = names(tmp_path) - {"state.json"}
    assert left_over, "no kill came in the middle of a write: this test would prove nothing"
    assert [name for name in left_over if not re.fullmatch(r"\.state\.json\.\w+\.tmp", name)] == []
    assert list(tmp_path.glob("*.json")) == [path]


@pytest.mark.parametrize(
    ("module", "step", "version"),
    [(os, "fchmod", 0), (os, "fsync", 0), (os, "replace", 0), (files, "sync_directory", 1)],
)
def test_a_crash_just_before_each_step(tmp_path: Path, module: Any, step: str, version: int) -> None:
    path = tmp_path / "state.json"
    write_json(path, document(0, 1))

    def work(_: Acknowledge) -> None:
        setattr(module, step, lambda *arguments: os.kill(os.getpid(), signal.SIGKILL))
        write_json(path, document(1, 1))

    with writers(work) as (writer,):
        writer.reap()
    assert version_of(path) == version
    write_json(path, document(2, 1))
    assert version_of(path) == 2


Key = tuple[int, int, int]


def append_forever(path: Path, turn: int, name: int) -> Work:
    def work(acknowledge: Acknowledge) -> None:
        dice = random.Random(turn * 1000 + name)
        for number in itertools.count(1):
            row = {"turn": turn, "writer": name, **document(number, dice.choice([0, 10, 200, 4_000]))}
            append_jsonl(path, row)
            acknowledge(number)

    return work


def die_inside_a_line(path: Path) -> Work:
    """A crash in the middle of write(2) while the others wait for the lock; a kill from outside seldom hits that."""

    def work(_: Acknowledge) -> None:
        with path.open("ab", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(b'{"turn": -1, "payload": "half a charact\xe6\x8d')
            os.kill(os.getpid(), signal.SIGKILL)

    return work


def keys_of(path: Path) -> list[Key]:
    """(turn, writer, number) of every row, having checked each; a broken line before the last raises."""
    keys = []
    for row in read_jsonl(path):
        assert hashlib.sha256(row["payload"].encode()).hexdigest() == row["sha256"]
        keys.append((row["turn"], row["writer"], row["version"]))
    return keys


def kill_appenders(path: Path, turn: int, count: int, delay: float) -> dict[int, int]:
    """Run `count` writers at once, let one more die among them, kill all; writer -> last number it acknowledged."""
    with writers(*(append_forever(path, turn, name) for name in range(count))) as running:
        acked = {name: writer.wait_for_ack() for name, writer in enumerate(running)}
        with writers(die_inside_a_line(path)) as (dying,):
            dying.reap()
        time.sleep(delay)
        for writer in running:
            writer.kill()
    return {name: max([acked[name], *writer.reap()]) for name, writer in enumerate(running)}


@pytest.mark.parametrize("kills", [50, pytest.param(5000, marks=pytest.mark.soak)])
def test_append_jsonl_under_sigkill_keeps_every_acknowledged_row_once(tmp_path: Path, kills: int) -> None:
    count, dice = 4, random.Random(kills)
    for turn in range(kills // (count + 1)):
        path = tmp_path / f"rows-{turn // 10}.jsonl"  # ten turns in one file, so that crashes meet earlier crashes
        acked = kill_appenders(path, turn, count, dice.uniform(0, READ_BACK_SECONDS))
        keys = keys_of(path)
        assert len(keys) == len(set(keys)), "a row is there twice"
        for name, last in acked.items():
            numbers = [number for key_turn, writer, number in keys if (key_turn, writer) == (turn, name)]
            assert numbers == list(range(1, len(numbers) + 1)), "a row is missing or out of order"
            assert len(numbers) in (last, last + 1), "an acknowledged row is lost"
    assert all(name.startswith("rows-") for name in names(tmp_path))


# --- torn last lines -------------------------------------------------------------------------------------------

FIRST: list[dict[str, Any]] = [{"step": 1, "loss": 2.5}, {"step": 2, "loss": 2.25, "note": "损失下降 😀"}]
LAST: dict[str, Any] = {"step": 3, "note": 'é 梯度 😀 \\ "quoted" {}', "nested": {"a": [1, {"b": None}]}}
NEXT = {"step": 4}


def line(row: dict[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


@pytest.mark.parametrize("before", [FIRST, []], ids=["after two rows", "alone in the file"])
def test_a_last_line_torn_at_any_byte_is_skipped_and_healed(tmp_path: Path, before: list[dict[str, Any]]) -> None:
    path = tmp_path / "rows.jsonl"
    whole, last = b"".join(map(line, before)), line(LAST)
    torn = [last[:cut] for cut in range(len(last) - 1)]  # up to all but "}\n"; many cuts are inside a character
    for rest in [*torn, b'{"big": "' + b"x" * 200_000]:  # and one that is longer than a step of the search
        path.write_bytes(whole + rest)
        assert rows_of(path) == before
        append_jsonl(path, NEXT)
        assert path.read_bytes() == whole + line(NEXT)


def test_a_last_line_that_only_lacks_its_newline_is_a_row(tmp_path: Path) -> None:
    """Other people's writers join with newlines. No prefix of an object is an object, so nothing is guessed."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(line(FIRST[0]) + line(LAST).rstrip(b"\n"))
    assert rows_of(path) == [FIRST[0], LAST]
    append_jsonl(path, NEXT)
    assert rows_of(path) == [FIRST[0], LAST, NEXT]


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(line(FIRST[0]) + b'{"step": 2, "lo\n' + b"[3]\n" + b"\n" + b"\xff\n" + line(LAST))
    assert refused(rows_of, path) == f'{path} line 2 is not JSON: b\'{{"step": 2, "lo\\n\''
    bad: list[str] = []
    assert list(read_jsonl(path, bad=bad)) == [FIRST[0], LAST]
    assert [problem.removeprefix(f"{path} ") for problem in bad] == [
        'line 2 is not JSON: b\'{"step": 2, "lo\\n\'',
        "line 3 is a list; expected an object",
        "line 5 is not JSON: b'\\xff\\n'",
    ]


# --- a full disk -----------------------------------------------------------------------------------------------


tiny_disk = disk.tiny_disk


def fill(point: Path, free: int = 0) -> None:
    """Leave `free` bytes."""
    space = os.statvfs(point)
    (point / "filler").write_bytes(b"x" * (space.f_bavail * space.f_frsize - free))


@pytest.mark.parametrize("free", [0, 4096, 8192])
def test_write_json_on_a_full_disk_keeps_the_old_file(tiny_disk: TinyDisk, free: int) -> None:
    small_disk = tiny_disk("64k")
    path = small_disk / "run.json"
    write_json(path, {"old": True})
    fill(small_disk, free)
    message = refused(write_json, path, {"new": "x" * 40_000}, code=ENVIRONMENT)
    assert message == f"cannot write {path}: No space left on device"
    assert read_json(path) == {"old": True}
    assert names(small_disk) == {"run.json", "filler"}


@pytest.mark.parametrize("length", [13_000, 40_000])
@pytest.mark.parametrize("free", [0, 4096, 8192])
def test_append_jsonl_on_a_full_disk_keeps_the_rows(tiny_disk: TinyDisk, free: int, length: int) -> None:
    """A short write takes the first pages of the line; they must go, and no rest may be flushed at close."""
    small_disk = tiny_disk("64k")
    path = small_disk / "metrics.jsonl"
    append_jsonl(path, {"step": 1})
    fill(small_disk, free)
    before = path.read_bytes()
    message = refused(append_jsonl, path, {"new": "x" * length}, code=ENVIRONMENT)
    assert message == f"cannot append to {path}: No space left on device"
    assert path.read_bytes() == before
    (small_disk / "filler").unlink()
    append_jsonl(path, {"step": 2})
    assert path.read_bytes() == before + line({"step": 2})


# --- permissions -----------------------------------------------------------------------------------------------


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_rewritten_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for before in (0o600, 0o640, 0o664, 0o444):
        write_json(path, 1)
        path.chmod(before)
        write_json(path, before)
        assert (mode(path), read_json(path)) == (before, before)


@pytest.mark.parametrize(("mask", "expected"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_a_new_file_has_the_mode_of_the_umask(tmp_path: Path, mask: int, expected: int) -> None:
    before = os.umask(mask)
    try:
        write_json(tmp_path / "a.json", 1)
        append_jsonl(tmp_path / "a.jsonl", {})
    finally:
        assert os.umask(before) == mask, "the umask itself is left as it was"
    assert (mode(tmp_path / "a.json"), mode(tmp_path / "a.jsonl")) == (expected, expected)


# --- what cannot be written ------------------------------------------------------------------------------------


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


UNFIT: list[tuple[Any, str]] = [
    (math.nan, "Out of range float values are not JSON compliant"),
    (math.inf, "Out of range float values are not JSON compliant"),
    ({1, 2}, "Object of type set is not JSON serializable"),
    (b"bytes", "Object of type bytes is not JSON serializable"),
    ({(1, 2): 3}, "keys must be str, int, float, bool or None, not tuple"),
    (10**5000, "Exceeds the limit"),
    (nested(100_000), "nested too deep"),
]


def test_what_json_cannot_hold_is_said_and_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"old": 1})
    for value, why in UNFIT:
        message = refused(write_json, path, {"key": value})
        assert message.startswith(f"{path} cannot hold this as JSON: ") and why in message
        refused(append_jsonl, tmp_path / "a.jsonl", {"key": value})
        assert read_json(path) == {"old": 1} and names(tmp_path) == {"a.json"}


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    seal, row, path = tmp_path / "seal.json", {"event": "exploded"}, tmp_path / "no" / "a.json"
    assert "does not fit the seal schema" in refused(write_json, seal, {}, "seal")
    assert "does not fit the events schema" in refused(append_jsonl, tmp_path / "events.jsonl", row, "events")
    assert refused(write_json, path, 1) == f"cannot write {path}: No such file or directory"
    assert refused(append_jsonl, path, {}) == f"cannot append to {path}: No such file or directory"
    assert names(tmp_path) == set()
    seal.mkdir()
    assert refused(write_json, seal, 1) == f"cannot write {seal}: Is a directory"
    assert names(tmp_path) == {"seal.json"}


def test_a_writer_that_fails_half_way_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    files.write_bytes(path, b"old")

    def half(file: Any) -> None:
        file.write(b"new, but only ha")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.write_with(path, half)
    assert path.read_bytes() == b"old" and names(tmp_path) == {"model.pt"}


# --- what cannot be read ---------------------------------------------------------------------------------------


UNREADABLE = {
    b"": "is empty; expected JSON",
    b" \n\t": "is empty; expected JSON",
    b'{"a": "caf\xe9"}': "is not text: byte 10 is not UTF-8",
    b"\x80\x04\x95": "is not text: byte 0 is not UTF-8",
    b'{"a": 1,\n "b": [1, 2': "line 2 is not JSON: Expecting ',' delimiter",
    b"{'a': 1}": "line 1 is not JSON: Expecting property name enclosed in double quotes",
    b"[" * 100_000: "is not usable JSON: nested too deep",
    b"9" * 5000: "is not usable JSON: Exceeds the limit (4300 digits) for integer string conversion",
}


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    assert refused(read_json, path) == refused(rows_of, path) == f"{path} does not exist"
    for content, expected in UNREADABLE.items():
        path.write_bytes(content)
        assert refused(read_json, path).startswith(f"{path} {expected}")
    for content in (b"[" * 100_000, b"9" * 5000):
        path.write_bytes(content + b"\n")
        assert refused(rows_of, path).startswith(f"{path} line 1 is not JSON")
    for read in (read_json, rows_of):
        assert refused(read, tmp_path) == f"{tmp_path} is not a plain file"
    assert refused(append_jsonl, tmp_path, {}) == f"cannot append to {tmp_path}: Is a directory"


def test_nesting_around_the_limit_is_a_sentence_with_a_schema_too(tmp_path: Path) -> None:
    """What json still parses, the validator's own frames and its repr may no longer hold."""
    path = tmp_path / "a.json"
    for depth in (300, 900, 950, 970, 980, 990, 1000, 1100):
        path.write_text("[" * depth + "]" * depth)
        assert refused(read_json, path, "run")


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_in_a_sentence(folder: Path, content: bytes) -> None:
    path = folder / "noise"
    path.write_bytes(content)
    with contextlib.suppress(RgtError):
        read_json(path)
    with contextlib.suppress(RgtError):
        list(read_jsonl(path))
    assert all(isinstance(row, dict) for row in read_jsonl(path, bad=[]))
