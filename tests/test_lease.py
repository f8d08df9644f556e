"""lease: an end by time, money or idleness. Pulled and proved before the stop, which is done once or not at all;
whatever is killed, doubled, asleep, hanging or lying, nothing is destroyed and each event is told once."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rgt.lease import keeping
from rgt.platform import acts, profiles
from rgt.run import billing
from rgt.run import lease as leases

import pytest
from pytest import MonkeyPatch

from . import front_door
from .notice_sink import Inbox, Sink, listening, mailbox, write_config
from .real.disk import mount, unmount
from .real.support import free_port, wait_for
from .transfer_lab import ROOT, RUN_ID, Provider, Result, keepers, make_run, transfer

CITED = {"source": "https://example.org", "verified": "2026-11"}
HOUR = 3600.0
lease = functools.partial(front_door.call, "lease.py")


class Lab:
    """One run on a box with a disk of its own, pulled; a provider that writes down its calls; a clock that is moved."""

    def __init__(self, world: Path) -> None:
        self.world, self.box, self.here = world, world / "box", world / "pulled" / RUN_ID
        self.there = self.box / RUN_ID
        self.provider = Provider(world / "provider", self.box)
        self.profile = self.provider.profile("fake", storage=[self.tier("kept")])
        self.clock_file = world / "clock"
        self.env = {**self.provider.env, "RGT_CLOCK": str(self.clock_file), "XDG_STATE_HOME": str(world / "state")}
        self.env |= {"RGT_CONFIG": str(world / "notify.yaml"), "HOOK": ""}
        self.file = self.here.with_name(f"{RUN_ID}.pod-1.lease.json")

    def tier(self, stop: str) -> dict[str, Any]:
        return {"tier": "volume", "path": str(self.box), "stop": stop, "destroy": "lost", **CITED}

    def clock(self, wall: float, counter: float | None = None) -> None:
        """Seconds after now; the counter moves along unless told otherwise."""
        self.clock_file.write_text(json.dumps([wall, wall if counter is None else counter]))

    def start(self, *words: object, profile: Path | None = None) -> Result:
        given = ("--profile", profile or self.profile, "--id", "pod-1", "--run", self.here)
        return lease("start", *given, "--until", "6h", "--rate", "2", "--on-end", "stop", *words, env=self.env)

    @property
    def lease(self) -> leases.Lease:
        return leases.read(self.file)

    def turn(self, at: float | None = None) -> float | None:
        """One turn of a fresh keeper: what it remembers is on disk."""
        if at is not None:
            self.clock(at)
        return keeping.Keeper(self.lease).turn()

    def turns(self, *times: float) -> None:
        for at in times:
            self.turn(at)

    @property
    def events(self) -> list[str]:
        """Since the lease began; the lease's own by what they say."""
        rows = [json.loads(line) for line in (self.here / "events.jsonl").read_text().splitlines()]
        names = [row.get("what") or row["event"] for row in rows]
        return names[names.index("started") :]

    def processes(self) -> list[int]:
        return keepers(self.file)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    world = tmp_path_factory.mktemp("lease") / "world"
    disk = mount(world / "box")
    make_run(world / "box")
    done = transfer("pull", world / "box" / RUN_ID, world / "pulled" / RUN_ID)
    assert done.returncode == 0, done.stdout
    yield Path(shutil.copytree(world, world.with_name("pristine")))
    unmount(disk)


@pytest.fixture
def sink() -> Iterator[Sink]:
    with listening() as made:
        yield made


@pytest.fixture
def lab(pristine: Path, sink: Sink, monkeypatch: MonkeyPatch) -> Iterator[Lab]:
    world = pristine.with_name("world")
    for path in [*(world / "box").iterdir(), *(one for one in world.iterdir() if one.name != "box")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    made = Lab(Path(shutil.copytree(pristine, world, dirs_exist_ok=True)))
    write_config(world / "notify.yaml", {"kind": "slack", "url": {"env": "HOOK"}})
    made.env["HOOK"] = sink.url
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(acts, "_PAUSE", 0.01)
    yield made
    for pid in made.processes():
        os.kill(pid, signal.SIGKILL)


def in_process(tool: str, words: list[str], held: tuple[int, ...]) -> subprocess.CompletedProcess[bytes]:
    """The same command line, without a Python that starts for it; the tests of real keepers start them."""
    done = front_door.call(f"{tool}.py", *words)
    return subprocess.CompletedProcess([tool], done.returncode, done.stdout.encode(), done.stderr.encode())


@pytest.fixture
def own(lab: Lab, monkeypatch: MonkeyPatch) -> Lab:
    """The test is the keeper: it takes the turns."""
    monkeypatch.setattr(keeping, "start", lambda lease: os.getpid())
    monkeypatch.setattr(keeping, "run_tool", in_process)
    return lab


@pytest.fixture
def kept(own: Lab) -> Lab:
    """A lease of six hours."""
    lab = own
    done = lab.start()
    assert done.returncode == 0, done.stdout + done.stderr
    return lab


END = ["due", "ending", "pulled", "verified", "approved", "box_stopped", "told", "stopped"]


def test_warned_then_pulled_proved_stopped_and_told_once(kept: Lab, sink: Sink) -> None:
    kept.turns(1 * HOUR, 4.9 * HOUR, 4.95 * HOUR)
    assert sink.titles == ["pod-1 (fake): 82% of its lease is used"]
    kept.turns(6 * HOUR - 299, 6 * HOUR - 1)
    assert sink.titles[1:] == ["pod-1 (fake): its lease ends soon"] and kept.provider.acts == []
    assert "Cost so far: 11.83." in sink.texts[1]
    kept.turns(6 * HOUR + 2, 6 * HOUR + 3)
    assert kept.provider.acts == [["halt", "pod-1"]]
    assert kept.events[1:] == ["told", "told", *END]
    assert sink.titles[2:] == ["pod-1 (fake): stopped at the end of its lease"]
    assert "volume disk at twice its price" in sink.texts[2]
    for at in (7, 8, 99):
        assert kept.turn(at * HOUR) is None
    assert (kept.lease.state, len(sink.texts), len(kept.provider.acts)) == ("stopped", 3, 1)


def test_the_end_by_money(own: Lab, sink: Sink) -> None:
    lab = own
    lab.start("--max", "3", "--until", "48h")
    lab.turns(1.1 * HOUR, 1.3 * HOUR, 1.5 * HOUR, 1.6 * HOUR, 1.6 * HOUR + 1)
    assert lab.provider.acts == [["halt", "pod-1"]] and "it cost 3.20 of 3" in sink.texts[-1]


@pytest.mark.parametrize(("age", "busy", "ends"), [(7200, False, True), (60, False, False), (7200, True, False)])
def test_the_end_by_idleness(age: float, busy: bool, ends: bool, own: Lab) -> None:
    """The log's last line is old, and nobody has it open."""
    lab = own
    for name in ("train.log", "metrics.jsonl", "events.jsonl"):
        if (lab.there / name).exists():
            os.utime(lab.there / name, (time.time() - age, time.time() - age))
    lab.start("--idle", "30m", "--until", "48h")
    with (lab.there / "train.log").open("a") if busy else contextlib.nullcontext():
        for minutes in (0, 10, 20, 31, 37):
            lab.turn(minutes * 60)
        assert bool(lab.lease.due) == ends
    if ends:
        assert "idle for 30m00s" in (lab.lease.due or {})["why"]


def break_list(answer: str) -> Callable[[Lab], None]:
    def change(lab: Lab) -> None:
        lab.provider.list_file.write_text(answer)

    return change


def hang(lab: Lab) -> None:
    (lab.provider.bin / "fakectl").write_text("#!/bin/sh\nexec sleep 20\n")


PROVIDERS: dict[str, tuple[Callable[[Lab], None], str]] = {
    "hangs": (hang, "did not end within"),
    "lies": (break_list("Failed with error 401: Please log in"), "is not JSON"),
    "says nothing": (break_list(""), "is empty"),
    "says an error": (break_list('{"error": "unauthorized"}'), "has no list at pods"),
    "lists nothing": (break_list('{"pods": []}'), "it is not in the provider's list"),
    "lists others": (break_list('{"pods": [{"id": "pod-2", "status": "RUNNING"}]}'), "not in the provider's list"),
    "is not installed": (lambda lab: (lab.provider.bin / "fakectl").unlink(), "is not installed here"),
}


@pytest.mark.parametrize("how", PROVIDERS)
def test_an_unreadable_provider_is_told(how: str, kept: Lab, sink: Sink, monkeypatch: MonkeyPatch) -> None:
    if how == "hangs":
        monkeypatch.setattr(acts, "SECONDS", 0.3)
    change, said = PROVIDERS[how]
    kept.turns(6 * HOUR - 60)
    change(kept)
    kept.turns(6 * HOUR + 400, 6 * HOUR + 401, 6 * HOUR + 402)
    assert kept.provider.acts == [] and kept.lease.state == "active"
    assert [title for title in sink.titles if "NOT stopped" in title] == [sink.titles[-1]] and said in sink.texts[-1]


def test_louder_at_growing_distance_and_not_for_ever(own: Lab, sink: Sink) -> None:
    lab = own
    lab.start("--on-end", "tell")
    begun = lab.lease.started
    lab.turns(6 * HOUR - 60, 6 * HOUR + 300, 6 * HOUR + 301)
    times = [6 * HOUR + 301]
    while lab.lease.state == "active":
        at = memory(lab)["next"] - begun
        lab.turns(at - 30, at + 1)
        times.append(at)
    assert [round((b - a) / 60) for a, b in itertools.pairwise(times)] == [5, 10, 20, 40, 80, 160, 320, *[360] * 4]
    assert len(sink.texts) == 1 + 12 and "this is the last message" in sink.texts[-1]
    assert "it was asked to tell only" in sink.texts[-1] and "pulled" not in lab.events
    assert (lab.lease.state, lab.provider.acts) == ("unresolved", [])


def damage(lab: Lab) -> None:
    (lab.there / "checkpoints" / "step_1.npy").write_bytes(b"\0" * 4096)


def at_work(lab: Lab) -> None:
    (lab.there / "events.jsonl").write_text('{"time": 1.0, "event": "launched"}\n')


@pytest.mark.parametrize(("change", "said"), [(damage, "not pulled and verified"), (at_work, "stopped: the run is")])
def test_what_is_not_proved_is_not_stopped(change: Callable[[Lab], None], said: str, kept: Lab, sink: Sink) -> None:
    before = shutil.copytree(kept.there, kept.world / "before")
    change(kept)
    kept.turns(6 * HOUR - 60, 6 * HOUR + 300, 6 * HOUR + 301)
    assert kept.provider.acts == [] and said in sink.texts[-1], sink.texts[-1]
    assert (kept.lease.state, kept.lease.spent) == ("active", None)
    shutil.copytree(before, kept.there, dirs_exist_ok=True)  # mended: the next try ends it
    kept.turns(6 * HOUR + 600, 6 * HOUR + 700)
    assert kept.provider.acts == [["halt", "pod-1"]] and kept.lease.state == "stopped"


@pytest.mark.parametrize("name", ["lost", "unknown", "no stop"])
def test_where_a_stop_does_not_keep_the_run_it_only_tells(name: str, own: Lab, sink: Sink) -> None:
    lab = own
    changes: dict[str, Any] = {"storage": [lab.tier(name)]}
    if name == "no stop":
        changes = {"storage": [lab.tier("kept")], "verbs__stop": {"value": "in the console"}}
    done = lab.start(profile=lab.provider.profile("other", **changes))
    assert (done.returncode, "at the end it can only tell" in done.stdout) == (1, True)
    lab.turns(6 * HOUR - 60, 6 * HOUR + 300, 6 * HOUR + 301)
    assert lab.provider.acts == [] and "NOT stopped" in sink.texts[-1]
    assert {"pulled", "verified"} <= set(lab.events)  # the data is safe here all the same


def test_a_stop_that_is_not_seen_done_is_not_done_again(kept: Lab, sink: Sink) -> None:
    tool = kept.provider.bin / "fakectl"
    tool.write_text(tool.read_text().replace('"lie"', '"halt"'))  # says nothing and does nothing
    with MonkeyPatch.context() as patch:
        patch.setattr(keeping.Keeper, "_down", quick_down)
        kept.turns(6 * HOUR - 60, 6 * HOUR + 300, 6 * HOUR + 301)
        kept.turns(7 * HOUR, 9 * HOUR, 20 * HOUR)
    assert kept.provider.acts == [["halt", "pod-1"]] and kept.lease.spent
    assert "the stop is not seen done" in sink.texts[1] and "not done a second time" in sink.texts[2]
    kept.provider.set_rows({"id": "pod-1", "status": "EXITED"})  # it was slow, or a person did it
    kept.turn(40 * HOUR)
    assert kept.lease.state == "stopped" and kept.provider.acts == [["halt", "pod-1"]]


def quick_down(self: keeping.Keeper) -> list[str]:
    """As the keeper does it, with less patience for the list."""
    one = self.lease
    words = ("--profile", one.profile, "--id", one.box_id, "--act", "stop", "--lease", one.file, "--execute")
    done = transfer("down", one.local, *words, "--wait", "0s", "--json")
    return [] if done.returncode == 0 else ["the stop is not seen done"]


# -- the clock


def test_a_clock_set_back_does_not_lengthen_it(kept: Lab) -> None:
    kept.turn(5.96 * HOUR)
    kept.clock(-24 * HOUR, 6.1 * HOUR)
    kept.turn()
    assert kept.lease.due
    kept.turn()
    assert kept.provider.acts == [["halt", "pod-1"]]


def test_a_machine_that_slept_warns_and_looks_before_it_acts(kept: Lab, sink: Sink) -> None:
    """Over the 80 % and the end: one warning, the notice, a look; and an extension in that time counts."""
    kept.turn(HOUR)
    kept.turn(30 * HOUR)
    assert sink.titles == ["pod-1 (fake): its lease ends soon"] and kept.provider.acts == [] and not kept.lease.due
    kept.turns(30 * HOUR + 240)
    assert not kept.lease.due
    assert lease("extend", "pod-1", "--until", "2h", env=kept.env).returncode == 0
    kept.turns(30 * HOUR + 301, 31 * HOUR)
    assert kept.provider.acts == [] and not kept.lease.due
    kept.provider.set_rows({"id": "pod-1", "status": "EXITED"})
    kept.turns(33 * HOUR, 34 * HOUR, 34 * HOUR + 1)
    assert kept.provider.acts == [] and kept.lease.state == "stopped"  # somebody else had stopped it


def test_an_extension_while_the_keeper_works_stops_nothing(kept: Lab, monkeypatch: MonkeyPatch) -> None:
    kept.turns(6 * HOUR - 60, 6 * HOUR + 300)
    assert kept.lease.due
    original = keeping.Keeper._pull

    def pull_and_extend(self: keeping.Keeper) -> list[str]:
        said = original(self)
        lease("extend", "pod-1", "--until", "2h", env=kept.env)
        return said

    monkeypatch.setattr(keeping.Keeper, "_pull", pull_and_extend)
    kept.turn(6 * HOUR + 301)
    assert kept.provider.acts == [] and kept.lease.state == "active" and not kept.lease.due
    assert kept.events[-1] == "refused"


# -- what a lease approves


def change(lab: Lab, **fields: Any) -> None:
    with leases.change(lab.lease) as fresh:
        for name, value in fields.items():
            setattr(fresh, name, value)


REFUSED: dict[str, tuple[Callable[[Lab], Any], list[str], str]] = {
    "destroy": (lambda lab: None, ["--act", "destroy"], "never a destroy"),
    "not due": (lambda lab: change(lab, due=None), [], "its end has not come"),
    "ended": (lambda lab: lease("end", "pod-1", env=lab.env), [], "it is ended"),
    "spent": (lambda lab: change(lab, spent=1.0), [], "its one stop was begun already"),
    "only tell": (lambda lab: change(lab, on_end="tell"), [], "it says --on-end tell"),
    "another run": (lambda lab: shutil.move(lab.here, lab.here.with_name("other")), [], "it is for the run in"),
    "another box": (lambda lab: None, ["--id", "pod-2"], "it is for pod-1"),
    "another profile": (lambda lab: None, ["--profile", "runpod"], "it is for pod-1 of"),
    "a copy": (lambda lab: shutil.copy(lab.file, lab.world / "x.json"), ["--lease", "x.json"], "started here"),
    "no file": (lambda lab: None, ["--lease", "gone.json"], "not a lease of this machine"),
    "stop loses": (lambda lab: lab.provider.profile("fake", storage=[lab.tier("lost")]), [], "does not keep"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_down_refuses_a_lease_that_is_not_for_this(how: str, kept: Lab) -> None:
    change(kept, due={"time": 1.0, "why": "x"})
    prepare, words, said = REFUSED[how]
    prepare(kept)
    given = ["--profile", kept.profile, "--id", "pod-1", "--act", "stop", "--lease", kept.file, *words, "--execute"]
    run = kept.here if kept.here.exists() else kept.here.with_name("other")
    done = transfer("down", run, *given, cwd=kept.world)
    assert done.returncode == 4 and said in done.stdout, done.stdout + done.stderr
    assert kept.provider.acts == []


def test_two_downs_at_once_stop_once(kept: Lab) -> None:
    change(kept, due={"time": 1.0, "why": "x"})
    given = ["--profile", kept.profile, "--id", "pod-1", "--act", "stop", "--lease", kept.file, "--execute"]
    words = [sys.executable, str(ROOT / "scripts" / "transfer.py"), "down", kept.here, *given]
    started = [subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE) for _ in range(2)]
    for child in started:
        child.communicate()
    assert kept.provider.acts == [["halt", "pod-1"]]
    assert sorted(child.returncode for child in started) == [0, 4]


# -- start and status


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--until", "0"], "a lease needs an end"),
        (["--max", "5", "--rate", "0", "--until", "1h", "--set", "x"], "--set takes NAME=VALUE"),
        (["--run", "nowhere"], "is not a run directory"),
        (["--disk", "50"], "has no price of a GB there"),
        (["--profile", "nowhere"], "there is no profile nowhere"),
        (["--on-box", "--idle", "1h", "--until", "0"], "the lease has no time"),
    ],
)
def test_what_is_no_lease_is_one_sentence(words: list[str], said: str, lab: Lab) -> None:
    done = lab.start(*words)
    assert (done.returncode, done.stdout) == (2, "") and said in done.stderr
    assert not lab.file.exists() and lab.processes() == []


def test_dry_run_starts_nothing_and_a_second_lease_is_refused(kept: Lab) -> None:
    assert "has a lease already" in kept.start().stderr
    lease("end", RUN_ID, env=kept.env)
    kept.file.unlink()
    assert "nothing was started: pod-1 (fake) ends " in kept.start("--dry-run").stdout and not kept.file.exists()
    assert kept.start().returncode == 0
    lease("end", RUN_ID, env=kept.env)
    (kept.world / "notify.yaml").unlink()
    done = kept.start()
    assert (done.returncode, "nobody will be told" in done.stdout) == (1, True)


def test_status_names_boxes_without_a_lease_and_what_it_cannot_read(kept: Lab) -> None:
    kept.clock(3 * HOUR)
    done = lease("status", "--json", env=kept.env)
    answer = json.loads(done.stdout)
    assert answer["without_lease"] == [{"profile": str(kept.profile), "id": "pod-2", "status": "RUNNING"}]
    assert answer["leases"][0]["bill"]["cost"] == pytest.approx(6.0, abs=0.01)
    kept.provider.list_file.write_text("")
    said = lease("status", env=kept.env).stdout
    assert "what is up there is not known" in said and "0 boxes up without one" in said
    kept.file.write_text("{")
    assert "nobody keeps this box" in lease("status", env=kept.env).stdout


def test_status_names_a_sleeping_or_failed_keeper_and_a_bad_config(kept: Lab, monkeypatch: MonkeyPatch) -> None:
    kept.turn()
    monkeypatch.setattr(keeping, "start", lambda lease: None)  # one holds the lock
    old = {**memory(kept), "time": time.time() - 9000, "error": "OSError: x"}
    (kept.lease.folder / "memory.json").write_text(json.dumps(old))
    (kept.world / "notify.yaml").write_text("channels: 1")
    said = lease("status", env=kept.env).stdout
    assert "has not looked for 2h30m" in said and "its keeper failed: OSError: x" in said
    assert "nobody will be told: " in said and said.splitlines()[-1].startswith("1 leases")


def test_a_lease_whose_file_is_gone_is_told(lab: Lab, sink: Sink) -> None:
    starting(lab)
    lab.file.unlink()
    wait_for("the keeper's end", lambda: lab.processes() == [])
    assert sink.titles == ["pod-1 (fake): its lease is gone, nobody keeps it"]


def test_the_cost_is_on_the_pages(tmp_path: Path) -> None:
    run = invoiced(make_run(tmp_path / "runs"))
    assert "cost 32.97" in front_door.call("watch.py", run).stdout
    done = transfer("down", run, "--profile", "local")
    assert "cost          32.97: 17.09 h up, 19.16 h stopped" in done.stdout


def test_stop_keeps_only_what_the_matrix_says() -> None:
    def loses(profile: str, path: str) -> bool:
        return bool(acts.why_stop_loses(profiles.load(profile), path))

    kept_there = [("runpod", "/workspace/runs/x"), ("autodl", "/root/autodl-tmp/x"), ("autodl", "/root/x")]
    kept_there += [("vastai", "/workspace/x"), ("paperspace", "/home/p/x"), ("generic-ssh:skypilot", "/home/sky/x")]
    assert [pair for pair in kept_there if loses(*pair)] == []
    lost_there = [
        ("runpod", "/root/x"),
        ("runpod", "/workspace2/x"),
        ("lambda", "/home/ubuntu/x"),
        ("local", "/root/x"),
    ]
    lost_there += [("lambda", "/lambda/nfs/a/x"), ("generic-ssh:slurm", "/home/x/y"), ("china:matpool", "/mnt/x")]
    assert [pair for pair in lost_there if not loses(*pair)] == []


# -- real keepers


def starting(lab: Lab, *words: object) -> None:
    """As an agent does it: a process that ends, in a session that is killed."""
    given = ["start", "--profile", lab.profile, "--id", "pod-1", "--run", lab.here, "--until", "6h", "--on-end", "stop"]
    script = [sys.executable, str(ROOT / "scripts" / "lease.py"), *map(str, given), "--every", "1s", *map(str, words)]
    shell, null = ["sh", "-c", '"$@"; sleep 60', "sh", *script], subprocess.DEVNULL
    agent = subprocess.Popen(shell, stdout=null, start_new_session=True)
    wait_for("the keeper", lambda: (lab.lease.folder / "memory.json").exists() if lab.file.exists() else False)
    os.killpg(agent.pid, signal.SIGKILL)
    agent.wait()


def memory(lab: Lab) -> Any:
    return json.loads((lab.lease.folder / "memory.json").read_text())


def finished(lab: Lab) -> bool:
    lease("status", env=lab.env)  # wakes the keeper, or starts it
    return lab.lease.state == "stopped"


def test_agent_and_keeper_killed(lab: Lab, sink: Sink) -> None:
    port = free_port()
    mail = {"kind": "smtp", "host": "localhost", "port": port, "security": "none", "from": "a@example.org"}
    write_config(lab.world / "notify.yaml", {"kind": "slack", "url": {"env": "HOOK"}}, {**mail, "to": ["b@x.org"]})
    with mailbox(port) as inbox:
        kill_both(lab, sink, inbox)
    assert [b"Subject: pod-1 (fake): its lease ends soon" in mail for _, mail in inbox.mails] == [True, False]


def kill_both(lab: Lab, sink: Sink, inbox: Inbox) -> None:
    starting(lab)
    [keeper] = lab.processes()
    second = subprocess.run([sys.executable, str(ROOT / "scripts" / "lease.py"), "keep", str(lab.file)])
    assert second.returncode == 1  # the lock is taken
    lab.clock(6 * HOUR - 60)
    keeping.wake(lab.lease)
    wait_for("the warning", lambda: sink.texts and inbox.mails)
    os.kill(keeper, signal.SIGKILL)
    wait_for("another one", lambda: "was dead and is started again" in lease("status", env=lab.env).stdout)
    wait_for("its warning", lambda: memory(lab)["pid"] != keeper and memory(lab)["soon"])
    lab.clock(6 * HOUR + 300)
    wait_for("the stop", lambda: finished(lab))
    assert lab.provider.acts == [["halt", "pod-1"]]
    wait_for("the last word", lambda: len(sink.texts) == 2 and not lab.processes())
    assert [title.partition(": ")[2] for title in sink.titles] == [
        "its lease ends soon",
        "stopped at the end of its lease",
    ]


def test_suspended_keeper_catches_up(lab: Lab, sink: Sink) -> None:
    starting(lab)
    [keeper] = lab.processes()
    os.kill(keeper, signal.SIGSTOP)
    lab.clock(20 * HOUR)
    assert lease("extend", "pod-1", "--until", "1h", env=lab.env).returncode == 0  # while it sleeps
    os.kill(keeper, signal.SIGCONT)
    lab.clock(20.5 * HOUR)
    wait_for("a look", lambda: memory(lab)["generation"] == 1)
    assert sink.texts == [] and lab.provider.acts == []
    os.kill(keeper, signal.SIGSTOP)
    lab.clock(40 * HOUR)
    os.kill(keeper, signal.SIGCONT)
    wait_for("the warning", lambda: sink.texts)
    assert lab.provider.acts == [] and not lab.lease.due
    lab.clock(40 * HOUR + 400)
    wait_for("the stop", lambda: finished(lab))
    assert lab.provider.acts == [["halt", "pod-1"]]


def test_end_ends_the_keeper_and_not_the_box(lab: Lab) -> None:
    starting(lab)
    assert lease("end", "pod-1", env=lab.env).returncode == 0
    wait_for("its end", lambda: lab.processes() == [])
    lab.clock(99 * HOUR)
    assert lease("status", env=lab.env).stdout.startswith("ended") and lab.processes() == []
    assert lab.provider.acts == []


# -- cost


INVOICE = """\
start,end,what,price,amount
2026-11-02T08:00:00,2026-11-02T14:20:00,running,1.89,11.97
2026-11-02T14:20:00,2026-11-03T09:00:00,disk,0.0137,0.2557
2026-11-03T09:00:00,2026-11-03T11:30:00,running,1.89,4.725
2026-11-03T11:30:00,2026-11-03T12:00:00,disk,0.0137,0.0069
2026-11-03T12:00:00,2026-11-03T20:15:00,running,1.94,16.005
"""


def at(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S")) - time.timezone


def write_events(folder: Path, *rows: tuple[str, str, dict[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"time": at(when), "event": event, **more}) for when, event, more in rows]
    (folder / "events.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def invoiced(folder: Path) -> Path:
    price = {"what": "started", "id": "pod-1", "rate": 1.89, "stopped_rate": 0.0137}
    return write_events(
        folder,
        ("2026-11-02T08:00:20", "launched", {}),
        ("2026-11-02T08:05:00", "lease", price),
        ("2026-11-02T10:05:20", "failed", {}),
        ("2026-11-02T10:30:00", "resumed", {}),
        ("2026-11-02T14:20:30", "box_stopped", {}),
        ("2026-11-03T09:00:00", "box_started", {}),
        ("2026-11-03T09:02:00", "resumed", {}),
        ("2026-11-03T11:30:00", "box_stopped", {}),
        ("2026-11-03T12:00:00", "box_started", {}),
        ("2026-11-03T12:00:01", "lease", {**price, "what": "extended", "rate": 1.94}),
        ("2026-11-03T19:00:00", "finished", {}),
        ("2026-11-03T20:15:00", "destroyed", {}),
    )


def test_cost_is_within_one_percent_of_the_invoice(tmp_path: Path) -> None:
    run = invoiced(tmp_path / "runs" / RUN_ID)
    wanted = sum(float(line.split(",")[-1]) for line in INVOICE.splitlines()[1:])
    done = lease("cost", run, "--json")
    answer = json.loads(done.stdout)
    assert answer["total"] == pytest.approx(wanted, rel=0.01) and done.returncode == 0
    assert answer["failed"] == {
        "hours": pytest.approx(2.0833, abs=1e-3),
        "cost": pytest.approx(2.0833 * 1.89, abs=1e-2),
    }
    [row] = answer["runs"]
    assert row["hours_stopped"] == pytest.approx(19.16, abs=0.02)


def test_cost_per_claim_and_a_shared_box_once(tmp_path: Path) -> None:
    names = [RUN_ID, RUN_ID.replace("1f00ab", "1f00ac")]
    runs = [invoiced(make_run(tmp_path / "runs", name)) for name in names]
    claims = [
        {"id": "A", "metric": "m", "value": 1.0, "evidence": [{"run_id": names[0]}]},
        {"id": "B", "metric": "m", "value": 1.0, "evidence": [{"run_id": name} for name in names]},
        {"id": "C", "metric": "m", "value": 1.0, "evidence": [{"run_id": RUN_ID.replace("1f00ab", "ffffff")}]},
    ]
    (tmp_path / "EVIDENCE.json").write_text(json.dumps({"claims": claims}))
    said = lease("cost", tmp_path / "runs", "--evidence", tmp_path / "EVIDENCE.json").stdout.splitlines()
    assert said[-1].startswith("32.9") and said[-1].endswith("for 2 runs, 16.48 for each of 2 claims")
    assert "claim A: 32.97 for 1 runs" in said and "claim B: 32.97 for 2 runs" in said
    assert len(runs) == 2


def test_cost_without_a_price_is_unknown_and_without_an_end_is_said(tmp_path: Path) -> None:
    run = write_events(
        tmp_path / RUN_ID, ("2026-11-02T08:00:00", "launched", {}), ("2026-11-02T10:00:00", "finished", {})
    )
    done = lease("cost", run)
    assert done.returncode == 1 and done.stdout.splitlines()[-1] == "unknown for 1 runs"
    said = lease("cost", run, "--rate", "1.5").stdout
    assert "3.00: 2.00 h up; no stop of the box is recorded: counted to the last event" in said
    (run / "events.jsonl").write_text('{"time": "x", "event": "lease", "rate": "much"}\n[]\n{"time": 1e300}\n')
    assert lease("cost", run).returncode == 1
    assert billing.bill_of(tmp_path / "nowhere").cost is None


def test_the_price_of_a_disk_is_the_profiles(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """RunPod: 0.10 a GB and month while it runs, 0.20 stopped."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "bin").mkdir()
    words = ("--profile", "runpod", "--id", "a", "--run", "box:/workspace/runs/x", "--until", "6h")
    done = lease("start", *words, "--rate", "1", "--disk", "730", "--dry-run", "--json", cwd=tmp_path)
    made = json.loads(done.stdout)["lease"]
    assert (made["rate"], made["stopped_rate"]) == (pytest.approx(1.1), pytest.approx(0.2))
    assert made["local"] == str(tmp_path / "pulled" / "x")
    assert "runpodctl pod stop $RUNPOD_POD_ID" in keeping.timer_script(profiles.load("runpod"))
