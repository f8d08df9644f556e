"""Logs of every framework: the newest numbers, the speed, the remaining time, and what went wrong; hostile ones too."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path

from rgt.log import summary as logs
from rgt.log.fate import Problem
from rgt.log.line import parse_line
from rgt.metrics import table as names

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

# "## what it is: what it says", and below it the line; a backslash at a line's end joins it to the next
LINES = """
## nanoGPT: {"step": 100, "it_per_s": 80.0, "metrics": {"loss": 2.3456, "mfu": 4.0}}
iter 100: loss 2.3456, time 12.50ms, mfu 4.00%
## nanoGPT evaluation: {"step": 250, "metrics": {"train_loss": 2.1, "val_loss": 2.3}}
step 250: train loss 2.1000, val loss 2.3000
## diffusers: {"step": 410, "total": 1000, "it_per_s": 10.0, "eta": 59.0, "elapsed": 41.0, "metrics": \
{"step_loss": 0.12, "lr": 1e-05}}
Steps:  41%|####      | 410/1000 [00:41<00:59, 10.00it/s, step_loss=0.12, lr=1e-05]
## fairseq: {"epoch": 3, "step": 8100, "metrics": {"loss": 4.5, "lr": 0.0005}}
INFO | train_inner | {"epoch": 3, "update": 2.0, "loss": "4.5", "num_updates": "8100", "lr": "0.0005"}
## a message of an exception: {}
[rank1]: RuntimeError: the shapes of step 300 do not fit
## HF Trainer: {"epoch": 0.3, "metrics": {"loss": 1.2, "grad_norm": 0.5, "learning_rate": 5e-05}}
{'loss': 1.2, 'grad_norm': 0.5, 'learning_rate': 5e-05, 'epoch': 0.3}
## HF Trainer with numbers as text: {"epoch": 2, "metrics": {"loss": 1.2, "learning_rate": 5e-05}}
{'loss': '1.2', 'learning_rate': '5e-05', 'epoch': '2'}
## HF evaluation: its speed is not the training's: {"epoch": 1, "metrics": {"eval_loss": 0.4, "eval_accuracy": \
0.91}}
{'eval_loss': 0.4, 'eval_accuracy': 0.91, 'eval_steps_per_second': 10.0, 'epoch': 1.0}
## HF bar: {"step": 450, "total": 1000, "eta": 100.0, "it_per_s": 5.5, "elapsed": 83.0}
 45%|████▌     | 450/1000 [01:23<01:40,  5.50it/s]
## a slow bar with days left: {"step": 450, "total": 1000, "eta": 90000.0, "it_per_s": 0.25, "elapsed": 83.0}
 45%|████▌     | 450/1000 [01:23<1 day, 01:00:00,  4.00s/it]
## tokenising is not training: {}
Map:  45%|████▌     | 450/1000 [01:23<01:40,  5.41 examples/s]
## validating is not training: {}
Validation DataLoader 0:  45%|████▌     | 450/1000 [01:23<01:40,  5.41it/s]
## LitGPT: {"epoch": 1, "step": 25, "it_per_s": 8.0, "eta": 754.0, "metrics": {"train_loss": 5.234}}
Epoch 1 | iter 9 step 25 | loss train: 5.234, val: n/a | iter time: 125.00 ms (step) remaining time: 0:12:34
## LitGPT, a day left: {"epoch": 1, "step": 1, "it_per_s": 8.0, "eta": 86401.0, "metrics": {"train_loss": 5.234, \
"val_loss": 4.9}}
Epoch 1 | iter 4 step 1 | loss train: 5.234, val: 4.9 | iter time: 125.00 ms remaining time: 1 day, 0:00:01
## Lightning: {"epoch": 3, "batch": 123, "batches": 273, "epoch_eta": 12.0, "it_per_s": 12.5, "elapsed": 10.0, \
"metrics": {"loss": 0.5}}
Epoch 3:  45%|████▌     | 123/273 [00:10<00:12, 12.50it/s, loss=0.5, v_num=0]
## Lightning's rich bar: {"epoch": 3, "epochs": 9, "batch": 123, "batches": 273, "it_per_s": 12.5, "metrics": \
{"loss": 0.5}}
Epoch 3/9 ━━━━━━━━━━━ 123/273 0:00:10 • 0:00:12 12.50it/s v_num: 0 loss: 0.5
## Keras, epoch: {"epoch": 3, "epochs": 10}
Epoch 3/10
## Keras, bar: {"batch": 120, "batches": 938, "epoch_eta": 3.0, "metrics": {"loss": 0.3012, "accuracy": 0.9012}}
 120/938 [==>...........................] - ETA: 3s - loss: 0.3012 - accuracy: 0.9012
## Keras 3: {"batch": 938, "batches": 938, "it_per_s": 200.0, "metrics": {"accuracy": 0.9, "loss": 0.3, "val_loss": \
0.2}}
938/938 ━━━━━━━━━━━━━━━━━━━━ 5s 5ms/step - accuracy: 0.9 - loss: 0.3 - val_loss: 0.2
## torchvision: {"epoch": 0, "batch": 10, "batches": 5005, "it_per_s": 2.0, "metrics": {"loss": 6.9, "acc@1": 0.25}}
Epoch: [0][  10/5005]\tTime  0.50 ( 0.9)\tData  0.0 ( 0.3)\tLoss 6.9e+00 (7.0e+00)\tAcc@1   0.25 (  0.11)
## timm: {"epoch": 0, "batch": 50, "batches": 1251, "it_per_s": 2.0, "metrics": {"loss": 6.96, "lr": 1e-05, \
"samples_per_s": 2500.1}}
Train: 0 [  50/1251 (  4%)]  Loss: 6.96 (6.95)  Time: 0.500s,  2500.1/s  LR: 1.000e-05
## mmengine: {"epoch": 1, "batch": 50, "batches": 196, "eta": 754.0, "it_per_s": 4.0, "metrics": {"lr": 0.01, \
"loss": 2.3}}
Epoch(train)  [1][ 50/196]  lr: 1.0000e-02  eta: 0:12:34  time: 0.2500  loss: 2.3
## detectron2: {"step": 19, "eta": 754.0, "metrics": {"total_loss": 1.2, "lr": 0.0001}}
[01/01 10:00:00 d2.utils.events]:  eta: 0:12:34  iter: 19  total_loss: 1.2  lr: 0.0001 max_mem: 2345M
## Megatron: {"step": 10, "total": 1000, "it_per_s": 0.8, "metrics": {"learning_rate": 0.00015, "lm_loss": 7.39, \
"grad_norm": 2.918, "skipped_iterations": 7.0}}
 [2025-04-13 23:41:12] iteration       10/    1000 | elapsed time per iteration (ms): 1250.0 | learning rate: \
1.5E-04 | lm loss: 7.39E+00 | grad norm: 2.918 | number of skipped iterations:   7 |
## DeepSpeed: {"step": 10, "metrics": {"skipped": 0.0, "lr": 1e-05}}
[2024-01-01 10:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[1e-05]
## torchtitan: {"step": 10, "tokens_per_s": 1234.0, "metrics": {"loss": 7.1234, "mfu": 12.34}}
[titan] 2025-01-01 - root - INFO - step: 10  loss:  7.1234  memory: 20.00GiB(50.0%)  tps: 1,234  mfu: 12.34%
## torchtune: {"epoch": 2, "step": 1100, "batch": 100, "batches": 1000, "epoch_eta": 540.0, "it_per_s": 1.6, \
"elapsed": 60.0, "metrics": {"loss": 1.23}}
2|1100|Loss: 1.23:  10%|██ | 100/1000 [01:00<09:00,  1.60it/s]
## llm.c: {"step": 19, "it_per_s": 8.0, "tokens_per_s": 123456.7, "metrics": {"loss": 7.12, "lr": 0.00012, "norm": \
1.23}}
step    19 | loss: 7.12 | lr 1.2e-4 | norm: 1.23 | dt: 125.0ms | tok/sec: 123456.7
## YOLO: {"epoch": 1, "epochs": 100, "batch": 4, "batches": 4, "epoch_eta": 0.0, "it_per_s": 4.0, "elapsed": 1.0}
      1/100      2.72G      1.163      2.58         12        640: 100%|███| 4/4 [00:01<00:00,  4.0it/s]
## a logger's prefix: {"step": 5, "total": 100, "metrics": {"train_loss": 0.5, "val_acc": 91.2}}
2026-07-28 14:20:05,123 INFO train.py:123 step=5/100 train/loss=0.5 val/acc=91.2%
## an epoch's time is no step's: {"epoch": 12, "epoch_time": 45.0, "metrics": {"train_loss": 0.123, "val_acc": \
88.12}}
Epoch 12, Train Loss: 0.123, Val Acc: 88.12, time 45.0s
## [n/total]: {"step": 123, "total": 1000, "metrics": {"train_loss": 0.5}}
[123/1000] train_loss 0.5
## a tensor: {"metrics": {"loss": 2.3456}}
loss tensor(2.3456, device='cuda:0', grad_fn=<NllLossBackward0>)
## metrics.jsonl: {"step": 100, "time": 1790000000.5, "metrics": {"val_loss": 2.3, "val_acc": 0.5}}
{"step": 100, "time": 1790000000.5, "split": "val", "loss": 2.3, "acc": 0.5}
## a JSON line with an object inside: {"step": 7, "metrics": {"val_acc": 0.25, "loss": 0.5}}
{"step": 7, "train": {"loss": 0.5, "done": true}, "note": "2 of 3", "val_acc": "0.25", "loss_scale": null}
## a torn JSON line: {"step": 100, "metrics": {"loss": 2.3}}
{"step": 100, "loss": 2.3, "ac
## the past: {"metrics": {"best_val_acc": 0.91}}
best val acc: 0.91 at epoch 7
## colours: {"step": 7, "metrics": {"loss": 0.5}}
\x1b[32mstep\x1b[0m 7: \x1b[1mloss\x1b[0m 0.5
## HF header, epochs: {"epochs": 3}
  Num Epochs = 3
## HF header, steps: {"total": 1000}
  Total optimization steps = 1,000
## HF header, other steps: {}
  Gradient Accumulation steps = 4
## no limit set: {}
max_steps: -1
## a traceback's line: {}
  File "/usr/lib/python3.11/torch/x.py", line 123, in forward
## a file name: {}
saving checkpoint to out/ckpt_500.pt
## a dict behind its counter: {"step": 300, "metrics": {"loss": 0.5}}
step 300: {'loss': np.float32(0.5)}
## a tuple: {"step": 10, "metrics": {"loss": 0.31, "grad_norm": 1.2}}
('step', 10, 'loss', 0.31, 'gnorm', 1.2)
## dashes: {"epoch": 3, "step": 10, "metrics": {"loss": 0.3412}}
epoch-3 - step-10 - loss-0.3412
## values before names: {"step": 6550, "metrics": {"loss": 0.684, "grad_norm": 0.765, "lr": 1e-05}}
0.6840 loss, 0.765 grad norm, 1e-05 lr, step 6550
## a decimal comma: {"epoch": 92, "epoch_time": 649.7, "metrics": {"loss": 14.4339, "val_loss": 13.8785}}
Epoche 92  Verlust 14,4339  Val-Verlust 13,8785  Zeit 649,7 s
## a value that names no time: {"epoch": 3, "step": 6350, "it_per_s": 0.5, "metrics": {"loss": 0.26}}
epoch 3 step 6350 loss=0.26 peak=10.4GiB 2.0s/it
## a unit and the next name: {"step": 9440, "metrics": {"lr": 2e-06, "samples_per_s": 35.3}}
шаг 9440 скорость 35.3 прим/с lr 2e-06
## how long a step takes, in words: {"it_per_s": 0.25}
  seconds per iteration: 4.0
## time_step counts: {"step": 300}
  time_step: 300
## steps per minute: {"it_per_s": 7.5, "metrics": {"loss": 0.3}}
loss 0.3 (450.0 steps/min)
## a set that prints the same names: {"epoch": 2, "metrics": {"train_a": 0.5, "b": 0.6, "val_a": 0.7, "val_b": 0.8}}
Epoch 2 | Train a=0.5 b=0.6 | Val a=0.7 b=0.8
## counted behind the number: {"epoch": 3, "epoch_time": 32.0, "metrics": {"train_loss": 0.3}}
3エポック目: 訓練損失=0.3000 所要時間=32.0秒
## one of an epoch's batches: {"epoch": 9, "batch": 580, "batches": 600, "metrics": {"loss": 1.5}}
第9轮 第580批/600批 损失=1.5
## a logger that writes JSON: {"step": 3, "metrics": {"loss": 0.5}}
{"level": "INFO", "msg": "step 3: loss 0.5"}
## minutes and seconds: {"epoch": 3, "epoch_time": 200.0, "metrics": {"loss": 0.3}}
epoch 3 | loss 0.3 | took 3m 20s
## a number of times is no counter: {"step": 30, "metrics": {"loss": 0.3}}
ステップ 30: 損失 = 0.3, 1ステップ 130ms
## a date: {}
2026-07-28 14:20:05 started on 10.0.0.1:29500
"""
CASES = [case.split(": {", 1) for case in LINES.strip("\n").removeprefix("## ").split("\n## ")]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_line(name: str, case: str) -> None:
    expected, _, text = case.partition("\n")
    assert parse_line(text) == json.loads("{" + expected)


@pytest.mark.parametrize("word", ["nan", "NaN", "inf", "-inf", "Infinity"])
def test_a_loss_that_is_no_number_is_kept(word: str) -> None:
    for text in (f"step 5 loss {word}", f"step 5 loss={word}", f"{{'step': 5, 'loss': {word}}}"):
        assert not math.isfinite(parse_line(text)["metrics"]["loss"])


@settings(max_examples=400, deadline=None)
@given(st.text(max_size=300))
def test_any_text_gives_a_point_that_json_holds(text: str) -> None:
    json.dumps(parse_line(text))


WORDS = "step loss epoch nan inf 1 2.5 1e5 %| | / [ ] : = it/s ms eta ' \" { }".split()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([*WORDS, " ", "\r", "\n", "9" * 400]), max_size=40), st.binary(max_size=2000))
def test_words_of_logs_and_bytes_in_any_order(words: list[str], data: bytes) -> None:
    for text in ("".join(words), logs.to_text(data, cut=True)):
        json.dumps(logs.summarise(text).brief(), allow_nan=False)


def test_a_long_line_costs_no_time() -> None:
    long_row = json.dumps({"prompt": "x" * 5000, "step": 9, "loss": math.inf})  # longer than any line of prose
    assert parse_line(long_row) == {"step": 9, "metrics": {"loss": math.inf}}
    start = time.perf_counter()
    parse_line("step " * 200_000)
    parse_line("1/" * 200_000)
    parse_line("a.b-c/" * 200_000)
    assert time.perf_counter() - start < 1


# -- files


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_newest_numbers_with_rare_ones_from_far_above(tmp_path: Path) -> None:
    rows = [f"iter {step}: loss {9 - step / 1000:.4f}, time 100.00ms, mfu 4%" for step in range(3000)]
    rows[1500] = "step 1500: train loss 7.5000, val loss 7.6000"
    summary = logs.read(write(tmp_path / "x.log", "Overriding: max_iters = 5000", *rows))
    assert (summary.step, summary.total, summary.metrics["loss"]) == (2999, 5000, 6.001)
    assert (summary.metrics["val_loss"], summary.it_per_s, summary.eta) == (7.6, 10.0, 200.1)
    assert summary.problems == []


def test_total_is_found_at_the_beginning_of_a_long_log(tmp_path: Path) -> None:
    rows = [f"step {step} loss 1.0 {'x' * 100}" for step in range(5000)]
    path = write(tmp_path / "x.log", "  Total optimization steps = 9,000", *rows)
    assert path.stat().st_size > logs.TAIL
    assert (logs.read(path).step, logs.read(path).total, logs.first_step(path)) == (4999, 9000, 0)


def test_a_progress_bar_is_one_line_of_many_states(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    states = [f"\r {step}%|##| {step}/100 [00:01<00:{99 - step:02d}, 2.00it/s, loss={step / 10}]" for step in range(60)]
    path.write_text("".join(states))
    summary = logs.read(path)
    assert (summary.step, summary.total, summary.eta, summary.metrics["loss"]) == (59, 100, 40.0, 5.9)


def test_a_line_that_is_being_written_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("step 1 loss 2.75\nstep 2 loss 2.")
    assert (logs.read(path).step, logs.read(path).metrics) == (1, {"loss": 2.75})
    path.write_text("step 2 loss 2.5")  # but a log of one line is better than none
    assert logs.read(path).step == 2


def test_epochs_give_the_remaining_time(tmp_path: Path) -> None:
    path = write(tmp_path / "x.log", "Epoch 3/10", " 100/200 [==>..] - ETA: 3s - 10ms/step - loss: 0.3")
    assert (logs.read(path).epoch, logs.read(path).eta) == (3, 15.0)  # 7 epochs of 2 s and half of this one
    path = write(tmp_path / "y.log", "epochs: 10", "Epoch 4 loss 0.5 time 30s")
    assert logs.read(path).eta == 180.0


def test_speed_of_a_metrics_file_comes_from_its_clock(tmp_path: Path) -> None:
    rows = [json.dumps({"step": 10 * n, "time": 1.7e9 + 5 * n, "split": "train", "loss": 1.0}) for n in range(100)]
    assert logs.read(write(tmp_path / "metrics.jsonl", *rows)).it_per_s == 2.0


def test_encodings_and_noise(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(os.urandom(5000) + b"\n\xff\xfestep 7 loss 0.5\n\x00\x00\n")
    assert logs.read(path).step == 7
    path.write_bytes("step 8 loss 0.5\r\nstep 9 loss 0.4\r\n".encode("utf-16"))  # PowerShell's redirection
    assert logs.read(path).step == 9


# -- what went wrong

STEP = "step 5 loss 0.5"
TRACEBACK = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "    main()"]


KILLED = "run.sh: line 3:  4711 Killed                  python train.py"


PROBLEMS = [
    ([STEP, *TRACEBACK, "ValueError: bad shape"], "crash", -1, False),
    ([STEP, *TRACEBACK, "my.pkg.Oops: no"], "crash", -1, False),
    ([STEP, *TRACEBACK, "torch.OutOfMemoryError: CUDA out of memory."], "oom", -1, False),
    ([STEP, *TRACEBACK, "ValueError: retried", "step 6 loss 0.5"], "crash", -2, True),
    ([STEP, "step 6 loss nan"], "nan", -1, False),
    (["step 4 loss nan", STEP], "", 0, False),
    ([STEP, KILLED], "killed", -1, False),
    ([STEP, "Killed"], "killed", -1, False),
    ([STEP, "Killed the old server, all is well"], "", 0, False),
    ([STEP, "OSError: [Errno 28] No space left on device"], "no-space", -1, False),
    ([STEP, "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)"], "hang", -1, False),
    ([STEP], "", 0, False),
]


@pytest.mark.parametrize(("lines", "code", "at", "recovered"), PROBLEMS)
def test_problems(tmp_path: Path, lines: list[str], code: str, at: int, recovered: bool) -> None:
    summary = logs.read(write(tmp_path / "x.log", *lines))
    assert summary.problems == ([Problem(code, lines[at], recovered)] if code else [])
    assert summary.last_line == lines[-1]


# -- the names of metrics


def test_every_spelling_means_one_metric() -> None:
    seen: dict[str, str] = {}
    for metric in names.METRICS:
        for spelling in metric.spellings:
            assert seen.setdefault(spelling, metric.name) == metric.name, spelling


NAMES = [
    ("eval_loss", "val", "loss", True, True),
    ("test/acc", "test", "acc", True, True),
    ("train.total_grad_norm", "train", "total_grad_norm", False, True),
    ("value_loss", None, "value_loss", False, True),  # of reinforcement learning, and no validation
    ("val", None, "val", True, False),
    ("warmup_steps", None, "warmup_steps", False, False),
]


@pytest.mark.parametrize(("name", "split", "rest", "evaluation", "curve"), NAMES)
def test_what_a_name_says(name: str, split: str | None, rest: str, evaluation: bool, curve: bool) -> None:
    assert names.split_and_rest(name) == (split, rest)
    assert (names.is_evaluation(name), names.is_curve(name)) == (evaluation, curve)
