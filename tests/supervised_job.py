"""A job that saves every step and resumes from its run directory; it dies as it is told, for the supervisor's tests.

python supervised_job.py STEPS [FAULT]      FAULT at step 4: shape | nan | disk | code | leftover;
                                            hold: the last step waits for the file RUN/go
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

RUN, STEPS, FAULT = Path(os.environ["RGT_RUN_DIR"]), int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
SAID = {
    "shape": "RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
    "disk": "OSError: [Errno 28] No space left on device",
    "code": "KeyError: 'labels'",
}


def main() -> None:
    alone = (RUN / "alone").open("ab")
    with (RUN / "starts").open("a") as starts:
        starts.write(f"{os.getpid()} {os.environ.get('RGT_RESUME_FROM', '')} {os.environ.get('WORKERS', '')}\n")
    import fcntl

    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)  # two at once would show here
    except BlockingIOError:
        (RUN / "twice").touch()
    saved = RUN / "state.json"
    state = json.loads(saved.read_text()) if saved.exists() else {"step": 0, "value": 1.0}
    while state["step"] < STEPS:
        state = {"step": state["step"] + 1, "value": state["value"] * 1.5 % 1.3}
        print(f"step {state['step']} loss {state['value']:.6f}", flush=True)
        if state["step"] == 4 and FAULT:
            fail()
        while FAULT == "hold" and state["step"] == STEPS and not (RUN / "go").exists():
            time.sleep(0.05)
        beside = saved.with_suffix(".part")
        beside.write_text(json.dumps(state))
        beside.replace(saved)
        time.sleep(0.05)
    (RUN / "final.json").write_text(json.dumps(state))


def fail() -> None:
    if FAULT == "nan":
        for step in range(5, 9):
            print(f"step {step} loss nan", flush=True)
        sys.exit(1)
    if FAULT == "leftover" and not (RUN / "left").exists():  # a worker that nobody ended
        (RUN / "left").touch()
        subprocess.Popen(["sleep", "600"])
        os.kill(os.getpid(), 9)
    if FAULT in SAID:
        print(
            f'Traceback (most recent call last):\n  File "{__file__}", line 9, in main\n    run()\n{SAID[FAULT]}',
            flush=True,
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
