"""rgt.units: every spelling of a duration and a size, and one sentence for everything else."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from rgt.errors import BAD_INPUT, RgtError
from rgt.units import Duration, Size, duration, show_duration, show_size, size

HOUR, DAY = 3600.0, 86400.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("0", 0.0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("90s", 90.0),
        ("90 s", 90.0),
        ("90sec", 90.0),
        ("250ms", 0.25),
        ("30m", 1800.0),
        ("30min", 1800.0),
        ("30M", 1800.0),
        ("1h30m", 5400.0),
        ("1H 30M", 5400.0),
        ("  1h 30m  15s ", 5415.0),
        ("1.5h", 5400.0),
        ("2d", 2 * DAY),
        ("1w", 7 * DAY),
        ("1:30", 90.0),
        ("90:00", 5400.0),
        ("1:30:00", 5400.0),
        ("00:00:59.5", 59.5),
        ("100:00:00", 100 * HOUR),
    ],
)
def test_a_duration_as_people_type_it(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-02:03:04", DAY + 2 * HOUR + 184),
        ("1-02:03", DAY + 2 * HOUR + 180),
        ("02:03:04", 2 * HOUR + 184),
        ("03:04", 184),
    ],
)
def test_a_duration_as_slurm_prints_it(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("512", 512),
        ("512b", 512),
        ("512 B", 512),
        ("1k", 1024),
        ("1kB", 1000),
        ("1KiB", 1024),
        ("1ki", 1024),
        ("500M", 500 * 2**20),
        ("16G", 16 * 2**30),
        ("16g", 16 * 2**30),
        ("16GiB", 16 * 2**30),
        ("16 gib", 16 * 2**30),
        ("16GB", 16 * 10**9),
        ("1.5T", 3 * 2**39),
        (".5 KiB", 512),
        ("2P", 2 * 2**50),
        ("2PB", 2 * 10**15),
        ("  7 MB  ", 7 * 10**6),
    ],
)
def test_a_size_as_people_type_it(text: str, count: int) -> None:
    assert size(text) == count


NONSENSE = [
    "",
    " ",
    "abc",
    "-5",
    "-5s",
    "1e400",
    "nan",
    "inf",
    "+",
    ".",
    "5 5",
    "1..5",
    "1,5",
    "²",
    "5x",
    "1\x00",
    "9" * 400,
]


@pytest.mark.parametrize(
    "text", [*NONSENSE, "1h30", "h", "5ſ", "5mın", "５m", "1:60", "1:2:3:4", "1-2-3:4", ":30", "1h-5m", "UNLIMITED"]
)
def test_what_is_not_a_duration_is_said(text: str) -> None:
    with pytest.raises(RgtError) as caught:
        duration(text)
    shown = repr(text if len(text) < 60 else text[:60] + "...")
    assert caught.value.message == f"{shown} is not a duration; write it like 90, 90s, 30m, 1h30m, 2d or 1:30:00"
    assert caught.value.exit_code == BAD_INPUT


@pytest.mark.parametrize("text", [*NONSENSE, "5i", "5iB", "5 GG", "GB", "1\u212a", "１GB", "5m5k"])
def test_what_is_not_a_size_is_said(text: str) -> None:
    with pytest.raises(RgtError) as caught:
        size(text)
    shown = repr(text if len(text) < 60 else text[:60] + "...")
    assert caught.value.message == f"{shown} is not a size; write it like 500M, 16GiB or 16GB"
    assert caught.value.exit_code == BAD_INPUT


@pytest.mark.parametrize("parse", [duration, size])
@given(st.text() | st.text(alphabet="0123456789.:- wdhminsecSMkKgGtTpPbBiı\u212aſ९"))
@example("1" * 310)
@example("9" * 309 + "P")
def test_any_text_is_a_number_or_a_sentence(parse: Callable[[str], float], text: str) -> None:
    try:
        value = parse(text)
    except RgtError as error:
        assert len(error.message) < 200
    else:
        assert 0 <= value < math.inf


@pytest.mark.parametrize("parse", [duration, size])
def test_a_very_long_text_is_refused_at_once(parse: Callable[[str], float]) -> None:
    before = time.process_time()
    with pytest.raises(RgtError) as caught:
        parse("1" * 100_000 + "x")
    assert len(caught.value.message) < 200
    assert time.process_time() - before < 1


@given(st.floats(min_value=0, max_value=1e9))
@example(9.96)
@example(59.6)
@example(3599.7)
@example(86399.9)
def test_a_shown_duration_reads_back_close(seconds: float) -> None:
    text = show_duration(seconds)
    assert len(text) <= 9
    smallest = 0.05 if seconds < 10 else 0.5 if seconds < 3600 else 60 if seconds < DAY else HOUR
    assert duration(text) == pytest.approx(seconds, abs=smallest + 0.5)


@given(st.floats(min_value=0, max_value=1e20))
@example(1023.7)
@example(999.7 * 2**50)
@example(1e6)
def test_a_shown_size_reads_back_close(count: float) -> None:
    text = show_size(count)
    assert len(text) <= 10
    assert size(text) == pytest.approx(count, rel=0.006, abs=0.5)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0s"),
        (0.4, "0.4s"),
        (59, "59s"),
        (59.6, "1m00s"),
        (90, "1m30s"),
        (3599.7, "1h00m"),
        (7500, "2h05m"),
        (273600, "3d04h"),
        (-90, "-1m30s"),
    ],
)
def test_how_a_duration_is_shown(seconds: float, text: str) -> None:
    assert show_duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (999_999, "977 KiB"),
        (14_495_514_624, "13.5 GiB"),
        (80 * 2**30, "80 GiB"),
        (2000 * 2**50, "2000 PiB"),
        (-1536, "-1.5 KiB"),
    ],
)
def test_how_a_size_is_shown(count: float, text: str) -> None:
    assert show_size(count) == text


@click.command()
@click.option("--timeout", type=Duration(), default=90)
@click.option("--min-free", type=Size(), default="10G")
def command(timeout: float, min_free: int) -> None:
    click.echo(f"{timeout} {min_free}")


def test_options_take_units_and_defaults() -> None:
    assert CliRunner().invoke(command, []).output == f"90.0 {10 * 2**30}\n"
    assert CliRunner().invoke(command, ["--timeout", "1h30m", "--min-free", "1GB"]).output == "5400.0 1000000000\n"


@pytest.mark.parametrize(
    ("option", "text", "expected"),
    [
        ("--timeout", "soon", "'soon' is not a duration; write it like 90, 90s, 30m, 1h30m, 2d or 1:30:00"),
        ("--min-free", "lots", "'lots' is not a size; write it like 500M, 16GiB or 16GB"),
    ],
)
def test_the_error_names_the_option(option: str, text: str, expected: str) -> None:
    result = CliRunner().invoke(command, [option, text])
    assert result.exit_code == 2
    assert result.output.endswith(f"Error: Invalid value for '{option}': {expected}\n")


def test_help_names_the_kind_of_value() -> None:
    output = CliRunner().invoke(command, ["--help"]).output
    assert "--timeout DURATION" in output and "--min-free SIZE" in output
