"""Programs whose output the rest of a line may depend on: echo, ls, find, base64; a marker where it cannot be known."""

from __future__ import annotations

import os

from rgt.guard.argument_words import has_flag, operands, option
from rgt.guard.lazy_regex import Regex, re
from rgt.guard.precious_paths import marker
from rgt.guard.shell_syntax import decode_ansi
from rgt.guard.shell_walk import VALUES, State, Walker, decoded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt.guard.starting_programs import Program

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
        batch, values = values[:holes], values[holes:]
        given = iter(batch)
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
        place = state.path(path)
        if has_flag(words[1:], "-d") or not os.path.isdir(place):
            out += [path]
        else:
            names = [name for name, _ in guard.precious.entries(place) if name[0] != "." or has_flag(words[1:], "-A")]
            out += names if words[0] in ("ls", "exa", "eza") else [f"{path}/{name}" for name in names]  # objects
    return "".join(f"{one}\n" for one in out)


def same_lines(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """head, sort, tee: some or all of the lines that came in."""
    if words[0] in ("tee", "sponge"):
        for path in operands(words[1:]):
            if not has_flag(words[1:], "-a", "--append"):
                guard.overwrite(path, state, words)
            guard.written(path, stdin, state)
        return stdin
    written = option(words[1:], "-o", "--output") if words[0] == "sort" else None
    if written:
        guard.overwrite(written, state, words)
    files = [path for path in operands(words[1:], "-n -c -k -t -o") if not path.startswith("+")]
    text = stdin if stdin or not files else "".join(guard.content(path, state) for path in files[:VALUES])
    count = option(words[1:], "-n")
    if words[0] in ("head", "tail") and "\ue001" not in text:
        number = count or next((w[1:] for w in words[1:] if re.fullmatch(r"-\d+", w)), "10")
        lines = text.splitlines(True)
        if re.fullmatch(r"\d+", number):
            return "".join(lines[: int(number)] if words[0] == "head" else lines[-int(number) :] if int(number) else [])
        if re.fullmatch(r"\+\d+", number) and words[0] == "tail":
            return "".join(lines[int(number) - 1 :])
    return text


def grep(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    rest = operands(words[1:], "-e -f -A -B -C -m --include --exclude --exclude-dir")
    pattern = option(words[1:], "-e") or (rest[0] if rest else "")
    if len(rest) > 1 or not stdin or "\ue001" in stdin:
        return marker(stdin + " " + " ".join(words))
    text = re.escape(pattern) if has_flag(words[1:], "-F") or words[0] == "fgrep" else pattern
    text = text if has_flag(words[1:], "-E", "-P") or words[0] == "egrep" else text.replace("\\|", "|")
    if _SLOW.search(text):
        return stdin
    try:
        regex = re.compile(text, re.I if has_flag(words[1:], "-i") else 0)
    except re.error:
        return stdin
    invert = has_flag(words[1:], "-v")
    return "".join(line for line in stdin.splitlines(True) if bool(regex.search(line)) != invert)


def base64_text(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    if not has_flag(words[1:], "-d", "-D", "--decode"):
        return marker("base64")
    paths = [path for path in operands(words[1:], "-w -i -in") if path not in ("base64", "enc")]
    return decoded(guard.content(paths[0], state) if paths else stdin)


def xxd(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    try:
        return bytes.fromhex("".join(stdin.split())).decode("utf-8", "replace") if has_flag(words[1:], "-r") else ""
    except ValueError:
        return marker("xxd")


def tr(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    sets = [decode_ansi(word) for word in operands(words[1:])]
    if has_flag(words[1:], "-d") and sets and "[" not in sets[0]:
        return "".join(sign for sign in stdin if sign not in sets[0])

    def signs(text: str) -> str:
        return re.sub(r"(.)-(.)", lambda m: "".join(map(chr, range(ord(m[1]), ord(m[2]) + 1))), text, flags=re.S)

    if len(sets) == 2 and "[" not in sets[0]:
        old, new = signs(sets[0]), signs(sets[1])
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
    """awk, cut, jq, ps, pgrep: output that depends on what came in or on the machine."""
    if words[0] == "nvidia-smi" and {"-r", "--gpu-reset", "-dci", "-dgi"} & set(words):
        guard.act("kill", "resets a GPU and ends what runs on it", words)
    return marker(stdin[:250].strip() + " " + " ".join(words)[:200])


def one_word(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """Programs that print a path."""
    name, rest = words[0], operands(words[1:])
    if name == "pwd":
        return state.cwd + "\n"
    if name == "mktemp":
        return "/tmp/tmp.guard0000\n"
    if name == "seq" and rest and all(word.isdigit() for word in rest):
        low, high = (int(rest[0]) if len(rest) > 1 else 1), int(rest[-1])
        return "".join(f"{number}\n" for number in range(low, min(high, low + VALUES) + 1))
    if not rest:
        return stdin
    if name in ("which", "type"):
        return rest[-1] + "\n"
    if name == "basename":
        ending = rest[1] if len(rest) > 1 else ""
        return os.path.basename(rest[0].rstrip("/")).removesuffix(ending) + "\n"
    if name == "dirname":
        return (os.path.dirname(rest[0].rstrip("/")) or ".") + "\n"
    return state.path(rest[0]) + "\n"  # realpath, readlink -f


def rev(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    return "".join(line[::-1] + "\n" for line in stdin.splitlines())


def find(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    from rgt.guard import find_walk

    return (find_walk.fd if words[0].startswith("fd") else find_walk.find)(guard, words, state, stdin)


def each(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """PowerShell: % { Remove-Item $_ }"""
    body = [word for word in words[1:] if word not in ("{", "}")]
    for value in stdin.splitlines()[:VALUES]:
        guard.run([re.sub("\ue001_\ue002(?:\\.\\w+)?", lambda _, v=value: v, word) for word in body], state.copy(), "")  # type: ignore[misc]
    return ""


_NAMED: dict[Program, str] = {
    find: "find gfind fd fdfind",
    each: "% ForEach-Object foreach each par-each",
    same_lines: "head tail sort uniq tee sponge column nl tac pv less more",
    grep: "grep egrep fgrep rg",
    ls: "ls gci dir Get-ChildItem exa eza",
    one_word: "pwd mktemp seq which basename dirname realpath readlink type",
    derived: "cut jq ps pgrep pidof nvidia-smi lsof squeue yes date comm paste",
    cat: "cat zcat bat Get-Content gc",
    echo: "echo",
    printf: "printf",
    base64_text: "base64 openssl",
    xxd: "xxd",
    tr: "tr",
    sed: "sed gsed",
    rev: "rev",
}
PRINTING: dict[str, Program] = {name: program for program, names in _NAMED.items() for name in names.split()}
