"""leak_probe: planted leaks are found, coincidences are not called leaks, and hostile splits get a sentence."""

from __future__ import annotations

import csv
import functools
import json
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

from rgt.leak_probe import leak_findings, normal, splits

import numpy as np
import pytest
from PIL import Image

from . import front_door, planted

run = functools.partial(front_door.call, "leak_probe.py")
report = functools.partial(front_door.report, "leak_probe.py")


def overlap(train: Path, test: Path, *options: object) -> dict[str, Any]:
    return report("overlap", "--train", train, "--test", test, *options)


def codes(found: dict[str, Any], *severities: str) -> list[str]:
    return [f["code"] for f in found["findings"] if f["severity"] in (severities or ("error", "warn"))]


def matched(found: dict[str, Any], kind: str, offset: int = 1) -> set[int]:
    """Indices of test items; `offset` is the line of the first."""
    return {int(m["item"].rpartition(":")[2]) - offset for m in found["matches"] if m["kind"] == kind}


def table(path: Path, rows: list[list[Any]], header: str) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writerows([header.split(","), *rows])
    return path


def lines(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(rows) + "\n")
    return path


def jsonl(path: Path, rows: list[Any]) -> Path:
    return lines(path, [json.dumps(row) for row in rows])


def check(exact: set[Any], near: set[Any], found_exact: set[Any], found_near: set[Any]) -> None:
    """Recall of exact, recall of near, precision of all. A near one found as exact was normalised away: it is found."""
    found = found_exact | found_near
    assert len(exact & found_exact) >= 0.99 * len(exact), exact - found_exact
    assert len(near & found) >= 0.95 * len(near), near - found
    assert len(found & (exact | near)) >= 0.99 * len(found), found - exact - near


# -- planted leaks


def test_planted_text(tmp_path: Path) -> None:
    train, test, exact, near = planted.texts(2400)
    found = overlap(lines(tmp_path / "a.txt", train), lines(tmp_path / "b.txt", test))
    assert len(exact) > 40 and len(near) > 40
    check(exact, near, matched(found, "exact"), matched(found, "near"))
    assert codes(found) == ["leak", "near-duplicate"]
    assert found["pairs"][0]["coincidence"] > 20  # "yes", "thank you": counted, not called leaks


def test_planted_rows(tmp_path: Path) -> None:
    train, test, exact, near = planted.rows(4000)
    header = "id,a,b,c,d,e,f,n,m,flag,kind"
    one = table(tmp_path / "a.csv", [[index, *row] for index, row in enumerate(train)], header)
    other = table(tmp_path / "b.tsv", [[9_000_000 + 7 * i, *row] for i, row in enumerate(test)], header)
    found = overlap(one, other)
    assert len(exact) > 80 and len(near) > 80
    check(exact, near, matched(found, "exact", 2), matched(found, "near", 2))
    assert found["compared"]["ignored"] == ["id"]


def test_planted_images(tmp_path: Path) -> None:
    train, test, exact, near = planted.images(tmp_path, 120)
    found = overlap(train, test)
    kinds = ("exact", "near", "coincidence")
    named = [{Path(m["item"]).name for m in found["matches"] if m["kind"] == kind} for kind in kinds]
    check(exact, near, named[0], named[1])
    assert named[2] == {"blank.png"}
    assert overlap(*planted.digits(tmp_path / "of one class", 60))["pairs"][0]["near"] == 0


def measured(size: int, seed: int) -> list[list[Any]]:
    rows: list[list[Any]] = np.random.default_rng(seed).normal(size=(size, 4)).round(4).tolist()
    return rows


def test_a_copy_with_another_label_is_a_near_duplicate(tmp_path: Path) -> None:
    train, test = ([[*row, at % 2] for at, row in enumerate(measured(200, seed))] for seed in (0, 1))
    test[:5] = [[*row[:-1], 1 - row[-1]] for row in train[50:55]]
    paths = [
        table(tmp_path / f"{name}.csv", rows, "a,b,c,d,label") for name, rows in (("train", train), ("test", test))
    ]
    assert matched(overlap(*paths), "near", 2) == {*range(5)}


def test_numbers_in_other_formats_and_new_codes_are_copies(tmp_path: Path) -> None:
    train = [
        [f"{at * 7919 % 99991:08x}0a", *[round(1000 * abs(x), 1) for x in row]]
        for at, row in enumerate(measured(100, 0))
    ]
    test = [[f"{at:08x}ff", *[f"{x:,.7f}" for x in row[1:]]] for at, row in enumerate(train[:10])]
    german = [[f"{x:.7f}".replace(".", ",") for x in row[1:]] for row in train[:10]]
    one = table(tmp_path / "train.csv", train, "tx,a,b,c,d")
    assert len(matched(overlap(one, table(tmp_path / "test.csv", test, "tx,a,b,c,d")), "exact", 2)) == 10
    other = lines(tmp_path / "german.csv", ["a;b;c;d", *(";".join(row) for row in german)])
    assert len(matched(overlap(one, other), "exact", 2)) == 10


def test_a_record_of_several_lines_is_named_by_its_first(tmp_path: Path) -> None:
    rows = [[at, f"{at * at} words that\nstand on two lines"] for at in range(30)]
    paths = [table(tmp_path / f"{name}.csv", part, "id,text") for name, part in (("a", rows[:20]), ("b", rows[15:]))]
    places = {match["item"].rpartition(":")[2] for match in overlap(*paths)["matches"]}
    assert places == {"2", "4", "6", "8", "10"}


def test_pictures_that_all_look_alike_are_judged_by_what_is_their_own(tmp_path: Path) -> None:
    noise = np.random.default_rng(0)
    y, x = np.mgrid[-1:1:96j, -1:1:96j]
    for split, size in (("train", 60), ("test", 40)):
        (tmp_path / split).mkdir()
        for at in range(size):
            ring = (x / noise.uniform(0.68, 0.76)) ** 2 + (y / noise.uniform(0.84, 0.92)) ** 2
            organ = 220 * (abs(ring - 1) < 0.12) + 110 * (ring < 0.88) + noise.normal(0, 6, ring.shape)
            for spot in noise.uniform(-0.5, 0.5, (3, 2)):
                organ[(x - spot[0]) ** 2 + (y - spot[1]) ** 2 < 0.02] = 20
            Image.fromarray(organ.clip(0, 255).astype(np.uint8)).save(tmp_path / split / f"{at}.png")
    for at in range(4):
        Image.open(tmp_path / "train" / f"{at}.png").save(tmp_path / "test" / f"copy{at}.jpg", quality=80)
    found = overlap(tmp_path / "train", tmp_path / "test")
    assert {Path(m["item"]).name for m in found["matches"] if m["kind"] == "near"} == {
        f"copy{at}.jpg" for at in range(4)
    }


def test_rows_that_coincide_by_chance_are_no_leak(tmp_path: Path) -> None:
    """Two measured columns beside three coarse ones: the copies stand out, the coincidences do not."""
    noise = np.random.default_rng(0)
    coarse = noise.integers(0, 3, (1700, 3)).tolist()
    train = [[*row, *noise.normal(size=2).round(6)] for row in coarse[:1000]]
    unmeasured = [[*row, 0.0, 0.0] for row in coarse[1000:]]
    test = train[:20] + unmeasured[:180]
    paths = [table(tmp_path / f"{n}.csv", rows, "x,y,z,v,w") for n, rows in enumerate((train + unmeasured[200:], test))]
    found = overlap(paths[0], paths[1])
    assert matched(found, "exact", 2) == set(range(20)) and found["pairs"][0]["coincidence"] == 180


def test_boilerplate_lines_are_no_leak(tmp_path: Path) -> None:
    train = planted.texts(400, seed=3)[0]
    footer = "All rights reserved; reproduction without written permission of the publisher is not allowed."
    clean = [f"{word} {number}" for number, word in enumerate(train[:300])]
    other = [f"{number} unrelated {word}" for number, word in enumerate(reversed(clean[200:]))]
    one, two = lines(tmp_path / "a.txt", clean[:200] + [footer] * 9), lines(tmp_path / "b.txt", other + [footer] * 4)
    found = overlap(one, two)
    assert found["pairs"][0]["coincidence"] == 4 and "leak" not in codes(found)


def test_arrays_by_rows(tmp_path: Path) -> None:
    noise = np.random.default_rng(0)
    train = noise.integers(0, 256, (600, 8, 8)).astype(np.uint8)
    test = noise.integers(0, 256, (200, 8, 8)).astype(np.uint8)
    test[:10], test[10:20] = train[:10], np.clip(train[10:20].astype(int) + 1, 0, 255)
    np.savez(tmp_path / "a.npz", x=train, y=np.arange(600) % 2)
    np.savez(tmp_path / "b.npz", x=test.astype(np.float32), y=np.arange(200) % 2)  # another dtype, the same values
    found = overlap(tmp_path / "a.npz", tmp_path / "b.npz")
    assert (matched(found, "exact", 0), matched(found, "near", 0)) == (set(range(10)), set(range(10, 20)))


def test_json_columns_by_name_numbers_by_value_ids_ignored(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=300).tolist()
    rows: list[Any] = [{"id": n, "x": v, "y": round(v**2, 9), "on": True} for n, v in enumerate(values)]
    rows[0] |= {"x": 17.0, "y": 1e3}
    same = {"y": "1000", "on": True, "x": 17, "id": "other"}
    found = overlap(jsonl(tmp_path / "a.jsonl", rows[:200]), jsonl(tmp_path / "b.jsonl", [*rows[200:], same]))
    assert matched(found, "exact") == {100}


def test_chat_messages_count_as_text_and_another_label_hides_nothing(tmp_path: Path) -> None:
    train, _, _, _ = planted.texts(400, seed=5)
    long = [text for text in train if len(text) > 100]
    rows = [{"messages": [{"role": "user", "content": text}], "label": 0} for text in long]
    test = [{"messages": [{"role": "user", "content": long[3] + "."}], "label": 1}]
    found = overlap(jsonl(tmp_path / "a.jsonl", rows[:150]), jsonl(tmp_path / "b.jsonl", test + rows[150:160]))
    assert matched(found, "near") == {0} and found["compared"]["near_by"] == "text"


def test_three_splits_and_the_larger_test(tmp_path: Path) -> None:
    """Every pair is looked at, and test may be the largest split: then train is the one that is held."""
    train = planted.texts(600, seed=2)[0]
    base = [text for text in train if len(text) > 150 and planted.LICENCE not in text]
    paths = [lines(tmp_path / "a.txt", base[:40]), lines(tmp_path / "b.txt", base[38:60])]
    large = lines(tmp_path / "c.txt", [*base[60:200], base[0] + " more", base[59]])
    found = report("overlap", "--train", paths[0], "--val", paths[1], "--test", large)
    counts = {(pair["a"], pair["b"]): (pair["exact"], pair["near"]) for pair in found["pairs"]}
    assert counts == {("train", "val"): (2, 0), ("train", "test"): (0, 1), ("val", "test"): (1, 0)}


def test_folder_of_anything(tmp_path: Path) -> None:
    """Text and JSON by their words, arrays by values, the rest by bytes; a link counts as what it leads to."""
    a, b = tmp_path / "a", tmp_path / "b"
    for path, content in {
        a / "x.txt": b"The quick brown fox jumps over the lazy dog",
        b / "y.md": b"the QUICK brown fox,\njumps over the lazy dog!\n",
        a / "x.json": b'{"boxes": [[1, 2, 3, 4]], "name": "street 17"}',
        b / "deep" / "y.json": b'{"boxes": [[1, 2, 3, 4]],\n "name": "street 17"}',
        a / "x.bin": bytes(range(256)),
        b / "own.txt": b"a text that only the test split has, of some length",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    np.save(a / "x.npy", np.arange(9.0))
    np.save(b / "y.npy", np.arange(9, dtype=np.int32))
    for folder in (a, b):
        (folder / "empty").touch()
    (b / "y.bin").symlink_to(a / "x.bin")
    (b / "deep" / "loop").symlink_to(b)
    found = overlap(a, b)
    assert {Path(m["item"]).name for m in found["matches"]} == {"y.md", "y.json", "y.npy", "y.bin"}
    assert {m["kind"] for m in found["matches"]} == {"exact"}


def test_shards_of_a_table_are_one_split(tmp_path: Path) -> None:
    train, _, _, _ = planted.texts(200, seed=7)
    long = [{"text": text} for text in train if len(text) > 100 and planted.LICENCE not in text]
    for name, some in (("a", long[:60]), ("b", [*long[70:100], long[42]])):
        (tmp_path / name).mkdir()
        jsonl(tmp_path / name / "0.jsonl", some[:20])
        jsonl(tmp_path / name / "1.jsonl", some[20:])
    found = overlap(tmp_path / "a", tmp_path / "b")
    (match,) = [m for m in found["matches"] if m["kind"] == "exact"]
    assert match["item"].endswith("b/1.jsonl:11") and match["same_as"].endswith("a/1.jsonl:23")


# -- what is the same


def test_normal_form_of_text() -> None:
    same = {"Hello,  World!": "hello world", "ﬁne Ｔext": "fine text", "Straße": "STRASSE", "深度学习。": "深度学习"}
    same["well-known fact"] = "well known fact"
    other = {"what is 3 - 4": "what is 3 + 4", "x = -5": "x = 5", "a < b": "a > b", "naïve": "naive"}
    assert [pair for pair in same.items() if normal.text(pair[0]) != normal.text(pair[1])] == []
    assert [pair for pair in other.items() if normal.text(pair[0]) == normal.text(pair[1])] == []


def test_normal_form_of_cells() -> None:
    same = [("1.0", 1), ("1e3", "1000"), (-0.0, "0"), ("", None), ("NaN", None), ("0.1", 0.1), (True, "true")]
    for one, other in [*same, ("1", "01x"), (2**60, 2**60 + 1), ("1", "2")]:
        for beside in ([], ["word"]):  # a column of numbers, and one that has a word as well
            found = [normal.cells([*beside, cell])[0][-1] for cell in (one, other)]
            assert (found[0] == found[1]) == ((one, other) in same), (one, other)


# -- groups


def visits(path: Path, patients: list[str], day: int = 1) -> Path:
    noise = np.random.default_rng(len(patients) + day)
    rows = [[p, f"2026-01-{day + n % 9:02d}", *noise.normal(size=3).round(5)] for n, p in enumerate(patients)]
    return table(path, rows, "patient_id,visit,a,b,c")


def test_the_same_patient_in_two_splits(tmp_path: Path) -> None:
    train = visits(tmp_path / "a.csv", [f"p{n % 30}" for n in range(90)])
    test = visits(tmp_path / "b.csv", [f"p{n + 25}" for n in range(20)], day=12)
    guessed = overlap(train, test)
    assert codes(guessed, "warn") == ["group-leak"] and not codes(guessed, "error")
    asked = overlap(train, test, "--group", "patient_id")
    (finding,) = asked["findings"]
    assert (finding["code"], finding["severity"], finding["where"]) == ("group-leak", "error", "patient_id")
    assert finding["message"] == "5 of 20 values of patient_id in test are also in train (5 of 20 items)"
    assert f"{test}:2 and {train}:27" in finding["evidence"]
    test = visits(tmp_path / "b.csv", [f"p{n + 50}" for n in range(20)], day=12)
    done = run("overlap", "--train", train, "--test", test, "--group", "patient_id")
    assert done.returncode == 0
    assert done.stdout == (
        "no item is shared by two splits; items: train 90, test 20; columns compared: visit, a, b, c; "
        "left out as ids or groups: patient_id\n"
    )


def test_patients_in_file_names(tmp_path: Path) -> None:
    for split, numbers in (("a", range(20)), ("b", range(15, 35))):
        (tmp_path / split).mkdir()
        for number in numbers:
            content = f"{split} {number} ".encode() * 9 + b"\0"
            (tmp_path / split / f"patient{number:03d}_slice_{split}.bin").write_bytes(content)
    found = overlap(tmp_path / "a", tmp_path / "b")
    assert codes(found) == ["group-leak"] and found["findings"][0]["message"].startswith("5 of 20 values of file name")


# -- pins


@pytest.fixture
def pinned(tmp_path: Path) -> Path:
    for split, names in (("train", "abc"), ("test", "xy")):
        (tmp_path / split).mkdir()
        for name in names:
            (tmp_path / split / name).write_text(name)
    out = tmp_path / "SPLITS.json"
    words = ["--train", tmp_path / "train", "--test", tmp_path / "test", "--out", out]
    said = f"train {tmp_path}/train (3 files), test {tmp_path}/test (2 files)\n"
    assert run("pin", *words, "--dry-run").stdout == f"would pin in {out}: {said}" and not out.exists()
    assert run("pin", *words).stdout == f"pinned in {out}: {said}"
    return out


def test_pin_names_changed_new_gone_and_moved_files(pinned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")  # the pin knows where its splits are
    assert run("pin", "--check", "--out", pinned).stdout == f"train, test: every byte is as pinned in {pinned}\n"
    train, test = pinned.with_name("train"), pinned.with_name("test")
    (train / "b").write_text("B")
    (train / "c").rename(test / "d")
    found = report("pin", "--check", "--out", pinned)["findings"]
    assert [(one["code"], one["severity"], one["message"], one["evidence"]) for one in found] == [
        ("digest", "error", "train is not what was pinned: 3 files then, 2 now", "b changed; c is gone"),
        ("digest", "error", "test is not what was pinned: 2 files then, 3 now", "d is new"),
        ("moved", "error", "1 files of test were in train when the splits were pinned", "d"),
    ]
    assert report("pin", "--check", "--out", pinned, "--train", train)["checked"] == ["train"]


def test_pins_that_cannot_be_used_are_one_sentence(pinned: Path) -> None:
    def refused(sentence: str, *words: object) -> None:
        done = run("pin", *words)
        assert done.returncode == 2 and sentence in done.stderr, done.stderr

    refused("nothing to pin")
    refused("no.json does not exist", "--check", "--out", pinned.with_name("no.json"))
    refused("has no pin of val; it has train, test", "--check", "--val", pinned, "--out", pinned)
    pinned.with_name("train").rename(pinned.with_name("elsewhere"))
    refused("train does not exist", "--check", "--out", pinned)
    pinned.write_text(pinned.read_text().replace('"files"', '"file"'))
    refused("does not fit the split_pins schema", "--check", "--out", pinned)


# -- hostile input


def bomb(path: Path, side: int = 30_000) -> None:
    """A PNG that claims 900 million pixels in some kilobytes."""

    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = part(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + head + part(b"IDAT", zlib.compress(bytes(10_000))) + part(b"IEND", b""))


def test_broken_images_and_bombs_are_compared_by_bytes(tmp_path: Path) -> None:
    for split in ("a", "b"):
        (tmp_path / split).mkdir()
        bomb(tmp_path / split / "bomb.png")
        (tmp_path / split / "cut.jpg").write_bytes(b"\xff\xd8\xff\xe0" + bytes(range(200)))
        pixels = np.random.default_rng(ord(split)).integers(0, 255, (40, 40), np.uint8)
        Image.fromarray(pixels).save(tmp_path / split / "ok.png")
        np.save(tmp_path / split / "object.npy", np.array([{}], dtype=object))
        with zipfile.ZipFile(tmp_path / split / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x.npy", b"\x93NUMPY")
    found = overlap(tmp_path / "a", tmp_path / "b")
    assert sorted(set(codes(found, "warn"))) == ["bomb", "unreadable"]
    assert {Path(m["item"]).name for m in found["matches"]} >= {"bomb.png", "cut.jpg", "object.npy"}


def test_text_that_is_no_utf8(tmp_path: Path) -> None:
    one, other = tmp_path / "a.txt", tmp_path / "b.txt"
    one.write_bytes(b"caf\xe9 au lait is what we drink here\nplain\xff\xfe line of several words\n\n\n")
    other.write_bytes(b"Caf\xe9 au lait is what we drink here!\r\ncaf\xea au lait is what they have there\r\n")
    assert matched(overlap(one, other), "exact") == {0}
    other.write_text("Plain line of words\nanother line of words that is not there\n", encoding="utf-16")
    assert overlap(one, other)["ok"]


def test_broken_and_blank_rows_are_counted(tmp_path: Path) -> None:
    one = table(tmp_path / "a.csv", [["1.25", "x"], ["2.5"], ["3", "y", "z"]], "v,w")
    two = tmp_path / "b.csv"
    two.write_text('v,w\n7.125,"several\nlines"\n\n')
    found = overlap(one, two)
    (finding,) = [f for f in found["findings"] if f["code"] == "malformed"]
    assert finding["message"].startswith("2 rows") and finding["evidence"] == f"first: {one}:3"
    one = lines(tmp_path / "a.jsonl", ['{"v": 1.5}', "{", "[" * 5000, '{"v": ' + "9" * 5000 + "}"])
    assert "malformed" in codes(overlap(one, jsonl(tmp_path / "b.jsonl", [{"v": 2}])))
    found = overlap(lines(tmp_path / "a.txt", ["some words of a text"]), lines(tmp_path / "b.txt", ["", " "]))
    assert "empty" in codes(found, "warn")


# the splits and options, and the sentence
BAD = {
    "a.txt link.txt": "are the same path",
    "folder folder/deep": "overlap as paths",
    "a.txt gone.txt": "--test gone.txt does not exist",
    "a.txt empty.txt": "is empty; expected one example per line",
    "folder void": "is an empty folder",
    "a.txt t.csv": "different kinds (train is lines, test is rows)",
    "t.csv u.csv --group patient": "--group patient: t.csv has no such column; it has v, w",
    "t.csv x.csv": "the splits have no column name in common (train: v, w; test: other)",
    "u.csv v.csv": "every column that the splits share looks like an id (id)",
    "a.txt b.txt --group x": "--group needs columns",
    "a.txt binary.dat": "is binary and of no known kind",
    "good.npy bad.npy": "bad.npy cannot be read as numpy data",
    "good.npy strings.npy": "strings.npy holds <U1 values; expected numbers",
    "good.npy wide.npy": "numbers differ; expected one shape",
    "l.json d.json": "d.json holds no list",
    "a.txt /dev/null": "is neither a file nor a folder",
}
FILES = {"a.txt": b"one line\ntwo lines\n", "b.txt": b"other line\n", "empty.txt": b"", "binary.dat": bytes(100)}
FILES |= {"t.csv": b"v,w\n1,x\n", "w.csv": b"v,w\n2,x\n", "u.csv": b"v,id\n1,2\n", "v.csv": b"q,id\n1,2\n"}
FILES |= {"x.csv": b"other\n1\n", "l.json": b'[{"v": 1}]', "d.json": b"{}", "folder/deep/x": b"x"}
FILES |= {"bad.npy": b"\x93NUMPY\1\0v\0{"}
ARRAYS = {"good": np.ones((3, 2)), "wide": np.ones((3, 3)), "strings": np.array(["a"])}


def test_bad_input_gets_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("folder/deep", "void"):
        Path(folder).mkdir(parents=True)
    for name, content in FILES.items():
        Path(name).write_bytes(content)
    for name, array in ARRAYS.items():
        np.save(f"{name}.npy", array)
    Path("link.txt").symlink_to("a.txt")
    for words, sentence in BAD.items():
        train, test, *options = words.split()
        done = run("overlap", "--train", train, "--test", test, *options)
        assert done.returncode == 2 and sentence in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_an_endless_line_and_a_single_split_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "LINE", 100)
    one, huge = lines(tmp_path / "a.txt", ["x"]), lines(tmp_path / "b.txt", ["short", "x" * 200])
    done = run("overlap", "--train", one, "--test", huge)
    assert done.returncode == 2 and "b.txt line 2 is longer than 64 MB" in done.stderr
    assert "one split cannot leak into itself" in run("overlap", "--train", one).stderr


def test_output_is_bounded_and_the_list_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{number} bottles of beer on the wall number {number * 7919}" for number in range(300)]
    one, other = lines(tmp_path / "a.txt", texts), lines(tmp_path / "b.txt", texts[::-1])
    done = run("overlap", "--train", one, "--test", other, "--list", tmp_path / "all.jsonl")
    assert done.returncode == 1 and len(done.stdout) < 2000
    assert len((tmp_path / "all.jsonl").read_text().splitlines()) == 300
    monkeypatch.setattr(leak_findings, "_LISTED", 100)
    found = overlap(one, other)
    assert len(found["matches"]) == 100 and found["matches_left_out"] == 200
