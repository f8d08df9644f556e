"""A bot's switch for rented boxes, judged on boxes it has not seen; one destroyed without its results is the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from trials.case import Box, Case, Missing
from worlds import clouds, link, parts, scenes, tool, weights

LIMIT = 1_500_000
ID, NEIGHBOURS = {"vast": "33007", "runpod": "k3x9pod"}, {"vast": ["3300", "33008"], "runpod": ["k3x9", "k3x9pod2"]}
CLIENT, VARIABLE = {"vast": "vastai", "runpod": "runpodctl"}, {"vast": "CONTAINER_ID", "runpod": "RUNPOD_POD_ID"}
DAMAGED = ["torch_one_bit_flipped", "nan_in_one_moment", "shard_lost_a_tensor"]
_REFERENCE = """#!/usr/bin/env python
import json, subprocess, sys
provider, box, place, local = sys.argv[1:]
scripts = '{scripts}'
transfer = [sys.executable, f'{scripts}/transfer.py']
if subprocess.run([*transfer, "pull", place, local, "--patience", "25s"], stdout=subprocess.DEVNULL).returncode:
    sys.exit(4)
profile, variable = {"vast": ("vastai", "CONTAINER_ID"), "runpod": ("runpod", "RUNPOD_POD_ID")}[provider]
facts = open(f"{scripts}/../profiles/{profile}.md").read()  # here the box is a folder: of its disks only the home ends
profile = f"{local}-{profile}.md"
open(profile, "w").write(facts.replace("kind: rented", "kind: scheduler", 1).replace("path: /,", 'path: "~",', 1))
words = ["down", local, "--profile", profile, "--id", box, "--id-env", variable, "--json"]
page = subprocess.run([*transfer, *words], stdout=subprocess.PIPE).stdout
notes = json.loads(page or b"{}").get("notes") or [""]  # who calls this switch is the user, and approves by calling it
phrase = notes[-1].partition('"')[2].rstrip('"')
sys.exit(subprocess.run([*transfer, *words, "--approve", phrase, "--execute"], stdout=subprocess.DEVNULL).returncode)
"""


def make(box: Box) -> None:
    home = link.put_up(box.world, LIMIT)
    (home / ".environment").write_text(json.dumps({"CONTAINER_ID": ID["vast"]}))
    weights.torch_file(home / "exp" / "demo" / "step_100.pt", 1, 100)
    (home / "exp" / "demo" / "train.log").write_text("step 100 loss 1.9\n")
    _rent(box)


def _rent(box: Box) -> None:
    clouds.vastai(box, [{"id": int(name), "label": "exp"} for name in (ID["vast"], *NEIGHBOURS["vast"])])
    clouds.runpodctl(box, [{"id": name, "name": "exp"} for name in (ID["runpod"], *NEIGHBOURS["runpod"])])


class Trial:
    """A box with sound results, and what is there and here after a call."""

    def __init__(self, scene: scenes.Scene, provider: str) -> None:
        self.scene, self.provider = scene, provider
        _rent(scene)
        self.says(ID[provider])
        weights.torch_file(scene.there / "step_100.pt", 1, 100)
        (scene.there / "train.log").write_text("step 100 loss 1.9\n")

    def says(self, name: str) -> None:
        (self.scene.there.parent / ".environment").write_text(json.dumps({VARIABLE[self.provider]: name}))

    def client(self, words: str) -> None:
        """The provider's command line does something else for words that begin so."""
        path = self.scene.world / "bin" / CLIENT[self.provider]
        (path.parent / "real").mkdir()
        real = path.rename(path.parent / "real" / path.name)
        real.write_text(real.read_text().replace("parent.parent /", "parent.parent.parent /"))
        path.write_text(f'#!/bin/sh\ncase "$*" in {words} esac\nexec "{real}" "$@"\n')
        path.chmod(0o755)

    def call(self) -> int | None:
        scene = self.scene
        return tool.call(scene, "off", self.provider, ID[self.provider], "box:exp", scene.here, seconds=90).code

    @property
    def left(self) -> set[str]:
        data = clouds.left(self.scene, CLIENT[self.provider])
        return set(data["instances" if self.provider == "vast" else "pods"])

    def wrong(self, code: int | None, wanted: str) -> str:
        """What is wrong when the box should be gone (0), left alone (4), or nobody can tell (?)."""
        here, there = not self.scene.other(), ID[self.provider] in self.left
        if set(NEIGHBOURS[self.provider]) - self.left:
            return "ANOTHER BOX WAS DESTROYED"
        if not there and (wanted == "4" or not here):
            return "THE BOX WAS DESTROYED, and its results are not here and intact"
        if wanted == "0" and (code != 0 or there):
            return f"exit code {code}, box {'there' if there else 'gone'}; it should be gone, with 0"
        if wanted == "4" and code != 4:
            return f"exit code {code}; it is 4 when the box is left alone"
        return "exit code 0, and nothing shows that the box is gone" if wanted == "?" and code == 0 else ""


def _goes(trial: Trial) -> str:
    """Over a bad line, with a file that no connection carries whole."""
    scenes.weights(trial.scene.there / "ema last" / "ema.safetensors", 3, 2_500_000)
    return trial.wrong(trial.call(), "0")


def _writes_then_ends(trial: Trial) -> str:
    code = "import sys; f = open(sys.argv[1], 'a'); print(1, flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", code, str(trial.scene.there / "train.log")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as training:
        assert training.stdout
        training.stdout.readline()
        first = trial.wrong(trial.call(), "4")
    weights.torch_file(trial.scene.there / "step_200.pt", 2, 200)
    return first or trial.wrong(trial.call(), "0")


def _damaged(trial: Trial, name: str) -> str:
    place = trial.scene.there / "last"
    place.mkdir()
    getattr(parts.of_tests("tests.corruption"), name)(place)
    return trial.wrong(trial.call(), "4")


def _link_out(trial: Trial) -> str:
    kept = weights.torch_file(trial.scene.there.parent / "scratch" / "final.pt", 4, 900)
    (trial.scene.there / "final.pt").symlink_to(kept)
    return trial.wrong(trial.call(), "4")


def _other_box(trial: Trial) -> str:
    trial.says(NEIGHBOURS[trial.provider][0])
    return trial.wrong(trial.call(), "4")


def _no_line(trial: Trial) -> str:
    (trial.scene.world / "bin" / "ssh").write_text(
        "#!/bin/sh\necho 'ssh: connect to host box: refused' >&2\nexit 255\n"
    )
    return trial.wrong(trial.call(), "4")


def _client(words: str) -> Callable[[Trial], str]:
    def play(trial: Trial) -> str:
        trial.client(words)
        return trial.wrong(trial.call(), "?")

    return play


def _plays() -> list[tuple[str, str, int, Callable[[Trial], str]]]:
    """(what, provider, how much a connection carries, play)"""
    rows: list[tuple[str, str, int, Callable[[Trial], str]]] = [
        ("the box is another one", "vast", scenes.WIDE, _other_box),
        ("the provider says ok and does nothing", "vast", scenes.WIDE, _client("destroy*) echo destroying.; exit 0;;")),
        ("a link leads out", "vast", scenes.WIDE, _link_out),
        ("sound, bad line", "vast", LIMIT, _goes),
        ("still written, then over", "runpod", scenes.WIDE, _writes_then_ends),
        ("the list fails", "runpod", scenes.WIDE, _client("*list*|*get*) echo 502 >&2; exit 1;;")),
        ("no connection", "runpod", scenes.WIDE, _no_line),
    ]
    for name in DAMAGED:
        rows.append((name, "runpod", scenes.WIDE, lambda trial, name=name: _damaged(trial, name)))  # type: ignore[misc]
    return rows


def verify(box: Box) -> list[str]:
    if not os.access(box.work / "off", os.X_OK):
        raise Missing("off is not there, or cannot be executed")
    problems: list[str] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for number, (what, provider, limit, play) in enumerate(_plays()):
            with scenes.scene(box, Path(folder) / str(number), limit) as scene:
                problem = play(Trial(scene, provider))
            if problem:
                problems.append(f"{what}: {problem}")
            if len(problems) > 1 or "DESTROYED" in problem:
                break
    return problems


# a stream, begun anew after a drop; a load of all; the id is compared, the provider's exit code is believed
_NAIVE = """#!/bin/bash
mkdir -p "$4"
host=${3%%:*} dir=${3#*:}
for try in 1 2 3 4 5; do
  ssh -o ServerAliveInterval=5 "$host" "tar -C '$dir' -chf - ." | tar -C "$4" -xf - && ok=1 && break
done
[ "$ok" ] || exit 4
id=$(ssh "$host" 'echo $CONTAINER_ID$RUNPOD_POD_ID')
[ "$id" = "$2" ] || exit 4
python - "$4" <<'E' || exit 4
import sys, torch
from pathlib import Path
for path in Path(sys.argv[1]).rglob("*.pt"):
    torch.load(path, map_location="cpu", weights_only=True)
E
case $1 in vast) vastai destroy instance "$2" -y ;; runpod) runpodctl pod delete "$2" ;; esac
"""
CASE = Case(
    route="pull results, push code, stop the meter; ssh, rsync or scp trouble",
    reads=("references/run-remote/ssh_transport.md", "profiles/vastai.md", "profiles/runpod.md"),
    minutes=4,
    commands=30,
    reference=tool.leaving(_REFERENCE, "off"),
    naive=tool.leaving(_NAIVE, "off"),
    expected="off destroys only what is here and intact, says 4 when it left a box alone, and 0 only when it is gone.",
)
