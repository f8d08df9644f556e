"""Tell people, once for each event: every channel of the user's config, whoever else tells the same at the same time.

Example:
    tell("lease/pod-1/80%", "pod-1: 80 % of the lease", "4h48m of 6h, 9.07 so far")    -> [Outcome("team", "sent"), ...]

The key names the event. What was sent under it is kept in ~/.local/state/rgt/notices, and written down before sending:
of two processes one sends, and after a crash in between nothing is sent twice. A channel that failed for sure is tried
again by the next call with this key; the others have it already. Without a config nobody is told, and [] says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rgt import bundle, files, schema
from rgt.errors import RgtError, bad_input
from rgt.notice import channels

PAUSES = (1.0, 4.0, 15.0)  # seconds before another try, at least
_LONGEST_PAUSE = 30.0  # that a service may ask for; longer is a failure
_KEPT = 90 * 86400.0  # seconds for which an event is remembered
SENT, FAILED, SENDING, BEFORE = "sent", "failed", "sending", "sent before"


@dataclass(frozen=True)
class Outcome:
    channel: str
    state: str  # sent | sent before | failed | sending: it may have arrived
    say: str = ""


@dataclass(frozen=True)
class Config:
    channels: list[channels.Channel]
    profiles: list[str]


def config_file() -> Path:
    """RGT_CONFIG (the file, or its folder), else ~/.config/rgt/notify.yaml."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    path = Path(os.environ.get("RGT_CONFIG") or home / "rgt").expanduser()
    return path / "notify.yaml" if path.is_dir() or "RGT_CONFIG" not in os.environ else path


def nobody() -> str:
    """Why nobody is told, and what to do about it."""
    path = config_file()
    state = "names no channel" if path.exists() else "does not exist"
    return f"{path} {state}; {bundle.command('notify', '--help')} shows what to write there"


def load() -> Config | None:
    """None without a config. Each channel gets a name of its own."""
    from rgt import yaml_text

    path = config_file()
    if not path.exists():
        if "RGT_CONFIG" in os.environ and not path.parent.is_dir():
            raise bad_input(f"RGT_CONFIG is {path}, which does not exist")
        return None
    try:
        data = yaml_text.parse(files.read_text(path))
    except yaml_text.YamlError as error:
        raise bad_input(f"{path} is not YAML: {error}") from None
    schema.check(data, "notify", str(path))
    rows = [{"name": f"{row['kind']}-{count}", **row} for count, row in enumerate(data["channels"], 1)]
    if len({row["name"] for row in rows}) < len(rows):
        raise bad_input(f"{path} has two channels of one name")
    return Config(rows, data.get("profiles", []))


def tell(key: str, title: str, text: str = "", urgent: bool = False, only: str = "") -> list[Outcome]:
    """One message to every channel that has not had this event yet; `only` names one channel."""
    config = load()
    rows = [row for row in config.channels if only in ("", row["name"])] if config else []
    if only and not rows:
        raise bad_input(f"{config_file()} has no channel {only}")
    told, outcomes = channels.message(title, text, urgent), []
    if not rows:
        return []
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    path = home / "rgt" / "notices" / f"{hashlib.sha256(key.encode(errors='replace')).hexdigest()[:32]}.json"
    with files.locked(path.with_suffix(".lock")):
        known: dict[str, Any] = {}
        with contextlib.suppress(RgtError, KeyError, TypeError):
            known = dict(files.read_json(path)["channels"])
        for row in rows:
            before = known.get(row["name"], {})
            if before.get("state") in (SENT, SENDING):
                state = BEFORE if before["state"] == SENT else SENDING
                unsure = "" if state == BEFORE else "whether it arrived is not known"
                outcomes.append(Outcome(row["name"], state, unsure))
                continue
            known[row["name"]] = {"state": SENDING, "time": time.time()}
            _write(path, key, known)
            outcome = _deliver(row, told)
            known[row["name"]] = {"state": outcome.state, "say": outcome.say, "time": time.time()}
            _write(path, key, known)
            outcomes.append(outcome)
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if time.time() - entry.stat().st_mtime > _KEPT:
                    os.unlink(entry.path)
    return outcomes


def _deliver(channel: channels.Channel, told: channels.Message) -> Outcome:
    state = FAILED
    for pause in (*PAUSES, None):
        try:
            channels.KINDS[channel["kind"]](channel, told)
            return Outcome(channel["name"], SENT)
        except channels.FailedError as error:
            again, say, state = error.again, error.say, SENDING if error.unsure else FAILED
        except RgtError as error:
            again, say = None, error.message
        except Exception as error:  # a broken answer must not keep the others from being told
            again, say = None, type(error).__name__
        if again is None or pause is None or again > _LONGEST_PAUSE:
            break
        time.sleep(max(again, pause))
    # without any secret of the channel, nor a part of one (the key in a URL), whoever put it there
    for spec in (value for value in channel.values() if isinstance(value, dict)):
        with contextlib.suppress(RgtError):
            hidden = channels.secret(spec)
            for part in (hidden, *re.split(r"[/?=&]", hidden)):
                say = say.replace(part, "***") if len(part) > 5 else say
    return Outcome(channel["name"], state, say)


def _write(path: Path, key: str, known: dict[str, Any]) -> None:
    files.write_json(path, {"key": key, "channels": known})
