"""Who watches is told: a run that finished, failed, diverged or stalled, once for each event, by the user's channels.

Example:
    for line in tell(found): print(line, file=sys.stderr)        found is what look() returned, here or elsewhere

The channels are those of `rgt notify`, which also remembers what was sent: of all who look at a run on one machine, one
tells. A stall at another step is another event; so is an end at another step.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt.errors import RgtError, lacking
from rgt.run import record
from rgt.watch import status

_WARNED = ("stalled", "diverged", "nan")  # told also where they are no error


def require_channel() -> None:
    """Before looking: a watcher who can tell nobody must not seem to be one."""
    try:
        from rgt.notice import telling
    except ImportError:  # box.pyz
        raise lacking("this copy of the scripts cannot tell anybody; poll from your machine with --tell") from None
    config = telling.load()
    if not config or not config.channels:
        raise lacking(f"nobody would be told: {telling.nobody()}")


def tell(found: dict[str, Any]) -> Iterator[str]:
    """Send what is new; yields a sentence for each channel that did not take it (the next look tries again)."""
    from rgt.notice import telling

    run = run_key(found)
    text = "\n".join([*status.numbers(found), "", "{}: {}".format(*status.decide(found)), found["where"]])
    for event, title, urgent in events(found):
        try:
            outcomes = telling.tell(f"watch/{run}/{event}", f"{Path(found['where']).name}: {title}", text, urgent)
        except RgtError as error:
            yield f"nobody was told of {event}: {error.message}"
            continue
        for one in outcomes:
            if one.state in (telling.FAILED, telling.SENDING):
                yield f"{one.channel} was not told of {event}: {one.say}"


def events(found: dict[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Key within the run, title, urgent."""
    now = found["now"]
    for row in found["findings"]:
        if row["severity"] == "error" or (row["code"] in _WARNED and row["severity"] != "info"):
            # a loss that grows is one event however long it grows; a stall is one where it stands
            at = f"/{now['step']}" if row["code"] == "stalled" else ""
            yield f"{row['code']}{at}", f"{row['code']}: {row['message']}", row["severity"] == "error"
    failed = any(row["code"] == "failed" for row in found["findings"])
    if now["state"] in record.OVER and not (failed and now["state"] == record.FAILED):
        yield f"{now['state']}/{now['step']}", now["state"], now["state"] != record.FINISHED


def run_key(found: dict[str, Any]) -> str:
    """One name for a run whoever looks: its host and the path there."""
    place = found["where"]
    if found.get("host"):
        return f"{found['host']}:{place.removeprefix(found['host'] + ':')}"
    return f"{socket.gethostname()}:{os.path.abspath(place)}"
