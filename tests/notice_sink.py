"""Who is told: a real HTTP server on loopback that answers as the services do, and a config that points to it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml
from aiosmtpd.controller import Controller

Answer = tuple[int, str, dict[str, str]]
OK: dict[str, Answer] = {
    "slack": (200, "ok", {}),
    "discord": (204, "", {}),
    "feishu": (200, '{"StatusCode":0,"StatusMessage":"success","code":0,"data":{},"msg":"success"}', {}),
    "wecom": (200, '{"errcode":0,"errmsg":"ok"}', {}),
    "ntfy": (200, '{"id":"sPs71M8A2T","time":1643935928,"event":"message","topic":"t"}', {}),
    "telegram": (200, '{"ok":true,"result":{"message_id":1}}', {}),
}


@dataclass
class Sink:
    """Answers each request with the next of `answers`, the last one again and again; "hang" and "drop" are answers."""

    port: int = 0
    answers: list[Answer | str] = field(default_factory=lambda: [OK["slack"]])
    requests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def texts(self) -> list[str]:
        """Of messages in Slack's form."""
        return [row["body"]["text"] for row in self.requests]

    @property
    def titles(self) -> list[str]:
        return [text.partition("\n")[0] for text in self.texts]


@contextmanager
def listening() -> Iterator[Sink]:
    sink = Sink()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            sink.requests.append({"path": self.path, "body": body, "headers": dict(self.headers)})
            answer = sink.answers[min(len(sink.requests), len(sink.answers)) - 1]
            if isinstance(answer, str):
                time.sleep(5 if answer == "hang" else 0)
                self.close_connection = True
                self.connection.close()
                return
            code, text, headers = answer
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text.encode()) if code != 204 else 0))
            self.end_headers()
            self.wfile.write(text.encode() if code != 204 else b"")

        def log_message(self, *_: Any) -> None:
            pass

        def finish(self) -> None:
            if not self.wfile.closed:
                try:
                    super().finish()
                except (OSError, ValueError):
                    pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    sink.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield sink
    finally:
        server.shutdown()
        server.server_close()


def write_config(path: Path, *channels: dict[str, Any], **more: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"channels": list(channels), **more}, allow_unicode=True))
    return path


class Inbox:
    """What an SMTP server took."""

    def __init__(self) -> None:
        self.mails: list[tuple[list[str], bytes]] = []

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if address.startswith("gone@"):
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.mails.append((list(envelope.rcpt_tos), envelope.content))
        return "250 OK"


@contextmanager
def mailbox(port: int) -> Iterator[Inbox]:
    """A real SMTP server on loopback, without TLS and login."""
    inbox = Inbox()
    server = Controller(inbox, hostname="localhost", port=port)
    server.start()
    yield inbox
    server.stop()
