"""rgt.rundir: ids that sort and never repeat, records that fit their schemas, runs found wherever they lie."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rgt import files, schema
from rgt.errors import BAD_INPUT, RgtError
from rgt.run import record as rundir
from rgt.run.record import RUN_ID, Run, config_hash, create, find, mint_id, open_run

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

NOW = 1_794_818_400.0  # 2026-11-16 08:40:00 UTC


def new_run(root: Path, **changes: Any) -> Run:
    settings: dict[str, Any] = {"command": ["python", "train.py"], "config": {"lr": 0.1}, **changes}
    return create(root, settings.pop("slug", "tiny gpt"), **settings)


def refusal(act: Callable[[], Any]) -> str:
    with pytest.raises(RgtError) as caught:
        act()
    assert caught.value.exit_code == BAD_INPUT
    return caught.value.message


# --- ids -------------------------------------------------------------------------------------------------------


@given(st.text(max_size=100))
@example("")
@example("微调实验")
@example("../../etc/passwd")
@example("..")
@example("a" * 200)
@example("x" * 39 + "-.-")
@example("İstanbul ſ K")
def test_an_id_is_an_id_whatever_the_slug(slug: str) -> None:
    run_id = mint_id(slug)
    assert RUN_ID.fullmatch(run_id) and run_id.isascii()
    assert len(run_id) <= 16 + 40 + 7 and Path(run_id).name == run_id
    schema.check({"run_id": run_id, "sealed": "", "files": {}}, "seal", "the pattern of the schemas")


def test_a_repeated_id_is_minted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = iter(["20261116-084000-x-aaaaaa", "20261116-084000-x-aaaaaa", "20261116-084000-x-bbbbbb"])
    monkeypatch.setattr(rundir, "mint_id", lambda slug: next(ids))
    first, second = new_run(tmp_path), new_run(tmp_path)
    assert [first.id[-6:], second.id[-6:]] == ["aaaaaa", "bbbbbb"]
    assert first.record()["run_id"] == first.id and second.record()["run_id"] == second.id


# --- create ----------------------------------------------------------------------------------------------------


def test_create_writes_a_valid_record_and_the_launched_event(tmp_path: Path) -> None:
    given: dict[str, Any] = {"seeds": {"python": 1, "torch": 2**63 - 1}, "backend": "slurm", "job": {"job_id": "4711"}}
    config = {"lr": 0.1, "model": {"layers": 2}}
    command = ["python", "train.py", "--run={run}"]
    run = create(tmp_path / "outputs" / "runs", "微调 tiny", command=command, config=config, **given)
    record = run.record()
    schema.check(record, "run", "run.json")
    assert record["run_id"] == run.id == run.path.name
    assert record["command"] == ["python", "train.py", f"--run={run.path}"]
    assert record["config_sha256"] == config_hash({"model": {"layers": 2}, "lr": 0.1})
    assert {name: record[name] for name in given} == given
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", record["created"])
    (event,) = files.read_jsonl(run.events, "events")
    assert (event["event"], event["backend"]) == ("launched", "slurm")
    assert {path.name for path in run.path.iterdir()} == {"run.json", "events.jsonl", "checkpoints"}
    assert create(run.path.parent, "微调 tiny", command=command, config=config).path != run.path


def test_a_launch_killed_before_its_record_was_written_left_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that has a run.json also has its `launched` event: whoever finds it may count on that."""

    def killed(self: Run, record: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "write_record", killed)
    with pytest.raises(KeyboardInterrupt):
        create(tmp_path, "tiny", command=["true"], config={})
    assert find(tmp_path) == []
    (remains,) = tmp_path.iterdir()
    assert '"launched"' in (remains / "events.jsonl").read_text()


def test_what_no_run_can_be_made_of_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    bad: list[tuple[dict[Any, Any], str]] = [
        ({"lr": math.nan}, "Out of range float values are not JSON compliant"),
        ({"tags": {"a", "b"}}, "Object of type set is not JSON serializable"),
        ({1: "a", "b": 2}, "'<' not supported between instances of 'str' and 'int'"),  # mixed keys of a yaml file
    ]
    for config, why in bad:
        message = refusal(functools.partial(new_run, tmp_path, config=config))
        assert message.startswith("the config cannot hold this as JSON: ") and why in message
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "unmounted").symlink_to("nowhere")
    message = refusal(lambda: new_run(tmp_path / "unmounted"))
    assert message == f"cannot make a run directory in {tmp_path / 'unmounted'}: File exists"


def test_open_run_wants_a_run_and_its_record_has_to_fit(tmp_path: Path) -> None:
    run = new_run(tmp_path, config={"lr": 1})
    assert open_run(run.path) == run and run.curve("loss") == {}  # it has not logged yet
    assert refusal(lambda: open_run(tmp_path)) == f"{tmp_path} is not a run directory: it has no run.json"
    record = run.record()
    files.write_json(run.run_json, {**record, "seeds": {"torch": "one"}})
    assert "run.json does not fit the run schema: seeds/torch: 'one' is not of type" in refusal(run.record)
    files.write_json(run.run_json, {**record, "config": {"lr": 2}})
    assert "run.json was edited: its config has another sha256" in refusal(run.record)


def test_the_hash_depends_on_all_but_the_order_and_anybody_can_compute_it() -> None:
    """printf '{"a":1,"lr":0.1}' | sha256sum"""
    values: list[Any] = [1, 2, "1", [1, 2], [2, 1], {}]
    configs: list[dict[str, Any]] = [{}, {"b": 1}, *({"a": value} for value in values)]
    assert len({config_hash(config) for config in configs}) == len(configs)
    assert config_hash({"lr": 0.1, "a": 1}) == "cf6a98db3b939e18be14c1aa202843bc04028ef6bff8384852386f37d1fbe06a"


# --- metrics ---------------------------------------------------------------------------------------------------


def test_a_curve_is_in_order_of_steps_and_the_last_row_wins(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    for step, loss in [(10, 3.0), (20, 2.0), (30, 1.5), (20, 2.5), (25, 2.2)]:
        run.log_metrics(step=step, split="train", loss=loss, lr=0.1)
    run.log_metrics(step=20, split="val", loss=9.0)
    run.log_metrics(step=40, split="train", accuracy=0.5)
    assert list(run.curve("loss").items()) == [(10, 3.0), (20, 2.5), (25, 2.2), (30, 1.5)]
    assert run.curve("loss", "val") == {20: 9.0}
    assert run.curve("loss", "test") == {} and run.curve("nothing") == {}


def test_nan_and_infinities_are_kept(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    for step, loss in enumerate([math.nan, math.inf, -math.inf]):
        run.log_metrics(step=step, split="train", loss=loss)
    assert [row["loss"] for row in files.read_jsonl(run.metrics, "metrics")] == ["NaN", "Infinity", "-Infinity"]
    curve = run.curve("loss")
    assert math.isnan(curve[0]) and (curve[1], curve[2]) == (math.inf, -math.inf)
    run.metrics.write_text('{"step": 1, "split": "train", "loss": NaN}\n')  # as other people's JSON has it
    assert math.isnan(run.curve("loss")[1])


def test_a_row_that_is_no_point_is_named(tmp_path: Path) -> None:
    run = Run(tmp_path)
    odd: list[dict[str, Any]] = [{"step": 1, "loss": value} for value in (None, "low", {"mean": 1}, 10**400)]
    odd += [{"loss": 1}, {"step": "first", "loss": 1}]
    for row in odd:
        both = [{"step": 0, "split": "train", "loss": 1}, {"split": "train", **row}]
        run.metrics.write_text("".join(json.dumps(each) + "\n" for each in both))
        message = refusal(lambda: run.curve("loss"))
        start = f"{run.metrics} has a row whose step or loss is not a number: "
        assert message.startswith(start) and len(message) < 1000, row


# --- find ------------------------------------------------------------------------------------------------------


def place(path: Path) -> Run:
    path.mkdir(parents=True)
    (path / "run.json").write_text("{}")
    return Run(path)


def test_find_sees_runs_at_every_level_oldest_first(tmp_path: Path) -> None:
    newest = place(tmp_path / "20261116-000000-c-000000")
    oldest = place(tmp_path / "outputs" / "project" / "runs" / "20261114-000000-a-000000")
    middle = place(tmp_path / "runs" / "20261115-000000-b-000000")
    place(tmp_path / "a" / "b" / "c" / "d" / "20261113-000000-too-deep-000000")
    assert find(tmp_path) == [oldest, middle, newest]


def test_find_of_a_run_below_a_link_below_nothing_and_past_remains_and_loops(tmp_path: Path) -> None:
    run = place(tmp_path / "disk" / "x")
    place(run.path / "nested" / "y")
    assert find(run.path) == [run] and find(tmp_path) == [run] and find(tmp_path / "nothing") == []
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    assert [found.id for found in find(tmp_path / "runs")] == [run.id]
    for name in (".git", ".hidden", "node_modules"):
        place(tmp_path / name / "x")
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / ".run.json.k3j2.tmp").write_text("{}")
    (tmp_path / "y" / "run.json").mkdir(parents=True)
    for name, target in (("again", str(tmp_path)), ("self", "self"), ("broken", "nowhere")):
        (tmp_path / "disk" / name).symlink_to(target)
    assert find(tmp_path) == [run]


STATES = [
    ("", "unknown"),
    ("launched", "queued"),
    ("launched submitted resumed", "running"),
    ("launched finished verified pulled destroyed", "finished"),
    ("launched preempted", "preempted"),
    ("launched preempted resumed stopped checkpoint", "stopped"),
    ("launched resumed destroyed", "stopped"),
    ("launched destroyed resumed", "running"),
]


@pytest.mark.parametrize(("events", "state"), STATES)
def test_the_state_that_events_leave_a_run_in(events: str, state: str) -> None:
    rows = [{"event": word, "time": 1e9 + number} for number, word in enumerate(events.split())]
    assert rundir.state_after(rows) == rundir.state_after(reversed(rows)) == state
    assert set(rundir.AFTER_EVENT.values()) < set(rundir.STATES)


def test_what_does_not_fit_is_not_written(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for act in (
        lambda: run.log_metrics(step=-1, split="train", loss=1.0),
        lambda: run.log_metrics(step=1, split="dev", loss=1.0),
        lambda: run.log_metrics(step=1, split="train"),
        lambda: run.log_event("exploded"),
        lambda: run.write_results({"run_id": run.id, "metrics": []}),
    ):
        assert "does not fit" in refusal(act)
    assert list(tmp_path.iterdir()) == []
