"""HOST:DIR: one table of what a place is, for every tool that takes one."""

from __future__ import annotations

import pytest

from rgt.errors import RgtError
from rgt.host.ssh import parse_place


@pytest.mark.parametrize(
    ("text", "host", "port", "path"),
    [
        ("box:runs/x", "box", None, "runs/x"),
        ("user@box:~/exp", "user@box", None, "~/exp"),
        ("box:/data/a:b", "box", None, "/data/a:b"),
        ("box:a:b", "box", None, "a:b"),
        ("C:/runs", "C", None, "/runs"),  # a host of one letter; Windows is not where this runs
        ("[::1]:runs/x", "::1", None, "runs/x"),
        ("root@[fe80::1%eth0]:/w", "root@fe80::1%eth0", None, "/w"),
        ("ssh://user@box:2222/runs/x", "user@box", 2222, "/runs/x"),
        ("ssh://box:22/~/exp", "box", 22, "~/exp"),
        ("ssh://[::1]:22/w", "::1", 22, "/w"),
        ("ssh://box/w", "box", None, "/w"),
        ("runs/x", "", None, "runs/x"),
        ("./a:b", "", None, "./a:b"),
        ("/data/a:b", "", None, "/data/a:b"),
        ("~/a:b", "", None, "~/a:b"),
    ],
)
def test_a_place(text: str, host: str, port: int | None, path: str) -> None:
    place = parse_place(text)
    assert (place.host.name, place.host.port, place.path) == (host, port, path)
    assert parse_place(place.text) == place  # a manifest's source is read again by down


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "this one is empty"),
        ("box:", "box: names no directory on box; write box:DIR"),
        (":runs/x", "':runs/x' is not HOST:DIR; a directory here with a colon in its name is ./:runs/x"),
        ("user@:runs", "is not HOST:DIR"),
        ("@box:runs", "is not HOST:DIR"),
        ("::1:runs/x", "is not HOST:DIR"),
        ("[::1:runs", "is not HOST:DIR"),
        ("two words:runs", "is not HOST:DIR"),
        (r"C:\runs\x", "is not HOST:DIR"),
        ("-oProxyCommand=x:dir", "is not a host: ssh would read it as an option"),
        ("ssh://-oProxyCommand=x/dir", "is not a host: ssh would read it as an option"),
        ("ssh://box:x/dir", "is not ssh://USER@HOST:PORT/DIR"),
        ("ssh://box:22/", "names no directory on box"),
        ("box:\0", "this one is empty"),
    ],
)
def test_what_is_not_a_place(text: str, sentence: str) -> None:
    with pytest.raises(RgtError) as refused:
        parse_place(text)
    assert sentence in refused.value.message
