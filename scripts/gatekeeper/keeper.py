"""One job from the line to its start: the wait for its turn, for its cards, and for those who use them unasked."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from pathlib import Path
from typing import Any

from gatekeeper.locks import Lock, next_signal
from gatekeeper.supervisor import Echo, Supervisor
from rgt import errors, gate, procs
from rgt.errors import bad_input, from_os_error

POLL_FIRST, POLL_LAST = 0.2, 5.0  # seconds between looks at a card that others use


class Ended(Exception):
    """The job ended before it started: cancelled, or the one it waited for failed."""

    def __init__(self, state: str, reason: str, code: int) -> None:
        super().__init__(reason)
        self.state, self.reason, self.code = state, reason, code


class Keeper:
    """Keeps one job. Making it queues the job on disk; everything it knows is also in the record."""

    def __init__(self, queue: gate.Queue, record: gate.Record) -> None:
        self.queue, self.record = queue, record
        self.locks: list[Lock] = []
        self.cards: dict[str, Any] = {}  # by lock name, as last seen
        try:
            self.log = os.open(record["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise from_os_error(error, f"write the log {record['log']}") from None
        try:
            self.life = queue.open_file(queue.job_path(record["id"], "lock"))
            fcntl.flock(self.life, fcntl.LOCK_EX)
            self._record()
            self.ticket: gate.Ticket = queue.enter_line(record["wanted"], record["asked"]["then"])
        except OSError as error:
            self._undo()
            raise from_os_error(error, f"queue the job in {queue.directory}") from None

    def _record(self) -> None:
        """The first write of the record; for a unique job under the mutex, so that of two at once one is refused."""
        if not self.record["asked"]["unique"]:
            self.queue.save(self.record, durable=True)
            return
        with self.queue.mutex():
            same = [
                r for r in self.queue.records() if r["name"] == self.record["name"] and r["state"] not in gate.FINAL
            ]
            if same:
                self._undo()
                raise bad_input(f"{self.record['name']} is already {same[0]['state']} as {same[0]['id']}")
            self.queue.save(self.record, durable=True)

    def _undo(self) -> None:
        """A job that could not be queued leaves nothing behind."""
        leftovers = [self.queue.job_path(self.record["id"], suffix) for suffix in ("json", "lock", "log")]
        for path in leftovers:
            with contextlib.suppress(OSError):
                path.unlink()

    def hand_over(self) -> None:
        """In the parent after a fork: the child holds the locks now, and alone."""
        os.close(self.log)
        os.close(self.life)
        os.close(self.ticket.descriptor)

    def run(self, echo: bool) -> int:
        """From the line to the end of the job's last process; the exit code."""
        from rgt import provenance  # here, and not before a detached submit has returned

        procs.become_subreaper()
        self.update(
            gate=procs.identify(os.getpid()), taken=self.ticket.taken, git_commit=provenance.git_commit(Path.cwd())
        )
        copy = Echo(Path(self.record["log"])) if echo else None  # opened before the job can print
        try:
            self._wait_for_other_job()
            pid = self._start(self._wait_for_turn_and_resources())
        except Ended as end:
            return self._finish(end.state, end.code, end.reason)
        except OSError as error:
            return self._finish("failed", errors.ENVIRONMENT, f"the queue cannot be used: {error}")
        job = Supervisor(pid, self.record["asked"], copy, self.say, self._cancelled)
        return self._finish(*job.run())

    # -- the record

    def update(self, **fields: Any) -> None:
        """Change the record; a full disk must not end a running job."""
        self.record.update(fields)
        try:
            self.queue.save(self.record)
        except OSError as error:
            self.say(f"cannot update the record: {error.strerror}")

    def say(self, message: str) -> None:
        """To whoever watches: the terminal, or (detached) the job's log."""
        with contextlib.suppress(OSError):
            os.write(2, f"gpu_gate: {message}\n".encode())

    def _because(self, reason: str) -> None:
        """Why it waits; said once per reason."""
        if reason != self.record["reason"]:
            self.update(reason=reason)
            self.say(f"waiting: {reason}")

    def _cancelled(self) -> bool:
        return self.queue.job_path(self.record["id"], "cancel").exists()

    def _finish(self, state: str, code: int, reason: str | None) -> int:
        self.update(state=state, exit_code=code, reason=reason, ended=time.time())
        for lock in self.locks:
            if lock.got and not lock.unwanted:
                lock.write_owner("")
                lock.drop()
        self.ticket.leave()
        if reason:
            self.say(f"{state}: {reason}")
        return code

    # -- waiting

    def _pause(self, seconds: float | None = None) -> None:
        """Until a lock was won, a signal came or the time is over. TERM and INT end a job that waits."""
        number = next_signal(seconds)
        if number in (signal.SIGTERM, signal.SIGINT):
            raise Ended("cancelled", f"{signal.Signals(number).name} while it waited", 128 + number)

    def _wait_for(self, path: Path) -> None:
        """Until nobody holds that file's lock any more."""
        try:
            lock = Lock(os.open(path, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH)
        except FileNotFoundError:
            return
        while not lock.got:
            self._pause()
        lock.drop()

    def _wait_for_other_job(self) -> None:
        other = self.record["asked"]["then"]
        if not other:
            return
        self._because(f"{other} must finish first")
        self._wait_for(self.queue.job_path(other, "lock"))
        ended = self.queue.load(other)
        if not ended or ended["state"] != "done":
            state = ended["state"] if ended else "gone"
            raise Ended("cancelled", f"{other}, which it waited for, is {state}", errors.ENVIRONMENT)

    def _wait_for_turn_and_resources(self) -> list[Lock]:
        """What it waited for may end in the same moment as what a job ahead of it waited for: look once more."""
        while True:
            self._wait_for_turn()
            good = self._wait_for_resources()
            if not self._ahead():
                return good
            for lock in self.locks:
                lock.drop()
            self.locks = []

    def _ahead(self) -> Path | None:
        return self.queue.ahead(self.ticket.number, self.record["wanted"])

    def _wait_for_turn(self) -> None:
        while ahead := self._ahead():
            self._because("others are ahead in line")
            self._wait_for(ahead)

    def _wait_for_resources(self) -> list[Lock]:
        """The first in line collects free cards until it has enough good ones. Only the first collects: no deadlock."""
        files = {name: self.queue.open_file(self.queue.locks / name) for name in self.record["wanted"]}
        self.locks = [Lock(descriptor, fcntl.LOCK_EX, name) for name, descriptor in files.items()]
        needed, poll = self.record["asked"]["gpus"] or 1, POLL_FIRST
        while True:
            held = [lock for lock in self.locks if lock.got]
            if len(held) < needed:
                taken = " ".join(lock.name for lock in self.locks if not lock.got)
                self._because(f"first in line; taken by other jobs: {taken[:80]}")
                self._pause()
                continue
            good = self._good(held)
            if len(good) >= needed:
                return good[:needed]
            self._pause(poll)
            poll = min(POLL_LAST, poll * 1.5)

    def _good(self, held: list[Lock]) -> list[Lock]:
        """Those that nobody outside the gate uses either; the reasons against the others are said."""
        problems = {lock.name: self._left_over(lock) for lock in held}
        if not self.record["asked"]["slots"]:
            for name, problem in self._card_problems(held).items():
                problems[name] = problems[name] or problem
        reasons = [reason for reason in problems.values() if reason]
        if reasons:
            self._because("; ".join(reasons))
        return [lock for lock in held if not problems[lock.name]]

    def _card_problems(self, held: list[Lock]) -> dict[str, str | None]:
        from gatekeeper import cards  # here, because reading GPUs costs what a job on slots need not pay

        self.cards, missing = cards.by_lock()
        asked, seen = self.record["asked"], self.cards
        gone = f"does not answer: {missing}"
        return {
            lock.name: cards.problem(seen[lock.name], asked) if lock.name in seen else f"{lock.name} {gone}"
            for lock in held
        }

    def _left_over(self, lock: Lock) -> str | None:
        """A killed gate left its job's id in the lock file: children that closed our descriptor may live on."""
        owner = lock.read_owner()
        living = list(procs.carrying(gate.MARK, owner)) if owner else []
        return f"{lock.name} is still used by pids {living} of {owner}, whose gate was killed" if living else None

    # -- starting

    def _start(self, chosen: list[Lock]) -> int:
        """Start the job with the locks in its hands: its tree keeps them even if we are killed."""
        for lock in self.locks:
            if lock in chosen:
                lock.write_owner(self.record["id"])
            else:
                lock.drop()
        gpus = sorted(self.cards[lock.name].index for lock in chosen if lock.name in self.cards)
        descriptors = [self.life, *(lock.descriptor for lock in chosen)]
        for descriptor in descriptors:
            os.set_inheritable(descriptor, True)
        # said before it is done: a record that knows of no start would let a killed job be started twice
        slot = None if gpus else chosen[0].name
        self.update(state="running", reason=None, started=time.time(), gpus=gpus, slot=slot)
        pid = self._spawn(gpus)
        self.update(job=procs.identify(pid))
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        self.ticket.leave()  # only now: whoever is next must not start before us
        return pid

    def _spawn(self, gpus: list[int]) -> int:
        command, cwd = self.record["command"], self.record["cwd"]
        actions: list[Any] = [(os.POSIX_SPAWN_DUP2, self.log, 1), (os.POSIX_SPAWN_DUP2, self.log, 2)]
        if self.record["detached"] or os.isatty(0):
            actions.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))
        to_default = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP]  # ignored in Python, or by us
        try:
            os.chdir(cwd)
            with procs.branded(self.record["id"]):
                return os.posix_spawnp(
                    command[0], command, self._environment(gpus),
                    file_actions=actions, setsid=True, setsigmask=[], setsigdef=to_default,
                )  # fmt: skip
        except OSError as error:
            raise Ended("failed", f"cannot start {command[0]}: {error.strerror}", errors.BAD_INPUT) from None

    def _environment(self, gpus: list[int]) -> dict[str, str]:
        job = {gate.MARK: self.record["id"], "PYTHONUNBUFFERED": "1"}  # a buffered log looks like a hang
        if gpus:
            job["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # so that our indices, NVML's, are also CUDA's
            job["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
        return {**os.environ, **self.record["environment"], **job}
