"""board: what 200 runs, 20 of them live, cost the machine that serves them, with one page open."""

from __future__ import annotations

import http.client
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.measure import ROOT, Row, cpu_seconds, tool

sys.path.insert(0, str(ROOT / "scripts"))

from rgt.run import provenance, record
from rgt.watch.look import Target, look

RUNS, LIVE = 200, 20
SECONDS = 30.0
TOTAL = 20_000
MODELS = ("gpt", "vit", "unet", "bert")


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="board-bench-") as name:
        folder = Path(name)
        runs = make_runs(folder / "runs", RUNS, LIVE)
        begun = time.process_time()
        for run in runs[::10]:  # a tenth of them
            look(Target(str(run.path), [run.log, run.metrics], folder / "looks" / run.id, run.path), box=False)
        one_by_one = 10 * (time.process_time() - begun)
        with serving(folder, str(folder / "runs")) as server, page_open(server) as page, training(runs[-LIVE:]):
            page.until(lambda: len(page.rows) == RUNS and not any(row.get("pending") for row in page.rows.values()))
            size, before = page.size, cpu_seconds(server.process.pid)
            time.sleep(SECONDS)
            whole = len(json.dumps(list(page.rows.values())))
            used, sent = cpu_seconds(server.process.pid) - before, page.size - size
            memory = resident(server.process.pid)
        with bare_server() as pid:
            bare = resident(pid)
    say = f"board of {RUNS} runs, {LIVE} live"
    yield Row(f"{say}: CPU / wall clock", used, SECONDS, 0.3)
    yield Row(f"{say}: memory / python -m http.server", memory, bare, 4, unit="MB")
    yield Row(f"{say}: sent to a page / all rows once a second", sent / 1e3, SECONDS * whole / 1e3, 0.1, unit="kB")
    # live ones are judged again meanwhile
    yield Row(f"{say}: CPU until all are judged / looks one by one", before, one_by_one, 3)


# -- runs


def make_runs(root: Path, count: int, live: int, seed: int = 0) -> list[record.Run]:
    """Runs as people have them: finished, failed, stopped, and at the end `live` ones that go on."""
    dice, runs = random.Random(seed), []
    origin = provenance.collect(ROOT, sys.executable)  # once: it asks git and the interpreter
    for number in range(count):
        model, kind, lr = dice.choice(MODELS), dice.choice(("base", "small", "wide")), f"{number % 7 + 1}e-4"
        command = ["python", "train.py", f"--lr={lr}"]
        run = record.create(root, f"{model}-{kind}-lr{lr}", command=command, config={}, origin=origin)
        is_live = number >= count - live
        ended = "" if is_live else dice.choice(["finished"] * 7 + ["failed", "failed", "stopped"])
        steps = TOTAL if ended == "finished" else dice.randrange(1000, TOTAL // 2)
        ago = time.time() - (30 if is_live else dice.uniform(3600, 40 * 86400))
        write_points(run, dice, range(0, steps, 50), ago - steps / 20)
        if ended == "failed":
            with run.log.open("a") as log:
                log.write("Traceback (most recent call last):\nRuntimeError: CUDA out of memory\n")
        each, places = {"time": ago, "bytes": 1 << 28}, range(4000, steps, 4000)
        saved = [{"path": f"checkpoints/step-{at}.pt", "step": at, **each} for at in places]
        run.checkpoints_index.write_text(json.dumps({"checkpoints": saved}))
        if ended:
            run.log_event(ended, **({"exit_code": 1} if ended == "failed" else {}))
            for path in (run.log, run.metrics, run.events, run.run_json):
                os.utime(path, (ago, ago))
        if ended == "finished":
            score = {"name": "loss", "split": "val", "value": round(dice.uniform(0.5, 0.9), 3), "direction": "down"}
            run.results.write_text(json.dumps({"run_id": run.id, "metrics": [{**score, "rule": "last"}]}))
        runs.append(run)
    return runs


def write_points(run: record.Run, dice: random.Random, steps: range, since: float) -> None:
    rate = 3e-4 * (1 + run.path.name.count("wide"))
    with run.metrics.open("a") as metrics, run.log.open("a") as log:
        for step in steps:
            loss = 0.6 + 3.4 * math.exp(-step * rate) + dice.gauss(0, 0.04)
            row: dict[str, Any] = {"step": step, "time": since + step / 20, "split": "train", "loss": round(loss, 4)}
            lr = 3e-4 * min(1, (step + 1) / 500) * (0.5 + 0.5 * math.cos(math.pi * step / TOTAL))
            metrics.write(json.dumps({**row, "lr": lr, "grad_norm": round(abs(dice.gauss(1, 0.2)), 3)}) + "\n")
            log.write(f"step {step}/{TOTAL} loss {loss:.4f} lr {lr:.2e} 20.0 it/s\n")
            if step % 1000 == 0:
                metrics.write(json.dumps({**row, "split": "val", "loss": round(loss + 0.1, 4)}) + "\n")


@contextmanager
def training(runs: list[record.Run], every: float = 1.0) -> Iterator[None]:
    """They go on, two points a second each."""
    stop, dice = threading.Event(), random.Random(1)

    def go_on() -> None:
        at = {run.path: sum(1 for _ in run.log.open()) * 50 for run in runs}
        while not stop.wait(every):
            for run in runs:
                write_points(run, dice, range(at[run.path], at[run.path] + 20, 10), time.time() - at[run.path] / 20)
                at[run.path] += 20

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


# -- server and page


@dataclass
class Served:
    process: subprocess.Popen[str]
    url: str

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    @property
    def cookie(self) -> dict[str, str]:
        return {"Cookie": f"rgt_board_{self.port}={self.url.partition('token=')[2]}"}


@contextmanager
def serving(home: Path, *words: str, port: int = 0) -> Iterator[Served]:
    """`rgt watch serve` as a process of its own, with its cache and token below `home`."""
    env = os.environ | {"XDG_CACHE_HOME": f"{home}/cache", "XDG_STATE_HOME": f"{home}/state"}
    command = tool("watch", "serve", f"--port={port}", *words)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env, cwd=home)
    try:
        assert process.stdout
        yield Served(process, process.stdout.readline().strip())
    finally:
        process.kill()
        process.wait()


class Page:
    """What a browser keeps of the stream."""

    def __init__(self, server: Served, last: str = "") -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.house: dict[str, Any] = {}
        self.messages: list[dict[str, Any]] = []
        self.size, self.id, self.came = 0, "", threading.Condition()
        self.link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self.link.request("GET", "/events", headers=server.cookie | ({"Last-Event-ID": last} if last else {}))
        self.answer = self.link.getresponse()
        assert self.answer.status == 200, self.answer.read()
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        kind = ""
        try:
            for line in self.answer:
                self.size += len(line)
                word, _, rest = line.decode().rstrip("\n").partition(": ")
                with self.came:
                    if word == "id":
                        self.id = rest
                    kind = rest if word == "event" else kind
                    if word == "data" and kind == "change":
                        self._take(json.loads(rest))
                    self.came.notify_all()
        except (OSError, ValueError, http.client.HTTPException):  # closed
            return

    def _take(self, change: dict[str, Any]) -> None:
        self.messages.append(change)
        self.rows |= {row["id"]: row for row in change["rows"]}
        for run_id in change["gone"]:
            self.rows.pop(run_id, None)
        self.house = change.get("house", self.house)

    def until(self, true: Any, seconds: float = 600.0) -> None:
        with self.came:
            assert self.came.wait_for(true, seconds), list(self.rows.values())[:3]


@contextmanager
def page_open(server: Served, last: str = "") -> Iterator[Page]:
    page = Page(server, last)
    try:
        yield page
    finally:
        page.link.close()


@contextmanager
def bare_server() -> Iterator[int]:
    command = [sys.executable, "-m", "http.server", "0", "--bind", "127.0.0.1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1.0)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def resident(pid: int) -> float:
    """MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
