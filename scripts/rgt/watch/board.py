"""What the board shows: a row for each run, kept fresh by one scanner, and what one run's page needs.

Example:
    board = Board([parse_place("runs"), parse_place("box:runs")])
    board.start()                                     one thread for the runs here, one for each other machine
    version, change = board.since(0, seconds=10)      rows that are newer than a version; waits for the first
    board.detail(run_id), board.curves([run_id], "loss")

It only reads runs: a look's memory goes to the user's cache. A run's numbers are read as soon as its files change; its
judgement (a look) follows when its turn comes, so that the scanner takes a fraction of one core. A run that is over is
looked at once; its row is kept in the cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt import files, schema
from rgt.errors import RgtError, bad_input, lacking
from rgt.host import box
from rgt.host.ssh import Place
from rgt.job import queue as gate
from rgt.log.line import plain
from rgt.run import billing, record
from rgt.run import lease as leases
from rgt.run.record import Run
from rgt.walk import walk
from rgt.watch import status
from rgt.watch.board_curves import Curves
from rgt.watch.look import find_target, is_log, look

TICK = 2.0  # seconds between two looks at the files
_LOOK_AGAIN = 30.0  # a run whose files rest may have stalled meanwhile
_LIVE = 10.0  # a judgement older than this, of a run that goes on, comes before runs that nobody has looked at yet
_DISCOVER = 10.0
_LOOK_TIME = 0.4  # seconds of CPU for judgements in one tick; the numbers come first
_REST = 3.0  # times the CPU seconds of a tick that are rested after it: a quarter of one core
_HOUSE = 5.0  # seconds between two looks at queue and leases
_FAR = 20.0  # between two connections to a box, and at least so many times the last one's length:
_FAR_REST = 5.0
_RUNS = 1000  # of one place, the newest
_POINTS = 2_000_000  # of all curves in memory, 16 bytes each; then those that nobody asked for go
_SPARK, _PAGE = 24, 600  # buckets of a sparkline, of a curve on a page
_TAIL, _LINES, _LINE = 64 << 10, 200, 500  # of the log on a run's page: bytes, lines, characters
_ROWS = 200  # of events and checkpoints on a run's page
_ENDED = 10  # jobs of the gate
_BROKEN = (RgtError, OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError)  # a file of strangers
_LOG_NAMES = (".log", ".out", ".err", ".txt", ".jsonl")
_OURS = ("training_status.md", "watch")  # written by watchers, not by the run

Row = dict[str, Any]
Elsewhere = Callable[[Run], "dict[str, Any] | None"]


@dataclass
class Local:
    """A run in a folder here."""

    id: str
    folder: Path
    row: Row
    files: tuple[Any, ...] = ()  # name, size and time of each
    looked: float = 0.0  # when, by the monotonic clock
    looked_files: tuple[Any, ...] | None = None
    judged: dict[str, Any] = field(default_factory=dict)  # what its page shows of the last look
    curves: Curves | None = None
    used: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def keep(self) -> Path:
        """Not the run's own watch/ folder, whose memory says what changed since a person's or the daemon's look."""
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return home / "rgt" / "board" / hashlib.sha256(os.fsencode(self.folder.absolute())).hexdigest()[:16]

    @property
    def is_only_a_record(self) -> bool:
        run = Run(self.folder)
        return run.run_json.is_file() and not (run.log.exists() or run.metrics.exists())

    def stamp(self) -> tuple[Any, ...]:
        """Changes with every file of the run; also the time of its last line."""
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            rows = [(e.name, e.stat().st_size, e.stat().st_mtime) for e in entries if e.name not in _OURS]
            lines = [at for name, _, at in rows if name.endswith(_LOG_NAMES) and name != "events.jsonl"]
            self.row["last"] = round(max(lines), 1) if lines else None
            return tuple(sorted(rows))
        return ()

    def read_curves(self) -> Curves:
        with self.lock:
            self.used, self.curves = time.monotonic(), self.curves or Curves(self.folder)
            self.curves.read()
            return self.curves


class Board:
    def __init__(self, places: Iterable[Place], look_elsewhere: Elsewhere | None = None) -> None:
        self.places, self.look_elsewhere = list(places), look_elsewhere
        self.changed, self.stop = threading.Condition(), threading.Event()
        self.version = 0
        self.rows: dict[str, tuple[int, Row]] = {}
        self.gone: dict[str, int] = {}
        self.house: tuple[int, dict[str, Any]] = (0, {"queue": [], "leases": []})
        self.runs: dict[str, Local] = {}
        self.far: dict[str, Place] = {}  # the place of each run of another machine
        self.far_queues: dict[str, list[Row]] = {}

    # -- what changed

    def publish(self, run_id: str, row: Row) -> None:
        with self.changed:
            if self.rows.get(run_id, (0, None))[1] != row:
                self.version += 1
                self.rows[run_id] = self.version, dict(row)
                self.gone.pop(run_id, None)
                self.changed.notify_all()

    def drop(self, run_id: str) -> None:
        with self.changed:
            if self.rows.pop(run_id, None):
                self.version += 1
                self.gone[run_id] = self.version
                self.changed.notify_all()

    def since(self, version: int, seconds: float = 0.0) -> tuple[int, dict[str, Any]]:
        """What is newer than `version`; waits so long for something."""
        with self.changed:
            self.changed.wait_for(lambda: self.version > version or self.stop.is_set(), seconds)
            change: dict[str, Any] = {"rows": [row for at, row in self.rows.values() if at > version]}
            change["gone"] = [run_id for run_id, at in self.gone.items() if at > version]
            if self.house[0] > version:
                change["house"] = self.house[1]
            return self.version, change

    # -- the scanner

    def start(self) -> None:
        jobs: list[tuple[Callable[..., None], tuple[Any, ...]]] = [(self._scan, ())]
        jobs += [(self._ask_again, (place,)) for place in self.places if place.host.name]
        jobs += [(self._look_far_away, ())] if self.look_elsewhere else []
        for target, words in jobs:
            threading.Thread(target=target, args=words, daemon=True).start()

    def close(self) -> None:
        self.stop.set()
        with self.changed:
            self.changed.notify_all()

    def _scan(self) -> None:
        discovered = housed = -math.inf
        while not self.stop.is_set():
            began, now = time.thread_time(), time.monotonic()
            if now - discovered >= _DISCOVER:
                discovered = now
                self.discover()
            due = [run for run in self.runs.values() if self._read_numbers(run)]
            due.sort(key=lambda run: (not 0 < run.looked < now - _LIVE, run.looked, -(run.row["last"] or 0.0)))
            for run in due:
                self.judge(run)
                if time.thread_time() - began > _LOOK_TIME or self.stop.is_set():
                    break
            if now - housed >= _HOUSE:
                housed = now
                self.look_at_house()
            self._forget_curves()
            waiting = any(run.looked == 0.0 for run in self.runs.values())
            self.stop.wait(0.02 if waiting else max(TICK, _REST * (time.thread_time() - began)))

    def discover(self) -> None:
        """Runs that came or went."""
        here: dict[str, Local] = {}
        for place in self.places:
            if not place.host.name:
                for folder in run_folders(Path(place.path))[-_RUNS:]:
                    run_id = _identify(place.text, str(folder))
                    inside = os.path.relpath(folder, place.path)
                    name = folder.absolute().name if inside == "." else inside
                    row = {"id": run_id, "place": place.text, "name": name, "path": str(folder)}
                    here[run_id] = self.runs.get(run_id) or Local(
                        run_id, folder, row | {"state": "unread", "pending": True}
                    )
        for run_id in self.runs.keys() - here.keys():
            self.drop(run_id)
        self.runs = here

    def _read_numbers(self, run: Local) -> bool:
        """Step, last value and sparkline of a run whose files changed; whether a judgement is due."""
        stamp = run.stamp()
        changed, first = stamp != run.files, not run.files
        run.files = stamp
        over = run.row["state"] in record.OVER
        if first and _recall(run):  # it was over when somebody last looked, and nothing has changed since
            run.looked, run.looked_files = time.monotonic(), stamp
            self.publish(run.id, run.row)
            return False
        if first:  # a look at hundreds of runs takes a while: what costs little is shown before
            with contextlib.suppress(*_BROKEN):
                ended = record.state_after(files.read_jsonl(Run(run.folder).events, bad=[]))
                run.row["state"] = ended if ended in record.OVER else run.row["state"]
        if changed and (first or not over):
            self._add_numbers(run)
        if changed:
            self.publish(run.id, run.row)
        again = not over and time.monotonic() - run.looked > _LOOK_AGAIN
        return stamp != run.looked_files or again

    def _add_numbers(self, run: Local) -> None:
        curves, metric = run.read_curves(), run.row.get("metric") or "loss"
        run.row["metrics"] = sorted(curves.by_name)
        if metric in curves.last:
            run.row["value"] = files.json_number(curves.last[metric])
        if curve := curves.by_name.get(metric):
            run.row["spark"] = [float(f"{y:.4g}") for y in curve.thinned(_SPARK)[1]]
            run.row |= {"step": int(curve.xs[-1])} if run.row.get("total") else {}

    def judge(self, run: Local) -> None:
        """One look. A run that cannot be looked at is a row that says why."""
        run.looked_files, run.looked = run.files, time.monotonic()
        run.row.pop("pending", None)
        try:
            if run.is_only_a_record and self.look_elsewhere and run.row["state"] != "unread":
                return  # the other thread asks its machine
            target = find_target((str(run.folder),))
            if target.keep.parent == run.folder:
                _borrow(target.keep, run.keep)
            target.keep = run.keep
            found = look(target, box=False)
        except _BROKEN as error:
            run.row |= {"state": record.UNKNOWN, "problem": getattr(error, "message", None) or str(error)}
            self.publish(run.id, run.row)
            return
        run.row.pop("problem", None)
        run.row |= row_of(found)
        run.judged = judgement(found)
        self._add_numbers(run)
        self.publish(run.id, run.row)
        if run.row["state"] in record.OVER:
            _remember(run)

    def _forget_curves(self) -> None:
        loaded = sorted((run for run in self.runs.values() if run.curves), key=lambda run: run.used)
        left = sum(run.curves.points for run in loaded if run.curves)
        for run in loaded:
            if left <= _POINTS:
                return
            left -= run.curves.points if run.curves else 0
            run.curves = None

    def look_at_house(self) -> None:
        """The gate's queue and the leases; a run with a lease costs money until it ends, also when nothing runs."""
        house: dict[str, Any] = {"queue": [{**job, "host": ""} for job in queue_rows()], "leases": []}
        house["queue"] += [{**job, "host": name} for name, jobs in self.far_queues.items() for job in jobs]
        by_folder = {os.path.realpath(run.folder): run for run in self.runs.values()}
        for folder, lease in leases.every():
            if lease is None:
                house["leases"].append({"box": folder.name, "problem": "its file is gone or broken"})
                continue
            row = {name: getattr(lease, name) for name in ("state", "run_id", "on_end", "most", "idle")}
            row |= {"box": lease.title, "ends": lease.started + lease.seconds if lease.seconds else None}
            house["leases"].append(row)
            if run := by_folder.get(os.path.realpath(lease.local)):
                run.row |= {"lease": row, "cost": billing.bill_of(run.folder).cost}
                self.publish(run.id, run.row)
        with self.changed:
            if house != self.house[1]:
                self.version += 1
                self.house = self.version, house
                self.changed.notify_all()

    # -- other machines

    def _ask_again(self, place: Place) -> None:
        """One connection after the other, each bounded by ssh's and our own time limit."""
        while not self.stop.is_set():
            began = time.monotonic()
            self.ask(place)
            self.stop.wait(max(_FAR, _FAR_REST * (time.monotonic() - began)))

    def ask(self, place: Place) -> None:
        place_id = _identify(place.text, "")
        known = [run_id for run_id, where in self.far.items() if where == place]
        waiting = {"id": place_id, "place": place.text, "name": place.text, "path": "", "state": record.UNKNOWN}
        if not known:
            self.publish(place_id, waiting | {"problem": "no answer yet", "asked": round(time.time())})
        try:
            answer = _ask_box(place)
        except RgtError as error:
            since = (self.rows.get(place_id, (0, {}))[1]).get("asked") or round(time.time())
            self.publish(place_id, waiting | {"problem": error.message, "asked": since})
            for run_id in known:
                self.publish(run_id, self.rows[run_id][1] | {"stale": True})
            return
        self.drop(place_id)
        came = set()
        for row in answer["runs"]:
            run_id = _identify(place.text, row["path"])
            came.add(run_id)
            self.far[run_id] = place
            self.publish(run_id, row | {"id": run_id, "place": place.text})
        for run_id in set(known) - came:
            del self.far[run_id]
            self.drop(run_id)
        self.far_queues[place.host.name] = answer["queue"]

    def _look_far_away(self) -> None:
        """At runs of which only the record is here."""
        asked: dict[str, float] = {}
        while not self.stop.wait(TICK):
            for run in list(self.runs.values()):
                due = time.monotonic() - asked.get(run.id, -math.inf) > _LOOK_AGAIN
                if due and run.looked and run.row["state"] not in record.OVER and run.is_only_a_record:
                    self.look_away(run)
                    asked[run.id] = time.monotonic()

    def look_away(self, run: Local) -> None:
        try:
            found = self.look_elsewhere(Run(run.folder)) if self.look_elsewhere else None
            if found:
                last = found["now"]["time"] - (found["now"]["age"] or 0.0)
                run.row |= row_of(found) | {"last": last, "problem": None}
                run.judged = judgement(found)
        except _BROKEN as error:
            run.row |= {"problem": getattr(error, "message", None) or str(error)}
        self.publish(run.id, run.row)

    # -- one run

    def detail(self, run_id: str) -> dict[str, Any]:
        """All that its page shows but the curves; KeyError for a run that is not on the board."""
        row = self.rows[run_id][1]
        if place := self.far.get(run_id):
            answer: dict[str, Any] = _ask_box(Place(place.host, row["path"])).get("detail") or {}
            return answer | {"row": row}
        run = self.runs[run_id]
        return detail_of(Run(run.folder)) | run.judged | {"row": row}

    def curves(
        self, run_ids: list[str], metric: str, buckets: int = _PAGE, low: float = -math.inf, high: float = math.inf
    ) -> dict[str, Any]:
        """The metric's curve of each run that has it, and the names of all curves, those of most runs first."""
        counts: dict[str, int] = {}
        found: dict[str, Any] = {}
        for run_id in run_ids:
            if run_id in self.far:
                there = self.detail(run_id).get("curves") or {}
                names, points = list(there), there.get(metric)
            else:
                run = self.runs[run_id]
                by_name = run.read_curves().by_name
                names, points = list(by_name), None
                if metric in by_name:
                    with run.lock:
                        points = [list(part) for part in by_name[metric].thinned(buckets, low, high)]
            for name in names:
                counts[name] = counts.get(name, 0) + 1
            if points:
                found[run_id] = points
        order = {name: at for at, name in enumerate(("loss", "train_loss", "val_loss"))}
        names = sorted(counts, key=lambda name: (-counts[name], order.get(name, 9), name))
        return {"names": names, "metric": metric, "curves": found}


# -- looking once: for --json, for the static page, and on a box for the board of another machine


def look_once(places: list[Place], look_elsewhere: Elsewhere | None = None) -> Board:
    board = Board(places, look_elsewhere)
    board.discover()
    for run in board.runs.values():
        if board._read_numbers(run):
            board.judge(run)
        if look_elsewhere and run.is_only_a_record:
            board.look_away(run)
    for place in places:
        if place.host.name:
            board.ask(place)
    board.look_at_house()
    return board


def snapshot(board: Board) -> dict[str, Any]:
    """As `rgt watch serve --json` prints it; of a place that is one run, with its page."""
    rows = [row for _, row in board.rows.values()]
    answer: dict[str, Any] = {"runs": rows, **board.house[1]}
    if len(rows) == 1 and rows[0]["place"] == rows[0]["path"]:
        answer["detail"] = board.detail(rows[0]["id"])
        curves = board.runs[rows[0]["id"]].read_curves().by_name
        answer["detail"]["curves"] = {
            name: [list(part) for part in curve.thinned(_PAGE // 2)] for name, curve in curves.items()
        }
    return answer


def _ask_box(place: Place) -> dict[str, Any]:
    """The answer is the box's word: its form is checked before anything is shown."""
    done = box.run_tool(place.host, "watch", ["serve", "--json", "--", place.path], expand=(3,))
    try:
        answer = json.loads(done.out)
    except (ValueError, RecursionError):
        raise lacking(f"{place.text}: {done.sentence().removeprefix('error: ')}") from None
    schema.check(answer, "board", f"the answer of {place.host.title}")
    return dict(answer)


# -- rows and pages


def run_folders(root: Path) -> list[Path]:
    """Run directories, oldest first; and folders in it that have a log but no record."""
    found = [run.path for run in record.find(root)]
    taken = {path.relative_to(root).parts[0] for path in found if path != root}
    met = walk(str(root), depth=1) if root not in found else ()
    logged = {Path(folder) for folder, entry, _ in met if is_log(entry.name) and entry.is_file()}
    others = {path for path in logged if path.name not in taken and (path != root or not found)}
    return sorted([*found, *others], key=lambda path: path.name)


def row_of(found: dict[str, Any]) -> Row:
    """What the overview shows of a look."""
    now, metrics = found["now"], found["now"]["metrics"]
    metric = found["roles"].get("loss") or found["roles"].get("val_loss") or next(iter(metrics), None)
    serious = sorted(found["findings"], key=lambda row: ("error", "warn", "info").index(row["severity"]))
    return {
        **{name: now[name] for name in ("state", "step", "total", "epoch", "epochs", "it_per_s", "tokens_per_s")},
        "ends": None if now["eta"] is None else round(now["time"] + now["eta"]),
        "metric": metric,
        "value": metrics.get(metric),
        "findings": [{name: row[name] for name in ("code", "severity", "message")} for row in serious[:6]],
        "cost": found.get("cost"),
    }


def judgement(found: dict[str, Any]) -> dict[str, Any]:
    word, reason = status.decide(found)
    decision = {"word": word, "reason": reason, "next": status.next_command(found)}
    return {"findings": found["findings"], "decision": decision}


def detail_of(run: Run) -> dict[str, Any]:
    """What its files hold for its page."""
    detail: dict[str, Any] = {"log": None, "events": [], "checkpoints": [], "results": [], "record": {}}
    with contextlib.suppress(*_BROKEN):
        logs = find_target((str(run.path),)).logs
        detail["log"] = tail(logs[0]) if logs else None
    lists: dict[str, Callable[[], Any]] = {
        "events": lambda: files.read_jsonl(run.events, bad=[]),
        "checkpoints": lambda: files.read_json(run.checkpoints_index)["checkpoints"],
        "results": lambda: files.read_json(run.results)["metrics"],
    }
    for name, read in lists.items():
        with contextlib.suppress(*_BROKEN):
            detail[name] = [row for row in read() if isinstance(row, dict)][-_ROWS:]
    with contextlib.suppress(*_BROKEN):
        known = files.read_json(run.run_json)
        detail["record"] = {name: known[name] for name in ("created", "command", "backend", "seeds") if name in known}
    return detail


def tail(path: Path) -> dict[str, Any]:
    """The newest lines of a log; what a bar drew over itself is left out."""
    try:
        with files.open_regular(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            text = file.read(_TAIL).decode(errors="replace")
    except (OSError, RgtError) as error:
        return {"path": str(path), "lines": [str(error)], "cut": False}
    lines = [plain(line.rstrip("\r").rpartition("\r")[2])[:_LINE] for line in text.split("\n")]
    lines = lines[1 if size > _TAIL else 0 :]
    lines = lines[: -1 if lines and not lines[-1] else None]
    return {"path": str(path), "lines": lines[-_LINES:], "cut": size > _TAIL or len(lines) > _LINES}


def queue_rows() -> list[Row]:
    """Jobs of the gate of this machine: those that run or wait, and the last that ended."""
    queue = gate.Queue(Path(os.environ.get("RGT_QUEUE") or gate.default_directory()))
    names = ("id", "name", "state", "reason", "submitted", "started", "ended", "exit_code")
    with contextlib.suppress(*_BROKEN):
        jobs = [{name: job.get(name) for name in names} | {"gpus": job.get("gpus") or []} for job in queue.records()]
        ended = [job for job in jobs if job["state"] in gate.FINAL]
        return [job for job in jobs if job["state"] not in gate.FINAL] + ended[: -_ENDED - 1 : -1]
    return []


def _identify(place: str, path: str) -> str:
    return hashlib.sha256(f"{place}\0{path}".encode(errors="surrogateescape")).hexdigest()[:12]


def _remember(run: Local) -> None:
    """Of a run that is over its row is enough; the look's memory of every curve goes."""
    kept = {"files": run.files, "row": run.row, "judged": run.judged}
    with contextlib.suppress(*_BROKEN):
        files.write_bytes(run.keep / "row.json", files.dump(kept, "the row"))
        (run.keep / "state.json").unlink()


def _recall(run: Local) -> bool:
    with contextlib.suppress(*_BROKEN):
        known = files.read_json(run.keep / "row.json")
        if known["files"] == [list(row) for row in run.files] and known["row"]["state"] in record.OVER:
            run.judged = dict(known["judged"])
            run.row = {**known["row"], **{name: run.row[name] for name in ("id", "place", "name", "path")}}
            return True
    return False


def _borrow(theirs: Path, ours: Path) -> None:
    """Start from what a watcher of the run has read already, and hear of its heartbeat."""
    with contextlib.suppress(OSError):
        if not (ours / "state.json").exists() and (theirs / "state.json").is_file():
            ours.mkdir(parents=True, exist_ok=True)
            (ours / "state.json").write_bytes((theirs / "state.json").read_bytes())
        if not (ours / "heartbeat.json").exists() and (theirs / "heartbeat.json").exists():
            (ours / "heartbeat.json").symlink_to((theirs / "heartbeat.json").absolute())


def check_places(places: list[Place]) -> None:
    for place in places:
        if not place.host.name and not Path(place.path).is_dir():
            raise bad_input(f"{place.path} is not a folder; name one with runs, or HOST:RUNS")
