"""Starts an observer inside an unmodified Python program; `rgt.machine.interpreter.observed` says how it gets there.

Python imports a module of this name at its start when its folder is on PYTHONPATH. RGT_OBSERVER is the observer's file,
a module with `begin(folder, forked)`; RGT_INSIDE is the folder that it writes to. Without them nothing happens.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys


def start(path: str, folder: str) -> None:
    spec = importlib.util.spec_from_file_location("rgt_observer", path)
    assert spec is not None and spec.loader is not None
    observer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(observer)
    observer.begin(folder, forked=False)
    os.register_at_fork(after_in_child=lambda: observer.begin(folder, forked=True))


def hand_over() -> None:
    """Another sitecustomize that ours hides is imported after all."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    own = sys.modules.pop(__name__, None)
    try:
        importlib.import_module("sitecustomize")
    except ImportError:
        if own is not None:
            sys.modules[__name__] = own


if os.environ.get("RGT_INSIDE") and __name__ == "sitecustomize":
    start(os.environ["RGT_OBSERVER"], os.environ["RGT_INSIDE"])
    hand_over()
