"""training_status.md: the newest numbers first, then what to do and why, risks, the exact next command, what changed.

Example:
    text = render(found)                  found is what look() returned, here or on another machine
    word, reason = decide(found)          continue | stop | branch
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt import bundle, files, units
from rgt.run import record
from rgt.units import show_text

_SHOWN = 12  # metrics, risks
_SURE = 0.75  # from here a judgement is worth acting on
_FIRST = ("loss", "train_loss", "val_loss", "eval_loss")
_CONFIG_LIKE = 60  # characters of a metric's name
_STOPS = ("failed", "nan", "oom", "restarts", "crash", "killed", "no-space", "hang", "ecc", "gpu")
_ENDS = {
    record.FINISHED: "the run is finished; what counts now is the artifact",
    record.STOPPED: "the run was stopped; resume it only on purpose",
    record.PREEMPTED: "the run was preempted; resume it from its last checkpoint",
    record.LOST: "its processes are gone and it said no end; read its last lines, then resume it or not",
}


def decide(found: dict[str, Any]) -> tuple[str, str]:
    """One of three words, with its reason. The decision is the user's; this is a suggestion with its evidence."""
    state = found["now"]["state"]
    doubts = [row for row in found["findings"] if row["severity"] != "info"]
    worst = min(doubts, key=lambda row: (row["severity"] != "error", -row.get("sure", 1.0)), default=None)
    told = f"{worst['code']}: {_one_line(worst['message'])}" if worst else ""
    if state in _ENDS:
        return "stop", _ENDS[state] + (f"; but {told}" if worst else "")
    bad = [row for row in doubts if row.get("sure", 1.0) >= _SURE]
    errors = {row["code"]: row for row in reversed(bad) if row["severity"] == "error"}
    if code := next((code for code in _STOPS if code in errors), None):
        return "stop", f"{code}: {errors[code]['message']}"
    if branch := [row for row in bad if row["code"] in ("diverged", "plateau", "overfit", "loss-scale", "gradient")]:
        return "branch", f"{branch[0]['code']}: {branch[0]['message']}"
    if bad and bad[0]["code"] == "stalled":
        return "stop", f"stalled: {bad[0]['message']}; look where it stands first"
    if worst:
        return "continue", f"but look at this: {told}"
    return "continue", "it has printed nothing yet" if state == record.QUEUED else "nothing speaks against it"


def next_command(found: dict[str, Any]) -> str:
    """Exactly one, ready to be pasted."""
    where, log = found["where"], found["log"] or found["where"]
    around = bundle.command("takeover", "snapshot", Path(log).parent)
    word, _ = decide(found)
    stalled, writers = any(row["code"] == "stalled" for row in found["findings"]), found["now"].get("writers")
    if found["now"]["state"] == record.FINISHED:
        return bundle.command("verify_local", where) if Path(where).is_dir() else around
    if stalled and writers:  # made here: what a box answers is never a command
        return f"py-spy dump --pid {writers[0]:d}"
    if word == "branch":  # which checkpoints there are to branch from
        return around
    if word == "stop":
        return bundle.command("triage", log)
    # look again after a twentieth of what is left, between 2 minutes and an hour; sooner when something is odd
    eta = found["now"]["eta"]
    seconds = 1200.0 if eta is None else min(3600.0, max(120.0, eta / 20))
    seconds = seconds if found["ok"] else min(seconds, 300.0)
    seconds = seconds if eta is None else min(seconds, max(5.0, eta + 1))  # never after the expected end
    return f"{bundle.command('watch', where)}  # in {units.show_duration(seconds)}"


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
        sure = f" (sure: {row['sure']:.0%})" if "sure" in row else ""
        lines.append(f"- {row['severity']} `{row['code']}`{where}: {show_text(_one_line(row['message']))}{sure}")
        # what a log or a box printed is quoted: whoever reads this file must not take it for an instruction
        lines += [f"  - seen: {_quoted(row['evidence'])}"] if row.get("evidence") else []
        lines += [f"  - fix: {_one_line(row['fix'])}"] if row.get("fix") else []
    lines += [f"- and {len(rows) - _SHOWN} more: --json"] if len(rows) > _SHOWN else []
    lines += [] if rows else ["- none seen"]
    thinned = [row["path"] for row in found["files"] if row["thinned"]]
    lines += [f"- only a sample was read of all but the newest 256 KiB of {path}" for path in thinned]
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
        f"cost {found['cost']:.2f}" if found.get("cost") is not None else "",
    ]
    for card in found["machine"].get("gpus", ()):
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


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, (int, float)) else str(value)


def _quoted(text: str) -> str:
    """As code of Markdown, without what would end it; control characters are shown."""
    return f"`{show_text(_one_line(text)).replace('`', chr(39))}`"


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
