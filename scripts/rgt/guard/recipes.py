"""make TARGET, just TARGET, npm run NAME: the lines that the named recipe would run."""

from __future__ import annotations

import json
import re

from rgt.guard.argument_words import operands, option, shlex_words
from rgt.guard.shell_walk import State, Walker

_FILES = {"just": "justfile Justfile", "task": "Taskfile.yml Taskfile.yaml taskfile.yml"}
_VARIABLE = re.compile(r"^([A-Za-z_]\w*)\s*[:?+]?=\s*(.*)$", re.M)


def walk(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    if words[0] in ("npm", "yarn", "pnpm"):
        package(guard, words, state)
        return
    inner = state.copy()
    inner.cwd = inner.path(option(words[1:], "-C", "--directory") or ".").rstrip("/")
    given = option(words[1:], "-f", "--file", "--makefile", "--justfile", "-t", "--taskfile")
    names = _FILES.get(words[0], "GNUmakefile makefile Makefile").split()
    texts = (
        [stdin] if given in ("-", "/dev/stdin") else [guard.content(n, inner) for n in ([given] if given else names)]
    )
    text = next((text for text in texts if not text.startswith("\ue001")), "")
    if not text:
        return
    rules = read_tasks(text) if words[0] == "task" else read_rules(text.replace("\\\n", " "))
    values = dict(_VARIABLE.findall(text))
    targets = operands(words[1:], "-C -f -j --directory --file --justfile --makefile")
    values.update((word.partition("=")[0], word.partition("=")[2]) for word in targets if "=" in word)
    targets = [word for word in targets if "=" not in word] or list(rules)[:1]
    follow(guard, targets, rules, values, inner, set())


def read_rules(text: str) -> dict[str, tuple[list[str], list[str]]]:
    """Target -> what it needs, and its lines."""
    rules: dict[str, tuple[list[str], list[str]]] = {}
    lines: list[str] = []
    for line in text.split("\n"):
        if line[:1] in ("\t", " ") and line.strip():
            lines.append(line.strip().lstrip("@-+"))
        elif match := re.match(r"([^#\s:=][^:=]*)::?(?!=)([^=]*)$", line):
            lines = []
            for name in match[1].split():
                rules[name] = (match[2].split(), lines)
    return rules


def read_tasks(text: str) -> dict[str, tuple[list[str], list[str]]]:
    """The same of a Taskfile: a task's name stands two blanks deep."""
    blocks = re.findall(r"(?m)^  ([\w:-]+):(.*(?:\n(?:   .*|\s*))*)", text)
    found = {
        name: re.findall(r"(?m)(?:^\s*-|cmds?:)[ \t]+(?:cmd:\s*)?['\"]?([^'\"\n[]+)", body) for name, body in blocks
    }
    return {name: ([], lines) for name, lines in found.items()}


def follow(
    guard: Walker,
    targets: list[str],
    rules: dict[str, tuple[list[str], list[str]]],
    values: dict[str, str],
    state: State,
    done: set[str],
) -> None:
    for target in targets:
        if target not in rules or target in done:
            continue
        done.add(target)
        needs, lines = rules[target]
        follow(guard, needs, rules, values, state, done)
        for text in lines:
            for _ in range(3):
                text = re.sub(r"\$[({](\w+)[)}]|\{\{\s*(\w+)\s*\}\}", lambda m: values.get(m[1] or m[2], ""), text)
            guard.script(text.replace("$$", "$"), state.copy())


def compose(guard: Walker, words: list[str], state: State) -> list[str]:
    """docker compose run SERVICE: the words of the `docker run` that its file describes."""
    verb = next((i for i, word in enumerate(words) if word in ("run", "up")), 0)
    given = option(words[:verb], "-f", "--file")
    names = [given] if given else "compose.yaml compose.yml docker-compose.yml docker-compose.yaml".split()
    text = next((one for one in (guard.content(name, state) for name in names) if not one.startswith("\ue001")), "")
    rest = operands(words[verb + 1 :], "-e -v -u -w -p --name --entrypoint --env --volume --user --workdir")
    block = re.search(rf"(?m)^  {re.escape(rest[0])}:[ ]*\n((?:    .*\n?|[ ]*\n)*)", text) if verb and rest else None
    if not block:
        return words
    told = words[words.index(rest[0], verb) + 1 :] if words[verb] == "run" else []
    for key in ("command", "entrypoint"):
        line = re.search(rf"(?m)^    {key}:[ ]*(.*(?:\n     +- .*)*)", block[1])
        plain = re.sub(r"(?m)^\s+- |^\[|\]$|(?<=[\"']),", " ", line[1]) if line else ""
        told = told or shlex_words(plain.lstrip("|>- "))
    folders = re.findall(r"[\"'\s\[]([.~/][^\s:\"']*:/[^\s:\"',\]]*)", block[1])
    return ["docker", "run", *(one for pair in folders for one in ("-v", pair)), "image", *told]


def package(guard: Walker, words: list[str], state: State) -> None:
    rest = operands(words[1:])
    name = rest[1] if rest[:1] in (["run"], ["run-script"]) and len(rest) > 1 else rest[0] if rest else ""
    if rest[:1] and rest[0] in ("dlx", "exec", "x"):
        guard.run(words[words.index(rest[0]) + 1 :], state.copy(), "")
    try:
        scripts = json.loads(guard.content("package.json", state)).get("scripts", {})
    except (ValueError, AttributeError):
        scripts = {}
    if rest[:2] == ["pkg", "set"] and isinstance(scripts, dict):
        pairs = [word.removeprefix("scripts.").partition("=") for word in rest[2:] if word.startswith("scripts.")]
        scripts |= {key: value for key, _, value in pairs}
        state.files[state.path("package.json")] = json.dumps({"scripts": scripts})
    for key in (f"pre{name}", name, f"post{name}"):
        if isinstance(scripts, dict) and isinstance(scripts.get(key), str):
            guard.script(scripts[key], state.copy())
