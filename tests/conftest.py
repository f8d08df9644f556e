"""For every test: Hypothesis takes a busy machine for no failure and tries the same examples in CI; Ctrl-C works."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

settings.register_profile(
    "rgt", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("rgt")

# who starts the tests in the background (nohup, some CI) has SIGINT ignored, and every process under test would, too
signal.signal(signal.SIGINT, signal.default_int_handler)
