"""A stand-in for the hosted tracker: the GraphQL questions that the real wandb client asks, answered from memory."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VIEWER = {"id": "u", "entity": "me", "username": "me", "email": "me@example.org", "flags": "{}", "teams": {"edges": []}}
PROJECT = {"internalId": "1", "readOnly": False}
NODE: dict[str, Any] = {  # what the client asks of every run, and what nobody here looks at
    **dict.fromkeys(("sweepName", "group", "jobType", "commit", "runInfo")),
    **dict.fromkeys(("createdAt", "heartbeatAt"), "2026-11-16T00:00:00Z"),
    **dict.fromkeys(("description", "notes"), ""),
    "projectId": 1,
    "tags": [],
    "readOnly": False,
    "systemMetrics": "{}",
    "fileCount": 0,
    "files": {"edges": []},
    "user": {"name": "me", "username": "me"},
}


@dataclass
class Service:
    runs: dict[str, dict[str, Any]]  # id -> {"state", "config", "summary", "rows"}
    viewer: dict[str, Any] = field(default_factory=lambda: VIEWER)

    def start(self) -> str:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None: ...

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                reply = service.answer(body) if self.path == "/graphql" else {}
                data = json.dumps({"data": reply}).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self.server.server_port}"

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def answer(self, body: bytes) -> dict[str, Any]:
        question = json.loads(body)
        query, variables = question["query"], question.get("variables") or {}
        if "viewer" in query:
            return {"viewer": self.viewer or None}
        if "HistoryPage" in query or "history(" in query:
            name = variables.get("run") or variables["name"]
            first, last = int(variables.get("minStep", 0)), int(variables.get("maxStep", 10**9))
            rows = [json.dumps(row) for row in self.runs[name]["rows"] if first <= row["_step"] < last]
            return {"project": {"run": {**self._node(name), "history": rows}}}
        return {"project": {**PROJECT, **self._listed(), "run": self._node(variables.get("name", ""))}}

    def _listed(self) -> dict[str, Any]:
        edges = [{"node": self._node(name), "cursor": name} for name in self.runs]
        return {"runCount": len(edges), "runs": {"edges": edges, "pageInfo": {"endCursor": "", "hasNextPage": False}}}

    def _node(self, name: str) -> dict[str, Any]:
        run = self.runs.get(name)
        if run is None:
            return {}
        rows, config = run["rows"], {key: {"value": value} for key, value in run["config"].items()}
        node = {"id": f"gid-{name}", "name": name, "displayName": f"run {name}", "state": run["state"]}
        node |= {"config": json.dumps(config), "summaryMetrics": json.dumps(run["summary"])}
        return {**NODE, **node, "historyLineCount": len(rows), "historyKeys": {"lastStep": len(rows) - 1, "keys": {}}}
