"""transfer through a real sshd, over a line that breaks: the result is whole and proved, or an honest failure that the
same command completes; and until it is proved, down is refused and the provider is never called."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.link import Link
from rgt.job import queue as gate

import numpy as np
import pytest
import yaml

from .. import front_door
from ..transfer_lab import ROOT, RUN_ID, Provider, Result, events, make_run, same_tree, start, transfer
from .disk import TinyDisk, mount, unmount
from .sshd import Sshd
from .support import need, run, wait_for

TOOLS = ("sh", "mkdir", "cat", "chmod", "mv", "test", "wc", "ls", "tail", "base64", "nice")
MIB = 1 << 20


class Lab:
    """A box with a home and a PATH of its own, behind a line that can be cut."""

    def __init__(self, sshd: Sshd, folder: Path) -> None:
        self.sshd, self.folder, self.home, self.bin = sshd, folder, folder / "home", folder / "bin"
        mount(self.home)  # a disk of its own: `down` looks at all of it
        self.bin.mkdir()
        for name in TOOLS:
            (self.bin / name).symlink_to(need(name, "coreutils"))
        (self.bin / "python3").symlink_to(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
        config = sshd.config.with_name("sshd_config")
        config.write_text(config.read_text() + f"SetEnv PATH={self.bin} HOME={self.home}\n")
        sshd.restart()
        self.link = Link(sshd.port)
        self.config = folder / "ssh_config"
        self.config.write_text(sshd.config.read_text().replace(f"Port {sshd.port}", f"Port {self.link.port}"))
        self.env = {"RGT_SSH_CONFIG": str(self.config)}
        self.provider = Provider(folder / "provider")
        self.there, self.here = self.home / "runs" / RUN_ID, folder / "pulled" / RUN_ID

    def make(self, mib: float, small: int) -> None:
        make_run(self.home / "runs", mib=mib, small=small)

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in self.there.rglob("*") if path.is_file())

    def pull(self, *words: object, **env: str) -> Result:
        return transfer("pull", f"box:{self.there}", self.here, "--patience", "60s", *words, env={**self.env, **env})

    def start(self) -> subprocess.Popen[str]:
        return start("pull", f"box:{self.there}", self.here, env=self.env)

    def refused(self, sentence: str) -> None:
        """down says no, for this reason, and calls nobody."""
        self.refused_with(["--approve", "yes"], sentence)

    def refused_with(self, approval: list[str], sentence: str) -> None:
        done = self.provider.down(self.here, *approval, "--execute", **self.env)
        assert (done.returncode, sentence in done.stdout) == (4, True), done.stdout + done.stderr
        assert self.provider.acts == []

    def whole(self, done: Result) -> dict[str, Any]:
        assert done.returncode == 0, done.stdout + done.stderr
        same_tree(self.there, self.here)
        answer: dict[str, Any] = json.loads(done.stdout) if done.stdout.startswith("{") else {}
        return answer


@pytest.fixture
def lab(sshd: Sshd, tmp_path: Path) -> Iterator[Lab]:
    try:
        made = Lab(sshd, tmp_path)
        with made.link:
            yield made
    finally:
        unmount(tmp_path / "home")


def cuts(lab: Lab, count: int) -> None:
    """Cut at even distances; all arrives, nothing is sent twice."""
    size = lab.size
    lab.link.cut_at = [size * (number + 1) // (count + 1) for number in range(count)]
    answer = lab.whole(lab.pull("--json"))
    assert (answer["by"], answer["drops"], lab.link.cuts) == ("stream", count, count)
    # the bundle, listings and ssh itself come on top; what ssh had in its window (2 MiB) at a cut is lost
    assert lab.link.down < 1.05 * size + 2 * MIB + count * 2 * MIB


def test_cut_three_times(lab: Lab) -> None:
    lab.make(mib=24, small=100)
    cuts(lab, 3)
    down = lab.provider.down_approved(lab.here, "--execute", **lab.env)
    assert down.returncode == 0, down.stdout
    assert lab.provider.calls == [["list"], ["delete", "pod-1"], ["list"], ["list"]]


@pytest.mark.soak
def test_cut_ten_times(lab: Lab) -> None:
    lab.make(mib=64, small=5000)
    cuts(lab, 10)


def test_receiver_killed_half_way(lab: Lab) -> None:
    lab.make(mib=24, small=20)
    lab.link.rate = 40 * MIB
    with lab.start() as pull:
        wait_for("half of it", lambda: lab.link.down > 12 * MIB, 60)
        pull.kill()
    lab.refused("an unfinished pull is in this folder")
    lab.whole(lab.pull())
    assert lab.link.down < 1.1 * lab.size + 8 * MIB
    assert not list(lab.here.rglob("*.rgt*"))


def test_box_that_does_not_come_back(lab: Lab) -> None:
    lab.make(mib=16, small=5)
    lab.link.at = [(6 * MIB, lab.sshd.stop)]
    done = lab.pull("--patience", "2s")
    assert done.returncode == 3 and "box sent nothing for" in done.stderr and "the same command goes on" in done.stderr
    lab.refused("nothing was pulled here")
    lab.sshd.restart()
    lab.whole(lab.pull())


def test_disk_full_half_way(lab: Lab, tiny_disk: TinyDisk) -> None:
    lab.make(mib=12, small=3)
    disk = tiny_disk(size="24m", inodes=200)
    lab.here = disk / RUN_ID
    eaten = disk / "eaten"

    def eat() -> None:
        with contextlib.suppress(OSError), eaten.open("wb", buffering=0) as file:
            while file.write(bytes(MIB // 4)):
                pass

    lab.link.at = [(4 * MIB, eat)]
    done = lab.pull()
    assert done.returncode == 3, done.stdout + done.stderr
    assert "No space left on device" in done.stderr
    lab.refused("nothing was pulled here")
    os.truncate(eaten, eaten.stat().st_size - 2 * MIB)
    before = lab.link.down
    early = lab.pull()
    assert early.returncode == 3 and "are still to come; make room" in early.stderr
    assert lab.link.down - before < MIB  # said before anything is copied
    eaten.unlink()
    lab.whole(lab.pull())


def test_file_replaced_during_the_pull(lab: Lab) -> None:
    lab.make(mib=16, small=5)
    target = lab.there / "checkpoints" / "step_1.npy"
    new = lab.folder / "new.npy"
    np.save(new, np.random.default_rng(1).standard_normal(4 << 20).astype(np.float32))
    lab.link.at = [(6 * MIB, lambda: os.replace(new, target))]
    lab.whole(lab.pull())


def test_file_that_keeps_changing(lab: Lab) -> None:
    lab.make(mib=0.1, small=2)
    log = lab.there / "train.log"
    code = "import sys, time\nf = open(sys.argv[1], 'a')\nwhile True: f.write('step\\n'); f.flush(); time.sleep(0.01)"
    before = log.stat().st_size
    writer = subprocess.Popen([sys.executable, "-c", code, str(log)])
    try:
        wait_for("the writer's first line", lambda: log.stat().st_size > before)
        done = lab.pull()
        assert done.returncode == 1
        assert "error changed: train.log: keeps changing on box, so it cannot be proved" in done.stdout
        assert f"it is being written by process {writer.pid}" in done.stdout
        assert (lab.here / "train.log").read_text().startswith("step 1 loss 2.0\nstep\n")  # to be read meanwhile
        lab.refused("nothing was pulled here")
    finally:
        writer.kill()
        writer.wait()
    lab.whole(lab.pull())


def test_file_that_is_corrupt_on_the_box(lab: Lab) -> None:
    lab.make(mib=1, small=2)
    path = lab.there / "checkpoints" / "step_1.npy"
    data = path.read_bytes()
    path.write_bytes(data[:-100])
    done = lab.pull()
    assert done.returncode == 1 and "error truncated: " in done.stdout and "pulled, NOT verified" in done.stdout
    lab.refused("fails the check by load, made now: ")
    path.write_bytes(data)
    lab.whole(lab.pull())


HOSTILE = [b"not-utf8-\xff".decode(errors="surrogateescape"), "two\nlines", "tab\t", "sp ace", "$(touch x)", "#comment"]
HOSTILE += ["-rf", "--delete", ";semi", "quo'te\"", "*", "ünïcode训练", ".hidden", "~", "a:b", "\\back", "%s"]


def test_names_that_look_like_something_else(lab: Lab) -> None:
    lab.make(mib=0.1, small=1)
    for name in HOSTILE:
        (lab.there / "dir -x" / name).parent.mkdir(exist_ok=True)
        (lab.there / name).write_text("a")
        (lab.there / "dir -x" / name).write_text("b")
    lab.whole(lab.pull())


# -- a box that lies


LIES = {
    "../../evil": "leads out of the folder",
    "/etc/evil": "leads out of the folder",
    "a/../../evil": "leads out of the folder",
    "./evil": "is not a plain relative path",
    "PULL_VERIFIED.json": "is a name of our own records",
    ".rgt-pull/lock": "is a name of our own records",
    "train.log/evil": "is below a name that is a file or a link",
    "x" * 300: "is too long",
    "nul\0": "is not a plain relative path",
}


def lie(lab: Lab, name: str, run: str = "/x") -> None:
    """A box whose python3 lists `name`, whatever it is asked; of runs it has `run`."""
    files = [{"p": "train.log", "b": 1, "m": 1, "o": 0o644}, {"p": name, "b": 1, "m": 1, "o": 0o4777}]
    rows = [{"root": "/x", "record": None, "last_event": None, "writers": []}, *files, {"end": True}]
    listing, runs = lab.folder / "listing", lab.folder / "runs"
    listing.write_text("\n".join(map(json.dumps, rows)) + "\n")
    runs.write_text(json.dumps({"run": run, "artifacts": 1}) + '\n{"end": true}\n')
    answer = f"""case $asked in *'"runs"'*) cat {runs};; *) cat {listing};; esac"""
    fake_python(lab, f"read head; echo rgt-transfer-2; while read asked; do {answer}; done")


def fake_python(lab: Lab, line: str) -> None:
    (lab.bin / "python3").unlink()  # a link to the real one
    front_door.executable(lab.bin / "python3", line)


def test_a_hostile_listing_is_refused_whole_and_an_answer_to_another_question_is_a_sentence(lab: Lab) -> None:
    for name, sentence in LIES.items():
        lie(lab, name)
        done = lab.pull()
        assert done.returncode == 2 and sentence in done.stderr and "nothing was copied" in done.stderr, name
        assert not lab.here.exists() and not list(lab.folder.rglob("evil"))
    lie(lab, "model.pt")
    done = lab.pull()
    assert done.returncode == 2 and done.stderr.startswith("error: box answered something that is not ours: {'root': ")


def test_a_hostile_name_of_a_run_does_not_lead_out_of_the_target(lab: Lab) -> None:
    parent = lab.folder / "parent"
    lie(lab, "evil", run="/x/..")
    done = transfer("aggregate", "box:/x", parent / "shared", "--patience", "1s", env=lab.env)
    assert (done.returncode, "its name leads out of the folder" in done.stdout) == (1, True), done.stdout + done.stderr
    assert not parent.exists()


# -- what can be wrong with a box


def test_no_directory_no_python_or_terminals_only(lab: Lab) -> None:
    done = lab.pull()
    assert (done.returncode, done.stderr) == (2, f"error: there is no directory {lab.there} on box\n")
    fake_python(lab, 'echo "Error: Your SSH client doesn\'t support PTY"; exit 1')
    done = lab.pull()
    said = "error: python3 on box failed: Error: Your SSH client doesn't support PTY\n"
    assert (done.returncode, done.stderr) == (3, said)
    (lab.bin / "python3").unlink()
    done = lab.pull()
    sentence = "error: box has no python3 that a plain `ssh box python3` finds; install it there\n"
    assert (done.returncode, done.stderr) == (3, sentence)


def test_down_is_refused_when_the_box_does_not_answer_as_expected(lab: Lab) -> None:
    """Unless the provider's own list says that it is stopped: then what was pulled counts as it is."""
    lab.make(mib=0.1, small=1)
    lab.whole(lab.pull())
    approval, good = lab.provider.approval(lab.here, **lab.env), lab.config.read_text()
    key, known = lab.folder / "other_key", lab.folder / "known_hosts"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)])
    known.write_text(f"[127.0.0.1]:{lab.link.port} {key.with_suffix('.pub').read_text()}")
    stored = lab.sshd.config.with_name("known_hosts")
    changed = good.replace(str(stored), str(known)).replace("HostKeyChecking no", "HostKeyChecking yes")
    for text, sentence in (
        (good.replace(str(lab.sshd.key), str(key)), "box refused the key"),
        (changed, "the host key of box is not the known one"),
        ("", "box cannot be reached"),
    ):
        lab.config.write_text(text)
        lab.refused_with(approval, f"box does not answer as it should ({sentence}")
    lab.config.write_text(good)
    away = lab.there.rename(lab.there.with_name("renamed"))
    lab.refused_with(approval, f"box does not answer as it should (there is no directory {lab.there} on box)")
    away.rename(lab.there)
    lab.sshd.stop()
    for rows in ([{"id": "pod-1", "status": "RUNNING"}], [{"id": "pod-10", "status": "EXITED"}], []):
        lab.provider.set_rows(*rows)
        lab.refused_with(approval, "box does not answer as it should (box cannot be reached")
    lab.provider.set_rows({"id": "pod-1", "status": "EXITED"})
    shown = lab.provider.down(lab.here, *approval, **lab.env)
    assert shown.returncode == 0 and "the provider lists pod-1 as stopped, so the pull counts as it is" in shown.stdout


# -- push


def test_push_goes_on_after_a_cut_and_a_secret_is_for_its_owner_only(lab: Lab) -> None:
    code = lab.folder / "code"
    code.mkdir()
    (code / "data.bin").write_bytes(np.random.default_rng(0).bytes(8 * MIB))
    (code / "two words.py").write_text("x = 1\n")
    lab.link.rate = 40 * MIB
    cutting = [lab.link.cut]

    def count(size: int, downward: int, old: Any = lab.link._count) -> None:
        old(size, downward)
        if lab.link.up > 4 * MIB and cutting:
            cutting.pop()()
            raise OSError

    lab.link._count = count  # type: ignore[method-assign,assignment]
    there = lab.home / "exp"
    done = transfer("push", code, f"box:{there}", "--json", env=lab.env)
    assert done.stdout, done.stderr + lab.sshd.daemon.tail()
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["drops"]) == (0, 1), done.stdout + done.stderr
    assert lab.link.up < 10.5 * MIB
    assert sorted(os.listdir(there)) == ["data.bin", "two words.py"]
    assert (there / "data.bin").read_bytes() == (code / "data.bin").read_bytes()
    path = lab.home / ".config" / "key.env"
    words = ("push", "-", f"box:{path}")
    tried = transfer(*words, "--dry-run", env=lab.env, input=b"KEY=s3cret\n")
    assert (tried.stdout, path.exists()) == (f"nothing was sent: box:{path}, mode 0600\n", False), tried.stderr
    secret = transfer(*words, env=lab.env, input=b"KEY=s3cret\n")
    assert secret.returncode == 0, secret.stderr
    assert (path.read_text(), oct(path.stat().st_mode & 0o777)) == ("KEY=s3cret\n", "0o600")
    assert "s3cret" not in secret.stdout + secret.stderr


# -- the loop, with launch


def test_a_box_that_rewrites_its_record_commands_nothing_here(lab: Lab) -> None:
    """Another command, secrets, another host: ours stays, the finding names the fields, nobody is contacted."""
    work, marker = lab.home / "work", lab.folder / "contacted"
    work.mkdir()
    (work / "train.py").write_text(
        "import os, numpy as np\nnp.save(os.environ['RGT_RUN_DIR'] + '/w.npy', np.ones(3) / 7); raise SystemExit(3)"
    )
    os.utime(work / "train.py", (1, 1))
    spec = {"name": "tiny", "script": "train.py", "python": sys.executable, "workdir": str(work)}
    job = lab.folder / "job.yaml"
    job.write_text(yaml.safe_dump({**spec, "env": {"RGT_QUEUE": str(lab.folder / "queue")}}))
    lab.config.write_text(f"{lab.config.read_text()}Host evil\n  ProxyCommand touch {marker}\n")
    env = {**lab.env, "WANDB_API_KEY": "s3cret"}
    lab.here = Path(front_door.call("launch.py", "submit", job, "--on", "ssh:box", env=env).stdout.strip())
    there = work / "runs" / lab.here.name
    wait_for("the run", lambda: (there / "w.npy").exists())
    ours = (lab.here / "run.json").read_bytes()
    record = json.loads(ours)
    record["command"], record["job"]["target"] = ["sh", "-c", f"touch {marker}"], "ssh:evil"
    record["job"]["spec"] |= {"script": f"{marker}.py", "secrets": ["WANDB_API_KEY"], "workdir": "/"}
    (there / "run.json").write_text(json.dumps(record))
    wait_for("its end", lambda: "failed" in front_door.call("launch.py", "status", lab.here, env=env).stdout)
    for _ in range(2):  # the second pull finds the first one's records
        done = transfer("pull", lab.here, env=env)
        assert done.returncode == 1, done.stdout + done.stderr
        assert "warn  changed: " in done.stdout and "differs from ours in 'command', 'job'" in done.stdout
        assert "pulled and verified" in done.stdout
        assert (lab.here / "run.json").read_bytes() == ours
        assert json.loads((lab.here / "run.box.json").read_text()) == record
    resumed = front_door.call("launch.py", "resume", lab.here, "--dry-run", env=env)
    assert resumed.returncode == 0 and "train.py" in resumed.stdout, resumed.stderr
    assert not any(word in resumed.stdout for word in ("WANDB_API_KEY", str(marker), "evil"))
    other = lab.folder / "pulled" / lab.here.name
    assert transfer("pull", f"box:{there}", other, env=env).returncode == 0
    for verb in ("resume", "status", "logs", "stop"):
        refused = front_door.call("launch.py", verb, other, env=env)
        assert refused.returncode == 4 and "its run.json came with a pull" in refused.stderr, refused.stderr
    assert transfer("pull", other, env=env).returncode == 2
    assert lab.provider.down_approved(other, **env).returncode == 0
    assert not marker.exists()


def test_loop_until_the_run_is_over(lab: Lab) -> None:
    """launch starts it, pull RUN --loop follows it unattended, down waits for its end."""
    work = lab.home / "work"
    work.mkdir()
    code = (
        "import os, sys, time, numpy as np\nrun = os.environ['RGT_RUN_DIR']\nprint('up', flush=True)\n"
        "while not os.path.exists('go'): time.sleep(0.05)\n"
        "np.save(run + '/checkpoints.npy', np.arange(9.0) + 0.5)\n"
    )
    (work / "train.py").write_text(code)
    os.utime(work / "train.py", (1, 1))  # pushed before the run began
    spec = {"name": "tiny", "script": "train.py", "python": sys.executable, "workdir": str(work)}
    job = lab.folder / "job.yaml"
    job.write_text(yaml.safe_dump({**spec, "env": {"RGT_QUEUE": str(lab.folder / "queue")}}))
    launch = [sys.executable, str(ROOT / "scripts" / "launch.py"), "submit", str(job), "--on", "ssh:box"]
    lab.here = Path(run(launch, env=lab.env).stdout.strip())
    try:
        early = transfer("pull", lab.here, env=lab.env)
        assert early.returncode == 1 and "nothing can be proved by loading it" in early.stdout
        lab.refused("the run is running")
        with start("pull", lab.here, "--loop", "--every", "1s", env=lab.env) as loop:
            assert loop.stderr
            wait_for("a first look", lambda: "running; " in loop.stderr.readline(), 60)  # type: ignore[union-attr]
            lab.sshd.stop()
            wait_for("a drop", lambda: "trying again in" in loop.stderr.readline(), 60)  # type: ignore[union-attr]
            lab.sshd.restart()
            (work / "go").touch()
            out, err = loop.communicate(timeout=120)
        assert (loop.returncode, "pulled and verified" in out) == (0, True), out + err
        words = events(lab.here)
        assert words[:2] == ["launched", "submitted"] and words[-2:] == ["pulled", "verified"]
        down = lab.provider.down_approved(lab.here, "--execute", **lab.env)
        assert down.returncode == 0, down.stdout
        assert lab.provider.calls == [["list"], ["delete", "pod-1"], ["list"], ["list"]]
    finally:
        (work / "go").touch()
        with contextlib.suppress(TimeoutError):
            queue = gate.Queue(lab.folder / "queue")
            wait_for("the job's end", lambda: all(r["state"] != "running" for r in queue.records()), 20)
