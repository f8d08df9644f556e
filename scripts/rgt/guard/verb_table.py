"""The guard's table: what the verbs of the profiles run, what their `guard` key adds, and other_clients.json.

`make docs` writes it beside this file; the guard reads only that, since a hook has no YAML reader and no time for one.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from rgt.bundle import PROFILES
from rgt.guard.quick_start import PROGRAMS, WORDS
from rgt.guard.wrappers import STARTERS
from rgt.platform import profiles

OTHERS = Path(__file__).with_name("other_clients.json")
SELFTEST = "rgt-guard-selftest"  # a client that does not exist, for `rgt guard status`
_ENDS = ("down", "stop", "destroy")


def build(folder: Path = PROFILES) -> dict[str, Any]:
    """commands: client -> [profile, pattern]; hosts, calls -> profile; tiers: storage roots; words: worth a look."""
    commands: dict[str, list[list[str]]] = {}
    hosts: dict[str, str] = {}
    calls: dict[str, str] = {}
    tiers: set[str] = set()
    downs = []

    def merge(name: str, guarded: dict[str, Any]) -> None:
        for pattern in guarded.get("commands", []):
            clients, _, rest = pattern.lstrip("!").partition(" ")
            for client in clients.split("|"):
                _add(commands, client, name, "!" * (pattern[0] == "!") + rest)
        for client in f"{guarded.get('clients', '')} {guarded.get('unverified', '')}".split():
            commands.setdefault(client, [])
        for host in guarded.get("hosts", []):
            hosts.setdefault(host, name)  # a variant without its own has those of its profile
        for call in guarded.get("calls", []):
            calls.setdefault(call, name)

    _add(commands, SELFTEST, "", "destroy instance")
    for name, facts in profiles.every(folder):
        downs += [name] if "argv" in facts["verbs"]["down"] else []
        for verb in _ENDS:
            argv = facts["verbs"].get(verb, {}).get("argv", [])
            if argv[:1] == ["curl"]:
                hosts.setdefault(re.sub(r"^https?://([^/]+).*", r"\1", argv[-1]), name)
            elif argv:
                words = [word for word in argv if not word.startswith("-") and "<" not in word]
                _add(commands, words[0], name, " ".join(words[1:]))
        merge(name, facts.get("guard", {}))
        tiers |= {path.strip() for tier in facts["storage"] for path in tier["path"].split(",")}
    merge("", json.loads(OTHERS.read_text(encoding="utf-8")))
    rooted = sorted(path for path in tiers - {"/tmp", "/dev/shm"} if re.fullmatch(r"/[\w./-]+", path))
    judged = [row["names"] for row in PROGRAMS["destroyers"]]
    judged += [names for key, names in PROGRAMS["functions"].items() if not key.startswith("outputs")]
    looks = sorted({*" ".join(judged).split()} - {*WORDS["quiet"], *STARTERS} | WORDS["first look"])
    return {"commands": commands, "hosts": hosts, "calls": calls, "tiers": rooted, "downs": downs, "words": looks}


def _add(commands: dict[str, list[list[str]]], client: str, name: str, pattern: str) -> None:
    rows = commands.setdefault(client, [])
    if [name, pattern] not in rows and all(row[1] != pattern for row in rows):
        rows.append([name, pattern])


def text(table: dict[str, Any]) -> str:
    return json.dumps(table, indent=1, ensure_ascii=False) + "\n"
