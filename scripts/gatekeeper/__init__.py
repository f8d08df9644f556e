"""The parts of gpu_gate: locks, cards (which may be used), keeper (the wait), supervisor (the run)."""
