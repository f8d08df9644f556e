"""Programs whose output the rest of a line may depend on: echo, ls, find, base64; a marker where it cannot be known."""

from __future__ import annotations

import os

from rgt.guard.argument_words import has_flag, operands, option
from rgt.guard.precious_paths import OWN, marker
from rgt.guard.quick_start import WORDS, Regex, re
from rgt.guard.shell_reader import decode_ansi
from rgt.guard.shell_walk import MATCHES, VALUES, State, Walker, decoded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Test = Callable[[str, bool], bool]  # path, is a folder -> whether it matches
PATHS = 3000  # that a `find` looks at
_SLOW = Regex(r"[*+}][^()]*\)[*+{]")  # (a+)+ takes for ever; without it the lines are kept as they are


def echo(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    rest, escapes = words[1:], False
    while rest and re.fullmatch(r"-[neE]+", rest[0]):
        escapes = escapes or "e" in rest[0]
        rest = rest[1:]
    text = " ".join(rest)
    return (decode_ansi(text) if escapes else text) + "\n"


def printf(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    if words[1:2] == ["-v"] and len(words) > 3:
        state.variables[words[2]] = printf(guard, ["printf", *words[3:]], state, stdin)
        return ""
    if len(words) < 2:
        return ""
    pattern, values, out = decode_ansi(words[1]), words[2:], ""
    holes = len(re.findall(r"%[^%]", pattern))
    while True:
        given = iter(values[:holes])
        values = values[holes:]
        out += re.sub(
            r"%(%|[-+ #0-9.]*[a-zA-Z])",
            lambda match: "%" if match[1] == "%" else next(given, ""),  # noqa: B023
            pattern,
        )
        if not values or not holes:
            return out


def cat(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    paths = [word for word in words[1:] if not word.startswith("-")]
    if any(re.search(r"\bpid\b", path) for path in paths):
        return marker(" ".join(words))  # whose process it is, the name tells better than the number
    return "".join(guard.content(path, state) for path in paths[:VALUES]) if paths else stdin


def ls(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    paths = operands([w for w in words[1:] if not w.startswith("--")], "-I -w") or ["."]
    if state.remote:
        return marker(" ".join(words))
    out = []
    for path in paths:
        if has_flag(words[1:], "-d") or not os.path.isdir(state.path(path)):
            out += [path]
        else:
            names = [name for name, _ in guard.precious.entries(state.path(path))]
            names = [name for name in names if name[0] != "." or has_flag(words[1:], "-A")]
            out += names if words[0] in ("ls", "exa", "eza") else [f"{path}/{name}" for name in names]  # objects
    return "".join(f"{one}\n" for one in out)


def same_lines(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """head, sort, tee: some or all of the lines that came in."""
    if words[0] in ("tee", "sponge", "Set-Content", "Out-File", "Tee-Object"):
        for path in operands(words[1:]):
            if not has_flag(words[1:], "-a", "--append", "-Append"):
                guard.overwrite(path, state, words)
            guard.written(path, stdin, state)
        return stdin
    written = option(words[1:], "-o", "--output") if words[0] == "sort" else None
    if written:
        guard.overwrite(written, state, words)
    files = [path for path in operands(words[1:], "-n -c -k -t -o") if not path.startswith("+")]
    text = stdin if stdin or not files else "".join(guard.content(path, state) for path in files[:VALUES])
    if words[0] in ("head", "tail") and "\ue001" not in text:
        short = next((w[1:] for w in words[1:] if re.fullmatch(r"-\d+", w)), "10")
        match = re.fullmatch(r"(\+?)(\d+)", option(words[1:], "-n") or short)
        number, lines = int(match[2]) if match else len(text), text.splitlines(True)
        if match and match[1] and words[0] == "tail":
            return "".join(lines[number - 1 :])
        return "".join(lines[:number] if words[0] == "head" else lines[-number:] if number else [])
    return marker(f"{text} {' '.join(words)}") if text.startswith("\ue001") else text


def grep(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    rest = operands(words[1:], "-e -f -A -B -C -m --include --exclude --exclude-dir")
    pattern = option(words[1:], "-e") or (rest[0] if rest else "")
    if len(rest) > 1 or not stdin or "\ue001" in stdin:
        return marker(stdin + " " + " ".join(words))
    text = re.escape(pattern) if has_flag(words[1:], "-F") or words[0] == "fgrep" else pattern
    text = text if has_flag(words[1:], "-E", "-P") or words[0] == "egrep" else text.replace("\\|", "|")
    try:
        regex = re.compile("" if _SLOW.search(text) else text, re.I if has_flag(words[1:], "-i") else 0)
    except re.error:
        return stdin
    invert = has_flag(words[1:], "-v")
    return "".join(line for line in stdin.splitlines(True) if bool(regex.search(line)) != invert)


def decode(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """base64 -d, openssl base64 -d, xxd -r -p; nushell's `decode base64`"""
    if words[0] == "xxd":
        try:
            return bytes.fromhex("".join(stdin.split())).decode("utf-8", "replace") if has_flag(words[1:], "-r") else ""
        except ValueError:
            return marker("xxd")
    if not has_flag(words[1:], "-d", "-D", "--decode") and words[0] != "decode":
        return marker("base64")
    paths = [path for path in operands(words[1:], "-w -i -in") if path not in ("base64", "enc", "-base64")]
    return decoded(guard.content(paths[0], state) if paths else stdin)


def tr(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    sets = [decode_ansi(word) for word in operands(words[1:])]
    if has_flag(words[1:], "-d") and sets and "[" not in sets[0]:
        return "".join(sign for sign in stdin if sign not in sets[0])
    if len(sets) == 2 and "[" not in sets[0]:
        old, new = (
            re.sub(r"(?s)(.)-(.)", lambda m: "".join(map(chr, range(ord(m[1]), ord(m[2]) + 1))), one) for one in sets
        )
        return stdin.translate({ord(sign): new[min(i, len(new) - 1)] for i, sign in enumerate(old) if new})
    return stdin


def sed(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """Known for one plain s/a/b/; otherwise a marker that remembers what came in."""
    rest = operands(words[1:], "-e -f")
    if has_flag(words[1:], "-i", "--in-place") or any(word.startswith("-i") for word in words[1:]):
        for path in rest[0 if option(words[1:], "-e") else 1 :]:
            guard.overwrite(path, state, words)
        return ""
    match = re.fullmatch(r"s(.)(.*?)\1(.*?)\1g?", rest[0]) if rest else None
    stdin = "".join(guard.content(path, state) for path in rest[1:]) if rest[1:] else stdin
    if match and "\ue001" not in stdin and not _SLOW.search(match[2]):
        try:
            return "".join(re.sub(match[2], match[3].replace("&", r"\\g<0>"), line) for line in stdin.splitlines(True))
        except re.error:
            pass
    return marker(stdin[:200] + " " + " ".join(words))


def derived(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """cut, jq, ps, pgrep: output that depends on what came in or on the machine."""
    read = "".join(state.files.get(state.path(word), "") for word in words[1:]) if state.files else ""
    return marker((stdin + read)[:250].strip() + " " + " ".join(words)[:200])


def one_word(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """Programs that print a path, a number or the line backwards."""
    name, rest = words[0], operands(words[1:])
    if name == "pwd":
        return state.cwd + "\n"
    if name == "mktemp":
        return f"{OWN}\n"
    if name == "rev":
        return "".join(line[::-1] + "\n" for line in stdin.splitlines())
    if name == "seq" and rest and all(word.isdigit() for word in rest):
        low, high = (int(rest[0]) if len(rest) > 1 else 1), int(rest[-1])
        return "".join(f"{number}\n" for number in range(low, min(high, low + VALUES) + 1))
    if not rest:
        return stdin
    if name in ("which", "type"):
        return rest[-1] + "\n"
    if name == "basename":
        return os.path.basename(rest[0].rstrip("/")).removesuffix(rest[1] if len(rest) > 1 else "") + "\n"
    if name == "dirname":
        return (os.path.dirname(rest[0].rstrip("/")) or ".") + "\n"
    return state.path(rest[0]) + "\n"  # realpath, readlink -f


def each(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """PowerShell: % { Remove-Item $_.FullName }; nushell and elvish: each {|x| rm $x.name }"""
    body = " ".join(words[1:]).replace(marker("_"), "$_").strip().removeprefix("{").removesuffix("}").strip()
    match = re.match(r"\|\s*\$?(\w+)[^|]*\|(.*)", body, re.S)
    names, body = (("_", "it", "in", match[1]), match[2]) if match else (("_", "it", "in"), body)
    for value in stdin.split("\n")[:VALUES] if stdin.strip() else [marker("value")]:
        inner = state.copy()
        inner.variables.update(dict.fromkeys(names, value.strip()))
        text = re.sub(r"(\$\w+)\??\.(?:name|path|item|FullName|Name|PSPath)\b", r"\1", body)
        guard.script(text.strip(), inner, value)
    return ""


# -- find


class Expression:
    """The words behind find's paths as one Python expression: in order, an action where its turn comes.

    -name a -o ! -path b -delete  ->  test[0] or not test[1] and test[2]. What cannot be known (-mtime) counts as true.
    """

    def __init__(self, words: list[str]) -> None:
        self.depth = [0, 99]
        self.executes: list[tuple[list[str], bool, list[str]]] = []  # words, whether all paths come at once, paths
        self.deleted: list[str] = []
        self.pruned: list[str] = []
        self.printed: list[str] | None = None
        self.end = "\n"
        self.tests: list[Test] = []
        self.words = list(words)
        text, follows = "", False
        while self.words:
            word = self.words.pop(0)
            sign = {"-o": " or ", "-or": " or ", ",": " or ", "(": "(", ")": ")", "!": "not ", "-not": "not "}.get(word)
            if follows and sign not in (" or ", ")"):
                text += " and "
            follows = sign in (None, ")")
            test = None if sign else self.test_of(word)
            if test:
                self.tests.append(test)
            unknown = "True" if not text.endswith("not ") else "False"
            text += sign or (f"test[{len(self.tests) - 1}](path, folder)" if test else unknown)
        try:
            self.code = compile(text or "True", "find", "eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self.code = compile("True", "find", "eval")

    def matches(self, path: str, folder: bool) -> bool:
        return bool(eval(self.code, {"test": self.tests, "path": path, "folder": folder}))

    def test_of(self, word: str) -> Test | None:
        """What the word asks or does; None when that cannot be known here."""
        import fnmatch

        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            ends = [i for i, one in enumerate(self.words) if one in (";", "+", "\\;")] or [len(self.words)]
            command, together = self.words[: ends[0]], self.words[ends[0] : ends[0] + 1] == ["+"]
            del self.words[: ends[0] + 1]
            self.executes.append((command, together, []))
            return put_into(self.executes[-1][2])
        if word in ("-print", "-print0"):
            self.end, self.printed = "\0" if word == "-print0" else "\n", self.printed or []
        sinks = {"-delete": self.deleted, "-prune": self.pruned, "-print": self.printed, "-print0": self.printed}
        sink = sinks.get(word)
        if sink is not None:
            return put_into(sink)
        if word == "-empty":
            return lambda path, folder: _is_empty(path)
        value = self.words.pop(0) if word in WORDS["find tests"] and self.words else ""
        if word in ("-maxdepth", "-mindepth"):
            self.depth[word == "-maxdepth"] = int(value) if value.isdigit() else 99
        if word in ("-name", "-iname", "-path", "-ipath", "-wholename"):
            regex = re.compile(fnmatch.translate(value), re.I if word[1] == "i" else 0)
            name = os.path.basename if word.endswith("name") and word != "-wholename" else str
            return lambda path, folder: bool(regex.match(name(path)))
        if word == "-type" and value in ("f", "d"):
            return lambda path, folder: folder == (value == "d")
        return None


def put_into(paths: list[str]) -> Test:
    def put(path: str, folder: bool) -> bool:
        paths.append(path)
        return True

    return put


def _is_empty(path: str) -> bool:
    try:
        return not os.listdir(path) if os.path.isdir(path) else os.path.getsize(path) == 0
    except OSError:
        return False


def find(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    if words[0].startswith("fd"):
        words = fd_as_find(words)
    roots, rest = [], [word for word in words[1:] if word not in ("-L", "-P", "-H")]
    while rest and not (rest[0].startswith("-") or rest[0] in ("(", "!", "\\(")):
        roots.append(rest.pop(0))
    rest = [word[1:] if word[:2] == "--" else word for word in rest]  # of Lustre's `lfs find --name`
    wanted = Expression([word.replace("\\(", "(").replace("\\)", ")") for word in rest])
    paths = []
    for root in roots or ["."]:
        if not state.remote and "\ue001" not in root and root != "/" and os.path.lexists(state.path(root)):
            paths += matches(guard, root, wanted, state)
            continue
        # on another machine: the root with the pattern that is looked for
        negated = {rest[i + 2] for i, word in enumerate(rest[:-2]) if word in ("!", "-not")}
        named = [rest[i + 1] for i, word in enumerate(rest[:-1]) if word in ("-name", "-iname", "-path")]
        guess = root.rstrip("/") + "/" + next((name for name in named if name not in negated), "*")
        sinks = [wanted.deleted] if "-delete" in words else []
        sinks += [wanted.printed] if wanted.printed is not None else []
        for sink in [paths, *sinks, *(hits for _, _, hits in wanted.executes)]:
            sink.append(guess)
    if wanted.deleted:
        guard.lose(wanted.deleted, state, words, "find -delete removes", whole=state.remote)
    for command, together, hits in wanted.executes:
        if together and hits and "{}" in command:
            at = command.index("{}")
            guard.run([*command[:at], *hits, *command[at + 1 :]], state.copy(), "")
        else:
            for path in hits[:MATCHES]:
                guard.run([word.replace("{}", path) for word in command], state.copy(), "")
    if state.remote or "-printf" in words:
        return marker(" ".join(words))
    if wanted.printed is not None or wanted.executes or "-delete" in words:
        paths = wanted.printed or []
    return "".join(path + wanted.end for path in paths)


def matches(guard: Walker, root: str, wanted: Expression, state: State) -> list[str]:
    top = root.rstrip("/") or "/"
    low, high = wanted.depth
    found, level, seen = [], [(top, os.path.isdir(state.path(f"{top}/")))], 0
    for depth in range(12):
        if depth > high or seen > PATHS:
            break
        below = []
        for path, folder in level:
            seen += 1
            if depth >= low and os.path.lexists(state.path(path)) and wanted.matches(path, folder):
                found.append(path)
            if folder and path not in wanted.pruned:
                rows = guard.precious.entries(state.path(f"{path}/").rstrip("/") or "/")
                below += [(f"{path.rstrip('/')}/{name}", is_dir) for name, is_dir in rows]
        level = below
    return found


def fd_as_find(words: list[str]) -> list[str]:
    """fd PATTERN [FOLDER] -e EXT -x COMMAND in find's words."""
    at = next((i for i, word in enumerate(words) if word in ("-x", "-X", "--exec", "--exec-batch")), len(words))
    rest, command = words[1:at], words[at + 1 :]
    ending = option(rest, "-e", "--extension")
    given = operands(rest, "-e -t -d -E --extension --type --max-depth --exclude --changed-before")
    pattern = given[0] if "-g" in rest else re.sub(r"\.\*|[.*]", "*", f"*{given[0].strip('^$')}*") if given else "*"
    tests = ["-mindepth", "1", "-name", pattern.replace("\\", ""), *(["-name", f"*.{ending}"] if ending else [])]
    command = command if "{}" in command or not command else [*command, "{}"]
    action = ["-exec", *command, "+" if words[at] in ("-X", "--exec-batch") else ";"] if command else []
    return ["find", *(given[1:] or ["."]), *tests, *action]
