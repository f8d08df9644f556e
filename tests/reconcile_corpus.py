"""Documents with known drifts: the text formats, every way of writing a number, and plenty that is no claim.

`write(folder, documents, claims, seed)` makes EVIDENCE.json and the documents, and returns what was planted. The same
seed gives the same bytes.
"""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FORMATS = "md txt tex csv ipynb".split()
METHODS = "Ours Baseline MixNet DeepSup EMA-Net TinyViT ResNet-50 DropMix RandReg LoRA-8".split()
DATASETS = "CIFAR-10 CIFAR-100 SVHN Set14 ImageNet WMT14 LibriSpeech Kodak".split()
# metric, lowest, highest, unit, direction, written as percent
METRICS = [
    ("accuracy", 0.5, 0.99, None, "up", True),
    ("F1", 0.4, 0.97, None, "up", True),
    ("PSNR", 22.0, 39.0, "dB", "up", False),
    ("SSIM", 0.6, 0.99, None, "up", False),
    ("perplexity", 6.0, 60.0, None, "down", False),
    ("WER", 0.03, 0.35, None, "down", True),
    ("throughput", 900.0, 90000.0, "tokens/s", "up", False),
    ("loss", 0.0001, 0.004, None, "down", False),
]
CHINESE = {"accuracy": "准确率", "perplexity": "困惑度", "PSNR": "峰值信噪比", "loss": "损失", "throughput": "吞吐量"}


@dataclass
class Planted:
    """What is wrong, and where: (file, the number as it stands there)."""

    drifts: set[tuple[str, str]] = field(default_factory=set)
    mentions: int = 0
    clean: set[str] = field(default_factory=set)  # documents without a drift


def claims(count: int, rng: random.Random) -> list[dict[str, Any]]:
    cells = [(metric, method, dataset) for metric in METRICS for method in METHODS for dataset in DATASETS]
    made = []
    for number, (metric, method, dataset) in enumerate(rng.sample(cells, min(count, len(cells))), 1):
        name, low, high, unit, direction, _ = metric
        value = round(rng.uniform(low, high), 7)
        about = {"id": f"C{number}", "metric": name, "method": method, "dataset": dataset, "split": "test"}
        runs, spread = rng.choice([3, 5, 10]), round(value * rng.uniform(0.002, 0.02), 7)
        measured = {"value": value, "n": runs, "spread": spread, "direction": direction}
        evidence = {"evidence": [{"run_id": "20260101-000000-a-abcdef"}], **({"unit": unit} if unit else {})}
        made.append({**about, **measured, **evidence})
    return made


def as_percent(claim: dict[str, Any]) -> bool:
    return next(metric[5] for metric in METRICS if metric[0] == claim["metric"])


class Writer:
    """Writes one claim as a number, right or wrong."""

    def __init__(self, rng: random.Random, drift_rate: float) -> None:
        self.rng, self.drift_rate = rng, drift_rate
        self.drifted: list[str] = []
        self.count = 0

    def number(self, claim: dict[str, Any], bare: bool = False, percent: bool | None = None) -> str:
        """`bare`: without a sign of its own, as in a table; `percent`: forced, None lets chance decide."""
        self.count += 1
        value, decimals, sign = self._scaled(claim, percent)
        text = f"{value:,.{decimals}f}" if value >= 1000 and self.rng.random() < 0.5 else f"{value:.{decimals}f}"
        if claim["metric"] == "loss":
            text = f"{value:.{self.rng.choice([1, 2])}e}"
        sign, spread = sign if not bare else "", ""
        if self.rng.random() < self.drift_rate:
            text = self._stale(text)
            self.drifted.append(text + sign)
        elif claim["metric"] != "loss" and self.rng.random() < 0.2:
            factor = 100 if value > 1.5 * claim["value"] else 1
            spread = f" ± {claim['spread'] * factor:.{decimals}f}"
        return text + spread + sign

    def _scaled(self, claim: dict[str, Any], percent: bool | None) -> tuple[float, int, str]:
        value = claim["value"]
        if as_percent(claim) and (self.rng.random() < 0.7 if percent is None else percent):
            return value * 100, self.rng.choice([1, 1, 2]), "%"
        if claim["metric"] == "throughput":
            return value, self.rng.choice([0, 1]), ""
        return value, self.rng.choice([2, 3]) if value >= 1 else self.rng.choice([3, 4]), ""

    def _stale(self, text: str) -> str:
        """The number of an older run: off by a few units of the last place up to a tenth."""
        mantissa, e, exponent = text.partition("e")
        decimals = len(mantissa.partition(".")[2])
        old = float(mantissa.replace(",", ""))
        step = 10**-decimals
        change = max(self.rng.choice([2, 3, 7]) * step, old * self.rng.choice([0.0, 0.01, 0.04, 0.1]))
        new = old - change if old > change else old + change
        comma = "," if "," in mantissa else ""
        return f"{new:{comma}.{decimals}f}{e}{exponent}"


Claim = dict[str, Any]

# {v} the number with its unit, {k} metric, {K} metric in Chinese, {m} method, {M} the method as prose says it,
# {d} dataset, {D} in lower case, {n} runs, {e} epochs, {t} a small number
SENTENCES = [
    "On {d}, {M} reaches a {k} of {v}.",
    "{m} obtains {v} {k} on {d} after {e} epochs.",
    "The test {k} of {M} on {d} is {v} (n = {n}).",
    "With {m}, {d} {k} comes to {v}, averaged over {n} seeds.",
    "We measure {v} in {k} for {M} on {D} (Table {t}).",
    "{d}: {m}, {k} {v}.",
    "Trained with lr 3e-4 and batch size 128, {m} has a {k} of {v} on {d}.",
    "**{v}**: that is the {k} of {M} on {d} [{t}].",
    "For {d} the {k} of {m} improves to {v}.",
    "{m} was evaluated on {d}. Its {k} is {v}.",
    "在 {d} 测试集上，{m} 的{K}达到 {v}。",
    "{m} 在 {d} 上的{K}为{v}，训练了 {e} 轮。",
]

# {x} any number, {p} a percentage, the rest as above
NOISE = [
    "{m} improves {k} on {d} by {x} points.",
    "We train {m} for {e} epochs with batch size 64 and lr 0.1.",
    "Prior work [{t}] reports {p}% {k} on {d}.",
    "Smith et al. obtain {p}% {k} on {d} with {t} GPUs.",
    "The difference in {k} is significant (p < 0.0{t}, 95% CI [0.21, {x}]).",
    "{m} needs {x} GB of memory and {x} hours on {t} GPUs.",
    "Version {t}.{e}.{t} of 2026-0{t}-1{t} was used; see Section {t}.{t}.",
    "{m} exceeds {e}% {k} on {d} within {t} epochs.",
    "{d} has {e} classes and 60,000 images.",
    "On {d}, {m} is {x}x faster at equal {k}.",
    "在 {d} 上，{m} 的{k}提升了 {x} 个百分点。",
    "The target for {k} on {d} was {e}%.",
    "In the original paper, {m} is reported at {p}% {k} on {d}.",
    "Zhang and Li [{t}, 1{t}] obtained {p}% {k} with {m} on {d}.",
    "After quantisation to INT8, {m} ends at {p}% {k} on {d}.",
    "At epoch {e} the intermediate {k} of {m} on {d} was still {p}%.",
    "The gap between {m} and its runner-up on {d} is {x} {k}.",
    "Seeds 0, 1, 2 and {e} were used for {m} on {d}; each run cost {e} dollars.",
    "{m} w/o augmentation drops in {k} by {x}% on {d}.",
]


def sentence(writer: Writer, claim: Claim) -> str:
    metric, method, dataset = claim["metric"], claim["method"], claim["dataset"]
    unit = f" {claim['unit']}" if "unit" in claim else ""
    said = {"Ours": "our method", "Baseline": "the baseline"}.get(method, method)
    template, number = writer.rng.choice(SENTENCES), writer.number(claim) + unit
    names = {"k": metric, "K": CHINESE.get(metric, metric), "m": method, "M": said, "d": dataset, "D": dataset.lower()}
    numbers = {"v": number, "n": claim["n"], "e": writer.rng.randint(10, 300), "t": writer.rng.randint(1, 9)}
    return template.format(**names, **numbers)


def noise(writer: Writer) -> str:
    rng = writer.rng
    template = rng.choice(NOISE)
    names = {"m": rng.choice(METHODS), "d": rng.choice(DATASETS), "k": rng.choice(METRICS)[0]}
    shares = {"x": f"{rng.uniform(0.5, 20):.1f}", "p": f"{rng.uniform(50, 99):.1f}"}
    return template.format(**names, **shares, e=rng.randint(10, 99), t=rng.randint(1, 9))


def paragraphs(writer: Writer, chosen: list[Claim]) -> list[str]:
    lines = []
    for claim in chosen:
        lines.append(sentence(writer, claim))
        if writer.rng.random() < 0.4:
            lines.append(noise(writer))
    writer.rng.shuffle(lines)
    return lines


def grid(writer: Writer, chosen: list[Claim]) -> tuple[str, list[list[str]]]:
    """One metric: methods as rows, datasets as columns, a foreign row among them; the caption names the metric."""
    metric = writer.rng.choice(sorted({claim["metric"] for claim in chosen}))
    of_metric = [claim for claim in chosen if claim["metric"] == metric]
    datasets = sorted({claim["dataset"] for claim in of_metric})
    percent = as_percent(of_metric[0])
    rows = [["Method", *datasets]]
    for method in sorted({claim["method"] for claim in of_metric}):
        mine = {claim["dataset"]: claim for claim in of_metric if claim["method"] == method}
        rows.append([method, *(writer.number(mine[d], True, percent) if d in mine else "-" for d in datasets)])
    rows.append(["OtherNet [7]", *(f"{writer.rng.uniform(50, 99):.1f}" for _ in datasets)])
    sign = " (%)" if percent else ""
    return f"Table {writer.rng.randint(1, 9)}: {metric}{sign} of all methods.", rows


def write(folder: Path, documents: int, count: int, seed: int, drift_rate: float = 0.02) -> Planted:
    """Half of the documents get drifts at `drift_rate` per mention, the other half none."""
    rng = random.Random(seed)
    known = claims(count, rng)
    (folder / "EVIDENCE.json").write_text(json.dumps({"claims": known}, ensure_ascii=False))
    planted = Planted()
    for number in range(documents):
        kind = FORMATS[number % len(FORMATS)]
        writer = Writer(random.Random(seed * 100003 + number), drift_rate if (number // len(FORMATS)) % 2 else 0.0)
        path = folder / f"d{number:05}.{kind}"
        WRITERS[kind](path, writer, writer.rng.sample(known, min(60, len(known))))
        planted.mentions += writer.count
        planted.drifts |= {(path.name, text) for text in writer.drifted}
        if not writer.drifted:
            planted.clean.add(path.name)
    return planted


# -- one writer per format


def _markdown(path: Path, writer: Writer, chosen: list[Claim]) -> None:
    caption, rows = grid(writer, chosen[:30])
    table = [" | ".join(row) for row in rows]
    lines = ["# Report", "", *paragraphs(writer, chosen[30:]), "", caption, "", f"| {table[0]} |"]
    lines += ["|" + "---|" * len(rows[0]), *(f"| {row} |" for row in table[1:])]
    path.write_text("\n".join(lines) + "\n")


def _text(path: Path, writer: Writer, chosen: list[Claim]) -> None:
    caption, rows = grid(writer, chosen[:30])
    widths = [max(len(row[i]) for row in rows) + 3 for i in range(len(rows[0]))]
    table = "\n".join("".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    path.write_text("\n\n".join([*paragraphs(writer, chosen[30:]), caption, table]) + "\n")


def _latex(path: Path, writer: Writer, chosen: list[Claim]) -> None:
    caption, rows = grid(writer, chosen[:30])
    style = writer.rng.choice(["{}", r"$ {} $", r"\num{{{}}}", r"\textbf{{{}}}"])
    body = []
    for method, *cells in rows[1:]:
        numbers = [_tex(style.format(cell) if i < 3 else cell) for i, cell in enumerate(cells)]
        body.append(" & ".join([method.replace(" [7]", r"~\cite{x}"), *numbers]))
    lines = [r"\documentclass{article}", r"\begin{document}", r"\section{Results}"]
    lines += [_tex(line) for line in paragraphs(writer, chosen[30:])]
    lines += [r"\begin{table}", rf"\caption{{{_tex(caption)}}}"]
    lines += [rf"\begin{{tabular}}{{l{'c' * (len(rows[0]) - 1)}}}", r"\toprule"]
    lines += [" & ".join(rows[0]) + r" \\", r"\midrule", *(row + r" \\" for row in body), r"\bottomrule"]
    lines += [r"\end{tabular}", r"\end{table}", r"\end{document}"]
    path.write_text("\n".join(lines) + "\n")


def _tex(text: str) -> str:
    return text.replace("%", r"\%").replace("**", "").replace(" ± ", r" $\pm$ ").replace("#", r"\#")


def _sheet(path: Path, writer: Writer, chosen: list[Claim]) -> None:
    rows = [["method", "dataset", "split", "metric", "value", "n"]]
    for claim in chosen:
        number = writer.number(claim, True, False).split(" ±")[0]
        rows.append([claim["method"], claim["dataset"], "test", claim["metric"], number, str(claim["n"])])
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def _notebook(path: Path, writer: Writer, chosen: list[Claim]) -> None:
    markdown = [line + "\n" for line in paragraphs(writer, chosen[:40])]
    printed = [f"{c['method']} {c['dataset']} {c['metric']}: {writer.number(c)}\n" for c in chosen[40:]]
    output = {"output_type": "stream", "name": "stdout", "text": printed}
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": markdown},
        {"cell_type": "code", "metadata": {}, "source": ["accuracy = 0.123\n"], "outputs": [output]},
    ]
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1))


_MAKERS = (_markdown, _text, _latex, _sheet, _notebook)
WRITERS: dict[str, Callable[[Path, Writer, list[Claim]], None]] = dict(zip(FORMATS, _MAKERS, strict=True))


# -- the score


@dataclass
class Score:
    planted: int
    missed: int
    false: int
    alarms: int
    flagged_clean: int


def score(report: dict[str, Any], planted: Planted, asked: Path | None = None) -> Score:
    """A drift is found when its file and its number are named, or when a sheet asks what the number means."""
    named = {(Path(finding["path"]).name, _digits(finding["evidence"])) for finding in report["findings"]}
    wanted = {(name, _digits(text)) for name, text in planted.drifts}
    false = named - wanted
    flagged = {name for name, _ in false} & planted.clean
    rows = [json.loads(line) for line in asked.read_text().splitlines()] if asked else []
    open_ones = {(Path(row["file"]).name, _digits(row["number"])) for row in rows}
    return Score(len(wanted), len(wanted - named - open_ones), len(false), len(named), len(flagged))


def _digits(text: str) -> str:
    return re.sub(r"[\s%$]|±.*", "", text)
