"""gpu_gate through its front door, with real processes: order, exclusion, kills, signals, records, bad input."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench import gate_chaos
from rgt.job import queue
from rgt.machine import processes as procs

import pytest

from .front_door import executable
from .gate_box import PYTHON, SHELL, Gate, kill, kill_job, until
from .real.support import missing


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Gate]:
    box = Gate(tmp_path)
    yield box
    box.clean()


# -- one job


def test_passes_output_and_exit_code_through_and_names_the_log_first(box: Gate) -> None:
    done = box.run("-n", "a", "-t", "1m", "--slots", 1, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    record = box.record("a")
    assert done.returncode == 7
    assert done.stdout == "out\nerr\n"
    assert done.stderr.splitlines()[0] == f"log: {record['log']}"
    assert Path(record["log"]).read_text() == "out\nerr\n"
    seen = [record[name] for name in ("state", "exit_code", "slot", "cwd")]
    assert seen == ["failed", 7, "slot-0", str(box.directory)]
    assert set(record) == set(
        "id name state reason gate job gpus slot taken submitted started ended exit_code detached "
        "command cwd log wanted asked environment".split()
    )
    assert record["submitted"] <= record["taken"] <= record["started"] <= record["ended"]
    # death by a signal is told as a shell does
    assert box.run("-n", "b", "--slots", 1, "--", "sh", "-c", "kill -9 $$").returncode == 137


def test_standard_input_is_passed_on_and_the_log_may_be_anywhere(box: Gate) -> None:
    with subprocess.Popen(["echo", "fed"], stdout=subprocess.PIPE) as source:
        words = ("-n", "a", "--slots", 1, "--log", "mine.log", "--", "cat")
        assert box.run(*words, stdin=source.stdout).stdout == "fed\n"
    assert (box.directory / "mine.log").read_text() == "fed\n"


TREE = "setsid sleep 300 & (sleep 300 & sleep 300) & echo ready; wait"


@pytest.mark.parametrize("stubborn", ["", "trap '' TERM; "], ids=["heeds TERM", "ignores TERM"])
def test_timeout_ends_the_whole_tree_also_what_called_setsid(box: Gate, stubborn: str) -> None:
    done = box.run("-n", "a", "-t", "0.5s", "--grace", "0.3s", "--slots", 1, "--", "sh", "-c", stubborn + TREE)
    assert done.returncode == 124
    assert list(procs.carrying(queue.MARK, box.record("a")["id"])) == []
    assert box.record("a")["state"] == "timeout"
    assert "timeout after 0.5s: SIGTERM to" in done.stderr


@pytest.mark.parametrize("name", ["TERM", "INT", "USR1"])
def test_signals_reach_the_job(box: Gate, name: str) -> None:
    code = f"trap 'echo got {name}; exit 9' {name}; echo ready; while :; do sleep 0.01; done"
    process = box.popen("-n", "a", "--slots", 1, "--", "bash", "-c", code)
    log = Path(box.running("a")["log"])
    until(lambda: "ready" in log.read_text())
    os.kill(box.running("a")["gate"]["pid"], getattr(signal, f"SIG{name}"))
    out, _ = process.communicate(timeout=20)
    assert (process.returncode, out.splitlines()[-1]) == (9, f"got {name}")


@pytest.mark.parametrize(("name", "code"), [("TERM", 143), ("INT", 130)])
def test_signal_takes_a_waiting_job_out_of_the_line(box: Gate, name: str, code: int) -> None:
    box.running(box.detach("first", "sleep", 60))
    process = box.popen("-n", "second", "--slots", 1, "--", "true")
    until(lambda: any(r["name"] == "second" and r["reason"] for r in box.queue.records()))
    os.kill(box.queue.find("second")["gate"]["pid"], getattr(signal, f"SIG{name}"))
    process.communicate(timeout=20)
    assert (process.returncode, box.state("second"), box.tickets()) == (code, "cancelled", [])


def test_what_the_command_leaves_behind_keeps_the_slot(box: Gate) -> None:
    # it is named once, so the launcher ends only when its child has become `sleep`
    job = box.detach("launcher", "sh", "-c", "sleep 300 & until grep -qa ^sleep /proc/$!/cmdline; do :; done; exit 0")
    waiting = box.detach("next", "true")
    until(lambda: "waiting for the 1 processes it left: sleep 300" in Path(box.queue.find(job)["log"]).read_text())
    assert (box.state(job), box.state(waiting)) == ("running", "queued")
    for pid in procs.carrying(queue.MARK, job):
        kill(pid)
    assert box.run("wait", waiting).returncode == 0
    assert (box.state(job), box.record(job)["exit_code"]) == ("done", 0)


# -- exclusion and order


def test_jobs_run_one_at_a_time_in_the_order_of_submission(box: Gate) -> None:
    names = [f"j{number}" for number in range(8)]
    for name in names:
        box.detach(name, "sh", "-c", f"echo {name} >> order; sleep 0.02")
    assert box.run("wait", *names).returncode == 0
    assert (box.directory / "order").read_text().split() == names
    records = [box.queue.find(name) for name in names]
    assert all(a["ended"] <= b["started"] for a, b in itertools.pairwise(records))


def test_slots_run_side_by_side_and_no_more(box: Gate) -> None:
    for number in range(3):
        box.detach(f"j{number}", "sleep", 60, slots=2)
    until(lambda: [box.state(f"j{n}") for n in range(3)] == ["running", "running", "queued"])
    assert {box.queue.find("j0")["slot"], box.queue.find("j1")["slot"]} == {"slot-0", "slot-1"}


def test_killed_gate_does_not_free_the_slot_of_its_living_job(box: Gate) -> None:
    first = box.detach("first", "sleep", 300)
    record = box.running(first)
    second = box.detach("second", "true")
    until(lambda: box.queue.find(second)["reason"])
    kill(record["gate"]["pid"])
    until(lambda: not procs.alive(record["gate"]))
    assert (box.state(first), box.state(second)) == ("running", "queued")
    assert "its gate was killed" in box.record(first)["reason"]
    kill(record["job"]["pid"])
    assert box.run("wait", second).returncode == 0
    assert box.state(first) == "lost"


@pytest.mark.parametrize("environment", ["None", "{}"], ids=["kept", "emptied"])
def test_grandchild_that_closed_the_lock_still_keeps_the_slot(box: Gate, environment: str) -> None:
    """Python's subprocess closes inherited descriptors: when gate and parent are killed, only the mark is left."""
    code = f"import subprocess; subprocess.run(['/bin/sleep', '300'], env={environment}, start_new_session=True)"
    first = box.detach("first", sys.executable, "-c", code)
    record = box.running(first)
    orphan = until(lambda: procs.descendants(record["job"]["pid"]))[0]
    second = box.detach("second", "true")
    until(lambda: box.queue.find(second)["reason"])
    kill(record["gate"]["pid"])
    kill(record["job"]["pid"])
    until(lambda: "whose gate was killed" in (box.queue.find(second)["reason"] or ""))
    until(lambda: f"pids [{orphan}]" in box.queue.find(second)["reason"])  # its parent may still be dying
    kill(orphan)
    assert box.run("wait", second, "--timeout", "30s").returncode == 0


def test_killed_waiting_gate_does_not_hold_up_those_behind_it(box: Gate) -> None:
    first, second, third = box.detach("first", "sleep", 300), box.detach("second", "true"), box.detach("third", "true")
    kill(until(lambda: box.queue.find(second)["gate"])["pid"])
    kill(box.running(first)["job"]["pid"])
    assert box.run("wait", third).returncode == 0
    record = box.record(second)
    assert (record["state"], record["reason"]) == ("lost", "its gate is gone; it never started")


@pytest.mark.parametrize(("submitters", "jobs"), [(4, 8), pytest.param(20, 50, marks=pytest.mark.soak)])
def test_storm_of_kills(tmp_path: Path, submitters: int, jobs: int) -> None:
    outcome = gate_chaos.storm(tmp_path, submitters, jobs)
    assert outcome.kills >= submitters
    assert (outcome.overlaps, outcome.without_record, outcome.out_of_order) == (0, set(), 0)
    assert len(outcome.ran) == len(set(outcome.ran)), "a job ran twice"
    never = {r["name"] for r in outcome.records if r["detached"] and not r["started"]} - set(outcome.ran)
    assert never == set(), "a detached job was lost for good"


@pytest.mark.parametrize("jobs", [6, pytest.param(60, marks=pytest.mark.soak)])
def test_after_a_reboot_one_command_resumes_the_line_in_order(tmp_path: Path, jobs: int) -> None:
    outcome, lost = gate_chaos.reboot(tmp_path, jobs)
    assert lost == [f"r{number}" for number in range(jobs)]
    assert outcome.ran == lost
    blocker = next(record for record in outcome.records if record["name"] == "blocker")
    assert (blocker["state"], blocker["reason"]) == ("lost", "its processes are gone and left no exit code")


# -- detached jobs and the verbs


def test_detach_returns_at_once_and_outlives_its_shell(box: Gate) -> None:
    shell = f"id=$({SHELL} -n a --slots 1 --detach -- sh -c 'sleep 0.5; echo survived'); echo $id"
    words = ["setsid", "sh", "-c", shell]
    done = subprocess.run(words, env=box.environment, capture_output=True, text=True, timeout=20)
    job = done.stdout.strip()
    assert box.run("wait", job).returncode == 0
    logged = box.run("logs", job)
    assert (logged.stdout, logged.stderr) == ("survived\n", f"log: {box.record(job)['log']}\n")


def test_logs_shows_control_characters_and_sends_none_to_the_terminal(box: Gate) -> None:
    printed = r"first\n\tred \033[31m, bar 1\r2, C1 \302\233, byte \377, \350\256\255\nlast\n"
    box.detach("a", "printf", printed)
    box.run("wait", "a")
    shown = "\tred \\x1b[31m, bar 1\\r2, C1 \\x9b, byte \\xff, 训\nlast\n"
    assert box.run("logs", "a").stdout == f"first\n{shown}"
    assert box.run("logs", "a", "-n", 2).stdout == shown
    assert json.loads(box.run("logs", "a", "-n", 1, "--json").stdout)["lines"] == ["last"]
    Path(box.record("a")["log"]).unlink()
    gone = box.run("logs", "a")
    assert (gone.returncode, "cannot read the log" in gone.stderr) == (2, True)


def test_then_starts_after_a_good_end_in_its_place_and_never_after_a_bad_one(box: Gate) -> None:
    box.running(box.detach("first", "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; echo first >> order"))
    box.detach("second", "sh", "-c", "echo second >> order", options=("--then", "first"))
    for name in ("third", "fourth"):
        box.detach(name, "sh", "-c", f"echo {name} >> order")
    until(lambda: box.record("third")["reason"] is not None)
    (box.directory / "go").touch()
    assert box.run("wait", "second", "third", "fourth").returncode == 0
    assert (box.directory / "order").read_text().split() == ["first", "second", "third", "fourth"]
    bad = box.detach("bad", "false")
    done = box.run("-n", "never", "--slots", 1, "--then", "bad", "--", "touch", "ran")
    assert (done.returncode, box.state("never")) == (3, "cancelled")
    assert f"{bad}, which it waited for, is failed" in done.stderr and not (box.directory / "ran").exists()


def test_then_does_not_hold_up_others(box: Gate) -> None:
    box.running(box.detach("first", "sleep", 300, slots=2))
    box.detach("dependent", "true", slots=2, options=("--then", "first"))
    assert box.run("-n", "free", "--slots", 2, "--", "true").returncode == 0


def test_of_many_unique_jobs_at_once_one_is_taken_and_later_ones_once_it_ended(box: Gate) -> None:
    words = ("-n", "a", "--slots", 1, "--unique", "--detach", "--", "sleep", 300)
    processes = [box.popen(*words) for _ in range(6)]
    ends = [(process.communicate(timeout=60), process.returncode) for process in processes]
    assert sorted(code for _, code in ends) == [0, 2, 2, 2, 2, 2]
    (record,) = box.queue.records()
    refusals = [err for (_, err), code in ends if code]
    assert all(err.startswith("error: a is already ") and err.endswith(f" as {record['id']}\n") for err in refusals)
    box.run("cancel", record["id"])
    assert box.run("-n", "a", "--slots", 1, "--unique", "--", "true").returncode == 0


def test_cancel_ends_a_running_and_a_waiting_job(box: Gate) -> None:
    running = box.detach("a", "sh", "-c", TREE, options=("--grace", "0.3s"))
    box.running(running)
    waiting = box.detach("b", "true")
    dry = box.run("cancel", running, "--dry-run")
    assert dry.stdout.startswith("would cancel running") and box.state(running) == "running"
    done = json.loads(box.run("cancel", waiting, running, "--json").stdout)
    assert [job["state"] for job in done["jobs"]] == ["cancelled", "cancelled"]
    assert list(procs.carrying(queue.MARK, running)) == []
    assert box.tickets() == []


def test_cancel_works_when_the_gate_is_dead(box: Gate) -> None:
    job = box.detach("a", "sh", "-c", "trap '' TERM; " + TREE, options=("--grace", "0.3s"))
    kill(box.running(job)["gate"]["pid"])
    assert box.run("cancel", job).returncode == 0
    assert list(procs.carrying(queue.MARK, job)) == []
    assert box.state(job) == "cancelled"


def test_wait_tells_a_bad_end_and_its_own_timeout(box: Gate) -> None:
    bad, long = box.detach("bad", "false"), box.detach("long", "sleep", 300)
    done = box.run("wait", bad, "--json")
    assert (done.returncode, json.loads(done.stdout)["jobs"][0]["exit_code"]) == (1, 1)
    done = box.run("wait", long, "--timeout", "0.2s")
    assert (done.returncode, done.stdout.split()[0]) == (1, "running")


def test_resume_names_what_ran_only_on_request(box: Gate) -> None:
    job = box.detach("a", "sh", "-c", "echo x >> count; [ -e go ] || sleep 300")
    record = box.running(job)
    until(lambda: (box.directory / "count").exists())
    living = box.run("resume", job)
    assert (living.returncode, living.stderr) == (2, f"error: only lost jobs can be resumed; {job} is running\n")
    kill_job(record)
    until(lambda: box.state(job) == "lost")
    assert box.run("resume").stderr == "nothing to resume\n"
    (box.directory / "go").touch()
    assert box.run("resume", job).stdout == f"{job}\n"
    assert box.run("wait", job).returncode == 0
    assert (box.directory / "count").read_text() == "x\nx\n"


def test_list_names_who_uses_a_card_outside_of_the_gate(box: Gate) -> None:
    """A small nvidia-smi on PATH prints what a real one prints of two processes."""
    ours = box.running(box.detach("ours", "sleep", 60))["job"]["pid"]
    outsider = subprocess.Popen(["sleep", "61"])
    apps = "".join(f"GPU-bbbb, {pid}, 512\n" for pid in (ours, outsider.pid))
    card = "0, GPU-bbbb, Tesla T4, 15360, 0, 0, 35, [N/A], 7.5\n"
    executable(box.directory / "nvidia-smi", f"case $1 in --query-gpu=*) printf '{card}';; *) printf '{apps}';; esac\n")
    box.environment["PATH"] = f"{box.directory}{os.pathsep}{os.environ['PATH']}"
    try:
        outside = [line for line in box.run("list").stdout.splitlines() if line.startswith("outside")]
        assert outside == [f"outside   GPU 0: pid {outsider.pid} (sleep 61), not started through this gate"]
    finally:
        outsider.kill()
        outsider.wait()


def test_list_shows_every_state_and_bounds_itself(box: Gate) -> None:
    box.run("-n", "j0", "--slots", 1, "--", "true")
    template = box.record("j0")
    for number in range(1, 22):
        box.queue.save({**template, "id": f"20260101-0000{number:02d}-j-000000", "submitted": float(number)})
    box.running(box.detach("now", "sleep", 60))
    done = box.run("list")
    assert (len(done.stdout.splitlines()), done.stderr) == (23, "21 jobs, 2 older ones with --all\n")
    assert done.stdout.splitlines()[0] == f"queue {box.queue.directory}"
    assert done.stdout.splitlines()[1].split() == ["STATE", "JOB", "FOR", "WHERE,", "WHY"]
    assert len(json.loads(box.run("list", "--all", "--json").stdout)["jobs"]) == 23
    assert done.stdout.splitlines()[-1].split()[0] == "running"


def test_status_as_text_and_a_torn_record_is_left_out(box: Gate) -> None:
    box.run("-n", "a", "--slots", 1, "--", "echo", "two words")
    lines = box.run("status", "a").stdout.splitlines()
    assert (lines[0][:4], lines[1]) == ("done", "command   echo 'two words'") and lines[0].endswith("slot-0")
    (box.queue.jobs / "20260101-000000-torn-000000.json").write_text('{"id": "20260101')
    assert [job["name"] for job in json.loads(box.run("list", "--json").stdout)["jobs"]] == ["a"]


# -- a queue shared by users


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become two users")
def test_two_users_share_a_queue(box: Gate, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    if subprocess.run([*other, sys.executable, str(PYTHON), "--help"], cwd="/", capture_output=True).returncode:
        missing("another user cannot read this folder")
    shared = Path(f"/tmp/rgt-gate-test-{os.getpid()}")
    shared.mkdir()
    shared.chmod(0o1777)
    box.queue, box.environment["RGT_QUEUE"] = queue.Queue(shared), str(shared)
    try:
        first = box.detach("root-job", "sleep", 300)
        record = box.running(first)
        command = [*other, sys.executable, str(PYTHON), "-n", "theirs", "--slots", "1", "--", "true"]
        process = subprocess.Popen(command, env=box.environment, cwd="/", stderr=subprocess.PIPE, text=True)
        box.started.append(process)
        until(lambda: any(r["name"] == "theirs" and r["reason"] for r in box.queue.records()))
        words = [*other, sys.executable, str(PYTHON), "cancel", first]
        refused = subprocess.run(words, env=box.environment, cwd="/", capture_output=True, text=True)
        sentence = f"error: {first} belongs to another user; ask them to cancel it\n"
        assert (refused.returncode, refused.stderr) == (2, sentence)
        kill(record["job"]["pid"])
        _, err = process.communicate(timeout=20)
        assert process.returncode == 0, err
    finally:
        box.clean()
        subprocess.run(["rm", "-rf", str(shared)], check=True)


# -- bad input: one sentence, the right code, nothing left in line


BAD_INPUT = [
    ("-n a --slots 1", 2, "error: no command to run; write it after --, such as:"),
    ("-n a --slots 1 -- ''", 2, "error: no command to run"),
    ("-n a --slots 1 -- no-such-command-x", 2, "error: the command 'no-such-command-x' is not found"),
    ("-n a --slots 1 --gpus 1 -- true", 2, "error: --slots is for boxes without GPUs"),
    ("-n a -- true", 3, "error: no GPU found here"),
    ("-n a --slots 1 --then ghost -- true", 2, "error: no job is called 'ghost'"),
    ("-n a --slots 1 --log no/such/dir/x -- true", 2, "error: cannot write the log "),
    ("--slots 1 -- true", 2, "Missing option '-n' / '--name'"),
    *((f"{verb} ghost", 2, "error: no job is called 'ghost'") for verb in ("status", "cancel", "logs", "resume")),
]


@pytest.mark.parametrize(("words", "code", "sentence"), BAD_INPUT)
def test_bad_input(box: Gate, words: str, code: int, sentence: str) -> None:
    done = box.run(*shlex.split(words), env={**box.environment, "PATH": os.environ["PATH"], "LD_LIBRARY_PATH": ""})
    assert (done.returncode, done.stdout) == (code, "")
    assert sentence in done.stderr and "Traceback" not in done.stderr
    assert (box.tickets(), box.queue.records()) == ([], [])


def test_queue_and_program_that_cannot_be_used(box: Gate) -> None:
    (box.directory / "file").touch()
    done = box.run("-n", "a", "--slots", 1, "--queue", box.directory / "file" / "queue", "--", "true")
    sentence = f"error: cannot use {box.directory}/file/queue as a queue: Not a directory\n"
    assert (done.returncode, done.stderr) == (2, sentence)
    (box.directory / "broken").write_bytes(b"\x7fELF garbage")
    (box.directory / "broken").chmod(0o755)
    done = box.run("-n", "a", "--slots", 1, "--", "./broken")
    assert (done.returncode, box.state("a"), box.tickets()) == (2, "failed", [])
    assert "cannot start ./broken: Exec format error" in done.stderr


# -- a box with a rule of its own

TURN = "echo start-$0 >> turns; sleep 0.2; echo end-$0 >> turns"


@pytest.mark.skipif(not shutil.which("flock"), reason="needs flock(1)")
def test_lock_joins_the_queue_of_the_box_and_is_handed_to_the_tree(box: Gate) -> None:
    lock, turns = box.directory / "gpu.lock", box.directory / "turns"
    lock.touch()
    holder = box.popen(lock, "sh", "-c", "until [ -e go ]; do sleep 0.05; done", program=("flock",))
    until(lambda: locks_of(lock))
    waiters = [box.popen(lock, "sh", "-c", TURN, name, program=("flock",)) for name in ("a", "b")]
    until(lambda: sum("->" in line for line in locks_of(lock)) == 2)
    job = box.detach("gated", "sh", "-c", TURN, "gated", options=("--lock", lock, "-t", "1s"))
    reason = until(lambda: (box.queue.load(job) or {}).get("reason"))
    assert f"is held by pid {holder.pid} (flock" in reason and all(f"pid {one.pid}" in reason for one in waiters)
    last = box.popen(lock, "sh", "-c", TURN, "c", program=("flock",))
    other = box.run("-n", "free", "--slots", 1, "--", "true")  # who does not need it is not held up by one who waits
    assert other.returncode == 0 and not turns.exists()
    time.sleep(1.2)  # longer than -t: the time counts from the start
    (box.directory / "go").touch()
    assert box.run("wait", job).returncode == 0, box.record(job)
    for process in (*waiters, last):
        assert process.wait(60) == 0
    words = turns.read_text().split()
    assert sorted(words[::2]) == [f"start-{name}" for name in ("a", "b", "c", "gated")]
    assert [word.replace("start", "end") for word in words[::2]] == words[1::2]  # one at a time
    # a killed gate does not free it while the job lives
    record = box.running(box.detach("long", "sleep", "300", options=("--lock", lock)))
    os.kill(record["gate"]["pid"], 9)
    until(lambda: not procs.alive(record["gate"]))
    assert subprocess.run(["flock", "-n", str(lock), "true"]).returncode == 1
    kill_job(record)


def locks_of(path: Path) -> list[str]:
    return [line for line in Path("/proc/locks").read_text().splitlines() if f":{path.stat().st_ino} " in line]


def test_a_hard_limit_is_the_end_also_of_a_stubborn_job(box: Gate) -> None:
    start = time.monotonic()
    stubborn = ("--slots", 1, "--", "sh", "-c", "trap '' TERM; while :; do sleep 0.1; done")
    done = box.run("-n", "a", "-t", "2s", "--grace", "30s", "--hard-limit", *stubborn)
    assert done.returncode == 124 and time.monotonic() - start < 15


def test_stdout_into_the_log_is_refused(box: Gate) -> None:
    (box.directory / "x.log").touch()
    with (box.directory / "x.log").open("a") as out:
        done = box.run("-n", "a", "--slots", 1, "--log", "x.log", "--", "true", stdout=out)
    assert done.returncode == 2 and "which is the job's own log" in done.stderr


def test_of_many_resumes_at_once_one_counts(box: Gate) -> None:
    job = box.detach("a", "sh", "-c", "echo x >> count; [ -e go ] || sleep 300")
    record = box.running(job)
    until(lambda: (box.directory / "count").exists())
    kill_job(record)
    until(lambda: box.state(job) == "lost")
    (box.directory / "go").touch()
    tries = [box.popen("resume", job) for _ in range(5)]
    assert sorted(one.wait(60) for one in tries) == [0, 2, 2, 2, 2]
    assert box.run("wait", job).returncode == 0
    assert (box.directory / "count").read_text() == "x\nx\n"


def test_through_a_symlink(box: Gate) -> None:
    (box.directory / "gate").symlink_to(SHELL)
    done = box.run("-n", "a", "--slots", 1, "--", "echo", "yes", program=("./gate",))
    assert (done.returncode, done.stdout) == (0, "yes\n")
