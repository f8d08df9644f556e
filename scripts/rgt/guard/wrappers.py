"""What builtins of shells do, and programs that start others: here, on another machine, in a container, later.

Each takes (guard, words, state, stdin) and gives what the command prints: text, a marker when it cannot be known. Plain
starters (nohup, sudo, srun) are rows of programs.json; here is what has a form of its own.
"""

from __future__ import annotations

import os

from rgt.guard.argument_words import after_options, has_flag, operands, option, shlex_words, values_of
from rgt.guard.clients import ENDS, LIGHT, LOOKS, about, parts
from rgt.guard.precious_paths import marker
from rgt.guard.quick_start import LIKE, PROGRAMS, WORDS, Regex, re
from rgt.guard.shell_reader import decode_ansi
from rgt.guard.shell_walk import STARTS, Walker, decoded, mounts
from rgt.guard.word_expansion import VALUES, State

# programs that start what follows: how many words come before the command (@: it runs on another machine; run: only
# behind that verb), then options that take a value
STARTERS: dict[str, tuple[int, str, set[str]]] = {}
for _row in PROGRAMS["starters"]:
    _cells = _row.split()
    _at = next(i for i, cell in enumerate(_cells) if cell[0] in "012")
    STARTERS.update(dict.fromkeys(_cells[:_at], (int(_cells[_at][0]), _cells[_at][1:], set(_cells[_at + 1 :]))))
_SHARES = Regex(r"-v|--volume\b.*|--volumes-from\b.*|--mount\b.*|--pid=host|--privileged|-v.*:.*|-B|--bind.*")


# -- builtins


def cd(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    target = next((one for one in operands(words[1:]) if one != "/d"), state.home)  # cmd: cd /d C:/proj
    back = target == "-" or words[0] == "popd"
    old, before = str(state.variables.get("OLDPWD", state.cwd)), state.cwd
    place = state.path(old if back else target).rstrip("/") or "/"
    known = not (state.remote or back or place in state.files or place in state.folders or "\ue001" in place)
    at = guard.line.find(target)  # what a clone or an archive brings was named before
    first = re.search(r"(?:^|\b(?:cd|pushd)\s+[\"']?|=[\"']?)$", guard.line[: max(at, 0)])
    if known and first and not os.path.lexists(place):
        state.left = before
    unset = LIKE.unknown.fullmatch(target)
    state.cwd = before if unset and guard.is_unset(unset[1], state) else place  # cd "": nothing happens
    state.variables["OLDPWD"] = before


def set_words(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """bash: the arguments; fish: `set name value`."""
    state.stops = (state.stops or has_flag(words[1:], "-e")) and "+e" not in words
    rest = [word for word in words[1:] if not re.fullmatch(r"[-+][a-zA-Z]*", word)]
    if "--" in words:
        state.arguments = words[words.index("--") + 1 :]
    elif rest:
        state.variables[rest[0]] = rest[1] if len(rest) == 2 else rest[1:]


def read(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    text = stdin.strip("\n")
    if words[0] != "read":  # mapfile, readarray
        name = (operands(words[1:], "-d -n -O -s -u -C -c") or ["MAPFILE"])[0]
        state.variables[name] = text.replace("\0", "\n").split("\n")
        return
    names = operands(words[1:], "-p -d -n -N -t -u -i") or ["REPLY"]
    values = text.split(None, len(names) - 1) if len(names) > 1 else [text]
    state.variables.update({name: values[i] if i < len(values) else "" for i, name in enumerate(names)})


def evaluate(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    if words[0] == "trap":
        body = "".join(operands(words[1:])[:1])
        state.traps[:] = [] if body == "-" else [*state.traps, body]
        return ""
    return guard.script(" ".join(words[1:]) or stdin, state, stdin)


def source(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    return guard.file(words[1], words[2:], state, stdin, "sh") if len(words) > 1 else guard.script(stdin, state)


def alias(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """alias x='rm -rf'; fish and PowerShell: alias x rm -rf"""
    pairs = dict(word.split("=", 1) for word in words[1:] if "=" in word)
    state.aliases.update(pairs or {"".join(words[1:2]): " ".join(words[2:])})


def shift(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    state.arguments = state.arguments[int(words[1]) if words[1:] and words[1].isdigit() else 1 :]


def nothing(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    pass


# -- programs that start others


def starter(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    skip, how, valued = STARTERS[words[0]]
    if words[0] == "command" and has_flag(words[1:2], "-v", "-V"):
        return "".join(words[2:3]) + "\n"
    rest = words[1:]
    if how == "run":
        rest = rest[rest.index("run") + 1 :] if "run" in rest[:3] else []
    rest = after_options(rest, valued, skip)
    if how == "@":
        return guard.script(" ".join(rest), state.elsewhere(), stdin)
    while rest and words[0] in ("sudo", "doas", "env") and re.match(r"[A-Za-z_]\w*=", rest[0]):
        state, pair = state.copy(), rest.pop(0).partition("=")
        state.variables[pair[0]] = pair[2]
    rest = rest[1:2] if rest[:1] == ["-c"] else rest  # flock FILE -c TEXT
    if len(rest) == 1 and " " in rest[0]:  # watch 'ls; rm x', env -S 'rm x'
        return guard.script(rest[0], state.copy(), stdin)
    return guard.run(rest, state, stdin)


def shell(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """sh -c TEXT, sh FILE, sh < TEXT."""
    rest, inner = words[1:], state.copy()
    while rest and rest[0].startswith(("-", "+")):
        word = rest.pop(0)
        if word in ("-O", "+O", "-o", "+o", "--rcfile", "--init-file"):  # bash -O extglob -c TEXT
            rest = rest[1:]
        if re.fullmatch(r"-[a-zA-Z]*c", word) or word in ("--command", "--commands", "--init-command", "-C"):
            inner.arguments, inner.variables["0"] = rest[2:], "".join(rest[1:2]) or "sh"
            return guard.script("".join(rest[:1]), inner, stdin)
        if re.fullmatch(r"-[a-z]*n[a-z]*", word) and words[0] not in ("fish", "nu"):
            return ""  # only checks the syntax
        if re.fullmatch(r"-[a-z]*s", word):
            inner.arguments = [one for one in rest if one != "--"]
            return guard.script(stdin, inner)
    if rest and rest[0] != "-":
        return guard.file(rest[0], rest[1:], inner, stdin, "sh")
    return guard.script(stdin, inner)


def powershell(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    rest = words[1:]
    while rest and rest[0].startswith(("-", "/")):
        word = rest.pop(0).lower()
        if word in ("-c", "-command", "/c", "/k", "/s"):
            break
        if word in ("-e", "-ec", "-enc", "-encodedcommand") and rest:
            return guard.script(decoded(rest[0], "utf-16-le"), state.copy(), stdin)
        if word in ("-f", "-file") and rest:
            return guard.file(rest[0].replace("\\", "/"), rest[1:], state.copy(), stdin, "sh")
        rest = rest[1:] if word in ("-executionpolicy", "-ep", "-ex", "-version", "-windowstyle", "-w") else rest
    text = re.sub(r"^\s*&\s*", "", " ".join(rest) or stdin).replace("\\", "/")
    text = re.sub(r"\ue001(\w+)\ue002", r"$\1", text)  # "$_" in double quotes: a shell would have taken it away
    text = re.sub(r"(?i)\bforeach\s*\(\s*\$(\w+) in (.*?)\)\s*\{", r"for \1 in \2 {", text)
    text = re.sub(r"@\(([^()]*)\)", r"\1", re.sub(r"(?<=['\"]),\s*(?=['\"])", " ", text))  # @('a', 'b')
    text = re.sub(r"\$(\w+)\s*=\s*((?:(?:'[^']*'|\"[^\"]*\") )+(?:'[^']*'|\"[^\"]*\"))", r"\1=(\2)", text)
    text = re.sub(r"\$(\w+)\s*=\s*(?!=)", r"\1=", text)  # $d = "runs"
    if "]::" in text:
        from rgt.guard import program_code

        program_code.foreign(guard, text, state)
    return guard.script(text, state.copy(), stdin)


def ssh(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    valued = WORDS["ssh options"]
    rest, there = after_options(words[1:], valued), state.elsewhere()
    text = " ".join(after_options(rest[1:], valued))
    guard.script((text.replace("\\", "/") if LIKE.windows_line.search(text) else text) or stdin, there, stdin)
    return marker(" ".join(words))


def xargs(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    command = after_options(words[1:], WORDS["xargs options"])
    own, command = words[: len(words) - len(command)], command or ["echo"]
    listed, replace = option(own, "-a", "--arg-file"), option(own, "-I", "--replace", "-i", "-J")
    stdin = guard.content(listed, state) if listed else stdin
    if replace is not None:
        values = [v.strip() for v in re.split(r"[\n\0]", stdin) if v.strip()] or [marker("stdin")]
        for value in values[:VALUES]:
            guard.run([word.replace(replace or "{}", value) for word in command], state, "")
        return marker(" ".join(words))
    values = stdin.split("\0") if "\0" in stdin else shlex_words(stdin) if "\ue001" not in stdin else stdin.split()
    return guard.run(command + ([v for v in values if v] or [marker("stdin")]), state, "")


def parallel(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    if has_flag(words[1:], "--dry-run", "--dryrun"):
        return ""
    rest = after_options(words[1:], WORDS["parallel options"])
    at = next((i for i, word in enumerate(rest) if word.startswith(":::")), len(rest))
    listed = option(words[1:], "-a", "--arg-file") or ("".join(rest[at + 1 : at + 2]) if "::::" in rest else "")
    stdin = guard.content(listed, state) if listed else stdin
    command, values = " ".join(rest[:at]), (rest[at + 1 :] if not listed else []) or stdin.split("\n")
    for value in [v for v in values if v][:VALUES] or [marker("stdin")]:
        text = re.sub(r"\{[./#%0-9]*\}", lambda _, v=value: v, command)  # type: ignore[misc]
        guard.script(text if text != command else f"{command} {value}", state.copy())
    return marker(" ".join(words))


def batch_job(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """sbatch, qsub, bsub: a script, a command, or the text of --wrap; at, batch: stdin is a script."""
    text = option(words[1:], "--wrap")
    rest = operands(words[1:], "-J -o -e -p -n -N -c -t -A -w -q -l -P -M -R -W -b -f")
    if text or not rest or words[0] in ("at", "batch"):
        guard.script(text or stdin, state.copy())
    else:
        guard.script(" ".join(words[words.index(rest[0]) :]), state.copy())
    return marker(" ".join(words))


def crontab(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    named = operands(words[1:], "-u")
    for line in (guard.content(named[0], state) if named and named[0] != "-" else stdin).split("\n"):
        match = re.match(r"\s*(?:@\w+|(?:\S+\s+){4}\S+)\s+(\S.*)", line)
        if match and not line.lstrip().startswith("#") and "=" not in line.split(None, 1)[0]:
            guard.script(match[1], state.copy())


def terminal(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """tmux, screen: a command given to a new session, or typed into one."""
    rest = [word for word in words[1:] if word not in (";", "\\;")]
    kills = [word for word in rest if re.fullmatch(r"kill-(server|session|window|pane)|killp|killw|kill-ses", word)]
    kills += [word for word in rest if word in ("quit", "kill") and has_flag(rest, "-X")]
    kills += [word for word in rest if re.fullmatch(r"respawn-?(?:pane|window|p|w)", word) and has_flag(rest, "-k")]
    sends = next((word for word in rest if word in ("send-keys", "send", "stuff", "write-chars", "run-shell")), "")
    named = {one.split(":")[0].lstrip("=") for one in values_of(rest, "-s", "-t", "-S", "--session")}
    command = operands(rest, "-S -s -n -t -c -x -y -e -F -l -p -L -Logfile -h -T -r")
    if kills:
        viewers = {one for one in named if LIKE.viewer_session.fullmatch(one)}
        if not named or "kill-server" in kills or not named <= state.made.keys() | viewers:  # or of the line's making
            guard.act("kill", f"{words[0]} {kills[0]} ends what runs there", words)
    elif sends:
        keys = operands(rest[rest.index(sends) + 1 :], "-t -N")
        text = decode_ansi("\n".join(key for key in keys if not re.fullmatch(r"Enter|C-m|C-\w|C-\\", key)))
        if set(keys) & {"C-c", "C-\\", "C-d", "^C"} or "\x03" in text or "^C" in text:
            guard.act("kill", "interrupts what runs in that session", keys)
        guard.script(text.replace("^M", "\n").replace("\r", "\n"), state.copy())
    elif words[0] == "screen" or WORDS["new pane"] & set(rest):
        state.made.update({one: {} for one in named if not has_flag(rest, "-A", "-r")})
        command = command[words[0] != "screen" :]
        started = rest[rest.index(command[0]) :] if command else []
        if len(started) == 1:
            guard.script(started[0], state.copy())
        else:
            guard.run(started, state.copy(), "")
    return marker(" ".join(words))  # of what runs there


def make(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    from rgt.guard import program_code

    lists = has_flag(words[1:], *WORDS["make lists"], *([] if words[0].endswith("make") else ["-l"]))
    if not lists and not has_flag(words[1:], "-n"):
        program_code.recipe(guard, words, state, stdin)
    return marker(words[0])


def interpreter(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    from rgt.guard import outputs, program_code

    program_code.interpreter(guard, words, state, stdin)
    return (outputs.columns if words[0].endswith("awk") else outputs.derived)(guard, words, state, stdin)


def sftp(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    text = option(words[1:], "-e", "-c") or guard.content(option(words[1:], "-b", "-f") or "-", state)
    text = stdin if text.startswith("\ue001") else text
    guard.script(text, state.elsewhere())


def editor(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """ed, vim, ex: what they are told may call delete(), and may save the file that they edit."""
    told = "\n".join([*(word.lstrip("+") for word in words[1:]), stdin])
    if "(" in told:
        from rgt.guard import program_code

        program_code.foreign(guard, told, state)
    if LIKE.editor_saves.search(told):
        paths = operands(words[1:], "-c -S -u --cmd --eval -f -l")
        guard.edit([path for path in paths if path[0] != "+"], state, words)


# -- programs that are not known, and clients: what they may start


def dispatched(guard: Walker, words: list[str], state: State) -> bool:
    """gh workflow run FILE -f action=destroy: pipelines by their names and inputs."""
    named = {part for word in words[:5] for part in parts(word)}
    if words[1:3] in (["run", "cancel"], ["ci", "cancel"]) and LIKE.pipeline_trains.search(guard.line):
        guard.act("end", "cancels a run that trains", words)
        return True
    looks = "list" in words or not ENDS.isdisjoint(words[1:4])
    if named.isdisjoint(WORDS["pipelines"]) or named.isdisjoint(WORDS["dispatches"]) or looks:
        return False
    pairs = values_of(words, *WORDS["input options"])
    told = [parts(re.split(r"[=:]", pair)[-1]) for pair in pairs]  # of an input the whole value is the verb
    plain = [word for word in words[2:] if not LIKE.option_or_pair.match(word) and word not in LOOKS]
    names = [parts(os.path.splitext(word)[0]) for word in plain]
    ends = any(len(one) == 1 and one[0] in ENDS for one in told)
    ends = ends or any(not WORDS["strong"].isdisjoint(one) and not LIGHT.intersection(one) for one in names)
    if ends or any(not ENDS.isdisjoint(one) and about(one, False) for one in names):
        guard.act("end", f"starts `{' '.join(words[1:])}`, whose name or input says that it ends something", words)
    return True


def option_texts(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """tar --to-command TEXT, aws ssm --parameters '{"commands": ["TEXT"]}'"""
    for text in values_of(words[1:], *WORDS["text options"]):
        if (" " in text or guard.knows(text)) and not re.match(r"[\w-]+=\{", text):  # jsonpath={.items[*]}
            for one in ("commands" in text and re.findall(r'"([^"]*)"', text)) or [text]:
                guard.script(re.sub(r"^(?:exec|ProxyCommand|cmd|commands)=", "", one), state.copy(), stdin)


def manifests(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """kubectl apply -f FILE or FOLDER, sky launch FILE: what these files have started."""
    named = [word for word in words[2:] if word.endswith((".yaml", ".yml", ".json"))]
    for path in values_of(words, "-f", "--filename", "--file", "--overrides", "-k", "--kustomize"):
        rows = guard.precious.entries(state.path(path).rstrip("/")) if os.path.isdir(state.path(path)) else []
        named += [f"{path}/{name}" for name, _ in rows if name.endswith((".yaml", ".yml", ".json"))] or [path]
    for path in dict.fromkeys(named) if WORDS["applies"].intersection(words[1:4]) else []:
        from rgt.guard import program_code

        text = stdin if path == "-" else path if path[:1] == "{" else guard.content(path, state)
        program_code.manifest(guard, text if not text.startswith("\ue001") else "", state.elsewhere())


def carried(guard: Walker, words: list[str], state: State, stdin: str, client: bool) -> None:
    """uvx vastai destroy; aws-vault exec p -- aws ec2; docker exec c rm; gcloud compute ssh --command TEXT."""
    there, common, executes = state, WORDS["common"], WORDS["executes"]
    if client:
        there = state.elsewhere()
        there.mounts = mounts(words, state)
        there.cwd = option(words, "-w", "--workdir") or "/workspace"
        if words[0] in WORDS["in our folder"]:
            there = state.copy()
        new = words[0] in ("docker", "podman", "nerdctl", "kubectl", "oc") and "run" in words[1:3]
        there.fresh = new and words[1] != "compose" and not any(_SHARES.fullmatch(word) for word in words[1:])
        if "compose" in words[0] or words[1:2] == ["compose"]:
            from rgt.guard import program_code

            program_code.compose(guard, words, state)
        if "run" in words[1:] and (entry := option(words, "--entrypoint")):  # what follows the image are its words
            rest = after_options(words[words.index("run") + 1 :], WORDS["container options"], skip=1)
            guard.run([*shlex_words(entry), *rest], there.copy(), stdin)
        manifests(guard, words, state, stdin)
    option_texts(guard, words, there, stdin)
    before, first, started = len(guard.acts), not client, False
    for i, word in enumerate(words[1:40], 1):
        name = re.split(r"@|==", os.path.basename(word))[0] or os.path.basename(word.strip("@"))
        name = name if guard.knows(name) else name.removesuffix("-cli")  # docker run amazon/aws-cli
        follows, plain = words[i - 1] in executes, words[i - 1][:1] != "-" or words[i - 1] == "--"
        started = started or word in executes
        starts = (first and word[:1] != "-" and words[i - 1] != "--from") or follows or (client and started and plain)
        first = first and (word[:1] == "-" or words[i - 1] in ("--from", "--with", "--package", "-p", "--python"))
        if " " in word and started and plain:
            guard.script(word, there.copy(), stdin)
        vague = name in common or name in executes
        starts = starts or (not client and i + 1 < len(words) and name in WORDS["interpreters"])  # mpirun -np 4 python
        if word.endswith(".py") and words[i - 1] in WORDS["launches"]:  # modal run FILE, coverage run FILE
            guard.run(["python", *words[i:]], state.copy(), stdin)
        if name in STARTS and starts and name[0].isalpha() and not vague:
            guard.run([name, *words[i + 1 :]], there.copy(), stdin)
            return
        wrapped = started or "." in words[0] or not (client or words[0] in WORDS["tools"])
        if wrapped and guard.knows(name) and (not vague or (starts and plain)):
            guard.run([name, *words[i + 1 :]], there.copy(), stdin)
        if len(guard.acts) > before:
            return
