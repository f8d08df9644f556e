"""A mirror without Xet's bytes, a client that no longer resumes a file, a curl that throws away what it has."""

from __future__ import annotations

import re

from trials.case import Box, Case, Missing
from worlds import rehearsal

REPO, COMMIT = "org/base-7b", "4f2c9e1d7b60a35c8e94d1f0b7a6c5d4e3f2a1b0"
SHARDS = [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
STARTS = 14  # of the runner; three shards in pieces of 40 % need nine
# references/run-remote/china-network.md: Xet behind a mirror, no resume from 1.18 on, curl --retry, exit 22 at the end
_SERVER = """
import hashlib, os
SHARDS = ALL_SHARDS
SMALL = {"config.json": "{}", "tokenizer.json": "{}"}
WHOLE = {name: "%s-0123456789" % name for name in SHARDS}
BASE = "https://hf-mirror.com/ORG_REPO/resolve/THE_COMMIT/"
PIECE = 18
def kill():
    print("killed", file=sys.stderr)
    sys.exit(137)
def more(path, name, old):
    text = (WHOLE if name in WHOLE else SMALL)[name]
    new = old + text[len(old):len(old) + PIECE]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(new)
    if len(new) < len(text):
        kill()
def sha(name):
    note("hash-of-" + name)
    return hashlib.sha256(WHOLE[name].encode()).hexdigest()
def tree():
    rows = [{"path": n, "rfilename": n, "size": 2} for n in SMALL]
    for n, text in WHOLE.items():
        rows.append({"path": n, "rfilename": n, "size": len(text), "lfs": {"oid": sha(n), "sha256": sha(n)}})
    return rows
def api():
    url = next((w for w in words if "://" in w), "").split("?")[0].rstrip("/")
    if url == "https://hf-mirror.com/api/models/ORG_REPO/tree/THE_COMMIT":
        print(json.dumps(tree()))
    elif url == "https://hf-mirror.com/api/models/ORG_REPO/revision/THE_COMMIT":
        print(json.dumps({"sha": "THE_COMMIT", "siblings": tree()}))
    else:
        return
    sys.exit(0)
def page():
    api()
    url = next((w for w in words if "://" in w), "")
    name = url.split("?")[0].rsplit("/", 1)[-1]
    if not url.startswith(BASE) or name not in {**WHOLE, **SMALL}:
        fail("cannot reach " + url, 4)
    return name
"""
_COMMON = _SERVER.replace("ALL_SHARDS", repr(SHARDS)).replace("ORG_REPO", REPO).replace("THE_COMMIT", COMMIT)
_HF = (
    _COMMON
    + """
import fnmatch
if words[:2] == ["cache", "verify"]:
    folder = Path(option("--local-dir") or fail("not in the cache", 1))
    for name, text in WHOLE.items():
        if not (folder / name).is_file() or (folder / name).read_text() != text:
            fail("mismatch: " + name, 1)
    note("agreed")
    sys.exit(0)
if words[:1] != ["download"] or words[1:2] != ["REPO"] or option("--revision") != "COMMIT":
    fail("usage: hf download REPO [FILES]")
if os.environ.get("HF_ENDPOINT", "").rstrip("/") != "https://hf-mirror.com":
    fail("ConnectTimeout: huggingface.co", 1)
folder = Path(option("--local-dir") or fail("the cache is on a full disk: give --local-dir"))
chosen, mode = [], None
for word in words[2:]:
    if word.startswith("-"):
        mode = word
    elif mode in (None, "--include") or (mode == "--exclude"):
        chosen.append((mode, word))
        mode = mode if mode in ("--include", "--exclude") else None
    else:
        mode = None
def wanted(name):
    yes = [p for m, p in chosen if m != "--exclude"]
    no = [p for m, p in chosen if m == "--exclude"]
    return (not yes or any(fnmatch.fnmatch(name, p) for p in yes)) and not any(fnmatch.fnmatch(name, p) for p in no)
folder.mkdir(parents=True, exist_ok=True)
for name, text in SMALL.items():
    if wanted(name):
        (folder / name).write_text(text)
for name, text in WHOLE.items():
    path = folder / name
    if wanted(name) and (not path.is_file() or path.read_text() != text):
        kill()  # by Xet: not a byte comes; by HTTP: it begins at 0 again and is ended by the runner
note("agreed")
""".replace("REPO", REPO).replace("COMMIT", COMMIT)
)
_WGET = (
    _COMMON
    + """
name = page()
short = [w for w in words if w.startswith("-") and not w.startswith("--")]
goes_on = flag("--continue") or any("c" in w[1:3] for w in short)
path = Path(option("-O", "--output-document") or Path(option("-P", "--directory-prefix", default=".")) / name)
old = path.read_text() if goes_on and path.is_file() else ""
more(path, name, old)
"""
)
_CURL = (
    _COMMON
    + """
name = page()
if flag("--head") or any(w.startswith("-") and not w.startswith("--") and "I" in w for w in words):
    print('HTTP/2 302\\r\\nx-linked-etag: "%s"\\r' % (sha(name) if name in WHOLE else "0"))
    sys.exit(0)
joined = " ".join(words) + " "
goes_on = "-C -" in joined or "--continue-at -" in joined or "C - " in joined
target = next((words[n + 1] for n, w in enumerate(words) if w == "--output" or
               (w.startswith("-") and not w.startswith("--") and w.endswith("o"))), name)
path = Path(target)
old = path.read_text() if goes_on and path.is_file() else ""
if name in WHOLE and old == WHOLE[name]:
    fail("curl: (22) The requested URL returned error: 416", 22)
if "--retry" in joined:
    kill()  # each retry begins where this call began
more(path, name, old)
"""
)


def make(box: Box) -> None:
    box.write("models/README.txt", "models/base-7b comes here\n")


def verify(box: Box) -> list[str]:
    if not (box.work / "fetch.sh").is_file():
        raise Missing("fetch.sh is not there")
    with rehearsal.stage(box, {"hf": _HF, "wget": _WGET, "curl": _CURL}) as stage:
        for _ in range(STARTS):
            if stage.run("sh", "fetch.sh", seconds=25) == 0:
                break
        else:
            return [f"not done after {STARTS} starts"]
        folder = stage.desk / "models/base-7b"
        found = {path.name: path.read_text() for path in folder.glob("*") if path.is_file()}
        checks = {
            "the small files": {"config.json", "tokenizer.json"} <= set(found),
            "three whole shards": all(found.get(name) == f"{name}-0123456789" for name in SHARDS),
            "compared with the hub": stage.has("agreed") or all(stage.has(f"hash-of-{name}") for name in SHARDS),
        }
    return [f"not so: {what}" for what, fine in checks.items() if not fine]


def reference(box: Box) -> None:
    text = (box.skill / "references/run-remote/china-network.md").read_text(encoding="utf-8")
    block = re.findall(r"```bash\n(hf download <repo>.*?)```", text, re.S)[0]
    block = block.replace("<repo>", REPO).replace("<commit>", COMMIT).replace("<dir>", "models/base-7b")
    small, shard, check = (line.split("  #")[0].strip() for line in block.strip().splitlines())
    lines = [small + " || exit 1", *(shard.replace("<shard>", name) + " || exit 1" for name in SHARDS), check]
    head = '#!/bin/sh\ncd "$(dirname "$0")" || exit 1\nexport HF_ENDPOINT=https://hf-mirror.com\n'
    box.write("fetch.sh", head + "\n".join(lines) + "\n")


def naive(box: Box) -> None:
    """Trusts that hf goes on where it stopped."""
    box.write(
        "fetch.sh",
        f'#!/bin/sh\ncd "$(dirname "$0")" || exit 1\nexport HF_ENDPOINT=https://hf-mirror.com HF_HUB_DISABLE_XET=1\n'
        f"hf download {REPO} --revision {COMMIT} --local-dir models/base-7b\n",
    )


CASE = Case(
    route="mirrors: China",
    reads=("references/run-remote/china-network.md",),
    minutes=6,
    commands=14,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    expected="Shards by a tool that resumes across kills, from the mirror at the commit; hf for the rest.",
)
