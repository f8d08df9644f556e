"""What the flight recorder knows about a hang: who is behind, at which collective, and who runs another program.

Example:
    report, summary = judge(*read_folder(Path("dumps")))

Per process group: the first sequence number at which the ranks differ is the cause, what follows is aftermath. Where
they agree, the rank that has not called what the others wait in is the cause.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rgt.catalogue import entries as catalogue
from rgt.report import Finding, Report
from rgt.triage.flight_dumps import Dump, Group, Step

_AHEAD = 64  # collectives that are compared behind the first difference
_ADVICE = {
    "shape": "Same shape on all ranks: pad or drop the last batch, or exchange the sizes first.",
    "dtype": "Cast on all ranks or on none; autocast inside `if rank` is the usual way to differ.",
    "order": "The same order on all ranks: no iteration over a set, no branch on data or rank.",
}


@dataclass
class Case:
    """A group: the steps of its members that left a dump."""

    group: Group
    members: tuple[int, ...]
    steps: dict[int, dict[int, Step]]


def judge(dumps: dict[int, Dump], problems: Iterable[Finding] = ()) -> tuple[Report, str]:
    """The report, causes first, and its last line."""
    report = Report("triage", list(problems))
    world = _world(dumps)
    missing = [rank for rank in world if rank not in dumps] if dumps else []
    cases = list(_cases(dumps, world))
    waits = {rank: dump.waiting() for rank, dump in dumps.items()}
    same = [case for case in cases if not _judge_difference(case, report)]
    for case in same:  # behind a difference, who is ahead means nothing
        _judge_progress(case, waits, missing, report)
    _judge_transfers(dumps, report)
    if missing:
        _judge_missing(missing, waits, report, differing=len(same) < len(cases))
    if report.ok:
        for case in same:
            _judge_stuck(case, waits, report)
    _say_limits(dumps, cases, report)
    order = {"error": 0, "warn": 1, "info": 2}
    report.findings.sort(key=lambda finding: order[finding.severity])
    report.data = {
        "ranks": {rank: {"path": d.path, "entries": d.count, "lost": d.lost} for rank, d in sorted(dumps.items())},
        "missing_ranks": missing,
        "groups": [_as_dict(case) for case in cases],
    }
    entries = sum(dump.count for dump in dumps.values())
    causes = [finding for finding in report.findings if finding.severity == "error"]
    if causes:
        summary = f"most likely {causes[0].code}: {causes[0].where or 'see above'}"
    elif not entries:
        summary = "nothing was recorded; was TORCH_FR_BUFFER_SIZE 0, or were only active entries written?"
    else:
        summary = "every recorded collective ended and agrees; a hang is then outside of the collectives"
    return report, f"{entries:,} entries of {len(dumps)} ranks in {len(cases)} groups: {summary}"


def _as_dict(case: Case) -> dict[str, Any]:
    last = {rank: max(steps) for rank, steps in case.steps.items() if steps}
    open_ = {rank: [s.seq for s in steps.values() if s.done is False][:3] for rank, steps in case.steps.items()}
    return {"group": case.group.name, "desc": case.group.desc, "ranks": case.members, "last": last, "open": open_}


def _world(dumps: dict[int, Dump]) -> list[int]:
    """Every rank that must have been there: named by a group, counted by an all-gather, or a hole in the numbers."""
    known = {rank for dump in dumps.values() for rank in (dump.rank, *dump.world)}
    steps = (
        s for d in dumps.values() for g, steps in d.steps.items() if g.desc == "default_pg" for s in steps.values()
    )
    sizes = {step.signature[:3] for step in steps if step.signature[0] == "all_gather"}
    for _, inputs, outputs in sizes:
        given, got = (sum(map(math.prod, side[0])) if side else 0 for side in (inputs, outputs))
        known.add(got // given - 1 if given and got % given == 0 and got // given < 1 << 20 else 0)
    return list(range(max(known, default=-1) + 1))


def _cases(dumps: dict[int, Dump], world: list[int]) -> Iterable[Case]:
    groups = sorted(
        {group for dump in dumps.values() for group in dump.steps}, key=lambda group: (group.name, group.desc)
    )
    for group in groups:
        users = {rank: dump.steps[group] for rank, dump in sorted(dumps.items()) if group in dump.steps}
        members = group.ranks or (tuple(world) if group.desc == "default_pg" else tuple(users))
        yield Case(group, members, {rank: users.get(rank, {}) for rank in members if rank in dumps})


# different programs


def _judge_difference(case: Case, report: Report) -> bool:
    """The first sequence number at which the ranks do not run the same collective."""
    started = {rank: steps for rank, steps in case.steps.items() if steps}
    first = max((min(steps) for steps in started.values()), default=0)
    for seq in sorted({seq for steps in started.values() for seq in steps if seq >= first}):
        here = {rank: steps[seq] for rank, steps in started.items() if seq in steps}
        counts = Counter(step.signature for step in here.values()).most_common()
        if len(counts) > 1:
            tied = counts[0][1] == counts[1][1]
            usual = [rank for rank, step in here.items() if step.signature == counts[0][0]]
            for rank in here:
                if rank not in usual:
                    _add_difference(case, seq, rank, usual, tied, report)
            return True
    return False


def _add_difference(case: Case, seq: int, rank: int, usual: list[int], tied: bool, report: Report) -> None:
    model = max(usual, key=lambda one: max(case.steps[one]))
    mine, theirs = case.steps[rank][seq], case.steps[model][seq]
    code, what = explain(_tail(case.steps[rank], seq), _expected(case.steps[model], seq), mine, theirs)
    others = show_ranks(usual)
    message = f"rank {rank} {what} at sequence {seq} of {case.group}: {mine.shown}; {others}: {theirs.shown}"
    if tied:
        message += "; as many run the one as the other, so either may be wrong"
    sites = [f"rank {rank} at {mine.site}" if mine.site else "", f"{others} at {theirs.site}" if theirs.site else ""]
    evidence = "; ".join(filter(None, sites)) or None
    _add(report, code, "error", message, "DL15", _ADVICE.get(code, ""), where=f"rank {rank}", evidence=evidence)


def _tail(steps: dict[int, Step], seq: int) -> list[Step]:
    return [steps[number] for number in sorted(steps) if number >= seq][:_AHEAD]


def _expected(steps: dict[int, Step], seq: int) -> list[Step]:
    """What a rank ran from `seq` on; where the dump ends, what followed the same call in the round before."""
    tail = _tail(steps, seq)
    key = (tail[-1].signature, tail[-1].site)
    history = [steps[number] for number in sorted(steps)]
    before = [index for index, step in enumerate(history[:-1]) if (step.signature, step.site) == key]
    return (tail + history[before[-1] + 1 :])[:_AHEAD] if before and len(tail) < 3 else tail


def explain(mine: Sequence[Step], theirs: Sequence[Step], one: Step, other: Step) -> tuple[str, str]:
    """(code, words): the story that explains all, and most, of what followed the first difference."""
    for keys in (
        ([(s.signature, s.site) for s in mine], [(s.signature, s.site) for s in theirs]),
        (
            [s.signature for s in mine],
            [s.signature for s in theirs],
        ),
    ):
        a, b = keys
        stories = []
        for k in range(1, max(len(a), len(b))):
            for code, late, full in (("missed", a, b[k:]), ("extra", b, a[k:])):
                count = min(len(late), len(full))
                if count and late[:count] == full[:count]:
                    stories.append((count, -k, code))
            count = min(len(a), len(b))
            if k < count and Counter(a[: k + 1]) == Counter(b[: k + 1]) and a[k + 1 : count] == b[k + 1 : count]:
                stories.append((count, 0, "order"))
        if stories:
            count, k, code = max(stories)
            number = f"{-k} collective{'s' if k < -1 else ''}"
            unsure = " (or runs them in another order: too little follows to tell)" if count < 2 else ""
            words = {"missed": f"skipped {number}{unsure}", "extra": f"ran {number} more{unsure}"}
            return code, words.get(code, "runs the same collectives in another order")
    if one.signature[0] != other.signature[0] or len(one.signature) != len(other.signature):
        return "wrong-op", "runs another operation"
    dtypes = [[side[1] if side else () for side in step.signature[1:3]] for step in (one, other)]
    return ("dtype", "has another dtype") if dtypes[0] != dtypes[1] else ("shape", "has another shape")


# the same program

Waits = dict[int, dict[Group, Step]]


def _judge_progress(case: Case, waits: Waits, missing: list[int], report: Report) -> None:
    """All agree: who has not called what the others called?"""
    last = {rank: max(steps, default=0) for rank, steps in case.steps.items()}
    for rank in (rank for rank in last if last[rank] < max(last.values())):
        own = waits[rank].get(case.group)
        if own and (own.done is False or missing):
            continue  # it waits, too: for a rank without a dump, or for the network
        ahead = [other for other in last if last[other] > last[rank]]
        held = [other for other in ahead if case.group in waits[other]]
        call = min((s for o in ahead for s in case.steps[o].values() if s.seq > last[rank]), key=lambda step: step.seq)
        did = f"its last was {case.steps[rank][last[rank]].shown}" if last[rank] else "it called none in this group"
        others = ((group, step) for group, step in waits[rank].items() if group != case.group)
        elsewhere = [f"rank {rank} is in {group} at {step.shown} {step.site}" for group, step in others]
        message = f"rank {rank} is behind in {case.group}: it has not called sequence {call.seq}, {call.shown}"
        code, entry, advice = (
            "stalled",
            "DL16",
            f"py-spy dump of rank {rank}: saving, evaluating, out of data, or a lock.",
        )
        if elsewhere and held:
            code, entry, advice = "order", "DL15", "Use the groups in one order on all ranks."
            message += ": it waits in another group, so the ranks use two groups in different order"
        elif held:
            message += f": slow, stuck outside of a collective, or finished; {show_ranks(held)} wait"
        else:
            message += ", which the others completed: it left earlier, or the dumps are of different moments"
        evidence = "; ".join([did, *elsewhere, f"{show_ranks(ahead)} at {call.site}" if call.site else ""])
        severity = "error" if held else "warn"
        _add(report, code, severity, message, entry, advice, where=f"rank {rank}", evidence=evidence)


def _judge_stuck(case: Case, waits: Waits, report: Report) -> None:
    held = {rank: waits[rank][case.group] for rank in case.steps if case.group in waits[rank]}
    inside = [rank for rank, step in held.items() if step.done is False]
    ended = any(
        step.done is None for step in held.values()
    )  # gloo notes the end a little later than the caller sees it
    if inside and not ended and len(case.members) > 1:
        step = min(held.values(), key=lambda step: step.seq)
        message = f"every rank of {case.group} is inside sequence {step.seq}, {step.shown}, and {show_ranks(inside)} "
        message += "did not get out: transport, a peer that died after it entered, or a kernel that hangs"
        _add(report, "hang", "error", message, "DL3", "NCCL_DEBUG=WARN says which.", evidence=step.site or None)


def _judge_missing(missing: list[int], waits: Waits, report: Report, differing: bool) -> None:
    held = sorted((step.time, rank, group, step) for rank, of in waits.items() for group, step in of.items())
    message = f"{show_ranks(missing)} left no dump: died, or the dump is on another machine"
    evidence = None
    if held:
        _, rank, group, step = held[0]
        evidence = f"rank {rank} was last in {group} at sequence {step.seq}, {step.shown} {step.site}"
    place = {"where": show_ranks(missing), "evidence": evidence}
    _add(report, "missing", "warn" if differing else "error", message, "DL3", "`rgt triage <its log>`.", **place)


def _judge_transfers(dumps: dict[int, Dump], report: Report) -> None:
    """Open sends and receives of each pair, in order."""
    pairs: dict[tuple[Group, int, int], tuple[list[Step], list[Step]]] = {}
    for dump in dumps.values():
        for one in dump.transfers:
            if not one.step.done:
                sides = pairs.setdefault((one.group, one.source, one.target), ([], []))
                sides[0 if one.sends else 1].append(one.step)
    for (group, source, target), (sends, receives) in pairs.items():
        ranks = [group.ranks[one] if one < len(group.ranks) else one for one in (source, target)]
        for sent, received in zip(sends, receives, strict=False):
            if sent.signature[1] != received.signature[2]:
                message = f"rank {ranks[0]} sends {sent.shown} to rank {ranks[1]}, which receives {received.shown}"
                _add(
                    report,
                    "shape",
                    "error",
                    message,
                    "DL15",
                    _ADVICE["shape"],
                    evidence=f"{sent.site}; {received.site}",
                )
        alone = sends[len(receives) :] or receives[len(sends) :]
        late, early = ranks[::-1] if len(sends) > len(receives) else ranks
        if alone and late in dumps:
            word = "receives" if late == ranks[1] else "sends"
            message = f"rank {early} waits in {alone[0].shown} of {group}: rank {late} never {word}"
            _add(report, "stalled", "error", message, "DL15", "", where=f"rank {late}", evidence=alone[0].site or None)


def _say_limits(dumps: dict[int, Dump], cases: list[Case], report: Report) -> None:
    """What the dumps cannot show."""
    for case in cases:
        starts = {rank: min(steps) for rank, steps in case.steps.items() if steps}
        ends = {rank: max(steps) for rank, steps in case.steps.items() if steps}
        if starts and max(starts.values()) > min(ends.values()):
            far, near = max(starts, key=lambda r: starts[r]), min(ends, key=lambda r: ends[r])
            message = f"rank {far} starts at sequence {starts[far]} of {case.group}, rank {near} ends at {ends[near]}: "
            report.add("gap", "warn", f"{message}nothing to compare; set TORCH_FR_BUFFER_SIZE higher")
    lost = {rank: dump.lost for rank, dump in dumps.items() if dump.lost}
    if lost:
        most = max(lost.values())
        message = f"the ring buffer wrapped on {show_ranks(lost)}: up to {most:,} older entries are not compared"
        report.add("gap", "info", message, fix="TORCH_FR_BUFFER_SIZE=20000 keeps more")
    spans = {rank: (min(dump.times), max(dump.times)) for rank, dump in dumps.items() if dump.times}
    newest = max((low for low, _ in spans.values()), default=0)
    for rank, (_, high) in spans.items():
        if high < newest:
            message = f"rank {rank}'s newest entry is older than another rank's oldest: a dump of an earlier run?"
            report.add("stale", "warn", message, path=dumps[rank].path)
    if any(not case.group.ranks and case.group.desc != "default_pg" for case in cases):
        report.add(
            "partial", "info", "gloo writes no membership: a group is judged by the ranks that used it; no send or recv"
        )


def _add(report: Report, code: str, severity: str, message: str, entry_id: str, advice: str, **place: Any) -> None:
    """A finding with the fix of its catalogue entry behind its own."""
    entry = next((one for one in catalogue.load() if one.id == entry_id), None)
    fix = f"{advice} {entry.fix} -> {entry.read}" if entry else advice
    report.add(code, severity, message, fix=fix.strip(), **place)


def show_ranks(ranks: Iterable[int]) -> str:
    """ranks 0-3, 7"""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    shown = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    word = "rank" if len(runs) == 1 and len(runs[0]) == 1 else "ranks"
    return f"{word} {', '.join(shown[:12])}{' ...' if len(shown) > 12 else ''}"
