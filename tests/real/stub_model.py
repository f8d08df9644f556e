"""A model that calls the shell once, with the given command, and then says "done": for real agents on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Events = list[dict[str, Any]]


def openai_events(request: dict[str, Any], command: str) -> Events:
    """The Responses API, as Codex reads it."""
    if any(str(one.get("type", "")).endswith("call_output") for one in request.get("input", [])):
        item = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}
    else:
        names = [tool.get("name") for tool in request.get("tools", [])]
        name = "exec_command" if "exec_command" in names else "shell_command"
        arguments = {"cmd" if name == "exec_command" else "command": command}
        item = {"type": "function_call", "id": "f", "call_id": "c", "name": name, "arguments": json.dumps(arguments)}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return [
        {"type": "response.created", "response": {"id": "r"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "r", "usage": usage}},
    ]


def anthropic_events(request: dict[str, Any], command: str) -> Events:
    """The Messages API, as Claude Code reads it."""
    asks = any(tool.get("name") == "Bash" for tool in request.get("tools", []))
    calls = asks and "tool_result" not in json.dumps(request.get("messages"))
    block: dict[str, Any] = {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": "done"}
    if calls:
        block = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps({"command": command, "description": "a step"})}
    message: dict[str, Any] = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "x",
        "content": [],
        "stop_reason": None,
    }
    end = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    return [
        {"type": "message_start", "message": {**message, "usage": {"input_tokens": 1, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]


@contextmanager
def serving(command: str) -> Iterator[tuple[str, list[str]]]:
    """The address, and the bodies of all requests so far."""
    bodies: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def answer(self, kind: str, data: bytes) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self.answer("application/json", b'{"data": [], "models": []}')

        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers.get("content-length") or 0)).decode())
            if "responses" not in self.path and "messages" not in self.path.partition("?")[0][-9:]:
                self.answer("application/json", b'{"input_tokens": 1}')
                return
            make = openai_events if "responses" in self.path else anthropic_events
            events = make(json.loads(bodies[-1]), command)
            text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
            self.answer("text/event-stream", text.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", bodies
    finally:
        server.shutdown()
        server.server_close()
