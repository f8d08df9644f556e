"""Restarts a job on its own machine for causes that pass, and stops for those that do not. Part of box.pyz.

    python3 box.pyz supervise RUN      RUN/.supervisor/job.json says what to run, how often and for how much

In RUN/.supervisor:
    job.json    the order            active      flock of the supervisor that works; its standby waits for it
    state.json  attempts so far      attempt     flock inherited by the job's whole process tree
    stop        asked to stop        exit.<n>    exit code of attempt n, written by the shell around it

Two supervisors run: when the one that works is killed, its standby takes over the living job and starts a new standby.
Only the holder of `active` starts an attempt, and only while nobody holds `attempt`: one job never runs twice.
Why a job died is triage's answer (`restart:` of an entry: yes, once, never); without one it is restarted only if it
came further than the time before.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any

from rgt import bundle, files
from rgt.checkpoint.names import STORE_PROOF
from rgt.errors import RgtError
from rgt.machine import memory, processes
from rgt.run.record import Run

FOLDER = ".supervisor"
MARK = "RGT_ATTEMPT"  # in the environment of every process of an attempt
STANDBY = "RGT_SUPERVISOR_STANDBY"
RESUME = "RGT_RESUME_FROM"
REFUSED, KILLED = 4, 137
MEMORY = "memory"  # the cause that the kernel itself counts
POLL, LOCK_SECONDS, LONGEST_DELAY = 0.2, 5.0, 600.0
_TAIL = 4 << 20  # bytes of an attempt's log that are judged
# the shell outlives a warning that is meant for the job, and leaves its exit code
_RECORD = 'trap : HUP INT TERM USR1; f=$0; "$@"; echo $? > "$f.part"; mv "$f.part" "$f"'
_FROM_OUTSIDE = {128 + number: number for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGHUP)}


@dataclass
class Plan:
    """job.json: what launch was asked for."""

    words: list[str] = field(default_factory=list)
    container: str = ""  # instead of words: a container that exists
    restarts: int = 3
    delay: float = 10.0
    grace: float = 60.0
    rate: float | None = None  # money per hour
    max_cost: float | None = None
    resume_args: list[str] = field(default_factory=list)
    after_memory_kill: dict[str, str] = field(default_factory=dict)
    store: str = ""  # where the run directory goes at its end


@dataclass
class State:
    """state.json: all that a supervisor has to know to go on in place of a killed one."""

    attempt: int = 0
    restarts: int = 0
    started: float = 0.0
    log_start: int = 0  # of train.log when this attempt began
    log_end: int = 0  # when the last one ended
    memory_kills: int = 0  # of the machine's cgroup, when this attempt began
    reached: int = -1  # furthest step of any attempt
    fruitless: int = 0  # attempts in a row that came no further
    used: list[str] = field(default_factory=list)  # causes that had their one restart
    code: int | None = None
    ended: str = ""


@dataclass
class Verdict:
    restart: bool
    cause: str
    entry: str = ""
    step: int | None = None


class Supervisor:
    def __init__(self, run: Run) -> None:
        self.run, self.folder = run, run.path / FOLDER
        self.plan = Plan(**json.loads((self.folder / "job.json").read_text(encoding="utf-8")))
        self.state, self.signal = State(), 0
        self.waiting: subprocess.Popen[bytes] | None = None  # `docker wait`
        self.standby: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
            signal.signal(number, self._pass_on)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        """The gate warns the whole tree at its end; a signal to us alone is meant for the job, too."""
        self.signal = number
        for pid in self._living():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _living(self) -> Iterator[int]:
        return processes.carrying(MARK, f"{self.run.id}.{self.state.attempt}")

    # -- the two supervisors

    def main(self) -> int:
        is_standby = os.environ.pop(STANDBY, None) is not None
        deadline = time.monotonic() + LOCK_SECONDS
        while not (active := self._lock("active")):
            if self.signal or (not is_standby and time.monotonic() > deadline):
                if not is_standby:
                    print(f"supervise: {self.run.path} has a supervisor already", file=sys.stderr)
                return 0 if is_standby else REFUSED
            time.sleep(POLL)
        with active:
            with contextlib.suppress(OSError, ValueError, TypeError):
                self.state = State(**json.loads((self.folder / "state.json").read_text(encoding="utf-8")))
            if is_standby and self.state.ended:
                self._store()  # the other one may have been killed while it did
                return 0
            if not is_standby and (self.state.ended or not self.state.attempt):
                # a new start: the counts begin anew, the furthest step stays
                kept = {name: getattr(self.state, name) for name in ("attempt", "reached", "log_end")}
                self.state = State(started=time.time(), **kept)
                for path in (self.folder / "stop", self.run.path / STORE_PROOF):
                    path.unlink(missing_ok=True)
                self._start(first=True)
            return self._supervise()

    def _lock(self, name: str) -> IO[bytes] | None:
        """The open file, or None while somebody else holds it."""
        file = (self.folder / name).open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return file

    def _save(self) -> None:
        files.write_bytes(self.folder / "state.json", json.dumps(asdict(self.state)).encode())

    def _tick(self) -> None:
        """Between two looks: a standby that died is replaced."""
        if self.standby is None or self.standby.poll() is not None:
            self.standby = subprocess.Popen(sys.orig_argv, env={**os.environ, STANDBY: "1"}, start_new_session=True)
        time.sleep(POLL)

    def _stopping(self) -> bool:
        return bool(self.signal) or (self.folder / "stop").exists()

    # -- one attempt after another

    def _supervise(self) -> int:
        while True:
            while self._alive():
                self._tick()
            code, by_memory = KILLED, False  # nobody wrote a code: the shell around it was killed, too
            if self.plan.container:
                state = self._container()
                code, by_memory = int(state.get("ExitCode", KILLED)), bool(state.get("OOMKilled"))
            else:
                with contextlib.suppress(OSError, ValueError):
                    code = int((self.folder / f"exit.{self.state.attempt}").read_text())
                by_memory = memory.kills() > self.state.memory_kills
            verdict = self._judge(code, by_memory)
            if verdict.restart:
                delay = min(LONGEST_DELAY, self.plan.delay * 2**self.state.fruitless)
                self.state.restarts += 1
                facts = {**self._facts(code, verdict), "attempt": self.state.restarts, "delay": delay}
                self.run.log_event("restarted", **facts)
                self._save()
                until = time.monotonic() + delay
                while time.monotonic() < until and not self._stopping():
                    self._tick()
                if not self._stopping():
                    self._start(memory_kill=verdict.entry == MEMORY)
                    continue
                verdict = Verdict(False, "asked to stop", step=verdict.step)
            self.state.code, self.state.ended, self.state.log_end = code, verdict.cause, self._log_size()
            self._save()
            if code == 0 or not self._stopping():  # a stop is recorded by whoever asked for it
                self.run.log_event("failed" if code else "finished", **self._facts(code, verdict))
                if code and verdict.cause != plain_cause(code):
                    print(f"supervise: {verdict.cause}", file=sys.stderr)
                self._store()
            if self.standby and self.standby.poll() is None:  # it holds no state
                self.standby.kill()
                self.standby.wait()
            return code

    def _store(self) -> None:
        """Last of all: what is written after it is not in the store. STORE_VERIFIED.json says that it went well."""
        if not self.plan.store or self._stopping() or (self.run.path / STORE_PROOF).exists():
            return
        from rgt.host import stores

        try:
            wrong = stores.send(self.run.path, stores.open_store(self.plan.store)).wrong
        except RgtError as error:
            wrong = [error.message]
        if wrong:
            self.run.log_event("unstored", where=self.plan.store, reason=wrong[0])

    def _facts(self, code: int, verdict: Verdict) -> dict[str, Any]:
        facts = {"exit_code": code, "reason": verdict.cause, "entry": verdict.entry, "step": verdict.step}
        return {name: value for name, value in facts.items() if value not in (None, "")}

    def _start(self, first: bool = False, memory_kill: bool = False) -> None:
        """State first: whoever takes over from a supervisor that died here finds an attempt without an exit code."""
        state = self.state
        state.attempt += 1
        # docker run has started a container's first attempt, whose log may have begun
        state.log_start = state.log_end if first and self.plan.container else self._log_size()
        state.memory_kills = memory.kills()
        self._save()
        if self.plan.container:
            if not first:  # docker run has started it
                subprocess.run(["docker", "start", self.plan.container], stdout=subprocess.DEVNULL)
            return
        lock = self._lock("attempt")
        if lock is None:
            raise RgtError(f"{self.run.path} is still used by a process of an earlier attempt", REFUSED)
        resume = None
        if not first or state.restarts or state.attempt > 1:
            from rgt.checkpoint import inventory

            with contextlib.suppress(RgtError, OSError):  # its own words: a job may keep its checkpoints elsewhere
                chosen, _ = inventory.newest_whole(inventory.find(self.run.path))
                resume = chosen.path if chosen else None
        words, own = list(self.plan.words), {MARK: f"{self.run.id}.{state.attempt}"}
        if resume:
            own[RESUME] = str(resume)
            words += [word.replace("{checkpoint}", str(resume)) for word in self.plan.resume_args]
        env = {**os.environ, **own, **(self.plan.after_memory_kill if memory_kill else {})}
        with lock:
            command = ["sh", "-c", _RECORD, str(self.folder / f"exit.{state.attempt}"), *words]
            subprocess.Popen(command, env=env, pass_fds=[lock.fileno()], start_new_session=True)

    def _log_size(self) -> int:
        return self.run.log.stat().st_size if self.run.log.exists() else 0

    def _alive(self) -> bool:
        if self.plan.container:
            if self.waiting is None:
                self.waiting = subprocess.Popen(["docker", "wait", self.plan.container], stdout=subprocess.DEVNULL)
            if self.waiting.poll() is None:
                return True
            self.waiting = None
            return bool(self._container().get("Running", True))  # also while docker does not answer
        free = self._lock("attempt")
        if not free and not (self.folder / f"exit.{self.state.attempt}").exists():
            return True
        if free:
            free.close()
        # what it left behind (a worker may have closed our lock) must not meet the next attempt
        number, deadline = signal.SIGTERM, time.monotonic() + self.plan.grace
        while living := list(self._living()):
            for pid in living:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            if time.monotonic() > deadline:
                number = signal.SIGKILL
            self._tick()
        return not free

    def _container(self) -> dict[str, Any]:
        words = ["docker", "inspect", "--format", "{{json .State}}", self.plan.container]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode and "no such" in done.stderr.lower():
            return {"Running": False, "ExitCode": KILLED, "Error": "the container was removed"}
        return dict(json.loads(done.stdout)) if done.returncode == 0 else {}

    # -- why it ended, and whether that passes

    def _judge(self, code: int, by_memory: bool) -> Verdict:
        state, plan = self.state, self.plan
        if code == 0:
            return Verdict(False, "reached its own end")
        if self._stopping():
            return Verdict(False, "asked to stop")
        step, entry, said, how = self._why(code, by_memory)
        further = step is not None and step > state.reached
        state.reached, state.fruitless = max(state.reached, step or -1), 0 if further else state.fruitless + 1
        hours = (time.time() - state.started) / 3600
        stop = ""
        if how == "never":
            stop = "a restart would meet it again"
        elif how == "once" and entry in state.used:
            stop = "it had its one restart for this cause"
        elif how == "" and step is None:  # it never got to work
            return Verdict(False, said, entry)
        elif how == "" and not further:
            stop = f"it came no further (step {step} as before)"
        elif state.restarts >= plan.restarts:
            stop = f"all {plan.restarts} restarts are used"
        elif plan.rate and plan.max_cost is not None and hours * plan.rate >= plan.max_cost:
            stop = f"it has cost {hours * plan.rate:.2f} of at most {plan.max_cost:g}"
        state.used += [entry] if how == "once" else []
        return Verdict(not stop, f"{said}; not restarted: {stop}" if stop else said, entry, step)

    def _why(self, code: int, by_memory: bool) -> tuple[int | None, str, str, str]:
        """Last step, the entry's id, a sentence, and how its catalogue entry says to restart."""
        from rgt.log import summary

        text = b""
        with contextlib.suppress(OSError), self.run.log.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(self.state.log_start, size - _TAIL))
            text = file.read()
        step = summary.summarise(text.decode(errors="replace")).step
        if by_memory:
            return step, MEMORY, "the kernel killed it for memory", "once"
        if code in _FROM_OUTSIDE:  # the kernel counts its own kills: a shell's "Killed" in the log says no more
            return step, "", f"ended by {signal.Signals(_FROM_OUTSIDE[code]).name} from outside", "yes"
        tool = bundle.SCRIPTS / "triage.py"  # beside us, or in the one file that we run from
        words = [str(tool)] if tool.is_file() else [sys.orig_argv[1], "triage"]
        given = ["-", "--exit-code", str(code if code < 256 else 1), "--json"]
        done = subprocess.run([sys.executable, *words, *given], input=text, capture_output=True)
        with contextlib.suppress(ValueError, LookupError, TypeError):
            found = [one for one in json.loads(done.stdout)["diagnoses"] if one["role"] in ("cause", "aftermath")]
            if found and "id" in found[0] and (found[0].get("restart") or found[0]["role"] == "cause"):
                return step, found[0]["id"], f"{found[0]['id']} {found[0]['name']}", found[0].get("restart", "")
        return step, "", plain_cause(code), ""


def plain_cause(code: int) -> str:
    return f"exit code {code}"


def main() -> None:
    """`supervise RUN`, and for a container `supervise --detach RUN`: nobody else keeps that one running."""
    run, detach = Run(Path(os.path.expanduser(sys.argv[-1]))), sys.argv[1] == "--detach"
    if detach and STANDBY not in os.environ:
        (run.path / FOLDER).mkdir(parents=True, exist_ok=True)
        with (run.path / FOLDER / "log").open("ab") as log, open(os.devnull, "rb") as nothing:
            streams: dict[str, Any] = {"stdin": nothing, "stdout": log, "stderr": log}
            words = [word for word in sys.orig_argv if word != "--detach"]
            subprocess.Popen(words, start_new_session=True, **streams)
        return
    try:
        sys.exit(Supervisor(run).main())
    except RgtError as error:
        error.show()
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
