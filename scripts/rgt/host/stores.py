"""hf:// and s3:// as ends of a transfer, through their own clients, where those are installed.

Example:
    store = open_store("s3://bucket/prefix")        or hf://USER/REPO, hf://datasets/USER/REPO/folder
    store.check_write()                             before a run: is there a token, and may it write?
    report = send(Path("runs/x"), store)            every file compared with the hash that the store itself tells

STORE_VERIFIED.json, beside the files here, is written only when every hash agrees; it names where they are and what of
them was loaded before. `down` takes it in place of a pull after `still_there`.
An S3-compatible store is named by AWS_ENDPOINT_URL, a mirror of the hub by HF_ENDPOINT: words of their clients.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rgt import VERSION, files
from rgt.checkpoint.names import OUR_RECORDS, STORE_PROOF
from rgt.errors import RgtError, bad_input, lacking

PART = 64 << 20  # bytes of one part: what S3's hash of a large object depends on
Failures = tuple[type[BaseException], ...]
_URL = re.compile(r"(hf|s3)://(.+)")
_NOT_SENT = {STORE_PROOF, ".rgt-pull", ".git", "__pycache__"}
_ASKED = 500  # paths in one question to the hub


def is_store(text: str) -> bool:
    return bool(_URL.fullmatch(text))


@dataclass
class Hashes:
    """Of one file here, in all the ways in which a store may tell it."""

    bytes: int
    sha256: str
    told: set[str] = field(default_factory=set)


def hashes(path: Path) -> Hashes:
    whole, md5, size = hashlib.sha256(), hashlib.md5(usedforsecurity=False), path.stat().st_size
    git = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)  # the hub's id of a file that is not in LFS
    parts: list[tuple[bytes, bytes]] = []
    with path.open("rb") as file:
        while block := file.read(PART):
            for digest in (whole, md5, git):
                digest.update(block)
            parts.append((hashlib.sha256(block).digest(), hashlib.md5(block, usedforsecurity=False).digest()))
    told = {whole.hexdigest(), git.hexdigest(), md5.hexdigest(), base64.b64encode(whole.digest()).decode()}
    if size >= PART:  # S3: the hash of the parts' hashes, and how many
        of_sha = hashlib.sha256(b"".join(sha for sha, _ in parts)).digest()
        of_md5 = hashlib.md5(b"".join(md5 for _, md5 in parts), usedforsecurity=False).hexdigest()
        told |= {f"{base64.b64encode(of_sha).decode()}-{len(parts)}", f"{of_md5}-{len(parts)}"}
    return Hashes(size, whole.hexdigest(), told)


class S3:
    def __init__(self, rest: str) -> None:
        try:
            boto3 = importlib.import_module("boto3")
            raised = importlib.import_module("botocore.exceptions")
            transfer = importlib.import_module("boto3.s3.transfer")
        except ImportError:
            raise lacking("s3:// needs its client: pip install boto3") from None
        self.bucket, _, prefix = rest.partition("/")
        self.prefix, self.url = prefix.strip("/"), f"s3://{rest.rstrip('/')}"
        self.config = transfer.TransferConfig(multipart_threshold=PART, multipart_chunksize=PART)
        self.failures: Failures
        self.failures = (raised.BotoCoreError, raised.ClientError, transfer.S3UploadFailedError, OSError)
        self.client = boto3.client("s3")

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}".lstrip("/")

    def check_write(self) -> None:
        key = self._key(f".rgt-probe-{os.urandom(4).hex()}")
        self.client.put_object(Bucket=self.bucket, Key=key, Body=b"probe")
        self.client.delete_object(Bucket=self.bucket, Key=key)

    def send(self, folder: Path, names: list[str]) -> None:
        how: dict[str, Any] = {"ExtraArgs": {"ChecksumAlgorithm": "SHA256"}, "Config": self.config}
        for name in names:
            self.client.upload_file(str(folder / name), self.bucket, self._key(name), **how)

    def told(self, names: list[str]) -> dict[str, tuple[int, str]]:
        """Size and hash of each object, as the store has it now; what is not there is not in it."""
        found = {}
        for name in names:
            try:
                head = self.client.head_object(Bucket=self.bucket, Key=self._key(name), ChecksumMode="ENABLED")
            except self.client.exceptions.ClientError as error:
                if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") != 404:
                    raise
                continue
            found[name] = (head["ContentLength"], head.get("ChecksumSHA256") or head["ETag"].strip('"'))
        return found

    def names(self) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self._key(""))
        keys = [row["Key"] for page in pages for row in page.get("Contents", [])]
        return [key.removeprefix(self._key("")) for key in keys if not key.endswith("/")]

    def fetch(self, name: str, path: Path) -> None:
        self.client.download_file(self.bucket, self._key(name), str(path), Config=self.config)


class Hub:
    def __init__(self, rest: str) -> None:
        try:
            import httpx
            import huggingface_hub
            import huggingface_hub.errors
        except ImportError:
            raise lacking("hf:// needs its client: pip install huggingface_hub") from None
        kind, _, below = rest.partition("/")
        self.kind = {"datasets": "dataset", "spaces": "space"}.get(kind, "model")
        parts = (below if self.kind != "model" else rest).strip("/").split("/")
        if len(parts) < 2:
            raise bad_input(f"hf://{rest} names no repository; write hf://USER/REPO or hf://datasets/USER/REPO")
        self.repo, self.prefix, self.url = "/".join(parts[:2]), "/".join(parts[2:]), f"hf://{rest.rstrip('/')}"
        raised = huggingface_hub.errors
        self.failures: Failures
        self.failures = (raised.HfHubHTTPError, raised.LocalTokenNotFoundError, httpx.HTTPError, OSError, ValueError)
        self.api: Any = huggingface_hub.HfApi()

    def _path(self, name: str) -> str:
        return f"{self.prefix}/{name}".lstrip("/")

    def check_write(self) -> None:
        who = self.api.whoami()
        role = who.get("auth", {}).get("accessToken", {}).get("role", "")
        if role == "read":
            raise lacking(f"the token of {who.get('name')} may only read; make one with write access at the hub")
        self.api.create_repo(self.repo, repo_type=self.kind, private=True, exist_ok=True)

    def send(self, folder: Path, names: list[str]) -> None:
        self.api.create_repo(self.repo, repo_type=self.kind, private=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as beside:  # links, so that exactly these files are one commit
            for name in names:
                link = Path(beside) / name
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to((folder / name).absolute())
            place = self.prefix or "."
            self.api.upload_folder(repo_id=self.repo, repo_type=self.kind, folder_path=beside, path_in_repo=place)

    def told(self, names: list[str]) -> dict[str, tuple[int, str]]:
        paths, found = {self._path(name): name for name in names}, {}
        for start in range(0, len(paths), _ASKED):
            asked = list(paths)[start : start + _ASKED]
            for row in self.api.get_paths_info(self.repo, asked, repo_type=self.kind):
                found[paths[row.path]] = (row.size, row.lfs.sha256 if row.lfs else row.blob_id)
        return found

    def names(self) -> list[str]:
        every, start = self.api.list_repo_files(self.repo, repo_type=self.kind), self._path("")
        return [name.removeprefix(start) for name in every if name.startswith(start)]

    def fetch(self, name: str, path: Path) -> None:
        with tempfile.TemporaryDirectory(dir=path.parent) as beside:
            got = self.api.hf_hub_download(self.repo, self._path(name), repo_type=self.kind, local_dir=beside)
            os.replace(got, path)


Store = S3 | Hub


def open_store(text: str) -> Store:
    found = _URL.fullmatch(text)
    if not found:
        raise bad_input(f"{text} is no store; write s3://BUCKET/PREFIX or hf://USER/REPO")
    return S3(found[2]) if found[1] == "s3" else Hub(found[2])


@contextlib.contextmanager
def told_plainly(store: Store, doing: str) -> Iterator[None]:
    """Whatever the client raises becomes one sentence."""
    try:
        yield
    except store.failures as error:
        said = " ".join(str(error).split())[:300] or type(error).__name__
        raise lacking(f"cannot {doing} {store.url}: {said}") from None


def check_write(text: str) -> None:
    """Before a run depends on it: the client is there, the token is good, and it may write. Else one sentence."""
    store = open_store(text)
    with told_plainly(store, "write to"):
        store.check_write()


@dataclass
class Sent:
    bytes: int
    wrong: list[str]  # what is not in the store as it is here; then there is no proof
    loaded: int  # checkpoints and arrays
    unproved: dict[str, str]  # those that do not load, and why: a hash proves the copy, not the original


def send(folder: Path, store: Store) -> Sent:
    """Load what is there, send every file, ask the store for its hashes, write the proof if all agree."""
    names = sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and not _NOT_SENT & set(path.relative_to(folder).parts)
    )
    if not names:
        raise bad_input(f"{folder} holds no file to send")
    (folder / STORE_PROOF).unlink(missing_ok=True)  # of an earlier upload; from here on it would be untrue
    loaded, unproved = 0, dict[str, str]()
    with contextlib.suppress(ImportError):  # a box without numpy
        from rgt.checkpoint.examine import Options
        from rgt.checkpoint.survey import survey
        from rgt.checkpoint.verify import verify

        verdict = verify(survey(folder), Options())
        bad = {path: one.message for path, one in verdict.problems if one.severity == "error" and path != folder}
        bad |= dict.fromkeys(verdict.unchecked_weights, "is of an unknown format: nobody has opened it")
        loaded = len(verdict.artifacts)
        unproved = {os.path.relpath(path, folder): why for path, why in bad.items()}
    known = {name: hashes(folder / name) for name in names}
    with told_plainly(store, "send to"):
        store.send(folder, names)
        told = store.told(names)
    wrong = [f"{name}: {why}" for name in names if (why := _difference(known[name], told.get(name)))]
    if not wrong:
        rows = [{"path": n, "bytes": h.bytes, "sha256": h.sha256, "store_hash": told[n][1]} for n, h in known.items()]
        run_id = folder.absolute().name
        with contextlib.suppress(RgtError, KeyError, TypeError):
            run_id = str(files.read_json(folder / "run.json")["run_id"])
        facts = {"store": store.url, "run_id": run_id, "loaded": loaded, "unproved": unproved, "files": rows}
        when = datetime.now(timezone.utc).isoformat(timespec="seconds")
        files.write_json(folder / STORE_PROOF, {**facts, "verified": when, "tool_version": VERSION}, "store_verified")
    return Sent(sum(one.bytes for one in known.values()), wrong, loaded, unproved)


def still_there(proof: dict[str, Any]) -> list[str]:
    """What the store no longer has as STORE_VERIFIED.json says; one sentence is raised when it cannot be asked."""
    store, rows = open_store(proof["store"]), {row["path"]: row for row in proof["files"]}
    with told_plainly(store, "ask"):
        told = store.told(list(rows))
    same = {path: Hashes(row["bytes"], row["sha256"], {row["store_hash"]}) for path, row in rows.items()}
    return [f"{path}: {why}" for path in rows if (why := _difference(same[path], told.get(path)))]


def _difference(here: Hashes, there: tuple[int, str] | None) -> str:
    if there is None:
        return "is not in the store"
    if there[0] != here.bytes:
        return f"has {there[0]} bytes in the store, {here.bytes} here"
    return "" if there[1] in here.told else f"has another hash in the store: {there[1]}"


def fetch(store: Store, folder: Path) -> tuple[int, list[str]]:
    """Bring every file and hold it against the store's hash; the roster becomes PULL_MANIFEST.json for verify_local."""
    with told_plainly(store, "list"):
        names = store.names()
        told = store.told(names)
    if not names:
        raise bad_input(f"{store.url} holds nothing")
    wrong, rows, size = [], [], 0
    for name in names:
        path = folder / name
        if os.path.isabs(name) or ".." in Path(name).parts:
            raise bad_input(f"{store.url} holds {name!r}, which leads out of the folder; nothing more was fetched")
        path.parent.mkdir(parents=True, exist_ok=True)
        with told_plainly(store, f"fetch {name} from"):
            store.fetch(name, path)
        here = hashes(path)
        if why := _difference(here, told.get(name)):
            wrong.append(f"{name}: {why}")
        size += here.bytes
        if name not in OUR_RECORDS:
            rows.append({"path": name, "bytes": here.bytes, "sha256": here.sha256})
    if not wrong:
        when = datetime.now(timezone.utc).isoformat(timespec="seconds")
        roster = {"source": store.url, "created": when, "files": rows}
        files.write_json(folder / "PULL_MANIFEST.json", roster, "pull_manifest")
    return size, wrong
