"""One machine behind ssh, or several as nodes of one job: the same gate, shipped as one file (box.pyz).

The box needs its own python3 and nothing else. The job is the gate's child, not the connection's: it survives the drop.
"""

from __future__ import annotations

from rgt.errors import RgtError
from rgt.host import box
from rgt.job.backends import Order, Status, Step, combine, local


def render(order: Order) -> list[Step]:
    order.check_nodes()
    return [local.start(order, host, box.tool_words("gpu_gate"), node) for node, host in enumerate(order.hosts)]


resume = render


def stop(order: Order) -> list[Step]:
    return local.stop(order, box.tool_words("gpu_gate"))


def status(order: Order) -> Status:
    """A box without the bundle (a submit that died early, an emptied cache) gets it first, then is asked again."""
    gate, parts = box.tool_words("gpu_gate"), []
    for host in order.hosts:
        try:
            parts.append(local.gate_status(order, host, gate))
        except RgtError:
            box.ship(host)  # does nothing when another launch brought it meanwhile
            parts.append(local.gate_status(order, host, gate))
    return combine(parts)
