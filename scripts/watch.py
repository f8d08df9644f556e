# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""RUN · says what a run is doing, whether it is healthy and what to do next, here or on a box, in one look

    rgt watch runs/<run-id>                    # one look; only what is new is read
    rgt watch slurm-4711.out --follow          # until it is over
    rgt watch daemon runs/<run-id>             # on the box: looks until the run is over, survives you
    rgt watch poll box:runs/<run-id>           # from elsewhere: one short connection
    rgt watch serve runs/ box:runs             # all of them in a browser: curves, health, cost, queue, leases

A look at a directory writes its training_status.md and remembers in watch/ how far it read; a look at a bare log writes
only to the user's cache. Exit 0: healthy, or finished. Exit 1: something is found.
"""

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgt import bundle, cli, errors, files, units
from rgt.errors import RgtError, bad_input, lacking
from rgt.report import CODES, Finding, Report, print_json

import click

if TYPE_CHECKING:
    from rgt.host.ssh import Host
    from rgt.run.record import Run

_SHORTEST = 1.0  # seconds between two looks
_ENGINE_LINES = 5000  # of an engine that has only a command for its log


@click.group(cls=cli.Group, default_verb="show")
def main() -> None:
    """Say what a run is doing, whether it is healthy and what to do next.

    `rgt watch RUN_DIR` or `rgt watch LOG...` is short for `rgt watch show`.

    Example: rgt watch runs/20260101-120000-tiny-a1b2c3
    """


codes = click.Choice(list(CODES))
silence = click.option("--silence", "silenced", multiple=True, type=codes, metavar="CODE", help="Do not judge this.")
tell_help = "Tell by the channels of `rgt notify` when it finishes, fails, diverges or stalls; once for each event."
tell_option = click.option("--tell", is_flag=True, help=tell_help)
every = click.option("--every", type=cli.Duration(), default=60.0, show_default=True, help="Time between two looks.")
targets = click.argument("targets", nargs=-1, required=True, metavar="RUN_DIR|LOG...")


@main.command()
@targets
@click.option("--follow", is_flag=True, help="Look again and again until the run is over.")
@every
@silence
@tell_option
@cli.json_option
def show(
    targets: tuple[str, ...], follow: bool, every: float, silenced: tuple[str, ...], tell: bool, as_json: bool
) -> int:
    """Look at RUN_DIR, or at one or more logs of one run.

    Prints what training_status.md says. A run directory whose run is on another machine is looked at there.

    Example: rgt watch show train.log --silence plateau
    """
    from rgt.run.record import OVER

    _require_channel(tell)
    while True:
        found = _look(targets, silenced)
        code = _show(found, as_json, tell)
        if not follow or found["now"]["state"] in OVER:
            return code
        time.sleep(max(_SHORTEST, every))


def _look(targets: tuple[str, ...], silenced: tuple[str, ...]) -> dict[str, Any]:
    """Here, or, for the record of a run on another machine, there: a record has no log of its own."""
    from rgt.run.record import Run
    from rgt.watch import status
    from rgt.watch.look import find_target, look

    run = Run(Path(targets[0]))
    only_record = len(targets) == 1 and run.run_json.is_file() and not (run.log.exists() or run.metrics.exists())
    # box.pyz has no backends: there every run is the run itself
    found = _look_elsewhere(run, silenced) if only_record and importlib.util.find_spec("rgt.job.backends") else None
    if found is not None:
        status.write(None if run.seal.exists() else run.status, found)
        return found
    target = find_target(targets)
    found = look(target, silenced)
    if len(targets) == 1 and run.run_json.is_file() and importlib.util.find_spec("rgt.job.backends"):
        _ask_engine(run, found)
    status.write(target.status, found)
    return found


def _look_elsewhere(run: Run, silenced: tuple[str, ...]) -> dict[str, Any] | None:
    """At a run that launch started on another machine, or by its engine's log; None when `run` is the run itself."""
    from rgt.job.backends import backend, order_of
    from rgt.run import record
    from rgt.watch.look import Target, look

    order = order_of(run)
    if order is None:
        return None
    engine = backend(order.kind)
    if hasattr(engine, "logs"):
        import tempfile

        lines = engine.logs(order, _ENGINE_LINES)
        if not lines:
            raise lacking(f"{order.kind} has no log of {order.run_id} yet")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "train.log"
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            found = look(Target(str(run.path), [path], Path(folder) / "watch"), silenced, box=False)
        return found | {"log": bundle.command("launch", "logs", run.path)}
    if not order.head.name:
        return None
    found = _poll(order.head, order.run_dir, silenced) | {"where": str(run.path)}
    _ask_engine(run, found)
    # an end that rgt launch has seen and wrote down here: on the box there is only a log that stops
    last = run.last_event()
    state = record.AFTER_EVENT[last["event"]] if last else record.UNKNOWN
    if found["now"]["state"] in (*record.ACTIVE, record.LOST) and state in (record.FAILED, record.STOPPED):
        found["now"] |= {"state": state, "eta": None}
        if last and state == record.FAILED:
            message = f"the run failed: {record.event_reason(last)}"
            found["findings"].insert(0, Finding("failed", "error", message, str(run.path), sure=0.99).as_dict())
            found["ok"] = False
    return found


def _ask_engine(run: Run, found: dict[str, Any]) -> None:
    """A log that stops says nothing about its process; its engine knows, and has the exit code."""
    from rgt.job.backends import backend, order_of
    from rgt.run.record import ACTIVE, FAILED, LOST, OVER

    order = order_of(run)
    if order is None or found["now"]["state"] not in (*ACTIVE, LOST):
        return
    try:
        told = backend(order.kind).status(order)
    except RgtError as error:
        found["findings"].append(Finding("unseen", "info", f"its engine gave no answer: {error}").as_dict())
        return
    if told.state not in OVER:
        return
    found["now"] |= {"state": told.state, "eta": None}
    code = "" if told.exit_code is None else f" with exit code {told.exit_code}"
    if told.state in (FAILED, LOST):
        message = (
            f"{order.kind} says that it {'failed' if told.state == FAILED else 'is gone'}{code} {told.detail}".strip()
        )
        found["findings"] = [row for row in found["findings"] if row["code"] not in ("stalled", "unfinished")]
        found["findings"].insert(0, Finding("failed", "error", message, str(run.path), sure=0.99).as_dict())
        found["ok"] = False


def _poll(host: Host, run: str, silenced: tuple[str, ...]) -> dict[str, Any]:
    """One short connection: the box reads, with our scripts as one file there, and sends back one JSON."""
    from rgt import schema
    from rgt.host import box

    words = ["show", "--json", *(f"--silence={code}" for code in silenced), "--", run]
    done = box.run_tool(host, "watch", words, expand=(len(words) - 1,))
    try:
        found: dict[str, Any] = json.loads(done.out)
    except ValueError:
        code = done.code if done.code == errors.BAD_INPUT else errors.ENVIRONMENT
        raise RgtError(f"{run} on {host.title}: {done.sentence().removeprefix('error: ')}", code) from None
    schema.check(found, "watch", f"the answer of {host.title}")
    return found | {"host": host.name}


def _require_channel(tell: bool) -> None:
    from rgt.watch import alarm

    if tell:
        alarm.require_channel()


def _show(found: dict[str, Any], as_json: bool, tell: bool = False) -> int:
    from rgt.watch import alarm, status

    for line in alarm.tell(found) if tell else ():
        click.echo(f"warning: {units.show_text(line)}", err=True)

    if as_json:
        word, reason = status.decide(found)
        print_json(found | {"decision": {"word": word, "reason": reason, "next": status.next_command(found)}})
    else:
        click.echo(status.render(found), nl=False)
    return errors.OK if found["ok"] else errors.FINDINGS


@main.command()
@targets
@every
@silence
@tell_option
@click.option("--foreground", is_flag=True, help="Stay in the foreground, for systemd or tmux.")
@cli.json_option
def daemon(
    targets: tuple[str, ...], every: float, silenced: tuple[str, ...], tell: bool, foreground: bool, as_json: bool
) -> None:
    """Start the durable watcher of a run on this machine, and return.

    It outlives the shell, the connection and the agent, and ends with the run. Its last sign of life is
    watch/heartbeat.json, one line a look goes to watch/health.jsonl (bounded), and training_status.md is always fresh.

    Example: rgt watch daemon runs/20260101-120000-tiny-a1b2c3 --every 2m
    """
    from rgt.watch import daemon as daemons
    from rgt.watch.look import find_target

    target = find_target(tuple(str(Path(word).resolve()) for word in targets))
    every = max(_SHORTEST, every)
    _require_channel(tell)
    pid = daemons.start(target, every, silenced, foreground, tell)
    if foreground:
        return
    line = f"pid {pid} looks at {target.where} every {units.show_duration(every)}; its files: {target.keep}"
    cli.show({"tool": "watch", "ok": True, "findings": [], "pid": pid, "keep": str(target.keep)}, as_json, [line])


@main.command()
@click.argument("place", metavar="HOST:RUN")
@silence
@tell_option
@cli.json_option
def poll(place: str, silenced: tuple[str, ...], tell: bool, as_json: bool) -> int:
    """Look at a run on another machine by one short connection; the log stays there.

    Example: rgt watch poll box:runs/20260101-120000-tiny-a1b2c3
    """
    from rgt.host.ssh import parse_place

    there = parse_place(place)
    if not there.host.name:
        raise bad_input(f"{place!r} is not HOST:RUN; write it like box:runs/x (a name that `ssh` knows, a path there)")
    _require_channel(tell)
    return _show(_poll(there.host, there.path, silenced) | {"where": place}, as_json, tell)


@main.command()
@click.argument("places", nargs=-1, metavar="[RUNS|HOST:RUNS]...")
@click.option("--port", type=click.IntRange(0, 65535), default=8770, show_default=True, help="On loopback; 0: any.")
@click.option("--static", "page", type=click.Path(path_type=Path, dir_okay=False), help="Write one page and end.")
@cli.json_option
def serve(places: tuple[str, ...], port: int, page: Path | None, as_json: bool) -> None:
    """Show all runs in a browser: live rows, curves to compare, health, cost, leases, the gate's queue.

    Read-only, on loopback, opened by the URL that is printed; from elsewhere: ssh -L 8770:localhost:8770 HOST. Runs of
    other machines (HOST:RUNS) are looked at over ssh. --static FILE is the same page in one file, with what is known
    now; --json prints the rows once. Without a place: runs/ here.

    Example: rgt watch serve runs/ box:runs
    """
    from rgt.host.ssh import parse_place
    from rgt.watch import board as boards
    from rgt.watch import board_server

    parsed = [parse_place(word) for word in places or ("runs",)]
    boards.check_places(parsed)
    away = _look_away if importlib.util.find_spec("rgt.job.backends") else None
    if as_json or page:
        board = boards.look_once(parsed, away)
        if page:
            files.write_text(page, board_server.static_page(board))
            click.echo(f"{len(board.rows)} runs are on {page}", err=True)
        if as_json:
            print_json(boards.snapshot(board))
        return
    server = board_server.Server(port, boards.Board(parsed, away), board_server.own_token())
    server.board.start()
    click.echo(server.url)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.board.close()


def _look_away(run: Run) -> dict[str, Any] | None:
    return _look_elsewhere(run, ())


@main.command()
@click.argument("pids", nargs=-1, type=click.IntRange(1), metavar="[PID]...")
@cli.report_options
def box(pids: tuple[int, ...], fmt: str | None) -> int:
    """Look at this machine: its cards (gpu_health) and its memory (mem_monitor), against the limit that kills PID.

    A card may be lost, hot, throttled, with ECC errors, or hold memory that no process has. The memory's limit
    is that of PID's container, or of this shell's own.

    Example: rgt watch box 4711 --json
    """
    from rgt.watch import box_health

    for pid in pids:
        if not Path(f"/proc/{pid}").is_dir():
            raise bad_input(f"there is no process {pid}")
    sample = box_health.take(Path(), list(pids))
    memory = sample["memory"]
    report = Report("watch", data={name: sample[name] for name in ("gpus", "memory")})
    report.findings = list(box_health.judge([sample], live=False))
    lines = []
    for card in sample["gpus"]:
        used, total = card.get("memory_used"), card.get("memory_total")
        room = f", {units.show_size(used)} of {units.show_size(total)}" if used is not None and total else ""
        shown = (("utilization", " %"), ("temperature", " °C"), ("power_draw", " W"))
        facts = ", ".join(f"{card[name]}{unit}" for name, unit in shown if name in card)
        held = f", held by {', '.join(map(str, card['processes']))}" if card["processes"] else ""
        lines.append(f"GPU {card['index']} {card.get('name', '')}: {facts}{room}{held}")
    lines = lines or ["no GPU is visible here"]
    lines += [f"pid {pid}: {units.show_size(size)} resident" for pid, size in memory["rss"].items()]
    if "limit" in memory:
        lines.append(f"{units.show_size(memory['used'])} of {units.show_size(memory['limit'])} used ({memory['what']})")
    return report.emit(fmt, "\n".join(lines))


if __name__ == "__main__":
    main()
