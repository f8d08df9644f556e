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
from rgt.errors import bad_input, lacking
from rgt.report import Report, progress

import click

if TYPE_CHECKING:
    from rgt.platform.acts import Outcome
    from rgt.transfer.teardown_rules import Case

Words = tuple[str, ...]
duration: dict[str, Any] = {"type": cli.Duration(), "show_default": True}
patience_option = click.option("--patience", **duration, default="15m", help="Give up after this long without a byte.")
profile_option = click.option("--profile", required=True, help="A name in profiles/ (china:matpool) or a path.")
set_option = click.option("--set", "more", multiple=True, help="Another placeholder of the command: NAME=VALUE.")
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

    To s3://BUCKET/PREFIX and hf://USER/REPO every file goes, and STORE_VERIFIED.json here proves it by the store's own
    hashes; --dry-run then checks the token and whether it may write, before a run depends on it.

    Without git, everything but caches. Files named like credentials are left out: `push - HOST:FILE < FILE` puts
    stdin into a file of mode 0600.

    Example: rgt transfer push . box:~/exp --exclude data
    """
    from rgt.host import stores
    from rgt.host.ssh import parse_place
    from rgt.transfer import push as pushing

    if stores.is_store(target):
        return _send_to_store(Path(local), target, dry_run, fmt)
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


def _send_to_store(local: Path, target: str, dry_run: bool, fmt: str | None) -> int:
    from rgt.checkpoint.names import STORE_PROOF
    from rgt.host import stores

    if not local.is_dir():
        raise bad_input(f"{local} is not a folder; a store gets a whole folder, such as a run directory")
    found = Report("transfer", data={"target": target})
    stores.check_write(target)
    if dry_run:
        return found.emit(fmt, f"nothing was sent; {target} may be written to")
    sent = stores.send(local, stores.open_store(target))
    for path, why in sent.unproved.items():
        found.add("unverified", "warn", f"the store's copy is no proof of it: {why}", path=str(local / path))
    for line in sent.wrong:
        found.add("digest", "error", line, path=str(local))
    if sent.wrong:
        return found.emit(fmt, f"NOT proved: {len(sent.wrong)} files of {local} are not in {target} as they are here")
    how = f"by the store's own hashes, {sent.loaded} checkpoints and arrays loaded before"
    return found.emit(fmt, f"stored: {units.show_size(sent.bytes)} in {target}, {how}; proof: {local / STORE_PROOF}")


def _fetch_from_store(source: str, local: Path | None, fmt: str | None) -> int:
    from rgt.host import stores

    if local is None:
        raise bad_input(f"name the folder to pull into: {bundle.command('transfer', 'pull', source, '<local>')}")
    found = Report("transfer", data={"source": source})
    size, wrong = stores.fetch(stores.open_store(source), local)
    for line in wrong:
        found.add("digest", "error", line, path=str(local))
    proof = f"proof by load: {bundle.command('verify_local', local)}"
    word = "NOT complete" if wrong else "fetched, by the store's hashes"
    return found.emit(fmt, f"{word}: {units.show_size(size)} from {source}" + ("" if wrong else f"; {proof}"))


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

    A folder that is mounted or lies here (/mnt/box/runs/x) is pulled in the same way. SOURCE can be a run directory
    that launch made for a remote run: its files then join it. A dropped connection is waited out; whatever is killed,
    the same command goes on where it was. Links that lead out of DIR are errors.

    Example: rgt transfer pull runs/<run-id> --loop
    """
    from rgt.host import stores
    from rgt.host.ssh import parse_place
    from rgt.transfer import delivery

    if stores.is_store(source):
        return _fetch_from_store(source, local, fmt)
    where, others = parse_place(source), []
    if local is None and where.host.name:
        raise bad_input(f"name the folder to pull into: {bundle.command('transfer', 'pull', source, '<local>')}")
    if local is None:  # a run directory here knows its machines
        from rgt.job import backends
        from rgt.run import record as rundir

        local = Path(source)
        places = backends.places(rundir.open_run(local))
        if not places:
            raise bad_input(
                f"{source} was not started by launch behind ssh, so its machine is not known; write HOST:DIR"
            )
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
@profile_option
@click.option("--id", "box_id", default="", help="What the provider calls the box.")
@click.option("--id-env", default="", help="Variable on the box with its own id. [default: the profile's]")
@set_option
@click.option("--act", type=click.Choice(["stop", "destroy"]), help="[default: what stops the meter there]")
@click.option("--approve", default="", help="The user's own words, with the phrase that this page showed them.")
@click.option("--lease", type=click.Path(path_type=Path), help="Approve a stop by a lease whose end has come.")
@click.option("--abandon", multiple=True, help="A path on the box that the user gives up by name; repeatable.")
@click.option("--execute", is_flag=True, help="Run the provider's command; without it, it is only shown.")
@click.option("--wait", **duration, default="3m", help="How long to look for its sign in the list.")
@cli.report_options
def down(run: Path, profile: str, lease: Path | None, execute: bool, fmt: str | None, **said: Any) -> int:
    """Say what the end of RUN's box destroys, what bills on, and the exact command; run it only when all is proved.

    RUN is the folder that was pulled into, or launch's own of a run that `push` on its box sent to a store. Exit 4
    unless the box answers, all that counts on its disks is here or in that store by digests made there and here now, or
    given up by name; what is here loads now, what is in the store was loaded before; nothing works there any more; and
    the user repeated the phrase that is shown when all else holds (30 minutes, for this run, id, profile and command),
    or gave a lease for a stop that keeps the run's disk; of the other files only what that stop loses counts then.
    Pulls beside RUN count, too. Every decision is an event in RUN/events.jsonl.
    The provider's own list must have this very id before the command and show its end after it: else exit 4, or 1.

    Example: rgt transfer down pulled/<run-id> --profile runpod --id abc123
    """
    from rgt.platform import acts, profiles
    from rgt.run import approval
    from rgt.run import lease as leases
    from rgt.transfer import teardown_rules

    facts = profiles.load(profile)
    act, box_id, approve = said["act"] or acts.usual(facts), said["box_id"], said["approve"]
    values = profiles.placeholders(box_id, said["more"])
    order = profiles.command(acts.verb(facts, act), values)
    profiles.command(facts["meter"]["list"], values)  # before anything is executed: it may lack a value
    id_env = said["id_env"] or facts["overrides"].get("transfer.py", {}).get("--id-env", "")
    command = order.text if order else f"by hand: {acts.verb(facts, act)['value']}"
    case = teardown_rules.Case(run, facts, values, command, act, said["abandon"], lease, profile)
    teardown_rules.examine(case, id_env)
    case.require_approval(approve)
    found = _decide(case, f"lease {lease}" if lease else approve, execute, fmt)
    if found.findings:
        found.emit(fmt, f"refused: {len(found.findings)} things stand against it; nothing was executed")
        return errors.REFUSED
    if not execute:
        return found.emit(fmt, "everything holds, and nothing was executed: --execute runs the command")
    if order is None:
        found.emit(fmt, f"this platform has no command for it: {command}")
        return errors.ENVIRONMENT
    approval.spend(case.local)
    if lease and (why := leases.spend(lease, *case.leased)):
        found.add("unapproved", "error", f"the lease does not approve it any more: {why}", path=str(lease))
        found.emit(fmt, "refused: nothing was executed")
        return errors.REFUSED
    progress(f"running: {command}")
    return _report(case, found, acts.end(facts, values, box_id, act, said["wait"]), fmt)


def _decide(case: Case, words: str, execute: bool, fmt: str | None) -> Report:
    """Show the page, and write down what was decided and why; a finding is what stands against the act."""
    from rgt.run import billing
    from rgt.transfer import teardown_rules

    means = [{"what": what, "sentence": line} for what, line in teardown_rules.consequences(case)]
    found = Report("transfer", list(case.against), {"run_id": case.run_id, "profile": case.facts["name"]})
    found.data |= {"id": case.box_id, "act": case.act, "irreversible": case.act == "destroy", "command": case.command}
    found.data |= {"consequences": means, "notes": case.notes, "executed": False}
    found.data |= {"store": case.store["store"] if case.store else None}
    found.data |= {"state": case.state.word if case.state else None, "cost": billing.bill_of(case.local).as_dict()}
    if fmt is None:
        for what, sentence in teardown_rules.page(case):
            click.echo(f"{what:13} {sentence}")
    reasons = [finding.message for finding in found.findings][:20]
    decision = {"command": case.command, "execute": execute, "reasons": reasons, "words": words}
    unrecorded = case.log("refused" if reasons else "approved", **decision, abandoned=case.abandon)
    if unrecorded and not reasons:
        found.add("unreadable", "error", f"a decision that is not recorded is not made: {unrecorded}")
    return found


def _report(case: Case, found: Report, done: Outcome, fmt: str | None) -> int:
    """What became of the act, as an event and as the end of the report: 0 proved, 1 not proved, 4 not even begun."""
    found.data |= {"executed": done.executed, "gone": done.gone, "exit_code": done.exit_code, "said": done.said}
    event = {"destroy": "destroyed", "stop": "box_stopped"}[found.data["act"]] if done.gone else "refused"
    detail = {key: found.data[key] for key in ("command", "id", "executed", "gone", "exit_code", "said")}
    case.log(event, by="provider", listing=done.sentence, **detail)
    if done.gone:
        return found.emit(fmt, f"down: {done.sentence}")
    found.add("unseen", "error", done.sentence, evidence=done.said)
    if done.executed:
        return found.emit(fmt, "the command was run, and that nothing bills is NOT proved")
    found.emit(fmt, "refused: nothing was executed")
    return errors.REFUSED


@main.command()
@profile_option
@set_option
@cli.report_options
def bills(profile: str, more: Words, fmt: str | None) -> int:
    """Show what the provider's own list says still bills. An answer that cannot be read is exit 1, never "nothing".

    Example: rgt transfer bills --profile runpod
    """
    from rgt.platform import acts, profiles

    facts = profiles.load(profile)
    whole = facts["meter"]["list"]["value"]
    if "answer" not in facts["meter"]["list"]:
        raise lacking(f"{facts['title']} has no list that a program can read; look at it yourself: {whole}")
    listing = acts.listed(facts, profiles.placeholders("", more))
    found = Report("transfer", data={"profile": facts["name"], "list": whole, "complete": listing.whole})
    if listing.problem:
        fix = f"look at it yourself: {whole}"
        found.add("unreadable", "error", f"{listing.problem}: what bills is not known", evidence=listing.said, fix=fix)
        return found.emit(fmt, "what bills is NOT known")
    found.data["rows"] = [{"id": row.id, "status": row.status, "bills": row.bills} for row in listing.rows]
    if not listing.whole:
        found.add("partial", "warn", "the list has further pages, which were not read", fix=f"look at it: {whole}")
    if fmt is None:
        for row in listing.rows:
            click.echo(f"{acts.quoted(row.id)}  {row.status}  bills: {row.bills or 'nothing'}")
    count = sum(bool(row.bills) for row in listing.rows)
    return found.emit(fmt, f"{count} of the {len(listing.rows)} listed bill; all that can bill is in: {whole}")


if __name__ == "__main__":
    main()
