"""transfer on this machine: a pull from a folder here takes the same way as one from a box, without ssh in between.

What needs a server (drops, kills, a full disk, missing tools) is in tests/real/test_transfer_ssh.py.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rgt import units
from rgt.run import record as rundir
from rgt.run import seal
from rgt.transfer import boxside, teardown_rules

import numpy as np
import pytest

from .front_door import executable
from .real.disk import mount, unmount
from .real.support import need, wait_for
from .transfer_lab import OTHER_ID, ROOT, RUN_ID, Provider, Result, events, make_run, same_tree, transfer

Break = Callable[["Bench"], object]


class Bench:
    """One run on 'the box' (a folder that is its home), pulled to `here`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.box, self.here = folder, folder / "box", folder / "pulled" / RUN_ID
        self.there = self.box / RUN_ID if (self.box / RUN_ID).exists() else make_run(self.box)
        self.provider = Provider(folder / "provider", self.box)
        self.manifest, self.proof = self.here / "PULL_MANIFEST.json", self.here / "PULL_VERIFIED.json"
        self.process: subprocess.Popen[bytes] | None = None

    def pull(self, *words: object) -> Result:
        return transfer("pull", self.there, self.here, *words)

    def run_on_the_box(self, code: str, **how: Any) -> None:
        """A process of the box, as a training is one."""
        words, pipe = [sys.executable, "-c", f"{code}; print('up', flush=True); input()"], subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, **how)
        assert self.process.stdout and self.process.stdout.readline() == b"up\n"

    def write_on_the_box(self, name: str = f"{RUN_ID}/train.log") -> None:
        self.run_on_the_box(f"f = open({str(self.box / name)!r}, 'a')")

    def put(self, name: str, size: int = 100, age: float = 0) -> Path:
        """A file on the box, outside of the run; `age` in days."""
        path = self.box / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
        when = time.time() - age * 86400
        os.utime(path, (when, when))
        return path


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A pull that is whole and verified. The box has a disk of its own, as `down` looks at all of it."""
    world = tmp_path_factory.mktemp("good") / "world"
    disk = mount(world / "box")
    done = Bench(world).pull()
    assert done.returncode == 0, done.stdout + done.stderr
    yield Path(shutil.copytree(world, world.with_name("pristine")))
    unmount(disk)


@pytest.fixture
def good(pristine: Path) -> Iterator[Bench]:
    """The one good state; its manifest has absolute paths, so it is put back to the same place for each test."""
    world = pristine.with_name("world")
    for path in [*(world / "box").iterdir(), *(one for one in world.iterdir() if one.name != "box")]:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    bench = Bench(Path(shutil.copytree(pristine, world, dirs_exist_ok=True)))
    yield bench
    if bench.process:
        bench.process.kill()
        bench.process.communicate()


# -- pull


def test_pull_is_complete_verified_and_recorded(bench: Bench) -> None:
    done = bench.pull("--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["complete"], answer["state"], answer["findings"]) == (0, True, "finished", [])
    same_tree(bench.there, bench.here)
    manifest = json.loads(bench.manifest.read_text())
    assert (manifest["source"], manifest["run_id"], len(manifest["files"])) == (str(bench.there), RUN_ID, 8)
    assert events(bench.here) == ["launched", "finished", "pulled", "verified"]


def test_small_files_travel_packed_where_that_is_worth_it(bench: Bench) -> None:
    logs, noise = bench.there / "logs", bench.there / "noise"
    noise.mkdir()
    for number in range(50):
        (logs / f"more{number}").write_text(f"step {number} loss 2.0\n" * 200)
        (noise / f"{number}").write_bytes(os.urandom(4000))
    sent = {}
    for folder in (logs, noise):
        asked = [(path.name, 0, path.stat().st_size) for path in sorted(folder.iterdir())]
        sent[folder] = sum(map(len, boxside._lines(boxside.send(str(folder), asked))))
    assert sent[logs] < 50_000 < 200_000 < sent[noise]
    assert bench.pull().returncode == 0
    same_tree(bench.there, bench.here)


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
    moved = Path(shutil.copytree(good.box, good.folder / "other-mount")) / RUN_ID
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


def changed_since_sealed(here: Path) -> list[str]:
    """Its ledger stays on the box, and what pull adds is known by its name."""
    found = seal.problems(rundir.Run(here))
    return [problem.name for problem in found if not problem.name.startswith(("PULL_", "seal.json"))]


def test_a_run_that_was_sealed_on_the_box_stays_sealed_here(good: Bench) -> None:
    bench = good
    shutil.rmtree(bench.here)
    metric = {"name": "loss", "value": 1.0, "split": "val", "n": 10, "direction": "down"}
    results = {"run_id": RUN_ID, "metrics": [metric]}
    (bench.there / "results.json").write_text(json.dumps(results))
    seal.seal(rundir.Run(bench.there))
    done = bench.pull()
    assert changed_since_sealed(bench.here) == [], done.stdout
    assert (done.returncode, bench.pull().returncode) == (0, 0), done.stdout
    (bench.box / "SEALS.jsonl").unlink()  # the ledger stays on the box, and would have to be given up
    assert bench.provider.down_approved(bench.here).returncode == 0
    assert changed_since_sealed(bench.here) == []
    beside = bench.here.with_name(f"{RUN_ID}.events.jsonl").read_text().splitlines()
    words = [json.loads(line)["event"] for line in beside]
    assert words == ["pulled", "verified", "pulled", "verified", "refused", "approved"]


SLIPS = [
    (["pull", "--", "-oProxyCommand=x:dir", "here"], "is not a host: ssh would read it as an option"),
    (["pull", "box:dir"], "name the folder to pull into"),
    (["pull", "nowhere"], "nowhere is not a run directory: it has no run.json"),
    (["pull", "nowhere", "here"], "there is no directory nowhere on this machine"),
    (["pull", ".", "here"], "here lies in ., which would be copied into itself"),
    (["aggregate", "one"], "name at least one source and the target"),
    (["aggregate", "one", "box:two"], "box:two is behind ssh; the target is a folder that is mounted here"),
    (["push", "nowhere", "box:dir"], "nowhere is not a directory"),
    (["down", "nowhere", "--profile", "local"], "nowhere is not a directory"),
    (["down", ".", "--profile", "runpod"], "the command of this platform needs its id: give --id ID"),
    (["down", ".", "--profile", "moon"], "there is no profile moon; known are"),
    (["down", ".", "--profile", "runpod", "--set", "x"], "--set takes NAME=VALUE, not 'x'"),
]


@pytest.mark.parametrize(("words", "sentence"), SLIPS)
def test_slips_of_the_hand(words: list[str], sentence: str, tmp_path: Path) -> None:
    done = transfer(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert sentence in done.stderr and "Traceback" not in done.stderr


# -- down


def rewrite(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def rot(path: Path) -> None:
    """Other content; size and time stay."""
    was = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


def forge(bench: Bench) -> None:
    """Records by hand for 5,000 zero bytes that never were a checkpoint."""
    for folder in (bench.there, bench.here):
        shutil.rmtree(folder / "checkpoints")
        (folder / "model.pt").write_bytes(bytes(5000))
    row = {"path": "model.pt", "bytes": 5000, "sha256": hashlib.sha256(bytes(5000)).hexdigest()}
    manifest = json.loads(bench.manifest.read_text())
    manifest["files"] = [*(one for one in manifest["files"] if "step_1" not in one["path"]), row]
    bench.manifest.write_text(json.dumps(manifest))
    proof = json.loads(bench.proof.read_text())
    proof["artifacts"] = [{"format": "file", "tensors": 1, "checks": ["values"], **one} for one in manifest["files"]]
    proof["artifacts"] = [{key: one[key] for key in PROVED} for one in proof["artifacts"]]
    proof["manifest_sha256"] = hashlib.sha256(bench.manifest.read_bytes()).hexdigest()
    bench.proof.write_text(json.dumps(proof))


PROVED = ("path", "bytes", "sha256", "format", "tensors", "checks")


def pulled_sibling(bench: Bench, source: Path | None = None) -> Path:
    other = make_run(bench.box, OTHER_ID, mib=0.3)
    assert transfer("pull", source or other, bench.here.parent / OTHER_ID).returncode == 0
    return other


def train_on(bench: Bench) -> None:
    np.save(pulled_sibling(bench) / "checkpoints" / "step_2.npy", np.arange(9.0))


def same_name_elsewhere(bench: Bench) -> None:
    pulled_sibling(bench, make_run(bench.folder / "another-host", OTHER_ID, mib=0.2))


def leave_out(bench: Bench) -> None:
    bench.put(f"{RUN_ID}/data/big.tar", 30 << 20)
    assert bench.pull("--exclude", "data").returncode == 0


def pull_unknown_weights(bench: Bench) -> None:
    """Of weight size, in a format that nobody opened."""
    bench.put(f"{RUN_ID}/model.xyz", 2 << 20)
    bench.pull()


def use_gpu(bench: Bench) -> None:
    card = "0, GPU-1, A100, 80000, 70000, 99, 60, 300, 8.0"
    body = f"case $1 in --query-gpu*) echo '{card}';; *) echo 'GPU-1, 4711, 70000';; esac"
    executable(bench.provider.bin / "nvidia-smi", body)


def fill_volume(bench: Bench) -> None:
    """Weights on another disk that the profile names."""
    (volume := bench.folder / "volume").mkdir()
    (volume / "last.onnx").write_bytes(b"weights")
    rewrite(bench.provider.folder / "fake.md", "path: /workspace", f"path: {volume}")


STEP = "checkpoints/step_1.npy"
NOT_HERE = "are not here as they are there now:"
AGAINST: dict[str, tuple[Break, str]] = {
    "nothing pulled": (lambda b: b.manifest.unlink(), "nothing was pulled here: PULL_MANIFEST.json does not exist"),
    "records by hand": (forge, "fails the check by load, made now: begins with zeros"),
    "pull under way": (lambda b: (b.here / ".rgt-pull").mkdir(), "an unfinished pull is in this folder"),
    "file deleted here": (lambda b: (b.here / "train.log").unlink(), f"{NOT_HERE} 'train.log'"),
    "file changed here": (lambda b: rot(b.here / "train.log"), f"{NOT_HERE} 'train.log'"),
    "checkpoint damaged here": (lambda b: rot(b.here / STEP), "fails the check by load, made now: its sha256 is"),
    "file new on the box": (lambda b: (b.there / "step_2.pt").write_text("new"), f"{NOT_HERE} 'step_2.pt'"),
    "file changed on the box": (lambda b: (b.there / "train.log").write_text("new"), f"{NOT_HERE} 'train.log'"),
    "changed, size and mtime kept": (lambda b: rot(b.there / STEP), f"{NOT_HERE} '{STEP}'"),
    "link out on the box": (lambda b: (b.there / "data").symlink_to("/"), "is a link to '/', outside of"),
    "left out of the pull": (leave_out, "1 files on this machine (30 MiB) are not here as they are there now"),
    "weights that nobody opened": (pull_unknown_weights, "is of an unknown format: nobody has opened it"),
    "run still running": (Bench.write_on_the_box, "the run is running"),
    "somebody works in the run": (lambda b: b.run_on_the_box("0", cwd=b.there), f"works in {RUN_ID}"),
    "somebody uses the GPU": (use_gpu, "process 4711 on this machine uses GPU 0"),
    "sibling not pulled": (lambda b: make_run(b.box, OTHER_ID, 0.3), f"{NOT_HERE} '{STEP}'"),
    "sibling trained on since": (train_on, f"{NOT_HERE} 'step_2.npy'"),
    "same name from another host": (same_name_elsewhere, f"{NOT_HERE} '{STEP}'"),
    "sibling being written": (lambda b: b.write_on_the_box(b.put("a.log").name), "writes a.log"),
    "weights elsewhere, small and old": (lambda b: b.put("else/where/last.gguf", age=99), "'else/where/last.gguf'"),
    "weights on another disk": (fill_volume, f"{NOT_HERE} 'last.onnx'"),
    "large elsewhere, old": (lambda b: b.put("data.tar", 1_000_000, age=99), "(0.954 MiB) are not here"),
    "recent elsewhere, small": (lambda b: b.put("exp/predictions.csv"), f"{NOT_HERE} 'exp/predictions.csv'"),
    "run folder renamed": (lambda b: b.there.rename(b.box / "off"), "does not answer as it should (there is no direct"),
    "another run there": (lambda b: rewrite(b.there / "run.json", RUN_ID, OTHER_ID), f"now holds {OTHER_ID}, not"),
}


def refused(bench: Bench, approval: list[str], sentence: str) -> None:
    done = bench.provider.down(bench.here, "--execute", *approval)
    assert done.returncode == 4, done.stdout + done.stderr
    shown = done.stdout.replace(f"{bench.box}/", "")
    assert sentence in shown and "nothing was executed" in shown, shown
    assert (bench.provider.acts, events(bench.here)[-1]) == ([], "refused")


@pytest.mark.parametrize("state", AGAINST)
def test_down_is_refused_although_the_user_approved(good: Bench, state: str) -> None:
    damage, sentence = AGAINST[state]
    approval = good.provider.approval(good.here)
    damage(good)
    refused(good, approval, sentence)


WEIGHTS = "gguf onnx h5 msgpack npy pkl joblib keras bin ckpt pth safetensors npz".split()


def test_down_is_refused_for_a_sibling_with_weights_of_any_kind(good: Bench) -> None:
    approval = good.provider.approval(good.here)
    paths = [good.put(f"{end}/m.{end}", 9, age=99) for end in WEIGHTS]
    good.put("notes/m.txt", 9, age=99)
    done = good.provider.down(good.here, "--execute", *approval)
    assert (done.returncode, good.provider.acts) == (4, [])
    assert all(f"'{end}/m.{end}'" in done.stdout for end in WEIGHTS) and "notes" not in done.stdout, done.stdout
    for path in paths:
        path.unlink()
    assert good.provider.down(good.here, *approval).returncode == 0


def phrase_file(bench: Bench) -> Path:
    return bench.here.with_name(f".{RUN_ID}.approval.json")


def age_phrase(bench: Bench) -> None:
    state = json.loads(phrase_file(bench).read_text())
    phrase_file(bench).write_text(json.dumps(state | {"expires": time.time() - 1}))


def rename_profile(bench: Bench) -> None:
    rewrite(bench.provider.folder / "fake.md", "name: runpod", "name: moonpod")


STOP: dict[str, Any] = {"verbs__down": {"value": "x", "argv": ["fakectl", "stop", "<id>"]}}


def test_a_look_that_did_not_reach_everything_is_no_proof(good: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teardown_rules, "_SECONDS", 0.0)
    done = good.provider.down(good.here, "--execute")
    assert (done.returncode, good.provider.acts) == (4, [])
    assert f"error unseen: {good.box}: the look at the disks ended here, after 0 s" in done.stdout


def test_names_that_the_box_gives_are_shown_and_not_sent_to_the_terminal(good: Bench) -> None:
    good.put("a\x1b[31m/m.pt"), good.put("b\x1b[32m/m.pt")
    done = good.provider.down(good.here, "--abandon", good.box / "b\x1b[32m")
    assert done.returncode == 4 and "\x1b" not in done.stdout
    assert "a\\x1b[31m: 1 files on this machine (100 B)" in done.stdout
    assert "b\\x1b[32m: 1 files, 100 B, given up" in done.stdout


APPROVALS: dict[str, tuple[list[str], Break, str]] = {
    "nothing said": ([], lambda b: None, "no words of the user were given"),
    "a plain yes": (["--approve=yes"], lambda b: None, "their words are 'yes', which do not hold the phrase"),
    "the run's name": ([f"--approve={RUN_ID}"], lambda b: None, "which do not hold the phrase"),
    "expired": (["<theirs>"], age_phrase, "the phrase expired at "),
    "for another box": (["<theirs>", "--id=pod-2"], lambda b: None, "is for another box_id and command"),
    "more is given up": (["<theirs>", "--abandon=~/x"], lambda b: None, "is for another abandoned"),
    "for another command": (["<theirs>"], lambda b: b.provider.profile(**STOP), "is for another command"),
    "for another profile": (["<theirs>"], rename_profile, "is for another profile"),
    "of another run": (["<theirs>"], lambda b: phrase_file(b).unlink(), "no phrase was shown to the user for this"),
}


@pytest.mark.parametrize("state", APPROVALS)
def test_words_that_approve_something_else_or_nothing(good: Bench, state: str) -> None:
    words, change, sentence = APPROVALS[state]
    theirs = good.provider.approval(good.here)
    change(good)
    given = [part for word in words for part in (theirs if word == "<theirs>" else [word])]
    done = good.provider.down(good.here, "--execute", *given)
    assert (done.returncode, sentence in done.stdout) == (4, True), done.stdout
    assert (good.provider.acts, events(good.here)[-1]) == ([], "refused")


def test_the_phrase_is_private_new_each_time_and_shown_only_when_all_else_holds(good: Bench) -> None:
    first = good.provider.approval(good.here)
    assert good.provider.approval(good.here) == first  # the user may be typing it
    assert oct(phrase_file(good).stat().st_mode & 0o777) == "0o600"
    age_phrase(good)
    assert good.provider.approval(good.here) != first
    phrase_file(good).unlink()
    (good.there / "step_2.pt").write_text("new")
    early = good.provider.down(good.here)
    assert "mend the rest first" in early.stdout and not phrase_file(good).exists()


def test_down_in_the_one_good_state_shows_then_executes(good: Bench) -> None:
    (good.box / ".cache").mkdir()
    approval = good.provider.approval(good.here)
    shown = good.provider.down(good.here, *approval)
    assert shown.returncode == 0, shown.stdout
    assert "command       fakectl delete pod-1   (cannot be undone; to keep the disk: --act stop)" in shown.stdout
    assert "lost          volume disk (/workspace)" in shown.stdout
    assert "keeps billing network volume (/workspace), $0.07/GB/month" in shown.stdout
    assert f"looked at     {good.box}: 0 files that count besides the run's" in shown.stdout
    assert f"left out      {good.box}/.cache\n" in shown.stdout
    assert good.provider.calls == []
    done = good.provider.down(good.here, *approval, "--execute")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "down: the provider no longer lists pod-1"
    assert good.provider.calls == [["list"], ["delete", "pod-1"], ["list"], ["list"]]
    assert events(good.here)[-4:] == ["refused", "approved", "approved", "destroyed"]
    rows = [json.loads(line) for line in (good.here / "events.jsonl").read_text().splitlines()]
    assert rows[-2]["words"] == approval[1] and not phrase_file(good).exists()  # their words; one phrase, one act


def test_down_with_the_rest_given_up_by_name_and_true_size_or_pulled(good: Bench) -> None:
    other = make_run(good.box, OTHER_ID, mib=0.3)
    leave_out(good)
    words = ["--abandon", other, "--abandon", good.there / "data"]
    given_up = good.provider.down_approved(good.here, *words)
    assert given_up.returncode == 0, given_up.stdout
    size = sum(path.lstat().st_size for path in other.rglob("*") if path.is_file())
    assert f"lost          {other}: 8 files, {units.show_size(size)}, given up" in given_up.stdout
    assert f"lost          {good.there}/data: 1 files, 30 MiB, given up" in given_up.stdout
    everything = good.provider.down(good.here, "--abandon", good.box)  # the run itself cannot be given up
    assert everything.returncode == 4 and f"{NOT_HERE} 'data/big.tar'" in everything.stdout
    (good.box / "link").symlink_to(good.box)
    linked = good.provider.down(good.here, *words[2:], "--abandon", good.box / "link")  # nor by a link to it
    assert linked.returncode == 4 and f"{NOT_HERE} '{STEP}'" in linked.stdout
    (good.box / "link").unlink()
    assert transfer("pull", other, good.here.parent / OTHER_ID).returncode == 0
    assert good.provider.down_approved(good.here, "--abandon", good.there / "data").returncode == 0


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
def test_down_unproved(
    good: Bench, changes: dict[str, Any], rows: list[str], code: int, sentence: str, executed: int
) -> None:
    good.provider.profile(**changes)
    good.provider.set_rows(*({"id": name, "status": "RUNNING"} for name in rows))
    done = good.provider.down_approved(good.here, "--execute")
    assert (done.returncode, sentence in done.stdout) == (code, True), done.stdout
    assert (len(good.provider.acts), events(good.here)[-1]) == (executed, "refused")


def test_down_can_stop_instead_and_says_what_is_kept(good: Bench) -> None:
    done = good.provider.down_approved(good.here, "--act", "stop", "--execute")
    assert done.returncode == 0, done.stdout
    assert "command       fakectl halt pod-1   (can be undone)" in done.stdout
    assert "keeps billing volume disk (/workspace)" in done.stdout
    assert done.stdout.splitlines()[-1] == "down: the provider lists pod-1 as EXITED"
    assert events(good.here)[-1] == "box_stopped"


def test_down_without_a_command_or_its_program(good: Bench) -> None:
    good.provider.profile(verbs__down={"value": "the web console, Delete"})
    by_hand = good.provider.down_approved(good.here, "--execute")
    assert by_hand.returncode == 3
    assert by_hand.stdout.endswith("\nthis platform has no command for it: by hand: the web console, Delete\n")
    good.provider.profile(verbs__down={"value": "x", "argv": ["nosuchctl", "<id>"]})
    missing = good.provider.down_approved(good.here, "--execute")
    assert missing.returncode == 3
    how = "its documentation (https://example.org) says how, or use the provider's console"
    assert missing.stderr.endswith(f"nosuchctl is not installed here: {how}\n")


def test_down_of_an_empty_folder_leaves_it_empty_and_says_what_is_not_known(good: Bench) -> None:
    empty = good.here.parent / "w7"
    empty.mkdir()
    done = good.provider.down(empty)
    assert done.returncode == 4 and list(empty.iterdir()) == []
    assert "run           w7, where it is is not known\n" in done.stdout


@pytest.mark.parametrize("name", ["-rf", "--all", "a b", "x;rm", "$(x)", "a\nb", "<id>", "*"])
def test_down_takes_no_id_that_could_be_something_else(good: Bench, name: str) -> None:
    done = good.provider.down(good.here, f"--id={name}", "--approve", RUN_ID, "--execute")
    assert (done.returncode, good.provider.calls) == (2, []) and "cannot be the id of anything" in done.stderr


def test_down_fills_other_placeholders_and_gives_a_key_by_stdin_only(good: Bench) -> None:
    seen = good.folder / "seen"
    code = f"import sys; open({str(seen)!r}, 'w').write(sys.argv[1] + '|' + sys.stdin.read())"
    argv = [sys.executable, "-c", code, '{"ids":["<id>"],"zone":"<zone>"}']
    good.provider.profile(meter__list={"value": "x", "argv": ["fakectl", "list", "<zone>"]})
    early = good.provider.down(good.here, "--execute")  # the list's values, before it destroys
    assert (early.returncode, good.provider.calls) == (2, []) and "give --set zone=VALUE" in early.stderr
    answer = {"rows": "pods", "id": "id"}
    good.provider.profile(
        verbs__down={"value": "x", "argv": argv, "stdin": "key ${FAKE_KEY}"},
        meter__list={"value": "x", "argv": ["fakectl", "list"], "answer": answer},
    )
    lacking = good.provider.down(good.here)
    assert lacking.returncode == 2 and "needs its zone: give --set zone=VALUE" in lacking.stderr
    words = ("--set", "zone=eu-1", "--execute")
    keyless = good.provider.down_approved(good.here, *words)
    assert keyless.returncode == 3 and "FAKE_KEY is not set in this environment" in keyless.stderr
    done = good.provider.down_approved(good.here, *words, FAKE_KEY="s3cret")
    assert seen.read_text() == '{"ids":["pod-1"],"zone":"eu-1"}|key s3cret'
    assert "s3cret" not in done.stdout + done.stderr + (good.here / "events.jsonl").read_text()


def test_down_of_the_wrong_box_is_refused(good: Bench) -> None:
    """The box knows its own id, and it is not the one that would be destroyed."""
    good.provider.profile(overrides={"transfer.py": {"--id-env": "FAKE_POD"}})
    other = good.provider.down(good.here, "--approve", RUN_ID, "--execute", FAKE_POD="pod-2")
    assert (other.returncode, good.provider.calls) == (4, [])
    assert "calls itself 'pod-2', and --id is 'pod-1': the wrong box" in other.stdout
    unsure = good.provider.down(good.here, "--execute")
    assert "the pull is of a folder on this machine: that pod-1 is this box could not be checked" in unsure.stdout
    assert good.provider.down_approved(good.here, FAKE_POD="C.pod-1").returncode == 0


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
    body = f"head -n 1 {answers} | grep . || code=1\nsed -i 1d {answers}\nexit ${{code:-0}}"
    executable(bench.provider.bin / "docker", body)
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
