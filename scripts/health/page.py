"""One HTML page that needs nothing but itself: plots as SVG, no script, no request, readable on a phone.

Example:
    page = render(found)                  found is what look() returned
"""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any

from health import status
from health.series import Points

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640, 272, 92, 32  # letters of 20 are 12 pixels high on a phone
_TOP = 40  # above the curves: their names, so that no curve runs through a name
_COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#8250df")
_KINDS = {"checkpoint": "#1a7f37", "restart": "#bf8700"}
_WORDS = {"continue": "go", "branch": "branch", "stop": "halt"}
_GOOD_END = "finished"  # it says stop, too, and is no alarm

_STYLE = """
body{font:16px/1.45 system-ui,sans-serif;margin:0 auto;max-width:720px;padding:12px;color:#1f2328;background:#fff}
h1{font-size:1.1rem;overflow-wrap:anywhere;margin:.2em 0}h2{font-size:1rem;margin:1.2em 0 .3em}
.decision{border-radius:6px;padding:10px 12px;color:#fff;font-weight:600;overflow-wrap:anywhere}
.go{background:#1a7f37}.done{background:#0969da}.branch{background:#9a6700}.halt{background:#b62324}
.now{font-size:1.15rem;font-weight:600;overflow-wrap:anywhere}.small{color:#59636e;font-size:.85rem;overflow-wrap:anywhere}
svg{width:100%;height:auto;display:block;border:1px solid #d1d9e0;border-radius:6px}
li{margin:.35em 0;overflow-wrap:anywhere}.error{color:#b62324}.warn{color:#9a6700}.info{color:#59636e}
pre{background:#f6f8fa;padding:10px;border-radius:6px;white-space:pre-wrap;overflow-wrap:anywhere}
@media (min-width:900px){body{max-width:1000px}.plots{display:grid;grid-template-columns:1fr 1fr;gap:0 16px}}
@media (prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}svg{background:#fff}pre{background:#161b22}}
"""


def render(found: dict[str, Any]) -> str:
    word, reason = status.decide(found)
    numbers = [line for line in status.numbers(found) if line]
    title = html.escape(str(found["where"]))
    colour = "done" if found["now"]["state"] == _GOOD_END else _WORDS[word]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f'<title>{word}: {title}</title><link rel="icon" href="data:,"><style>{_STYLE}</style></head><body>',
        f"<h1>{title}</h1>",
        f'<p class="now">{html.escape(numbers[0].strip("*"))}</p>',
        f'<p class="small">{html.escape(" · ".join(numbers[1:]))}</p>',
        f'<p class="decision {colour}">{word}: {html.escape(reason)}</p>',
        f'<div class="plots">{"".join(_plots(found))}</div>',
        _risks(found),
        f"<h2>Next</h2><pre>{html.escape(status.next_command(found))}</pre>",
        f'<p class="small">{status.stamp(found["now"]["time"])}</p></body></html>',
    ]
    return "\n".join(parts) + "\n"


def _risks(found: dict[str, Any]) -> str:
    rows = []
    for row in found["findings"]:
        sure = f" (sure: {row['sure']:.0%})" if "sure" in row else ""
        seen = f'<br><span class="small">{html.escape(row["evidence"])}</span>' if row.get("evidence") else ""
        text = f"{row['code']}: {row['message']}{sure}"
        rows.append(f'<li class="{row["severity"]}">{html.escape(text)}{seen}</li>')
    return f"<h2>Risks</h2><ul>{''.join(rows) or '<li>none seen</li>'}</ul>"


def _plots(found: dict[str, Any]) -> list[str]:
    curves, events = found["curves"], found["events"]
    groups = [
        ("loss", ("loss", "val_loss")),
        ("learning rate", ("lr",)),
        ("throughput", ("rate",)),
        ("gradient norm", ("grad_norm",)),
    ]
    plots = []
    for title, roles in groups:
        lines = {
            curves[role]["name"]: [tuple(point) for point in curves[role]["points"]] for role in roles if role in curves
        }
        if any(lines.values()):
            plots.append(_plot(title, lines, events))
    return plots + _machine_plots(found["machine"])


def _machine_plots(samples: list[dict[str, Any]]) -> list[str]:
    if not samples:
        return []
    start = samples[0]["time"]
    cards = sorted({card["index"] for sample in samples for card in sample["gpus"]})

    use = {f"GPU {index}": _over_time(samples, start, index, "utilization", 1) for index in cards[:4]}
    memory = {f"GPU {index} GiB": _over_time(samples, start, index, "memory_used", 1 << 30) for index in cards[:3]}
    host = [(sample["time"], sample["memory"]["used"]) for sample in samples if "used" in sample["memory"]]
    memory["host GiB"] = [((when - start) / 60, used / (1 << 30)) for when, used in host]
    plots = [("GPU use in %, by minutes", use), ("memory, by minutes", memory)]
    return [_plot(title, lines, []) for title, lines in plots if any(lines.values())]


def _over_time(samples: list[dict[str, Any]], start: float, index: int, name: str, unit: int) -> Points:
    """Minutes and values of one card."""
    rows = [(sample["time"], card[name]) for sample in samples for card in sample["gpus"] if card["index"] == index]
    return [((when - start) / 60, value / unit) for when, value in rows if value is not None]


def _plot(title: str, lines: dict[str, Points], events: list[dict[str, Any]]) -> str:
    every = [point for points in lines.values() for point in points]
    left, right = min(x for x, _ in every), max(x for x, _ in every)
    low, high = min(y for _, y in every), max(y for _, y in every)
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    low, high = low - margin, high + margin

    def place(x: float, y: float) -> str:
        across = _LEFT + (x - left) / ((right - left) or 1) * (_WIDTH - _LEFT - 8)
        return f"{across:.1f},{_TOP + (high - y) / (high - low) * (_HEIGHT - _BOTTOM - _TOP):.1f}"

    marks = [_mark(event, place) for event in events if event["x"] is not None and left <= event["x"] <= right]
    shown = [(name, points, _COLOURS[n % len(_COLOURS)]) for n, (name, points) in enumerate(lines.items()) if points]
    drawn = [_line(points, colour, place) for _, points, colour in shown]
    names = "".join(
        f'<tspan dx="{14 if number else 0}" fill="{colour}">{html.escape(name)} {short(points[-1][1])}</tspan>'
        for number, (name, points, colour) in enumerate(shown)
    )
    legend = f'<text x="{_WIDTH - 12}" y="26" text-anchor="end" font-size="20">{names}</text>'
    axis = "".join(
        f'<text x="4" y="{place(left, y).partition(",")[2]}" font-size="20">{short(y)}</text>'
        for y in (low + margin, (low + high) / 2, high - margin)
    )
    ends = (
        f'<text x="{_LEFT}" y="{_HEIGHT - 6}" font-size="20">{left:.6g}</text>'
        f'<text x="{_WIDTH - 8}" y="{_HEIGHT - 6}" font-size="20" text-anchor="end">{right:.6g}</text>'
    )
    label = html.escape(title)
    return (
        f'<section><h2>{label}</h2><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">'
        f"{axis}{ends}{''.join(marks)}{''.join(drawn)}{legend}</svg></section>"
    )


def _mark(event: dict[str, Any], place: Callable[[float, float], str]) -> str:
    across = place(float(event["x"]), 0.0).partition(",")[0]
    colour = _KINDS.get(event["kind"], "#d1242f")
    kind = html.escape(str(event["kind"]))
    return (
        f'<line class="event" x1="{across}" x2="{across}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" stroke="{colour}" '
        f'stroke-dasharray="3 3"><title>{kind} at {event["x"]:g}</title></line>'
    )


def _line(points: Points, colour: str, place: Callable[[float, float], str]) -> str:
    if len(points) == 1:
        across, down = place(*points[0]).split(",")
        return f'<circle cx="{across}" cy="{down}" r="3" fill="{colour}"/>'
    path = " ".join(place(x, y) for x, y in points)
    return f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" points="{path}"/>'


def short(value: float) -> str:
    """34153 as 34.2k: it has to fit beside the axis."""
    for unit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if 10 * unit <= abs(value) < 1e12:
            return f"{value / unit:.3g}{sign}" if abs(value) < 1e3 * unit else f"{value / unit:.0f}{sign}"
    return f"{value:.4g}"
