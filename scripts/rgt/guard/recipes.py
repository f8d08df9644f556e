"""make TARGET, just TARGET, npm run NAME: the lines that the named recipe would run."""

from __future__ import annotations

import json
import re

from rgt.guard.argument_words import operands, option
from rgt.guard.shell_walk import State, Walker

_VARIABLE = re.compile(r"^([A-Za-z_]\w*)\s*[:?+]?=\s*(.*)$", re.M)


def walk(guard: Walker, words: list[str], state: State, stdin: str) -> None:
    if words[0] in ("npm", "yarn", "pnpm"):
        package(guard, words, state)
        return
    inner = state.copy()
    inner.cwd = inner.path(option(words[1:], "-C", "--directory") or ".").rstrip("/")
    names = ["justfile", "Justfile"] if words[0] == "just" else ["GNUmakefile", "makefile", "Makefile"]
    given = option(words[1:], "-f", "--file", "--makefile", "--justfile")
    texts = (
        [stdin] if given in ("-", "/dev/stdin") else [guard.content(n, inner) for n in ([given] if given else names)]
    )
    text = next((text for text in texts if not text.startswith("\ue001")), "")
    if not text:
        return
    rules = read_rules(text.replace("\\\n", " "))
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


def package(guard: Walker, words: list[str], state: State) -> None:
    rest = operands(words[1:])
    name = rest[1] if rest[:1] in (["run"], ["run-script"]) and len(rest) > 1 else rest[0] if rest else ""
    if rest[:1] and rest[0] in ("dlx", "exec", "x"):
        guard.run(words[words.index(rest[0]) + 1 :], state.copy(), "")
    try:
        scripts = json.loads(guard.content("package.json", state)).get("scripts", {})
    except (ValueError, AttributeError):
        return
    if isinstance(scripts, dict) and isinstance(scripts.get(name), str):
        guard.script(scripts[name], state.copy())
