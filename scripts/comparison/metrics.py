"""Known metrics: which way is better, and which values are possible. An unknown one is never guessed.

Example:
    known("val/top1_acc")   -> Metric("up", 0, 1, percent=True)          known("cosine_drop") -> None
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_INF = math.inf


@dataclass(frozen=True)
class Metric:
    direction: str
    low: float = -_INF
    high: float = _INF
    percent: bool = False  # a share that some write as 0..1 and some as 0..100
    perfect: float | None = None  # the value that nothing real reaches


_SHARE_UP = """accuracy acc f1 fscore auc auroc rocauc aucroc auprc prauc ap map ar precision recall sensitivity
    specificity tpr tnr iou miou dice bleu sacrebleu rouge rouge1 rouge2 rougel rougelsum meteor chrf bertscore em
    exactmatch ndcg mrr hit hits hitrate pass winrate successrate vqascore"""
_SHARE_DOWN = "error err errorrate wer cer ter fpr fnr eer ece"
_CORRELATION = "mcc kappa pearson spearman pearsonr spearmanr"
_OPEN_UP = "cider spice clipscore vmaf elo reward return comet loglikelihood is inceptionscore"
_DISTANCE = """mse rmse mae nmse nrmse mape smape lpips fid kid fvd epe absrel brier nll bpb bpc bitsperbyte
    bitspertoken hausdorff hd95 chamfer dists niqe mpjpe ade fde crps"""
_OPEN_DOWN = "loss ce crossentropy celoss"

TABLE: dict[str, Metric] = {
    **dict.fromkeys(_SHARE_UP.split(), Metric("up", 0, 1, True, 1.0)),
    **dict.fromkeys(_SHARE_DOWN.split(), Metric("down", 0, 1, True, 0.0)),
    **dict.fromkeys(("wer", "cer", "ter"), Metric("down", 0, _INF, True, 0.0)),  # insertions: above 1 is possible
    **dict.fromkeys(_CORRELATION.split(), Metric("up", -1, 1, perfect=1.0)),
    **dict.fromkeys(_OPEN_UP.split(), Metric("up")),
    **dict.fromkeys(_DISTANCE.split(), Metric("down", 0, perfect=0.0)),
    **dict.fromkeys(_OPEN_DOWN.split(), Metric("down", perfect=0.0)),
    **dict.fromkeys(("perplexity", "ppl"), Metric("down", 1, perfect=1.0)),
    **dict.fromkeys(("ssim", "msssim"), Metric("up", -1, 1, perfect=1.0)),
    "psnr": Metric("up", perfect=_INF),
    "r2": Metric("up", high=1, perfect=1.0),
}
for _name in ("nll", "bpb", "bpc", "bitsperbyte", "bitspertoken"):  # a density may have a negative one
    TABLE[_name] = Metric("down", perfect=0.0)

SPLIT_WORDS = {
    **dict.fromkeys(("val", "valid", "validation", "dev", "eval"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
    **dict.fromkeys(("train", "training"), "train"),
}
_QUALIFIERS = {"top1", "top5", "top", "macro", "micro", "weighted", "mean", "avg", "average", "score", "final", "best",
               "max", "min", "balanced", "per", "box", "mask", "bbox", "k", "at", "word", "token",
               "ema", "last"}  # fmt: skip
_PEAK = {"best", "max", "min", "peak"}


def words(name: str) -> list[str]:
    """`val/mAP@0.5:0.95` -> [val, map]: case, numbers after @ and separators do not matter."""
    plain = re.sub(r"@[\d.:k]+", " ", name.lower()[:200])
    return [word for word in re.split(r"[^a-z0-9]+", plain) if word]


def split_of(name: str) -> str | None:
    found = {SPLIT_WORDS[word] for word in words(name) if word in SPLIT_WORDS}
    return found.pop() if len(found) == 1 else None


def known(name: str) -> Metric | None:
    """The metric that a name stands for; None when any word of it is not understood (`acc_drop`, `loss_scale`)."""
    last = words(name.rstrip("/").rpartition("/")[2])
    named = [word for word in last if word not in SPLIT_WORDS and not word.isdigit()]
    joined = "".join(word for word in named if word not in _QUALIFIERS)
    return TABLE.get("".join(named)) or TABLE.get(joined) or TABLE.get(re.sub(r"\d+$", "", joined))


def says_peak(name: str) -> bool:
    return bool(_PEAK & set(words(name)))


def better(a: float, b: float, direction: str) -> bool:
    return a > b if direction == "up" else a < b


def possible(metric: Metric, value: float) -> bool:
    high = 100.0 if metric.percent and metric.high == 1 else metric.high
    return metric.low <= value <= high


def is_perfect(metric: Metric, value: float) -> bool:
    if metric.perfect is None:
        return False
    return value == metric.perfect or (metric.percent and metric.perfect == 1.0 and value == 100.0)
