"""The board over HTTP, on loopback, read-only; and the same page as one file.

    /                     the page             /board.js, /board.css, /uplot.js, /uplot.css
    /events               what changed, as server-sent events; the first one is everything
    /api/run/<id>         one run's page       /api/curves?runs=ID,ID&metric=loss&width=800&low=0&high=100

Who has the token of the URL gets a cookie; all else is refused, and so is a Host that is not loopback (a name that
somebody's DNS points here). Nothing that a run says becomes markup: the page sets text, and its policy lets no other
script run.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.cookies
import json
import math
import os
import re
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from rgt import bundle, files
from rgt.errors import RgtError, bad_input, lacking
from rgt.watch.board import Board

_FILES = bundle.TEMPLATES / "board"
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
_ASSETS = {f"/{name}": name for name in ("board.js", "board.css", "uplot.js", "uplot.css")} | {"/": "index.html"}
_HOSTS = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::\d+)?", re.I)  # any port: ssh -L may use another
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_BEAT = 10.0  # seconds after which a silent stream says that it lives
_GATHER = 0.3  # seconds in which changes are gathered into one message
_STREAMS = 32
_COMPARED = 50  # runs in one request for curves
_WIDEST = 4000
_STATIC_POINTS = 400_000  # of all curves on a static page


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, board: Board, token: str) -> None:
        self.board, self.token = board, token
        self.boot = secrets.token_hex(4)  # versions of another server's life mean nothing
        self.streams = threading.BoundedSemaphore(_STREAMS)
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            raise lacking(f"port {port} cannot be used ({error.strerror}); give another --port") from None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/?token={self.token}"

    @property
    def cookie(self) -> str:
        return f"rgt_board_{self.server_port}"  # cookies are not told apart by port

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is nothing to print."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "rgt", ""
    timeout = 30.0  # for a request to come, and for a client to take what it asked for

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        if not _HOSTS.fullmatch(self.headers.get("Host", "")):
            self._answer(421, "this board answers to localhost only")
        elif "token" in query and self._is_token(query["token"]):
            cookie = f"{self.server.cookie}={self.server.token}; HttpOnly; SameSite=Lax; Path=/"
            self._answer(303, "", headers={"Location": "/", "Set-Cookie": cookie})
        elif not self._has_cookie():
            self._answer(403, "open the board by the URL that `rgt watch serve` printed: it holds the token")
        elif url.path in _ASSETS:
            name = _ASSETS[url.path]
            self._answer(200, (_FILES / name).read_bytes(), f"{_TYPES[Path(name).suffix]}; charset=utf-8")
        elif url.path == "/favicon.ico":
            self._answer(204, "")
        elif url.path == "/events":
            self._stream()
        else:
            self._answer_json(url.path, query)

    def _refuse(self) -> None:
        self.close_connection = True  # a body may follow
        self._answer(405, "the board is read-only", headers={"Allow": "GET"})

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_HEAD = _refuse

    def _is_token(self, word: str) -> bool:
        return hmac.compare_digest(word.encode(), self.server.token.encode())

    def _has_cookie(self) -> bool:
        try:
            cookies = http.cookies.SimpleCookie(self.headers.get("Cookie", ""))
        except http.cookies.CookieError:
            return False
        return self.server.cookie in cookies and self._is_token(cookies[self.server.cookie].value)

    def _answer(
        self,
        code: int,
        body: str | bytes,
        kind: str = "text/plain; charset=utf-8",
        headers: dict[str, str] | None = None,
    ) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.send_response(code)
        sizes = {"Content-Type": kind, "Content-Length": str(len(data))}
        for name, value in {**_HEADERS, **sizes, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _answer_json(self, path: str, query: dict[str, str]) -> None:
        board = self.server.board
        try:
            if path == "/api/curves":
                runs = [word for word in query.get("runs", "").split(",") if word][:_COMPARED]
                width = int(min(_WIDEST, max(10, _number(query.get("width"), 600))))
                low, high = _number(query.get("low"), -math.inf), _number(query.get("high"), math.inf)
                answer = board.curves(runs, query.get("metric", "loss"), width, low, high)
            elif path.startswith("/api/run/"):
                answer = board.detail(path.removeprefix("/api/run/"))
            else:
                raise KeyError(path)
        except KeyError:
            self._answer(404, "there is no such page or run")
        except RgtError as error:  # a box that does not answer
            self._answer(502, error.message)
        else:
            self._answer(200, to_json(answer), "application/json")

    def _stream(self) -> None:
        if not self.server.streams.acquire(blocking=False):
            self._answer(503, f"{_STREAMS} pages are open already")
            return
        try:
            self.close_connection = True
            self.send_response(200)
            for name, value in {**_HEADERS, "Content-Type": "text/event-stream", "Connection": "close"}.items():
                self.send_header(name, value)
            self.end_headers()
            boot, _, last = self.headers.get("Last-Event-ID", "").partition(":")
            version = int(last) if boot == self.server.boot and last.isdigit() else 0
            self._send_changes(version)
        finally:
            self.server.streams.release()

    def _send_changes(self, version: int) -> None:
        board = self.server.board
        full = version == 0
        while not board.stop.is_set():
            before = version
            version, change = board.since(before, 0.0 if full else _BEAT)
            if full or version > before:
                head = f"id: {self.server.boot}:{version}\nevent: change\ndata: "
                self.wfile.write(head.encode() + to_json({"full": full, **change}) + b"\n\n")
                board.stop.wait(_GATHER)
            else:
                self.wfile.write(b"event: beat\ndata: {}\n\n")
            full = False


def _number(text: str | None, default: float) -> float:
    try:
        value = float(text or "nan")
    except ValueError:
        return default
    return default if math.isnan(value) else value


def to_json(data: Any) -> bytes:
    """One line of ASCII; not-a-numbers are words, as everywhere."""
    try:
        return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        return json.dumps(_finite(data), allow_nan=False, separators=(",", ":")).encode()


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _finite(value) for name, value in data.items()}
    if isinstance(data, list):
        return [_finite(value) for value in data]
    return files.json_number(data) if isinstance(data, float) else data


def own_token() -> str:
    """The same after a restart, so that an open page finds back; in a file that only its user reads."""
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    path = home / "rgt" / "board" / "token"
    try:
        if path.stat().st_mode & 0o077 == 0 and re.fullmatch(r"[\w-]{32,64}", known := files.read_text(path).strip()):
            return known
    except (OSError, RgtError):
        pass
    token = secrets.token_urlsafe(24)
    with files.locked(path.with_suffix(".lock")):
        files.write_bytes(path, f"{token}\n".encode(), mode=0o600)
    return token


# -- the same page as one file


def static_page(board: Board) -> str:
    """With the rows, pages and curves of now inside; nothing is fetched, and nothing else may run."""
    points = max(60, _STATIC_POINTS // max(1, 4 * len(board.rows)))
    details = {}
    for run_id in board.rows:
        try:
            details[run_id] = board.detail(run_id)
        except (RgtError, KeyError):  # a box without an answer: its row says so
            continue
        if run_id in board.runs:
            curves = board.runs[run_id].read_curves().by_name
            thinned = {name: curve.thinned(min(400, points)) for name, curve in curves.items()}
            details[run_id]["curves"] = {
                name: [list(xs), [float(f"{y:.5g}") for y in ys]] for name, (xs, ys) in thinned.items()
            }
    data = {"time": time.time(), "details": details, **board.since(0)[1]}
    page = files.read_text(_FILES / "index.html")
    hashes: dict[str, list[str]] = {"style": [], "script": []}

    def inline(match: re.Match[str]) -> str:
        text = files.read_text(_FILES / match["file"])
        kind = "style" if match["file"].endswith(".css") else "script"
        if f"</{kind}" in text.lower():
            raise bad_input(f"{match['file']} cannot stand inside of a page: it holds </{kind}")
        hashes[kind].append(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'")
        return f"<{kind}>{text}</{kind}>"

    page = re.sub(r'<link rel="stylesheet" href="(?P<file>[\w.]+)">', inline, page)
    page = re.sub(r'<script src="(?P<file>[\w.]+)"></script>', inline, page)
    sources = "; ".join(f"{kind}-src {' '.join(found)}" for kind, found in hashes.items())
    policy = f'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; {sources}">'
    inside = to_json(data).decode().replace("<", "\\u003c")
    block = f'<script type="application/json" id="data">{inside}</script>'
    return page.replace("<head>", f"<head>\n{policy}", 1).replace("<body>", f"<body>\n{block}", 1)
