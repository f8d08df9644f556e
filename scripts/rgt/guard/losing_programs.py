"""Programs of every machine that lose files, disks, processes or the machine itself.

Each takes (guard, words, state, stdin) and tells the guard what would be lost. Clients of platforms are not here: their
verbs are judged by `ending_verbs`.
"""

from __future__ import annotations

import os

from rgt.guard.argument_words import has_flag, operands, option, shlex_words, values_of
from rgt.guard.ending_verbs import about, is_ending_call, parts
from rgt.guard.lazy_regex import Regex, re
from rgt.guard.shell_walk import State, Walker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Losing = Callable[[Walker, list[str], State, str], object]
TRAINS = Regex(
    r"(?i)(?:^|[^a-z])(?:(?:pre|re|s)?train(?:er|ing)?(?:[^a-z]|$)|finetun|fine[-_]tun|sft|dpo|grpo|torchrun|accelerate"
    r"|deepspeed|python[0-9.]*(?:[^a-z]|$)|nvidia-smi|gpustat|nvitop|runs/|/dev/nvidia|launch\.py|run_(?:clm|mlm)"
    r"|llamafactory|axolotl|lightning|pt_main|slurm[sd]|ray(?:let)?(?:[^a-z]|$))"
)
_TOOLS = Regex(
    r"(?i)tensorboard|jupyter|http\.server|pytest|mkdocs|uvicorn|flask|streamlit|gradio|debugpy|pip\b|mlflow ui"
)
_HARMLESS_SIGNALS = {"0", "CONT", "18", "USR1", "10", "USR2", "12", "WINCH", "28", "URG", "CHLD"}
DEVICE = Regex(r"/dev/(?:sd|nvme|vd|xvd|hd|mapper/|disk|md|dm-|mmcblk|loop)")
_WINDOWS = {"/s", "/q", "/f", "/S", "/Q", "/F"}
_FOLDERS_TOO = {"trash", "trash-put", "gio", "rd", "Remove-Item", "ri", "rimraf", "rip", "gtrash"}
_SQL = Regex(
    r"(?i)\b(?:drop\s+(?:table|database|schema)|delete\s+from|truncate(?:\s+table)?)\s+(?:if\s+exists\s+)?[\w.\"`]*"
    r"(?:runs?|experiments?|metrics|trials?|stud(?:y|ies)|checkpoints?|models?|mlflow|optuna|artifacts|results)\b"
    r"|\bflush(?:all|db)\b|dropDatabase\(|\.(?:drop|deleteMany)\(|\.rm\s"
)


def rm(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    whole = has_flag(words[1:], "-r", "-R", "--recursive", "-d") or bool(
        {"/s", "/S", "-Recurse", "-recurse", "-rec"} & set(words)
    )
    if has_flag(words[1:], "--help", "--version") or (words[0] == "rmdir" and not whole):
        return  # rmdir: only what is empty
    paths = operands(words[2 if words[0] == "gio" else 1 :])
    paths = [path for path in paths if path not in _WINDOWS] or stdin.split("\n")
    guard.lose([path for path in paths if path], state, words, "removes", whole or words[0] in _FOLDERS_TOO)


def copy(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """cp, mv, install, ln: what lies at the target is overwritten; mv to a place that is emptied is a loss, too."""
    kept = ["--no-clobber", "--help", "-b", "--backup", *([] if words[0] == "ln" else ["-n"])]  # ln -n: do not follow
    if has_flag(words[1:], *kept) or "--update=none" in words:
        return
    target = option(words[1:], "-t", "--target-directory")
    given = operands(words[1:], "-t --target-directory -m -o -g -S --suffix")
    if (target is None and len(given) < 2) or (words[0] == "ln" and not has_flag(words[1:], "-f", "--force")):
        return
    sources, target = (given, target) if target else (given[:-1], given[-1])
    place = state.path(target)
    emptied = guard.precious.is_volatile(place) or place.startswith("/dev/") or "rash" in target
    if words[0] in ("mv", "move", "kioclient") and emptied:
        guard.lose(sources, state, words, "moves away")
    if state.remote and "/dev/null" in sources:
        guard.lose([target], state, words, "empties")
    if DEVICE.match(place) or state.remote:
        guard.overwrite(target, state, words)
        return
    for source in sources:
        where = os.path.join(place, os.path.basename(source.rstrip("/"))) if os.path.isdir(place) else place
        if os.path.isfile(where) and os.path.realpath(where) != os.path.realpath(state.path(source)):
            guard.overwrite(where, state, words)
        elif os.path.isdir(where) and words[0] != "ln":
            copy_tree(guard, state.path(source), where, state, words)


def copy_tree(guard: Walker, source: str, target: str, state: State, words: list[str]) -> None:
    """Files of the same name in both folders."""
    for name, is_dir in guard.precious.entries(source):
        if is_dir:
            copy_tree(guard, f"{source}/{name}", f"{target}/{name}", state, words)
        elif os.path.isfile(f"{target}/{name}"):
            guard.overwrite(f"{target}/{name}", state, words)


def rewrite(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """truncate, shred, fallocate: each file is spoiled in its place."""
    shrinks = not (option(words[1:], "-s", "--size") or "0").startswith("+")
    if words[0] == "fallocate":
        shrinks = has_flag(words[1:], "-p", "-z", "-c", "--punch-hole", "--zero-range", "--collapse-range")
    for path in operands(words[1:], "-s -r -n -o -l --size --reference --iterations") if shrinks else []:
        guard.lose([path], state, words, f"{words[0]} spoils", words[0] == "shred")
        if DEVICE.match(path):
            guard.act("device", f"{words[0]} spoils {path}", words, path)


def dd(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    for word in words[1:]:
        if word.startswith("of="):
            guard.overwrite(word[3:], state, words)
            guard.lose([word[3:]] if state.remote else [], state, words, "overwrites")


def disk(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    dry = has_flag(words[1:], "--help", "-n", "--no-act", "-V", "--version", "-l", "--list")
    if words[0] in ("parted", "diskutil", "diskpart"):
        dry = not set(words) & {"mklabel", "mktable", "mkpart", "rm", "eraseDisk", "eraseVolume", "reformat", "clean"}
    if not dry and len(words) > 1:
        guard.act("device", f"{words[0]} destroys what is on {words[-1]}", words, words[-1])


def rsync(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """rsync, scp, unison, robocopy: the target is overwritten, and emptied by --delete."""
    if has_flag(words[1:], "-n", "--dry-run", "--help", "--list-only") or "/L" in words:
        return
    valued = "-e -f --exclude --include --filter --rsh --exclude-from --include-from --files-from --log-file --timeout"
    valued += " --partial-dir --backup-dir --bwlimit --chmod --chown --password-file -c -D -F -i -J -l -o -P -S -X"
    valued = valued if words[0] != "rsync" else valued.partition(" -c ")[0]
    places = [one for one in operands(words[1:], valued) if not re.fullmatch(r"/[A-Z]\w*(:.*)?", one)]
    if has_flag(words[1:], "--remove-source-files", "--remove-sent-files") or {"/MOV", "/MOVE"} & set(words):
        for place in places[:-1] or places:
            lose_place(guard, place, state, words, "removes")
    if len(places) < 2:
        return
    if "/dev/null" in places[:-1]:
        lose_place(guard, places[-1], state, words, "empties")
    elif not state.remote and os.path.isfile(state.path(places[-1])):
        copy(guard, ["cp", *places], state, stdin)
    mirrors = {"/MIR", "/mir", "/PURGE", "/purge"} & set(words) or (words[0] == "unison" and "-force" in words)
    if not mirrors and not any(word == "--del" or word.startswith("--delete") for word in words):
        return
    last = places[1] if words[0] in ("robocopy", "unison") else places[-1]
    lose_place(guard, last, state, words, "deletes in")
    target, excluded = last.rstrip("/"), [value.strip("/") for value in values_of(words, "--exclude")]
    if "--delete-excluded" in words:
        for name in excluded:
            lose_place(guard, f"{target}/{name}", state, words, "deletes in")
    elif ":" in target and not state.remote:  # a mirror of what holds results holds results
        folders = [state.path(place).rstrip("/") for place in places[:-1] if place.endswith(("/", "."))]
        rows = [f"{one}/{name}" for one in folders for name, _ in guard.precious.entries(one) if name not in excluded]
        guard.lose(rows, state, words, "mirrors with --delete")


def lose_place(guard: Walker, place: str, state: State, words: list[str], verb: str) -> None:
    """HOST:DIR is on another machine."""
    host, colon, path = place.partition(":")
    if colon and "/" not in host and len(host) > 1:
        guard.lose([path.lstrip(":") or "~"], state.elsewhere(), words, verb)
    else:
        guard.lose([place.replace("\\", "/")], state, words, verb)


def pack(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """tar, zip, 7z that remove what they packed; fdupes and the like that delete."""
    flags = {"tar": ["--remove-files"], "zip": ["-m", "--move"], "7z": ["-sdel"]}.get(words[0], ["-d", "--delete"])
    if has_flag(words[1:], *flags):
        guard.lose(operands(words[1:], "-f -C")[1 if words[0] == "zip" else 0 :], state, words, "removes")


def git(guard: Walker, words: list[str], state: State, stdin: str) -> object:
    inner, rest, forced = state.copy(), words[1:], False
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word in ("-C", "-c", "--git-dir", "--work-tree", "--config", "-R", "--cwd") and rest:
            value = rest.pop(0)
            key, _, told = value.partition("=")
            if key.startswith("alias."):
                inner.aliases[f"git {key[6:]}"] = told
            elif re.search(r"(?i)(?:editor|pager|command|fsmonitor|askpass|external|textconv)$", key):
                guard.script(told, state.copy())
            inner.cwd = inner.path(value).rstrip("/") if word == "-C" else inner.cwd
            forced = forced or value.lower() == "clean.requireforce=false"
    verb, rest = (rest[0], rest[1:]) if rest else ("", [])
    given = operands(rest)
    if verb == "status" or (verb == "ls-files" and has_flag(rest, "-o", "--others")):  # what is not tracked: results
        rows = guard.precious.entries(inner.cwd) if not inner.remote else []
        return "".join(f"{'?? ' * (verb == 'status')}{name}\n" for name, _ in rows if name[0] != ".")
    own = inner.aliases.pop(f"git {verb}", "")
    if own.startswith("!"):
        guard.script(" ".join([own[1:], *rest]), inner)
    elif own:
        git(guard, [words[0], *shlex_words(own), *rest], inner, stdin)
    elif verb == "config" and len(given) > 1 and given[0].startswith("alias."):
        state.aliases["git " + given[0][6:]] = given[1]
    elif verb in ("annex", "lfs"):
        guard.run([f"git-{verb}", *rest], inner, stdin)
    elif verb in ("bisect", "submodule", "rebase", "difftool", "filter-branch"):
        told = re.sub(r"^(?:run|(?:--recursive )?foreach(?: --recursive)?) ", "", " ".join(rest))
        guard.script(option(rest, "-x", "--exec", "--extcmd") or (told if verb[0] in "bs" else ""), inner)
    else:
        git_removes(guard, words, verb, rest, inner, forced)
    if verb == "stash" and has_flag(rest, "-a", "--all", "-u", "--include-untracked"):
        state.variables["stashed"] = "untracked"
    return None


def git_removes(guard: Walker, words: list[str], verb: str, rest: list[str], inner: State, forced: bool) -> None:
    if verb == "purge" and words[0] == "hg" and not has_flag(rest, "-p", "--print"):
        git_clean(guard, ["-d", *operands(rest, "-X -I")], inner, words)
    elif verb == "clean" and (forced or has_flag(rest, "-f", "--force")) and not has_flag(rest, "-n", "--dry-run"):
        git_clean(guard, rest, inner, words)
    elif verb == "rm" and not has_flag(rest, "--cached", "-n", "--dry-run"):
        guard.lose(operands(rest), inner, words, "removes", has_flag(rest, "-r"))
    elif verb in ("checkout", "restore") and not has_flag(rest, "--staged"):
        guard.lose(operands(rest, "-s --source"), inner, words, "overwrites", False)
    elif verb == "worktree" and rest[:1] == ["remove"]:
        guard.lose(operands(rest[1:]), inner, words, "removes")
    elif verb == "stash" and rest[:1] in (["drop"], ["clear"]) and inner.variables.get("stashed"):
        guard.lose(["."], inner, words, "drops")


def git_clean(guard: Walker, rest: list[str], state: State, words: list[str]) -> None:
    """-e and a pathspec limit it; without -d no folder goes."""
    excluded = [value.strip("/*") for value in values_of(rest, "-e", "--exclude")]
    paths = operands(rest, "-e --exclude")
    folders = has_flag(rest, "-d") or bool(paths)
    if state.remote:
        guard.lose(paths or ["~"], state, words, "cleans")
        return
    top = paths or [name for name, is_dir in guard.precious.entries(state.cwd) if folders or not is_dir]
    guard.lose([path for path in top if path.strip("/*") not in excluded and path != ".git"], state, words, "cleans")


# -- processes and machines


def signal_of(words: list[str]) -> str:
    named = option(words, "-s", "--signal")
    match = re.fullmatch(r"-(\d+|(?:SIG)?[A-Z][A-Z0-9]+)", words[0]) if words else None
    return (match[1] if match else named or "TERM").removeprefix("SIG")


def names_training(text: str) -> bool:
    """[t]rain.py, a pattern that does not find its own grep, is train.py."""
    text = re.sub(r"\[(\w)\]", r"\1", text.replace("\ue006", " "))
    return bool(TRAINS.search(text)) and not _TOOLS.search(text)


def kill(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    if signal_of(words[1:]) in _HARMLESS_SIGNALS or has_flag(words[1:], "-l", "-L", "--list", "--help"):
        return
    rest = words[2:] if words[1:2] and words[1].startswith("-") else words[1:]
    for pid in [word for word in rest if not re.fullmatch(r"-{1,2}|-[a-zA-Z]\w*|[A-Z]+", word)]:
        if pid == "-1" or (pid == "1" and state.remote):
            guard.act("kill", f"kill {pid} ends everything there", words, pid)
        elif "\ue001" in pid and "$!" not in pid:
            if names_training(pid):
                guard.act("kill", f"kills {pid}", words, pid)
        elif re.fullmatch(r"-?\d+", pid) and not state.remote:
            from rgt.guard import processes_here

            why = processes_here.foreign_training(int(pid.lstrip("-")))
            if why:
                guard.act("kill", f"kills {pid}: {why}", words, pid)


def pkill(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """pkill, killall, skill, Stop-Process, fuser -k: by name, by user, by what they use."""
    if signal_of(words[1:]) in _HARMLESS_SIGNALS or has_flag(words[1:], "--help", "-l", "--list", "--version"):
        return
    options = [word for word in words[1:] if not re.fullmatch(r"-[A-Z0-9]{2,}", word)]
    unix = words[0] in ("pkill", "skill", "killall", "slay")
    if unix and has_flag(options, "-u", "-U", "-t", "--euid", "--user"):
        guard.act("kill", "kills what a user runs", words)
        return
    names = [word for word in operands(words[1:], "-s --signal -g -G -P -u -U -t -o --older-than -y") if word]
    names += [word for word in words[1:] if re.fullmatch(r"-[a-z]*f.+", word) and words[0] == "pkill"]
    names = names or [stdin]
    if words[0] == "fuser":
        uses = has_flag(words[1:], "-k", "--kill") and re.search(r"nvidia|\.pt|runs|ckpt", " ".join(names))
        names = ["python"] if uses else []
    if names_training(" ".join(names)) or words[0] == "killall5" or any(n in (".", ".*", "*") for n in names):
        guard.act("kill", f"kills every process called {' '.join(names)}", words, " ".join(names))


def power(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    if words[0] in ("busctl", "dbus-send", "gdbus"):
        off = re.search(r"login1.*\b(?:PowerOff|Reboot|Halt|Suspend|Hibernate|KExec)\b", " ".join(words))
        harmless: object = not off
    else:
        posix = [] if "-" in words[0] else ["-c", "-k", "-w"]
        harmless = has_flag(words[1:], *posix, "--help", "--version", "--show", "--wtmp-only", "-WhatIf")
    if not harmless and not {"/a", "/?", "-a"} & set(words):
        guard.act("end", f"{words[0]} ends this machine and all that runs on it", words)


def service(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """systemctl stop train.service, service slurmd restart; powering off is in the table."""
    rest = operands(words[1:], "-H -M -t -p --host --machine --type")
    ends = {"stop", "kill", "restart", "disable", "isolate", "mask", "try-restart", "unload", "bootout"} & set(rest[:2])
    if ends and (names_training(" ".join(rest)) or re.search(r"docker|containerd|kubelet|podman", " ".join(rest))):
        guard.act("kill", f"ends the service {' '.join(rest)}", words)


def ansible(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """-m file -a state=absent, -m reboot, -m service -a state=stopped; without a module the text is a command."""
    module = (option(words[1:], "-m", "--module-name") or "command").rpartition(".")[2]
    told, there = option(words[1:], "-a", "--args") or "", state.elsewhere()
    given = dict(pair.split("=", 1) for pair in shlex_words(told) if "=" in pair)
    named = given.get("path") or given.get("dest") or given.get("name") or ""
    if module.removeprefix("win_") in ("command", "shell", "raw", "powershell"):
        guard.script(re.sub(r"^(?:cmd|_raw_params)=", "", told), there, stdin)
    elif module.endswith(("reboot", "shutdown")):
        guard.act("end", "ends or restarts the machines", words)
    elif given.get("state") in ("absent", "stopped", "restarted", "terminated") and module.endswith("file"):
        guard.lose([named], there, words, "removes")
    elif given.get("state") in ("absent", "stopped", "restarted", "terminated"):
        if module in ("service", "systemd", "systemd_service"):
            service(guard, ["systemctl", "stop", named], there, stdin)
        elif about(parts(module), False):  # ec2_instance, docker_container
            guard.act("end", f"{module} ends {named}", words, named)


def grpc(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """grpcurl HOST compute.v1.InstanceService/Delete"""
    method = words[-1].replace("/", ".")
    if not {"list", "describe", "ls"} & set(words) and is_ending_call(method, True):
        guard.act("end", f"calls {words[-1]}", words)


def database(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    text = " ".join(words[1:]) + " " + stdin
    for path in values_of(words, "-f", "--file"):
        text += guard.content(path, state)
    if _SQL.search(text):
        guard.act("path", f"{words[0]} deletes records of runs", words, words[-1])


def web_client(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """curl, wget, httpie, Invoke-RestMethod: the method, the address, the body, and the file that is written."""
    kind = next((row for row in _WEB if words[0] in row[0].split()), _WEB[0])
    methods, bodies, outputs, valued = (column.split() for column in kind[1:])
    config = option(words[1:], "-K", "--config") if words[0] == "curl" else None
    if config:  # a file of options: `url = "https://..."`
        rows = re.findall(r"(?m)^\s*-*([\w-]+)[\s=:]+\"?(.*?)\"?\s*$", guard.content(config, state))
        words = [*words, *(one for name, value in rows for one in (f"-{'-' * (len(name) > 1)}{name}", value))]
    if words[0].startswith("I") or words[0] in ("irm", "iwr"):
        words = [word.lower() if word.startswith("-") else word for word in words]
    rest = operands(words[1:], " ".join([*methods, *bodies, *outputs, *valued])) + values_of(words, "--url", "-uri")
    method = option(words[1:], *methods) if methods else None
    if not methods and rest and rest[0].lower() in ("get", "head", "post", "put", "patch", "delete", "options"):
        method = rest.pop(0)
    given = values_of(words, *bodies) if bodies else [*rest[1:], stdin]
    data = " ".join(
        stdin if one == "@-" else guard.content(one[1:], state) if one[:1] == "@" else one for one in given
    ).strip()
    method = (method or ("POST" if data and (bodies or re.search(r"\S:?=\S", data)) else "GET")).upper()
    head = has_flag(words[1:], "-G", "--get", "-I", "--head", "--offline") and words[0] not in ("wget", "irm", "iwr")
    for url in rest if bodies else rest[:1]:
        guard.request("GET" if head else method, url, data, words)
    target = option(words[1:], *outputs) if outputs else None
    if target and target != "-":
        guard.overwrite(target, state, words)


_WEB = [  # names; options for the method, the body, the file that is written; others with a value
    (
        "curl curlie",
        "-X --request",
        "-d --data --data-raw --data-binary --data-ascii --data-urlencode --json -F --form",
        "-o --output",
        "-H -u -K -A -b -c -e -m -T -w -x --header --url --user --config --max-time --retry --connect-timeout --cacert"
        " --write-out --unix-socket --cert --key --proxy --resolve",
    ),
    ("wget", "--method", "--post-data --body-data", "-O --output-document", "-o -P -q --header"),
    ("http https xh xhs httpie", "", "", "-o --output", "-a --auth -A --auth-type --timeout"),
    ("Invoke-RestMethod Invoke-WebRequest irm iwr", "-method", "-body", "-outfile", "-headers -uri -contenttype"),
]
_NAMED: dict[Losing, str] = {
    rm: "rm unlink srm trash trash-put gio del erase rd rmdir rimraf Remove-Item ri wipe rip gtrash",
    copy: "cp mv install ln move Copy-Item Move-Item rename kioclient",
    rewrite: "truncate Clear-Content shred fallocate",
    disk: "mkfs wipefs mkswap blkdiscard lvremove vgremove pvremove sgdisk mke2fs badblocks parted diskutil diskpart",
    power: "poweroff reboot halt shutdown Stop-Computer Restart-Computer busctl dbus-send gdbus",
    pkill: "pkill killall skill killall5 Stop-Process taskkill spps fuser slay",
    web_client: "curl curlie wget http https xh xhs httpie Invoke-RestMethod Invoke-WebRequest irm iwr",
    pack: "tar zip 7z fdupes jdupes",
    rsync: "rsync scp robocopy unison",
    git: "git hg oxen",
    service: "systemctl service launchctl rc-service",
    ansible: "ansible",
    grpc: "grpcurl grpc_cli",
    database: "sqlite3 psql mysql mariadb duckdb redis-cli mongosh mongo clickhouse-client",
    dd: "dd",
    kill: "kill",
}
LOSING: dict[str, Losing] = {name: program for program, names in _NAMED.items() for name in names.split()}
