"""What several files together must be: shard sets, ranks, run directories."""
