"""Programs of every machine that lose files, disks, processes or the machine itself.

Most are rows of programs.json, "destroyers": `names`; `only` and `unless`, expressions over the words; `how` what they
name is lost (lose, device, end, kill, records); `whole`, whether folders go, too; `valued`, options that take a value;
`at`, `to`: the operand and the options that name a file it writes. What needs more than that is a function here.
Clients of platforms are not here: their verbs are judged by `clients`.
"""

from __future__ import annotations

import os

from rgt.guard import outputs
from rgt.guard.argument_words import has_flag, operands, option, shlex_words, values_of
from rgt.guard.clients import LIGHT, THINGS, about, is_dry, parts, request, spoil
from rgt.guard.precious_paths import origin_of
from rgt.guard.quick_start import LIKE, PROGRAMS, WORDS, re
from rgt.guard.shell_walk import STARTS, Walker
from rgt.guard.word_expansion import State

_ERASED = WORDS["erased by option"] | THINGS - {"session"}
_DESTROYS, _TIDIES = WORDS["destroying names"], WORDS["tidying names"] | LIGHT - {"user", "account", "log", "metric"}
_SPARED = _TIDIES - _ERASED
SCRIPT = 1 << 16  # bytes of a file that may be a script
ROWS = {name: row for row in PROGRAMS["destroyers"] for name in row["names"].split()}


def by_row(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    row, told = ROWS[words[0]], " ".join(words[1:])
    told = queries(guard, words, state, stdin) if row["how"] == "records" else told
    targets, say = operands(words[1:], row.get("valued", "")), row.get("say", "removes")
    state.made.update({one: {} for one in targets} if words[0] == "createdb" else {})
    own = words[0].endswith("db") and state.made.keys() >= {*targets}  # createdb x; dropdb x
    if own or ("unless" in row and re.search(row["unless"], told)):
        return
    chosen = "only" not in row or re.search(row["only"], told)
    written = targets[int(row["at"]) :][:1] if "at" in row and (chosen or row["how"] != "write") else []
    written += values_of(words[1:], *row["to"].split()) if "to" in row and chosen else []
    for path in written:
        guard.overwrite(path, state, words)
    if row["how"] == "write" or not chosen:
        return
    if row["how"] == "lose":
        flags = row.get("whole", "").split()  # with one of these folders go, too; without a list, always
        whole = not flags or has_flag(words[1:], *flags) or not {"/s", "/S"}.isdisjoint(words)
        targets = [one for one in targets if words[0][0].isupper() or one not in state.quoted or state.remote]
        targets = [one for one in targets or stdin.split("\n") if one]
        guard.lose(targets, state, words, say, whole)
        for path in targets:
            unread = not state.fresh and LIKE.listed_names.fullmatch(path) and not LIKE.listed_harmless.search(path)
            if unread or (path.startswith("/dev/") and LIKE.device.match(path)):
                guard.act("path" if unread else "device", f"{words[0]} {say} {path}", words, path)
    elif row["how"] == "device" and LIKE.disk_image.match(words[-1]):  # a file, no disk
        guard.lose([words[-1]], state, words, say)
    elif row["how"] != "device" or len(words) > 1:
        kind = "path" if row["how"] == "records" else row["how"]
        guard.act(kind, f"{words[0]} {say} {' '.join(targets)}".strip(), words, words[-1] if targets else "")


def queries(guard: Walker, words: list[str], state: State, stdin: str) -> str:
    """The SQL that a client is given, without what only asks and without drops of what it created before."""
    named = values_of(words, "-f", "--file") + LIKE.sql_script.findall(f"{' '.join(words[1:])}\n{stdin}")
    files = [guard.content(path, state) for path in named]
    told = " ".join(LIKE.sql_question.sub("", text) for text in [*words[1:], stdin, *files])
    for match in LIKE.sql_creates.finditer(told):
        own = rf"(?i)\bdrop\s+{match[1]}\s+(?:if\s+exists\s+)?[\"`]?{re.escape(match[2])}\b"
        told = told[: match.end()] + re.sub(own, lambda one: " " * len(one[0]), told[match.end() :])
    return told


def copy(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """cp, mv, install, ln: what lies at the target is overwritten; mv to a place that is emptied is a loss, too."""
    target = option(words[1:], "-t", "--target-directory")
    given = operands(words[1:], "-t --target-directory -m -o -g -S --suffix")
    sources, target = (given, target) if target else (given[:-1], given[-1] if given else "")
    moves, links = words[0] in ("mv", "move", "kioclient", "Move-Item"), words[0] == "ln"
    place = state.path(target)
    folder = target.endswith("/") or len(sources) > 1 or (not state.remote and os.path.isdir(place))
    if moves and (guard.precious.is_volatile(place) or place.startswith("/dev/") or "rash" in target):
        guard.lose(sources, state, words, "moves away")
    keeps = has_flag(words[1:], "--no-clobber", "-b", "--backup", *([] if links else ["-n"]))
    for source in sources:
        old = state.path(source).rstrip("/")
        whole = source.endswith("/.") or has_flag(words[1:], "-T", "--no-target-directory")  # what is in it, not itself
        there = os.path.join(place, os.path.basename(old)) if folder and not whole else place
        same = not state.remote and os.path.realpath(there) == os.path.realpath(old)
        if not state.remote and not moves and not links and not os.path.lexists(there) and "\ue001" not in there:
            state.copies.append(there)
        if not keeps and not same and (not links or has_flag(words[1:], "-f", "--force")):
            guard.overwrite(there, state, words)
            merge(guard, old, there, state, words)
        if not state.remote and os.path.isfile(old) and os.path.getsize(old) < SCRIPT:
            guard.written(there, guard.content(old, state), state)
        # `mv runs x; rm -rf x`, `ln -s runs l; rm -rf l/*`: what is lost there is what lies here
        if (moves or (links and has_flag(words[1:], "-s", "--symbolic"))) and guard.precious.lost(old, state.remote):
            state.links[there.rstrip("/") + "/" * links] = old


def merge(guard: Walker, source: str, target: str, state: State, words: list[str]) -> None:
    """One folder over another: files of the same name are overwritten."""
    if not state.remote and os.path.isdir(source) and os.path.isdir(target) and not source.startswith(target):
        for path in outputs.matches(guard, source, outputs.Expression(["-type", "f"]), state):
            guard.overwrite(target + path[len(source) :], state, words)


def unpack(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """tar, unzip, 7z: --remove-files, and extraction that is told to write over what is there."""
    if "--remove-files" in words or "-sdel" in words:
        guard.lose(operands(words[1:], "-f -C --file --directory"), state, words, "removes")
    folder = option(words[1:], *(["-o"] if words[0].startswith("7") else ["-C", "--directory", "-d"]))
    told = operands(words[1:], "-f -C -d --file --directory")
    packed = words[0].startswith(("7", "unzip"))
    bundled = words[0] != "unzip" and words[1:2] == told[:1]  # tar xzf ARCHIVE, 7z x ARCHIVE
    written = told[1:2] if bundled and ("a" in told[0] if packed else "c" in told[0]) else []
    written += values_of(words[1:], "-f", "--file") if has_flag(words[1:], "-c", "--create") and not packed else []
    for path in written:
        guard.overwrite(path, state, words)
    extracts = has_flag(words[1:], *(["-o", "-aoa", "-y"] if packed else ["-x", "--extract"]))
    if (extracts or (bundled and not packed and "x" in told[0])) and not has_flag(words[1:], "-k", "--skip-old-files"):
        for member in told[bundled + (bundled or packed) :]:
            for path in guard.glob(os.path.join(folder or ".", member), state):
                guard.overwrite(path, state, words)
    if folder and {"--overwrite", "-o", "-aoa", "--unlink-first", "--recursive-unlink"} & set(words):
        guard.lose([folder], state, words, "extracts over")


def dd(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    for word in words[1:]:
        if word.startswith("of="):
            guard.overwrite(word[3:], state, words)
            guard.lose([word[3:]] if state.remote else [], state, words, "overwrites")


def rsync(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """rsync, scp, robocopy, lftp's mirror, unison: the target is overwritten, and emptied by --delete."""
    if has_flag(words[1:], "-n", "--dry-run", "--help", "--list-only") or {"/L", "/l"} & set(words):
        return
    valued = "-e -f --exclude --include --filter --rsh --exclude-from --include-from --files-from --log-file --timeout"
    valued += " --backup-dir --bwlimit --chmod --chown --password-file --link-dest -T"
    valued += "" if words[0] == "rsync" else " -c -D -F -i -J -l -o -P -S -X"
    places = [one for one in operands(words[1:], valued) if not re.fullmatch(r"/[A-Z]\w*(:.*)?", one)]
    if has_flag(words[1:], "--remove-source-files", "--remove-sent-files") or {"/MOV", "/MOVE"} & set(words):
        for place in places[:-1]:
            guard.lose_place(place, state, words, "removes")
    keeps = has_flag(words[1:], "-u", "--update", "--ignore-existing", "-b", "--backup", "--existing")
    for source in places[:-1] if not state.remote and not keeps else []:
        if source.endswith(("/", "/.")):
            merge(guard, state.path(source).rstrip("/"), state.path(places[-1]).rstrip("/"), state, words)
        elif not source.endswith((".", "*")):
            spoil(guard, source, places[-1], state, stdin, words)
    emptied(guard, words, places, state)


def emptied(guard: Walker, words: list[str], places: list[str], state: State) -> None:
    """What is at the target of a mirror and not at its source goes."""
    mirrors = {"/MIR", "/mir", "/PURGE", "/purge", "-force", "-prefer"} & set(words)
    if len(places) < 2 or not (mirrors or any(word == "--del" or word.startswith("--delete") for word in words)):
        return
    source, target = places[0], (places[1] if words[0] == "robocopy" else places[-1]).rstrip("/")
    excluded = [value.strip("/") for value in values_of(words, "--exclude")]
    here = state.path(source).rstrip("/")  # a mirror of what holds results holds results
    rows = [f"{here}/{entry}" for entry, _ in guard.precious.entries(here) if entry not in excluded]
    kept = ":" in target and "--delete-excluded" not in words and "*" not in excluded
    kept = kept and any(guard.precious.by_name(one, True) for one in excluded)
    if kept and source.endswith(("/", ".")) and not any(guard.precious.lost(row, False) for row in rows):
        return  # each result of the project is excluded, here and there
    for place in places[:-1]:  # of rsync, without a / at its end, it becomes a folder there, and only that is emptied
        inside = words[0] == "rsync" and not place.endswith(("/", ".", "*"))
        guard.lose_place(f"{target}/{os.path.basename(place)}" if inside else target, state, words, "deletes in")
    if ":" in target and source.endswith(("/", ".")):
        path, name = target.partition(":")[2], os.path.basename(source.rstrip("/"))
        part = not excluded and name.strip(".") and os.path.basename(path) != name
        if part and guard.precious.is_root(os.path.dirname(path) or "~"):  # a part of the project over the whole
            guard.act("path", f"rsync --delete leaves only {name} in {target}", words, target)
        guard.lose(rows, state, words, "mirrors with --delete")


def git(guard: Walker, words: list[str], state: State, stdin: str) -> str | None:
    inner, rest, settings = state.copy(), words[1:], {}
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word in ("-C", "-c", "--git-dir", "--work-tree", "-R", "--cwd") and rest:
            value = rest.pop(0)
            inner.cwd = inner.path(value).rstrip("/") if word == "-C" else inner.cwd
            settings[value.partition("=")[0].lower()] = value.partition("=")[2]
    verb, rest = (rest[0], rest[1:]) if rest else ("", [])
    own = settings.get(f"alias.{verb}") or inner.aliases.pop(f"git {verb}", "")
    aliased = [i for i, word in enumerate(rest) if verb == "config" and word.startswith("alias.")]
    state.aliases.update({f"git {rest[i][6:]}": " ".join(rest[i + 1 : i + 2]) for i in aliased})
    written = values_of(rest, "--output", *["-o"] * (verb == "archive")) + rest[1:2] * (verb == "bundle")
    for path in written:
        guard.overwrite(path, inner, words)
    if own:
        guard.script(" ".join([own[1:] if own[0] == "!" else f"git {own}", *rest]), inner)
    elif verb in ("annex", "lfs", "filter-repo", "filter-branch"):
        guard.run([f"git-{verb}", *rest], inner, "")
    elif "foreach" in rest:
        guard.script(" ".join(word for word in rest[rest.index("foreach") + 1 :] if word != "--recursive"), inner)
    elif verb in ("rebase", "difftool"):
        guard.script(option(rest, "-x", "--exec", "--extcmd") or "", inner)
    elif verb == "ls-files" and not state.remote:
        return git_lists(guard, rest, inner)
    else:
        git_removes(guard, words, verb, rest, inner, settings.get("clean.requireforce") == "false")
    return None


def git_lists(guard: Walker, rest: list[str], state: State) -> str:
    """Names of files: of ls-files without -o those that are surely tracked, which results are not."""
    named = [path for one in operands(rest, "-e -x --exclude") for path in guard.glob(one, state)]
    paths = named or outputs.matches(guard, ".", outputs.Expression(["-type", "f", "!", "-path", "*.git/*"]), state)
    others = named or has_flag(rest, "-o", "-i", "--others", "--ignored")
    rows = [one.removeprefix("./") for one in paths if others or not guard.precious.lost(state.path(one), False)]
    return "".join(row + ("\0" if has_flag(rest, "-z") else "\n") for row in rows)


def history(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """git filter-repo --invert-paths --path x, bfg: what leaves the history leaves the work tree, too."""
    named = values_of(words, "--path", "--path-glob", "--delete-folders", "--delete-files")
    guard.lose([one.strip("{}") for one in named], state, words, "drops from the history")


def git_removes(guard: Walker, words: list[str], verb: str, rest: list[str], state: State, forced: bool) -> None:
    if has_flag(rest, "-n", "--dry-run", "--cached", "--staged"):
        return
    mercurial = words[0] == "hg"
    paths = operands(rest, "-e --exclude -s --source" + " -X -I" * mercurial)
    if (verb == "clean" and (forced or has_flag(rest, "-f", "--force"))) or (verb == "purge" and mercurial):
        excluded = {value.strip("/*") for value in values_of(rest, "-e", "--exclude", *["-X"] * mercurial)} | {".git"}
        folders = has_flag(rest, "-d") or mercurial  # without -d no folder goes
        here = [name for name, is_dir in guard.precious.entries(state.cwd) if folders or not is_dir]
        away = state.remote or (not os.path.isdir(state.cwd) and "clone" not in guard.line)
        state, top = (state.elsewhere() if away else state), paths or (["~"] if away else here)
        guard.lose([path for path in top if path.strip("/*") not in excluded], state, words, "cleans")
    elif verb == "checkout" and "--" not in rest and (has_flag(rest, "-b", "-B", "--orphan") or not state.remote):
        named = [] if has_flag(rest, "-b", "-B", "--orphan") else paths  # otherwise a branch, or a path that is here
        guard.lose([one for one in named if os.path.exists(state.path(one))], state, words, "overwrites", False)
    elif verb in ("rm", "checkout", "restore"):
        guard.lose(paths, state, words, "removes or overwrites", verb == "rm" and has_flag(rest, "-r"))
    elif verb == "worktree" and paths[:1] == ["remove"]:
        guard.lose(paths[1:], state, words, "removes")
    dropped = has_flag(rest, "-u", "--include-untracked") and " drop" in guard.line
    if verb == "stash" and (dropped or has_flag(rest, "-a", "--all")):  # results are ignored files: they go with it
        guard.lose(["."], state, words, "stashes")


def output_wiped(guard: Walker, words: list[str], state: State, known: bool) -> None:
    """A trainer that is told to write over its output folder, where that holds results; any --delete-THING."""
    forces = LIKE.training.search(" ".join(words[:5]))  # --force of another program may mean anything
    starts = words[0] in STARTS and words[0] not in PROGRAMS["task files"]  # its words are another program's
    carries = words[0] in WORDS["buckets"] or any(w in WORDS["executes"] - {"x"} or "://" in w for w in words[1:])
    given = [] if starts or (known and carries) or is_dry(words) else words[1:]
    asked = [LIKE.erasing_option.fullmatch(word) for word in given]
    things = [set(parts(one[1])) for one in asked if one and words[0] not in WORDS["tools"]]
    if any((known if not one else one & _ERASED) and not one & _SPARED for one in things):
        guard.act("path", f"{words[0]} is told to delete", words)
    flags = [i for i, word in enumerate(words) if LIKE.wiping_option.fullmatch(word) or (forces and word == "--force")]
    if not any(words[i + 1 : i + 2] not in (["false"], ["False"], ["0"]) for i in flags):
        return
    pairs = [word.partition("=")[::2] if "=" in word else (word, words[i]) for i, word in enumerate(words[:-1], 1)]
    pairs += [words[-1].partition("=")[::2]]
    for name, path in pairs:
        if path and LIKE.output_option.fullmatch(name) and (state.remote or os.path.isdir(state.path(path))):
            guard.lose([path], state, words, "writes over")


def unseen(guard: Walker, path: str, arguments: list[str], state: State) -> None:
    """k3s-uninstall.sh, /opt/lab/wipe-node: a name that says what a program does whose text cannot be read here."""
    named, place = parts(os.path.basename(path)), state.path(path)
    says = _DESTROYS.intersection(named) and named[:-1] not in ([], ["uninstall"]) and not _TIDIES.intersection(named)
    hidden = state.remote or not os.path.exists(place) or place.startswith(("/usr/", "/opt/", "/sbin/"))
    if says and hidden and place not in state.files and not is_dry([path, *arguments]):
        guard.act("end", f"{path} cannot be read, and its name says that it destroys", [path, *arguments])


# -- processes and machines


def signal_of(words: list[str]) -> str:
    named = option(words, "-s", "--signal")
    match = re.fullmatch(r"-(\d+|(?:SIG)?[A-Z][A-Z0-9]+)", words[0]) if words else None
    return (match[1] if match else named or "TERM").removeprefix("SIG")


def names_training(text: str) -> bool:
    """[t]rain.py, a pattern that does not find its own grep, is train.py."""
    text = re.sub(r"\[(\w)\]", r"\1", text.replace("\ue006", " "))
    return bool(LIKE.trains.search(text)) and not LIKE.viewer_tool.search(text)


def kill(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    if signal_of(words[1:]) in WORDS["signals"] or has_flag(words[1:], "-l", "-L", "--list", "--help") or state.fresh:
        return
    rest = words[2:] if words[1:2] and words[1].startswith("-") else words[1:]
    for pid in [word for word in rest if not re.fullmatch(r"-{1,2}|-[a-zA-Z]\w*|[A-Z]+", word)] or [stdin]:
        why = ""
        if pid == "-1" or (pid == "1" and state.remote):
            why = "that is everything there"
        elif "\ue001" in pid and "$!" not in pid:
            why = whose(origin_of(pid))
        elif re.fullmatch(r"-?\d+", pid):
            why = "whose process that is cannot be seen" if state.remote else foreign_training(int(pid.lstrip("-")))
        if why:
            guard.act("kill", f"kills {pid}: {why}", words, pid)


def whose(origin: str) -> str:
    """Why pids that these commands print are not ours to end; empty when they may be."""
    if names_training(origin):
        return "it trains"
    spared = LIKE.web_port.search(origin) or LIKE.viewer_tool.search(origin) or "/tmp/" in origin
    if LIKE.lists_users.search(origin) and not spared:
        return "whoever uses that is not known"
    listed = LIKE.lists_processes.search(origin)
    if not listed or LIKE.chosen_rows.search(told := f" {origin[listed.end() :]}"):
        return ""
    patterns = operands(shlex_words(LIKE.next_program.split(told)[0]), "-u -U -g -G -t -d -s --user")
    return "" if patterns and listed[1] not in ("ps", "top") else "that is all that a user or the machine runs"


def foreign_training(pid: int) -> str:
    """What it is, when it or a process above it trains or is a job of the gate, and this session did not start it."""
    ours, above = _lineage(os.getpid()), _lineage(pid)
    if ours and not above:  # gone, or of another process namespace than the guard's
        return "there is no such process here"
    if set(above) & (set(ours[:3]) - {1}):  # of the agent or the shell that asks
        return ""
    for one in above:
        if one in ours:
            break
        words = read_proc(one, "cmdline").replace("\0", " ").strip()
        if re.search(r"python|torchrun|accelerate|deepspeed", words) and LIKE.training.search(words):
            return f"pid {one} trains: {words[:120]}"
        if "RGT_GATE_JOB=" in read_proc(one, "environ"):
            return f"pid {one} is a job of the GPU gate: {words[:120]}"
    return ""


def _lineage(pid: int) -> list[int]:
    """The process and those above it."""
    found: list[int] = []
    while pid > 0 and len(found) < 64 and (stat := read_proc(pid, "stat")):
        found.append(pid)
        pid = int(stat.rpartition(")")[2].split()[1])
    return found


def read_proc(pid: int, name: str) -> str:
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""


def pkill(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """pkill, killall, skill, Stop-Process, fuser -k: by name, by user, by what they use."""
    shows = has_flag(words[1:], "--help", "-l", "--list", "--version")
    if signal_of(words[1:]) in WORDS["signals"] or shows or state.fresh:
        return
    options = [word for word in words[1:] if not re.fullmatch(r"-[A-Z0-9]{2,}", word)]
    unix = words[0] in ("pkill", "skill", "killall", "slay")
    if unix and has_flag(options, "-u", "-U", "-t", "--euid", "--user"):
        guard.act("kill", "kills what a user runs", words)
        return
    names = [word for word in operands(words[1:], "-s --signal -g -G -P -u -U -t -o --older-than -y") if word]
    names += [word for word in words[1:] if re.fullmatch(r"-[a-z]*f.+", word) and words[0] == "pkill"]
    names = names or [stdin]
    parent = origin_of(option(words[1:], "-P", "--parent") or "")
    names += ["python"] * bool(unix and whose(parent))  # children of what a session or a listing holds
    if words[0] == "fuser":
        kills = has_flag(words[1:], "-k", "--kill") and whose(f"fuser {' '.join(names)}")
        names = ["python"] if kills else []
    if names_training(" ".join(names)) or words[0] == "killall5" or any(n in (".", ".*", "*") for n in names):
        guard.act("kill", f"kills every process called {' '.join(names)}", words, " ".join(names))


def service(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """systemctl stop train.service, service slurmd restart; powering off is in the table."""
    rest = operands(words[1:], "-H -M -t -p --host --machine --type")
    told = " ".join(rest)
    engine = re.search(r"docker|containerd|kubelet|podman|user[-@]\d|\.slice", told)
    if WORDS["ends a service"].intersection(rest[:2]) and (engine or names_training(told)):
        guard.act("kill", f"ends the service {told}", words)


def ansible(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """-m file -a state=absent, -m reboot, -m ec2_instance -a state=stopped; without a module the text is a command."""
    module = (option(words[1:], "-m", "--module-name") or "command").removeprefix("win_")
    told = re.sub(r"^(?:cmd|_raw_params)=", "", option(words[1:], "-a", "--args") or "")
    if not has_flag(words[1:], *WORDS["ansible looks"]):
        task(guard, words, f"{module}: {told}", state.elsewhere())


def playbook(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """Each task of a playbook and of the files that it names."""
    paths = operands(words[1:], "-i -e -u -l -t -f --inventory --extra-vars --limit --tags --skip-tags --user")
    for path in [] if has_flag(words[1:], *WORDS["ansible looks"]) else paths:
        for text in re.split(r"(?m)^\s*- (?=[\w.]+:)", with_included(guard, path, state)):
            task(guard, words, text, state.elsewhere())


def task(guard: Walker, words: list[str], text: str, there: State) -> None:
    """What it removes with `state: absent`, the machines that it ends, and the lines that it gives to a shell."""
    if re.search(r"\bstate\s*[:=]\s*[\"']?absent", text) and re.search(r"\bfile:", text):
        gone = re.findall(r"(?<=[\s\"'=\[])([/~][^\s\"',}\]]+)", text)
        guard.lose(gone, there, words, "removes")
    module = next((key for key in re.findall(r"(?m)^\s*([\w.]+):", text) if key not in WORDS["task keys"]), "")
    named = parts(" ".join([module, *re.findall(r"\bkind[:=]\s*(\w+)", text)]))  # k8s with the kind it is about
    ends = LIKE.task_ends.search(text) and about(named, bool(LIKE.cloud_module.search(module)))
    formats = module.endswith("filesystem") and re.search(r"\bforce:\s*(?:true|yes)", text)
    if ends or formats or module.endswith(("reboot", "shutdown")):
        guard.act("end", f"{module} ends what it names", words)
    if re.search(r"\b(?:shell|command|raw|cmd)\s*:", text):
        for line in re.findall(r"(?m)^\s*(?:[\w.]+:\s*)?[\"']?([^\s\"'].*?)[\"']?$", text):
            guard.script(line, there)


def with_included(guard: Walker, path: str, state: State, depth: int = 4) -> str:
    """A playbook's text with that of the roles and files that it names."""
    text, folder = guard.content(path, state), os.path.dirname(path)
    if text.startswith("\ue001") or not depth:
        return ""
    roles = [f"roles/{word}/tasks/main.yml" for word in re.findall(r"[\w.-]+", text)]
    named = {os.path.join(folder, one) for one in [*re.findall(r"[\w./-]+\.ya?ml", text), *roles]} - {path}
    return text + "".join(f"\n{with_included(guard, one, state, depth - 1)}" for one in sorted(named))


def web_client(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """curl, wget, httpie, Invoke-RestMethod: the method, the address, the body, and the file that is written."""
    kind = next(row for row in PROGRAMS["web clients"] if words[0] in row["names"].split())
    methods, bodies, outputs = (kind[name].split() for name in ("method", "body", "output"))
    config = option(words[1:], "-K", "--config") if words[0] == "curl" else None
    if config:  # a file of options: `url = "https://..."`
        text = stdin if config == "-" else guard.content(config, state)
        rows = re.findall(r"(?m)^\s*-*([\w-]+)[\s=:]+\"?(.*?)\"?\s*$", text)
        words = [*words, *(one for name, value in rows for one in (f"-{'-' * (len(name) > 1)}{name}", value))]
    if words[0].startswith("I") or words[0] in ("irm", "iwr"):
        words = [word.lower() if word.startswith("-") else word for word in words]
    valued = " ".join([*methods, *bodies, *outputs, kind["valued"]])
    rest = operands(words[1:], valued) + values_of(words, "--url", "-uri")
    method = option(words[1:], *methods) if methods else None
    if not methods and rest and rest[0].lower() in ("get", "head", "post", "put", "patch", "delete", "options"):
        method = rest.pop(0)
    given = values_of(words, *bodies) if bodies else [*rest[1:], stdin]
    given = [stdin if one == "@-" else guard.content(one[1:], state) if one[:1] == "@" else one for one in given]
    data = " ".join(given).strip()
    method = (method or ("POST" if data and (bodies or re.search(r"\S:?=\S", data)) else "GET")).upper()
    head = has_flag(words[1:], "-G", "--get", "-I", "--head", "--offline") and words[0] not in ("wget", "irm", "iwr")
    into = option(words[1:], "--output-dir") or ""
    for url in rest if bodies else rest[:1]:
        request(guard, "GET" if head else method, url, data, words)
        if upload := option(words[1:], "-T", "--upload-file") if words[0] == "curl" else None:
            spoil(guard, upload, url.partition("?")[0], state, stdin, words)
        if words[0] == "curl" and has_flag(words[1:], "-O", "--remote-name", "--remote-name-all"):
            guard.overwrite(os.path.join(into, os.path.basename(url.partition("?")[0]) or "."), state, words)
    target = option(words[1:], *outputs) if outputs else None
    if target and target != "-":
        guard.overwrite(os.path.join(into, target), state, words)
