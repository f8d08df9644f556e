"""The checklist of every number: what its reader must be told. It travels with the deliverable and blocks nothing.

Example:
    for item in checklists(project, compare, audits)["acc-ours"]: print(item.check, item.state, item.sentence)
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rgt import files
from rgt.errors import RgtError, bad_input
from rgt.evidence.claims import Claim, Project, runs_of, words_of
from rgt.render.document_numbers import Style
from rgt.render.figures import Problem
from rgt.report import SEVERITIES, plural
from rgt.run.record import RUN_ID
from rgt.run.results import chosen_on_test, is_typed


class Item(NamedTuple):
    check: str
    state: str  # disclose, unknown; own: the claim's own sentence
    sentence: str


Note = tuple[str, str]  # state, sentence
Look = Callable[[Project, Claim], Iterator[Note]]
_LOOKS: dict[str, Look] = {}


def _check(name: str) -> Callable[[Look], Look]:
    """Makes a function one of the checks; it yields nothing when all is fine."""
    return lambda look: _LOOKS.setdefault(name, look)


Lists = dict[str, list[Item]]  # by id of the claim


def checklists(project: Project, compare: tuple[Path, ...], audits: dict[str, list[Problem]]) -> Lists:
    """What there is to say of each claim. `compare`: what `rgt compare_runs --json` wrote."""
    lists: Lists = {}
    compared = []
    for path in compare:
        compared.append(files.read_json(path))
        if not isinstance(compared[-1], dict) or not isinstance(compared[-1].get("findings"), list):
            raise bad_input(f"{path} is no report with findings: give the output of `rgt compare_runs --json`")
    for claim in project.claims:
        items: list[Item] = []
        for check, look in _LOOKS.items():
            try:
                items += [Item(check, *note) for note in look(project, claim)]
            except RgtError as error:  # a check that cannot be made says so instead of failing
                items.append(Item(check, "unknown", error.message.replace(f"{project.root}/", "")))
        figure = claim.get("figure", "")
        problems = sorted(audits.get(figure, []), key=lambda problem: SEVERITIES.index(problem.severity))
        items += [Item("figure", "disclose", f"figure {figure}: {problem.message}") for problem in problems]
        items += [Item("comparison", "disclose", text) for text in _compared(claim, compared)]
        lists[claim["id"]] = items + [Item("own", "own", text) for text in claim.get("disclosures", [])]
    return lists


@_check("value")
def _value(project: Project, claim: Claim) -> Iterator[Note]:
    for message in project.value_problems(claim):
        yield "disclose", message


@_check("runs")
def _runs(project: Project, claim: Claim) -> Iterator[Note]:
    count = len(claim["evidence"])
    if count == 1:
        yield "disclose", "one run: no spread, so a difference to it cannot be told from noise"
    elif "spread" not in claim:
        yield "disclose", "no spread is given although there are several runs"
    elif count == 2:
        yield "disclose", "two runs: the spread itself is hardly known"


@_check("seeds")
def _seeds(project: Project, claim: Claim) -> Iterator[Note]:
    seeds = [project.run(run_id).record()["seeds"] for run_id in runs_of(claim)]
    distinct = {json.dumps(one, sort_keys=True) for one in seeds}
    if not all(seeds):
        yield "unknown", "a run recorded no seed"
    elif len(distinct) < len(seeds):
        yield "disclose", "runs share a seed: the spread is not one over seeds"


@_check("split")
def _split(project: Project, claim: Claim) -> Iterator[Note]:
    split = claim.get("split")
    if split is None:
        yield "unknown", "the claim does not name its split"
    elif split != "test":
        why = "what settings are chosen on" if split == "val" else "what was trained on"
        yield "disclose", f"measured on {split}: {why}, so it is better than on new data"


@_check("eval set")
def _eval_set(project: Project, claim: Claim) -> Iterator[Note]:
    rows = [project.result(run_id, claim) for run_id in runs_of(claim)]
    known = {row.get("eval_set_sha256") for row in rows}
    if None in known:
        yield "unknown", "the hash of the evaluation set is not recorded: nobody can show it was the same"
    elif len(known) > 1:
        yield "disclose", "its runs were measured on different evaluation sets"
    if len({row.get("n") for row in rows}) > 1:
        yield "disclose", "its runs were measured on different numbers of examples"


@_check("typed")
def _typed(project: Project, claim: Claim) -> Iterator[Note]:
    count = sum(is_typed(project.result(run_id, claim)) for run_id in runs_of(claim))
    if count:
        yield "disclose", f"{plural(count, 'value')} typed: no rule says how it was computed from what was measured"


@_check("sealed")
def _sealed(project: Project, claim: Claim) -> Iterator[Note]:
    for _, message in project.sealing_problems(claim):
        yield "disclose", message
    for run_id in runs_of(claim):
        for problem in project.seal_problems(run_id)[:1] if project.run(run_id).seal.exists() else []:
            yield "disclose", f"{run_id}: {problem.name} {problem.message}"


@_check("selection")
def _selection(project: Project, claim: Claim) -> Iterator[Note]:
    """Was the reported step picked by looking at the test set? Its curve shows it, when there is one."""
    for run_id in runs_of(claim):
        run, row = project.run(run_id), project.result(run_id, claim)
        if row["split"] != "test":
            continue
        test, val = run.curve(row["name"], "test"), run.curve(row["name"], "val")
        if chosen_on_test(row["value"], row.get("step"), row["direction"], test, val):
            count = sum(map(math.isfinite, test.values()))
            yield "disclose", f"{run_id}: the best of {count} evaluations on the test set is reported"
            return


@_check("code")
def _code(project: Project, claim: Claim) -> Iterator[Note]:
    states = [project.run(run_id).record().get("git") for run_id in runs_of(claim)]
    if any(state is None for state in states):
        yield "unknown", "a run was not started from a git repository: its code is not known"
        return
    if any(state["dirty"] is None for state in states if state):
        yield "unknown", "of a run only the commit is known, not whether the code was changed"
    if any(state["dirty"] for state in states if state):
        yield "disclose", "a run was started with uncommitted changes"
    if len({state["commit"] for state in states if state}) > 1:
        yield "disclose", "its runs were started from different commits"


def _compared(claim: Claim, compared: list[dict[str, Any]]) -> Iterator[str]:
    """What a comparison found about the runs of a claim."""
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


def as_data(lists: Lists) -> dict[str, Any]:
    claims = []
    for name, items in lists.items():
        checks = [item._asdict() for item in items]
        claims.append({"id": name, "checks": checks, "disclose": [item.sentence for item in items]})
    return {"claims": claims}


def sentences(items: list[Item]) -> list[str]:
    said = [f"{'not known: ' if item.state == 'unknown' else ''}{item.sentence}" for item in items]
    return said or ["nothing to disclose"]


def markdown(project: Project, lists: Lists, compare: tuple[Path, ...]) -> str:
    purpose = "What a reader of each number must know. Written by `rgt render gate`; nothing here blocks."
    given = "what compare_runs found" if compare else "no comparison of runs, because none was given"
    lines = ["# Disclosures", "", purpose, "", f"Looked at: {', '.join(_LOOKS)}, figure; {given}."]
    for name, items in lists.items():
        claim = project.claim(name)
        number = Style(spread=True, n=True).text(claim)
        lines += ["", f"## {name}", "", f"{', '.join(words_of(claim))}: {number} <!-- claim:{name} -->", ""]
        lines += [f"- {sentence}" for sentence in sentences(items)]
    return "\n".join(lines) + "\n"
