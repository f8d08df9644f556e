"""Looking at a run that is elsewhere: one short connection, in which the box does the reading and sends back one JSON.

The log never crosses the wire, and where reading stopped is remembered beside it, so it does not matter from which
machine, or how seldom, somebody asks. The box needs python3 alone: our scripts are one file there, brought once.
"""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

from backends import Order, backend, box, parse_target
from health import look
from health.target import Target
from rgt import job, rundir
from rgt.errors import BAD_INPUT, RgtError, bad_input, lacking
from rgt.hosts import Host
from rgt.report import Finding

_MISSING = 97  # exit code: the bundle is not there yet
_SCRIPT = 'test -s "$1" || exit 97; exec python3 "$@"'
_LINES = 5000  # of an engine that has only a command for its log


@functools.cache
def _bundle() -> tuple[str, bytes]:
    return box.build()


def split(word: str) -> tuple[str, str]:
    """HOST:RUN, as scp writes it."""
    host, colon, run = word.partition(":")
    if not (host and colon and run) or "/" in host:
        raise bad_input(f"{word!r} is not HOST:RUN; write it like box:runs/x (a name that `ssh` knows, a path there)")
    return host, run


def poll(host: Host, run: str, silenced: tuple[str, ...] = ()) -> dict[str, Any]:
    """One look at `run` there; the paths in it are that machine's."""
    name, data = _bundle()
    path = f"~/.cache/rgt/{name}"
    options = ["--json", *(f"--silence={code}" for code in silenced)]
    words = ["sh", "-c", _SCRIPT, "sh", path, "watch", "show", *options, "--", run]
    expand = (4, len(words) - 1)
    done = host.run(words, expand=expand)
    if done.code == _MISSING:
        host.put(path, data, 0o755)
        done = host.run(words, expand=expand)
    try:
        found: dict[str, Any] = json.loads(done.out)
    except ValueError:
        code = done.code if done.code == BAD_INPUT else 3
        raise RgtError(f"{run} on {host.title}: {done.sentence().removeprefix('error: ')}", code) from None
    return found | {"host": host.name}


def elsewhere(path: Path) -> Order | None:
    """The order of a run that launch.py started on another machine; None when `path` is the run itself."""
    run = rundir.Run(path)
    if not run.run_json.is_file() or run.log.exists() or run.metrics.exists():
        return None
    record = run.record()
    if "target" not in record["job"]:
        return None
    kind, hosts = parse_target(record["job"]["target"])
    order = Order(job.from_record(record), run.id, kind, hosts)
    return order if hosts[0].name or hasattr(backend(kind), "logs") else None


def ask(order: Order, record: Path, silenced: tuple[str, ...]) -> dict[str, Any]:
    """By the way its engine allows: a look on the machine, or the end of the log that the engine hands out."""
    engine = backend(order.kind)
    if not hasattr(engine, "logs"):
        return _as_recorded(poll(order.head, order.run_dir, silenced), record)
    lines = engine.logs(order, _LINES)
    if not lines:
        raise lacking(f"{order.kind} has no log of {order.run_id} yet")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.log"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        found = look.look(Target(str(record), [path], Path(folder) / "watch", None), silenced, box=False)
    found["log"] = f"python scripts/launch.py logs {record}"
    return found


def _as_recorded(found: dict[str, Any], record: Path) -> dict[str, Any]:
    """An end that launch.py has seen and wrote down here: on the box there is only a log that stops."""
    last = rundir.Run(record).last_event() or {}
    if found["now"]["state"] not in ("running", "waiting") or last.get("event") not in ("failed", "stopped"):
        return found
    found["now"] |= {"state": last["event"], "eta": None}
    if last["event"] == "failed":
        message = f"the run failed: {rundir.event_reason(last)}"
        found["findings"].insert(0, Finding("failed", "error", message, str(record), sure=0.99).as_dict())
        found["ok"] = False
    return found
