"""Claims as one table: methods are rows, metric, dataset and split are columns.

The best of a column is marked only where the claims allow it: several methods, each with a spread over runs, one
direction, not known to be measured on different evaluation sets, and intervals (value ± spread) that do not touch.
Where it is withheld, a note says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from rgt.errors import bad_input
from rgt.evidence.claims import Claim, Project, checked_name, runs_of
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
    best: set[str] = field(default_factory=set)  # ids of claims
    notes: list[str] = field(default_factory=list)

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
    made = Grid(rows, columns, cells, counts.pop() if len(counts) == 1 else None, in_percent)
    for column in columns:
        rivals = [cells[row, column] for row in rows if (row, column) in cells]
        if len(rivals) > 1:
            ranked = sorted(rivals, key=lambda claim: claim["value"], reverse=rivals[0].get("direction") == "up")
            reason = _no_winner(project, rivals, ranked)
            if reason:
                made.notes.append(f"{title(column)}: no best marked, {reason}")
            else:
                made.best.add(ranked[0]["id"])
    return made


def column_of(claim: Claim) -> Column:
    return claim["metric"], claim.get("dataset", ""), claim.get("split", "")


def title(column: Column) -> str:
    return " ".join(part for part in column if part)


def _no_winner(project: Project, rivals: list[Claim], ranked: list[Claim]) -> str:
    """Why the first of the ranked rivals is not marked as the best."""
    if len({claim.get("direction") for claim in rivals}) > 1 or not rivals[0].get("direction"):
        return "the claims do not agree on which way is better"
    alone = [claim for claim in rivals if "spread" not in claim]
    if alone:
        return f"{alone[0].get('method') or alone[0]['id']} has no spread over runs"
    results = [project.result(run_id, claim) for claim in rivals for run_id in runs_of(claim)]
    if len({row["eval_set_sha256"] for row in results if "eval_set_sha256" in row}) > 1:
        return "the runs were measured on different evaluation sets"
    first, second = ranked[:2]
    if abs(first["value"] - second["value"]) <= first["spread"] + second["spread"]:
        return f"{first.get('method')} and {second.get('method')} lie within their spreads"
    return ""


# -- the formats


def _heads(made: Grid, arrows: dict[str, str], escape: Callable[[str], str] = str) -> list[str]:
    heads = []
    for column in made.columns:
        claim = next(claim for (_, at), claim in made.cells.items() if at == column)
        unit = f" ({claim['unit']})" if claim.get("unit") else ""
        arrow = arrows.get(claim.get("direction", ""), "")
        heads.append(escape(f"{title(column)}{unit}") + (f" {arrow}" if arrow else ""))
    return heads


def _foot(made: Grid) -> list[str]:
    said = [f"{made.n} runs each" if made.n > 1 else "one run each"] if made.n else []
    if any("spread" in claim for claim in made.cells.values()):
        said.append("± is the sample standard deviation over runs")
    said += ["bold: best, its interval apart from the next"] if made.best else []
    return ["; ".join(said), *made.notes] if said else made.notes


def markdown(made: Grid) -> str:
    def pipe(text: str) -> str:
        return " ".join(text.split()).replace("|", "\\|")

    def dress(text: str, claim: Claim) -> str:
        return (f"**{text}**" if claim["id"] in made.best else text) + f" <!-- claim:{claim['id']} -->"

    lines = ["| method | " + " | ".join(_heads(made, {"up": "↑", "down": "↓"}, pipe)) + " |"]
    lines.append("|---" * (len(made.columns) + 1) + "|")
    for row, *cells in made.body(Style(spread=True, n=made.n is None), dress):
        lines.append(f"| {pipe(row)} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *(f"- {pipe(note)}" for note in _foot(made))]) + "\n"


def latex(made: Grid) -> str:
    r"""A tabular for \usepackage{booktabs}; caption and label stay in the document."""

    def tex(text: str) -> str:
        return "".join(_TEX.get(sign, sign) for sign in " ".join(text.split()))

    def dress(text: str, claim: Claim) -> str:
        return rf"\textbf{{\boldmath {text}}}" if claim["id"] in made.best else text

    lines = [f"% {note}" for note in _foot(made)]
    lines += [r"\begin{tabular}{l" + "r" * len(made.columns) + "}", r"\toprule"]
    lines.append("method & " + " & ".join(_heads(made, {"up": r"$\uparrow$", "down": r"$\downarrow$"}, tex)) + r" \\")
    lines.append(r"\midrule")
    for row, *cells in made.body(Style(spread=True, n=made.n is None, tex=True), dress):
        lines.append(f"{tex(row)} & " + " & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


KINDS: dict[str, Callable[[Grid], str]] = {"md": markdown, "tex": latex}
