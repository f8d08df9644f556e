"""One machine behind ssh, or several as nodes of one job: the same gate, shipped as one file (box.pyz).

The box needs its own python3 and nothing else. The job is the gate's child, not the connection's: it survives the drop.
"""

from __future__ import annotations

import functools

from backends import Order, Status, Step, box, local
from rgt.errors import RgtError, bad_input
from rgt.hosts import Host


@functools.cache
def _bundle() -> tuple[str, bytes]:
    return box.build()


def tool_words(tool: str) -> list[str]:
    """How one of the bundle's tools is called there; the second word has a ~ to be expanded."""
    return ["python3", f"~/.cache/rgt/{_bundle()[0]}", tool]


def gate_words() -> list[str]:
    return tool_words("gpu_gate")


def ship(host: Host) -> None:
    """Bring the bundle there unless it is there already: its name has its hash."""
    name, data = _bundle()
    path = f"~/.cache/rgt/{name}"
    if host.run(["test", "-s", path], expand=(2,)).code != 0:
        host.put(path, data, 0o755)


def render(order: Order) -> list[Step]:
    if len(order.hosts) != order.job.nodes:
        raise bad_input(f"the job wants {order.job.nodes} nodes, --on names {len(order.hosts)}: --on ssh:HOST1,HOST2")
    return [local.start(order, host, gate_words(), node) for node, host in enumerate(order.hosts)]


def resume(order: Order) -> list[Step]:
    return render(order)


def stop(order: Order) -> list[Step]:
    return [local.cancel(order, host, gate_words()) for host in order.hosts]


def status(order: Order) -> Status:
    return local.combine([_ask(order, host) for host in order.hosts])


def _ask(order: Order, host: Host) -> Status:
    """A box without the bundle (a submit that died early, an emptied cache) is one that knows no such job."""
    try:
        return local.gate_status(order, host, gate_words())
    except RgtError:
        ship(host)  # asked once more also when it is there by now: another launch may have just brought it
        return local.gate_status(order, host, gate_words())
