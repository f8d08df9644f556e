"""HOST:DIR: one table of what a place is, for every tool that takes one."""

from __future__ import annotations

from rgt.errors import RgtError
from rgt.host.ssh import parse_place

import pytest


@pytest.mark.parametrize(
    ("text", "host", "path"),
    [
        ("box:runs/x", "box", "runs/x"),
        ("user@box:~/exp", "user@box", "~/exp"),
        ("box:/data/a:b", "box", "/data/a:b"),
        ("C:/runs", "C", "/runs"),  # a host of one letter; Windows is not where this runs
        ("runs/x", "", "runs/x"),
        ("./a:b", "", "./a:b"),
        ("~/a:b", "", "~/a:b"),
    ],
)
def test_a_place(text: str, host: str, path: str) -> None:
    place = parse_place(text)
    assert (place.host.name, place.path) == (host, path)
    assert parse_place(place.text) == place  # a manifest's source is read again by down


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "this one is empty"),
        ("box:", "box: names no directory on box; write box:DIR"),
        (":runs/x", "a directory here with a colon in its name is ./:runs/x"),
        ("user@:runs", "is not HOST:DIR"),
        ("@box:runs", "is not HOST:DIR"),
        ("::1:runs/x", "is not HOST:DIR"),
        ("[::1]:runs", "is not HOST:DIR; a port or an IPv6 address gets a name in ~/.ssh/config"),
        ("two words:runs", "is not HOST:DIR"),
        (r"C:\runs\x", "is not HOST:DIR"),
        ("-oProxyCommand=x:dir", "is not a host: ssh would read it as an option"),
        ("ssh://root@box:22/dir", "is not HOST:DIR; a port or an IPv6 address gets a name in ~/.ssh/config"),
        ("box:\0", "this one is empty"),
    ],
)
def test_what_is_not_a_place(text: str, sentence: str) -> None:
    with pytest.raises(RgtError) as refused:
        parse_place(text)
    assert sentence in refused.value.message
