"""What the worlds of the cases are made of: clouds, checkpoints, logs, runs. Same arguments, same bytes."""
