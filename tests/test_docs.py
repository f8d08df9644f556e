"""No document can drift from the code: the rules hold on this repository, and each rule is shown to catch its break."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from doccheck import commands, generate, rules
from doccheck.documents import parse
from rgt import schema

import click
import pytest

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = rules.Repository(ROOT)
SECTIONS = (
    "1 Launch | 2 Storage and survival | 3 Network and SSH | 4 Spot, interruption, resume | 5 Teardown and billing"
    " | 6 Daemon | 7 Gotchas | 8 Overrides"
).split(" | ")

Rule = Callable[[rules.Repository], Iterator[str]]


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_rule_holds(rule: Rule) -> None:
    assert list(rule(REPOSITORY)) == []


def problems(rule: Rule, text: str, name: str = "references/x.md", skill: str = "[x](references/x.md)") -> list[str]:
    """What `rule` says about this repository when its documents are replaced by these two."""
    repository = rules.Repository(ROOT)
    repository.documents = [parse(Path("SKILL.md"), skill), parse(Path(name), text)]
    return list(rule(repository))


BREAKS = [
    (rules.links, "see [a](gone.md)", "references/x.md:1: the link gone.md leads nowhere"),
    (rules.links, "see [a](../SKILL.md#nowhere)", "references/x.md:1: SKILL.md has no heading for #nowhere"),
    (rules.links, "see [a](../../etc/passwd)", "references/x.md:1: the link ../../etc/passwd leads nowhere"),
    (rules.paths, "run `scripts/gone.py`", "references/x.md:1: the path scripts/gone.py does not exist"),
    (rules.paths, "see `references/<topic>/gone-*.md`", "the path references/<topic>/gone-*.md does not exist"),
    (rules.paths, "one\ntwo `gone_script.sh`", "references/x.md:2: no file of the repository is called gone_script.sh"),
    (rules.command_lines, "```bash\npython scripts/check_staleness.py --gone\n```", "No such option '--gone'"),
    (rules.command_lines, "```bash\npython scripts/check_staleness.py --max-age abc\n```", "'abc' is not a duration"),
    (rules.command_lines, "```console\n$ scripts/check_staleness.py --max-age\n```", "requires an argument"),
    (rules.command_lines, "```bash\ncd x && python \\\n  scripts/check_staleness.py -z\n```", "No such option '-z'"),
    (rules.command_lines, "do `python scripts/gone.py --x`", "scripts/gone.py does not exist"),
    (rules.command_lines, "do `rgt check_staleness --gone`", "No such option '--gone'"),
    (rules.command_lines, "```bash\n<skill>/bin/rgt gone --x\n```", "scripts/gone.py does not exist"),
    (rules.command_lines, "```bash\nscripts/setup-china-mirrors.sh --gone\n```", "no option --gone"),
    (rules.make_targets, "`make gone`", "there is no `make gone`"),
    (rules.budgets, "word " * 3000, "3750 tokens, the budget is 3500"),
    (rules.catalogue, "### U1 · a\n### U1 · b\n", "U1 is taken by references/x.md:1"),
    (rules.catalogue, "### U1 · a\n**Symptom** x\n", "U1 has no **Cause**"),
    (rules.catalogue, "### U1 · a\nsignature: `abcd`\nnear: `(`\n", "is not a regular expression"),
    (rules.catalogue, "### U1 · a\nsignature: `(`\n", "is not a regular expression"),
    (rules.generated, "<!-- generated:scripts -->\nold\n<!-- /generated:scripts -->", "run `make docs`"),
    (rules.documented, "nothing", "scripts/check_staleness.py: no document shows how it is called"),
]


@pytest.mark.parametrize(("rule", "text", "expected"), BREAKS)
def test_break_is_named(rule: Rule, text: str, expected: str) -> None:
    found = problems(rule, text)
    assert any(expected in problem for problem in found), found


GOOD = """```bash
python scripts/check_staleness.py <path> --max-age <age>
uv run scripts/check_staleness.py profiles --json | jq . > out.json
X=1 {baseDir}/scripts/check_staleness.py --max-age 90d && echo done
python scripts/check_staleness.py ... # all of them
python scripts/check_staleness.py --help
```"""


def test_good_command_lines_pass_and_a_page_without_a_link_does_not() -> None:
    assert problems(rules.command_lines, GOOD) == []
    unreachable = ["references/x.md: not within 2 links of SKILL.md; link it or delete it"]
    assert problems(rules.reachable, "text", skill="no link") == unreachable
    assert parse(Path("x.md"), "训练abcd").tokens == 3  # a budget counts Chinese characters whole


SHORT = "### PY1 · a\nsignature: `killed by`\n\n**Cause** x\n**Fix** y\n"


def test_a_short_entry_needs_little_and_no_route_but_a_source() -> None:
    where = "references/signatures/x.md"
    assert problems(rules.catalogue, f"{SHORT}\n## Sources\n- z\n", name=where) == []
    assert problems(rules.reachable, SHORT, name=where) == []
    assert problems(rules.budgets, SHORT * 999, name=where) == []
    assert "no **Source**" in problems(rules.catalogue, SHORT, name=where)[0]
    assert "no signature: and no exit:" in problems(rules.catalogue, SHORT.replace("signature", "s"), name=where)[1]
    wrong = f"{SHORT}**Symptom** `it ended`\n**Source** z\n"
    assert "no signature matches" in problems(rules.catalogue, wrong, name=where)[0]


@click.group()
def group() -> None:
    """A command with verbs, like most of ours."""


@group.command()
@click.argument("where", type=click.Path(exists=True))
@click.option("--on", required=True, type=click.Choice(["local", "ssh"]))
def verb(where: str, on: str) -> None:
    """Never called here."""


def test_verbs_are_parsed_like_click_does() -> None:
    expected = {
        "verb gone.txt --on local": [],
        "verb gone.txt": ["Missing option '--on'."],
        "verb --on ssh": ["Missing argument 'WHERE'."],
        "verb x --on moon": ["Invalid value for '--on': 'moon' is not one of 'local', 'ssh'."],
        "gone": ["No such command 'gone'."],
    }
    assert {words: commands.parse_problems(group, "tool", words.split()) for words in expected} == expected


def test_heavy_import_at_help_is_named(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "slow.py").write_text("import numpy\n")
    found = list(rules.light_help(rules.Repository(tmp_path)))
    assert found == ["scripts/slow.py --help imports numpy; import it inside the function that needs it"]


def test_help_without_exit_codes_or_option_text_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "script_stems", lambda root: ["tool"])
    monkeypatch.setattr(commands, "load_command", lambda root, stem: group)
    found = list(rules.help_texts(REPOSITORY))
    assert "tool.py verb --help does not list the exit codes" in found
    assert "tool.py verb: --on has no help text" in found


@pytest.mark.skipif(sys.version_info < (3, 11), reason="skills-ref needs Python 3.11")
def test_agentskills_accepts_the_skill(tmp_path: Path) -> None:
    skill = tmp_path / "remote-gpu-trainer"
    skill.mkdir()
    shutil.copy(ROOT / "SKILL.md", skill)
    validator = Path(sys.executable).with_name("agentskills")
    done = subprocess.run([validator, "validate", skill], capture_output=True, text=True)
    assert (done.returncode, "Valid skill" in done.stdout + done.stderr) == (0, True), done.stdout + done.stderr


def test_skill_metadata_is_what_openclaw_reads() -> None:
    front = REPOSITORY.by_path[Path("SKILL.md")].front_matter()
    assert len(front["description"]) <= 1024
    assert front["metadata"]["openclaw"]["requires"]["bins"] == ["python3"]


@pytest.mark.parametrize("path", generate.profile_paths(ROOT), ids=lambda path: path.stem)
def test_profile_has_its_facts_and_its_eight_sections(path: Path) -> None:
    document = parse(path, path.read_text(encoding="utf-8"))
    assert schema.problems(document.front_matter(), "profile") == []
    assert document.front_matter()["name"] == path.stem
    assert re.findall(r"^## (.+)$", document.text, re.M) == SECTIONS
