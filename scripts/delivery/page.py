"""The delivery as one HTML file that needs nothing else: tables, figures, claims, disclosures, and their sources."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from html import escape
from typing import Any

from delivery import disclosures, figures, inspection, sources, tables
from delivery.digits import Style
from delivery.disclosures import Item
from delivery.readback import Problem
from rgt import files
from rgt.errors import RgtError
from rgt.evidence import Claim, Project, runs_of

_CSS = """
:root { color-scheme: light dark; --line: #8884; --dim: #777; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .25rem .75rem; text-align: left; vertical-align: top; }
thead { border-bottom: 2px solid; } tbody tr { border-bottom: 1px solid var(--line); }
.wide { overflow-x: auto; } .best { font-weight: 700; } .dim { color: var(--dim); font-size: .85rem; }
figure { margin: 1.5rem 0; } figure img { width: 36rem; max-width: 100%; background: #fff; }
code { font-size: .85em; overflow-wrap: anywhere; }
"""


def html(project: Project, lists: dict[str, list[Item]], audits: dict[str, list[Problem]]) -> str:
    """The whole page."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>Delivery</title><style>{_CSS}</style></head><body>",
        "<h1>Delivery</h1>",
        f'<p class="dim">{len(project.claims)} numbers, computed from runs. Links lead to files beside this page.</p>',
        *_tables(project),
        *_figures(project, audits),
        *_claims(project, lists),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _tables(project: Project) -> Iterator[str]:
    yield "<h2>Results</h2>"
    for claims in tables.named(project).values():
        try:
            made = tables.grid(project, claims)
        except RgtError as error:
            yield f"<p>No table: {escape(error.message)}</p>"
            continue
        heads = "".join(f"<th>{escape(tables.title(column))}</th>" for column in made.columns)
        yield f'<div class="wide"><table><thead><tr><th>method</th>{heads}</tr></thead><tbody>'
        for row in made.rows:
            yield f"<tr><td>{escape(row)}</td>{''.join(_cell(made, row, column) for column in made.columns)}</tr>"
        yield "</tbody></table></div>"
        yield "".join(f'<p class="dim">{escape(note)}</p>' for note in made.notes)


def _cell(made: tables.Grid, row: str, column: tables.Column) -> str:
    claim = made.cells.get((row, column))
    if claim is None:
        return "<td></td>"
    best = ' class="best"' if claim["id"] in made.best else ""
    text = Style(made.percent(claim), spread=True, n=True).text(claim)
    return f"<td{best}>{escape(text)}<!-- claim:{claim['id']} --></td>"


def _figures(project: Project, audits: dict[str, list[Problem]]) -> Iterator[str]:
    if audits:
        yield "<h2>Figures</h2>"
    for name, problems in audits.items():
        picture = project.root / "figures" / name / "figure.svg"
        if not picture.is_file():
            yield f"<p>Figure {escape(name)} is not drawn yet: <code>render.py figures {escape(name)}</code></p>"
            continue
        data = base64.b64encode(picture.read_bytes()).decode()
        ids = [claim["id"] for claim in sources.claims_of(project, name)]
        links = ", ".join(
            f'<a href="figures/{escape(name)}/{file}">{file}</a>'
            for file in (sources.DATA, inspection.CODE, figures.SIDECAR, "figure.pdf")
        )
        shown = ", ".join(f'<a href="#{one}">{one}</a>' for one in ids)
        yield f'<figure id="figure-{escape(name)}"><img alt="{escape(name)}: {", ".join(ids)}"'
        yield f' src="data:image/svg+xml;base64,{data}">'
        yield f"<figcaption>{escape(name)} shows {shown}<br>{links}</figcaption></figure>"
        yield "".join(f"<p>{escape(problem.message)}</p>" for problem in problems)


def _claims(project: Project, lists: dict[str, list[Item]]) -> Iterator[str]:
    yield "<h2>Numbers and what to know about them</h2>"
    for claim in project.claims:
        what = ", ".join(str(claim[key]) for key in ("metric", "method", "dataset", "split") if claim.get(key))
        number = escape(Style(spread=True, n=True).text(claim))
        yield f'<h3 id="{claim["id"]}">{claim["id"]}</h3><p>{escape(what)}: {number}<!-- claim:{claim["id"]} --></p>'
        if claim.get("text"):
            yield f"<p>{escape(claim['text'])}</p>"
        said = disclosures.told(lists[claim["id"]])
        yield "<ul>" + ("".join(f"<li>{_said(item)}</li>" for item in said) or "<li>nothing to disclose</li>") + "</ul>"
        yield f'<p class="dim">from {", ".join(_run(project, run_id) for run_id in runs_of(claim))}{_places(claim)}</p>'


def _said(item: Item) -> str:
    return ("not known: " if item.state == "unknown" else "") + escape(item.sentence)


def _run(project: Project, run_id: str) -> str:
    try:
        run = project.run(run_id)
        path = escape(run.path.resolve().relative_to(project.root).as_posix())
        return f'<a href="{path}/results.json"><code>{run_id}</code></a> ({_commit(run)})'
    except (RgtError, ValueError):
        return f"<code>{run_id}</code> (not here)"


def _commit(run: Any) -> str:
    git = files.read_json(run.run_json).get("git") or {}
    return (
        f"commit {escape(str(git['commit'])[:10])}{'+' if git.get('dirty') else ''}"
        if git.get("commit")
        else "no commit"
    )


def _places(claim: Claim) -> str:
    places = [*claim.get("code", []), *claim.get("anchors", [])]
    return "; " + ", ".join(f"<code>{escape(place)}</code>" for place in places) if places else ""
