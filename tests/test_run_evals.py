"""The evals prove themselves: a broken case turns `check` red, trials are graded and reported, routes stay short."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rgt.machine import processes
from trials import agents, case, proofs, routing, summary, triggers

import pytest

ROOT = Path(__file__).resolve().parent.parent
CLI = [sys.executable, str(ROOT / "evals" / "run_evals.py")]
NAMES = case.names()
HOPS, TOKENS = 1, 12_000


def cli(*words: str | Path, ok: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*CLI, *map(str, words)], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode in ok, done.stdout + done.stderr
    return done


def test_every_case_has_its_parts_and_every_purpose_its_cases() -> None:
    cases = {name: case.load(name) for name in NAMES}
    assert [problem for loaded in cases.values() for problem in proofs.shape(loaded)] == []
    assert len(NAMES) >= 25 and sum(loaded.case.kind != "use" for loaded in cases.values()) >= 5
    assert sum(bool(loaded.case.held_out) for loaded in cases.values()) >= len(NAMES) // 3


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder of cases with one in it, to be broken."""
    shutil.copytree(case.CASES / "platform_runpod_night", tmp_path / "cases" / "one")
    return tmp_path / "cases"


def edit(folder: Path, old: str, new: str) -> None:
    path = folder / "one" / "case.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


BREAKS = [
    ('"spot_pods_exist": False,', '"spot_pods_exist": True,', "the reference fails"),
    ('    answer = box.read("answer.json")', "    return []", "the untouched world passes"),
    ("CASE = Case(", "CASE = Case(reference=naive,", "the reference fails"),
    ("CASE = Case(", "CASE = Case(naive=reference,", "the naive solution passes"),
    ('"pod.txt", "', '"pod.txt", __import__("uuid").uuid4().hex + "', "two worlds differ"),
    ("minutes=4", "minutes=0", "the budget must be positive"),
    ('("profiles/runpod.md",)', '("profiles/nowhere.md",)', "which is not there"),
    ("CASE = Case(", "OTHER = Case(", "has no CASE"),
]


@pytest.mark.parametrize(("old", "new", "said"), BREAKS)
def test_a_broken_case_turns_check_red(copy: Path, old: str, new: str, said: str) -> None:
    edit(copy, old, new)
    assert said in cli("check", "--folder", copy, ok=(1,)).stdout


def test_a_prompt_that_names_the_skill_is_a_hint_and_an_unknown_case_is_named(copy: Path) -> None:
    (copy / "one" / "prompt.md").write_text("use verify_local.py for this")
    assert "the prompt gives a hint: verify_local.py" in cli("check", "--folder", copy, ok=(1,)).stdout
    error = cli("check", "--folder", copy, "--cases", "nothing", ok=(2,)).stderr
    assert "no case is called nothing; there are: one" in error


def test_an_answer_of_a_wrong_shape_fails_and_does_not_crash(tmp_path: Path) -> None:
    loaded = case.load("platform_runpod_night")
    box = case.build(loaded, tmp_path / "box")
    for text in ("", "{", "[]", '"x"', '{"spot_pods_exist": {"a": [1]}}', "null"):
        box.write("answer.json", text)
        assert case.judge(loaded, box)


# An agent without a model: it solves the case only where a skill is.
STAND_IN = """
import json, pathlib, sys
assert "runpod" in sys.stdin.read()
if list(pathlib.Path(".").rglob("SKILL.md")):
    right = json.loads(pathlib.Path(sys.argv[1]).read_text())
    pathlib.Path("answer.json").write_text(json.dumps(right))
"""


@pytest.fixture
def trials(copy: Path, tmp_path: Path) -> Path:
    truth = {**sys.modules[case.load("one", copy).case.verify.__module__].TRUTH}
    (tmp_path / "truth.json").write_text(json.dumps(truth))
    (tmp_path / "agent.py").write_text(STAND_IN)
    agent = f"{sys.executable} {tmp_path / 'agent.py'} {tmp_path / 'truth.json'}"
    cli("run", "--folder", copy, "--agent", agent, "--trials", "2", "--out", tmp_path / "out")
    return tmp_path / "out"


def test_trials_report_what_the_skill_changed(trials: Path, copy: Path) -> None:
    page = cli("report", trials).stdout
    data = json.loads((trials / "benchmark.json").read_text())
    found = data["run_summary"]
    rates = [found[arm]["pass_rate"]["mean"] for arm in ("with_skill", "without_skill")]
    assert (rates, found["delta"]["pass_rate"], len(data["runs"])) == ([1.0, 0.0], "+1.00", 4)
    assert found["paired_pass_rate"] == {"cases": 1, "difference": 1.0, "ci95": [1.0, 1.0]}
    assert "| one | none | 0/2 | 0/2 |" in page and "answer.json is not there" in page
    # the bundle without the answers, and only where it should be
    installed = trials / "one/skill-1/desk/.skills/remote-gpu-trainer"
    assert [(installed / name).exists() for name in ("SKILL.md", "evals", "tests")] == [True, False, False]
    assert not list((trials / "one/none-1").rglob("SKILL.md"))
    # a trial that is there is left alone
    before = (trials / "one/none-1/trial.json").read_bytes()
    cli("run", "--folder", copy, "--agent", "false", "--out", trials)
    assert (trials / "one/none-1/trial.json").read_bytes() == before


def test_a_trial_by_hand_is_prepared_and_graded(copy: Path, tmp_path: Path) -> None:
    folders = ("--folder", copy, "--out", tmp_path / "out")
    words = ("one", "--arm", "none", *folders)
    made = json.loads(cli("prepare", *words).stdout)
    assert "runpod" in Path(made["prompt"]).read_text()
    assert "answer.json is not there" in cli("grade", *words, ok=(1,)).stdout
    truth = sys.modules[case.load("one", copy).case.verify.__module__].TRUTH
    (Path(made["work"]) / "answer.json").write_text(json.dumps(truth))
    cli("grade", *words, "--commands", "8")
    assert "999 s of 240 s" in cli("grade", *words, "--seconds", "999", ok=(1,)).stdout
    assert "is there already" in cli("prepare", *words, ok=(2,)).stderr
    assert "make it with prepare" in cli("grade", "one", *folders, ok=(2,)).stderr


def test_an_agent_out_of_time_is_ended_and_fails(copy: Path, tmp_path: Path) -> None:
    edit(copy, "minutes=4", "minutes=0.02")
    cli("run", "--folder", copy, "--agent", "sleep 600", "--arms", "none", "--out", tmp_path / "out")
    record = json.loads((tmp_path / "out/one/none-1/trial.json").read_text())
    assert (record["ended"], record["passed"]) == ("out of time", False)


def test_a_trial_that_never_began_is_run_by_the_next_call(copy: Path, tmp_path: Path) -> None:
    words = ("run", "--folder", copy, "--arms", "none", "--out", tmp_path / "out", "--agent")
    assert "no-such-agent" in cli(*words, tmp_path / "no-such-agent", ok=(2,)).stderr
    cli(*words, "false")
    assert json.loads((tmp_path / "out/one/none-1/trial.json").read_text())["exit_code"] == 1


def test_a_trial_without_a_verdict_is_left_alone_and_said(copy: Path, tmp_path: Path) -> None:
    words = ("--folder", copy, "--out", tmp_path / "out")
    cli("prepare", "one", "--arm", "none", *words)
    assert "has no verdict" in cli("run", "--arms", "none", "--agent", "false", *words).stderr
    assert not (tmp_path / "out/one/none-1/trial.json").exists()


def test_what_an_agent_leaves_behind_in_its_group_ends_with_it(copy: Path, tmp_path: Path) -> None:
    agent = "sh -c 'sleep 600 >/dev/null 2>&1 & echo $! > pid'"
    cli("run", "--folder", copy, "--agent", agent, "--arms", "none", "--out", tmp_path / "out")
    pid = int((tmp_path / "out/one/none-1/desk/pid").read_text())
    deadline = time.monotonic() + 20
    while processes.alive(processes.identify(pid)):
        assert time.monotonic() < deadline, "it lives"
        time.sleep(0.01)


def test_wrong_words_get_a_sentence(tmp_path: Path) -> None:
    for words, said in (
        (("run", "--agent", "", "--out", tmp_path), "--agent is empty"),
        (("run", "--agent", "x 'y", "--out", tmp_path), "No closing quotation"),
        (("run", "--agent", "x", "--arms", "both", "--out", tmp_path), "it is none, skill or none,skill"),
        (("report", tmp_path), "has no trial.json"),
        *(((verb, "--folder", tmp_path), f"{tmp_path} holds no case") for verb in ("check", "routing", "export")),
    ):
        error = cli(*words, ok=(2,)).stderr
        assert said in error and "please report" not in error
    done = subprocess.run([sys.executable, ROOT / "evals/bench/run.py", "gate"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no bench is called gate; there are: start_up, guard, gpu_gate, ")


def transcript(path: Path, *rows: Any) -> Path:
    path.write_text("noise\n" + "".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_transcripts_are_counted(tmp_path: Path) -> None:
    used = {"input_tokens": 10, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 7, "output_tokens": 3}
    said = {"content": [{"type": "text"}, {"type": "tool_use"}, {"type": "tool_use"}]}
    rows = {"type": "assistant", "message": said}, {"type": "result", "usage": used}
    assert agents.claude(transcript(tmp_path / "t.jsonl", *rows)) == agents.Effort(2, 18, 7)
    items = [{"type": "item.completed", "item": {"type": kind}} for kind in ("command_execution", "agent_message")]
    usage = {"input_tokens": 100, "cached_input_tokens": 60, "output_tokens": 9}
    path = transcript(tmp_path / "t.jsonl", *items, {"type": "turn.completed", "usage": usage})
    assert agents.codex(path) == agents.Effort(1, 49, 60)
    path.write_text("")
    assert agents.claude(path) == agents.codex(path) == agents.Effort()


def record(name: str, arm: str, passed: bool) -> dict[str, Any]:
    about = {"case": name, "arm": arm, "trial": 1, "passed": passed, "outcome": passed, "problems": []}
    return {**about, "over_budget": [], "seconds": 60.0, "commands": 5, "tokens": 1000}


def test_the_interval_is_over_cases_and_notes_name_the_useless_ones() -> None:
    records = [record(f"c{n}", arm, arm == "skill" and n < 6) for n in range(8) for arm in ("none", "skill")]
    records += [record("easy", arm, True) for arm in ("none", "skill")]
    test = summary.paired(records)
    assert test is not None
    assert test["difference"] == pytest.approx(6 / 9, abs=1e-4)
    assert 0.2 < test["ci95"][0] < test["difference"] < test["ci95"][1] <= 1
    assert "easy: both arms always pass; drop it or make it harder" in summary.benchmark(records)["notes"]
    assert "c7: no arm ever passes" in summary.benchmark(records)["notes"]


def test_from_the_hub_to_the_answer_is_short() -> None:
    library = routing.Library()
    far = [way for name in NAMES if (way := library.way(case.load(name))).hops > HOPS or way.tokens > TOKENS]
    assert far == []


def test_the_description_still_covers_what_users_say() -> None:
    measured = triggers.measure()
    assert measured["should"] >= 60 and measured["should_not"] >= 40
    assert measured["recall"] >= 0.8, measured["missed"]
    assert measured["specificity"] >= 0.9, measured["false"]
    # and one that drops a topic is noticed
    assert triggers.measure("Run, verify and deliver experiments. Not for theory questions.")["recall"] < 0.3


def test_evals_json_is_up_to_date() -> None:
    cli("export", "--check")
    data = json.loads((ROOT / "evals" / "evals.json").read_text())
    assert [row["name"] for row in data["evals"]] == NAMES
