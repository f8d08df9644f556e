"""Checkpoint files: read without trust, without torch, and without executing anything they hold.

from artifacts.examine import examine        is this one file real?
"""
