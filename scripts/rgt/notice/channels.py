"""Where a message can go: chat webhooks, ntfy, Telegram, mail, the desktop, a command. One function for each kind.

A service's HTTP 200 is not a delivery: each has its own word for success. A failure is a sentence without secrets, and
says whether another try can help; one that may have arrived (no answer after it was sent) is never tried again.

Bodies and answers, verified 2026-11: open.feishu.cn custom bots (code 0; 19021 sign, 19022 address, 19024 keyword),
developer.work.weixin.qq.com/document/path/91770 (errcode 0; 93000 bad key, 45009 too often; 2048 bytes),
docs.slack.dev/messaging/sending-messages-using-incoming-webhooks ("ok"), discord.com/developers/docs/resources/webhook
(204; 429 with retry_after), docs.ntfy.sh/publish (an id; {code, http, error}), core.telegram.org/bots/api (ok: true).
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import os
import re
import shutil
import smtplib
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from rgt import units
from rgt.errors import lacking

SECONDS = 15.0  # for one request, one mail, one command
_SAID = 200  # characters of a service's answer
_HIDDEN = re.compile("[\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")  # what turns or hides text
_MENTION = re.compile(r"(?<![\w.+-])@(?=\w)")  # not that of user@host
_TAG = re.compile(r"<(?=[@!#/]|at\b)", re.I)  # <!channel>, <@U1>, <at user_id="all">
_LATER = (429, 500, 502, 503, 504)

Channel = dict[str, Any]


@dataclass(frozen=True)
class Message:
    """Already clean; made by `message`."""

    title: str
    text: str
    urgent: bool = False

    @property
    def whole(self) -> str:
        return f"{self.title}\n{self.text}" if self.text else self.title


class FailedError(Exception):
    """Not delivered, or `unsure`: it may have arrived. `again`: seconds after which another try makes sense."""

    def __init__(self, say: str, again: float | None = None, unsure: bool = False) -> None:
        super().__init__(say)
        self.say, self.again, self.unsure = say, again, unsure


def message(title: str, text: str = "", urgent: bool = False) -> Message:
    return Message(clean(" ".join(title.split()), 200), clean(text, 3000), urgent)


def clean(text: str, most: int) -> str:
    """Text with lines of strangers: controls are shown, nobody is called by name, the length is bounded."""
    text = units.show_text(_HIDDEN.sub("", text.replace("\r\n", "\n")))  # show_text would spell them out
    text = _TAG.sub("‹", _MENTION.sub("@\u200b", text)).encode(errors="replace").decode()
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def _cut(text: str, size: int) -> str:
    """At most so many bytes, by whole characters."""
    data = text.encode()
    return text if len(data) <= size else data[: size - 4].decode(errors="ignore") + " ..."


def secret(spec: dict[str, str]) -> str:
    if "env" in spec:
        if not os.environ.get(spec["env"]):
            raise lacking(f"the environment variable {spec['env']} is not set here")
        return os.environ[spec["env"]]
    try:
        return Path(spec["file"]).expanduser().read_text(encoding="utf-8").strip()
    except OSError as error:
        raise lacking(f"the secret in {spec['file']} cannot be read: {error.strerror}") from None


# -- HTTP


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A webhook's key must not travel to where somebody else points."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _post(url: str, body: Any, headers: dict[str, str] | None = None) -> tuple[str, dict[str, Any]]:
    """The answer as text and, where it is JSON, as a dict; raises for all but a 2xx."""
    data, head = json.dumps(body).encode(), {"Content-Type": "application/json; charset=utf-8", **(headers or {})}
    try:
        request = urllib.request.Request(url, data, {"User-Agent": "rgt-notify", **head})
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=SECONDS) as answer:
            text = answer.read(1 << 16).decode(errors="replace")
    except urllib.error.HTTPError as error:
        text = error.read(1 << 16).decode(errors="replace")
        wait = _number(error.headers.get("Retry-After")) or _number(_parsed(text).get("retry_after")) or 0.0
        wait = wait or _number((_parsed(text).get("parameters") or {}).get("retry_after")) or 0.0
        raise FailedError(f"HTTP {error.code}: {_short(text)}", wait if error.code in _LATER else None) from None
    except urllib.error.URLError as error:  # nothing was sent
        raise FailedError(f"not reached: {error.reason}", 0.0) from None
    except ValueError:  # of urllib, whose sentence holds the URL
        raise FailedError("its URL is not one") from None
    except (OSError, http.client.HTTPException) as error:
        raise FailedError(f"no answer ({type(error).__name__}): it may have arrived", unsure=True) from None
    return text, _parsed(text)


def _parsed(text: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        data = json.loads(text)
        return data if isinstance(data, dict) else {}
    return {}


def _number(value: Any) -> float | None:
    with contextlib.suppress(TypeError, ValueError):
        return max(0.0, float(value))
    return None


def _short(text: str) -> str:
    return clean(" ".join(text.split()), _SAID) or "(no text)"


def slack(channel: Channel, told: Message) -> None:
    text = told.whole.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    said, data = _post(secret(channel["url"]), {"text": text})
    if said.strip() != "ok" and data.get("ok") is not True:
        raise FailedError(f"Slack did not say ok: {_short(said)}")


def discord(channel: Channel, told: Message) -> None:
    body = {"content": told.whole[:1990], "allowed_mentions": {"parse": []}}
    said, data = _post(secret(channel["url"]), body)
    if said.strip() and "id" not in data:  # 204 has no text; with ?wait=true the message comes back
        raise FailedError(f"Discord did not take it: {_short(said)}")


def feishu(channel: Channel, told: Message) -> None:
    body: dict[str, Any] = {"msg_type": "text", "content": {"text": _cut(told.whole, 18_000)}}
    if "secret" in channel:
        stamp = str(int(time.time()))
        sign = hmac.new(f"{stamp}\n{secret(channel['secret'])}".encode(), b"", hashlib.sha256).digest()
        body |= {"timestamp": stamp, "sign": base64.b64encode(sign).decode()}
    said, data = _post(secret(channel["url"]), body)
    _expect_zero("Feishu", said, data.get("code", data.get("StatusCode")))


def wecom(channel: Channel, told: Message) -> None:
    body = {"msgtype": "text", "text": {"content": _cut(told.whole, 2048)}}
    said, data = _post(secret(channel["url"]), body)
    _expect_zero("WeCom", said, data.get("errcode"), later=45009)  # 20 messages a minute


def _expect_zero(service: str, said: str, code: Any, later: int | None = None) -> None:
    """These two answer 200 for failures, too."""
    if code != 0 or isinstance(code, bool):
        raise FailedError(f"{service} answered {_short(said)}", 15.0 if later and code == later else None)


def ntfy(channel: Channel, told: Message) -> None:
    body: dict[str, Any] = {"topic": secret(channel["topic"]), "title": told.title}
    body["message"] = _cut(told.text or told.title, 4000)
    body |= {"priority": 5} if told.urgent else {}
    keys = {"Authorization": f"Bearer {secret(channel['token'])}"} if "token" in channel else {}
    said, data = _post(channel.get("server", "https://ntfy.sh"), body, keys)
    if "id" not in data:
        raise FailedError(f"ntfy gave no id: {_short(said)}")


def telegram(channel: Channel, told: Message) -> None:
    url = f"{channel.get('server', 'https://api.telegram.org').rstrip('/')}/bot{secret(channel['token'])}/sendMessage"
    said, data = _post(url, {"chat_id": channel["chat"], "text": told.whole[:4000]})  # no parse_mode: text is text
    if data.get("ok") is not True:
        raise FailedError(f"Telegram did not say ok: {_short(said)}")


# -- mail


def _mail(channel: Channel, told: Message) -> EmailMessage:
    mail = EmailMessage()
    mail["Subject"], mail["To"] = told.title, ", ".join(channel["to"])
    if "from" in channel:
        mail["From"] = channel["from"]
    if told.urgent:
        mail["X-Priority"] = "1"
    mail.set_content(told.text or told.title)
    return mail


def smtp(channel: Channel, told: Message) -> None:
    security = channel.get("security", "starttls")
    port = channel.get("port", {"starttls": 587, "ssl": 465, "none": 25}[security])
    trust = ssl.create_default_context()  # SSL_CERT_FILE names another authority
    password = secret(channel["password"]) if "password" in channel else ""
    sent = False
    try:
        server = (
            smtplib.SMTP_SSL(channel["host"], port, timeout=SECONDS, context=trust)
            if security == "ssl"
            else smtplib.SMTP(channel["host"], port, timeout=SECONDS)
        )
        with server:
            if security == "starttls":
                server.starttls(context=trust)
            if password:
                server.login(channel.get("user") or channel.get("from", ""), password)
            sent = True
            refused = server.send_message(_mail(channel, told))
    except smtplib.SMTPRecipientsRefused as error:
        raise FailedError(f"every recipient was refused: {_short(str(error.recipients))}") from None
    except smtplib.SMTPResponseException as error:
        later = 0.0 if 400 <= error.smtp_code < 500 else None
        raise FailedError(f"SMTP {error.smtp_code}: {_short(str(error.smtp_error))}", later) from None
    except (smtplib.SMTPException, OSError) as error:
        again = None if sent or isinstance(error, ssl.SSLError) else 0.0
        raise FailedError(f"{type(error).__name__}: {_short(str(error))}", again, unsure=sent) from None
    if refused:
        raise FailedError(f"refused for {', '.join(map(str, refused))}; the others have it")


# -- this machine


def sendmail(channel: Channel, told: Message) -> None:
    program = shutil.which("sendmail", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/lib")
    _pipe([program or "sendmail", "-t", "-i"], _mail(channel, told).as_bytes())


def desktop(channel: Channel, told: Message) -> None:
    if sys.platform == "darwin":
        script = "on run argv\ndisplay notification (item 2 of argv) with title (item 1 of argv)\nend run"
        return _pipe(["osascript", "-e", script, told.title, told.text])
    urgency = ["-u", "critical"] if told.urgent else []
    return _pipe(["notify-send", *urgency, "--", told.title, told.text])


def command(channel: Channel, told: Message) -> None:
    _pipe(channel["argv"], told.whole.encode() + b"\n")


def _pipe(words: list[str], data: bytes = b"") -> None:
    try:
        done = subprocess.run(words, input=data, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise FailedError(f"{words[0]} did not end within {SECONDS:g} s", unsure=True) from None
    except OSError as error:
        raise FailedError(f"{words[0]} does not start: {error.strerror}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace")
        raise FailedError(f"{words[0]} ended with {done.returncode}: {_short(said)}")


KINDS: dict[str, Callable[[Channel, Message], None]] = {
    kind.__name__: kind for kind in (slack, discord, feishu, wecom, ntfy, telegram, smtp, sendmail, desktop, command)
}
