"""What builtins of shells do, and programs that start others: here, on another machine, in a container, later.

Each takes (guard, words, state, stdin) and gives what the command prints: text, a marker when it cannot be known. Plain
starters (nohup, sudo, srun) are rows of programs.json; here is what has a form of its own.
"""

from __future__ import annotations

import os

from rgt.guard.argument_words import after_options, has_flag, operands, option, shlex_words, values_of
from rgt.guard.precious_paths import marker
from rgt.guard.quick_start import PROGRAMS, WORDS, Regex, re
from rgt.guard.shell_reader import decode_ansi
from rgt.guard.shell_walk import STARTS, VALUES, State, Walker, decoded, mounts

# programs that start what follows: how many words come before the command, then options that take a value;
# @ on another machine, " the words are joined and read by a shell there
STARTERS: dict[str, tuple[int, str, set[str]]] = {}
for _row in PROGRAMS["starters"]:
    _cells = _row.split()
    _at = next(i for i, cell in enumerate(_cells) if cell[0] in "012")
    STARTERS.update(dict.fromkeys(_cells[:_at], (int(_cells[_at][0]), _cells[_at][1:], set(_cells[_at + 1 :]))))
_ESCAPE = Regex(r"(?:^|[\n|;])\s*(?:[:.\\]*(?:!+|(?:shell|system|sh)\s)|exec=)\s*([^\n]+)")
_WINDOWS = Regex(r"\b(?:Remove|Get|Stop|Clear|Restart|Move|Set)-[A-Z]|\b(?:rd|rmdir|del) /|\b[A-Z]:\\")
# options of fresh containers by which something of ours is in them
_SHARES = Regex(r"-v|--volume\b.*|--volumes-from\b.*|--mount\b.*|--pid=host|--privileged|-v.*:.*|-B|--bind.*")


# -- builtins


def cd(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    targets = [one for one in operands(words[1:]) if one != "/d"]  # cmd: cd /d C:/proj
    old = str(state.variables.get("OLDPWD", state.cwd))
    target = old if targets[:1] == ["-"] or words[0] == "popd" else targets[0] if targets else state.home
    state.variables["OLDPWD"] = state.cwd
    state.cwd = state.path(target).rstrip("/") or "/"
    return ""


def declare(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    for name, equals, value in (word.partition("=") for word in words[1:]):
        if equals:
            state.variables[name] = shlex_words(value[1:-1]) if value[:1] == "(" else value
    return ""


def set_words(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """bash: the arguments; fish: `set name value`; csh: `set name=value`; cmd: `set name=value`."""
    rest = [word for word in words[1:] if not re.fullmatch(r"[-+][a-zA-Z]*", word)]
    if "--" in words:
        state.arguments = words[words.index("--") + 1 :]
    elif rest and "=" in rest[0]:
        return declare(guard, words, state, stdin)
    elif rest:
        state.variables[rest[0]] = rest[1] if len(rest) == 2 else [one for one in rest[1:] if one != "="]
        state.arguments = rest
    return ""


def read(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    if words[0] != "read":  # mapfile, readarray
        name = (operands(words[1:], "-d -n -O -s -u -C -c") or ["MAPFILE"])[0]
        state.variables[name] = stdin.replace("\0", "\n").strip("\n").split("\n")
        return ""
    names = operands(words[1:], "-p -d -n -N -t -u -i")
    if has_flag(words[1:], "-a", "-A"):
        state.variables[names[-1] if names else "REPLY"] = stdin.split()
        return ""
    values = stdin.strip("\n").split(None, len(names) - 1) if len(names) > 1 else [stdin.strip("\n")]
    state.variables.update({name: values[i] if i < len(values) else "" for i, name in enumerate(names or ["REPLY"])})
    return ""


def evaluate(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    if words[0] == "trap":
        rest = operands(words[1:])
        return guard.script(rest[0], state.copy()) if len(rest) > 1 else ""
    return guard.script(" ".join(words[1:]) or stdin, state, stdin)


def source(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    return guard.file(words[1], words[2:], state, stdin, "sh") if len(words) > 1 else guard.script(stdin, state)


def alias(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    rest = [word for word in words[1:] if word not in ("=", "-g", "-s", "--add", "-a", "--save")]
    pairs = dict(word.split("=", 1) for word in rest if "=" in word)
    state.aliases.update(pairs or ({rest[0]: " ".join(rest[1:])} if rest else {}))
    return ""


def shift(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    state.arguments = state.arguments[int(words[1]) if words[1:] and words[1].isdigit() else 1 :]
    return ""


def nothing(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    return ""


# -- programs that start others


def env(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    rest, inner = words[1:], state.copy()
    while rest and (rest[0].startswith("-") or "=" in rest[0]):
        word = rest.pop(0)
        if word in ("-S", "--split-string") and rest:
            rest = shlex_words(rest[0]) + rest[1:]
        elif word.startswith("--split-string="):
            rest = shlex_words(word.partition("=")[2]) + rest
        elif word in ("-C", "--chdir") and rest:
            inner.cwd = inner.path(rest.pop(0))
        elif word in ("-u", "--unset") and rest:
            rest.pop(0)
        elif not word.startswith("-"):
            name, _, inner.variables[name] = word.partition("=")
    return guard.run(rest, inner, stdin) if rest else marker("env")


def starter(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    skip, how, valued = STARTERS[words[0]]
    if words[0] == "command" and has_flag(words[1:2], "-v", "-V"):
        return words[2] + "\n" if len(words) > 2 else ""
    rest = words[1:]
    if how == "run":
        if "run" not in rest[:3] and "exec" not in rest[:1]:
            return marker(words[0])
        rest = rest[(rest.index("run") if "run" in rest[:3] else 0) + 1 :]
    rest = after_options(rest, valued, skip)
    if words[0].startswith("salt") and rest:  # salt: the function of a module
        told = PROGRAMS["salt"].get(rest[0], "" if rest[0][:4] == "cmd." else "true").split()
        rest = [*told, *(one.removeprefix("cmd=") for one in rest[1:])]
    if "@" in how:
        return guard.script(" ".join(rest), state.elsewhere(), stdin)
    if rest[:1] in (["-c"], ["--command"]):  # flock FILE -c TEXT
        return guard.script(" ".join(rest[1:2]), state.copy(), stdin)
    if how == '"':
        return guard.script(" ".join(rest), state.copy(), stdin)
    while words[0] in ("sudo", "doas") and rest and re.match(r"[A-Za-z_]\w*=", rest[0]):
        rest = rest[1:]
    if not rest and has_flag(words[1:], "-s", "-i") and words[0] in ("sudo", "doas"):
        return guard.script(stdin, state.copy())
    return guard.run(rest, state, stdin) if rest else ""


def shell(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """sh -c TEXT, sh FILE, sh < TEXT."""
    rest, inner, text = words[1:], state.copy(), None
    inner.certain = {}  # what is not exported is not known there
    while rest and rest[0].startswith(("-", "+")):
        word = rest.pop(0)
        if re.fullmatch(r"-[a-zA-Z]*c", word) or word in ("--command", "--commands", "--init-command", "-C"):
            text = rest.pop(0) if rest else ""
            break
        if word in ("-o", "-O", "+O", "+o", "--rcfile", "--init-file") and rest:
            rest.pop(0)
        if re.fullmatch(r"-[a-z]*n[a-z]*", word) and words[0] not in ("fish", "nu"):
            return ""  # only checks the syntax
        if word == "--" or re.fullmatch(r"-[a-z]*s", word):
            break
    if text is None and rest and rest[0] != "-" and not (words[1:] and words[1] == "-s"):
        return guard.file(rest[0], rest[1:], inner, stdin, "sh")
    if text is None:
        inner.arguments = rest[1:] if rest[:1] == ["--"] else rest
        text, stdin = stdin, ""
    else:
        inner.arguments, inner.variables["0"] = rest[1:], (rest or ["sh"])[0]
    if words[0] == "xonsh":  # Python and shell in one: read as both
        from rgt.guard import python_code

        try:
            python_code.walk(guard, python_code.parse(text), inner, [], is_script=False)
            return ""
        except (SyntaxError, ValueError):
            text = re.sub(r"[$!]\[(.*?)\]", r"; \1 ;", text)
    return guard.script(text, inner, stdin)


def powershell(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    rest = words[1:]
    while rest and rest[0].startswith(("-", "/")):
        word = rest.pop(0).lower()
        if word in ("-c", "-command", "/c", "/k", "/s"):
            break
        if word == "-argumentlist" and rest:  # Start-Process cmd -ArgumentList "/c rd ..."
            return powershell(guard, [words[0], *shlex_words(rest[0])], state, stdin)
        if word in ("-e", "-ec", "-enc", "-encodedcommand") and rest:
            return guard.script(decoded(rest[0], "utf-16-le"), state.copy(), stdin)
        if word in ("-file", "-f", "-executionpolicy", "-ep", "-version", "-workingdirectory") and rest:
            rest.pop(0)
    text = re.sub(r"^\s*&\s*", "", " ".join(rest) or stdin).replace("\\", "/")
    text = re.sub(r"\ue001(\w+)\ue002", r"$\1", text)  # "$_" in double quotes: a shell would have taken it away
    text = re.sub(r"(?i)\bfor (?:/\w )*%+(\w) in \((.*?)\) do (.*)", r"for \1 in \2; do \3; done", text)
    text = re.sub(r"%+(\w)\b", r"$\1", text) if words[0] == "cmd" else text
    if "]::" in text or re.search(r"\)\.\w+\(", text):
        from rgt.guard import program_code

        program_code.foreign(guard, text, state)
    return guard.script(text, state.copy(), stdin)


def ssh(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    valued = WORDS["ssh options"]
    rest, there = after_options(words[1:], valued), state.elsewhere()
    command = [word for i, word in enumerate(after_options(rest[1:], valued)) if i or word != "--"]
    if not command:
        return guard.script(stdin, there)
    if command[0].removesuffix(".exe") in ("pwsh", "powershell", "cmd"):
        return guard.run(command, there, stdin)
    text = " ".join(command)
    guard.script(text.replace("\\", "/") if _WINDOWS.search(text) else text, there, stdin)
    return marker(" ".join(words))


def xargs(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    given = [w for w in words[1:] if not re.fullmatch(r"-[InPLds].+", w)]
    command = after_options(given, WORDS["xargs options"]) or ["echo"]
    listed = option(words, "-a", "--arg-file")
    stdin = guard.content(listed, state) if listed else stdin
    replace = option(words, "-I", "--replace", "-i", "-J")
    if replace is not None or has_flag(words[1:], "-i"):
        values = [v for v in re.split(r"[\n\0]", stdin) if v.strip()] or [marker("stdin")]
        return "".join(
            guard.run([word.replace(replace or "{}", value.strip()) for word in command], state, "")
            for value in values[:VALUES]
        )
    values = stdin.split("\0") if "\0" in stdin else shlex_words(stdin) if "\ue001" not in stdin else stdin.split()
    return guard.run(command + ([v for v in values if v] or [marker("stdin")]), state, "")


def parallel(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    if has_flag(words[1:], "--dry-run", "--dryrun"):
        return ""
    rest = after_options(words[1:], WORDS["parallel options"])
    marks = [i for i, word in enumerate(rest) if word in (":::", ":::+", "::::")]
    values = rest[marks[0] + 1 :] if marks else [v for v in stdin.split("\n") if v]
    listed = rest[marks[0] + 1] if marks and rest[marks[0]] == "::::" else option(words, "-a", "--arg-file")
    if listed:
        values = [line for line in guard.content(listed, state).split("\n") if line]
    command = " ".join(rest[: marks[0]] if marks else rest)
    if not command:
        return guard.script("\n".join(values), state.copy())
    out = ""
    for value in [v for v in values if v not in (":::", ":::+")][:VALUES] or [marker("stdin")]:
        text = re.sub(r"\{[./#%0-9]*\}", lambda _, v=value: v, command)  # type: ignore[misc]
        out += guard.script(text if text != command else f"{command} {value}".strip(), state.copy())
    return out


def batch_job(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """sbatch, qsub, bsub: a script, a command, or the text of --wrap; at, batch: stdin is a script."""
    text = option(words[1:], "--wrap")
    queue = words[0] in ("at", "batch")
    valued = "-J -o -e -p -n -N -c -t -A -w -q -l -P -M -R -W -b -f"
    rest = [one for one in [option(words[1:], "-f")] if one] if queue else operands(words[1:], valued)
    if text or not rest:
        guard.script(text or stdin, state.copy())
    elif os.path.isfile(state.path(rest[0])) or state.path(rest[0]) in state.files:
        guard.file(rest[0], rest[1:], state.copy(), stdin, "sh")
    else:
        guard.script(" ".join(words[words.index(rest[0]) :]), state.copy())
    return marker(" ".join(words))


def crontab(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    named = operands(words[1:], "-u")
    if has_flag(words[1:], "-l", "-e", "-r") and not named:
        return ""
    for line in (guard.content(named[0], state) if named and named[0] != "-" else stdin).split("\n"):
        match = re.match(r"\s*(?:@\w+|(?:\S+\s+){4}\S+)\s+(\S.*)", line)
        if match and not line.lstrip().startswith("#") and "=" not in line.split(None, 1)[0]:
            guard.script(match[1], state.copy())
    return ""


def terminal(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """tmux, screen: a command given to a new session, or typed into one."""
    rest = [word for word in words[1:] if word not in (";", "\\;")]
    verbs = [word for word in rest if re.fullmatch(r"[a-z]+(-[a-z]+)*", word)]
    sends = next((word for word in rest if word in ("send-keys", "send", "stuff", "write-chars", "run-shell")), "")
    told = operands(rest, "-S -p -r -d") if words[0] == "screen" else []
    kills = [verb for verb in verbs if re.fullmatch(r"kill-(server|session|window|pane)|killp|killw|kill-ses", verb)]
    kills += ["respawn-pane -k"] if "respawn-pane" in verbs and has_flag(rest, "-k") else []
    kills += told[:1] if has_flag(rest, "-X") and told[:1] in (["quit"], ["kill"]) else []
    named = set(values_of(rest, "-s", "-t", "-S", "--session"))
    ended = {one.split(":")[0].lstrip("=") for one in named}
    if kills and ended and "kill-server" not in kills and ended <= state.made.keys():
        return ""  # of the line's own making
    if words[0] == "screen" or {"new", "new-session"} & set(verbs):
        state.made.update({one: {} for one in named if not kills and not has_flag(rest, "-A", "-X", "-r")})
    if kills:
        guard.act("kill", f"{words[0]} {kills[0]} ends what runs there", words)
    elif sends:
        typed(guard, operands(rest[rest.index(sends) + 1 :], "-t -N"), state)
    elif words[0] == "screen":
        command = operands(rest, "-S -t -c -L -Logfile -h -s -T -p -r -x")
        return guard.run(words[words.index(command[0]) :], state, "") if command and not has_flag(rest, "-X") else ""
    elif set(verbs) & {"new", "new-session", "neww", "new-window", "split-window", "splitw", "respawn-pane", "popup"}:
        command = operands(rest[1:], "-s -n -t -c -x -y -e -F -l -p")
        guard.script(" ".join(rest[rest.index(command[0]) :] if command else []), state.copy())
    return ""


def typed(guard: Walker, keys: list[str], state: State) -> None:
    text = decode_ansi("\n".join(key for key in keys if not re.fullmatch(r"Enter|C-m|C-\w|C-\\", key)))
    if set(keys) & {"C-c", "C-\\", "C-d", "^C"} or "\x03" in text or "^C" in text:
        guard.act("kill", "interrupts what runs in that session", keys)
    guard.script(text.replace("^M", "\n").replace("\r", "\n"), state.copy())


def make(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    from rgt.guard import recipes

    if not has_flag(words[1:], "-n", "--dry-run", "--just-print", "--recon"):
        recipes.walk(guard, words, state, stdin)
    return marker(words[0])


def interpreter(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    from rgt.guard import outputs, program_code

    program_code.interpreter(guard, words, state, stdin)
    return outputs.derived(guard, words, state, stdin)


def sftp(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    text = option(words[1:], "-e", "-c") or guard.content(option(words[1:], "-b", "-f") or "-", state)
    text = stdin if text.startswith("\ue001") else text
    text = re.sub(r"\bmirror\b(?=.*--delete)", "rsync --delete", text).replace("rmdir ", "rm -r ")
    guard.script(text.replace("mrm ", "rm "), state.elsewhere())
    return marker(words[0])


def escaping(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """Commands in what an editor, a pager or a database client is told: any word may hold one (:!rm, .shell rm)."""
    from rgt.guard import program_code

    for text in [*(word.lstrip("+") for word in words[1:]), stdin]:
        for match in _ESCAPE.finditer(text):
            guard.script(match[1], state.copy())
        if "(" in text:
            program_code.foreign(guard, text, state)


# -- programs that are not known, and clients: what they may start


def option_texts(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """tar --to-command TEXT, aws ssm --parameters '{"commands": ["TEXT"]}', Start-Job { TEXT }"""
    for text in values_of(words[1:], *WORDS["text options"]):
        if " " in text or guard.knows(text):
            for one in re.findall(r'"([^"]*)"', text) if "commands" in text else [text]:
                guard.script(re.sub(r"^(?:exec|ProxyCommand|cmd|commands)=", "", one), state.copy(), stdin)
    for block in [word for word in words[1:] if word[:1] == "{" and word[1:2] in (" ", "|", "\n")]:
        guard.script(block[1:-1], state.copy(), stdin)


def carried(guard: Walker, words: list[str], state: State, stdin: str, client: bool) -> None:
    """uvx vastai destroy; aws-vault exec p -- aws ec2; docker exec c rm; gcloud compute ssh --command TEXT."""
    there, common = state, WORDS["common"]
    executes = WORDS["executes"]
    if client:
        there = state.elsewhere()
        if "compose" in words[0] or words[1:2] == ["compose"]:
            from rgt.guard import recipes

            words = recipes.compose(guard, words, state)
        there.mounts, there.cwd = mounts(words, state), "/workspace"
        for name in state.made.keys() & set(words):
            there.mounts |= state.made[name]
        new = words[0] in ("docker", "podman", "nerdctl", "kubectl", "oc") and "run" in words[1:3]
        there.fresh = new and not any(_SHARES.fullmatch(word) for word in words[1:])
    option_texts(guard, words, there, stdin)
    entry = option(words, "--entrypoint")
    image = next((i for i, word in enumerate(words) if i and guard.knows(client_image(word))), 0)
    if entry or (image and "run" in words[1:image]):  # docker run amazon/aws-cli ec2 ...
        guard.run([entry or client_image(words[image]), *words[(image or len(words) - 3) + 1 :]], there.copy(), stdin)
    before, first, started = len(guard.acts), not client, 0
    for i, word in enumerate(words[1:40], 1):
        name = re.split(r"@|==", os.path.basename(word))[0] or os.path.basename(word.strip("@"))
        follows = words[i - 1] in executes
        started = started or (i if word in executes else 0)
        starts = (first and word[:1] != "-") or follows or (client and started and words[i - 1][:1] != "-")
        first = first and word[:1] == "-"
        if " " in word and started and (words[i - 1] == "--" or not words[i - 1].startswith("-")):
            guard.script(word, there.copy(), stdin)
        vague = name in common or name in executes
        if name in STARTS and starts and name[0].isalpha() and not vague:
            guard.run([name, *words[i + 1 :]], there.copy(), stdin)
            return
        wrapped = started or "." in words[0] or not (client or words[0] in WORDS["tools"])
        if wrapped and guard.knows(name) and (not vague or (starts and (follows or words[i - 1][:1] != "-"))):
            guard.run([name, *words[i + 1 :]], there.copy(), stdin)
        if len(guard.acts) > before:
            return


def client_image(word: str) -> str:
    """amazon/aws-cli:2 -> aws"""
    return re.sub(r"[:@].*|-cli\b.*", "", word.rpartition("/")[2]) if "/" in word else ""
