"""transfer to and from stores: real clients on a server of this machine; a proof only when the hashes agree."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rgt.transfer import stores

import pytest

from .gate_box import ROOT, until
from .real.support import free_port, missing

TRANSFER = ROOT / "scripts" / "transfer.py"
RUN = "20260101-120000-tiny-a1b2c3"


class Bench:
    """A run to send, and the transfer tool in a Python that has the clients."""

    def __init__(self, folder: Path, python: str, **env: str) -> None:
        self.folder, self.python, self.env = folder, python, {**os.environ, **env}
        self.run = folder / RUN
        (self.run / "checkpoints").mkdir(parents=True)
        (self.run / "checkpoints" / "w.bin").write_bytes(os.urandom(100_000))
        (self.run / "train.log").write_text("step 1\n")
        (self.run / "empty").touch()

    def transfer(self, *words: object) -> subprocess.CompletedProcess[str]:
        command = [self.python, str(TRANSFER), *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, env=self.env, cwd=self.folder, timeout=120)


def stores_python() -> str:
    """boto3 and moto are in an environment of their own, as SkyPilot is."""
    python = os.environ.get("RGT_STORES_PYTHON", str(ROOT / ".venv-stores" / "bin" / "python"))
    if not Path(python).exists():
        packages = "boto3 'moto[server,s3]' click pyyaml jsonschema numpy"
        missing(f"boto3 is not there: python3 -m venv .venv-stores && .venv-stores/bin/pip install {packages}")
    return python


@pytest.fixture(name="s3")
def s3_bench(tmp_path: Path) -> Iterator[Bench]:
    python, port = stores_python(), free_port()
    log = (tmp_path / "moto.log").open("wb")
    words = [python, "-m", "moto.server", "-p", str(port), "-H", "127.0.0.1"]
    server = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        until(lambda: b"Running on" in (tmp_path / "moto.log").read_bytes(), 120)
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
        bench = Bench(tmp_path, python, AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}", **keys)
        make = "import boto3; boto3.client('s3').create_bucket(Bucket='box')"
        subprocess.run([python, "-c", make], env=bench.env, check=True)
        yield bench
    finally:
        server.kill()
        server.wait()


def test_s3_there_and_back(s3: Bench) -> None:
    allowed = s3.transfer("push", s3.run, "s3://box/runs/x", "--dry-run")
    assert (allowed.returncode, allowed.stdout) == (0, "nothing was sent; s3://box/runs/x may be written to\n")
    done = s3.transfer("push", s3.run, "s3://box/runs/x")
    assert done.returncode == 0 and "by the store's own hashes" in done.stdout, done.stdout + done.stderr
    proof = json.loads((s3.run / stores.PROOF).read_text())
    assert proof["store"] == "s3://box/runs/x" and len(proof["files"]) == 3
    event = json.loads((s3.run / "events.jsonl").read_text().splitlines()[-1])
    assert (event["event"], event["where"]) == ("stored", "s3://box/runs/x")
    back = s3.transfer("pull", "s3://box/runs/x", "back")
    assert back.returncode == 0, back.stdout + back.stderr
    copy = s3.folder / "back"
    assert (copy / "checkpoints/w.bin").read_bytes() == (s3.run / "checkpoints/w.bin").read_bytes()
    assert json.loads((copy / "PULL_MANIFEST.json").read_text())["source"] == "s3://box/runs/x"


SPOIL = """\
import sys; sys.path.insert(0, sys.argv.pop(1))
from rgt.transfer import stores
sent = stores.S3.send
def send(self, folder, names):
    sent(self, folder, names)
    key = self._key("checkpoints/w.bin")
    {act}
stores.S3.send = send
import transfer
transfer.main()
"""
ACTS = {
    "other bytes": ("self.client.put_object(Bucket=self.bucket, Key=key, Body=b'x' * 100_000)", "another hash"),
    "short": ("self.client.put_object(Bucket=self.bucket, Key=key, Body=b'x')", "has 1 bytes in the store"),
    "gone": ("self.client.delete_object(Bucket=self.bucket, Key=key)", "is not in the store"),
}


@pytest.mark.parametrize("act", ACTS)
def test_no_proof_when_the_store_has_something_else(s3: Bench, act: str) -> None:
    code, said = ACTS[act]
    words = [s3.python, "-c", SPOIL.format(act=code), str(ROOT / "scripts"), "push", str(s3.run), "s3://box/x"]
    done = subprocess.run(words, capture_output=True, text=True, env=s3.env, cwd=s3.folder)
    assert done.returncode == 1 and said in done.stdout, done.stdout + done.stderr
    assert "NOT proved" in done.stdout and not (s3.run / stores.PROOF).exists()


def test_no_bucket_no_server(s3: Bench) -> None:
    done = s3.transfer("push", s3.run, "s3://absent/x", "--dry-run")
    assert done.returncode == 3 and "cannot write to s3://absent/x: " in done.stderr and "NoSuchBucket" in done.stderr
    s3.env |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}", "AWS_MAX_ATTEMPTS": "1"}
    done = s3.transfer("push", s3.run, "s3://box/x")
    assert done.returncode == 3 and "Could not connect" in done.stderr and done.stderr.count("\n") == 1


# -- the hub, by the real client on a stand-in that speaks its HTTP


HUB = """\
import base64, hashlib, http.server, json, sys, urllib.parse
FILES, SPOIL = {}, sys.argv[2] if len(sys.argv) > 2 else ""
class Hub(http.server.BaseHTTPRequestHandler):
    def answer(self, data, code=200, **more):
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **more}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
    def here(self):
        return "http://" + self.headers["Host"] + "/me/repo"
    def blob(self, path):
        data = FILES[path]
        git = hashlib.sha1(b"blob %d" % len(data) + bytes(1) + data).hexdigest()
        return {"type": "file", "path": path, "size": len(data), "oid": git[::-1] if SPOIL in path and SPOIL else git}
    def do_GET(self):
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        if "whoami" in path:
            role = "read" if "read" in self.headers.get("Authorization", "") else "write"
            self.answer({"name": "me", "type": "user", "auth": {"accessToken": {"role": role}}})
        elif "/tree/" in path:
            self.answer([self.blob(name) for name in sorted(FILES)])
        elif "/resolve/" in path:
            name = path.partition("/resolve/main/")[2] or path.partition("/resolve/" + "0" * 40 + "/")[2]
            more = {"ETag": '"' + self.blob(name)["oid"] + '"', "X-Repo-Commit": "0" * 40}
            self.answer(FILES[name], **more)
        else:
            files = [{"rfilename": name} for name in FILES]
            self.answer({"id": "me/repo", "sha": "0" * 40, "siblings": files})
    do_HEAD = do_GET
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "preupload" in self.path:
            how = {"uploadMode": "regular", "shouldIgnore": False}
            rows = [{"path": file["path"], **how} for file in json.loads(body)["files"]]
            self.answer({"files": rows})
        elif "/commit/" in self.path:
            for line in body.splitlines():
                row = json.loads(line)
                if row["key"] == "file":
                    FILES[row["value"]["path"]] = base64.b64decode(row["value"]["content"])
            self.answer({"success": True, "commitOid": "0" * 40, "commitUrl": self.here() + "/commit/" + "0" * 40})
        elif "paths-info" in self.path:
            form = body.decode()
            wanted = json.loads(form)["paths"] if form.startswith("{") else urllib.parse.parse_qs(form)["paths"]
            self.answer([self.blob(name) for name in wanted if name in FILES])
        else:
            self.answer({"url": self.here(), "name": "me/repo"})
    def log_message(self, *words):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Hub)
print("ready", flush=True)
server.serve_forever()
"""


@contextlib.contextmanager
def hub(folder: Path, spoil: str = "", token: str = "hf_write") -> Iterator[Bench]:
    pytest.importorskip("huggingface_hub")
    port = free_port()
    words = [sys.executable, "-c", HUB, str(port), *([spoil] if spoil else [])]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert server.stdout and server.stdout.readline() == "ready\n"
    own = {"HF_ENDPOINT": f"http://127.0.0.1:{port}", "HF_TOKEN": token, "HF_HOME": str(folder / "home")}
    own |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    try:
        yield Bench(folder, sys.executable, **own)
    finally:
        server.kill()
        server.wait()


def test_the_hub_there_and_back(tmp_path: Path) -> None:
    with hub(tmp_path) as bench:
        (bench.run / "empty").unlink()
        done = bench.transfer("push", bench.run, "hf://me/repo/x")
        assert done.returncode == 0 and (bench.run / stores.PROOF).exists(), done.stdout + done.stderr
        back = bench.transfer("pull", "hf://me/repo/x", "back")
        assert back.returncode == 0, back.stdout + back.stderr
        assert (tmp_path / "back/checkpoints/w.bin").read_bytes() == (bench.run / "checkpoints/w.bin").read_bytes()


def test_no_proof_when_the_hub_has_something_else_or_the_token_may_only_read(tmp_path: Path) -> None:
    with hub(tmp_path / "spoilt", spoil="w.bin") as bench:
        done = bench.transfer("push", bench.run, "hf://me/repo/x")
        assert done.returncode == 1 and "w.bin: has another hash in the store" in done.stdout, done.stderr
        assert not (bench.run / stores.PROOF).exists()
    with hub(tmp_path / "read", token="hf_read") as bench:
        done = bench.transfer("push", bench.run, "hf://me/repo", "--dry-run")  # said before the run
        assert (done.returncode, done.stdout) == (3, "") and "may only read" in done.stderr
