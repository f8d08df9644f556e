"""Code on the command line or in a named script: python -c, node -e, perl -e, and what it deletes, ends or starts.

Python is read as a tree (`python_code`); other languages by their string literals behind the names of functions that
delete or start something.
"""

from __future__ import annotations

import os

from rgt.guard.argument_words import after_options, operands
from rgt.guard.clients import is_ending_call
from rgt.guard.precious_paths import marker
from rgt.guard.quick_start import Regex, re
from rgt.guard.shell_walk import STARTS, State, Walker

_MAGICS = Regex(r"(?m)^\s*(?:[\w, ]+=\s*)?(?:!+|%{1,2}(?:sx|system|sc|bash|sh)?)\s*(\w.*)")
_VALUED = set("-c -m -W -X -Q --check-hash-based-pycs".split())


def interpreter(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    name = words[0]
    if name.startswith(("py", "ipython", "torchrun")):
        python_words(guard, words, state, stdin)
        return
    if name in ("perl", "ruby") and any(re.fullmatch(r"-[a-z]*i[a-z.]*", word) for word in words):
        for path in operands(words[1:], "-e -E -pe -pie -i -l -0"):
            guard.overwrite(path, state, words)
    for i, word in enumerate(words[1:], 1):
        told = word == "-c" and name in ("expect", "guile")
        if (told or re.fullmatch(r"-[a-zA-Z]*[eEr]|--?eval|--execute|-p|--print|eval|-batch", word)) and i + 1 < len(
            words
        ):
            foreign(guard, words[i + 1], state, name)
            return
    if name.endswith("awk"):
        for path in operands(words[1:], "-i -v -F -f")[1:] if "inplace" in words else []:
            guard.overwrite(path, state, words)
        foreign(guard, " ".join(words[1:]), state, stdin=stdin)
        return
    rest = after_options(words[1:], {"-I", "-r", "-M", "-l"})
    text = guard.content(rest[0], state) if rest and rest[0] != "-" else stdin
    if text and not text.startswith("\ue001"):
        foreign(guard, text, state, name)


def python_words(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    rest = words[1:]
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word[-1] == "c" and word[1:].isalpha():
            walk_python(guard, rest[0] if rest else "", state, rest[1:])
            return
        if word[-1] == "m" and word[1:].isalpha():
            client = rest[0].partition(".")[0] if rest else ""
            if client in guard.table["commands"]:
                guard.run([client, *rest[1:]], state.copy(), stdin)
            rest = [rest[0].replace(".", "/") + ".py", *rest[1:]] if rest else []
            break
        if word in _VALUED and rest:
            rest.pop(0)
    if rest and rest[0] != "-":
        text = guard.content(rest[0], state)
        if not text.startswith("\ue001"):
            walk_python(guard, text, state, rest[1:], is_script=True)
    elif stdin and not stdin.startswith("\ue001"):
        walk_python(guard, stdin, state, rest[1:])


def walk_python(guard: Walker, text: str, state: State, arguments: list[str], is_script: bool = False) -> None:
    """A script's own file is trusted with its own outputs; only literal removals and ends count there."""
    from rgt.guard import python_code

    try:
        tree = python_code.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        foreign(guard, text, state)
        for match in _MAGICS.finditer(text):  # IPython
            guard.script(match[1], state.copy())
        return
    python_code.walk(guard, tree, state, arguments, is_script)


# -- other languages

_LITERAL = (
    r"(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`\\]|\\.)*`|q[qwx]?\{[^}]*\}|q[qwx]?\([^)]*\)"
    r"|<[^<>\s]*\*[^<>\s]*>)"
)
# names of functions that delete, in any language; what they delete is the literal behind, or what the code names
_DELETES = Regex(
    r"(?<![\w$])(?:rm(?:dir)?Sync|unlink(?:Sync)?|rmdir|rm_(?:rf?|f)!?|rmtree|rimraf(?:\.sync)?|removeSync|emptyDirSync"
    r"|rm(?=\s*[(\"'\[])|(?<=\()rm(?=,)|(?:File|Files|fs|Dir|IO|Deno|os)\.(?:[dD]elete|[rR]emove)\w*|(?:dir|file)_delete"
    r"|(?:Directory|File)\]::Delete|delete_at!|(?<!\.)delete(?=\([\"'])|file\.remove|lfs\.rmdir"
    r"|[\w.:]*(?:[dD]elete|[rR]emove)[-_]?(?:[dD]ir|[fF]ile|[tT]ree|[rR]ecursive|[pP]ath|[aA]ll|entry)\w*(?:-\w+)*)(?![\w-])"
    rf"(?P<own>[\"']?[\s(,]*(?:glob)?[\s(\[]*(?!['\"];)({_LITERAL}))?"
)
_READS = Regex(
    r"(?i)(?:read(?!_?dir)[\w.]*|require|import|from|open|load\w*|parse|fromJSON|puts|print\w*|echo|log|mkdir\w*)[\s(]*$"
)
_ENVIRON = Regex(r"(?i)(?:\benv|environ|getenv)\W{1,3}([A-Za-z]\w*)")
# code with one of these starts programs, and a literal that begins with one is its command
_RUNS = Regex(
    r"(?i)exec|system|spawn|popen|passthru|shell|command|cmd|process|getline|%x|\brun\b|\.!|\|\s*\"(?:ba)?sh\""
)
_WRITES = Regex(
    rf"(?:rename[\s(]*{_LITERAL}\s*,|writeFile(?:Sync)?|truncate(?:Sync)?|(?:File|IO|Bun)\.write!?|createWriteStream"
    rf"|file_put_contents|Deno\.write\w*|(?:save|write)\w*\((?:[^;\n'\"]{{0,40}},\s*)?|open[^;\n]{{0,20}}['\"]>['\"]\s*,)[\s(]*({_LITERAL})"
    rf"|open[\s(]*({_LITERAL})\s*,\s*['\"]w|open[^;\n]{{0,20}}['\"]>\s*(\w[^'\"]*)"
)
_ADDRESS = Regex(r"(?:https?:)?/[\w./:$?=&{}-]*")
_METHOD = Regex(r"(?i)\b(delete|post|put|patch)\b")


def deletes(guard: Walker, text: str, state: State, language: str) -> None:
    """A call that does not say what it deletes may delete any path that the code names and does not only read."""
    if language in ("tclsh", "wish", "expect"):
        there = state.elsewhere() if re.search(r"spawn\s+(?:ssh|mosh)", text) else state.copy()
        for verb, told in re.findall(r"\b(file\s+delete|exec|spawn|system|send)\s+(?:--\s+)?([^\n;\]]+)", text):
            if verb == "send":
                guard.script(re.sub(r"\\[rn]", "\n", told.strip().strip('"{}')), there)
            else:
                guard.script(f"rm -r {told}" if verb[0] == "f" else told, state.copy())
        return
    calls = [match for match in _DELETES.finditer(text) if not (language[:1] == "R" and match[0][:2] == "rm")]
    for match in calls:
        if match["own"]:
            guard.lose(guard.glob(_bare(match[2]), state), state, ["code", match[0][:80]], "removes")
    if all(match["own"] for match in calls):
        return
    for name in _ENVIRON.findall(text):
        guard.lose([guard.variable(name, state)], state, ["code", text[:80]], "removes")
    for match in re.finditer(_LITERAL, text):
        if not _READS.search(text[max(0, match.start() - 30) : match.start()]):
            paths = [one for one in guard.glob(_bare(match[0]), state) if "/" in one or os.path.exists(state.path(one))]
            guard.lose([one for one in paths if one.strip("./ ")], state, ["code", text[:80]], "removes")


def foreign(guard: Walker, text: str, state: State, language: str = "", stdin: str = "") -> None:
    """node, perl, ruby, php, awk, lisp: calls by name with the literals behind them."""
    known = dict(re.findall(rf"(\w+)\s*=\s*({_LITERAL})", text))
    text = re.sub(r"(?<=[(,\s])\$?(\w+)(?=\s*[,);])", lambda match: known.get(match[1], match[0]), text)
    for match in re.finditer(rf"{_LITERAL}(?:[\s,\[]+{_LITERAL})*", text) if _RUNS.search(text) else ():
        literals = [_bare(one) for one in re.findall(_LITERAL, match[0])]
        first = literals[0].split()
        if not first or not (guard.knows(first[0]) or first[0] in STARTS):
            continue
        if _READS.search(text[max(0, match.start() - 30) : match.start()]):
            continue
        if re.match(r"\s*[+.$\w]", text[match.end() :]) and not re.match(r"\s*\.[a-z!]", text[match.end() :]):
            # "rm -rf " $1: what follows is not known
            literals[-1] += marker(f"{stdin[:200]} {text[match.end() : match.end() + 40]}")
        guard.script(literals[0], state.copy()) if len(literals) == 1 else guard.run(literals, state.copy(), "")
    for match in re.finditer(r"(?<!\w)`((?:[^`\\]|\\.)+)`", text):
        if " " in match[1]:
            guard.script(match[1], state.copy())
    deletes(guard, text, state, language)
    for match in _WRITES.finditer(text):
        guard.overwrite(_bare(match[1] or match[2] or match[3]), state, ["code", match[0][:80]])
    for match in re.finditer(_LITERAL, text):
        if _ADDRESS.fullmatch(_bare(match[0])) and not match[0].startswith("`"):
            told = text[max(0, match.start() - 80) : match.end() + 500]
            named = _METHOD.search(told)
            guard.request(named[1].upper() if named else "GET", _bare(match[0]), told, ["code", match[0][:80]])
    for call in set(re.findall(r"\b[A-Za-z_][\w.]*(?=\s*\()", text)):
        profile = guard.table["calls"].get(call.rpartition(".")[2])
        if profile is not None or is_ending_call(call, False):
            guard.act("end", f"{call} ends it", ["code", text[:200]], "", profile or "")


def _bare(literal: str) -> str:
    inner = re.sub(r"^(?:q[qwx]?[{(]|['\"`<])|[})'\"`>]$", "", literal)
    return re.sub(r"\$\{?\w+\}?", lambda match: marker(match[0]), inner) if literal[0] in '"`' else inner
