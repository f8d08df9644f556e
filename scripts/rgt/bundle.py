"""Where the skill's own files are: the scripts, and what lies beside them; and how its tools are called."""

from __future__ import annotations

import os
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1]
SCHEMAS = SCRIPTS / "schemas"
TEMPLATES = SCRIPTS / "templates"
ROOT = SCRIPTS.parent
PROFILES = ROOT / "profiles"
REFERENCES = ROOT / "references"


def command(tool: str, *words: object) -> str:
    """A command line that runs when it is pasted: `rgt` where that finds this bundle, else its path.

    A word in <angle brackets> is a place for the reader's own word, and stays as it is.
    """
    import shlex  # here, because every --help would pay for them
    import shutil

    own = os.environ.get("RGT_COMMAND") or str(ROOT / "bin" / "rgt")
    on_path = shutil.which("rgt")
    named = on_path is None or os.path.realpath(on_path) != os.path.realpath(own)
    first = own if named and os.path.exists(own) else "rgt"  # on a box there is no bin/
    quoted = [word if word[:1] + word[-1:] == "<>" else shlex.quote(word) for word in map(str, words)]
    return " ".join([shlex.quote(first), tool, *quoted])
