"""The claims of EVIDENCE.json, found by whatever terms a text gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from mentions import terms

Claim = dict[str, Any]
Key = tuple[str, str | None, str | None, str | None]  # metric, method, dataset, split


@dataclass
class Evidence:
    """The claims, by every combination of terms that a text may give."""

    claims: list[Claim]
    aliases: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_id = {claim["id"]: claim for claim in self.claims}
        self.vocabulary = terms.vocabulary(self.claims, self.aliases)
        self.units = frozenset(word for claim in self.claims for word in _unit_words(claim))
        self.measures = frozenset(str(claim["unit"]).lower() for claim in self.claims if claim.get("unit"))
        self.by_key: dict[Key, list[Claim]] = {}
        for claim in self.claims:
            own = [claim[name].lower() if claim.get(name) else None for name in terms.DIMENSIONS[1:]]
            for given in product(*({value, None} for value in own)):
                self.by_key.setdefault((claim["metric"].lower(), *given), []).append(claim)
        self.distinguishes = {name for name in terms.DIMENSIONS[1:] if any(claim.get(name) for claim in self.claims)}

    def lookup(self, metric: str, method: str | None, dataset: str | None, split: str | None) -> list[Claim]:
        """The claims that fit. One that leaves a term open fits every text that names one."""
        exact = self.by_key.get((metric, method, dataset, split))
        if exact:
            return exact
        tries = product((method, None), (dataset, None), (split, None))
        for given in dict.fromkeys(tries):  # the most terms first
            open_ones = [
                claim
                for claim in self.by_key.get((metric, *given), ())
                if all(
                    kept is not None or wanted is None or not claim.get(name)
                    for name, kept, wanted in zip(terms.DIMENSIONS[1:], given, (method, dataset, split), strict=True)
                )
            ]
            if open_ones:
                return open_ones
        return []


def _unit_words(claim: Claim) -> Iterator[str]:
    if claim.get("unit"):
        yield str(claim["unit"]).lower()
    yield from terms.words(claim["metric"])
