"""A lease on a box behind a real sshd: pulled and proved before the stop, in this order; a timer on the box itself."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt.lease import keeping
from rgt.machine import processes
from rgt.run import lease as leases

import pytest

from .. import front_door
from ..notice_sink import Sink, listening, write_config
from ..transfer_lab import keepers
from .disk import unmount
from .sshd import Sshd
from .support import kill, need, wait_for
from .test_transfer_ssh import Lab

CITED = {"source": "https://example.org", "verified": "2026-11"}


@pytest.fixture
def lab(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    try:
        made = Lab(sshd, tmp_path)
        made.make(mib=1, small=3)
        for name, value in {**made.env, **made.provider.env, "RGT_CLOCK": str(tmp_path / "clock")}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        monkeypatch.setenv("RGT_CONFIG", str(tmp_path / "notify.yaml"))
        with made.link:
            yield made
        kill(keepers(tmp_path))
    finally:
        unmount(tmp_path / "home")


@pytest.fixture
def sink(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sink]:
    with listening() as made:
        monkeypatch.setenv("HOOK", made.url)
        write_config(lab.folder / "notify.yaml", {"kind": "slack", "url": {"env": "HOOK"}})
        yield made


def start(lab: Lab, *words: object, **more: Any) -> leases.Lease:
    tier = {"tier": "disk", "path": str(lab.home), "stop": "kept", "destroy": "lost", **CITED}
    profile = lab.provider.profile("fake", storage=[tier], **more)
    given = ("--profile", profile, "--id", "pod-1", "--run", f"box:{lab.there}", "--every", "1s", "--on-end", "stop")
    done = front_door.call("lease.py", "start", *given, *words, "--json", cwd=lab.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return leases.read(Path(json.loads(done.stdout)["file"]))


def test_pulled_and_proved_before_the_stop(lab: Lab, sink: Sink) -> None:
    lease = start(lab, "--until", "6h", "--rate", "2")
    assert lease.local == str(lab.here) and lease.source == f"box:{lab.there}"

    def memory() -> Any:
        return json.loads((lease.folder / "memory.json").read_text())

    wait_for("its first look", lambda: (lease.folder / "memory.json").exists() and memory().get("listing"))
    (lab.folder / "clock").write_text("[21500, 21500]")
    wait_for("the warning", lambda: memory().get("soon"))
    lab.sshd.stop()  # the box does not answer at the end
    (lab.folder / "clock").write_text("[22000, 22000]")
    wait_for("the complaint", lambda: len(sink.texts) == 2)
    assert "not pulled and verified" in sink.texts[1] and lab.provider.acts == []
    lab.sshd.start()
    (lab.folder / "clock").write_text("[23000, 23000]")
    wait_for("the stop", lambda: leases.read(lease.file).state == "stopped")
    wait_for("its end", lambda: '"what": "stopped"' in (lab.here / "events.jsonl").read_text())
    rows = [json.loads(line) for line in (lab.here / "events.jsonl").read_text().splitlines()]
    names = [row.get("what") or row["event"] for row in rows]
    end = ["pulled", "verified", "approved", "box_stopped", "told", "stopped"]
    assert [name for name in names if name in end][-6:] == end
    assert lab.provider.acts == [["halt", "pod-1"]]
    assert len(sink.texts) == 3 and sink.titles[2] == "pod-1 (fake): stopped at the end of its lease"


def pid(lab: Lab) -> str | int:
    text = (lab.home / ".rgt-lease.pid").read_text().strip()
    return int(text) if text else ""


def test_the_timer_on_the_box(lab: Lab, sink: Sink) -> None:
    """Installed only when asked for; moved by extend, taken away by end, and it stops the box when nobody comes."""
    for name in ("date", "sleep", "nohup", "setsid", "rm", "touch"):
        (lab.bin / name).symlink_to(need(name, "coreutils"))
    stop = {"value": "touch $HOME/stopped-itself"}
    lease = start(lab, "--until", "6h", "--on-box", meter__self_stop=stop)
    deadline = lab.home / ".rgt-lease"
    assert int(deadline.read_text()) == pytest.approx(time.time() + 6.5 * 3600, abs=60)
    pids = [wait_for("the first", lambda: (lab.home / ".rgt-lease.pid").exists() and pid(lab))]
    front_door.call("lease.py", "extend", "pod-1", "--until", "9h")
    pids.append(wait_for("the second", lambda: pid(lab) not in pids and pid(lab)))
    assert int(deadline.read_text()) == pytest.approx(time.time() + 9.5 * 3600, abs=60)
    assert front_door.call("lease.py", "end", "pod-1").returncode == 0 and not deadline.exists()
    keeping.set_timer(lease, 0.0)  # long over
    wait_for("its own stop", lambda: (lab.home / "stopped-itself").exists(), 20)
    # they would see within a minute that they are not wanted
    kill([int(old) for old in pids if any("lease-timer" in word for word in processes.command(int(old)))])
