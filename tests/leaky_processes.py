"""Processes that leak like a training, without torch: leaky_processes.py CYCLES [train] [val] [worker] [shm] [warm]"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import resource
import sys
import time

CYCLES, LEAKS = int(sys.argv[1]), set(sys.argv[2:])
BLOCK = 1 << 18
PAUSE = 0.03  # as long as a step


def work() -> None:
    kept = []
    parent = os.getppid()
    while os.getppid() == parent:  # the next one need not be 1: containers have reapers of their own
        time.sleep(PAUSE)
        if "worker" in LEAKS:
            kept.append(b"w" * BLOCK)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))  # a test that does not end it must not take the machine
    context = multiprocessing.get_context("fork")
    for _ in range(2):
        context.Process(target=work, daemon=True).start()
    kept: list[object] = []
    step = 0
    for cycle in range(CYCLES):
        for _ in range(24):
            step += 1
            time.sleep(PAUSE)
            if "train" in LEAKS or ("warm" in LEAKS and step < 40):
                kept.append(b"t" * BLOCK)
            if "shm" in LEAKS:
                shared = mmap.mmap(-1, BLOCK)  # shared and anonymous: the kernel counts it as shmem
                shared.write(b"s" * BLOCK)
                kept.append(shared)
            if step % 4 == 0:
                print(f"step {step} loss {1 / step:.4f}", flush=True)
        time.sleep(3 * PAUSE)
        if "val" in LEAKS:
            kept += [b"v" * BLOCK for _ in range(16)]
        print(f"step {step} val_loss {1 / (cycle + 1):.4f}", flush=True)


main()
