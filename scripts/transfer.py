# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy"]
# ///
"""RUN · push, pull with proof, gather many runs, and down: nothing is destroyed before it is pulled, verified, approved

Example:
    python scripts/transfer.py push . box:~/exp
    python scripts/transfer.py pull box:~/exp/runs/20261116-083000-tiny-1f00ab pulled/20261116-083000-tiny-1f00ab
    python scripts/transfer.py down pulled/20261116-083000-tiny-1f00ab --profile runpod --id abc123

pull writes PULL_MANIFEST.json (made on the box), the files, PULL_VERIFIED.json (proof of load here) and events.jsonl;
what was interrupted lies in .rgt-pull, and the same command goes on from there.
"""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rgt import cli, errors, units
from rgt.errors import bad_input
from rgt.report import Report, progress

if TYPE_CHECKING:
    from cargo.delivery import Delivery
    from cargo.place import Place
    from cargo.profile import Command
    from cargo.teardown import Case

PATIENCE, EVERY = "15m", "2m"
patience_option = click.option("--patience", type=units.Duration(), default=PATIENCE, show_default=True,
                               help="Give up after this long without a byte.")  # fmt: skip
exclude_option = click.option("--exclude", multiple=True, help="A name or path to leave out, with * and ?; repeatable.")


@click.group(cls=cli.Group)
def main() -> None:
    """Bring code there and results back, prove it, and only then stop the meter.

    Example: python scripts/transfer.py pull box:~/exp/runs/<run-id> pulled/<run-id>
    """


@main.command()
@click.argument("local")
@click.argument("target")
@exclude_option
@patience_option
@click.option("--dry-run", is_flag=True, help="Check and count, and send nothing.")
@cli.report_options
def push(local: str, target: str, exclude: tuple[str, ...], patience: float, dry_run: bool, fmt: str | None) -> int:
    """Send the folder LOCAL to TARGET (HOST:DIR): what git tracks, and what is new and not ignored.

    Without git, everything but caches. A script with Windows line ends stops it (exit 1, nothing sent). Files named
    like credentials are left out: `push - HOST:FILE < FILE` puts stdin into a file of mode 0600.

    Example: python scripts/transfer.py push . box:~/exp --exclude data
    """
    from cargo import place
    from cargo import push as pushing

    where, found = place.parse(target), Report("transfer")
    if local == "-":
        pushing.send_secret(sys.stdin.buffer.read(), where, dry_run)
        found.data = {"target": where.text, "mode": "0600"}
        return found.emit(fmt, f"{'nothing was sent' if dry_run else 'written'}: {where.text}, mode 0600")
    load = pushing.gather(Path(local), exclude)
    found.findings = load.findings
    found.data = {"target": where.text, "files": len(load.files), "bytes": load.bytes, "by_git": load.by_git}
    whole = f"{len(load.files)} files, {units.show_size(load.bytes)}"
    if dry_run or any(finding.severity == "error" for finding in load.findings):
        return found.emit(fmt, f"nothing was sent ({whole})")
    sent = pushing.send(load, where, patience)
    for path, why in sent.failed:
        found.add("digest", "error", f"was not written on {where.host.title}: {why}", path=path)
    found.data |= {"sent": sent.files, "sent_bytes": sent.bytes, "drops": sent.drops}
    state = "NOT complete" if sent.failed else "complete"
    last = f"{state}: {where.text} has {whole} by sha256; {sent.files} were sent, {units.show_size(sent.bytes)}"
    return found.emit(fmt, last)


@main.command()
@click.argument("source")
@click.argument("local", required=False, type=click.Path(path_type=Path))
@click.option("--loop", is_flag=True, help="Unattended: pull again and again until the run is over, then prove it.")
@click.option(
    "--every", type=units.Duration(), default=EVERY, show_default=True, help="Time between two pulls of --loop."
)
@exclude_option
@patience_option
@cli.report_options
def pull(source: str, local: Path | None, loop: bool, every: float, exclude: tuple[str, ...], patience: float,
         fmt: str | None) -> int:  # fmt: skip
    """Bring SOURCE (HOST:DIR) to LOCAL, verify it by load, write PULL_VERIFIED.json. Exit 0 is the only proof.

    SOURCE can be a run directory that launch made for a remote run: its files then join it. A dropped connection is
    waited out; whatever is killed, the same command goes on where it was. Links that lead out of DIR are errors.

    Example: python scripts/transfer.py pull runs/<run-id> --loop
    """
    from cargo import delivery

    where, local, others = _ends(source, local)
    if loop:
        _loop(where, local, exclude, patience, every)
    done = delivery.deliver(where, local, exclude, patience, known=loop)
    found = Report("transfer", done.findings, done.as_dict())
    for node in others:
        fix = f"python scripts/transfer.py pull {shlex.quote(node.text)} {shlex.quote(str(local))}-{node.host.name}"
        found.add(
            "unpulled",
            "warn",
            f"{node.host.name} is another node of this run; what only its disk holds is not here",
            fix=fix,
        )
    return found.emit(fmt, _pulled(done))


def _ends(source: str, local: Path | None) -> tuple[Place, Path, list[Place]]:
    """Where from, where to, and the other nodes of the same run."""
    from cargo import place

    where = place.parse(source)
    if where.host.name or local is not None:
        if local is None:
            raise bad_input(f"name the folder to pull into: transfer.py pull {shlex.quote(source)} LOCAL")
        return where, local, []
    places = place.of_run(Path(source))
    return places[0], Path(source), places[1:]


def _loop(where: Place, local: Path, exclude: tuple[str, ...], patience: float, every: float) -> None:
    """Until the run is over. The last pull, the one with the proof, comes after."""
    from cargo import delivery

    known, told = False, 0.0  # whether its state was ever known, and when that was last so
    while True:
        done = delivery.snapshot(where, local, exclude, patience, known)
        now = done.state
        assert now
        if now.over:
            progress(f"{where.text}: {now.word}; now the proof")
            return
        if now.word != "unknown":
            known, told = True, time.monotonic()
        elif not known or time.monotonic() - told > every + patience:
            raise errors.lacking(f"cannot tell when {where.text} is over: {now.detail}; pull without --loop")
        word = f"{now.word} ({now.detail})" if now.word == "unknown" else now.word
        files = len(done.outcome.found.entries)
        progress(f"{where.text}: {word}; {files} files, again in {units.show_duration(every)}")
        time.sleep(every)


def _pulled(done: Delivery) -> str:
    found, outcome = done.outcome.found, done.outcome
    whole = f"{len(found.entries)} files, {units.show_size(found.bytes)} from {found.source} by {outcome.mover}"
    took = f"{units.show_duration(outcome.seconds)}, {outcome.drops} drops"
    if not outcome.complete:
        return f"NOT complete: {whole}, {took}; the same command goes on from here"
    if not (done.verified and done.verified.proof):
        return f"pulled, NOT verified: {whole}, {took}"
    running = "" if done.state and done.state.over else f"; the run is {done.state.word if done.state else 'unknown'}"
    return f"pulled and verified: {whole}, {took}; proof: {done.verified.proof}{running}"


@main.command()
@click.argument("places", nargs=-1, required=True)
@patience_option
@cli.report_options
def aggregate(places: tuple[str, ...], patience: float, fmt: str | None) -> int:
    """Gather every run below SOURCES (HOST:DIR or folders here) in TARGET, a folder on a shared file system.

    PLACES are the sources, then the target. Each run becomes TARGET/<run-id>, pulled and verified like a single one;
    one that is there already, unchanged and proved, is left alone, so this can run again and again.

    Example: python scripts/transfer.py aggregate box1:~/exp/runs box2:~/exp/runs runs /mnt/shared/runs
    """
    from cargo import delivery, place

    if len(places) < 2:
        raise bad_input("name at least one source and the target: aggregate HOST:DIR ... TARGET")
    target = place.parse(places[-1])
    if target.host.name:
        raise bad_input(f"{places[-1]} is behind ssh; the target is a folder that is mounted here")
    found, rows = Report("transfer"), []
    for row in delivery.gather([place.parse(one) for one in places[:-1]], Path(target.path), patience):
        rows.append(
            {"run": row.run, "source": row.source, "state": row.state, "detail": row.detail, "bytes": row.bytes}
        )
        found.findings += row.findings
        if row.state == "failed" and not any(finding.severity == "error" for finding in row.findings):
            found.add("unpulled", "error", row.detail, path=row.source)
        if fmt is None:
            click.echo(f"{row.state:9} {row.run or row.source}" + (f"  {row.detail}" if row.detail else ""))
    found.data = {"target": target.path, "runs": rows}
    counts = {word: sum(row["state"] == word for row in rows) for word in ("verified", "unchanged", "failed")}
    return found.emit(fmt, ", ".join(f"{count} {word}" for word, count in counts.items()))


# -- down


@main.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--profile", required=True, help="Platform of the box: a name in profiles/ (china:matpool), or a path.")
@click.option("--id", "box_id", default="", help="What the provider calls the box.")
@click.option("--id-env", default="", help="Variable on the box that holds its own id, to be compared with --id. "
              "[default: the profile's]")  # fmt: skip
@click.option("--set", "more", multiple=True, help="Another placeholder of the command: NAME=VALUE; repeatable.")
@click.option("--approve", default="", help="The user's approval in words: the run id, exactly.")
@click.option("--abandon", multiple=True, help="Another run on the box that the user gives up; repeatable.")
@click.option("--execute", is_flag=True, help="Run the provider's command; without it, it is only shown.")
@cli.report_options
def down(run: Path, profile: str, box_id: str, id_env: str, more: tuple[str, ...], approve: str,
         abandon: tuple[str, ...], execute: bool, fmt: str | None) -> int:  # fmt: skip
    """Say what the end of RUN's box destroys, what bills on, and the exact command; run it only when all is proved.

    RUN is the folder that was pulled into. Exit 4 unless everything is pulled, verified by load and still so, the box
    holds nothing newer, the run is over, and --approve names the run. Every decision is an event in RUN/events.jsonl.

    Example: python scripts/transfer.py down pulled/<run-id> --profile runpod --id abc123 --approve <run-id>
    """
    from cargo import profile as profiles
    from cargo import teardown

    facts = profiles.load(profile)
    values = _values(box_id, more)
    order = profiles.command(facts["verbs"]["down"], values)
    listing = profiles.command(facts["meter"].get("list"), values)
    id_env = id_env or facts["overrides"].get("transfer.py", {}).get("--id-env", "")
    case = teardown.examine(run, id_env, box_id, abandon)
    found = Report("transfer", list(case.against))
    _approval(case, approve, found)
    by_hand = f"by hand: {facts['verbs']['down']['value']}"
    found.data = {
        "run_id": case.run_id,
        "profile": facts["name"],
        "irreversible": facts["meter"]["stops_with"]["irreversible"],
        "command": order.text if order else by_hand,
        "consequences": [{"what": what, "sentence": line} for what, line in teardown.consequences(facts, case)],
        "notes": case.notes,
        "state": case.state.word if case.state else None,
        "executed": False,
    }
    if fmt is None:
        _print_case(case, facts, found.data)
    decision = _decide(case, found, order, execute)
    if decision is not None:
        found.emit(fmt, decision[1])
        return decision[0]
    assert order
    return _execute(case, found, order, listing, facts, box_id, fmt)


def _values(box_id: str, more: tuple[str, ...]) -> dict[str, str]:
    values = {"id": box_id} if box_id else {}
    for pair in more:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise bad_input(f"--set takes NAME=VALUE, not {pair!r}")
        values[name] = value
    return values


def _approval(case: Case, approve: str, found: Report) -> None:
    if approve == case.run_id:
        return
    seen = f"--approve names {approve!r}" if approve else "there is no --approve"
    found.add("unapproved", "error", f"the user has not approved the end of {case.run_id}: {seen}",
              fix=f"show the user this page and ask; then --approve {case.run_id}")  # fmt: skip


def _print_case(case: Case, facts: dict[str, Any], data: dict[str, Any]) -> None:
    click.echo(f"{'run':13} {case.run_id}, pulled from {case.manifest['source'] if case.manifest else 'nowhere'}")
    click.echo(f"{'platform':13} {facts['title']}")
    for row in data["consequences"]:
        click.echo(f"{row['what']:13} {row['sentence']}")
    if case.proof:
        rows, warnings = case.proof["artifacts"], case.proof.get("warnings", 0)
        click.echo(f"{'proof':13} {len(rows)} files, verified {case.proof['verified']}, {warnings} warnings")
    for note in case.notes:
        click.echo(f"{'note':13} {note}")
    undo = "cannot be undone" if data["irreversible"] else "can be undone"
    click.echo(f"{'command':13} {data['command']}   ({undo})")


def _decide(case: Case, found: Report, order: Command | None, execute: bool) -> tuple[int, str] | None:
    """An end of the story, or None: the command is to be run. Each way is an event."""
    command = found.data["command"]
    reasons = [finding.message for finding in found.findings][:20]
    unrecorded = _log(case, "refused" if reasons else "approved", command=command, execute=execute, reasons=reasons)
    if unrecorded and not reasons:
        found.add("unreadable", "error", f"a decision that is not recorded is not made: {unrecorded}")
    if found.findings:
        return errors.REFUSED, f"refused: {len(found.findings)} things stand against it; nothing was executed"
    if not execute:
        return errors.OK, "everything holds, and nothing was executed: --execute runs the command"
    if order is None:
        return errors.ENVIRONMENT, f"this platform has no command for it: {command}"
    return None


def _log(case: Case, event: str, **detail: Any) -> str:
    """Why the event could not be written down; empty when it was."""
    from cargo import state

    try:
        state.log(case.local, event, act="down", **detail)
    except errors.RgtError as error:
        progress(f"warning: {error.message}")
        return error.message
    return ""


def _execute(case: Case, found: Report, order: Command, listing: Command | None, facts: dict[str, Any], box_id: str,
             fmt: str | None) -> int:  # fmt: skip
    from cargo import profile as profiles

    progress(f"running: {order.text}")
    said = order.run()
    found.data |= {"executed": True, "exit_code": said.code, "said": said.text[-2000:]}
    if said.code:
        _log(case, "refused", by="provider", command=order.text, exit_code=said.code, said=said.text[-500:])
        found.add(
            "failed",
            "error",
            f"{order.words[0]} ended with {said.code}; the box may still bill",
            evidence=said.text[-500:],
        )
        return found.emit(fmt, "NOT down")
    gone, sentence = profiles.shown_gone(listing, box_id, facts["meter"].get("list", {}))
    found.data["gone"] = gone
    _log(case, "destroyed", command=order.text, id=box_id, gone=gone, listing=sentence)
    if not gone:
        found.add("unseen", "error", sentence)
    return found.emit(
        fmt, f"down: {sentence}" if gone else "the command ended well, and that nothing bills is NOT shown"
    )


if __name__ == "__main__":
    main()
