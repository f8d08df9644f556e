"""What the hooks of agents and the shims of shells run: judge one command line, in a few milliseconds.

    python3 -I -S hook.py < event.json         PreToolUse of Claude Code and Codex, BeforeTool of Gemini: exit 2 refuses
    python3 -I -S hook.py shim NAME WORDS...   from a shim: exit 4 refuses

Standard library only, Python 3.10 or newer. Most commands leave by `is_harmless`, before anything heavy is imported.
When the guard itself fails, the command passes and one line on stderr says so: a broken guard must not stop work.
"""

from __future__ import annotations

import os
import sys

LIMIT = 1 << 20  # bytes of a command line
SECONDS = 4.0
HOOK, SHIM = 2, 4  # exit codes that refuse
HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = os.path.dirname(os.path.dirname(HERE))
PROFILES = os.path.join(os.path.dirname(SCRIPTS), "profiles")
TABLE = os.path.join(HERE, "verb_table.json")
# what a verb that ends begins with, whatever program it belongs to (programs.json, ends)
STEMS = tuple(
    stem.encode()
    for stem in """abort archiv cancel dealloc decommi delet deprov destroy detach discard drain empty erase evict
    expire flush force-stop halt hibern kill nuke pause off power preempt prune purge reboot rebuild recycle redeploy
    reimage reinstall release remove reset restart rollback shelve shut softreset stop suspend teardown terminat undef
    undeploy uninstall unrent wipe bounce down exited disband dissolve forget obliterate trash unassign relinq
    overwrit clean force unlink reinit eradicat expung deactiv""".split()
)
_LETTERS = bytes(sign if chr(sign).isalnum() or sign == 95 else 32 for sign in range(128)) + b" " * 128
_NAMES = bytes(sign if chr(sign).isalnum() or sign in b"_-." else 32 for sign in range(128)) + b" " * 128
# what may hide a word; the shell's `.`; nvidia-smi, which otherwise only looks; a file that any program may write
_HIDING = (
    rb"""nvme|dev/sd|\u|$|`|./|?|[|\"\"|''|\\|<(|: . |; . |& . |": ". |":". |smi -r|mig| -o| -O|--out|--local-dir"""
)
_SIGNS = (b"=/dev/", *_HIDING.split(b"|"))


def is_harmless(raw: bytes, table: bytes) -> bool:
    """No word that could matter, and nothing that could hide one."""
    if b'"words"' not in table or any(sign in raw for sign in _SIGNS):
        return False
    lower = raw.lower()
    if any(stem in lower for stem in STEMS):
        return False
    for sign in (b'\\"', b"'"):  # r"m"
        parts = raw.split(sign)
        if any(parts[i - 1][-1:].isalnum() and parts[i][:1].isalnum() for i in range(1, len(parts))):
            return False
    plain = raw.replace(b"2>&1", b"").replace(b"> /dev/null", b"").replace(b">/dev/null", b"")
    if b">" in plain:
        return False
    lines = raw.replace(b"\\n", b" ").replace(b"\\t", b" ").replace(b"\\r", b" ")
    words = {*lines.translate(_LETTERS).split(), *lines.translate(_NAMES).split()}  # of docker-compose: both
    return not any(
        word.startswith((b"mkfs", b"rm")) or word.endswith((b"rm", b"del")) or b'"%b"' % word in table for word in words
    )


def read_table() -> bytes:
    """The shipped table, or the one in the cache when a profile is newer."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    cached = os.path.join(cache, "rgt", f"guard-table{SCRIPTS.replace('/', '-')}.json")
    newest = 0
    try:
        with os.scandir(PROFILES) as scan:
            newest = max((one.stat().st_mtime_ns for one in scan if one.name.endswith(".md")), default=0)
    except OSError:
        pass
    for path in (TABLE, cached):
        if os.path.exists(path) and os.stat(path).st_mtime_ns >= newest:
            with open(path, "rb") as file:
                return file.read()
    return _made_table(cached)


def _made_table(cached: str) -> bytes:
    """Ask `rgt guard table`, which can read YAML; where that fails, the shipped table is cached instead."""
    import subprocess

    try:
        command = [os.path.join(os.path.dirname(SCRIPTS), "bin", "rgt"), "guard", "table"]
        done = subprocess.run(command, capture_output=True, timeout=30)
        data = done.stdout if done.returncode == 0 else b""
    except (OSError, subprocess.SubprocessError):
        data = b""
    if not data:
        print("rgt guard: a profile is newer than the table, and it could not be made again", file=sys.stderr)
        with open(TABLE, "rb") as file:
            data = file.read()
    os.makedirs(os.path.dirname(cached), exist_ok=True)
    with open(f"{cached}.{os.getpid()}", "wb") as file:
        file.write(data)
    os.replace(f"{cached}.{os.getpid()}", cached)
    return data


def _read_json(raw: bytes) -> Any:
    if SCRIPTS not in sys.path:
        sys.path.insert(0, SCRIPTS)
    from rgt.guard.quick_start import read_json

    return read_json(raw)


def event_command(raw: bytes) -> tuple[str, str]:
    """The command line of a hook's event and its folder; empty for another tool."""
    event = _read_json(raw)
    given = event.get("tool_input") or event.get("params") or {}
    command = given.get("command") or given.get("cmd") or "" if isinstance(given, dict) else ""
    if isinstance(command, list):
        import shlex

        command = shlex.join(map(str, command))
    folder = given.get("workdir") or given.get("dir_path") or event.get("cwd") or os.getcwd() if command else ""
    return str(command), str(folder)


def find_acts(
    line: str, cwd: str, environ: dict[str, str], table: bytes = b"", words: list[str] | None = None
) -> list[Act]:
    data = _read_json(table or read_table())
    from rgt.guard.judge import Guard

    return Guard(data, cwd, environ).judge(line, words)


def main(words: list[str]) -> int:
    def late(*_: object) -> None:
        raise TimeoutError(f"took longer than {SECONDS:g} s")

    refuses = SHIM if words[:1] == ["shim"] else HOOK
    try:
        if os.environ.get("RGT_GUARD") == "off":
            return 0
        raw = "\0".join(words[1:]).encode() if words else sys.stdin.buffer.read(LIMIT + 1)
        if len(raw) > LIMIT:
            raise ValueError(f"the command line is longer than {LIMIT} bytes")
        table = read_table()
        if not words and is_harmless(raw, table):
            return 0
        import _signal  # type: ignore[import-not-found]  # `signal` makes enums of the same, at a price

        _signal.signal(_signal.SIGALRM, late)
        _signal.setitimer(_signal.ITIMER_REAL, SECONDS)
        line, cwd = ("", os.getcwd()) if words else event_command(raw)
        environ, why = dict(os.environ), ""
        if acts := find_acts(line, cwd, environ, table, words[1:]) if line or words else []:
            from rgt.guard import proof_lookup

            why = proof_lookup.refusal(acts, line, cwd, environ)
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        print(f"rgt guard: NOT in force for this command ({text})", file=sys.stderr)
        return 0
    if why:
        print(why, file=sys.stderr)
    return refuses if why else 0


TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt.guard.shell_walk import Act

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
