"""probes memory -- COMMAND: planted leaks are found and told apart, the command is ended, no healthy one is accused."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rgt.machine import processes
from rgt.probes import host_memory as growth

import pytest

from . import front_door
from .real.support import wait_for

ROOT = Path(__file__).resolve().parents[1]
TESTS = Path(__file__).parent
PROBES = ROOT / "scripts" / "probes.py"
pytestmark = pytest.mark.xdist_group("host-memory")  # the processes are started once

LEAKS = {
    "": set(),
    "train": {"main, training"},
    "shm": {"shared memory"},
    "warm": set(),
    "train val worker": {"main, training", "main, validation", "workers (2)"},
}


def ask(*words: object, script: str = "leaky_processes.py", options: tuple[str, ...] = ()) -> dict[str, Any]:
    command = [sys.executable, PROBES, "memory", "--json", "--log", os.devnull, *options]
    command += ["--", sys.executable, TESTS / script, *words]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode in (0, 1), done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (not report["ok"])
    return report


def places(report: dict[str, Any]) -> set[str]:
    return {one["where"].removeprefix("memory: ") for one in report["findings"]}


@pytest.fixture(scope="module")
def reports() -> dict[str, dict[str, Any]]:
    with ThreadPoolExecutor(4) as pool, tempfile.NamedTemporaryFile(dir="/dev/shm") as other:
        other.write(bytes(64 << 20))  # of somebody else, and more than the leak
        other.flush()
        answers = pool.map(lambda leaks: ask(12, *leaks.split()), LEAKS)
        return dict(zip(LEAKS, answers, strict=True))


@pytest.mark.parametrize("leaks", LEAKS)
def test_leaks_are_found_and_told_apart(reports: dict[str, dict[str, Any]], leaks: str) -> None:
    report = reports[leaks]
    assert places(report) == LEAKS[leaks], report["probes"][0]["evidence"]
    assert "not looked at: GPU memory" in report["probes"][0]["evidence"]


def test_the_slopes_are_the_planted_ones(reports: dict[str, dict[str, Any]]) -> None:
    parts = {part["name"]: part for part in reports["train val worker"]["probes"][0]["parts"]}
    assert parts["main, training"]["mean"] == pytest.approx(1 << 18, rel=0.3)
    assert parts["main, validation"]["mean"] == pytest.approx(16 << 18, rel=0.3)
    warm = {part["name"]: part for part in reports["warm"]["probes"][0]["parts"]}["main, training"]
    assert warm["verdict"] == growth.PLATEAU


def test_a_torch_training_with_three_leaks_names_their_holders() -> None:
    report = ask(400, "hook", "graph", "cache", script="leaky_training.py", options=("--inside",))
    told = [one["message"] for one in report["findings"]]
    assert [one for one in told if "cache of Rows" in one], report["probes"]
    assert [one for one in told if "history in " in one and "each with a graph" in one]
    assert [one for one in told if "hooks are registered after" in one]
    inside = max(report["probes"][0]["inside"], key=lambda row: row["steps"])
    modes = {one["name"].split()[0]: one["by"] for one in inside["growing"] if one["name"]}
    assert modes["history"]["training"] == 0 < modes["history"]["validation"]
    assert modes["_forward_hooks"]["validation"] == 0 < modes["_forward_hooks"]["training"]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("leak", "place"), [("hook", "main, training"), ("graph", "main, validation"), ("cache", "workers (2)")]
)
def test_each_torch_leak_alone(leak: str, place: str) -> None:
    assert places(ask(400, leak, script="leaky_training.py")) == {place}


# -- the command


def gone(pid: int) -> bool:
    return processes.state(pid) in ("", "Z")


def test_steps_end_the_command_and_its_children(tmp_path: Path) -> None:
    code = "import os, subprocess, time\np = subprocess.Popen(['sleep', '600'])\n"
    code += f"open({str(tmp_path / 'pids')!r}, 'w').write(f'{{os.getpid()}} {{p.pid}}')\n"
    code += "for n in range(10**6): print(f'step {n} loss 1.0'); time.sleep(0.02)"
    words = ["memory", "--steps", "20", "--log", tmp_path / "out.log", "--", sys.executable, "-c", code]
    done = front_door.call("probes.py", *words)
    assert done.returncode == 0, done.stdout + done.stderr  # nothing to judge is no finding, and says so
    assert "too few for a slope, about 20 are needed: --duration" in done.stdout
    assert "step 20 loss" in (tmp_path / "out.log").read_text()
    for pid in (tmp_path / "pids").read_text().split():
        wait_for("its end", functools.partial(gone, int(pid)))


def test_too_few_samples_name_the_holder_first_and_ask_no_duration_of_a_command_that_ended(tmp_path: Path) -> None:
    code = "import time\nkept = []\nfor n in range(301):\n    kept.append(bytearray(300_000))\n    time.sleep(0.005)\n"
    code += "    if n % 100 == 0: print(f'step {n} loss 1.0')\ntime.sleep(1)\n"
    (tmp_path / "train.py").write_text(code)
    done = front_door.call("probes.py", "memory", "--inside", "--", sys.executable, tmp_path / "train.py")
    first = done.stdout.splitlines()[0]
    assert first.startswith("FOUND memory       kept in the module, train.py:7 grows in training: "), done.stdout
    assert "the process grew by " in first and "too few for a slope" in first and "--duration" not in first


def test_a_command_that_fails_is_said() -> None:
    done = front_door.call("probes.py", "memory", "--json", "--", sys.executable, "-c", "raise SystemExit(3)")
    assert done.returncode == 1 and "exit code 3" in json.loads(done.stdout)["findings"][0]["message"]


def test_killing_the_probe_ends_the_command(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    code = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    probe = subprocess.Popen([sys.executable, PROBES, "memory", "--", sys.executable, "-c", code])
    wait_for("its start", lambda: mark.exists() and mark.read_text())
    probe.terminate()
    assert probe.wait(20) == 128 + 15
    wait_for("its end", functools.partial(gone, int(mark.read_text())))


@pytest.mark.parametrize("words", [(), ("--factory", "a:b", "--", "true"), ("--", "no-such-command")])
def test_bad_input(words: tuple[str, ...]) -> None:
    done = front_door.call("probes.py", "memory", *words)
    assert done.returncode == 2 and done.stderr.count("\n") == 1


# -- the estimate


def test_a_plateau_noise_and_a_leak_are_told_apart() -> None:
    flat = [(x, 1e9 + 1e5 * (x % 7)) for x in range(200)]
    warm = [(x, 1e9 + 1e6 * min(x, 30)) for x in range(200)]
    leak = [(x, 1e9 + 3e5 * x + 1e6 * (x % 3)) for x in range(200)]
    assert [growth.estimate([points]).verdict for points in (flat, warm, leak)] == ["none", "plateau", "leak"]
    assert growth.estimate([leak]).mean == pytest.approx(3e5, rel=0.05)
    assert growth.estimate([leak[:5]]).verdict == growth.UNJUDGED
