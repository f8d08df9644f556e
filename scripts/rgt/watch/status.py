"""training_status.md: the newest numbers first, then what to do and why, risks, the exact next command, what changed.

Example:
    text = render(found)                  found is what look() returned, here or on another machine
    word, reason = decide(found)          continue | stop | branch
    page = render_page(found)             one HTML page that needs nothing but itself: SVG, no script, no request
"""

from __future__ import annotations

import html
import itertools
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt import files, units
from rgt.bundle import SCRIPTS
from rgt.run import record
from rgt.watch.history import Points

_SHOWN = 12  # metrics, risks
_SURE = 0.75  # from here a judgement is worth acting on
_FIRST = ("loss", "train_loss", "val_loss", "eval_loss")
_CONFIG_LIKE = 60  # characters of a metric's name
_STOPS = ("nan", "oom", "restarts", "crash", "killed", "no-space", "hang", "failed", "ecc", "gpu")
_ENDS = {
    record.FINISHED: "the run is finished; what counts now is the artifact",
    record.STOPPED: "the run was stopped; resume it only on purpose",
    record.PREEMPTED: "the run was preempted; resume it from its last checkpoint",
}


def decide(found: dict[str, Any]) -> tuple[str, str]:
    """One of three words, with its reason. The decision is the user's; this is a suggestion with its evidence."""
    state = found["now"]["state"]
    if state in _ENDS:
        return "stop", _ENDS[state]
    bad = [row for row in found["findings"] if row["severity"] != "info" and row.get("sure", 1.0) >= _SURE]
    errors = {row["code"]: row for row in reversed(bad) if row["severity"] == "error"}
    if code := next((code for code in _STOPS if code in errors), None):
        return "stop", f"{code}: {errors[code]['message']}"
    if branch := [row for row in bad if row["code"] in ("diverged", "plateau")]:
        return "branch", f"{branch[0]['code']}: {branch[0]['message']}"
    if bad and bad[0]["code"] == "stalled":
        return "stop", f"stalled: {bad[0]['message']}; look where it stands first"
    if bad:
        return "continue", f"but look at this: {bad[0]['code']}: {bad[0]['message']}"
    return "continue", "it has printed nothing yet" if state == record.QUEUED else "nothing speaks against it"


def next_command(found: dict[str, Any]) -> str:
    """Exactly one, ready to be pasted."""
    where, log = shlex.quote(found["where"]), shlex.quote(found["log"] or found["where"])
    word, _ = decide(found)
    fixes = [row.get("fix") or "" for row in found["findings"] if row["code"] == "stalled"]
    if found["now"]["state"] == record.FINISHED:
        beside = shlex.quote(str(Path(found["log"]).parent))
        folder = Path(found["where"]).is_dir()
        return f"python scripts/verify_local.py {where}" if folder else f"python scripts/takeover.py snapshot {beside}"
    if fixes and fixes[0].startswith("py-spy"):
        return fixes[0]
    if word == "stop":
        return f"python scripts/triage.py {log}" if (SCRIPTS / "triage.py").exists() else f"tail -n 100 {log}"
    if word == "branch":
        return f"python scripts/watch.py {where} --html status.html"
    # look again after a twentieth of what is left, between 2 minutes and an hour; sooner when something is odd
    eta = found["now"]["eta"]
    seconds = 1200.0 if eta is None else min(3600.0, max(120.0, eta / 20))
    seconds = seconds if found["ok"] else min(seconds, 300.0)
    return f"python scripts/watch.py {where}  # in {units.show_duration(seconds)}"


def write(path: Path | None, found: dict[str, Any]) -> None:
    """training_status.md, where it may be written."""
    if path:
        files.write_text(path, render(found))


def render(found: dict[str, Any]) -> str:
    word, reason = decide(found)
    lines = [f"# {found['where']}", "", *numbers(found), "", f"**Decision: {word}** — {reason}.", "", "## Risks", ""]
    rows = sorted(found["findings"], key=lambda row: row["severity"] == "info")
    for row in rows[:_SHOWN]:
        where = f" [{row['where']}]" if row.get("where") else ""
        lines.append(f"- {row['severity']} `{row['code']}`{where}: {_one_line(row['message'])}{_sure(row)}")
        extras = (("seen", row.get("evidence")), ("fix", row.get("fix")))
        lines += [f"  - {name}: {_one_line(text)}" for name, text in extras if text]
    lines += [f"- and {len(rows) - _SHOWN} more: --json"] if len(rows) > _SHOWN else []
    lines += [] if rows else ["- none seen"]
    lines += [f"- not judged, as asked: {', '.join(found['silenced'])}"] if found["silenced"] else []
    phases = [
        f"- {_one_line(str(row['name']))}, steps {row['start']} to {row['end']}: {_one_line(row['result'])}"
        for row in found.get("phases", ())  # a look from a box with an older version has none
    ]
    lines += ["", "## Phases", "", *phases] if phases else []
    lines += ["", "## Next", "", "```bash", next_command(found), "```", ""]
    before, now = found["before"], found["now"]
    if before:
        ago = units.show_duration(now["time"] - before["time"])
        lines += [f"## Changed since {stamp(before['time'])} ({ago} ago)", ""]
        lines += list(_differences(found, before, now)) or ["- nothing"]
    else:
        lines.append("First look: no earlier one to compare with.")
    return "\n".join(lines) + "\n"


def numbers(found: dict[str, Any]) -> Iterator[str]:
    """The first lines of every report: where it is, how fast and how old, then the other metrics."""
    now = found["now"]
    epoch = f"{now['epoch']:g}" if isinstance(now["epoch"], float) else now["epoch"]
    counters = (("epoch", epoch, now["epochs"]), ("step", now["step"], now["total"]))
    places = [f"{word} {n}" + (f"/{total}" if total else "") for word, n, total in counters if n is not None]
    metrics = [f"{name} {_number(now['metrics'][name])}" for name in _names(found)]
    yield "**" + " · ".join([*places, *metrics[:4]] or ["no numbers yet"]) + "**"
    yield ""
    parts = [
        now["state"],
        f"{now['it_per_s']:.4g} it/s" if now["it_per_s"] else "",
        f"{now['tokens_per_s']:,.0f} tokens/s" if now["tokens_per_s"] else "",
        f"{units.show_duration(now['eta'])} left" if now["eta"] is not None else "",
        f"last line {units.show_duration(now['age'])} ago" if now["age"] is not None else "no log yet",
        f"checkpoint {units.show_duration(now['checkpoint_age'])} ago" if now["checkpoint_age"] is not None else "",
    ]
    for card in found["machine"][-1]["gpus"] if found["machine"] else ():
        used, total, use = card["memory_used"], card["memory_total"], card["utilization"]
        room = f", {units.show_size(used)} of {units.show_size(total)}" if used is not None and total else ""
        degrees = f", {card['temperature']} °C" if card["temperature"] is not None else ""
        parts.append(f"GPU {card['index']}: {use if use is not None else '?'} %{room}{degrees}")
    yield " · ".join(part for part in parts if part)
    if len(metrics) > 4:
        yield ""
        yield ", ".join(metrics[4:_SHOWN])


def _names(found: dict[str, Any]) -> list[str]:
    """Of the metrics, those that matter first."""
    metrics = found["now"]["metrics"]
    chosen = [found["roles"].get(role) for role in ("loss", "val_loss", "accuracy", "lr", "grad_norm")]
    first = [name for name in dict.fromkeys([*chosen, *_FIRST]) if name in metrics]
    return first + [name for name in metrics if name not in first and len(name) < _CONFIG_LIKE]


def _sure(row: dict[str, Any]) -> str:
    return f" (sure: {row['sure']:.0%})" if "sure" in row else ""


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, (int, float)) else str(value)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


def _differences(found: dict[str, Any], before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    for name in ("state", "step", "epoch", "checkpoints"):
        if before.get(name) != now[name] and not (name == "checkpoints" and before.get(name) is None):
            yield f"- {name}: {before.get(name)} → {now[name]}"
    old = before.get("metrics", {})
    for name in _names(found)[:_SHOWN]:
        if old.get(name) != now["metrics"][name]:
            yield f"- {name}: {_number(old.get(name))} → {_number(now['metrics'][name])}"
    codes = {row["code"] for row in found["findings"] if row["severity"] != "info"}
    seen = set(before.get("findings", []))
    yield from (f"- new: `{code}`" for code in sorted(codes - seen))
    yield from (f"- gone: `{code}`" for code in sorted(seen - codes))
    for row in found["files"]:
        if row["restarted"]:
            yield f"- {row['path']} was {row['restarted']}; it was read from its beginning"


def stamp(when: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(when))


# -- the page, readable on a phone

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640, 272, 92, 32  # letters of 20 are 12 pixels high on a phone
_TOP = 40  # above the curves: their names, so that no curve runs through a name
_COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#8250df")
_KINDS = {"checkpoint": "#1a7f37", "restart": "#bf8700"}
_GROUPS = {"loss": "loss val_loss", "learning rate": "lr", "throughput": "rate", "gradient norm": "grad_norm"}
_WORDS = {"continue": "go", "branch": "branch", "stop": "halt"}

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


def render_page(found: dict[str, Any]) -> str:
    word, reason = decide(found)
    first = [line for line in numbers(found) if line]
    title = html.escape(str(found["where"]))
    colour = "done" if found["now"]["state"] == record.FINISHED else _WORDS[word]  # it says stop, too, and is no alarm
    risks = []
    for row in found["findings"]:
        seen = f'<br><span class="small">{html.escape(row["evidence"])}</span>' if row.get("evidence") else ""
        text = html.escape(f"{row['code']}: {row['message']}{_sure(row)}")
        risks.append(f'<li class="{row["severity"]}">{text}{seen}</li>')
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f'<title>{word}: {title}</title><link rel="icon" href="data:,"><style>{_STYLE}</style></head><body>',
        f"<h1>{title}</h1>",
        f'<p class="now">{html.escape(first[0].strip("*"))}</p>',
        f'<p class="small">{html.escape(" · ".join(first[1:]))}</p>',
        f'<p class="decision {colour}">{word}: {html.escape(reason)}</p>',
        f'<div class="plots">{"".join(_plots(found))}</div>',
        f"<h2>Risks</h2><ul>{''.join(risks) or '<li>none seen</li>'}</ul>",
        f"<h2>Next</h2><pre>{html.escape(next_command(found))}</pre>",
        f'<p class="small">{stamp(found["now"]["time"])}</p></body></html>',
    ]
    return "\n".join(parts) + "\n"


def _plots(found: dict[str, Any]) -> Iterator[str]:
    """Curves by steps, the machine by minutes."""
    for title, roles in _GROUPS.items():
        curves = [found["curves"][role] for role in roles.split() if role in found["curves"]]
        yield _plot(title, {curve["name"]: curve["points"] for curve in curves}, found["events"])
    use: dict[str, Points] = {}
    memory: dict[str, Points] = {}
    for sample in found["machine"]:
        minute = (sample["time"] - found["machine"][0]["time"]) / 60
        gpus = [(f"GPU {card['index']}", card) for card in sample["gpus"][:4]]
        held = [(f"{name} GiB", card["memory_used"]) for name, card in gpus]
        for name, card in gpus:
            if card["utilization"] is not None:
                use.setdefault(name, []).append((minute, card["utilization"]))
        for name, size in [*held, ("host GiB", sample["memory"].get("used"))]:
            if size is not None:
                memory.setdefault(name, []).append((minute, size / (1 << 30)))
    yield _plot("GPU use in %, by minutes", use, [])
    yield _plot("memory, by minutes", memory, [])


def _plot(title: str, lines: dict[str, Points], events: list[dict[str, Any]]) -> str:
    every = [point for points in lines.values() for point in points]
    if not every:
        return ""
    left, right = min(x for x, _ in every), max(x for x, _ in every)
    low, high = min(y for _, y in every), max(y for _, y in every)
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    low, high = low - margin, high + margin

    def across(x: float) -> str:
        return f"{_LEFT + (x - left) / ((right - left) or 1) * (_WIDTH - _LEFT - 8):.1f}"

    def down(y: float) -> str:
        return f"{_TOP + (high - y) / (high - low) * (_HEIGHT - _BOTTOM - _TOP):.1f}"

    ticks = (low + margin, (low + high) / 2, high - margin)
    drawn = [f'<text x="4" y="{down(y)}" font-size="20">{short(y)}</text>' for y in ticks]
    bottom = f'y="{_HEIGHT - 6}" font-size="20"'
    drawn.append(f'<text x="{_LEFT}" {bottom}>{left:.6g}</text>')
    drawn.append(f'<text x="{_WIDTH - 8}" {bottom} text-anchor="end">{right:.6g}</text>')
    for event in events:
        if left <= event["x"] <= right:
            x, colour = across(event["x"]), _KINDS.get(event["kind"], "#d1242f")
            drawn.append(
                f'<line class="event" x1="{x}" x2="{x}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" stroke="{colour}" '
                f'stroke-dasharray="3 3"><title>{html.escape(event["kind"])} at {event["x"]:g}</title></line>'
            )
    names: list[str] = []
    for (name, points), colour in zip(lines.items(), itertools.cycle(_COLOURS), strict=False):
        path = " ".join(f"{across(x)},{down(y)}" for x, y in points)
        dot = f'<circle cx="{across(points[0][0])}" cy="{down(points[0][1])}" r="3" fill="{colour}"/>'
        line = f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" points="{path}"/>'
        drawn.append(dot if len(points) == 1 else line)
        label = f"{html.escape(name)} {short(points[-1][1])}"
        names.append(f'<tspan dx="{14 if names else 0}" fill="{colour}">{label}</tspan>')
    legend = f'<text x="{_WIDTH - 12}" y="26" text-anchor="end" font-size="20">{"".join(names)}</text>'
    label = html.escape(title)
    return (
        f'<section><h2>{label}</h2><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">'
        f"{''.join(drawn)}{legend}</svg></section>"
    )


def short(value: float) -> str:
    """34153 as 34.2k: it has to fit beside the axis."""
    for unit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if 10 * unit <= abs(value) < 1e12:
            return f"{value / unit:.3g}{sign}" if abs(value) < 1e3 * unit else f"{value / unit:.0f}{sign}"
    return f"{value:.4g}"
