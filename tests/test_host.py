"""HOST:DIR: one table of what a place is, for every tool that takes one."""

from __future__ import annotations

from rgt.errors import RgtError
from rgt.host.ssh import Host, parse_place
from rgt.job.backends import parse_target

import pytest

from .real.support import need

PLACES = [
    ("box:runs/x", "box", "runs/x"),
    ("user@box:~/exp", "user@box", "~/exp"),
    ("box:/data/a:b", "box", "/data/a:b"),
    ("C:/runs", "C", "/runs"),  # a host of one letter; Windows is not where this runs
    ("box:a:b", "box", "a:b"),
    ("[::1]:runs/x", "::1", "runs/x"),
    ("root@[fe80::1%eth0]:/w", "root@fe80::1%eth0", "/w"),
    ("ssh://user@box:2222/runs/x", "ssh://user@box:2222", "/runs/x"),
    ("ssh://box:22/~/exp", "ssh://box:22", "~/exp"),
    ("ssh://[::1]:22/w", "ssh://[::1]:22", "/w"),
    ("ssh://box/w", "ssh://box", "/w"),
    ("runs/x", "", "runs/x"),
    ("./a:b", "", "./a:b"),
    ("~/a:b", "", "~/a:b"),
]


@pytest.mark.parametrize(("text", "host", "path"), PLACES)
def test_a_place(text: str, host: str, path: str) -> None:
    place = parse_place(text)
    assert (place.host.name, place.path) == (host, path)
    assert parse_place(place.text) == place  # a manifest's source is read again by down


NO_PLACES = [
    ("", "this one is empty"),
    ("box:", "box: names no directory on box; write box:DIR"),
    (":runs/x", "a directory here with a colon in its name is ./:runs/x"),
    ("user@:runs", "is neither HOST:DIR nor ssh://USER@HOST:PORT/DIR"),
    ("::1:runs/x", "is neither HOST:DIR nor ssh://USER@HOST:PORT/DIR"),
    ("[::1:runs", "is neither HOST:DIR"),
    (r"C:\runs\x", "is neither HOST:DIR nor ssh://USER@HOST:PORT/DIR"),
    ("-oProxyCommand=x:dir", "is not a host: ssh would read it as an option"),
    ("ssh://-oProxyCommand=x/dir", "is not a host: ssh would read it as an option"),
    ("ssh://box:x/dir", "is neither HOST:DIR"),
    ("ssh://box:22/", "names no directory on ssh://box:22; write ssh://box:22/DIR"),
    ("https://box/dir", "is neither HOST:DIR"),
    ("box:\0", "this one is empty"),
]


@pytest.mark.parametrize(("text", "sentence"), NO_PLACES)
def test_what_is_not_a_place(text: str, sentence: str) -> None:
    with pytest.raises(RgtError) as refused:
        parse_place(text)
    assert sentence in refused.value.message


HOSTS = [
    ("root@box", ["--", "root@box"]),
    ("ssh://root@box:2222", ["-p", "2222", "--", "root@box"]),
    ("ssh://root@[::1]:2222", ["-p", "2222", "--", "root@::1"]),
    ("ssh://[::1]", ["--", "::1"]),
]


@pytest.mark.parametrize(("name", "words"), HOSTS)
def test_ssh_understands_the_name(name: str, words: list[str]) -> None:
    """Asked of the real ssh, which prints what it would connect to."""
    need("ssh", "openssh-client")
    host = Host(name, ssh_config="/dev/null")
    assert host.destination() == ["-F", "/dev/null", *words]
    assert host.address() == ("::1" if "::1" in name else "box")


def test_a_target_with_a_port() -> None:
    assert parse_target("ssh://root@box:2222,b") == ("ssh", [Host("ssh://root@box:2222"), Host("b")])
