"""A process that has imported what is slow, and forks for every job: it starts in milliseconds and can be killed.

Example:
    nursery = Nursery("torch")
    pid = nursery.start("import time; time.sleep(60)", log=tmp_path / "log")
    os.kill(pid, signal.SIGKILL)
    assert nursery.end() == -9
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 120.0  # seconds for a job that takes a few
CODE = """
import importlib, json, os, sys, traceback
for name in sys.argv[1:]:
    importlib.import_module(name)
for line in sys.stdin:
    job = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1), os.dup2(log, 2)
        code = 0
        try:
            exec(job["code"], {"__name__": "job", **job["names"]})
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()
            code = 99
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)  # taking torch apart again would cost another second
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Nursery:
    def __init__(self, *imports: str) -> None:
        path = os.pathsep.join([str(ROOT), str(ROOT / "scripts")])
        variables = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": path}
        variables.pop("RGT_RUN_DIR", None)
        words = [sys.executable, "-c", CODE, *imports]
        # unbuffered: select sees only what has not been read ahead
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=variables)

    def start(self, code: str, log: Path, **names: str) -> int:
        """Its pid. The code sees `names`; what it prints goes to `log`."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"code": code, "log": str(log), "names": names}).encode() + b"\n")
        return self._answer()

    def end(self) -> int:
        """Exit code of the last one; minus the signal that killed it."""
        return self._answer()

    def _answer(self) -> int:
        assert self.process.stdout
        assert select.select([self.process.stdout], [], [], PATIENCE)[0], "the forked job hangs"
        return int(self.process.stdout.readline())

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
