"""The one table of metrics: how they are spelled, which way is better, which values are possible; and of splits.

Example:
    known("val/top1_acc")          Metric("accuracy", "up", 0, 1, share=True, ...)       known("cosine_drop") -> None
    split_and_rest("eval_loss")    ("val", "loss")

An unknown metric is never guessed. Logs, tables of runs, comparisons and documents all read this table.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass, replace

_INF = math.inf


@dataclass(frozen=True)
class Metric:
    name: str  # the canonical one
    direction: str  # up or down: where better lies; empty when neither is better in itself
    low: float = -_INF
    high: float = _INF
    share: bool = False  # some write it as 0..1 and some as 0..100
    perfect: float | None = None  # the value that nothing real reaches
    spellings: tuple[str, ...] = ()  # all of them, the canonical one first; in documents they may be phrases


# `name: spelling, spelling` for each metric of a kind; several of them on a line with a semicolon between
_TABLE = {
    Metric("", "up", 0, 1, share=True, perfect=1.0): """
        accuracy: acc, accuracies, top 1 accuracy, top 1, acc@1, classification accuracy, 准确率, 正确率, 精度
        top 5 accuracy: top 5, acc@5
        f1: f1 score, f1 measure, f1 值, f1 分数; fscore: f score
        auc: auroc, roc auc, auc roc, area under the curve; auprc: pr auc
        map: mean average precision, 平均精度均值; ap: average precision; ar: average recall
        precision: prec, 精确率, 查准率; recall: rec, sensitivity, tpr, 召回率, 查全率; specificity: tnr
        iou: 交并比; miou: mean iou, 平均交并比; dice: dsc
        bleu: bleu score, sacrebleu; rouge; rouge1; rouge2; rougelsum; rouge l: rouge-l score
        meteor; chrf; bertscore: bert score; em: exact match, 精确匹配; vqascore: vqa score
        ndcg; mrr; hits: hit, hit rate; pass; winrate: win rate; successrate: success rate""",
    Metric("", "down", 0, 1, share=True, perfect=0.0): "error: err, error rate, 错误率, 误差; fpr; fnr; eer; ece",
    # insertions: above 1 is possible
    Metric("", "down", 0, share=True, perfect=0.0): """
        wer: word error rate, 词错误率, 词错率; cer: character error rate, 字错误率, 字错率; ter""",
    Metric("", "up", -1, 1, perfect=1.0): """
        mcc; kappa; pearson: pearsonr; spearman: spearmanr
        ssim: 结构相似性, 结构相似度, structural similarity; ms ssim""",
    Metric("", "down", 0, perfect=0.0): """
        mse: mean squared error, 均方误差; rmse: root mean squared error, 均方根误差
        mae: mean absolute error, 平均绝对误差; nmse: normalized mean squared error, 归一化均方误差
        nrmse; mape; smape; absrel: abs rel; brier; crps
        fid: frechet inception distance, fréchet inception distance; lpips: 感知损失; kid; fvd; dists; niqe
        epe; hausdorff; hd95; chamfer; mpjpe; ade; fde""",
    # a density may have a negative one
    Metric("", "down", perfect=0.0): """
        loss: losses, 损失, 损失值; ce: cross entropy, language cross entropy, ce loss, xent
        nll: log loss, negative log likelihood; bpb: bits per byte; bpc; bits per token""",
    Metric("", "up"): """
        reward: rew; return; elo; vmaf; cider; spice; comet; clipscore: clip score; is: inception score
        loglikelihood: log likelihood; throughput: 吞吐量, 吞吐率""",
    Metric("", "down", 0): "latency: 延迟, 时延, 推理时间",
    Metric("", "down", 1, perfect=1.0): "perplexity: ppl, 困惑度",
    Metric("", "up", perfect=_INF): "psnr: 峰值信噪比, peak signal to noise ratio",
    Metric("", "up", high=1, perfect=1.0): "r2: r squared, r^2",
    Metric("", ""): """
        lr: learning rate; grad norm: gnorm, gradient norm; mfu; score; kl: kl divergence; entropy""",
}
METRICS: tuple[Metric, ...] = tuple(
    replace(kind, name=row.partition(": ")[0], spellings=tuple(filter(None, re.split(": |, ", row))))
    for kind, text in _TABLE.items()
    for row in map(str.strip, re.split("[;\n]", text))
    if row
)

SPLITS = {
    "train": ("train", "training", "train set", "训练集"),
    "val": ("val", "valid", "validation", "dev", "eval", "val set", "验证集", "验证"),
    "test": ("test", "testing", "test set", "测试集", "测试"),
}
SPLIT_WORDS = {word: split for split, spellings in SPLITS.items() for word in spellings if re.fullmatch("[a-z]+", word)}

# What a status shows and a watcher judges, by the words of a name: of each role the best-ranked name that a run has.
_LOSSES = "loss lm total training ce nll mlm objective".split()  # `loss` with one of these is the training's own
_STAND_INS = "perplexity nll ce bpb mse rmse mae error wer cer".split()  # where nothing is called a loss
_NORMS = {"l2": "mse", "l1": "mae"}  # LightGBM's
_NO_LOSS = set("scale scaler weight coef coefficient best min aux balance reg l1 l2 z gate".split())
_OF_A_MEAN = {"epoch", "avg", "average", "mean", "running", "smoothed", "runtime"}
# metrics that a trainer prints while it trains, also on a line that counts no step
_CURVES = set("loss accuracy perplexity lr f1 auc bleu reward score mfu map miou return".split()) | {"grad norm"}
CURVE_WORDS = {word for metric in METRICS if metric.name in _CURVES for word in metric.spellings if word.isascii()}
# in the prose of a log these are metrics only with a ':' or '=' behind them
_EVERYDAY = set("is hit hits pass error err em ap ar ce ter kid ade fde rec prec comet spice meteor dists".split())
LOG_WORDS = {
    written
    for metric in METRICS
    for spelling in metric.spellings
    if spelling.isascii() and spelling not in _EVERYDAY
    for written in (spelling.replace(" ", "_"), spelling.replace(" ", ""))
} - {"latency", "throughput"}

_QUALIFIERS = set(
    """top1 top5 top macro micro weighted mean avg average score final best max min balanced per box mask bbox k at
    word token ema last epoch ep episode episodic at ms""".split()
)
_SAME_ANYWAY = set("mean avg average score per k at top top1 ep episode episodic ms".split())  # of these qualifiers
GUESSED = 6  # a rank from which on a name says more or less than what was asked for
_OTHER_METRIC = re.compile(r"top\d*|\d+|std|delta")  # in front of a metric: another one


# keys that hold all results of a run, and tell one from another by nothing
_WRAPPERS = set("metrics metric results result scores score summary final overall evaluation all".split())


def words(name: str) -> list[str]:
    """`val/mAP@0.5:0.95` -> [val, map]: case, numbers after @ and separators do not matter."""
    plain = re.sub(r"@[\d.:k]+", " ", name.lower()[:200])
    return [word for word in re.split(r"[^a-z0-9]+", plain) if word]


_BY_SPELLING = {
    "".join(words(spelling)): metric
    for metric in METRICS
    for spelling in reversed(metric.spellings)
    if spelling.isascii() and "@" not in spelling
}


@functools.lru_cache(4096)
def split_of(name: str) -> str | None:
    found = {SPLIT_WORDS[word] for word in words(name) if word in SPLIT_WORDS}
    return found.pop() if len(found) == 1 else None


def scope(name: str) -> str | None:
    """What a value was measured on, spelled one way: `Test-Clean` -> `test clean`, `dev` -> `val`, empty -> None."""
    return " ".join(SPLIT_WORDS.get(word, word) for word in words(name) if word not in _WRAPPERS) or None


def is_evaluation(name: str) -> bool:
    return split_of(name) in ("val", "test")


def split_and_rest(name: str) -> tuple[str | None, str]:
    """`eval_loss` -> (val, loss), `test/acc` -> (test, acc), `Loss/val` -> (val, Loss), `x` -> (None, x)."""
    first, sign, rest = re.match(r"([^_/.]*)([_/.]?)(.*)", name, re.S).groups()  # type: ignore[union-attr]
    split = SPLIT_WORDS.get(first.lower())
    if not (split and sign and rest):
        rest, sign, last = name.rpartition("/")
        split = SPLIT_WORDS.get(last.lower())
    return (split, rest) if split and sign and rest else (None, name)


@functools.lru_cache(4096)
def _named(name: str) -> Metric | None:
    last = words(name.rstrip("/").rpartition("/")[2])
    whole = [word for word in last if word not in SPLIT_WORDS]
    named = [word for word in whole if not word.isdigit()]
    joined = "".join(word for word in named if word not in _QUALIFIERS)
    for key in ("".join(whole), "".join(named), joined, re.sub(r"\d+$", "", joined)):
        if key in _BY_SPELLING:
            return _BY_SPELLING[key]
    return None


def known(name: str) -> Metric | None:
    """The metric that a name stands for; None when any word of it is not understood (`acc_drop`, `loss_scale`)."""
    metric = _named(name.partition(",")[0])
    return metric if metric and metric.direction else None


def _spelled(name: str) -> list[str]:
    """`results/gsm8k/pass@1,none` -> [results, gsm8k, pass, 1]: without filter and unit, with the numbers after @."""
    return re.findall(r"[^\W_]+", re.sub(r"\(.*?\)|,.*", " ", name.lower()[:200]))


def unsplit(name: str) -> str:
    """`test/nDCG@10` -> `ndcg 10`: what is measured, whatever it is measured on."""
    left = [word for word in _spelled(name) if word not in SPLIT_WORDS]
    return " ".join([word for word in left if word not in _WRAPPERS] or left)


@functools.lru_cache(4096)
def rank(asked: str, name: str) -> int | None:
    """How well a recorded name is the one that is asked for; None: not at all, 0 or below: the same words.

    Nearest to `test top-1 accuracy` are test_top1, test_cifar_acc and top1, in this order; never val_top1 or top5.
    """
    wanted, split = split_of(asked), split_of(name)
    if name == asked or ("," in asked and name.endswith(f"/{asked}")):  # exact_match,strict-match: lm-eval's filter
        return -1
    if _spelled(asked) == _spelled(name):
        return 0
    if wanted and split and wanted != split:
        return None
    ours, theirs = unsplit(asked).split(), unsplit(name).split()
    metric = _named("_".join(ours))
    starts = [at for at in range(len(theirs)) if _same(metric, ours, theirs[at:])]
    exact, more = "".join(ours) == "".join(theirs), _apart(theirs) - _apart(ours)
    if not starts or (starts[0] and _OTHER_METRIC.fullmatch(theirs[starts[0] - 1])) or _apart(ours) - _apart(theirs):
        return None
    level = 1 if exact else 2 if not starts[0] and not more else 3
    return 2 * level + (0 if wanted == split else 16 if wanted else 1)


def _same(metric: Metric | None, ours: list[str], theirs: list[str]) -> bool:
    """Two wordings of one metric: `top 1 accuracy` and `acc`, but not `ndcg 5` and `ndcg 10`."""
    numbers = [set(re.findall(r"\d+", " ".join(one))) - {"1"} for one in (ours, theirs)]
    named = metric is not None and metric == _named("_".join(theirs)) and numbers[0] == numbers[1]
    return named or "".join(ours) == "".join(theirs)


def _apart(named: list[str]) -> set[str]:
    return _QUALIFIERS.intersection(named) - _SAME_ANYWAY


def is_curve(name: str) -> bool:
    """Does a name end with a metric of training, such as lm_loss, val_acc or total_grad_norm?"""
    parts = words(name)
    ends = (_named("_".join(parts[start:])) for start in range(len(parts)))
    return any(metric and metric.name in _CURVES for metric in ends)


@functools.lru_cache(4096)
def role(name: str) -> tuple[str, int] | None:
    """(loss | val_loss | lr | grad_norm | loss_scale | accuracy | reward, rank): the lowest rank is what a run shows.

    By words, because trainers agree on these and not on their order: train_loss_step, Loss/train, lm loss are losses.
    """
    parts = words(name)
    split, rest = split_of(name), [word for word in parts if word not in SPLIT_WORDS]
    mean = bool(set(rest) & _OF_A_MEAN)
    bare = [word for word in rest if word not in _OF_A_MEAN and word not in ("step", "iter", "batch")]
    joined = "".join(bare)
    kind = _named(_NORMS.get(joined, "_".join(bare))) if bare else None
    if "scale" in joined and (joined in ("scale", "lscale", "scaler") or re.search("loss|grad|amp", joined)):
        return "loss_scale", 0
    if any(re.fullmatch(r"lr\d*", word) for word in bare) or joined.startswith("learningrate"):
        return ("lr", len(bare)) if not {"min", "max", "warmup", "decay"} & set(bare) else None
    if "norm" in joined and (joined in ("gnorm", "norm", "totalnorm") or "grad" in joined):
        return "grad_norm", len(bare)
    if joined.endswith(("rew", "reward", "return", "returns", "rewards", "rewmean")):
        return "reward", len(bare)
    if joined.endswith("loss") or "loss" in bare:
        rank = 0 if bare == ["loss"] else 1 if set(bare) <= set(_LOSSES) else 3
        if not set(bare) & _NO_LOSS:
            return "val_loss" if split in ("val", "test") else "loss", 2 * rank + mean
    elif kind and kind.name in _STAND_INS and "best" not in bare:
        return "val_loss" if split in ("val", "test") else "loss", 10 + _STAND_INS.index(kind.name)
    elif kind and (kind.direction == "up" or kind.name == "score") and "best" not in parts:
        return "accuracy", (0 if split in ("val", "test") else 5) + (kind.name != "accuracy")
    return None


def better(a: float, b: float, direction: str) -> bool:
    return a > b if direction == "up" else a < b


def possible(metric: Metric, value: float) -> bool:
    high = 100.0 if metric.share and metric.high == 1 else metric.high
    return metric.low <= value <= high


def is_perfect(metric: Metric, value: float) -> bool:
    if metric.perfect is None:
        return False
    return value == metric.perfect or (metric.share and metric.perfect == 1.0 and value == 100.0)
