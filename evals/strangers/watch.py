"""watch on logs whose sickness their author knows: how many sick runs are named, how many healthy ones alarm.

    python evals/strangers/watch.py FOLDER                   FOLDER/labels.jsonl and the logs it names; or a tar of them
    python evals/strangers/watch.py FOLDER --looks 10        also at ten looks while the log grows
    python evals/strangers/watch.py FOLDER --show            and list the misses

A row is {"id", "file", "style", "sick", "label": the main sickness or null, "also": [other right answers], "finished",
"onset": the share of its lines (or, above 1, the line) where the sickness begins, if it is known}.
Each log is looked at as a run that lives: fresh, and open in the process that writes it; so only its text can tell.
Named means a warning or an error with the label's code. An alarm is any warning or error on a healthy log.
The delay is counted in points (lines that move the run's counters or its loss) from the onset to the first look that
names it (a look is taken at the onset, too); it is no finer than the looks.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from rgt import cli, files  # noqa: E402
from rgt.watch import look  # noqa: E402

import click  # noqa: E402

CODES = {
    "diverged": "diverged",
    "nan": "nan",
    "spike": "spike diverged",
    "plateau": "plateau",
    "loss_scale_collapse": "loss-scale",
    "grad_explosion": "gradient",
    "lr_zero": "lr",
    "throughput": "slow",
    "overfit": "overfit plateau",
    "killed": "killed oom time-limit",
    "crashed": "crash oom no-space failed",
    "restarts": "restarts",
    "stalled": "stalled hang",
}


@dataclass
class Answer:
    row: dict[str, Any]
    said: list[str] = field(default_factory=list)  # codes of warnings and errors, on the whole log
    ever: set[str] = field(default_factory=set)  # and at any look before
    first: float | None = None  # share of the log at the first look that named it
    delay: int | None = None  # points from the onset to that look
    state: str = ""
    found: list[str] = field(default_factory=list)  # what was read

    @property
    def accepted(self) -> set[str]:
        labels = [self.row["label"], *self.row.get("also", ())] if self.row["sick"] else []
        return {code for label in labels for code in CODES.get(label, label).split()}

    @property
    def named(self) -> bool:
        return bool(self.accepted & set(self.said))


def judge(row: dict[str, Any], data: bytes, looks: int) -> Answer:
    answer = Answer(row)
    lines = data.splitlines(keepends=True)
    onset = row.get("onset")
    begin = None if onset is None else int(onset * len(lines) if onset <= 1 else onset)
    places = {len(lines) * number // looks for number in range(1, looks + 1)}
    at_onset = 0
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / Path(row["file"]).name
        target = look.Target(str(log), [log], Path(name) / "watch")
        with log.open("wb") as writer:  # held open: somebody writes to it
            start = 0
            for end in sorted(places | ({begin} if begin and looks > 1 else set())):
                writer.write(b"".join(lines[start:end]))
                writer.flush()
                start = end
                found = look.look(target, ("cadence",), box=False)
                if end == begin:
                    at_onset = _points(target)
                answer.said = [one["code"] for one in found["findings"] if one["severity"] != "info"]
                answer.ever |= set(answer.said)
                if answer.first is None and answer.named:
                    answer.first = end / max(1, len(lines))
                    answer.delay = None if begin is None else max(0, _points(target) - at_onset)
            answer.state, answer.found = found["now"]["state"], sorted(found["roles"])
    return answer


def _points(target: look.Target) -> int:
    """Logged steps that the last look knew: lines that move a counter, else new values of the loss."""
    (row,) = files.read_json(target.keep / "state.json")["files"].values()
    history = row["history"]
    return int(history["moves"] or max((curve["count"] for curve in history["series"].values()), default=0))


def _rows(folder: Path) -> list[tuple[dict[str, Any], bytes]]:
    if folder.is_dir():
        text = (folder / "labels.jsonl").read_text(encoding="utf-8")
        return [(row := json.loads(line), (folder / row["file"]).read_bytes()) for line in text.splitlines() if line]
    with tarfile.open(folder) as packed:
        files = {one.name.removeprefix("./"): packed.extractfile(one) for one in packed if one.isfile()}
        data = {name: file.read() for name, file in files.items() if file}
    return [(row := json.loads(line), data[row["file"]]) for line in data["labels.jsonl"].splitlines() if line]


@click.command(cls=cli.Command)
@click.argument("folder", type=click.Path(path_type=Path, exists=True))
@click.option("--looks", type=click.IntRange(1), default=1, show_default=True, help="Looks while the log grows.")
@click.option("--show", is_flag=True, help="List what was missed, and every false alarm.")
def main(folder: Path, looks: int, show: bool) -> None:
    """Print how many sick runs were named and how many healthy ones alarmed, in total and by label."""
    answers = [judge(row, data, looks) for row, data in _rows(folder)]
    sick = [one for one in answers if one.row["sick"]]
    healthy = [one for one in answers if not one.row["sick"]]
    for one in answers if show else ():
        if (one.row["sick"] and not one.named) or (not one.row["sick"] and one.said):
            print(f"{one.row['id']} {one.row['style']}: {one.row['label']}, said {one.said or 'nothing'} ({one.state})")
            print(f"    read {' '.join(one.found)}; {one.row.get('note', '')}")
    named = sum(one.named for one in sick)
    silent = sum(not one.said for one in sick)
    alarms = sum(bool(one.said) for one in healthy)
    print(f"{len(sick)} sick: named {named}, missed {len(sick) - named} ({1 - named / max(1, len(sick)):.1%})", end="")
    print(f", told nothing of {silent}")
    print(f"{len(healthy)} healthy: {alarms} false alarms ({alarms / max(1, len(healthy)):.1%})")
    if looks > 1:
        ever = sum(bool(one.ever) for one in healthy)
        shares = sorted(one.first for one in sick if one.first)
        print(
            f"at any of {looks} looks: named {len(shares)}, {ever} false alarms; first named at {_middle(shares):.0%}"
        )
    known = [one for one in answers if one.row.get("finished") is not None]
    right = sum((one.state == "finished") == one.row["finished"] for one in known)
    print(f"finished or not: {right} of {len(known)} right")
    counts = Counter(one.row["label"] for one in sick)
    for label, count in counts.most_common():
        same = [one for one in sick if one.row["label"] == label]
        delays = sorted(one.delay for one in same if one.delay is not None)
        delay = f"delay {_middle(delays):3.0f} points, at most {delays[-1]}" if delays and looks > 1 else ""
        print(f"  {label:20} {sum(one.named for one in same):3} of {count:3}  {delay}".rstrip())
    wrong = Counter(code for one in healthy for code in one.said)
    print("  alarms: " + (", ".join(f"{code} {count}" for code, count in wrong.most_common()) or "none"))


def _middle(values: Sequence[float]) -> float:
    return values[len(values) // 2] if values else 0.0


if __name__ == "__main__":
    main()
