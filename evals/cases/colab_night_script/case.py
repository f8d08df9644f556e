"""Colab's own command line, which is younger than most memories: verbs, and a timeout of 30 s that counts silence."""

from __future__ import annotations

from trials.case import Box, Case
from worlds import facts, rehearsal

SILENCE = 1200  # seconds; the profile's GS1: without --timeout, 30
_COLAB = """
FAILS = (HOME / "training-fails").exists()
name = option("-s", "--session", default="nightly" if words[:1] != ["new"] else None)
def alive():
    if not noted("session-" + str(name)):
        print("[colab] Session '%s' not found." % name)
        sys.exit(0 if words[0] == "stop" else 1)
def train():
    limit = option("--timeout")
    if float(limit or 30) < SILENCE:
        fail("TimeoutError: no output for %s s" % (limit or 30), 1)
    if not noted("content-data.tar"):
        print("FileNotFoundError: /content/data.tar")
    elif FAILS:
        print("RuntimeError: CUDA error")
    else:
        note("content-out.tar", "trained")
def local(path):
    return path and Path(path).is_file() or fail("no such file: %s" % path, 1)
verb, rest = words[0] if words else "", [w for w in words[1:]]
places = []
while rest:
    word = rest.pop(0)
    if word in ("-s", "--session", "-f", "--file", "--timeout", "--gpu", "--tpu", "-n", "-o") and rest:
        rest.pop(0)
    elif not word.startswith("-"):
        places.append(word)
if verb == "new":
    if option("--gpu") != "T4":
        fail("a CPU runtime was not asked for")
    note("session-" + str(name))
    print("[colab] Session ready.")
elif verb == "upload":
    alive()
    local(places[0])
    note("content-" + places[1].rsplit("/", 1)[-1], "data")
elif verb == "exec":
    alive()
    if option("-f", "--file") or not sys.stdin.read().strip():
        local(option("-f", "--file"))
    train()
elif verb == "run":
    note("session-" + str(name))
    local(places[0])
    train()
    if not flag("--keep"):
        (HOME / ("session-" + str(name))).unlink()
elif verb == "download":
    alive()
    if places[0].rsplit("/", 1)[-1] != "out.tar" or not noted("content-out.tar"):
        fail("[colab] 404", 1)
    Path(places[1]).write_text("trained")
elif verb == "stop":
    alive()
    (HOME / ("session-" + str(name))).unlink()
elif verb in ("sessions", "status", "ls", "log", "version"):
    print("\\n".join(p.name[8:] for p in HOME.glob("session-*")))
elif verb in ("install", "auth", "drivemount", "restart-kernel"):
    alive()
else:
    fail("Error: No such command '%s'." % verb)
""".replace("SILENCE", str(SILENCE))
SCRIPT = """#!/bin/sh
cd "$(dirname "$0")" || exit 1
rm -f out.tar
trap '{down}' EXIT
{up} || exit 1
{push} || exit 1
{run}
{pull}
test -s out.tar
"""


def make(box: Box) -> None:
    box.write("train.py", "import tarfile  # reads /content/data.tar, writes /content/out.tar\n")
    box.write("data.tar", "data\n")


def verify(box: Box) -> list[str]:
    problems = []
    with rehearsal.stage(box, {"colab": _COLAB}) as stage:
        code = stage.run("sh", "colab.sh")
        if code or not (stage.desk / "out.tar").is_file():
            problems.append(f"a good night: exit {code}, out.tar {'there' if not code else 'not to be counted on'}")
        problems += _burning(stage, "a good night")
    with rehearsal.stage(box, {"colab": _COLAB}) as stage:
        (stage.root / "training-fails").touch()
        if stage.run("sh", "colab.sh") == 0:
            problems.append("a failed training ends in exit 0")
        problems += _burning(stage, "a failed training")
    return problems


def _burning(stage: rehearsal.Stage, when: str) -> list[str]:
    return [f"{when}: a runtime burns on"] if list(stage.root.glob("session-*")) else []


def reference(box: Box) -> None:
    colab = facts.Profile(box, "generic-ssh", "colab")

    def verb(name: str, *files: str) -> str:
        text = colab.value("verbs", name).replace("<id>", "nightly").replace("<gpu>", "T4").replace("<seconds>", "3600")
        for file in files:
            text = text.replace("<file>", file, 1)
        return text

    box.write(
        "colab.sh",
        SCRIPT.format(
            up=verb("up"),
            push=verb("push", "data.tar", "/content/data.tar"),
            run=verb("run"),
            pull=verb("pull", "/content/out.tar", "out.tar"),
            down=verb("down"),
        ),
    )


def naive(box: Box) -> None:
    """The verbs, without the timeout that nobody expects."""
    reference(box)
    text = (box.work / "colab.sh").read_text()
    box.write("colab.sh", text.replace(" --timeout 3600", ""))


CASE = Case(
    route="which platform, what survives, what bills?",
    reads=("profiles/generic-ssh.md",),
    minutes=5,
    commands=12,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    expected="colab.sh with Colab's verbs of 2026, a timeout longer than the silence, and a stop on every way out.",
)
