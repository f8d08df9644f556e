"""The profiles as a program reads them: commands without a shell, overrides that exist, a table that stays short."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from doccheck import commands, generate
from doccheck.documents import parse
from rgt import schema
from rgt.platform import acts, profiles

import click
import pytest

ROOT = Path(__file__).resolve().parent.parent
NAMES = [path.stem for path in generate.profile_paths(ROOT)]


def front(name: str) -> dict[str, Any]:
    path = ROOT / "profiles" / f"{name}.md"
    return parse(path, path.read_text(encoding="utf-8")).front_matter()


PLATFORMS = list(profiles.every())


def verbs_that_end(profile: dict[str, Any]) -> list[dict[str, Any]]:
    return [profile["verbs"][verb] for verb in ("down", "stop", "destroy") if verb in profile["verbs"]]


def programs() -> list[tuple[str, dict[str, Any]]]:
    found = [(name, fact) for name, p in PLATFORMS for fact in (*verbs_that_end(p), p["meter"]["list"])]
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


@pytest.mark.parametrize(("name", "profile"), PLATFORMS, ids=[name for name, _ in PLATFORMS])
def test_a_list_can_show_what_each_verb_is_for(name: str, profile: dict[str, Any]) -> None:
    """A stop that no status shows could never be proved; and `down` is the one that is not written a second time."""
    listing, verbs = profile["meter"]["list"], profile["verbs"]
    answer = listing.get("answer", {})
    assert acts.usual(profile) not in verbs
    assert ("answer" in listing) == ("argv" in listing)
    if answer and ("stop" in verbs or acts.usual(profile) == "stop"):
        assert answer["status"] and answer["stopped"]
    assert not set(answer.get("stopped", [])) & set(answer.get("ended", []))


def test_every_verb_names_what_it_ends() -> None:
    ends = [(name, fact) for name, p in PLATFORMS for fact in verbs_that_end(p) if "argv" in fact]
    assert [name for name, fact in ends if "<id>" not in " ".join(fact["argv"])] == []
    ssh = [f"generic-ssh:{name}" for name in ("slurm", "k8s", "colab", "skypilot", "dstack")]
    rented = ["lambda", "paperspace", "runpod", "vastai"]
    assert {name for name, _ in ends} == {"autodl", *ssh, *rented}
    # without a terminal these take silence for no; vastai even exits 0 then
    down = {name: p["verbs"]["down"] for name, p in PLATFORMS}
    for name in ("vastai", "generic-ssh:skypilot", "generic-ssh:dstack"):
        assert "-y" in down[name]["argv"]


def test_which_platforms_cannot_prove_an_end() -> None:
    """Their lists are consoles or tables; `down` executes nothing there and says how it is done by hand."""
    unable = {name for name, p in PLATFORMS if "answer" not in p["meter"]["list"]}
    china = {"china", *(f"china:{name}" for name in ("featurize", "gpushare", "lanrui", "matpool"))}
    assert unable == {
        "local",
        "generic-ssh",
        *china,
        *(f"generic-ssh:{name}" for name in ("colab", "dstack", "kaggle")),
    }


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
