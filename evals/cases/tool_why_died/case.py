"""A sorter of dead trainings, judged on seventy logs and folders of ranks that the agent has not seen."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from trials.case import ROOT, Box, Case
from worlds import tool, wrapped

CORPUS = ROOT / "tests" / "triage"
WRONG = 0.05  # the share that may be judged wrongly
LOGS = {
    "gpu-memory": "oom_interleaved ansi_oom oom_hf_bar cublas_alloc restart_loop_oom cascade_before_root",
    "host-memory": "rank_host_memory rank_sigkill slurm_oom k8s_oomkilled killed_bash host_memory_python",
    "disk": "disk_full_safetensors hf_disk_full recovered_oom_then_quota inodes_full read_only",
    "stopped": "slurm_preempt slurm_step_time sigterm_torchrun sighup_torchrun",
    "numerics": "nan_loss hf_nan_grad lightning_bar_nan loss_scale_min clip_nonfinite",
    "network": "hf_offline rsync_12 client_socket_timeout",
    "access": "retry_then_gated wandb_no_key permission_cache",
    "install": "no_kernel_image nvml_mismatch flash_attn_symbol numpy_abi docker_no_gpu",
    "gpu-fault": "ecc",
    "checkpoint": "ckpt_truncated ckpt_module_prefix ckpt_optimizer_groups hf_resume_missing",
    "data": "pil_truncated collate_sizes",
    "hang": "nccl_timeout_only heartbeat",
    "code": "backward_twice key_error hydra_override",
}
HEALTHY = "oom_recovered preempt_requeue eval_answers real_retry_traceback tcpstore_end batch_finder real_torchrun"
SAMPLES = {"gpu-memory": "oom_old_torch", "disk": "quota", "code": "shape_mismatch", "network": "name_resolution"}
TRACE = 'Traceback (most recent call last):\n  File "/srv/job/train.py", line 88, in <module>\n    main()\n'
# what one of eight ranks says; the others only wait for it
ROOTS = {
    "disk": TRACE + "OSError: [Errno 122] Disk quota exceeded: '/data/out/state.tmp'\n",
    "data": TRACE + "PIL.UnidentifiedImageError: cannot identify image file '/data/train/n02/91.JPEG'\n",
    "code": TRACE + "KeyError: 'attention_mask'\n",
    "numerics": TRACE + "FloatingPointError: loss is nan at step 4122, stopping\n",
    "gpu-fault": TRACE + "RuntimeError: CUDA error: uncorrectable ECC error encountered\n",
    "gpu-memory": TRACE + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.31 GiB. GPU 0 has a total "
    "capacity of 39.39 GiB of which 1.12 GiB is free.\n",
    "host-memory": "/srv/job/run.sh: line 12: 40412 Killed                  python train.py --config big.yaml\n",
}
# the catalogue's ids, as an agent would read them off a report
WORD_OF = {
    "gpu-memory": "OOM1 OOM2 OOM3 OOM12 OOM13",
    "host-memory": "U9 U10 OOM9 OOM10 DP1",
    "disk": "U6 U7 C3",
    "stopped": "U3",
    "numerics": "PS1 PS2 PS3 PS7 PS13 PS14",
    "network": "U38 U13 DL10",
    "access": "U39 U40 U14 DOM20",
    "install": "OOM17 OOM18 OOM19 U32 U33 U35 U5 DOM23 BU34 BU35 BU44 KC77",
    "gpu-fault": "OOM20 U24",
    "checkpoint": "C2 C4 C5 C6 C10 C11 CV14 TO111",
    "data": "DP12 DP13 DP14",
    "hang": "DL2",
}
_REFERENCE = """#!/usr/bin/env python
import json, subprocess, sys
words = {words}
triage = [sys.executable, '{scripts}/triage.py', sys.argv[1], "--top", "9", "--json"]
done = subprocess.run(triage, capture_output=True, text=True)
report = json.loads(done.stdout)
found = [one for one in report["diagnoses"] if one["role"] not in ("survived", "hint")]
ids = [one.get("id") for one in found if one["role"] == found[0]["role"]]
print("fine" if report["ok"] else next((words[one] for one in ids if one in words), "code"))
""".replace("{words}", repr({id_: word for word, ids in WORD_OF.items() for id_ in ids.split()}))


def make(box: Box) -> None:
    (box.work / "samples").mkdir()
    for word, name in SAMPLES.items():
        (box.work / "samples" / f"{word}.log").write_text(_text("failures", name), encoding="utf-8")
    (box.work / "samples" / "fine.log").write_text(_text("healthy", "plain_3"), encoding="utf-8")


def _text(kind: str, name: str) -> str:
    text = (CORPUS / kind / f"{name}.log").read_bytes().decode("utf-8", "replace")
    return text if text.endswith("\n") else text + "\n"


def _hidden(root: Path) -> list[tuple[str, str, Path]]:
    """(the right word, a name for the verdict, the path), the same each time."""
    rows = [(word, "failures", name) for word, names in LOGS.items() for name in names.split()]
    rows += [("fine", "healthy", name) for name in HEALTHY.split()]
    found = []
    for number, (word, kind, name) in enumerate(rows):
        dice = random.Random(name)
        text = _text(kind, name)
        if number % 2:
            text = wrapped.after_a_scare(text, dice)
        if number % 3 == 2 and kind == "failures":
            text += wrapped.epilogue(dice)
        path = root / f"job{number:03d}.log"
        path.write_bytes(wrapped.WRAPS[number % len(wrapped.WRAPS)](text, dice).encode())
        found.append((word, name, path))
    found += [(word, f"ranks, {word}", _ranks(root, word, text)) for word, text in ROOTS.items()]
    found += [(word, f"torchrun, {word}", _launched(root, word, text)) for word, text in ROOTS.items()]
    random.Random(63).shuffle(found)
    return found


def _launched(root: Path, word: str, cause: str) -> Path:
    """All ranks in one file, and the launcher's words after them."""
    dice = random.Random(f"one {word}")
    guilty, code = dice.randrange(1, 8), 1
    if "Killed" in cause:
        cause, code = "", -9
    said = "".join(f"[rank{guilty}]: {line}\n" for line in cause.splitlines())
    text = wrapped.after_a_scare(said, dice) + wrapped.torchrun_tail(dice, guilty, 8, code) + wrapped.epilogue(dice)
    path = root / f"launched-{len(word)}{guilty}{ord(word[-1])}.log"
    path.write_bytes(dice.choice(wrapped.WRAPS)(text, dice).encode())
    return path


def _ranks(root: Path, word: str, cause: str) -> Path:
    dice = random.Random(word)
    folder, guilty = root / f"ranks-{word}", dice.randrange(1, 8)
    for rank in range(8):
        first = wrapped.steps(dice, 20, 4100).splitlines()
        text = "".join(f"2026-11-14 04:08:{second:02d},{rank}17 INFO {line}\n" for second, line in enumerate(first))
        text += cause if rank == guilty else wrapped.noise_of_ranks(dice, [rank])
        name = f"attempt_0/{rank}/stderr.log" if len(word) % 2 else f"node0-rank{rank}.out"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def verify(box: Box) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        hidden = _hidden(Path(folder))
        wrong: list[str] = []
        most = WRONG * len(hidden)
        for right, name, path in hidden:
            said = tool.call(box, "why", path, seconds=10).out.split()
            if said != [right]:
                wrong.append(f"{right} ({name}: {' '.join(said)[:40] or 'nothing'} was said)")
            if len(wrong) > most:
                break
    return [] if len(wrong) <= most else [f"more than {most:.0f} of {len(hidden)} logs: {'; '.join(wrong)}"]


# a table of expressions, the first that matches decides; other ranks' timeouts come last
_NAIVE = r"""#!/usr/bin/env python
import re, sys
from pathlib import Path
RULES = [
    ("gpu-fault", r"ECC error|\bXid\b|fallen off the bus"),
    ("gpu-memory", r"CUDA out of memory|CUDA error: out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED"),
    ("host-memory", r"oom.?kill|OOMKilled|\bKilled\b|MemoryError|SIGKILL|Cannot allocate memory|can't allocate memory"),
    ("disk", r"No space left|quota exceeded|Read-only file system"),
    ("stopped", r"DUE TO|TIME LIMIT|PREEMPT|SIGTERM|SIGHUP|got signal: 1"),
    ("access", r"401 Client|403 Client|gated repo|Permission denied|PermissionError|api_key|No API key"),
    ("network", r"Connection refused|Max retries|Name or service|name resolution|couldn't connect|timed out.*connect"),
    ("install", r"ModuleNotFoundError|ImportError|no kernel image|driver|undefined symbol|No CUDA GPUs|with CUDA"),
    ("checkpoint", r"state_dict|PytorchStreamReader|Weights only load|parameter group"),
    ("data", r"PIL\.|cannot identify image|image file is truncated|stack expects each tensor"),
    ("numerics", r"loss['\": =]+(nan|inf)\b|returned nan|non-finite|loss scale already at minimum|is nan"),
    ("code", r"Error: |error: "),
    ("hang", r"Watchdog caught|heartbeat"),
]
path = Path(sys.argv[1])
files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
text = "\n".join(re.sub(r"\x1b\[[0-9;]*m", "", p.read_text(errors="replace")) for p in files)
steps = [m.end() for m in re.finditer(r"(?i)(step|iter|it/s).*", text)]
for word, rule in RULES:
    hits = [m.start() for m in re.finditer(rule, text)]
    if hits and (path.is_dir() or sum(s > hits[-1] for s in steps) < 5):
        print(word)
        break
else:
    print("fine")
"""
CASE = Case(
    route="a run failed, hangs, is slow or does not learn",
    minutes=12,
    commands=30,
    reference=tool.leaving(_REFERENCE, "why"),
    naive=tool.leaving(_NAIVE, "why"),
    expected="why names what really killed each job for nearly all logs, however wrapped, and says fine to survivors.",
)
