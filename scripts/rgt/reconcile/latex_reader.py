"""LaTeX: paragraphs and tabulars, with the markup around numbers taken off. Line ends stay where they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from rgt.reconcile.numerals import has_digit
from rgt.reconcile.passages import Block, Cell, Definitions, Passage, Table, plain, text_of

_DEEP = r"\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"  # an argument, with braces up to two levels inside
_COMMENT = re.compile(r"(?<!\\)%(?!\s*claim:)[^\n]*")
_TABULAR = re.compile(r"\\begin\{(tabular[*xy]?|longtable|tblr|array)\}(.*?)\\end\{\1\}", re.S)
_COLUMNS = re.compile(rf"\s*(?:\[[^\]]*\])?(?:{_DEEP}){{1,2}}")  # width, column letters
_FLOAT = re.compile(r"\\begin\{(table|wraptable|sidewaystable|figure)\*?\}(.*?)\\end\{\1\*?\}", re.S)
_HEADING = re.compile(r"\\(?:part|chapter|(?:sub)*section|paragraph)\*?\{([^{}]*)\}")
_CAPTION = re.compile(rf"\\caption(?:\[[^\]]*\])?{_DEEP}")
_LISTING = re.compile(r"\\begin\{(verbatim|lstlisting|minted|tikzpicture|thebibliography)\}.*?\\end\{\1\}", re.S)
_CITATIONS = "cite|citep|citet|citeauthor|parencite|textcite"
_WITH_ARGUMENT = (  # commands that say nothing to a reader, and what they are given
    "label|ref|cref|Cref|eqref|autoref|pageref|input|include|includegraphics|bibliography|url|href|vspace|hspace|cmidrule"
    "|cline|rule|usepackage|documentclass|setlength|rowcolor|cellcolor|color|begin|end|footnotemark"
)
_FONTS = (
    r"textbf|textit|emph|underline|mathbf|mathrm|text|textrm|texttt|textsc|textsf|bm|boldsymbol|mbox|best|second|makecell"
    r"|thead|shortstack|textcolor\{[^{}]*\}|footnotesize|scriptsize|small|tiny|bfseries|centering"
)
_SIGNS = (
    "percent % times|cdot|texttimes × approx|sim|simeq ≈ geqslant|geq|ge ≥ leqslant|leq|le ≤ gg|gt > ll|lt <".split()
)
_SIGNS += "uparrow|nearrow ↑ downarrow|searrow ↓ Delta Δ".split()

_SI_UNITS = [
    pair.split("=")
    for pair in (
        "milli\\\\second=ms micro\\\\second=us nano\\\\second=ns giga\\\\byte=GB mega\\\\byte=MB kilo\\\\byte=kB "
        "tera\\\\byte=TB "
        "second=s hour=h minute=min decibel=dB byte=B"
    ).split()
]
# in this order: what stands around a number, then what says nothing, then what is left of the markup
_REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\claim\{([^{}]*)\}", r"<!-- claim:\1 -->"),
        (r"(?<!\\)%\s*claim:\s*([\w-]+)", r"<!-- claim:\1 -->"),
        (r"\\(?:num|np|numprint)(?:\[[^\]]*\])?\{([^{}]*)\}", r"\1"),
        (r"\\(?:SI|qty)(?:\[[^\]]*\])?\{([^{}]*)\}\{\\percent\}", r"\1%"),
        *((rf"\\{long}\b\s*", short) for long, short in _SI_UNITS),
        (r"\\(?:SI|qty)(?:\[[^\]]*\])?\{([^{}]*)\}\{([^{}]*)\}", r"\1 \2"),
        (r"\\%", "%"),
        (r"\\(?:,|;|!|thinspace\b)(?=\d{3}(?!\d))", ","),
        (r"(?<=\d)\{,\}(?=\d)", ","),
        (r"\\(?:,|;|!|:| |thinspace\b|quad\b|qquad\b)|~", " "),
        (r"_\{?\s*\\(?:scriptsize|tiny|small|footnotesize)?\s*(?:\\pm|±)\s*([\d.]+)\s*\}?", r" ± \1"),
        (r"_\{\s*\\?(?:text|mathrm)?\{?(?:\\pm|±)?\s*([\d.]+)\}?\s*\}", r" ± \1"),
        (r"\\pm(?![A-Za-z])", "±"),
        *((rf"\\(?:{names})\b", sign) for names, sign in zip(_SIGNS[::2], _SIGNS[1::2], strict=True)),
        (rf"\\(?:{_CITATIONS})\*?(?:\[[^\]]*\])*\{{[^{{}}]*\}}", "[cite]"),
        (rf"\\(?:{_WITH_ARGUMENT})\*?(?:\([^)]*\))?(?:\[[^\]]*\])*(?:\{{[^{{}}]*\}})?", " "),
        (rf"\\(?:{_FONTS})\b(?:\[[^\]]*\])?", ""),
        (r"\^\{?\s*(?:\\dagger|\\ddagger|\\ast|\*|†|‡)\s*\}?", ""),
        (r"\\[a-zA-Z]+\*?", " "),
        (r"\^\{([^{}]*)\}", r"^\1"),
        (r"[{}$]", ""),
    )
]
_MACRO = re.compile(rf"\\(?:re)?(?:newcommand|providecommand|def)\*?\s*\{{?\\([A-Za-z]+)\}}?\s*{_DEEP}")
_MACRO_WITH = re.compile(rf"\\(?:re)?(?:newcommand|providecommand)\*?\s*\{{?\\([A-Za-z]+)\}}?\s*\[([1-4])\]\s*{_DEEP}")
_USE = re.compile(r"(?<!command\{)(?<!command\*\{)(?<!command)(?<!\\def)\\([A-Za-z]+)(?:\{\}|\\(?= )|\\xspace)?")
_OUR_MACROS = dict.fromkeys(
    ("ours", "our", "ourmethod", "ourmodel", "method", "methodname", "model", "modelname", "sysname"), "ours"
)
_MULTICOLUMN = re.compile(rf"\\multicolumn\{{(\d+)\}}\{{[^{{}}]*(?:\{{[^{{}}]*\}}[^{{}}]*)*\}}\s*{_DEEP}")
_MULTIROW = re.compile(rf"\\multirow(?:\[[^\]]*\])?\{{(-?\d+)\}}(?:\[[^\]]*\])?\{{[^{{}}]*\}}(?:\[[^\]]*\])?{_DEEP}")
_RULES = re.compile(r"\\(?:toprule|midrule|bottomrule|hline|addlinespace|morecmidrules)\b(?:\[[^\]]*\])?")
_RULE_LINES = re.compile(
    r"(?:\s|\\(?:toprule|midrule|bottomrule|hline|addlinespace|morecmidrules|cmidrule|cline|specialrule|rowcolor)\b(?:\([^)]*\))?(?:\[[^\]]*\])?(?:\{[^{}]*\})*)*"
)
_MIDRULE = re.compile(r"\\(?:midrule|hline)\b")
_PARAGRAPH = re.compile(r"\n[ \t]*\n|\\par\b|\\item\b")


def _filled(body: str, count: int) -> Callable[[re.Match[str]], str]:
    """A macro's text with its arguments in place."""
    return lambda use: re.sub(r"#(\d)", lambda place: use[int(place[1])] if int(place[1]) <= count else "", body)


def _expanded(text: str) -> tuple[str, Definitions]:
    r"""Macros without arguments written out, so that \ours is the name it stands for; and where numbers came from."""
    macros = {match[1]: " ".join(match[2].split()) for match in _MACRO.finditer(text)}
    lines = {match[1]: text.count("\n", 0, match.start(2)) + 1 for match in _MACRO.finditer(text)}
    defined: Definitions = {}
    for match in _MACRO_WITH.finditer(text):  # \\res{48.7}{2.3}
        use = re.compile(rf"\\{match[1]}(?![A-Za-z])" + r"\s*\{([^{}]*)\}" * int(match[2]))
        text = use.sub(_filled(match[3], int(match[2])), text)
    body = text.find("\\begin{document}")
    start = body if body >= 0 else 0

    def written_out(use: re.Match[str]) -> str:
        body = macros.get(use[1], _OUR_MACROS.get(use[1], use[0]))
        if use[1] in macros and has_digit(body):
            at = use.string.count("\n", 0, use.start()) + 1 + text.count("\n", 0, start)
            defined.setdefault(at, []).append((strip(body), lines[use[1]]))
        return body

    for _ in range(3):  # macros of macros
        new = _USE.sub(written_out, text[start:])
        if new == text[start:]:
            break
        text = text[:start] + new
    return text, defined


def strip(text: str) -> str:
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    return text


def read_latex(path: Path) -> Iterator[Block]:
    text = _COMMENT.sub("", plain(text_of(path)))
    text, defined = _expanded(_LISTING.sub(lambda match: "\n" * match[0].count("\n"), text))
    for block in _blocks(text):
        block.defined = defined
        yield block


def _blocks(text: str) -> Iterator[Block]:
    start = max(0, text.find("\\begin{document}"))
    for number, line in enumerate(text[:start].split("\n"), 1):
        if "claim:" in line or "\\claim" in line:  # generated macros; the rest of a preamble is not prose
            yield Passage(strip(line), number)
    heading = before = ""
    floats = [(match.start(), match.end(), match[2]) for match in _FLOAT.finditer(text, start)]
    position = start
    for match in [*_TABULAR.finditer(text, start), None]:
        at = match.start() if match else len(text)
        for passage in _prose(text, position, at, heading):
            heading = passage.heading
            before = passage.text or before
            if passage.text.strip():
                yield passage
        if match:
            inside = next((inside for first, last, inside in floats if first <= at < last), "")
            caption = _CAPTION.search(inside)
            rows, header = _rows(match[2], text.count("\n", 0, match.start(2)) + 1)
            yield Table(rows, header, strip(caption[1]) if caption else "", heading, "", before)
            position = match.end()


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
    """The rows of a tabular and how many of them are its header. What spans columns or rows is repeated."""
    rows: list[list[Cell]] = []
    header = 0
    pending: dict[int, tuple[int, str]] = {}  # column -> how many rows a \\multirow still fills, and with what
    body = _COLUMNS.sub(lambda match: "\n" * match[0].count("\n"), body, count=1)
    for raw in re.split(r"\\\\(?:\[[^\]]*\])?|\\tabularnewline", body):
        if header == 0 and rows and _MIDRULE.search(raw):
            header = len(rows)
        bare = _RULE_LINES.match(raw)
        first = line + raw.count("\n", 0, bare.end() if bare else 0)
        line += raw.count("\n")
        cells: list[Cell] = []
        for part in re.split(r"(?<!\\)&", _RULES.sub(" ", raw)):
            at = len(cells)
            spanned = _MULTICOLUMN.search(part)
            width, text = (min(int(spanned[1]), 100), spanned[2]) if spanned else (1, part)
            rowed = _MULTIROW.search(text)
            if rowed:
                text = rowed[2]
                pending[at] = (abs(int(rowed[1])) - 1, strip(text).strip())
            clean = " ".join(strip(text).split())
            if not clean and at in pending and pending[at][0] > 0:
                left, clean = pending[at]
                pending[at] = (left - 1, clean)
            cells += [Cell(clean, first)] * width
        if any(cell.text for cell in cells):
            rows.append(cells)
    return rows, header or 1
