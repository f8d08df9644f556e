"""Walk a shell tree without running it: which commands with which words, in which folder, reading what.

Every branch is taken that may be (not: `false &&`, what follows `exit`, an arm for another value), loops run over the
values that are known, functions and aliases are followed, files that the line itself writes are remembered. What
cannot be known is a marker (`precious_paths.marker`) that says where it came from.
What a program does is said by the tables LOSES and STARTS, which wrappers, outputs and destroyers fill.
"""

from __future__ import annotations

import os

from rgt.guard.argument_words import values_of
from rgt.guard.precious_paths import Precious, is_result_file, listed, marker, origin_of
from rgt.guard.quick_start import LIKE, WORDS, Regex, re
from rgt.guard.shell_reader import DECLARES, Node, Word, parse
from rgt.guard.word_expansion import MATCHES, NESTING, TEXT, VALUES, Aborted, Expander, State, TooMuch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Program = Callable[["Walker", list[str], "State", str], "str | None"]

_STATUS = {":": True, "true": True, "echo": True, "printf": True, "false": False}  # of commands that cannot do else
ACTS = 50  # kept of one line
FORKS = 4  # of a line's commands that are walked twice, as if a cd had failed
LOSES: dict[str, Program] = {}  # programs that lose data, processes or machines
STARTS: dict[str, Program] = {}  # programs that start others, change the shell's state, or print what is known


class Act:
    """One thing that must not happen without proof and approval."""

    __slots__ = ("box", "command", "kind", "profile", "sentence", "target")

    def __init__(self, kind: str, sentence: str, command: str, target: str, profile: str, box: str) -> None:
        self.kind, self.sentence, self.command = kind, sentence, command
        self.target, self.profile, self.box = target, profile, box

    def as_dict(self) -> dict[str, str]:
        return {name: shown(getattr(self, name)) for name in self.__slots__}


def shown(text: str) -> str:
    plain = origin_of(text, "$")
    return "".join(sign if sign.isprintable() else " " for sign in plain)[:300]


class Walker(Expander):
    """Walks a script; `judge.Guard` says what its commands mean."""

    def __init__(self, precious: Precious, table: dict[str, Any]) -> None:
        super().__init__(precious)
        self.table = table
        self.acts: list[Act] = []
        self.line, self.forks = "", 0
        self.state = State(precious.cwd, {}, precious.home)

    def run(self, words: list[str], state: State, stdin: str) -> str:
        """What a command does, and what it prints."""
        raise NotImplementedError

    def file(self, path: str, arguments: list[str], state: State, stdin: str, language: str) -> str:
        """The command runs this file as a script."""
        raise NotImplementedError

    def knows(self, name: str) -> bool:
        """Is it a program that can destroy something?"""
        return name in LOSES or name in self.table["commands"]

    # -- what is lost

    def act(
        self, kind: str, sentence: str, words: list[str], target: str = "", profile: str = "", box: str = ""
    ) -> None:
        if len(self.acts) < ACTS:
            import shlex

            command = shlex.join(shown(word) for word in words)
            self.acts.append(Act(kind, sentence, command, target or command, profile, box))

    def lose(self, paths: list[str], state: State, words: list[str], verb: str, whole: bool = True) -> None:
        """The command removes these files; whole: with what is below them."""
        for path in paths:
            place = state.path(path)
            ours = any(place.startswith(here) for here in state.mounts.values())
            if state.fresh and not ours and "://" not in place:
                continue
            place = next(iter(self.glob(place, self.state)), place) if ours and "*" in place else place
            bare = place.rstrip("/")
            below = [old for new, old in state.links.items() if f"{new}/".startswith(f"{bare}/") and new[-1] != "/"]
            made = any(f"{bare}/".startswith(f"{own}/") for own in state.folders + state.copies + state.hoped)
            if not below and (made or (bare in state.files and not state.remote and not os.path.lexists(bare))):
                continue
            lost = self.precious.lost(place, state.remote and not ours, whole) or (whole and "".join(below[:1]))
            if lost:
                self.act("path", f"{verb} {path}: {lost} is lost", words, place.rstrip("/"))
                return

    def lose_place(self, place: str, state: State, words: list[str], verb: str) -> None:
        """HOST:DIR is on another machine."""
        host, colon, path = place.partition(":")
        if colon and "/" not in host and len(host) > 1:
            self.lose([path.lstrip(":") or "~"], state.elsewhere(), words, verb)
        else:
            self.lose([place.replace("\\", "/")], state, words, verb)

    def overwrite(self, path: str, state: State, words: list[str], stdin: str = marker("")) -> None:
        """`>`, tee, cp over a file that is there; elsewhere only with what the line itself says."""
        place = state.path(path)
        said = words[:1] in ([], [":"], ["true"], ["echo"], ["printf"])  # not: what a program prints
        said = said or (state.remote and words in (["cat"], ["tee", path]) and self.is_said(stdin))
        if place.startswith(("/dev/", "/proc/", "/sys/")) and LIKE.device.match(place):
            self.act("device", f"writes over {place}", [*words, ">", path], place)
        elif not state.remote and "\ue001" not in place and os.path.isfile(place):
            self.lose([os.path.realpath(place)], state, [*words, ">", path], "overwrites", False)
        elif state.remote and words[:1] in ([], [":"], ["true"]):  # emptied: then it was there
            self.lose([path], state, [*words, ">", path], "empties", False)
        elif state.remote and said:
            self.lose([path] if is_result_file(os.path.basename(path)) else [], state, words, "overwrites", False)

    def is_said(self, text: str) -> bool:
        """Nothing, or text that stands in the line: no output of a program, and no file's content."""
        return bool(re.search(rf"(?<![\w.]){re.escape(text.strip())}(?![\w.])", self.line))

    def edit(self, paths: list[str], state: State, words: list[str]) -> None:
        """Files that are changed in place: they are there, on another machine, too."""
        for path in paths:
            if state.remote:
                self.lose([path], state, words, "edits", False)
            self.overwrite(path, state, words)

    # -- scripts

    def script(self, text: str, state: State, stdin: str = "") -> str:
        """Walk text as a script in this state."""
        if state.depth >= NESTING:
            raise TooMuch
        if text.startswith("\ue001"):
            self.generated(text, state)
            return ""
        state.depth += 1
        before = len(state.traps)
        try:
            out = self.walk(parse(text), state, stdin)
            for body in state.traps[before:]:  # with the values that variables have at the end
                at_end = state.copy()
                at_end.stopped, at_end.traps = "", []
                out += self.script(body, at_end)
            return out
        finally:
            del state.traps[before:]
            state.depth -= 1

    def generated(self, text: str, state: State) -> None:
        """Commands that another program prints: what they are is not known, but its own text holds their words."""
        plain = origin_of(text)
        plain = re.sub(r"\bs([/#|,@]).*?\1", " ", plain)  # sed 's/^/rm -rf /'
        words = [word for word in re.split(r"[\s'\"`;]+|\\n", plain) if word]
        hole = Regex(r"\$\{?\w+\}?|%[a-z]|\\\(.*|^&$|^\{\}$")
        for i, word in enumerate(words):
            if i and self.knows(word):
                self.run([hole.sub(lambda _: marker(plain), one) for one in [*words[i:], "$0"]], state.copy(), "")

    def walk(self, node: Node, state: State, stdin: str) -> str:
        self.step()
        if node.kind == "simple":
            try:
                return self.command(node, state, stdin)
            except Aborted:
                state.stopped = "exit"
                return ""
        state.status = None
        stdin, out = self.redirected(node, state, stdin, []), ""
        if node.kind == "seq":
            out = self.sequence(node, state, stdin)
        elif node.kind == "pipe":
            out = stdin
            for one in node.nodes:
                out = self.walk(one, state.copy(), out)
        elif node.kind == "subshell":
            out = self.walk(node.nodes[0], state.copy(), stdin)
        elif node.kind == "for":
            state.quoted = set()
            values = [value for word in node.words for value in self.expand(word, state)][:VALUES] or [""]
            values = [self.elsewhere(value) if value not in state.quoted else value for value in values]
            for value in values if node.words else [marker("loop")]:
                state.variables[node.name] = value
                out += self.walk(node.nodes[0], state, stdin)
                state.stopped = ""
            state.status = None
        elif node.kind == "while":
            out = self.loop(node, state, stdin)
        elif node.kind == "function":
            state.functions[node.name] = node.nodes[0]
        else:
            out = self.branches(node, state, stdin)
        self.remember_output(node, state, out)
        return out

    def elsewhere(self, value: str) -> str:
        """A pattern for a folder that is not here names files of the machine that the line is meant for."""
        folder = re.split(r"[*?\[]", value)[0].rpartition("/")[0]
        return listed(value) if value[:1] == "/" and folder != value and not os.path.isdir(folder) else value

    def sequence(self, node: Node, state: State, stdin: str) -> str:
        out = ""
        for i, one in enumerate(node.nodes):
            if one.joint and state.status is (one.joint == "||"):
                continue  # true || x, false && x
            unsure = one.joint and state.status is None
            state.hoped = state.hoped if one.joint == "&&" else []
            out += self.walk(one, state, stdin)
            if unsure:
                state.status, state.stopped = None, ""
            following = node.nodes[i + 1 :]
            if state.left and following and self.forks < FORKS:
                self.forks += 1
                if not state.stops or following[0].joint == "||":
                    there = state.copy()  # `cd missing; rm -rf *`: what follows runs in the folder before
                    there.cwd, there.left, there.status = there.left, "", False
                    self.sequence(Node("seq", following), there, stdin)
            state.left = ""
            if state.stopped:
                break
        if node.name == "!" and state.status is not None:
            state.status = not state.status
        return out

    def loop(self, node: Node, state: State, stdin: str) -> str:
        """`while read x`: once for each line that is known."""
        condition, body = node.nodes
        out = ""
        for line in re.split(r"[\n\0]", stdin.rstrip("\n\0"))[:VALUES]:
            self.walk(condition, state, line)
            out += "" if state.status is (node.name == "until") else self.walk(body, state, "")
            state.stopped = ""
        state.status = None
        return out

    def branches(self, node: Node, state: State, stdin: str) -> str:
        """Each branch from the same start; of variables that differ, the last value is kept.

        Of `if` the nodes are condition, body, condition, body, else: one that surely does not run is left out.
        """
        out, taken = "", None
        ends: list[State] = []
        for i, one in enumerate(node.nodes):
            asks = node.name == "then" and i % 2 == 0 and i + 1 < len(node.nodes)
            taken = self.takes_arm(node.words[0], one.name, state) if node.name == "case" else taken
            if taken is False and (node.name == "case" or i % 2):
                continue
            branch = state.copy()
            out += self.walk(one, branch, stdin)
            branch.stopped = ""
            ends.append(branch)
            if asks:
                taken = branch.status
            elif taken:
                break
        state.status = None
        for branch in ends:
            state.variables.update(branch.variables)
            state.functions.update(branch.functions)
            state.cwd = branch.cwd
        return out

    def takes_arm(self, subject: Word, pattern: str, state: State) -> bool | None:
        import fnmatch

        value = self.text(subject, state)
        if not value or "\ue001" in value or re.search(r"[$`]", pattern):
            return None
        return any(fnmatch.fnmatchcase(value, one.strip().strip("'\"")) for one in pattern.split("|"))

    def command(self, node: Node, state: State, stdin: str) -> str:
        words: list[str] = []
        state.quoted = set()
        for word in node.words:
            words += self.expand(word, state)
        keeps = not words or words[0] in DECLARES or words[0] == "eval"
        local = state if keeps or not node.assigns else state.copy()
        for name, operator, values in node.assigns:
            self.assign(local, name, operator, values)
        stdin = self.redirected(node, local, stdin, words)
        if words and words[0] == "":
            words = words[1:]
        if not words:
            state.status = None
            return ""
        target = state if words[0] in ("cd", "read", "set", "source", ".", "pushd") else local
        out = self.run(words, target, stdin)
        self.remember_output(node, local, out)
        state.status = _STATUS.get(words[0]) if words[0] not in state.functions else None
        if words[0] in ("exit", "return", "break", "continue") or (words[0] == "exec" and words[1:]):
            state.stopped = words[0]
        taken = any(r.operator in (">", ">>", ">|", "&>") and r.number in ("", "1") for r in node.redirects)
        return "" if taken else out

    def assign(self, state: State, name: str, operator: str, values: list[Word]) -> None:
        before = state.variables.get(name, "")
        if operator.startswith("array"):
            fields = [field for word in values for field in self.expand(word, state)]
            old = (before if isinstance(before, list) else [before] * bool(before)) if operator.endswith("+=") else []
            state.variables[name] = [*old, *fields][:MATCHES]
            return
        value = self.text(values[0], state)
        if operator == "+=":
            value = (before if isinstance(before, str) else " ".join(before)) + value
        state.variables[name] = value[:TEXT]
        state.home = value if name == "HOME" else state.home
        if name in WORDS["shell hooks"]:
            self.script(f". {value}" if name == "BASH_ENV" else value.lstrip("|")[:TEXT], state.copy())

    # -- redirections

    def redirected(self, node: Node, state: State, stdin: str, words: list[str]) -> str:
        """What the command reads; files that it overwrites are told."""
        for redirect in node.redirects:
            if redirect.operator in ("<<", "<<-"):
                stdin = self.text(redirect.body, state)
                continue
            if redirect.operator == "<<<":
                stdin = self.text(redirect.target, state) + "\n"
                continue
            for path in self.expand(redirect.target, state)[:1]:
                stream = path.lstrip("&").isdigit() or path in ("-", "&-")
                stream = stream or path.startswith(("/dev/null", "/dev/std", "/dev/tty", "/dev/fd/"))
                if redirect.operator == "<":
                    stdin = self.content(path, state)
                elif redirect.operator in (">", ">|", "&>", ">&", "<>") and not stream:
                    self.overwrite(path, state, words, stdin)
        return stdin

    def remember_output(self, node: Node, state: State, out: str) -> None:
        for redirect in node.redirects:
            if redirect.operator in (">", ">>", ">|"):
                for path in self.expand(redirect.target, state)[:1]:
                    before = state.files.get(state.path(path), "") if redirect.operator == ">>" else ""
                    if node.words and node.words[0].bare == "exec":
                        state.descriptors[redirect.number] = path
                    self.written(path, before + out, state)
            elif redirect.operator == ">&":
                self.written(state.descriptors.get(self.text(redirect.target, state), "/dev/null"), out, state)

    def written(self, path: str, text: str, state: State) -> None:
        """The line itself writes this file, or feeds a process: >(sh)."""
        key = state.path(path)
        state.files[key] = text[:TEXT]
        if key.startswith(("/etc/cron", "/var/spool/cron")):
            self.run(["crontab", "-"], state.copy(), text)
        elif LIKE.runs_later.search(key):
            self.script(text, state.copy())
        if key in state.readers:
            self.walk(state.readers[key], state.copy(), text)

    def content(self, path: str, state: State) -> str:
        """A file's text: of the line's own making, or read here; a marker when it cannot be known."""
        key = state.path(path)
        if key in state.files or key == "/dev/null":
            return state.files.get(key, "")
        try:
            ours = any(f"{key}/".startswith(f"{here}/") for here in state.mounts.values())
            if (state.remote and not ours) or "\ue001" in key or not os.path.isfile(key):
                return marker(path)
            with open(key, encoding="utf-8", errors="replace") as file:
                return file.read(TEXT)
        except OSError:
            return marker(path)


def decoded(text: str, encoding: str = "utf-8") -> str:
    import base64

    try:
        raw = base64.b64decode("".join(text.split()) + "==")
        return raw.decode(encoding, "replace")
    except Exception:  # of base64 or zlib
        return marker("base64")


def mounts(words: list[str], state: State) -> dict[str, str]:
    """Folders of the container that are folders of ours: -v HERE:THERE, --mount source=HERE,target=THERE."""
    pairs = [value.split(":")[:2] for value in values_of(words, "-v", "--volume", "-B", "--bind") if ":" in value]
    for value in values_of(words, "--mount"):
        named = dict(part.split("=", 1) for part in value.split(",") if "=" in part)
        pairs.append([named.get("source", named.get("src", "")), named.get("target", named.get("dst", ""))])
    volumes = [(here if here[:1] in ("/", ".", "~") else f"/volumes/{here}", there) for here, there in pairs]
    return {there.rstrip("/"): state.path(here).rstrip("/") for here, there in volumes if there}
