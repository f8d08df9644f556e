"""Builds the user's training and probes it, in a process of its own. Run by runner.py as a script, not imported:

    python run.py < {"factory", "paths", "probes", "steps", "seconds", "seed", and what Child adds}

Its rows: {"start": probe}, then its result; or {"fatal": sentence, "code": exit code}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# ours first, then the user's folders in front: both sides find their own
sys.path[0] = str(Path(__file__).resolve().parents[2])

from probing import catalogue, contract, process, session, state  # noqa: E402  # after the path is set
from rgt.errors import BAD_INPUT, RgtError  # noqa: E402


def main(request: dict[str, Any]) -> None:
    process.enter(request)
    say = process.writer(request)
    try:
        _probe(request, say)
    except RgtError as error:
        say(fatal=error.message, code=error.exit_code)
    except Exception as error:
        where = session.site(error)
        place = f" at {where}" if where else ""
        say(fatal=f"{request['factory']} raises {session.sentence(error)}{place}", code=BAD_INPUT)


def _probe(request: dict[str, Any], say: Any) -> None:
    contract.put_on_path(request["paths"])
    function = contract.find(request["factory"])

    def make() -> contract.Training:
        return contract.as_training(function(), request["factory"])

    state.seed_all(request["seed"])
    training = make()
    own = session.Session(training, steps=request["steps"], seconds=request["seconds"], make=make, seed=request["seed"])
    for name in request["probes"]:
        say(start=name)
        for result in catalogue.run(own, (name,)):
            say(**result.as_dict())


if __name__ == "__main__":
    main(json.load(sys.stdin))
