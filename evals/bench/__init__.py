"""Benchmarks: each module has `rows()`, which yields Row by Row; run.py prints them all."""
