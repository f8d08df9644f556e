# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""RUN · push, pull with proof, gather many runs, and down: nothing is destroyed before it is pulled, verified, approved

Example:
    rgt transfer push . box:~/exp
    rgt transfer pull box:~/exp/runs/20261116-083000-tiny-1f00ab pulled/20261116-083000-tiny-1f00ab
    rgt transfer down pulled/20261116-083000-tiny-1f00ab --profile runpod --id abc123

pull writes PULL_MANIFEST.json (made on the box), the files, PULL_VERIFIED.json (proof of load here) and events.jsonl;
what was interrupted lies in .rgt-pull, and the same command goes on from there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgt import bundle, cli, errors, units
from rgt.errors import bad_input
from rgt.report import Report, progress

import click

if TYPE_CHECKING:
    from rgt.platform.profiles import Command
    from rgt.transfer.teardown_rules import Case

Words = tuple[str, ...]
duration: dict[str, Any] = {"type": cli.Duration(), "show_default": True}
patience_option = click.option("--patience", **duration, default="15m", help="Give up after this long without a byte.")
exclude_option = click.option("--exclude", multiple=True, help="A name or path to leave out, with * and ?; repeatable.")


@click.group(cls=cli.Group)
def main() -> None:
    """Bring code there and results back, prove it, and only then stop the meter.

    Example: rgt transfer pull box:~/exp/runs/<run-id> pulled/<run-id>
    """


@main.command()
@click.argument("local")
@click.argument("target")
@exclude_option
@patience_option
@click.option("--dry-run", is_flag=True, help="Check and count, and send nothing.")
@cli.report_options
def push(local: str, target: str, exclude: Words, patience: float, dry_run: bool, fmt: str | None) -> int:
    """Send the folder LOCAL to TARGET (HOST:DIR): what git tracks, and what is new and not ignored.

    Without git, everything but caches. Files named like credentials are left out: `push - HOST:FILE < FILE` puts
    stdin into a file of mode 0600.

    Example: rgt transfer push . box:~/exp --exclude data
    """
    from rgt.host.ssh import parse_place
    from rgt.transfer import push as pushing

    where, found = parse_place(target), Report("transfer")
    if local == "-":
        pushing.send_secret(sys.stdin.buffer.read(), where, dry_run)
        found.data = {"target": where.text, "mode": "0600"}
        return found.emit(fmt, f"{'nothing was sent' if dry_run else 'written'}: {where.text}, mode 0600")
    load = pushing.gather_load(Path(local), exclude)
    found.findings = load.findings
    found.data = {"target": where.text, "files": len(load.files), "bytes": load.bytes, "by_git": load.by_git}
    whole = f"{len(load.files)} files, {units.show_size(load.bytes)}"
    if dry_run:
        return found.emit(fmt, f"nothing was sent ({whole})")
    pushing.send(load, where, patience)
    for path, why in load.failed:
        found.add("digest", "error", f"was not written on {where.host.title}: {why}", path=path)
    found.data |= {"sent": load.sent, "sent_bytes": load.sent_bytes, "drops": load.drops}
    state = "NOT complete" if load.failed else "complete"
    last = f"{state}: {where.text} has {whole} by sha256; {load.sent} were sent, {units.show_size(load.sent_bytes)}"
    return found.emit(fmt, last)


@main.command()
@click.argument("source")
@click.argument("local", required=False, type=click.Path(path_type=Path))
@click.option("--loop", is_flag=True, help="Unattended: pull again and again until the run is over, then prove it.")
@click.option("--every", **duration, default="2m", help="Time between two pulls of --loop.")
@exclude_option
@patience_option
@cli.report_options
def pull(
    source: str, local: Path | None, loop: bool, every: float, exclude: Words, patience: float, fmt: str | None
) -> int:
    """Bring SOURCE (HOST:DIR) to LOCAL, verify it by load, write PULL_VERIFIED.json. Exit 0 is the only proof.

    SOURCE can be a run directory that launch made for a remote run: its files then join it. A dropped connection is
    waited out; whatever is killed, the same command goes on where it was. Links that lead out of DIR are errors.

    Example: rgt transfer pull runs/<run-id> --loop
    """
    from rgt.host.ssh import Place, parse_place
    from rgt.job import backends
    from rgt.run import record as rundir
    from rgt.transfer import delivery

    where, others = parse_place(source), []
    if local is None and where.host.name:
        raise bad_input(f"name the folder to pull into: {bundle.command('transfer', 'pull', source, '<local>')}")
    if local is None:  # a run directory here knows its machines
        local = Path(source)
        order = backends.order_of(rundir.open_run(local))
        if not order:
            raise bad_input(f"{source} was not started by launch, so its machine is not known; write HOST:DIR")
        places = [Place(host, order.run_dir) for host in order.hosts if host.name]
        if not places:
            raise bad_input(f"{source} ran with {order.kind}, not behind ssh: there is nothing to pull from a host")
        where, *others = places
    if loop:
        delivery.follow(where, local, exclude, patience, every)
    done = delivery.deliver(where, local, exclude, patience, known=loop)
    found = Report("transfer", done.findings, done.as_dict())
    for node in others:
        beside = f"{local}-{node.host.name.removeprefix('ssh://')}"
        fix = bundle.command("transfer", "pull", node.text, beside)
        message = f"{node.host.name} is another node of this run; what only its disk holds is not here"
        found.add("unpulled", "warn", message, fix=fix)
    there = done.there
    whole = f"{len(there.entries)} files, {units.show_size(there.bytes)} from {there.source}"
    whole += f", {units.show_duration(done.seconds)}, {done.box.drops} drops"
    if not done.complete:
        return found.emit(fmt, f"NOT complete: {whole}; the same command goes on from here")
    if not done.proof:
        return found.emit(fmt, f"pulled, NOT verified: {whole}")
    going = f"; the run is {done.state.word}" if done.state and not done.state.over else ""
    return found.emit(fmt, f"pulled and verified: {whole}; proof: {done.proof}{going}")


@main.command()
@click.argument("places", nargs=-1, required=True)
@patience_option
@cli.report_options
def aggregate(places: Words, patience: float, fmt: str | None) -> int:
    """Gather every run below SOURCES (HOST:DIR or folders here) in TARGET, a folder on a shared file system.

    PLACES are the sources, then the target. Each run becomes TARGET/<run-id>, pulled and verified like a single one;
    run again, it copies only what is new, and verifies all of it.

    Example: rgt transfer aggregate box1:~/exp/runs box2:~/exp/runs runs /mnt/shared/runs
    """
    from rgt.host.ssh import parse_place
    from rgt.transfer import delivery

    if len(places) < 2:
        raise bad_input("name at least one source and the target: aggregate HOST:DIR ... TARGET")
    target = parse_place(places[-1])
    if target.host.name:
        raise bad_input(f"{places[-1]} is behind ssh; the target is a folder that is mounted here")
    found, rows = Report("transfer"), []
    for there, proof, findings in delivery.gather(list(map(parse_place, places[:-1])), Path(target.path), patience):
        state = "verified" if proof else "failed"
        rows.append({"run": Path(there.path).name, "source": there.text, "state": state})
        found.findings += findings
        if fmt is None:
            click.echo(f"{state:9} {there.text}")
    found.data = {"target": target.path, "runs": rows}
    verified = sum(row["state"] == "verified" for row in rows)
    return found.emit(fmt, f"{verified} verified, {len(rows) - verified} failed")


# -- down


@main.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--profile", required=True, help="Platform of the box: a name in profiles/ (china:matpool), or a path.")
@click.option("--id", "box_id", default="", help="What the provider calls the box.")
@click.option("--id-env", default="", help="Variable on the box with its own id. [default: the profile's]")
@click.option("--set", "more", multiple=True, help="Another placeholder of the command: NAME=VALUE; repeatable.")
@click.option("--approve", default="", help="The user's own words, with the phrase that this page showed them.")
@click.option("--abandon", multiple=True, help="A path on the box that the user gives up by name; repeatable.")
@click.option("--execute", is_flag=True, help="Run the provider's command; without it, it is only shown.")
@cli.report_options
def down(
    run: Path,
    profile: str,
    box_id: str,
    id_env: str,
    more: Words,
    approve: str,
    abandon: Words,
    execute: bool,
    fmt: str | None,
) -> int:
    """Say what the end of RUN's box destroys, what bills on, and the exact command; run it only when all is proved.

    RUN is the folder that was pulled into. Exit 4 unless the box answers, all that counts on its disks is here by
    digests made there and here now, or given up by name; what is here loads now; nothing works there any more; and
    the user repeated the phrase that is shown when all else holds (30 minutes, for this run, id, profile and command).
    Pulls beside RUN count, too. Every decision is an event in RUN/events.jsonl.

    Example: rgt transfer down pulled/<run-id> --profile runpod --id abc123
    """
    from rgt.platform import profiles
    from rgt.transfer import approval, teardown_rules

    facts = profiles.load(profile)
    for pair in more:
        if pair.find("=") < 1:
            raise bad_input(f"--set takes NAME=VALUE, not {pair!r}")
    values = {"id": box_id} if box_id else {}
    values |= dict(pair.split("=", 1) for pair in more)
    order = profiles.command(facts["verbs"]["down"], values)
    listing = profiles.command(facts["meter"].get("list"), values)  # before anything is executed: it may lack a value
    id_env = id_env or facts["overrides"].get("transfer.py", {}).get("--id-env", "")
    command = order.text if order else f"by hand: {facts['verbs']['down']['value']}"
    case = teardown_rules.Case(run, facts, values, command, abandon)
    teardown_rules.examine(case, id_env)
    case.require_approval(approve)
    means = [{"what": what, "sentence": line} for what, line in teardown_rules.consequences(case)]
    found = Report("transfer", list(case.against), {"run_id": case.run_id, "profile": facts["name"], "id": box_id})
    found.data |= {"irreversible": facts["meter"]["stops_with"]["irreversible"], "command": command}
    found.data |= {"consequences": means, "notes": case.notes, "executed": False}
    found.data |= {"state": case.state.word if case.state else None}
    if fmt is None:
        for what, sentence in teardown_rules.page(case):
            click.echo(units.show_text(f"{what:13} {sentence}"))
    reasons = [finding.message for finding in found.findings][:20]
    decision = {"command": command, "execute": execute, "reasons": reasons, "words": approve, "abandoned": abandon}
    unrecorded = case.log("refused" if reasons else "approved", **decision)
    if unrecorded and not reasons:
        found.add("unreadable", "error", f"a decision that is not recorded is not made: {unrecorded}")
    if found.findings:
        found.emit(fmt, f"refused: {len(found.findings)} things stand against it; nothing was executed")
        return errors.REFUSED
    if not execute:
        return found.emit(fmt, "everything holds, and nothing was executed: --execute runs the command")
    if order is None:
        found.emit(fmt, f"this platform has no command for it: {command}")
        return errors.ENVIRONMENT
    approval.spend(case.local)
    return found.emit(fmt, _execute(case, found, order, listing, facts["meter"]["list"]))


def _execute(case: Case, found: Report, order: Command, listing: Command | None, fact: dict[str, Any]) -> str:
    """Run the provider's command and ask its list; the last line of the report."""
    from rgt.platform import profiles

    progress(f"running: {order.text}")
    code, text = order.run()
    found.data |= {"executed": True, "exit_code": code, "said": text[-2000:]}
    if code:
        case.log("refused", by="provider", command=order.text, exit_code=code, said=text[-500:])
        message = f"{order.words[0]} ended with {code}; the box may still bill"
        found.add("failed", "error", message, evidence=text[-500:])
        return "NOT down"
    found.data["gone"], sentence = profiles.shown_gone(listing, found.data["id"], fact)
    case.log("destroyed", command=order.text, id=found.data["id"], gone=found.data["gone"], listing=sentence)
    if found.data["gone"]:
        return f"down: {sentence}"
    found.add("unseen", "error", sentence)
    return "the command ended well, and that nothing bills is NOT shown"


if __name__ == "__main__":
    main()
