"""triage through its command line, on logs of runs that were really broken (tests/triage/) and on small made ones."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import triage
from bench import triage as bench
from doccheck import documents, signatures
from rgt.catalogue import entries as catalogue
from rgt.log.printed import bare_line, rank_of_file
from rgt.triage import causes, prefilter, scan

import pytest

from . import front_door

ROOT = Path(__file__).resolve().parents[1]
FAILURES = ROOT / "tests" / "triage" / "failures"
STEPS = "".join(f"step {n} loss {3 - n / 10:.3f}\n" for n in range(8))
FULL = "OSError: [Errno 28] No space left on device\n"
HEAD = "Traceback (most recent call last):\n"
MISSING = "ModuleNotFoundError: No module named 'einops'\n"


def run(*words: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    return front_door.call("triage.py", *words, input=stdin)


def ask(*words: str | Path, stdin: bytes = b"") -> list[dict[str, Any]]:
    done = run(*words, "--json", stdin=stdin)
    assert done.returncode == 1, done.stderr
    diagnoses: list[dict[str, Any]] = json.loads(done.stdout)["diagnoses"]
    return diagnoses


def first_id(*logs: str | Path) -> str:
    what = scan.plan()
    first = causes.diagnose(triage.scan_all(list(map(str, logs)), what), what)[0]
    return first.entry.id if first.entry else "unknown"


def say(*logs: str, exit_code: int | None = None, kernel: str = "", tmp_path: Path) -> list[str]:
    """`id:role` of what is said about these logs."""
    paths = []
    for number, text in enumerate(logs):
        path = tmp_path / f"log{number}.txt"
        path.write_text(text)
        paths.append(str(path))
    (tmp_path / "kernel").write_text(kernel)
    what = scan.plan()
    traces = triage.scan_all(paths, what, tmp_path / "kernel" if kernel else None)
    return [f"{one.entry.id if one.entry else '?'}:{one.role}" for one in causes.diagnose(traces, what, exit_code)]


# -- the labelled logs


def test_first_guess_first_three_and_false_alarms() -> None:
    score = bench.score()
    assert score.failures >= 80
    assert len(score.right) >= 0.80 * score.failures, f"listed {score.listed}, missed {score.missed}"
    assert len(score.missed) <= 0.05 * score.failures, score.missed
    assert score.healthy >= 50
    assert len(score.alarms) <= 0.02 * score.healthy, score.alarms
    assert not score.pending, "labels name entries that no document holds"


# -- what is printed


def test_the_rank_that_failed_first_beats_the_watchdog_of_the_others() -> None:
    done = run(FAILURES / "disk_full_rank1_files", "--top", "1")
    text, line = done.stdout, done.stdout.splitlines()[0]
    assert done.returncode == 1
    assert "attempt_0/1/stderr.log:64 rank 1: U6 disk full" in line or "C3" in line
    assert "seen: OSError: [Errno 28] No space left on device" in text
    assert "references/" in text and "most likely" in text.splitlines()[-1]


def test_the_named_document_has_the_named_heading() -> None:
    anchors = {document.path.as_posix(): document.anchors for document in documents.load_all(ROOT)}
    missing = [entry.read for entry in catalogue.load() if entry.anchor not in anchors[entry.path]]
    assert missing == []


def test_json_gives_evidence_cause_fix_and_where_to_read() -> None:
    first = ask(FAILURES / "disk_full_save.log")[0]
    assert (first["role"], first["id"]) == ("cause", "C3")
    assert first["path"].endswith("disk_full_save.log") and "unexpected pos" in first["evidence"]
    assert first["cause"] and first["fix"] and first["check"] and first["source"]
    assert first["read"].startswith("references/") and "#c3--" in first["read"]


def test_an_entry_says_what_the_log_gives(tmp_path: Path) -> None:
    frames = '  File "train.py", line 7, in main\n    lr = cfg["lr"]\n'
    (tmp_path / "a.log").write_text(f"{HEAD}{frames}KeyError: 'learning_rat'\n")
    cause = ask(tmp_path / "a.log")[0]["cause"]
    assert "'learning_rat'" in cause and "train.py:7 in main" in cause and 'lr = cfg["lr"]' in cause
    library = '  File "/usr/lib/python3/site-packages/peft/lora.py", line 2, in f\n    g()\n'
    (tmp_path / "b.log").write_text(f"{HEAD}{frames}{library}ValueError: The adapter is merged.\n")
    told = ask(tmp_path / "b.log")[0]
    assert told["role"] == "cause" and "peft raises ValueError" in told["cause"]
    # which package called which, when their releases do not fit
    caller = library.replace("peft/lora", "trl/sft")
    raised = "TypeError: Trainer.__init__() got an unexpected keyword argument 'tokens'"
    (tmp_path / "c.log").write_text(f"{HEAD}{caller}{library}{raised}\n")
    told = ask(tmp_path / "c.log")[0]
    assert "trl and peft" in told["cause"] and "`tokens`" in told["cause"]


def test_a_traceback_behind_a_margin_and_the_line_at_the_arrow(tmp_path: Path) -> None:
    frames = '  File "data.py", line 117, in next_batch\n    assert batch_size <= self._num_examples\nAssertionError\n'
    for margin in ("\t", "> ", "    "):
        lines = "".join(f"{margin}{line}\n" for line in f"{HEAD}{frames}".splitlines())
        (tmp_path / "a.log").write_text(lines)
        told = ask(tmp_path / "a.log")[0]
        assert told["id"] == "WH10" and "data.py:117 in next_batch" in told["cause"], margin
    notebook = "<ipython-input-3-ab> in main()\n      1 rows = read()\n----> 2 x = table[rows[0]]\n      3 done()\n\n"
    (tmp_path / "b.log").write_text(f"KeyError     Traceback (most recent call last)\n{notebook}KeyError: 'height'\n")
    assert "`x = table[rows[0]]`" in ask(tmp_path / "b.log")[0]["cause"]


def test_the_message_says_what_to_do(tmp_path: Path) -> None:
    library = '  File "/usr/lib/python3/site-packages/trl/trainer.py", line 2, in f\n    g()\n'
    message = "ValueError: The batch (8) must be divisible by the generations (5).\nPlease change `num_generations` so "
    rest = "that it\ndivides the batch.\n\nYou can sync this run to the cloud\n"
    (tmp_path / "a.log").write_text(HEAD + library + message + rest)
    told = ask(tmp_path / "a.log")[0]
    remedy = 'By its own message: "Please change `num_generations` so that it divides the batch."'
    assert told["role"] == "cause" and told["fix"].startswith(remedy)
    # while a library handles another's exception it often explains it
    (tmp_path / "b.log").write_text(
        f"{HEAD}{library}KeyError: 'x'\n\nDuring handling of the above exception, another exception occurred:\n\n"
        f"{HEAD}{library}ValueError: Model x is not known. Try to upgrade the package.\n"
    )
    assert 'By its own message: "Try to upgrade the package."' in ask(tmp_path / "b.log")[0]["fix"]
    # a launcher's exception about its child has nothing to say
    (tmp_path / "c.log").write_text(f"{HEAD}{library}SystemExit: please see the log of the other process above\n")
    assert ask(tmp_path / "c.log")[0]["role"] == "unknown"
    # an entry about many messages knows less than the one that is there
    log = b"TypeError: Cannot convert a MPS Tensor to float64 dtype, it has none. Please use float32 instead.\n"
    assert ask("-", stdin=log)[0]["fix"].startswith('By its own message: "Please use float32 instead."')


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("ValueError: mode must be one of ['a', 'b'], got c", "PL2:cause"),
        ("MyError: The hidden size must be a multiple of 64", "PL3:cause"),
        ("RuntimeError: lengths of images and labels do not match", "PL5:cause"),
        ("ConfigError: Please specify the path of the vocabulary", "PL13:cause"),
        ("ValueError: You passed a collator. This is not compatible with the `packing` argument", "PL8:cause"),
        ("ValueError: NaNs detected in the merged weights", "PL17:cause"),
        ("/u/user/.bashrc: line 52: /: Is a directory", None),
        (f"Exception ignored in: f\n{HEAD}KeyboardInterrupt: \nrm: write: No space left on device", "U6:cause"),
    ],
)
def test_what_kind_of_mistake_a_message_names(line: str, first: str | None, tmp_path: Path) -> None:
    assert next(iter(say(f"{line}\n", tmp_path=tmp_path)), None) == first


def _traced(code: str, raised: str, file: str = "train.py") -> str:
    return f'{HEAD}  File "{file}", line 3, in __getitem__\n    {code}\n{raised}\n'


@pytest.mark.parametrize(
    ("log", "first"),
    [
        (_traced("x = self.features[key]", "KeyError: 391090"), "DA74"),
        (_traced("assert len(set(t.dtype for t in ts)) == 1", "AssertionError"), "WH28"),
        (_traced("assert (boxes1[:, 2:] >= boxes1[:, :2]).all()", "AssertionError"), "TO151"),
        (_traced("a, b, c = list(zip(*batch))", "ValueError: not enough values to unpack (expected 3, got 0)"), "DA75"),
        (_traced("info['filename'] = info['file_name']", "KeyError: 'file_name'"), "DA13"),
        (_traced("label = self.labels[i]", "IndexError: list index out of range"), "WH1"),
        (_traced("h, w = image.shape[:2]", "AttributeError: 'NoneType' object has no attribute 'shape'"), "WH2"),
        (_traced("y = self.class_to_idx[name]", "KeyError: 'Person'"), "WH6"),
        (_traced("y = cfg[name]", "KeyError: 'Person'").replace("__getitem__", "main"), "UC19"),
        (_traced("assert os.path.isdir(root)", "AssertionError"), "WH9"),
        (_traced("assert img is not None", "AssertionError"), "DA87"),
        (_traced('assert segm.mode == "L"', "AssertionError"), "DA88"),
        (_traced('text = tokenizer(examples["text"])', "KeyError: 'text'"), "HF91"),
        (_traced("return self.coco.loadImgs(ids)", "KeyError: 3561"), "DA86"),
        (_traced("assert n == torch.cuda.device_count()", "AssertionError"), "WH11"),
        (_traced("assert n == torch.cuda.device_count()", "AssertionError: give 8 GPUs"), "PL16"),
    ],
)
def test_a_plain_exception_is_told_by_its_place(log: str, first: str, tmp_path: Path) -> None:
    assert say(log, tmp_path=tmp_path)[0] == f"{first}:cause"


def test_every_slot_of_a_text_has_its_group_and_a_special_case_names_entries() -> None:
    known = {entry.id for entry in catalogue.load()}
    for entry in catalogue.load():
        assert known.issuperset(entry.over), entry.id
        groups = {name.rstrip("234") for text in entry.signatures for name in re.compile(text).groupindex}
        assert {name for _, _, name in catalogue._TERM.findall(entry.where)} <= groups, entry.id
        slots = {slot[1] or slot[3] for slot in causes.SLOT.finditer(entry.cause + entry.fix + entry.check)}
        assert slots <= {"frame", "source", "code", "library", "libraries", "message", "nccl"} | groups, entry.id


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("AttributeError: type object 'Trainer' has no attribute 'fly'", "asks for `fly`, which the `Trainer` does"),
        ("AttributeError: fly", "your own code asks for an attribute, which the object does"),
        ("TypeError: __init__() missing 2 required positional arguments: 'a' and 'b'", "calls `__init__` with other"),
        ("omegaconf.errors.ConfigAttributeError: Key 'min_lr' is not in struct", "The code reads `min_lr`, which"),
    ],
)
def test_a_sentence_reads_well_with_and_without_its_facts(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "a.log").write_text(line + "\n")
    assert said in ask(tmp_path / "a.log")[0]["cause"]


def test_a_failure_that_no_entry_knows_is_told_in_its_own_words() -> None:
    done = run(FAILURES / "rank_value_error.log")
    text = done.stdout
    assert done.returncode == 1
    assert text.startswith("error known: ") and "rank 1: UC60 " in text and "No entry is specific to it" in text
    assert "ValueError: batch 4 of shard_00017.tar has no label" in text


def test_a_failure_without_words_is_called_unknown_and_shown(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(f"{HEAD}mylib.BadError: 17\n")
    done = run(tmp_path / "a.log")
    assert done.stdout.startswith("error unknown: ") and "mylib.BadError: 17" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("unknown; read the traceback, do not guess from the list")


def test_a_healthy_log_is_no_finding() -> None:
    done = run(ROOT / "tests" / "triage" / "healthy" / "deprecations.log")
    assert done.returncode == 0 and "no failure found. Looked for" in done.stdout


def test_stdin_and_top() -> None:
    assert ask("-", stdin=(STEPS + MISSING).encode())[0]["line"] == 9
    log = (MISSING + FULL + "Read-only file system\nStale file handle\n").encode()
    assert len(ask("-", "--top", "2", stdin=log)) == 2
    assert len(ask("-", stdin=log)) == 3


# -- what counts


def test_first_in_time_beats_first_in_the_list_of_files(tmp_path: Path) -> None:
    late = f"2026-11-16 10:10:00,100 INFO step 9 loss 2.0\n{MISSING}"
    early = f"2026-11-16 10:00:00,100 INFO step 8 loss 2.1\n{FULL}"
    assert say(late, early, tmp_path=tmp_path)[0] in ("U6:cause", "C3:cause")
    late = f"{time.gmtime().tm_year}-03-21 10:10:00 step 9 loss 2.0\n{MISSING}"
    early = f"[rank1]:[E321 10:00:00.551130011 x.cpp:1] glog has no year\n{FULL}"
    assert say(late, early, tmp_path=tmp_path)[0] in ("U6:cause", "C3:cause")


@pytest.mark.parametrize(("steps", "role"), [(1, "cause"), (2, "survived")])
def test_what_training_survived_is_no_finding(steps: int, role: str, tmp_path: Path) -> None:
    after = "".join(f"step {n} loss 1.0\n" for n in range(10, 10 + steps))
    assert f"BU29:{role}" in say(STEPS + MISSING + after, tmp_path=tmp_path)


@pytest.mark.parametrize(
    "survived",
    [
        "wandb: ERROR Error while calling W&B API: context deadline exceeded (<Response [500]>)\n",
        "Decreasing batch size to: 16. (torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB.)\n",
        "(MaxRetryError(\"HTTPSConnectionPool(host='hub', port=443): Max retries exceeded with url: /config.json\"))\n",
    ],
)
@pytest.mark.parametrize("step", ["{{'loss': 1.5, 'epoch': 0.{}}}\n", "Epoch {}/30  train_loss 1.3  error_rate 0.47\n"])
def test_steps_after_a_caught_error_count_although_their_words_are_context(
    survived: str, step: str, tmp_path: Path
) -> None:
    log = step.format(1) + survived + step.format(2) + step.format(3)
    assert not [one for one in say(log, tmp_path=tmp_path) if one.endswith((":cause", ":unknown"))]


def test_a_pod_that_was_placed_later_and_prose_about_errors_are_no_findings(tmp_path: Path) -> None:
    waits = (
        "  Warning  FailedScheduling  41m  default-scheduler  0/6 nodes are available: 6 Insufficient nvidia.com/gpu.\n"
    )
    placed = "  Normal   Scheduled         38m  default-scheduler  Successfully assigned ml/w-0 to gpu-3\n"
    assert "KC1:cause" in say(placed + waits, tmp_path=tmp_path)
    assert not [one for one in say(waits + placed, tmp_path=tmp_path) if one.endswith(":cause")]
    assert say("* It appears there's a slight error in calculating the shells.\n", tmp_path=tmp_path) == []
    assert "ST1:cause" not in say("LoRA checkpoint None not found; training from base model.\n", tmp_path=tmp_path)


def test_a_traceback_that_is_cut_off_is_named_by_what_is_left_of_it(tmp_path: Path) -> None:
    frame = f'{HEAD}  File "train.py", line 9, in main\n    model.cuda()\n'
    quoted = '  File "/x/site-packages/torch/cuda/__init__.py", line 210, in _lazy_init\n'
    quoted += '    raise AssertionError("Torch not compiled with CUDA enabled")\n'
    assert say(frame + quoted, tmp_path=tmp_path) == ["OOM19:cause"]
    assert "NW10:cause" in say("SSLCertVerificationError     Traceback (most recent call last)\n", tmp_path=tmp_path)
    title = "RuntimeError: Calculated padded input size per channel: (5 x 4). Kernel size: (5 x 5). Kernel size can't\n"
    assert "TO3:cause" in say(title + STEPS + frame, tmp_path=tmp_path)  # the report's first line


def test_code_quoted_in_a_traceback_is_not_what_happened_nor_is_what_python_ignores(tmp_path: Path) -> None:
    frame = f'{HEAD}  File "a.py", line 1, in f\n'
    quoted = f'{frame}    raise X("No space left on device")\nX: y\n'
    assert say(quoted, tmp_path=tmp_path) == ["?:unknown"]
    assert say(f"{STEPS}Exception ignored in: <f>\n{frame}OSError: x\n", tmp_path=tmp_path) == []


def test_exit_codes_tell_where_no_line_does(tmp_path: Path) -> None:
    assert "U9:exit code" in say(STEPS, exit_code=137, tmp_path=tmp_path)
    assert "U9:exit code" in say(STEPS, exit_code=-9, tmp_path=tmp_path)
    assert say(STEPS, exit_code=77, tmp_path=tmp_path) == ["?:unknown"]
    assert say(STEPS, exit_code=0, tmp_path=tmp_path) == []


def test_the_kernel_log_confirms_a_kill_and_alone_comes_after_the_log(tmp_path: Path) -> None:
    kernel = "[Mon Nov 16 10:00:01 2026] Memory cgroup out of memory: Killed process 5151 (python3)\n"
    assert say(STEPS, exit_code=137, kernel=kernel, tmp_path=tmp_path)[0] in ("U9:cause", "OOM9:cause")
    said = say(STEPS + MISSING, kernel=kernel, tmp_path=tmp_path)
    assert said[0] == "BU29:cause" and "U9:kernel log" in said
    # of several kills on a shared node any may be another's: none is pinned on this run
    said = say(STEPS, exit_code=137, kernel=kernel + kernel.replace("5151", "5152"), tmp_path=tmp_path)
    assert "U9:kernel log" in said and "U9:cause" not in said


def test_torchruns_root_cause_names_the_rank(tmp_path: Path) -> None:
    summary = "Root Cause (first observed failure):\n[0]:\n  rank      : 2 (local_rank: 2)\n  exitcode  : 1 (pid: 7)\n"
    log = f"[rank0]: {MISSING}[rank2]: {FULL}{summary}"
    assert say(log, tmp_path=tmp_path)[0] in ("U6:cause", "C3:cause")


def test_a_run_directory_gives_its_log_and_exit_code(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(STEPS)
    (tmp_path / "notes.log").write_text(MISSING)
    damaged = '{"time": 1, "event": "failed", "exit_code": 137}\n\0\0half a row\n{"time": 2, "event": "verified"}\n'
    (tmp_path / "events.jsonl").write_text(damaged)
    assert "U9" in [one["id"] for one in ask(tmp_path)]


def test_a_line_printed_a_million_times_is_told_by_its_first(tmp_path: Path) -> None:
    log = tmp_path / "noisy.log"
    log.write_text("write failed: Disk quota exceeded (try 7)\n" * 300_000)
    assert next(one["line"] for one in ask(log) if one["id"] == "U7") == 1


# -- context, aftermath, and what nobody knows


INSPECT = """[
    {
        "State": {
            "Status": "exited",
            "OOMKilled": %s,
            "ExitCode": 137,
            "Error": ""
        }
    }
]"""
DESCRIBE = """Containers:
  trainer:
    Last State:     Terminated
      Reason:       %s
      Exit Code:    137
Events:
  %s
"""
SACCT = """JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
------------ ---------- ---------- ---------- ---------- ---------- --------
12345             train        gpu       acct          8 %10s %8s
"""
SEMAPHORE = '  File "/usr/lib/python3.11/multiprocessing/synchronize.py", line 57, in __init__\n'
KEY = "LabelError: 'labels'"


@pytest.mark.parametrize(
    ("log", "first"),
    [
        (HEAD + '  File "a.py", line 1, in f\n' + FULL, "U6:cause"),
        (HEAD + SEMAPHORE + FULL, "EN1:cause"),  # the same line, other context
        (FULL + "\n" * 80 + SEMAPHORE, "U6:cause"),  # too far away
        ("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.\nAborted (core dumped)\n", "OOM1:cause"),
        (
            f"{HEAD}  x\n{KEY}\nDuring handling of the above exception, another exception occurred:\n{HEAD}  y\nX: z\n",
            "UC60:unknown",
        ),
        ("INFO: NCCL INFO Call to connect returned Connection refused, OSError: [Errno 28] x\n" + STEPS, ""),
        ("[rank0]: ValueError: boom 7\n", "UC60:unknown"),
        ("host:1:2 [0] misc/socket.cc:483 NCCL WARN Trying to recv to self without a send\n", "UC63:cause"),
        ("python train.py\nSegmentation fault (core dumped)\n", "NA3:cause"),
        ("Epoch 1: val error: 0.03 failed: 0\nerror: 0.03\nmean squared error: 0.1\n", ""),
        ("ValueError: bad sample, retrying\n" + STEPS, ""),
        ("MeanAbsoluteError: 0.03\n", ""),
        ("ERROR could not open cache\n" + STEPS, ""),
        ("upload: error: boom\nTraining completed in 3 h\n", ""),
        ("1,0.3,0.2\n2,nan,nan\n3,nan,nan\n", "?:unknown"),
        ("INFO - trl - Server is not up yet. Retrying in 2.0 seconds...\n" * 4, "EG46:cause"),  # and nothing else
        ("Unable to find image 'a:b' locally\n" + "Pull complete\n" * 5, ""),
        ("x.py:3: UserWarning: libfoo.so: cannot open shared object file: No such file or directory\nok\n", ""),
        (
            f"{HEAD}RuntimeError: Error(s) in loading state_dict for Net:\n"
            "        size mismatch for a.weight: copying a param with shape torch.Size([2, 2]) from checkpoint\n",
            "TO82:cause",  # not the line that only announces it
        ),
        # a special case is told instead of the entry that it is split from
        ("ImportError: cannot import name 'AdamW' from 'transformers'\n", "HF74:cause"),
        ("_pickle.UnpicklingError: invalid load key, 'v'.\n", "TO115:cause"),
        ("ValueError: loaded state dict has a different number of parameter groups\n", "TO111:cause"),
        ("RuntimeError: HIP error: no kernel image is available for execution on the device\n", "AX129:cause"),
        ("TypeError: Trainer.training_step() takes 3 positional arguments but 4 were given\n", "PJ61:cause"),
        ("TypeError: LitNet.training_step() takes 2 positional arguments but 3 were given\n", "PJ128:cause"),
        ("TypeError: forward() missing 1 required positional argument: 'x'\n", "UC22:cause"),
        (
            HEAD + '  File "/v/site-packages/torch/nn/parallel/data_parallel.py", line 153, in forward\n'
            "TypeError: forward() missing 1 required positional argument: 'x'\n",
            "DA81:cause",
        ),
        ("google.api_core.exceptions.ResourceExhausted: 429 The following quotas are exceeded: A100\n", "KC54:cause"),
        # what XLA takes back itself, and a backend that it only tried
        (
            "E xla/service/rendezvous.cc:38] This thread may be stuck. Expected 8 threads to join the rendezvous\n"
            + STEPS,
            "",
        ),
        (
            "xla_bridge.py:841] Unable to initialize backend 'tpu': INTERNAL: Failed to open libtpu.so: libtpu.so: "
            "cannot open shared object file: No such file or directory\n",
            "",
        ),
        # what no entry knows is told in its own words: an exception, an error line, NCCL's warning
        ("wandb.errors.BoomError: the run has no parent to write to\n", "UC60:cause"),
        ("ERROR: the frobnicator was not built. Please run `make frob` first\n", "UC62:cause"),
        (
            "n1:4:4 [0] NCCL WARN Could not read the width of /sys/class/x\nn1:4:4 [0] NCCL INFO init.cu:8 -> 2\n",
            "UC63:cause",
        ),
        ("a:1:1 [0] include/socket.h:3 WARN Socket creation failed : Address family not supported\n", "CO45:cause"),
        # a warning after which the program informs is none; rich wraps it under its level
        (
            "[08/09/26 16:09:49] WARNING  mkdir -p failed for path\n"
            "                             /usr/src/.config/matplotlib: [Errno 13] Permission\n"
            "                             denied: '/usr/src/.config'\n"
            "[08/09/26 16:09:50] INFO     Application startup complete.\n",
            "",
        ),
        # records of schedulers and runtimes are known by their content
        (INSPECT % "true", "U9:cause"),
        (INSPECT % "false", "EN2:exit code"),
        (DESCRIBE % ("OOMKilled", "Warning  BackOff  kubelet  Back-off restarting failed container"), "U9:cause"),
        (DESCRIBE % ("Error", "Warning  Unhealthy  kubelet  Liveness probe failed: statuscode: 500"), "KC16:cause"),
        (SACCT % ("OUT_OF_ME+", "0:125"), "EN5:cause"),
        (SACCT % ("TIMEOUT", "0:0"), "EN3:cause"),
        (SACCT % ("FAILED", "1:0"), "?:unknown"),
        (SACCT % ("COMPLETED", "0:0"), ""),
        (SACCT % ("COMPLETED", "0:0") + "81.1         monitor CANCELLED+     0:15\n", ""),  # a step stopped on purpose
        (SACCT % ("CANCELLED+", "0:15") + "81.1         monitor CANCELLED+     0:15\n", "EN4:cause"),
        ("81.1         monitor CANCELLED+     0:15\n", "EN4:cause"),
        # a step that the loss scaler left out
        ("it 1 loss 0.8\nit 2 loss nan scale 8 (skipped 1 step)\nit 3 loss 0.7\nit 4 loss 0.7\nit 5 loss 0.6\n", ""),
        ("it 1 loss 0.8\nit 2 loss nan scale 8\nit 3 loss 0.7\nit 4 loss nan\nit 5 loss 0.6\n", "PS1:cause"),
        # the limit, not who enforced it
        ("Job deleted at request of root@a\njob 31 exceeded MEM usage hard limit (2528 > 1126)\n", "SL59:cause"),
        ("JobId=1 JobName=train\n   JobState=CANCELLED Reason=None\n   ExitCode=0:15\n", "EN4:cause"),
        ("[1.000000] a\n[2.000000] Memory cgroup out of memory: Killed process 5 (python3)\n", "U9:kernel log"),
    ],
)
def test_the_first_answer(log: str, first: str, tmp_path: Path) -> None:
    told = [word for word in say(log, tmp_path=tmp_path) if word.split(":")[1] in causes.FINDINGS]
    assert (told or [""])[0] == first


LAST_WORDS = """Terminated|zsh: killed     python train.py|[1]+  Killed                  nohup python train.py|Hangup
RuntimeError|/bin/sh: 1: python: not found|bash: ./run.sh: No such file or directory
command terminated with exit code 137|AssertionError|Connection to 10.0.0.2 closed by remote host.
make: *** [train] Error 2|Kernel died, restarting|CUDA error|已杀死
Windows fatal exception: access violation|MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD
exit status 255|srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
Job 123 exceeded memory limit|usage: train.py [-h]|Stopping training: loss is not finite
thread 'main' panicked at src/main.rs:1|Process finished with exit code -1073741819
OMP: Error #15: Initializing libiomp5md.dll"""


@pytest.mark.parametrize("line", [line for row in LAST_WORDS.splitlines() for line in row.split("|")])
def test_a_last_line_that_says_failure_is_never_passed_over(line: str, tmp_path: Path) -> None:
    told = say(STEPS + line, tmp_path=tmp_path)
    assert any(word.split(":")[1] in causes.FINDINGS for word in told), told


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: Tried to convert 'x' to a tensor and failed. Error: None values not supported.",
        "acme.store.exceptions.Gone: 410 the bucket was emptied",
        "RuntimeError: the device was lost, driver error:700000041879048196",
    ],
)
def test_an_exception_is_no_metric_and_needs_no_error_in_its_name(line: str, tmp_path: Path) -> None:
    assert say(STEPS + line, tmp_path=tmp_path)


def test_a_bare_assertion_is_told_with_the_librarys_condition(tmp_path: Path) -> None:
    own = '  File "/home/user/train.py", line 12, in main\n    net(x)\n'
    library = '  File "/v/site-packages/x/y.py", line 9, in f\n    assert width in table\n           ^^^^^\n'
    (tmp_path / "a.log").write_text(f"{HEAD}{own}{library}AssertionError\n")
    assert "`assert width in table`" in ask(tmp_path / "a.log")[0]["cause"]


def test_unknown_shows_the_root_of_a_chain_and_the_users_own_frame(tmp_path: Path) -> None:
    library = '  File "/opt/venv/lib/python3.11/site-packages/x/y.py", line 9, in get\n    raise\n'
    first = f'{HEAD}  File "/home/user/train.py", line 12, in main\n    get()\n{library}{KEY}\n'
    handling = (
        f"\nDuring handling of the above exception, another exception occurred:\n\n{HEAD}{library}RuntimeError: lost\n"
    )
    (tmp_path / "a.log").write_text(STEPS + first + handling)
    told = ask(tmp_path / "a.log")[0]
    assert (told["role"], told["evidence"], told["frame"]) == ("unknown", KEY, "/home/user/train.py:12 in main")
    assert "your code: /home/user/train.py:12" in run(tmp_path / "a.log").stdout


@pytest.mark.parametrize(
    ("losses", "word"),
    [
        (["2.1"] * 9 + ["nan"] * 5, "PS1"),
        ([f"{2.0 + n % 3}" for n in range(20)] + ["9000.0"] * 8, "PS12"),
        ([f"{9 - n / 5}" for n in range(40)], ""),
        (["2.1"] * 9 + ["nan"] + ["2.0"] * 9, ""),
        (["0.8", "0.7", "0.6", "13.4", "26.6", "26.6", "26.5"], "PS12"),
        (["6.3", "0.0", "0.0", "0.0"], "PS2"),
        (["0.9", "0.2", "0.01", "0.0", "0.0", "0.0"], ""),
        (["0.0"] * 9, ""),
    ],
)
def test_a_loss_that_diverges_is_named_from_its_numbers(losses: list[str], word: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(
        "".join(f"step {n} | train loss: {value} | lr 1e-4\n" for n, value in enumerate(losses))
    )
    done = run(tmp_path / "a.log", "--json")
    told = json.loads(done.stdout)["diagnoses"]
    assert [one["id"] for one in told if one["role"] == "cause"] == ([word] if word else [])


def test_a_loss_scale_that_falls_without_end_is_named(tmp_path: Path) -> None:
    line = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {}\n"
    (tmp_path / "a.log").write_text("".join(line.format(2.0**-n) for n in range(-16, 10)))
    assert ask(tmp_path / "a.log")[0]["id"] == "PS7"
    (tmp_path / "b.log").write_text(line.format(32768.0) + line.format(16384.0) + STEPS)
    assert run(tmp_path / "b.log").returncode == 0


@pytest.mark.parametrize(("skipped", "word"), [(195, "PS7"), (3, "")])
def test_steps_that_are_nearly_all_skipped_are_no_training(skipped: int, word: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(f"{STEPS}[INFO] [Rank 0] step=200, skipped={skipped}, lr=[0.001], mom=[0.0]\n")
    told = json.loads(run(tmp_path / "a.log", "--json").stdout)["diagnoses"]
    assert [one["id"] for one in told if one["role"] == "cause"] == ([word] if word else [])


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("Cuda failure 'initialization error'", "CO49:cause"),
        ("Net : Connection closed by remote peer node2<43236>", "CO48:aftermath"),
        ("something that nobody knows", "CO4:cause"),
    ],
)
def test_what_stands_behind_last_error_decides(reason: str, told: str, tmp_path: Path) -> None:
    lines = ["torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled cuda error, NCCL version 2.21.5"]
    lines += ["ncclUnhandledCudaError: Call to CUDA function failed.", "Last error:", reason]
    for prefix in ("", "[rank1]: ", "gpu-worker-1: "):
        assert say("".join(f"{prefix}{line}\n" for line in lines), tmp_path=tmp_path)[0] == told


@pytest.mark.parametrize(
    ("allocated", "free", "reserved", "told"),
    [
        ("23.1 GiB", "0.2 GiB", "23.3 GiB", "OOM1"),
        ("4.2 GiB", "0 bytes", "4.4 GiB", "TO164"),
        ("13.3 GiB", "1.5 GiB", "20.1 GiB", "TO178"),
    ],
)
def test_the_numbers_of_a_message_decide(allocated: str, free: str, reserved: str, told: str, tmp_path: Path) -> None:
    line = f"RuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 24.0 GiB total capacity; {allocated} "
    line += f"already allocated; {free} free; {reserved} reserved in total by PyTorch)\n"
    assert say(line, tmp_path=tmp_path) == [f"{told}:cause"]
    frame = '  File "t.py", line 1, in validate\n'
    assert say(HEAD + frame + line, tmp_path=tmp_path)[0] == "TO175:cause"


def test_a_run_without_its_gpu_has_not_outlived_the_warning(tmp_path: Path) -> None:
    warning = "UserWarning: CUDA initialization: {}\n" + STEPS
    assert say(warning.format("CUDA unknown error - this may be due to"), tmp_path=tmp_path) == ["NA44:cause"]
    assert say(warning.format("Found no NVIDIA driver on your system."), tmp_path=tmp_path) == []


def test_a_failure_after_the_training_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(f"{STEPS}Training time: 58117.91s\n{HEAD}{MISSING}")
    assert ask(tmp_path / "a.log")[0]["note"] == "after the training, which ended in line 9"


def test_a_record_beside_a_log_says_who_killed_it(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(STEPS)
    (tmp_path / "inspect.json").write_text(INSPECT % "false")
    assert ask(tmp_path)[0]["id"] == "EN2"


def test_a_clear_case_is_short_and_has_no_relative_links() -> None:
    for name in ("oom_hf_bar", "disk_full_save", "missing_module", "rank_value_error", "slurm_time_limit"):
        text = run(FAILURES / f"{name}.log").stdout
        assert len(text.splitlines()) <= 12, text
        assert "](" not in text


def test_a_number_that_changes_in_a_line_seen_a_thousand_times_is_news(tmp_path: Path) -> None:
    lines = ["worker 7 exited with code 0\n"] * 60_000
    lines[-100] = "worker 7 exited with code 3\n"
    assert say("".join(lines), tmp_path=tmp_path) == ["?:unknown"]


def test_the_last_line_before_a_hole_counts(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(STEPS.encode() + MISSING.strip().encode() + bytes(3 * scan.BLOCK))
    assert ask(tmp_path / "a.log")[0]["id"] == "BU29"


# -- how lines are read


def test_wrapped_and_boxed_lines_are_read_as_one(tmp_path: Path) -> None:
    full = "RuntimeError: The size of tensor a (32) must match the size of tensor b (64) at non-singleton dimension 1"
    rich = "╭───── Traceback (most recent call last) ─────╮\n│ /home/user/train.py:12 in main              │\n╰─────╯\n"
    logs = {
        "wrapped": full.replace(" at ", " at\n"),
        "rich": f"{rich}{full[:76]}\n{full[77:]}\n",
        "box": f"│ {full[:76]} │\n│ {full[77:]:76} │\n",
        "slash": full.replace("tensor b", "tensor \\\nb"),
        "colour": full.replace("size", "\x1b[1msize\x1b[0m"),
    }
    for name, text in logs.items():
        (tmp_path / f"{name}.log").write_text(STEPS + text)  # without an end of line
        assert ask(tmp_path / f"{name}.log")[0]["id"] == "TO87", name


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_logs_of_windows_shells_are_read(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes((MISSING + "done").encode(encoding))
    first = ask(tmp_path / "a.log")[0]
    assert (first["id"], first["line"], first["evidence"]) == ("BU29", 1, MISSING.strip())


@pytest.mark.parametrize(
    ("raw", "text", "rank"),
    [
        (b"[rank3]: RuntimeError: x", "RuntimeError: x", 3),
        (b"3: [rank5]: \x1b[31mboom\x1b[0m", "boom", 5),
        (b"2026-11-16T08:51:02.120Z [rank1]: boom", "boom", 1),
        (b"(RayTrainWorker pid=44, ip=10.0.0.8) boom\r", "boom", None),
        (b"2026-11-16T08:51:02.120Z stderr F boom", "boom", None),
        (b"step 12 | loss 2.7", "step 12 | loss 2.7", None),
        (b"caf\xe9 \xff boom", "caf\ufffd \ufffd boom", None),
        (b"2026-11-16 08:51:02.120 | ERROR    | __main__:main:12 - boom", "boom", None),
        (b"[10:00:00] ERROR    boom               train.py:12", "boom", None),
        (b"E0321 10:00:00.551130 1234 file.cc:12] boom", "boom", None),
        (b"node1:12:34 [0] misc/x.cc:12 NCCL WARN boom", "NCCL WARN boom", None),
        (b"[pod/train-0/trainer] 1: boom", "boom", 1),
        (b"gpu-worker-1: [rank2]: boom", "boom", 2),
        (b"epoch-1: loss 2.7", "epoch-1: loss 2.7", None),
        (b"libcudart.so.11.0: cannot open", "libcudart.so.11.0: cannot open", None),
        (b"> **[rank3]: RuntimeError:** x", "RuntimeError: x", 3),
        (b"`KeyError: &#39;x&#39;`", "KeyError: 'x'", None),
        (b"[1;31mKeyError[0m: f(**kwargs) x**2 + y**2", "KeyError: f(**kwargs) x**2 + y**2", None),
        (b"*** JOB 7 CANCELLED ***", "*** JOB 7 CANCELLED ***", None),
        (b">>> loss.backward()", ">>> loss.backward()", None),
    ],
)
def test_prefixes_are_told_apart_from_the_line(raw: bytes, text: str, rank: int | None) -> None:
    line = bare_line(raw)
    assert (line.text, line.rank) == (text, rank)


def test_a_log_of_docker_is_read_as_it_was_printed(tmp_path: Path) -> None:
    missing = 'RuntimeError: Missing key(s) in state_dict: "module.weight"'
    rows = [{"log": f"{line}\n", "time": "2026-11-16T08:51:02Z"} for line in (HEAD.strip(), missing)]
    (tmp_path / "x.log").write_text("".join(f"{json.dumps(row)}\n" for row in rows) + '{"log": 7}\n{"log"')
    first = ask(tmp_path / "x.log")[0]
    assert (first["id"], first["line"], first["evidence"]) == ("C5", 2, missing)


def test_the_rank_in_a_file_name() -> None:
    names = ("logs/rank_3.log", "l/attempt_0/7/stderr.log", "slurm-4411.out", "train.log")
    assert [rank_of_file(name) for name in names] == [3, 7, None, None]


@pytest.mark.parametrize("block", [64, 257, 4096])
def test_blocks_may_end_anywhere(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "BLOCK", block)
    for name in ("no_main_guard", "rank_value_error", "disk_full_save", "killed_nohup", "latin1_missing_module"):
        assert first_id(*bench.files(name)) in bench.labels()[name]["expect"], name


def test_windows_ends_bars_and_lines_without_an_end(tmp_path: Path) -> None:
    bars = "".join(f"\r {n}%|##| {n}/100 [00:01<00:09, 9.9it/s]" for n in range(9))
    (tmp_path / "a.log").write_bytes((bars + "\r" + MISSING.strip() + "\r\nbye\r\n").encode())
    assert ask(tmp_path / "a.log")[0]["line"] == 1
    (tmp_path / "b.log").write_bytes(b"x" * 9_000_000 + b"\n" + MISSING.encode())
    assert ask(tmp_path / "b.log")[0]["line"] == 2


# -- the prefilter and the rules for signatures


def test_the_prefilter_lets_every_symptom_through() -> None:
    what = scan.plan()
    sieve = prefilter.Prefilter(what.table)
    for index, pattern in enumerate(what.patterns):
        for line in pattern.entry.examples if pattern.entry else ():
            if pattern.search(line):
                block = f"iter 3: loss 2.1\n[rank7]: {line}\niter 4: loss 2.0\n".encode()
                spot = sieve.candidates(block)[0].get(17)
                assert spot and index in spot.sure, (pattern.entry, line)


def test_lines_of_a_healthy_run_meet_no_regex(tmp_path: Path) -> None:
    """400 MB of them must cost little more than grep: a word such as INF must not be looked for inside INFO."""
    bench.write_log(tmp_path / "train.log", bench.CHUNK)
    block = (tmp_path / "train.log").read_bytes().rpartition(b"RuntimeError")[0]
    sieve = prefilter.Prefilter(scan.plan().table)
    for _ in range(9):
        spots = sieve.candidates(block)[0]
        for spot in spots.values():
            spot.visits += 1
    assert not spots


def test_the_catalogue_is_kept_until_a_document_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    document = tmp_path / "references" / "signatures" / "a.md"
    document.parent.mkdir(parents=True)
    document.write_text("### A1 · a\nsignature: `killed`\n\n**Cause** x\n**Fix** y\n")
    for change in ("", "### A2 · b\nsignature: `broken`\nnear: `there`\n\n**Cause** x\n**Fix** y\n"):
        document.write_text(document.read_text() + change)
        catalogue.read.cache_clear()
        fresh = catalogue.read(tmp_path)
        catalogue.read.cache_clear()
        assert catalogue.read(tmp_path) == fresh
    assert [entry.id for entry in fresh.entries] == ["A1", "A2"] and fresh.entries[1].near == ("there",)
    (kept,) = (tmp_path / "cache" / "rgt").iterdir()
    kept.write_text("torn")
    catalogue.read.cache_clear()
    assert catalogue.read(tmp_path).entries == fresh.entries


def test_the_words_of_a_regex() -> None:
    assert catalogue.literal_ways(r"CUDA (?:out of memory|error: \w+)") == [["CUDA out of memory"], ["CUDA error: "]]
    assert catalogue.literal_ways(r"a[bc]d+e?fgh|\bxy{2,3}z$") == [["abd", "fgh"], ["acd", "fgh"], ["xy", "z"]]


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(", "not a regular expression"),
        ("(?i)killed", "inline flags"),
        (r"(\w+\s?)+killed", "quantifier inside a quantified group"),
        ("one.*two.*", "repeats too often"),
        ("(?<=a)killed", "look-around"),
        (r"(killed)\1", "back-reference"),
        ("abc|killed", "4 fixed letters"),
    ],
)
def test_a_signature_that_triage_cannot_use_is_refused(pattern: str, problem: str) -> None:
    assert any(problem in text for text in signatures.regex_problems(pattern))
    assert list(signatures.regex_problems("(?:torch[.])?OutOfMemoryError: .{0,80}")) == []


def test_a_signature_must_match_its_own_symptom() -> None:
    head = "### U1 · a\nsignature: `killed by signal`\nrank: boss\n\n"
    text = head + "**Symptom** `it was ended`\n**Cause** x\n**Fix** y\n"
    problems = list(signatures.problems(next(catalogue.parse(text, "a.md"))))
    assert len(problems) == 2
    assert "no signature matches a log line of its Symptom" in problems[0] and "rank is one of" in problems[1]


def test_no_signature_takes_long_on_a_hostile_line() -> None:
    """A linear regex needs microseconds for 2,000 characters; a nested one would need years."""
    lines = ["a" * 2000, "Error: " * 280, "(pid " * 400, "loss = " * 280, "'" * 2000, " " * 2000, "1.0 GiB " * 250]
    for entry in catalogue.load():
        for pattern in (*entry.signatures, *entry.excluders):
            for line in lines:
                re.search(pattern, line)


# -- the score on strangers' logs


def test_the_score_counts_right_unknown_silent_and_false_alarms(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "1", "family": "a", "log": MISSING, "line": MISSING.strip(), "accept": ["BU29"]},
        {"id": "2", "family": "a", "log": MISSING, "line": MISSING.strip(), "accept": ["U6"]},
        {"id": "3", "family": "b", "log": "ValueError: x\n", "line": "ValueError: x", "accept": ["U6"]},
        {"id": "4", "family": "b", "log": "hello\n", "line": "hello"},
        {"id": "5", "healthy": True, "log": STEPS},
        {"id": "6", "healthy": True, "log": FULL},
    ]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    command = [sys.executable, "evals/strangers/triage.py", "--show", str(tmp_path / "a.jsonl")]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "4 failures: right 1 (25%) · unknown 1 (25%) · silent 1 (25%) · wrong 1 (25%)" in text
    assert "2 healthy logs: 1 false alarms" in text and "the decisive line is the one shown: 3 (75%)" in text
    assert "2 a: wrong, said BU29" in text and "4 b: silent, said nothing" in text


# -- bad input


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.log"], "cannot read none.log: No such file or directory"),
        (["empty"], "holds no log"),
        (["pipe"], "is not a regular file"),
        (["a.log", "--exit-code", "999"], "999 is not in the range"),
        (["a.log", "--dmesg", "none.txt"], "cannot read none.txt"),
        (["a.log", "--top", "0"], "0 is not in the range"),
        ([], "name a log or a run directory"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.log").write_text("")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    done = run(*words)
    assert done.returncode == 2 and done.stdout == ""
    assert message in done.stderr and "Traceback" not in done.stderr


def test_an_empty_log_and_binary_junk_are_no_failure(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"")
    (tmp_path / "b.log").write_bytes(bytes(range(256)) * 4000)
    assert run(tmp_path / "a.log", tmp_path / "b.log").returncode == 0
