"""The parts of watch.py: read what is new in a log, judge curves, process and box, and say it in one page."""
