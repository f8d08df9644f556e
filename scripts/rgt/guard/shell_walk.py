"""Walk a shell tree without running it: which commands with which words, in which folder, reading what.

Every branch is taken, loops run over the values that are known, functions and aliases are followed, files that the line
itself writes are remembered. What cannot be known is a marker (`precious_paths.marker`) that says where it came from.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

from rgt.guard.guarded_code import Act, Table
from rgt.guard.lazy_regex import Regex, re
from rgt.guard.precious_paths import UNKNOWN, Precious, marker
from rgt.guard.shell_syntax import Node, Word, parse, parse_word

STEPS = 20_000  # commands, words and values of one line
VALUES = 40  # of a loop or a split
MATCHES = 400  # of a glob
NESTING = 12  # scripts in scripts
TEXT = 256 * 1024  # of a file that is read
_ESCAPED = "\ue003"  # before a sign that is quoted
_CUT = "\ue004"  # between fields
_SPECIAL = {ord(sign): "\ue003" + sign for sign in "*?[]{}~,.!()-\ue003"}
_MAGIC = Regex(r"(?<!\ue003)[*?\[]")
_BRACES = {ord(sign): "\ue003" + sign for sign in "{}~,"}
_BRACE = Regex(r"(?<![\ue003$])\{((?:[^{}\ue003]|\ue003.)*)\}")
_EXTGLOB = Regex(r"[!@+?*]?(?<!\ue003)\((?:[^()\ue003]|\ue003.)*\)")
_PARAMETER = Regex(r"(?s)(!?)(#?)([A-Za-z_]\w*|[@*#?$!0-9-])(?:\[([^\]]*)\])?(.*)")


def _has_magic(text: str) -> bool:
    return ("*" in text or "?" in text or "[" in text) and bool(_MAGIC.search(text))


class TooMuch(Exception):
    """The line needs more work than the guard may do."""


def decoded(text: str, encoding: str = "utf-8") -> str:
    import base64
    import binascii

    try:
        return base64.b64decode("".join(text.split()) + "==").decode(encoding, "replace")
    except (binascii.Error, ValueError):
        return marker("base64")


class State:
    """What a command sees: folder, variables, functions, whether it runs on another machine."""

    def __init__(self, cwd: str, variables: dict[str, str], home: str) -> None:
        self.cwd = cwd
        self.home = home
        self.remote = False
        self.variables: dict[str, str | list[str]] = dict(variables)
        self.functions: dict[str, Node] = {}
        self.aliases: dict[str, str] = {}
        self.files: dict[str, str] = {}  # written by the line itself
        self.made: dict[str, dict[str, str]] = {}  # boxes that the line itself created, with their mounts
        self.arguments: list[str] = []
        self.depth = 0
        self.mounts: dict[str, str] = {}  # of a container: its folder -> ours

    def copy(self) -> State:
        twin = State(self.cwd, {}, self.home)
        twin.__dict__.update(self.__dict__)
        twin.variables, twin.functions = dict(self.variables), dict(self.functions)
        twin.aliases = dict(self.aliases)
        return twin

    def elsewhere(self) -> State:
        """A login on another machine: its own variables, nothing of ours."""
        there = State("~", {"HOME": "~"}, "~")
        there.remote, there.depth, there.files = True, self.depth, {}
        return there

    def path(self, word: str) -> str:
        """Absolute where the folder is known; ~ stays for another machine."""
        if word.startswith("~") and not self.remote:
            word = self.home + word[1:] if word[1:2] in ("", "/") else word
        joined = word if word.startswith(("/", "~", "\ue001")) else f"{self.cwd}/{word}"
        if "://" in word or "\ue001" in joined:
            return joined
        for there, here in self.mounts.items():
            if joined == there or joined.startswith(f"{there}/"):
                return os.path.normpath(here + joined[len(there) :])
        trailing = "/" if word.endswith("/") and len(word) > 1 else ""
        return os.path.normpath(joined) + trailing


class Walker(ABC):
    """Walks a script; a subclass says what its commands mean."""

    def __init__(self, precious: Precious, table: Table) -> None:
        self.precious, self.table = precious, table
        self.acts: list[Act] = []
        self.steps = 0
        self.counter = 0

    def step(self, count: int = 1) -> None:
        self.steps += count
        if self.steps > STEPS:
            raise TooMuch

    @abstractmethod
    def run(self, words: list[str], state: State, stdin: str) -> str:
        """What a command does, and what it prints."""

    @abstractmethod
    def overwrite(self, path: str, state: State, words: list[str]) -> None:
        """The command replaces this file."""

    @abstractmethod
    def lose(self, paths: list[str], state: State, words: list[str], verb: str, whole: bool = True) -> None:
        """The command removes these files; whole: with what is below them."""

    @abstractmethod
    def act(
        self, kind: str, sentence: str, words: list[str], target: str = "", profile: str = "", box: str = ""
    ) -> None:
        """Note an act that needs proof or approval."""

    @abstractmethod
    def knows(self, name: str) -> bool:
        """Is it a program that can destroy something?"""

    @abstractmethod
    def starts(self, name: str) -> bool:
        """Is it a program that starts others or prints?"""

    @abstractmethod
    def request(self, method: str, url: str, data: str, words: list[str]) -> None:
        """The command sends this HTTP request."""

    @abstractmethod
    def file(self, path: str, arguments: list[str], state: State, stdin: str, language: str) -> str:
        """The command runs this file as a script."""

    def script(self, text: str, state: State, stdin: str = "") -> str:
        """Walk text as a script in this state."""
        if state.depth >= NESTING:
            raise TooMuch
        if text.startswith("\ue001"):
            self.generated(text, state)
            return ""
        state.depth += 1
        try:
            return self.walk(parse(text), state, stdin)
        finally:
            state.depth -= 1

    def generated(self, text: str, state: State) -> None:
        """Commands that another program prints: what they are is not known, but its own text holds their words."""
        plain = UNKNOWN.sub(lambda match: match[1].replace("\ue006", " "), text)
        plain = re.sub(r"\bs([/#|,@]).*?\1", " ", plain)  # sed 's/^/rm -rf /'
        words = [word for word in re.split(r"[\s'\"`;]+|\\n", plain) if word]
        hole = Regex(r"\$\{?\w+\}?|%[a-z]|\\\(.*|^&$|^\{\}$")
        for i, word in enumerate(words):
            if i and self.knows(word):
                self.run([hole.sub(lambda _: marker(plain), one) for one in [*words[i:], "$0"]], state.copy(), "")

    # -- nodes

    def walk(self, node: Node, state: State, stdin: str) -> str:
        self.step()
        if node.kind == "simple":
            return self.simple(node, state, stdin)
        stdin = self.redirected(node, state, stdin, [])
        if node.kind == "seq":
            out = "".join(self.walk(one, state, stdin) for one in node.nodes)
        elif node.kind == "pipe":
            out = stdin
            for one in node.nodes:
                out = self.walk(one, state.copy(), out)
        elif node.kind == "subshell":
            out = self.walk(node.nodes[0], state.copy(), stdin)
        elif node.kind == "for":
            values = [value for word in node.words for value in self.expand(word, state)][:VALUES] or [""]
            out = ""
            for value in values if node.words else [marker("loop")]:
                state.variables[node.name] = value
                out += self.walk(node.nodes[0], state, stdin)
        elif node.kind == "while":
            out = self.loop(node, state, stdin)
        elif node.kind == "function":
            state.functions[node.name] = node.nodes[0]
            out = ""
        else:
            out = self.branches(node, state, stdin)
        self.remember_output(node, state, out)
        return out

    def loop(self, node: Node, state: State, stdin: str) -> str:
        """`while read x`: once for each line that is known."""
        condition, body = node.nodes
        reads = [one for one in condition.nodes if one.words and one.words[0].bare == "read"]
        if not reads:
            return self.walk(condition, state, stdin) + self.walk(body, state, stdin)
        out = ""
        for line in re.split(r"[\n\0]", stdin.rstrip("\n\0"))[:VALUES]:
            self.walk(condition, state, line)
            out += self.walk(body, state, "")
        return out

    def branches(self, node: Node, state: State, stdin: str) -> str:
        """Each branch from the same start; of variables that differ, the value that names a result is kept."""
        out, ends = "", []
        for one in node.nodes:
            branch = state.copy()
            out += self.walk(one, branch, stdin)
            ends.append(branch)
        for branch in ends:
            for name, value in branch.variables.items():
                if value != state.variables.get(name) and self.keeps(state, name, value):
                    state.variables[name] = value
            state.functions.update(branch.functions)
        return out

    def keeps(self, state: State, name: str, value: str | list[str]) -> bool:
        known = state.variables.get(name)
        if known is None or isinstance(value, list) or isinstance(known, list):
            return True
        return bool(self.precious.lost(state.path(value), state.remote)) or not self.precious.lost(
            state.path(known), state.remote
        )

    def simple(self, node: Node, state: State, stdin: str) -> str:
        words: list[str] = []
        for word in node.words:
            words += self.expand(word, state)
        local = state
        if words and node.assigns and words[0] not in ("export", "eval", "local", "declare"):
            local = state.copy()
        for name, operator, values in node.assigns:
            self.assign(local, name, operator, values)
            if words and name.endswith(("EDITOR", "VISUAL", "PAGER", "_COMMAND", "LESSOPEN", "_RSH")):
                self.script(self.text(values[0], state), state.copy())
        stdin = self.redirected(node, local, stdin, words)
        if words and words[0] == "":
            words = words[1:]
        if not words:
            return ""
        target = state if words[0] in ("cd", "export", "read", "set", "eval", "source", ".", "pushd") else local
        out = self.run(words, target, stdin)
        self.remember_output(node, local, out)
        return "" if any(r.operator in (">", ">>", ">|", "&>") for r in node.redirects) else out

    def assign(self, state: State, name: str, operator: str, values: list[Word]) -> None:
        if operator.startswith("array"):
            fields = [field for word in values for field in self.expand(word, state)]
            before = state.variables.get(name, [])
            old = (before if isinstance(before, list) else [before]) if operator.endswith("+=") else []
            state.variables[name] = [*old, *fields][:MATCHES]
            return
        value = self.text(values[0], state)
        if operator == "+=":
            known = state.variables.get(name, "")
            value = (known if isinstance(known, str) else " ".join(known)) + value
        state.variables[name] = value[:TEXT]

    # -- redirections

    def redirected(self, node: Node, state: State, stdin: str, words: list[str]) -> str:
        """What the command reads; files that it overwrites are told."""
        for redirect in node.redirects:
            if redirect.operator in ("<<", "<<-"):
                stdin = self.text(redirect.body or Word(), state)
            elif redirect.operator == "<<<":
                stdin = self.text(redirect.target, state) + "\n"
            elif redirect.operator == "<":
                for path in self.expand(redirect.target, state)[:1]:
                    stdin = self.content(path, state)
            elif redirect.operator in (">", ">|", "&>", ">&", "<>"):
                for path in self.expand(redirect.target, state)[:1]:
                    stream = path.lstrip("&").isdigit() or path in ("-", "&-")
                    if not stream and not path.startswith(("/dev/null", "/dev/std", "/dev/tty", "/dev/fd/")):
                        self.overwrite(path, state, words)
            else:
                self.expand(redirect.target, state)
        return stdin

    def remember_output(self, node: Node, state: State, out: str) -> None:
        for redirect in node.redirects:
            if redirect.operator in (">", ">>", ">|"):
                for path in self.expand(redirect.target, state)[:1]:
                    before = state.files.get(state.path(path), "") if redirect.operator == ">>" else ""
                    self.written(path, before + out, state)

    def written(self, path: str, text: str, state: State) -> None:
        """The line itself writes this file; a table of cron's or a hook of git's runs by being there."""
        key = state.path(path)
        state.files[key] = text[:TEXT]
        if key.startswith(("/etc/cron", "/var/spool/cron")):
            self.run(["crontab", key], state.copy(), "")
        elif "/.git/hooks/" in key or "/.husky/" in key or key.endswith(("/.bashrc", "/.zshrc", "/.profile")):
            self.script(text, state.copy())

    def content(self, path: str, state: State) -> str:
        """A file's text: of the line's own making, or read here; a marker when it cannot be known."""
        key = state.path(path)
        if key in state.files:
            return state.files[key]
        if state.remote or "\ue001" in key:
            return marker(path)
        try:
            if not os.path.isfile(key):
                return marker(path)
            with open(key, encoding="utf-8", errors="replace") as file:
                return file.read(TEXT)
        except OSError:
            return marker(path)

    # -- expansion

    def text(self, word: Word, state: State) -> str:
        """One string, as an assignment or a here-document takes it."""
        raw = "".join(self.part(part, state, True)[:TEXT] for part in word).replace(_CUT, " ").replace(_ESCAPED, "")
        return self.tilde(raw, state) if word and not word[0][2] and raw.startswith("~") else raw

    def expand(self, word: Word, state: State) -> list[str]:
        """The fields that the command gets for this word."""
        self.step()
        raw = "".join(self.part(part, state, part[2]) for part in word)
        has_quotes = any(part[2] for part in word)
        fields = [field for field in raw.split(_CUT) if field or (has_quotes and _CUT not in raw)]
        found: list[str] = []
        for field in fields:
            for one in self.braces(field):
                found += self.glob(self.tilde(one, state), state)
                self.step()
        return found

    def part(self, part: tuple[str, str, bool], state: State, quoted: bool) -> str:
        kind, text, is_quoted = part
        if kind == "text":
            return text.translate(_SPECIAL) if is_quoted else text
        if kind == "proc":
            self.counter += 1
            path = f"/dev/fd/{63 + self.counter}"
            state.files[path] = self.script(text, state.copy(), marker("stdin"))
            return path
        if kind == "sub":
            out = self.script(text, state.copy()) or ""
            value = out.rstrip("\n").replace("\0", "") or marker(text)
        elif text in ("@", "*", "argv") or text.endswith(("[@]", "[*]")):
            values = state.arguments if text in ("@", "*", "argv") else self.array(text.partition("[")[0], state)
            return _CUT.join(map(self.literal, values))
        else:
            value = self.parameter(text, state)
        if quoted:
            return self.literal(value)
        cut = _CUT.join(("x" + value + "x").split())[1:-1]  # blanks at the ends part words, too
        return cut if _has_magic(cut) else cut.translate(_BRACES)

    def literal(self, value: str) -> str:
        return value.translate(_SPECIAL)

    def array(self, name: str, state: State) -> list[str]:
        value = state.variables.get(name)
        return value if isinstance(value, list) else [self.variable(name, state)]

    def variable(self, name: str, state: State) -> str:
        if name == "((":
            return "1"
        if name.isdigit():
            number = int(name)
            known = [str(state.variables.get("0", "sh")), *state.arguments]
            return known[number] if number < len(known) else ""
        if name in ("#", "?", "$", "-"):
            return "1"
        if name == "!":
            return marker("$!")
        value = state.variables.get(name)
        if name == "PWD":
            return state.cwd
        if name == "IFS" and value is None:
            return " "
        if value is None:
            return marker(name)
        return value if isinstance(value, str) else (value[0] if value else "")

    def parameter(self, text: str, state: State) -> str:
        """What ${text} gives."""
        if text == "((" or text.isidentifier():
            return self.variable(text, state)
        match = _PARAMETER.fullmatch(text)
        if not match:
            return marker(text)
        indirect, length, name, index, rest = match.groups()
        if length and name:
            return "1"
        values = self.array(name, state) if index else []
        if index and index.lstrip("-").isdigit() and abs(int(index)) < len(values):
            value = values[int(index)]
        else:
            value = self.variable(name, state)
        if indirect:
            value = self.variable(value, state) if re.fullmatch(r"\w+", value) else marker(name)
        return self.modified(value, rest, name, state) if rest else value

    def modified(self, value: str, rest: str, name: str, state: State) -> str:
        is_set = not value.startswith("\ue001") and value != ""
        default = re.match(r"(?s):?([-=+?])(.*)", rest)
        if default and not re.match(r":-?\d", rest if rest.startswith(": ") else ""):
            sign, other = default.groups()
            if sign == "+":
                return self.text(parse_word(other), state) if is_set else ""
            if is_set or sign == "?":
                return value
            given = self.text(parse_word(other), state)
            if sign == "=":
                state.variables[name] = given
            return given
        part = re.fullmatch(r":\s*(-?\d+)(?::(-?\d+))?", rest)
        if part:
            start = int(part[1])
            stop = start + int(part[2]) if part[2] and int(part[2]) >= 0 else None
            return value[start:stop]
        trim = re.match(r"(?s)(##?|%%?)(.*)", rest)
        if trim:
            return self.trimmed(value, trim[1], self.text(parse_word(trim[2]), state))
        swap = re.match(r"(?s)//?([^/]*)/?(.*)", rest)
        if swap and rest.startswith("/"):
            old, new = (self.text(parse_word(one), state) for one in swap.groups())
            return value.replace(old, new)
        cases = {",": str.lower, "^": str.upper}
        return cases[rest[0]](value) if rest[0] in cases else value

    def trimmed(self, value: str, sign: str, pattern: str) -> str:
        import fnmatch

        regex = fnmatch.translate(pattern).replace("\\Z", "").replace("\\z", "")
        if sign[0] == "#":
            lengths = range(len(value) + 1) if sign == "#" else range(len(value), -1, -1)
            cut = next((n for n in lengths if re.fullmatch(regex, value[:n])), 0)
            return value[cut:]
        starts = range(len(value), -1, -1) if sign == "%" else range(len(value) + 1)
        cut = next((n for n in starts if re.fullmatch(regex, value[n:])), len(value))
        return value[:cut]

    def tilde(self, field: str, state: State) -> str:
        if field == "~" or field.startswith("~/"):
            return state.home + field[1:]
        return field

    def braces(self, field: str) -> list[str]:
        match = _BRACE.search(field) if "{" in field else None
        while match and "," not in match[1] and ".." not in match[1]:
            match = _BRACE.search(field, match.end())
        if not match:
            return [field]
        numbers = re.fullmatch(r"(-?\d+)\.\.(-?\d+)(?:\.\.-?\d+)?|([a-zA-Z])\.\.([a-zA-Z])", match[1])
        if numbers and numbers[1]:
            low, high = sorted((int(numbers[1]), int(numbers[2])))
            inner = [str(n) for n in range(low, min(high, low + VALUES) + 1)]
        elif numbers:
            low, high = sorted((ord(numbers[3]), ord(numbers[4])))
            inner = [chr(n) for n in range(low, high + 1)]
        else:
            inner = match[1].split(",")
        self.step(len(inner))
        head, tail = field[: match.start()], field[match.end() :]
        return [whole for one in inner[:MATCHES] for whole in self.braces(head + one + tail)][:MATCHES]

    def glob(self, field: str, state: State) -> list[str]:
        """What the pattern matches here; itself when nothing does, or on another machine."""
        plain = field.replace(_ESCAPED, "")
        bare = _EXTGLOB.sub("*", field) if "(" in field else field
        if not _has_magic(bare) or state.remote or "\ue001" in plain:
            return [plain]
        pattern = re.sub(r"\ue003([*?\[])", r"[\1]", bare).replace(_ESCAPED, "")
        root = "/" if pattern.startswith("/") else ""
        matches = [root]
        for part in [part for part in pattern.split("/") if part]:
            matches = [path for before in matches for path in self.glob_part(before, part, state)][:MATCHES]
        return matches or [plain]

    def glob_part(self, before: str, part: str, state: State) -> list[str]:
        import fnmatch

        join = before if before in ("", "/") else before + "/"
        if not re.search(r"[*?\[]", part):
            return [join + part] if os.path.lexists(state.path(join + part)) else []
        if part == "**":
            return [before, *self.below(before, state)] if before else [".", *self.below("", state)]
        regex = re.compile(fnmatch.translate(part))
        rows = self.precious.entries(state.path(before or "."))
        return [join + name for name, _ in rows if regex.match(name) and (name[0] != "." or part[0] == ".")]

    def below(self, folder: str, state: State) -> list[str]:
        found: list[str] = []
        level = [folder]
        for _ in range(6):
            level = [
                (f"{one}/" if one else "") + name
                for one in level
                for name, is_dir in self.precious.entries(state.path(one or "."))
                if is_dir and name[0] != "."
            ]
            found += level
        return found[:MATCHES]
