"""The parts of checkpoints.py. They need the standard library and torch, nothing else: a training box has no more."""
