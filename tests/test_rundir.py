"""rgt.rundir: ids that sort and never repeat, records that fit their schemas, runs found wherever they lie."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rgt import files, rundir, schema
from rgt.errors import BAD_INPUT, RgtError
from rgt.ids import RUN_ID, mint_id, slugify
from rgt.rundir import Run, config_hash, create, find, open_run

NOW = 1_794_818_400.0  # 2026-11-16 08:40:00 UTC


def new_run(root: Path, **changes: Any) -> Run:
    settings: dict[str, Any] = {"command": ["python", "train.py"], "config": {"lr": 0.1}, **changes}
    return create(root, settings.pop("slug", "tiny gpt"), **settings)


# --- ids -------------------------------------------------------------------------------------------------------


def test_an_id_says_when_and_what() -> None:
    assert re.fullmatch(r"20261116-084000-tiny-gpt-[0-9a-f]{6}", mint_id("Tiny GPT!", NOW))


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


@given(st.text())
def test_a_slug_of_a_slug_is_itself(text: str) -> None:
    assert slugify(slugify(text)) == slugify(text)


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("", "run"),
        ("微调", "run"),
        ("Llama-3.1 8B", "llama-3.1-8b"),
        ("a/b/c", "a-b-c"),
        (".hidden", "hidden"),
        ("__x", "x"),
    ],
)
def test_how_a_slug_looks(text: str, slug: str) -> None:
    assert slugify(text) == slug


def test_ids_sort_by_time() -> None:
    times = [NOW + offset for offset in (0, 1, 59, 60, 3600, 86400, 40 * 86400, 400 * 86400)]
    ids = [mint_id(slug, now) for slug, now in zip("zyxwvuts", times, strict=True)]
    assert sorted(ids) == ids


def test_ids_of_one_second_differ() -> None:
    """Six hex digits: among a thousand, three or more repeats happen less than once in a million times."""
    assert len({mint_id("sweep", NOW) for _ in range(1000)}) > 997


def test_a_repeated_id_is_minted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = iter(["20261116-084000-x-aaaaaa", "20261116-084000-x-aaaaaa", "20261116-084000-x-bbbbbb"])
    monkeypatch.setattr(rundir, "mint_id", lambda slug: next(ids))
    first, second = new_run(tmp_path), new_run(tmp_path)
    assert [first.id[-6:], second.id[-6:]] == ["aaaaaa", "bbbbbb"]
    assert first.record()["run_id"] == first.id and second.record()["run_id"] == second.id


# --- create ----------------------------------------------------------------------------------------------------


def test_create_writes_a_valid_record_and_the_launched_event(tmp_path: Path) -> None:
    run = create(
        tmp_path / "outputs" / "runs",
        "微调 tiny",
        command=["python", "train.py", "--lr", "0.1"],
        config={"lr": 0.1, "model": {"layers": 2}},
        seeds={"python": 1, "torch": 2**63 - 1},
        backend="slurm",
        job={"job_id": "4711"},
    )
    record = run.record()
    schema.check(record, "run", "run.json")
    assert record["run_id"] == run.id == run.path.name
    assert record["command"] == ["python", "train.py", "--lr", "0.1"]
    assert record["config_sha256"] == config_hash({"model": {"layers": 2}, "lr": 0.1})
    assert (record["seeds"], record["backend"], record["job"]) == (
        {"python": 1, "torch": 2**63 - 1},
        "slurm",
        {"job_id": "4711"},
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", record["created"])
    (event,) = files.read_jsonl(run.events, "events")
    assert (event["event"], event["backend"]) == ("launched", "slurm")
    assert {path.name for path in run.path.iterdir()} == {"run.json", "events.jsonl", "checkpoints"}


def test_two_runs_of_the_same_thing_have_two_directories(tmp_path: Path) -> None:
    assert new_run(tmp_path).path != new_run(tmp_path).path


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"lr": math.nan}, "Out of range float values are not JSON compliant"),
        ({"tags": {"a", "b"}}, "Object of type set is not JSON serializable"),
        ({"path": Path("x")}, "is not JSON serializable"),
        ({1: "a", "b": 2}, "'<' not supported between instances of 'str' and 'int'"),
    ],
    ids=["nan", "set", "path", "mixed keys of a yaml file"],
)
def test_a_config_that_json_cannot_hold_is_refused_before_anything_is_made(
    tmp_path: Path, config: dict[str, Any], why: str
) -> None:
    with pytest.raises(RgtError) as caught:
        new_run(tmp_path, config=config)
    assert caught.value.message.startswith("the config cannot hold this as JSON: ") and why in caught.value.message
    assert caught.value.exit_code == BAD_INPUT
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_cannot_be_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "unmounted").symlink_to("nowhere")
    for root in (tmp_path / "file", tmp_path / "unmounted"):
        with pytest.raises(RgtError) as caught:
            new_run(root)
        assert caught.value.message == f"cannot make a run directory in {root}: File exists"


def test_the_paths_of_a_run() -> None:
    run = Run(Path("runs/x"))
    names = ["run_json", "log", "metrics", "events", "checkpoints", "checkpoints_index", "status", "results", "seal"]
    assert [str(getattr(run, name).relative_to("runs/x")) for name in names] == [
        "run.json",
        "train.log",
        "metrics.jsonl",
        "events.jsonl",
        "checkpoints",
        "checkpoints_index.json",
        "training_status.md",
        "results.json",
        "seal.json",
    ]


def test_open_run_wants_a_run(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    assert open_run(run.path) == run
    with pytest.raises(RgtError) as caught:
        open_run(tmp_path)
    assert caught.value.message == f"{tmp_path} is not a run directory: it has no run.json"


def test_a_record_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    files.write_json(run.run_json, {**run.record(), "seeds": {"torch": "one"}})
    with pytest.raises(RgtError, match=r"run\.json does not fit the run schema: seeds/torch: 'one' is not of type"):
        run.record()


# --- the config's hash -----------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def turned(value: Any) -> Any:
    """The same value with every object in the opposite order."""
    if isinstance(value, dict):
        return {key: turned(value[key]) for key in reversed(value)}
    return [turned(item) for item in value] if isinstance(value, list) else value


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_the_hash_does_not_depend_on_order(config: dict[str, Any]) -> None:
    assert config_hash(turned(config)) == config_hash(config)


def test_the_hash_depends_on_everything_else() -> None:
    configs: list[dict[str, Any]] = [
        {},
        {"a": 1},
        {"a": 2},
        {"a": "1"},
        {"b": 1},
        {"a": [1, 2]},
        {"a": [2, 1]},
        {"a": {}},
    ]
    assert len({config_hash(config) for config in configs}) == len(configs)


def test_the_hash_is_the_one_anybody_can_compute() -> None:
    """printf '{"a":1,"lr":0.1}' | sha256sum"""
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


def test_nan_as_other_peoples_json_writes_it(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.metrics.write_text(
        '{"step": 1, "split": "train", "loss": NaN}\n{"step": 2, "split": "train", "loss": -Infinity}\n'
    )
    assert math.isnan(run.curve("loss")[1]) and run.curve("loss")[2] == -math.inf


def test_numbers_of_numpy_are_taken(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    run = new_run(tmp_path)
    run.log_metrics(step=numpy.int64(3), split="train", loss=numpy.float32(0.5), grad=numpy.array([2.0]).sum())
    assert run.curve("loss") == {3: 0.5} and run.curve("grad") == {3: 2.0}


@pytest.mark.parametrize(
    "row",
    [
        '{"split": "train", "loss": 1}',
        '{"step": 1, "split": "train", "loss": null}',
        '{"step": 1, "split": "train", "loss": "low"}',
        '{"step": 1, "split": "train", "loss": {"mean": 1}}',
        '{"step": "first", "split": "train", "loss": 1}',
        '{"step": 1, "split": "train", "loss": 1' + "0" * 400 + "}",
    ],
    ids=["no step", "null", "word", "object", "step is a word", "huge"],
)
def test_a_row_that_is_no_point_is_named(tmp_path: Path, row: str) -> None:
    run = Run(tmp_path)
    run.metrics.write_text('{"step": 0, "split": "train", "loss": 1}\n' + row + "\n")
    with pytest.raises(RgtError) as caught:
        run.curve("loss")
    assert caught.value.message.startswith(f"{run.metrics} has a row whose step or loss is not a number: ")
    assert len(caught.value.message) < 1000


@pytest.mark.parametrize(
    "act",
    [
        lambda run: run.log_metrics(step=-1, split="train", loss=1.0),
        lambda run: run.log_metrics(step=1, split="dev", loss=1.0),
        lambda run: run.log_metrics(step=1, split="train"),
        lambda run: run.log_event("exploded"),
        lambda run: run.write_results({"run_id": run.id, "metrics": []}),
    ],
    ids=["negative step", "unknown split", "no metric", "unknown event", "no results"],
)
def test_what_does_not_fit_is_not_written(tmp_path: Path, act: Callable[[Run], None]) -> None:
    run = Run(tmp_path)
    with pytest.raises(RgtError, match="does not fit"):
        act(run)
    assert list(tmp_path.iterdir()) == []


def test_results_are_written(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    metric = {"name": "accuracy", "value": 0.9, "split": "test", "n": 1000, "direction": "up"}
    run.write_results({"run_id": run.id, "metrics": [metric]})
    assert files.read_json(run.results, "results")["metrics"] == [metric]


def test_a_sealed_run_is_refused(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    run.refuse_if_sealed()
    files.write_json(run.seal, {"run_id": run.id, "sealed": "2026-11-16T08:40:00+00:00", "files": {}}, "seal")
    with pytest.raises(RgtError) as caught:
        run.refuse_if_sealed()
    assert caught.value.message == f"{run.path} is sealed; a sealed run never changes, start a new one"
    assert caught.value.exit_code == BAD_INPUT


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


def test_find_of_a_run_is_that_run(tmp_path: Path) -> None:
    run = place(tmp_path / "runs" / "x")
    place(run.path / "nested" / "y")
    assert find(run.path) == [run] and find(tmp_path) == [run]


@pytest.mark.parametrize("name", [".git", ".hidden", "node_modules"])
def test_find_leaves_out(tmp_path: Path, name: str) -> None:
    place(tmp_path / name / "x")
    assert find(tmp_path) == []


def test_find_ignores_files_left_by_a_crash(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / ".run.json.k3j2.tmp").write_text("{}")
    (tmp_path / "y" / "run.json").mkdir(parents=True)
    assert find(tmp_path) == []


def test_find_does_not_follow_a_loop(tmp_path: Path) -> None:
    run = place(tmp_path / "runs" / "x")
    (tmp_path / "runs" / "again").symlink_to(tmp_path)
    (tmp_path / "runs" / "self").symlink_to("self")
    (tmp_path / "runs" / "broken").symlink_to("nowhere")
    assert find(tmp_path) == [run]


def test_find_below_a_link_and_below_nothing(tmp_path: Path) -> None:
    run = place(tmp_path / "disk" / "x")
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    assert [found.id for found in find(tmp_path / "runs")] == [run.id]
    assert find(tmp_path / "nothing") == []


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user can reach; pytest's own are closed to everybody else."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def as_nobody(work: Callable[[], None]) -> None:
    """Run `work` in a child without root's right to read everything."""
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            if os.geteuid() == 0:
                os.setuid(65534)
            work()
            code = 0
        os._exit(code)
    _, status = os.waitpid(child, 0)
    assert not os.WIFSIGNALED(status), signal.strsignal(os.WTERMSIG(status))
    assert os.WEXITSTATUS(status) == 0


@pytest.mark.parametrize("mode", [0o000, 0o444, 0o111])
def test_an_unreadable_folder_hides_its_runs_and_no_others(open_folder: Path, mode: int) -> None:
    """0444 can be listed but not entered: there even the question for run.json is an error."""
    run = place(open_folder / "runs" / "x")
    place(open_folder / "secret" / "deeper" / "y")
    (open_folder / "secret").chmod(mode)

    def look() -> None:
        assert find(open_folder) == [run]
        assert find(open_folder / "secret") == []

    try:
        as_nobody(look)
    finally:
        (open_folder / "secret").chmod(0o755)


def test_command_names_the_new_directory(tmp_path: Path) -> None:
    run = rundir.create(tmp_path, "x", command=["train", "--run={run}"], config={})
    assert run.record()["command"] == ["train", f"--run={run.path}"]


def test_edited_config_is_refused(tmp_path: Path) -> None:
    run = rundir.create(tmp_path, "x", command=["train"], config={"lr": 1})
    run.run_json.write_text(run.run_json.read_text().replace('"lr": 1', '"lr": 2'))
    with pytest.raises(RgtError, match=r"run\.json was edited: its config has another sha256"):
        run.record()


def test_curve_of_a_run_that_has_not_logged_yet(tmp_path: Path) -> None:
    assert rundir.create(tmp_path, "x", command=["train"], config={}).curve("loss") == {}
