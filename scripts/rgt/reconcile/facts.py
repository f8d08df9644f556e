"""The values a document is held against, each with the words that name it; truth_file reads them from any file.

Names that stand in for each other lie on one axis (method, dataset, metric, ...): a text that names one of an axis
speaks of no other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from rgt.evidence.claims import Claim, Project
from rgt.metrics import table as names

import yaml

UNITS = {  # spelling: kind of quantity, and how many of the smallest
    **dict.fromkeys(("ns",), ("time", 1e-09)),
    **dict.fromkeys(("us", "µs", "μs"), ("time", 1e-06)),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds", "毫秒"), ("time", 0.001)),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds", "秒"), ("time", 1.0)),
    **dict.fromkeys(("min", "mins", "minute", "minutes", "分钟"), ("time", 60.0)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours", "小时"), ("time", 3600.0)),
    **dict.fromkeys(("day", "days", "天"), ("time", 86400.0)),
    **dict.fromkeys(("kb",), ("size", 1000.0)),
    **dict.fromkeys(("mb",), ("size", 1000000.0)),
    **dict.fromkeys(("gb",), ("size", 1000000000.0)),
    **dict.fromkeys(("tb",), ("size", 1000000000000.0)),
    **{f"{letter}ib": ("size", 1024.0**power) for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}b/s": ("rate", 1000.0**power) for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib/s": ("rate", 1024.0**power) for power, letter in enumerate("kmgt", 1)},
    **dict.fromkeys(("%", "pct", "percent", "pp", "percentage"), ("share", 0.01)),
    "dB": ("dB", 1.0),
    "db": ("dB", 1.0),
    **{name: ("energy", factor) for name, factor in (("wh", 1.0), ("kwh", 1e3), ("j", 1 / 3600), ("mj", 1 / 3.6e6))},
    **dict.fromkeys(("uj", "µj", "μj"), ("energy", 1 / 3.6e9)),
    **{name: ("power", factor) for name, factor in (("w", 1.0), ("kw", 1e3))},
    **dict.fromkeys(("k", "thousand", "千"), ("count", 1000.0)),
    **dict.fromkeys(("m", "million", "millions", "百万"), ("count", 1000000.0)),
    **dict.fromkeys(("b", "billion", "billions", "十亿"), ("count", 1000000000.0)),
    **{name: ("count", factor) for name, factor in (("万", 1e4), ("亿", 1e8))},
}
WORDS: dict[str, dict[str, str]] = yaml.safe_load(Path(__file__).with_name("words.yaml").read_text("utf-8"))
_TOKEN = re.compile(r"[\u3400-\u9fff]|[^\W\d_\u3400-\u9fff]+|\d+")

FULL_NAMES = frozenset(
    ["full", "full model", "all components", "complete", "complete model", "default", "完 整 模 型", "完 整"]
)


@dataclass
class Fact:
    id: str
    value: float
    terms: dict[str, str]  # axis -> the name on it
    unit: str = ""
    spread: float | None = None
    n: int | None = None
    share: bool = False  # some write it as 0..1, some as percent
    lower: bool = False  # is better
    bit: int = 0  # its place in sets of facts, which are whole numbers


@dataclass
class Truth:
    facts: list[Fact]
    aliases: dict[str, list[str]] = field(default_factory=dict)
    ours: str = ""  # the name of the own method, where the file says it
    others: list[Fact] = field(default_factory=list)  # no results: only a reader can say that a number is one of them


_KINDS = {"parameters": "count", "latency": "time", "training time": "time", "gpu hours": "time", "memory": "size"}


def kind_of(fact: Fact) -> str:
    """What a fact measures: time, size, count, share; by its unit, or by its metric where the file gives none."""
    return UNITS.get(fact.unit, ("",))[0] or _KINDS.get(fact.terms.get("metric", ""), "")


def key_words(text: str) -> str:
    """A name as it is compared: case, hyphens and spaces do not matter, CIFAR-10 is cifar10."""
    text = re.sub(r"(?<![^\W_])(?:w[/_-]o|wo|without|no|minus|sans)(?=[\W_])", "no ", text.lower())
    text = re.sub("^(?:去掉|移除|去除)", "no ", text)
    return " ".join(_TOKEN.findall(text))


_SHARES = {word for metric in names.METRICS if metric.share for word in metric.spellings} | {
    "rate",
    "exact",
    "success",
    "ssim",
    "top",
}


def from_claims(claims: list[Claim]) -> list[Fact]:
    facts = []
    for claim in claims:
        axes = {
            name: key_words(str(claim[name])) for name in ("metric", "method", "dataset", "split") if claim.get(name)
        }
        axes["metric"] = canonical(axes["metric"])
        fact = Fact(
            claim["id"], float(claim["value"]), axes, unit_name(str(claim.get("unit", ""))), claim.get("spread")
        )
        fact.n, fact.share = claim.get("n"), is_share(claim["metric"])
        known = names.known(claim["metric"])
        fact.lower = (claim.get("direction") or (known.direction if known else "")) == "down"
        facts.append(fact)
    return facts


def from_evidence(project: Project) -> Truth:
    return Truth(from_claims(project.claims), project.data.get("aliases", {}))


def known_words(part: str, name: str) -> frozenset[str]:
    return frozenset(
        word.replace("_", " ") if part != "keys" and part != "axes" else word for word in WORDS[part][name].split()
    )


def unit_name(text: str) -> str:
    return text if text in UNITS else text.lower().strip("()[] ")


def is_share(metric: str) -> bool:
    words = set(re.split(r"[-_@\s]+", metric.lower()))
    known = known_metric(metric)
    return bool(known and known.share) or metric.endswith("率") or bool(_SHARES & words)


def known_metric(text: str) -> names.Metric | None:
    """ "f 1 macro" -> F1; ADE20K is no ADE"""
    if re.search(r"[a-z] ?\d+ ?[a-z]+$", text.lower()) and key_words(text) not in METRIC_GROUPS:
        return None
    return names.known(re.sub(r"(?<=[a-z]) (?=\d)", "", text).replace(" ", "_"))


def canonical(metric: str) -> str:
    """One name for all spellings of a metric."""
    group = METRIC_GROUPS.get(metric)
    return group[0] if group else metric


# what is measured beside quality; the metrics of quality are in rgt.metrics.table
_MORE_METRICS = """
parameters: params, param, weights, parameter count, number of parameters, model size, 参数量, 参数;
memory: mem, peak mem, gpu mem, peak memory, gpu memory, memory footprint, memory usage, vram, peak vram, 显存,
显存占用, 峰值显存, 内存;
training time: train time, train hours, training hours, wall clock, wall clock time, 训练时间, 训练耗时, 训练时长;
latency: inference, inference time, inference latency, response time, runtime, 延迟, 时延, 推理时间, 推理延迟, 耗时;
throughput: 吞吐量, 吞吐率, 吞吐, samples per second, images per second, tokens per second, fps, speed;
rtf: real time factor; mos: mean opinion score; gpu hours: gpu time;
flops: gflops, macs, gmacs, tflops, 计算量; energy: energy consumption, power, 能耗; speedup:
speed up, 加速比"""
METRIC_GROUPS: dict[str, tuple[str, ...]] = {}
for _row in [*(", ".join(metric.spellings) for metric in names.METRICS), *_MORE_METRICS.split(";")]:
    _group = tuple(filter(None, map(key_words, re.split("[:,]", _row))))
    for _name in _group:
        METRIC_GROUPS[_name] = tuple(dict.fromkeys((*METRIC_GROUPS.get(_name, ()), *_group)))
