"""`find`: which paths an expression matches here, and what -delete, -exec and the words behind a pipe do to them."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable

from rgt.guard.argument_words import operands, option
from rgt.guard.lazy_regex import re
from rgt.guard.precious_paths import marker
from rgt.guard.shell_walk import MATCHES, State, Walker

PATHS = 3000  # looked at
_VALUED = set(
    "-name -iname -path -ipath -wholename -regex -iregex -type -maxdepth -mindepth -mtime -mmin -ctime -atime -newer"
    " -size -user -group -perm -amin -cmin -newermt -lname -fstype -printf -links -inum -samefile -used".split()
)
Test = Callable[[str, bool], "bool | None"]  # path, is a folder -> whether it matches; None: cannot be known


class Expression:
    """The words behind the paths, evaluated as find does: in order, an action where its turn comes."""

    def __init__(self, words: list[str]) -> None:
        self.words, self.i = words, 0
        self.depth = [0, 99]
        self.executes: list[tuple[list[str], bool, list[str]]] = []  # words, whether all paths come at once, paths
        self.deleted: list[str] = []
        self.printed: list[str] | None = None
        self.prints0 = self.pruned = False
        self.test = self.any_of()

    def any_of(self) -> Test:
        tests = [self.all_of()]
        while self.i < len(self.words) and self.words[self.i] in ("-o", "-or", ","):
            self.i += 1
            tests.append(self.all_of())
        return lambda path, folder: _first(tests, path, folder, True)

    def all_of(self) -> Test:
        tests: list[Test] = []
        while self.i < len(self.words) and self.words[self.i] not in ("-o", "-or", ",", ")"):
            tests.append(self.primary())
        return lambda path, folder: _first(tests, path, folder, False)

    def primary(self) -> Test:
        word = self.words[self.i]
        self.i += 1
        if word in ("!", "-not") and self.i < len(self.words):
            inner = self.primary()
            return lambda path, folder: None if (answer := inner(path, folder)) is None else not answer
        if word == "(":
            inner = self.any_of()
            self.i += 1
            return inner
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            start, paths = self.i, list[str]()
            while self.i < len(self.words) and self.words[self.i] not in (";", "+", "\\;"):
                self.i += 1
            self.executes.append((self.words[start : self.i], self.words[self.i : self.i + 1] == ["+"], paths))
            self.i += 1
            return self.action(paths)
        if word == "-delete":
            return self.action(self.deleted)
        if word == "-prune":
            return self.prune
        if word in ("-print", "-print0"):
            self.prints0, self.printed = word == "-print0", self.printed or []
            return self.action(self.printed)
        if word not in _VALUED:
            return (lambda path, folder: _is_empty(path)) if word == "-empty" else (lambda path, folder: True)
        value = self.words[self.i] if self.i < len(self.words) else ""
        self.i += 1
        return self.valued(word, value)

    def action(self, paths: list[str]) -> Test:
        def act(path: str, folder: bool) -> bool:
            paths.append(path)
            return True

        return act

    def prune(self, path: str, folder: bool) -> bool:
        self.pruned = True
        return True

    def valued(self, word: str, value: str) -> Test:
        if word in ("-maxdepth", "-mindepth"):
            self.depth[word == "-maxdepth"] = int(value) if value.isdigit() else 99
            return lambda path, folder: True
        if word in ("-name", "-iname", "-path", "-ipath", "-wholename"):
            regex = re.compile(fnmatch.translate(value), re.I if word[1] == "i" else 0)
            name = os.path.basename if word.endswith("name") and word != "-wholename" else str
            return lambda path, folder: bool(regex.match(name(path)))
        if word == "-type" and value in ("f", "d"):
            return lambda path, folder: folder == (value == "d")
        return lambda path, folder: True if word == "-printf" else None


def _first(tests: list[Test], path: str, folder: bool, wanted: bool) -> bool | None:
    """`or` ends at the first yes, `and` at the first no; what cannot be known is a maybe, and the rest may follow."""
    maybe = False
    for test in tests:
        answer = test(path, folder)
        if answer is wanted:
            return wanted
        maybe = maybe or answer is None
    return None if maybe else not wanted


def _is_empty(path: str) -> bool:
    try:
        return not os.listdir(path) if os.path.isdir(path) else os.path.getsize(path) == 0
    except OSError:
        return False


def find(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    roots, rest = [], [word for word in words[1:] if word not in ("-L", "-P", "-H")]
    while rest and not (rest[0].startswith("-") or rest[0] in ("(", "!", "\\(")):
        roots.append(rest.pop(0))
    wanted = Expression([word.replace("\\(", "(").replace("\\)", ")") for word in rest])
    paths = []
    for root in roots or ["."]:
        if not state.remote and "\ue001" not in root and root != "/" and os.path.lexists(state.path(root)):
            paths += matches(guard, root, wanted, state)
        else:
            paths.append(guessed_path(root, words))
            sinks = [wanted.deleted] if "-delete" in words else []
            for sink in [*sinks, *(hits for _, _, hits in wanted.executes)]:
                sink.append(paths[-1])
    if wanted.deleted:
        guard.lose(wanted.deleted, state, words, "find -delete removes", whole=state.remote)
    for command, together, hits in wanted.executes:
        if hits:
            execute(guard, command, hits, state, together)
    if state.remote or "-printf" in words:
        return marker(" ".join(words))
    if wanted.printed is not None or wanted.executes or "-delete" in words:
        paths = wanted.printed or []
    return "".join(path + ("\0" if wanted.prints0 else "\n") for path in paths)


def guessed_path(root: str, words: list[str]) -> str:
    """On another machine: the root with the pattern that is looked for."""
    names = [words[i + 1] for i, word in enumerate(words[:-1]) if word in ("-name", "-iname", "-path")]
    negated = {words[i + 2] for i, word in enumerate(words[:-2]) if word in ("!", "-not")}
    names = [name for name in names if name not in negated]
    return root.rstrip("/") + ("/" + names[0] if names else "/*")


def execute(guard: Walker, command: list[str], paths: list[str], state: State, together: bool) -> None:
    if together and "{}" in command:
        at = command.index("{}")
        guard.run([*command[:at], *paths, *command[at + 1 :]], state.copy(), "")
        return
    for path in paths[:MATCHES]:
        guard.run([word.replace("{}", path) for word in command], state.copy(), "")


def matches(guard: Walker, root: str, wanted: Expression, state: State) -> list[str]:
    top = root.rstrip("/") or "/"
    low, high = wanted.depth
    found, level, seen = [], [(top, os.path.isdir(state.path(top)))], 0
    for depth in range(12):
        if depth > high or seen > PATHS:
            break
        below = []
        for path, folder in level:
            seen += 1
            wanted.pruned = False
            if depth >= low and os.path.lexists(state.path(path)) and wanted.test(path, folder) is not False:
                found.append(path)
            if folder and not wanted.pruned:
                rows = guard.precious.entries(state.path(path).rstrip("/") or "/")
                below += [(f"{path.rstrip('/')}/{name}", is_dir) for name, is_dir in rows]
        level = below
    return found


def fd(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """fd PATTERN [FOLDER] -e EXT -x COMMAND, as find would do it."""
    at = next((i for i, word in enumerate(words) if word in ("-x", "-X", "--exec", "--exec-batch")), len(words))
    rest, command = words[1:at], words[at + 1 :]
    ending = option(rest, "-e", "--extension")
    given = operands(rest, "-e -t -d -E --extension --type --max-depth --exclude --changed-before")
    pattern = given[0] if "-g" in rest else re.sub(r"\.\*|[.*]", "*", f"*{given[0].strip('^$')}*") if given else "*"
    tests = ["-mindepth", "1", "-name", pattern.replace("\\", ""), *(["-name", f"*.{ending}"] if ending else [])]
    command = command if "{}" in command or not command else [*command, "{}"]
    action = ["-exec", *command, "+" if words[at] in ("-X", "--exec-batch") else ";"] if command else []
    return find(guard, ["find", *(given[1:] or ["."]), *tests, *action], state, stdin)
