"""What every trainer of a pipeline does the same way: read its settings, find its checkpoint, hear its stop signals.

Example:
    session = open_session()                 in pretrain.py, on every rank
    session.resume, session.step             what `python -m pipelines.session` found just before
    session.stop                             the name of the signal that asked to stop, or ""
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from pipelines import ledger, settings
from pipelines.progress import Progress, events
from pipelines.schedule import Schedule
from rgt import files
from rgt.errors import RgtError
from rgt.rundir import Run

FOUND, ENDED = ".resume.json", ".exit_code"
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


@dataclass
class Session:
    home: Path  # the pipeline's folder: code, settings, data; may be read-only
    run: Run  # where everything is written
    config: dict[str, Any]
    resume: Path | None
    step: int
    stop: str = ""
    on_stop: Callable[[], None] | None = None

    @property
    def schedule(self) -> Schedule:
        return Schedule.of(self.config)

    @property
    def data(self) -> Path:
        folder = Path(os.environ.get("RGT_DATA_DIR") or self.config["data"]["folder"])
        return folder if folder.is_absolute() else self.home / folder

    @property
    def first_rank(self) -> bool:
        return os.environ.get("RANK", "0") == "0"

    @property
    def started_before(self) -> bool:
        return any(row["event"] in ("launched", "resumed") and "phase" in row for row in events(self.run))

    def listen(self) -> None:
        """The handler only takes a note: a save from inside it could cut another save in half."""

        def note(number: int, _frame: FrameType | None) -> None:
            self.stop = signal.Signals(number).name
            if self.on_stop:
                self.on_stop()

        for number in SIGNALS:
            signal.signal(number, note)


def open_session() -> Session:
    home = Path(sys.argv[0]).resolve().parent
    run = Run(Path(os.environ.get("RUN") or home))
    config = settings.load(home / settings.NAME)
    found = files.read_json(run.path / FOUND)
    resume = run.path / found["path"] if found["path"] else None
    session = Session(home, run, config, resume, found["step"])
    session.listen()
    return session


def conduct(train: Callable[[Session, Progress | None], int]) -> None:
    """Run a trainer; every foreseen failure is one sentence and an exit code, and the run's own record says so."""
    session = None
    try:
        session = open_session()
        progress = Progress(session.run, session.config) if session.first_rank else None
        if progress:
            progress.started(session.step, session.started_before)
            progress.stop_if_missed(session.step)
        code = train(session, progress)
    except RgtError as error:
        error.show()
        if session and session.first_rank and error.exit_code != 1:
            session.run.log_event("failed", reason=error.message)
        code = error.exit_code
    if session and session.first_rank:
        files.write_text(session.run.path / ENDED, f"{code}\n")
    sys.stdout.flush()
    sys.exit(code)


def prepare(home: Path, run: Run) -> int:
    """Before the trainer, in a process without torch: settings checked, halves set aside, the checkpoint chosen."""
    config = settings.load(home / settings.NAME)
    run.refuse_if_sealed()
    run.checkpoints.mkdir(parents=True, exist_ok=True)
    ledger.sweep(run)
    found = ledger.last_good(run, config["framework"])
    if found:
        ledger.record(run, found.path, found.step, verified=True)
    path = found.path.relative_to(run.path).as_posix() if found else None
    files.write_json(run.path / FOUND, {"path": path, "step": found.step if found else 0})
    return 0


def main() -> None:
    try:
        code = prepare(Path(sys.argv[1]), Run(Path(sys.argv[2])))
    except RgtError as error:
        error.show()
        code = error.exit_code
    sys.exit(code)


if __name__ == "__main__":
    main()
