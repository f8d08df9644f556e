"""What the trials say: benchmark.json as other tools read it, and a page for people. Only what was run is in it."""

from __future__ import annotations

import math
import random
import statistics
from collections import defaultdict
from datetime import datetime, timezone
from typing import Any

CONFIGURATION = {"skill": "with_skill", "none": "without_skill"}
RESAMPLES = 10_000
Record = dict[str, Any]


def _spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    found = {"mean": statistics.fmean(values), "stddev": spread, "min": min(values), "max": max(values)}
    return {name: round(value, 4) for name, value in found.items()}


def by_case(records: list[Record]) -> dict[str, dict[str, list[Record]]]:
    table: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        table[record["case"]][record["arm"]].append(record)
    return {case: dict(arms) for case, arms in sorted(table.items())}


def _rate(records: list[Record], key: str = "passed") -> float:
    return statistics.fmean(float(record[key]) for record in records)


def paired(records: list[Record], key: str = "passed") -> dict[str, Any] | None:
    """The mean difference over cases that both arms ran, and a bootstrap interval: a case is the unit, not a trial."""
    differences = [
        _rate(arms["skill"], key) - _rate(arms["none"], key) for arms in by_case(records).values() if len(arms) == 2
    ]
    if not differences:
        return None
    rng = random.Random(0)
    means = sorted(statistics.fmean(rng.choices(differences, k=len(differences))) for _ in range(RESAMPLES))
    low, high = means[int(0.025 * RESAMPLES)], means[math.ceil(0.975 * RESAMPLES) - 1]
    return {
        "cases": len(differences),
        "difference": round(statistics.fmean(differences), 4),
        "ci95": [round(low, 4), round(high, 4)],
    }


def benchmark(records: list[Record]) -> dict[str, Any]:
    table = by_case(records)
    numbers = {name: number for number, name in enumerate(table, 1)}
    summary: dict[str, Any] = {}
    for arm, name in CONFIGURATION.items():
        cases = [arms[arm] for arms in table.values() if arm in arms]
        if not cases:
            continue
        own = [record for case in cases for record in case]
        summary[name] = {
            "pass_rate": _spread([_rate(case) for case in cases]),
            "outcome_rate": _spread([_rate(case, "outcome") for case in cases]),
            "time_seconds": _spread([r["seconds"] for r in own if r["seconds"] is not None]),
            "tokens": _spread([r["tokens"] for r in own if r["tokens"] is not None]),
            "commands": _spread([r["commands"] for r in own if r["commands"] is not None]),
        }
    if len(summary) == 2:
        both = [summary[name] for name in ("with_skill", "without_skill")]
        forms = {
            "pass_rate": "+.2f",
            "outcome_rate": "+.2f",
            "time_seconds": "+.1f",
            "tokens": "+.0f",
            "commands": "+.1f",
        }
        summary["delta"] = {
            key: format(both[0][key]["mean"] - both[1][key]["mean"], form)
            for key, form in forms.items()
            if both[0][key] and both[1][key]
        }
        summary["paired_pass_rate"] = paired(records)
        summary["paired_outcome"] = paired(records, "outcome")
    runs = [_run(record, numbers) for record in records]
    metadata = {
        "skill_name": "remote-gpu-trainer",
        "timestamp": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "evals_run": list(table),
        "runs_per_configuration": max((len(a) for arms in table.values() for a in arms.values()), default=0),
        "agents": sorted({str(record.get("agent")) for record in records if record.get("agent")}),
    }
    return {"metadata": metadata, "runs": runs, "run_summary": summary, "notes": notes(table)}


def _run(record: Record, numbers: dict[str, int]) -> Record:
    passed, in_budget = bool(record["passed"]), not record["over_budget"]
    expectations = [
        {"text": "the outcome is right", "passed": record["outcome"], "evidence": "; ".join(record["problems"])},
        {"text": "within the budget", "passed": in_budget, "evidence": "; ".join(record["over_budget"])},
    ]
    result = {"pass_rate": float(passed), "passed": int(passed), "failed": int(not passed), "total": 1, "errors": 0}
    took = {"time_seconds": record["seconds"], "tokens": record["tokens"], "tool_calls": record["commands"]}
    about = {"eval_id": numbers[record["case"]], "eval_name": record["case"], "run_number": record["trial"]}
    about["configuration"] = CONFIGURATION[record["arm"]]
    return {**about, "result": result | took, "expectations": expectations, "notes": []}


def notes(table: dict[str, dict[str, list[Record]]]) -> list[str]:
    """What a reader must know about the cases themselves."""
    found = []
    for name, arms in table.items():
        if len(arms) < 2:
            found.append(f"{name}: only one arm was run; it does not count for the difference")
        elif all(_rate(records) == 1 for records in arms.values()):
            found.append(f"{name}: both arms always pass; drop it or make it harder")
        elif all(_rate(records) == 0 for records in arms.values()):
            found.append(f"{name}: no arm ever passes")
        elif _rate(arms["skill"]) < _rate(arms["none"]):
            found.append(f"{name}: worse with the skill")
    return found


def page(records: list[Record]) -> str:
    """Markdown: the totals, then a row per case and arm."""
    data = benchmark(records)
    about = data["metadata"]
    said = f"{about['timestamp'][:10]} · {', '.join(about['agents']) or 'agent not recorded'}"
    lines = ["# Results", "", f"{said} · {len(records)} trials of {len(about['evals_run'])} cases", ""]
    lines += ["| arm | passed, in budget | right outcome | seconds | commands | tokens |", "|---|---|---|---|---|---|"]
    for arm, name in CONFIGURATION.items():
        own = data["run_summary"].get(name)
        if own:
            cells = [_cell(own[key]) for key in ("pass_rate", "outcome_rate", "time_seconds", "commands", "tokens")]
            lines.append(f"| {arm} | {' | '.join(cells)} |")
    test = data["run_summary"].get("paired_pass_rate")
    if test:
        low, high = test["ci95"]
        found = f"Difference over {test['cases']} paired cases: {test['difference']:+.2f}"
        lines += ["", f"{found}, 95 % interval [{low:+.2f}, {high:+.2f}] (bootstrap over cases)."]
    heads = "| case | arm | passed | outcome | seconds | commands | tokens | what was wrong |"
    lines += ["", heads, "|---|---|---|---|---|---|---|---|"]
    for name, arms in by_case(records).items():
        lines += [_row(name, arm, arms[arm]) for arm in ("none", "skill") if arm in arms]
    if data["notes"]:
        lines += ["", "## Notes", "", *(f"- {note}" for note in data["notes"])]
    return "\n".join(lines) + "\n"


def _cell(spread: dict[str, float] | None) -> str:
    return "-" if spread is None else f"{spread['mean']:.4g} ± {spread['stddev']:.3g}"


def _row(name: str, arm: str, records: list[Record]) -> str:
    def mean(key: str) -> str:
        values = [record[key] for record in records if record[key] is not None]
        return f"{statistics.fmean(values):.0f}" if values else "-"

    wrong = sorted({problem for record in records for problem in [*record["problems"], *record["over_budget"]]})
    text = "; ".join(wrong[:3]).replace("|", "\\|").replace("\n", " ")[:200]
    held = " (held out)" if records[0].get("held_out") else ""
    passed, right = (sum(bool(record[key]) for record in records) for key in ("passed", "outcome"))
    return (
        f"| {name}{held} | {arm} | {passed}/{len(records)} | {right}/{len(records)} | {mean('seconds')} "
        f"| {mean('commands')} | {mean('tokens')} | {text} |"
    )
