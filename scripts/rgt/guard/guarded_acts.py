"""Which commands destroy results, end machines or end other people's processes: the acts of one command line.

    Guard(table, cwd, environ).judge("cd runs && rm -rf *")  ->  [Act("path", "rm removes ...", ...)]

Providers' clients, hosts and SDK calls come from the profiles by a generated table; what belongs to no platform (rm,
find, kill, dd) is here.
"""

from __future__ import annotations

import os
import re

from rgt.guard import shell_programs as programs
from rgt.guard.argument_words import has_flag, option, shlex_words
from rgt.guard.destructive_programs import CMDLETS, DEVICE, HANDLERS
from rgt.guard.guarded_code import Act, Table, shown
from rgt.guard.lazy_regex import Regex
from rgt.guard.precious_paths import UNKNOWN, Precious, marker
from rgt.guard.shell_walk import TEXT, State, TooMuch, Walker

ACTS = 50  # kept of one line
_VERBS = (
    "terminate|stop(?:ped)?|power[-_]?off|shut[-_]?down|release|destroy|delete|remove|deallocate|cancel|reset|halt|suspend"
    "|pause|reboot|restart|kill|recycle|prune"
)
_ENDS = Regex(rf"(?i)(?:^|[^a-z])(?:{_VERBS})(?:[^a-z]|$)")
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
_RESOURCES = Regex(r"(?i)/(?:pods?|instances?|machines?|volumes?|servers?|droplets?|notebooks?|clusters?|disks?)\b")
_BESIDE = Regex(r"volume|drive|storage|snapshot|bucket|\bjobs\b|template|endpoint|serverless")
_OURS = Regex(r"(?:.*/)?(?:rgt|rgt\.pyz)$|.*/scripts/(?:transfer|checkpoints|gpu_gate|launch|guard|lease)\.py$")


class Guard(Walker):
    def __init__(self, table: Table, cwd: str, environ: dict[str, str]) -> None:
        home = environ.get("HOME", "/root").rstrip("/") or "/"
        super().__init__(Precious(table.tiers, home), table)
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
        if DEVICE.match(place) or place == "/proc/sysrq-trigger":
            self.act("device", f"writes over {place}", [*words, ">", path], place)
        elif state.remote or "\ue001" in place or not os.path.exists(place):
            empties = not words or words[0] in (":", "true") or words[:2] == ["cat", "/dev/null"]
            empties = empties or (words[0] in ("echo", "printf") and "".join(words[1:]).strip(" -n") == "")
            if empties and (state.remote or place.startswith("/")):
                self.lose([path], state, [*words, ">", path], "empties")
        elif os.path.isfile(place) and os.path.getsize(place) >= 0:
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
        if _OURS.match(words[0]) or (name.startswith("python") and any(map(_OURS.match, words[1:3]))):
            return self.ours(words, state, stdin)
        if name in self.table.commands and self.client(name, words, state):
            return ""
        handler = HANDLERS.get("mkfs" if name.startswith("mkfs.") else name)
        if handler and not ("-" in name and "-WhatIf" in words):
            handler(self, [name, *words[1:]], state, stdin)
        if name in programs.TEXT_OPTIONS:
            programs.texts(self, [name, *words[1:]], state, stdin)
        program = programs.PROGRAMS.get(name)
        if program or handler:
            return program(self, [name, *words[1:]], state, stdin) if program else marker(" ".join(words))
        if "/" in words[0] or name.endswith((".sh", ".py", ".bash")):
            return self.file(words[0], words[1:], state, stdin, "")
        programs.carried(self, [name, *words[1:]], state)
        return marker(stdin[:250].strip() + " " + " ".join(words)[:200])

    def knows(self, name: str) -> bool:
        return name in HANDLERS or name in self.table.commands

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

    # -- clients of the profiles

    def client(self, name: str, words: list[str], state: State) -> bool:
        if has_flag(words[1:], "--help") or words[1:2] in (["help"], ["--version"]) or words[-1] == "-h":
            return True
        if words[-1] == "help" and name in ("aws", "aliyun", "tccli", "oci"):
            return True
        dry = has_flag(words, "--dry-run", "--dryrun") and option(words, "--dry-run") != "none"
        if dry and name in ("kubectl", "aws", "helm", "systemctl", "docker", "podman", "docker-compose"):
            return True
        if name == "aws" and any(word.startswith("--generate-cli-skeleton") for word in words):
            return True
        if name == "scancel" and (option(words, "-s", "--signal") or "").removeprefix("SIG") in (
            "USR1",
            "USR2",
            "CONT",
        ):
            return True
        for profile, pattern in self.table.commands[name]:
            rest = matched(pattern.split(), words[1:])
            if rest is not None:
                box = rest[0] if rest else ""
                told = " ".join(words[:6])
                self.act("end", f"`{told}` ends, stops or deletes what is rented or shared", words, box, profile, box)
                return True
        return False

    def request(self, method: str, url: str, data: str, words: list[str]) -> None:
        """An HTTP call that ends something: at a provider's host, at the API of docker or kubernetes, by its Action."""
        host = re.sub(r"^[a-z+]*:?//", "", url).partition("/")[0].partition("?")[0].rpartition("@")[2].partition(":")[0]
        path = url.partition(host)[2] if host else url
        known = [one for one in self.table.hosts if is_host_of(f".{host.lower()}", one)]
        profile = self.table.hosts[known[0]] if known else ""
        calls = [call for call in self.table.calls if re.search(rf"\b{re.escape(call)}\b", data + path)]
        told = camel(UNKNOWN.sub("", path))
        graph = "graphql" in path or "query" in data
        engine = bool(_ENGINE.search(" ".join(words))) or bool(_CLUSTER.search(path))
        known_place = known or engine or ("\ue001" in host and bool(_RESOURCES.search(path)))
        if method == "DELETE":
            ends = bool(known_place) and not (engine and path.split("/")[-2:-1] == ["images"])
        elif graph:
            ends = bool(calls) or bool(known_place and "mutation" in data and _ENDS.search(f"{told} {camel(data)}"))
        elif method in ("GET", "HEAD"):
            ends = bool(known and _LAST.search(path.partition("?")[0]))
        else:
            ends = bool(known_place and (_ENDS.search(told) or _VALUE.search(data) or calls))
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
            from rgt.guard import python_acts

            python_acts.walk_python(self, text, state, arguments, is_script=True)
            return marker(path)
        if first.startswith("#!") and not re.search(r"\b(?:ba|da|z|k|fi|a)?sh\b", first):
            return marker(path)
        inner = state if language == "sh" else state.copy()
        before, inner.arguments = inner.arguments, arguments
        out = self.script(text[:TEXT], inner, stdin)
        inner.arguments = before
        return out


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


def camel(text: str) -> str:
    """destroyMachine -> destroy Machine"""
    return re.sub(r"([a-z])([A-Z])", r"\1 \2", text)


def is_host_of(host: str, known: str) -> bool:
    """api.autodl.com is www.autodl.com's sister; domains that many services share need the whole name."""
    domain = "." + ".".join(known.split(".")[-2:])
    shared = domain in (".googleapis.com", ".azure.com", ".aliyuncs.com", ".tencentcloudapi.com", ".amazonaws.com")
    if re.match(r"\.(?:docs|blog|status)\.", host):
        return False
    return host.endswith(known if known[0] == "." else f".{known}" if shared else domain)
