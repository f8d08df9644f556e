"""notify: every service's own body and word for success, one message per event whoever tells, no secret shown."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt.notice import channels, telling

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult
from pytest import MonkeyPatch

from . import front_door
from .notice_sink import OK, Answer, Inbox, Sink, listening, write_config
from .real.support import free_port, need, run, wait_for

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "notify.py"
KEY = "s3cr3t-T0KEN"


@pytest.fixture
def sink() -> Iterator[Sink]:
    with listening() as made:
        yield made


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: MonkeyPatch) -> Path:
    path = tmp_path / "notify.yaml"
    monkeypatch.setenv("RGT_CONFIG", str(path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(telling, "PAUSES", (0.01, 0.01))
    return path


def channel(kind: str, sink: Sink, monkeypatch: MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("HOOK", f"{sink.url}/hook/{KEY}")
    monkeypatch.setenv("TOKEN", KEY)
    if kind == "ntfy":
        return {"kind": kind, "server": sink.url, "topic": {"env": "TOKEN"}, "token": {"env": "TOKEN"}}
    if kind == "telegram":
        return {"kind": kind, "server": sink.url, "token": {"env": "TOKEN"}, "chat": -4711}
    return {"kind": kind, "url": {"env": "HOOK"}} | ({"secret": {"env": "TOKEN"}} if kind == "feishu" else {})


TEXT = "epoch 3\nloss <1.0 & falling, root@box:/x"
BODIES: dict[str, dict[str, Any]] = {
    "slack": {"text": "done\nepoch 3\nloss &lt;1.0 &amp; falling, root@box:/x"},
    "discord": {"content": f"done\n{TEXT}", "allowed_mentions": {"parse": []}},
    "feishu": {"msg_type": "text", "content": {"text": f"done\n{TEXT}"}},
    "wecom": {"msgtype": "text", "text": {"content": f"done\n{TEXT}"}},
    "ntfy": {"topic": KEY, "title": "done", "message": TEXT, "priority": 5},
    "telegram": {"chat_id": -4711, "text": f"done\n{TEXT}"},
}


@pytest.mark.parametrize("kind", BODIES)
def test_each_service_gets_its_own_body(kind: str, sink: Sink, config: Path, monkeypatch: MonkeyPatch) -> None:
    write_config(config, channel(kind, sink, monkeypatch))
    sink.answers = [OK[kind]]
    done = front_door.call("notify.py", "send", "done", "--text", "-", "--urgent", input=TEXT.encode())
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "1 of 1 channels have it"), done.stdout
    [request] = sink.requests
    body = dict(request["body"])
    if kind == "feishu":  # HMAC-SHA256 of nothing, with "<timestamp>\n<secret>" as the key
        stamp = body.pop("timestamp")
        wanted = hmac.new(f"{stamp}\n{KEY}".encode(), b"", hashlib.sha256).digest()
        assert body.pop("sign") == base64.b64encode(wanted).decode() and abs(int(stamp) - time.time()) < 60
    assert body == BODIES[kind]
    assert request["path"] == {"ntfy": "/", "telegram": f"/bot{KEY}/sendMessage"}.get(kind, f"/hook/{KEY}")
    assert kind != "ntfy" or request["headers"]["Authorization"] == f"Bearer {KEY}"


REFUSALS: list[tuple[str, Answer, str]] = [
    ("slack", (200, "invalid_payload", {}), "did not say ok: invalid_payload"),
    ("slack", (302, "", {"Location": "http://127.0.0.1:1/x"}), "HTTP 302"),
    ("discord", (401, '{"message": "Invalid Webhook Token", "code": 50027}', {}), "Invalid Webhook Token"),
    ("discord", (200, "<html>", {}), "did not take it"),
    ("feishu", (200, '{"code":19021,"data":{},"msg":"sign match fail"}', {}), '"code":19021'),
    ("feishu", (200, "", {}), "Feishu answered (no text)"),
    ("wecom", (200, '{"errcode":93000,"errmsg":"invalid webhook url"}', {}), '"errcode":93000'),
    ("wecom", (200, '{"errcode":false}', {}), "WeCom answered"),
    ("ntfy", (403, '{"code":40301,"http":403,"error":"forbidden"}', {}), '"error":"forbidden"'),
    ("ntfy", (200, "{}", {}), "ntfy gave no id"),
    ("telegram", (200, '{"ok":false,"description":"x"}', {}), "Telegram did not say ok"),
]


@pytest.mark.parametrize(("kind", "answer", "said"), REFUSALS)
def test_each_says_no(kind: str, answer: Answer, said: str, sink: Sink, config: Path, monkeypatch: MonkeyPatch) -> None:
    write_config(config, channel(kind, sink, monkeypatch))
    sink.answers = [(answer[0], answer[1] + (f" {KEY}" if "{" not in answer[1] and answer[1] else ""), answer[2])]
    done = front_door.call("notify.py", "test", "--json")
    [row] = json.loads(done.stdout)["channels"]
    assert (done.returncode, row["state"], len(sink.requests)) == (1, "failed", 1), done.stdout
    assert said in row["say"]
    assert KEY not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        ("slack", (503, "busy", {})),
        ("slack", (429, "", {"Retry-After": "0.01"})),
        ("discord", (429, '{"message": "You are being rate limited.", "retry_after": 0.01}', {})),
        ("telegram", (429, '{"ok":false,"error_code":429,"parameters":{"retry_after":0.01}}', {})),
    ],
)
def test_busy_is_asked_again(kind: str, first: Answer, sink: Sink, config: Path, monkeypatch: MonkeyPatch) -> None:
    write_config(config, channel(kind, sink, monkeypatch))
    sink.answers = [first, OK[kind]]
    assert front_door.call("notify.py", "test").returncode == 0 and len(sink.requests) == 2
    sink.requests.clear()
    sink.answers = [first]
    assert front_door.call("notify.py", "test").returncode == 1 and len(sink.requests) == 3  # within a bound
    sink.requests.clear()
    sink.answers = [(429, "", {"Retry-After": "3600"})]
    assert front_door.call("notify.py", "test").returncode == 1 and len(sink.requests) == 1


def test_what_may_have_arrived_is_never_sent_again(sink: Sink, config: Path, monkeypatch: MonkeyPatch) -> None:
    write_config(config, channel("slack", sink, monkeypatch))
    sink.answers = ["drop"]
    for _ in range(2):
        [outcome] = telling.tell("k", "x")
        assert outcome.state == telling.SENDING
    assert len(sink.requests) == 1


def test_a_failed_channel_is_said_and_others_are_tried(sink: Sink, config: Path, monkeypatch: MonkeyPatch) -> None:
    dead = {"kind": "ntfy", "name": "dead", "server": "http://127.0.0.1:1", "topic": {"env": "TOKEN"}}
    unset = {"kind": "discord", "name": "unset", "url": {"env": "NOT_SET"}}
    write_config(config, dead, unset, channel("slack", sink, monkeypatch))
    done = front_door.call("notify.py", "send", "x", "--key", "e1")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "1 of 3 channels have it")
    assert "dead: not reached" in done.stdout and "the environment variable NOT_SET is not set" in done.stdout
    again = front_door.call("notify.py", "send", "x", "--key", "e1")
    assert "sent before slack-3" in again.stdout and len(sink.requests) == 1


def test_one_message_however_many_tell_it_at_once(sink: Sink, config: Path, monkeypatch: MonkeyPatch) -> None:
    write_config(config, channel("slack", sink, monkeypatch))
    words = [sys.executable, str(SCRIPT), "send", "x", "--key", "same"]
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = sorted(child.communicate()[0].splitlines()[0] for child in started)
    assert said == ["sent        slack-1", *["sent before slack-1"] * 3] and sink.titles == ["x"]


def test_a_teller_killed_half_way_sends_nothing_twice(sink: Sink, config: Path, monkeypatch: MonkeyPatch) -> None:
    write_config(config, channel("slack", sink, monkeypatch))
    sink.answers = ["hang", OK["slack"]]
    child = subprocess.Popen([sys.executable, str(SCRIPT), "send", "x", "--key", "k"])
    wait_for("the request", lambda: sink.requests)
    child.send_signal(signal.SIGKILL)
    child.wait()
    done = front_door.call("notify.py", "send", "x", "--key", "k")
    assert done.returncode == 1 and "whether it arrived is not known" in done.stdout and len(sink.requests) == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("@everyone and @here, not root@box", "@\u200beveryone and @\u200bhere, not root@box"),
        ("<!channel> <@U1> <at user_id='all'> a<b", "‹!channel> ‹@\u200bU1> ‹at user_id='all'> a<b"),
        ("\x1b[2J\x07 \u202egnp.exe\r", "\\x1b[2J\\x07 gnp.exe\\r"),
        ("x" * 9999, "x" * 2996 + " ..."),
        ("\udc80", "?"),
    ],
)
def test_lines_of_strangers_are_cleaned(text: str, shown: str) -> None:
    assert channels.message("t", text).text == shown


# -- mail


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(folder / "key"), "-out", str(folder / "cert")]
    run([need("openssl", "openssl"), *words, *names])
    return folder


@pytest.mark.filterwarnings("ignore:Requiring AUTH")
@pytest.mark.parametrize("security", ["none", "starttls", "ssl"])
def test_mail_by_smtp(security: str, certificate: Path, config: Path, monkeypatch: MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert", certificate / "key")
    inbox = Inbox()

    def judge(*asked: Any) -> AuthResult:
        right = asked[-1].password == KEY.encode()
        return AuthResult(success=right, handled=right)

    class Mailer(Controller):
        def factory(self) -> SMTP:
            tls: Any = {"tls_context": context, "require_starttls": True} if security == "starttls" else {}
            return SMTP(self.handler, auth_required=True, auth_require_tls=False, authenticator=judge, **tls)

    port = free_port()
    server = Mailer(inbox, hostname="localhost", port=port, ssl_context=context if security == "ssl" else None)
    server.start()
    try:
        (config.parent / "password").write_text(f"{KEY}\n")
        mail: dict[str, Any] = {"kind": "smtp", "host": "localhost", "port": port, "security": security, "user": "me"}
        mail |= {"password": {"file": str(config.parent / "password")}, "from": "me@example.org"}
        write_config(config, {**mail, "to": ["you@example.org", "two@example.org"]})
        if security != "none":
            done = front_door.call("notify.py", "test")
            assert done.returncode == 1 and "CERTIFICATE_VERIFY_FAILED" in done.stdout  # nobody vouches for it yet
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert"))
        done = front_door.call("notify.py", "send", "line one\nSubject: two", "--text", "损失 1.0")
        assert done.returncode == 0, done.stdout
        [(people, content)] = inbox.mails
        assert people == ["you@example.org", "two@example.org"] and b"Subject: line one Subject: two" in content
        write_config(config, {**mail, "to": ["gone@example.org", "you@example.org"]})
        done = front_door.call("notify.py", "test")
        assert done.returncode == 1 and "refused for gone@example.org; the others have it" in done.stdout
        (config.parent / "password").write_text("wrong-one")
        done = front_door.call("notify.py", "test")
        assert done.returncode == 1 and "SMTP 535" in done.stdout and "wrong-one" not in done.stdout
    finally:
        server.stop()


def test_programs_of_this_machine(tmp_path: Path, config: Path, monkeypatch: MonkeyPatch) -> None:
    for name in ("sendmail", "notify-send", "osascript", "mine"):
        script = tmp_path / "bin" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/{name}.words; cat > {tmp_path}/{name}.in\n')
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=os.pathsep)
    mine = {"kind": "command", "argv": ["mine", "--loud; rm -rf /"]}
    write_config(config, {"kind": "sendmail", "to": ["you@example.org"]}, {"kind": "desktop"}, mine)
    assert front_door.call("notify.py", "send", "done", "--text", "so -la").returncode == 0
    assert (tmp_path / "sendmail.words").read_text().split() == ["-t", "-i"]
    assert "To: you@example.org" in (tmp_path / "sendmail.in").read_text()
    assert (tmp_path / "notify-send.words").read_text().splitlines() == ["--", "done", "so -la"]
    assert (tmp_path / "mine.words").read_text() == "--loud; rm -rf /\n"
    assert (tmp_path / "mine.in").read_text() == "done\nso -la\n"
    write_config(config, {"kind": "command", "argv": ["not-there"]}, {"kind": "command", "argv": ["false"]})
    done = front_door.call("notify.py", "test")
    assert "not-there does not start" in done.stdout and "false ended with 1" in done.stdout


# -- the config


def test_without_a_config_nobody_is_told_and_that_is_said(config: Path) -> None:
    done = front_door.call("notify.py", "test")
    assert (done.returncode, done.stdout) == (3, "") and "nobody was told" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("channels: [{kind: slack, url: 'https://hooks.slack.com/x'}]", "channels/0/url"),
        ("channels: [{kind: smtp, host: x}]", "'from' is a required property"),
        ("channels: [{kind: pigeon}]", "'pigeon' is not one of"),
        ("channels: [{kind: desktop, name: a}, {kind: desktop, name: a}]", "two channels of one name"),
        ("channels: [", "is not YAML"),
    ],
)
def test_a_config_that_is_none_is_one_sentence(text: str, said: str, config: Path) -> None:
    config.write_text(text)
    done = front_door.call("notify.py", "test")
    assert (done.returncode, done.stdout) == (2, "") and said in done.stderr
