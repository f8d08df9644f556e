"""A passage cut into sentences, or into lines where each line is a record: "accuracy: 91.2"."""

from __future__ import annotations

import re
from itertools import pairwise

_ABBREVIATIONS = "".join(rf"(?<!\b{word}\.)" for word in "vs al g e cf Fig Tab Sec Eq acc resp approx No".split())
# before anything that does not look like the middle of a sentence, or at the end; before an item of a list
_SENTENCE = re.compile(
    r"(?<=[。！？；])|(?<=[.!?;])(?<!\bvs\.)(?<!\bacc\.)(?<!\bal\.)(?<!\bresp\.)(?<!\bapprox\.)"
    r"(?=\s+(?:[^a-z\s]|[a-z]+-?[A-Z\d])|\s*\n\s*\n|\s*$)|\n(?=\s*(?:[-*+•]|\d+[.)])\s)"
)
_AT_LINE_END = re.compile(
    rf"(?<=[\w%)\]`*]\.){_ABBREVIATIONS}(?=[ \t]*\n)|(?<=\bal\.)(?=[ \t]*\n\s*[A-Z\u4e00-\u9fff])"
)
_RECORD = re.compile(r"^[^\n]{1,80}? – [^\n]{1,80} – [^\n]{1,80}\n", re.M)  # "Ours – SVHN – 0.96 F1": a line of its own
_FIELD = re.compile(r"\s*(?:[-*+•]\s+|\d+[.)]\s+)?[*_`\"]*[^:：=.。,，]{1,40}[*_`\"]*\s?[:：=]")  # "accuracy: 91.2"
_ENDS_IN_NUMBER = re.compile(r"\d\S*(?:\s(?:%|dB|\S{1,10}/s)|\s?\([^()]*\))?[\s*_`|]*$")
_GAPS = re.compile(r"\S {3,}\S[^\n]*\S {3,}\S")
_LONGEST_FIELD = 120  # characters


def sentences(text: str) -> list[tuple[int, int]]:
    ends = {match.end() for match in _SENTENCE.finditer(text)}
    if " – " in text:
        ends.update(match.end() for match in _RECORD.finditer(text))
    if "\n" in text.strip():
        if ".\n" in text or ". " in text:
            ends.update(match.end() for match in _AT_LINE_END.finditer(text))
        if _are_records(text):
            ends.update(match.end() for match in re.finditer("\n", text))
    cuts = sorted({0, len(text), *ends})
    return [(start, end) for start, end in pairwise(cuts) if text[start:end].strip()]


def _are_records(text: str) -> bool:
    """Are the lines of a paragraph records, and not wrapped prose?"""
    lines = [line for line in text.split("\n") if line.strip()]
    fields = sum(len(line) < _LONGEST_FIELD and is_field(line) for line in lines)
    return fields >= 0.7 * len(lines) or all(_ENDS_IN_NUMBER.search(line) for line in lines)


def is_field(text: str) -> bool:
    return _FIELD.match(text) is not None


def is_drawn(text: str) -> bool:
    """Columns that no reader made a table of: which number belongs to what is anybody's guess."""
    return "   " in text and sum(_GAPS.search(line) is not None for line in text.split("\n")) > 1
