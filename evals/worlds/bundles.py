"""Delivery folders: sealed runs, claims that are computed from them, and documents that quote the claims."""

from __future__ import annotations

import json
import random
import shutil
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worlds import parts, sealed

METHODS, SEEDS = ("ours", "base", "mixed"), 4


@dataclass
class Bundle:
    root: Path
    specs: dict[str, list[Any]]  # of the runs, by method
    claims: list[dict[str, Any]]

    def run(self, method: str, number: int) -> Path:
        return self.root / "runs" / str(self.specs[method][number].run_id)

    def claim(self, method: str) -> dict[str, Any]:
        return next(claim for claim in self.claims if claim["method"] == method)

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.root / name
        text = path.read_text(encoding="utf-8")
        assert old in text, (name, old)
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    def save_claims(self) -> None:
        (self.root / "EVIDENCE.json").write_text(json.dumps({"claims": self.claims, "aliases": {}}, indent=1) + "\n")


Before = Callable[[dict[str, list[Any]]], None]
After = Callable[[Bundle], None]


def build(root: Path, seed: int, before: Before | None = None, after: After | None = None) -> Bundle:
    """`before` the runs are written and sealed something happens to them, `after` it to anything."""
    confounds = parts.of_tests("confounds")
    rng = random.Random(seed)
    specs = {method: _specs(confounds, method, rank, seed, rng) for rank, method in enumerate(METHODS)}
    if before:
        before(specs)
    every = [spec for some in specs.values() for spec in some]
    digests = sealed.ledger(root / "runs", [confounds.write(root / "runs", s, n) for n, s in enumerate(every)])
    bundle = Bundle(root, specs, [_claim(method, some, digests) for method, some in specs.items()])
    bundle.save_claims()
    _documents(bundle)
    if after:
        after(bundle)
    return bundle


def _specs(confounds: Any, method: str, rank: int, seed: int, rng: random.Random) -> list[Any]:
    specs = []
    for number in range(SEEDS):
        value = round(0.72 + 0.03 * rank + 0.001 * (seed % 40) + rng.gauss(0, 0.004), 5)
        run_id = (
            f"20261019-{seed % 24:02d}{rank:02d}{number:02d}-{method}-{0xA00000 + seed * 64 + rank * 8 + number:06x}"
        )
        spec = confounds.Spec(value, number, {"lr": 1e-3, "method": method, "seed": number}, run_id=run_id)
        rising = confounds.rising
        spec.curves = {"test": confounds.curve(rising(value)), "val": confounds.curve(rising(value - 0.002))}
        spec.step, spec.split = 1000, "test"
        specs.append(spec)
    return specs


def _claim(method: str, specs: list[Any], digests: dict[str, str]) -> dict[str, Any]:
    values = [spec.value for spec in specs]
    return {
        "id": f"acc-{method}", "metric": "accuracy", "split": specs[0].split, "method": method,
        "value": statistics.fmean(values), "spread": statistics.stdev(values), "n": len(values), "direction": "up",
        "evidence": [{"run_id": spec.run_id, "seal_sha256": digests[spec.run_id]} for spec in specs],
    }  # fmt: skip


def percent(claim: dict[str, Any]) -> str:
    return f"{100 * claim['value']:.1f}"


def _documents(bundle: Bundle) -> None:
    lines, rows = ["# Results", ""], []
    for claim in bundle.claims:
        shown = f"{percent(claim)} ± {100 * claim['spread']:.1f} %"
        lines.append(f"- {claim['method']} has an accuracy of {shown} <!-- claim:{claim['id']} -->")
        rows.append(rf"{claim['method']} & {claim['value']:.3f}\claim{{{claim['id']}}} \\")
    (bundle.root / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    table = "\n".join([r"\begin{tabular}{lr}", r"method & accuracy \\", *rows, r"\end{tabular}"])
    (bundle.root / "paper.tex").write_text(table + "\n", encoding="utf-8")


# -- what happened to the runs before they were sealed


def seed_twice(specs: dict[str, list[Any]]) -> None:
    specs["ours"][3].seed = specs["ours"][1].seed


def other_eval_set(specs: dict[str, list[Any]]) -> None:
    specs["base"][2].eval_set = "0" * 64


def fewer_examples(specs: dict[str, list[Any]]) -> None:
    specs["mixed"][1].n = 9_990


def uncommitted(specs: dict[str, list[Any]]) -> None:
    specs["ours"][0].diff = "diff --git a/model.py b/model.py\n"


def other_commit(specs: dict[str, list[Any]]) -> None:
    specs["mixed"][3].commit = "b" * 40


def validation(specs: dict[str, list[Any]]) -> None:
    for spec in specs["ours"]:
        spec.split = "val"


def two_runs(specs: dict[str, list[Any]]) -> None:
    del specs["base"][2:]


def best_on_test(specs: dict[str, list[Any]]) -> None:
    confounds = parts.of_tests("confounds")
    for spec in specs["ours"][1:3]:
        spec.curves["test"] = confounds.curve(confounds.peaked(spec.value))
        spec.step = 500


def other_cards(specs: dict[str, list[Any]]) -> None:
    for spec in specs["base"]:
        spec.devices = ["NVIDIA L4"]


# -- and after


def stale_readme(bundle: Bundle) -> None:
    claim = bundle.claim("mixed")
    bundle.edit("README.md", percent(claim), f"{100 * claim['value'] + 0.4:.1f}")


def stale_spread(bundle: Bundle) -> None:
    bundle.edit("README.md", f"± {100 * bundle.claim('base')['spread']:.1f}", "± 1.9")


def stale_table(bundle: Bundle) -> None:
    claim = bundle.claim("base")
    bundle.edit("paper.tex", f"{claim['value']:.3f}", f"{claim['value'] + 0.006:.3f}")


def typed_value(bundle: Bundle) -> None:
    """Evidence and documents agree with each other, not with the runs."""
    bundle.claim("ours")["value"] += 0.011
    bundle.save_claims()
    _documents(bundle)


def population_spread(bundle: Bundle) -> None:
    claim = bundle.claim("ours")
    claim["spread"] *= (3 / 4) ** 0.5
    bundle.save_claims()
    _documents(bundle)


def wrong_count(bundle: Bundle) -> None:
    bundle.claim("base")["n"] = 5
    bundle.save_claims()


def edited_run(bundle: Bundle) -> None:
    path = bundle.run("mixed", 2) / "metrics.jsonl"
    path.write_text(path.read_text().replace('"step": 300', '"step": 301', 1))


def sealed_again(bundle: Bundle) -> None:
    """An edit, and the seal made to fit; the ledger still knows the first one."""
    edited_run(bundle)
    sealed.seal(bundle.run("mixed", 2))


def run_gone(bundle: Bundle) -> None:
    shutil.rmtree(bundle.run("base", 1))


def more_digits(bundle: Bundle) -> None:
    claim = bundle.claim("ours")
    bundle.edit("README.md", f"{percent(claim)} ±", f"{100 * claim['value']:.2f} ±")
    with (bundle.root / "README.md").open("a", encoding="utf-8") as file:
        file.write("\nThe learning rate was 0.001 with 4 seeds each; see also 5 ablations from 2024.\n")


KINDS: dict[str, tuple[str, Before | None, After | None]] = {
    "sound": ("ship", None, None),
    "stale_readme": ("no", None, stale_readme),
    "seed_twice": ("no", seed_twice, None),
    "population_spread": ("no", None, population_spread),
    "sealed_again": ("no", None, sealed_again),
    "other_cards": ("ship", other_cards, None),
    "best_on_test": ("no", best_on_test, None),
    "other_eval_set": ("no", other_eval_set, None),
    "typed_value": ("no", None, typed_value),
    "more_digits": ("ship", None, more_digits),
    "fewer_examples": ("no", fewer_examples, None),
    "uncommitted": ("no", uncommitted, None),
    "stale_table": ("no", None, stale_table),
    "stale_spread": ("no", None, stale_spread),
    "other_commit": ("no", other_commit, None),
    "sound_too": ("ship", None, None),
    "validation": ("no", validation, None),
    "two_runs": ("no", two_runs, None),
    "wrong_count": ("no", None, wrong_count),
    "edited_run": ("no", None, edited_run),
    "run_gone": ("no", None, run_gone),
}
