# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""RUN · checkpoints that survive anything: verified save, last good one, retention, cadence, proof that a job resumes

Example:
    store = checkpoints.Checkpoints(run, keep_last=2, best="val_loss", every=1000)
    found = store.load_latest()                     # the last good one, or None for a fresh start
    if found:
        checkpoints.restore(found.state, model=model, optimizer=optimizer)
    store.save(step, checkpoints.capture(model=model, optimizer=optimizer), metrics={"val_loss": 2.3})
    rgt checkpoints list runs/<run-id>
    rgt checkpoints certify -- python train.py --out {out} --max-steps {steps}      # does it really resume?

Writes <run>/checkpoints/step_000040.pt and <run>/checkpoints_index.json. As a library it needs torch and nothing else:
put this folder on PYTHONPATH, or copy this file and rgt/ beside the training code.
"""

from __future__ import annotations

from typing import Any

if __name__ != "__main__":  # the command line loads what its verbs need
    from rgt.checkpoint.store import Checkpoints, Loaded, StopSignals, capture, restore
    from rgt.errors import RgtError as CheckpointError

__all__ = ["CheckpointError", "Checkpoints", "Loaded", "StopSignals", "capture", "restore"]


def __getattr__(name: str) -> Any:
    """The command line needs click; a training box may not have it, so it is loaded only when asked for."""
    if name == "main":
        from rgt.checkpoints.commands import main

        return main
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if __name__ == "__main__":
    from rgt.checkpoints.commands import main

    main()
