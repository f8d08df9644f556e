"""From SKILL.md to the answer: how many links, how many tokens. What a case costs before its first command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from doccheck.documents import load_all
from trials.case import ROOT, Loaded

SKILL = Path("SKILL.md")


@dataclass(frozen=True)
class Way:
    case: str
    hops: int  # the longest of its files; 0: SKILL.md itself says it
    tokens: int  # SKILL.md and every file that should be read


class Library:
    """The documents of the bundle, and how far each is from SKILL.md."""

    def __init__(self, root: Path = ROOT) -> None:
        self.documents = {document.path: document for document in load_all(root)}
        self.distance = {SKILL: 0}
        edge = [SKILL]
        while edge:
            near = {target: path for path in edge for target in self.documents[path].targets()}
            edge = [target for target in near if target in self.documents and target not in self.distance]
            self.distance |= {target: self.distance[near[target]] + 1 for target in edge}

    def tokens(self, *names: str) -> int:
        """Of these files, and of all documents in these folders."""
        return sum(document.tokens for path, document in self.documents.items() if path.parts[0] in names)

    def way(self, loaded: Loaded) -> Way:
        paths = [Path(name) for name in loaded.case.reads]
        tokens = sum(self.documents[path].tokens for path in [SKILL, *paths])
        hops = max((self.distance.get(path, 99) for path in paths), default=0)
        return Way(loaded.name, hops, tokens)
