"""How probes are run: in a child process, so that a hang or a crash of the user's code is a row.

The child (`main` below) imports the user's module and calls the factory anew for every probe that runs the training. It
runs in the training's Python, gets its request as JSON on stdin and appends rows to `out`, one JSON object per line.
When it crashes, or a probe takes too long, it writes its Python stacks to `stacks`.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rgt.bundle import SCRIPTS
from rgt.errors import BAD_INPUT, RgtError, bad_input
from rgt.machine import processes
from rgt.probes import factory
from rgt.probes.factory import NAMES, PROBES, Result, Unjudged, foreign, sentence, site

if TYPE_CHECKING:
    from rgt.probes.probe_session import Session

_ALONE, _OF_SEVERAL = 0.95, 0.5  # share of the whole time that one probe may take
_RETRIES = 1  # a second crash or hang is not chance, and every new process costs seconds
_GRACE = 10.0  # seconds for a child to end itself when its time is over
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_FRAME = re.compile(r'File "([^"]+)", line (\d+) in (.+)')


def run(session: Session, names: tuple[str, ...] = NAMES) -> Iterator[Result]:
    """Each result as soon as it is there. A probe that raises is a result too: the others still run."""
    from rgt.probes.updates import observe

    for probe in (probe for probe in PROBES if probe.name in names):
        start, result = time.perf_counter(), Result(probe.name)
        session.start()
        try:
            with contextlib.suppress(Exception):  # the data probe reads again, and reports it
                session.batches(1)
            if probe.observes and not session.observation.done:
                session.observation = observe(session.fresh())
            if probe.observes and not session.observation.steps and probe.name not in ("nan", "parameters"):
                error = session.observation.error
                raise Unjudged(f"the step raises: {error}" if error else "the data gave no batch")
            getattr(importlib.import_module(f"rgt.probes.{probe.module}"), probe.name)(session.fresh(), result)
        except Unjudged as why:
            result.unjudged = str(why)
        except Exception as error:  # the user's code may raise anywhere
            result = Result(probe.name, unjudged=f"{sentence(error)} ({site(error) or 'in the probe'})")
        result.seconds = time.perf_counter() - start
        yield result


# -- in the child


def main() -> None:
    """Rows: {"start": probe, "allowed": seconds}, then its result; or {"fatal": sentence, "code": exit code}."""
    request = json.load(sys.stdin)
    if sys.platform == "linux":  # Ctrl-C may come before Popen has returned, and nothing else runs after a SIGKILL
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != request["parent"]:
            os._exit(1)
    stacks = open(request["stacks"], "w", encoding="utf-8")  # noqa: SIM115  # open until the process ends
    faulthandler.enable(stacks)
    faulthandler.dump_traceback_later(request["left"], exit=True, file=stacks)
    out = open(request["out"], "a", encoding="utf-8")  # noqa: SIM115  # open until the process ends
    end = time.monotonic() + request["left"]

    def say(**row: Any) -> None:
        out.write(json.dumps(row) + "\n")
        out.flush()

    sys.path[:0] = request["paths"]  # in front, as `python train.py` would have it
    found = importlib.util.find_spec("probes")
    if found and found.origin == str(SCRIPTS / "probes.py") and not importlib.util.find_spec("click"):
        sys.modules["probes"] = factory  # enough for `from probes import Training`; the command line needs click
    try:
        from rgt.probes.probe_session import Session

        function = factory.find(request["factory"])

        def make() -> factory.Training:
            return factory.as_training(function(), request["factory"])

        session = Session(make, request["steps"], request["seconds"], request["seed"])
        for name in request["probes"]:
            allowed = max(0.1, min(request["limit"], end - time.monotonic()))
            say(start=name, allowed=allowed)
            faulthandler.dump_traceback_later(allowed, exit=True, file=stacks)
            for result in run(session, (name,)):
                say(**result.as_dict())
                os.write(request["terminal"], f"{name}: {result.verdict}\n".encode())
    except RgtError as error:
        say(fatal=error.message, code=error.exit_code)
    except Exception as error:
        where = site(error)
        place = f" at {where}" if where else ""
        say(fatal=f"{request['factory']} raises {sentence(error)}{place}", code=BAD_INPUT)


# -- our side


class Ended(NamedTuple):
    """A child, after its end."""

    rows: list[dict[str, Any]]
    stacks: str
    last_words: str  # the last line that it printed
    code: int
    hung: bool

    def user_frame(self) -> str:
        """file:line function of the user's innermost frame; of the main thread, or else of any."""
        threads = self.stacks.split("\n\n")
        current = [text for text in threads if text.startswith("Current thread")]  # the one that crashed
        mains = [text for text in threads if "File " in text][-1:]  # faulthandler lists the main thread last
        for text in (*(current or mains), self.stacks):
            for file, line, name in _FRAME.findall(text):
                if not foreign(file):
                    return f"{file}:{line} {name}"
        return ""


def probe(request: dict[str, Any], names: tuple[str, ...], timeout: float) -> list[dict[str, Any]]:
    """Results in order. Raises the child's sentence when nothing can run."""
    done: list[dict[str, Any]] = []
    left, end = list(names), time.monotonic() + timeout
    limit = (_ALONE if len(names) == 1 else _OF_SEVERAL) * timeout  # the other probes must still be heard
    request |= {"limit": limit, "seconds": max(2.0, timeout / 6), "parent": os.getpid()}
    for _ in range(1 + _RETRIES):
        child = _run_child({**request, "probes": left, "left": max(0.1, end - time.monotonic())})
        for row in child.rows:
            if "fatal" in row:
                raise RgtError(row["fatal"], row["code"])
        results = [row for row in child.rows if "probe" in row]
        starts = [row for row in child.rows if "start" in row]
        done, left = done + results, left[len(results) :]
        if not left:
            return done
        if len(starts) == len(results):
            return [*done, _ended_early("factory", child)]
        if child.hung and starts[-1]["allowed"] < limit / 2:  # else more likely stuck than slow
            break
        done.append(_ended_early(left.pop(0), child))
    why = f"the process ended {1 + _RETRIES} times before its time; mend that first"
    if time.monotonic() > end:
        why = f"no time left of {timeout:g} s, at {child.user_frame() or 'its start'}; give --timeout more"
    return done + [Result(name, unjudged=why).as_dict() for name in left]


def _run_child(request: dict[str, Any]) -> Ended:
    """From its start to its end; nothing of its process group is left, loader workers neither."""
    from rgt.log import summary  # here, because --help needs no parser of logs

    # not a script of this folder: the user's imports must not find our modules as their own
    program = f"import sys; sys.path[0] = {str(SCRIPTS)!r}; from rgt.probes.runner import main; main()"
    with tempfile.TemporaryDirectory(prefix="rgt-probes-") as folder:
        out, stacks, log, order = (Path(folder, kind) for kind in ("out", "stacks", "log", "request"))
        out.touch()
        stacks.touch()
        terminal, hung = os.dup(2), False
        order.write_text(json.dumps({**request, "out": str(out), "stacks": str(stacks), "terminal": terminal}))
        with order.open("rb") as source, log.open("wb") as sink:
            streams: dict[str, Any] = {"stdin": source, "stdout": sink, "stderr": sink, "pass_fds": [terminal]}
            process = subprocess.Popen([request["python"], "-c", program], start_new_session=True, **streams)
            try:
                process.wait(request["left"] + _GRACE)
            except subprocess.TimeoutExpired:
                hung = True
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                os.close(terminal)
        lines = out.read_text(encoding="utf-8").splitlines(keepends=True)
        rows = [json.loads(line) for line in lines if line.endswith("\n")]  # the last may be torn
        said = stacks.read_text(encoding="utf-8", errors="replace")
        last = next((line[:300] for line in reversed(summary.tail(log)) if line.strip()), "")
        return Ended(rows, said, last, process.returncode, hung or said.startswith("Timeout"))


def _ended_early(name: str, child: Ended) -> dict[str, Any]:
    """The row of the probe at which the child ended, or of the factory."""
    where, last, code = child.user_frame(), child.last_words, child.code
    result = Result(name)
    if child.hung:
        result.add("hang", "did not end in its time", last, where=where)
        result.fix("what waits there: a lock, a queue, a collective, a loader worker? --timeout gives it longer")
    elif name == "factory" and "Error" in last:
        raise bad_input(f"the factory's process ended before it was built: {last}")
    else:
        how = processes.signal_name(-code) if code < 0 else f"exit code {code}"
        result.add("crash", f"the process ended with {how}", last, where=where)
        result.fix("SIGKILL is usually the memory limit; SIGSEGV a native library: run it alone under faulthandler")
    result.evidence = result.findings[0].message + (f" at {where}" if where else "")
    return result.as_dict()
