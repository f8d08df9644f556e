"""What waits and what runs in the queues and terminals of this machine: gpu_gate, Slurm, tsp, tmux, screen, docker.

Example:
    for row in read(): row.tool, row.problem, row.jobs

Only looks: `tsp` would start a server where none runs, tmux and screen would make their directories, so each is asked
only where its socket is alive already.
"""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from inventory import outside
from rgt import gate, procs

_ENDED_SHOWN = 20  # finished gpu_gate jobs that are listed
_PANE_LINES = 200
_GATE_FIELDS = "id name state reason command cwd log gpus submitted started ended exit_code".split()
Job = dict[str, Any]


@dataclass
class Row:
    """One tool. `problem` says why it has no jobs to show: not installed, not running, failed."""

    tool: str
    jobs: list[Job] = field(default_factory=list)
    problem: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


def read(directories: list[Path], seconds: float = outside.SECONDS) -> list[Row]:
    """All tools at once; one that is missing or fails is a row that says so."""
    asks: dict[str, Callable[[], Row]] = {
        "gpu_gate": lambda: gpu_gate(directories),
        "slurm": slurm,
        "tsp": tsp,
        "tmux": tmux,
        "screen": screen,
        "docker": docker,
    }
    results, problems = outside.together(asks, seconds + 1)
    return [results.get(name) or Row(name, problem=problems.get(name)) for name in asks]


def gpu_gate(directories: list[Path]) -> Row:
    """Every queue directory: the user's own, those named, and those that running gates hold open."""
    places = dict.fromkeys([*directories, *_default_queue(), *_open_queues()])
    jobs = [_gate_job(place, record) for place in places for record in gate.Queue(place).records()]
    ended = [job for job in jobs if job["state"] in gate.FINAL]
    hidden = {id(job) for job in ended[:-_ENDED_SHOWN]}
    kept = [job for job in jobs if id(job) not in hidden]
    return Row("gpu_gate", kept, None if kept else "no jobs")


def _default_queue() -> list[Path]:
    named = os.environ.get("RGT_QUEUE")
    return [Path(named).absolute() if named else gate.default_directory()]


def _open_queues() -> list[Path]:
    """A gate and all of its job hold <queue>/jobs/<id>.lock open."""
    found = []
    for pid in procs.pids():
        if any("gpu_gate" in word for word in procs.command(pid)[:3]):
            for _, target in procs.descriptors(pid) or []:
                if target.endswith(".lock") and os.path.basename(os.path.dirname(target)) == "jobs":
                    found.append(Path(target).parent.parent)
    return found


def _gate_job(queue: Path, record: gate.Record) -> Job:
    return {"queue": str(queue), **{name: record.get(name) for name in _GATE_FIELDS}}


def slurm() -> Row:
    """The user's own jobs; their working directories tell where to look for logs."""
    fields = ("id", "name", "state", "elapsed", "left", "where", "cwd")
    answer = outside.tool("squeue", "-h", "-u", getpass.getuser(), "-o", "%i\t%j\t%T\t%M\t%L\t%R\t%Z")
    return _table("slurm", answer, fields)


def docker() -> Row:
    fields = ("id", "name", "image", "status", "command")
    format_ = "\t".join(["{{.ID}}", "{{.Names}}", "{{.Image}}", "{{.Status}}", "{{.Command}}"])
    return _table("docker", outside.tool("docker", "ps", "--format", format_), fields)


def container_text(container: str) -> str:
    """The end of a container's log, which only its engine may know where to find."""
    return outside.tool("docker", "logs", "--tail", str(_PANE_LINES), container, merge=True).text


def _table(name: str, answer: outside.Answer, fields: tuple[str, ...], separator: str = "\t") -> Row:
    """One job per line; the last field may hold the separator."""
    if answer.problem:
        return Row(name, problem=answer.problem)
    rows = [line.split(separator, len(fields) - 1) for line in answer.text.splitlines()]
    jobs = [dict(zip(fields, row, strict=True)) for row in rows if len(row) == len(fields)]
    return Row(name, jobs, None if jobs else "no jobs")


def tsp() -> Row:
    """task-spooler; Debian calls the program tsp, others ts."""
    sockets = _living_sockets(r"/socket-ts\.[^/]*$", os.environ.get("TS_SOCKET"))
    if not sockets:
        return Row("tsp", problem="not running")
    row = Row("tsp")
    for socket in sockets:
        answer = outside.tool("tsp", env={"TS_SOCKET": socket})
        if answer.problem == "not installed":
            answer = outside.tool("ts", env={"TS_SOCKET": socket})
        row.problem = answer.problem
        row.jobs += [job for line in answer.text.splitlines()[1:] if (job := _tsp_job(line))]
    return row


def _tsp_job(line: str) -> Job | None:
    """'0    running    /tmp/ts-out.x6     [label]sleep 60', or with E-Level and times before the command."""
    match = re.match(r"(\d+)\s+(\w+)\s+(\S+)\s+(?:(-?\d+)\s+)?(?:([\d.]+/[\d.]+/[\d.]+)\s+)?(.*)", line)
    if not match:
        return None
    number, state, log, code, _, command = match.groups()
    return {"id": number, "state": state, "log": log, "exit_code": code, "command": command}


def tmux() -> Row:
    """Every pane of every server of this user, with its terminal."""
    sockets = _living_sockets(r"/tmux-\d+/[^/]+$")
    if not sockets:
        return Row("tmux", problem="not running")
    row = Row("tmux")
    words = {
        "session": "session_name", "pane": "pane_id", "tty": "pane_tty", "pid": "pane_pid",
        "command": "pane_current_command", "attached": "session_attached", "cwd": "pane_current_path",
    }  # fmt: skip
    format_ = ":".join(f"#{{{word}}}" for word in words.values())  # tmux prints no tabs; a session's name has no ':'
    for socket in sockets:
        answer = outside.tool("tmux", "-u", "-S", socket, "list-panes", "-a", "-F", format_)
        found = _table("tmux", answer, tuple(words), ":")
        row.problem = found.problem
        row.jobs += [{**job, "socket": socket} for job in found.jobs]
    return row


def pane_text(pane: Job) -> str:
    """What a tmux pane shows, with some history: the only log of a run that was started without one."""
    command = ("capture-pane", "-p", "-J", "-S", f"-{_PANE_LINES}", "-t", str(pane["pane"]))
    return outside.tool("tmux", "-u", "-S", str(pane["socket"]), *command).text.rstrip()


def screen() -> Row:
    """From its socket directories: `screen -ls` would make one."""
    folders = [os.environ.get("SCREENDIR", ""), os.path.expanduser("~/.screen")]
    folders += [f"{base}/screen/{name}" for base in ("/run", "/var/run") for name in _names(f"{base}/screen")]
    jobs: dict[str, Job] = {}
    for folder in filter(None, folders):
        for name in _names(folder):
            pid, _, session = name.partition(".")
            if pid.isdigit() and session and procs.start_time(int(pid)):
                jobs[name] = {"id": pid, "name": session}
    return Row("screen", list(jobs.values()), None if jobs else "not running")


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _living_sockets(pattern: str, named: str | None = None) -> list[str]:
    """Unix sockets somebody listens on, by name: a socket file outlives its server, the kernel's list does not."""
    try:
        text = Path("/proc/net/unix").read_text(errors="surrogateescape")
    except OSError:
        return []
    paths = {line.split(" ", 7)[-1].strip() for line in text.splitlines() if " /" in line}
    return sorted(p for p in paths if (p == named or re.search(pattern, p)) and os.access(p, os.W_OK))
