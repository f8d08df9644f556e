"""Which commands destroy results, end machines or end other people's processes: the acts of one command line.

    Guard(table, cwd, environ).judge("cd runs && rm -rf *")  ->  [Act("path", "rm removes ...", ...)]

One command is looked up in this order: the line's own functions and aliases, our tools, the destroyers, what starts or
prints, then any client by its verbs, a script that is named, and words that another program may be started with.
"""

from __future__ import annotations

import os

from rgt.guard import clients, destroyers, outputs, wrappers
from rgt.guard.argument_words import has_flag, option, shlex_words
from rgt.guard.precious_paths import Precious, marker, origin_of
from rgt.guard.quick_start import LIKE, PROGRAMS, WORDS, re
from rgt.guard.shell_walk import LOSES, STARTS, Act, Walker
from rgt.guard.word_expansion import TEXT, State, TooMuch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCRIPTS = 30  # read for one line
_MODULES = {"wrappers": (wrappers, STARTS), "outputs": (outputs, STARTS), "destroyers": (destroyers, LOSES)}
for _function, _names in PROGRAMS["functions"].items():
    _module, _table = _MODULES[_function.partition(".")[0]]
    _table.update(dict.fromkeys(_names.split(), getattr(_module, _function.partition(".")[2])))
STARTS.update(dict.fromkeys(wrappers.STARTERS, wrappers.starter))
LOSES.update(dict.fromkeys(destroyers.ROWS, destroyers.by_row))
_CMDLETS = {name.lower(): name for name in (*LOSES, *STARTS) if "-" in name and name[0].isupper()}


class Guard(Walker):
    def __init__(self, table: dict[str, Any], cwd: str, environ: dict[str, str]) -> None:
        home = environ.get("HOME", "/root").rstrip("/") or "/"
        super().__init__(Precious(table["tiers"], home, cwd), table)
        self.state = State(cwd, environ, home)
        self.files_read = 0

    def judge(self, line: str, words: list[str] | None = None) -> list[Act]:
        """One line of a shell, or the words of one command."""
        again, self.line = self.state.copy(), line
        self.run(words or [], self.state, "")
        self.script(line, self.state)
        if not self.acts and "\\" in line and LIKE.windows_line.search(line):  # PowerShell: .\runs\x
            self.script(re.sub(r"(?<=[\w.:*])\\(?=[\w.*])", "/", line), again)
        return self.acts

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
            inner = state.copy()
            text = inner.aliases.pop(name)
            if re.search(r"[;&|]", text):
                return self.script(text, inner, stdin)
            return self.run([*shlex_words(text), *words[1:]], inner, stdin)
        told = [words[0], *(words[1:3] if name.startswith("python") else [])]
        if any(one.endswith(("rgt", ".pyz", ".py")) and LIKE.our_tool.match(one) for one in told):
            return self.ours(words, state, stdin)
        return self.program(words[0], [name, *words[1:]], state, stdin)

    def program(self, path: str, words: list[str], state: State, stdin: str) -> str:
        name = "rm" if words[0] == "irm" and has_flag(words[1:2], "-r", "-f") else words[0]  # of iRODS; PowerShell's
        words = [name, *words[1:]]
        for key in PROGRAMS["argument variables"].get(name, "").split():  # TF_CLI_ARGS_apply=-destroy terraform apply
            words = words + shlex_words(str(state.variables.get(key + "".join(words[1:2]) * (key[-1] == "_"), "")))
        known = name in self.table["commands"] or (name[:1].isupper() and bool(LIKE.cloud_cmdlet.match(name)))
        alike = "rm" if name not in (*LOSES, *self.table["commands"]) and LIKE.like_rm.fullmatch(name) else ""
        alike = "mkfs" if name.startswith("mkfs.") else alike
        losing, program = LOSES.get(name) or LOSES.get(alike), STARTS.get(name)
        if known or not (losing or program or name in WORDS["data"]):
            if clients.is_dry(words):
                return marker(" ".join(words))
            given = [word for word in words if not re.fullmatch(r"--?[\w-]+=(?:[Ff]alse|no|never)", word)]
            if not wrappers.dispatched(self, given, state):
                clients.judge(self, given, state, known, not losing, stdin)
        if not losing and name not in WORDS["data"] and name not in ("echo", "printf"):
            destroyers.output_wiped(self, words, state, known)
        told = [alike or name, *words[1:]]
        out = losing(self, told, state, stdin) if losing and "-WhatIf" not in words else None
        if name in WORDS["editors"]:
            wrappers.editor(self, words, state, stdin)
        if program:
            return program(self, words, state, stdin) or ""
        if losing:
            if name in WORDS["starts by option"]:
                wrappers.option_texts(self, words, state, stdin)
            return out if isinstance(out, str) else marker(" ".join(words))
        if "/" in path or name.endswith((".sh", ".py", ".bash")):
            return self.file(path, words[1:], state, stdin, "")
        destroyers.unseen(self, path, words[1:], state)
        cmdlet = re.match(r"(?!Start|Invoke)[A-Z][a-z]+-[A-Z]", name)
        if not cmdlet and (name not in WORDS["data"] or words[1:2] in (["codespace"], ["cs"])):
            wrappers.carried(self, words, state, stdin, known)
        return marker(stdin[:250].strip() + " " + " ".join(words)[:200])

    def program_name(self, word: str) -> str:
        """Without its folder; a cmdlet in its usual spelling; $PYTHON, $(which python3): what is known of it."""
        name = os.path.basename(word).removesuffix(".exe")
        if "\ue001" not in word:
            name = name.lstrip("=^!%").removeprefix("zf_") or name  # zsh: =rm, zsh/files; nushell: ^rm; a notebook: !rm
            bare = name.rstrip("0123456789.")  # python3.11
            name = bare if name not in STARTS and bare in STARTS else name
            return _CMDLETS.get(name.lower(), name) if "-" in name else name
        text = origin_of(name).lower()
        match = re.search(r"(python|bash|node|perl|kubectl|docker|rsync|curl|ssh|\brm\b)", text)
        return match[1] if match else name

    def call_function(self, name: str, words: list[str], state: State, stdin: str) -> str:
        if state.depth > 8:
            return ""
        state.depth += 1
        before, state.arguments = state.arguments, words[1:]
        out = self.walk(state.functions[name], state, stdin)
        state.arguments = before
        state.stopped = "" if state.stopped == "return" else state.stopped
        state.depth -= 1
        return out

    def ours(self, words: list[str], state: State, stdin: str) -> str:
        """Our tools keep the law themselves; a job that follows -- is a command like any other."""
        if "approve" in words and "\ue001" in (option(words, "--words") or ""):
            self.act("approve", "an approval needs the user's words, not a command's output", words)
        if "guard" not in words[1:3] and not words[0].endswith("guard.py") and "--" in words:
            return self.run(words[words.index("--") + 1 :], state, stdin)
        return marker(" ".join(words))

    # -- scripts

    def file(self, path: str, arguments: list[str], state: State, stdin: str, language: str) -> str:
        """A script that is named on the line: read and walked."""
        key = state.path(path)
        destroyers.unseen(self, path, arguments, state)
        stream = path in ("/dev/stdin", "/dev/fd/0", "-")
        if language == "" and key not in state.files and not os.access(key, os.X_OK):
            return marker(path)
        text = stdin if stream else self.content(path, state)
        if text.startswith("\ue001") or "\0" in text[:1000] or clients.shows_only(text, arguments):
            return marker(path)
        self.files_read += 1
        if self.files_read > SCRIPTS:
            raise TooMuch
        first = text.partition("\n")[0]
        if key.endswith(".py") or (first.startswith("#!") and "python" in first):
            from rgt.guard import program_code

            program_code.walk_python(self, text, state, arguments, is_script=True)
            return marker(path)
        if first.startswith("#!") and not re.search(r"\b(?:ba|da|z|k|fi|a)?sh\b", first):
            return self.run([os.path.basename(first.split()[-1]), path, *arguments], state, stdin)
        if key.endswith((".ps1", ".bat", ".cmd")):
            return self.run(["pwsh", "-Command", text], state, stdin)
        inner = state if language == "sh" else state.copy()
        before, inner.arguments = (inner.arguments, inner.variables.get("0", "sh")), arguments
        inner.variables["0"] = path
        out = self.script(text[:TEXT], inner, stdin)
        inner.arguments, inner.variables["0"] = before
        inner.stopped = "" if inner.stopped == "return" else inner.stopped
        return out
