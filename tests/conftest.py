"""For every test: one thread each; a busy machine is no failure, CI tries the same examples; Ctrl-C works."""

from __future__ import annotations

import os
import signal
import sys

from hypothesis import HealthCheck, settings

# two workers and what they start share few cores: torch's second thread only spins there, for a third of the CPU time
os.environ.setdefault("OMP_NUM_THREADS", "1")
# an image that forbids bytecode would have each worker rewrite the asserts of every test file anew
sys.dont_write_bytecode = False

slow = [HealthCheck.too_slow]
settings.register_profile("rgt", deadline=None, derandomize="CI" in os.environ, suppress_health_check=slow)
settings.load_profile("rgt")

# who starts the tests in the background (nohup, some CI) has SIGINT ignored, and every process under test would, too
signal.signal(signal.SIGINT, signal.default_int_handler)
