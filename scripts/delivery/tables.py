"""Claims as one table: methods are rows, metric, dataset and split are columns.

The best of a column is marked only where the claims allow it: several methods, each with a spread over runs, one
direction, not known to be measured on different evaluation sets, and intervals (value ± spread) that do not touch.
Where it is withheld, a note says why.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import PurePath

from delivery.digits import Style
from rgt.errors import bad_input
from rgt.evidence import Claim, Project, runs_of

Column = tuple[str, str, str]  # metric, dataset, split
_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    sign: f"\\{sign}" for sign in "&%$#_{}"
}


@dataclass
class Grid:
    rows: list[str]
    columns: list[Column]
    cells: dict[tuple[str, Column], Claim]
    best: set[str]  # ids of claims
    notes: list[str]
    n: int | None  # when it is one number for all cells
    in_percent: frozenset[str]  # metrics, lower case

    @property
    def claims(self) -> list[Claim]:
        return list(self.cells.values())

    def percent(self, claim: Claim) -> bool:
        return claim["metric"].lower() in self.in_percent


def named(project: Project) -> dict[str, list[Claim]]:
    asked = project.data.get("tables") or {}
    made = {checked(name): [project.claim(one) for one in ids] for name, ids in asked.items()}
    return made or {"results": project.claims}


def checked(name: str) -> str:
    """A name that stays inside its folder: EVIDENCE.json may be somebody else's."""
    if name != PurePath(name).name:
        raise bad_input(f"{name!r} is no name of a table: it must name a file, not a path")
    return name


def grid(project: Project, claims: list[Claim]) -> Grid:
    """Rows and columns in the order of EVIDENCE.json."""
    if not claims:
        raise bad_input(f"{project.path} has no claims yet; `manifest_scaffold.py claim add` makes them")
    cells: dict[tuple[str, Column], Claim] = {}
    for claim in claims:
        key = (claim.get("method", ""), column_of(claim))
        if key in cells:
            raise bad_input(
                f"{cells[key]['id']} and {claim['id']} would share a cell: give them a --method, --dataset or --split "
                "that tells them apart, or name the claims of the table"
            )
        cells[key] = claim
    made = Grid(
        rows=list(dict.fromkeys(row for row, _ in cells)),
        columns=list(dict.fromkeys(column for _, column in cells)),
        cells=cells,
        best=set(),
        notes=[],
        n=_common_n(claims),
        in_percent=frozenset(metric.lower() for metric in project.data.get("percent", [])),
    )
    for column in made.columns:
        _mark(project, made, column)
    return made


def column_of(claim: Claim) -> Column:
    return claim["metric"], claim.get("dataset", ""), claim.get("split", "")


def _common_n(claims: list[Claim]) -> int | None:
    counts = {claim.get("n") for claim in claims}
    return counts.pop() if len(counts) == 1 else None


def _mark(project: Project, made: Grid, column: Column) -> None:
    rivals = [made.cells[row, column] for row in made.rows if (row, column) in made.cells]
    if len(rivals) < 2:
        return
    reason = _no_winner(project, rivals)
    if reason:
        made.notes.append(f"{title(column)}: no best marked, {reason}")
    else:
        made.best.add(_ranked(rivals)[0]["id"])


def _ranked(rivals: list[Claim]) -> list[Claim]:
    return sorted(rivals, key=lambda claim: claim["value"], reverse=rivals[0]["direction"] == "up")


def _no_winner(project: Project, rivals: list[Claim]) -> str:
    if len({claim.get("direction") for claim in rivals}) > 1 or not rivals[0].get("direction"):
        return "the claims do not agree on which way is better"
    alone = [claim for claim in rivals if "spread" not in claim]
    if alone:
        return f"{alone[0].get('method') or alone[0]['id']} has no spread over runs"
    if len(eval_sets(project, rivals)) > 1:
        return "the runs were measured on different evaluation sets"
    first, second = _ranked(rivals)[:2]
    if abs(first["value"] - second["value"]) <= first["spread"] + second["spread"]:
        return f"{first.get('method')} and {second.get('method')} lie within their spreads"
    return ""


def eval_sets(project: Project, claims: list[Claim]) -> set[str]:
    """The hashes of evaluation sets that the runs of these claims recorded."""
    rows = [project.result(run_id, claim) for claim in claims for run_id in runs_of(claim)]
    return {row["eval_set_sha256"] for row in rows if "eval_set_sha256" in row}


def title(column: Column) -> str:
    return " ".join(part for part in column if part)


def _cell(made: Grid, row: str, column: Column, style: Style) -> str:
    claim = made.cells.get((row, column))
    return replace(style, percent=made.percent(claim)).text(claim) if claim else ""


def _heads(made: Grid, arrows: dict[str, str], escape: Callable[[str], str] = str) -> list[str]:
    heads = []
    for column in made.columns:
        claim = next(claim for (_, at), claim in made.cells.items() if at == column)
        unit = f" ({claim['unit']})" if claim.get("unit") else ""
        arrow = arrows.get(claim.get("direction", ""), "")
        heads.append(escape(f"{title(column)}{unit}") + (f" {arrow}" if arrow else ""))
    return heads


def _foot(made: Grid) -> list[str]:
    spreads = sum("spread" in claim for claim in made.claims)
    runs = f"{made.n} runs each" if made.n and made.n > 1 else "one run each" if made.n == 1 else ""
    what = "± is the sample standard deviation over runs" if spreads else ""
    best = "bold: best, its interval apart from the next" if made.best else ""
    head = "; ".join(part for part in (runs, what, best) if part)
    return [head, *made.notes] if head else made.notes


def markdown(made: Grid) -> str:
    style = Style(spread=True, n=made.n is None)
    lines = ["| method | " + " | ".join(_heads(made, {"up": "↑", "down": "↓"}, _pipe)) + " |"]
    lines.append("|---" * (len(made.columns) + 1) + "|")
    for row in made.rows:
        cells = []
        for column in made.columns:
            text = _cell(made, row, column, style)
            claim = made.cells.get((row, column))
            bold = claim is not None and claim["id"] in made.best
            anchor = f" <!-- claim:{claim['id']} -->" if claim else ""
            cells.append((f"**{text}**" if bold else text) + anchor)
        lines.append(f"| {_pipe(row)} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *(f"- {_pipe(note)}" for note in _foot(made))]) + "\n"


def _pipe(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def latex(made: Grid) -> str:
    r"""A tabular for \usepackage{booktabs}; caption and label stay in the document."""
    style = Style(spread=True, n=made.n is None, tex=True)
    lines = [f"% {note}" for note in _foot(made)]
    lines += [r"\begin{tabular}{l" + "r" * len(made.columns) + "}", r"\toprule"]
    lines.append("method & " + " & ".join(_heads(made, {"up": r"$\uparrow$", "down": r"$\downarrow$"}, tex)) + r" \\")
    lines.append(r"\midrule")
    for row in made.rows:
        cells = []
        for column in made.columns:
            claim = made.cells.get((row, column))
            text = _cell(made, row, column, style)
            cells.append(rf"\textbf{{\boldmath {text}}}" if claim and claim["id"] in made.best else text)
        lines.append(f"{tex(row)} & " + " & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def tex(text: str) -> str:
    return "".join(_TEX.get(sign, sign) for sign in " ".join(text.split()))


def sheet(made: Grid) -> str:
    style = Style(spread=True, n=True)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["method", *_heads(made, {})])
    for row in made.rows:
        writer.writerow([row, *(_cell(made, row, column, style) for column in made.columns)])
    return out.getvalue()


KINDS: dict[str, Callable[[Grid], str]] = {"md": markdown, "tex": latex, "csv": sheet}
