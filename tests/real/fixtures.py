"""Every real fixture under one import, and the rule that keeps a heavy one on one worker.

A conftest.py that imports these names gives its folder the fixtures. Do that in one conftest.py only: pytest
counts a fixture imported twice as two, and would start two Slurm controllers.
"""

from __future__ import annotations

import pytest

from .disk import tiny_disk
from .dockerd import docker_engine, dockerd, two_engines
from .hosts import two_hosts
from .nvml import nvml, nvml_library
from .slurm import slurm, slurm_cluster
from .sshd import sshd

__all__ = [
    "docker_engine",
    "dockerd",
    "nvml",
    "nvml_library",
    "pytest_collection_modifyitems",
    "slurm",
    "slurm_cluster",
    "sshd",
    "tiny_disk",
    "two_engines",
    "two_hosts",
]

# Seconds to start, so all tests that use one share a worker (--dist loadgroup). Should two workers still ask for
# it, each gets its own ports and directories.
HEAVY = {"certify", "dockerd", "maze", "moto", "slurm", "two_engines", "vastai"}


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.pluginmanager.hasplugin("xdist"):
        return  # --strict-markers would refuse the mark
    for item in items:
        for name in HEAVY.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group(name))
