"""Sixty claims on 240 sealed runs; a third of them have something to tell, some of them two things."""

from __future__ import annotations

import json
import random
import statistics
from typing import Any

from trials.case import Box, Case, same_names
from worlds import parts, sealed

CLAIMS = [f"c{number:02d}" for number in range(1, 61)]
TELL = {
    "c03": ["value"],
    "c28": ["value"],
    "c55": ["value"],
    "c08": ["runs"],
    "c12": ["seeds"],
    "c37": ["seeds"],
    "c15": ["split"],
    "c19": ["eval"],
    "c41": ["eval"],
    "c10": ["sealed"],
    "c22": ["sealed"],
    "c33": ["sealed"],
    "c48": ["sealed"],
    "c60": ["sealed"],
    "c25": ["selection"],
    "c44": ["selection"],
    "c30": ["code"],
    "c51": ["code"],
    "c34": ["seeds", "code"],
    "c47": ["eval", "selection"],
    "c57": ["sealed", "split"],
}
RUNS = 4
EARLY = ("c05", "c29", "c53")  # nothing to tell


def _specs(claim: str, number: int, rng: random.Random) -> list[Any]:
    confounds = parts.of_tests("confounds")
    tell, specs = TELL.get(claim, []), []
    for seed in range(2 if "runs" in tell else RUNS):
        value = round(0.7 + number * 0.004 + rng.gauss(0, 0.003), 5)
        run_id = f"20261019-{number // 6:02d}{number % 6 * 10 + seed:02d}17-{claim}-{0xA00000 + number * 16 + seed:06x}"
        spec = confounds.Spec(value, seed, {"lr": 1e-3, "method": claim, "seed": seed}, run_id=run_id)
        spec.split = "val" if "split" in tell else "test"
        peak = "selection" in tell and seed == 2
        shape = confounds.peaked(value) if peak else confounds.rising(value)
        if claim in EARLY:  # stopped by val: test was still rising there
            shape = [v + 0.3 * 0.5**4 for v in confounds.rising(value)]
            shape[4] = value
        spec.curves = {"test": confounds.curve(shape), "val": confounds.curve(confounds.rising(value - 0.002))}
        # c44 says the last step, and gives the best
        spec.step = 500 if claim in EARLY or (peak and claim != "c44") else 1000
        specs.append(spec)
    if "seeds" in tell:
        specs[3].seed = specs[1].seed
    if claim == "c19":
        specs[2].eval_set = "0" * 64
    if claim in ("c41", "c47"):
        specs[1].n = 9_990
    if claim == "c30":
        specs[0].diff = "diff --git a/model.py b/model.py\n"
    if claim in ("c51", "c34"):
        specs[3].commit = "b" * 40
    return specs


def make(box: Box) -> None:
    confounds = parts.of_tests("confounds")
    root, rng, claims, folders = box.work / "runs", random.Random(60), [], []
    order = {name: _specs(name, number, rng) for number, name in enumerate(CLAIMS)}
    for number, specs in enumerate(order.values()):
        folders += [confounds.write(root, spec, number % 60) for spec in specs]
    digests = sealed.ledger(root, folders)
    for name, specs in order.items():
        values = [spec.value for spec in specs]
        mean, spread = statistics.fmean(values), statistics.stdev(values)
        if name == "c03":
            mean += 2e-4
        if name == "c28":
            spread = statistics.pstdev(values)
        claims.append(
            {
                "id": name,
                "metric": "accuracy",
                "split": specs[0].split,
                "method": name,
                "value": mean,
                "spread": spread,
                "n": 5 if name == "c55" else len(values),
                "direction": "up",
                "evidence": [{"run_id": spec.run_id, "seal_sha256": digests[spec.run_id]} for spec in specs],
            }
        )
    random.Random(61).shuffle(claims)
    box.write("EVIDENCE.json", {"claims": claims, "aliases": {}})
    _touch(box, order)


def _touch(box: Box, order: dict[str, list[Any]]) -> None:
    """After sealing: edited, gone, added; and edited with a seal made anew, which two also entered in the ledger."""
    folders = {name: [box.work / "runs" / spec.run_id for spec in specs] for name, specs in order.items()}
    path = folders["c22"][1] / "metrics.jsonl"
    path.write_text(path.read_text().replace('"step": 300', '"step": 301', 1))
    (folders["c33"][0] / "metrics.jsonl").unlink()
    for name in ("c48", "c57"):
        path = folders[name][2] / "metrics.jsonl"
        path.write_text(path.read_text().replace("0.", "0.0", 1))
        sealed.seal(folders[name][2])
    path = folders["c60"][3] / "run.json"
    path.write_text(path.read_text().replace('"cpus": 8', '"cpus": 16'))
    sealed.seal(folders["c60"][3])
    (folders["c10"][1] / "metrics.old.jsonl").write_text("")
    with (box.work / "runs" / "SEALS.jsonl").open("a") as file:
        for folder in (folders["c48"][2], folders["c60"][3]):
            row = {"run_id": folder.name, "seal_sha256": sealed.sha256(folder / "seal.json"), "time": 1793400000}
            file.write(json.dumps(row) + "\n")


def verify(box: Box) -> list[str]:
    given = [f"{name} {word}" for name, words in box.read("tell.json").items() for word in words]
    return same_names("told", given, [f"{name} {word}" for name, words in TELL.items() for word in words])


def reference(box: Box) -> None:
    gate = box.script("render.py", "gate")["claims"]
    checked = box.script("manifest_scaffold.py", "claim", "check")["findings"]
    tell: dict[str, set[str]] = {}
    for claim in gate:
        for item in claim["checks"]:
            if item["state"] == "disclose":
                tell.setdefault(claim["id"], set()).add({"eval set": "eval"}.get(item["check"], item["check"]))
    for finding in checked:
        if finding["code"] == "drift":
            tell.setdefault(finding["where"], set()).add("value")
    box.write("tell.json", {name: sorted(words) for name, words in tell.items()})


def naive(box: Box) -> None:
    """A script for each word as it reads; the seals against the files."""
    tell: dict[str, list[str]] = {}
    for claim in json.loads((box.work / "EVIDENCE.json").read_text())["claims"]:
        folders = [box.work / "runs" / item["run_id"] for item in claim["evidence"]]
        records = [json.loads((folder / "run.json").read_text()) for folder in folders]
        rows = [json.loads((folder / "results.json").read_text())["metrics"][0] for folder in folders]
        seals = [json.loads((folder / "seal.json").read_text())["files"] for folder in folders]
        values = [row["value"] for row in rows]
        wrong = {
            "value": abs(statistics.fmean(values) - claim["value"]) > 1e-9 or claim["n"] != len(values),
            "runs": len(values) < 3,
            "seeds": len({str(record["seeds"]) for record in records}) < len(records),
            "split": claim["split"] != "test",
            "eval": len({row["eval_set_sha256"] for row in rows}) > 1,
            "sealed": any(
                not (folder / name).exists() or sealed.sha256(folder / name) != digest
                for folder, files in zip(folders, seals, strict=True)
                for name, digest in files.items()
            ),
            "selection": any(row["step"] != 1000 for row in rows),
            "code": len({record["git"]["commit"] for record in records}) > 1,
        }
        if any(wrong.values()):
            tell[claim["id"]] = [word for word, bad in wrong.items() if bad]
    box.write("tell.json", tell)


CASE = Case(
    route="a number goes into a paper, slide or README",
    reads=("references/delivering/principles.md",),
    minutes=5,
    commands=8,
    expected="tell.json says for twenty-one of the sixty numbers exactly what must be disclosed.",
)
