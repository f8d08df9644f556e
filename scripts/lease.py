# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""RUN · no rented box without an end: by time, money or idleness it is pulled, verified and stopped; costs as numbers

Example:
    rgt lease start --profile runpod --id abc123 --run box:/workspace/runs/<run-id> --until 6h --on-end stop
    rgt lease status                       # every lease with its cost; boxes that are up without one
    rgt lease extend abc123 --until 2h     # rgt lease end abc123: no end any more; the box stays as it is
    rgt lease cost runs/*                  # what the runs cost, per claim and per failed hour

The lease is the user's, kept beside the run. Its keeper outlives the agent; any verb here starts a dead one again. It
never destroys anything, and stops once at most: what stands against a stop is told (rgt notify).
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgt import bundle, cli, errors, units
from rgt.errors import RgtError, bad_input
from rgt.report import Report

import click

if TYPE_CHECKING:
    from rgt.notice.telling import Config
    from rgt.run.lease import Lease

Words = tuple[str, ...]
_KEPT = 30 * 86400.0  # seconds for which a lease that is over is listed
_HOURS = 8760 / 12  # of a month
money: dict[str, Any] = {"type": click.FloatRange(0)}
duration: dict[str, Any] = {"type": cli.Duration()}
rate_option = click.option("--rate", **money, help="Price of an hour, running; it differs by card and day.")
stopped_option = click.option("--stopped-rate", **money, help="Price of an hour, stopped (its disk).")
lease_argument = click.argument("lease", metavar="ID|RUN")


@click.group(cls=cli.Group)
def main() -> None:
    """Give a rented box an end that nobody has to remember.

    Example: rgt lease status
    """


@main.command()
@click.option("--profile", required=True, help="Platform of the box: a name in profiles/, or a path.")
@click.option("--id", "box_id", required=True, help="What the provider calls the box.")
@click.option("--run", "run", required=True, help="HOST:DIR, a run of launch, or the folder it was pulled into.")
@click.option("--until", **duration, help="It ends after this time.")
@click.option("--max", "most", **money, help="It ends when this much is spent; needs --rate.")
@click.option("--idle", **duration, help="It ends when GPUs, log and writers were idle for this long.")
@click.option("--on-end", type=click.Choice(["stop", "tell"]), default="tell", show_default=True, help="At its end.")
@rate_option
@stopped_option
@click.option("--disk", **money, help="GB of the disk that a stop keeps, for the profile's price of it.")
@click.option("--words", default="", help="The user's own sentence, kept with it.")
@click.option("--set", "more", multiple=True, help="Another placeholder of the platform's commands: NAME=VALUE.")
@click.option("--on-box", is_flag=True, help="Also a timer on the box, 30 minutes later; it stops a living run, too.")
@click.option("--every", **duration, default="60s", show_default=True, help="Time between two looks.")
@click.option("--dry-run", is_flag=True, help="Say what would be kept and done, and start nothing.")
@cli.report_options
def start(profile: str, box_id: str, run: str, fmt: str | None, **said: Any) -> int:
    """Keep the user's words about one box, and start their keeper. Exit 1: it runs, and something is to be known.

    With --on-end stop this approves one act: `stop` of this id, for this run, at the end. It is done only when the run
    is pulled and verified, nothing works on the box, and the profile says that a stop keeps the run's disk.

    Example: rgt lease start --profile autodl --id pro-1 --run box:/root/runs/x --until 6h --on-end stop
    """
    from rgt.host.ssh import parse_place
    from rgt.lease import keeping
    from rgt.platform import acts, profiles
    from rgt.run import lease as leases

    facts, found = profiles.load(profile), Report("lease")
    made = _make(facts, leases.profile_word(profile), box_id, run, said)
    profiles.command(facts["meter"]["list"], made.values)  # it may lack a value
    loses = ""
    if made.on_end == "stop":
        unknown = f"where {made.local} can be pulled from is not known; give --run HOST:DIR"
        loses = acts.why_stop_loses(facts, parse_place(made.source).path) if made.source else unknown
    if loses:
        found.add("unapplied", "warn", f"at the end it can only tell: {loses}", where=made.title)
    _config(found)
    if made.on_box and (loses or not keeping.timer_script(facts) or _ends(made) == float("inf")):
        raise bad_input(f"no timer for the box: {loses or 'the profile knows no self_stop, or the lease has no time'}")
    found.data = {"lease": made.as_dict(), "file": str(made.file), "keeper": None}
    if said["dry_run"]:
        return found.emit(fmt, f"nothing was started: {_line(made)}")
    if made.on_box:
        keeping.set_timer(made, _ends(made), keeping.timer_script(facts))
    Path(made.local).mkdir(parents=True, exist_ok=True)
    leases.register(made)
    made.log("started", rate=made.rate, stopped_rate=made.stopped_rate, profile=profile, words=made.words)
    found.data["keeper"] = keeping.start(made)
    cron = f"*/10 * * * * {bundle.command('lease', 'status')} >/dev/null"
    lines = [_line(made), f"kept in {made.file}; keeper: pid {found.data['keeper']}"]
    again = f"after a reboot nobody keeps it until `rgt lease status` is called; for cron: {cron}"
    return found.emit(fmt, "\n".join([*lines, again]))


def _make(facts: dict[str, Any], profile: str, box_id: str, run: str, said: dict[str, Any]) -> Lease:
    from rgt.host.ssh import parse_place
    from rgt.platform import acts, profiles
    from rgt.run import lease as leases

    if not (said["until"] or said["most"] or said["idle"]):
        raise bad_input("a lease needs an end: --until 6h, --max 20 (with --rate) or --idle 30m")
    if said["most"] and said["rate"] is None:
        raise bad_input("--max needs the price of an hour: --rate 1.89")
    local, source = _locate(run)
    rate, stopped_rate = said["rate"], said["stopped_rate"]
    if said["disk"]:
        place = parse_place(source or str(local)).path
        prices = [tier["gb_month"] for tier in acts.tiers_of(facts, place) if "gb_month" in tier]
        if not prices:
            raise bad_input(f"the profile of {facts['title']} has no price of a GB there; give --stopped-rate")
        # of tiers that cannot be told apart, the dearest
        running, resting = (said["disk"] * max(p[key] for p in prices) / _HOURS for key in ("running", "stopped"))
        rate = None if rate is None else rate + running
        stopped_rate = resting if stopped_rate is None else stopped_rate
    wall, boot = leases.clock()
    lease_id = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(wall))}-{os.urandom(3).hex()}"
    box: dict[str, Any] = {"profile": profile, "values": profiles.placeholders(box_id, said["more"])}
    box |= {"run_id": local.name, "local": str(local), "source": source, "rate": rate, "stopped_rate": stopped_rate}
    box |= {"started": wall, "since": wall, "boot": boot, "on_box": said["on_box"]}
    box |= {"seconds": said["until"] or None, "most": said["most"] or None, "idle": said["idle"] or None}
    box |= {"on_end": said["on_end"], "words": said["words"], "every": max(0.1, said["every"])}
    return leases.Lease(lease_id=lease_id, box_id=box_id, **box)


def _locate(run: str) -> tuple[Path, str | None]:
    """The folder here, and where it is pulled from: by its pull, by its launch, or as it was written."""
    from rgt import files
    from rgt.checkpoint.names import MANIFEST
    from rgt.host.ssh import Place, parse_place
    from rgt.job import backends
    from rgt.run import record

    place = parse_place(run)
    if place.host.name:
        return Path("pulled", Path(place.path).name).absolute(), Place(place.host, place.host.absolute(place.path)).text
    local = Path(os.path.abspath(run))
    if (local / MANIFEST).is_file():
        return local, str(files.read_json(local / MANIFEST, "pull_manifest")["source"])
    if not local.is_dir():
        raise bad_input(f"{run} is not a run directory, a pulled folder or HOST:DIR")
    return local, next((place.text for place in backends.places(record.Run(local))), None)


def _config(found: Report) -> Config | None:
    """Who is told. That nobody is, or that it cannot be read, is a finding and hides nothing else."""
    from rgt.notice import telling

    try:
        config = telling.load()
    except RgtError as error:
        found.add("unseen", "error", f"nobody will be told: {error.message}", fix=bundle.command("notify", "--help"))
        return None
    if not config or not config.channels:
        found.add("unseen", "warn", f"nobody will be told: {telling.nobody()}")
    return config


def _ends(lease: Lease) -> float:
    """When at the latest, by time or money; infinite when only idleness ends it."""
    spans = [lease.seconds] if lease.seconds else []
    spans += [lease.most / lease.rate * 3600] if lease.most and lease.rate else []
    return lease.started + min(spans, default=float("inf"))


def _line(lease: Lease) -> str:
    ends = _ends(lease)
    end = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(ends)) if ends < 1e11 else "when it is idle"
    idle = f", or after {units.show_duration(lease.idle)} of idleness" if lease.idle and ends < 1e11 else ""
    act = "pull, verify, stop" if lease.on_end == "stop" else "tell"
    return f"{lease.title} ends {end}{idle}: {act} {lease.run_id}"


# -- change


@main.command()
@lease_argument
@click.option("--until", **duration, help="It ends this long from now.")
@click.option("--max", "most", **money, help="It ends when this much is spent in all.")
@click.option("--words", default="", help="The user's own sentence, kept with it.")
@cli.json_option
def extend(lease: str, until: float | None, most: float | None, words: str, as_json: bool) -> None:
    """Give a lease another end, counted from now; its one stop is approved anew.

    Example: rgt lease extend abc123 --until 2h
    """
    from rgt.lease import keeping
    from rgt.run import lease as leases

    if not (until or most):
        raise bad_input("say how long or how much: --until 2h, --max 30")
    with leases.change(leases.find(lease)) as fresh:
        if most and not fresh.rate:
            raise bad_input("this lease has no rate, so --max cannot be counted")
        fresh.since = fresh.now()
        fresh.seconds = fresh.since - fresh.started + until if until else fresh.seconds
        fresh.most = most or fresh.most
        fresh.state, fresh.due, fresh.spent, fresh.generation = leases.ACTIVE, None, None, fresh.generation + 1
        fresh.words = words or fresh.words
    fresh.log("extended", words=words)
    if fresh.on_box:
        keeping.set_timer(fresh, _ends(fresh))
    keeping.wake(fresh)
    cli.show({"lease": fresh.as_dict(), "keeper": keeping.start(fresh)}, as_json, [_line(fresh)])


@main.command()
@lease_argument
@cli.json_option
def end(lease: str, as_json: bool) -> None:
    """End a lease, not its box: from now on nobody watches the meter.

    Example: rgt lease end abc123
    """
    from rgt.lease import keeping
    from rgt.run import lease as leases

    known = leases.find(lease)
    if known.on_box and known.state != leases.ENDED:
        keeping.remove_timer(known)
    with leases.change(known) as fresh:
        fresh.state = leases.ENDED
    fresh.log("ended")
    keeping.wake(fresh)
    bills = bundle.command("transfer", "bills", "--profile", fresh.profile)
    line = f"the lease of {fresh.title} is ended; the box is as it was: {bills}"
    cli.show({"lease": fresh.as_dict()}, as_json, [line])


@main.command(hidden=True)
@click.argument("file", type=click.Path(path_type=Path))
def keep(file: Path) -> int:
    """Be the keeper of the lease in FILE, in the foreground; for systemd, and for `start` itself.

    Example: rgt lease keep runs/<run-id>.abc123.lease.json
    """
    from rgt.lease import keeping
    from rgt.run import lease as leases

    return errors.OK if keeping.keep(leases.read(Path(os.path.abspath(file)))) else errors.FINDINGS


# -- look


@main.command()
@cli.report_options
def status(fmt: str | None) -> int:
    """Show every lease with its cost so far, start keepers that died, and name boxes that are up without a lease.

    Boxes are looked for in the lists of the platforms that leases, or `profiles:` of the notify config, name. A list
    that cannot be read is said: nothing there is known then.

    Example: rgt lease status --json
    """
    from rgt.run import lease as leases

    found, rows, known = Report("lease"), [], []
    for folder, lease in leases.every():
        if lease is None:
            message = "its file is gone or broken: nobody keeps this box"
            found.add("missing", "error", message, path=str(folder / "lease"))
        elif lease.state in (leases.ENDED, leases.STOPPED) and lease.now() - lease.started > _KEPT:
            (folder / "lease").unlink(missing_ok=True)
        else:
            known.append(lease)
            rows.append(_look(lease, found))
    config = _config(found)
    active = [one for one in known if one.state == leases.ACTIVE]
    boxes = _without_lease(active, config.profiles if config else [], found)
    found.data = {"leases": rows, "without_lease": boxes}
    for row in rows if fmt is None else []:
        click.echo(f"{row['state']:10} {row['line']}; {row['cost']}; {row['keeper']}")
    return found.emit(fmt, f"{len(rows)} leases, {len(boxes)} boxes up without one")


def _look(lease: Lease, found: Report) -> dict[str, Any]:
    """One lease; its keeper is started when it is dead."""
    from rgt.lease import keeping
    from rgt.run import lease as leases

    memory = keeping.Keeper(lease).memory
    keeper, late = "over", time.time() - memory.get("time", lease.started)
    if lease.state == leases.ACTIVE:
        keeping.wake(lease)
        pid = keeping.start(lease)
        keeper = f"pid {memory.get('pid')}" if pid is None else f"pid {pid}"
        if pid is not None:
            found.add("watcher", "warn", f"its keeper was dead and is started again as {keeper}", where=lease.title)
        elif late > 3 * lease.every + 60 and not memory.get("doing"):
            message = f"its keeper ({keeper}) has not looked for {units.show_duration(late)}: stopped, or stuck"
            found.add("watcher", "error", message, where=lease.title, path=str(lease.folder / "keeper.log"))
        if memory.get("error"):
            found.add("watcher", "error", f"its keeper failed: {memory['error']}", where=lease.title)
    if lease.due and lease.state != leases.STOPPED:
        message = f"its lease is over ({lease.due['why']}); messages so far: {memory.get('attempt', 0)}"
        found.add("time-limit", "error", message, where=lease.title, path=lease.local)
    bill = keeping.lease_bill(lease, lease.now())
    ends = _ends(lease) if _ends(lease) < 1e11 else None
    row: dict[str, Any] = {"id": lease.box_id, "profile": lease.profile, "run": lease.local, "state": lease.state}
    row |= {"on_end": lease.on_end, "line": _line(lease), "ends": ends, "bill": bill.as_dict()}
    return {**row, "cost": bill.sentence(), "keeper": keeper, "listed": memory.get("listing"), "file": str(lease.file)}


def _without_lease(active: list[Lease], more: list[str], found: Report) -> list[dict[str, str]]:
    from rgt.platform import acts, profiles

    asked: dict[str, dict[str, str]] = {name: {} for name in more}
    asked |= {one.profile: one.values for one in reversed(active)}
    boxes = []
    for profile, values in asked.items():
        try:
            listing = acts.listed(profiles.load(profile), values)
        except RgtError as error:
            listing = acts.Listing(problem=error.message)
        if listing.problem or not listing.whole:
            why = listing.problem or "it has further pages, which were not read"
            message = f"the list of {profile}: {why}; what is up there is not known"
            found.add("unreadable", "warn", message, where=profile)
        leased = {one.box_id for one in active if one.profile == profile}
        for row in listing.rows:
            if row.id not in leased and not row.stopped and not row.ended:
                boxes.append({"profile": profile, "id": acts.quoted(row.id), "status": row.status})
                message = f"{acts.quoted(row.id)} is up ({row.status}) and has no lease"
                fix = bundle.command("lease", "start", "--profile", profile, "--id", row.id, "--run", "<host:dir>")
                found.add("unregistered", "warn", message, where=profile, fix=f"{fix} --until 6h")
    return boxes


@main.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@rate_option
@stopped_option
@click.option("--evidence", type=click.Path(path_type=Path), help="EVIDENCE.json: the cost of each of its claims.")
@cli.report_options
def cost(runs: tuple[Path, ...], evidence: Path | None, fmt: str | None, **rates: float | None) -> int:
    """Say what RUNS cost: hours up and stopped, from their events, times the recorded prices; unknown is said.

    Per claim: the runs that it rests on. Per failed hour: from a start of the job to its failure. A box that several
    runs share is counted once in the total.

    Example: rgt lease cost runs/* --evidence EVIDENCE.json
    """
    from rgt.evidence import claims
    from rgt.run import billing, record

    folders = [run.path for path in runs for run in (record.find(path) or [record.Run(path)])]
    for path in folders:
        if not path.is_dir():
            raise bad_input(f"{path} is not a run directory")
    bills = [billing.bill_of(path, **rates) for path in folders]
    found = Report("lease", data={"runs": [bill.as_dict() for bill in bills], "total": billing.total(bills)})
    failed = [bill for bill in bills if bill.failed]
    hours, lost = sum(bill.failed for bill in failed), [bill.failed_cost for bill in failed]
    found.data["failed"] = {"hours": round(hours, 4), "cost": None if None in lost else sum(filter(None, lost))}
    by_run, rows = {bill.run_id: bill for bill in bills}, []
    for claim in claims.load(evidence).claims if evidence else ():  # those whose runs are all among them
        names = claims.runs_of(claim)
        if all(name in by_run for name in names):
            money = billing.total([by_run[name] for name in names])
            rows.append({"claim": claim["id"], "runs": len(names), "cost": money})
    found.data["claims"] = rows
    for bill in bills:
        if bill.cost is None:
            found.add("unknown", "warn", f"no rate is recorded for {bill.run_id}: --rate 1.89", path=bill.run_id)
    if fmt is None:
        lines = [f"{bill.run_id}: {bill.sentence()}" for bill in bills]
        lines += [f"claim {row['claim']}: {_shown(row['cost'])} for {row['runs']} runs" for row in rows]
        lines += [f"failed: {_shown(found.data['failed']['cost'])} for {hours:.2f} h"] if hours else []
        click.echo("\n".join(lines))
    whole = found.data["total"]
    each = f", {_shown(whole / len(rows))} for each of {len(rows)} claims" if rows and whole is not None else ""
    return found.emit(fmt, f"{_shown(whole)} for {len(bills)} runs{each}")


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    main()
