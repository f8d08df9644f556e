"""training_status.md: the newest numbers first, then what to do and why, risks, the exact next command, what changed.

Example:
    text = render(found)                  found is what look() returned, here or on another machine
    word, reason = decide(found)          continue | stop | branch
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt import units

SCRIPTS = Path(__file__).resolve().parents[1]
_SHOWN = 12  # metrics, risks
_SURE = 0.75  # from here a judgement is worth acting on
_FIRST = ("loss", "train_loss", "val_loss", "eval_loss")
_CONFIG_LIKE = 60  # characters of a metric's name
_STOPS = ("nan", "oom", "restarts", "crash", "killed", "no-space", "hang", "failed", "ecc", "gpu")


def decide(found: dict[str, Any]) -> tuple[str, str]:
    """One of three words, with its reason. The decision is the user's; this is a suggestion with its evidence."""
    state = found["now"]["state"]
    bad = [row for row in found["findings"] if row["severity"] != "info" and row.get("sure", 1.0) >= _SURE]
    errors = [row for row in bad if row["severity"] == "error"]
    branch = [row for row in bad if row["code"] in ("diverged", "plateau")]
    if state == "finished":
        return "stop", "the run is finished; what counts now is the artifact"
    if state == "stopped":
        return "stop", "the run was stopped; resume it only on purpose"
    for code in _STOPS:
        for row in errors:
            if row["code"] == code:
                return "stop", f"{row['code']}: {row['message']}"
    if branch:
        return "branch", f"{branch[0]['code']}: {branch[0]['message']}"
    if bad and bad[0]["code"] == "stalled":
        return "stop", f"stalled: {bad[0]['message']}; look where it stands first"
    if bad:
        return "continue", f"but look at this: {bad[0]['code']}: {bad[0]['message']}"
    if state == "waiting":
        return "continue", "it has printed nothing yet"
    return "continue", "nothing speaks against it"


def next_command(found: dict[str, Any]) -> str:
    """Exactly one, ready to be pasted."""
    where = shlex.quote(found["where"])
    log = shlex.quote(found["log"] or found["where"])
    word, _ = decide(found)
    fixes = [row.get("fix") or "" for row in found["findings"] if row["code"] == "stalled"]
    if found["now"]["state"] == "finished":
        folder = Path(found["where"]).is_dir()
        beside = shlex.quote(str(Path(found["log"]).parent))
        return f"python scripts/verify_local.py {where}" if folder else f"python scripts/takeover.py snapshot {beside}"
    if fixes and fixes[0].startswith("py-spy"):
        return fixes[0]
    if word == "stop" and (SCRIPTS / "triage.py").exists():
        return f"python scripts/triage.py {log}"
    if word == "stop":
        return f"tail -n 100 {log}"
    if word == "branch":
        return f"python scripts/watch.py {where} --html status.html"
    return f"python scripts/watch.py {where}" + (
        f"  # in {units.show_duration(wait(found))}" if word == "continue" else ""
    )


def wait(found: dict[str, Any]) -> float:
    """When to look again: a twentieth of what is left, between 2 minutes and an hour; soon when something is odd."""
    eta = found["now"]["eta"]
    seconds = 1200.0 if eta is None else min(3600.0, max(120.0, eta / 20))
    return seconds if found["ok"] else min(seconds, 300.0)


def render(found: dict[str, Any]) -> str:
    word, reason = decide(found)
    lines = [f"# {found['where']}", "", *numbers(found), "", f"**Decision: {word}** — {reason}.", ""]
    risks = [row for row in found["findings"] if row["severity"] != "info"]
    notes = [row for row in found["findings"] if row["severity"] == "info"]
    lines += ["## Risks", "", *(_risk(row) for row in [*risks, *notes][:_SHOWN])]
    if len(risks) + len(notes) > _SHOWN:
        lines.append(f"- and {len(risks) + len(notes) - _SHOWN} more: --json")
    if not found["findings"]:
        lines.append("- none seen")
    if found["silenced"]:
        lines.append(f"- not judged, as asked: {', '.join(found['silenced'])}")
    lines += ["", "## Next", "", "```bash", next_command(found), "```", ""]
    return "\n".join([*lines, *_changes(found)]) + "\n"


def numbers(found: dict[str, Any]) -> Iterator[str]:
    """The first lines of every report: where it is, how fast and how old, then the other metrics."""
    now = found["now"]
    place = [_of("epoch", now["epoch"], now["epochs"]), _of("step", now["step"], now["total"])]
    metrics = [f"{name} {_number(now['metrics'][name])}" for name in _names(found)]
    yield "**" + " · ".join([part for part in (*place, *metrics[:4]) if part] or ["no numbers yet"]) + "**"
    speed = f"{now['it_per_s']:.4g} it/s" if now["it_per_s"] else ""
    tokens = f"{now['tokens_per_s']:,.0f} tokens/s" if now["tokens_per_s"] else ""
    left = f"{units.show_duration(now['eta'])} left" if now["eta"] is not None else ""
    age = f"last line {units.show_duration(now['age'])} ago" if now["age"] is not None else "no log yet"
    saved = f"checkpoint {units.show_duration(now['checkpoint_age'])} ago" if now["checkpoint_age"] is not None else ""
    parts = [now["state"], speed, tokens, left, age, saved, *_box(found)]
    yield ""
    yield " · ".join(part for part in parts if part)
    if len(metrics) > 4:
        yield ""
        yield ", ".join(metrics[4:_SHOWN])


def _names(found: dict[str, Any]) -> list[str]:
    metrics = found["now"]["metrics"]
    chosen = [found["roles"].get(role) for role in ("loss", "val_loss", "accuracy", "lr", "grad_norm")]
    first = [name for name in dict.fromkeys([*chosen, *_FIRST]) if name in metrics]
    return first + [name for name in metrics if name not in first and len(name) < _CONFIG_LIKE]


def _of(word: str, value: Any, total: Any) -> str:
    if value is None:
        return ""
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{word} {shown}" + (f"/{total}" if total else "")


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, (int, float)) else str(value)


def _box(found: dict[str, Any]) -> Iterator[str]:
    if not found["machine"]:
        return
    sample = found["machine"][-1]
    for card in sample["gpus"]:
        used, total = card["memory_used"], card["memory_total"]
        room = f", {units.show_size(used)} of {units.show_size(total)}" if used is not None and total else ""
        degrees = f", {card['temperature']} °C" if card["temperature"] is not None else ""
        yield f"GPU {card['index']}: {card['utilization'] if card['utilization'] is not None else '?'} %{room}{degrees}"


def _risk(row: dict[str, Any]) -> str:
    sure = f" (sure: {row['sure']:.0%})" if "sure" in row else ""
    where = f" [{row['where']}]" if row.get("where") else ""
    extra = "".join(
        f"\n  - {name}: {_one_line(row[key])}" for name, key in (("seen", "evidence"), ("fix", "fix")) if row.get(key)
    )
    return f"- {row['severity']} `{row['code']}`{where}: {_one_line(row['message'])}{sure}{extra}"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


def _changes(found: dict[str, Any]) -> Iterator[str]:
    before, now = found["before"], found["now"]
    if not before:
        yield "First look: no earlier one to compare with."
        return
    yield f"## Changed since {stamp(before['time'])} ({units.show_duration(now['time'] - before['time'])} ago)"
    yield ""
    rows = list(_differences(found, before, now))
    yield from rows or ["- nothing"]


def _differences(found: dict[str, Any], before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    for name in ("state", "step", "epoch", "checkpoints"):
        if before.get(name) != now[name] and not (name == "checkpoints" and before.get(name) is None):
            yield f"- {name}: {before.get(name)} → {now[name]}"
    old = before.get("metrics", {})
    for name in _names(found)[:_SHOWN]:
        if old.get(name) != now["metrics"][name]:
            yield f"- {name}: {_number(old.get(name))} → {_number(now['metrics'][name])}"
    codes = {row["code"] for row in found["findings"] if row["severity"] != "info"}
    for code in sorted(codes - set(before.get("findings", []))):
        yield f"- new: `{code}`"
    for code in sorted(set(before.get("findings", [])) - codes):
        yield f"- gone: `{code}`"
    for row in found["files"]:
        if row["restarted"]:
            yield f"- {row['path']} was {row['restarted']}; it was read from its beginning"


def stamp(when: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(when))
