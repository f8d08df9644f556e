"""Stopped pods that the plain list hides, delete that asks nothing, pulls that are incomplete or damaged."""

from __future__ import annotations

from trials.case import Box, Case, same_names
from worlds import clouds, weights

PODS = [f"oct-{letter}" for letter in "abcdefghijkl"]
STOPPED = {"oct-b", "oct-e", "oct-f", "oct-h", "oct-k", "oct-l"}
LEFT = ["oct-d", "oct-e", "oct-g", "oct-k"]  # incomplete, flipped, never pulled, cut
OTHERS = [{"id": "zz91", "name": "prod-api"}, {"id": "zz92", "name": "nov-a", "desiredStatus": "EXITED"}]


def make(box: Box) -> None:
    pods = [
        {
            "id": f"p{number:02d}x7",
            "name": name,
            "desiredStatus": "EXITED" if name in STOPPED else "RUNNING",
            "volumeInGb": 80,
        }
        for number, name in enumerate(PODS)
    ]
    clouds.runpodctl(box, [*pods, *OTHERS])
    for number, name in enumerate(PODS):
        if name != "oct-g":
            for part, letter in enumerate("abc"):
                weights.torch_file(box.work / "pulled" / name / f"{letter}.pt", 40 * number + part, 100 * (part + 1))
    (box.work / "pulled/oct-d/b.pt").unlink()
    for name, path in (("oct-e", "c.pt"), ("oct-k", "a.pt")):
        file = box.work / "pulled" / name / path
        data = bytearray(file.read_bytes())
        if name == "oct-e":
            data[len(data) // 2] ^= 0x08
        file.write_bytes(data if name == "oct-e" else data[:-3000])


def verify(box: Box) -> list[str]:
    names = [pod["name"] for pod in clouds.left(box, "runpodctl")["pods"].values()]
    problems = same_names("pods that are left", names, [*LEFT, "prod-api", "nov-a"])
    return problems + same_names("left.json", box.read("left.json", list), LEFT)


def reference(box: Box) -> None:
    import json

    pods = json.loads(box.run("runpodctl", "pod", "list", "--all").stdout)
    left = []
    for pod in sorted(pods, key=lambda pod: str(pod["name"])):
        if not pod["name"].startswith("oct-"):
            continue
        folder = f"pulled/{pod['name']}"
        good = (box.work / folder).is_dir() and box.script("verify_local.py", folder, "--expect-count", "3")["ok"]
        if good:
            box.run("runpodctl", "pod", "delete", pod["id"])
        else:
            left.append(pod["name"])
    box.write("left.json", left)


def naive(box: Box) -> None:
    """The plain list, and a folder with three files is a copy."""
    import json

    pods = json.loads(box.run("runpodctl", "pod", "list").stdout)
    left = []
    for pod in pods:
        if pod["name"].startswith("oct-"):
            if len(list((box.work / "pulled" / pod["name"]).glob("*.pt"))) == 3:
                box.run("runpodctl", "pod", "delete", pod["id"])
            else:
                left.append(pod["name"])
    box.write("left.json", left)


CASE = Case(
    route="a rented or remote box, from nothing to switched off",
    reads=("profiles/runpod.md",),
    minutes=8,
    commands=25,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    held_out=True,
    expected="Eight October pods are gone, stopped ones included; the four without a good copy and the others stay.",
)
