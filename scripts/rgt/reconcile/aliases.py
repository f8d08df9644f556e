"""Names that a document writes otherwise than the values: nnU-Net for nnunet, LightGBM for lgbm, C10 for cifar10.

A name is another's only when it can be no second one's, and when the values' own spelling is not found in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rgt.reconcile.facts import UNITS, key_words, known_words
from rgt.reconcile.passages import Block, Table
from rgt.reconcile.vocabulary import Vocabulary, words

# a name: inner capitals or digits (WideNet-28, GPT-4), capitals (BERT), or a capital inside a sentence
NAME = re.compile(
    r"(?<![\w\\/@.-])(?:[A-Z][a-z]*(?:[A-Z]|-?\d)[\w]*(?:[-+][\w.]*\w)*|[A-Z]{2,}[\w]*(?:-[\w.]*\w)*"
    r"|[A-Z][a-z]+(?:-[A-Z][\w]*)+|(?<=[a-z,;] )[A-Z][a-z]{2,}\w*)"
)
NO_OWNER = known_words("texts", "no_owner")
_SILENT_AXES = ("split", "statistic", "point", "sweep")
_LONGEST = 40  # characters of a label that may be a name
_SHORT = 5  # letters of an abbreviation


def document_aliases(blocks: list[Block], vocabulary: Vocabulary) -> dict[tuple[str, ...], tuple[str, str]]:
    """spelling -> what it means"""
    found = {}
    for text in {*_candidates(blocks, vocabulary)}:
        meant = vocabulary.meaning(text, alias)
        if meant:
            found[words(text)] = meant
    return found


def _candidates(blocks: list[Block], vocabulary: Vocabulary) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Table):
            head = [cell.text for row in block.rows[: block.header] for cell in row]
            labels = [*head, *(cell.text for row in block.rows[block.header :] for cell in row[:2])]
            texts = [re.sub(r"[(（\[][^)\]）]*[)\]）]|[↑↓*]", " ", text).strip() for text in (*labels, *head)]
            yield from (text for text in texts if 2 < len(text) < _LONGEST and not vocabulary.find(text))
            yield from (text for text in head if 2 < len(text) < _LONGEST and not vocabulary.find(text))
        else:
            for name in NAME.finditer(block.text):
                if not vocabulary.find(name[0]):
                    yield name[0]


def alias(vocabulary: Vocabulary, text: str) -> tuple[str, str] | None:
    own = words(text)
    if not own or text.lower() in NO_OWNER or text.lower() in UNITS or sum(map(len, own)) < 3:
        return None
    for fits in (_same, _part, _shortened):
        found = [(axis, term) for axis, term in vocabulary.named if axis not in _SILENT_AXES and fits(text, axis, term)]
        if found:
            return found[0] if len({term for _, term in found}) == 1 else None
    return None


def _squeezed(text: str) -> str:
    return key_words(text).replace(" ", "")


def _same(text: str, axis: str, term: str) -> bool:
    return _squeezed(text) == _squeezed(term)


def _part(text: str, axis: str, term: str) -> bool:
    """GPTQ for int4-gptq"""
    own, whole = words(text), words(term)
    inside = any(whole[at : at + len(own)] == own for at in range(len(whole)))
    return inside and axis != "metric" and len(own) < len(whole) and len("".join(own)) > 2 and whole[0] != "no"


def _shortened(text: str, axis: str, term: str) -> bool:
    """LightGBM for lgbm, C10 for cifar10: the letters in their order, and the same digits"""
    if axis == "metric":
        return False
    short, long = sorted((_squeezed(text), _squeezed(term)), key=len)
    capitals = "".join(filter(str.isupper, text)).lower()  # all of them count: GCNII is no gcn
    digits = [re.sub(r"\D", "", one) for one in (short, long)]
    key_is_short = short == _squeezed(term)
    if not 2 < len(short) <= _SHORT or short[0] != long[0] or digits[0] != digits[1] or not (key_is_short or digits[0]):
        return False
    rest, letters = iter(long), iter(short)
    return short != long and capitals != "" and all(s in rest for s in short) and all(s in letters for s in capitals)
