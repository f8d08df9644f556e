"""triage --flight: real dumps of gloo ranks with planted faults (flight_ranks.py), NCCL's form, and hostile files."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from . import front_door

RANKS = Path(__file__).with_name("flight_ranks.py")
FAULTS = {
    # fault: (ranks, code, rank at fault, words of the message)
    "healthy": (2, "", "", ""),
    "json": (2, "", "", ""),
    "skip": (4, "missed", "rank 1", "skipped 1 collective"),
    "reorder": (3, "order", "rank 1", "in another order at sequence 7"),
    "shape": (3, "shape", "rank 1", "all_reduce [2x2 Float]; ranks 0, 2: all_reduce [4 Float]"),
    "dtype": (3, "dtype", "rank 1", "all_reduce [4 Int]"),
    "op": (3, "wrong-op", "rank 1", "reduce [4 Float]; ranks 0, 2: all_reduce [4 Float]"),
    "dead": (3, "missing", "rank 1", "left no dump"),
    "straggler": (8, "stalled", "rank 1", "has not called sequence 7, all_reduce [4 Float]"),
    "groups": (3, "order", "rank 0", "it waits in another group"),
    "mesh": (4, "stalled", "rank 1", "slow, stuck outside of a collective, or finished; rank 0 waits"),
}
pytestmark = pytest.mark.xdist_group("flight")  # the ranks are started once


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flight")
    words = [f"{fault}:{case[0]}" for fault, case in FAULTS.items()]
    subprocess.run([sys.executable, RANKS, folder, *words], check=True, capture_output=True, timeout=120)
    return folder


def ask(folder: Path) -> tuple[int, dict[str, Any]]:
    done = front_door.call("triage.py", "--flight", folder, "--json")
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(dumps: Path, fault: str) -> None:
    _, code, rank, words = FAULTS[fault]
    status, report = ask(dumps / fault)
    causes = [one for one in report["findings"] if one["severity"] == "error"]
    if not code:
        assert (status, causes) == (0, [])
        return
    assert status == 1 and len(causes) == 1, report["findings"]
    assert not [one for one in report["findings"] if one["severity"] == "warn"]  # a second rank beside the one at fault
    cause = causes[0]
    assert (cause["code"], cause["where"]) == (code, rank)
    assert words in cause["message"] and "distributed-launch.md#dl" in cause["fix"]
    assert "flight_ranks.py:" in cause["evidence"]  # the line of the program, not torch's


# -- NCCL's form: states, membership, several groups


def entry(seq: int, op: str = "all_reduce", size: int = 8, state: str = "completed", **more: Any) -> dict[str, Any]:
    sizes = {"input_sizes": [[size]], "output_sizes": [[size]], "input_dtypes": ["Float"], "output_dtypes": ["Float"]}
    head = {"record_id": seq - 1, "process_group": ["0", "default_pg"], "collective_seq_id": seq, "p2p_seq_id": 0}
    tail = {"profiling_name": f"nccl:{op}", "state": state, "retired": False, "is_p2p": False, "time_created_ns": seq}
    return {**head, **sizes, **tail, **more}


def write(folder: Path, ranks: dict[int, list[dict[str, Any]]], groups: dict[str, str] | None = None) -> Path:
    config = {name: {"name": name, "desc": "", "ranks": text} for name, text in (groups or {"0": "[0, 1, 2]"}).items()}
    for rank, entries in ranks.items():
        data = {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": entries}
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(data, protocol=2))
    return folder


def steps(*seqs: int, last: str = "started") -> list[dict[str, Any]]:
    return [entry(seq, state=last if seq == seqs[-1] else "completed") for seq in seqs]


TENSOR_PARALLEL: dict[str, Any] = {"process_group": ["1", "tp"]}
NCCL: dict[str, tuple[dict[int, list[dict[str, Any]]], str, str]] = {
    "slow rank": ({0: steps(1, 2, 3), 1: steps(1, 2, 3), 2: steps(1, 2, last="completed")}, "stalled", "rank 2"),
    "all inside": ({rank: steps(1, 2, 3) for rank in range(3)}, "hang", "every rank of group '0'"),
    "ring wrapped": (
        {0: steps(*range(900, 1000)), 1: steps(*range(950, 999), last="completed"), 2: steps(*range(900, 1000))},
        "stalled",
        "rank 1",
    ),
    "extra": (
        {0: steps(1, 2), 1: [entry(1), entry(2, "broadcast"), entry(3, state="scheduled")], 2: steps(1, 2)},
        "extra",
        "ran 1 collective more",
    ),
    "two wrong": (
        {0: [entry(1, size=8)], 1: [entry(1, size=9)], 2: [entry(1, size=7)]},
        "shape",
        "as many run the one as the other",
    ),
    "other group": (
        {0: steps(1, 2), 1: steps(1, 2), 2: [entry(1), entry(1, state="started", **TENSOR_PARALLEL)]},
        "order",
        "rank 2 is behind in group '0'",
    ),
    "coalesced": (
        {r: [entry(1), entry(1, size=3 if r == 1 else 2), entry(1, "coalesced")] for r in range(3)},
        "shape",
        "rank 1 has another shape",
    ),
}


@pytest.mark.parametrize("name", NCCL)
def test_nccl_cases(tmp_path: Path, name: str) -> None:
    ranks, code, words = NCCL[name]
    status, report = ask(write(tmp_path, ranks, {"0": "[0, 1, 2]", "1": "[0, 2]"}))
    causes = [one for one in report["findings"] if one["severity"] == "error"]
    assert status == 1 and causes[0]["code"] == code and words in causes[0]["message"], report["findings"]


def test_a_wrapped_buffer_and_uneven_shapes_by_design_are_no_fault(tmp_path: Path) -> None:
    uneven = [[entry(901, "all_to_all", size=rank), entry(902, "scatter"), *steps(903, 904)] for rank in range(2)]
    uneven[1][1]["input_sizes"] = []
    for entries in uneven:
        entries[-1]["state"] = "completed"
    status, report = ask(write(tmp_path, dict(enumerate(uneven)), {"0": "[0, 1]"}))
    assert status == 0 and [one["code"] for one in report["findings"]] == ["gap"]


def test_buffers_that_do_not_overlap_are_said(tmp_path: Path) -> None:
    _, report = ask(write(tmp_path, {0: steps(500, 501), 1: steps(1, 2)}, {"0": "[0, 1]"}))
    assert "nothing to compare" in next(one["message"] for one in report["findings"] if one["code"] == "gap")


# -- files of strangers


class Bomb:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.mark}",)


def test_hostile_and_broken_dumps_run_nothing_and_are_named(tmp_path: Path) -> None:
    folder, mark = tmp_path / "dumps", tmp_path / "ran"
    folder.mkdir()
    write(folder, {0: steps(1, last="completed"), 1: steps(1, last="completed")}, {"0": "[0, 1, 2, 3]"})
    (folder / "rank_2").write_bytes(pickle.dumps({"version": "2.10", "entries": [Bomb(mark)]}))
    (folder / "rank_3.json").write_text('{"version": "2.10", "entries": [{"record')
    (folder / "again_1").write_bytes((folder / "nccl_trace_rank_1").read_bytes())
    (folder / "rank_4").write_bytes(pickle.dumps({"version": "2.10", "entries": [{"process_group": 3}]}))
    (folder / "rank_5").write_bytes(b"\x80\x02" + b"]q\x00" * 10 + b"a" * 9 + b".")
    (folder / "notes.txt").write_text("not a dump")
    os.mkfifo(folder / "rank_6")
    status, report = ask(folder)
    by_name = {Path(one["path"]).name: one["code"] for one in report["findings"] if one["path"]}
    assert status == 1 and not mark.exists()
    refused = next(one for one in report["findings"] if one["code"] == "refused-global")
    assert "system" in refused["message"] and refused["severity"] == "error"
    assert by_name["rank_2"] == "refused-global" and by_name["rank_3.json"] == "malformed"
    assert by_name["rank_4"] == by_name["rank_5"] == "malformed" and by_name["rank_6"] == "unreadable"
    assert "duplicate" in by_name.values()
    assert report["missing_ranks"] == [2, 3]


@pytest.mark.parametrize("words", [(), ("x.log", "--flight", "."), ("--flight", "nowhere"), ("--flight", ".")])
def test_bad_input(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = front_door.call("triage.py", *words, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
