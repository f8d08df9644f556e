"""The last end, on the box itself: a loop there that stops the box by the platform's own means, also when we are gone.

It knows nothing of pulls and runs, so it comes later than the keeper, and only where a stop keeps the run's disk. The
time is in ~/.rgt-lease on the box: a lease that is extended writes another one, a lease that ends removes the file.
"""

from __future__ import annotations

from typing import Any

from rgt.errors import RgtError
from rgt.host.ssh import Host

LATER = 1800.0  # seconds after the lease's end
_FILE = "~/.cache/rgt/lease-timer.sh"
_LOOP = """\
# By rgt lease: stops this box when the time in ~/.rgt-lease (seconds since 1970) is over; without the file it ends.
f=$HOME/.rgt-lease
echo $$ > "$f.pid"
while [ -s "$f" ]; do
    [ "$(cat "$f.pid")" = $$ ] || exit 0  # a newer one does it
    left=$(( $(cat "$f") - $(date +%s) ))
    [ "$left" -gt 0 ] || break
    sleep $(( left < 60 ? left : 60 ))
done
[ -s "$f" ] || exit 0
rm -f "$f"
{stop}
"""
_ARM = """\
echo $(( $(date +%s) + $1 )) > "$HOME/.rgt-lease"
if command -v setsid >/dev/null; then s=setsid; else s=; fi
$s nohup sh "$0" </dev/null >"$HOME/.rgt-lease.log" 2>&1 &
"""


def script(facts: dict[str, Any]) -> str:
    """The loop with the platform's own stop; empty where none is known."""
    value = facts["meter"].get("self_stop", {"value": "unknown"})["value"]
    return "" if value.startswith("unknown") else _LOOP.format(stop=value)


def by_hand(facts: dict[str, Any], seconds: float) -> str:
    """What a person types on the box."""
    text = script(facts)
    return f"cat > lease-timer.sh <<'END'\n{text}END\nset -- {seconds:.0f}; " + _ARM.replace('"$0"', "lease-timer.sh")


def install(host: Host, facts: dict[str, Any], seconds: float) -> None:
    host.put(_FILE, script(facts).encode(), 0o755)
    arm(host, seconds)


def arm(host: Host, seconds: float) -> None:
    """Start it, or give a running one its new time."""
    done = host.run(["sh", "-c", _ARM, _FILE, f"{max(1.0, seconds):.0f}"], expand=(3,))
    if done.code:
        raise RgtError(f"the timer on {host.title} could not be set: {done.sentence()}")


def remove(host: Host) -> None:
    done = host.run(["sh", "-c", 'rm -f "$HOME/.rgt-lease"'])
    if done.code:
        raise RgtError(f"the timer on {host.title} could not be removed: {done.sentence()}")
