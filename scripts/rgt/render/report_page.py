"""The delivery as one HTML file that needs nothing else: tables, figures, claims, disclosures, and their sources."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from html import escape

from rgt.errors import RgtError
from rgt.evidence.claims import Claim, Project, runs_of, words_of
from rgt.render import claim_tables, disclosures, figure_data, figures
from rgt.render.disclosures import Lists
from rgt.render.document_numbers import Style
from rgt.render.figures import Problem
from rgt.run import billing

_CSS = """
:root { color-scheme: light dark; --line: #8884; --dim: #777; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .25rem .75rem; text-align: left; vertical-align: top; }
thead { border-bottom: 2px solid; } tbody tr { border-bottom: 1px solid var(--line); }
.wide { overflow-x: auto; } .dim { color: var(--dim); font-size: .85rem; }
figure { margin: 1.5rem 0; } figure img { width: 36rem; max-width: 100%; background: #fff; }
code { font-size: .85em; overflow-wrap: anywhere; }
"""


def html(project: Project, lists: Lists, audits: dict[str, list[Problem]]) -> str:
    """The whole page."""
    head = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Delivery</title><style>{_CSS}</style></head><body>
<h1>Delivery</h1>
<p class="dim">{len(project.claims)} numbers, computed from runs. Links lead to files beside this page.</p>"""
    body = [*tables(project), *drawings(project, audits), *numbers(project, lists)]
    return "\n".join([head, *body, "</body></html>"]) + "\n"


def tables(project: Project) -> Iterator[str]:
    yield "<h2>Results</h2>"
    for claims in claim_tables.named(project).values():
        try:
            made = claim_tables.grid(project, claims)
        except RgtError as error:
            yield f"<p>No table: {escape(error.message)}</p>"
            continue
        heads = "".join(f"<th>{escape(claim_tables.title(column))}</th>" for column in made.columns)
        yield f'<div class="wide"><table><thead><tr><th>method</th>{heads}</tr></thead><tbody>'

        def dress(text: str, claim: Claim) -> str:
            return f"{escape(text)}<!-- claim:{claim['id']} -->"

        for row, *cells in made.body(Style(spread=True, n=True), dress):
            yield f"<tr><td>{escape(row)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        yield "</tbody></table></div>"


def drawings(project: Project, audits: dict[str, list[Problem]]) -> Iterator[str]:
    if audits:
        yield "<h2>Figures</h2>"
    for name, problems in audits.items():
        picture = project.root / "figures" / name / "figure.svg"
        if not picture.is_file():
            yield f"<p>Figure {escape(name)} is not drawn yet: <code>rgt render figures {escape(name)}</code></p>"
            continue
        data = base64.b64encode(picture.read_bytes()).decode()
        ids = [claim["id"] for claim in figure_data.claims_of(project, name)]
        beside = (figure_data.DATA, figures.CODE, figures.SIDECAR, "figure.pdf")
        links = ", ".join(f'<a href="figures/{escape(name)}/{file}">{file}</a>' for file in beside)
        shown = ", ".join(f'<a href="#{one}">{one}</a>' for one in ids)
        yield f'<figure id="figure-{escape(name)}"><img alt="{escape(name)}: {", ".join(ids)}"'
        yield f' src="data:image/svg+xml;base64,{data}">'
        yield f"<figcaption>{escape(name)} shows {shown}<br>{links}</figcaption></figure>"
        yield "".join(f"<p>{escape(problem.message)}</p>" for problem in problems)


def numbers(project: Project, lists: Lists) -> Iterator[str]:
    yield "<h2>Numbers and what to know about them</h2>"
    for claim in project.claims:
        name, number = claim["id"], escape(Style(spread=True, n=True).text(claim))
        yield f'<h3 id="{name}">{name}</h3>'
        yield f"<p>{escape(', '.join(words_of(claim)))}: {number}<!-- claim:{name} --></p>"
        if claim.get("text"):
            yield f"<p>{escape(claim['text'])}</p>"
        items = [f"<li>{escape(sentence)}</li>" for sentence in disclosures.sentences(lists[name])]
        yield f"<ul>{''.join(items)}</ul>"
        places = [f"<code>{escape(place)}</code>" for place in (*claim.get("code", []), *claim.get("anchors", []))]
        runs, bills = [], []
        for run_id in runs_of(claim):
            try:
                bills.append(billing.bill_of(project.run(run_id).path))
                path = escape(project.run(run_id).path.resolve().relative_to(project.root).as_posix())
                runs.append(f'<a href="{path}/results.json"><code>{run_id}</code></a>')
            except (RgtError, ValueError):
                runs.append(f"<code>{run_id}</code> (not here)")
        cost = billing.total(bills) if len(bills) == len(runs) else None
        places += [f"cost of these runs: {cost:.2f}"] if cost is not None else []
        yield f'<p class="dim">from {", ".join(runs)}{"; " if places else ""}{", ".join(places)}</p>'
