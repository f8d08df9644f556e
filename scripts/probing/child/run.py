"""Builds the user's training and probes it, in a process of its own. Run by runner.py as a script, not imported:

    python run.py < {"factory", "paths", "probes", "steps", "seconds", "seed", "out", "stacks"}

Appends one JSON object per line to `out`: {"start": probe}, then its result; or {"fatal": sentence, "code": exit code}.
`stacks` gets Python stacks on a crash and on SIGUSR1.
"""

from __future__ import annotations

import faulthandler
import json
import signal
import sys
from pathlib import Path
from typing import Any

# ours first, then the user's folders in front: both sides find their own
sys.path[0] = str(Path(__file__).resolve().parents[2])

from probing import catalogue, contract, session, state  # noqa: E402  # after the path is set
from rgt.errors import RgtError  # noqa: E402


def main(request: dict[str, Any]) -> None:
    stacks = open(request["stacks"], "w", encoding="utf-8")  # noqa: SIM115  # open until the process ends
    faulthandler.enable(stacks)
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)
    with open(request["out"], "a", encoding="utf-8") as out:

        def say(row: dict[str, Any]) -> None:
            out.write(json.dumps(row) + "\n")
            out.flush()

        try:
            _probe(request, say)
        except RgtError as error:
            say({"fatal": error.message, "code": error.exit_code})
        except Exception as error:
            where = session.site(error)
            place = f" at {where}" if where else ""
            say({"fatal": f"{request['factory']} raises {session.sentence(error)}{place}", "code": 2})


def _probe(request: dict[str, Any], say: Any) -> None:
    contract.put_on_path(request["paths"])
    function = contract.find(request["factory"])

    def make() -> contract.Training:
        return contract.as_training(function(), request["factory"])

    state.seed_all(request["seed"])
    training = make()
    own = session.Session(training, steps=request["steps"], seconds=request["seconds"], make=make, seed=request["seed"])
    for name in request["probes"]:
        say({"start": name})
        for result in catalogue.run(own, (name,)):
            say(result.as_dict())


if __name__ == "__main__":
    main(json.load(sys.stdin))
