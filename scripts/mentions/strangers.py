"""Names in a sentence that no claim has: other metrics, other datasets, other methods.

They are found beside the names that claims have, so that their numbers are given to them and not to ours. Asked only
of a sentence with a number that differs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mentions.cues import chinese, phrases
from mentions.terms import Hit, other_version

# what people measure beside results of ours; what a claim has is found before this
_METRICS = re.compile(
    r"(?<![\w-])(?P<name>"
    + phrases(r"""
    precision, recall, sensitivity, specificity, AUC, AUROC, AUPRC, mAP, mIoU, IoU, Dice(?: score)?, dice(?: score)?
    BLEU, METEOR, ROUGE(?:-[L12])?, chrF, COMET, FID, LPIPS, MAE, RMSE, MSE, NLL, ECE, MRR, NDCG, EM, CER
    exact match, error rate, character error rate, calibration error, hit rate, top-5(?: accuracy)?
    robust(?:ness)? accuracy, agreement, kappa, coverage, occupancy, utili[sz]ation, latency, memory, energy, power
    runtime, run time, wall[- ]clock(?: time)?, speed-?up, FLOPs, MACs, parameters, params
""")
    + "|"
    + chinese(
        "精确率 查准率 召回率 查全率 灵敏度 特异度 交并比 覆盖率 字错误率 "
        "延迟 时延 内存 显存 参数量 计算量 利用率 稀疏度 能耗 功耗 加速比"
    )
    + r")(?![A-Za-z0-9_-])"
)
_OF_NUMBERS = re.compile(r"(?:mixed|half|full|single|double|bf16|fp16)[ -]$", re.I)  # a precision that is no metric
_CODE_NAME = r"[A-Z][A-Za-z]*(?:[a-z][A-Z]|[A-Z]{2}|-?\d)[\w-]*"  # WideNet-28, COCO, WMT19
_OTHER_WORDS = (
    r"(?!(?:Table|Figure|Fig|Section|Sec|Appendix|Slide|Row|Eq|Step|Day|Linux|Windows|Ubuntu|Colab|Kaggle"
    r"|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|January|February|March|April|May|June|July|August|September|October"
    r"|November|December|English|Chinese|German|French)\b)"
)
_DATASETS = re.compile(
    rf"\b(?:[Oo]n|[Ff]or|at|[Ii]n)\s(?:the\s)?(?P<name>{_CODE_NAME}|[A-Z]{{3,}}(?:-\w+)?"
    r"|our (?:internal|own|private|in-house|proprietary)(?: \w+)?"
    r" (?:data|set|benchmark|test set|dataset|corpus|traffic)"
    r"|(?:internal|private|in-house|production|customer|synthetic|another|other) \w+"
    rf"|(?<=[Oo]n\s){_OTHER_WORDS}[A-Z][a-z]{{3,}}|(?<=on\sthe\s){_OTHER_WORDS}[A-Z][a-z]{{3,}})"
    r"(?! (?:GPUs?|cards?|nodes?|box|machine))(?![\w-])"
)
# machines, libraries, number formats: capitals and digits that are no methods
_TOOLS = (
    r"(?!(?:[AHVTLP]\d+0*|RTX|TPUs?|GPUs?|CPUs?|CUDA|PyTorch|TensorFlow|JAX|AdamW?|SGD|LAMB|[FT]P\d+|BF\d+|TF\d+|AMP"
    r"|DDP|FSDP|LaTeX|README|EMA)\b)"
)
_NAME = re.compile(rf"(?<![\w-]){_TOOLS}(?P<name>[A-Z][A-Za-z]*(?:[a-z][A-Z]|-?\d)[\w-]*)")
_INSIDE = re.compile(
    rf"(?:(?<=\w )|(?<=, ))(?!(?:Adam|I)\b){_OTHER_WORDS}{_TOOLS}(?P<name>[A-Z][a-z]{{2,}})\b"
)  # a capital inside a sentence
_FIRST = re.compile(
    r"^\W*(?!(?:It|Its|This|That|These|Those|The|We|Our|Ours|Their|There|Here|Test|Mean|Average|Final|Overall|Results?"
    r"|Value|Best)\b)(?P<name>[A-Z][a-z]+)(?='s\b|\s(?:\w+ )?(?:reach|obtain|g[eo]t|achiev|scor|attain|yield|report"
    r"|ha[sd]|have|is|was|giv|gav|show|hit|manag|record|post|deliver|end|stay|com|arriv|claim|list|quot)\w*\b)"
)  # "Swin obtains", at its start


def beside(text: str, hits: list[Hit]) -> list[Hit]:
    """The terms, and metrics and datasets that no claim has; their values start with a question mark."""
    found = [hit._replace(value=f"?{hit.value}") if other_version(text, hit) else hit for hit in hits]
    for match, dimension in _other_terms(text):
        start, end = match.span("name")
        inside = [hit for hit in found if hit.start < end and start < hit.end]
        if any(hit.start < start or end < hit.end or hit.end - hit.start == end - start for hit in inside):
            continue  # a term of ours, or part of one
        found = [hit for hit in found if hit not in inside]  # the accuracy of "top-5 accuracy"
        found.append(Hit(dimension, f"?{match['name'].lower()}", start, end))
    return sorted(found, key=lambda hit: hit.start)


def _other_terms(text: str) -> Iterator[tuple[re.Match[str], str]]:
    for match in _METRICS.finditer(text):
        if match["name"] != "precision" or not _OF_NUMBERS.search(text, 0, match.start()):
            yield match, "metric"
    for match in _DATASETS.finditer(text):
        yield match, "dataset"


def names(text: str, end: int) -> list[int]:
    """Where names of models or methods start, as far as `end`."""
    return [match.start() for match in _NAME.finditer(text, 0, end)]


def another_method(text: str, hits: list[Hit]) -> bool:
    """Does a sentence without a method of ours name something that no claim has? It may be somebody else's method."""
    places = [match.start("name") for pattern in (_NAME, _INSIDE, _FIRST) for match in pattern.finditer(text)]
    return any(not any(hit.start <= at < hit.end for hit in hits) for at in places)
