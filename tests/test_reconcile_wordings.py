"""Hundreds of wordings, filled with random claims: a stale number is found, and nothing else is called one.

The wordings are in tests/reconcile_wordings/: results, sentences that only look like results, passages and tables.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import reconcile
from mentions.evidence import Evidence

WORDINGS = Path(__file__).resolve().parent / "reconcile_wordings"
Claim = dict[str, Any]

METHODS = ["Ours", "Baseline", "ResNet-50", "LoRA-8", "DropMix", "TinyViT", "EMA-Net", "DeepSup", "RandReg", "MixNet"]
DATASETS = ["CIFAR-10", "CIFAR-100", "ImageNet", "SVHN", "Set14", "Kodak", "WMT14", "LibriSpeech"]
RANGES = {
    "accuracy": (0.45, 0.98), "F1": (0.45, 0.98), "SSIM": (0.6, 0.98), "WER": (0.03, 0.3), "PSNR": (22.0, 39.0),
    "perplexity": (5.0, 60.0), "throughput": (8000.0, 90000.0), "loss": (0.0002, 0.003),
}  # fmt: skip
UNITS = {"PSNR": "dB", "throughput": "tokens/s"}
SHARES = ("accuracy", "F1", "WER")
SIDE_BY_SIDE = ("accuracy", "F1", "SSIM", "PSNR", "perplexity", "throughput")  # metrics that one table may have
ENGLISH = {
    "accuracy": ["accuracy", "top-1 accuracy", "acc.", "Accuracy"], "F1": ["F1", "F1 score", "F1-score"],
    "SSIM": ["SSIM", "structural similarity"], "WER": ["WER", "word error rate"], "perplexity": ["perplexity", "PPL"],
    "loss": ["loss", "test loss"], "Ours": ["Ours", "our method", "our model", "the proposed method", "our approach"],
    "Baseline": ["Baseline", "the baseline"],
}  # fmt: skip
CHINESE = {
    "accuracy": ["准确率", "accuracy"], "F1": ["F1 值", "F1"], "SSIM": ["结构相似度", "SSIM"],
    "WER": ["词错误率", "WER"], "PSNR": ["峰值信噪比", "PSNR"], "perplexity": ["困惑度", "perplexity"],
    "throughput": ["吞吐量", "throughput"], "loss": ["损失", "loss"],
    "Ours": ["Ours", "本文方法", "我们的方法"], "Baseline": ["Baseline", "基线", "基线模型"],
}  # fmt: skip


# -- the wordings


@dataclass
class Wording:
    text: str
    options: dict[str, str]
    chinese: bool

    @property
    def slots(self) -> list[str]:
        return sorted(set(re.findall(r"\{value(\d?)\}", self.text)))

    @property
    def same(self) -> set[str]:
        return set(self.options.get("same", "").split(",")) - {""}


def wordings() -> list[Wording]:
    return [wording for path in sorted(WORDINGS.glob("*.txt")) for wording in _read(path)]


def _read(path: Path) -> Iterator[Wording]:
    for block in path.read_text("utf-8").split("\n---- ")[1:]:
        head, _, body = block.partition("\n")
        options = {name: value for name, _, value in (word.partition("=") for word in head.split())}
        chinese = path.stem.endswith("_zh") or "chinese" in options
        texts = [body.strip("\n") + "\n"] if "whole" in options else [line for line in body.split("\n") if line.strip()]
        yield from (Wording(text, options, chinese) for text in texts)


# -- random claims, and a wording filled with them


def _claims(rng: random.Random, share: float) -> list[Claim]:
    claims: list[Claim] = []
    for metric, (low, high) in RANGES.items():
        for method in METHODS:
            for dataset in DATASETS:
                if rng.random() > share:
                    continue
                value = round(rng.uniform(low, high), 7)
                claim: Claim = {"id": f"C{len(claims)}", "metric": metric, "method": method, "dataset": dataset}
                claim |= {"split": "test", "value": value, "n": rng.choice([3, 5, 10]), "spread": round(value / 100, 7)}
                claims.append(claim | ({"unit": UNITS[metric]} if metric in UNITS else {}))
    return claims


@dataclass
class Filled:
    text: str
    stale: list[str] = field(default_factory=list)


def fill(wording: Wording, claims: list[Claim], rng: random.Random, stale: bool) -> Filled | None:
    """None where these claims have too few that fit."""
    chosen = _choose(wording, claims, rng)
    if chosen is None:
        return None
    table, slots = "table" in wording.options, wording.slots
    percent = wording.options.get("numbers", rng.choice(["percent", "percent", "fraction"]) if table else "")
    words = _fillers(chosen[0], rng)
    planted = rng.choice(slots) if stale and slots else None
    found = Filled("")
    for index, claim in enumerate(chosen):
        slot = str(index + 1) if index else ""
        value = (
            claim["value"] * (1 + rng.choice([-1, 1]) * rng.uniform(0.03, 0.12)) if slot == planted else claim["value"]
        )
        if claim["metric"] in (*SHARES, "SSIM") and value >= 0.999:
            value = 2 * claim["value"] - value
        number, behind = _written(claim, value, rng, percent)
        if slot == planted:
            found.stale.append(number)
        words |= _names(claim, slot, wording, rng)
        words[f"value{slot}"] = number + ("" if table else behind)
    in_percent = table and chosen[0]["metric"] in SHARES and percent == "percent"
    words["percent"] = " (%)" if in_percent else ""
    found.text = re.sub(r"\{(\w+)\}", lambda match: words.get(match[1], match[0]), wording.text)
    return found


def _choose(wording: Wording, claims: list[Claim], rng: random.Random) -> list[Claim] | None:
    """As many claims as the wording has numbers: the same in what it says, different in all else."""
    count = max([int(slot or 1) for slot in wording.slots], default=1)
    allowed = SIDE_BY_SIDE if "metric" not in wording.same and count > 1 else tuple(RANGES)
    allowed = allowed if wording.slots else SHARES  # what is said of others is in percent
    fit = [claim for claim in claims if claim["metric"] in allowed]
    for _ in range(50):
        first = rng.choice(fit)
        alike = [claim for claim in fit if all(claim[name] == first[name] for name in wording.same)]
        rng.shuffle(alike)
        chosen = _grid(wording.options, alike) if "rows" in wording.options else _apart(wording, first, alike, count)
        if len(chosen) >= count:
            return chosen
    return None


def _grid(options: dict[str, str], alike: list[Claim]) -> list[Claim]:
    rows, columns = ([*dict.fromkeys(claim[options[axis]] for claim in alike)][:2] for axis in ("rows", "columns"))
    places = {(claim[options["rows"]], claim[options["columns"]]): claim for claim in alike}
    cells = [places.get((row, column)) for row in rows for column in columns]
    return [cell for cell in cells if cell] if len(cells) == 4 and all(cells) else []


def _apart(wording: Wording, first: Claim, alike: list[Claim], count: int) -> list[Claim]:
    differ = {"method", "dataset", "metric"} - wording.same
    chosen = [first]
    for claim in alike:
        if len(chosen) < count and all(claim[name] != other[name] for name in differ for other in chosen):
            chosen.append(claim)
    return chosen


def _names(claim: Claim, slot: str, wording: Wording, rng: random.Random) -> dict[str, str]:
    spoken = CHINESE if wording.chinese else {} if "table" in wording.options else ENGLISH
    method = rng.choice(spoken.get(claim["method"], [claim["method"]]))
    names = {"method": method, "Method": method[0].upper() + method[1:], "dataset": claim["dataset"]}
    names |= {"runs": str(claim["n"]), "spread": str(claim["spread"])}
    names["metric"] = rng.choice((spoken or ENGLISH).get(claim["metric"], [claim["metric"]]))
    return {name + slot: text for name, text in names.items()}


def _fillers(claim: Claim, rng: random.Random) -> dict[str, str]:
    """Numbers that are no results. {other} is near the claim where it can be: the hardest not to fall for."""
    middle = 100 * claim["value"] if claim["metric"] in SHARES else 75.0
    others = {name: f"{middle * rng.uniform(0.85, 1.15):.1f}" for name in ("other", "other2", "other3")}
    return others | {"points": f"{rng.uniform(0.5, 9):.1f}", "epochs": str(rng.randint(10, 300))}


def _written(claim: Claim, value: float, rng: random.Random, percent: str) -> tuple[str, str]:
    """A number as somebody may write it, and what stands behind it: a percent sign, a spread, a unit."""
    metric, decimals = claim["metric"], rng.choice([1, 2])
    if metric == "loss":
        return f"{value:.2e}", ""
    if metric == "throughput":
        return rng.choice([f"{value:.0f}", f"{value:,.0f}", f"{value:,.1f}"]), " tokens/s"
    if metric == "PSNR":
        return f"{value:.{decimals}f}", " dB"
    scale, sign = 1.0, ""
    if metric in SHARES and (percent or rng.choice(["percent", "percent", "fraction"])) == "percent":
        scale, sign = 100.0, "%"
    elif metric != "perplexity":
        decimals += 2
    spread = f" ± {claim['spread'] * scale:.{decimals}f}" if rng.random() < 0.2 else ""
    return f"{value * scale:.{decimals}f}", spread + sign


# -- what becomes of them


@dataclass
class Tally:
    hits: int = 0
    missed: list[str] = field(default_factory=list)
    false: list[str] = field(default_factory=list)

    def add(self, path: Path, evidence: Evidence, text: str, stale: list[str]) -> None:
        path.write_text(text, "utf-8")
        seen = reconcile.examine(path, evidence)
        assert not seen.unreadable
        left = list(stale)
        for mention in seen.rest:
            if mention.verdict != "drift":
                continue
            number = next((number for number in left if mention.reported.startswith(number)), None)
            if number is None:
                self.false.append(f"{mention.reported} in {text!r}")
            else:
                left.remove(number)
                self.hits += 1
        self.missed += [f"{number} in {text!r}" for number in left]

    def check(self) -> None:
        shown = "\n".join(
            [*(f"false {line}" for line in self.false[:8]), *(f"missed {line}" for line in self.missed[:8])]
        )
        assert self.hits >= 0.98 * (self.hits + len(self.false)), shown
        assert self.hits >= 0.95 * (self.hits + len(self.missed)), shown


@pytest.mark.parametrize("seed", range(3))
def test_each_wording_on_its_own(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    known = [(claims, Evidence(claims)) for claims in (_claims(rng, 1.0), _claims(rng, 0.3))]
    tally = Tally()
    for wording in wordings():
        for number, (claims, evidence) in enumerate(known):
            filled = fill(wording, claims, rng, stale=(number + seed) % 2 == 0)
            if filled:
                path = tmp_path / f"a.{wording.options.get('format', 'md')}"
                tally.add(path, evidence, filled.text, filled.stale)
    assert tally.hits > 300
    tally.check()


@pytest.mark.parametrize("joined", ["\n", "\n\n"], ids=["one paragraph", "paragraphs"])
def test_wordings_beside_each_other(tmp_path: Path, joined: str) -> None:
    """What one sentence names must not make a drift of the next one's number."""
    rng = random.Random(5)
    claims = _claims(rng, 0.5)
    evidence = Evidence(claims)
    sentences = [wording for wording in wordings() if "whole" not in wording.options and "|" not in wording.text]
    tally = Tally()
    for _ in range(40):
        filled = [fill(wording, claims, rng, rng.random() < 0.2) for wording in rng.sample(sentences, 25)]
        lines = [entry for entry in filled if entry]
        text = joined.join(_ended(entry.text.lstrip("-*> ")) for entry in lines)
        tally.add(tmp_path / "a.md", evidence, text, [number for entry in lines for number in entry.stale])
    assert tally.hits > 50
    tally.check()


def _ended(text: str) -> str:
    return text if text[-1] in ".。?!" else f"{text}."
