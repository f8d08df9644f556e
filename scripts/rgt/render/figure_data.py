"""The numbers behind a figure, straight from its runs: the rows of source_data.csv.

points   one panel per metric, dataset and split; a mark for every mean (with its spread) and every run
curve    one panel per metric and split; a line for every run, from metrics.jsonl
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from typing import Any

from rgt.errors import bad_input
from rgt.evidence.claims import Claim, Project, checked_name, runs_of
from rgt.render.claim_tables import column_of, title

DATA = "source_data.csv"
KINDS = ("points", "curve")
COLOURS = 7  # that everybody can tell apart: as many as figure.py has
_LINE = 2000  # points of one line; more cannot be seen, only downloaded

Row = dict[str, str]


@dataclass
class Source:
    kind: str
    rows: list[Row]
    notes: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        out = io.StringIO()
        writer = csv.DictWriter(out, list(self.rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return out.getvalue()

    @property
    def panels(self) -> int:
        return len({row["panel"] for row in self.rows})


def names(project: Project) -> list[str]:
    """The figures that claims name."""
    return sorted({claim["figure"] for claim in project.claims if claim.get("figure")})


def claims_of(project: Project, figure: str) -> list[Claim]:
    checked_name(figure)
    claims = [claim for claim in project.claims if claim.get("figure") == figure]
    if not claims:
        known = ", ".join(names(project)) or "none"
        raise bad_input(f"no claim names the figure {figure} (claim add --figure does); named are: {known}")
    return claims


def collect(project: Project, figure: str) -> Source:
    spec = project.data.get("figures", {}).get(figure, {})
    claims = claims_of(project, figure)
    labels = {_label(claim) for claim in claims}
    if len(labels) > COLOURS:
        raise bad_input(f"{figure} has {len(labels)} methods; more than {COLOURS} colours nobody tells apart: split it")
    if spec.get("kind") == "curve":
        return _curve(project, claims, spec)
    rows = []
    places = []
    for claim in claims:
        value, spread, n = project.measure(claim)
        own = {"panel": title(column_of(claim)), "label": _label(claim), "mark": "mean", "y": repr(value)}
        if (own["panel"], own["label"]) in places:
            raise bad_input(f"two claims would be drawn as {own['label']} in {own['panel']}; give them a --method")
        places.append((own["panel"], own["label"]))
        more = {"spread": "" if spread is None else repr(spread), "n": str(n), "claim": claim["id"], "run_id": ""}
        rows.append({**own, **more})
        for run_id in runs_of(claim) if n > 1 else ():
            y = repr(float(project.result(run_id, claim)["value"]))
            rows.append({**own, "mark": "run", "y": y, "spread": "", "n": "", "claim": claim["id"], "run_id": run_id})
    return Source("points", rows)


def _label(claim: Claim) -> str:
    return str(claim.get("method") or claim["id"])


def _curve(project: Project, claims: list[Claim], spec: dict[str, Any]) -> Source:
    source = Source("curve", [])
    drawn: set[tuple[str, str]] = set()
    for claim in claims:
        metric = str(spec.get("metric") or claim["metric"])
        split = str(spec.get("split") or claim.get("split") or "train")
        panel = f"{metric} {split}"
        for run_id in runs_of(claim):
            if (panel, run_id) in drawn:
                continue  # two claims of one run share its curve
            drawn.add((panel, run_id))
            run = project.run(run_id)
            points = list(run.curve(metric, split).items())
            if not points:
                have = f"{run.metrics} has no {metric} of the split {split}"
                raise bad_input(f"{have}: name what it has with --metric and --split")
            every = -(-len(points) // _LINE)
            if every > 1:
                source.notes.append(f"{run_id}: every {every}th of {len(points)} points")
            line = {"panel": panel, "label": _label(claim), "run_id": run_id}
            source.rows += [{**line, "step": str(step), "y": repr(value)} for step, value in points[::every]]
    order = list(dict.fromkeys(row["panel"] for row in source.rows))
    source.rows.sort(key=lambda row: order.index(row["panel"]))
    return source
