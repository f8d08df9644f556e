"""Agents as command lines: how each is started without a person, where it looks for skills, how its transcript counts.

A template is split like a shell would, never run by one. `{prompt}` is the prompt as one word, `{prompt_file}` a file
with it, `{work}` the folder it works in; without any of them the prompt goes to stdin.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rgt.errors import bad_input


@dataclass(frozen=True)
class Effort:
    commands: int | None = None  # tool calls
    tokens: int | None = None  # read and written, without what came from a cache
    cached: int | None = None


@dataclass(frozen=True)
class Agent:
    name: str
    template: str
    skills: str | None  # folder below the work folder; None: the prompt says where the skill is
    count: Callable[[Path], Effort]
    env: tuple[tuple[str, str], ...] = ()

    def argv(self, prompt: str, prompt_file: Path, work: Path) -> tuple[list[str], str | None]:
        """The command and what goes to its stdin."""
        known = {"{prompt}": prompt, "{prompt_file}": str(prompt_file), "{work}": str(work)}
        words, used = [], False
        for word in shlex.split(self.template):
            for name, value in known.items():
                used = used or (name in word and name != "{work}")
                word = word.replace(name, value)
            words.append(word)
        return words, None if used else prompt


def _records(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def claude(transcript: Path) -> Effort:
    """`--output-format stream-json`: tool_use blocks, and the usage of the last result."""
    calls, usage = 0, None
    for record in _records(transcript):
        if record.get("type") == "assistant":
            content = (record.get("message") or {}).get("content") or []
            calls += sum(1 for block in content if isinstance(block, dict) and block.get("type") == "tool_use")
        elif record.get("type") == "result":
            usage = record.get("usage") or usage
    if usage is None:
        return Effort(calls or None)
    fresh = sum(int(usage.get(key) or 0) for key in ("input_tokens", "cache_creation_input_tokens", "output_tokens"))
    return Effort(calls, fresh, int(usage.get("cache_read_input_tokens") or 0))


def codex(transcript: Path) -> Effort:
    """`exec --json`: finished items that are no talk, and the usage of every turn."""
    calls = fresh = cached = turns = 0
    for record in _records(transcript):
        kind = (record.get("item") or {}).get("type")
        if record.get("type") == "item.completed" and kind in ("command_execution", "file_change", "mcp_tool_call"):
            calls += 1
        elif record.get("type") == "turn.completed":
            usage, turns = record.get("usage") or {}, turns + 1
            cached += int(usage.get("cached_input_tokens") or 0)
            fresh += int(usage.get("input_tokens") or 0) + int(usage.get("output_tokens") or 0)
    return Effort(calls, fresh - cached, cached) if turns else Effort(calls or None)


def unknown(transcript: Path) -> Effort:
    return Effort()


AGENTS = {
    "claude": Agent(
        "claude",
        # project settings only: a skill or memory of the user's own would leak into both arms
        "claude -p --output-format stream-json --verbose --permission-mode bypassPermissions --setting-sources project",
        ".claude/skills",
        claude,
    ),
    "codex": Agent(
        "codex",
        "codex exec --json --skip-git-repo-check --sandbox danger-full-access -C {work} -",
        ".agents/skills",
        codex,
    ),
    "openclaw": Agent(
        "openclaw",
        "openclaw agent --local --agent main --json --message {prompt}",
        "skills",
        unknown,
        (("OPENCLAW_WORKSPACE_DIR", "{work}"),),
    ),
}


def find(text: str) -> Agent:
    """A known name, or a template of one's own."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise bad_input(f"--agent {text} is no command line: {error}") from None
    if not words:
        raise bad_input("--agent is empty; give claude, codex, openclaw or a command line")
    return AGENTS.get(text) or Agent(Path(words[0]).name, text, None, unknown)
