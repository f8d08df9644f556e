"""The profiles as a program reads them: commands without a shell, overrides that exist, a table that stays short."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from doccheck import commands, generate
from doccheck.documents import parse
from rgt import schema
from rgt.platform import profiles

import click
import pytest

ROOT = Path(__file__).resolve().parent.parent
NAMES = [path.stem for path in generate.profile_paths(ROOT)]


def front(name: str) -> dict[str, Any]:
    path = ROOT / "profiles" / f"{name}.md"
    return parse(path, path.read_text(encoding="utf-8")).front_matter()


VARIANTS = [f"{name}:{variant}" for name in NAMES for variant in front(name).get("variants", {})]
PLATFORMS = [(name, profiles.load(name)) for name in sorted([*NAMES, *VARIANTS])]


def programs() -> list[tuple[str, dict[str, Any]]]:
    found = [(name, fact) for name, p in PLATFORMS for fact in (p["verbs"]["down"], p["meter"]["list"])]
    return [(f"{name}-{i}", fact) for i, (name, fact) in enumerate(found) if "argv" in fact]


@pytest.mark.parametrize(("name", "profile"), PLATFORMS, ids=[name for name, _ in PLATFORMS])
def test_a_variant_is_a_whole_profile(name: str, profile: dict[str, Any]) -> None:
    assert schema.problems(profile, "profile") == []


@pytest.mark.parametrize(("name", "fact"), programs(), ids=[name for name, _ in programs()])
def test_a_command_runs_without_a_shell(name: str, fact: dict[str, Any]) -> None:
    for word in fact["argv"]:
        assert not re.search(r"[|&;`\n]|\$[({A-Z]", word), f"{word!r} needs a shell"
        assert all(re.fullmatch(r"[a-z][a-z0-9_-]*", hole) for hole in re.findall(r"<([^<>]*)>", word))
        if word.startswith("{"):
            json.loads(word)
    # a key may only come by stdin, and a tool that is told to read it must get it
    assert ("-K" in fact["argv"]) == ("${" in fact.get("stdin", ""))


def test_gone_is_no_bare_word_of_an_answer_in_json() -> None:
    """`shutdown` alone would be found in `timed_shutdown_at` of a running instance."""
    curl = [(name, fact) for name, fact in programs() if fact["argv"][0] == "curl"]
    assert [name for name, fact in curl for text in fact.get("gone", []) if not text.startswith('"status":')] == []


def test_every_down_names_what_it_ends() -> None:
    down = [(name, p["verbs"]["down"]) for name, p in PLATFORMS if "argv" in p["verbs"]["down"]]
    assert [name for name, fact in down if "<id>" not in " ".join(fact["argv"])] == []
    ssh = [f"generic-ssh:{name}" for name in ("slurm", "k8s", "colab", "skypilot", "dstack")]
    rented = ["lambda", "paperspace", "runpod", "vastai"]
    assert {name for name, _ in down} == {"autodl", *ssh, *rented}
    # without a terminal these take silence for no; vastai even exits 0 then
    for name in ("vastai", "generic-ssh:skypilot", "generic-ssh:dstack"):
        assert "-y" in dict(down)[name]["argv"]


def options_of(command: click.Command, stem: str) -> set[str]:
    return {option for _, c in commands.all_commands(command, stem) for p in c.params for option in p.opts}


def test_overrides_are_words_our_scripts_know() -> None:
    job = json.loads((ROOT / "scripts" / "schemas" / "job.schema.json").read_text())["properties"]
    for name in NAMES:
        for script, values in front(name)["overrides"].items():
            stem = script.removesuffix(".py")
            known = set(job) if script == "job.yaml" else options_of(commands.load_command(ROOT, stem), stem)
            assert set(values) <= known, f"{name}: {script} does not know {set(values) - known}"


def test_overrides_write_to_a_tier_that_a_stop_keeps() -> None:
    for name in NAMES:
        profile = front(name)
        output = profile["overrides"].get("job.yaml", {}).get("output")
        kept = [p.strip() for tier in profile["storage"] if tier["stop"] == "kept" for p in tier["path"].split(",")]
        assert output is None or any(output.startswith(path) for path in kept), name


def test_unknown_needs_no_source_and_a_claim_does() -> None:
    profile = front("lambda")
    profile["auto_release"] = {"value": "unknown; nothing is documented"}
    assert schema.problems(profile, "profile") == []
    profile["auto_release"] = {"value": "never"}
    assert schema.problems(profile, "profile") == [
        "auto_release: 'source' is a required property",
        "auto_release: 'verified' is a required property",
    ]
    profile = front("generic-ssh")
    del profile["variants"]["slurm"]["meter"]["stops_with"]["source"]
    assert schema.problems(profile, "profile") == ["variants/slurm/meter/stops_with: 'source' is a required property"]
