"""Programs whose output the rest of a line may depend on: echo, ls, find, base64; a marker where it cannot be known."""

from __future__ import annotations

import os

from rgt.guard.argument_words import has_flag, operands, option, values_of
from rgt.guard.precious_paths import OWN, listed, marker
from rgt.guard.quick_start import LIKE, WORDS, re
from rgt.guard.shell_reader import decode_ansi
from rgt.guard.shell_walk import Walker, decoded
from rgt.guard.word_expansion import MATCHES, VALUES, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Test = Callable[[str, bool], bool]  # path, is a folder -> whether it matches


def echo(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    rest, escapes = words[1:], False
    while rest and re.fullmatch(r"-[neE]+", rest[0]):
        escapes = escapes or "e" in rest[0]
        rest = rest[1:]
    text = " ".join(rest)
    return (decode_ansi(text) if escapes else text) + "\n"


def printf(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    pattern, values, out = decode_ansi("".join(words[1:2])), words[2:], ""
    holes = len(re.findall(r"%[^%]", pattern))
    if words[1:2] == ["-v"] and len(words) > 3:
        state.variables[words[2]] = printf(guard, ["printf", *words[3:]], state, stdin)
        return ""

    def fill(hole: re.Match[str]) -> str:
        value = "%" if hole[1] == "%" else values.pop(0) if values else ""
        return decode_ansi(value) if hole[1] == "b" else value

    while True:
        out += re.sub(r"%(%|[-+ #0-9.]*[a-zA-Z])", fill, pattern)
        if not values or not holes:
            return out


def cat(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    paths = [word for word in words[1:] if not word.startswith("-")]
    return "".join(guard.content(path, state) for path in paths[:VALUES]) if paths else stdin


def ls(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    if words[0] in ("gci", "dir", "Get-ChildItem") and any(re.match(r"(?i)-(?:r|fi|inc|dir)", word) for word in words):
        return find(guard, gci_as_find(words), state, stdin)
    out = []
    for path in operands([w for w in words[1:] if not w.startswith("--")], "-I -w") or ["."]:
        if state.remote:
            return marker(" ".join(words))
        if has_flag(words[1:], "-d") or not os.path.isdir(state.path(path)):
            out += [listed(path)]
        else:
            names = [name for name, _ in guard.precious.entries(state.path(path)) if name[0] != "."]
            out += names if words[0] in ("ls", "exa", "eza") else [f"{path}/{name}" for name in names]  # objects
    long = "-rw-r--r-- 1 u g 1 Jan 1 00:00 " if has_flag(words[1:], "-l") else ""
    return "".join(f"{long}{one}\n" for one in out)


def tee(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    for path in operands(words[1:]):
        if not has_flag(words[1:], *(["-a", "--append"] if words[0][0].islower() else ["-Append"])):
            guard.overwrite(path, state, words, stdin)
        guard.written(path, stdin, state)
    return stdin


def mkdir(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """mkdir, touch: what is not there yet. Elsewhere, or of an unknown name, only mkdir without -p is sure of that."""
    finds = words[0] == "touch" or has_flag(words[1:], "-p", "--parents")
    for path in operands(words[1:], "-m --mode -d -t -r"):
        place = state.path(path).rstrip("/")
        if state.remote or "\ue001" in place:
            state.hoped += [] if finds else [place]
        elif not os.path.lexists(place):
            while not os.path.lexists(os.path.dirname(place)):
                place = os.path.dirname(place)
            state.folders.append(place)


def same_lines(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """head, sort: some or all of the lines that came in, or of the files."""
    written = option(words[1:], "-o", "--output") if words[0] == "sort" else None
    if written:
        guard.overwrite(written, state, words)
    files = [path for path in operands(words[1:], "-n -c -k -t -o") if not path.startswith("+")]
    text = stdin or "".join(guard.content(path, state) for path in files[:VALUES])
    return marker(f"{text} {' '.join(words)}") if text.startswith("\ue001") else text


def grep(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    rest = operands(words[1:], "-e -f -A -B -C -m --include --exclude --exclude-dir")
    pattern = option(words[1:], "-e") or "".join(rest[:1])
    if len(rest) > 1 or not stdin or "\ue001" in stdin:
        return marker(stdin + " " + " ".join(words))
    text = as_python(pattern, has_flag(words[1:], "-E", "-P") or words[0] != "grep")
    try:
        regex = re.compile("" if LIKE.slow_regex.search(text) else text, re.I if has_flag(words[1:], "-i") else 0)
    except re.error:
        return stdin
    return "".join(line for line in stdin.splitlines(True) if bool(regex.search(line)) != has_flag(words[1:], "-v"))


def decode(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """base64 -d, openssl base64 -d; nushell's `decode base64`; xxd -r -p; and what they make of known text."""
    if words[0] == "xxd":
        digits = "".join(stdin.split())
        known = len(digits) % 2 == 0 and re.fullmatch(r"[0-9a-fA-F]*", digits)
        return bytes.fromhex(digits).decode("utf-8", "replace") if known else marker("xxd")
    guard.overwrite(option(words[1:], "-out") or "/dev/null", state, words)
    paths = [path for path in operands(words[1:], "-w -i -in") if path not in ("base64", "enc", "-base64")]
    text = guard.content(paths[0], state) if paths else stdin
    if has_flag(words[1:], "-d", "-D", "--decode") or words[0] == "decode":
        return decoded(text)
    import base64

    return marker("base64") if "\ue001" in text or not text else base64.b64encode(text.encode()).decode() + "\n"


def tr(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    sets = [decode_ansi(word) for word in operands(words[1:])]
    if has_flag(words[1:], "-d"):
        return "".join(sign for sign in stdin if sign not in "".join(sets))
    ranges = [re.sub(r"(?s)(.)-(.)", lambda m: "".join(map(chr, range(ord(m[1]), ord(m[2]) + 1))), s) for s in sets]
    old, new = ranges if len(ranges) == 2 else ("", "")
    return stdin.translate({ord(sign): new[min(i, len(new) - 1)] for i, sign in enumerate(old) if new})


def sed(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """Known for s/a/b/, and for lines that are kept or dropped; otherwise a marker that remembers what came in."""
    rest = operands(words[1:], "-e -f")
    given = option(words[1:], "-e")
    if any(re.match(r"-[a-zA-Z]*i|--in-place", word) for word in words[1:]):
        guard.edit(rest[0 if given else 1 :], state, words)
        return ""
    script = given or "".join(rest[:1])
    stdin = "".join(guard.content(path, state) for path in rest[0 if given else 1 :]) or stdin
    swap = re.fullmatch(r"s(.)(.*?)\1(.*?)\1[gep0-9]*", script)
    extended = has_flag(words[1:], "-E", "-r")
    if "\ue001" in stdin or not (swap or LIKE.sed_keeps.fullmatch(script)):
        return marker(stdin[:200] + " " + " ".join(words))
    kept = LIKE.sed_keeps.fullmatch(script)
    if kept and not kept[1]:  # 2,5d: some of the lines
        return stdin
    old = as_python(kept[1] if kept else swap[2] if swap else "", extended)
    if LIKE.slow_regex.search(old):
        return stdin
    new = re.sub(r"(?<!\\)&", lambda _: r"\g<0>", swap[3]) if swap else ""
    try:
        if swap:
            text = "".join(re.sub(old, new, line, count=script[-1] != "g") + "\n" for line in stdin.splitlines())
            return guard.script(text, state.copy()) if script[-1] == "e" else text
        return "".join(line for line in stdin.splitlines(True) if bool(re.search(old, line)) == (script[-1] == "p"))
    except re.error:
        return stdin


def as_python(pattern: str, extended: bool) -> str:
    """A regular expression of grep and sed in Python's: without -E the bare signs are text."""
    if extended:
        return pattern
    return re.sub(r"\\?[(){}?+|]", lambda match: match[0][1:] or "\\" + match[0], pattern)


def columns(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """awk '{print "rm", $2}': known where the lines are."""
    named = operands(words[1:], "-F -v -f")[1:]
    stdin = "".join(guard.content(path, state) for path in named[:VALUES] if "=" not in path) or stdin
    program = "".join(operands(words[1:], "-F -v")[:1])
    match = LIKE.awk_prints.fullmatch(program.strip())
    if not match or "\ue001" in stdin or not stdin:
        return derived(guard, words, state, stdin)
    parted, out = option(words[1:], "-F"), ""
    for line in stdin.splitlines():
        row = [line, *line.split(decode_ansi(parted) if parted else None)]
        for text, field, gap in re.findall(r'"((?:[^"\\]|\\.)*)"|\$(\d+|NF)|(\s*,\s*)', match[1]):
            number = len(row) - 1 if field == "NF" else int(field or 0)
            out += " " if gap else decode_ansi(text) if not field else row[number] if number < len(row) else ""
        out += "\n"
    return out


def du(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    depth = option(words[1:], "-d", "--max-depth") or ("0" if has_flag(words[1:], "-s") else "99")
    paths = operands(words[1:], "-d -t -B --max-depth --threshold --exclude")
    tests = ["-maxdepth", depth, *([] if has_flag(words[1:], "-a", "--all") else ["-type", "d"])]
    if state.remote:
        return derived(guard, words, state, stdin)
    named = [listed(path) for path in paths if not os.path.isdir(state.path(path))]
    rows = named + [row for path in paths or ["."] for row in matches(guard, path, Expression(tests), state)]
    return "".join(f"4.0K\t{row}\n" for row in rows)


def derived(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """cut, jq, ps, pgrep: output that depends on what came in or on the machine."""
    read = "".join(state.files.get(state.path(word), "") for word in words[1:])
    return marker((stdin + read)[:250].strip() + " " + " ".join(words)[:200])


def one_word(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """Programs that print a path, a number or the line backwards."""
    name, rest = words[0], operands(words[1:])
    if name == "rev":
        return "".join(line[::-1] + "\n" for line in stdin.splitlines())
    first = rest[0].rstrip("/") if rest else ""
    said = {"pwd": state.cwd, "mktemp": OWN, "which": first, "type": first, "dirname": os.path.dirname(first) or "."}
    said["basename"] = os.path.basename(first).removesuffix(rest[1] if len(rest) > 1 else "")
    return said.get(name, state.path(first)) + "\n"  # realpath, readlink -f


def each(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """PowerShell: % { Remove-Item $_.FullName }; nushell and elvish: each {|x| rm $x.name }"""
    body = " ".join(words[1:]).replace(marker("_"), "$_").strip().removeprefix("{").removesuffix("}").strip()
    match = re.match(r"\|\s*\$?(\w+)[^|]*\|(.*)", body, re.S)
    name, body = (match[1], match[2]) if match else ("_", body)
    text = re.sub(r"(\$\w+)\??\.(?:name|path|item|FullName|Name|PSPath)\b", r"\1", body).strip()
    for value in stdin.split("\n")[:VALUES] if stdin.strip() else [marker("value")]:
        inner = state.copy()
        inner.variables.update(dict.fromkeys(("_", "it", "in", name), value.strip()))
        guard.script(text, inner, value)


# -- find


class Expression:
    """The words behind find's paths as one Python expression: in order, an action where its turn comes.

    -name a -o ! -path b -delete  ->  test[0] or not test[1] and test[2]. What cannot be known (-mtime) may be either.
    """

    def __init__(self, words: list[str]) -> None:
        self.depth = {"-mindepth": 0, "-maxdepth": 99}
        self.executes: list[tuple[list[str], list[str]]] = []  # words, paths
        self.sinks: dict[str, list[str]] = {"-delete": [], "-prune": [], "-print": [], "-print0": []}
        self.tests: list[Test] = []
        self.words = list(words)
        text, follows = "", False
        while self.words:
            word = self.words.pop(0)
            sign = {"-o": " or ", "-or": " or ", "(": "(", ")": ")", "!": "not ", "-not": "not "}.get(word)
            if follows and sign not in (" or ", ")"):
                text += " and "
            follows = sign in (None, ")")
            test = None if sign else self.test_of(word)
            self.tests += [test] if test else []
            text += sign or (f"test[{len(self.tests) - 1}](path, folder)" if test else "unknown")
        try:
            self.code = compile(text or "True", "find", "eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self.code = compile("True", "find", "eval")

    def matches(self, path: str, folder: bool) -> bool:
        given = {"test": self.tests, "path": path, "folder": folder}
        either = [True, False] if "unknown" in self.code.co_names else [True]
        return True in [bool(eval(self.code, given | {"unknown": one})) for one in either]  # both: actions are in it

    def test_of(self, word: str) -> Test | None:
        """What the word asks or does; None when that cannot be known here."""
        import fnmatch

        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next((i for i, one in enumerate(self.words) if one in (";", "+", "\\;")), len(self.words))
            self.executes.append((self.words[:end], []))
            del self.words[: end + 1]
        if word in ("-exec", "-execdir", "-ok", "-okdir") or word in self.sinks:
            sink = self.sinks.get(word, self.executes[-1][1] if self.executes else [])
            return lambda path, folder: not sink.append(path)  # type: ignore[func-returns-value]
        value = self.words.pop(0) if word in WORDS["find tests"] and self.words else ""
        if word in self.depth:
            self.depth[word] = int(value) if value.isdigit() else 99
        if word in ("-name", "-iname", "-path", "-ipath", "-wholename"):
            regex = re.compile(fnmatch.translate(value), re.I if word[1] == "i" else 0)
            name = os.path.basename if word in ("-name", "-iname") else str
            return lambda path, folder: bool(regex.match(name(path)))
        if word == "-type" and value in ("f", "d"):
            return lambda path, folder: folder == (value == "d")
        return None


def find(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    if words[0].startswith("fd"):
        words = fd_as_find(words)
    roots, rest = [], [word for word in words[1:] if word not in ("-L", "-P", "-H")]
    while rest and not (rest[0].startswith("-") or rest[0] in ("(", "!", "\\(")):
        roots.append(rest.pop(0))
    rest = [word[1:] if word[:2] == "--" else word for word in rest]  # of Lustre's `lfs find --name`
    wanted = Expression([word.replace("\\(", "(").replace("\\)", ")") for word in rest])
    prints, paths = {"-print", "-print0"} & set(rest), []
    for root in roots or ["."]:
        if not state.remote and "\ue001" not in root and root != "/" and os.path.lexists(state.path(root)):
            paths += matches(guard, root, wanted, state)
            continue
        # on another machine: the root with the pattern that is looked for
        negated = {rest[i + 2] for i, word in enumerate(rest[:-2]) if word in ("!", "-not")}
        named = [rest[i + 1] for i, word in enumerate(rest[:-1]) if word in ("-name", "-iname", "-path")]
        guess = root.rstrip("/") + "/" + next((name for name in named if name not in negated), "*")
        guess = guess if state.remote else listed(guess)
        told = [wanted.sinks[word] for word in {"-delete", *prints} & set(rest)]
        for sink in [paths, *told, *(hits for _, hits in wanted.executes)]:
            sink.append(guess)
    guard.lose(wanted.sinks["-delete"], state, words, "find -delete removes", whole=state.remote)
    for command, hits in wanted.executes:
        for path in hits[:MATCHES]:
            guard.run([word.replace("{}", path) for word in command], state.copy(), "")
    if state.remote:
        return marker(" ".join(words))
    if prints or wanted.executes or "-delete" in words:
        paths = wanted.sinks["-print"] + wanted.sinks["-print0"]
    return "".join(path + ("\0" if "-print0" in prints else "\n") for path in paths)


def matches(guard: Walker, root: str, wanted: Expression, state: State) -> list[str]:
    top = root.rstrip("/") or "/"
    found, level = [], [(top, os.path.isdir(state.path(f"{top}/")))]
    for depth in range(min(wanted.depth["-maxdepth"], 11) + 1):
        below = []
        for path, folder in level:
            if depth >= wanted.depth["-mindepth"] and wanted.matches(path, folder):
                found.append(path)
            if folder and path not in wanted.sinks["-prune"]:
                rows = guard.precious.entries(state.path(f"{path}/").rstrip("/") or "/")
                below += [(f"{path.rstrip('/')}/{name}", is_dir) for name, is_dir in rows]
        level = below
    return found


def gci_as_find(words: list[str]) -> list[str]:
    """Get-ChildItem runs -Recurse -Filter *.pt -File in find's words."""
    lower = [word.lower() if word[:1] == "-" else word for word in words[1:]]
    valued = "-path -filter -fi -include -exclude -literalpath -depth -erroraction -ea"
    roots = values_of(lower, "-path", "-literalpath") or operands([w for w in lower if w != "-r"], valued) or ["."]
    named = [one for text in values_of(lower, "-filter", "-fi", "-include") for one in text.split(",")]
    kinds = {"-file": ["-type", "f"], "-directory": ["-type", "d"], "-dir": ["-type", "d"]}
    tests = [test for one in named for test in ("-o", "-name", one)][1:]
    depth = [] if any(re.match(r"-r", word) for word in lower) else ["-maxdepth", "1"]
    tests = ["-mindepth", "1", *depth, *(["(", *tests, ")"] if tests else [])]
    return ["find", *roots, *tests, *(one for word in lower for one in kinds.get(word, []))]


def fd_as_find(words: list[str]) -> list[str]:
    """fd PATTERN [FOLDER] -e EXT -x COMMAND in find's words."""
    at = next((i for i, word in enumerate(words) if word in ("-x", "-X", "--exec", "--exec-batch")), len(words))
    rest, command = words[1:at], words[at + 1 :]
    ending = option(rest, "-e", "--extension")
    given = operands(rest, "-e -t -d -E --extension --type --max-depth --exclude --changed-before")
    pattern = "".join(given[:1])
    pattern = re.sub(r"\.\*|[.*]", "*", f"*{pattern.strip('^$')}*") if pattern and "-g" not in rest else pattern
    tests = ["-mindepth", "1", "-name", pattern.replace("\\", "") or "*", *["-name", f"*.{ending}"] * bool(ending)]
    action = ["-exec", *command, *(["{}"] if "{}" not in command else []), ";"] if command else []
    return ["find", *(given[1:] or ["."]), *tests, *action]
