"""leak_probe: planted leaks are found, coincidences are not called leaks, and hostile splits get a sentence."""

from __future__ import annotations

import csv
import json
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

import leak_probe
from leakage import account, chance, normal, sources
from rgt import rundir

from . import planted


def run(*arguments: object) -> Result:
    return CliRunner().invoke(leak_probe.main, [str(argument) for argument in arguments])


def report(*arguments: object) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.exit_code in (0, 1), done.output
    found: dict[str, Any] = json.loads(done.stdout, parse_constant=pytest.fail)
    assert done.exit_code == (0 if found["ok"] else 1)
    return found


def overlap(train: Path, test: Path, *options: object) -> dict[str, Any]:
    return report("overlap", "--train", train, "--test", test, *options)


def alone(train: Path, test: Path) -> dict[str, Any]:
    """In a process of its own, where numpy's threads are what the script sets."""
    command = [sys.executable, leak_probe.__file__, "overlap", "--train", str(train), "--test", str(test), "--json"]
    found: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, timeout=300).stdout)
    return found


def codes(found: dict[str, Any], *severities: str) -> list[str]:
    return [f["code"] for f in found["findings"] if f["severity"] in (severities or ("error", "warn"))]


def matched(found: dict[str, Any], kind: str, offset: int = 1) -> set[int]:
    """Indices of test items; `offset` is the line of the first."""
    return {int(m["item"].rpartition(":")[2]) - offset for m in found["matches"] if m["kind"] == kind}


def table(path: Path, rows: list[list[Any]], header: str = "") -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        if header:
            writer.writerow(header.split(","))
        writer.writerows(rows)
    return path


def lines(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(rows) + "\n")
    return path


def jsonl(path: Path, rows: list[Any]) -> Path:
    return lines(path, [json.dumps(row) for row in rows])


def judged(exact: set[Any], near: set[Any], found_exact: set[Any], found_near: set[Any]) -> tuple[float, float, float]:
    """Recall of exact, recall of near, precision of all. A near one found as exact was normalised away: it is found."""
    found = found_exact | found_near
    precision = len(found & (exact | near)) / max(1, len(found))
    return len(exact & found_exact) / max(1, len(exact)), len(near & found) / max(1, len(near)), precision


# -- planted leaks


def test_planted_text(tmp_path: Path) -> None:
    train, test, exact, near = planted.texts(2400)
    found = overlap(lines(tmp_path / "a.txt", train), lines(tmp_path / "b.txt", test))
    recall, near_recall, precision = judged(exact, near, matched(found, "exact"), matched(found, "near"))
    assert len(exact) > 40 and len(near) > 40
    assert recall >= 0.99 and near_recall >= 0.95 and precision >= 0.99
    assert codes(found) == ["leak", "near-duplicate"]
    assert found["pairs"][0]["coincidence"] > 20  # "yes", "thank you": counted, not called leaks


def test_planted_rows(tmp_path: Path) -> None:
    train, test, exact, near = planted.rows(4000)
    header = "id,a,b,c,d,e,f,n,m,flag,kind"
    one = table(tmp_path / "a.csv", [[index, *row] for index, row in enumerate(train)], header)
    other = table(tmp_path / "b.tsv", [[9_000_000 + 7 * i, *row] for i, row in enumerate(test)], header)
    found = overlap(one, other)
    recall, near_recall, precision = judged(exact, near, matched(found, "exact", 2), matched(found, "near", 2))
    assert len(exact) > 80 and len(near) > 80
    assert recall >= 0.99 and near_recall >= 0.95 and precision >= 0.99
    assert found["compared"]["ignored"] == ["id"]


def test_planted_images(tmp_path: Path) -> None:
    train, test, exact, near = planted.images(tmp_path, 120)
    found = alone(train, test)
    names = {kind: {Path(m["item"]).name for m in found["matches"] if m["kind"] == kind} for kind in ("exact", "near")}
    recall, near_recall, precision = judged(exact, near, names["exact"], names["near"])
    missed = sorted(near - names["near"])
    assert recall == 1 and near_recall >= 0.95 and precision >= 0.99, (missed, names["near"] - near)
    coincidence = [Path(m["item"]).name for m in found["matches"] if m["kind"] == "coincidence"]
    assert coincidence == ["blank.png"]


def test_images_of_one_class_are_no_leak(tmp_path: Path) -> None:
    train, test = planted.digits(tmp_path, 60)
    assert alone(train, test)["pairs"][0]["near"] == 0


def test_rows_that_coincide_by_chance_are_no_leak(tmp_path: Path) -> None:
    train, test, _, _ = planted.coarse_rows(2000)
    found = overlap(table(tmp_path / "a.csv", train, "x,y,z"), table(tmp_path / "b.csv", test, "x,y,z"))
    assert found["ok"] and found["pairs"][0]["coincidence"] == 500
    assert {"coincidence", "duplicate"} == set(codes(found, "info"))


def test_real_leak_among_rows_that_mostly_coincide(tmp_path: Path) -> None:
    """Two measured columns beside three coarse ones: the copies stand out, the coincidences do not."""
    noise = np.random.default_rng(0)
    train = [[*map(int, noise.integers(0, 3, 3)), *noise.normal(size=2).round(6)] for _ in range(1000)]
    test = [[*map(int, noise.integers(0, 3, 3)), 0.0, 0.0] for _ in range(200)]
    train += [[*map(int, noise.integers(0, 3, 3)), 0.0, 0.0] for _ in range(500)]  # not measured: zeros
    test[:20] = train[:20]
    found = overlap(table(tmp_path / "a.csv", train, "x,y,z,v,w"), table(tmp_path / "b.csv", test, "x,y,z,v,w"))
    assert matched(found, "exact", 2) == set(range(20)) and found["pairs"][0]["coincidence"] == 180


def test_boilerplate_lines_are_no_leak(tmp_path: Path) -> None:
    train = planted.texts(400, seed=3)[0]
    footer = "All rights reserved; reproduction without written permission of the publisher is not allowed."
    clean = [f"{word} {number}" for number, word in enumerate(train[:300])]
    other = [f"{number} unrelated {word}" for number, word in enumerate(reversed(clean[200:]))]
    found = overlap(
        lines(tmp_path / "a.txt", clean[:200] + [footer] * 9), lines(tmp_path / "b.txt", other + [footer] * 4)
    )
    assert found["pairs"][0]["boilerplate"] == 4 and "leak" not in codes(found)


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
    noise = np.random.default_rng(0)
    rows = [
        {"id": n, "x": float(v), "y": round(float(v) ** 2, 9), "on": True} for n, v in enumerate(noise.normal(size=300))
    ]
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
    """Text by its words, JSON by its form, arrays by values, the rest by bytes; a link counts as what it leads to."""
    for split in ("a", "b"):
        (tmp_path / split / "deep").mkdir(parents=True)
    a, b = tmp_path / "a", tmp_path / "b"
    (a / "x.txt").write_text("The quick brown fox jumps over the lazy dog")
    (b / "y.md").write_text("the QUICK brown fox,\njumps over the lazy dog!\n")
    (a / "x.json").write_text('{"boxes": [[1, 2, 3, 4]], "name": "street 17"}')
    (b / "deep" / "y.json").write_text('{"name":"street 17","boxes":[[1.0,2.0,3.0,4.0]]}')
    np.save(a / "x.npy", np.arange(9.0))
    np.save(b / "y.npy", np.arange(9, dtype=np.int32))
    (a / "x.bin").write_bytes(bytes(range(256)))
    (b / "y.bin").symlink_to(a / "x.bin")
    (b / "deep" / "loop").symlink_to(b)
    (a / "empty").touch()
    (b / "empty").touch()
    (b / "own.txt").write_text("a text that only the test split has, of some length")
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


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Hello,  World!", "hello world", True),
        ("ﬁne Ｔext", "fine text", True),
        ("Straße", "STRASSE", True),
        ("well-known fact", "well known fact", True),
        ("深度学习。", "深度学习", True),
        ("what is 3 - 4", "what is 3 + 4", False),
        ("x = -5", "x = 5", False),
        ("a < b", "a > b", False),
        ("naïve", "naive", False),
    ],
)
def test_normal_form_of_text(one: str, other: str, same: bool) -> None:
    assert (normal.text(one) == normal.text(other)) is same


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1.0", 1, True), ("1e3", "1000", True), (-0.0, "0", True), ("", None, True), ("NaN", None, True),
        ("0.1", 0.1, True), ("1", "01x", False), (2**60, 2**60 + 1, False), (True, "true", True), ("1", "2", False),
    ],
)  # fmt: skip
def test_normal_form_of_cells(one: Any, other: Any, same: bool) -> None:
    alone = normal.cells([one])[0][0] == normal.cells([other])[0][0]
    mixed = normal.cells(["word", one])[0][1] == normal.cells(["word", other])[0][1]
    assert alone == mixed == same


def test_chance_of_a_match() -> None:
    """A thousand rows of a fair coin match by chance; one of 40 bits does not."""
    assert chance.bar(np.full(1000, 1.0), np.full(500, 1.0), 1000)[0] == float("inf")
    least, expected = chance.bar(np.full(1000, 40.0), np.full(5, 40.0), 1000)
    assert least == 40.0 and expected < 1e-5


# -- groups and time


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


def test_a_clean_group_split_is_clean(tmp_path: Path) -> None:
    train = visits(tmp_path / "a.csv", [f"p{n % 30}" for n in range(90)])
    test = visits(tmp_path / "b.csv", [f"p{n + 50}" for n in range(20)], day=12)
    done = run("overlap", "--train", train, "--test", test, "--group", "patient_id", "--time", "visit")
    assert done.exit_code == 0
    assert done.stdout == (
        "no item is shared by two splits; items: train 90, test 20; columns compared: visit, a, b, c; "
        "left out as ids or groups: patient_id\n"
    )


def test_the_future_in_train(tmp_path: Path) -> None:
    train = visits(tmp_path / "a.csv", [f"p{n}" for n in range(90)])
    test = visits(tmp_path / "b.csv", [f"q{n}" for n in range(20)], day=9)
    found = overlap(train, test, "--time", "visit")
    assert codes(found) == ["time-leak"]
    assert "10 of 90 items of train are not older than the first of test" in found["findings"][0]["message"]
    assert "(test starts at 2026-01-09, train ends at 2026-01-09)" in found["findings"][0]["message"]


def test_patients_in_file_names(tmp_path: Path) -> None:
    for split, numbers in (("a", range(20)), ("b", range(15, 35))):
        (tmp_path / split).mkdir()
        for number in numbers:
            (tmp_path / split / f"patient{number:03d}_slice_{split}.bin").write_bytes(
                f"{split} {number} ".encode() * 9 + b"\0"
            )
    found = overlap(tmp_path / "a", tmp_path / "b")
    assert codes(found) == ["group-leak"] and found["findings"][0]["message"].startswith("5 of 20 values of file name")


# -- pins


@pytest.fixture
def pinned(tmp_path: Path) -> Path:
    lines(tmp_path / "train.txt", [f"row {n}" for n in range(50)])
    lines(tmp_path / "test.txt", [f"row {n}" for n in range(50, 60)])
    done = run(
        "pin", "--train", tmp_path / "train.txt", "--test", tmp_path / "test.txt", "--out", tmp_path / "SPLITS.json"
    )
    assert done.exit_code == 0 and "train 50 items, test 10 items" in done.stdout
    return tmp_path / "SPLITS.json"


def checked(pin: Path) -> dict[str, str]:
    found = report("pin", "--check", "--out", pin)
    return {finding["code"]: f"{finding['message']}: {Path(finding['evidence']).name}" for finding in found["findings"]}


def test_pin_holds_also_for_another_order(pinned: Path) -> None:
    assert checked(pinned) == {}
    train = pinned.with_name("train.txt")
    lines(train, train.read_text().split("\n")[:50][::-1])
    assert checked(pinned) == {}


def test_pin_finds_moved_changed_added_and_removed_items(pinned: Path) -> None:
    train, test = pinned.with_name("train.txt"), pinned.with_name("test.txt")
    rows = [f"row {n}" for n in range(49)]  # row 49 goes to test
    rows[7] = "row seven"
    lines(train, rows)
    lines(test, [*(f"row {n}" for n in range(50, 60)), "row 49", "row 99"])
    assert checked(pinned) == {
        "digest": "1 items of train have other content than when the splits were pinned: train.txt item 8",
        "moved": "1 items of test were in train when the splits were pinned: test.txt item 11",
        "extra": "1 items of test were not there when the splits were pinned: test.txt item 12",
    }
    lines(test, [f"row {n}" for n in range(51, 60)])
    assert checked(pinned)["missing"].startswith("1 pinned items of test are gone: item 1")


def test_a_split_that_changed_in_every_row_is_checked_in_time(tmp_path: Path) -> None:
    """Another number format in each of them: once the square of the rows was looked at, minutes for these."""
    for name in ("train", "test"):
        lines(tmp_path / f"{name}.txt", [f"{name} {n}" for n in range(60_000)])
    words = ["--train", tmp_path / "train.txt", "--test", tmp_path / "test.txt", "--out", tmp_path / "SPLITS.json"]
    assert run("pin", *words).exit_code == 0
    lines(tmp_path / "train.txt", [f"train {n}.0" for n in range(60_000)])
    command = [sys.executable, leak_probe.__file__, "pin", "--check", *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert [finding["code"] for finding in json.loads(done.stdout)["findings"]] == ["digest"]


def test_pin_of_a_folder_names_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "test"
    folder.mkdir()
    for name in "abc":
        (folder / name).write_text(name)
    assert run("pin", "--test", folder, "--out", tmp_path / "P.json").exit_code == 0
    (folder / "b").write_text("B")
    (folder / "c").unlink()
    assert set(checked(tmp_path / "P.json")) == {"digest", "missing"}


def test_pin_dry_run_writes_nothing(tmp_path: Path) -> None:
    done = run("pin", "--test", lines(tmp_path / "t.txt", ["a"]), "--out", tmp_path / "P.json", "--dry-run")
    assert done.exit_code == 0 and not (tmp_path / "P.json").exists()


def test_a_pin_that_was_changed_is_refused(pinned: Path) -> None:
    np.save(pinned.with_name("SPLITS.train.npy"), np.zeros(50, np.uint64))
    done = run("pin", "--check", "--out", pinned)
    assert done.exit_code == 2 and "is not the file that" in done.stderr
    pinned.with_name("SPLITS.train.npy").unlink()
    done = run("pin", "--check", "--out", pinned)
    assert done.exit_code == 2 and "is missing: the pin" in done.stderr


# -- test-touched runs


def trained(
    root: Path, test: list[float], val: list[float] | None = None, step: int | None = None, **config: Any
) -> rundir.Run:
    made = rundir.create(root, "r", command=["train"], config=config)
    for number, value in enumerate(test):
        made.log_metrics(step=number * 100, split="test", acc=value)
    for number, value in enumerate(val or []):
        made.log_metrics(step=number * 100, split="val", acc=value)
    if step is not None:
        metric = {"name": "acc", "value": test[step // 100], "split": "test", "n": 9, "direction": "up", "step": step}
        made.write_results({"run_id": made.id, "metrics": [metric]})
    return made


def test_reported_step_is_the_best_on_test(tmp_path: Path) -> None:
    trained(tmp_path, [0.1, 0.9, 0.5, 0.4], [0.2, 0.3, 0.6, 0.5], step=100)
    found = report("touched", tmp_path)
    assert codes(found) == ["selection", "touched"]
    expected = "step 100, the best on test of 4 steps (best on val is 200, the last is 300): chosen on test"
    assert expected in found["findings"][0]["message"]


def test_test_chosen_by_config(tmp_path: Path) -> None:
    trained(tmp_path, [0.5], trainer={"early_stopping": {"monitor": "test_loss"}}, test_batch="test")
    found = report("touched", tmp_path)
    (finding,) = found["findings"]
    assert (finding["code"], finding["where"]) == ("selection", "trainer.early_stopping.monitor")


@pytest.mark.parametrize(
    ("test", "val", "step"),
    [([0.1, 0.9], [0.2, 0.8], 100), ([0.5], [0.1, 0.2, 0.3], None), ([0.4, 0.9, 0.5], [0.1, 0.9, 0.2], 100)],
)
def test_val_chose_or_the_last_is_reported(
    tmp_path: Path, test: list[float], val: list[float], step: int | None
) -> None:
    trained(tmp_path, test, val, step, monitor="val_loss", test_every=10)
    assert "selection" not in codes(report("touched", tmp_path))


def test_touched_reads_what_it_can(tmp_path: Path) -> None:
    good = trained(tmp_path / "runs", [0.1, 0.2, 0.3])
    broken = trained(tmp_path / "runs", [0.1])
    broken.run_json.write_text("{")
    with good.metrics.open("a") as file:
        file.write('{"step": "x", "split": "test", "acc": 1}\nnonsense\n')
    found = report("touched", tmp_path / "runs")
    assert sorted(codes(found, "warn", "info")) == ["touched", "unjudged", "unreadable"]
    good.results.write_text('{"metrics": 5}')
    good.checkpoints_index.write_text('{"checkpoints": 5}')
    assert "touched" in codes(report("touched", tmp_path / "runs"), "warn", "info")
    done = run("touched", tmp_path / "nothing")
    assert done.exit_code == 2 and "is no run directory and has none below" in done.stderr


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
        Image.fromarray(np.random.default_rng(ord(split)).integers(0, 255, (40, 40), np.uint8)).save(
            tmp_path / split / "ok.png"
        )
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


def test_rows_that_are_broken_are_counted(tmp_path: Path) -> None:
    one = table(tmp_path / "a.csv", [["1.25", "x"], ["2.5"], ["3", "y", "z"]], "v,w")
    two = tmp_path / "b.csv"
    two.write_text('v,w\n7.125,"several\nlines"\n\n')
    found = overlap(one, two)
    (finding,) = [f for f in found["findings"] if f["code"] == "malformed"]
    assert finding["message"].startswith("2 rows") and finding["evidence"] == f"first: {one}:3"
    one = lines(tmp_path / "a.jsonl", ['{"v": 1.5}', "{", "[" * 5000, '{"v": ' + "9" * 5000 + "}"])
    assert "malformed" in codes(overlap(one, jsonl(tmp_path / "b.jsonl", [{"v": 2}])))


def test_blank_split(tmp_path: Path) -> None:
    found = overlap(lines(tmp_path / "a.txt", ["some words of a text"]), lines(tmp_path / "b.txt", ["", " "]))
    assert "empty" in codes(found, "warn")


BAD = {
    "same": ("a.txt", "link.txt", [], "are the same path"),
    "inside": ("folder", "folder/deep", [], "overlap as paths"),
    "missing": ("a.txt", "gone.txt", [], "--test gone.txt does not exist"),
    "empty": ("a.txt", "empty.txt", [], "is empty; expected one example per line"),
    "empty folder": ("folder", "void", [], "is an empty folder"),
    "kinds": ("a.txt", "t.csv", [], "different kinds (train is lines, test is rows)"),
    "group": ("t.csv", "u.csv", ["--group", "patient"], "--group patient: t.csv has no such column; it has v, w"),
    "time": ("t.csv", "u.csv", ["--time", "when"], "--time when: t.csv has no such column"),
    "no time": ("t.csv", "w.csv", ["--time", "w"], "'x' in t.csv is no time; expected a number or"),
    "columns": ("t.csv", "x.csv", [], "the splits have no column name in common (train: v, w; test: other)"),
    "ids": ("u.csv", "v.csv", [], "every column that the splits share looks like an id (id)"),
    "lines": ("a.txt", "b.txt", ["--group", "x"], "--group and --time need columns"),
    "binary": ("a.txt", "binary.dat", [], "is binary and of no known kind"),
    "array": ("good.npy", "bad.npy", [], "bad.npy cannot be read as numpy data"),
    "objects": ("good.npy", "strings.npy", [], "strings.npy holds <U1 values; expected numbers"),
    "widths": ("good.npy", "wide.npy", [], "numbers differ; expected one shape"),
    "no rows": ("good.npy", "norows.npy", [], "norows.npy holds no rows"),
    "json": ("l.json", "d.json", [], "d.json holds no list"),
    "not json": ("l.json", "e.json", [], "e.json is not JSON"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_a_sentence(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines(Path("a.txt"), ["one line", "two lines"])
    lines(Path("b.txt"), ["other line"])
    Path("link.txt").symlink_to("a.txt")
    Path("folder/deep").mkdir(parents=True)
    Path("folder/deep/x").write_text("x")
    Path("void").mkdir()
    Path("empty.txt").touch()
    Path("binary.dat").write_bytes(bytes(100))
    table(Path("t.csv"), [["1", "x"]], "v,w")
    table(Path("w.csv"), [["2", "x"]], "v,w")
    table(Path("u.csv"), [["1", "2"]], "v,id")
    table(Path("v.csv"), [["1", "2"]], "q,id")
    table(Path("x.csv"), [["1"]], "other")
    np.save("good.npy", np.ones((3, 2)))
    np.save("wide.npy", np.ones((3, 3)))
    np.save("strings.npy", np.array(["a"]))
    np.save("norows.npy", np.ones(()))
    Path("bad.npy").write_bytes(b"\x93NUMPY\1\0v\0{")
    Path("l.json").write_text('[{"v": 1}]')
    Path("d.json").write_text("{}")
    Path("e.json").write_text("[")
    train, test, options, sentence = BAD[case]
    done = run("overlap", "--train", train, "--test", test, *options)
    assert done.exit_code == 2 and sentence in done.stderr and done.stderr.count("\n") == 1, done.output


def test_other_bad_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = lines(tmp_path / "a.txt", ["x"])
    for arguments, sentence in (
        (["overlap", "--train", one], "one split cannot leak into itself"),
        (["pin"], "nothing to pin"),
        (["pin", "--check", "--out", tmp_path / "no.json"], "no.json does not exist"),
        (["overlap", "--train", one, "--test", "/dev/null"], "is neither a file nor a folder"),
    ):
        done = run(*arguments)
        assert done.exit_code == 2 and sentence in done.stderr, done.output
    run("pin", "--train", one, "--out", tmp_path / "P.json")
    assert (
        "has no pin of test; it has train" in run("pin", "--check", "--test", one, "--out", tmp_path / "P.json").stderr
    )
    monkeypatch.setattr(sources, "LINE", 100)
    huge = lines(tmp_path / "b.txt", ["short", "x" * 200])
    done = run("overlap", "--train", one, "--test", huge)
    assert done.exit_code == 2 and "b.txt line 2 is longer than 64 MB" in done.stderr


def test_output_is_bounded_and_the_list_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{number} bottles of beer on the wall number {number * 7919}" for number in range(300)]
    one, other = lines(tmp_path / "a.txt", texts), lines(tmp_path / "b.txt", texts[::-1])
    done = run("overlap", "--train", one, "--test", other, "--list", tmp_path / "all.jsonl")
    assert done.exit_code == 1 and len(done.stdout) < 2000 and f"all matches: {tmp_path}/all.jsonl" in done.stdout
    assert len((tmp_path / "all.jsonl").read_text().splitlines()) == 300
    monkeypatch.setattr(account, "_LISTED", 100)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    found = overlap(one, other)
    assert len(found["matches"]) == 100 and len(Path(found["full_list"]).read_text().splitlines()) == 300
