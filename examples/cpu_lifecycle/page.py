"""demo-out/index.html: the demo on one page, with a link to everything it made."""

from __future__ import annotations

import html
import os
from pathlib import Path

from rgt import files, units

from examples.cpu_lifecycle.story import Demo

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;max-width:860px;padding:16px;color:#1f2328;background:#fff}
h1{font-size:1.4rem;margin:.2em 0}h2{font-size:1.05rem;margin:1.6em 0 .2em}a{color:#0969da}
table{border-collapse:collapse;width:100%}td{border-bottom:1px solid #d1d9e0;padding:6px 8px;vertical-align:top}
td+td{color:#59636e;font-size:.8rem;overflow-wrap:anywhere}
.why{color:#59636e;margin:.1em 0 .4em}
pre{background:#f6f8fa;border-radius:6px;padding:8px 10px;margin:.3em 0;white-space:pre-wrap;overflow-wrap:anywhere;
font-size:.8rem}
.out{border-left:3px solid #1a7f37;margin:.3em 0;padding:.1em .7em;overflow-wrap:anywhere}
img{width:480px;max-width:100%;border:1px solid #d1d9e0;border-radius:6px}
@media (prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}pre{background:#161b22}a{color:#58a6ff}
img{background:#fff}}
"""


def artifacts(demo: Demo) -> list[tuple[Path, str]]:
    """Path and what it is, in the order of the story."""
    shipped = demo.delivery
    return [
        (demo.record.status, "status of the run that was killed and resumed"),
        (demo.killed.run_json, "how it was started: command, job description, versions"),
        (demo.killed.metrics, f"every step; {demo.killed_at - demo.resumed_from} of them have two rows"),
        (demo.record.events, "event log of the launch: launched, submitted, failed, resumed, finished"),
        (demo.killed.events, "event log of the training: checkpoint, resumed, finished"),
        (demo.pulled / "PULL_VERIFIED.json", "verify record: every file pulled, its sha256, loaded"),
        (demo.pulled / "events.jsonl", "pulled, refused, approved: every decision about the box"),
        (shipped / "compare-slow.json", "the comparison that is an effect"),
        (shipped / "compare-fast-again.json", "the comparison that is noise"),
        (shipped / "report.html", "delivery report: every number with its runs and disclosures"),
        (shipped / "figures" / "loss" / "figure.png", "figure, with its data and code beside it"),
        (shipped / "tables" / "results.md", "table of all claims"),
        (shipped / "REPORT.md", "document whose numbers are filled in"),
        (shipped / "EVIDENCE.json", "claims and the runs they rest on"),
    ]


def write(demo: Demo, seconds: float) -> Path:
    rows = "".join(
        f'<tr><td><a href="{_link(demo, path)}">{html.escape(what)}</a></td>'
        f"<td>{html.escape(os.path.relpath(path, demo.folder))}</td></tr>"
        for path, what in artifacts(demo)
    )
    figure = _link(demo, demo.delivery / "figures" / "loss" / "figure.png")
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,">',
        f"<title>RUN, VERIFY, DELIVER on one CPU</title><style>{STYLE}</style></head><body>",
        "<h1>RUN → VERIFY → DELIVER on one CPU</h1>",
        f"<p>Done in {units.show_duration(seconds)}; bit-equal after a SIGKILL: {html.escape(demo.equal)}.</p>",
        f"<h2>What it made</h2><table>{rows}</table>",
        f'<p><img src="{figure}" alt="val loss of the variants"></p>',
        *(_stage(number, told.title, told.why, told.lines) for number, told in enumerate(demo.told, 1)),
        "</body></html>",
    ]
    index = demo.out / "index.html"
    files.write_text(index, "\n".join(parts) + "\n")
    return index


def _link(demo: Demo, path: Path) -> str:
    return html.escape(Path(os.path.relpath(path, demo.out)).as_posix())


def _stage(number: int, title: str, why: str, lines: list[tuple[str, str]]) -> str:
    shown = "".join(
        f"<pre>$ {html.escape(text)}</pre>" if kind == "$" else f'<p class="out">{html.escape(text)}</p>'
        for kind, text in lines
    )
    return f'<h2>{number} · {html.escape(title)}</h2><p class="why">{html.escape(why)}</p>{shown}'
