"""META · proves the cases without a model, runs agents on them with and without the skill, reports what came of it."""

from __future__ import annotations

import json
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "evals"), str(ROOT / "scripts")]

from rgt import cli, errors, files  # noqa: E402
from trials import agents, case, proofs, routing, summary, trial, triggers  # noqa: E402

import click  # noqa: E402

_DIRECTORY = click.Path(file_okay=False, path_type=Path)
_EXISTING = click.Path(exists=True, file_okay=False, path_type=Path)
_SHOWN = {"default": case.CASES, "show_default": "evals/cases"}
FOLDER = click.option("--folder", type=_EXISTING, help="Where the cases are.", **_SHOWN)  # type: ignore[arg-type]
CASES = click.option("--cases", default="", help="Only these, with commas between; a part of a name is enough.")
OUT = click.option("--out", type=_DIRECTORY, required=True, help="Folder of the trials.")
_ARM = {"type": click.Choice(trial.ARMS), "default": "skill", "show_default": True}
ARM = click.option("--arm", help="With the skill or without.", **_ARM)  # type: ignore[arg-type]
_NUMBER = {"type": click.IntRange(1), "default": 1, "show_default": True}
NUMBER = click.option("--trial", "number", help="Number of the trial.", **_NUMBER)  # type: ignore[arg-type]


@click.group(cls=cli.Group)
def main() -> None:
    """Measure whether the skill helps an agent."""


def _chosen(folder: Path, wanted: str = "") -> list[str]:
    every = case.names(folder)
    if not every:
        raise errors.bad_input(f"{folder} holds no case: no */case.py is there")
    parts = [part.strip() for part in wanted.split(",") if part.strip()]
    for part in parts:
        if not any(part in name for name in every):
            raise errors.bad_input(f"no case is called {part}; there are: {', '.join(every)}")
    return [name for name in every if not parts or any(part in name for part in parts)]


def _load(name: str, folder: Path) -> case.Loaded:
    try:
        return case.load(name, folder)
    except case.Broken as problem:
        raise errors.bad_input(str(problem)) from None


@main.command()
@FOLDER
@CASES
@click.option("--jobs", type=click.IntRange(1, 16), default=2, show_default=True, help="Cases at once.")
@cli.json_option
def check(folder: Path, cases: str, jobs: int, as_json: bool) -> int:
    """Prove each case without a model: untouched fails, naive fails, the reference passes, the world is the same twice.

    Example: python evals/run_evals.py check --cases facts,leak
    """
    names = _chosen(folder, cases)
    with ProcessPoolExecutor(jobs) as pool:
        proved = list(pool.map(proofs.prove, names, [folder] * len(names)))
    ok, lines = not any(proof.problems for proof in proved), []
    for proof in proved:
        clock = ", ".join(f"{what} {seconds} s" for what, seconds in proof.seconds.items())
        lines.append(f"{'FAIL' if proof.problems else 'ok  '} {proof.name} ({clock})")
        lines += [f"     {problem}" for problem in proof.problems]
    cli.show({"tool": "run_evals", "ok": ok, "cases": [proof.as_json() for proof in proved]}, as_json, lines)
    return errors.OK if ok else errors.FINDINGS


@main.command()
@FOLDER
@CASES
@OUT
@click.option("--agent", required=True, help="claude, codex, openclaw, or a command line of your own.")
@click.option("--arms", default="none,skill", show_default=True, help="Without the skill, with it.")
@click.option("--trials", type=click.IntRange(1, 100), default=1, show_default=True, help="Of each case and arm.")
@click.option("--max-tokens", type=click.IntRange(1), default=None, help="A trial that needs more has not passed.")
def run(folder: Path, cases: str, out: Path, agent: str, arms: str, trials: int, max_tokens: int | None) -> None:
    """Run an agent on fresh copies; a trial that has its verdict is left alone, so an ended run can be started again.

    Example: python evals/run_evals.py run --agent claude --out trials --cases facts --trials 3
    """
    chosen = [arm for arm in arms.split(",") if arm]
    if not chosen or set(chosen) - set(trial.ARMS):
        raise errors.bad_input(f"--arms {arms}: it is none, skill or none,skill")
    who = agents.find(agent)
    for name in _chosen(folder, cases):
        loaded = _load(name, folder)
        for number in range(1, trials + 1):
            for arm in chosen:
                plan = trial.Plan(loaded, arm, number, out)
                if plan.folder.exists():
                    state = "there already" if plan.verdict.exists() else "has no verdict; grade it, or delete it"
                    click.echo(f"{plan.folder}: {state}", err=True)
                    continue
                _tell(trial.run(plan, who, max_tokens))


def _tell(record: dict[str, Any]) -> None:
    verdict = "passed" if record["passed"] else "; ".join([*record["problems"], *record["over_budget"]])
    click.echo(f"{record['case']} {record['arm']}-{record['trial']}: {verdict[:300]}")


@main.command()
@click.argument("name", metavar="CASE")
@FOLDER
@OUT
@ARM
@NUMBER
def prepare(name: str, folder: Path, out: Path, arm: str, number: int) -> None:
    """Make one world for an agent that is started by hand; prints the folder to work in and the prompt's file."""
    plan = trial.Plan(_load(name, folder), arm, number, out)
    if plan.folder.exists():
        raise errors.bad_input(f"{plan.folder} is there already; take another --trial number")
    box, budget = trial.prepare(plan, None), plan.loaded.case
    places = {"work": str(box.work.resolve()), "prompt": str((plan.folder / "prompt.md").resolve())}
    limits = {"path": box.env["PATH"].split(":")[:2], "minutes": budget.minutes, "commands": budget.commands}
    click.echo(json.dumps(places | limits))


@main.command()
@click.argument("name", metavar="CASE")
@FOLDER
@OUT
@ARM
@NUMBER
@click.option("--seconds", type=float, default=None, help="What it took.")
@click.option("--commands", type=int, default=None, help="How many it used.")
@click.option("--tokens", type=int, default=None, help="How many it read and wrote.")
@click.option("--agent", default=None, help="Which agent and model it was.")
def grade(name: str, folder: Path, out: Path, arm: str, number: int, agent: str | None, **took: Any) -> int:
    """Judge a world that `prepare` made, after an agent has been in it."""
    plan = trial.Plan(_load(name, folder), arm, number, out)
    if not plan.folder.is_dir():
        raise errors.bad_input(f"{plan.folder} is not there; make it with prepare")
    effort = agents.Effort(took["commands"], took["tokens"])
    record = trial.grade(plan, case.Box(plan.folder), took["seconds"], effort, agent=agent)
    _tell(record)
    return errors.OK if record["passed"] else errors.FINDINGS


@main.command()
@click.argument("out", type=click.Path(exists=True, file_okay=False, path_type=Path))
def report(out: Path) -> None:
    """Write OUT/benchmark.json and OUT/results.md from the verdicts below OUT."""
    records = trial.records(out)
    if not records:
        raise errors.bad_input(f"{out} has no trial.json; run or grade some trials first")
    files.write_json(out / "benchmark.json", summary.benchmark(records))
    files.write_text(out / "results.md", summary.page(records))
    click.echo(summary.page(records))


@main.command("routing")
@FOLDER
@cli.json_option
def show_routing(folder: Path, as_json: bool) -> None:
    """How far it is from SKILL.md to what each case needs: links, and tokens read on the way."""
    library = routing.Library()
    ways = [library.way(_load(name, folder)) for name in _chosen(folder)]
    longest_first = sorted(ways, key=lambda way: -way.tokens)
    lines = [f"{way.tokens:6d} tokens  {way.hops} hops  {way.case}" for way in longest_first]
    middle, whole = statistics.median(way.tokens for way in ways), library.tokens("SKILL.md", "references", "profiles")
    lines.append(f"SKILL.md {library.tokens('SKILL.md')} tokens, all knowledge {whole}")
    lines.append(f"to an answer {middle:.0f} tokens in the middle, {longest_first[0].tokens} at most")
    cli.show([vars(way) for way in ways], as_json, lines)


@main.command("triggers")
@click.option("--agent", default=None, help="Ask this agent, once per prompt. [default: the offline proxy]")
@cli.json_option
def show_triggers(agent: str | None, as_json: bool) -> None:
    """Which prompts would load the skill: by an agent's word, or by the proxy of trials/triggers.py."""
    who = agents.find(agent) if agent else None
    measured = triggers.measure(fires=(lambda prompt: triggers.ask(who, prompt)) if who else None)
    fire = f"{measured['should']} that should: {measured['recall']:.0%} fire"
    quiet = f"{measured['should_not']} near-misses: {measured['specificity']:.0%} stay quiet"
    wrong = [f"  {kind}: {prompt}" for kind in ("missed", "false") for prompt in measured[kind]]
    cli.show(measured, as_json, [f"{fire}; {quiet}", *wrong])


@main.command()
@FOLDER
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit 1 when it is out of date.")
def export(folder: Path, only_check: bool) -> int:
    """Write evals.json, the cases in the open format that other tools read."""
    evals = []
    for number, name in enumerate(_chosen(folder), 1):
        loaded = _load(name, folder)
        one, by_hand = loaded.case, f"{name} --out <folder>"
        said = {"id": number, "name": name, "prompt": loaded.prompt, "expected_output": one.expected, "files": []}
        about = {"kind": one.kind, "route": one.route, "reads": list(one.reads), "minutes": one.minutes}
        about |= {"commands": one.commands, "held_out": one.held_out}
        about |= {"workspace": f"python evals/run_evals.py prepare {by_hand}"}
        about |= {"verifier": f"python evals/run_evals.py grade {by_hand}"}
        evals.append({**said, "expectations": [one.expected] if one.expected else [], "metadata": about})
    data = {"skill_name": "remote-gpu-trainer", "evals": evals}
    text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    target = folder.parent / "evals.json"
    if target.is_file() and target.read_text(encoding="utf-8") == text:
        return errors.OK
    if only_check:
        click.echo(f"{target.name} is out of date: python evals/run_evals.py export")
        return errors.FINDINGS
    files.write_text(target, text)
    click.echo(f"wrote {target}")
    return errors.OK


if __name__ == "__main__":
    main()
