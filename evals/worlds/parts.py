"""The generators that the tests already have: imported from there, not written twice."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from trials.case import ROOT


def of_tests(name: str) -> ModuleType:
    for folder in (str(ROOT / "tests"), str(ROOT / "scripts"), str(ROOT)):  # some import their neighbours from `tests`
        if folder not in sys.path:
            sys.path.append(folder)
    return importlib.import_module(name)
