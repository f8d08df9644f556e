# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""RUN · the Iron Law at the shell: a hook that refuses to destroy results or end machines without proof and approval

Example:
    rgt guard install --host claude                  from now on every command of the agent is judged before it runs
    rgt guard status                                 is it in force? a made-up act is tried through the installed file
    rgt guard check -- ssh box 'rm -rf runs'         exit 4: what would be refused, and the command that comes next
    rgt guard approve 'rm -rf runs/old'              shows a phrase; the user repeats it, and the act is allowed once

What runs in the hook is scripts/rgt/guard/hook.py, with any python3 and nothing else. RGT_GUARD=off in the environment
of the agent or the shell switches it off. Refusals are in ~/.local/state/rgt/guard/refusals.jsonl.
"""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path

from rgt import bundle, cli, errors
from rgt.errors import bad_input
from rgt.report import Report

import click

HOSTS = ("claude", "codex", "gemini", "openclaw", "shell")  # rgt.guard.agent_hosts.NAMES; its import can wait
READ = 5.0  # seconds below which nobody read a phrase and answered it
host_option = click.option("--host", type=click.Choice(HOSTS), required=True, help="Whose hook.")
project_option = click.option("--project/--user", default=False, help="This project's settings, or yours.")
dry_option = click.option("--dry-run", is_flag=True, help="Say what would be written, and write nothing.")
command_argument = click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)


@click.group(cls=cli.Group)
def main() -> None:
    """Judge command lines before they run; refuse what destroys results or ends machines without proof and approval.

    Example: rgt guard install --host claude
    """


def _line(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else shlex.join(words)


@main.command(context_settings={"ignore_unknown_options": True})
@command_argument
@cli.report_options
def check(command: tuple[str, ...], fmt: str | None) -> int:
    """Say what COMMAND would do that needs proof and approval: exit 0 nothing, 4 refused. Nothing is executed.

    Example: rgt guard check -- rm -rf runs
    """
    from rgt.guard import hook, proof_lookup

    line, cwd, environ = _line(command), os.getcwd(), dict(os.environ)
    acts = hook.find_acts(line, cwd, environ)
    left = proof_lookup.unproved(acts, cwd, environ, spend=False)
    found = Report("guard", data={"command": line, "acts": [act.as_dict() for act in acts], "refused": bool(left)})
    if left:
        for act in left:
            fix = proof_lookup.next_command(act, line, cwd)
            found.add("unapproved", "error", proof_lookup.redacted(act.as_dict()["sentence"]), fix=fix)
        found.emit(fmt, "refused")
        return errors.REFUSED
    what = "proof and approval are there" if acts else "nothing that the guard knows as destructive; it may still be"
    return found.emit(fmt, f"passes: {what}")


@main.command(context_settings={"ignore_unknown_options": True})
@command_argument
@click.option("--words", default="", help="The user's own words, with the phrase that this page showed them.")
@cli.json_option
def approve(command: tuple[str, ...], words: str, as_json: bool) -> int:
    """Have the user approve COMMAND, once, within 30 minutes, in this folder.

    Without --words it shows what is lost and a phrase with a random word. Show both to the user and wait for the
    answer. The end of a box that a profile knows goes through `rgt transfer down`, which also proves the pull.

    Example: rgt guard approve 'rm -rf runs/old'
    """
    from rgt import files
    from rgt.guard import hook, proof_lookup
    from rgt.run import approval

    line, cwd, environ = _line(command), os.getcwd(), dict(os.environ)
    acts = hook.find_acts(line, cwd, environ)
    if not acts:
        raise bad_input("the guard would let this pass: there is nothing to approve")
    data = {"command": line, "acts": [act.as_dict() for act in acts], "granted": False}
    told = [proof_lookup.redacted(act.as_dict()["sentence"]) for act in acts]
    covered = next((act for act in acts if act.profile), None)
    if covered:
        told.append(f"refused: a pull must be proved first: {proof_lookup.next_command(covered, line, cwd)}")
        cli.show(data, as_json, told)
        return errors.REFUSED
    name = proof_lookup.key(acts, cwd)
    folder = Path(proof_lookup.state_folder(environ))
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    asked = approval.Act(acts[0].target[:60] or acts[0].kind, "", "guard", line)
    why = approval.problem(folder / name, asked, words)
    shown = approval.phrase_for(folder / name, asked)
    if not why and time.time() - (shown.expires - approval.SECONDS) < READ:
        why = "the phrase was shown a moment ago: these cannot be the words of somebody who read it"
    if why:
        told.append(f'to approve, the user says until {shown.until}: "{shown.text}"')
        again = bundle.command("guard", "approve", line, "--words", "<their-words>")
        told.append(f"not approved: {why}; show the user this page, wait for their answer, then: {again}")
        cli.show({**data, "phrase": shown.text}, as_json, told)
        return errors.REFUSED
    approval.spend(folder / name)
    grant = {"command": line, "cwd": cwd, "words": words, "expires": time.time() + proof_lookup.SECONDS - 1}
    files.write_json(folder / f"granted-{name}.json", grant)
    cli.show({**data, "granted": True}, as_json, [*told, "approved: this command here, once, within 30 minutes"])
    return errors.OK


@main.command()
@host_option
@project_option
@dry_option
def install(host: str, project: bool, dry_run: bool) -> int:
    """Write the hook into the settings of an agent, or shims for a shell. Everything else in them stays.

    Example: rgt guard install --host claude --project
    """
    from rgt.guard import agent_hosts

    _apply(host, project, dry_run, remove=False)
    if host in agent_hosts.AGENTS and agent_hosts.AGENTS[host].note:
        click.echo(agent_hosts.AGENTS[host].note)
    if dry_run:
        return errors.OK
    path, why = agent_hosts.proves_itself(host, project)
    click.echo(f"NOT in force: {why}" if why else f"in force: {path} refused a made-up act")
    return errors.FINDINGS if why else errors.OK


@main.command()
@host_option
@project_option
@dry_option
def uninstall(host: str, project: bool, dry_run: bool) -> int:
    """Take the hook or the shims away again, and nothing else.

    Example: rgt guard uninstall --host claude
    """
    _apply(host, project, dry_run, remove=True)
    return errors.OK


def _apply(host: str, project: bool, dry_run: bool, remove: bool) -> None:
    from rgt.guard import agent_hosts

    changes = agent_hosts.changes(host, project, remove)
    for change in changes:
        verb = "remove" if change.text is None else "write"
        click.echo(f"{'would ' if dry_run else ''}{verb} {change.path}")
        if not dry_run:
            change.apply()
    if not changes:
        click.echo("nothing to do: it is there already" if not remove else "nothing to do: it is not there")


@main.command()
@click.option("--host", type=click.Choice(HOSTS), help="Only this one. [default: all]")
@cli.json_option
def status(host: str | None, as_json: bool) -> int:
    """Say where the guard is in force, proved by a made-up act through each installed file. Exit 1 when nowhere.

    Example: rgt guard status
    """
    from rgt.guard import agent_hosts

    rows = []
    for name in [host] if host else HOSTS:
        for project in (False, True) if name in agent_hosts.AGENTS else (False,):
            path, why = agent_hosts.proves_itself(name, project)
            rows.append({"host": name, "path": str(path), "in_force": not why, "why": why})
    lines = [
        f"{row['host']:9} "
        + (f"NOT in force: {row['why']} ({row['path']})" if row["why"] else f"in force: {row['path']}")
        for row in rows
    ]
    cli.show({"hosts": rows}, as_json, lines)
    return errors.OK if any(row["in_force"] for row in rows) else errors.FINDINGS


@main.command()
def table() -> None:
    """Print the table that the hook reads, made of the profiles now."""
    from rgt.guard import verb_table

    click.echo(verb_table.text(verb_table.build()), nl=False)


if __name__ == "__main__":
    main()
