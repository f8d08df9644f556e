"""The checklist of every number: what its reader must be told. It travels with the deliverable and blocks nothing.

Example:
    for item in checklists(project, compared, audits)["acc-ours"]: print(item.check, item.state, item.sentence)
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from delivery.digits import Style
from delivery.readback import Problem
from rgt import files, seal
from rgt.errors import RgtError, bad_input
from rgt.evidence import Claim, Project, runs_of
from rgt.ids import RUN_ID

CHECKS = ("value", "runs", "seeds", "split", "eval set", "sealed", "selection", "code", "figure", "comparison")
_SAME = 1e-9


class Item(NamedTuple):
    check: str
    state: str  # ok, disclose, unknown; own: the claim's own sentence
    sentence: str = ""


def checklists(
    project: Project, compared: list[dict[str, Any]], audits: dict[str, list[Problem]]
) -> dict[str, list[Item]]:
    """By id of the claim."""
    return {claim["id"]: _checklist(project, claim, compared, audits) for claim in project.claims}


def _checklist(
    project: Project, claim: Claim, compared: list[dict[str, Any]], audits: dict[str, list[Problem]]
) -> list[Item]:
    """One item per check, more where more is to say. A check that cannot be made says so instead of failing."""
    items: list[Item] = []
    for check, look in _LOOKS.items():
        try:
            found = list(look(project, claim))
        except RgtError as error:
            found = [Item(check, "unknown", error.message.replace(f"{project.root}/", ""))]
        items += found or [Item(check, "ok")]
    items += [
        Item("figure", "disclose", f"figure {claim['figure']}: {problem.message}")
        for problem in audits.get(claim.get("figure", ""), [])[:3]
    ]
    items += [Item("comparison", "disclose", text) for text in _compared(claim, compared)] or [
        Item("comparison", "ok" if compared else "unknown", "" if compared else "no comparison of runs was given")
    ]
    return items + [Item("own", "own", text) for text in claim.get("disclosures", [])]


def _value(project: Project, claim: Claim) -> Iterator[Item]:
    value, _, _ = project.measure(claim)
    if abs(value - claim["value"]) > _SAME * max(1.0, abs(value)):
        yield Item("value", "disclose", "the number is not what its runs give; `claim check` has the difference")


def _runs(project: Project, claim: Claim) -> Iterator[Item]:
    count = len(claim["evidence"])
    if count == 1:
        yield Item("runs", "disclose", "one run: no spread, so a difference to it cannot be told from noise")
    elif "spread" not in claim:
        yield Item("runs", "disclose", "no spread is given although there are several runs")
    elif count == 2:
        yield Item("runs", "disclose", "two runs: the spread itself is hardly known")


def _seeds(project: Project, claim: Claim) -> Iterator[Item]:
    seeds = [project.run(run_id).record()["seeds"] for run_id in runs_of(claim)]
    distinct = {json.dumps(one, sort_keys=True) for one in seeds}
    if not all(seeds):
        yield Item("seeds", "unknown", "a run recorded no seed")
    elif len(distinct) < len(seeds):
        yield Item("seeds", "disclose", "runs share a seed: the spread is not one over seeds")


def _split(project: Project, claim: Claim) -> Iterator[Item]:
    split = claim.get("split")
    if split is None:
        yield Item("split", "unknown", "the claim does not name its split")
    elif split != "test":
        why = "what settings are chosen on" if split == "val" else "what was trained on"
        yield Item("split", "disclose", f"measured on {split}: {why}, so it is better than on new data")


def _eval_set(project: Project, claim: Claim) -> Iterator[Item]:
    rows = [project.result(run_id, claim) for run_id in runs_of(claim)]
    known = {row.get("eval_set_sha256") for row in rows}
    if None in known:
        yield Item(
            "eval set", "unknown", "the hash of the evaluation set is not recorded: nobody can show it was the same"
        )
    elif len(known) > 1:
        yield Item("eval set", "disclose", "its runs were measured on different evaluation sets")
    if len({row["n"] for row in rows}) > 1:
        yield Item("eval set", "disclose", "its runs were measured on different numbers of examples")


def _sealed(project: Project, claim: Claim) -> Iterator[Item]:
    for item in claim["evidence"]:
        run = project.run(item["run_id"])
        found = project.seal_problems(run.id)
        if not run.seal.exists() or "seal_sha256" not in item:
            yield Item("sealed", "disclose", f"{run.id} is not sealed: it may change unseen")
        elif found:
            yield Item("sealed", "disclose", f"{run.id}: {found[0].name} {found[0].message}")
        elif seal.digest_of(run.seal) != item["seal_sha256"]:
            yield Item("sealed", "disclose", f"{run.id} has another seal than when the claim was made")


def _selection(project: Project, claim: Claim) -> Iterator[Item]:
    """Was the reported step picked by looking at the test set? Its curve shows it, when there is one."""
    for run_id in runs_of(claim):
        run, row = project.run(run_id), project.result(run_id, claim)
        if row["split"] != "test":
            continue
        curve = {step: value for step, value in run.curve(row["name"], "test").items() if math.isfinite(value)}
        if len(curve) < 2:
            continue
        best = (max if row["direction"] == "up" else min)(curve.values())
        last = curve[max(curve)]
        if abs(row["value"] - best) <= _SAME * max(1.0, abs(best)) and last != best:
            yield Item(
                "selection", "disclose", f"{run_id}: the best of {len(curve)} evaluations on the test set is reported"
            )
            return


def _code(project: Project, claim: Claim) -> Iterator[Item]:
    states = [project.run(run_id).record().get("git") for run_id in runs_of(claim)]
    if any(state is None for state in states):
        yield Item("code", "unknown", "a run was not started from a git repository: its code is not known")
        return
    if any(state["dirty"] for state in states if state):
        yield Item("code", "disclose", "a run was started with uncommitted changes")
    if len({state["commit"] for state in states if state}) > 1:
        yield Item("code", "disclose", "its runs were started from different commits")


_LOOKS: dict[str, Callable[[Project, Claim], Iterator[Item]]] = {
    "value": _value, "runs": _runs, "seeds": _seeds, "split": _split, "eval set": _eval_set, "sealed": _sealed,
    "selection": _selection, "code": _code,
}  # fmt: skip


# -- what a comparison found


def read_comparison(path: Path) -> dict[str, Any]:
    data = files.read_json(path)
    if not isinstance(data, dict) or not isinstance(data.get("findings"), list):
        raise bad_input(f"{path} is no report with findings: give the output of `compare_runs.py --json`")
    return data


def _compared(claim: Claim, compared: list[dict[str, Any]]) -> Iterator[str]:
    mine = set(runs_of(claim))
    for report in compared:
        everyone = set(RUN_ID.findall(json.dumps(report)))
        for finding in report["findings"]:
            if not isinstance(finding, dict) or finding.get("severity") == "info":
                continue
            about = set(RUN_ID.findall(json.dumps(finding))) or everyone or mine
            if about & mine:
                yield f"{finding.get('code', 'finding')}: {finding.get('message', '')}"


# -- the file that travels


def as_data(lists: dict[str, list[Item]]) -> dict[str, Any]:
    return {
        "claims": [
            {
                "id": name,
                "checks": [item._asdict() for item in items],
                "disclose": [said.sentence for said in told(items)],
            }
            for name, items in lists.items()
        ]
    }


def told(items: list[Item]) -> list[Item]:
    return [item for item in items if (item.state != "ok" and item.check != "comparison") or item.state == "disclose"]


def markdown(project: Project, lists: dict[str, list[Item]]) -> str:
    lines = [
        "# Disclosures",
        "",
        "What a reader of each number must know. Written by `render.py gate`; nothing here blocks.",
    ]
    for name, items in lists.items():
        claim = project.claim(name)
        what = ", ".join(str(claim[key]) for key in ("metric", "method", "dataset", "split") if claim.get(key))
        number = Style(spread=True, n=True).text(claim)
        lines += ["", f"## {name}", "", f"{what}: {number} <!-- claim:{name} -->", ""]
        lines += [f"- {'not known: ' if item.state == 'unknown' else ''}{item.sentence}" for item in told(items)] or [
            "- nothing to disclose"
        ]
    lines += ["", "## Checklist", "", "✓ fine · ! disclosed above · ? not known", ""]
    lines += ["| number | " + " | ".join(CHECKS) + " |", "|---" * (len(CHECKS) + 1) + "|"]
    lines += [
        f"| {name} | " + " | ".join(_sign(items, check) for check in CHECKS) + " |" for name, items in lists.items()
    ]
    return "\n".join(lines) + "\n"


def _sign(items: list[Item], check: str) -> str:
    states = {item.state for item in items if item.check == check}
    return "!" if "disclose" in states else "?" if "unknown" in states else "✓"
