"""Does a training go on as if nothing had happened? Two whole runs, then runs that are killed and started again.

A resumed run is laid beside the whole one at the step whose weights it starts with. Where it differs, the cause is
named (state that was not restored), not what follows from it (other losses). What two whole runs do not agree on is
not held against a resumed one; its weights, optimizer and average are compared with those of the run that was killed.
"""

from __future__ import annotations

import random
import re
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rgt.checkpoint import index, inventory, names
from rgt.checkpoint.examine import HEADERS, examine
from rgt.checkpoint.formats.torch_files import keys
from rgt.checkpoints.killed_runs import Leg, Stage
from rgt.errors import FINDINGS, RgtError, bad_input
from rgt.machine.processes import signal_name
from rgt.report import Report, plural, progress

_AFTER = 4  # steps that a resumed run makes at least
_PROBED = 3  # steps that must agree to say where a sequence goes on
_ALIKE = 1e-6  # relative difference of learning rates that are the same
_ROLES = {
    "optimizer": r"optim",
    "scheduler": r"sched",
    "rng": r"rng|random|generator|seed",
    "sampler": r"sampler|loader|dataset|data_|loops|trainer_state|batch|cursor|position|offset|consumed",
    "ema": r"(^|[._/])ema|averag|shadow|swa",
    "step": r"step|iter|trainer_state",
}


@dataclass
class Cut:
    """A run that was killed, and how it went on."""

    number: int  # of the signal
    at: int
    killed: Leg
    resumed: Leg
    parts: dict[str, str]  # role -> where it is in the checkpoint, "" for nowhere
    listing: str  # what the checkpoint holds
    since: int | None = None  # the step whose weights it went on with

    def __str__(self) -> str:
        start = "unknown weights" if self.since is None else f"step {self.since}"
        return f"{signal_name(self.number)} at step {self.at}, went on from {start}"


@dataclass
class Named:
    """A difference; `role` is the entry of a checkpoint that would prevent it."""

    code: str
    message: str
    role: str = ""
    severity: str = "error"


# -- the runs


def certify(stage: Stage, resume: list[str], kills: int, seed: int) -> Report:
    report, draw = Report("checkpoints"), random.Random(seed)
    with stage:
        whole = [_whole_run(stage, number) for number in (1, 2)]
        first = whole[0].saves()[:1]
        length = whole[0].made
        if first and first[0] > length - _AFTER:
            more = f"give --steps {first[0] + 2 * _AFTER} or more, or save more often"
            raise bad_input(f"the first checkpoint appears after step {first[0]} of {length}: {more}")
        spots = range(first[0] if first else 1, length - _AFTER + 1)
        cuts = []
        for turn in range(kills):
            for number in (signal.SIGTERM, signal.SIGKILL):
                cut = _cut_run(stage, resume, draw.choice(spots), int(number), whole, f"{number.name}-{turn}", report)
                cuts += [cut] if cut else []
    steady = Steady(*whole)
    _judge(report, cuts, steady)
    lines = [f"{signal_name(cut.number)} at step {cut.at}, resumed at {cut.since}" for cut in cuts]
    report.data = {
        "steps": length,
        "saves": whole[0].saves(),
        "stable": steady.names(),
        "seed": seed,
        "cuts": [
            {"signal": signal_name(cut.number), "killed_at": cut.at, "resumed_at": cut.since, "holds": cut.listing}
            for cut in cuts
        ],
    }
    report.data["summary"] = f"{plural(length, 'step')} whole, twice; {'; '.join(lines) or 'no run could be resumed'}"
    return report


def _whole_run(stage: Stage, number: int) -> Leg:
    progress(f"uninterrupted run {number} of 2")
    leg = stage.run(f"whole-{number}", stage.command)
    stage.forget(f"whole-{number}")
    if leg.code and not leg.stopped:
        raise RgtError(f"the command itself fails (exit code {leg.code}): {leg.tail}", FINDINGS)
    if leg.made < 2 * _AFTER:
        seen = f"{plural(leg.made, 'step')} of a torch optimizer seen"
        raise bad_input(f"{seen} in the whole run; it takes {2 * _AFTER} (or it runs in a container, or without torch)")
    return leg


def _cut_run(
    stage: Stage, resume: list[str], at: int, number: int, whole: list[Leg], run: str, report: Report
) -> Cut | None:
    progress(f"{signal_name(number)} at step {at}, then the resume")
    killed = stage.run(run, stage.command, kill=(at, number))
    checkpoint = _newest(stage.folder(run))
    if checkpoint is None:
        message = f"{signal_name(number)} at step {at} left no checkpoint: everything was lost"
        report.add("unsaved", "error", message, fix="save more often than once in --steps, or on SIGTERM")
        return None
    known = {**(whole[0].weights() if Steady(*whole).weights else {}), **killed.weights()}
    held = _contents(checkpoint)
    parts = {role: next((one for one in held if re.search(words, one, re.I)), "") for role, words in _ROLES.items()}
    resumed = stage.run(run, resume, known=known, checkpoint=checkpoint)
    stage.forget(run)
    listing = f"{checkpoint.name}: {', '.join(held[:20])}{' ...' if len(held) > 20 else ''}"
    cut = Cut(number, at, killed, resumed, parts, listing)
    cut.since = known.get(resumed.states[0]["weights"]) if resumed.states else None
    if not resumed.stopped and resumed.code:
        message = f"the resumed run fails (exit code {resumed.code}): {resumed.tail}"
        report.add("failed", "error", message, where=str(cut), evidence=listing)
        return None
    return cut


def _newest(folder: Path) -> Path | None:
    """The newest whole checkpoint below, in whichever folder the program keeps them."""
    found = []
    for place in sorted({path.parent for path in folder.rglob("*") if names.is_checkpoint(path.name)}):
        place = place.parent if names.is_step_folder(place.name) else place
        run = index.run_directory(place)
        found += [*inventory.find(run), *inventory.without_step(run)]
    unique = list({each.path: each for each in found}.values())
    best, _ = inventory.newest_whole(unique)
    if best is not None:
        return best.path
    loose = [path for path in folder.rglob("*") if names.is_checkpoint(path.name) and path.is_file()]
    return max(loose, key=lambda path: path.stat().st_mtime_ns, default=None)


def _contents(checkpoint: Path) -> list[str]:
    """Names of its files, and of the entries of those that are more than weights; the names of weights are left out."""
    files = sorted(path for path in checkpoint.rglob("*") if path.is_file()) if checkpoint.is_dir() else [checkpoint]
    held = [path.name for path in files] if checkpoint.is_dir() else []
    for path in files:
        if path.suffix in (".pt", ".pth", ".ckpt"):
            entries = {str(name): value for name, value in keys(examine(path, HEADERS).layout.root).items()}
            for name in (name for name in entries if "." not in name):
                below = [f"{name}.{inner}"[:40] for inner in keys(entries[name]) if "." not in str(inner)]
                held += [name, *(below if len(below) <= 8 else [])]
    return held


# -- what two whole runs agree on


@dataclass
class Steady:
    """The first whole run, and what of it the second repeated."""

    whole: Leg
    other: Leg

    def _same(self, what: str, rows: str) -> bool:
        pair = ([row[what] for row in _rows(leg, rows)] for leg in (self.whole, self.other))
        mine, theirs = pair
        return mine == theirs

    @property
    def weights(self) -> bool:
        return self._same("weights", "states") and _final(self.whole) == _final(self.other)

    @property
    def loss(self) -> bool:
        return self._same("loss", "steps")

    @property
    def batches(self) -> bool:
        return self._same("batch", "steps")

    @property
    def lr(self) -> bool:
        return self._same("lr", "steps")

    @property
    def generators(self) -> list[str]:
        """Those in use: they move between steps, in the same way in both."""
        states, others = list(self.whole.states.values()), list(self.other.states.values())
        used = [name for name in states[0]["rng"] if len({state["rng"].get(name) for state in states}) > 1]
        pairs = list(zip(states, others, strict=False))
        return [name for name in used if all(one["rng"].get(name) == two["rng"].get(name) for one, two in pairs)]

    def names(self) -> list[str]:
        told = {"weights": self.weights, "losses": self.loss, "batches": self.batches, "learning rate": self.lr}
        always = ["steps", "optimizer", "EMA"]  # against the killed run itself
        return always + [name for name, same in told.items() if same] + [f"{name} RNG" for name in self.generators]


def _rows(leg: Leg, kind: str) -> list[dict[str, Any]]:
    return leg.steps if kind == "steps" else list(leg.states.values())


def _final(leg: Leg) -> Any:
    return leg.state(leg.made).get("weights")


# -- what differs


def _judge(report: Report, cuts: list[Cut], steady: Steady) -> None:
    unsteady = [name for name in ("weights", "loss", "batches", "lr") if not getattr(steady, name)]
    if unsteady:
        message = f"two uninterrupted runs differ in {', '.join(unsteady)}: this is not held against the resumed ones"
        fix = "seed every generator (python, numpy, torch, data loader), and torch.use_deterministic_algorithms(True)"
        report.add("nondeterminism", "info", message, fix=fix)
    merged: dict[str, tuple[Named, list[Cut]]] = {}
    for cut in cuts:
        for named in _differences(cut, steady):
            merged.setdefault(named.code, (named, []))[1].append(cut)
    for named, where in merged.values():
        cut = where[0]
        place = ""
        if named.role:
            entry = cut.parts[named.role]
            told = f"saved ({entry}), so not restored" if entry else f"no entry for {named.role}"
            place = f"in the checkpoint: {told} [{cut.listing}]"
        report.add(named.code, named.severity, named.message, where="; ".join(map(str, where)), evidence=place or None)


def _differences(cut: Cut, steady: Steady) -> list[Named]:
    whole, resumed = steady.whole, cut.resumed
    if not resumed.states:
        if cut.killed.made >= whole.made or whole.made in cut.killed.states:
            return [
                Named("unjudged", "it ran to its end in spite of the signal: nothing was left to resume", "", "info")
            ]
        return [Named("step", "the resumed run made no step, although steps were left")]
    if not cut.since:
        if cut.since is None and cut.number == signal.SIGTERM and not steady.weights:
            text = "it goes on with weights that no step before is known to have had: saved behind the signal, perhaps"
            return [Named("unjudged", text, "", "warn")]
        text = "weights not loaded: it starts with the initial ones"
        if cut.since is None:
            text = "weights are not those of any step before: partly loaded, rounded, averaged, or initialised anew"
        return [Named("weights", f"{text} (does the command resume by itself? if not, give --resume)")]
    found = [*_state(cut, steady), *_lr(cut, steady), *_data(cut, steady), *_counter(cut, steady)]
    expected = [row["loss"] for row in whole.steps[cut.since :]]
    losses = [row["loss"] for row in resumed.steps][: len(expected)]
    length = whole.made - cut.since
    final = resumed.state(length).get("weights") if length in resumed.states or resumed.end else None
    same = losses == expected[: len(losses)] and final == _final(whole)
    noise = _noise(cut, steady)
    if noise and (not same or not steady.weights):
        found.append(noise)
    elif noise:
        text = f"{noise.message}; nothing that it changes was used before the end"
        found.append(Named("rng", text, noise.role, "info"))
    if steady.weights and steady.loss and not same and not any(one.severity == "error" for one in found):
        where = next(
            (i for i, pair in enumerate(zip(losses, expected, strict=False)) if pair[0] != pair[1]), len(losses)
        )
        text = f"from step {cut.since + where + 1} on the run is another one, and none of the known causes was seen"
        found.append(Named("curve", f"{text}: final weights {final}, uninterrupted {_final(whole)}"))
    return found


def _state(cut: Cut, steady: Steady) -> Iterator[Named]:
    """Optimizer and average before the first new step, against the run that was killed."""
    assert cut.since is not None
    before = cut.killed.state(cut.since)
    source = cut.killed
    if not before and steady.weights:
        before, source = steady.whole.state(cut.since), steady.whole
    now = cut.resumed.states[0]
    if before and now["optimizer"] != before["optimizer"]:
        kind = "fresh: its moments start from nothing" if now["optimizer"] is None else "not that of the weights' step"
        yield Named("optimizer", f"optimizer state is {kind}", "optimizer")
    averages = source.averages(cut.since) if before else set()
    if not averages <= (here := cut.resumed.averages(0)):  # the loaded file may be in memory, too, and rests
        again = "starts anew" if here else "is gone"
        yield Named("ema", f"EMA dropped: the averaged copy of the weights {again} after the resume", "ema")


def _lr(cut: Cut, steady: Steady) -> Iterator[Named]:
    assert cut.since is not None
    rates = [row["lr"] for row in cut.resumed.steps]
    whole = [row["lr"] for row in steady.whole.steps]
    if not steady.lr or _alike(rates, whole[cut.since :]):
        return
    start = next((at for at in range(len(whole)) if _alike(rates[:_PROBED], whole[at:])), None)
    seen = f"{_short(rates[0])} at step {cut.since + 1}, where the uninterrupted run has {_short(whole[cut.since])}"
    kind = "differs" if start is None else "restarted" if start == 0 else f"goes on with that of step {start + 1}"
    yield Named("lr", f"LR schedule {kind}: {seen}", "scheduler")


def _alike(mine: list[list[float]], theirs: list[list[float]]) -> bool:
    pairs = [pair for one, two in zip(mine, theirs, strict=False) for pair in zip(one, two, strict=False)]
    close = all(abs(one - two) <= _ALIKE * max(abs(one), abs(two)) for one, two in pairs)
    return close and len(theirs) >= min(len(mine), 1)


def _short(rates: list[float]) -> str:
    return " ".join(f"{rate:.4g}" for rate in rates[:2])


def _data(cut: Cut, steady: Steady) -> Iterator[Named]:
    assert cut.since is not None
    mine = [row["batch"] for row in cut.resumed.steps]
    whole = [row["batch"] for row in steady.whole.steps]
    left = whole[cut.since :]
    mine = mine[: len(left)]
    if not any(whole) or mine == left[: len(mine)]:
        return
    seen = Counter(one for batch in [*(row["batch"] for row in cut.killed.steps[: cut.since]), *mine] for one in batch)
    twice = sum(count - 1 for count in seen.values())
    if not steady.batches:
        usual = [_repeats(leg, cut.since + len(mine)) for leg in (steady.whole, steady.other)]
        if not any(usual) and twice:
            text = f"{plural(twice, 'sample')} seen twice, in an uninterrupted run none so far"
            yield Named("sampler", f"sampler restarted: {text}", "sampler")
        return
    start = next((at for at in range(len(whole)) if mine[:_PROBED] == whole[at : at + len(mine[:_PROBED])]), None)
    wanted = Counter(one for batch in whole[: cut.since + len(mine)] for one in batch)
    more, never = sum((seen - wanted).values()), sum((wanted - seen).values())
    counts = f"{plural(more, 'sample')} more often than in the uninterrupted run, {never} left out"
    if start is None:
        yield Named("sampler", f"other batches after the resume: {counts}", "sampler")
    elif start < cut.since:
        text = f"step {cut.since + 1} gets the batch of step {start + 1}; data seen twice"
        yield Named("sampler", f"sampler restarted: {text}: {counts}", "sampler")
    else:
        yield Named(
            "sampler", f"data skipped: step {cut.since + 1} gets the batch of step {start + 1}: {counts}", "sampler"
        )


def _repeats(leg: Leg, steps: int) -> int:
    samples = [one for row in leg.steps[:steps] for one in row["batch"]]
    return len(samples) - len(set(samples))


def _noise(cut: Cut, steady: Steady) -> Named | None:
    assert cut.since is not None
    before = cut.killed.state(cut.since).get("rng") or steady.whole.state(cut.since).get("rng") or {}
    now = cut.resumed.states[0]["rng"]
    lost = [name for name in steady.generators if name in before and now.get(name) != before[name]]
    if not lost:
        return None
    return Named("rng", f"RNG not restored: the {' and '.join(lost)} generator is elsewhere than it was", "rng")


def _counter(cut: Cut, steady: Steady) -> Iterator[Named]:
    """By the steps that it makes until its own end, and by those that it prints."""
    assert cut.since is not None
    whole, resumed = steady.whole, cut.resumed
    left = whole.made - cut.since
    if not whole.stopped and resumed.made != left:
        kind = "step counter restarted" if resumed.made >= whole.made else "step counter is off"
        yield Named("step", f"{kind}: it made {resumed.made} more steps, {left} were left", "step")
        return
    passed = len(whole.printed) * cut.since // whole.made  # lines that the whole run had printed by then
    again = resumed.printed[:1] == whole.printed[:1]
    if passed >= 2 and again and len(set(whole.printed[:passed])) >= 2:
        text = f"step counter restarted: it prints step {resumed.printed[0]:g} again"
        yield Named("step", f"{text}, with the weights of step {cut.since}", "step")
