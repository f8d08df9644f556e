"""What a shell makes of a word before a command sees it: variables, substitutions, braces, globs; and its state.

What cannot be known is a marker (`precious_paths.marker`) that says where it came from.
"""

from __future__ import annotations

import os

from rgt.guard.precious_paths import Precious, marker
from rgt.guard.quick_start import LIKE, re
from rgt.guard.shell_reader import Node, Part, Word, parse_word

STEPS = 20_000  # commands, words and values of one line
VALUES = 40  # of a loop or a split
MATCHES = 400  # of a glob
NESTING = 12  # scripts in scripts
TEXT = 256 * 1024  # of a file that is read
_ESCAPED = "\ue003"  # before a sign that is quoted
_CUT = "\ue004"  # between fields
_SPECIAL = {ord(sign): "\ue003" + sign for sign in "*?[]{}~,.!()-\ue003"}
_BRACES = {ord(sign): "\ue003" + sign for sign in "{}~,"}


class TooMuch(Exception):
    """The line needs more work than the guard may do."""


class Aborted(Exception):
    """${x:?} or set -u, and no such variable: the shell ends here."""


class State:
    """What a command sees: folder, variables, functions, whether it runs on another machine."""

    def __init__(self, cwd: str, variables: dict[str, str], home: str) -> None:
        self.cwd, self.home = cwd, home
        self.remote = False
        self.fresh = False  # in a new container: only what is mounted outlives it
        self.variables: dict[str, str | list[str]] = dict(variables)
        self.functions: dict[str, Node] = {}
        self.aliases: dict[str, str] = {}
        self.files: dict[str, str] = {}  # written by the line itself
        self.readers: dict[str, Node] = {}  # of a path: the process that reads what is written there
        self.descriptors: dict[str, str] = {}  # that `exec 3> path` opened
        self.made: dict[str, dict[str, str]] = {}  # boxes that the line itself created, with their mounts
        self.arguments: list[str] = []
        self.traps: list[str] = []  # one list for a script and what it starts
        self.depth = 0
        self.status: bool | None = None  # whether the last command succeeded, when that is sure
        self.stopped = ""  # the exit, return, break or continue that surely came before
        self.links: dict[str, str] = {}  # what the line itself moved, or with a / at its end linked: where it was
        self.mounts: dict[str, str] = {}  # of a container: its folder -> ours
        self.folders: list[str] = []  # and files that the line itself made: what is in them is its own
        self.copies: list[str] = []  # that the line itself made
        self.hoped: list[str] = []  # the same, if their mkdir succeeded: as far as && goes
        self.left = ""  # the folder of the last cd, when it cannot succeed: there is no such place
        self.quoted: set[str] = set()  # words of this command with a * in quotes: a name, not a pattern
        self.stops = False  # at the first command that fails: set -e

    def copy(self) -> State:
        twin = State(self.cwd, {}, self.home)
        twin.__dict__.update(self.__dict__)
        twin.variables, twin.functions = dict(self.variables), dict(self.functions)
        twin.aliases = dict(self.aliases)
        return twin

    def elsewhere(self) -> State:
        """A login on another machine: its own variables, nothing of ours."""
        there = State("~", {"HOME": "~"}, "~")
        there.remote, there.depth = True, self.depth
        return there

    def path(self, word: str) -> str:
        """Absolute where the folder is known; ~ stays for another machine."""
        word = word.replace("\0", "")  # no path has one, and a shell drops it
        if word.startswith("~") and not self.remote:
            word = self.home + word[1:] if word[1:2] in ("", "/") else word
        joined = word if word.startswith(("/", "~", "\ue001")) else f"{self.cwd}/{word}"
        if "://" in word:
            return joined
        if "\ue001" not in joined:
            for there, here in self.mounts.items():
                if joined == there or joined.startswith(f"{there}/"):
                    return os.path.normpath(here + joined[len(there) :])
            joined = os.path.normpath(joined) + "/" * (word.endswith("/") and len(word) > 1)
        for there, here in self.links.items():
            if joined == there or joined.startswith(f"{there.rstrip('/')}/"):
                return here + joined[len(there.rstrip("/")) :]
        return joined


class Expander:
    """Turns words into fields; `shell_walk.Walker` runs what is substituted."""

    def __init__(self, precious: Precious) -> None:
        self.precious = precious
        self.steps = self.counter = 0

    def walk(self, node: Node, state: State, stdin: str) -> str:
        """What a command substitution prints."""
        raise NotImplementedError

    def step(self, count: int = 1) -> None:
        self.steps += count
        if self.steps > STEPS:
            raise TooMuch

    def text(self, word: Word, state: State) -> str:
        """One string, as an assignment or a here-document takes it."""
        raw = "".join(self.part(part, state, True)[:TEXT] for part in word).replace(_CUT, " ").replace(_ESCAPED, "")
        home = word and not word[0][2] and (raw == "~" or raw.startswith("~/"))
        return state.home + raw[1:] if home else raw

    def expand(self, word: Word, state: State) -> list[str]:
        """The fields that the command gets for this word."""
        self.step()
        raw = "".join(self.part(part, state, part[2]) for part in word)
        has_quotes = any(part[2] for part in word)
        fields = [field for field in raw.split(_CUT) if field or (has_quotes and _CUT not in raw)]
        found: list[str] = []
        for field in fields:
            for one in self.braces(field):
                found += self.glob(state.home + one[1:] if one == "~" or one.startswith("~/") else one, state)
                self.step()
        return found

    def part(self, part: Part, state: State, quoted: bool) -> str:
        kind, text, is_quoted, node = part
        if kind == "text":
            return text.translate(_SPECIAL) if is_quoted else text
        if kind in ("proc", "sub") and node:
            if state.depth >= NESTING:
                raise TooMuch
            inner = state.copy()
            inner.depth += 1
            out = self.walk(node, inner, marker("stdin") if kind == "proc" else "")
            if kind == "proc":
                self.counter += 1
                path = f"/dev/fd/{63 + self.counter}"
                state.files[path], state.readers[path] = out, node
                return path
            value = out.rstrip("\n").replace("\0", "") or marker(text)
        elif text in ("@", "*", "argv") or text.endswith(("[@]", "[*]")):
            values = state.arguments if text in ("@", "*", "argv") else self.array(text.partition("[")[0], state)
            return _CUT.join(value.translate(_SPECIAL) for value in values)
        elif not quoted and isinstance(state.variables.get(text), list):  # zsh, fish: all of them
            return _CUT.join(value.translate(_SPECIAL) for value in self.array(text, state))
        else:
            value = self.parameter(text, state)
        if quoted:
            return value.translate(_SPECIAL)
        cut = _CUT.join(("x" + value + "x").split())[1:-1]  # blanks at the ends part words, too
        return cut if _has_magic(cut) else cut.translate(_BRACES)

    def array(self, name: str, state: State) -> list[str]:
        value = state.variables.get(name)
        return value if isinstance(value, list) else [self.variable(name, state)]

    def variable(self, name: str, state: State) -> str:
        if name.isdigit():
            number = int(name)
            known = [str(state.variables.get("0", "sh")), *state.arguments]
            return known[number] if number < len(known) else ""
        if name in ("#", "?", "-", "(("):
            return "1"
        if name == "$":
            return marker("$$")
        if name == "PWD":
            return state.cwd
        value = state.variables.get(name, " " if name == "IFS" else None)
        if value is None:
            return marker("$!" if name == "!" else name)
        return value if isinstance(value, str) else (value[0] if value else "")

    def is_unset(self, name: str, state: State) -> bool:
        """Surely: not on another machine, not given by the shell, a scheduler, getopts or a file that is not here."""
        given = state.remote or state.fresh or state.depth > 4 or LIKE.given_variable.match(name)
        return name.isidentifier() and name not in state.variables and not given

    def parameter(self, text: str, state: State) -> str:
        """What ${text} gives."""
        match = None if text == "((" or text.isidentifier() else LIKE.parameter.fullmatch(text)
        if not match:
            return self.variable(text, state)
        indirect, _, name, _, rest = match.groups()
        value = self.variable(name, state)
        if indirect:
            value = self.variable(value, state) if re.fullmatch(r"\w+", value) else marker(name)
        return self.modified(value, rest, name, state) if rest else value

    def modified(self, value: str, rest: str, name: str, state: State) -> str:
        """${x:-default}, ${x:?}, ${x^^}; a part of the value stands for the whole."""
        default = re.match(r"(?s):?([-=+?])(.*)", rest)
        if default:
            sign, other = default.groups()
            is_set = not value.startswith("\ue001") and value != ""
            if sign == "+":
                return self.text(parse_word(other), state) if is_set else ""
            if sign == "?" and (value == "" or self.is_unset(name, state)):
                raise Aborted
            if is_set or sign == "?":
                return value
            given = self.text(parse_word(other), state)
            if sign == "=":
                state.variables[name] = given
            return given
        return value.lower() if rest[0] == "," else value.upper() if rest[0] == "^" else value

    def braces(self, field: str) -> list[str]:
        match = LIKE.brace.search(field) if "{" in field else None
        while match and "," not in match[1]:
            match = LIKE.brace.search(field, match.end())
        if not match:
            return [field]
        inner = match[1].split(",")
        self.step(len(inner))
        head, tail = field[: match.start()], field[match.end() :]
        return [whole for one in inner[:MATCHES] for whole in self.braces(head + one + tail)][:MATCHES]

    def glob(self, field: str, state: State) -> list[str]:
        """What the pattern matches here; itself when nothing does, or on another machine."""
        plain = field.replace(_ESCAPED, "")
        bare = LIKE.extended_glob.sub("*", field) if "(" in field else field
        if not _has_magic(bare) or state.remote or "\ue001" in plain:
            if not state.remote and "\ue001" not in plain and ("*" in plain or "?" in plain):
                state.quoted.add(plain)
            return [plain]
        pattern = re.sub(r"\ue003([*?\[])", r"[\1]", bare).replace(_ESCAPED, "")
        matches = ["/" if pattern.startswith("/") else ""]
        for part in [part for part in re.sub(r"\*\*/*$", "*", pattern).split("/") if part]:
            matches = [path for before in matches for path in self.glob_part(before, part, state)][:MATCHES]
        return [path + "/" * pattern.endswith("/") for path in matches] or [plain]

    def glob_part(self, before: str, part: str, state: State) -> list[str]:
        import fnmatch

        join = before if before in ("", "/") else before + "/"
        if part == "**":  # as with globstar, zsh and Python
            return [before, *self.folders_below(before, state)]
        if not re.search(r"[*?\[]", part):
            return [join + part] if os.path.lexists(state.path(join + part)) else []
        regex = re.compile(fnmatch.translate(part))
        listed = self.precious.entries(state.path(f"{before or '.'}/").rstrip("/") or "/")
        return [join + name for name, _ in listed if regex.match(name) and (name[0] != "." or part[0] == ".")]

    def folders_below(self, before: str, state: State) -> list[str]:
        found, level = list[str](), [before]
        while level and len(found) < MATCHES:
            listed = [(one, self.precious.entries(state.path(f"{one or '.'}/").rstrip("/") or "/")) for one in level]
            folders = [(one, name) for one, rows in listed for name, is_dir in rows if is_dir and name[0] != "."]
            level = [f"{one}/{name}" if one else name for one, name in folders]
            found += level
        return found[:MATCHES]


def _has_magic(text: str) -> bool:
    return ("*" in text or "?" in text or "[" in text) and bool(LIKE.glob_sign.search(text))
