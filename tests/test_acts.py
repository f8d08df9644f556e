"""Every platform's stop and destroy against clients that fail, hang, lie or answer otherwise: gone only when it is.

The stand-in is a shell script under the client's name; what it answers is written as the provider's documents show it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rgt.platform import acts, profiles

import pytest
from pytest import MonkeyPatch

from . import front_door

Rows = list[tuple[str, str]]

STAND_IN = """#!/bin/sh
cd '{folder}' || exit 9
if [ "$*" = "$(cat list)" ]; then
    if [ -e acted ]; then name=after; else name=before; fi
else
    name=act; echo "$(basename "$0") $*" >> acted
fi
if [ $name = after ] && [ -e again.out ] && ! mkdir looked; then name=again; fi
[ -e $name.hang ] && exec sleep 20
cat $name.out
exit "$(cat $name.code)"
"""


@dataclass(frozen=True)
class Platform:
    """How a provider answers, and the words for its states."""

    shape: Callable[[Rows], Any]
    box: str
    running: str
    error: Any  # that comes with exit code 0
    stopped: str = ""
    ended: str = ""

    def answer(self, status: str, *others: str) -> str:
        rows = [(self.box, status)] if status else []
        return json.dumps(self.shape([*rows, *((other, self.running) for other in others)]))


def autodl(rows: Rows) -> Any:
    time = {"Time": "2026-11-16T08:30:00+08:00", "Valid": True}
    listed = [
        {"uuid": name, "started_at": time, "stopped_at": {**time, "Valid": False}, "status": s} for name, s in rows
    ]
    return {"code": "Success", "msg": "", "data": {"list": listed, "page_index": 1, "max_page": 1}}


def lambda_cloud(rows: Rows) -> Any:
    kind = {"name": "gpu_1x_a10", "specs": {"vcpus": 30, "gpus": 1}}
    return {
        "data": [{"id": name, "region": {"name": "us-west-1"}, "instance_type": kind, "status": s} for name, s in rows]
    }


def kubernetes(rows: Rows) -> Any:
    items = [
        {"kind": "Job", "metadata": {"name": n}, "status": {"active": 1} if s == "active" else {}} for n, s in rows
    ]
    return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items}


def vast(rows: Rows) -> Any:
    listed: list[dict[str, Any]] = [
        {"id": int(name), "actual_status": None, "cur_state": state, "extra_env": {}} for name, state in rows
    ]
    return {"instances": listed, "next_token": None, "total_instances": len(rows), "label_counts": {}}


PLATFORMS = {
    "autodl": Platform(autodl, "pro-76419909953e", "running", {"code": "AuthorizeFailed", "data": None}, "shutdown"),
    "lambda": Platform(
        lambda_cloud, "0920582c7ff0", "active", {"error": {"code": "x"}, "data": []}, ended="terminated"
    ),
    "paperspace": Platform(
        lambda rows: {"hasMore": False, "items": [{"id": name, "state": state} for name, state in rows]},
        "psq1b2c3d4",
        "ready",
        {"message": "Unauthorized"},
        "off",
    ),
    "runpod": Platform(
        lambda rows: [{"id": name, "name": "x", "desiredStatus": state} for name, state in rows],
        "abc123def456",
        "RUNNING",
        {"error": "unauthorized"},
        "EXITED",
        "TERMINATED",
    ),
    "vastai": Platform(vast, "40123456", "running", {"success": False, "error": "auth_error"}, "stopped"),
    "generic-ssh:slurm": Platform(
        lambda rows: {"errors": [], "jobs": [{"job_id": int(name), "job_state": [state]} for name, state in rows]},
        "4711",
        "RUNNING",
        {"errors": [{"error": "Unable to contact slurm controller"}], "jobs": []},
        ended="CANCELLED",
    ),
    "generic-ssh:k8s": Platform(kubernetes, "train-1f00ab", "active", {"kind": "Status", "status": "Failure"}),
    "generic-ssh:skypilot": Platform(
        lambda rows: [{"name": name, "status": state, "autostop": -1} for name, state in rows],
        "sky-1f00",
        "UP",
        {"detail": "Unauthorized"},
        "STOPPED",
    ),
}
OTHER = {"vastai": "40999999", "generic-ssh:slurm": "4712"}
CASES = [(name, act) for name in PLATFORMS for act in ("stop", "destroy")]
CASES = [(name, act) for name, act in CASES if "argv" in acts.verb(profiles.load(name), act)]


class Bench:
    """One platform, its client on PATH, and what that answers before the act, to the act, and after it."""

    def __init__(self, folder: Path, name: str, act: str, monkeypatch: MonkeyPatch) -> None:
        self.folder, self.name, self.act = folder, name, act
        self.platform, self.facts = PLATFORMS[name], profiles.load(name)
        self.other = OTHER.get(name, "other-box")
        self.values = {"id": self.platform.box, "namespace": "ml"}
        listing = profiles.command(self.facts["meter"]["list"], self.values)
        order = profiles.command(acts.verb(self.facts, act), self.values)
        assert listing and order
        (folder / "list").write_text(" ".join(listing.words[1:]))
        for client in {listing.words[0], order.words[0]}:
            (folder / client).write_text(STAND_IN.format(folder=folder))
            (folder / client).chmod(0o755)
        self.reset()
        monkeypatch.setenv("PATH", str(folder), prepend=":")
        for key in ("AUTODL_TOKEN", "LAMBDA_API_KEY"):
            monkeypatch.setenv(key, "s3cret")
        monkeypatch.setattr(acts, "_PAUSE", 0.01)

    def reset(self) -> None:
        """Nothing has happened yet, and nothing will change."""
        for name in ("acted", "again.out"):
            (self.folder / name).unlink(missing_ok=True)
        if (self.folder / "looked").exists():
            (self.folder / "looked").rmdir()
        running = self.platform.answer(self.platform.running, self.other)
        for when, text in (("before", running), ("act", "ok"), ("after", running)):
            self.say(when, text)

    def say(self, when: str, text: str, code: int = 0) -> None:
        (self.folder / f"{when}.out").write_text(text)
        (self.folder / f"{when}.code").write_text(str(code))

    def end(self, box: str = "", wait: float = 0.0) -> acts.Outcome:
        box = box or self.platform.box
        return acts.end(self.facts, {**self.values, "id": box}, box, self.act, wait)

    @property
    def acted(self) -> bool:
        return (self.folder / "acted").exists()

    def left(self, *others: tuple[str, str]) -> str:
        """The list after an act that worked."""
        rows = [(self.platform.box, self.platform.stopped)] if self.act == "stop" else []
        return json.dumps(self.platform.shape([*rows, *others]))

    @property
    def done(self) -> str:
        return self.left((self.other, self.platform.running))


def word(name: str, act: str) -> str:
    """What this platform's list says of a box after the act; empty where the box only leaves the list."""
    return PLATFORMS[name].stopped if act == "stop" else PLATFORMS[name].ended


WORDED = [case for case in CASES if word(*case)]


@pytest.fixture(params=CASES, ids=[f"{name}-{act}" for name, act in CASES])
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: MonkeyPatch) -> Bench:
    name, act = request.param
    return Bench(tmp_path, name, act, monkeypatch)


def test_all_verbs_of_all_profiles_are_here() -> None:
    readable = {name for name in PLATFORMS if "answer" in profiles.load(name)["meter"]["list"]}
    assert readable == set(PLATFORMS)
    assert {name for name, act in CASES if act == "stop"} == {
        *("autodl", "paperspace", "runpod", "vastai", "generic-ssh:skypilot")
    }
    assert {name for name, act in CASES if act == "destroy"} == set(PLATFORMS)


def answers(bench: Bench) -> dict[str, tuple[dict[str, str], bool]]:
    """What is answered when, and whether that shows that the act is done."""
    answer, running = bench.platform.answer, bench.platform.running
    absent = answer("", bench.other)
    return {
        "the list shows it": ({"after": bench.done}, True),
        "it was the only box": ({"before": answer(running), "after": bench.left()}, True),
        "all the others vanished with it": ({"after": answer("")}, False),
        "absent": ({"after": absent}, bench.act == "destroy"),  # a stopped box was to be kept
        "absent for a moment only": ({"after": absent, "again": answer(running, bench.other)}, False),
        "it said nothing": ({"act": ""}, False),
        "it lied": ({"act": "Failed with error 429: slow down"}, False),
    }


def test_gone_only_when_the_list_shows_it(bench: Bench) -> None:
    for name, (told, gone) in answers(bench).items():
        bench.reset()
        for when, text in told.items():
            bench.say(when, text)
        outcome = bench.end()
        assert (outcome.executed, outcome.gone, outcome.exit_code) == (True, gone, 0), (name, outcome)
        assert bench.platform.box in outcome.sentence and (gone or told.get("act", "") in outcome.said)


def test_absence_after_an_act_that_failed_is_no_proof(bench: Bench) -> None:
    bench.say("act", "quota exceeded", code=1)
    bench.say("after", bench.platform.answer("", bench.other))
    outcome = bench.end()
    assert (outcome.executed, outcome.gone, outcome.exit_code) == (True, False, 1)
    assert "quota exceeded" in outcome.said


@pytest.mark.parametrize("bench", WORDED, indirect=True)
def test_an_end_that_the_list_names_counts_also_when_the_client_failed(bench: Bench) -> None:
    bench.say("act", "connection reset", code=1)
    bench.say("after", bench.platform.answer(word(bench.name, bench.act), bench.other))
    outcome = bench.end()
    assert (outcome.executed, outcome.gone, outcome.exit_code) == (True, True, 1)


HTML = "<!doctype html><title>502 Bad Gateway</title>"
UNREADABLE: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "empty": lambda b: {"text": ""},
    "blank": lambda b: {"text": "\n"},
    "HTML": lambda b: {"text": HTML},
    "error in words": lambda b: {"text": "Failed with error 401: Please log in or sign up"},
    "error in JSON": lambda b: {"text": json.dumps(b.platform.error)},
    "empty object": lambda b: {"text": "{}"},
    "null": lambda b: {"text": "null"},
    "nested": lambda b: {"text": json.dumps({"result": json.loads(b.done)})},
    "cut": lambda b: {"text": b.done[:-2]},
    "rows without an id": lambda b: {"text": json.dumps(b.platform.shape([])).replace("[]", '[{"x": 1}]')},
    "exit code": lambda b: {"text": b.done, "code": 1},
}


def test_a_list_that_cannot_be_read_before_refuses(bench: Bench) -> None:
    for name, answer in UNREADABLE.items():
        bench.say("before", **answer(bench))
        outcome = bench.end()
        assert (outcome.executed, outcome.gone, bench.acted) == (False, False, False), (name, outcome)
        assert "look at the console" in outcome.sentence and "by hand: " in outcome.sentence


def test_a_list_that_cannot_be_read_after_proves_nothing(bench: Bench) -> None:
    for name, answer in UNREADABLE.items():
        bench.reset()
        bench.say("after", **answer(bench))
        outcome = bench.end()
        assert (outcome.executed, outcome.gone, bench.acted) == (True, False, True), (name, outcome)
        assert outcome.sentence.startswith("not proved gone: look at the console (") and " | list: " in outcome.said


@pytest.mark.parametrize(
    ("when", "executed", "code"), [("before", False, None), ("act", True, 124), ("after", True, 0)]
)
def test_a_client_that_hangs(
    tmp_path: Path, monkeypatch: MonkeyPatch, when: str, executed: bool, code: int | None
) -> None:
    """Also when the list lacks the box afterwards."""
    bench = Bench(tmp_path, "runpod", "destroy", monkeypatch)
    monkeypatch.setattr(acts, "SECONDS", 1.0)
    bench.say("after", bench.done)
    (tmp_path / f"{when}.hang").touch()
    outcome = bench.end()
    assert (outcome.executed, outcome.gone, outcome.exit_code) == (executed, False, code), outcome
    assert "did not end within 1 s" in outcome.said


def test_a_status_that_nobody_knows_bills(bench: Bench) -> None:
    if "status" not in bench.facts["meter"]["list"]["answer"]:
        pytest.skip("this list has no status")
    for when in ("before", "after"):
        bench.say(when, bench.platform.answer("zombie", bench.other))
    outcome = bench.end()
    assert (outcome.executed, outcome.gone) == (True, False)


def test_an_id_that_is_not_listed_whole_refuses(bench: Bench) -> None:
    box = bench.platform.box
    for given in (box[:-1], box + "0", "1" if box.isdigit() else "never-was"):
        outcome = bench.end(given)
        assert (outcome.executed, outcome.gone, bench.acted) == (False, False, False), outcome
        assert f"{given} is not in the provider's list, which has {box}, {bench.other}" in outcome.sentence


@pytest.mark.parametrize("bench", WORDED, indirect=True)
def test_what_is_already_done_is_not_done_again(bench: Bench) -> None:
    bench.say("before", bench.platform.answer(word(bench.name, bench.act), bench.other))
    outcome = bench.end()
    assert (outcome.executed, outcome.gone, bench.acted) == (False, True, False)


def test_one_page_of_several_does_not_show_an_absence(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    for name, field, value in (("vastai", "next_token", "eyJ2"), ("paperspace", "hasMore", True)):
        (folder := tmp_path / name).mkdir()
        bench = Bench(folder, name, "destroy", monkeypatch)
        bench.say("after", json.dumps({**json.loads(bench.done), field: value}))
        assert not bench.end().gone


def test_words_of_the_provider_are_shown_and_bounded(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    bench = Bench(tmp_path, "lambda", "destroy", monkeypatch)
    bench.say("after", "\x1b[2Jall is well" + "x" * 9999)
    said = bench.end().said
    assert "list: \\x1b[2Jall is well" in said and len(said) < 1300
    assert "s3cret" not in said


def test_stopped_is_a_positive_sign(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    bench = Bench(tmp_path, "runpod", "stop", monkeypatch)
    box = bench.platform.box

    def stopped(answer: str) -> bool:
        bench.say("before", answer)
        return acts.ask(bench.facts, bench.values).is_stopped(box)

    assert stopped(bench.platform.answer("EXITED", bench.other))
    assert not stopped(bench.platform.answer("RUNNING")) and not stopped(bench.platform.answer(""))
    assert not stopped("") and not stopped(HTML)
    monkeypatch.setenv("PATH", "")
    assert not acts.ask(bench.facts, bench.values).is_stopped(box)


# -- bills


def test_bills_shows_what_the_list_says(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    bench = Bench(tmp_path, "runpod", "destroy", monkeypatch)
    bench.say("before", json.dumps(bench.platform.shape([("a", "RUNNING"), ("b", "EXITED"), ("c", "TERMINATED")])))
    done = front_door.call("transfer.py", "bills", "--profile", "runpod")
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        [
            "a  RUNNING  bills: the machine",
            "b  EXITED  bills: volume disk at twice its price; $0.20/GB/month instead of $0.10",
            "c  TERMINATED  bills: nothing",
            "2 of the 3 listed bill; all that can bill is in: runpodctl pod list --all",
        ],
    )
    answer = json.loads(front_door.call("transfer.py", "bills", "--profile", "runpod", "--json").stdout)
    assert [(row["id"], bool(row["bills"])) for row in answer["rows"]] == [("a", True), ("b", True), ("c", False)]


@pytest.mark.parametrize("name", PLATFORMS)
def test_bills_that_cannot_be_read_are_not_none(name: str, tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    bench = Bench(tmp_path, name, "destroy", monkeypatch)
    for answer in UNREADABLE.values():
        bench.say("before", **answer(bench))
        done = front_door.call("transfer.py", "bills", "--profile", name, "--set", "namespace=ml")
        assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "what bills is NOT known"), done.stdout


@pytest.mark.parametrize("name", ["generic-ssh:colab", "generic-ssh:dstack", "china:matpool", "local"])
def test_bills_of_a_platform_without_a_readable_list(name: str) -> None:
    done = front_door.call("transfer.py", "bills", "--profile", name)
    assert (done.returncode, done.stdout) == (3, "") and "no list that a program can read" in done.stderr


def test_bills_without_the_client_or_its_key(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("LAMBDA_API_KEY", raising=False)
    for name, sentence in (("runpod", "runpodctl is not installed here"), ("lambda", "LAMBDA_API_KEY is not set")):
        done = front_door.call("transfer.py", "bills", "--profile", name)
        assert (done.returncode, done.stdout) == (3, "") and sentence in done.stderr
