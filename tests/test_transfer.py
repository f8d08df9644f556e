"""transfer on this machine: a pull from a folder here takes the same way as one from a box, without ssh in between.

What needs a server (drops, kills, a full disk, missing tools) is in tests/real/test_transfer_ssh.py.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rgt.run import record as rundir
from rgt.run import seal
from rgt.transfer import boxside

import pytest

from .real.support import need, wait_for
from .transfer_lab import OTHER_ID, ROOT, RUN_ID, Provider, Result, events, make_run, same_tree, transfer

Break = Callable[["Bench"], object]


class Bench:
    """One run on 'the box' (a folder), pulled to `here`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.box, self.here = folder, folder / "box", folder / "pulled" / RUN_ID
        self.there = self.box / RUN_ID if self.box.exists() else make_run(self.box)
        self.provider = Provider(folder / "provider")
        self.manifest, self.proof = self.here / "PULL_MANIFEST.json", self.here / "PULL_VERIFIED.json"
        self.writer: subprocess.Popen[bytes] | None = None

    def pull(self, *words: object) -> Result:
        return transfer("pull", self.there, self.here, *words)

    def write_on_the_box(self) -> None:
        """A process that has a file of the run open for writing, as a training has."""
        code = f"f = open({str(self.there / 'train.log')!r}, 'a'); print('up', flush=True); input()"
        self.writer = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.writer.stdout and self.writer.stdout.readline() == b"up\n"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pull that is whole and verified."""
    world = tmp_path_factory.mktemp("good") / "world"
    done = Bench(world).pull()
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(shutil.copytree(world, world.with_name("pristine")))


@pytest.fixture
def good(pristine: Path) -> Iterator[Bench]:
    """The one good state; its manifest has absolute paths, so it is put back to the same place for each test."""
    world = pristine.with_name("world")
    shutil.rmtree(world)
    bench = Bench(Path(shutil.copytree(pristine, world)))
    yield bench
    if bench.writer:
        bench.writer.kill()
        bench.writer.communicate()


# -- pull


def test_pull_is_complete_verified_and_recorded(bench: Bench) -> None:
    done = bench.pull("--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["complete"], answer["state"], answer["findings"]) == (0, True, "finished", [])
    same_tree(bench.there, bench.here)
    manifest = json.loads(bench.manifest.read_text())
    assert (manifest["source"], manifest["run_id"], len(manifest["files"])) == (str(bench.there), RUN_ID, 8)
    assert events(bench.here) == ["launched", "finished", "pulled", "verified"]


def test_a_second_pull_sends_nothing_and_keeps_manifest_and_proof_true(good: Bench) -> None:
    before = good.manifest.read_bytes()
    (good.there / "notes.txt").write_text("new")
    again = json.loads(good.pull("--json").stdout)
    third = json.loads(good.pull("--json").stdout)
    assert (again["files"], third["by"]) == (9, "nothing to copy")
    assert good.manifest.read_bytes() != before
    assert (third["proof"], events(good.here).count("finished")) == (str(good.proof), 1)  # events are merged once


def test_links_and_what_is_no_file(bench: Bench) -> None:
    (bench.there / "latest").symlink_to("checkpoints/step_1.npy")
    (bench.there / "folder").symlink_to(bench.there / "checkpoints")
    (bench.there / "gone").symlink_to("nowhere")
    os.mkfifo(bench.there / "pipe")
    done = bench.pull("--json")
    answer = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout
    assert {("gone", "info"), ("pipe", "info")} <= {(f["path"], f["severity"]) for f in answer["findings"]}
    assert os.readlink(bench.here / "latest") == "checkpoints/step_1.npy"
    assert os.readlink(bench.here / "folder") == "checkpoints"  # absolute there, relative here
    same_tree(bench.there, bench.here)


def test_a_link_out_of_the_tree_is_an_error_and_no_proof(bench: Bench) -> None:
    (elsewhere := bench.folder / "elsewhere").mkdir()
    (bench.there / "data").symlink_to(elsewhere)
    done = bench.pull()
    assert done.returncode == 1
    assert f"error unpulled: data: is a link to '{elsewhere}', outside of {bench.there}" in done.stdout
    assert not bench.proof.exists()
    left_out = bench.pull("--exclude", "data")
    assert left_out.returncode == 0, left_out.stdout
    assert not os.path.lexists(bench.here / "data")


def test_two_runs_or_a_run_and_other_things_do_not_mix(good: Bench) -> None:
    done = transfer("pull", make_run(good.box, OTHER_ID), good.here)
    assert (done.returncode, done.stdout) == (4, "")
    assert f"{good.here} holds {RUN_ID}, and this is {OTHER_ID}: two runs in one folder cannot" in done.stderr
    (mine := good.folder / "mine").mkdir()
    (mine / "notes.txt").write_text("mine")
    done = transfer("pull", good.there, mine)
    assert done.returncode == 4 and os.listdir(mine) == ["notes.txt"]
    assert f"{mine} is not empty and holds no earlier pull of {good.there}" in done.stderr


def test_the_same_run_at_a_new_address_goes_on(good: Bench) -> None:
    moved = good.box.rename(good.folder / "other-mount") / RUN_ID
    done = transfer("pull", moved, good.here)
    assert done.returncode == 0, done.stderr
    (moved / "train.log").unlink()  # another node has the same run.json, and other files
    for path in [*moved.rglob("*.txt"), *moved.rglob("*.npy"), moved / "events.jsonl"]:
        os.utime(path, (1, 1))
    node = moved.parent.rename(good.folder / "node-2") / RUN_ID
    assert transfer("pull", node, good.here).returncode == 4


def test_a_linked_folder_here_is_not_written_through(good: Bench) -> None:
    (outside := good.folder / "outside").mkdir()
    shutil.rmtree(good.here / "logs")
    (good.here / "logs").symlink_to(outside)
    done = good.pull()
    assert done.returncode == 4 and f"{good.here / 'logs'} is a link" in done.stderr
    assert not any(outside.iterdir())


def test_a_damaged_copy_here_is_said_and_the_next_pull_fetches_it_again(good: Bench) -> None:
    path = good.here / "checkpoints" / "step_1.npy"
    times = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # size and time still say that it is whole
    done = good.pull()
    assert (done.returncode, good.proof.exists()) == (1, False), done.stdout
    assert "error digest: " in done.stdout and "this copy was removed; the same command fetches it" in done.stdout
    assert good.pull().returncode == 0
    same_tree(good.there, good.here)


def test_a_part_with_another_beginning_is_fetched_anew(bench: Bench) -> None:
    part = bench.here / ".rgt-pull" / "parts" / "checkpoints" / "step_1.npy"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"of another version" * 99)
    done = bench.pull()
    assert done.returncode == 0, done.stdout + done.stderr
    same_tree(bench.there, bench.here)


def test_a_sealed_folder_is_left_alone(good: Bench) -> None:
    (good.here / "seal.json").write_text("{}")
    done = good.pull()
    assert done.returncode == 2 and "is sealed" in done.stderr


def test_two_pulls_at_once_do_not_share_a_folder(bench: Bench) -> None:
    (bench.here / ".rgt-pull").mkdir(parents=True)
    with (bench.here / ".rgt-pull" / "lock").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        done = bench.pull()
    assert (done.returncode, done.stdout) == (2, "")
    assert f"another pull is at work in {bench.here}; wait for it, or end it" in done.stderr
    assert bench.pull().returncode == 0


def test_progress_has_speed_and_eta() -> None:
    from rgt.transfer.delivery import Gauge

    gauge = Gauge(80 << 20, "pull box:x")
    gauge.add(40 << 20)
    assert gauge.line(gauge.start + 10) == "pull box:x: 50 %, 40 MiB of 80 MiB, 4 MiB/s, ETA 10s"


def changed_since_sealed(here: Path) -> list[str]:
    """Its ledger stays on the box, and what pull adds is known by its name."""
    found = seal.problems(rundir.Run(here))
    return [problem.name for problem in found if not problem.name.startswith(("PULL_", "seal.json"))]


def test_a_run_that_was_sealed_on_the_box_stays_sealed_here(bench: Bench) -> None:
    metric = {"name": "loss", "value": 1.0, "split": "val", "n": 10, "direction": "down"}
    results = {"run_id": RUN_ID, "metrics": [metric]}
    (bench.there / "results.json").write_text(json.dumps(results))
    seal.seal(rundir.Run(bench.there))
    done = bench.pull()
    assert changed_since_sealed(bench.here) == [], done.stdout
    assert (done.returncode, bench.pull().returncode) == (0, 0), done.stdout
    assert bench.provider.down(bench.here, "--approve", RUN_ID).returncode == 0
    assert changed_since_sealed(bench.here) == []
    beside = bench.here.with_name(f"{RUN_ID}.events.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in beside] == ["pulled", "verified", "pulled", "verified", "approved"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["pull", "box:"], "box: names no directory on box; write box:DIR"),
        (["pull", "--", "-oProxyCommand=x:dir", "here"], "is not a host: ssh would read it as an option"),
        (["pull", "box:dir"], "name the folder to pull into"),
        (["pull", "nowhere"], "nowhere is not a run directory: it has no run.json"),
        (["pull", "nowhere", "here"], "there is no directory nowhere on this machine"),
        (["aggregate", "one"], "name at least one source and the target"),
        (["aggregate", "one", "box:two"], "box:two is behind ssh; the target is a folder that is mounted here"),
        (["push", "nowhere", "box:dir"], "nowhere is not a directory"),
        (["down", "nowhere", "--profile", "local"], "nowhere is not a directory"),
        (["down", ".", "--profile", "runpod"], "the command of this platform needs its id: give --id ID"),
        (["down", ".", "--profile", "moon"], "there is no profile moon; known are"),
        (["down", ".", "--profile", "runpod:moon"], "has no variant moon; it has none"),
        (["down", ".", "--profile", "runpod", "--set", "x"], "--set takes NAME=VALUE, not 'x'"),
    ],
)
def test_slips_of_the_hand(words: list[str], sentence: str, tmp_path: Path) -> None:
    done = transfer(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert sentence in done.stderr and "Traceback" not in done.stderr


# -- down


def rewrite(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def no_tensors(bench: Bench) -> None:
    proof = json.loads(bench.proof.read_text())
    for row in proof["artifacts"]:
        row |= {"format": "file", "tensors": 0}
    bench.proof.write_text(json.dumps(proof))


NEW = "are new or changed since the pull:"
AGAINST: dict[str, tuple[Break, str]] = {
    "nothing pulled": (lambda b: b.manifest.unlink(), "nothing was pulled here"),
    "not verified": (lambda b: b.proof.unlink(), "what was pulled is not verified by load"),
    "proof withdrawn": (lambda b: b.proof.rename(f"{b.proof}.stale"), "not verified by load"),
    "proof is garbage": (lambda b: b.proof.write_text("{"), "is not JSON"),
    "proof of nothing": (lambda b: b.proof.write_text("{}"), "does not fit the pull_verified schema"),
    "proof without a load": (no_tensors, "nothing in it was verified by load"),
    "proof of other files": (lambda b: rewrite(b.manifest, '"bytes"', ' "bytes"'), "is not of this PULL_MANIFEST.json"),
    "pull under way": (lambda b: (b.here / ".rgt-pull").mkdir(), "an unfinished pull is in this folder"),
    "file deleted here": (lambda b: (b.here / "train.log").unlink(), "1 pulled files are no longer here: 'train.log'"),
    "file changed here": (lambda b: (b.here / "train.log").write_bytes(b"x"), "have changed since they were verified"),
    "file new on the box": (lambda b: (b.there / "step_2.pt").write_text("new"), f"{NEW} 'step_2.pt'"),
    "file changed on the box": (lambda b: (b.there / "train.log").write_text("new"), f"{NEW} 'train.log'"),
    "link out on the box": (lambda b: (b.there / "data").symlink_to("/"), "is a link to '/', outside of"),
    "run still running": (Bench.write_on_the_box, "the run is running"),
    "another run on the box": (lambda b: make_run(b.box, OTHER_ID), f"{OTHER_ID} is on the box, too, with 1 artifacts"),
    "box does not answer": (lambda b: b.box.rename(b.folder / "off"), "what is on it now could not be compared"),
    "another run there": (lambda b: rewrite(b.there / "run.json", RUN_ID, OTHER_ID), f"now holds {OTHER_ID}, not"),
    "not approved": (lambda b: None, "there is no --approve"),
    "approved something else": (lambda b: None, f"--approve names '{RUN_ID}x'"),
    "approved the folder": (lambda b: None, "--approve names 'yes'"),
}
APPROVALS: dict[str, list[str]] = {"not approved": [], "approved the folder": ["--approve=yes"]}
APPROVALS["approved something else"] = [f"--approve={RUN_ID}x"]


@pytest.mark.parametrize("state", AGAINST)
def test_down_is_refused(good: Bench, state: str) -> None:
    damage, sentence = AGAINST[state]
    damage(good)
    done = good.provider.down(good.here, "--execute", *APPROVALS.get(state, ["--approve", RUN_ID]))
    assert done.returncode == 4, done.stdout + done.stderr
    assert sentence in done.stdout and "nothing was executed" in done.stdout
    assert (good.provider.calls, events(good.here)[-1]) == ([], "refused")


def test_down_in_the_one_good_state_shows_then_executes(good: Bench) -> None:
    shown = good.provider.down(good.here, "--approve", RUN_ID)
    assert shown.returncode == 0, shown.stdout
    assert "command       fakectl delete pod-1   (cannot be undone)" in shown.stdout
    assert "lost          volume disk (/workspace)" in shown.stdout
    assert "keeps billing network volume (/workspace), $0.07/GB/month" in shown.stdout
    assert good.provider.calls == []
    done = good.provider.down(good.here, "--approve", RUN_ID, "--execute")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "down: the provider no longer lists pod-1"
    assert good.provider.calls == [["list"], ["delete", "pod-1"], ["list"], ["list"]]
    assert events(good.here)[-3:] == ["approved", "approved", "destroyed"]


def test_down_with_the_other_runs_given_up_or_pulled(good: Bench) -> None:
    other = make_run(good.box, OTHER_ID)
    given_up = good.provider.down(good.here, "--approve", RUN_ID, "--abandon", OTHER_ID)
    assert given_up.returncode == 0, given_up.stdout
    assert f"lost          {other}, another run with 1 artifacts" in given_up.stdout
    assert transfer("pull", other, good.here.parent / OTHER_ID).returncode == 0
    assert good.provider.down(good.here, "--approve", RUN_ID).returncode == 0


LIE = {"verbs__down": {"value": "x", "argv": ["fakectl", "lie", "<id>"]}}


@pytest.mark.parametrize(
    ("changes", "rows", "code", "sentence", "executed"),
    [
        ({"meter__list": {"value": "the web console"}}, ["pod-1"], 4, "then look at the console (the web console)", 0),
        (LIE, ["pod-1"], 1, "not proved gone: look at the console (fakectl list); the list shows pod-1 as RUNNING", 1),
        ({}, [], 4, "pod-1 is not in the provider's list, which has nothing: give the whole id", 0),
        ({}, ["pod-10", "pod-"], 4, "pod-1 is not in the provider's list, which has pod-10, pod-", 0),
    ],
)
def test_down_that_is_not_shown_to_stop_the_meter(
    good: Bench, changes: dict[str, Any], rows: list[str], code: int, sentence: str, executed: int
) -> None:
    good.provider.profile(**changes)
    good.provider.set_rows(*({"id": name, "status": "RUNNING"} for name in rows))
    done = good.provider.down(good.here, "--approve", RUN_ID, "--execute")
    assert (done.returncode, sentence in done.stdout) == (code, True), done.stdout
    acts = [call for call in good.provider.calls if call != ["list"]]
    assert (len(acts), events(good.here)[-1]) == (executed, "refused")


def test_down_can_stop_instead_and_says_what_is_kept(good: Bench) -> None:
    done = good.provider.down(good.here, "--act", "stop", "--approve", RUN_ID, "--execute")
    assert done.returncode == 0, done.stdout
    assert "command       fakectl halt pod-1   (can be undone)" in done.stdout
    assert "lost          container disk (/)" in done.stdout and "keeps billing volume disk (/workspace)" in done.stdout
    assert done.stdout.splitlines()[-1] == "down: the provider lists pod-1 as EXITED"
    assert events(good.here)[-1] == "box_stopped"


def test_down_without_a_command_or_its_program(good: Bench) -> None:
    good.provider.profile(verbs__down={"value": "the web console, Delete"})
    by_hand = good.provider.down(good.here, "--approve", RUN_ID, "--execute")
    assert by_hand.returncode == 3
    assert by_hand.stdout.endswith("\nthis platform has no command for it: by hand: the web console, Delete\n")
    good.provider.profile(verbs__down={"value": "x", "argv": ["nosuchctl", "<id>"]})
    missing = good.provider.down(good.here, "--approve", RUN_ID, "--execute")
    assert missing.returncode == 3
    assert missing.stderr.endswith("nosuchctl is not installed here; install it, or run by hand: nosuchctl pod-1\n")


@pytest.mark.parametrize("name", ["-rf", "--all", "a b", "x;rm", "$(x)", "a\nb", "<id>", "*"])
def test_down_takes_no_id_that_could_be_something_else(good: Bench, name: str) -> None:
    done = good.provider.down(good.here, f"--id={name}", "--approve", RUN_ID, "--execute")
    assert (done.returncode, good.provider.calls) == (2, []) and "cannot be the id of anything" in done.stderr


def test_down_fills_other_placeholders_and_gives_a_key_by_stdin_only(good: Bench) -> None:
    seen = good.folder / "seen"
    code = f"import sys; open({str(seen)!r}, 'w').write(sys.argv[1] + '|' + sys.stdin.read())"
    argv = [sys.executable, "-c", code, '{"ids":["<id>"],"zone":"<zone>"}']
    good.provider.profile(meter__list={"value": "x", "argv": ["fakectl", "list", "<zone>"]})
    early = good.provider.down(good.here, "--approve", RUN_ID, "--execute")  # the list's values, before it destroys
    assert (early.returncode, good.provider.calls) == (2, []) and "give --set zone=VALUE" in early.stderr
    answer = {"rows": "pods", "id": "id"}
    good.provider.profile(
        verbs__down={"value": "x", "argv": argv, "stdin": "key ${FAKE_KEY}"},
        meter__list={"value": "x", "argv": ["fakectl", "list"], "answer": answer},
    )
    lacking = good.provider.down(good.here, "--approve", RUN_ID)
    assert lacking.returncode == 2 and "needs its zone: give --set zone=VALUE" in lacking.stderr
    words = ("--set", "zone=eu-1", "--approve", RUN_ID, "--execute")
    keyless = good.provider.down(good.here, *words)
    assert keyless.returncode == 3 and "FAKE_KEY is not set in this environment" in keyless.stderr
    done = good.provider.down(good.here, *words, FAKE_KEY="s3cret")
    assert seen.read_text() == '{"ids":["pod-1"],"zone":"eu-1"}|key s3cret'
    assert "s3cret" not in done.stdout + done.stderr + (good.here / "events.jsonl").read_text()


def test_down_of_the_wrong_box_is_refused(good: Bench) -> None:
    """The box knows its own id, and it is not the one that would be destroyed."""
    good.provider.profile(overrides={"transfer.py": {"--id-env": "FAKE_POD"}})
    other = good.provider.down(good.here, "--approve", RUN_ID, "--execute", FAKE_POD="pod-2")
    assert (other.returncode, good.provider.calls) == (4, [])
    assert "calls itself 'pod-2', and --id is 'pod-1': the wrong box" in other.stdout
    assert "could not be checked" in good.provider.down(good.here, "--approve", RUN_ID).stdout
    assert good.provider.down(good.here, "--approve", RUN_ID, FAKE_POD="C.pod-1").returncode == 0


# -- aggregate


def test_aggregate_gathers_again_and_again_and_goes_on_after_a_failure(tmp_path: Path) -> None:
    one, two = tmp_path / "a" / "runs", tmp_path / "b" / "deep" / "runs"
    make_run(one, RUN_ID), make_run(two, OTHER_ID)
    bad = make_run(one, "20261116-100000-bad-000000")
    (bad / "checkpoints" / "step_1.npy").write_bytes(b"\x93NUMPY")
    make_run(tmp_path / "node2", RUN_ID, mib=0.2)  # the same run's folder on another node
    words = ["aggregate", one, tmp_path / "b", tmp_path / "node2", tmp_path / "nothing", tmp_path / "shared", "--json"]
    done = transfer(*words)
    rows = json.loads(done.stdout)["runs"]
    assert done.returncode == 1
    assert [row["run"] for row in rows] == [RUN_ID, bad.name, OTHER_ID, RUN_ID, "nothing"]
    assert [row["state"] for row in rows] == ["verified", "failed", "verified", "failed", "failed"]
    said = [finding["message"] for finding in json.loads(done.stdout)["findings"]]
    assert "two runs in one folder cannot be told apart" in said[-2] and "there is no directory" in said[-1]
    same_tree(one / RUN_ID, tmp_path / "shared" / RUN_ID)
    (tmp_path / "shared" / RUN_ID / "train.log").write_text("changed here")
    again = transfer("aggregate", one / RUN_ID, tmp_path / "b", tmp_path / "shared")
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, "2 verified, 0 failed")
    same_tree(one / RUN_ID, tmp_path / "shared" / RUN_ID)


# -- the box's own side


def test_a_link_that_goes_away_while_listed_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainers replace `latest` by removing it first; here that happens just before the link is read."""
    (tmp_path / "latest").symlink_to(".")
    (tmp_path / "train.log").write_text("a")
    real = os.readlink

    def late(path: str) -> str:
        os.unlink(path)
        return real(path)

    monkeypatch.setattr(os, "readlink", late)
    assert [row["p"] for row in boxside.walk(str(tmp_path), [])] == ["train.log"]


# -- push, to a folder here


def repository(folder: Path) -> Path:
    (code := folder / "code").mkdir()
    (code / "train.py").write_text("print('hi')\n")
    (code / "run.sh").write_text("#!/bin/bash\necho hi\n")
    (code / "run.sh").chmod(0o755)
    (code / "ignored.bin").write_text("big")
    (code / ".gitignore").write_text("*.bin\n")
    for words in (["init", "-q"], ["add", "train.py", ".gitignore"]):
        subprocess.run([need("git", "git"), "-C", str(code), *words], check=True)
    return code


def test_push_sends_what_git_knows_and_only_what_changed(tmp_path: Path) -> None:
    code, there = repository(tmp_path), tmp_path / "there"
    (code / "twin.py").write_text("print('hi')\n")
    (code / "data").mkdir()
    (code / "data" / "x.txt").write_text("x")
    done = transfer("push", code, there, "--exclude", "data", "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["by_git"], answer["sent"]) == (0, True, 4), done.stdout + done.stderr
    assert sorted(os.listdir(there)) == [".gitignore", "run.sh", "train.py", "twin.py"]
    assert os.access(there / "run.sh", os.X_OK) and not os.access(there / "train.py", os.X_OK)
    (code / "train.py").write_text("print('ho')\n")
    again = json.loads(transfer("push", code, there, "--exclude", "data", "--json").stdout)
    assert (again["sent"], again["sent_bytes"]) == (1, 12)
    assert (there / "train.py").read_text() == "print('ho')\n"


def test_push_without_git_leaves_rubbish_and_credentials(tmp_path: Path) -> None:
    code, there = tmp_path / "code", tmp_path / "there"
    (code / "__pycache__").mkdir(parents=True)
    (code / "__pycache__" / "x.pyc").write_text("x")
    for name in ("train.py", ".env", ".env.example", "id_rsa"):
        (code / name).write_text("x")
    (code / "link").symlink_to("train.py")
    done = transfer("push", code, there, env={"GIT_CEILING_DIRECTORIES": str(tmp_path)})
    assert done.returncode == 1
    assert "warn  secret: .env: is named like a credential and was not sent" in done.stdout
    assert "info  unjudged: link: is a link to 'train.py' and was not sent" in done.stdout
    assert sorted(os.listdir(there)) == [".env.example", "train.py"]


def test_push_dry_run_and_an_empty_folder(tmp_path: Path) -> None:
    done = transfer("push", repository(tmp_path), tmp_path / "there", "--dry-run")
    assert (done.returncode, done.stdout) == (0, "nothing was sent (3 files, 38 B)\n")
    (tmp_path / "empty").mkdir()
    empty = transfer("push", tmp_path / "empty", tmp_path / "there", env={"GIT_CEILING_DIRECTORIES": str(tmp_path)})
    assert empty.returncode == 2 and "holds no file to send" in empty.stderr
    secret = transfer("push", "-", tmp_path / "there", input=b"key")
    assert secret.returncode == 2 and "a secret is pushed to HOST:FILE" in secret.stderr


# -- the loop


def test_loop_goes_on_when_the_engine_does_not_answer_once(bench: Bench) -> None:
    record = json.loads((bench.there / "run.json").read_text())
    record["job"] = {"target": "docker", "spec": {"name": "tiny"}}
    (bench.there / "run.json").write_text(json.dumps(record))
    answers = bench.folder / "answers"
    answers.write_text('{"Status": "running"}\n\n{"Status": "exited", "ExitCode": 0}\n')
    docker = bench.provider.bin / "docker"
    docker.write_text(f"#!/bin/sh\nhead -n 1 {answers} | grep . || code=1\nsed -i 1d {answers}\nexit ${{code:-0}}\n")
    docker.chmod(0o755)
    words = ("pull", bench.there, bench.here, "--loop", "--every", "10ms")
    done = transfer(*words, env=bench.provider.env)
    assert (done.returncode, "pulled and verified" in done.stdout) == (0, True), done.stdout + done.stderr
    assert "unknown (cannot ask docker on this machine: exit code 1); " in done.stderr
    shutil.rmtree(bench.here)
    never = transfer(*words, env=bench.provider.env)  # the first time it may never
    assert never.returncode == 3
    assert f"cannot tell when {bench.there} is over: cannot ask docker on this machine: exit code 1" in never.stderr


# -- what a box needs


def test_box_setup_says_what_is_lacking(tmp_path: Path) -> None:
    script = (ROOT / "scripts" / "templates" / "box_setup.sh").read_text()
    (tmp_path / ".bashrc").write_text("echo hello\n")
    env = {**os.environ, "HOME": str(tmp_path)}
    good = subprocess.run(["sh", "-s"], input=script, env=env, capture_output=True, text=True)
    assert (good.returncode, "ok       python3: 3." in good.stdout) == (0, True), good.stdout + good.stderr
    assert f"note     {tmp_path}/.bashrc prints or activates something" in good.stdout
    (tools := tmp_path / "bin").mkdir()
    for name in ("mkdir", "chmod", "grep", "df", "awk"):
        (tools / name).symlink_to(shutil.which(name) or "")
    bare = {"PATH": str(tools), "HOME": str(tmp_path)}
    poor = subprocess.run([shutil.which("sh") or "sh", "-s"], input=script, env=bare, capture_output=True, text=True)
    assert (poor.returncode, "LACKING  python3 3.10 or newer" in poor.stdout) == (1, True), poor.stdout


def test_download_loop_runs_detached_to_the_proof(bench: Bench) -> None:
    log, script = bench.folder / "loop.log", ROOT / "scripts" / "templates" / "download_loop.sh"
    env = {**os.environ, "DOWNLOAD_LOG": str(log), "PYTHON": sys.executable}
    words = ["sh", str(script), str(bench.there), str(bench.here)]
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout.startswith("pid ")) == (0, True), done.stderr
    wait_for("the proof", lambda: "pulled and verified" in log.read_text())
    assert f"{bench.there}: finished; now the proof" in log.read_text()
    same_tree(bench.there, bench.here)
    nothing = subprocess.run(["sh", str(script)], capture_output=True, text=True)
    assert nothing.returncode == 2 and nothing.stderr.startswith("usage: download_loop.sh RUN | HOST:DIR LOCAL")
