"""sweep through its front door, with real jobs in their own queue: what counts as done, kills, retries, bad input."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rgt import bundle
from rgt.job import description
from rgt.machine import processes

import pytest
import yaml

from . import front_door
from .gate_box import ROOT, Gate, kill, kill_job, until

SWEEP = ROOT / "scripts" / "sweep.py"

# Four cells: one is good, one crashes, one only says that it is done, one leaves half a results.json.
TRAIN = """\
import json, os, pathlib, sys
lr, seed = sys.argv[1:]
run = pathlib.Path(os.environ["RGT_RUN_DIR"])
with open("ran", "a") as file:
    file.write(f"{lr} {seed}\\n")
if (lr, seed) == ("0.1", "2") and not os.path.exists("mended"):
    sys.exit(3)
print("Training done. Saved results.json and checkpoint.")
if (lr, seed) == ("0.01", "1") and not os.path.exists("mended"):
    sys.exit(0)
import numpy
numpy.save(run / "checkpoints" / "w.npy", numpy.arange(8, dtype="f4") + 1)
metric = {"name": "loss", "value": float(lr), "split": "val", "n": 4, "direction": "down"}
text = json.dumps({"run_id": run.name, "metrics": [metric]})
torn = (lr, seed) == ("0.01", "2") and not os.path.exists("mended")
(run / "results.json").write_text(text[:30] if torn else text)
"""

# Which host a name means is decided by ssh alone, so a stand-in for ssh makes two boxes of one: each has a home
# and a gate of its own; `dead` does not answer.
SSH = """\
while [ "$1" != -- ]; do shift; done
if [ "$2" = dead ] || [ -e "$BOXES/$2.dead" ]; then echo "ssh: connect to host $2: No route to host" >&2; exit 255; fi
HOME=$BOXES/$2 RGT_QUEUE=$BOXES/$2/queue
export HOME RGT_QUEUE
cd "$HOME" && exec sh -c "$3"
"""


class Bench(Gate):
    """sweep's command line in a folder of its own."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.environment.pop("RGT_CELL", None)
        (directory / "train.py").write_text(TRAIN)

    def write(self, name: str = "lr.yaml", **sweep: Any) -> None:
        job = {"name": "tiny", "python": sys.executable, "script": "train.py", "args": ["{lr}", "{seed}"]}
        default = {"job": job, "grid": {"lr": [0.1, 0.01]}, "seeds": [1, 2]}
        (self.directory / name).write_text(yaml.safe_dump(sweep or default, sort_keys=False))

    def counting(self, count: int, **more: Any) -> None:
        """Cells that only write down that they ran."""
        code = 'echo "$0" >> ran; touch "$RGT_RUN_DIR/ok"'
        job = {"name": "tick", "command": ["sh", "-c", code, "{n}"]}
        verify = {"command": ["test", "-e", "{run}/ok"]}
        self.write(**{"job": job, "grid": {"n": list(range(count))}, "verify": verify, **more})

    def start(self, *words: object) -> subprocess.Popen[str]:
        return self.popen(*words, program=(sys.executable, SWEEP))

    def sweep(self, *words: object) -> subprocess.CompletedProcess[str]:
        return front_door.call("sweep.py", *words, cwd=self.directory, env={"RGT_CELL": None, **self.environment})

    def json(self, verb: str, *words: object) -> dict[str, Any]:
        done = self.sweep(verb, "lr.yaml", *words, "--json")
        assert done.stdout, done.stderr
        return dict(json.loads(done.stdout))

    def finished(self) -> dict[str, Any]:
        """Run all that is missing to its end; the report."""
        self.json("run")
        return self.json("wait")

    def counts(self, verb: str = "report") -> dict[str, int]:
        """Those that are not zero."""
        return {name: count for name, count in self.json(verb)["counts"].items() if count}

    def submitted(self, *words: object) -> list[dict[str, Any]]:
        """What `run` submits now."""
        return list(self.json("run", *words)["submitted"])

    def ran(self) -> list[str]:
        path = self.directory / "ran"
        return path.read_text().splitlines() if path.exists() else []

    def begun(self) -> int:
        """Cells whose job description was written: launch is called next."""
        return len(list((self.directory / "lr.sweep").glob("*.job.yaml")))


def launch_here(command: list[str], env: dict[str, str] | None, **_: Any) -> subprocess.CompletedProcess[bytes]:
    """In place of the process that calls launch; what kills and races are about starts sweep as a process."""
    done = front_door.call("launch.py", *command[2:], env=env)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.encode(), done.stderr.encode())


@pytest.fixture(name="bench")
def own_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    monkeypatch.setattr(description, "subprocess", SimpleNamespace(run=launch_here, DEVNULL=subprocess.DEVNULL))
    yield bench
    bench.clean()


@pytest.fixture(name="boxes")
def two_boxes(bench: Bench) -> Path:
    """Two machines, a and b, behind a stand-in for ssh; their files are below the folder this gives."""
    folder = bench.directory / "boxes"
    for name in ("a", "b"):
        (folder / name / "exp").mkdir(parents=True)
    front_door.executable(folder / "bin" / "ssh", SSH)
    bench.environment |= {"BOXES": str(folder), "PATH": f"{folder}/bin:{os.environ['PATH']}"}
    return folder


def states(report: dict[str, Any]) -> dict[str, str]:
    return {" ".join(cell["values"].values()): cell["state"] for cell in report["cells"]}


# -- the whole arc


def test_two_by_two_cells_only_artifacts_count(bench: Bench) -> None:
    bench.write()
    done = bench.sweep("run", "lr.yaml")
    after = f"what became of them: {bundle.command('sweep', 'report', 'lr.yaml')}"
    assert (done.returncode, done.stdout) == (0, f"4 submitted, 0 left alone, of 4 cells; {after}\n")
    waited = bench.sweep("wait", "lr.yaml")
    last = "4 expected = 1 verified + 1 failed + 2 unverified; 4 submitted, 3 finished"
    assert (waited.returncode, waited.stdout.splitlines()[-1]) == (1, last)
    report = bench.json("report")
    good, bad = "verified", "unverified"
    assert states(report) == {"0.1 1": good, "0.1 2": "failed", "0.01 1": bad, "0.01 2": bad}
    assert [finding["code"] for finding in report["findings"]] == ["failed", "unverified", "unverified"]
    said = [finding["message"].replace(finding["path"], "RUN") for finding in report["findings"]]
    no_artifact = "ended without an artifact that verifies, exit code 0: RUN/results.json"
    assert said == [
        "failed, exit code 3",
        f"{no_artifact} does not exist",
        f"{no_artifact} line 1 is not JSON: Unterminated string starting at",
    ]
    # again: nothing starts; then what failed, and only that, starts once more and is mended
    assert bench.submitted() == []
    (bench.directory / "mended").touch()
    again = [(row["attempts"], *row["values"].values()) for row in bench.submitted("--retry")]
    assert again == [(2, "0.1", "2"), (2, "0.01", "1"), (2, "0.01", "2")]
    final = bench.sweep("wait", "lr.yaml")
    last = "4 expected = 4 verified + 0 failed; 4 submitted, 4 finished"
    assert (final.returncode, final.stdout.splitlines()[-1]) == (0, last)
    assert len(bench.ran()) == 7


def test_artifact_that_is_damaged_later_does_not_count_any_more(bench: Bench) -> None:
    job = {"name": "tiny", "python": sys.executable, "script": "train.py", "args": ["1", "{seed}"]}
    bench.write(job=job, seeds=[7])
    bench.sweep("run", "lr.yaml")
    assert bench.counts("wait") == {"expected": 1, "submitted": 1, "finished": 1, "verified": 1}
    checkpoint = next((bench.directory / "runs").glob("*/checkpoints/w.npy"))
    checkpoint.write_bytes(checkpoint.read_bytes()[:-4])
    assert bench.counts() == {"expected": 1, "submitted": 1, "finished": 1, "unverified": 1}
    checkpoint.unlink()
    found = bench.json("report")["findings"]
    assert "holds no checkpoint (a job without one: verify: {checkpoint: false})" in found[0]["message"]
    bench.write(job=job, seeds=[7], verify={"checkpoint": False})
    assert bench.counts()["verified"] == 1


def test_value_arrives_as_one_word_and_no_shell_sees_it(bench: Bench) -> None:
    value = 'a b; touch pwned $(touch pwned) "${HOME}"'
    code = "import os, sys; print(sys.argv[1:], os.environ['V'])"
    job = {"name": "x", "command": [sys.executable, "-c", code, "--v={v}", "${v}"], "env": {"V": "<{v}>"}}
    bench.write(job=job, cells=[{"v": value}], verify={"command": ["true"]})
    run = Path(bench.finished()["cells"][0]["run"])
    assert (run / "train.log").read_text() == f"{[f'--v={value}', '${v}']} <{value}>\n"
    assert not (bench.directory / "pwned").exists()


def test_own_verify_command_gets_the_run_and_the_values(bench: Bench) -> None:
    bench.counting(2, verify={"command": ["sh", "-c", 'test "$0" = 1 && test -e "$1/ok"', "{n}", "{run}"]})
    report = bench.finished()
    assert states(report) == {"0": "unverified", "1": "verified"}
    assert report["findings"][0]["message"].endswith("the verify command ended with 1")
    # one that does not start is no reason to run a cell again
    bench.counting(2, verify={"command": ["./no-such-judge"]})
    assert states(bench.json("report")) == {"0": "unjudged", "1": "unjudged"}
    assert (bench.submitted("--retry"), sorted(bench.ran())) == ([], ["0", "1"])


def test_dry_run_and_report_before_the_first_run(bench: Bench) -> None:
    bench.counting(2)
    done = bench.sweep("run", "lr.yaml", "--dry-run")
    assert done.returncode == 0
    assert done.stdout == (
        """would submit 6776556b  n=0: sh -c 'echo "$0" >> ran; touch "$RGT_RUN_DIR/ok"' 0\n"""
        """would submit fbf03fa3  n=1: sh -c 'echo "$0" >> ran; touch "$RGT_RUN_DIR/ok"' 1\n"""
        "2 would be submitted to local, 0 left alone, of 2 cells\n"
    )
    assert sorted(path.name for path in bench.directory.iterdir()) == ["lr.yaml", "train.py"]
    done = bench.sweep("report", "lr.yaml")  # before the first run
    last = "2 expected = 0 verified + 0 failed + 2 missing; 0 submitted, 0 finished"
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, last)


# -- the sweep file changes


def test_cells_added_and_removed(bench: Bench) -> None:
    bench.counting(2)
    bench.sweep("run", "lr.yaml")
    bench.counting(0, grid={"n": [1, 2]})
    done = bench.json("run")
    assert ([row["values"] for row in done["submitted"]], done["left_alone"]) == ([{"n": "2"}], 1)
    report = bench.json("wait")
    assert states(report) == {"1": "verified", "2": "verified"}
    (removed,) = report["findings"]
    assert (removed["code"], removed["message"]) == ("removed", "not in the sweep any more")
    assert report["ok"]
    assert sorted(bench.ran()) == ["0", "1", "2"]


def test_changed_job_is_disclosed_and_the_order_of_values_is_not_part_of_a_cell(bench: Bench) -> None:
    job = {"name": "x", "command": ["sh", "-c", "echo $0 $1 >> ran", "{a}", "{b}"]}
    bench.write(job=job, cells=[{"a": 1, "b": 2}], verify={"command": ["true"]})
    bench.sweep("run", "lr.yaml")
    changed = {"name": "x", "command": ["echo", "{a}{b}"]}
    bench.write(job=changed, cells=[{"b": "2", "a": 1}], verify={"command": ["true"]})
    assert bench.submitted() == []
    report = bench.json("wait")
    assert [(f["code"], f["severity"]) for f in report["findings"]] == [("superseded", "info")]


# -- kills


def storm(bench: Bench, cells: int, kills: int, luck: random.Random, also_launch: bool) -> int:
    """Kill `run` at moments spread over its work, until that was done `kills` times to a living process."""
    done = 0
    bench.counting(cells)
    while done < kills:
        process = bench.start("run", "lr.yaml")
        aim = bench.begun() + luck.randrange(2)
        while bench.begun() < aim and process.poll() is None:
            time.sleep(0.01)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(luck.random() * 1.5)
        children = processes.descendants(process.pid) if also_launch else []
        if process.poll() is None:
            done += 1
            process.kill()
        for pid in children[:1]:
            kill(pid)
        process.communicate()
    return done


@pytest.mark.parametrize(("cells", "kills"), [(4, 3), pytest.param(40, 100, marks=pytest.mark.soak)])
def test_kills_of_sweep_lose_nothing_and_start_nothing_twice(bench: Bench, cells: int, kills: int) -> None:
    assert storm(bench, cells, kills, random.Random(1), also_launch=False) == kills
    assert bench.sweep("run", "lr.yaml").returncode == 0
    every = {"expected": cells, "submitted": cells, "finished": cells, "verified": cells}
    assert bench.counts("wait") == every
    assert sorted(bench.ran(), key=int) == [str(number) for number in range(cells)]


@pytest.mark.soak
def test_kills_of_sweep_and_launch_start_nothing_twice(bench: Bench) -> None:
    """A half-done submit is `lost` until --retry; a gate that was just being started is not taken for lost."""
    cells = 24
    storm(bench, cells, 50, random.Random(2), also_launch=True)
    bench.sweep("run", "lr.yaml")
    for _ in range(3):
        bench.sweep("run", "lr.yaml", "--retry")
    report = bench.json("wait")
    assert (report["findings"], report["counts"]["verified"]) == ([], cells)
    assert sorted(bench.ran(), key=int) == [str(number) for number in range(cells)]


def test_runs_are_found_by_their_own_record_wherever_the_sweep_put_them(bench: Bench) -> None:
    bench.counting(1)
    bench.sweep("run", "lr.yaml")
    bench.counts("wait")
    bench.counting(1, job={"name": "tick", "command": ["true", "{n}"], "workdir": "/"})  # the file changed since
    assert bench.submitted() == []
    (bench.directory / "runs").rename(bench.directory / "elsewhere")
    bench.counting(1)
    assert [row["attempts"] for row in bench.submitted()] == [1]


def test_two_runs_at_once_take_turns(bench: Bench) -> None:
    bench.counting(3)
    both = [bench.start("run", "lr.yaml", "--json") for _ in range(2)]
    outs = [json.loads(process.communicate(timeout=120)[0]) for process in both]
    assert sorted(len(out["submitted"]) for out in outs) == [0, 3]


def test_wait_ends_at_its_timeout_and_killed_cells_are_lost_until_retried(bench: Bench) -> None:
    code = 'echo "$0" >> ran; [ -e go ] || sleep 300; touch "$RGT_RUN_DIR/ok"'
    bench.counting(1, job={"name": "tick", "command": ["sh", "-c", code, "{n}"]})
    bench.sweep("run", "lr.yaml")
    until(lambda: bench.ran() == ["0"])
    waited = bench.sweep("wait", "lr.yaml", "--timeout", "0.1s")
    assert waited.returncode == 1 and " 1 running; 1 submitted, 0 finished" in waited.stdout
    assert bench.submitted("--retry") == []
    kill_job(bench.queue.records()[0])
    until(lambda: bench.queue.records()[0]["state"] == "lost")
    assert states(bench.json("report")) == {"0": "lost"}
    assert bench.submitted() == []
    (bench.directory / "go").touch()
    assert len(bench.submitted("--retry")) == 1
    assert bench.counts("wait") == {"expected": 1, "submitted": 1, "finished": 1, "verified": 1}


# -- several machines


def test_cells_are_spread_and_finished_elsewhere_is_not_verified(bench: Bench, boxes: Path) -> None:
    job = {"name": "far", "command": ["sh", "-c", "echo $0 >> ran", "{n}"], "workdir": "~/exp"}
    bench.write(job=job, grid={"n": [0, 1, 2]}, targets=["ssh:a", "ssh:b"])
    done = bench.json("run")
    assert [row["target"] for row in done["submitted"]] == ["ssh:a", "ssh:b", "ssh:a"]
    report = bench.json("wait")
    assert set(states(report).values()) == {"unpulled"}
    assert report["findings"][0]["message"].startswith("finished elsewhere, exit code 0: results.json is not in ")
    assert bench.submitted("--retry") == []
    assert [(boxes / name / "exp" / "ran").read_text() for name in ("a", "b")] == ["0\n2\n", "1\n"]


def test_dead_host_is_left_out_and_its_cell_is_not_run_twice(bench: Bench, boxes: Path) -> None:
    job = {"name": "far", "command": ["sh", "-c", "echo $0 >> ran", "{n}"], "workdir": str(boxes / "a" / "exp")}
    bench.write(job=job, grid={"n": [0, 1, 2]}, targets=["ssh:dead", "ssh:a"], verify={"command": ["true"]})
    done = bench.json("run")
    assert [row["target"] for row in done["submitted"]] == ["ssh:a", "ssh:a", "ssh:a"]
    assert "ssh:dead did not take the cell: dead cannot be reached:" in done["findings"][0]["message"]
    report = bench.json("wait")
    assert states(report) == {"0": "verified", "1": "verified", "2": "verified"}
    assert bench.submitted("--retry") == []


def test_no_target_takes_the_cells(bench: Bench) -> None:
    job = {"name": "x", "command": ["true"], "env": {"N": "{n}"}, "secrets": ["NOT_SET_ANYWHERE"]}
    bench.write(job=job, grid={"n": [0, 1]})
    done = bench.json("run")
    assert [finding["message"] for finding in done["findings"]] == [
        "local did not take the cell: the secret NOT_SET_ANYWHERE is not set in this environment; "
        "export it, then submit again",
        "2 cells are not submitted: no target is left",
    ]
    bench.environment["NOT_SET_ANYWHERE"] = "now it is"
    assert [row["attempts"] for row in bench.submitted()] == [1, 1]


# -- bad input: one sentence, exit code 2, nothing written

JOB = {"name": "x", "command": ["echo", "{lr}"]}


BAD_INPUT = [
    ({"job": JOB}, "names no cells; it needs grid (every combination) or cells (exactly these), or seeds alone"),
    ({"job": JOB, "grid": {"lr": [1]}, "cells": [{"lr": 1}]}, "gives both grid and cells"),
    ({"job": {**JOB, "comand": []}, "seeds": [1]}, "'comand' was unexpected"),
    ({"job": JOB, "seeds": [1]}, "the job asks for {lr}, but a cell has no lr: {'seed': '1'}"),
    ({"job": JOB, "grid": {"lr": [1], "wd": [0]}}, "wd never reaches the job; write {wd} in command, args or env"),
    ({"job": JOB, "grid": {"lr": [1, "1"]}}, "has a cell twice: lr=1; for repeats of a cell use seeds"),
    ({"job": JOB, "grid": {"lr": [1]}, "targets": ["slrum"]}, "unknown target 'slrum'; it is one of local, ssh,"),
    ({"job": {**JOB, "env": {"RGT_CELL": 1}}, "grid": {"lr": [1]}}, "sets RGT_CELL, which is how a sweep finds"),
]


@pytest.mark.parametrize(("sweep", "sentence"), BAD_INPUT)
def test_bad_input(bench: Bench, sweep: dict[str, Any], sentence: str) -> None:
    bench.write(**sweep)
    done = bench.sweep("run", "lr.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") and sentence in done.stderr and "Traceback" not in done.stderr
    assert not (bench.directory / "lr.sweep").exists()


def test_a_foreign_trainer_needs_no_file_of_ours(bench: Bench) -> None:
    """Any command line with {names} in it: the sweep file is written from it, and everything else is as ever."""
    folder = bench.directory
    (folder / "theirs.py").write_text("import sys; open('out-' + '-'.join(sys.argv[2::2]), 'w').write('ok')")
    grid = ("--grid", "lr=1e-3,0.10", "--grid", "seed=0,1", "--judge", f"test -s {folder}/out-{{lr}}-{{seed}}")
    words = (*grid, "--", sys.executable, "theirs.py", "--lr", "{lr}", "--seed", "{seed}")
    dry = bench.sweep("run", "lr.yaml", "--dry-run", *words)
    assert dry.returncode == 0 and "theirs.py --lr 1e-3 --seed 0" in dry.stdout, dry.stdout + dry.stderr
    assert not (folder / "lr.yaml").exists()
    assert bench.sweep("run", "lr.yaml", *words).returncode == 0
    assert bench.counts("wait")["verified"] == 4
    assert sorted(path.name for path in folder.glob("out-*")) == [
        "out-0.10-0",
        "out-0.10-1",
        "out-1e-3-0",
        "out-1e-3-1",
    ]
    assert bench.submitted() == []
    other = bench.sweep("run", "lr.yaml", "--grid", "lr=7", "--", "true", "{lr}")
    assert other.returncode == 2 and "holds another sweep" in other.stderr
    assert bench.sweep("run", "new.yaml", "--", "true").returncode == 2
