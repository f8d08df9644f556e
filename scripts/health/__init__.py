"""The parts of watch.py: read what is new in a log, judge the curves, the process and the box, and say it in one page."""
