"""Names of runs, jobs and events: 20261116-083000-tiny-gpt-1f00ab sorts by time, says what it is, never repeats."""

from __future__ import annotations

import os
import re
import time

RUN_ID = re.compile(r"\d{8}-\d{6}-[a-z0-9][a-z0-9._-]*-[0-9a-f]{6}")
# events that tell what became of the job; the others (verified, pulled, refused, ...) are about its results
LIFE = ("launched", "submitted", "preempted", "resumed", "stopped", "finished", "failed")
_SLUG_LENGTH = 40


def mint_id(slug: str, now: float | None = None) -> str:
    """UTC time, slug, six random hex digits."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    return f"{stamp}-{slugify(slug)}-{os.urandom(3).hex()}"


def slugify(text: str) -> str:
    """Lower-case ASCII letters, digits, dot, dash, underscore; never empty."""
    slug = re.sub(r"[^a-z0-9._-]+", "-", text.lower())[:_SLUG_LENGTH].strip("-._")
    return slug or "run"
