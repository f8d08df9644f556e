"""The words of a guard: an act, and the table of what the profiles say."""

from __future__ import annotations

from rgt.guard.precious_paths import UNKNOWN


class Act:
    """One thing that must not happen without proof and approval."""

    __slots__ = ("box", "command", "kind", "profile", "sentence", "target")

    def __init__(self, kind: str, sentence: str, command: str, target: str, profile: str, box: str) -> None:
        self.kind, self.sentence, self.command = kind, sentence, command
        self.target, self.profile, self.box = target, profile, box

    def as_dict(self) -> dict[str, str]:
        return {name: shown(getattr(self, name)) for name in self.__slots__}


def shown(text: str) -> str:
    plain = UNKNOWN.sub(lambda match: "$" + match[1].replace("\ue006", " "), text)
    return "".join(sign if sign.isprintable() else " " for sign in plain)[:300]


class Table:
    """What the profiles say: clients and their verbs, hosts, calls, storage tiers."""

    def __init__(self, data: dict[str, object]) -> None:
        commands, hosts, calls = (data[key] for key in ("commands", "hosts", "calls"))
        tiers, downs = data["tiers"], data["downs"]
        if not all(isinstance(one, dict) for one in (commands, hosts, calls)) or not isinstance(tiers, list):
            raise ValueError("the guard's table is malformed")
        self.commands: dict[str, list[list[str]]] = commands  # type: ignore[assignment]
        self.hosts: dict[str, str] = hosts  # type: ignore[assignment]
        self.calls: dict[str, str] = calls  # type: ignore[assignment]
        self.tiers: list[str] = tiers
        self.downs: set[str] = set(downs) if isinstance(downs, list) else set()  # profiles whose `down` has a command
