"""Programs of every machine that destroy files, disks, processes and machines, and those that carry such a command.

Each takes (guard, words, state, stdin) and tells the guard what would be lost; platforms' clients are in the table.
"""

from __future__ import annotations

import os
import re

from rgt.guard import shell_programs as programs
from rgt.guard.argument_words import after_options, has_flag, operands, option, shlex_words
from rgt.guard.lazy_regex import Regex
from rgt.guard.shell_walk import State, Walker

_METHODS = {"get", "head", "post", "put", "patch", "delete", "options"}
_TRAINS = Regex(
    r"(?i)(?:^|[^a-z])(?:(?:pre|re|s)?train(?:er|ing)?(?:[^a-z]|$)|finetun|fine[-_]tun|sft|dpo|grpo|torchrun|accelerate|deepspeed"
    r"|python[0-9.]*(?:[^a-z]|$)|nvidia-smi|gpustat|nvitop|runs/|/dev/nvidia|launch\.py|run_(?:clm|mlm)|llamafactory|axolotl|lightning|pt_main)"
)
_TOOLS = Regex(
    r"(?i)tensorboard|jupyter|http\.server|pytest|mkdocs|uvicorn|flask|streamlit|gradio|debugpy|pip\b|mlflow ui"
)
_HARMLESS_SIGNALS = {"0", "CONT", "18", "USR1", "10", "USR2", "12", "WINCH", "28", "URG", "CHLD"}
_WEB = {  # options for the method, the body, the file that is written, and others with a value
    "curl": (
        "-X --request",
        "-d --data --data-raw --data-binary --data-ascii --data-urlencode --json -F --form",
        "-o --output",
        "-H -u -K -A -b -c -e -m -T -w -x --header --url --user --config --max-time --retry --connect-timeout --cacert"
        " --write-out --unix-socket --cert --key --proxy --resolve",
    ),
    "wget": ("--method", "--post-data --body-data", "-O --output-document", "-o -P -q --header"),
}
DEVICE = Regex(r"/dev/(?:sd|nvme|vd|xvd|hd|mapper/|disk|md|dm-|mmcblk|loop)")
_DISK_TOOLS = "mkfs wipefs mkswap blkdiscard lvremove vgremove pvremove sgdisk mke2fs badblocks".split()
_OFF = {"poweroff", "reboot", "halt", "shutdown", "Stop-Computer", "Restart-Computer"}
_KINDS = (
    "configmap cm secret service svc ingress ing role rolebinding serviceaccount sa networkpolicy hpa event crd".split()
)


def rm(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    if has_flag(words[1:], "--help", "--version"):
        return
    whole = has_flag(words[1:], "-r", "-R", "--recursive", "-d") or bool({"/s", "-Recurse", "-recurse"} & set(words))
    if words[0] == "rmdir" and not whole:
        return  # only what is empty
    whole = whole or words[0] in ("trash", "trash-put", "gio", "rd", "Remove-Item", "ri", "rimraf")
    paths = operands(words[1:]) if words[0] != "gio" else operands(words[2:])
    paths = [path for path in paths if path not in ("/s", "/q", "/f", "/S", "/Q", "/F")] or stdin.split("\n")
    guard.lose([path for path in paths if path], state, words, "removes", whole)


def copy(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """cp, mv, install, ln: what lies at the target is overwritten; mv to a place that is emptied is a loss, too."""
    kept = ["--no-clobber", "--help", "-b", "--backup", *([] if words[0] == "ln" else ["-n"])]  # ln -n: do not follow
    if has_flag(words[1:], *kept) or "--update=none" in words:
        return
    if words[0] == "ln" and not has_flag(words[1:], "-f", "--force"):
        return
    target = option(words[1:], "-t", "--target-directory")
    given = operands(words[1:], "-t --target-directory -m -o -g -S --suffix")
    if target is None and len(given) < 2:
        return
    sources, target = (given, target) if target else (given[:-1], given[-1])
    place = state.path(target)
    emptied = guard.precious.is_volatile(place) or place.startswith("/dev/") or "Trash" in place
    if words[0] in ("mv", "move") and emptied:
        guard.lose(sources, state, words, "moves away")
    if state.remote:
        if "/dev/null" in sources:
            guard.lose([target], state, words, "empties")
        return
    into = os.path.isdir(place)
    if DEVICE.match(place):
        guard.overwrite(target, state, words)
    for source in sources:
        where = os.path.join(place, os.path.basename(source.rstrip("/"))) if into else place
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


def truncate(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    if not (option(words[1:], "-s", "--size") or "0").startswith("+"):
        guard.lose(operands(words[1:], "-s -r --size --reference"), state, words, "truncates", False)


def shred(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    paths = operands(words[1:], "-n -s --iterations --size")
    guard.lose(paths, state, words, "shreds")
    for path in paths:
        if DEVICE.match(path):
            guard.act("device", f"shreds {path}", words, path)


def dd(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    for word in words[1:]:
        if word.startswith("of="):
            guard.overwrite(word[3:], state, words)
            if state.remote:
                guard.lose([word[3:]], state, words, "overwrites")


def parted(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    if set(words) & {"mklabel", "mktable", "mkpart", "rm"}:
        guard.act("device", "changes the partitions of a disk", words)


def disk(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    dry = has_flag(words[1:], "--help", "-n", "--no-act", "-V", "--version", "-l", "--list")
    if not dry and (len(words) > 1):
        guard.act("device", f"{words[0]} destroys what is on {words[-1]}", words, words[-1])


def rsync(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    if has_flag(words[1:], "-n", "--dry-run", "--help", "--list-only"):
        return
    valued = "-e -f --exclude --include --filter --rsh --exclude-from --include-from --files-from --log-file --timeout"
    places = operands(
        words[1:], valued + " --partial-dir --backup-dir --bwlimit --timeout --chmod --chown --password-file"
    )
    if has_flag(words[1:], "--remove-source-files", "--remove-sent-files"):
        for place in places[:-1]:
            lose_place(guard, place, state, words, "removes")
    if len(places) > 1 and not state.remote and os.path.isfile(state.path(places[-1])):
        copy(guard, ["cp", *places], state, stdin)
    deletes = any(word == "--del" or word.startswith("--delete") for word in words)
    if not deletes or len(places) < 2:
        return
    lose_place(guard, places[-1], state, words, "deletes in")
    target, excluded = places[-1].rstrip("/"), [value.strip("/") for value in values_of(words, "--exclude")]
    if "--delete-excluded" in words:
        for name in excluded:
            lose_place(guard, f"{target}/{name}", state, words, "deletes in")
    elif ":" in target and not state.remote:  # a mirror of what holds results holds results
        rows = [name for place in places[:-1] if place.endswith(("/", ".")) for name in here(guard, place, state)]
        guard.lose(
            [row for row in rows if row.rpartition("/")[2] not in excluded], state, words, "mirrors with --delete"
        )


def here(guard: Walker, place: str, state: State) -> list[str]:
    return [
        f"{state.path(place).rstrip('/')}/{name}" for name, _ in guard.precious.entries(state.path(place).rstrip("/"))
    ]


def values_of(words: list[str], *names: str) -> list[str]:
    """Each value of an option that may come several times."""
    given = [option(words[i : i + 2], *names) for i, word in enumerate(words) if word.startswith("-")]
    return [value for value in given if value]


def scp(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    places = operands(words[1:], "-c -D -F -i -J -l -o -P -S -X")
    if "/dev/null" in places[:-1]:
        lose_place(guard, places[-1], state, words, "empties")
    elif len(places) > 1 and not state.remote and os.path.isfile(state.path(places[-1])):
        copy(guard, ["cp", *places], state, stdin)


def lose_place(guard: Walker, place: str, state: State, words: list[str], verb: str) -> None:
    """HOST:DIR is on another machine."""
    host, colon, path = place.partition(":")
    if colon and "/" not in host:
        guard.lose([path.lstrip(":") or "~"], state.elsewhere(), words, verb)
    else:
        guard.lose([place], state, words, verb)


def storage(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """rclone, aws s3, gsutil, gcloud storage, hf: buckets are judged by name."""
    rest = operands(words[1:], "--profile --region --project --endpoint-url -o -h -u --exclude --include")
    verbs = {word for word in rest[:3] if ":" not in word}
    if has_flag(words[1:], "--dryrun", "--dry-run", "-n", "--help") or not verbs:
        return
    there = state.elsewhere()
    there.cwd = ""
    places = [word.partition(":")[2] if "://" not in word else word for word in rest if ":" in word]
    places = rest[1:] if words[0] == "mc" else places
    if verbs & {"rb", "mb-delete", "purge"} or ("buckets" in verbs and "delete" in verbs):
        guard.act("path", f"{words[0]} removes {places[-1:] or rest[-1:]}", words, " ".join(places))
    elif verbs & {"rm", "delete", "deletefile", "remove", "cleanup", "rmdirs"}:
        guard.lose(places, there, words, "removes")
        if has_flag(words[1:], "-r", "-R", "--recursive") and any(p.count("/") <= 3 for p in places if "://" in p):
            guard.act("path", f"empties {places[-1]}", words, places[-1])
    elif verbs & {"sync", "rsync"} and (
        words[0] == "rclone" or has_flag(words[1:], "--delete", "-d", "--delete-unmatched-destination-objects")
    ):
        lose_place(guard, rest[-1], there if "://" in rest[-1] else state, words, "deletes in")
    elif verbs & {"mv", "move", "moveto"}:
        for place in rest[rest.index("mv" if "mv" in verbs else "move" if "move" in verbs else "moveto") + 1 : -1]:
            lose_place(guard, place, state, words, "moves away")


def git(guard: Walker, words: list[str], state: State, stdin: str) -> None:
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
    own = inner.aliases.pop(f"git {verb}", "")
    if own.startswith("!"):
        guard.script(" ".join([own[1:], *rest]), inner)
    elif own:
        git(guard, [words[0], *shlex_words(own), *rest], inner, stdin)
    elif verb == "config" and len(given) > 1 and given[0].startswith("alias."):
        state.aliases["git " + given[0][6:]] = given[1]
    elif verb in ("bisect", "submodule", "rebase", "difftool"):
        told = re.sub(r"^(?:run|(?:--recursive )?foreach(?: --recursive)?) ", "", " ".join(rest))
        guard.script(option(rest, "-x", "--exec", "--extcmd") or (told if verb[0] in "bs" else ""), inner)
    else:
        git_removes(guard, words, verb, rest, inner, forced)
    if verb == "stash" and has_flag(rest, "-a", "--all", "-u", "--include-untracked"):
        state.variables["stashed"] = "untracked"


def git_removes(guard: Walker, words: list[str], verb: str, rest: list[str], inner: State, forced: bool) -> None:
    if verb == "purge" and words[0] == "hg" and not has_flag(rest, "-p", "--print"):
        git_clean(guard, ["-d", *operands(rest, "-X -I")], inner, words)
    elif verb == "clean" and (forced or has_flag(rest, "-f", "--force")) and not has_flag(rest, "-n", "--dry-run"):
        git_clean(guard, rest, inner, words)
    elif verb == "rm" and not has_flag(rest, "--cached", "-n", "--dry-run"):
        guard.lose(operands(rest), inner, words, "removes", has_flag(rest, "-r"))
    elif verb == "worktree" and rest[:1] == ["remove"]:
        guard.lose(operands(rest[1:]), inner, words, "removes")
    elif verb == "stash" and rest[:1] in (["drop"], ["clear"]) and inner.variables.get("stashed"):
        guard.lose(["."], inner, words, "drops")


def git_clean(guard: Walker, rest: list[str], state: State, words: list[str]) -> None:
    """-e and a pathspec limit it; without -d no folder goes."""
    excluded = [rest[i + 1].strip("/*") for i, word in enumerate(rest[:-1]) if word in ("-e", "--exclude")]
    excluded += [word.partition("=")[2].strip("/*") for word in rest if word.startswith("--exclude=")]
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
    for word in words[:1]:
        match = re.fullmatch(r"-(\d+|(?:SIG)?[A-Z][A-Z0-9]+)", word)
        named = match[1] if match else named
    return (named or "TERM").removeprefix("SIG")


def one_letter(text: str) -> str:
    """[t]rain.py, a pattern that does not find its own grep."""
    return re.sub(r"\[(\w)\]", r"\1", text)


def kill(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    if signal_of(words[1:]) in _HARMLESS_SIGNALS or has_flag(words[1:], "-l", "-L", "--list", "--help"):
        return
    rest = words[2:] if words[1:2] and words[1].startswith("-") else words[1:]
    for pid in [one_letter(word) for word in rest if not re.fullmatch(r"-{1,2}|-[a-zA-Z]\w*|[A-Z]+", word)]:
        known = pid.replace("\ue006", " ")
        if pid == "-1":
            guard.act("kill", "kills every process of this user", words, pid)
        elif "\ue001" in pid and "$!" not in pid:
            if _TRAINS.search(known) and not _TOOLS.search(known):
                guard.act("kill", f"kills {known}", words, pid)
        elif re.fullmatch(r"-?\d+", pid) and not state.remote:
            from rgt.guard import processes_here

            why = processes_here.foreign_training(int(pid.lstrip("-")))
            if why:
                guard.act("kill", f"kills {pid}: {why}", words, pid)


def pkill(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """pkill, killall, skill, Stop-Process: by name, by user."""
    if signal_of(words[1:]) in _HARMLESS_SIGNALS or has_flag(words[1:], "--help", "-l", "--list", "--version"):
        return
    options = [word for word in words[1:] if not re.fullmatch(r"-[A-Z0-9]{2,}", word)]
    if words[0] in ("pkill", "skill", "killall") and has_flag(options, "-u", "-U", "-t", "--euid", "--user"):
        guard.act("kill", "kills what a user runs", words)
        return
    valued = "-s --signal -g -G -P -u -U -t -o --older-than -y"
    names = [word for word in operands(words[1:], valued) if word]
    names += [word for word in words[1:] if re.fullmatch(r"-[a-z]*f.+", word) and words[0] == "pkill"]
    names = names or [stdin.replace("\ue006", " ")]
    text = one_letter(" ".join(names))
    if (_TRAINS.search(text) and not _TOOLS.search(text)) or any(n in (".", ".*", "*") for n in names):
        guard.act("kill", f"kills every process called {text}", words, text)
    elif words[0] == "killall5":
        guard.act("kill", "kills every process", words)


def fuser(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    if has_flag(words[1:], "-k", "--kill") and re.search(r"nvidia|\.pt|runs|ckpt", " ".join(words)):
        guard.act("kill", "kills what uses the GPU or the results", words)


def power(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    posix = [] if "-" in words[0] else ["-c", "-k", "-w"]
    harmless = has_flag(words[1:], *posix, "--help", "--version", "--show", "--wtmp-only") or {"/a", "/?"} & set(words)
    if not harmless:
        guard.act("end", f"{words[0]} ends this machine and all that runs on it", words)


def login_manager(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """busctl call ... org.freedesktop.login1.Manager PowerOff"""
    if re.search(r"login1.*\b(?:PowerOff|Reboot|Halt|Suspend|Hibernate|KExec)\b", " ".join(words)):
        power(guard, words[:1], state, stdin)


def systemctl(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    rest = operands(words[1:], "-H -M -t -p --host --machine --type")
    if rest[:1] and rest[0] in ("stop", "kill", "restart", "disable", "isolate") and _TRAINS.search(" ".join(rest[1:])):
        guard.act("kill", f"ends the service {' '.join(rest[1:])}", words)


def docker(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """exec and run start commands inside; what ends or removes is in the table."""
    rest = operands(words[1:], "-H --host --context -c")
    rest = rest[1:] if rest[:1] == ["compose"] else rest
    if not rest or rest[0] not in ("exec", "run"):
        return
    valued = set(
        """-e -u -w -v -p -l -m --env --user --workdir --volume --name --gpus --mount --network --shm-size --env-file
        --entrypoint --ipc --ulimit --cpus --memory --runtime --label --add-host --platform""".split()
    )
    image, *after = after_options(words[words.index(rest[0]) + 1 :], valued) or [""]
    client = re.sub(r"[:@].*|-cli\b.*", "", image.rpartition("/")[2])  # docker run amazon/aws-cli ec2 ...
    entry = option(words, "--entrypoint") or (client if rest[0] == "run" and client in guard.table.commands else "")
    command = ([entry] if entry else []) + after
    if command:
        programs.inside(guard, command, state, stdin, mounts(words, state))


def mounts(words: list[str], state: State) -> dict[str, str]:
    """Folders of the container that are folders of ours: -v HERE:THERE, --mount source=HERE,target=THERE."""
    found = {}
    for i, word in enumerate(words):
        pair = option(words[i : i + 2], "-v", "--volume") if word.startswith(("-v", "--volume")) else None
        if pair and pair.count(":") and pair.startswith(("/", ".", "~")):
            here, there = pair.split(":")[:2]
            found[there.rstrip("/")] = state.path(here).rstrip("/")
        named = option(words[i : i + 2], "--mount") if word.startswith("--mount") else None
        parts = dict(part.split("=", 1) for part in (named or "").split(",") if "=" in part)
        here, there = parts.get("source", parts.get("src", "")), parts.get("target", parts.get("dst", ""))
        if here and there and here.startswith(("/", ".", "~")):
            found[there.rstrip("/")] = state.path(here).rstrip("/")
    return found


def kubectl(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    if has_flag(words[1:], "--help") or (has_flag(words[1:], "--dry-run") and option(words[1:], "--dry-run") != "none"):
        return
    rest = operands(
        words[1:],
        "-n --namespace --context -l --selector -f --filename -c --container --kubeconfig -o --replicas --timeout",
    )
    verb = rest[0] if rest else ""
    if verb == "exec" and "--" in words:
        programs.inside(guard, words[words.index("--") + 1 :], state, stdin)
    elif verb == "exec":
        programs.inside(guard, rest[2:], state, stdin) if len(rest) > 2 else None
    elif verb == "delete":
        kinds = rest[1].partition("/")[0].lower().split(",") if len(rest) > 1 else [""]
        if not all(kind.rstrip("s") in _KINDS or kind in _KINDS for kind in kinds):
            guard.act("end", f"kubectl delete {' '.join(rest[1:3])}", words, rest[-1], "generic-ssh:k8s", rest[-1])
    elif verb == "drain" or (verb == "scale" and option(words[1:], "--replicas") == "0"):
        guard.act("end", f"kubectl {verb} ends pods", words, rest[-1])
    elif verb == "replace" and has_flag(words[1:], "--force"):
        guard.act("end", "kubectl replace --force deletes first", words, rest[-1])


def web_client(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """curl and wget."""
    methods, bodies, outputs, valued = (row.split() for row in _WEB["wget" if words[0] == "wget" else "curl"])
    urls = operands(words[1:], " ".join([*methods, *bodies, *outputs, *valued])) + values_of(words, "--url")
    data = " ".join(
        stdin if value == "@-" else guard.content(value[1:], state) if value[:1] == "@" else value
        for value in values_of(words, *bodies)
    )
    method = (option(words[1:], *methods) or ("POST" if data else "GET")).upper()
    method = "GET" if words[0] != "wget" and has_flag(words[1:], "-G", "--get", "-I", "--head") else method
    for url in urls:
        guard.request(method, url, data, words)
    target = option(words[1:], *outputs)
    if target and target != "-":
        guard.overwrite(target, state, words)


def httpie(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    if has_flag(words[1:], "--offline"):
        return
    rest = operands(words[1:], "-a --auth -A --auth-type -o --output --timeout")
    method = rest.pop(0).upper() if rest and rest[0].lower() in _METHODS else ""
    if rest:
        data = " ".join(rest[1:]) + stdin
        guard.request(method or ("POST" if re.search(r"\S:?=\S", " ".join(rest[1:])) else "GET"), rest[0], data, words)


def invoke_request(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    lower = [word.lower() if word.startswith("-") else word for word in words]
    url = option(lower, "--uri", "-uri") or next((word for word in words if "://" in word), "")
    method = lower[lower.index("-method") + 1] if "-method" in lower[:-1] else "GET"
    guard.request(method.upper(), url, " ".join(words), words)


def interpreter(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    from rgt.guard import python_acts

    python_acts.interpreter(guard, words, state, stdin)


def tar(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    removes = has_flag(words[1:], "--remove-files") if words[0] == "tar" else has_flag(words[1:], "-m", "--move")
    if removes:
        guard.lose(operands(words[1:], "-f -C")[1 if words[0] == "zip" else 0 :], state, words, "removes")


def sftp(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    text = option(words[1:], "-e", "-c") or stdin
    if text and not text.startswith("\ue001"):
        guard.script(text.replace("mrm ", "rm ").replace("rmdir ", "rm -r "), state.elsewhere())


def make(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    from rgt.guard import recipes

    if not has_flag(words[1:], "-n", "--dry-run", "--just-print", "--recon"):
        recipes.walk(guard, words, state)


def gcloud(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    storage(guard, words, state, stdin)
    if "ssh" in words[1:6] and "--" in words:
        guard.script(" ".join(words[words.index("--") + 1 :]), state.elsewhere(), stdin)
    elif "ssh" in words[1:6]:
        programs.remote_text("--command")(guard, words, state, stdin)
    elif "ssm" in words[1:3]:
        programs.remote_text("--parameters")(guard, words, state, stdin)
    elif "run-command" in words[1:4]:
        programs.remote_text("--scripts")(guard, words, state, stdin)
    elif words[1:2] == ["rest"]:
        url = option(words, "--url", "--uri", "-u") or ""
        guard.request(
            (option(words, "--method", "-m") or "get").upper(), url, option(words, "--body", "-b") or "", words
        )


def ansible(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    module, told = option(words[1:], "-m", "--module-name") or "", option(words[1:], "-a", "--args") or ""
    if module.endswith("reboot"):
        power(guard, words, state, stdin)
    elif module.endswith("file") and "state=absent" in told:
        path = re.search(r"(?:path|dest|name)=(\S+)", told)
        guard.lose([path[1]] if path else [], state.elsewhere(), words, "removes")


def sky(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    """sky exec CLUSTER COMMAND, vastai execute ID COMMAND: on another machine."""
    rest = operands(words[1:], "-c -n --env --cluster")
    if rest[:1] in (["exec"], ["execute"]) and len(rest) > 2:
        guard.script(" ".join(words[words.index(rest[1]) + 1 :]), state.elsewhere(), stdin)


HANDLERS = {
    **dict.fromkeys(
        (
            "rm",
            "unlink",
            "srm",
            "trash",
            "trash-put",
            "gio",
            "del",
            "erase",
            "rd",
            "rmdir",
            "rimraf",
            "Remove-Item",
            "ri",
        ),
        rm,
    ),
    **dict.fromkeys(("cp", "mv", "install", "ln", "move", "Copy-Item", "Move-Item", "rename"), copy),
    **dict.fromkeys(("truncate", "Clear-Content"), truncate),
    **dict.fromkeys(_DISK_TOOLS, disk),
    **dict.fromkeys(_OFF, power),
    **dict.fromkeys(("pkill", "killall", "skill", "killall5", "Stop-Process", "taskkill"), pkill),
    **dict.fromkeys(("docker", "podman", "nerdctl", "docker-compose", "apptainer", "singularity"), docker),
    **dict.fromkeys(("kubectl", "oc", "k", "microk8s.kubectl", "k3s"), kubectl),
    **dict.fromkeys(("http", "https", "xh", "xhs", "httpie"), httpie),
    **dict.fromkeys(("Invoke-RestMethod", "Invoke-WebRequest", "irm", "iwr"), invoke_request),
    **dict.fromkeys(("python", "python2", "python3", "pypy3", "ipython", "node", "nodejs", "deno", "bun"), interpreter),
    **dict.fromkeys(
        ("perl", "ruby", "php", "lua", "julia", "Rscript", "osascript", "awk", "gawk", "mawk", "nawk", "tclsh"),
        interpreter,
    ),
    **dict.fromkeys(("rclone", "gsutil", "s3cmd", "mc", "s5cmd", "ossutil", "oss", "hf", "huggingface-cli"), storage),
    **dict.fromkeys(("gcloud", "aws", "az"), gcloud),
    **dict.fromkeys(("sky", "vastai"), sky),
    **dict.fromkeys(("tar", "zip", "7z"), tar),
    **dict.fromkeys(("sftp", "lftp"), sftp),
    **dict.fromkeys(("make", "gmake", "just", "npm", "yarn", "pnpm"), make),
    "parted": parted,
    "ansible": ansible,
    "shred": shred,
    "dd": dd,
    "rsync": rsync,
    "scp": scp,
    **dict.fromkeys(("git", "hg"), git),
    **dict.fromkeys(("busctl", "dbus-send", "gdbus"), login_manager),
    "kill": kill,
    "fuser": fuser,
    "systemctl": systemctl,
    **dict.fromkeys(("curl", "curlie", "wget"), web_client),
}
CMDLETS = {name.lower(): name for name in (*HANDLERS, *programs.PROGRAMS) if "-" in name and name[0].isupper()}
