"""The parts of compare_runs: readers of runs, what changed, the statistics, and the verdict."""
