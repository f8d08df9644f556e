"""Is this checkpoint real: every planted defect is found and named, and no healthy file of any format is suspected."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import verify_local
from bench import verify_local as bench_verify_local
from rgt import files, schema, units
from rgt.checkpoint import survey, verify
from rgt.checkpoint.examine import Options, examine
from rgt.checkpoint.formats import pickles
from rgt.checkpoint.formats.container import Window
from rgt.report import CODES

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import save_file

from . import corruption, zoo
from .corruption import DEFECTS, Defect, sentinel

SCRIPT = Path(verify_local.__file__)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(verify_local.main, [str(argument) for argument in arguments])


def report(*arguments: object) -> dict[str, Any]:
    done = run(*arguments, "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == {"sound": 0, "damaged": 1, "unknown": 1, "strangers": 4}[found["verdict"]], done.output
    assert found["ok"] == (found["verdict"] == "sound")
    for name in ("report", "verify_report"):
        assert schema.problems(found, name) == []
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_planted_defect_is_found_and_named(tmp_path: Path, defect: Defect) -> None:
    target = defect.make(tmp_path)
    arguments = [argument.format(folder=tmp_path) for argument in defect.arguments]
    found = report(target, *arguments)
    named = "strangers" if defect.code == "refused-global" else "sound"
    assert found["verdict"] == ("damaged" if defect.severity == "error" else named)
    matches = [
        finding
        for finding in found["findings"]
        if (finding["code"], finding["severity"]) == (defect.code, defect.severity)
    ]
    assert matches, found["findings"]
    text = " ".join(str(finding) for finding in matches)
    assert [word for word in defect.named if word not in text] == []
    if defect.severity == "error":
        assert found["proof"] == []
    assert not sentinel(tmp_path).exists()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [*zoo.HEALTHY, zoo.hub_cache], ids=lambda make: make.__name__)
def test_healthy_checkpoint_raises_no_alarm(tmp_path: Path, make: Any) -> None:
    found = report(make(tmp_path))
    assert [finding for finding in found["findings"] if finding["severity"] != "info"] == []
    assert found["ok"] and found["artifacts"]


# -- what a person sees


def test_the_report_of_a_good_checkpoint(tmp_path: Path) -> None:
    path = small(tmp_path)
    lines = run(path).stdout.splitlines()
    assert lines[0] == f"ok    {path}  torch  {units.show_size(path.stat().st_size)}  2 tensors  72 parameters"
    ordinary = "1 tensor is so where that is ordinary (biases, buffers, masks, counters, optimizer state), or allowed"
    assert lines[1] == f"info  zero: {path}: {ordinary}"
    assert lines[2] == "      seen: bias"
    assert lines[3] == (
        "checklist: loads: yes · no NaN or Inf: yes · not all zero: yes · expected dimensions: not asked (--expect)"
        " · |x| <= 1e+06: yes · complete: yes · as pulled: not asked (no PULL_MANIFEST.json)"
    )
    assert lines[4].startswith("sound: 1 artifact, 0 errors, 0 warnings, ")
    assert len(lines) == 5


def test_the_report_of_a_bad_checkpoint(tmp_path: Path) -> None:
    state = {"weight": torch.randn(8, 8)}
    state["weight"][3, 5] = float("nan")
    torch.save(state, tmp_path / "bad.pt")
    done = run(tmp_path / "bad.pt")
    lines = done.stdout.splitlines()
    assert done.exit_code == 1
    assert lines[0].startswith(f"FAIL  {tmp_path / 'bad.pt'}  torch")
    assert lines[1] == f"error nan: {tmp_path / 'bad.pt'} weight: 1 of 64 values is NaN"
    assert lines[2].startswith("      seen: first at [3, 5], byte ")
    assert "no NaN or Inf: NO · not all zero: yes" in lines[3]
    assert lines[4].startswith("NOT VERIFIED: 1 of 1 artifact failed, 1 errors, 0 warnings")


def test_the_hand_over_checklist_is_one_command(tmp_path: Path) -> None:
    """Loads, no NaN, not all zeros, expected dimensions, nothing above 1e6; no answer is not a yes."""
    good, new = small(tmp_path, "good.pt"), small(tmp_path, "new.pt")
    asked = ["loads", "no NaN or Inf", "not all zero", "expected dimensions", "|x| <= 1e+06", "complete"]
    assert report(new, "--expect", good)["checklist"] == {
        **dict.fromkeys(asked, "yes"),
        "as pulled": "not asked (no PULL_MANIFEST.json)",
    }
    cut = corruption.torch_cut_in_half(tmp_path)
    found = report(cut, "--expect", good)
    asked = ["no NaN or Inf", "not all zero", "expected dimensions", "|x| <= 1e+06", "complete"]
    values = dict.fromkeys(asked, "not checked (unreadable)")
    assert found["checklist"] | {"loads": "NO", **values} == found["checklist"]
    assert "holds no weights" not in str(found["findings"])  # that it does not load is the news


def test_a_failure_names_the_command_that_finds_a_whole_one(tmp_path: Path) -> None:
    small(tmp_path, "step_1.pt")
    corruption.torch_cut_in_half(tmp_path)
    done = run(tmp_path)
    assert done.stdout.splitlines()[-1].endswith(f"checkpoints latest {tmp_path}")


def test_every_code_belongs_to_one_point_of_the_checklist() -> None:
    codes = [code for point in verify_local.CHECKLIST.values() for code in point]
    assert len(codes) == len(set(codes))
    assert set(codes) <= set(CODES)
    used = {defect.code for defect in corruption.DEFECTS}
    assert used <= set(codes)


def test_a_flood_of_findings_is_counted(tmp_path: Path) -> None:
    torch.save({f"layer{number:03d}": torch.zeros(8, 8) for number in range(300)}, tmp_path / "z.pt")
    found = [f for f in report(tmp_path / "z.pt")["findings"] if f["severity"] == "error"]
    assert len(found) == 21
    assert found[-1]["message"] == "280 more of the same"


def test_many_artifacts_are_bounded(tmp_path: Path) -> None:
    for number in range(205):
        np.save(tmp_path / f"{number:03d}.npy", np.ones(3))
    lines = run(tmp_path).stdout.splitlines()
    assert "... and 5 more; --json lists them all" in lines
    assert len(lines) < 310


def small(folder: Path, name: str = "small.pt") -> Path:
    torch.manual_seed(0)
    torch.save({"weight": torch.randn(8, 8), "bias": torch.zeros(8)}, folder / name)
    return folder / name


# -- the proof


def test_a_verified_pull_leaves_a_proof(tmp_path: Path) -> None:
    zoo.run_directory(tmp_path)
    (tmp_path / "train.log").write_text("step 1\n")
    corruption.manifest(tmp_path)
    found = report(tmp_path)
    assert found["ok"] and found["checklist"]["as pulled"] == "yes"
    assert found["proof"] == [str(tmp_path / "PULL_VERIFIED.json")]
    proof = files.read_json(tmp_path / "PULL_VERIFIED.json", "pull_verified")
    listed = json.loads((tmp_path / "PULL_MANIFEST.json").read_text())["files"]
    assert {row["path"]: row["sha256"] for row in proof["artifacts"]} == {row["path"]: row["sha256"] for row in listed}
    assert proof["manifest_sha256"] == hashlib.sha256((tmp_path / "PULL_MANIFEST.json").read_bytes()).hexdigest()
    checkpoint = next(row for row in proof["artifacts"] if row["path"].endswith("step_000040.pt"))
    assert checkpoint["format"] == "torch" and checkpoint["tensors"] > 40
    assert checkpoint["checks"] == ["container", "digest", "finite", "holes", "nonzero", "range"]
    log = next(row for row in proof["artifacts"] if row["path"] == "train.log")
    assert (log["format"], log["checks"]) == ("file", ["digest"])
    assert set(proof["versions"]) == {"python", "numpy"}


def test_a_proof_says_what_nobody_opened(tmp_path: Path) -> None:
    small(tmp_path)
    (tmp_path / "weights.xyz").write_bytes(os.urandom(2 << 20))
    (tmp_path / "notes.bin").write_bytes(b"few")
    corruption.manifest(tmp_path)
    found = report(tmp_path)
    assert [Path(row["path"]).name for row in found["unchecked"]] == ["weights.xyz", "notes.bin"]
    assert ("unknown", "warn") in [(finding["code"], finding["severity"]) for finding in found["findings"]]
    proof = files.read_json(tmp_path / "PULL_VERIFIED.json", "pull_verified")
    assert (proof["verdict"], proof["unchecked"][0]) == ("sound", {"path": "weights.xyz", "bytes": 2 << 20})
    (tmp_path / "small.pt").unlink()
    corruption.manifest(tmp_path)
    found = report(tmp_path)
    assert found["verdict"] == "unknown" and "2 files of unknown formats" in found["findings"][0]["message"]


def test_the_proof_and_the_report_tell_of_strangers_alike(tmp_path: Path) -> None:
    corruption.raw_pickle(tmp_path, b"\x80\x02}X\x01\x00\x00\x00ccmyproject\nConfig\n)\x81s.")
    corruption.manifest(tmp_path)
    assert report(tmp_path)["strangers"] == ["myproject.Config"]
    proof = files.read_json(tmp_path / "PULL_VERIFIED.json", "pull_verified")
    assert (proof["verdict"], proof["strangers"]) == ("strangers", ["myproject.Config"])
    assert "sound, from strangers: 1 artifact" in run(tmp_path).stdout


@pytest.mark.parametrize("how", ["folder", "file", "count"])
def test_a_failed_verification_takes_the_proof_back(tmp_path: Path, how: str) -> None:
    path = small(tmp_path)
    corruption.manifest(tmp_path)
    run(tmp_path)
    proof = (tmp_path / "PULL_VERIFIED.json").read_bytes()
    if how != "count":
        corruption.truncate(path, 0.5)
    found = report(path if how == "file" else tmp_path, *(["--expect-count", "2"] if how == "count" else []))
    assert not found["ok"] and not (tmp_path / "PULL_VERIFIED.json").exists()
    assert (tmp_path / "PULL_VERIFIED.json.stale").read_bytes() == proof
    assert "the earlier proof no longer holds; it is now PULL_VERIFIED.json.stale" in str(found["findings"])
    small(tmp_path)
    assert report(tmp_path)["proof"]
    assert not (tmp_path / "PULL_VERIFIED.json.stale").exists()


def test_a_warning_does_not_stop_the_proof_but_is_counted_in_it(tmp_path: Path) -> None:
    corruption.weight_constant(tmp_path)
    corruption.manifest(tmp_path)
    done = run(tmp_path)
    assert done.exit_code == 0
    assert "sound: 1 artifact, 0 errors, 1 warnings" in done.stdout
    assert json.loads((tmp_path / "PULL_VERIFIED.json").read_text())["warnings"] == 1


def test_one_file_of_a_pull_is_no_proof_of_the_pull(tmp_path: Path) -> None:
    small(tmp_path, "a.pt")
    small(tmp_path, "b.pt")
    assert report(tmp_path)["proof"] == []  # nor is what was never pulled
    corruption.manifest(tmp_path)
    assert report(tmp_path, "--no-digest")["proof"] == []
    found = report(tmp_path / "a.pt")
    assert found["ok"] and found["proof"] == [] and found["checklist"]["as pulled"] == "yes"
    assert "holds 1 of 2 files of PULL_MANIFEST.json, so it is no proof of the pull" in str(found["findings"])
    assert not (tmp_path / "PULL_VERIFIED.json").exists()


def test_a_proof_that_cannot_be_put_aside_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small(tmp_path)
    corruption.manifest(tmp_path)
    run(tmp_path)
    corruption.truncate(path, 0.5)
    monkeypatch.setattr(os, "replace", lambda *names: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    assert "no longer holds and cannot be put aside: Permission denied" in str(report(tmp_path)["findings"])


def test_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(tmp_path)
    corruption.manifest(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    done = run(tmp_path)
    assert done.exit_code == 3
    assert done.stderr == f"error: cannot write {tmp_path / 'PULL_VERIFIED.json'}: No space left on device\n"


# -- expectations


def test_a_spec_can_allow_what_is_meant(tmp_path: Path) -> None:
    path = corruption.weight_all_zero(tmp_path)
    (tmp_path / "spec.yaml").write_text('allow: {zero: ["layers.*"]}')
    assert run(path).exit_code == 1
    assert run(path, "--expect", tmp_path / "spec.yaml").exit_code == 0


ONE_MODEL = [zoo.hf_sharded, zoo.distributed, zoo.torch_legacy, zoo.lightning, zoo.torch_zipped_again]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", ONE_MODEL)
def test_one_model_in_two_formats_compares_equal(tmp_path: Path, make: Any) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "good").mkdir()
    state = zoo.model_and_optimizer()[0].state_dict() if make not in (zoo.hf_sharded,) else zoo.weights()
    torch.save({"model": state}, tmp_path / "good" / "good.pt")
    found = report(make(tmp_path / "other"), "--expect", tmp_path / "good" / "good.pt")
    assert [finding for finding in found["findings"] if finding["severity"] != "info"] == []
    assert found["checklist"]["expected dimensions"] == "yes"


def test_nothing_to_compare(tmp_path: Path) -> None:
    torch.save({"last_epoch": 3}, tmp_path / "scheduler.pt")
    found = report(tmp_path / "scheduler.pt", "--expect", small(tmp_path))
    assert "holds no weights to compare with --expect" in str(found["findings"])


# -- bad input


BAD_SPECS = [
    (None, "spec.yaml does not exist; --expect takes a YAML or JSON spec, or a good checkpoint"),
    ("shapes: {}", "spec.yaml does not fit the expect schema: Additional properties are not allowed ('shapes'"),
    ("[1", "spec.yaml is not YAML: while parsing a flow sequence"),
    ("tensors: {w: 3}", "tensors/w: 3 is not valid under any of the given schemas"),
]


@pytest.mark.parametrize(("spec", "message"), BAD_SPECS)
def test_a_bad_spec_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str | None, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    small(tmp_path)
    if spec is not None:
        (tmp_path / "spec.yaml").write_text(spec)
    done = run("small.pt", "--expect", "spec.yaml")
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr and done.stderr.count("\n") == 1


def test_a_reference_that_cannot_be_read(tmp_path: Path) -> None:
    done = run(small(tmp_path), "--expect", corruption.torch_cut_in_half(tmp_path))
    message = "is neither a spec for --expect nor a checkpoint that can be read"
    assert (done.exit_code, done.stderr) == (2, f"error: {tmp_path / 'ckpt.pt'} {message}\n")


def test_a_path_that_does_not_exist() -> None:
    done = run("gone.pt")
    message = "gone.pt does not exist; name a checkpoint, a folder of them or a run directory"
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"error: {message}\n")


def test_without_numpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    done = run(small(tmp_path))
    assert done.exit_code == 3
    assert done.stderr == ("error: values cannot be checked without numpy; pip install numpy\n")


@pytest.mark.parametrize("name", ["pipe.pt", "results.json", "checkpoints_index.json", ".metadata"])
def test_a_fifo_is_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    (tmp_path / "__0_0.distcp").touch()
    wanted = "the file has no bytes" if name == ".metadata" else "not a regular file"
    assert wanted in [f["message"] for f in report(tmp_path)["findings"] if f["path"].endswith(name)]


@pytest.mark.parametrize("make", [corruption.run_index_climbs_out, corruption.deepspeed_latest_climbs_out, None])
def test_a_listed_name_that_no_disk_can_hold_is_missing(tmp_path: Path, make: Any) -> None:
    small(tmp_path)
    folder = make(tmp_path) if make else corruption.manifest(tmp_path)
    lists = {"checkpoints_index.json": "../../x.pt", "latest": "../../etc", "PULL_MANIFEST.json": "small.pt"}
    for name, old in lists.items():
        if (folder / name).exists():
            (folder / name).write_text((folder / name).read_text().replace(old, "x" * 300))
    missing = [f["message"] for f in report(folder)["findings"] if f["code"] == "missing"]
    assert any("not there" in message for message in missing)


def test_a_file_that_grows_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small(tmp_path)
    real = Window.read_into

    def slow(window: Window, at: int, buffer: memoryview) -> memoryview:
        with path.open("ab") as file:
            file.write(b"more")
        return real(window, at, buffer)

    monkeypatch.setattr(Window, "read_into", slow)
    assert "was written to while it was read" in str(report(path)["findings"])


def test_a_pickle_of_endless_opcodes_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "MAX_OPCODES", 1000)
    found = report(corruption.raw_pickle(tmp_path, b"\x80\x02" + b"N0" * 1000 + b"N."))["findings"]
    told = ("unknown", "the pickle has more than 1000 opcodes and was not read to its end")
    assert told in [(f["code"], f["message"]) for f in found]


def test_file_names_that_are_not_text(tmp_path: Path) -> None:
    path = small(tmp_path)
    odd = os.path.join(os.fsencode(tmp_path), b"caf\xe9.pt")
    os.rename(path, odd)
    corruption.manifest(tmp_path)
    done = subprocess.run([sys.executable, SCRIPT, tmp_path, "--json"], capture_output=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["artifacts"][0]["path"].endswith("caf\udce9.pt")
    assert (tmp_path / "PULL_VERIFIED.json").exists()


def test_names_can_be_allowed_and_nothing_of_them_runs(tmp_path: Path) -> None:
    path = corruption.raw_pickle(tmp_path, b"\x80\x02}X\x01\x00\x00\x00ccmyproject\nConfig\n)\x81s.")
    spec = tmp_path / "spec.yaml"
    spec.write_text('allow: {refused-global: ["myproject.*", "posix.*"]}')
    assert "loading it imports myproject, code that is not known here" in str(report(path))
    found = report(path, "--expect", spec)
    assert [f["severity"] for f in found["findings"] if f["code"] == "refused-global"] == ["info"]
    done = run(corruption.pickle_calls_system(tmp_path), "--expect", spec)
    assert done.exit_code == 1 and "error hostile" in done.stdout
    assert not sentinel(tmp_path).exists()


# -- bounds


@pytest.mark.parametrize(
    ("size", "most"),
    [(256 << 20, 120e6), pytest.param(8 << 30, 200e6, marks=pytest.mark.soak)],
    ids=["256 MiB", "8 GiB"],
)
def test_memory_does_not_grow_with_the_file(tmp_path: Path, size: int, most: float) -> None:
    path = bench_verify_local.make_safetensors(tmp_path / "m.safetensors", size)
    peak, code = bench_verify_local.anonymous_peak([sys.executable, str(SCRIPT), str(path)])
    assert code == 0
    assert peak < most


@pytest.mark.parametrize("make", [zoo.torch_zip, zoo.safetensors, zoo.torch_legacy], ids=lambda make: make.__name__)
def test_every_prefix_of_a_file_fails_with_a_name(tmp_path: Path, make: Any) -> None:
    """Wherever a copy stops, the file is not taken for whole."""
    path = make(tmp_path)
    data = path.read_bytes()
    for keep in range(0, len(data), max(1, len(data) // 60)):
        path.write_bytes(data[:keep])
        artifact = examine(path)
        assert not artifact.real, keep


# -- what PATH may be


def paths(found: dict[str, Any]) -> list[str]:
    return [Path(artifact["path"]).name for artifact in found["artifacts"]]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata"])
def test_one_file_of_a_distributed_checkpoint_stands_for_all(tmp_path: Path, name: str) -> None:
    found = report(zoo.distributed(tmp_path) / name)
    assert found["ok"] and paths(found) == ["__0_0.distcp"]
    assert found["artifacts"][0]["tensors"] > 40


def test_one_checkpoint_of_a_run_is_held_against_the_index(tmp_path: Path) -> None:
    run_folder = zoo.run_directory(tmp_path)
    path = run_folder / "checkpoints" / "step_000040.pt"
    assert report(path)["ok"]
    corruption.edit_json(run_folder / "checkpoints_index.json", lambda index: index["checkpoints"][1].update(step=41))
    assert "is of step 40, checkpoints_index.json says 41" in str(report(path)["findings"])


def test_a_run_above_the_working_directory_is_inside_of_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_folder = zoo.run_directory(tmp_path / "elsewhere")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert report(Path("..") / run_folder.relative_to(tmp_path))["ok"]
    corruption.edit_json(
        run_folder / "checkpoints_index.json", lambda index: index["checkpoints"][1].update(path="../x.pt")
    )
    assert "names '../x.pt', outside of the run" in str(report(run_folder)["findings"])


def test_a_folder_is_searched_by_content(tmp_path: Path) -> None:
    """A checkpoint under any name is found; code, logs and hidden environments are left alone."""
    small(tmp_path, "weights.backup")
    save_file({"w": torch.randn(3, 3)}, tmp_path / "blob")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "broken.pt").write_bytes(b"x")
    (tmp_path / "train.py").write_text("import torch\n")
    (tmp_path / "data.pkl").write_bytes(b"\x80\x02}.")
    (tmp_path / ".step.pt.tmp").write_bytes(b"half")
    found = report(tmp_path)
    assert found["ok"] and paths(found) == ["blob", "data.pkl", "weights.backup"]
    assert "left by a save that was killed; harmless" in [finding["message"] for finding in found["findings"]]


def test_several_paths_each_get_their_proof(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        small(tmp_path / name)
        corruption.manifest(tmp_path / name)
    found = report(tmp_path / "a", tmp_path / "b", tmp_path / "a")
    assert found["proof"] == [str(tmp_path / "a" / "PULL_VERIFIED.json"), str(tmp_path / "b" / "PULL_VERIFIED.json")]


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pulled" / "run").mkdir(parents=True)
    small(tmp_path / "pulled" / "run")
    corruption.manifest(tmp_path / "pulled")
    monkeypatch.chdir(tmp_path / "pulled")
    for path in (".", "run", "run/small.pt"):
        found = report(path)
        assert found["ok"] and found["checklist"]["as pulled"] == "yes", path
        assert len(found["proof"]) == 1
        Path("PULL_VERIFIED.json").unlink()


@pytest.mark.parametrize("name", ["x.safetensors", "results.json"])
def test_an_interrupt_ends_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Ctrl-C in the middle of a large file does not wait for its end, nor for that of a file without tensors."""
    small(tmp_path)
    header = json.dumps({"w": {"dtype": "U8", "shape": [64 << 30], "data_offsets": [0, 64 << 30]}}).encode()
    with (tmp_path / name).open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate((64 << 30) + 8 + len(header))  # sparse: minutes of reading, no disk
    read = 0
    real = Window.read_into

    def fill(window: Window, at: int, buffer: memoryview) -> memoryview:
        nonlocal read
        read += len(buffer)
        return real(window, at, buffer)

    monkeypatch.setattr(Window, "read_into", fill)
    with pytest.raises(KeyboardInterrupt):
        verify.verify(survey.survey(tmp_path), Options(), lambda count: os.kill(os.getpid(), signal.SIGINT), jobs=2)
    assert read < 64 << 30


def test_a_folder_of_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "MAX_FILES", 3)
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text("x")
    done = run(tmp_path)
    message = f"{tmp_path} holds more than 3 files; name the folder of the checkpoints"
    assert (done.exit_code, done.stderr) == (2, f"error: {message}\n")
