"""Pack the skill as users install it. `make dist` writes, the same bytes each time:

    dist/remote-gpu-trainer.zip   the skill as one folder, for an agent's skills folder, an upload, or `uvx --from`
    dist/marketplace/             with one plugin, for Claude Code, Codex and every client of Agent Plugins 1.0
    dist/rgt.pyz                  every tool in one file: python3 rgt.pyz TOOL ...

Names and texts come from SKILL.md's front matter and pyproject.toml. Tests and evals stay behind: an agent does not
need them, and they hold the answers of the cases.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
NAME = "remote-gpu-trainer"
TITLE = "Remote GPU trainer"
AUTHOR = {"name": "the remote-gpu-trainer authors"}  # as in LICENSE
KEYWORDS = ["deep-learning", "training", "gpu", "pytorch", "ssh", "slurm", "checkpoints", "reproducibility"]
BUNDLE = (
    "SKILL.md",
    "README.md",
    "INSTALL.md",
    "SECURITY.md",
    "LICENSE",
    "pyproject.toml",
    "requirements.lock",
    "bin",
    "references",
    "profiles",
    "scripts",
    "examples",
)
_TIME = (2026, 1, 1, 0, 0, 0)  # a zip has no time zone, and a build no opinion on time

# a plugin's bin/ is on the agent's PATH; the skill with the real bin/rgt lies two folders further
PLUGIN_COMMAND = f"""\
#!/bin/sh
home=$(readlink -f -- "$0") && exec "${{home%/*/*}}/skills/{NAME}/bin/rgt" "$@"
"""

# read by Claude Code; Codex 0.169 runs hooks of its own hooks.json only (tests/real/test_agent_clients.py)
GUARD = f'python3 -I -S "${{CLAUDE_PLUGIN_ROOT}}/skills/{NAME}/scripts/rgt/guard/hook.py"'
HOOKS = {
    "description": "rgt guard: nothing is destroyed and no machine ended without proof and approval",
    "hooks": {
        "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": GUARD, "timeout": 10}]}],
    },
}

PYZ_MAIN = """\
# Unpacks the skill into the user's cache, once per build, and starts its bin/rgt.
import os, shutil, sys, zipfile
cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
home = os.path.join(cache, "rgt", "bundle-{digest}")
command = os.path.join(home, "bin", "rgt")
if not os.path.exists(command):
    new = "%s.%d" % (home, os.getpid())
    try:
        with zipfile.ZipFile(os.path.dirname(os.path.abspath(__file__))) as archive:
            for entry in archive.infolist():
                if entry.filename != "__main__.py":
                    os.chmod(archive.extract(entry, new), entry.external_attr >> 16)
        os.rename(new, home)
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        if not os.path.exists(command):  # else another call has unpacked it meanwhile
            sys.exit("error: cannot unpack rgt.pyz into %s: %s" % (home, error.strerror))
os.execv("/bin/sh", ["/bin/sh", command, *sys.argv[1:]])
"""


def facts() -> dict[str, str]:
    """Name, version, licence and description; refused when the two sources disagree."""
    front = yaml.safe_load((ROOT / "SKILL.md").read_text(encoding="utf-8").split("---\n")[1])
    project = dict(re.findall(r'^(name|version|description) = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.M))
    ours = {"name": front["name"], "version": front["metadata"]["version"]}
    if ours != {"name": project["name"], "version": project["version"]}:
        raise SystemExit(f"SKILL.md says {ours}, pyproject.toml {project}")
    return {**ours, "license": front["license"], "description": project["description"], "long": front["description"]}


def files() -> list[Path]:
    """What git knows of the bundle; without git, what is there but caches."""
    with contextlib.suppress(FileNotFoundError):
        listed = subprocess.run(["git", "ls-files", "-z", *BUNDLE], cwd=ROOT, capture_output=True, text=True)
        if listed.returncode == 0 and listed.stdout:
            return sorted(Path(name) for name in listed.stdout.split("\0") if name)
    found = [path for name in BUNDLE for path in (ROOT / name, *(ROOT / name).rglob("*")) if path.is_file()]
    return sorted(path.relative_to(ROOT) for path in found if "__pycache__" not in path.parts)


def skill() -> dict[str, tuple[bytes, int]]:
    """Path -> content and mode of every file of the installed skill."""
    contents = {}
    for path in files():
        mode = 0o755 if os.access(ROOT / path, os.X_OK) else 0o644
        contents[path.as_posix()] = ((ROOT / path).read_bytes(), mode)
    prompt = f"Use ${NAME} to train this model, verify the result and deliver it."
    interface = {"display_name": TITLE, "short_description": facts()["description"], "default_prompt": prompt}
    contents["agents/openai.yaml"] = (yaml.safe_dump({"interface": interface}, sort_keys=False).encode(), 0o644)
    return contents


def plugin() -> dict[str, tuple[bytes, int]]:
    """One plugin folder that three kinds of clients read."""
    told = facts()
    common: dict[str, Any] = {key: told[key] for key in ("name", "version", "description", "license")}
    common |= {"author": AUTHOR, "keywords": KEYWORDS}
    shown: dict[str, Any] = {"displayName": TITLE, "shortDescription": told["description"]}
    shown |= {"longDescription": told["long"], "developerName": AUTHOR["name"]}
    shown |= {"category": "Developer Tools", "capabilities": ["Interactive", "Write"]}
    agent_plugins = {"$schema": "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json", **common}
    contents = {f"skills/{NAME}/{path}": content for path, content in skill().items()}
    return contents | {
        "plugin.json": _json(agent_plugins),
        ".claude-plugin/plugin.json": _json(common),
        ".codex-plugin/plugin.json": _json({**common, "skills": "./skills/", "interface": shown}),
        "bin/rgt": (PLUGIN_COMMAND.encode(), 0o755),
        "hooks/hooks.json": _json(HOOKS),
    }


def marketplace() -> dict[str, tuple[bytes, int]]:
    told, source = facts(), f"./plugins/{NAME}"
    claude: dict[str, Any] = {"name": NAME, "owner": AUTHOR, "metadata": {"description": told["description"]}}
    claude |= {"plugins": [{"name": NAME, "source": source, "description": told["description"]}]}
    policy = {"installation": "AVAILABLE", "authentication": "ON_INSTALL"}
    entry = {"name": NAME, "source": {"source": "local", "path": source}, "policy": policy}
    codex = {"name": NAME, "interface": {"displayName": TITLE}, "plugins": [{**entry, "category": "Developer Tools"}]}
    contents = {f"plugins/{NAME}/{path}": content for path, content in plugin().items()}
    return contents | {
        ".claude-plugin/marketplace.json": _json(claude),
        ".agents/plugins/marketplace.json": _json(codex),
    }


def _json(data: Any) -> tuple[bytes, int]:
    return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode(), 0o644


def zipped(contents: Mapping[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, (data, mode) in sorted(contents.items()):
            entry = zipfile.ZipInfo(path, _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


def pyz() -> bytes:
    contents = skill()
    digest = hashlib.sha256(zipped(contents)).hexdigest()[:12]
    main = PYZ_MAIN.replace("{digest}", digest).encode()
    return b"#!/usr/bin/env python3\n" + zipped({**contents, "__main__.py": (main, 0o644)})


def pack(target: Path) -> None:
    """Write all three below `target`."""
    shutil.rmtree(target / "marketplace", ignore_errors=True)
    target.mkdir(parents=True, exist_ok=True)
    (target / f"{NAME}.zip").write_bytes(zipped({f"{NAME}/{path}": content for path, content in skill().items()}))
    (target / "rgt.pyz").write_bytes(pyz())
    (target / "rgt.pyz").chmod(0o755)
    for path, (data, mode) in marketplace().items():
        place = target / "marketplace" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        place.chmod(mode)


if __name__ == "__main__":
    pack(ROOT / "dist")
    print(f"dist/{NAME}.zip, dist/rgt.pyz, dist/marketplace: {len(skill())} files, version {facts()['version']}")
