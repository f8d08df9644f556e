"""From SKILL.md to the answer: how many links, how many tokens. What a case costs before its first command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from doccheck.documents import Document, load_all
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
        self.root = root
        self.documents = {document.path: document for document in load_all(root)}
        self.distance = {SKILL: 0}
        edge = [SKILL]
        while edge:
            near = [(target, self.distance[path] + 1) for path in edge for target in self._links(self.documents[path])]
            edge = []
            for target, hops in near:
                if target not in self.distance:
                    self.distance[target] = hops
                    edge.append(target)

    def _links(self, document: Document) -> list[Path]:
        found = []
        for link in document.links:
            name = link.text.partition("#")[0]
            if name and ":" not in name:
                target = (self.root / document.path.parent / name).resolve()
                if target.is_relative_to(self.root.resolve()):
                    found.append(target.relative_to(self.root.resolve()))
        return [path for path in found if path in self.documents]

    def tokens(self, *names: str) -> int:
        """Of these files, and of all documents in these folders."""
        return sum(document.tokens for path, document in self.documents.items() if path.parts[0] in names)

    def way(self, loaded: Loaded) -> Way:
        paths = [Path(name) for name in loaded.case.reads]
        tokens = sum(self.documents[path].tokens for path in [SKILL, *paths])
        hops = max((self.distance.get(path, 99) for path in paths), default=0)
        return Way(loaded.name, hops, tokens)
