"""What ordinary programs do with their words: builtins, programs that start others, programs whose output is known.

Each takes (guard, words, state, stdin) and gives what the command prints: text, a marker when it cannot be known.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from rgt.guard.argument_words import after_options, has_flag, operands, option, shlex_words
from rgt.guard.lazy_regex import Regex
from rgt.guard.precious_paths import marker
from rgt.guard.shell_syntax import decode_ansi
from rgt.guard.shell_walk import VALUES, State, Walker, decoded

Program = Callable[[Walker, list[str], State, str], str]

# programs that start what follows: how many words come before the command, then options that take a value
_PLAIN = (
    "nohup setsid unbuffer builtin noglob nocorrect busybox toybox chronic firejail unshare spawn command and or not"
)
_STARTERS = """\
sudo 0 -u -g -p -C -h -r -t -T -R -D -U --user --group --chdir --host --prompt
doas 0 -u -C
timeout 1 -s -k --signal --kill-after
gtimeout 1 -s -k --signal --kill-after
nice 0 -n --adjustment
ionice 0 -c -n -p --class --classdata
taskset 1
chroot 1 --userspec --groups
numactl 0 -C -N -m -i -p
time 0 -f -o --format --output
stdbuf 0 -i -o -e --input --output --error
exec 0 -a
caffeinate 0 -t -w
systemd-run 0 -u -p -E -t --unit --property --setenv --uid --gid --on-calendar
strace 0 -e -o -p -s -u
proxychains4 0 -f
nsenter 0 -t -S -G --target
srun 0 -n -N -c -p -t -J -A -o -e -w -x -G -D -q -C --gres --mem --time --partition --jobid --account
pdsh 0 -w -x -g -l -u -R
clush 0 -w -x -g -l
pssh 0 -h -H -l -p -t -o -e
parallel-ssh 0 -h -H -l -p -t -o -e
retry 0 -t -d --times --delay
watch 0 -n -q --interval
flock 1 -w -E --timeout --conflict-exit-code"""
STARTERS: dict[str, tuple[int, set[str]]] = {name: (0, set()) for name in _PLAIN.split()}
for _line in _STARTERS.split("\n"):
    _name, _skip, *_valued = _line.split()
    STARTERS[_name] = (int(_skip), set(_valued))
RUNNERS = {"uv", "poetry", "pipenv", "pdm", "hatch", "conda", "mamba", "micromamba", "rye", "pixi"}  # NAME run CMD
SHELLS = set("sh bash zsh dash ksh ash mksh fish rbash csh tcsh yash nu xonsh elvish".split())
POWERSHELLS = {"pwsh", "powershell", "cmd"}
# programs that run the value of these options; `*`: every word and what they read may hold a command (:!rm, .shell rm)
_TEXT_OPTIONS = """\
su runuser sg script expect vagrant: -c --command
tar: --to-command --checkpoint-action --use-compress-program -I --info-script -F --rsh-command
man: -P --pager
split: --filter
rsync: -e --rsh --rsync-path
scp sftp: -S -o
xterm konsole kitty alacritty foot: -e
vim vi nvim ex view gvim emacs emacsclient ed less more sqlite3 psql mysql gdb lldb ftp hyperfine: *"""
TEXT_OPTIONS = {
    name: options.split()
    for line in _TEXT_OPTIONS.split("\n")
    for names, _, options in [line.partition(":")]
    for name in names.split()
}
_ESCAPE = Regex(r"(?:^|[\n|;])\s*(?:[:.\\]*(?:!+|(?:shell|system|sh)\s)|exec=)\s*([^\n]+)")
# programs whose words are data, whatever they say
DATA = set(
    """man tldr info apropos whatis whereis say logger wall write notify-send mail mutt gh glab claude codex gemini svn
    aider llm ollama code diff cmp cowsay figlet zenity dialog ag ack jq yq hash help compgen complete history last
    lastb journalctl dpkg rpm apt-cache touch mkdir chmod chown stat file wc du nano open xdg-open strings""".split()
)
_COMMAND_FOLLOWS = {"--", "run", "exec", "x", "dlx", "shell", "enter"}
_COMMON_WORDS = set(
    """install move rename make just init read set type k http https kill pkill killall skill reboot halt shutdown
    poweroff ts mc oss prime lightning flux det tar zip node bun git""".split()
)
_SLOW = Regex(r"[*+}][^()]*\)[*+{]")  # (a+)+ takes for ever; without it the lines are kept as they are
_SSH = set("-B -b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w".split())
_XARGS = set("-I -a -E -d -L -n -P -s --replace --arg-file --delimiter --max-args --max-procs --max-lines".split())
_PARALLEL = set("-j -a -S -I --jobs --arg-file --sshlogin --delay --timeout --joblog --colsep -N -n -L -P".split())


# -- builtins


def cd(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    targets = operands(words[1:])
    if targets[:1] == ["-"]:
        old = state.variables.get("OLDPWD", state.cwd)
        target = old if isinstance(old, str) else state.cwd
    elif words[0] == "popd":
        target = str(state.variables.get("OLDPWD", state.cwd))
    else:
        target = next((one for one in targets if one != "/d"), state.home)  # cmd: cd /d C:/proj
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
    """bash: the arguments; fish: `set name value`."""
    rest = [word for word in words[1:] if not re.fullmatch(r"[-+][a-zA-Z]*", word)]
    if "--" in words:
        state.arguments = words[words.index("--") + 1 :]
    elif rest and "=" in rest[0]:  # csh
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
    for word in words[1:]:
        name, equals, value = word.partition("=")
        if equals:
            state.aliases[name] = value
    if len(words) == 3 and "=" not in words[1]:  # fish
        state.aliases[words[1]] = words[2]
    return ""


def shift(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    count = int(words[1]) if words[1:] and words[1].isdigit() else 1
    state.arguments = state.arguments[count:]
    return ""


def nothing(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    return ""


# -- programs that start others


def env(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    rest, inner = words[1:], state.copy()
    while rest and (rest[0].startswith("-") or re.match(r"[A-Za-z_]\w*=", rest[0])):
        word = rest.pop(0)
        if word in ("-S", "--split-string") and rest:
            rest = shlex_words(rest[0]) + rest[1:]
        elif word.startswith("--split-string="):
            rest = shlex_words(word.partition("=")[2]) + rest
        elif word in ("-C", "--chdir") and rest:
            inner.cwd = inner.path(rest.pop(0))
        elif word in ("-u", "--unset") and rest:
            rest.pop(0)
        elif "=" in word and not word.startswith("-"):
            name, _, value = word.partition("=")
            inner.variables[name] = value
    return guard.run(rest, inner, stdin) if rest else marker("env")


def starter(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    skip, valued = STARTERS[words[0]]
    if words[0] == "command" and has_flag(words[1:2], "-v", "-V"):
        return words[2] + "\n" if len(words) > 2 else ""
    rest = after_options(words[1:], valued, skip)
    if words[0] in ("sudo", "doas"):
        while rest and re.match(r"[A-Za-z_]\w*=", rest[0]):
            rest = rest[1:]
    if words[0] in ("pdsh", "clush", "pssh", "parallel-ssh", "chroot"):
        return guard.script(" ".join(rest), state.elsewhere(), stdin)
    if rest[:1] in (["-c"], ["--command"]):  # flock FILE -c TEXT
        return guard.script(" ".join(rest[1:2]), state.copy(), stdin)
    if words[0] == "watch":
        return guard.script(" ".join(rest), state.copy(), stdin)
    return guard.run(rest, state, stdin) if rest else ""


def shell(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """sh -c TEXT, sh FILE, sh < TEXT."""
    rest, inner, text = words[1:], state.copy(), None
    while rest and (rest[0].startswith(("-", "+"))):
        word = rest.pop(0)
        if re.fullmatch(r"-[a-zA-Z]*c", word) or word == "--command":
            text = rest.pop(0) if rest else ""
            break
        if word in ("-o", "-O", "+O", "+o", "--rcfile", "--init-file") and rest:
            rest.pop(0)
        if re.fullmatch(r"-[a-z]*n[a-z]*", word) and words[0] != "fish":
            return ""  # only checks the syntax
        if word == "--" or word == "-s" or (re.fullmatch(r"-[a-z]*s", word) and word != "-s"):
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
    return guard.script(text.replace("\\", "/"), state.copy(), stdin)


def ssh(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    rest, there = after_options(words[1:], _SSH), state.elsewhere()
    command = [word for i, word in enumerate(rest[1:]) if i or word != "--"]
    if not command:
        return guard.script(stdin, there)
    if command[0].removesuffix(".exe") in POWERSHELLS:
        return guard.run(command, there, stdin)
    text = " ".join(command)
    if re.search(r"\b(?:Remove|Get|Stop|Clear|Restart|Move|Set)-[A-Z]|\b(?:rd|rmdir|del) /|\b[A-Z]:\\", text):
        text = text.replace("\\", "/")  # PowerShell or cmd behind ssh
    guard.script(text, there, stdin)
    return marker(" ".join(words))


def inside(guard: Walker, words: list[str], state: State, stdin: str, mounts: dict[str, str] | None = None) -> str:
    """A command that runs in a container or on a cluster: its paths are not ours, but for what is mounted."""
    there = state.elsewhere()
    there.mounts = mounts or {}
    there.cwd = "/workspace"
    guard.run(words, there, stdin)
    return marker(" ".join(words))


def xargs(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    command = after_options([w for w in words[1:] if not re.fullmatch(r"-[InPLds].+", w)], _XARGS) or ["echo"]
    listed = option(words, "-a", "--arg-file")
    stdin = guard.content(listed, state) if listed else stdin
    replace = option(words, "-I", "--replace", "-i")
    if replace is not None or has_flag(words[1:], "-i"):
        values = [v for v in re.split(r"[\n\0]", stdin) if v.strip()] or [marker("stdin")]
        out = ""
        for value in values[:VALUES]:
            out += guard.run([word.replace(replace or "{}", value.strip()) for word in command], state, "")
        return out
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


def texts(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """What the options of `TEXT_OPTIONS` would run."""
    names = TEXT_OPTIONS[words[0]]
    if names != ["*"]:
        given = [option(words[i : i + 2], name) for i in range(1, len(words)) for name in names]
        for text in given:
            if text and " " in text:
                guard.script(re.sub(r"^(?:exec|ProxyCommand)=", "", text), state.copy(), stdin)
        return
    from rgt.guard import python_acts

    for text in [*(word.lstrip("+") for word in words[1:]), stdin]:
        for match in _ESCAPE.finditer(text):
            guard.script(match[1], state.copy())
        if "(" in text:
            python_acts.foreign(guard, text, state)
        elif words[0] == "hyperfine":
            guard.script(text, state.copy())


def carried(guard: Walker, words: list[str], state: State) -> None:
    """A program that is not known may start the rest of its words: uvx vastai destroy, aws-vault exec p -- aws ec2."""
    if words[0] in DATA or re.match(r"(?!Start|Invoke)[A-Z][a-z]+-[A-Z]", words[0]):
        return
    before, first = len(guard.acts), True
    for i, word in enumerate(words[1:40], 1):
        name = re.split(r"@|==", os.path.basename(word))[0]
        starts = (first and word[:1] != "-") or words[i - 1] in _COMMAND_FOLLOWS
        first = first and word[:1] == "-"
        common = name in _COMMON_WORDS or name in _COMMAND_FOLLOWS
        if starts and name in PROGRAMS and name[0].isalpha() and not common:
            guard.run([name, *words[i + 1 :]], state.copy(), "")
            return
        if guard.knows(name) and (not common or (starts and (words[i - 1] == "--" or words[i - 1][:1] != "-"))):
            guard.run([name, *words[i + 1 :]], state.copy(), "")
        if len(guard.acts) > before:
            return
    text = option(words[1:], "-c", "--command", "--cmd", "--exec", "-e", "--execute")
    if text and " " in text:
        guard.script(text, state.copy())


def remote_text(*names: str) -> Program:
    """Likewise on another machine: gcloud compute ssh --command TEXT, ansible -a TEXT."""

    def program(guard: Walker, words: list[str], state: State, stdin: str) -> str:
        text = option(words[1:], *names)
        for one in re.findall(r'"([^"]*)"', text or "") or [text or ""]:  # aws: {"commands": ["..."]}
            guard.script(re.sub(r"^commands=|[\[\]]", "", one), state.elsewhere(), stdin)
        return marker(" ".join(words))

    return program


def runner(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    if "run" not in words[1:4]:
        return marker(words[0])
    rest = words[words.index("run") + 1 :]
    rest = after_options(rest, set("-n -p --name --prefix --with --python --env --project --extra --group".split()))
    return guard.run(rest, state, stdin) if rest else ""


def batch_job(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """sbatch, qsub: a script, or the text of --wrap."""
    text = option(words[1:], "--wrap")
    if text:
        return guard.script(text, state.copy())
    rest = operands(words[1:], "-J -o -e -p -n -N -c -t -A -w -q -l -V -P")
    return guard.file(rest[0], rest[1:], state.copy(), stdin, "sh") if rest else later(guard, words, state, stdin)


def later(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """at, batch: stdin is a script."""
    return guard.script(stdin, state.copy())


def crontab(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    for line in stdin.split("\n"):
        match = re.match(r"\s*(?:@\w+|(?:\S+\s+){4}\S+)\s+(\S.*)", line)
        if match and not line.lstrip().startswith("#") and "=" not in line.split(None, 1)[0]:
            guard.script(match[1], state.copy())
    return ""


def tmux(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """A command given to a new session, or typed into one."""
    rest = [word for word in words[1:] if word not in (";", "\\;")]
    verbs = [word for word in rest if re.fullmatch(r"[a-z]+(-[a-z]+)*", word)]
    kills = ["respawn-pane -k"] if "respawn-pane" in verbs and has_flag(rest, "-k") else []
    kills += [verb for verb in verbs if re.fullmatch(r"kill-(server|session|window|pane)|killp|killw", verb)]
    if kills:
        guard.act("kill", f"tmux {kills[0]} ends what runs there", words)
    if "send-keys" in rest or "send" in rest:
        typed = operands(rest[rest.index("send-keys" if "send-keys" in rest else "send") + 1 :], "-t -N")
        if any(word in ("C-c", "C-\\", "C-d", "^C") for word in typed):
            guard.act("kill", "interrupts what runs in that tmux pane", words)
        guard.script("\n".join(word for word in typed if not re.fullmatch(r"Enter|C-m|C-\w", word)), state.copy())
    elif set(verbs) & {"new", "new-session", "neww", "new-window", "split-window", "splitw", "respawn-pane"}:
        typed = operands(rest[1:], "-s -n -t -c -x -y -e -F -l -p")
        guard.script(" ".join(rest[rest.index(typed[0]) :] if typed else []), state.copy())
    return ""


def screen(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    if has_flag(words[1:], "-X"):
        told = operands(words[1:], "-S -p -r -d")
        if told[:1] and told[0] in ("quit", "kill"):
            guard.act("kill", "ends what runs in that screen session", words)
        elif told[:1] == ["stuff"]:
            typed = decode_ansi(" ".join(told[1:]))
            if "\x03" in typed or "^C" in typed:
                guard.act("kill", "interrupts what runs in that screen session", words)
            guard.script(typed.replace("^M", "\n"), state.copy())
        return ""
    rest = operands(words[1:], "-S -t -c -L -Logfile -h -s -T -p -r -x")
    return guard.run(words[words.index(rest[0]) :], state, "") if rest else ""


# -- programs whose output is known


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
            state.files[state.path(path)] = stdin
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
    if match and "\ue001" not in stdin and not _SLOW.search(match[2]):
        try:
            return "".join(re.sub(match[2], match[3].replace("&", r"\\g<0>"), line) for line in stdin.splitlines(True))
        except re.error:
            pass
    return marker(stdin[:200] + " " + " ".join(words))


def derived(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """awk, cut, jq, ps, pgrep: output that depends on what came in or on the machine."""
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


PROGRAMS: dict[str, Program] = {
    **dict.fromkeys(("find", "gfind", "fd", "fdfind"), find),
    **dict.fromkeys(("%", "ForEach-Object", "foreach", "each", "par-each"), each),
    **dict.fromkeys(("cd", "pushd", "popd", "chdir", "Set-Location", "sl"), cd),
    **dict.fromkeys(("export", "declare", "local", "readonly", "typeset", "setenv"), declare),
    **dict.fromkeys(("eval", "Invoke-Expression", "iex"), evaluate),
    **dict.fromkeys(("source", "."), source),
    **dict.fromkeys((":", "true", "false", "test", "[", "exit", "return", "wait", "sleep", "unset"), nothing),
    **dict.fromkeys(STARTERS, starter),
    **dict.fromkeys(RUNNERS, runner),
    **dict.fromkeys(SHELLS, shell),
    **dict.fromkeys(POWERSHELLS, powershell),
    **dict.fromkeys(("ssh", "autossh", "mosh"), ssh),
    **dict.fromkeys(("ansible", "ansible-console"), remote_text("-a", "--args")),
    **dict.fromkeys(
        ("head", "tail", "sort", "uniq", "tee", "sponge", "column", "nl", "tac", "pv", "less", "more"), same_lines
    ),
    **dict.fromkeys(("grep", "egrep", "fgrep", "rg"), grep),
    **dict.fromkeys(("mapfile", "readarray"), mapfile),
    **dict.fromkeys(("at", "batch"), later),
    **dict.fromkeys(("sbatch", "qsub"), batch_job),
    **dict.fromkeys(("ls", "gci", "dir", "Get-ChildItem", "exa", "eza"), ls),
    **dict.fromkeys(("pwd", "mktemp", "seq", "which", "basename", "dirname", "realpath", "readlink", "type"), one_word),
    **dict.fromkeys(
        ("awk", "gawk", "mawk", "nawk", "cut", "jq", "ps", "pgrep", "pidof", "nvidia-smi", "lsof"), derived
    ),
    **dict.fromkeys(("fuser", "squeue", "docker-ps", "yes", "date", "comm", "paste"), derived),
    **dict.fromkeys(("cat", "zcat", "bat", "Get-Content", "gc"), cat),
    "set": set_words,
    "read": read,
    "trap": trap,
    "alias": alias,
    "abbr": alias,
    "shift": shift,
    "env": env,
    "xargs": xargs,
    "parallel": parallel,
    "crontab": crontab,
    "tmux": tmux,
    "screen": screen,
    "echo": echo,
    "printf": printf,
    "base64": base64_text,
    "openssl": base64_text,
    "xxd": xxd,
    "tr": tr,
    "sed": sed,
    "gsed": sed,
    "rev": rev,
}
