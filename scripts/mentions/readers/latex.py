"""LaTeX: paragraphs and tabulars, with the markup around numbers taken off. Line ends stay where they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from mentions.passages import Block, Cell, Passage, Table, plain
from mentions.readers import text_of

_COMMENT = re.compile(r"(?<!\\)%(?!\s*claim:)[^\n]*")
_TABULAR = re.compile(r"\\begin\{(tabular[*xy]?|longtable|tblr|array)\}(.*?)\\end\{\1\}", re.S)
_COLUMNS = re.compile(r"\s*(?:\[[^\]]*\])?(?:\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}){1,2}")  # width, column letters
_FLOAT = re.compile(r"\\begin\{(table|wraptable|sidewaystable|figure)\*?\}(.*?)\\end\{\1\*?\}", re.S)
_HEADING = re.compile(r"\\(?:part|chapter|(?:sub)*section|paragraph)\*?\{([^{}]*)\}")
_CAPTION = re.compile(r"\\caption(?:\[[^\]]*\])?\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")
_LISTING = re.compile(r"\\begin\{(verbatim|lstlisting|minted|tikzpicture|thebibliography)\}.*?\\end\{\1\}", re.S)

# in this order: what stands around a number, then what says nothing, then what is left of the markup
_REWRITES: list[tuple[re.Pattern[str], str]] = [
    (re.compile(r"\\claimvalue(?:\[[^\]]*\])?\{([^{}]*)\}\{((?:[^{}]|\{[^{}]*\})*)\}"), r"\2<!-- claim:\1 -->"),
    (re.compile(r"\\claim\{([^{}]*)\}"), r"<!-- claim:\1 -->"),
    (re.compile(r"(?<!\\)%\s*claim:\s*([\w-]+)"), r"<!-- claim:\1 -->"),
    (re.compile(r"\\(?:num|np|numprint)(?:\[[^\]]*\])?\{([^{}]*)\}"), r"\1"),
    (re.compile(r"\\(?:SI|qty)(?:\[[^\]]*\])?\{([^{}]*)\}\{\\percent\}"), r"\1%"),
    (re.compile(r"\\(?:SI|qty)(?:\[[^\]]*\])?\{([^{}]*)\}\{([^{}]*)\}"), r"\1 \2"),
    (re.compile(r"\\percent\b"), "%"),
    (re.compile(r"\\%"), "%"),
    (re.compile(r"\\(?:,|;|!|thinspace\b)(?=\d{3}(?!\d))"), ","),
    (re.compile(r"(?<=\d)\{,\}(?=\d)"), ","),
    (re.compile(r"\\(?:,|;|!|:| |thinspace\b|quad\b|qquad\b)|~"), " "),
    (re.compile(r"_\{?\s*\\(?:scriptsize|tiny|small|footnotesize)?\s*(?:\\pm|±)\s*([\d.]+)\s*\}?"), r" ± \1"),
    (re.compile(r"_\{\s*\\?(?:text|mathrm)?\{?(?:\\pm|±)?\s*([\d.]+)\}?\s*\}"), r" ± \1"),
    (re.compile(r"\\pm(?![A-Za-z])"), "±"),
    (re.compile(r"\\(?:times|cdot)\b"), "×"),
    (re.compile(r"\\(?:approx|sim|simeq)\b"), "≈"),
    (re.compile(r"\\(?:geqslant|geq|ge)\b"), "≥"),
    (re.compile(r"\\(?:leqslant|leq|le)\b"), "≤"),
    (re.compile(r"\\(?:gg|gt)\b"), ">"),
    (re.compile(r"\\(?:ll|lt)\b"), "<"),
    (re.compile(r"\\(?:uparrow|nearrow)\b"), "↑"),
    (re.compile(r"\\(?:downarrow|searrow)\b"), "↓"),
    (re.compile(r"\\Delta\b"), "Δ"),
    (re.compile(r"\\(?:cite|citep|citet|citeauthor|parencite|textcite)\*?(?:\[[^\]]*\])*\{[^{}]*\}"), "[cite]"),
    (re.compile(r"\\(?:label|ref|cref|Cref|eqref|autoref|pageref|input|include|includegraphics|bibliography|url|href|vspace|hspace"
                r"|cmidrule|cline|rule|usepackage|documentclass|setlength|rowcolor|cellcolor|color|begin|end|footnotemark)\*?"
                r"(?:\([^)]*\))?(?:\[[^\]]*\])*(?:\{[^{}]*\})?"), " "),
    (re.compile(r"\\(?:textbf|textit|emph|underline|mathbf|mathrm|text|textrm|texttt|textsc|textsf|bm|boldsymbol|mbox|best|second|makecell|thead|shortstack"
                r"|textcolor\{[^{}]*\}|footnotesize|scriptsize|small|tiny|bfseries|centering)\b(?:\[[^\]]*\])?"), ""),
    (re.compile(r"\^\{?\s*(?:\\dagger|\\ddagger|\\ast|\*|†|‡)\s*\}?"), ""),
    (re.compile(r"\\[a-zA-Z]+\*?"), " "),
    (re.compile(r"\^\{([^{}]*)\}"), r"^\1"),
    (re.compile(r"[{}$]"), ""),
]  # fmt: skip
_MULTICOLUMN = re.compile(
    r"\\multicolumn\{(\d+)\}\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"
)
_MULTIROW = re.compile(
    r"\\multirow(?:\[[^\]]*\])?\{(-?\d+)\}(?:\[[^\]]*\])?\{[^{}]*\}(?:\[[^\]]*\])?\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"
)
_RULES = re.compile(r"\\(?:toprule|midrule|bottomrule|hline|addlinespace|morecmidrules)\b(?:\[[^\]]*\])?")
_MIDRULE = re.compile(r"\\(?:midrule|hline)\b")
_PARAGRAPH = re.compile(r"\n[ \t]*\n|\\par\b|\\item\b")


def strip(text: str) -> str:
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    return text


def read(path: Path) -> Iterator[Block]:
    text = plain(text_of(path))
    text = _COMMENT.sub("", text)
    text = _LISTING.sub(lambda match: "\n" * match[0].count("\n"), text)
    body = text.find("\\begin{document}")
    start = body if body >= 0 else 0
    yield from _definitions(text, start)
    yield from _blocks(text, start)


def _definitions(text: str, end: int) -> Iterator[Block]:
    """A preamble is no prose; lines with a claim's mark count all the same (generated macros)."""
    for number, line in enumerate(text[:end].split("\n"), 1):
        if "claim:" in line or "\\claim" in line:
            yield Passage(strip(line), number)


def _blocks(text: str, start: int) -> Iterator[Block]:
    heading = ""
    tables = [(match.start(), match) for match in _TABULAR.finditer(text, start)]
    floats = [(match.start(), match.end(), match[2]) for match in _FLOAT.finditer(text, start)]
    position = start
    before = ""
    for at, match in [*tables, (len(text), None)]:
        for passage in _prose(text, position, at, heading):
            heading = passage.heading
            before = passage.text or before
            if passage.text.strip():
                yield passage
        if match:
            caption = next((_caption(inside) for first, last, inside in floats if first <= at < last), "")
            rows, header = _rows(match[2], text.count("\n", 0, match.start(2)) + 1)
            yield Table(rows, header, caption, heading, "", before)
            position = match.end()


def _caption(inside: str) -> str:
    match = _CAPTION.search(inside)
    return strip(match[1]) if match else ""


def _prose(text: str, start: int, end: int, heading: str) -> Iterator[Passage]:
    """Paragraphs; each carries the heading it stands under, and an empty one may carry only that."""
    line = text.count("\n", 0, start) + 1
    position = start
    for stop in [*(match.start() for match in _PARAGRAPH.finditer(text, start, end)), end]:
        raw = text[position:stop]
        for found in _HEADING.finditer(raw):
            heading = strip(found[1])
        lead = len(raw) - len(raw.lstrip())
        first = line + raw.count("\n", 0, lead)
        yield Passage(strip(raw[lead:]), first, heading)
        line += raw.count("\n")
        position = stop


def _rows(body: str, line: int) -> tuple[list[list[Cell]], int]:
    rows: list[list[Cell]] = []
    header = 0
    pending: dict[int, tuple[int, str]] = {}
    body = _COLUMNS.sub(lambda match: "\n" * match[0].count("\n"), body, count=1)
    for raw in re.split(r"\\\\(?:\[[^\]]*\])?|\\tabularnewline", body):
        if header == 0 and rows and _MIDRULE.search(raw):
            header = len(rows)
        lead = len(raw) - len(raw.lstrip())
        first = line + raw.count("\n", 0, lead)
        cells = _cells(_RULES.sub(" ", raw), first, pending)
        if any(cell.text for cell in cells):
            rows.append(cells)
        line += raw.count("\n")
    return rows, header or 1


def _cells(raw: str, line: int, pending: dict[int, tuple[int, str]]) -> list[Cell]:
    cells: list[Cell] = []
    for part in re.split(r"(?<!\\)&", raw):
        width, text = 1, part
        spanned = _MULTICOLUMN.search(part)
        if spanned:
            width, text = min(int(spanned[1]), 100), spanned[2]
        rowed = _MULTIROW.search(text)
        if rowed:
            text = rowed[2]
            pending[len(cells)] = (abs(int(rowed[1])) - 1, strip(text).strip())
        clean = " ".join(strip(text).split())
        if not clean and len(cells) in pending and pending[len(cells)][0] > 0:
            left, clean = pending[len(cells)]
            pending[len(cells)] = (left - 1, clean)
        cells += [Cell(clean, line)] * width
    return cells
