"""End a box, and prove it by the provider's own list: the id is in it before, and a positive sign is in it after.

The list is read as JSON, by the fields that the profile names (`meter.list.answer`). An answer that cannot be read (an
error, an empty text, a page of HTML, a table) proves nothing: before the act it refuses, after the act it is said.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rgt.errors import RgtError
from rgt.platform import profiles

SECONDS = 180.0  # for one command of a provider
WAIT = 180.0  # seconds for the sign of the act to come into the list
_PAUSE, _LONGEST_PAUSE = 0.5, 15.0  # between two looks; it doubles
_SHOWN = 600  # characters of an answer
_NAMED = 8  # ids of a list
_EMPTY: tuple[Any, ...] = (None, "", [], {}, False)


@dataclass(frozen=True)
class Row:
    """One thing that the provider lists; `bills` says for what, and is empty when nothing bills."""

    id: str
    status: str
    bills: str
    stopped: bool = False
    ended: bool = False


@dataclass(frozen=True)
class Listing:
    """What the provider lists, or the problem that kept the answer from being read."""

    rows: list[Row] = field(default_factory=list)
    problem: str = ""
    said: str = ""
    whole: bool = True  # False: the answer is one page of several, and what is not on it may be on another

    def having(self, box_id: str) -> list[Row]:
        return [row for row in self.rows if row.id == box_id]

    def is_stopped(self, box_id: str) -> bool:
        """Whether it says positively that this box is stopped."""
        return bool(rows := self.having(box_id)) and all(row.stopped for row in rows)


@dataclass(frozen=True)
class Outcome:
    executed: bool
    gone: bool  # the list shows what the act is for: ended, or stopped by `stop`
    sentence: str
    said: str
    exit_code: int | None


def usual(facts: dict[str, Any]) -> str:
    """The act that stops the meter on this platform."""
    return "destroy" if facts["meter"]["stops_with"]["irreversible"] else "stop"


def verb(facts: dict[str, Any], act: str) -> dict[str, Any]:
    """How this platform does the act; `down` is the usual one."""
    other: dict[str, Any] = facts["verbs"].get(act, {"value": f"unknown; no {act} is written down for this platform"})
    return facts["verbs"]["down"] if act == usual(facts) else other


def consequences(facts: dict[str, Any], act: str) -> Iterator[tuple[str, str]]:
    """(what, sentence): what the act loses, keeps, and leaves billing."""
    for tier in facts["storage"]:
        price = f", {tier['price']}" if tier.get("price") else ""
        if tier[act] == "kept":
            yield "keeps billing" if price else "kept", f"{tier['tier']} ({tier['path']}){price}"
        else:
            unsure = "" if tier[act] == "lost" else ": what becomes of it is not known, count it as lost"
            yield "lost", f"{tier['tier']} ({tier['path']}){unsure}"
    what = "keeps billing" if act == "stop" else "only stopped"
    yield what, f"{'' if act == 'stop' else 'still bills '}{facts['meter']['stopped_still_bills']['value']}"


def why_stop_loses(facts: dict[str, Any], path: str) -> str:
    """Why a stop is not known to keep what lies at this path of the box; empty when the storage matrix says kept."""
    if "argv" not in verb(facts, "stop") or not facts["meter"]["list"].get("answer", {}).get("stopped"):
        return f"{facts['title']} has no stop that a program can do and see done"
    tiers = tiers_of(facts, path)
    if not tiers:
        return f"no storage tier of {facts['title']} is known to hold {path}"
    lost = [f"{tier['tier']} ({tier['path']})" for tier in tiers if tier["stop"] != "kept"]
    return f"{path} is on the {lost[0]}, which a stop of {facts['title']} does not keep" if lost else ""


def tiers_of(facts: dict[str, Any], path: str) -> list[dict[str, Any]]:
    """The tiers that may hold a path: those of the longest place above it."""
    home = re.match(r"(~|/root|/home/[^/]+)(?=/|$)", path)
    found: dict[int, list[dict[str, Any]]] = {}
    for tier in facts["storage"]:
        for place in (part.strip() for part in tier["path"].split(",")):
            here = home[0] if home and place == "~" else place.partition("<")[0]
            if here[:1] in ("/", "~") and (path + "/").startswith(here.rstrip("/") + "/"):
                found.setdefault(len(here), []).append(tier)
    return found[max(found)] if found else []


def quoted(text: str) -> str:
    """Words of a stranger: control characters shown, and of a long text its two ends (an error is told at its last)."""
    text = text.strip()
    if len(text) > _SHOWN:
        text = f"{text[: _SHOWN // 2]} ... {text[-_SHOWN // 2 :]}"
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


# -- the list


def listed(facts: dict[str, Any], values: dict[str, str]) -> Listing:
    """Ask the provider what it lists. Raises when the client or its key is not here."""
    fact = facts["meter"]["list"]
    order = profiles.command(fact, values)
    if order is None or "answer" not in fact:
        return Listing(problem=f"{facts['title']} has no list that a program can read")
    reply = order.run(SECONDS)
    said = quoted(reply.out or reply.err)
    if reply.code:
        return Listing(problem=f"{order.text} ended with {reply.code}", said=quoted(reply.err or reply.out))
    try:
        data = json.loads(reply.out)
    except (ValueError, RecursionError):
        problem = "is not JSON" if reply.out.strip() else "is empty"
        return Listing(problem=f"the answer of {order.text} {problem}", said=said)
    answer = fact["answer"]
    found = _at(data, answer["rows"])
    ids = [_at(row, answer["id"]) for row in found] if isinstance(found, list) else []
    problem = _error(data, answer)
    if not problem and not isinstance(found, list):
        problem = f"has no list at {answer['rows'] or 'its top'}"
    elif not problem and not all(isinstance(one, str | int) and not isinstance(one, bool) for one in ids):
        problem = f"has rows without {answer['id']}"
    if problem:
        return Listing(problem=f"the answer of {order.text} {problem}", said=said)
    rows = []
    for item, its_id in zip(found, ids, strict=True):
        status = _at(item, answer["status"]) if "status" in answer else None
        words = [str(word) for word in status] if isinstance(status, list) else [str(status or "")]  # Slurm has several
        # a status that the profile does not know bills: a new word must not read as an end
        is_ended = all(word in answer.get("ended", []) for word in words)
        is_stopped = not is_ended and all(word in answer.get("stopped", []) for word in words)
        bills = "" if is_ended else facts["meter"]["stopped_still_bills"]["value"] if is_stopped else "the machine"
        rows.append(Row(str(its_id), quoted(" ".join(words)) or "not told", bills, is_stopped, is_ended))
    more = _at(data, answer["more"]) if "more" in answer else None
    return Listing(rows, said=said, whole=more in _EMPTY or (more == 1 and more is not True))


def ask(facts: dict[str, Any], values: dict[str, str]) -> Listing:
    """The list; that the client or its key is not here is a problem of it."""
    try:
        return listed(facts, values)
    except RgtError as error:
        return Listing(problem=error.message)


def _at(data: Any, path: str) -> Any:
    """What lies at a dotted path; the empty path is the answer itself, and None is nothing there."""
    for key in filter(None, path.split(".")):
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _error(data: Any, answer: dict[str, Any]) -> str:
    """Whether the answer calls itself an error: a field that does not have the value of success."""
    for path, value in answer.get("ok", {}).items():
        seen = _at(data, path)
        if (seen not in _EMPTY) if value is None else (seen != value):
            return f"is an error: {path} is {quoted(json.dumps(seen, ensure_ascii=False))}"
    return ""


# -- before, act, after


def end(facts: dict[str, Any], values: dict[str, str], box_id: str, act: str = "", wait: float = WAIT) -> Outcome:
    """Do the act when the list holds this very id, then look until the list shows it or `wait` seconds are over."""
    act = act or usual(facts)
    how = verb(facts, act)
    order, look = profiles.command(how, values), f"look at the console ({facts['meter']['list']['value']})"
    if order is None:
        return Outcome(False, False, f"there is no command for it; by hand: {how['value']}, then {look}", "", None)
    before = listed(facts, values)
    if before.problem:
        sentence = f"{before.problem}, so it is not shown that {box_id} is there; by hand: {order.text}, then {look}"
        return Outcome(False, False, sentence, before.said, None)
    if not before.having(box_id):
        names = ", ".join(quoted(row.id) for row in before.rows[:_NAMED]) or "nothing"
        names += ", ..." if len(before.rows) > _NAMED or not before.whole else ""
        sentence = f"{box_id} is not in the provider's list, which has {names}: give the whole id by --id, or {look}"
        return Outcome(False, False, sentence, before.said, None)
    sign = _sign(act, before, box_id)
    if sign:
        return Outcome(False, True, f"nothing was left to do: {sign}", before.said, None)
    reply = order.run(SECONDS)
    fault = f"ended with {reply.code}" if reply.code else ""
    with contextlib.suppress(ValueError, RecursionError):  # with exit code 0, an error in the fields of the same API
        data = json.loads(reply.out)
        fault = fault or (_error(data, facts["meter"]["list"]["answer"]) if isinstance(data, dict) else "")
    others, absent = len(before.rows) > len(before.having(box_id)), 0
    for after in _looks(facts, values, wait):
        sign = _sign(act, after, box_id)
        # absence alone is weak: it counts twice, so never after a fault, on a whole list that did not lose all others
        lacks = not after.problem and after.whole and not after.having(box_id) and bool(after.rows or not others)
        absent = absent + 1 if lacks and act == "destroy" else 0
        if sign or absent == 2:
            return Outcome(True, True, sign or f"the provider no longer lists {box_id}", after.said, reply.code)
        if fault:
            break
    statuses = ", ".join(row.status for row in after.having(box_id))
    why = after.problem or f"the list {f'shows {box_id} as {statuses}' if statuses else f'does not have {box_id}'}"
    why += f"; {order.words[0]} {fault}" if fault else ""
    said = f"{order.words[0]}: {quoted(reply.out + reply.err) or '(nothing)'} | list: {after.said or '(nothing)'}"
    return Outcome(True, False, f"not proved gone: {look}; {why}", said, reply.code)


def _sign(act: str, listing: Listing, box_id: str) -> str:
    """The sentence when the list says that the act is done."""
    rows = listing.having(box_id)
    done = rows and all(row.ended or (act == "stop" and row.stopped) for row in rows)
    return f"the provider lists {box_id} as {rows[0].status}" if done else ""


def _looks(facts: dict[str, Any], values: dict[str, str], wait: float) -> Iterator[Listing]:
    """The list again and again, at least twice. The act was done: whatever happens now, its outcome must be told."""
    deadline, pause, count = time.monotonic() + wait, _PAUSE, 0
    while count < 2 or time.monotonic() < deadline:
        if count:
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        yield ask(facts, values)
        count += 1
