"""What a program printed while it trained: the log noun's points as rows, and the settings that logs tell first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt.errors import bad_input
from rgt.log import reader
from rgt.log.history import History
from rgt.log.line import Point
from rgt.run import record as states
from rgt.run.foreign import Foreign, as_setting

FORMAT = "log"
_WHOLE = 64 << 20  # bytes of which every line is read
_NAMESPACE = re.compile(r"Namespace\((.{1,20000})\)")  # print(args) of argparse
_OPTION = re.compile(r"(\w+)=('[^']*'|\"[^\"]*\"|[^,()\[\]{}'\"]+)(?=, |$)")
_TOLD = {  # setting -> how a trainer prints it before the first step
    "seed": re.compile(r"\b(?:random |global |rng )?seed\b(?: set)?(?: is| to)?[\"']?\s*[:= ]\s*(\d{1,10})\b", re.I),
    "train_batch_size": re.compile(r"Total train batch size[^=]*= ([\d,]+)"),
    "tokens_per_step": re.compile(r"tokens per iteration will be: ([\d,]+)"),
}
_HEAD = 300  # lines


class _EveryPoint(History):
    """A history thins its curves; here each value goes into the run."""

    def __init__(self, run: Foreign) -> None:
        super().__init__()
        self.run, self.clock = run, 0.0

    def take(self, line: str) -> None:
        if self.lines < _HEAD:
            self.run.config |= _settings_in(line)
        super().take(line)

    def take_point(self, point: Point, text: str) -> None:
        self.clock = point.get("time", 0.0)
        super().take_point(point, text)

    def put(self, name: str, place: float, value: float, text: str = "") -> None:
        self.run.add(round(place), {name: value}, self.clock)


def read(path: Path) -> Iterator[Foreign]:
    run = Foreign(path.stem, FORMAT, path, log=path)
    history = _EveryPoint(run)
    cursor, grown = reader.advance(path, None, history.take, _WHOLE)
    if cursor is None:
        raise bad_input(f"{path} is no file that can be read")
    if not run.points:
        raise bad_input(f"{path}: no line of it has a metric of training")
    if history.step is None and history.epoch is None:
        run.gaps.append("it counts neither steps nor epochs: its lines are numbered instead")
    if grown.thinned:
        run.gaps.append("is longer than 64 MiB: its beginning, its end and lines evenly spread between them were read")
    failed = any(not problem.recovered for problem in history.problems)
    run.state = states.FINISHED if history.ended else states.FAILED if failed else states.UNKNOWN
    yield run.settle(path)


def _settings_in(line: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "Namespace(" in line and (printed := _NAMESPACE.search(line)):
        found = {name: as_setting(value.strip("'\"")) for name, value in _OPTION.findall(printed[1])}
    for name, pattern in _TOLD.items():
        if name not in found and (told := pattern.search(line[:500])):
            found[name] = int(told[1].replace(",", ""))
    return found
