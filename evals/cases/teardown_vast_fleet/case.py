"""A fleet to switch off: destroy asks (a closed stdin is a no that exits 0), volumes bill on, four pulls are broken."""

from __future__ import annotations

from trials.case import Box, Case, same_names
from worlds import clouds, weights

LABELS = [f"exp-{number:02d}" for number in range(1, 25)]
BROKEN = ["exp-05", "exp-11", "exp-18", "exp-22"]
IDS = {label: 33000 + 7 * number for number, label in enumerate(LABELS)}
VOLUMES = [
    {"id": 901, "instance": IDS["exp-03"]},
    {"id": 902, "instance": IDS["exp-11"]},
    {"id": 903, "instance": IDS["exp-20"]},
    {"id": 904, "instance": 41000},
]


def make(box: Box) -> None:
    others = [{"id": 41000, "label": "infer-prod"}, {"id": 41007, "label": "exp-old"}]
    clouds.vastai(box, [{"id": IDS[label], "label": label} for label in LABELS] + others, VOLUMES)
    changes = {
        "exp-05": weights.set_nan("layers.0.attn.qkv.weight"),
        "exp-22": weights.set_to("layers.3.mlp.up.weight", 0.0),
    }
    for seed, label in enumerate(LABELS):
        weights.sharded(box.work / "pulled" / label, 200 + seed, changes.get(label))
    weights.swap_shards(box.work / "pulled" / "exp-11", 2, 3)
    shard = box.work / "pulled" / "exp-18" / "model-00002-of-00003.safetensors"
    shard.write_bytes(shard.read_bytes()[:-4096])


def verify(box: Box) -> list[str]:
    left = clouds.left(box, "vastai")
    labels = [instance["label"] for instance in left["instances"].values()]
    problems = same_names("instances that are up", labels, [*BROKEN, "infer-prod", "exp-old"])
    problems += same_names("volumes that bill", left["volumes"], ["902", "904"])
    return problems + same_names("kept.json", box.read("kept.json", list), BROKEN)


def reference(box: Box) -> None:
    report = box.script("verify_local.py", *(f"pulled/{label}" for label in LABELS))
    kept = sorted({finding["path"].split("/")[1] for finding in report["findings"] if finding["severity"] == "error"})
    for label in sorted(set(LABELS) - set(kept)):
        box.run("vastai", "destroy", "instance", str(IDS[label]), "-y")
        for volume in VOLUMES:
            if volume["instance"] == IDS[label]:
                box.run("vastai", "delete", "volume", str(volume["id"]))
    box.write("kept.json", kept)


def naive(box: Box) -> None:
    """Trusts exit codes and file sizes."""
    kept = []
    for label in LABELS:
        if all(shard.stat().st_size > 10_000 for shard in (box.work / "pulled" / label).glob("*.safetensors")):
            box.run("vastai", "destroy", "instance", str(IDS[label]))
        else:
            kept.append(label)
    box.write("kept.json", kept)


CASE = Case(
    route="a rented or remote box, from nothing to switched off",
    reads=("profiles/vastai.md",),
    minutes=10,
    commands=30,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    expected="Twenty boxes and their two volumes are gone; the four with a broken pull and the others stay.",
)
