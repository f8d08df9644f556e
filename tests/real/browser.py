"""Debian's chromium, driven over a pair of pipes by the DevTools protocol; no driver and no package is needed."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .support import need, private_dir, wait_for

FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --hide-scrollbars --remote-debugging-pipe"
).split()


class Browser:
    """One page. `errors` is what its console said of errors, exceptions and refused policies."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back = os.fdopen(to, "wb", buffering=0), os.fdopen(back, "rb", buffering=0)
        self._answers: dict[int, dict[str, Any]] = {}
        self._came, self._count, self._session = threading.Condition(), 0, ""
        self.errors: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _read(self) -> None:
        rest = b""
        while data := self._back.read(1 << 16):
            *messages, rest = (rest + data).split(b"\0")
            for message in map(json.loads, messages):
                with self._came:
                    if "id" in message:
                        self._answers[message["id"]] = message
                    else:
                        self._note(message["method"], message["params"])
                    self._came.notify_all()

    def _note(self, method: str, said: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(said["exceptionDetails"])[:500])
        elif method == "Log.entryAdded" and said["entry"]["level"] == "error":
            self.errors.append(f"{said['entry']['text']} {said['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "assert"):
            self.errors.append(json.dumps(said["args"])[:500])

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        number, head = self._count, {"sessionId": self._session} if self._session else {}
        self._to.write(json.dumps({"id": number, "method": method, "params": params, **head}).encode() + b"\0")
        with self._came:
            assert self._came.wait_for(lambda: number in self._answers, 60), f"no answer to {method}"
        answer = self._answers.pop(number)
        assert "result" in answer, answer
        return dict(answer["result"])

    def look(self, width: int, height: int = 900, dark: bool = False) -> None:
        """The size of the window and the colours that the user wants."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str, seconds: float = 60.0) -> Any:
        return wait_for(expression, lambda: self.value(expression), seconds)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        for kind, (x, y) in (
            ("mouseMoved", start),
            ("mousePressed", start),
            ("mouseMoved", end),
            ("mouseReleased", end),
        ):
            pressed = {"button": "left", "buttons": 1, "clickCount": 1} if kind != "mouseMoved" else {"buttons": 1}
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **pressed)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def browser() -> Iterator[Browser]:
    chromium = need("chromium", "chromium")
    with private_dir("chromium-") as profile:
        (read_there, to), (back, write_there) = os.pipe(), os.pipe()
        # chromium reads from descriptor 3 and writes to 4
        line = f'exec "$@" 3<&{read_there} 4>&{write_there}'
        command = ["bash", "-c", line, "bash", chromium, *FLAGS, f"--user-data-dir={profile}"]
        process = subprocess.Popen(command, pass_fds=(read_there, write_there), stderr=subprocess.DEVNULL)
        os.close(read_there)
        os.close(write_there)
        try:
            yield Browser(to, back)
        finally:
            process.kill()
            process.wait()
