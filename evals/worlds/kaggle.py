"""A Kaggle of one folder behind a `kaggle` command line (2.x): a push runs the script kernel at once, and costs quota.

Inputs are below /kaggle/input/datasets/OWNER/SLUG and /kaggle/input/notebooks/OWNER/SLUG. A push exits with 0 whatever
became of it. A version that runs into the session's limit is cancelled and keeps no output.
"""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

_CLI = """#!/usr/bin/env python3
import json, os, re, shutil, subprocess, sys
from pathlib import Path
HOME = Path(__file__).resolve().parent.parent / "kaggle"
STATE = HOME / "state.json"
state = json.loads(STATE.read_text())
words, options = [], {}
given = iter(sys.argv[1:])
for word in given:
    if word.startswith("-") and word not in ("-h", "--help", "--version", "-v", "-o", "--force", "-q", "--quiet", "-w"):
        name, equal, value = word.partition("=")
        name = {"--path": "-p", "--accelerator": "--acc"}.get(name, name)
        options[name] = value if equal else next(given, "")
    else:
        words.append(word)

def save():
    STATE.write_text(json.dumps(state, indent=1))

def error(text):
    print("Kernel push error: " + text)
    sys.exit(0)

def slug(text):
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")

def mount(room, meta):
    for kind, there, here in (("dataset", "datasets", "datasets"), ("kernel", "output", "notebooks")):
        left = []
        for name in meta.get(kind + "_sources") or []:
            source = HOME / there / name
            if source.is_dir():
                shutil.copytree(source, room / "kaggle/input" / here / name)
            else:
                left.append(name)
        if left:
            print("The following are not valid %s sources: %s" % (kind, left))

def push():
    folder = Path(options.get("-p") or ".")
    path = folder / "kernel-metadata.json"
    if not path.is_file():
        sys.exit("Metadata file not found: kernel-metadata.json")
    meta = json.loads(path.read_text())
    name = str(meta.get("id", ""))
    code = folder / str(meta.get("code_file", ""))
    if not re.fullmatch(r"lab/[a-z0-9-]{5,60}", name) or not code.is_file():
        sys.exit("the id in the metadata, or its source file, is not valid: %s %s" % (name, code))
    if slug(str(meta.get("title", ""))) != name.split("/")[1]:
        error("The title must resolve to the specified id")
    if meta.get("language") != "python" or meta.get("kernel_type") != "script":
        error("language and kernel_type must be python and script")
    shape = options.get("--acc") or meta.get("machine_shape") or ""
    gpu = str(meta.get("enable_gpu", True)).lower() == "true" or bool(shape)
    if shape not in ("", "None", "NvidiaTeslaP100", "NvidiaTeslaT4"):
        error("Unknown accelerator " + shape)
    if gpu and state["quota"] < 1:
        error("Maximum weekly GPU quota reached")
    gpus = 0 if not gpu or shape == "None" else 2 if shape == "NvidiaTeslaT4" else 1
    state["quota"] -= bool(gpus)
    kernel = state["kernels"].setdefault(name, {"versions": [], "private": False})
    kernel["private"] = str(meta.get("is_private", True)).lower() == "true"
    room = HOME / "machines" / str(sum(len(k["versions"]) for k in state["kernels"].values()))
    (room / "kaggle/working").mkdir(parents=True)
    (room / "kaggle/input").mkdir()
    mount(room, meta)
    text = re.sub(r"/kaggle(?=[/'\\"]|$)", str(room) + "/kaggle", code.read_text(), flags=re.M)
    (room / "script.py").write_text(text)
    env = dict(os.environ, KAGGLE_SIM_GPUS=str(gpus), KAGGLE_SIM_HOURS="12", HOME=str(room))
    done = subprocess.run([sys.executable, str(room / "script.py")], cwd=room / "kaggle/working", env=env,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=120)
    cut = (room / "kaggle/working/.cut").exists() or bool(list(room.rglob(".session-cut")))
    status = "CANCEL_ACKNOWLEDGED" if cut else "ERROR" if done.returncode else "COMPLETE"
    kernel["versions"].append({"status": status, "log": done.stdout[-20000:], "gpus": gpus})
    target = HOME / "output" / name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    if not cut:
        shutil.copytree(room / "kaggle/working", target, dirs_exist_ok=True, ignore_dangling_symlinks=True)
    save()
    print("Kernel version %d successfully pushed.  Please check progress: %s" % (len(kernel["versions"]), name))

def known():
    name = words[2] if len(words) > 2 else ""
    if name not in state["kernels"]:
        sys.exit("404 Client Error: Not Found: Cannot access kernel " + name)
    return name, state["kernels"][name]

if words[:2] == ["config", "view"]:
    print("Configuration values\\n- username: lab\\n- path: None\\n- proxy: None\\n- competition: None")
elif "--version" in words:
    print("Kaggle CLI 2.1.0")
elif words[:1] == ["quota"]:
    print("GPU sessions left this week: %d" % state["quota"])
elif words[:2] == ["kernels", "push"] and not {"-h", "--help"} & set(words):
    push()
elif words[:2] == ["kernels", "push"]:
    print("usage: kaggle kernels push [-h] [-p FOLDER] [-t TIMEOUT] [--accelerator ACCELERATOR]")
elif words[:2] == ["kernels", "status"]:
    name, kernel = known()
    print('%s has status "KernelWorkerStatus.%s"' % (name, kernel["versions"][-1]["status"]))
elif words[:2] == ["kernels", "logs"]:
    print(known()[1]["versions"][-1]["log"])
elif words[:2] == ["kernels", "output"]:
    name, _ = known()
    target = Path(options.get("-p") or ".")
    shutil.copytree(HOME / "output" / name, target, dirs_exist_ok=True)
    print("Output files downloaded to %s" % target)
elif words[:2] == ["datasets", "list"]:
    print("ref\\n" + "\\n".join(sorted("lab/" + path.name for path in (HOME / "datasets/lab").iterdir())))
else:
    print("usage: kaggle {config,datasets,kernels,quota} ...")
"""


def put_up(world: Path, datasets: dict[str, dict[str, str]], quota: int) -> None:
    home = world / "kaggle"
    for name, files in datasets.items():
        for path, text in files.items():
            target = home / "datasets" / "lab" / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
    (home / "state.json").write_text(json.dumps({"quota": quota, "kernels": {}}))
    tool = world / "bin" / "kaggle"
    tool.write_text(_CLI)
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)


def state(world: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((world / "kaggle" / "state.json").read_text())
    return data
