"""One job, from the line to the end of its last process: the Keeper waits and starts it, the Supervisor follows it.

rgt.machine.gpus is imported where it is needed: reading GPUs costs what a job on slots need not pay.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgt import errors, units
from rgt.errors import RgtError, bad_input, from_os_error, lacking
from rgt.gpu_gate.locks import FORWARDED, Lock, next_signal, who_has
from rgt.job import queue as gate
from rgt.machine import processes

if TYPE_CHECKING:
    from rgt.machine.gpus import Gpu

POLL_FIRST, POLL_LAST = 0.2, 5.0  # seconds between looks at a card that others use
TIMEOUT_CODE = 124  # as timeout(1)
ECHO_SECONDS = 0.2
HELD_BY_NOBODY = 1 << 30  # bytes in use without a visible process that an idle driver does not explain
KILL_AGAIN_SECONDS = 0.2  # for what was forked between two looks
Asked = dict[str, Any]


class Ended(Exception):
    """The job ended before it started (cancelled, or the one it waited for failed): state, exit code, reason."""


class Keeper:
    """Owns one job until it ends. The constructor queues it on disk; all its state is also in the record."""

    def __init__(self, queue: gate.Queue, record: gate.Record) -> None:
        self.queue, self.record, self.asked = queue, record, record["asked"]
        self.locks: list[Lock] = []
        self.house: Lock | None = None  # the box's own lock file, where it has one
        self.ticket: gate.Ticket | None = None
        self.cards: dict[str, Any] = {}  # by lock name, as last seen
        try:
            self.log = os.open(record["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise from_os_error(error, f"write the log {record['log']}") from None
        again = record.pop("again", None)
        try:
            self.life = queue.open_file(queue.job_path(record["id"], "lock"))
            # of two that resume a job (`again`: when it was submitted before) only the first may
            fcntl.flock(self.life, fcntl.LOCK_EX | (fcntl.LOCK_NB if again else 0))
            path = queue.job_path(record["id"], "json")
            if again and json.loads(path.read_text(encoding="utf-8"))["submitted"] != again:
                raise bad_input(f"{record['id']} was resumed by somebody else meanwhile")
            # under the mutex, so that of two unique jobs submitted at once one is refused
            with queue.mutex() if self.asked["unique"] else contextlib.nullcontext():
                for other in queue.records() if self.asked["unique"] else []:
                    if other["name"] == record["name"] and other["state"] not in gate.FINAL:
                        raise bad_input(f"{record['name']} is already {other['state']} as {other['id']}")
                queue.save(record, durable=True)
            # with a lock of the box's own, the line comes after it: who waits for both in turn may block another
            self.ticket = None if self.asked.get("lock") else queue.enter_line(record["wanted"], self.asked["then"])
        except (OSError, RgtError) as error:  # a job that could not be queued leaves nothing behind
            for suffix in () if again else ("json", "lock", "log"):
                with contextlib.suppress(OSError):
                    queue.job_path(record["id"], suffix).unlink()
            if isinstance(error, BlockingIOError):
                raise bad_input(f"{record['id']} is being resumed by somebody else") from None
            if isinstance(error, OSError):
                raise from_os_error(error, f"queue the job in {queue.directory}") from None
            raise

    def hand_over(self) -> None:
        """In the parent after a fork: the child holds the locks now, and alone."""
        for descriptor in (self.log, self.life, *([self.ticket.descriptor] if self.ticket else [])):
            os.close(descriptor)

    def run(self, echo: bool) -> int:
        """From the line to the end of the job's last process; the exit code."""
        processes.become_subreaper()
        self.update(gate=processes.identify(os.getpid()), taken=self.ticket.taken if self.ticket else time.time())
        log = os.open(self.record["log"], os.O_RDONLY | os.O_CLOEXEC) if echo else None
        if log is not None:
            os.lseek(log, 0, os.SEEK_END)  # before the job can print
        try:
            if other := self.asked["then"]:
                self._waits_because(f"{other} must finish first")
                self._wait_for(self.queue.job_path(other, "lock"))
                state = (self.queue.load(other) or {"state": "gone"})["state"]
                if state != "done":
                    raise Ended("cancelled", errors.ENVIRONMENT, f"{other}, which it waited for, is {state}")
            if path := self.asked.get("lock"):
                # the box's own flock queue, beside those who know nothing of this gate
                try:
                    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                except PermissionError:
                    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                self.house = Lock(descriptor, fcntl.LOCK_EX, path)
                while not self.house.got:
                    self._waits_because(who_has(descriptor, path))
                    self._pause(POLL_LAST)
                self.ticket = self.queue.enter_line(self.record["wanted"])
            pid = self._start(self._wait_for_resources())
        except Ended as end:
            return self._finish(*end.args)
        except OSError as error:
            return self._finish("failed", errors.ENVIRONMENT, f"the queue cannot be used: {error}")
        flag = self.queue.job_path(self.record["id"], "cancel")
        return self._finish(*Supervisor(pid, self.asked, log, self.say, flag).run())

    def update(self, **fields: Any) -> None:
        """Change the record; a full disk must not end a running job."""
        self.record.update(fields)
        try:
            self.queue.save(self.record)
        except OSError as error:
            self.say(f"cannot update the record: {error.strerror}")

    def say(self, message: str) -> None:
        """Print to stderr: the terminal, or (detached) the job's log."""
        with contextlib.suppress(OSError):
            os.write(2, f"gpu_gate: {message}\n".encode())

    def _waits_because(self, reason: str) -> None:
        """Record and print each new reason once."""
        if reason != self.record["reason"]:
            self.update(reason=reason)
            self.say(f"waiting: {reason}")

    def _finish(self, state: str, code: int, reason: str | None) -> int:
        self.update(state=state, exit_code=code, reason=reason, ended=time.time())
        for lock in self.locks:
            if lock.got and not lock.unwanted:
                if lock is self.locks[-1] or not self.asked.get("share"):
                    lock.write_owner("")
                lock.drop()
        if self.ticket:
            self.ticket.leave()
        if self.house:
            self.house.drop()
        if reason:
            self.say(f"{state}: {reason}")
        return code

    # -- waiting

    def _pause(self, seconds: float | None = None) -> None:
        """Until a lock was won, a signal came or the time is over. TERM and INT end a job that waits."""
        number = next_signal(seconds)
        if number in (signal.SIGTERM, signal.SIGINT):
            raise Ended("cancelled", 128 + number, f"{signal.Signals(number).name} while it waited")

    def _wait_for(self, path: Path) -> None:
        """Until nobody holds that file's lock any more."""
        try:
            lock = Lock(os.open(path, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH)
        except FileNotFoundError:
            return
        while not lock.got:
            self._pause()
        lock.drop()

    def _wait_for_resources(self) -> list[Lock]:
        """Locks of enough good cards, when it is our turn. Only the first in line collects cards: no deadlock."""
        wanted = self.record["wanted"]
        assert self.ticket is not None
        while True:
            while ahead := self.queue.ahead(self.ticket.number, wanted):
                self._waits_because("others are ahead in line")
                self._wait_for(ahead)
            good = self._collect(wanted)
            # what it waited for may end in the same moment as what a job ahead of it waited for: look once more
            if not self.queue.ahead(self.ticket.number, wanted):
                return good
            for lock in self.locks:
                lock.drop()
            self.locks = []

    def _collect(self, wanted: list[str]) -> list[Lock]:
        kind = fcntl.LOCK_SH if self.asked.get("share") else fcntl.LOCK_EX
        self.locks = [Lock(self.queue.open_file(self.queue.locks / name), kind, name) for name in wanted]
        needed, poll = self.asked["gpus"] or 1, POLL_FIRST
        while True:
            held = [lock for lock in self.locks if lock.got]
            if len(held) < needed:
                taken = " ".join(lock.name for lock in self.locks if not lock.got)
                self._waits_because(f"first in line; taken by other jobs: {taken[:80]}")
                self._pause()
                continue
            problems = self._problems(held)
            good = [lock for lock in held if lock.name not in problems]
            if problems:
                self._waits_because("; ".join(problems.values()))
            if len(good) >= needed and not self.asked.get("share"):
                return good[:needed]
            for card in good if self.asked.get("share") else ():
                # only the first in line looks for a place on a shared card, so nobody else takes it now
                seats = (self.queue.locks / f"{card.name}.{number}" for number in range(self.asked["share"]))
                seat = next((seat for seat in seats if not self.queue.held(seat) and not self._orphans(seat)), None)
                if seat:
                    self.locks.append(Lock(self.queue.open_file(seat), fcntl.LOCK_EX, seat.name))
                    return [card, self.locks[-1]]
                self._waits_because(f"{card.name} has its {self.asked['share']} jobs")
            self._pause(poll)
            poll = min(POLL_LAST, poll * 1.5)

    def _orphans(self, lock: Path) -> list[int]:
        """A killed gate left its job's id in the lock file: children that closed our descriptor may live on."""
        owner = lock.read_text(encoding="utf-8", errors="replace") if lock.exists() else ""
        return list(processes.carrying(gate.MARK, owner)) if owner else []

    def _promised(self, card: Gpu) -> tuple[set[int], int]:
        """The processes of the jobs that share this card, and what they may still take of its memory."""
        mates = [r for r in self.queue.records() if r["state"] == "running" and r["asked"].get("share")]
        own: set[int] = set()
        promised = 0
        for mate in (mate for mate in mates if card.index in mate["gpus"]):
            pids = set(processes.carrying(gate.MARK, mate["id"]))
            used = sum(process.used_memory or 0 for process in card.processes if process.pid in pids)
            promised += max(0, mate["asked"]["min_free_mem"] - used)
            own |= pids
        return own, promised

    def _problems(self, held: list[Lock]) -> dict[str, str]:
        """Why a card that no gate holds must not be used: by lock name, good ones left out."""
        problems: dict[str, str | None] = {}
        if not self.asked["slots"]:
            from rgt.machine import gpus

            reading = gpus.read()
            sick = "; ".join(f"GPU {card.index}: {card.error}" for card in reading.gpus if card.error)
            missing = reading.problem or sick or "it is not listed any more"
            self.cards = {lock_name(card): card for card in reading.gpus}
            for name in (lock.name for lock in held):
                gone = f"{name} does not answer: {missing}"
                mates = (
                    self._promised(self.cards[name]) if self.asked.get("share") and name in self.cards else (set(), 0)
                )
                problems[name] = card_problem(self.cards[name], self.asked, *mates) if name in self.cards else gone
        for name in (lock.name for lock in held):
            seats = [] if self.asked.get("share") else sorted(self.queue.locks.glob(f"{name}.*"))
            if living := [pid for path in (self.queue.locks / name, *seats) for pid in self._orphans(path)]:
                problems[name] = f"{name} is still used by pids {living} of a job whose gate was killed"
        return {name: reason for name, reason in problems.items() if reason}

    # -- starting

    def _start(self, chosen: list[Lock]) -> int:
        """Start the job with the locks inherited: its process tree keeps them even if we are killed."""
        for lock in self.locks:
            if lock is chosen[-1] or (lock in chosen and not self.asked.get("share")):  # a shared card is nobody's own
                lock.write_owner(self.record["id"])
            elif lock not in chosen:
                lock.drop()
        gpus = sorted(self.cards[lock.name].index for lock in chosen if lock.name in self.cards)
        kept = [*chosen, *([self.house] if self.house else [])]
        descriptors = [self.life, *(lock.descriptor for lock in kept)]
        for descriptor in descriptors:
            os.set_inheritable(descriptor, True)
        # record "running" before spawning: a record that knows of no start would let a killed job be started twice
        slot = None if gpus else chosen[0].name
        self.update(state="running", reason=None, started=time.time(), gpus=gpus, slot=slot)
        own = {gate.MARK: self.record["id"], "PYTHONUNBUFFERED": "1"}  # a buffered log looks like a hang
        if gpus:
            own["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # so that our indices, NVML's, are also CUDA's
            own["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
        command, environment = self.record["command"], {**os.environ, **self.record["environment"], **own}
        actions: list[Any] = [(os.POSIX_SPAWN_DUP2, self.log, 1), (os.POSIX_SPAWN_DUP2, self.log, 2)]
        if self.record["detached"] or os.isatty(0):
            actions.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))
        to_default = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP]  # ignored in Python, or by us
        how: dict[str, Any] = {"file_actions": actions, "setsid": True, "setsigmask": [], "setsigdef": to_default}
        try:
            os.chdir(self.record["cwd"])
            with processes.branded(self.record["id"]):
                pid = os.posix_spawnp(command[0], command, environment, **how)
        except OSError as error:
            raise Ended("failed", errors.BAD_INPUT, f"cannot start {command[0]}: {error.strerror}") from None
        self.update(job=processes.identify(pid))
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        if self.ticket:
            self.ticket.leave()  # only now: whoever is next must not start before us
        return pid


class Supervisor:
    """The running job: signals in, exit code out. Follows the process tree of `pid` until its last process is dead."""

    def __init__(self, pid: int, asked: Asked, log: int | None, say: Callable[[str], None], flag: Path) -> None:
        self.pid, self.log, self.say, self.cancel_flag = pid, log, say, flag
        self.timeout, self.grace = asked["timeout"], float(asked["grace"])
        early = min(self.grace, self.timeout / 2) if asked.get("hard_limit") and self.timeout else 0.0
        self.grace = early or self.grace
        self.deadline = None if self.timeout is None else time.monotonic() + self.timeout - early
        self.code: int | None = None
        self.ending: str | None = None  # "timeout" or "cancelled" once we end it ourselves
        self.note: str | None = None
        self.warned = ""
        self.leftovers_named = False

    def run(self) -> tuple[str, int, str | None]:
        """State, exit code and what there is to say about them."""
        while self._reap():
            if self.deadline is not None and time.monotonic() >= self.deadline:
                if self.ending:
                    self._signal_tree(signal.SIGKILL)
                    self.note = f"{self.warned}, SIGKILL after {units.show_duration(self.grace)}"
                    self.deadline = time.monotonic() + KILL_AGAIN_SECONDS
                else:
                    self._end("timeout", f"timeout after {units.show_duration(self.timeout)}")
            limits = [] if self.deadline is None else [max(0.0, self.deadline - time.monotonic())]
            if self.log is not None:
                self._copy_log()
                limits.append(ECHO_SECONDS)
            number = next_signal(min(limits, default=None))
            if number == signal.SIGTERM and self.cancel_flag.exists():
                self._end("cancelled", "cancelled")
            elif number in FORWARDED:  # to the job's own process group, as a terminal would
                self.note = f"{signal.Signals(number).name} was passed on to it"
                self.say(self.note)
                if self.code is None:
                    os.killpg(self.pid, number)
                else:
                    self._signal_tree(number)
        self._copy_log()
        assert self.code is not None
        if self.ending == "timeout":
            return "timeout", TIMEOUT_CODE, self.note
        return self.ending or ("failed" if self.code else "done"), self.code, self.note

    def _reap(self) -> bool:
        """Collect the dead; False when the whole tree is gone. Orphans come to us: we are their subreaper."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == self.pid:
                    code = os.waitstatus_to_exitcode(status)
                    self.code = code if code >= 0 else 128 - code  # as a shell tells a signal
                if pid == 0:
                    break
        except ChildProcessError:
            return False
        if self.code is not None and not self.ending and not self.leftovers_named:
            self.leftovers_named = True
            left = processes.descendants(os.getpid())
            words = " ".join(processes.command(left[0]))[:60] if left else ""
            self.say(f"the command ended with {self.code}; waiting for the {len(left)} processes it left: {words}")
        return True

    def _end(self, state: str, why: str) -> None:
        if self.ending:
            return
        self.ending, self.deadline = state, time.monotonic() + self.grace
        count = self._signal_tree(signal.SIGTERM)
        self.note = self.warned = f"{why}: SIGTERM to {count} processes"
        self.say(f"{self.note}, to what is left after {units.show_duration(self.grace)} SIGKILL")

    def _signal_tree(self, number: int) -> int:
        tree = processes.descendants(os.getpid())
        for pid in tree:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return len(tree)

    def _copy_log(self) -> None:
        """To our stdout. The job writes to the file itself, so it survives our death."""
        with contextlib.suppress(OSError):  # stdout is closed; the log is complete
            while self.log is not None and (block := os.read(self.log, 1 << 16)):
                os.write(1, block)


# -- which cards a job may take, and why not now


def choose_cards(count: int) -> list[str]:
    """Names of the locks of all cards that CUDA_VISIBLE_DEVICES leaves; at least as many as the job needs."""
    from rgt.machine import gpus

    reading = gpus.read()
    if not reading.gpus:
        why = f" ({reading.problem})" if reading.problem else ""
        raise lacking(f"no GPU found here{why}; to queue jobs without one, say how many may run at once: --slots 1")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or None
    cards = gpus.visible(reading.gpus, visible)
    if count > len(cards):
        why = f"CUDA_VISIBLE_DEVICES is {visible!r}" if visible else "nvidia-smi -L lists them"
        raise bad_input(f"--gpus {count}: only {len(cards)} can be seen here ({why})")
    return [lock_name(card) for card in cards]


def lock_name(card: Gpu) -> str:
    """The UUID if there is one: after a reboot the same index may be another card."""
    return card.uuid or f"gpu-{card.index}"


def card_problem(card: Gpu, asked: Asked, mates: Collection[int] = (), promised: int = 0) -> str | None:
    """Why this card must not be used now; None when it is free. `mates`: processes that share it, by agreement."""
    name = f"GPU {card.index}"
    if card.error:
        return f"{name}: {card.error}"
    foreign = [process.pid for process in card.processes if process.type == "C" and process.pid not in mates]
    if foreign:
        return f"{name} is used by pids {foreign[:5]}, not started through this gate"
    if asked["min_free_mem"]:
        free = None if card.memory_free is None else max(0, card.memory_free - promised)
        enough = free is not None and free >= asked["min_free_mem"]
        return None if enough else f"{name} has {'unknown' if free is None else units.show_size(free)} free"
    unexplained = (card.memory_used or 0) - sum(process.used_memory or 0 for process in card.processes)
    if unexplained > HELD_BY_NOBODY:
        size = units.show_size(unexplained)
        return f"{name} has {size} in use by no visible process (another container's, or a dead one's)"
    return None
