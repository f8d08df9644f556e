"""transfer to and from stores: real clients on a server of this machine; a proof only when the hashes agree."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt.checkpoint.names import STORE_PROOF
from rgt.guard import proof_lookup

import pytest

from .gate_box import ROOT, until
from .real.disk import mount, unmount
from .real.support import free_port, missing
from .transfer_lab import RUN_ID, Provider, make_run

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

    def transfer(self, *words: object, **env: str) -> subprocess.CompletedProcess[str]:
        command, own = [self.python, str(TRANSFER), *map(str, words)], {**self.env, **env}
        return subprocess.run(command, capture_output=True, text=True, env=own, cwd=self.folder, timeout=120)

    def s3(self, code: str) -> str:
        """What somebody else does to the bucket, and what it printed."""
        program = f"import boto3; s3 = boto3.client('s3')\n{code}"
        return subprocess.check_output([self.python, "-c", program], env=self.env, text=True)


def stores_python() -> str:
    """boto3 and moto are in an environment of their own, as SkyPilot is."""
    python = os.environ.get("RGT_STORES_PYTHON", str(ROOT / ".venv-stores" / "bin" / "python"))
    if not Path(python).exists():
        packages = "boto3 'moto[server,s3]' click pyyaml jsonschema numpy"
        missing(f"boto3 is not there: python3 -m venv .venv-stores && .venv-stores/bin/pip install {packages}")
    return python


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an S3 that anybody may write to."""
    python, port, log = stores_python(), free_port(), tmp_path_factory.mktemp("moto") / "log"
    with log.open("wb") as file:
        words = [python, "-m", "moto.server", "-p", str(port), "-H", "127.0.0.1"]
        server = subprocess.Popen(words, stdout=file, stderr=file)
    try:
        until(lambda: b"Running on" in log.read_bytes(), 120)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def post(address: str, body: bytes = b"") -> None:
    plain = {"Content-Type": "text/plain"}
    urllib.request.urlopen(urllib.request.Request(address, body, plain, method="POST")).close()


@pytest.fixture(name="s3")
def s3_bench(moto: str, tmp_path: Path) -> Bench:
    post(f"{moto}/moto-api/reset")
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
    bench = Bench(tmp_path, stores_python(), AWS_ENDPOINT_URL=moto, **keys)
    bench.s3("s3.create_bucket(Bucket='box')")
    return bench


def test_s3_there_and_back(s3: Bench) -> None:
    allowed = s3.transfer("push", s3.run, "s3://box/runs/x", "--dry-run")
    assert (allowed.returncode, allowed.stdout) == (0, "nothing was sent; s3://box/runs/x may be written to\n")
    done = s3.transfer("push", s3.run, "s3://box/runs/x")
    assert done.returncode == 0 and "by the store's own hashes" in done.stdout, done.stdout + done.stderr
    proof = json.loads((s3.run / STORE_PROOF).read_text())
    assert proof["store"] == "s3://box/runs/x" and len(proof["files"]) == 3
    back = s3.transfer("pull", "s3://box/runs/x", "back")
    assert back.returncode == 0, back.stdout + back.stderr
    copy = s3.folder / "back"
    assert (copy / "checkpoints/w.bin").read_bytes() == (s3.run / "checkpoints/w.bin").read_bytes()
    assert json.loads((copy / "PULL_MANIFEST.json").read_text())["source"] == "s3://box/runs/x"


SPOIL = """\
import sys; sys.path.insert(0, sys.argv.pop(1))
from rgt.host import stores
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
    assert "NOT proved" in done.stdout and not (s3.run / STORE_PROOF).exists()


def test_no_bucket_no_server(s3: Bench) -> None:
    done = s3.transfer("push", s3.run, "s3://absent/x", "--dry-run")
    assert done.returncode == 3 and "cannot write to s3://absent/x: " in done.stderr and "NoSuchBucket" in done.stderr
    s3.env |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}", "AWS_MAX_ATTEMPTS": "1"}
    done = s3.transfer("push", s3.run, "s3://box/x")
    assert done.returncode == 3 and "Could not connect" in done.stderr and done.stderr.count("\n") == 1


# -- down: what is in a store need not be here


class Rented:
    """A box with a disk of its own, its run in the store, and here the small files, or nothing."""

    def __init__(self, s3: Bench, folder: Path) -> None:
        self.s3, self.there, self.here = s3, make_run(folder / "rented"), folder / "pulled" / RUN_ID
        self.provider = Provider(folder / "provider", folder / "rented")
        done = s3.transfer("push", self.there, "s3://box/runs/x")
        assert done.returncode == 0, done.stdout + done.stderr
        done = s3.transfer("pull", self.there, self.here, "--exclude", "checkpoints")
        assert "pulled, NOT verified" in done.stdout, done.stdout + done.stderr

    def down(self, *words: str, **env: str) -> dict[str, Any]:
        given = ("--profile", self.provider.folder / "fake.md", "--id", "pod-1", "--wait", "1s", "--json")
        done = self.s3.transfer("down", self.here, *given, *words, **{**self.provider.env, **env})
        assert done.stdout, done.stderr
        return {"exit": done.returncode, **json.loads(done.stdout)}

    def against(self, **env: str) -> list[str]:
        found = self.down(**env)
        assert found["exit"] == 4 and self.provider.acts == []
        return [*(str(one["message"]) for one in found["findings"]), *map(str, found["notes"])]


@pytest.fixture
def rented(s3: Bench, tmp_path: Path) -> Iterator[Rented]:
    disk = mount(tmp_path / "rented")
    try:
        yield Rented(s3, tmp_path)
    finally:
        unmount(disk)


def test_down_takes_the_stores_proof_in_place_of_a_pull(rented: Rented) -> None:
    page = rented.down()
    assert [one["code"] for one in page["findings"]] == ["unapproved"], page
    words = page["notes"][-1].partition('"')[2].rstrip('"')
    shown = rented.down("--approve", words)
    assert (shown["exit"], shown["findings"]) == (0, [])
    assert shown["store"] == "s3://box/runs/x" and (rented.here / STORE_PROOF).is_file()
    assert str(rented.here) in proof_lookup.pulled_folders(str(rented.here.parent))
    done = rented.down("--approve", words, "--execute")
    assert (done["exit"], done["gone"], rented.provider.acts) == (0, True, [["delete", "pod-1"]])
    assert not list(rented.here.rglob("*.npy"))


KEY = "Bucket='box', Key='runs/x/checkpoints/step_1.npy'"
REVERSED = f"s3.put_object({KEY}, Body=s3.get_object({KEY})['Body'].read()[::-1])"
WORSE = [  # one after the other, in one bucket
    (REVERSED, "checkpoints/step_1.npy: has another hash in the store"),
    (f"s3.put_object({KEY}, Body=b'x')", "checkpoints/step_1.npy: has 1 bytes in the store"),
    (f"s3.delete_object({KEY})", "no longer holds 1 of 8 files as sent: checkpoints/step_1.npy: is not in"),
    ("b = boto3.resource('s3').Bucket('box'); b.objects.delete(); b.delete()", "no longer holds 8 of 8"),
]


def test_down_asks_the_store_again(rented: Rented) -> None:
    for code, said in WORSE:
        rented.s3.s3(code)
        told = "\n".join(rented.against())
        assert said in told and "1 files on this machine" in told and "'checkpoints/step_1.npy'" in told, (code, told)


def test_down_does_not_believe_a_store_that_it_cannot_ask_or_another_runs_proof(rented: Rented) -> None:
    lost = "\n".join(rented.against(AWS_ENDPOINT_URL=f"http://127.0.0.1:{free_port()}", AWS_MAX_ATTEMPTS="1"))
    assert f"{STORE_PROOF} could not be checked: cannot ask s3://box/runs/x: Could not connect" in lost
    rented.s3.python = sys.executable  # without boto3
    assert f"{STORE_PROOF} could not be checked: s3:// needs its client" in "\n".join(rented.against())
    proof = rented.there / STORE_PROOF
    proof.write_text(proof.read_text().replace(RUN_ID, "20261116-083000-tiny-000000"))
    assert f"{STORE_PROOF} is of 20261116-083000-tiny-000000, not of {RUN_ID}" in "\n".join(rented.against())


def test_down_sees_what_the_run_wrote_after_the_upload_and_what_never_loaded(rented: Rented) -> None:
    path = rented.there / "checkpoints" / "step_1.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert any("'checkpoints/step_1.npy'" in line for line in rented.against())
    path.write_bytes(path.read_bytes()[:1000])
    pushed = rented.s3.transfer("push", rented.there, "s3://box/runs/x")
    assert pushed.returncode == 1 and "step_1.npy: the store's copy is no proof of it: " in pushed.stdout
    assert any("step_1.npy in s3://box/runs/x: " in line for line in rented.against())


# -- launch: a store as the run's end


TRAIN = "import numpy, os; numpy.save(os.environ['RGT_RUN_DIR'] + '/step_1.npy', numpy.ones(9)); print('step 1 loss 1')"


def submit(bench: Bench, *words: str, **spec: Any) -> subprocess.CompletedProcess[str]:
    (bench.folder / "job.yaml").write_text(json.dumps({"name": "x", "command": [bench.python, "-c", TRAIN], **spec}))
    command = [bench.python, str(ROOT / "scripts" / "launch.py"), "submit", "job.yaml", "--on", "local", *words]
    own = {**bench.env, "RGT_QUEUE": str(bench.folder / "queue")}
    return subprocess.run(command, capture_output=True, text=True, env=own, cwd=bench.folder, timeout=120)


def test_the_supervisor_sends_the_run_to_its_store(s3: Bench) -> None:
    done = submit(s3, store="s3://box/runs")
    assert done.returncode == 0, done.stderr
    run = Path(done.stdout.strip())
    until((run / STORE_PROOF).exists, 60)
    proof = json.loads((run / STORE_PROOF).read_text())
    assert (proof["store"], proof["run_id"], proof["loaded"]) == (f"s3://box/runs/{run.name}", run.name, 1)
    words = [s3.python, str(ROOT / "scripts" / "gpu_gate.py"), "wait", run.name, "--timeout", "60s"]
    subprocess.run(words, env={**s3.env, "RGT_QUEUE": str(s3.folder / "queue")}, check=True, capture_output=True)
    sent = {row["path"]: row["sha256"] for row in proof["files"]}
    here = {str(path.relative_to(run)): path for path in run.rglob("*") if path.is_file() and path.stat().st_size}
    del here[STORE_PROOF]  # and nothing is written after it
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in here.items()}.items() <= sent.items()


READER = """\
iam = boto3.client('iam'); iam.create_user(UserName='r')
rule = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:Get*", "Resource": "*"}]}'
iam.put_user_policy(UserName='r', PolicyName='p', PolicyDocument=rule)
key = iam.create_access_key(UserName='r')['AccessKey']; print(key['AccessKeyId'], key['SecretAccessKey'])
"""


@pytest.mark.parametrize(("key", "said"), [("wrong", "InvalidAccessKeyId"), ("reader", "AccessDenied")])
def test_submit_refuses_a_store_that_may_not_be_written_to(s3: Bench, moto: str, key: str, said: str) -> None:
    name, secret = s3.s3(READER).split()
    try:
        post(f"{moto}/moto-api/reset-auth", b"0")  # from now on rights are looked at
        s3.env |= {"AWS_ACCESS_KEY_ID": name, "AWS_SECRET_ACCESS_KEY": secret} if key == "reader" else {}
        done = submit(s3, "--store", "s3://box/runs")
        assert done.returncode == 1 and done.stderr.count("\n") == 1 and not (s3.folder / "runs").exists()
        assert "nothing was started: store: cannot write to s3://box/runs: " in done.stderr and said in done.stderr
    finally:
        post(f"{moto}/moto-api/reset-auth", b"1000000000")


def test_submit_refuses_what_is_no_store_and_engines_that_cannot_send(s3: Bench) -> None:
    done = submit(s3, "--store", "ftp://box/runs")
    assert done.returncode == 2 and "--store ftp://box/runs does not fit the job schema: store: " in done.stderr
    done = submit(s3, "--on", "slurm", store="s3://box/runs")
    assert (
        done.returncode == 2 and "--on slurm cannot honour `store`: nobody of ours is there at its end" in done.stderr
    )
    s3.python = sys.executable  # without boto3
    done = submit(s3, store="s3://box/runs")
    assert done.returncode == 1 and "store: s3:// needs its client: pip install boto3" in done.stderr


# -- the hub, by the real client on a stand-in that speaks its HTTP: large files by LFS, small ones in the commit


HUB = """\
import base64, hashlib, http.server, json, sys, urllib.parse
FILES, LARGE, LFS, SPOIL = {}, {}, 50_000, sys.argv[2] if len(sys.argv) > 2 else ""
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
        told, kept = {"type": "file", "path": path, "size": len(data)}, data
        if SPOIL and SPOIL in path:  # what is kept is not what was sent
            kept = data[::-1]
        if len(data) > LFS:
            told["lfs"] = {"oid": hashlib.sha256(kept).hexdigest(), "size": len(data), "pointerSize": 134}
        return {**told, "oid": hashlib.sha1(b"blob %d" % len(kept) + bytes(1) + kept).hexdigest()}
    def do_GET(self):
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        if "whoami" in path:
            role = "read" if "read" in self.headers.get("Authorization", "") else "write"
            self.answer({"name": "me", "type": "user", "auth": {"accessToken": {"role": role}}})
        elif "/tree/" in path:
            self.answer([self.blob(name) for name in sorted(FILES)])
        elif "/resolve/" in path:
            name = path.partition("/resolve/main/")[2] or path.partition("/resolve/" + "0" * 40 + "/")[2]
            told = self.blob(name)
            more = {"ETag": '"' + told.get("lfs", told)["oid"] + '"', "X-Repo-Commit": "0" * 40}
            self.answer(FILES[name], **more)
        else:
            files = [{"rfilename": name} for name in FILES]
            self.answer({"id": "me/repo", "sha": "0" * 40, "siblings": files})
    do_HEAD = do_GET
    def do_PUT(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if hashlib.sha256(data).hexdigest() != self.path.rpartition("/")[2]:
            return self.answer({}, 422)
        LARGE[self.path.rpartition("/")[2]] = data
        self.answer({})
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "preupload" in self.path:
            mode = lambda file: "lfs" if file["size"] > LFS else "regular"
            files = json.loads(body)["files"]
            rows = [{"path": f["path"], "uploadMode": mode(f), "shouldIgnore": False} for f in files]
            self.answer({"files": rows})
        elif "/lfs/objects/batch" in self.path:
            place = lambda one: {"upload": {"href": self.here() + "/put/" + one["oid"], "header": {}}}
            rows = [{**one, "actions": place(one)} for one in json.loads(body)["objects"]]
            self.answer({"transfer": "basic", "objects": rows})
        elif "/commit/" in self.path:
            for line in body.splitlines():
                row = json.loads(line)
                if row["key"] == "file":
                    FILES[row["value"]["path"]] = base64.b64decode(row["value"]["content"])
                elif row["key"] == "lfsFile":
                    FILES[row["value"]["path"]] = LARGE[row["value"]["oid"]]
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
        assert done.returncode == 0 and (bench.run / STORE_PROOF).exists(), done.stdout + done.stderr
        large, small = (bench.run / name for name in ("checkpoints/w.bin", "train.log"))
        told = {one["path"]: one["store_hash"] for one in json.loads((bench.run / STORE_PROOF).read_text())["files"]}
        blob = hashlib.sha1(b"blob %d\0" % small.stat().st_size + small.read_bytes()).hexdigest()  # as git names it
        assert told == {"checkpoints/w.bin": hashlib.sha256(large.read_bytes()).hexdigest(), "train.log": blob}
        back = bench.transfer("pull", "hf://me/repo/x", "back")
        assert back.returncode == 0, back.stdout + back.stderr
        assert (tmp_path / "back/checkpoints/w.bin").read_bytes() == (bench.run / "checkpoints/w.bin").read_bytes()


def test_no_proof_when_the_hub_has_something_else_or_the_token_may_only_read(tmp_path: Path) -> None:
    for name in ("w.bin", "train.log"):  # in LFS, and in the commit itself
        with hub(tmp_path / name, spoil=name) as bench:
            done = bench.transfer("push", bench.run, "hf://me/repo/x")
            assert done.returncode == 1 and f"{name}: has another hash in the store" in done.stdout, done.stderr
            assert not (bench.run / STORE_PROOF).exists()
    with hub(tmp_path / "read", token="hf_read") as bench:
        done = bench.transfer("push", bench.run, "hf://me/repo", "--dry-run")  # said before the run
        assert (done.returncode, done.stdout) == (3, "") and "may only read" in done.stderr
