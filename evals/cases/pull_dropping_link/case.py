"""Forty megabytes through a link that carries three at a time, from a box without rsync; three files are bad there."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from trials.case import Box, Case, Missing, same_names
from worlds import link

LIMIT = 3_300_000
STEPS = range(100, 1300, 100)
LOGS = 160
CUT, NAN, ZERO = "step_0300", "step_0700", "step_1100"
BAD = [f"checkpoints/{name}.safetensors" for name in (CUT, NAN, ZERO)]
BIG = 9_000_000  # bytes of the one that never comes through in one piece
FINAL = "checkpoints/final.safetensors"


def _weights(path: Path, seed: int, size: int) -> None:
    from safetensors.numpy import save_file

    noise = np.random.default_rng(seed)
    rows = size // 4 // 4 // 256
    tensors = {f"layers.{n}.weight": noise.standard_normal((rows, 256), dtype=np.float32) * 0.02 for n in range(4)}
    if path.stem == NAN:
        tensors["layers.2.weight"][7, 3] = np.nan
    if path.stem == ZERO:
        tensors["layers.1.weight"][:] = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, str(path), {"format": "pt"})


def make(box: Box) -> None:
    home = link.put_up(box.world, LIMIT)
    exp = home / "exp"
    for step in STEPS:
        _weights(exp / "checkpoints" / f"step_{step:04d}.safetensors", step, 1_500_000)
    cut = exp / "checkpoints" / f"{CUT}.safetensors"
    cut.write_bytes(cut.read_bytes()[:1_000_000])
    _weights(home / "keep" / "final.safetensors", 5, BIG)
    (exp / FINAL).symlink_to("../../keep/final.safetensors")
    (exp / "best.safetensors").symlink_to("checkpoints/step_0900.safetensors")
    _weights(exp / "ema" / "ema last.safetensors", 6, BIG)
    for number in range(LOGS):
        name = f"logs/rank {number:03d}.log" if number % 9 else f"logs/ränk-{number:03d}.log"
        path = exp / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"step {step} loss {2 - step / 700:.4f}\n" for step in range(number, number + 60)))
    (exp / "logs" / "empty.log").touch()


def _wanted(box: Box) -> dict[str, Path]:
    exp = box.world / "box" / "exp"
    return {str(path.relative_to(exp)): path for path in sorted(exp.rglob("*")) if path.is_file()}


def verify(box: Box) -> list[str]:
    pulled, problems = box.work / "pulled", []
    if not pulled.is_dir():
        raise Missing("pulled/ is not there")
    wanted = _wanted(box)
    lacking = [name for name in wanted if not (pulled / name).is_file()]
    outside = [name for name in wanted if not (pulled / name).resolve().is_relative_to(pulled.resolve())]
    other = [
        name
        for name, path in wanted.items()
        if name not in lacking and (pulled / name).read_bytes() != path.read_bytes()
    ]
    for what, names in (("are missing", lacking), ("lead out of pulled/", outside), ("differ from the box", other)):
        if names:
            problems.append(f"{len(names)} of {len(wanted)} files {what}, such as {names[0]}")
    size = sum(path.stat().st_size for path in set(map(Path.resolve, wanted.values())))
    if not problems and link.carried(box.world) < 0.9 * size:
        problems.append("the files did not come through the link")
    return problems + same_names(
        "unusable", (str(n).removeprefix("pulled/") for n in box.read("unusable.json", list)), BAD
    )


def reference(box: Box) -> None:
    box.script("transfer.py", "pull", "box:exp", "pulled", "--exclude", FINAL)
    box.script("transfer.py", "pull", "box:keep", "keep")
    shutil.copy(box.work / "keep/final.safetensors", box.work / "pulled" / FINAL)
    report = box.script("verify_local.py", "pulled")
    bad = {finding["path"] for finding in report["findings"] if finding["severity"] == "error"}
    box.write("unusable.json", sorted({name.removeprefix("pulled/") for name in bad if name.endswith(".safetensors")}))


def naive(box: Box) -> None:
    """A stream of all, begun anew after each drop; whatever loads is good."""
    import subprocess

    (box.work / "pulled").mkdir()
    for _ in range(3):
        words = "ssh -o ServerAliveInterval=5 box 'cd exp && tar cf - .' | tar xf - -C pulled"
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", words], cwd=box.work, env=box.env, stderr=subprocess.DEVNULL
        )
        if not done.returncode:
            break
    box.write("unusable.json", BAD[:1])


CASE = Case(
    route="pull results, push code, stop the meter; ssh, rsync or scp trouble",
    reads=("references/run-remote/ssh_transport.md",),
    minutes=5,
    commands=10,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    expected="pulled/ is ~/exp byte for byte with what its links lead to; three checkpoints are named as unusable.",
)
