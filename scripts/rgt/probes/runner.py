"""The list of probes, and how they are run: in a child process, so that a hang or a crash of the user's code is a row.

The child (`main` below) imports the user's module and calls the factory anew for every probe that runs the training.
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
from typing import Any

from rgt.bundle import SCRIPTS
from rgt.errors import BAD_INPUT, RgtError, bad_input
from rgt.machine import processes
from rgt.probes import factory
from rgt.probes.factory import NAMES, PROBES, Result, Unjudged
from rgt.probes.probe_session import Session, foreign, sentence, site
from rgt.report import progress

_POLL = 0.05
_RETRIES = 1  # a second crash or hang is not chance, and every new process costs seconds
_DUMP = 10.0  # seconds a stuck process gets to write its stacks
_WHOLE = ("in <module>\n", "  ...\n")  # how a dump ends; faulthandler leaves out what is deeper than 100 calls
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_FRAME = re.compile(r'File "([^"]+)", line (\d+) in (.+)')


def run(session: Session, names: tuple[str, ...] = NAMES) -> Iterator[Result]:
    """Each result as soon as it is there. A probe that raises is a result too: the others still run."""
    from rgt.probes.observe import observe

    for probe in (probe for probe in PROBES if probe.name in names):
        start, result = time.perf_counter(), Result(probe.name)
        session.start()
        try:
            with contextlib.suppress(Exception):  # the collate probe reads again, and reports it
                session.batches(1)
            if probe.observes and not session.observation.done:
                session.observation = session.isolated(observe)
            if probe.observes and not session.observation.steps and probe.name not in ("nan", "parameters"):
                error = session.observation.error
                raise Unjudged(f"the step raises: {error}" if error else "the data gave no batch")
            session.isolated(getattr(importlib.import_module(f"rgt.probes.{probe.module}"), probe.name), result)
        except Unjudged as why:
            result.unjudged = str(why)
        except Exception as error:  # the user's code may raise anywhere
            result = Result(probe.name, unjudged=f"{sentence(error)} ({site(error) or 'in the probe'})")
        result.seconds = time.perf_counter() - start
        yield result


# -- a process for the user's code


class Child:
    """`main` below, in a session of its own; as a context, nothing of it outlives the block.

    It runs in request["python"], and the request is its stdin, as JSON. It appends rows to `out`, one JSON object per
    line, and Python stacks to `stacks` when it crashes or gets SIGUSR1.
    """

    def __init__(self, request: dict[str, Any], folder: Path) -> None:
        self.out, self.stacks, self.log = (folder / kind for kind in ("out", "stacks", "log"))
        self.out.write_text("")
        self.stacks.write_text("")
        order = folder / "request"
        more = {"out": str(self.out), "stacks": str(self.stacks), "parent": os.getpid()}
        order.write_text(json.dumps({**request, **more}))
        # not a script of this folder: the user's imports must not find our modules as their own
        program = f"import sys; sys.path[0] = {str(SCRIPTS)!r}; from rgt.probes.runner import main; main()"
        with order.open("rb") as source, self.log.open("wb") as sink:
            self.process = subprocess.Popen(
                [request["python"], "-c", program], stdin=source, stdout=sink, stderr=sink, start_new_session=True
            )

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        if self.running():
            self._kill_group()
            self.process.wait()

    def running(self) -> bool:
        if self.process.returncode is None and self.process.poll() is not None:
            self._kill_group()  # what it left behind; at once, while its number cannot be another's
        return self.process.returncode is None

    def _kill_group(self) -> None:
        """The whole group: loader workers too."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def dump(self) -> None:
        """Have it write its stacks."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGUSR1)
        end = time.monotonic() + _DUMP
        while time.monotonic() < end and self.running() and not self._written_stacks().endswith(_WHOLE):
            time.sleep(_POLL)

    def _written_stacks(self) -> str:
        return self.stacks.read_text(encoding="utf-8", errors="replace")

    def rows(self) -> list[dict[str, Any]]:
        """What it has written so far; a line without its end is not there yet, or never will be."""
        lines = self.out.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def frames(self) -> list[str]:
        """file:line function of the user's frames, innermost first.

        Of the thread that crashed or was asked, which is the main one; of all threads where that one has none.
        """
        stacks = self._written_stacks()
        current = stacks[max(0, stacks.rfind("Current thread")) :].partition("\n\n")[0]
        for text in (current, stacks):
            theirs = [f"{file}:{line} {name}" for file, line, name in _FRAME.findall(text) if not foreign(file)]
            if theirs:
                return theirs
        return []

    def last_words(self) -> str:
        """The last line that it printed."""
        from rgt.log import summary  # here, because --help needs no parser of logs

        return next((line[:300] for line in reversed(summary.tail(self.log)) if line.strip()), "")


def main() -> None:
    """In the child. Its rows: {"start": probe}, then its result; or {"fatal": sentence, "code": exit code}."""
    request = json.load(sys.stdin)
    end_with(request["parent"])  # Ctrl-C may come before Popen has returned, and nothing else runs after a SIGKILL
    stacks = open(request["stacks"], "w", encoding="utf-8")  # noqa: SIM115  # open until the process ends
    faulthandler.enable(stacks)
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)
    out = open(request["out"], "a", encoding="utf-8")  # noqa: SIM115  # open until the process ends

    def say(**row: Any) -> None:
        out.write(json.dumps(row) + "\n")
        out.flush()

    sys.path[:0] = request["paths"]  # in front, as `python train.py` would have it
    found = importlib.util.find_spec("probes")
    if found and found.origin == str(SCRIPTS / "probes.py") and not importlib.util.find_spec("click"):
        sys.modules["probes"] = factory  # enough for `from probes import Training`; the command line needs click
    try:
        function = factory.find(request["factory"])

        def make() -> factory.Training:
            return factory.as_training(function(), request["factory"])

        session = Session(make, request["steps"], request["seconds"], request["seed"])
        for name in request["probes"]:
            say(start=name)
            for result in run(session, (name,)):
                say(**result.as_dict())
    except RgtError as error:
        say(fatal=error.message, code=error.exit_code)
    except Exception as error:
        where = site(error)
        place = f" at {where}" if where else ""
        say(fatal=f"{request['factory']} raises {sentence(error)}{place}", code=BAD_INPUT)


def end_with(parent: int) -> None:
    """This process ends when its parent does, however that one ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


# -- our side


def probe(request: dict[str, Any], names: tuple[str, ...], timeout: float) -> list[dict[str, Any]]:
    """Results in order, each shown as progress when it comes. Raises the child's sentence when nothing can run."""
    done: list[dict[str, Any]] = []
    end = time.monotonic() + timeout
    left, failures, alone = list(names), 0, len(names) == 1
    limit = 0.95 * timeout if alone else timeout / 2  # of several probes, the others must still be heard
    with tempfile.TemporaryDirectory(prefix="rgt-probes-") as folder:
        while left:
            with Child({**request, "probes": left, "seconds": max(2.0, timeout / 6)}, Path(folder)) as child:
                hung = _wait(child, end, limit)
                hung = "hang" if hung and alone else hung  # nothing else took its time
                if hung:
                    child.dump()
            rows = child.rows()
            fatal = next((row for row in rows if "fatal" in row), None)
            if fatal:
                raise RgtError(fatal["fatal"], fatal["code"])
            results = [row for row in rows if "probe" in row]
            done, left = done + results, left[len(results) :]
            if not left:
                break
            started = [row["start"] for row in rows if "start" in row]
            if len(started) == len(results):
                return [*done, _ended_early(None, child, hung)]
            done.append(_ended_early(left.pop(0), child, hung))
            failures += 1
            if left and (time.monotonic() > end or failures > _RETRIES):
                why = f"the process ended {failures} times before its time; mend that first"
                why = f"no time left of {timeout:g} s; give --timeout more" if time.monotonic() > end else why
                return done + [Result(name, unjudged=why).as_dict() for name in left]
    return done


def _wait(child: Child, end: float, limit: float) -> str:
    """Why it has to be ended: "hang" when nothing new came for `limit` seconds, "late" when the whole time is over."""
    told, since = 0, time.monotonic()
    while True:
        running = child.running()
        rows, now = child.rows(), time.monotonic()
        for row in rows[told:]:
            since = now
            if "probe" in row:
                progress(f"{row['probe']}: {row['verdict']}")
        told = len(rows)
        if not running or now - since > limit or now > end:
            # half of the limit and the end of all time: more likely stuck than slow
            return "" if not running else "hang" if now - since > limit / 2 else "late"
        time.sleep(_POLL)


def _ended_early(name: str | None, child: Child, hung: str) -> dict[str, Any]:
    """The row of the probe at which the child ended, or of the factory."""
    where, last, code = next(iter(child.frames()), ""), child.last_words(), child.process.returncode
    result = Result(name or "factory")
    if hung == "late" and name:
        result.unjudged = f"no time left; it was at {where or 'its start'}; give --timeout more"
        return result.as_dict()
    if hung:
        result.add("hang", "did not end in its time", last, where=where)
        result.fix("what waits there: a lock, a queue, a collective, a loader worker? --timeout gives it longer")
    elif name is None and "Error" in last:
        raise bad_input(f"the factory's process ended before it was built: {last}")
    else:
        how = processes.signal_name(-code) if code < 0 else f"exit code {code}"
        result.add("crash", f"the process ended with {how}", last, where=where)
        result.fix("SIGKILL is usually the memory limit; SIGSEGV a native library: run it alone under faulthandler")
    result.evidence = result.findings[0].message + (f" at {where}" if where else "")
    return result.as_dict()
