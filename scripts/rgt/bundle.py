"""Where the skill's own files are: the scripts, and what lies beside them."""

from __future__ import annotations

from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1]
SCHEMAS = SCRIPTS / "schemas"
TEMPLATES = SCRIPTS / "templates"
ROOT = SCRIPTS.parent
PROFILES = ROOT / "profiles"
REFERENCES = ROOT / "references"
