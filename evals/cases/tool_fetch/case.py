"""A copier for awful lines, judged on boxes that the agent has not seen: kills, rot, races, names, bad files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from trials.case import Box, Case, Missing
from worlds import link, scenes, tool

LIMIT = 1_500_000  # bytes that a connection lives for
NAMES = ["-rf", "--help", "two\nlines", "quo'te\"s", "$(touch x)", "*", "ünïcode 训练", "~", "a:b", "\\back", " lead"]
OVERLOOKED, SLANDERED = 2, 1  # of the damaged and of the sound
_REFERENCE = """#!/usr/bin/env python
import json, os, subprocess, sys
place, local = sys.argv[1:]
words = [sys.executable, '{scripts}/transfer.py', "pull", place, local, "--patience", "30s", "--json"]
for _ in range(2):  # a copy that rotted here is removed by one call, and fetched by the next
    done = subprocess.run(words, stdout=subprocess.PIPE)
    if done.returncode != 1:
        break
try:
    findings = json.loads(done.stdout)["findings"]
except ValueError:
    findings = []
bad = {row["path"] for row in findings if row["severity"] == "error" and row.get("path")}
for path in sorted(bad):
    print(os.path.relpath(path, local) if os.path.lexists(path) else path)
sys.exit(done.returncode)
"""


def make(box: Box) -> None:
    scenes.sample(link.put_up(box.world, 3_000_000) / "exp")


def verify(box: Box) -> list[str]:
    if not os.access(box.work / "fetch", os.X_OK):
        raise Missing("fetch is not there, or cannot be executed")
    problems: list[str] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for play in (_not_all, _killed_then_rotten, _written_meanwhile, _at_once, _damage):
            problems += [f"{play.__name__[1:]}: {what}" for what in play(box, Path(folder) / play.__name__)]
            if len(problems) > 1:
                break
    return problems


def _not_all(box: Box, root: Path) -> Iterator[str]:
    """No such folder, then a link that leads out of it."""
    with scenes.scene(box, root, banner=True) as scene:
        if scene.call("box:no such folder").code == 0:
            yield "a folder that is not there was fetched with exit code 0"
        kept = scenes.weights(scene.there.parent / "keep" / "final.safetensors", 7, 40_000)
        scenes.weights(scene.there / "step_1.safetensors", 1, 40_000)
        (scene.there / "best.safetensors").symlink_to("step_1.safetensors")
        (scene.there / "final.safetensors").symlink_to(kept)
        if scene.call().code == 0:
            yield "a link leads out of the folder, and the exit code is 0"
        if set(scene.other()) & {"step_1.safetensors"}:
            yield "a link leads out of the folder, and the rest was not fetched"


def _damage(box: Box, root: Path) -> Iterator[str]:
    with scenes.scene(box, root, banner=True) as scene:
        runs = scenes.menagerie(scene.there)
        answer = scene.call()
        named = {line.strip().removeprefix("./").split("/")[0] for line in answer.out.splitlines() if line.strip()}
        missed, wronged = (
            [n for n in kind if (runs[n] in named) == bad]
            for kind, bad in ((scenes.DAMAGED, False), (scenes.SOUND, True))
        )
        if answer.code == 0:
            yield "damaged checkpoints, and the exit code is 0"
        if others := scene.other():
            yield f"{len(others)} files are not here as they are there"
        if len(missed) > OVERLOOKED:
            yield f"{len(missed)} of {len(scenes.DAMAGED)} damaged ones are not named, such as {missed[0]}"
        if len(wronged) > SLANDERED:
            yield f"{len(wronged)} of {len(scenes.SOUND)} sound ones are called damaged, such as {wronged[0]}"


def _killed_then_rotten(box: Box, root: Path) -> Iterator[str]:
    """kill -9 half way, again, then rot here and one new file there."""
    with scenes.scene(box, root, LIMIT) as scene:
        big = scenes.weights(scene.there / "ema last" / "ema.safetensors", 3, 4_000_000)
        for number, name in enumerate(NAMES * 6):
            path = scene.there / f"log {number // len(NAMES)}" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{number} " * 50)
        size = sum(path.stat().st_size for path in scene.there.rglob("*") if path.is_file())
        running = scene.start()
        scene.when(2_200_000, running, lambda: scenes.kill(running))
        if half := scene.half():
            yield f"killed half way, and {half[0]!r} has its final name without its content"
        yield from scene.whole("called again after a kill")
        if scene.carried > 1.7 * size + 600_000:
            yield f"{scene.carried / size:.1f} times the bytes came over the line"
        before, mine = scene.carried, scene.here / big.relative_to(scene.there)
        if mine.is_file():
            scenes.rot(mine)
        scenes.weights(scene.there / "new.safetensors", 4, 300_000)
        yield from scene.whole("a copy had rotted here")
        if scene.carried - before > 1.7 * (size + 300_000) + 600_000:
            yield "too many bytes for one rotten copy"


def _written_meanwhile(box: Box, root: Path) -> Iterator[str]:
    """While a large file comes, a log grows and a checkpoint is replaced by one of the same size."""
    with scenes.scene(box, root, LIMIT) as scene:
        scenes.weights(scene.there / "m" / "big.safetensors", 1, 3_000_000)
        first, last = (scenes.weights(scene.there / name / "last.safetensors", 2, 200_000) for name in ("a", "z"))
        log = scene.there / "a" / "train.log"
        log.write_text("step 1\n")

        def train() -> None:
            for path, seed in ((first, 5), (last, 6)):
                new = scenes.weights(scene.world / "new.safetensors", seed, 200_000)
                os.replace(new, path)
            with log.open("a") as file:
                file.write("step 2\n")

        code = scene.when(800_000, scene.start(), train)
        if code == 0 and (others := scene.other()):
            yield f"exit code 0, and {others[0]} is the old one or a mixture"
        elif code != 0:
            yield from scene.whole("called again after files had changed")


def _at_once(box: Box, root: Path) -> Iterator[str]:
    with scenes.scene(box, root, LIMIT, banner=True) as scene:
        for step in (1, 2):
            scenes.weights(scene.there / f"step {step}.safetensors", step, 1_200_000)
        calls = [scene.start(), scene.start()]
        codes = [scenes.ended(call) for call in calls]
        if 0 in codes and scene.other():
            yield "two calls at once, exit code 0, and something is not here"
        elif 0 not in codes:
            yield from scene.whole("called again after two at once")


# sizes, an offset to go on from, and a load at the end
_NAIVE = """#!/usr/bin/env python
import os, shlex, subprocess, sys
from pathlib import Path
import numpy as np
from safetensors.numpy import load_file
host, folder = sys.argv[1].split(":", 1)
local = Path(sys.argv[2])
def ssh(command):
    words = ["ssh", "-o", "ServerAliveInterval=5", host, "echo @@; cd " + shlex.quote(folder) + " && " + command]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    return done.returncode, done.stdout.partition(b"@@\\n")[2]
code, listing = ssh("find . -type f -printf '%s %P\\\\0'")
if code:
    sys.exit(1)
for row in listing.decode().split("\\0")[:-1]:
    size, name = row.split(" ", 1)
    target = local / name
    part = target.with_name("." + target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(50):
        if target.exists() and target.stat().st_size == int(size):
            break
        have = part.stat().st_size if part.exists() else 0
        with open(part, "ab") as file:
            file.write(ssh(f"tail -c +{have + 1} ./{shlex.quote(name)}")[1])
        if part.stat().st_size >= int(size):
            os.replace(part, target)
bad = []
for path in local.rglob("*.*"):
    try:
        found = {}
        if path.suffix == ".safetensors":
            found = load_file(path)
        elif path.suffix in (".pt", ".bin", ".ckpt"):
            import torch
            torch.load(path, weights_only=True, map_location="cpu")
        if not all(np.isfinite(value).all() for value in found.values()):
            bad.append(path)
    except Exception:
        bad.append(path)
for path in bad:
    print(path.relative_to(local))
sys.exit(1 if bad else 0)
"""
CASE = Case(
    route="pull results, push code, stop the meter; ssh, rsync or scp trouble",
    reads=("references/run-remote/ssh_transport.md",),
    minutes=14,
    commands=30,
    reference=tool.leaving(_REFERENCE, "fetch"),
    naive=tool.leaving(_NAIVE, "fetch"),
    expected="fetch says 0 only when all is here and intact, goes on after drops and kills, and names damaged files.",
)
