"""A box that is silent, endless or huge: every command ends, in little memory, and leaves no ssh behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rgt.host import bounded
from rgt.run import record, seal
from rgt.transfer import boxside

import pytest

from . import front_door, transfer_lab
from .gate_box import until

ROOT = Path(__file__).resolve().parents[1]
ROW = '{"p": "f%d", "b": 1, "m": 1, "o": 420}'
HEAD = '{"root": "/x", "record": null, "last_event": null, "env": "", "writers": []}'
# what the stand-in for ssh does after it has read the first line of its stdin
ANSWERS = {
    "silent": "time.sleep(600)",
    "noise": "while True: say(b'x' * 65536)",
    "noisy lines": "while True: say(b'motd\\n' * 1000)",
    "slow noise": "while True: say(b'motd\\n'); time.sleep(0.5)",
    "endless complaints": "os.dup2(2, 1)\nwhile True: say(b'warning: x\\n' * 10000)",
    "silent after the mark": "say(MARK); time.sleep(600)",
    "one endless line": "say(MARK)\nwhile True: say(b'[' * 65536)",
    "nested": "say(MARK + b'[' * 4000000 + b'\\n'); time.sleep(600)",
    "endless rows": "say(MARK + HEAD)\nfor n in range(10**9): say(ROW % n)",
    "slow rows": "say(MARK + HEAD)\nfor n in range(10**9): say(ROW % n); time.sleep(0.5)",
    "endless runs": 'say(MARK)\nfor n in range(10**9): say(b\'{"run": "r%d"}\\n\' % n)',
    "rows of nothing": "say(MARK)\nwhile True: say(b'{\"run\": \"r\", \"z\": [' + b'[],' * 20000 + b'[]]}\\n')",
    "a head of nothing": "say(MARK + b'{\"record\": {\"z\": [' + b'[],' * 1900000 + b'[]]}}\\n'); time.sleep(600)",
    "wide rows": "say(MARK + HEAD)\nfor n in range(10**9): say(WIDE % n)",
    "a bomb": "import zlib; z = zlib.compress(bytes(200 << 20))\nsay(MARK + b'[{\"z\": %d}]\\n' % len(z) + z)",
    "a huge pack": "say(MARK + b'[{\"z\": 99999999}]\\n')\nwhile True: say(b'x' * 65536)",
    "half a pack": "say(MARK + b'[{\"z\": 9}]\\n' + b'x' * 9); time.sleep(600)",
    "wants what is not there": "say(MARK + b'{\"wanted\": [[7, -1]]}\\n'); time.sleep(600)",
    "closes nothing": "os.close(1); os.close(2); time.sleep(600)",
}


@pytest.fixture
def ssh(tmp_path: Path) -> Path:
    """A folder for PATH with an ssh that answers as RGT_TEST_ANSWER says and writes down its pid."""
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(
        f"""#!{sys.executable}
import os, sys, time
MARK, HEAD, ROW = {boxside.MARK!r}, {HEAD.encode()!r} + b"\\n", {ROW.encode()!r} + b"\\n"
WIDE = ROW.replace(b'"f', b'"' + b"x" * 240 + "\U0001f600".encode())
def say(data):
    while data: data = data[os.write(1, data):]
with open({str(tmp_path / "pids")!r}, "a") as file:
    file.write(f"{{os.getpid()}}\\n")
os.read(0, 1 << 16)
exec(os.environ["RGT_TEST_ANSWER"])
"""
    )
    program.chmod(0o755)
    return program


def living(folder: Path) -> list[int]:
    alive = []
    for pid in map(int, (folder / "pids").read_text().split()):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        alive += [pid] if b"/bin/ssh" in words else []
    return alive


def environment(ssh: Path, answer: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{ssh.parent}:{os.environ['PATH']}", "RGT_TEST_ANSWER": ANSWERS.get(answer, answer)}


Waiting = subprocess.Popen[str]
# a small parent of its own: a process's peak begins with that of the one that forked it, and pytest is large
MEASURED = """import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
with open(sys.argv[1], "a") as file:
    file.write(f"{resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss}\\n")
sys.exit(code)"""


def begin(ssh: Path, answer: str, *words: object) -> Waiting:
    tool, pipe = [sys.executable, str(ROOT / "scripts" / "transfer.py"), *map(str, words)], subprocess.PIPE
    command = [sys.executable, "-c", MEASURED, str(ssh.parents[1] / "peaks"), *tool]
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment(ssh, answer))


def peak_of(ssh: Path) -> int:
    """MiB of the largest call so far."""
    return max(map(int, (ssh.parents[1] / "peaks").read_text().split())) >> 10


def ends(ssh: Path, calls: dict[str, Waiting]) -> None:
    """All of them, at the same time, in little memory, with a sentence about the box; no ssh is left."""
    for answer, call in calls.items():
        out, err = call.communicate(timeout=90)
        assert call.returncode in (1, 2, 3) and "box" in out + err and "Traceback" not in err, (answer, err)
        assert len(out) + len(err) < 20_000, answer
    assert peak_of(ssh) <= 300
    until(lambda: not living(ssh.parents[1]))


def test_pull_ends_whatever_the_box_answers(tmp_path: Path, ssh: Path) -> None:
    words = ("--patience", "2s")
    ends(ssh, {answer: begin(ssh, answer, "pull", "box:runs/x", tmp_path / answer, *words) for answer in ANSWERS})
    assert not list(tmp_path.rglob("PULL_VERIFIED.json"))


@pytest.mark.soak
def test_each_answer_ends_within_patience_and_five_seconds(tmp_path: Path, ssh: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_bytes(b"#" * (4 << 20))
    patience = ("--patience", "5s")
    slowest, calls = (0.0, ""), 0
    for answer in ANSWERS:
        for words in (
            ("pull", "box:runs/x", tmp_path / answer),
            ("push", tmp_path / "code", "box:code"),
            ("aggregate", "box:runs", tmp_path / "all"),
        ):
            took = []
            for each in ("sys.exit(255)", answer):  # a box that refuses at once costs what this machine is busy with
                began = time.monotonic()
                ends(ssh, {each: begin(ssh, each, *words, *patience)})
                took.append(time.monotonic() - began)
            slowest, calls = max(slowest, (took[1] - took[0], f"{words[0]}: {answer}")), calls + 1
    told = f"{calls} calls, slowest {slowest[0]:.1f} s after its start ({slowest[1]}), at most {peak_of(ssh)} MiB"
    print(f"\nhostile answers: {told}")
    assert slowest[0] < 10


def test_push_and_aggregate_end_too(tmp_path: Path, ssh: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_bytes(b"#" * (4 << 20))
    push = ("push", tmp_path / "code", "box:code", "--patience", "2s")
    gather = ("aggregate", "box:runs", tmp_path / "all", "--patience", "2s")
    chosen = ("silent", "noise", "endless complaints", "silent after the mark", "wants what is not there")
    ends(ssh, {f"{verb[0]} {one}": begin(ssh, one, *verb) for verb in (push, gather) for one in chosen})


OSC = "x\x1b]0;owned\x07\x1b]52;c;cm0gLXJm\x07\x9b2J"  # a title, the clipboard, an erased screen
FORGED = {"code": "stalled", "severity": "warn", "message": "x", "fix": "py-spy dump --pid 1; touch pwned"}
LOOK: dict[str, Any] = {"tool": "watch", "ok": False, "findings": [FORGED], "where": "x", "log": "a; touch pwned"}
LOOK |= {"before": None, "roles": {}, "machine": {}, "files": [], "silenced": []}
NONE = dict.fromkeys(("total", "epoch", "epochs", "it_per_s", "tokens_per_s", "eta", "age", "checkpoint_age"))
NOW: dict[str, Any] = {"time": 1.0, "state": "running", "step": 1, "checkpoints": 0, "metrics": {}, "writers": [7]}
LOOK |= {"now": NOW | NONE}


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (LOOK, 1, "py-spy dump --pid 7\n"),
        (LOOK | {"where": OSC, "findings": [FORGED | {"message": OSC, "evidence": OSC}]}, 1, "owned"),
        (LOOK | {"findings": [FORGED | {"severity": "touch"}]}, 2, "the answer of box"),
        (LOOK | {"now": NOW | NONE | {"writers": ["1; touch pwned"]}}, 2, "the answer of box"),
        (LOOK | {"now": []}, 2, "the answer of box"),
        ([], 2, "the answer of box"),
    ],
)
def test_no_command_of_a_box_is_printed(
    ssh: Path, monkeypatch: pytest.MonkeyPatch, answer: object, code: int, said: str
) -> None:
    text = json.dumps(answer)
    monkeypatch.setitem(ANSWERS, "look", f"say({text.encode()!r})")
    words, env = [sys.executable, str(ROOT / "scripts" / "watch.py"), "poll", "box:runs/x"], environment(ssh, "look")
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=env)
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr
    assert not re.search(r"[\0-\x08\x0b-\x1f\x7f-\x9f]", done.stdout + done.stderr)
    assert "Next" not in done.stdout or "pwned" not in done.stdout.partition("Next")[2].partition("```\n\n")[0]


def test_a_long_line_of_a_box_is_cut(ssh: Path) -> None:
    words = [sys.executable, str(ROOT / "scripts" / "watch.py"), "poll", "box:runs/x"]
    env = environment(ssh, "say(b'x' * (4 << 20))")
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 3 and "xxx" in done.stderr and len(done.stdout + done.stderr) < 1000


def test_a_sealed_pull_makes_nobody_call_a_host_of_the_boxs_choice(
    tmp_path: Path, ssh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run.json names a host, a seal covers it, the pull is whole and proved: it is still the word of a box."""
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("RGT_TEST_ANSWER", ANSWERS["silent"])
    there, here = transfer_lab.make_run(tmp_path / "box"), tmp_path / "here"
    run = record.Run(there)
    spec = {"name": "x", "command": ["sh", "-c", f"touch {tmp_path}/ran"], "workdir": "/"}
    run.write_record(run.record() | {"job": {"target": "ssh:elsewhere", "spec": spec}})
    metric = {"name": "loss", "value": 1.0, "split": "val", "n": 10, "direction": "down"}
    run.results.write_text(json.dumps({"run_id": run.id, "metrics": [metric]}))
    seal.seal(run)
    for path in there.rglob("*"):
        path.chmod(0o777)
    pulled = front_door.call("transfer.py", "pull", there, here)
    assert pulled.returncode == 0 and (here / "seal.json").exists(), pulled.stdout + pulled.stderr
    for verb in ("status", "logs", "resume", "stop"):
        done = front_door.call("launch.py", verb, here)
        assert (done.returncode, "came with a pull" in done.stderr) == (4, True), done.stderr
    for words in (("transfer.py", "pull", here), ("watch.py", here), ("watch.py", "serve", "--json", tmp_path)):
        assert front_door.call(*words).returncode in (0, 1, 2)
    for words in (("lease.py", "cost", here), ("verify_local.py", here), ("takeover.py", "snapshot", here)):
        assert front_door.call(*words).returncode in (0, 1, 2)
    assert not [path for path in here.rglob("*") if path.stat().st_mode & 0o022]  # nor who may write here
    assert not (tmp_path / "pids").exists() and not (tmp_path / "ran").exists()


def test_ssh_ends_with_us(tmp_path: Path, ssh: Path) -> None:
    """kill -9 of a pull: an ssh that a box keeps alive would hold the connection for ever."""
    command = [sys.executable, str(ROOT / "scripts" / "transfer.py"), "pull", "box:runs/x", str(tmp_path / "here")]
    pull = subprocess.Popen(command, env=environment(ssh, "silent after the mark"), stderr=subprocess.DEVNULL)
    until(lambda: (tmp_path / "pids").exists() and living(tmp_path))
    pull.send_signal(signal.SIGKILL)
    pull.wait()
    until(lambda: not living(tmp_path))


def test_an_answer_is_bounded_in_time_and_size() -> None:
    word = [sys.executable, "-c"]
    assert bounded.collect([*word, "print(input())"], b"hi\n", 30) == bounded.Done(0, "hi\n", "")
    with pytest.raises(bounded.TooMuch):
        bounded.collect([*word, "while True: print('x' * 9999)"], b"", 30, most=1 << 20)
    with pytest.raises(TimeoutError):
        bounded.collect([*word, "import time; time.sleep(600)"], b"x" * (1 << 20), 0.5)
    loud = bounded.collect([*word, "import sys; sys.stderr.write('y' * 10**7 + 'end'); sys.exit(7)"], b"", 60)
    assert loud.code == 7 and loud.err.endswith("end") and len(loud.err) <= 1 << 16
