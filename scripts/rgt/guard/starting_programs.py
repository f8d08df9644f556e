"""What builtins of shells do, and programs that start others: here, on another machine, in a container, later.

Each takes (guard, words, state, stdin) and gives what the command prints: text, a marker when it cannot be known.
"""

from __future__ import annotations

import os

from rgt.guard.argument_words import after_options, has_flag, operands, option, shlex_words, values_of
from rgt.guard.lazy_regex import Regex, re
from rgt.guard.precious_paths import marker
from rgt.guard.program_words import STARTER_ROWS, WORDS
from rgt.guard.shell_syntax import decode_ansi
from rgt.guard.shell_walk import VALUES, State, Walker, decoded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Program = Callable[[Walker, list[str], State, str], str]

# programs that start what follows: how many words come before the command, then options that take a value;
# @ on another machine, " the words are joined and read by a shell there
STARTERS: dict[str, tuple[int, str, set[str]]] = {}
for _row in STARTER_ROWS:
    _cells = _row.split()
    _at = next(i for i, cell in enumerate(_cells) if cell[0] in "012")
    STARTERS.update(dict.fromkeys(_cells[:_at], (int(_cells[_at][0]), _cells[_at][1:], set(_cells[_at + 1 :]))))
SHELLS = WORDS["shells"]
# editors, pagers, debuggers: any word and what they read may hold a command (:!rm, .shell rm)
ESCAPING = WORDS["escaping"]
_ESCAPE = Regex(r"(?:^|[\n|;])\s*(?:[:.\\]*(?:!+|(?:shell|system|sh)\s)|exec=)\s*([^\n]+)")
# options whose value is a command
_TEXT = WORDS["text options"]
# programs whose words are data, whatever they say
DATA = WORDS["data"]
# tools of a developer: what they remove is made again from a registry or a repository
TOOLS = WORDS["tools"]
_EXECUTES = {"--", "run", "exec", "x", "dlx", "shell", "enter", "ssh", "execute", "sh", "send-command", "invoke", "rsh"}
_SALT = {"file.remove": ["rm", "-rf"], "system.reboot": ["reboot"], "service.stop": ["systemctl", "stop"]}
_SALT |= {
    "system.shutdown": ["shutdown"],
    "system.poweroff": ["poweroff"],
    "system.halt": ["halt"],
    "ps.pkill": ["pkill"],
}
_COMMON = WORDS["common"]
_SSH = WORDS["ssh options"]
_XARGS = WORDS["xargs options"]
_PARALLEL = WORDS["parallel options"]


# -- builtins


def cd(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    targets = [one for one in operands(words[1:]) if one != "/d"]  # cmd: cd /d C:/proj
    old = str(state.variables.get("OLDPWD", state.cwd))
    target = old if targets[:1] == ["-"] or words[0] == "popd" else targets[0] if targets else state.home
    state.variables["OLDPWD"] = state.cwd
    state.cwd = state.path(target).rstrip("/") or "/"
    return ""


def declare(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    for word in words[1:]:
        name, equals, value = word.partition("=")
        if equals:
            state.variables[name] = shlex_words(value[1:-1]) if value[:1] == "(" else value
    return ""


def set_words(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """bash: the arguments; fish: `set name value`; csh: `set name=value`."""
    rest = [word for word in words[1:] if not re.fullmatch(r"[-+][a-zA-Z]*", word)]
    if "--" in words:
        state.arguments = words[words.index("--") + 1 :]
    elif rest and "=" in rest[0]:
        return declare(guard, words, state, stdin)
    elif rest:
        state.variables[rest[0]] = rest[1] if len(rest) == 2 else rest[1:]
        state.arguments = rest
    return ""


def read(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    names = operands(words[1:], "-p -d -n -N -t -u -i -a")
    values = stdin.strip("\n").split(None, len(names) - 1) if len(names) > 1 else [stdin.strip("\n")]
    for number, name in enumerate(names):
        state.variables[name] = values[number] if number < len(values) else ""
    return ""


def mapfile(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    name = (operands(words[1:], "-d -n -O -s -u -C -c") or ["MAPFILE"])[0]
    state.variables[name] = stdin.replace("\0", "\n").strip("\n").split("\n")
    return ""


def evaluate(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    return guard.script(" ".join(words[1:]), state, stdin)


def source(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    return guard.file(words[1], words[2:], state, stdin, "sh") if len(words) > 1 else guard.script(stdin, state)


def trap(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    rest = operands(words[1:])
    return guard.script(rest[0], state) if len(rest) > 1 else ""


def alias(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    pairs = [word.split("=", 1) for word in words[1:] if "=" in word]
    pairs += [words[1:]] if len(words) == 3 and not pairs else []  # fish
    state.aliases.update((name, value) for name, value in pairs)
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
        if "run" not in rest[:3]:
            return marker(words[0])
        rest = rest[rest.index("run") + 1 :]
    rest = after_options(rest, valued, skip)
    if words[0].startswith("salt") and rest:  # salt: the function of a module
        rest = [
            *_SALT.get(rest[0], ["true"] * (rest[0][:4] != "cmd.")),
            *(one.removeprefix("cmd=") for one in rest[1:]),
        ]
    if "@" in how:
        return guard.script(" ".join(rest), state.elsewhere(), stdin)
    if rest[:1] in (["-c"], ["--command"]):  # flock FILE -c TEXT
        return guard.script(" ".join(rest[1:2]), state.copy(), stdin)
    if how == '"':
        return guard.script(" ".join(rest), state.copy(), stdin)
    while words[0] in ("sudo", "doas") and rest and re.match(r"[A-Za-z_]\w*=", rest[0]):
        rest = rest[1:]
    return guard.run(rest, state, stdin) if rest else ""


def shell(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """sh -c TEXT, sh FILE, sh < TEXT."""
    rest, inner, text = words[1:], state.copy(), None
    while rest and rest[0].startswith(("-", "+")):
        word = rest.pop(0)
        if re.fullmatch(r"-[a-zA-Z]*c", word) or word == "--command":
            text = rest.pop(0) if rest else ""
            break
        if word in ("-o", "-O", "+O", "+o", "--rcfile", "--init-file") and rest:
            rest.pop(0)
        if re.fullmatch(r"-[a-z]*n[a-z]*", word) and words[0] != "fish":
            return ""  # only checks the syntax
        if word == "--" or re.fullmatch(r"-[a-z]*s", word):
            break
    if text is not None:
        inner.arguments, inner.variables["0"] = rest[1:], (rest or ["sh"])[0]
        return guard.script(text, inner, stdin)
    if rest and rest[0] != "-" and not (words[1:] and words[1] == "-s"):
        return guard.file(rest[0], rest[1:], inner, stdin, "sh")
    inner.arguments = rest[1:] if rest[:1] == ["--"] else rest
    return guard.script(stdin, inner)


def powershell(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    rest = words[1:]
    while rest and rest[0].startswith(("-", "/")):
        word = rest.pop(0).lower()
        if word in ("-c", "-command", "/c", "/k"):
            break
        if word in ("-e", "-ec", "-enc", "-encodedcommand") and rest:
            return guard.script(decoded(rest[0], "utf-16-le"), state.copy(), stdin)
        if word in ("-file", "-f", "-executionpolicy", "-ep", "-version", "-workingdirectory") and rest:
            rest.pop(0)
    text = re.sub(r"^\s*&\s*", "", " ".join(rest) or stdin)
    if "]::" in text:
        from rgt.guard import code_acts

        code_acts.foreign(guard, text, state)
    return guard.script(text.replace("\\", "/"), state.copy(), stdin)


def ssh(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    rest, there = after_options(words[1:], _SSH), state.elsewhere()
    command = [word for i, word in enumerate(after_options(rest[1:], _SSH)) if i or word != "--"]
    if not command:
        return guard.script(stdin, there)
    if command[0].removesuffix(".exe") in ("pwsh", "powershell", "cmd"):
        return guard.run(command, there, stdin)
    text = " ".join(command)
    if re.search(r"\b(?:Remove|Get|Stop|Clear|Restart|Move|Set)-[A-Z]|\b(?:rd|rmdir|del) /|\b[A-Z]:\\", text):
        text = text.replace("\\", "/")  # PowerShell or cmd behind ssh
    guard.script(text, there, stdin)
    return marker(" ".join(words))


def xargs(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    command = after_options([w for w in words[1:] if not re.fullmatch(r"-[InPLds].+", w)], _XARGS) or ["echo"]
    listed = option(words, "-a", "--arg-file")
    stdin = guard.content(listed, state) if listed else stdin
    replace = option(words, "-I", "--replace", "-i")
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
    rest = after_options(words[1:], _PARALLEL)
    marks = [i for i, word in enumerate(rest) if word in (":::", ":::+", "::::")]
    values = rest[marks[0] + 1 :] if marks else [v for v in stdin.split("\n") if v]
    if marks and rest[marks[0]] == "::::":
        values = [line for path in values for line in guard.content(path, state).split("\n") if line]
    command = " ".join(rest[: marks[0]] if marks else rest)
    out = ""
    for value in [v for v in values if v not in (":::", ":::+")][:VALUES] or [marker("stdin")]:
        text = re.sub(r"\{[./#%0-9]*\}", lambda _, v=value: v, command)  # type: ignore[misc]
        out += guard.script(text if text != command else f"{command} {value}".strip(), state.copy())
    return out


def batch_job(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """sbatch, qsub, bsub: a script, or the text of --wrap; at, batch: stdin is a script."""
    text = option(words[1:], "--wrap")
    rest = [] if words[0] in ("at", "batch") else operands(words[1:], "-J -o -e -p -n -N -c -t -A -w -q -l -V -P")
    if text or not rest:
        return guard.script(text or stdin, state.copy())
    return guard.file(rest[0], rest[1:], state.copy(), stdin, "sh")


def crontab(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    named = operands(words[1:], "-u")
    text = guard.content(named[0], state) if named and named[0] != "-" else stdin
    for line in text.split("\n"):
        match = re.match(r"\s*(?:@\w+|(?:\S+\s+){4}\S+)\s+(\S.*)", line)
        if match and not line.lstrip().startswith("#") and "=" not in line.split(None, 1)[0]:
            guard.script(match[1], state.copy())
    return ""


def tmux(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """A command given to a new session, or typed into one; screen likewise."""
    rest = [word for word in words[1:] if word not in (";", "\\;")]
    verbs = [word for word in rest if re.fullmatch(r"[a-z]+(-[a-z]+)*", word)]
    kills = ["respawn-pane -k"] if "respawn-pane" in verbs and has_flag(rest, "-k") else []
    kills += [verb for verb in verbs if re.fullmatch(r"kill-(server|session|window|pane)|killp|killw", verb)]
    if kills:
        guard.act("kill", f"tmux {kills[0]} ends what runs there", words)
    if "send-keys" in rest or "send" in rest:
        typed(guard, operands(rest[rest.index("send-keys" if "send-keys" in rest else "send") + 1 :], "-t -N"), state)
    elif set(verbs) & {"new", "new-session", "neww", "new-window", "split-window", "splitw", "respawn-pane"}:
        command = operands(rest[1:], "-s -n -t -c -x -y -e -F -l -p")
        guard.script(" ".join(rest[rest.index(command[0]) :] if command else []), state.copy())
    return ""


def typed(guard: Walker, keys: list[str], state: State) -> None:
    text = "\n".join(key for key in keys if not re.fullmatch(r"Enter|C-m|C-\w|C-\\", key))
    if set(keys) & {"C-c", "C-\\", "C-d", "^C"} or "\x03" in text or "^C" in text:
        guard.act("kill", "interrupts what runs in that session", keys)
    guard.script(text.replace("^M", "\n"), state.copy())


def screen(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    if has_flag(words[1:], "-X"):
        told = operands(words[1:], "-S -p -r -d")
        if told[:1] and told[0] in ("quit", "kill"):
            guard.act("kill", "ends what runs in that screen session", words)
        elif told[:1] == ["stuff"]:
            typed(guard, [decode_ansi(" ".join(told[1:]))], state)
        return ""
    rest = operands(words[1:], "-S -t -c -L -Logfile -h -s -T -p -r -x")
    return guard.run(words[words.index(rest[0]) :], state, "") if rest else ""


def make(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    from rgt.guard import recipes

    if not has_flag(words[1:], "-n", "--dry-run", "--just-print", "--recon"):
        recipes.walk(guard, words, state, stdin)
    return marker(words[0])


def interpreter(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    from rgt.guard import code_acts

    code_acts.interpreter(guard, words, state, stdin)
    return marker(stdin[:250].strip() + " " + " ".join(words)[:200])


def sftp(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    text = option(words[1:], "-e", "-c") or guard.content(option(words[1:], "-b", "-f") or "-", state)
    text = stdin if text.startswith("\ue001") else text
    text = re.sub(r"\bmirror\b(?=.*--delete)", "rsync --delete", text).replace("rmdir ", "rm -r ")
    guard.script(text.replace("mrm ", "rm "), state.elsewhere())
    return marker(words[0])


def escaping(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """Commands in what an editor, a pager or a database client is told."""
    from rgt.guard import code_acts

    for text in [*(word.lstrip("+") for word in words[1:]), stdin]:
        for match in _ESCAPE.finditer(text):
            guard.script(match[1], state.copy())
        if "(" in text:
            code_acts.foreign(guard, text, state)


# -- programs that are not known, and clients: what they may start


def mounts(words: list[str], state: State) -> dict[str, str]:
    """Folders of the container that are folders of ours: -v HERE:THERE, --mount source=HERE,target=THERE."""
    pairs = [value.split(":")[:2] for value in values_of(words, "-v", "--volume", "-B", "--bind") if ":" in value]
    for value in values_of(words, "--mount"):
        named = dict(part.split("=", 1) for part in value.split(",") if "=" in part)
        pairs.append([named.get("source", named.get("src", "")), named.get("target", named.get("dst", ""))])
    return {
        there.rstrip("/"): state.path(here).rstrip("/")
        for here, there in pairs
        if here.startswith(("/", ".", "~")) and there
    }


def option_texts(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """tar --to-command TEXT, aws ssm --parameters '{"commands": ["TEXT"]}'"""
    for text in values_of(words[1:], *_TEXT):
        if " " in text or guard.knows(text):
            for one in re.findall(r'"([^"]*)"', text) if "commands" in text else [text]:
                guard.script(re.sub(r"^(?:exec|ProxyCommand|cmd|commands)=", "", one), state.copy(), stdin)


def carried(guard: Walker, words: list[str], state: State, stdin: str, elsewhere: bool) -> None:
    """uvx vastai destroy; aws-vault exec p -- aws ec2; docker exec c rm; gcloud compute ssh --command TEXT."""
    there = state
    if elsewhere:
        there = state.elsewhere()
        if "compose" in words[0] or words[1:2] == ["compose"]:
            from rgt.guard import recipes

            words = recipes.compose(guard, words, state)
        there.mounts, there.cwd = mounts(words, state), "/workspace"
        for name in state.made.keys() & set(words):
            there.mounts |= state.made[name]
    option_texts(guard, words, there, stdin)
    entry = option(words, "--entrypoint")
    image = next((i for i, word in enumerate(words) if i and guard.knows(client_image(word))), 0)
    if entry or (image and "run" in words[1:image]):  # docker run amazon/aws-cli ec2 ...
        guard.run([entry or client_image(words[image]), *words[(image or len(words) - 3) + 1 :]], there.copy(), stdin)
    before, first, executes = len(guard.acts), not elsewhere, 0
    for i, word in enumerate(words[1:40], 1):
        name = re.split(r"@|==", os.path.basename(word))[0] or os.path.basename(word.strip("@"))
        follows = words[i - 1] in _EXECUTES
        executes = executes or (i if word in _EXECUTES else 0)
        starts = (first and word[:1] != "-") or follows or (elsewhere and executes and words[i - 1][:1] != "-")
        first = first and word[:1] == "-"
        if " " in word and executes and not words[i - 1].startswith("-"):
            guard.script(word, there.copy(), stdin)
        common = name in _COMMON or name in _EXECUTES
        if guard.starts(name) and starts and name[0].isalpha() and not common:
            guard.run([name, *words[i + 1 :]], there.copy(), stdin)
            return
        wrapped = executes or "." in words[0] or not (elsewhere or words[0] in TOOLS)
        if wrapped and guard.knows(name) and (not common or (starts and (follows or words[i - 1][:1] != "-"))):
            guard.run([name, *words[i + 1 :]], there.copy(), stdin)
        if len(guard.acts) > before:
            return


def client_image(word: str) -> str:
    """amazon/aws-cli:2 -> aws"""
    return re.sub(r"[:@].*|-cli\b.*", "", word.rpartition("/")[2]) if "/" in word else ""


_NAMED: dict[Program, str] = {
    cd: "cd pushd popd chdir Set-Location sl",
    declare: "export declare local readonly typeset setenv",
    evaluate: "eval Invoke-Expression iex",
    source: "source .",
    nothing: ": true false test [ exit return wait sleep unset",
    starter: " ".join(STARTERS),
    shell: " ".join(SHELLS),
    powershell: "pwsh powershell cmd",
    ssh: "ssh autossh mosh",
    mapfile: "mapfile readarray",
    batch_job: "at batch sbatch qsub bsub",
    alias: "alias abbr",
    make: "make gmake just npm yarn pnpm task",
    sftp: "sftp lftp",
    interpreter: "python python2 python3 pypy3 ipython node nodejs deno bun perl ruby php lua julia Rscript osascript"
    " awk gawk mawk nawk tclsh wish expect R groovy elixir raku py torchrun",
    set_words: "set",
    read: "read",
    trap: "trap",
    shift: "shift",
    env: "env",
    xargs: "xargs gxargs",
    parallel: "parallel",
    crontab: "crontab",
    tmux: "tmux",
    screen: "screen",
}
STARTING: dict[str, Program] = {name: program for program, names in _NAMED.items() for name in names.split()}
