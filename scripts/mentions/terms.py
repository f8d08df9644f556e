"""The words of EVIDENCE.json as they turn up in a text: CIFAR10 for CIFAR-10, acc for accuracy, 准确率 too.

A text is looked through once, whatever the number of claims: its words are looked up in one table.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

DIMENSIONS = ("metric", "method", "dataset", "split")

# letters, digits, and single Chinese characters: so that spelling with or without spaces, hyphens and case is one
_TOKEN = re.compile(r"[\u3400-\u9fff]|[^\W\d_\u3400-\u9fff]+|\d+")

# one word for another, on both sides
_SAME = {
    "acc": "accuracy", "accuracies": "accuracy", "ppl": "perplexity", "validation": "val", "valid": "val", "dev": "val",
    "testing": "test", "training": "train", "params": "parameters", "losses": "loss", "err": "error",
    "baselines": "baseline", "sec": "s", "seconds": "s", "hours": "h", "prec": "precision", "rec": "recall",
}  # fmt: skip

# several ways to say one metric, method or split; the words of a claim decide which of them are looked for
_GROUPS = (
    ("accuracy", "top 1 accuracy", "top 1", "acc@1", "classification accuracy", "准确率", "正确率", "精度"),
    ("top 5 accuracy", "top 5", "acc@5"),
    ("perplexity", "困惑度"),
    ("loss", "损失", "损失值"),
    ("f1", "f1 score", "f1 measure", "f1 值", "f1 分数"),
    ("precision", "精确率", "查准率"),
    ("recall", "召回率", "查全率", "sensitivity"),
    ("psnr", "峰值信噪比", "peak signal to noise ratio"),
    ("ssim", "结构相似性", "结构相似度", "structural similarity"),
    ("iou", "交并比"),
    ("miou", "mean iou", "平均交并比"),
    ("map", "mean average precision", "平均精度均值"),
    ("auc", "auroc", "roc auc", "area under the curve"),
    ("wer", "word error rate", "词错误率", "词错率"),
    ("cer", "character error rate", "字错误率", "字错率"),
    ("fid", "frechet inception distance", "fréchet inception distance"),
    ("bleu", "bleu score"),
    ("rouge l", "rouge-l score"),
    ("lpips", "感知损失"),
    ("nmse", "normalized mean squared error", "归一化均方误差"),
    ("mse", "mean squared error", "均方误差"),
    ("rmse", "root mean squared error", "均方根误差"),
    ("mae", "mean absolute error", "平均绝对误差"),
    ("error", "error rate", "错误率", "误差"),
    ("latency", "延迟", "时延", "推理时间"),
    ("throughput", "吞吐量", "吞吐率"),
    ("em", "exact match", "精确匹配"),
    ("r2", "r squared", "r^2"),
    ("ours", "our method", "our model", "our approach", "our network", "proposed", "proposed method", "proposed model",
     "本文方法", "我们的方法", "所提方法", "本文", "我们的模型"),
    ("baseline", "the baseline", "基线", "基线模型", "基准方法", "基线方法"),
    ("test", "test set", "测试集", "测试"),
    ("val", "val set", "验证集", "验证"),
    ("train", "train set", "训练集"),
)  # fmt: skip


_EXTENDED = re.compile(r"\s?(?:\+|w/o?\b|without\b|with\b(?=\s+[A-Z])|[-/](?=[A-Za-z0-9]))")


_SIGNS = re.compile(r"[^\w\s]+$")


class Hit(NamedTuple):
    dimension: str
    value: str  # as the claim writes it, lower case
    start: int
    end: int


Token = tuple[str, int, int]  # the word as it is compared, start, end


def tokens(text: str) -> list[Token]:
    same = _SAME
    return [(same.get(word := match[0].lower(), word), *match.span()) for match in _TOKEN.finditer(text)]


def words(text: str) -> tuple[str, ...]:
    return tuple(word for word, _, _ in tokens(text))


def by_dimension(hits: list[Hit]) -> dict[str, list[Hit]]:
    result: dict[str, list[Hit]] = {}
    for hit in hits:
        result.setdefault(hit.dimension, []).append(hit)
    return result


def extended(text: str, hit: Hit) -> bool:
    """ "Ours + CutMix" and "Ours-L" are other methods than "Ours"."""
    end = hit.end
    own = None if hit.value[-1].isalnum() else _SIGNS.search(hit.value)  # the ++ of SPLADE++ is its own
    if own and text.startswith(own[0], end):
        end += len(own[0])
    return _EXTENDED.match(text, end) is not None


_LABEL, _REMEMBERED = 60, 10_000


def _is_cjk(word: str) -> bool:
    return "\u3400" <= word[0] <= "\u9fff"


Entry = tuple[tuple[str, ...], list[tuple[str, str]]]  # the words, and what they may mean: (dimension, value)


@dataclass
class Vocabulary:
    """Every term of every claim, by its first word as texts may write it, longest first."""

    by_first: dict[str, list[Entry]] = field(default_factory=dict)
    dimensions: set[str] = field(default_factory=set)  # those that any claim has
    known: dict[str, list[Hit]] = field(default_factory=dict, repr=False)  # labels of rows and columns come again

    def find(self, text: str) -> list[Hit]:
        """The terms in `text`, left to right; of two that overlap the longer one counts."""
        if len(text) > _LABEL:
            return self._look(text)
        hits = self.known.get(text)
        if hits is None:
            if len(self.known) >= _REMEMBERED:
                self.known.clear()
            hits = self.known[text] = self._look(text)
        return hits

    def _look(self, text: str) -> list[Hit]:
        low = text.lower()
        if len(low) != len(text):  # a few letters grow; then case is kept, so that places stay places
            low = text
        hits: list[Hit] = []
        end = 0
        for match in self.first_words.finditer(low):
            if match.start() >= end:
                found = _longest(self.by_first[match[0]], low, match)
                if found:
                    meant, end = found
                    for dimension, value in meant:
                        hits.append(Hit(dimension, value, match.start(), end))
        return hits

    @functools.cached_property
    def first_words(self) -> re.Pattern[str]:
        """Finds where a term may start: a first word, whole as _TOKEN would cut it."""
        written = sorted(self.by_first, key=len, reverse=True)
        kinds = {
            rf"(?<!{letter})(?:{'|'.join(map(re.escape, group))})(?!{letter})"
            for letter, group in (
                (r"[^\W\d_\u3400-\u9fff]", [word for word in written if not word.isdigit() and not _is_cjk(word)]),
                (r"\d", [word for word in written if word.isdigit()]),
                ("(?!)", [word for word in written if _is_cjk(word)]),
            )
            if group
        }
        return re.compile("|".join(sorted(kinds)) or "(?!)")


def _longest(entries: list[Entry], low: str, first: re.Match[str]) -> tuple[list[tuple[str, str]], int] | None:
    for spelling, meant in entries:
        end = first.end()
        for word in spelling[1:]:
            match = _TOKEN.search(low, end)
            if not match or _SAME.get(match[0], match[0]) != word:
                break
            end = match.end()
        else:
            return meant, end
    return None


def vocabulary(claims: Iterable[dict[str, Any]], aliases: dict[str, list[str]]) -> Vocabulary:
    """`aliases`: other words for a name, as EVIDENCE.json gives them."""
    names = {
        (dimension, claim[dimension].lower()) for claim in claims for dimension in DIMENSIONS if claim.get(dimension)
    }
    own = {(dimension, words(value)): value for dimension, value in names}
    meanings: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for dimension, value in sorted(names):
        for spelling in _spellings(value, aliases):
            if not spelling or (own.get((dimension, spelling), value) != value):
                continue  # another claim's own name is never an alias
            meant = meanings.setdefault(spelling, [])
            if (dimension, value) not in meant:
                meant.append((dimension, value))
    result = Vocabulary(dimensions={dimension for dimension, _ in names})
    for spelling, meant in meanings.items():
        for written in _written(spelling[0]):
            result.by_first.setdefault(written, []).append((spelling, meant))
    for entries in result.by_first.values():
        entries.sort(key=lambda entry: -len(entry[0]))
    return result


def _written(word: str) -> list[str]:
    return [word, *(other for other, same in _SAME.items() if same == word)]


def _spellings(value: str, aliases: dict[str, list[str]]) -> set[tuple[str, ...]]:
    own = words(value)
    spellings = {own}
    for group in _GROUPS:
        group_words = [words(name) for name in group]
        if own in group_words:
            spellings.update(group_words)
    for name, others in aliases.items():
        if words(name) == own:
            spellings.update(words(other) for other in others)
    return spellings
