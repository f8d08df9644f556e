"""rgt's own environment, so that the tools need nothing of the user's project and change nothing in it.

    python3 environment.py scripts/watch.py ARGUMENTS...     run the tool in it; it is made at the first call

A python3 that has all of it already runs the tool itself. The environment holds what the tool's head names
(`# dependencies = [...]`), at the versions of requirements.lock, and lies in
~/.cache/rgt/env-<hash>; tools with the same needs share one. Made with uv where that is installed, else venv and pip.
Standard library only, and nothing newer than Python 3.7 has: this runs on whatever python3 there is.
"""

from __future__ import annotations

import ast
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys

NEEDED = (3, 10)
ENVIRONMENT = 3  # the exit code of errors.py, which this Python may be too old to import
HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LOCK = os.path.join(HOME, "requirements.lock")


def main() -> None:
    tool = sys.argv[1]
    packages = needs(tool)
    folder = os.path.join(cache(), f"env-{key(packages)}")
    python = os.path.join(folder, "bin", "python")
    if not os.access(python, os.X_OK):  # also when its base Python is gone
        if has(packages):
            python = sys.executable
        else:
            make(folder, packages)
    # the skill may lie in the user's repository: what Python compiles goes to the cache
    os.execv(python, [python, "-E", "-X", f"pycache_prefix={cache()}/pycache", tool, *sys.argv[2:]])


def needs(tool: str) -> list[str]:
    with open(tool, encoding="utf-8") as file:
        line = re.search(r"^# dependencies = (\[.*\])$", file.read(), re.M)
    return sorted(ast.literal_eval(line.group(1))) if line else []


def has(packages: list[str]) -> bool:
    """Does this Python have each of them, of the lock's major version?"""
    if sys.version_info < NEEDED or not os.path.exists(LOCK):
        return False
    from importlib import metadata

    with open(LOCK, encoding="utf-8") as file:
        locked = dict(re.findall(r"^([\w.-]+)==(\d+)", file.read(), re.M))
    try:
        return all(metadata.version(name).split(".")[0] == locked.get(name) for name in packages)
    except metadata.PackageNotFoundError:
        return False


def cache() -> str:
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(folder, "rgt")


def key(packages: list[str]) -> str:
    digest = hashlib.sha256(f"{packages} {sys.version_info[:2]} {sys.base_prefix}".encode())
    if os.path.exists(LOCK):
        with open(LOCK, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:12]


def make(folder: str, packages: list[str]) -> None:
    """Beside its place, then moved there: a killed or doubled first call leaves no half environment."""
    uv = shutil.which("uv")
    if sys.version_info < NEEDED and not uv:
        fail(f"rgt needs Python 3.10 or newer, or uv; python3 is {sys.version.split()[0]}")
    print(f"rgt: first call: making {folder} ({', '.join(packages)})", file=sys.stderr)
    new = f"{folder}.{os.getpid()}"
    python = os.path.join(new, "bin", "python")
    if uv:
        steps = [[uv, "venv", "-q", "--python", ">=3.10", new], [uv, "pip", "install", "-q", "--python", python]]
    else:
        # --no-compile: what the tools compile goes to pycache_prefix, and Python looks nowhere else for it then
        pip = [python, "-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check", "--retries", "1"]
        steps = [[sys.executable, "-m", "venv", new], pip]
    steps[1] += [*(["-c", LOCK] if os.path.exists(LOCK) else []), *packages]
    try:
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        remove_leftovers(os.path.dirname(folder))
        for step in steps:
            done = subprocess.run(step, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode:
                shutil.rmtree(new, ignore_errors=True)
                fail(why(done.stdout, packages))
        if not os.access(os.path.join(folder, "bin", "python"), os.X_OK):
            shutil.rmtree(folder, ignore_errors=True)  # one whose base Python is gone; never one that is in use
        os.rename(new, folder)  # fails when another call has made it meanwhile
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        if not os.access(os.path.join(folder, "bin", "python"), os.X_OK):
            fail(f"cannot make rgt's environment in {folder}: {error.strerror}")


def remove_leftovers(cache_folder: str) -> None:
    """Of first calls that were killed; the name ends with the number of the process."""
    for left in glob.glob(os.path.join(glob.escape(cache_folder), "env-*.*")):
        try:
            os.kill(int(left.rpartition(".")[2]), 0)
        except ProcessLookupError:
            shutil.rmtree(left, ignore_errors=True)
        except (OSError, ValueError):
            pass


def why(said: str, packages: list[str]) -> str:
    if "ensurepip" in said:
        return "this python3 has no venv module (Debian: apt install python3-venv); or install uv"
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["no message"]
    wrong = [line for line in lines if re.match(r"(?i)error|×|.*no module", line)] or lines
    other = f"or call a tool with a Python that has them: python3 {os.path.join(HOME, 'scripts', 'TOOL.py')}"
    return f"cannot install {', '.join(packages)} ({wrong[0][:200]}); connect to a package index once, {other}"


def fail(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(ENVIRONMENT)


if __name__ == "__main__":
    main()
