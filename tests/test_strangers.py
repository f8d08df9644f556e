"""What strangers wrote runs nothing here, and what is secret stays here."""

from __future__ import annotations

import itertools
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rgt import secrets, walk
from rgt.evidence import claims
from rgt.job import queue
from rgt.machine import processes
from rgt.run import provenance, record
from rgt.transfer import push

import pytest

from . import front_door
from .gate_box import Gate, until
from .real.support import need
from .test_manifest_scaffold import make_run

ROOT = Path(__file__).resolve().parents[1]
SECRET = """.env prod.env .env.local .netrc .git-credentials .kube/config a/.aws/credentials hf_token my_token
server.key cert.p12 .config/gcloud/access_tokens.db .config/gcloud/application_default_credentials.json id_ed25519
.ssh/config kaggle.json .cache/huggingface/token secrets.yaml client_secret_1.json .docker/config.json rclone.conf
.modal.toml wandb_api_key terraform.tfstate""".split()
PLAIN = """train.py tokenizer.json tokens.bin special_tokens_map.json .env.example config.json keyboard.txt keys.py
token_stats.py id_rsa.pub data/config README.md monkey.csv""".split()


def git(folder: Path, *words: str) -> None:
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always"]
    subprocess.run([need("git", "git"), "-C", str(folder), *author, *words], check=True, capture_output=True)


def repository(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "train.py").write_text("print()\n")
    (folder / ".env").write_text("KEY=1\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A pulled repository whose own configuration, and that of its submodule, names programs."""
    trap, program = repository(tmp_path / "trap"), tmp_path / "program"
    git(trap, "submodule", "--quiet", "add", str(repository(tmp_path / "inner")), "inner")
    git(trap, "commit", "-qm", "second")
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> {tmp_path}/ran\ncat\n')
    program.chmod(0o755)
    for place in (trap, trap / "inner"):
        (place / ".gitattributes").write_text("*.py filter=x diff=x\n")
        for name in (
            "filter.x.clean",
            "filter.x.process",
            "core.fsmonitor",
            "diff.x.textconv",
            "diff.external",
            "core.pager",
        ):
            git(place, "config", name, str(program))
        (place / "train.py").write_text("print(1)\n")
    hook = trap / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.symlink_to(program)
    return trap


def test_nothing_of_a_strangers_repository_runs(trap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = provenance.git_state(trap)
    assert state and state["dirty"] and "print(1)" in state["diff"]
    there = provenance.repository_state(trap)
    assert there and "train.py" in there["changed_files"]
    assert {item["path"] for item in push.gather_load(trap, []).files} >= {"train.py", ".gitattributes"}
    assert claims.chosen_documents((), trap, frozenset([".py"])) == [trap / "train.py"]
    monkeypatch.chdir(trap)
    front_door.call("takeover.py", "snapshot", trap)
    assert not trap.with_name("ran").exists(), trap.with_name("ran").read_text()


def test_credentials_are_neither_sent_nor_recorded(tmp_path: Path) -> None:
    assert [name for name in SECRET if not secrets.is_secret(name)] == []
    assert [name for name in PLAIN if secrets.is_secret(name)] == []
    for name in (*SECRET, *PLAIN):
        path = tmp_path / "plain" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    assert sorted(item["path"] for item in push.gather_load(tmp_path / "plain", []).files) == sorted(PLAIN)
    project = repository(tmp_path / "project")
    (project / ".env").write_text("KEY=sesame\n")
    state = provenance.git_state(project)
    assert state and state["dirty"] and "sesame" not in str(state)
    run = record.create(tmp_path / "runs", "a", command=["x"], config={}, seeds={})
    assert run.run_json.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("train.py --token abc --max-tokens 5", "train.py --token *** --max-tokens 5"),
        ("--hf_token=abc --tokenizer gpt2", "--hf_token=*** --tokenizer gpt2"),
        ("AWS_SECRET_ACCESS_KEY=abc/+ python x.py", "AWS_SECRET_ACCESS_KEY=*** python x.py"),
        ("git clone https://me:pa55@host/x.git", "git clone https://me:***@host/x.git"),
        ('curl -H "Authorization: Bearer abcdefgh12"', 'curl -H "Authorization: Bearer ***"'),
        ('{"password": "pa55", "tokens": 12}', '{"password": "***", "tokens": 12}'),
        (
            "--pad_token_id 0 --num_tokens 1e9 --secret-mode true",
            "--pad_token_id 0 --num_tokens 1e9 --secret-mode true",
        ),
        ("--api-key abc123 --password hunter2 HF=hf_abcdefghijk", "--api-key *** --password *** HF=***"),
    ],
)
def test_values_of_secrets_are_hidden(text: str, shown: str) -> None:
    assert secrets.redact(text) == shown
    if '"' not in text:
        assert secrets.redact_words(text.split(" ")) == shown.split(" ")


def test_a_snapshot_shows_no_secret_of_a_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rgt.takeover.screen._PROCESSES", 1000)  # however many trainings this machine has
    (tmp_path / "train.py").write_text("import time\nprint('step 1 loss 2.0', flush=True)\ntime.sleep(600)\n")
    words = ["--token", "sesame1", "--url", "https://me:sesame2@host/x", "AWS_SECRET_ACCESS_KEY=sesame3"]
    with (tmp_path / "train.log").open("wb") as log:
        training = subprocess.Popen([sys.executable, "train.py", *words], cwd=tmp_path, stdout=log)
    try:
        until(lambda: (tmp_path / "train.log").stat().st_size > 0)
        for fmt in ((), ("--json",)):
            told = front_door.call("takeover.py", "snapshot", tmp_path, "--seconds", "60", *fmt, cwd=tmp_path).stdout
            assert "***" in told and "train.py" in told and "sesame" not in told
    finally:
        training.kill()
        training.wait()


# -- what a stranger writes is shown, not obeyed


EVIL = "a\x1b]0;owned\x07\x1b]52;c;cm0gLXJm\x07\x1b[2J\x9b31m\u202ekcats"


def run_tool(*words: object, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, str(ROOT / "scripts" / str(words[0])), *map(str, words[1:])]
    return subprocess.run(command, capture_output=True, timeout=120, cwd=cwd)


def test_no_control_character_reaches_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Titles, the clipboard, erased screens and turned text: from file names, logs and records."""
    run = record.create(tmp_path / "runs", "a", command=["x", EVIL], config={"note": EVIL}, seeds={})
    run.log.write_text(f"step 1 loss 2.0\n{EVIL}\nRuntimeError: {EVIL}\n")
    (tmp_path / f"{EVIL}.pt").write_bytes(b"no checkpoint")
    monkeypatch.setenv("RGT_QUEUE", str(tmp_path / "queue"))
    printing = [sys.executable, "-c", f"print({EVIL!r})"]
    assert run_tool("gpu_gate.py", "-n", "a", "--slots", "1", "--", *printing, cwd=tmp_path).returncode == 0
    (tmp_path / "job.yaml").write_text(json.dumps({"name": "b", "command": printing}))
    launched = run_tool("launch.py", "submit", "job.yaml", "--on", "local", cwd=tmp_path)
    begun = launched.stdout.decode().strip()
    until(lambda: b"finished" in run_tool("launch.py", "status", begun, cwd=tmp_path).stdout)
    logs = ("gpu_gate.py", "logs", "a")
    told = [
        run_tool(*words, cwd=tmp_path)
        for words in (
            ("watch.py", run.path),
            ("triage.py", run.log),
            ("takeover.py", "snapshot", tmp_path),
            ("verify_local.py", tmp_path),
            ("adopt.py", run.log),
            ("compare_runs.py", run.path, "--vs", tmp_path / EVIL, "--metric", "loss"),
            ("launch.py", "logs", begun),
            logs,
            (*logs, "--json"),
        )
    ]
    for done in told:
        text = (done.stdout + done.stderr).decode()
        assert not re.search(r"[\0-\x08\x0b-\x1f\x7f-\x9f\u202e]", text) and done.returncode in (0, 1, 2), text
    assert sum(b"owned" in done.stdout + done.stderr for done in told) >= 4
    assert EVIL in json.loads(told[-1].stdout)["lines"][0]


def test_a_printed_command_runs_nothing_of_a_name(tmp_path: Path) -> None:
    evil = "a;touch pwned;$(touch pwned)"
    box = tmp_path / "box" / evil
    box.mkdir(parents=True)
    (box / f"{evil}.key").write_text("x")
    os.symlink("/etc", box / evil)
    (box / "train.py").write_text(f"#!/{evil}\r\n")
    told = front_door.call("transfer.py", "push", box, tmp_path / "there", "--dry-run").stdout
    told += front_door.call("transfer.py", "pull", box, tmp_path / "here").stdout
    fixes = [line.partition("fix: ")[2] for line in told.splitlines() if "fix: " in line]
    assert any(evil in fix for fix in fixes)
    for fix in fixes:
        subprocess.run(["bash", "-c", fix], cwd=tmp_path, capture_output=True, timeout=60)
    assert not list(tmp_path.rglob("pwned"))


def test_a_later_process_of_the_same_number_is_not_ended(tmp_path: Path) -> None:
    """A gate died, and its number is now somebody else's: cancel ends the job, and leaves that process alone."""
    box = Gate(tmp_path)
    job = box.detach("a", "sleep", "600", options=("--grace", "0.3s"))
    os.kill(box.running(job)["gate"]["pid"], signal.SIGKILL)
    path = box.queue.job_path(job, "json")
    with subprocess.Popen(["sleep", "600"]) as bystander:
        path.write_text(json.dumps(json.loads(path.read_text()) | {"gate": {"pid": bystander.pid, "start": 1}}))
        try:
            assert box.run("cancel", job).returncode == 0
            assert bystander.poll() is None and list(processes.carrying(queue.MARK, job)) == []
        finally:
            bystander.kill()


PROMISE = re.compile(r"`((?:real/)?test_\w+\.py)::(test_\w+)`")


def test_every_promise_names_a_test_that_exists() -> None:
    section = (ROOT / "SECURITY.md").read_text().partition("## What the scripts do")[0]
    promises = [line for line in section.splitlines() if line.startswith("- ") and not line.startswith("- Not: ")]
    assert len(promises) >= 20 and [line for line in promises if not PROMISE.search(line)] == []
    assert section.count("- Not: ") == section.count("\n**")
    for file, name in PROMISE.findall(section):
        assert f"\ndef {name}(" in (ROOT / "tests" / file).read_text(), f"{file} has no {name}"


# -- folders without an end


WALKERS = """adopt --dry-run {} | takeover snapshot {} | wandb_forensics list {} | triage {} | triage --flight {} |
compare_runs {} --vs {} --metric loss | watch serve --json {} | reconcile --values values.json {} | check_staleness {} |
verify_local {} | checkpoints list {} | lease cost {}"""
TELLS = WALKERS.split("|")[:9]


@pytest.fixture(scope="module")
def maze(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """20,000 links to one folder, 20,000 to one log, links in circles and a pipe with the name of a log."""
    maze = tmp_path_factory.mktemp("maze") / "maze"
    for name in ("run", "logs", "circle/inner"):
        (maze / name).mkdir(parents=True)
    (maze / "run" / "train.log").write_text("step 1 loss 2.0\nstep 2 loss 1.0\n")
    for number in range(20_000):
        os.symlink("run", maze / f"{number}")
        os.symlink("../run/train.log", maze / "logs" / f"{number}.log")
    os.symlink("..", maze / "circle" / "up")
    os.symlink("../..", maze / "circle" / "inner" / "up")
    os.symlink("self.log", maze / "circle" / "self.log")
    os.mkfifo(maze / "circle" / "pipe.log")
    (maze.parent / "values.json").write_text('{"loss": 1.0}')
    yield maze
    shutil.rmtree(maze)


@pytest.mark.parametrize("words", WALKERS.split("|"))
def test_a_folder_of_links_is_searched_once_and_in_time(maze: Path, words: str) -> None:
    walk.tell.cache_clear()
    began = time.monotonic()
    tool, *rest = words.replace("{}", str(maze)).split()
    done = front_door.call(f"{tool}.py", *rest, cwd=maze.parent)
    assert time.monotonic() - began < 25 and done.returncode in (0, 1, 2), done.stderr
    said = done.stdout + done.stderr
    assert "entries or more; only the first were looked at" in said or words not in TELLS
    assert said.count("train.log") < 10 and "20000 runs" not in said


def test_a_link_in_circles_hides_nothing_beside_it(tmp_path: Path) -> None:
    os.symlink("self.log", tmp_path / "self.log")
    os.symlink("self.pt", tmp_path / "self.pt")
    (tmp_path / "train.log").write_text("step 1 loss 2.0\n")
    assert "step 1" in front_door.call("watch.py", tmp_path).stdout
    assert front_door.call("verify_local.py", tmp_path).returncode == 1


def test_a_walk_says_where_it_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in itertools.product("abc", repeat=3):
        (tmp_path.joinpath(*place) / "more").mkdir(parents=True)
        (tmp_path.joinpath(*place) / "train.log").write_text("step 1 loss 2.0\n")
    walked: dict[str, list[str]] = {"late": [], "many": [], "whole": []}
    late = list(walk.walk(str(tmp_path), time.monotonic() - 1, walked["late"]))
    many = list(walk.walk(str(tmp_path), None, walked["many"], most=60))
    whole = list(walk.walk(str(tmp_path), None, walked["whole"]))
    assert (late, len(whole), walked["whole"]) == ([], 27, []) and 0 < len(many) < 27
    assert re.fullmatch(r"the walk ended in .*: the time was over; name .*", walked["late"][0])
    assert any(re.fullmatch(r"the walk ended in .*: more than 60 entries; .*", one) for one in walked["many"])
    list(walk.walk(str(tmp_path), time.monotonic() - 1))
    assert "the walk ended in" in capsys.readouterr().err
    done = front_door.call("adopt.py", tmp_path, "--dry-run", "--patience", "0s")
    assert done.returncode in (1, 2) and "the walk ended in" in done.stdout + done.stderr


@pytest.mark.soak
def test_a_disk_of_folders_is_searched_in_time(tmp_path: Path) -> None:
    for number in range(60_000):
        (tmp_path / "disk" / f"{number % 60}" / f"{number}").mkdir(parents=True)
        if number % 3 == 0:
            (tmp_path / "disk" / f"{number % 60}" / f"{number}" / "train.log").write_text("step 1 loss 2.0\n")
    (tmp_path / "values.json").write_text('{"loss": 1.0}')
    for words in (*WALKERS.split("|"), *(["wandb_forensics list /", "adopt --dry-run /"])):
        began = time.monotonic()
        tool, *rest = words.replace("{}", str(tmp_path / "disk")).split()
        done = run_tool(f"{tool}.py", *rest, cwd=tmp_path)
        print(f"\n60,000 folders: {time.monotonic() - began:.0f} s, exit {done.returncode}: {words.strip()}")
        seconds = 60 * max(1, words.count("{}"))  # each place that is named has its own half minute of reading
        assert time.monotonic() - began < seconds and done.returncode in (0, 1, 2), done.stderr
    shutil.rmtree(tmp_path / "disk")


# -- files that never end, and configs that explode


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB, "its aliases make more than 200000 values"),
        ("name: a\ncommand: x\nname: b\n", "line 3: the key name is there twice"),
        ("a: &a [*a]\n", "its aliases make more than"),
        ("[" * 5000, "nested too deep"),
    ],
)
def test_a_job_that_explodes_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "job.yaml").write_text(text)
    done = front_door.call("launch.py", "submit", tmp_path / "job.yaml", "--on", "local", "--dry-run")
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1


def test_an_infinity_in_the_evidence_is_no_agreement(tmp_path: Path) -> None:
    assert front_door.call("manifest_scaffold.py", "init", cwd=tmp_path).returncode == 0
    run = make_run(tmp_path, 0.5)
    words = ("manifest_scaffold.py", "claim", "add", "c", "--metric", "accuracy", "--run", run)
    assert front_door.call(*words, cwd=tmp_path).returncode == 0
    (tmp_path / "paper.md").write_text("The accuracy is 50 %.\n")
    evidence = tmp_path / "EVIDENCE.json"
    forged, count = re.subn(r'"value": [\d.]+', '"value": Infinity', evidence.read_text())
    assert count == 1
    evidence.write_text(forged)
    for checking in (("reconcile.py", "paper.md"), ("manifest_scaffold.py", "claim", "check"), ("render.py", "tables")):
        done = front_door.call(*checking, cwd=tmp_path)
        assert done.returncode in (1, 2) and "is inf; that is no result" in done.stdout + done.stderr, (
            done.stdout + done.stderr
        )


def holes(path: Path, size: int) -> Path:
    """A log as a crash of the machine leaves it: lines, then zeros, then lines."""
    with path.open("wb") as file:
        file.write(b"step 1 loss 2.0\n")
        file.seek(size)
        file.write(b"\nRuntimeError: CUDA error: out of memory\n")
    return path


@pytest.mark.parametrize("size", [256 << 20, pytest.param(2 << 30, marks=pytest.mark.soak)])
def test_a_log_of_zeros_is_read_in_time_and_little_memory(tmp_path: Path, size: int) -> None:
    log, began = holes(tmp_path / "train.log", size), time.monotonic()
    told = run_tool("triage.py", log, cwd=tmp_path)
    assert told.returncode == 1 and b"out of memory" in told.stdout, told.stderr
    assert run_tool("watch.py", log, cwd=tmp_path).returncode in (0, 1)
    assert run_tool("adopt.py", log, "--dry-run", cwd=tmp_path).returncode in (0, 1, 2)
    seconds, peak = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
    print(f"\n{size >> 20} MiB of zeros: triage, watch and adopt in {seconds:.0f} s, at most {peak} MiB")
    assert seconds < 60


def test_a_pipe_in_a_run_directory_is_not_waited_for(tmp_path: Path) -> None:
    run = record.create(tmp_path / "runs", "a", command=["x"], config={}, seeds={})
    for name in ("run.json", "checkpoints_index.json", "events.jsonl", "metrics.jsonl", "results.json"):
        (run.path / name).unlink(missing_ok=True)
        os.mkfifo(run.path / name)
    for words in (
        ("watch.py", run.path),
        ("results.py", run.path, "--metric", "loss"),
        ("checkpoints.py", "list", run.path),
        ("reconcile.py", "--values", run.path / "results.json", ROOT / "LICENSE"),
    ):
        done = subprocess.run(
            [sys.executable, ROOT / "scripts" / words[0], *words[1:]], capture_output=True, timeout=60
        )
        assert done.returncode in (1, 2), done.stderr
