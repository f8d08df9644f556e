"""The real clients of providers against a loopback API: "gone" only when it is.

vastai comes from PyPI, the newest, into an environment of its own (.clients/, 200 MB); sky from .venv-sky. Both take
seconds for each answer, so they are a soak.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rgt.platform import acts, profiles

import pytest

from .support import missing

# one worker: the first makes the environment
pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("provider-clients")]
ROOT = Path(__file__).resolve().parents[2]
BOX, OTHER = "40123456", "40999999"
# what an API says instead of an answer: the HTTP status and the body
ODD: dict[str, tuple[int, bytes]] = {
    "401": (401, b'{"success": false, "error": "auth_error", "msg": "Invalid user key"}'),
    "404": (404, b'{"success": false, "error": "no_such", "msg": "not found"}'),
    "429": (429, b'{"success": false, "error": "rate", "msg": "API requests too frequent"}'),
    "500": (500, b"<html><title>500 Internal Server Error</title></html>"),
    "200 that says error": (200, b'{"success": false, "error": "auth_error", "msg": "Invalid user key"}'),
    "empty": (200, b""),
    "empty object": (200, b"{}"),
    "HTML": (200, b"<html><title>log in</title></html>"),
}


class Api(ThreadingHTTPServer):
    """Vast's instances; `odd` maps list or act to what is answered instead, `acted` is what reached it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.states = {BOX: "running", OTHER: "running"}
        self.odd: dict[str, str] = {}
        self.odd_after: dict[str, str] = {}  # once an act reached it
        self.acted: list[str] = []
        self.headers: dict[str, str] = {}
        self.body = b""

    def answer(self, method: str, path: str) -> tuple[int, bytes]:
        kind = "list" if method == "GET" else "act"
        if kind == "act":
            self.acted.append(f"{method} {path}")
        mode = self.odd.get(kind) or (self.odd_after.get(kind, "") if self.acted else "")
        rows = [self.row(name, state) for name, state in self.states.items()]
        whole: dict[str, Any] = {
            "instances": rows,
            "next_token": None,
            "total_instances": len(rows),
            "label_counts": {},
        }
        if mode == "nested":
            return 200, json.dumps({"result": whole if kind == "list" else {"success": True}}).encode()
        if mode:
            return ODD[mode]
        if kind == "list":
            return 200, json.dumps(whole).encode()
        name = path.rstrip("/").rpartition("/")[2]
        if method == "DELETE":
            self.states.pop(name)
        else:
            self.states[name] = "stopped"
        return 200, b'{"success": true}'

    @staticmethod
    def row(name: str, state: str) -> dict[str, Any]:
        row = {"id": int(name), "cur_state": state, "actual_status": state, "intended_status": state}
        return {
            **row,
            "start_date": 1.0,
            "extra_env": [["A", "1"]],
            "gpu_name": "RTX 4090",
            "machine": {"id": int(BOX)},
        }


class Handler(BaseHTTPRequestHandler):
    server: Api

    def reply(self) -> None:
        self.server.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, body = self.server.answer(self.command, self.path.partition("?")[0])
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_DELETE = do_POST = reply

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="session")
def vastai() -> Path:
    """The folder of the newest vastai; an older one stays when there is no registry."""
    environment = ROOT / ".clients" / "vastai"
    if not (environment / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "-q", "-U", "vastai"]
    subprocess.run(pip, capture_output=True, timeout=600)
    if not (environment / "bin" / "vastai").exists():
        missing("vastai cannot be installed from the registry")
    return environment / "bin"


@pytest.fixture
def facts(vastai: Path, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("PATH", f"{vastai}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in (("URL", f"http://127.0.0.1:{api.server_port}"), ("API_KEY", "k3y")):
        monkeypatch.setenv(f"VAST_{name}", value)
    monkeypatch.setenv("VASTAI_NO_UPDATE_CHECK", "1")
    monkeypatch.setattr(acts, "_PAUSE", 0.01)
    return profiles.load("vastai")


def end(facts: dict[str, Any], act: str, box: str = BOX) -> acts.Outcome:
    return acts.end(facts, {"id": box}, box, act, wait=0)


@pytest.mark.parametrize("act", ["stop", "destroy"])
def test_vastai_gone_when_it_is(facts: dict[str, Any], api: Api, act: str) -> None:
    outcome = end(facts, act)
    assert (outcome.executed, outcome.gone) == (True, True), outcome
    assert api.states == ({OTHER: "running"} if act == "destroy" else {BOX: "stopped", OTHER: "running"})
    listing = acts.listed(facts, {})
    assert {row.id: row.stopped for row in listing.rows} == {name: name == BOX for name in api.states}


@pytest.mark.parametrize(
    ("act", "answer"), [*(("destroy", answer) for answer in (*ODD, "nested")), ("stop", "401"), ("stop", "empty")]
)
def test_vastai_not_gone(facts: dict[str, Any], api: Api, act: str, answer: str) -> None:
    api.odd = {"list": answer}
    before = end(facts, act)
    assert (before.executed, before.gone, api.acted) == (False, False, []), before
    api.odd = {"act": answer}
    refused = end(facts, act)
    assert (refused.executed, refused.gone, api.states[BOX]) == (True, False, "running"), refused
    api.odd, api.odd_after, api.acted = {}, {"list": answer}, []
    unseen = end(facts, act)
    assert (unseen.executed, unseen.gone) == (True, False), unseen
    assert unseen.sentence.startswith("not proved gone: look at the console")


def test_vastai_takes_no_shortened_or_unknown_id(facts: dict[str, Any], api: Api) -> None:
    for box in (BOX[:-1], "1"):
        outcome = end(facts, "destroy", box)
        assert (outcome.executed, outcome.gone, api.acted) == (False, False, [])


# -- SkyPilot: its client alone, with an API server of ours

SKY = ROOT / ".venv-sky" / "bin"
# the envelope in which the server hands out the result of a request, made by SkyPilot's own classes
ENVELOPE = """
import json, sky
from sky.server import constants
from sky.server.requests import payloads, requests
body = payloads.StatusBody()
done = requests.Request("r1", "status", sky.status, body, requests.RequestStatus.SUCCEEDED, 1.0, "u", return_value=[])
print(json.dumps([done.encode().model_dump(mode="json"), constants.API_VERSION, sky.__version__, sky.__commit__]))
"""


class SkyApi(Api):
    """A SkyPilot API server: POST gives a request's id, GET /api/get its result."""

    def __init__(self, envelope: dict[str, Any], health: dict[str, Any]) -> None:
        super().__init__()
        self.states = {"mine": "UP", "other": "UP"}
        self.envelope, self.health = envelope, health
        self.pending, self.asked = "status", list(self.states)
        versions = {"API-Version": health["api_version"], "Version": health["version"]}
        self.headers = {
            "X-SkyPilot-Request-ID": "r1",
            **{f"X-SkyPilot-{key}": value for key, value in versions.items()},
        }

    def answer(self, method: str, path: str) -> tuple[int, bytes]:
        if path == "/api/health":
            return 200, json.dumps(self.health).encode()
        if path in ("/down", "/stop"):
            self.acted.append(path)
            if self.odd.get("act"):
                return ODD[self.odd["act"]]
            name = json.loads(self.body)["cluster_name"]
            self.states.pop(name)
            self.states |= {name: "STOPPED"} if path == "/stop" else {}
        if path in ("/down", "/stop", "/status"):
            self.pending = path[1:]
        if path == "/status":
            self.asked = json.loads(self.body).get("cluster_names") or list(self.states)
        mode = self.odd.get("list") or (self.odd_after.get("list", "") if self.acted else "")
        odd = ODD.get(mode, (200, b'{"result": []}'))
        if mode and path == ("/api/get" if odd[0] == 200 else "/status"):
            return odd
        if path in ("/api/get", "/api/stream"):
            rows = [self.row(name, self.states[name]) for name in self.asked if name in self.states]
            value = json.dumps(rows if self.pending == "status" else None)
            result = {**self.envelope, "name": f"sky.{self.pending}", "return_value": value}
            return 200, json.dumps(result).encode() if path == "/api/get" else b""
        return 200, b"{}"

    @staticmethod
    def row(name: str, state: str) -> dict[str, Any]:
        row = {"name": name, "status": state, "launched_at": 1, "autostop": -1, "to_down": False, "cluster_hash": "h"}
        row |= {"cluster_ever_up": True, "user_hash": "u", "user_name": "u", "workspace": "default", "nodes": 1}
        return {**row, "is_managed": False, "handle": None}


@pytest.fixture
def sky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SkyApi]:
    if not (SKY / "sky").exists():
        missing("SkyPilot is not there (make sky)")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SKYPILOT_DISABLE_USAGE_COLLECTION", "1")
    monkeypatch.setenv("PATH", f"{SKY}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(acts, "_PAUSE", 0.01)
    made = subprocess.run([SKY / "python", "-c", ENVELOPE], capture_output=True, text=True, check=True)
    envelope, api_version, version, commit = json.loads(made.stdout.splitlines()[-1])
    health = {"status": "healthy", "api_version": str(api_version), "version": version, "commit": commit}
    with SkyApi(envelope, health) as server:
        monkeypatch.setenv("SKYPILOT_API_SERVER_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.parametrize("act", ["stop", "destroy"])
def test_sky_gone_when_it_is(sky: SkyApi, act: str) -> None:
    outcome = acts.end(profiles.load("generic-ssh:skypilot"), {"id": "mine"}, "mine", act, wait=0)
    assert (outcome.executed, outcome.gone) == (True, True), outcome
    assert sky.acted == ["/stop" if act == "stop" else "/down"]


@pytest.mark.parametrize("answer", [*ODD, "nested"])
def test_sky_not_gone(sky: SkyApi, answer: str) -> None:
    facts = profiles.load("generic-ssh:skypilot")
    sky.odd = {"list": answer}
    before = acts.end(facts, {"id": "mine"}, "mine", "destroy", wait=0)
    assert (before.executed, before.gone, sky.acted) == (False, False, []), before
    sky.odd, sky.odd_after = {}, {"list": answer}
    unseen = acts.end(facts, {"id": "mine"}, "mine", "destroy", wait=0)
    assert (unseen.executed, unseen.gone) == (True, False), unseen


def test_sky_of_an_unknown_name_or_without_a_server(sky: SkyApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sky down -y` of a name that does not exist exits 0; here it is not even asked."""
    facts = profiles.load("generic-ssh:skypilot")
    unknown = acts.end(facts, {"id": "min"}, "min", "destroy", wait=0)
    assert (unknown.executed, unknown.gone, sky.acted) == (False, False, []), unknown
    monkeypatch.setenv("SKYPILOT_API_SERVER_ENDPOINT", "http://127.0.0.1:9")
    silent = acts.end(facts, {"id": "mine"}, "mine", "destroy", wait=0)
    assert (silent.executed, silent.gone) == (False, False) and "ended with 1" in silent.sentence
