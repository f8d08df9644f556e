"""Which commands destroy results, end machines or end other people's processes: the acts of one command line.

    Guard(table, cwd, environ).judge("cd runs && rm -rf *")  ->  [Act("path", "rm removes ...", ...)]

Platforms' clients, hosts and SDK calls come from the profiles by a generated table, and by their verbs.
"""

from __future__ import annotations

import os

from rgt.guard import ending_verbs
from rgt.guard.argument_words import has_flag, operands, option, shlex_words, values_of
from rgt.guard.ending_verbs import ended_by, is_dry, parts
from rgt.guard.guarded_code import Act, Table, shown
from rgt.guard.lazy_regex import Regex, re
from rgt.guard.losing_programs import DEVICE, LOSING, lose_place
from rgt.guard.precious_paths import UNKNOWN, Precious, marker
from rgt.guard.printing_programs import PRINTING
from rgt.guard.shell_walk import TEXT, State, TooMuch, Walker
from rgt.guard.starting_programs import DATA, ESCAPING, STARTING, TOOLS, carried, escaping, mounts, option_texts

ACTS = 50  # kept of one line
_VERBS = (
    "terminated?|stop(?:ped)?|power[-_]?off|shut[-_]?down|release|destroy|deleted?|remove|deallocate|cancel|reset|halt"
    "|suspend|pause|reboot|restart|kill|recycle|prune|hibernate|abort"
)
_LAST = Regex(rf"(?i)[/:](?:{_VERBS})(?:[-_]\w+)?/?$")
_VALUE = Regex(
    rf"(?i)[\"'](?:{_VERBS}|exited)(?:[-_ ]?(?:instance|pod|machine|vm)s?)?[\"'](?!\s*:\s*\[)"
    rf"|[=:]\s*(?:{_VERBS})(?=[\s&,}}]|$)"
)
_ACTION = Regex(
    r"Action[\"']?\s*[=:]\s*[\"']?(?:Stop|Terminate|Delete|Release|PowerOff|Poweroff|Reboot|Destroy|Remove)\w+"
)
_ENGINE = Regex(r"(?:docker|podman|containerd)\.sock|:237[56]\b")
_CLUSTER = Regex(r"/apis?/[\w./]*namespaces/")
_BESIDE = Regex(r"volume|drive|storage|snapshot|bucket|\bjobs\b|template|endpoint|serverless")
_OURS = Regex(r"(?:.*/)?(?:rgt|rgt\.pyz)$|.*/scripts/(?:transfer|checkpoints|gpu_gate|launch|guard|lease)\.py$")
_BUCKETS = set(
    "rclone gsutil s3cmd mc s5cmd ossutil ossutil64 oss b2 azcopy coscmd obsutil qshell bce hdfs hadoop juicefs".split()
)
_MOVES, _MIRRORS = {"mv", "move", "moveto"}, {"sync", "rsync", "mirror"}
_EMPTIES = {"rm", "rmr", "delete", "del", "remove", "deletefile", "cleanup", "rmdirs", "dedupe"}
_PLACE = Regex(
    r"(?:s3|gs|r2|oss|cos|obs|b2|abfss?|wasbs?|lakefs|hf|dbfs|swift|az|gcs|minio|tos|bos)://|[\w.-]{2,}:(?!/?\d|//)"
)
_MADE = Regex("\ue001(?:docker|podman|nerdctl)\ue006(?:container\ue006)?(?:run|create)\ue006")
_ERASES = set("delete remove purge wipe erase clean prune del rm sdel deleteduplicates trash discard".split())
CMDLETS = {name.lower(): name for name in (*LOSING, *STARTING, *PRINTING) if "-" in name and name[0].isupper()}


class Guard(Walker):
    def __init__(self, table: Table, cwd: str, environ: dict[str, str]) -> None:
        home = environ.get("HOME", "/root").rstrip("/") or "/"
        super().__init__(Precious(table.tiers, home, cwd), table)
        self.state = State(cwd, environ, home)
        self.files_read = 0

    def judge(self, line: str) -> list[Act]:
        self.script(line, self.state)
        return self.acts

    def judge_words(self, words: list[str]) -> list[Act]:
        self.run(words, self.state, "")
        return self.acts

    # -- what is found

    def act(
        self, kind: str, sentence: str, words: list[str], target: str = "", profile: str = "", box: str = ""
    ) -> None:
        """`profile` when its `down` would do it: not for what only belongs to a machine, such as a volume."""
        if len(self.acts) < ACTS:
            covered = profile if profile in self.table.downs and not _BESIDE.search(sentence) else ""
            import shlex

            command = shlex.join(shown(word) for word in words)
            self.acts.append(Act(kind, sentence, command, target or command, covered, box))

    def lose(self, paths: list[str], state: State, words: list[str], verb: str, whole: bool = True) -> None:
        for path in paths:
            place = state.path(path)
            ours = any(place.startswith(here) for here in state.mounts.values())
            place = next(iter(self.glob(place, self.state)), place) if ours and "*" in place else place
            lost = self.precious.lost(place, state.remote and not ours, whole)
            if lost:
                self.act("path", f"{verb} {path}: {lost} is lost", words, place.rstrip("/"))
                return

    def overwrite(self, path: str, state: State, words: list[str]) -> None:
        """`>`, tee, cp over a file that is there; on another machine only what is emptied."""
        place = state.path(path)
        if place.startswith(("/dev/", "/proc/")) and (DEVICE.match(place) or place == "/proc/sysrq-trigger"):
            self.act("device", f"writes over {place}", [*words, ">", path], place)
        elif state.remote or "\ue001" in place or not os.path.exists(place):
            empties = not words or words[0] in (":", "true") or words[:2] == ["cat", "/dev/null"]
            empties = empties or (words[0] in ("echo", "printf") and "".join(words[1:]).strip(" -n") == "")
            if empties and (state.remote or place.startswith("/")):
                self.lose([path], state, [*words, ">", path], "empties")
        elif os.path.isfile(place):
            self.lose([os.path.realpath(place)], state, [*words, ">", path], "overwrites", False)

    # -- one command

    def run(self, words: list[str], state: State, stdin: str) -> str:
        self.step()
        words = [word for i, word in enumerate(words) if i or word]
        if not words:
            return ""
        name = self.program_name(words[0])
        if name in state.functions:
            return self.call_function(name, words, state, stdin)
        if name in state.aliases and state.depth < 8:
            return self.call_alias(name, words, state, stdin)
        told = [words[0], *(words[1:3] if name.startswith("python") else [])]
        if any(one.endswith(("rgt", ".pyz", ".py")) and _OURS.match(one) for one in told):
            return self.ours(words, state, stdin)
        return self.program(words[0], [name, *words[1:]], state, stdin)

    def program(self, path: str, words: list[str], state: State, stdin: str) -> str:
        name = words[0]
        known = name in self.table.commands
        losing = LOSING.get(name) or LOSING.get("mkfs" if name.startswith("mkfs.") else "rm" if is_rm(name) else "")
        program = STARTING.get(name) or PRINTING.get(name)
        if known or not (losing or program or name in DATA):
            if is_dry(words):
                return marker(" ".join(words))
            self.client(words, state, known, generic=not losing)
        out = losing(self, words, state, stdin) if losing and "-WhatIf" not in words else None
        if name in ESCAPING:
            escaping(self, words, state, stdin)
        if program:
            return program(self, words, state, stdin)
        if name in ("tar", "rsync", "scp", "split", "script", "su", "runuser", "hyperfine", "man"):
            option_texts(self, words, state, stdin)
        if losing:
            return out if isinstance(out, str) else marker(" ".join(words))
        if "/" in path or name.endswith((".sh", ".py", ".bash")):
            return self.file(path, words[1:], state, stdin, "")
        if name not in DATA and not re.match(r"(?!Start|Invoke)[A-Z][a-z]+-[A-Z]", name):
            carried(self, words, state, stdin, known)
        return marker(stdin[:250].strip() + " " + " ".join(words)[:200])

    def knows(self, name: str) -> bool:
        return name in LOSING or name in self.table.commands

    def starts(self, name: str) -> bool:
        return name in STARTING or name in PRINTING

    def program_name(self, word: str) -> str:
        """Without its folder; a cmdlet in its usual spelling; $PYTHON, $(which python3): what is known of it."""
        name = os.path.basename(word).removesuffix(".exe")
        if "\ue001" not in word:
            return CMDLETS.get(name.lower(), name) if "-" in name else name
        text = UNKNOWN.sub(lambda match: match[1].replace("\ue006", " "), name).lower()
        match = re.search(r"(python|bash|node|perl|kubectl|docker|rsync|curl|ssh|\brm\b)", text)
        return match[1] if match else name

    def call_alias(self, name: str, words: list[str], state: State, stdin: str) -> str:
        inner = state.copy()
        text = inner.aliases.pop(name)
        if re.search(r"[;&|]", text):
            return self.script(text, inner, stdin)
        return self.run([*shlex_words(text), *words[1:]], inner, stdin)

    def call_function(self, name: str, words: list[str], state: State, stdin: str) -> str:
        if state.depth > 8:
            return ""
        state.depth += 1
        before, state.arguments = state.arguments, words[1:]
        out = self.walk(state.functions[name], state, stdin)
        state.arguments = before
        state.depth -= 1
        return out

    def ours(self, words: list[str], state: State, stdin: str) -> str:
        """Our tools keep the law themselves; a job that follows -- is a command like any other."""
        if "approve" in words and "\ue001" in (option(words, "--words") or ""):
            self.act("approve", "an approval needs the user's words, not a command's output", words)
        if "guard" not in words[1:3] and not words[0].endswith("guard.py") and "--" in words:
            return self.run(words[words.index("--") + 1 :], state, stdin)
        return marker(" ".join(words))

    # -- clients: by the verbs of the profiles, then by any verb that ends

    def client(self, words: list[str], state: State, known: bool, generic: bool) -> None:
        name, told = words[0], " ".join(words[:6])
        if (generic and self.storage(words, state)) or (known and made_here(words, state)):
            return
        signal = (option(words, "-s", "--signal") or "").removeprefix("SIG") if name == "scancel" else ""
        for profile, pattern in self.table.commands.get(name, []):
            rest = matched(pattern.lstrip("!").split(), words[1:])
            if rest is not None and not pattern.startswith("!") and signal not in ("USR1", "USR2", "CONT"):
                box = rest[0] if rest else ""
                self.act("end", f"`{told}` ends, stops or deletes what is rented or shared", words, box, profile, box)
            if rest is not None:
                return
        if not generic or name in TOOLS:
            return
        at = ended_by(words, known)
        if at or (known and ending_verbs.empties(words)):
            rest = [word for word in words[at + 1 :] if not word.startswith("-")] if at else []
            box = rest[0] if rest else ""
            self.act("end", f"`{told}` ends, stops or deletes what is rented or shared", words, box)
        elif not known and any(word.lstrip("-").split("=")[0] in _ERASES for word in words[1:]):
            self.lose([one for one in words[1:] if os.path.exists(state.path(one))], state, words, "removes")
        elif not known:
            target = option(words[1:], "-o", "-O", "--output", "--out", "--outfile")
            folder = option(words[1:], "-d", "--dir") or "."
            for path in [target, f"{folder}/{target}"] if target and not state.remote else []:
                if os.path.isfile(state.path(path)):
                    self.overwrite(path, state, words)
                    break

    def storage(self, words: list[str], state: State) -> bool:
        """rclone, aws s3, gsutil, hf: what is in buckets is judged by name. Whether these words are about a bucket."""
        rest = operands(words[1:], "--profile --region --project --endpoint-url -o -h -u --exclude --include")
        places = [word for word in rest if _PLACE.match(word)]
        if words[0] in _BUCKETS:
            places = places if words[0] == "rclone" and places else rest[1:]
        elif not any("://" in place for place in places) or words[0] in ("curl", "terraform", "optuna", "mlflow"):
            return False
        verbs = {part for word in words[1:6] if word not in places[:1] for part in parts(word)}
        if has_flag(words[1:], "-n"):
            return True
        there, sources = state.elsewhere(), places[:-1] or places
        there.cwd = ""
        bare = [one if "://" in one else one.partition(":")[2] or one for one in places]
        verbs &= _MOVES | _EMPTIES | {"rb", "purge", "bucket"} | _MIRRORS
        deletes = words[0] in ("rclone", "s5cmd") or any(
            re.match(r"--(?:del|remove)|-d$", word) and not word.endswith("=false") for word in words
        )
        if verbs & {"rb", "purge"} or verbs >= {"bucket", "delete"}:
            self.act("path", f"{words[0]} removes {' '.join(places)}", words, " ".join(places))
        elif verbs & _EMPTIES:
            self.lose(bare, there, words, "removes")
            if has_flag(words[1:], "-r", "-R", "--recursive") and any(p.count("/") <= 3 for p in bare if "://" in p):
                self.act("path", f"empties {bare[-1]}", words, bare[-1])
        elif verbs & _MIRRORS and deletes and places:
            target = rest[-1]
            lose_place(self, target, there if "://" in target else state, words, "deletes in")
        elif verbs & _MOVES:
            for place in [one for one in rest[:-1] if one in sources or os.path.exists(state.path(one))]:
                lose_place(self, place, there if "://" in place else state, words, "moves away")
        return bool(verbs)

    def request(self, method: str, url: str, data: str, words: list[str]) -> None:
        """An HTTP call that ends something: by its method, path, Action or body, at a host that is known or a thing."""
        host = re.sub(r"^[a-z+]*:?//", "", url).partition("/")[0].partition("?")[0].rpartition("@")[2].partition(":")[0]
        path = url.partition(host)[2] if host else url
        known = [one for one in self.table.hosts if is_host_of(f".{host.lower()}", one)]
        profile = self.table.hosts[known[0]] if known else ""
        named = [one for one in parts(UNKNOWN.sub("", path.partition("?")[0])) if one != "api"]
        engine = bool(_ENGINE.search(" ".join(words))) or bool(_CLUSTER.search(path))
        place = engine or ending_verbs.about([*named, *(["job"] if engine else [])], bool(known))
        calls = any(re.search(rf"\b{re.escape(call)}\b", data + path) for call in self.table.calls)
        if method == "DELETE":
            ends = place and not (engine and path.split("/")[-2:-1] == ["images"])
        elif method in ("GET", "HEAD", "OPTIONS"):
            ends = bool(known and method == "GET" and _LAST.search(path.partition("?")[0]))
        elif "graphql" in path or re.match(r"\s*\{\s*[\"']query", data):
            asked = re.findall(r"\b[a-zA-Z]\w+(?=\s*\()", data) if "mutation" in data else []
            ends = calls or any(ending_verbs.is_ending_call(one, bool(known)) for one in asked)
        else:
            said = ending_verbs.ENDS.intersection(named) or _VALUE.search(data) or ending_verbs.empties(["", data])
            ends = place and bool(said or calls)
        if ends or _ACTION.search(f"{path} {data}"):
            box = re.split(r"[/?]", path.rstrip("/"))[-1]
            self.act("end", f"{method} {url} ends or stops it", words, box, profile, box if method == "DELETE" else "")

    # -- scripts

    def file(self, path: str, arguments: list[str], state: State, stdin: str, language: str) -> str:
        """A script that is named on the line: read and walked."""
        key = state.path(path)
        if language == "" and key not in state.files and not os.access(key, os.X_OK):
            return marker(path)
        text = self.content(path, state)
        if text.startswith("\ue001") or "\0" in text[:1000]:
            return marker(path)
        self.files_read += 1
        if self.files_read > 30:
            raise TooMuch
        first = text.partition("\n")[0]
        if key.endswith(".py") or (first.startswith("#!") and "python" in first):
            from rgt.guard import code_acts

            code_acts.walk_python(self, text, state, arguments, is_script=True)
            return marker(path)
        if first.startswith("#!") and not re.search(r"\b(?:ba|da|z|k|fi|a)?sh\b", first):
            return marker(path)
        inner = state if language == "sh" else state.copy()
        before, inner.arguments = inner.arguments, arguments
        out = self.script(text[:TEXT], inner, stdin)
        inner.arguments = before
        return out


def is_rm(name: str) -> bool:
    """grm, safe-rm, trash-rm, rm-improved: made to do what rm does."""
    return name == "grm" or ("-" in name and not {"rm", "trash", "wipe", "shred"}.isdisjoint(name.split("-")))


def made_here(words: list[str], state: State) -> bool:
    """Ends only what the same line created; a line that creates is remembered, and so is a plan to destroy."""
    verbs = [i for i, word in enumerate(words[:4]) if word in ("run", "create", "launch", "start", "apply", "plan")]
    named = [*values_of(words, "--name", "--profile"), *values_of(words, "-p" if words[0] == "minikube" else "--name")]
    if not verbs and not has_flag(words, "--all", "-l", "--selector", "--filter"):
        asked = [word for word in words[2:] if word[:1] != "-" and word not in ending_verbs.ENDS]
        asked = asked[1:] if asked[1:] and ending_verbs.THINGS.issuperset(parts(asked[0])) else asked
        asked = named or [one.partition("/")[2] or one for one in asked]
        return bool(asked) and all(one in state.made or _MADE.match(one) for one in asked)
    if not verbs:
        return False
    rest = operands(words[verbs[0] + 1 :], "--image --restart")
    if words[0] in ("terraform", "tofu"):
        plan = option([word.replace("-out", "--out", word[:4] == "-out") for word in words], "--out")
        if plan and "-destroy" in words:
            state.files[state.path(plan)] = "-destroy"
        words += [state.files.get(state.path(one), "") for one in rest]
        return False
    if words[verbs[0]] != "start" or named:
        names = named or (rest[:1] if words[verbs[0]] == "run" else rest[:2][-1:])
        state.made.update(dict.fromkeys(names, mounts(words, state)))
    return False


def matched(pattern: list[str], words: list[str]) -> list[str] | None:
    """The operands behind a client's verb, when these words are that verb; options with values may stand between."""
    verbs = [one.split("|") for one in pattern if not one.startswith("-")]
    flags = [one.split("|") for one in pattern if one.startswith("-")]
    if not all(has_flag(words, *one) for one in flags):
        return None
    for i, word in enumerate(words):
        if not verbs:
            return [one for one in words[i:] if not one.startswith("-")]
        if word in verbs[0]:
            verbs.pop(0)
        elif not word.startswith("-") and not (i and words[i - 1].startswith("-") and "=" not in words[i - 1]):
            return None
    return None if verbs else []


def is_host_of(host: str, known: str) -> bool:
    """api.autodl.com is www.autodl.com's sister; domains that many services share need the whole name."""
    domain = "." + ".".join(known.split(".")[-2:])
    shared = domain in (".googleapis.com", ".azure.com", ".aliyuncs.com", ".tencentcloudapi.com", ".amazonaws.com")
    if re.match(r"\.(?:docs|blog|status)\.", host):
        return False
    return host.endswith(known if known[0] == "." else f".{known}" if shared else domain)
