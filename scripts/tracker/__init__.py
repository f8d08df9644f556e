"""Runs of a tracker, offline or hosted, in one shape. wandb_forensics.py is the front door.

offline.py   run-*.wandb files, read as they are on disk
hosted.py    the hosted API, through the wandb library
shape.py     what both give: Tracked
choice.py    which run a word of the command line means
rewrite.py   a tracked run as a run directory
judge.py     which runs crashed, were resumed, or are there twice
"""
