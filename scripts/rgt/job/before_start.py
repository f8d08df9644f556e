"""What submit looks at before it makes anything: the job's paths and room where it will run, the image, the rendezvous.

Example:
    problems(order)          sentences; none when it may start

The looking itself is `preflight audit --quick` on each machine; engines without a disk before the job runs (Kubernetes,
SkyPilot, Kaggle, OpenClaw) are asked only whether the image fits the card.
"""

from __future__ import annotations

import ipaddress
import json
import sys
import threading
import time

from rgt import bundle
from rgt.errors import RgtError
from rgt.host import box
from rgt.host.bounded import Done
from rgt.host.ssh import Host
from rgt.job.backends import Order
from rgt.machine import card_sheets

WITH_DISK = ("local", "ssh", "docker", "slurm")
_SECONDS = 120.0
_PROBE_SECONDS = 15.0
_LISTEN = """\
import socket, sys
address, port, wanted, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
family, _, _, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
with socket.socket(family) as server:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as torch's store does
    server.bind(where)
    server.listen()
    server.settimeout(seconds)
    for _ in range(wanted):
        server.accept()[0].close()
"""
_CONNECT = """\
import socket, sys, time
end = time.monotonic() + float(sys.argv[3])
while True:
    try:
        socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3).close()
        break
    except OSError as error:
        if time.monotonic() > end:
            sys.exit(str(error))
        time.sleep(0.2)
"""


def problems(order: Order) -> list[str]:
    found = [*_image(order)]
    if order.kind not in WITH_DISK:
        return found
    for host in order.hosts:
        found += _audit(order, host)
    if order.job.nodes > 1 and order.kind in ("ssh", "docker") and not found:
        found += _rendezvous(order)
    return found


def _audit(order: Order, host: Host) -> list[str]:
    words, data = ["audit", "-", "--quick", "--json"], json.dumps(order.job.spec()).encode()
    if host.name:
        done = box.run_tool(host, "preflight", words, input=data)
    else:
        done = host.run([sys.executable, str(bundle.SCRIPTS / "preflight.py"), *words], input=data, seconds=_SECONDS)
    try:
        rows = json.loads(done.out)["checks"]
    except (ValueError, KeyError):
        return [f"preflight gave no answer on {host.title}: {done.sentence()}"]
    where = f" on {host.title}" if host.name else ""
    return [f"{row['name']}{where}: {row['seen']} ({row['fix']})" for row in rows if row["status"] == "fail"]


def _image(order: Order) -> list[str]:
    """Against the cards that the job names, and the one that is there, with its driver, as far as docker tells."""
    job = order.job
    named = [word.partition(":")[0] for word in str(job.hardware.get("accelerators", "")).split(",")]
    offers = [(name.strip(), "") for name in named if name.strip()]
    if job.image and order.kind == "docker" and job.gpus_per_node:
        words = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        for host in order.hosts:
            try:
                answer = host.run(words)
            except RgtError:  # no nvidia-smi there: docker run itself will say what is missing
                continue
            lines = [line.rpartition(",") for line in answer.out.splitlines() if not answer.code]
            offers += dict.fromkeys((card.strip(), driver.strip()) for card, _, driver in lines)
    told = [card_sheets.problems(job.image, card, driver) for card, driver in offers]
    # of several accelerators any will do: only when none fits there is nothing to run on
    return [] if not told or not all(told) else list(dict.fromkeys(each for one in told for each in one))


def _rendezvous(order: Order) -> list[str]:
    """Let the first node listen at the address and port of the job, and every other one connect."""
    address, port = order.master, order.job.port
    try:
        loop = ipaddress.ip_address(address).is_loopback
    except ValueError:
        loop = address == "localhost"
    if loop:
        return [f"the other nodes cannot reach {address}; add master_addr: ADDRESS of {order.head.title} to the job"]
    answers: dict[str, Done | RgtError] = {}

    def run(host: Host, *words: object) -> None:
        try:
            argv = ["python3", "-c", *map(str, words)]
            answers[host.name] = host.run(argv, seconds=_SECONDS)
        except RgtError as error:
            answers[host.name] = error

    others = order.hosts[1:]
    jobs = [(order.head, _LISTEN, address, port, len(others), 2 * _PROBE_SECONDS)]
    threads = [threading.Thread(target=run, args=job) for job in jobs]
    threads += [threading.Thread(target=run, args=(host, _CONNECT, address, port, _PROBE_SECONDS)) for host in others]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + _SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    told = []
    for host in order.hosts:
        answer = answers.get(host.name)
        verb = f"cannot listen at {address}:{port}" if host is order.head else f"cannot reach {address}:{port}"
        if isinstance(answer, RgtError) or answer is None:
            told.append(f"{host.title} {verb}: {answer.message if answer else 'no answer'}")
        elif answer.code and (host is not order.head or "timed out" not in answer.err):
            told.append(f"{host.title} {verb}: {answer.sentence()}; choose master_addr and port in the job")
    return told
