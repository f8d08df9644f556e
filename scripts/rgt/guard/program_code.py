"""Code on the command line or in a named file: python -c, node -e, make, npm run, and what it deletes, ends or starts.

Python is read as a tree (`python_code`); other languages by their string literals behind the names of functions that
delete or start something.
"""

from __future__ import annotations

import contextlib
import os

from rgt.guard.argument_words import after_options, operands, option, values_of
from rgt.guard.clients import is_ending_call, parts, request, shows_only
from rgt.guard.destroyers import unseen
from rgt.guard.precious_paths import marker
from rgt.guard.quick_start import LIKE, PROGRAMS, WORDS, Regex, re
from rgt.guard.shell_walk import STARTS, Walker, mounts
from rgt.guard.word_expansion import VALUES, State


def interpreter(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    name = words[0]
    if name in WORDS["notebooks"]:  # jupyter nbconvert --execute FILE, papermill FILE OUT
        executes = name not in ("jupyter", "jupytext") or not {"execute", "run", "--execute"}.isdisjoint(words)
        named = [word for word in words[1:] if word.endswith(".ipynb")] if executes else []
        words, name = ["ipython", *named[:1]], "ipython" if named else ""
    if name in ("torchrun", "accelerate", "deepspeed"):  # their own options stand before the script
        words = ["python", *words[next((i for i, word in enumerate(words) if word.endswith(".py")), len(words)) :]]
    if words[0].startswith(("py", "ipython", "xonsh")):
        python_words(guard, words, state, stdin)
        return
    if any(re.match(r"-[lanp0]*i", word) for word in words[1:]):  # perl -pi -e, gawk -i inplace
        guard.edit(operands(words[1:], "-e -E -I -M -v"), state, words)
    own = "|-c" if name in ("guile", "expect") else ""
    flag = Regex(rf"-[a-zA-Z0]*[eEr]|--?eval|--execute|-p|--print|eval|-batch{own}")
    given = [words[i] for i, word in enumerate(words[1:-1], 2) if flag.fullmatch(word)]
    if given and words[1] != "run":  # whose options are the program's
        fed = any(re.match(r"-[a-zA-Z0]*[np]", word) for word in words[1:])  # perl -ne: once for each line
        paths = [one for one in re.split(r"[\n\0]+", stdin) if one] if fed else []
        foreign(guard, given[0], state, name, stdin, paths[:VALUES])
    elif name.endswith("awk"):
        read = "".join(guard.content(path, state) for path in values_of(words[1:], "-f", "--file"))
        told = [re.sub(r"(?s)^(\w+)=(.*)$", r'\1="\2";', word) for word in words[1:]]  # -v NAME=VALUE
        foreign(guard, f"{' '.join(told)}\n{read}", state, name, stdin)
    else:
        source(guard, words, state, stdin)


def source(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """node FILE, deno run FILE, ruby < FILE"""
    rest = after_options(words[1:], {"-I", "-r", "-M", "-l", "-cp", "-classpath", "--class-path"})
    rest = after_options(rest[1:], set()) if rest[:1] == ["run"] else rest
    text = guard.content(rest[0], state) if rest and rest[0] != "-" else stdin
    if not text.startswith("\ue001") and not shows_only(text, rest[1:]):
        foreign(guard, text, state, words[0], arguments=rest[1:])


def python_words(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    rest = words[1:]
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word[-1] == "c" and word[1:].isalpha():
            walk_python(guard, rest[0] if rest else "", state, rest[1:])
            return
        if word[-1] == "m" and word[1:].isalpha():
            module = rest[0].replace(".", "/") if rest else ""
            inner = [i for i, one in enumerate(rest) if one.endswith(".py") and rest[0] in WORDS["python runners"]]
            folder = os.path.isdir(state.path(module)) and not os.path.isfile(state.path(f"{module}.py"))
            # cProfile, trace, torch.distributed.run: they run what they are given
            rest = rest[inner[0] :] if inner else [module if folder else f"{module}.py", *rest[1:]]
            break
    if rest and rest[0] != "-":
        folder = os.path.isdir(state.path(rest[0])) and rest[0] != ""
        text = guard.content(f"{rest[0]}/__main__.py" if folder else rest[0], state)
        unseen(guard, rest[0], rest[1:], state)
        if not text.startswith("\ue001") and not shows_only(text, rest[1:]):
            walk_python(guard, text, state, rest[1:], is_script=True)
    elif stdin and not stdin.startswith("\ue001"):
        walk_python(guard, stdin, state, rest[1:])


def walk_python(guard: Walker, text: str, state: State, arguments: list[str], is_script: bool = False) -> None:
    """A script's own file is trusted with its own outputs; only literal removals and ends count there."""
    from rgt.guard import python_code

    cells = notebook(text) if text.lstrip().startswith("{") else [text]
    code = ""
    for cell in cells:
        if match := re.match(r"\s*%%(?:bash|sh|script|system|!)[^\n]*\n", cell):
            guard.script(cell[match.end() :], state.copy())
        else:
            code += cell + "\n"
    for attempt in (code, LIKE.notebook_magic.sub(r"\1pass", code)):  # IPython's lines are no Python
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            python_code.walk(guard, attempt, state, arguments, is_script)
            break
    else:
        foreign(guard, code, state)
    for match in LIKE.notebook_magic.finditer(code) if attempt is not code else ():
        guard.script(match[2], state.copy())


def notebook(text: str) -> list[str]:
    """The code cells of an .ipynb."""
    import json

    try:
        cells = [cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError):
        return [text]
    return [one if isinstance(one, str) else "".join(map(str, one)) for one in cells]


# -- other languages

_LITERAL = LIKE.text("literal")


def awk_starts(text: str) -> str:
    """What awk's system() and pipes are given: variables as the literals they hold, literals side by side as one."""
    string, values = r'"(?:[^"\\]|\\.)*"', dict[str, str]()

    def joined(code: str) -> str:
        code = re.sub(rf"{string}|(?<![\w$])[A-Za-z_]\w*", lambda one: values.get(one[0], one[0]), code)
        many = rf"{string}(?:[\s,]+{string})+"  # "rm " d; with a comma of print and printf
        return re.sub(many, lambda one: re.sub(r'"\s*,\s*"|%[a-z](?!\w)|\\n', " ", re.sub(r'"\s+"', "", one[0])), code)

    for name, value in re.findall(rf"(\w+)\s*=(?![=~])\s*(?:sprintf\s*\()?((?:{string}|\w+|[ \t,])+)", text):
        values[name] = joined(value)
    started = re.findall(rf"system\s*\((?:{string}|[^;}}\"])*|(?:{string}|[^;{{}}|\"])*\|(?:{string}|[^;}}|\"])*", text)
    return "; ".join(joined(re.sub(r"^\s*printf?\b", "", one)) for one in started)


def deletes(guard: Walker, text: str, state: State, language: str, arguments: list[str]) -> None:
    """A call that does not say what it deletes may delete what the code or its line names and does not only read."""
    calls = [match for match in LIKE.deleting_call.finditer(text) if not (language[:1] == "R" and match[0][:2] == "rm")]
    for match in calls:
        if match["own"]:
            guard.lose(guard.glob(_bare(match[2]), state), state, ["code", match[0][:80]], "removes")
    if all(match["own"] for match in calls):
        return
    guard.lose([word.rpartition("=")[2] for word in arguments], state, ["code", *arguments], "removes")
    for match in re.finditer(_LITERAL, text):
        if not LIKE.reading_call.search(text[max(0, match.start() - 30) : match.start()]):
            paths = [one for one in guard.glob(_bare(match[0]), state) if "/" in one or os.path.exists(state.path(one))]
            guard.lose([one for one in paths if one.strip("./ ")], state, ["code", text[:80]], "removes")


def foreign(
    guard: Walker, text: str, state: State, language: str = "", stdin: str = "", arguments: list[str] | None = None
) -> None:
    """node, perl, ruby, php, awk, lisp: calls by name with the literals behind them."""
    stdin = LIKE.shell_signs.sub(" ", stdin[:200] or " ".join(re.findall(r"\"([^\"]*)\"\s*\|\s*getline", text)))
    if language in ("tclsh", "wish", "expect"):
        guard.script(re.sub(r"\bfile delete\b", "rm -r", text), state.copy())
    awk = language.endswith("awk")
    known = {} if awk else dict(re.findall(rf"(\w+)\s*=\s*({_LITERAL})", text))
    text = re.sub(r"(?<=[(,\s])\$?(\w+)(?=\s*[,);])", lambda match: known.get(match[1], match[0]), text)
    # import {X as Y}, {X: Y} = require
    for name, own in re.findall(r"\b(\w+(?= as )|[A-Z]\w+)(?: as |\s*:\s*)(\w+)(?=[\s,}])", text):
        text = re.sub(rf"\b{own}(?=\s*\()", name, text)
    ticks = "`" in text and language in ("perl", "ruby", "php")  # there they start what they hold
    code, text = text, awk_starts(text) if awk else text
    started = ticks or LIKE.runs_programs.search(text)
    for match in re.finditer(rf"{_LITERAL}(?:[\s,\[]+{_LITERAL})*", text) if started else ():
        literals = [_bare(one, stdin) for one in re.findall(_LITERAL, match[0])]
        first = literals[0].split()
        if not first or not (guard.knows(first[0]) or first[0] in STARTS):
            continue
        if LIKE.reading_call.search(text[max(0, match.start() - 30) : match.start()]):
            continue
        if re.match(r"\s*[+.$\w]", text[match.end() :]) and not re.match(r"\s*\.[a-z!]", text[match.end() :]):
            # "rm -rf " $1: what follows is not known
            literals[-1] += marker(LIKE.shell_signs.sub(" ", f"{stdin} {text[match.end() : match.end() + 40]}"))
        guard.script(literals[0], state.copy()) if len(literals) == 1 else guard.run(literals, state.copy(), "")
    text = code
    deletes(guard, text, state, language, arguments or [])
    written = [*LIKE.writing_call.finditer(text), *(LIKE.r_writes.finditer(text) if language[:1] == "R" else ())]
    for match in written:
        path = next(one for one in match.groups() if one)
        guard.overwrite(_bare(path), state, ["code", match[0][:80]])
    for match in re.finditer(_LITERAL, text):
        if LIKE.http_address.fullmatch(_bare(match[0])) and not match[0].startswith("`"):
            told = text[max(0, match.start() - 80) : match.end() + 500]
            named = LIKE.http_method.search(told)
            request(guard, named[1].upper() if named else "GET", _bare(match[0]), told, ["code", match[0][:80]])
    sdk = LIKE.cloud_sdk.search(text)
    keys = re.findall(r"[kK]ey[\"']?\s*[:=]>?\s*[\"']([^\"']+)", text)
    spares = keys and not any(guard.precious.by_name(key, True) for key in keys)  # only scratch in a bucket
    for call in set(re.findall(r"\b[A-Za-z_][\w.]*(?=\s*\()|(?<=\)\.)[a-z]\w+(?=\(|\s*(?:$|[;}]))", text)):
        profile = guard.table["calls"].get(call.rpartition(".")[2])
        last = call.rpartition(".")[2]  # not: a Map's own delete(), client.destroy()
        given = last in ("destroy", "terminate") and not re.search(rf"\b{last}\(\s*\)", text)
        is_clear = len(parts(last)) > 1 or given or re.search(rf"\)\.{call}\b", text)
        ours = sdk and is_clear and not spares and is_ending_call(call, True)
        if profile is not None or ours or is_ending_call(call, False):
            guard.act("end", f"{call} ends it", ["code", text[:200]], "", profile or "")


def _bare(literal: str, stdin: str = "") -> str:
    inner = re.sub(r"^(?:(?:q[qwx]?|%x)[{(]|['\"`<])|[})'\"`>]$", "", literal)
    return re.sub(r"\$\{?\w+\}?", lambda match: marker(f"{stdin} {match[0]}"), inner) if literal[0] in '"`' else inner


# -- make TARGET, just TARGET, npm run NAME: the lines that the named recipe would run


def recipe(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """make TARGET, npm run NAME, task NAME: what the runner's file says there, with the values that the line gives."""
    inner = state.copy()
    inner.cwd = inner.path(option(words[1:], "-C", "--directory", "--prefix", "--dir") or ".").rstrip("/")
    given = option(words[1:], *WORDS["task file options"]) or PROGRAMS["task files"][words[0]]
    inner.files[inner.path("-")] = inner.files[inner.path("/dev/stdin")] = stdin
    told = operands(words[1:], f"-C -j -d -c --directory --prefix --dir --cores {' '.join(WORDS['task file options'])}")
    values = dict(word.split("=", 1) for word in told if "=" in word)
    targets = [word for word in told if "=" not in word and word not in ("run", "r", "run-script")][:VALUES]
    tasks(guard, given, targets, inner, values)


def tasks(guard: Walker, names: str, targets: list[str], state: State, given: dict[str, str]) -> None:
    """What a runner's file says at and below the name of a task: lines of a recipe, rows of YAML, a function's code."""
    texts = [text for name in names.split() if not (text := guard.content(name, state)).startswith("\ue001")]
    for paths in re.findall(r"(?m)^(?:[-s]?include|import)\s+(.+)$", texts[0] if texts else ""):
        texts += [guard.content(one.strip("'\""), state) for path in paths.split() for one in guard.glob(path, state)]
    text = "\n".join(texts).replace("\\\n", " ")
    values = {"RM": "rm -f", "MAKE": "make", **dict(LIKE.make_variable.findall(text)), **given}
    is_make = re.search(r"[mM]akefile|[jJ]ustfile", names)
    first = re.findall(r"(?m)^(\w[\w.-]*)[^\n:=]*:(?!=)", text)[:1] if is_make else ["all"]
    for target in (wanted := list(targets or first)):
        for number, (key, value) in enumerate(block(text, target)):
            needs = number == 0 or key in ("task", "deps", "depends", "depends_on")
            needed = [*re.findall(r"[\w:.-]+", value if needs else ""), f"pre{target}", f"post{target}"]
            wanted += [one for one in needed if one not in wanted and len(wanted) < VALUES]  # while they are walked
            for _ in range(3):  # values that name values
                value = re.sub(r"\$[({](\w+)[)}]|\{\{\s*(\w+)\s*\}\}", lambda m: values.get(m[1] or m[2], m[0]), value)
            guard.script(value.lstrip("@-+").replace("$$", "$") if key in _COMMANDS else "", state.copy())
    code = "" if is_make or re.search(r"\.(?:ya?ml|toml|json)$", names) else text
    for head, body in re.findall(r"(?m)^(\S.*\n)((?:[ \t]+\S.*(?:\n|$)|[ \t]*\n)+)", code):
        if not targets or any(re.search(rf"\b{re.escape(one)}\b", head) for one in targets):
            walk_python(guard, head + body, state, [], is_script=True)
            foreign(guard, head + body, state)


_COMMANDS = {"", "cmd", "cmds", "command", "entrypoint", "shell", "run"}


def block(text: str, title: str) -> list[tuple[str, str]]:
    """Of a recipe, YAML, JSON or TOML what stands at and below a title: key and value, a plain line without a key."""
    text = re.sub(r"(?<=[{,])\s*(?=\"[\w:-]+\"\s*:)", "\n", text)
    name = rf"[\"']?{re.escape(title)}[\"']?(?:[ \t][^:\n]*)?"
    match = re.search(rf"(?m)^([ \t]*){name}[ \t]*[:=](?!=)(.*(?:\n(?:\1[ \t]+\S.*|[ \t]*$))*)", text)
    match = match or re.search(rf"(?m)^\[([\w.]+\.)?{re.escape(title)}\]\n((?:[^\[\n].*(?:\n|$))*)", text)  # TOML
    rows = []
    for line in match[2].split("\n") if match else []:
        key, value = re.fullmatch(r"[\s{-]*(?:(\w+)\s*[:=](?=\s|$))?\s*(.*?)[\s}]*", line).groups()  # type: ignore[union-attr]
        if value.startswith("["):  # ["rm", "-rf", "/runs"]
            rows += [(key or "", " ".join(re.findall(r"[\w./:*~${}-]+", value)))]
        else:
            quoted = re.fullmatch(r"([\"'])(.*)\1,?", value)
            rows.append((key or "", quoted[2].replace('\\"', '"') if quoted else value))
    return rows


def manifest(guard: Walker, text: str, there: State) -> None:
    """kubectl apply -f, sky launch FILE: the commands that a file gives to machines elsewhere."""
    for _, value in LIKE.given_commands.findall(re.sub(r"(?<=[{,])\s*(?=\"\w+\"\s*:)", "\n", text)):
        words = [_bare(one) for one in re.findall(_LITERAL, value)] if value[:1] == "[" else []
        lines = words or [re.sub(r"^\s*- |^\s*[|>][-+]?\s*$", "", line) for line in value.split("\n")]
        guard.run(words, there.copy(), "")
        guard.script("\n".join(line.strip().strip("'\"") for line in lines if " " in line), there.copy())


def compose(guard: Walker, words: list[str], state: State) -> None:
    """docker compose run SERVICE: its command, in folders of ours where they are mounted."""
    rest = [one for one in operands(words[1:], "-f --file -p --project-name -e -v") if one != "compose"]
    usual = "compose.yaml compose.yml docker-compose.yml docker-compose.yaml"
    for service in rest[1:2] if rest[:1] == ["run"] else rest[1:] if rest[:1] == ["up"] else []:
        texts = [guard.content(name, state) for name in (option(words, "-f", "--file") or usual).split()]
        rows = block(next((text for text in texts if not text.startswith("\ue001")), ""), service)
        there = state.elsewhere()
        volumes = [one for key, value in rows if key in ("", "volumes") for one in value.split() if ":" in one]
        there.mounts = mounts(["run", *(word for one in volumes for word in ("-v", one))], state)
        for key, value in rows:
            guard.script(value if key in _COMMANDS - {""} and there.mounts else "", there.copy())
