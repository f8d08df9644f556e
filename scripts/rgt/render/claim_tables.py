"""Claims as one table: methods are rows, metric, dataset and split are columns.

No best is marked: which method is better, and whether the runs can tell, is what rgt compare_runs judges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from rgt.errors import bad_input
from rgt.evidence.claims import Claim, Project, checked_name
from rgt.render.document_numbers import Style

Column = tuple[str, str, str]  # metric, dataset, split
_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    sign: f"\\{sign}" for sign in "&%$#_{}"
}


@dataclass
class Grid:
    rows: list[str]
    columns: list[Column]
    cells: dict[tuple[str, Column], Claim]
    n: int | None  # when it is one number for all cells
    in_percent: frozenset[str]  # metrics, lower case

    def body(self, style: Style, dress: Callable[[str, Claim], str]) -> list[list[str]]:
        """Every row: its method, then the text of each cell, dressed in a format's own signs."""

        texts = {}
        for place, claim in self.cells.items():
            own = replace(style, percent=claim["metric"].lower() in self.in_percent)
            texts[place] = dress(own.text(claim), claim)
        return [[row, *(texts.get((row, column), "") for column in self.columns)] for row in self.rows]


def named(project: Project) -> dict[str, list[Claim]]:
    asked = project.data.get("tables") or {}
    made = {checked_name(name): [project.claim(one) for one in ids] for name, ids in asked.items()}
    return made or {"results": project.claims}


def grid(project: Project, claims: list[Claim]) -> Grid:
    """Rows and columns in the order of EVIDENCE.json."""
    cells: dict[tuple[str, Column], Claim] = {}
    for claim in claims:
        key = (claim.get("method", ""), column_of(claim))
        if key in cells:
            both = f"{cells[key]['id']} and {claim['id']} would share a cell"
            raise bad_input(f"{both}: tell them apart by --method, --dataset or --split, or name the table's claims")
        cells[key] = claim
    rows, columns = (list(dict.fromkeys(names)) for names in zip(*cells, strict=True))
    counts = {claim.get("n") for claim in claims}
    in_percent = frozenset(metric.lower() for metric in project.data.get("percent", []))
    return Grid(rows, columns, cells, counts.pop() if len(counts) == 1 else None, in_percent)


def column_of(claim: Claim) -> Column:
    return claim["metric"], claim.get("dataset", ""), claim.get("split", "")


def title(column: Column) -> str:
    return " ".join(part for part in column if part)


# -- the formats


def _heads(made: Grid, arrows: dict[str, str], escape: Callable[[str], str] = str) -> list[str]:
    heads = []
    for column in made.columns:
        claim = next(claim for (_, at), claim in made.cells.items() if at == column)
        unit = f" ({claim['unit']})" if claim.get("unit") else ""
        arrow = arrows.get(claim.get("direction", ""), "")
        heads.append(escape(f"{title(column)}{unit}") + (f" {arrow}" if arrow else ""))
    return heads


def _foot(made: Grid) -> str:
    said = [f"{made.n} runs each" if made.n > 1 else "one run each"] if made.n else []
    if any("spread" in claim for claim in made.cells.values()):
        said.append("± is the sample standard deviation over runs")
    return "; ".join(said)


def markdown(made: Grid) -> str:
    def pipe(text: str) -> str:
        return " ".join(text.split()).replace("|", "\\|")

    def dress(text: str, claim: Claim) -> str:
        return f"{text} <!-- claim:{claim['id']} -->"

    lines = ["| method | " + " | ".join(_heads(made, {"up": "↑", "down": "↓"}, pipe)) + " |"]
    lines.append("|---" * (len(made.columns) + 1) + "|")
    for row, *cells in made.body(Style(spread=True, n=made.n is None), dress):
        lines.append(f"| {pipe(row)} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", _foot(made)]) + "\n"


def latex(made: Grid) -> str:
    r"""A tabular for \usepackage{booktabs}; caption and label stay in the document."""

    def tex(text: str) -> str:
        return "".join(_TEX.get(sign, sign) for sign in " ".join(text.split()))

    lines = [f"% {_foot(made)}", r"\begin{tabular}{l" + "r" * len(made.columns) + "}", r"\toprule"]
    lines.append("method & " + " & ".join(_heads(made, {"up": r"$\uparrow$", "down": r"$\downarrow$"}, tex)) + r" \\")
    lines.append(r"\midrule")
    for row, *cells in made.body(Style(spread=True, n=made.n is None, tex=True), lambda text, claim: text):
        lines.append(f"{tex(row)} & " + " & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


KINDS: dict[str, Callable[[Grid], str]] = {"md": markdown, "tex": latex}
