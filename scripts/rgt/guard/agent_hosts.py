"""Where each agent keeps its hooks, and how ours gets in and out again without touching anything else.

claude    ~/.claude/settings.json or .claude/settings.json      PreToolUse, exit 2
codex     ~/.codex/hooks.json or .codex/hooks.json              PreToolUse, exit 2; Codex asks once to trust it
gemini    ~/.gemini/settings.json or .gemini/settings.json      BeforeTool, exit 2
openclaw  ~/.openclaw/extensions/rgt-guard/, openclaw.json      a plugin with before_tool_call
shell     ~/.local/share/rgt/shims/ and a line in the shell's start file: one shim for each destructive client
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rgt import files
from rgt.bundle import SCRIPTS, TEMPLATES
from rgt.errors import RgtError, bad_input
from rgt.guard import hook
from rgt.guard.verb_table import SELFTEST

HOOK = SCRIPTS / "rgt" / "guard" / "hook.py"
OURS = "rgt/guard/hook.py"  # in every command of ours
BEGIN, END = "# >>> rgt guard", "# <<< rgt guard"
SECONDS = 15
SHIMMED = ("rm", "pkill", "killall", "shutdown", "reboot", "poweroff", "rsync")  # besides the clients of the table


@dataclass(frozen=True)
class Agent:
    """An agent with its hooks in a JSON file."""

    folder: str
    variable: str  # the environment variable that moves the user's folder
    file: str
    event: str
    matcher: str
    timeout: int
    note: str = ""

    def path(self, project: bool) -> Path:
        own = os.environ.get(self.variable, "") if self.variable else ""
        return Path(self.folder, self.file) if project else Path(own or Path.home() / self.folder, self.file)

    def entry(self) -> dict[str, Any]:
        one = {"type": "command", "command": f"python3 -I -S {shlex.quote(str(HOOK))}", "timeout": self.timeout}
        return {"matcher": self.matcher, "hooks": [one]}


_TRUST = "Codex runs a new hook only after you trusted it once: open codex, type /hooks"
AGENTS = {
    "claude": Agent(".claude", "CLAUDE_CONFIG_DIR", "settings.json", "PreToolUse", "Bash", 10),
    "codex": Agent(".codex", "CODEX_HOME", "hooks.json", "PreToolUse", "Bash", 10, _TRUST),
    "gemini": Agent(".gemini", "", "settings.json", "BeforeTool", "run_shell_command", 10_000),
}
NAMES = (*AGENTS, "openclaw", "shell")


@dataclass(frozen=True)
class Change:
    """One file as it should be; None: it goes."""

    path: Path
    text: str | None
    mode: int | None = None

    @property
    def needed(self) -> bool:
        return (self.path.read_text(encoding="utf-8") if self.path.is_file() else None) != self.text

    def apply(self) -> None:
        if self.text is None:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
            with contextlib.suppress(OSError):
                if self.path.parent.name in ("rgt-guard", "shims"):
                    self.path.parent.rmdir()
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(self.path, self.text)
        if self.mode:
            self.path.chmod(self.mode)


def changes(host: str, project: bool, remove: bool = False) -> list[Change]:
    """What an install or uninstall writes."""
    if project and host not in AGENTS:
        raise bad_input(f"{host} has no settings of a project; leave --project away")
    if host in AGENTS:
        every = [_settings(AGENTS[host], project, remove)]
    else:
        every = list(_plugin(remove) if host == "openclaw" else _shims(remove))
    return [change for change in every if change.needed]


# -- settings


def _settings(agent: Agent, project: bool, remove: bool) -> Change:
    path = agent.path(project).absolute()
    data = _read(path)
    hooks = data.setdefault("hooks", {})
    rows = hooks.setdefault(agent.event, []) if isinstance(hooks, dict) else None
    if not isinstance(rows, list):
        raise bad_input(f"{path} has hooks in a form that is not known here; nothing was written")
    kept = []
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("hooks"), list):
            kept += [row] if row else []
            continue
        left = [one for one in row["hooks"] if OURS not in str(one.get("command") if isinstance(one, dict) else "")]
        kept += [{**row, "hooks": left}] if left or not row["hooks"] else []
    hooks[agent.event] = kept if remove else [*kept, agent.entry()]
    if not hooks[agent.event]:
        del hooks[agent.event]
    if not hooks:
        del data["hooks"]
    return Change(path, _text(data) if data or not remove else None)


def _read(path: Path) -> dict[str, Any]:
    data = files.read_json(path) if path.is_file() else {}
    if not isinstance(data, dict):
        raise bad_input(f"{path} is not a JSON object; nothing was written")
    return data


def _text(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


# -- OpenClaw


def _plugin(remove: bool) -> Iterator[Change]:
    folder = Path.home() / ".openclaw" / "extensions" / "rgt-guard"
    script = (TEMPLATES / "guard" / "openclaw.js").read_text(encoding="utf-8").replace("{hook}", str(HOOK))
    schema = {"type": "object", "additionalProperties": False, "properties": {}}
    activation = {"onStartup": True, "onCapabilities": ["hook"]}  # without it the plugin is listed and never loaded
    manifest = {"id": "rgt-guard", "name": "rgt guard", "activation": activation, "configSchema": schema}
    package = {"name": "rgt-guard", "version": "1.0.0", "type": "module", "openclaw": {"extensions": ["./index.js"]}}
    texts = {"index.js": script, "openclaw.plugin.json": _text(manifest), "package.json": _text(package)}
    for name, text in texts.items():
        yield Change(folder / name, None if remove else text)
    config = Path.home() / ".openclaw" / "openclaw.json"  # a plugin that is only found is listed as enabled, not loaded
    data = _read(config)
    entries = data.setdefault("plugins", {}).setdefault("entries", {})
    if remove and "rgt-guard" in entries:
        del entries["rgt-guard"]
        data["plugins"] = {name: value for name, value in data["plugins"].items() if value}
        data = {name: value for name, value in data.items() if name != "plugins" or value}
        yield Change(config, _text(data) if data else None)
    elif not remove and entries.get("rgt-guard", {}).get("enabled") is not True:
        entries["rgt-guard"] = {"enabled": True}
        yield Change(config, _text(data))


# -- shell


def shim_folder() -> Path:
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base, "rgt", "shims")


def clients() -> list[str]:
    return sorted({*json.loads(hook.read_table())["commands"], *SHIMMED} - {SELFTEST})


def _shims(remove: bool) -> Iterator[Change]:
    folder = shim_folder()
    text = (TEMPLATES / "guard" / "shim.sh").read_text(encoding="utf-8").replace("@hook@", shlex.quote(str(HOOK)))
    others = os.pathsep.join(one for one in os.environ.get("PATH", "").split(os.pathsep) if Path(one) != folder)
    there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    for name in sorted(there if remove else {one for one in clients() if shutil.which(one, path=others)} | {SELFTEST}):
        yield Change(folder / name, None if remove else text, 0o755)
    block = f'{BEGIN}\nexport PATH={shlex.quote(str(folder))}:"$PATH"\n{END}\n'
    starts = [Path.home() / name for name in (".bashrc", ".zshrc", ".profile")]
    for path in [one for one in starts if one.is_file()] or ([] if remove else [starts[0]]):
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        head, found, rest = before.partition(BEGIN)
        clean = head + rest.partition(END + "\n")[2] if found else before
        yield Change(path, clean if remove else clean + ("" if clean.endswith("\n") or not clean else "\n") + block)


# -- is it in force


def installed_command(host: str, project: bool) -> tuple[Path, list[str] | None, str]:
    """The file, the command that the agent would run for a tool call, and why there is none."""
    if host == "shell":
        shim = shim_folder() / SELFTEST
        return shim, [str(shim), "destroy", "instance", "0"] if shim.is_file() else None, "no shims are installed"
    if host == "openclaw":
        path = Path.home() / ".openclaw" / "extensions" / "rgt-guard" / "index.js"
        if not path.is_file() or str(HOOK) not in path.read_text():
            return path, None, "the plugin is not installed"
        stale = any(change.needed for change in _plugin(remove=False))
        words = None if stale else ["python3", "-I", "-S", str(HOOK)]
        return path, words, "openclaw.json does not enable it, or its files are old: install again"
    agent = AGENTS[host]
    path = agent.path(project).absolute()
    try:
        data = _read(path)
    except RgtError as error:
        return path, None, error.message
    if data.get("disableAllHooks"):
        return path, None, "disableAllHooks is set there"
    for row in data.get("hooks", {}).get(agent.event, []):
        for one in row.get("hooks", []) if isinstance(row, dict) else []:
            if OURS in str(one.get("command", "")):
                return path, ["sh", "-c", one["command"]], ""
    return path, None, "no hook of ours is in it"


def proves_itself(host: str, project: bool) -> tuple[Path, str]:
    """Give the installed command a made-up act: why it is not in force, or nothing when it refused."""
    path, words, why = installed_command(host, project)
    if words is None:
        return path, why
    event = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "cwd": os.getcwd()}
    event |= {"tool_input": {"command": f"{SELFTEST} destroy instance 0"}}  # type: ignore[dict-item]
    try:
        done = subprocess.run(words, input=json.dumps(event).encode(), capture_output=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return path, f"the hook does not run: {error}"
    if done.returncode == (4 if host == "shell" else 2):
        outside = host == "shell" and str(shim_folder()) not in os.environ.get("PATH", "").split(os.pathsep)
        return path, "the shims are not on PATH in this shell; open a new one" if outside else ""
    said = done.stderr.decode(errors="replace").strip()[:200]
    return path, f"a made-up destroy was not refused (exit {done.returncode}{': ' + said if said else ''})"
