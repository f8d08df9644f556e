"""The keeper of one lease: a process that outlives the agent and the terminal, looks, warns, and ends the box safely.

A turn looks at the clock, the cost and (seldom) at the provider and the box; it remembers in memory.json. At the end it
looks anew, pulls, verifies, and stops the box by `rgt transfer down --lease`, which takes the lease's one approval.
Whatever stands against that is told, again and again at growing distance, a bounded number of times; nothing else
is done. A turn that comes late (a sleeping laptop, SIGSTOP) warns first and waits the notice, as any other.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from rgt import bundle, files, units
from rgt.errors import RgtError
from rgt.host.ssh import parse_place
from rgt.notice import telling
from rgt.platform import acts, profiles
from rgt.run import billing
from rgt.run import lease as leases
from rgt.run.lease import Lease
from rgt.run.record import log_decision

WARN = 0.8  # share of the time or the money
_NOTICE, _NOTICE_SHARE = 300.0, 0.05  # seconds between the last warning and the act; of a short lease, this share
_LIST_EVERY = 600.0  # seconds between two looks at the provider's list
_FIRST, _LONGEST, _MOST = 300.0, 6 * 3600.0, 12  # distance of the messages after the end, and how many there are
_PULL_SECONDS = 24 * 3600.0
_IDLE_PERCENT = 5
_LONG = 500  # characters of a tool's words in a message
_TIMER_LATER = 1800.0  # seconds after the lease's end: the timer on the box knows nothing of pulls and runs
_TIMER_FILE = "~/.cache/rgt/lease-timer.sh"
_LOOP = """\
# By rgt lease: stops this box when the time in ~/.rgt-lease (seconds since 1970) is over; without the file it ends.
f=$HOME/.rgt-lease
echo $$ > "$f.pid"
while [ -s "$f" ]; do
    [ "$(cat "$f.pid")" = $$ ] || exit 0  # a newer one does it
    left=$(( $(cat "$f") - $(date +%s) ))
    [ "$left" -gt 0 ] || break
    sleep $(( left < 60 ? left : 60 ))
done
[ -s "$f" ] || exit 0
rm -f "$f"
{stop}
"""
_ARM = """\
echo $(( $(date +%s) + $1 )) > "$HOME/.rgt-lease"
if command -v setsid >/dev/null; then s=setsid; else s=; fi
$s nohup sh "$0" </dev/null >"$HOME/.rgt-lease.log" 2>&1 &
"""


class Keeper:
    def __init__(self, lease: Lease, lock: int | None = None) -> None:
        self.lease, self.lock = lease, lock
        self.path = lease.folder / "memory.json"
        self.memory: dict[str, Any] = {}
        with contextlib.suppress(RgtError, TypeError, ValueError):
            self.memory = dict(files.read_json(self.path))

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        return profiles.load(self.lease.profile)

    # -- one turn

    def turn(self) -> float | None:
        """Seconds until the next one is due; None when the lease is over."""
        lease = self.lease = leases.read(self.lease.file)
        if lease.state != leases.ACTIVE:
            return None
        now, memory = lease.now(), self.memory
        if memory.get("generation") != lease.generation:  # extended: what was counted before is void
            memory |= {"generation": lease.generation, "soon": None, "attempt": 0, "next": 0.0, "idle_since": None}
        # the provider's list now and then, so that a stop or start by others is in the events; and idleness
        if not 0 <= now - memory.get("listed", 0.0) < _LIST_EVERY:
            memory["listed"] = now
            self._listed()
        every = max(lease.every, min(_LIST_EVERY, (lease.idle or 0.0) / 6))
        late = now - memory.get("idle_looked", 0.0)
        if lease.idle and not lease.due and not 0 <= late < every:
            since = memory.get("idle_since") if late < 3 * every + 60 else None  # nobody looked meanwhile
            memory |= {"idle_looked": now, "idle_since": (since or now) if self._is_idle() else None}
        wait: float | None = lease.every
        if lease.due:
            wait = self._finish(now) if now >= memory["next"] else min(lease.every, memory["next"] - now)
        else:
            wait = self._approach(now)
        memory |= {"time": time.time(), "pid": os.getpid(), "doing": "", "error": ""}
        self.remember()
        return wait

    def _approach(self, now: float) -> float:
        """Before the end: warn at 80 % and shortly before; then the end is due, and written down."""
        lease, memory = self.lease, self.memory
        ends, why, share = self.end(now)
        notice = min(_NOTICE, _NOTICE_SHARE * (lease.seconds or lease.idle or _NOTICE / _NOTICE_SHARE))
        if now < ends - notice:
            memory["soon"] = None
            if share >= WARN:
                self.tell("80%", f"{lease.title}: {share:.0%} of its lease is used", self._prospects(ends, why, now))
            return max(0.0, min(lease.every, ends - notice - now))
        if not memory.get("soon"):
            memory["soon"] = now
            key = f"soon/{memory.get('idle_since') or ''}"
            prospects = self._prospects(max(ends, now + notice), why, now)
            self.tell(key, f"{lease.title}: its lease ends soon", prospects, True)
        at = max(ends, memory["soon"] + notice)
        if now < at:
            return float(min(lease.every, at - now))
        with leases.change(lease) as fresh:
            if (fresh.state, fresh.generation) == (leases.ACTIVE, lease.generation):
                fresh.due = {"time": now, "why": why}
        self.log("due", why=why)
        memory["next"] = now
        return 0.0

    def end(self, now: float) -> tuple[float, str, float]:
        """When it ends, why, and the share of it that is used: time, money and idleness, whatever comes first."""
        lease, found = self.lease, []
        if lease.seconds:
            ends = lease.started + lease.seconds
            why = f"its {units.show_duration(lease.seconds)} are over"
            found.append((ends, why, (now - lease.since) / max(ends - lease.since, 1e-9)))
        cost = self.cost(now)
        if lease.most and cost is not None:
            left = max(0.0, lease.most - cost) / max(lease.rate or 0.0, 1e-9) * 3600
            found.append((now + left, f"it cost {cost:.2f} of {lease.most:g}", cost / lease.most))
        if lease.idle and self.memory.get("idle_since"):
            why = f"it was idle for {units.show_duration(lease.idle)}: no GPU used, no log line, no writer"
            found.append((self.memory["idle_since"] + lease.idle, why, 0.0))
        ends, why, _ = min(found, default=(float("inf"), "", 0.0))
        return ends, why, max((share for _, _, share in found), default=0.0)

    def cost(self, now: float) -> float | None:
        """Since the lease began, with the stops and starts that were seen."""
        return lease_bill(self.lease, now).cost

    # -- the end

    def _finish(self, now: float) -> float | None:
        """Look anew; then pull, verify, stop; or tell why not, and try again later."""
        lease, memory = self.lease, self.memory
        listing = self._listed()
        rows = listing.having(lease.box_id)
        if rows and not listing.problem and all(row.stopped or row.ended for row in rows):
            self._close(f"the provider lists it as {rows[0].status}", now)
            return None
        reasons = []
        if listing.problem:
            reasons.append(f"what the provider lists cannot be read: {listing.problem} {listing.said}".strip())
        elif not rows:
            reasons.append("it is not in the provider's list: gone, or of another account; nothing was done")
        if lease.on_end == "tell":
            reasons.append("it was asked to tell only")
        elif lease.spent:
            begun = time.strftime("%H:%M UTC", time.gmtime(lease.spent))
            reasons.append(f"its stop was begun at {begun} and is not seen done; it is not done a second time")
        else:
            self.log("ending", attempt=memory["attempt"] + 1)
            reasons += self._pull()
            reasons += [] if reasons else self._down()
            if not reasons:
                self._close("pulled, verified, and the provider lists it as stopped", now)
                return None
        return self._louder("; ".join(reasons), lease.now())

    def _pull(self) -> list[str]:
        """Why it is not pulled and verified; empty when it is."""
        lease = self.lease
        if not lease.source:
            return [f"where {lease.run_id} can be pulled from is not known"]
        code, answer, said = self._tool("transfer", "pull", lease.source, lease.local)
        return [] if code == 0 and answer.get("proof") else [f"not pulled and verified: {_sentence(answer, said)}"]

    def _down(self) -> list[str]:
        lease = self.lease
        more = [word for name, value in lease.values.items() if name != "id" for word in ("--set", f"{name}={value}")]
        words = (lease.local, "--profile", lease.profile, "--id", lease.box_id, *more, "--act", "stop")
        code, answer, said = self._tool("transfer", "down", *words, "--lease", lease.file, "--execute")
        if code == 0 and answer.get("gone"):
            return []
        what = "the stop is not seen done" if answer.get("executed") else "not stopped"
        return [f"{what}: {_sentence(answer, said)}"]

    def _tool(self, *words: object) -> tuple[int, dict[str, Any], str]:
        """Exit code, JSON and stderr. The child holds our lock, too: a second keeper does not begin while it works."""
        tool, *rest = map(str, words)
        self.memory |= {"doing": f"{tool} {rest[0]}", "time": time.time(), "pid": os.getpid()}
        self.remember()
        try:
            done = run_tool(tool, [*rest, "--json"], () if self.lock is None else (self.lock,))
        except (OSError, subprocess.TimeoutExpired) as error:
            return 1, {}, f"rgt {tool} {rest[0]}: {error}"
        said = done.stderr.decode(errors="replace")
        with contextlib.suppress(ValueError):
            answer = json.loads(done.stdout)
            return done.returncode, answer if isinstance(answer, dict) else {}, said
        return done.returncode, {}, said

    def _listed(self) -> acts.Listing:
        """The list now; what it shows of our box goes to the events when it changed."""
        lease = self.lease
        listing = acts.ask(self.facts, lease.values)
        rows = [] if listing.problem else listing.having(lease.box_id)
        if rows:
            up = not all(row.stopped or row.ended for row in rows)
            if up != self.memory.get("up", True):
                with contextlib.suppress(RgtError):
                    facts = {"time": lease.now(), "by": "provider's list", "id": lease.box_id}
                    log_decision(Path(lease.local), "box_started" if up else "box_stopped", **facts)
            self.memory["up"] = up
        self.memory["listing"] = listing.problem or (rows[0].status if rows else "not listed")
        return listing

    def _louder(self, why: str, now: float) -> float | None:
        lease, memory = self.lease, self.memory
        fresh = leases.read(lease.file)
        if fresh.state != leases.ACTIVE or fresh.generation != lease.generation:
            return 0.0  # ended or extended while we worked: nothing to complain about
        memory["attempt"] += 1
        last = memory["attempt"] >= _MOST
        wait = min(_LONGEST, _FIRST * 2 ** (memory["attempt"] - 1))
        again = "this is the last message" if last else f"again in {units.show_duration(wait)}"
        by_hand = bundle.command("transfer", "down", lease.local, "--profile", lease.profile, "--id", lease.box_id)
        lines = [
            f"Its lease is over ({(lease.due or {}).get('why')}), and it is NOT stopped: {why}",
            f"Cost so far: {_money(self.cost(now))}. Message {memory['attempt']}, {again}.",
            f"By hand: {by_hand}",
            f"Longer: {bundle.command('lease', 'extend', lease.box_id, '--until', '2h')}",
        ]
        title = f"{lease.title}: NOT stopped at the end of its lease"
        self.tell(f"over/{memory['attempt']}", title, "\n".join(lines), True)
        self.log("not_stopped", reasons=why, attempt=memory["attempt"])
        if last:
            with leases.change(lease) as fresh:
                fresh.state = leases.UNRESOLVED
            return None
        memory["next"] = now + wait
        return float(min(lease.every, wait))

    def _close(self, why: str, now: float) -> None:
        """Told before the lease is over: a keeper that dies in between is followed by one that tells it."""
        lease, facts = self.lease, self.facts
        lines = [
            f"{(lease.due or {}).get('why')}: {why}. Cost of the lease: {_money(self.cost(now))}.",
            f"The run is in {lease.local}.",
            f"Stopped, it bills: {facts['meter']['stopped_still_bills']['value']}.",
            f"Deletes by itself: {facts['auto_release']['value']}.",
        ]
        self.tell("stopped", f"{lease.title}: stopped at the end of its lease", "\n".join(lines))
        with leases.change(lease) as fresh:
            fresh.state = leases.STOPPED
        self.log("stopped", reason=why)

    # -- idleness

    def _is_idle(self) -> bool:
        """GPUs unused, the log silent for the whole time, no writer in sight; what cannot be asked is not idle."""
        lease = self.lease
        if not lease.source:
            return False
        verb = "poll" if ":" in lease.source.partition("/")[0] else "show"
        _, look, _ = self._tool("watch", verb, lease.source)
        with contextlib.suppress(KeyError, TypeError, AttributeError):
            cards, now = look["machine"].get("gpus", []), look["now"]
            unused = all(card["utilization"] is not None and card["utilization"] < _IDLE_PERCENT for card in cards)
            return unused and not now["writers"] and now["age"] is not None and now["age"] >= lease.idle
        return False

    # -- words

    def tell(self, key: str, title: str, text: str, urgent: bool = False) -> None:
        """Once for each event of each generation of this lease. Who could not be told is in the event."""
        known = self.memory.setdefault("told", [])
        name = f"{self.lease.generation}/{key}"
        if name in known:
            return
        try:
            outcomes = telling.tell(f"lease/{self.lease.lease_id}/{self.lease.generation}/{key}", title, text, urgent)
        except RgtError as error:
            outcomes = [telling.Outcome("config", telling.FAILED, error.message)]
        known.append(name)
        channels = {one.channel: one.state + (f": {one.say}" if one.say else "") for one in outcomes}
        self.log("told", key=key, title=title, channels=channels or "no channel is configured")
        print(f"{time.strftime('%F %T')} {title}\n{text}\n{channels}", file=sys.stderr, flush=True)

    def log(self, what: str, **detail: Any) -> None:
        with contextlib.suppress(RgtError):  # a full disk must not keep the keeper from telling
            self.lease.log(what, **detail)

    def remember(self) -> None:
        with contextlib.suppress(RgtError):
            files.write_json(self.path, self.memory)

    def _prospects(self, ends: float, why: str, now: float) -> str:
        lease = self.lease
        end = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(ends))
        act = "the run is pulled, verified, and the box is stopped" if lease.on_end == "stop" else "you are told again"
        return "\n".join(
            [
                f"{end} (in {units.show_duration(max(0.0, ends - now))}) {act}: {why}.",
                f"Cost so far: {_money(self.cost(now))}.",
                f"Longer: {bundle.command('lease', 'extend', lease.box_id, '--until', '2h')}",
                f"No end any more: {bundle.command('lease', 'end', lease.box_id)}",
            ]
        )


def run_tool(tool: str, words: list[str], held: tuple[int, ...]) -> subprocess.CompletedProcess[bytes]:
    """A tool never imports a tool: it is called. `held` are descriptors that it keeps open."""
    command, null = [sys.executable, str(bundle.SCRIPTS / f"{tool}.py"), *words], subprocess.DEVNULL
    return subprocess.run(command, stdin=null, capture_output=True, timeout=_PULL_SECONDS, pass_fds=held)


def lease_bill(lease: Lease, now: float) -> billing.Bill:
    """Of the time since the lease began."""
    bill = billing.bill_of(Path(lease.local), lease.rate, lease.stopped_rate, now)
    for one in bill.stretches:
        one.start = max(one.start, lease.started)
    return bill


def _money(cost: float | None) -> str:
    return "unknown (no --rate was given)" if cost is None else f"{cost:.2f}"


def _sentence(answer: dict[str, Any], said: str) -> str:
    """What a tool objects to: its findings that are errors, else the last line of its stderr."""
    rows = [str(row.get("message")) for row in answer.get("findings", []) if row.get("severity") != "info"]
    lines = [line for line in said.splitlines() if line.strip()]
    text = "; ".join(rows[:3]) or (lines[-1] if lines else "it said nothing")
    return text if len(text) <= _LONG else f"{text[:_LONG]} ..."


# -- the process


def start(lease: Lease) -> int | None:
    """A keeper of its own session; its pid, or None when one is at work already."""
    try:
        with files.locked(lease.folder / "keeper.lock", wait=False):
            pass
    except BlockingIOError:
        return None
    command = [sys.executable, str(bundle.SCRIPTS / "lease.py"), "keep", str(lease.file)]
    with (lease.folder / "keeper.log").open("ab") as log:
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        return subprocess.Popen(command, cwd="/", start_new_session=True, **streams).pid


def keep(lease: Lease) -> bool:
    """Turn after turn until the lease is over; False when another keeper has it. A failed turn is not the last one."""
    fifo, stop = lease.folder / "wake", []
    with contextlib.suppress(FileExistsError):
        os.mkfifo(fifo, 0o600)
    waking = os.open(fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def end(number: int, _: Any) -> None:
        stop.append(number)
        os.write(waking, b".")  # ends the wait

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with files.locked(lease.folder / "keeper.lock", wait=False) as lock:
            keeper = Keeper(lease, lock)
            wait: float | None = 0.0
            while wait is not None and not stop:
                try:
                    wait = keeper.turn()
                except Exception as error:  # whatever it is, the box goes on billing
                    traceback.print_exc()
                    keeper.memory["error"] = f"{type(error).__name__}: {error}"[:_LONG]
                    keeper.remember()
                    wait = lease.every
                if not lease.file.exists():
                    keeper.tell("gone", f"{lease.title}: its lease is gone, nobody keeps it", str(lease.file), True)
                    break
                if wait and not stop and select.select([waking], [], [], wait)[0]:
                    os.read(waking, 4096)
    except BlockingIOError:
        return False
    return True


def wake(lease: Lease) -> None:
    """Have the keeper look now; nobody reads the pipe when there is none."""
    with contextlib.suppress(OSError):
        descriptor = os.open(lease.folder / "wake", os.O_WRONLY | os.O_NONBLOCK)
        os.write(descriptor, b".")
        os.close(descriptor)


# -- the last end: a loop on the box, also when we are gone; only where a stop keeps the run's disk


def timer_script(facts: dict[str, Any]) -> str:
    """The loop with the platform's own stop; empty where none is known."""
    value = facts["meter"].get("self_stop", {"value": "unknown"})["value"]
    return "" if value.startswith("unknown") else _LOOP.format(stop=value)


def set_timer(lease: Lease, ends: float, script: str = "") -> None:
    """Put the timer there (`script`), or give a running one its new time."""
    host, seconds = parse_place(lease.source or lease.local).host, max(1.0, ends + _TIMER_LATER - lease.now())
    if script:
        host.put(_TIMER_FILE, script.encode(), 0o755)
    done = host.run(["sh", "-c", _ARM, _TIMER_FILE, f"{seconds:.0f}"], expand=(3,))
    if done.code:
        raise RgtError(f"the timer on {host.title} could not be set: {done.sentence()}")


def remove_timer(lease: Lease) -> None:
    host = parse_place(lease.source or lease.local).host
    done = host.run(["sh", "-c", 'rm -f "$HOME/.rgt-lease"'])
    if done.code:
        raise RgtError(f"the timer on {host.title} could not be removed: {done.sentence()}")
