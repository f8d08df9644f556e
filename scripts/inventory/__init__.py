"""The parts of takeover: what runs, what waits, what is on disk, and how it is told on one screen."""
