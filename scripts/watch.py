# /// script
# requires-python = ">=3.10"
# dependencies = ["click>=8.1", "jsonschema>=4.20", "nvidia-ml-py>=12"]
# ///
"""RUN · says what a run is doing, whether it is healthy and what to do next, here or on a box, in one look

    python scripts/watch.py runs/<run-id>                    # one look; only what is new is read
    python scripts/watch.py slurm-4711.out --follow          # until it is over
    python scripts/watch.py daemon runs/<run-id>             # on the box: looks until the run is over, survives you
    python scripts/watch.py poll box:runs/<run-id>           # from elsewhere: one short connection

A look at a directory writes its training_status.md and remembers in watch/ how far it read; a look at a bare log writes
only to the user's cache. Exit 0: healthy, or finished. Exit 1: something is found.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from rgt import cli, errors, files, units
from rgt.errors import bad_input
from rgt.report import CODES, Report, print_json

_SHORTEST = 1.0  # seconds between two looks


class _Verbs(cli.Group):
    """`watch.py RUN` is `watch.py show RUN`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Verbs)
def main() -> None:
    """Say what a run is doing, whether it is healthy and what to do next.

    `watch.py RUN_DIR` or `watch.py LOG...` is short for `watch.py show`.

    Example: python scripts/watch.py runs/20260101-120000-tiny-a1b2c3
    """


def _code(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if value not in CODES:
            raise click.BadParameter(
                f"{value!r} is no finding's code; a finding prints its own, such as spike or plateau"
            )
    return values


silence = click.option(
    "--silence", "silenced", multiple=True, callback=_code, metavar="CODE", help="Do not judge this; repeatable."
)
every = click.option("--every", type=units.Duration(), default=60.0, show_default=True, help="Time between two looks.")
targets = click.argument("targets", nargs=-1, required=True, metavar="RUN_DIR|LOG...")
page_option = click.option(
    "--html", "page", type=click.Path(dir_okay=False, path_type=Path), help="Also write one self-contained page."
)


@main.command()
@targets
@click.option("--once", "mode", flag_value="once", default=None, help="One look; the default.")
@click.option("--follow", "mode", flag_value="follow", help="Look again and again until the run is over.")
@every
@silence
@page_option
@cli.json_option
def show(
    targets: tuple[str, ...],
    mode: str | None,
    every: float,
    silenced: tuple[str, ...],
    page: Path | None,
    as_json: bool,
) -> int:
    """Look at RUN_DIR, or at one or more logs of one run.

    Prints what training_status.md says. A run directory whose run is on another machine is looked at there.

    Example: python scripts/watch.py show train.log --silence plateau --html status.html
    """
    from health.view import OVER

    while True:
        found = _look(targets, silenced)
        _show(found, page, as_json)
        if mode != "follow" or found["now"]["state"] in OVER:
            return errors.OK if found["ok"] else errors.FINDINGS
        time.sleep(max(_SHORTEST, every))


def _look(targets: tuple[str, ...], silenced: tuple[str, ...]) -> dict[str, Any]:
    from health import look, status, target

    if len(targets) == 1 and Path(targets[0], "run.json").is_file():
        found = _ask_elsewhere(Path(targets[0]), silenced)
        if found is not None:
            return found
    aim = target.find(targets)
    found = look.look(aim, silenced)
    if aim.status:
        files.write_text(aim.status, status.render(found))
    return found


def _ask_elsewhere(path: Path, silenced: tuple[str, ...]) -> dict[str, Any] | None:
    """The record of a run on another machine has no log of its own."""
    from health import status

    try:
        from health import remote
    except ImportError:  # box.pyz has no backends: there every run is the run itself
        return None
    order = remote.elsewhere(path)
    if order is None:
        return None
    found = remote.ask(order, path, silenced) | {"where": str(path)}
    if not (path / "seal.json").exists():
        files.write_text(path / "training_status.md", status.render(found))
    return found


def _show(found: dict[str, Any], page: Path | None, as_json: bool) -> None:
    from health import page as pages
    from health import status

    if page:
        files.write_text(page, pages.render(found))
    if as_json:
        word, reason = status.decide(found)
        print_json(found | {"decision": {"word": word, "reason": reason, "next": status.next_command(found)}})
    else:
        click.echo(status.render(found), nl=False)


@main.command()
@targets
@every
@silence
@click.option("--foreground", is_flag=True, help="Stay in the foreground, for systemd or tmux.")
@cli.json_option
def daemon(targets: tuple[str, ...], every: float, silenced: tuple[str, ...], foreground: bool, as_json: bool) -> None:
    """Start the durable watcher of a run on this machine, and return.

    It outlives the shell, the connection and the agent, and ends with the run. Its last sign of life is
    watch/heartbeat.json, one line a look goes to watch/health.jsonl (bounded), and training_status.md is always fresh.

    Example: python scripts/watch.py daemon runs/20260101-120000-tiny-a1b2c3 --every 2m
    """
    from health import daemon as daemons
    from health import target

    aim = target.find(tuple(str(Path(word).resolve()) for word in targets))
    daemons.lock(aim)
    every = max(_SHORTEST, every)
    if foreground:
        daemons.watch(aim, every, silenced)
        return
    pid = daemons.detach(aim, lambda: daemons.watch(aim, every, silenced))
    if as_json:
        print_json({"tool": "watch", "ok": True, "findings": [], "pid": pid, "keep": str(aim.keep)})
    else:
        click.echo(f"pid {pid} looks at {aim.where} every {units.show_duration(every)}; its files: {aim.keep}")


@main.command()
@click.argument("place", metavar="HOST:RUN")
@silence
@page_option
@cli.json_option
def poll(place: str, silenced: tuple[str, ...], page: Path | None, as_json: bool) -> int:
    """Look at a run on another machine by one short connection; the log stays there.

    Example: python scripts/watch.py poll box:runs/20260101-120000-tiny-a1b2c3 --html status.html
    """
    from health import remote
    from rgt.hosts import open_host

    host, run = remote.split(place)
    found = remote.poll(open_host(host), run, silenced) | {"where": place}
    _show(found, page, as_json)
    return errors.OK if found["ok"] else errors.FINDINGS


# -- the box alone


@main.command(name="gpu_health")
@cli.report_options
def gpu_health(fmt: str | None) -> int:
    """Look at the cards of this machine: lost, hot, throttled, ECC, Xid, memory that nobody holds.

    Example: python scripts/watch.py gpu_health --json
    """
    from health import machine

    sample = machine.take(Path())
    report = Report("watch")
    report.findings = [
        finding for finding in machine.judge([sample], live=False) if finding.code not in ("no-space", "host-memory")
    ]
    report.data = {"gpus": sample["gpus"], "xid": sample["xid"]}
    summary = "\n".join(_card_line(card) for card in sample["gpus"]) or "no GPU is visible here"
    return report.emit(fmt, summary)


def _card_line(card: dict[str, Any]) -> str:
    used, total = card.get("memory_used"), card.get("memory_total")
    room = f", {units.show_size(used)} of {units.show_size(total)}" if used is not None and total else ""
    facts = [
        f"{card[name]}{unit}"
        for name, unit in (("utilization", " %"), ("temperature", " °C"), ("power_draw", " W"))
        if name in card
    ]
    held = f", held by {', '.join(map(str, card['processes']))}" if card["processes"] else ""
    return f"GPU {card['index']} {card.get('name', '')}: {', '.join(facts)}{room}{held}"


@main.command(name="mem_monitor")
@click.argument("pids", nargs=-1, type=click.IntRange(1), metavar="[PID]...")
@cli.report_options
def mem_monitor(pids: tuple[int, ...], fmt: str | None) -> int:
    """Host memory against the limit that kills: the container's of PID, or this shell's own.

    Example: python scripts/watch.py mem_monitor 4711
    """
    from health import machine

    for pid in pids:
        if not Path(f"/proc/{pid}").is_dir():
            raise bad_input(f"there is no process {pid}")
    memory = machine.memory(list(pids))
    report = Report("watch")
    report.findings = list(machine.judge([{"time": time.time(), "memory": memory}], live=False))
    report.data = {"memory": memory}
    lines = [f"pid {pid}: {units.show_size(size)} resident" for pid, size in memory["rss"].items()]
    if "limit" in memory:
        lines.append(f"{units.show_size(memory['used'])} of {units.show_size(memory['limit'])} used ({memory['what']})")
    return report.emit(fmt, "\n".join(lines) or "this machine does not tell its memory")


@main.command(name="health_patrol")
@click.argument("root", type=click.Path(exists=True, file_okay=False, path_type=Path), default="runs")
@silence
@cli.report_options
def health_patrol(root: Path, silenced: tuple[str, ...], fmt: str | None) -> int:
    """Look at every run directory below ROOT, one line each; the findings of those that are not over yet.

    Example: python scripts/watch.py health_patrol runs
    """
    from health import patrol

    report, lines = patrol.walk(root, silenced)
    return report.emit(fmt, "\n".join(lines) or f"no run directory below {root}")


if __name__ == "__main__":
    main()
