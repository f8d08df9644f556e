"""The rules. Each takes the repository and yields sentences: 'file:line: what is wrong, what to do'."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from doccheck import commands, generate, signatures
from doccheck.documents import Document, catalogue_entries, load_all, repository_files, resolved
from rgt.catalogue.entries import FIELDS, FOLDERS, SHORT
from rgt.catalogue.entries import parse as parse_entries

SKILL = Path("SKILL.md")
SKILL_LINES, SKILL_TOKENS, REFERENCE_TOKENS, CATALOGUE_TOKENS = 200, 3000, 3500, 6000
HOPS = 2
HEAVY = ("torch", "numpy", "wandb", "matplotlib", "scipy")
SHORT_FIELDS = ("Cause", "Fix")  # of an entry that only triage prints
_FOLDERS = "references|profiles|scripts|examples|evals|tests|\\.ci"
_PATH = re.compile(
    rf"(?:{_FOLDERS})/[^\s`]*|(?:SKILL|README|CHANGELOG|CONTRIBUTING|SECURITY)\.md|Makefile|pyproject\.toml"
)
_BARE_SCRIPT = re.compile(r"[\w-]+\.(?:py|sh)")
_MAKE = re.compile(r"\bmake ([a-z][a-z-]*)\b")


@dataclass
class Repository:
    root: Path

    @cached_property
    def documents(self) -> list[Document]:
        return load_all(self.root)

    @cached_property
    def by_path(self) -> dict[Path, Document]:
        return {document.path: document for document in self.documents}

    @cached_property
    def files(self) -> list[Path]:
        return [path.relative_to(self.root) for path in repository_files(self.root)]


def links(repository: Repository) -> Iterator[str]:
    """Every relative link and anchor leads somewhere."""
    for document in repository.documents:
        for link in document.links:
            if re.match(r"[a-z]+:", link.text):
                continue
            name, _, anchor = link.text.partition("#")
            target = resolved(document.path, name) if name else document.path
            if target is None or not (repository.root / target).exists():
                yield f"{document.path}:{link.line}: the link {link.text} leads nowhere"
            elif anchor and not (target in repository.by_path and anchor in repository.by_path[target].anchors):
                yield f"{document.path}:{link.line}: {target} has no heading for #{anchor}"


def paths(repository: Repository) -> Iterator[str]:
    """Every path in backticks exists; `<x>` and `*` stand for anything, but something must be there."""
    names = {path.name for path in repository.files}
    for document in _own_words(repository):
        for code in document.codes:
            for word in code.text.split():
                problem = _path_problem(repository, names, word)
                if problem:
                    yield f"{document.path}:{code.line}: {problem}"


def _own_words(repository: Repository) -> Iterator[Document]:
    """Documents whose backticks are ours: those of short entries quote other programs' messages."""
    return (document for document in repository.documents if not _is_short(document))


def _path_problem(repository: Repository, names: set[str], word: str) -> str | None:
    word = re.sub(r"(:\d+|#[\w-]+|::.*)$", "", word.rstrip(".,;)"))
    if _PATH.fullmatch(word):
        pattern = re.sub(r"<[^<>]*>", "*", word)
        if "*" in pattern:
            folders = {parent for path in repository.files for parent in path.parents}
            exists = any(path.match(pattern.rstrip("/")) for path in [*repository.files, *folders])
        else:
            exists = (repository.root / pattern).exists()
        return None if exists else f"the path {word} does not exist"
    if _BARE_SCRIPT.fullmatch(word) and word not in names:
        return f"no file of the repository is called {word}"
    return None


def command_lines(repository: Repository) -> Iterator[str]:
    """Every shown command parses against the real CLI."""
    for document in repository.documents:
        for line in commands.command_lines(document):
            for problem in commands.problems(repository.root, line.text):
                yield f"{document.path}:{line.line}: {problem}"


def make_targets(repository: Repository) -> Iterator[str]:
    """Every `make x` that a document shows is a target."""
    makefile = (repository.root / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.M))
    for document in _own_words(repository):
        for code in [*document.codes, *document.fences]:
            for target in _MAKE.findall(code.text):
                if target not in targets:
                    yield f"{document.path}:{code.line}: there is no `make {target}`"


def reachable(repository: Repository) -> Iterator[str]:
    """Every reference, profile and example is at most two links away from SKILL.md."""
    seen, edge = {SKILL}, {SKILL}
    for _ in range(HOPS):
        links = (repository.by_path[path].targets() for path in edge & repository.by_path.keys())
        edge = set().union(*links) & repository.by_path.keys() - seen
        seen |= edge
    for document in repository.documents:
        routed = document.path.parts[0] in ("references", "profiles", "examples") and not _is_short(document)
        if routed and document.path not in seen:
            yield f"{document.path}: not within {HOPS} links of SKILL.md; link it or delete it"


def budgets(repository: Repository) -> Iterator[str]:
    """Context is paid for by every reader."""
    for document in repository.documents:
        limit = _token_limit(document)
        if limit and document.tokens > limit:
            yield f"{document.path}: {document.tokens} tokens, the budget is {limit}; cut or split"
        if document.path == SKILL and document.text.count("\n") > SKILL_LINES:
            yield f"{document.path}: {document.text.count(chr(10))} lines, the budget is {SKILL_LINES}"


def _token_limit(document: Document) -> int | None:
    if document.path == SKILL:
        return SKILL_TOKENS
    if document.path.parts[0] not in ("references", "profiles") or _is_short(document):
        return None
    return CATALOGUE_TOKENS if any(catalogue_entries(document)) else REFERENCE_TOKENS


def _is_short(document: Document) -> bool:
    """Read by triage alone: no budget, no route to it."""
    return document.path.as_posix().startswith(SHORT)


def catalogue(repository: Repository) -> Iterator[str]:
    """Entry ids are unique, entries are complete, signatures are what triage can use."""
    seen: dict[str, str] = {}
    for document in repository.documents:
        if document.path.parts[0] not in FOLDERS:  # CONTRIBUTING.md shows an example
            continue
        for name, line, body in catalogue_entries(document):
            place = f"{document.path}:{line}"
            if name in seen:
                yield f"{place}: {name} is taken by {seen[name]}"
            seen.setdefault(name, place)
            for field in SHORT_FIELDS if _is_short(document) else FIELDS:
                if f"**{field}**" not in body:
                    yield f"{place}: {name} has no **{field}**"
            if _is_short(document) and "**Source**" not in body and "## Sources" not in document.text:
                yield f"{place}: {name} has no **Source**, and the file no '## Sources' at its end"
        for entry in parse_entries(document.text, document.path.as_posix()):
            yield from (f"{document.path}: {problem}" for problem in signatures.problems(entry))


def generated(repository: Repository) -> Iterator[str]:
    """Generated blocks are what the code would generate now."""
    for document in repository.documents:
        if generate.fresh(repository.root, document) != document.text:
            yield f"{document.path}: a generated block is out of date; run `make docs`"
    if (repository.root / generate.GUARD_TABLE).read_text(encoding="utf-8") != generate.guard_table(repository.root):
        yield f"{generate.GUARD_TABLE} is out of date; run `make docs`"


def documented(repository: Repository) -> Iterator[str]:
    """Every script has its phase in its docstring and is shown in at least one command."""
    shown = "\n".join(line.text for document in repository.documents for line in commands.command_lines(document))
    for stem in commands.script_stems(repository.root):
        script = repository.root / "scripts" / f"{stem}.py"
        if generate.first_line(script).partition(" · ")[0] not in generate.PHASES:
            yield f"scripts/{stem}.py: the docstring must start with one of {', '.join(generate.PHASES)} and ' · '"
        if not re.search(rf"\brgt {stem}\b", shown):
            yield f"scripts/{stem}.py: no document shows how it is called"


def help_texts(repository: Repository) -> Iterator[str]:
    """Every --help lists the exit codes, and every option says what it does."""
    for stem in commands.script_stems(repository.root):
        for words, command in commands.all_commands(commands.load_command(repository.root, stem), f"{stem}.py"):
            with command.make_context(words, [], resilient_parsing=True) as context:
                if "Exit codes:" not in command.get_help(context):
                    yield f"{words} --help does not list the exit codes"
            for parameter in command.params:
                if parameter.param_type_name == "option" and not getattr(parameter, "help", None):
                    yield f"{words}: {parameter.opts[0]} has no help text"


_HELP_PROBE = """
import runpy, sys
heavy, script, sys.argv = sys.argv[1].split(','), sys.argv[2], sys.argv[2:]
sys.path.insert(0, script.rpartition('/')[0])
try:
    runpy.run_path(script, run_name='__main__')
except SystemExit:
    pass
print('\\nHEAVY', *[name for name in heavy if name in sys.modules])
"""


def light_help(repository: Repository) -> Iterator[str]:
    """No --help imports a heavy package (seen in sys.modules)."""
    for stem in commands.script_stems(repository.root):
        script = f"{repository.root}/scripts/{stem}.py"
        probe = [sys.executable, "-c", _HELP_PROBE, ",".join(HEAVY), script, "--help"]
        lines = subprocess.run(probe, capture_output=True, text=True, check=True).stdout.splitlines()
        heavy = lines[-1].split()[1:]
        if heavy:
            yield f"scripts/{stem}.py --help imports {', '.join(heavy)}; import it inside the function that needs it"


RULES: tuple[Callable[[Repository], Iterator[str]], ...] = (
    links,
    paths,
    command_lines,
    make_targets,
    reachable,
    budgets,
    catalogue,
    generated,
    documented,
    help_texts,
    light_help,
)
