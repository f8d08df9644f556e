"""tests/resuming.py from a process that has imported its trainer already: a start costs a fork, not ten seconds.

    forked_training.py serve SOCKET MODULE...       imports them, then forks for every call
    forked_training.py run SOCKET WORD...           is for its caller the training: output, exit code and fatal signal

The observer is started by hand, as torch's import is past; the other tests see how it comes in by itself.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import json
import os
import signal
import socket
import sys
import traceback
from typing import Any


def serve(place: str, modules: list[str]) -> None:
    resuming = importlib.import_module("resuming")
    for name in modules:
        importlib.import_module(name)
    atexit._clear()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place)
        listening.listen()
        while True:
            asking, _ = listening.accept()
            data, (output,), *_ = socket.recv_fds(asking, 1 << 20, 1)
            pid = os.fork()
            if not pid:
                train(resuming, json.loads(data), output)
            os.close(output)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            asking.sendall(str(code).encode())
            asking.close()


def train(resuming: Any, job: dict[str, Any], output: int) -> None:
    os.setsid()
    os.dup2(output, 1), os.dup2(output, 2)
    os.environ.update(job["environ"])
    os.chdir(job["cwd"])
    sys.argv = ["resuming.py", *job["words"]]
    spec = importlib.util.spec_from_file_location("rgt_observer", os.environ["RGT_OBSERVER"])
    assert spec and spec.loader
    observer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(observer)
    observer.Observer(os.environ["RGT_INSIDE"], sys.modules["torch"]).attach()
    code = 0
    try:
        resuming.main()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(code)


def run(place: str, words: list[str]) -> None:
    environ = {name: os.environ[name] for name in ("RGT_OBSERVER", "RGT_INSIDE")}
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(place)
        job = json.dumps({"words": words, "environ": environ, "cwd": os.getcwd()}).encode()
        socket.send_fds(asking, [job], [1])
        code = int(asking.recv(64))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    {"serve": serve, "run": run}[sys.argv[1]](sys.argv[2], sys.argv[3:])
