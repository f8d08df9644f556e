"""Is there proof and approval for these acts? Else the sentence that refuses, with the one command that comes next.

Proof of the end of a box: `rgt transfer down` wrote "approved" with this very command into the events of a pulled
folder that has PULL_VERIFIED.json or STORE_VERIFIED.json, at most half an hour ago. For anything else the user's words
count, stored by `rgt guard approve` for these acts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import time

from rgt.guard.argument_words import shlex_words
from rgt.guard.quick_start import LIKE

SECONDS = 30 * 60  # an approval is good for
AGAIN = 10.0  # seconds in which the same line is asked by a second hook
LOG = 256 * 1024  # bytes of refusals.jsonl; one older file is kept
_LOOKED = 200  # folders that may hold a pull
_PROOFS = ("PULL_VERIFIED.json", "STORE_VERIFIED.json")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt.guard.shell_walk import Act


def state_folder(environ: dict[str, str]) -> str:
    base = environ.get("XDG_STATE_HOME") or os.path.join(environ.get("HOME", "/root"), ".local", "state")
    return os.path.join(base, "rgt", "guard")


def key(acts: list[Act], cwd: str) -> str:
    """One approval is for these acts in this folder, and nothing else."""
    told = [cwd, *sorted(f"{act.kind}\0{act.command}\0{act.target}" for act in acts)]
    return hashlib.sha256(json.dumps(told).encode("utf-8", "surrogatepass")).hexdigest()


def unproved(acts: list[Act], cwd: str, environ: dict[str, str], spend: bool) -> list[Act]:
    """The acts that lack proof or approval; `spend` uses an approval up."""
    left = [act for act in acts if not was_downed(act, cwd)]
    return [] if not left or is_granted(key(acts, cwd), environ, spend) else left


def refusal(acts: list[Act], line: str, cwd: str, environ: dict[str, str]) -> str:
    left = unproved(acts, cwd, environ, spend=True)
    if not left:
        return ""
    if not left[0].command.startswith("rgt-guard-selftest"):
        log(left, cwd, environ)
    sentence, more = redacted(left[0].as_dict()["sentence"]), f" (and {len(left) - 1} more)" if len(left) > 1 else ""
    return (
        f"refused by rgt guard: {sentence}{more}. Nothing here shows that the result was pulled and verified by load, "
        f"and the user has not approved this act. Show this to the user. Next: {next_command(left[0], line, cwd)}"
    )


def next_command(act: Act, line: str, cwd: str) -> str:
    from rgt import bundle

    if act.profile:
        pulled = pulled_folders(cwd)
        if not pulled:
            return bundle.command("transfer", "pull", "<host:dir>", "<local>")
        box = act.box if re.fullmatch(r"[\w.:/@+=-]+", act.box) else "<id>"
        run = os.path.relpath(pulled[0], cwd) if len(pulled) == 1 else "<local>"
        return bundle.command("transfer", "down", run, "--profile", act.profile, "--id", box)
    short = line.strip() or act.command
    plain = len(short) < 400 and "\n" not in short and redacted(short) == short
    return bundle.command("guard", "approve", short if plain else "<the-same-command>")


def pulled_folders(cwd: str) -> list[str]:
    """Folders with a proof, of load here or of a store, at most two levels below the current one."""
    found, level = [], [cwd]
    for _ in range(3):
        below = []
        for folder in level[:_LOOKED]:
            if any(os.path.isfile(os.path.join(folder, name)) for name in _PROOFS):
                found.append(folder)
                continue
            try:
                with os.scandir(folder) as scan:
                    below += [one.path for one in scan if one.name[0] != "." and one.is_dir(follow_symlinks=False)]
            except OSError:
                continue
        level = below
    return sorted(found)


def was_downed(act: Act, cwd: str) -> bool:
    """`down` proved and the user approved this very command."""
    if act.kind != "end" or not act.profile:
        return False
    for folder in pulled_folders(cwd):
        for row in [*_rows(os.path.join(folder, "events.jsonl")), *_rows(f"{folder}.events.jsonl")]:
            fresh = 0 <= time.time() - float(str(row.get("time") or 0)) <= SECONDS
            same = row.get("event") == "approved" and row.get("command") == shlex.join(shlex_words(act.command))
            if fresh and same and not row.get("execute"):
                return True
    return False


def _rows(path: str) -> list[dict[str, object]]:
    """The last events of a file; a broken line is none."""
    rows = []
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - 65536))
        for line in file.read().splitlines():
            with contextlib.suppress(ValueError):
                rows.append(json.loads(line))
    return [row for row in rows if isinstance(row, dict)]


def is_granted(name: str, environ: dict[str, str], spend: bool) -> bool:
    """An approval is spent by its first use; a second hook of the same moment still finds it."""
    path = os.path.join(state_folder(environ), f"granted-{name}.json")
    try:
        with open(path, encoding="utf-8") as file:
            grant = json.load(file)
        now = time.time()
        used = float(grant.get("used") or now)
        good = now < float(grant["expires"]) <= now + SECONDS and now - used <= AGAIN
        if good and spend and not grant.get("used"):
            with open(f"{path}.new", "w", encoding="utf-8") as file:
                json.dump({**grant, "used": now}, file)
            os.replace(f"{path}.new", path)
        elif not good:
            os.unlink(path)
        return good
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def redacted(text: str) -> str:
    return LIKE.secret.sub(lambda match: (match[1] or "") + "***", text)


def log(acts: list[Act], cwd: str, environ: dict[str, str]) -> None:
    """What was refused, without secrets, in a file that stays small."""
    path = os.path.join(state_folder(environ), "refusals.jsonl")
    rows = [{name: redacted(value) for name, value in act.as_dict().items()} for act in acts[:5]]
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        if os.path.exists(path) and os.path.getsize(path) > LOG:
            os.replace(path, f"{path}.1")
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"time": time.time(), "cwd": cwd, "acts": rows}) + "\n")
    except OSError:
        pass
