"""How often to save: Young's and Daly's optimum between saving too often and losing too much.

J. W. Young, CACM 17(9), 1974; J. T. Daly, Future Generation Computer Systems 22(3), 2006, equation 37.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from checkpointing.errors import CheckpointError


@dataclass(frozen=True)
class Cadence:
    interval: float  # seconds of training between two saves (Daly)
    young: float  # the same by Young's formula; good while a save costs little against the MTBF
    saving: float  # share of the time spent saving
    lost: float  # share of the time computed again after an interruption, half an interval each
    restarting: float  # share of the time until training goes on

    @property
    def overhead(self) -> float:
        return self.saving + self.lost + self.restarting


def cadence(save_cost: float, mtbf: float, restart: float = 0.0, nodes: int = 1) -> Cadence:
    """Seconds in, seconds out. `save_cost` is how long a save holds training up; `mtbf` is of one node."""
    if not (save_cost > 0 and mtbf > 0 and restart >= 0 and nodes >= 1) or math.isinf(save_cost * mtbf):
        raise CheckpointError(f"a save of {save_cost} s and an MTBF of {mtbf} s have no cadence; both must be above 0")
    mean = mtbf / nodes
    ratio = save_cost / (2 * mean)
    young = math.sqrt(2 * save_cost * mean)
    daly = young * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_cost if ratio < 1 else mean
    interval = max(daly, save_cost)  # saving half of the time is the most there is a point in
    return Cadence(interval, young, save_cost / (interval + save_cost), interval / (2 * mean), restart / mean)
