"""Words that speak of somebody else's number, or of another state of the model: then nothing is called wrong."""

from __future__ import annotations

import re

from rgt.reconcile.facts import UNITS, known_words
from rgt.reconcile.places import Place
from rgt.reconcile.vocabulary import Vocabulary

# a name: inner capitals or digits (WideNet-28, GPT-4), capitals (BERT), or a capital inside a sentence
_NAME = re.compile(
    r"(?<![\w\\/@.-])(?:[A-Z][a-z]*(?:[A-Z]|-?\d)[\w]*(?:[-+][\w.]*\w)*|[A-Z]{2,}[\w]*(?:-[\w.]*\w)*"
    r"|[A-Z][a-z]+(?:-[A-Z][\w]*)+|(?<=[a-z,;] )[A-Z][a-z]{2,}\w*)"
)
_NO_OWNER = known_words("texts", "no_owner")
_CUES = re.compile(
    r"\[cite\]|\bet al\b|[A-Z][a-z]+ and [A-Z][a-z]+ \["
    r"|\b(?:prior|previous(?:ly)?|earlier|existing|competing|published|literature|state[- ]of[- ]the[- ]art|sota"
    r"|concurrent|others?|their (?:paper|work|own|original|report)|human|chance|random guess(?:ing)?|official|original"
    r"|reported|(?<!\bwe )(?:claims|reports|states|announces)|according to|leaderboard|model card|competitors?|rivals?"
    r"|commercial|proprietary|third[- ]party"
    r"|(?:on|with|using) (?:only |just )?(?:\d+ ?%|(?:a |one )?(?:quarter|half|third|fifth|tenth)) of"
    r"|outdated|obsolete|target|goal|aim(?:ed)?|expect(?:ed)?|hoped?|budget|would|should|upper bound|lower bound|oracle"
    r"|threshold|requirement|cap|limit|at (?:epoch|step|iteration|initiali[sz]ation)|intermediate|preliminary|already"
    r"|so far|after (?:just|only)|pilot|draft|preprint|submi(?:ssion|tted)|old(?:er)?|initial(?:ly)?|first version"
    r"|legacy|deprecated|retired|superseded|used to|last (?:year|month|release)"
    r"|quanti[sz]\w*|prun\w*|compress\w*|distill\w*|INT[48]|fp16|bf16|best (?:seed|run|single|checkpoint)"
    r"|worst|single (?:seed|run)|seed \d+|subset|ablat\w*|without|w/o|removing|disabling|if we|when we|with only"
    r"|early stopp\w*|varying|sweep\w*|increas\w+ the|fold \d|at \d+ ?% |low-resource|few-shot|zero-shot|estimated?"
    r"|extrapolat\w*|peaks? at|saturat\w*)\b"
    r"|文献|前人|此前|以往|他人|原论文|原文|报告|公开榜单|已有|现有|竞品|官方|人类|目标|预期|中间|初步|量化|剪枝|蒸馏|最佳种子"
    r"|单次运行|单次实验|去掉|移除|旧版|旧配置|历史版本|废弃|上周|上月|早期|若|如果|阈值|上限|下限|要求",
    re.I,
)
# "Ours + CutMix" and "Ours-L" are other methods than "Ours"
_EXTENDED = re.compile(
    r"\s?(?:\+|w/o?\b|without\b|with\b(?=\s+[A-Z])|[-/](?=[A-Za-z0-9])"
    r"|\((?:w/|with|no|without|\+|large|small|base|tiny|xl)\b)",
    re.I,
)


def doubt(place: Place, vocabulary: Vocabulary) -> str:
    """Why a number may be somebody else's, or of another state of the model; of a cell its labels say so."""
    if place.cell:
        return place.stranger
    text = place.text
    hits = vocabulary.find(text)

    def known(start: int, end: int) -> bool:
        return any(hit.start <= start < hit.end or hit.start < end <= hit.end for hit in hits)

    for cue in _CUES.finditer(text):
        if not known(cue.start(), cue.end()):
            return f"{cue[0]!r} may mean another owner or state"
    for name in _NAME.finditer(text):
        low = name[0].lower()
        plain = len(low) < 3 or low in _NO_OWNER or low in UNITS or (not name.start() and name[0].istitle())
        if not plain and not known(name.start(), name.end()):
            return f"{name[0]!r} is named, which no value is about"
    entities = (hit for hit in hits if hit.axis not in ("metric", "split"))
    return "a name goes on: another variant" if any(_EXTENDED.match(text, hit.end) for hit in entities) else ""
