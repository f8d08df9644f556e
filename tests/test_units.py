"""rgt.units: every spelling of a duration and a size, and one sentence for everything else."""

from __future__ import annotations

import math
from collections.abc import Callable

from rgt.cli import Duration, Size
from rgt.errors import BAD_INPUT, RgtError
from rgt.units import duration, show_duration, show_size, size

import click
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

HOUR, DAY = 3600.0, 86400.0


# value: spellings, divided by |
TYPED = {0.0: "0", 0.25: "250ms", 0.5: ".5", 1.5: "1.5", 59.5: "00:00:59.5", 90.0: "90|90s|90 s|90sec|1:30"}
TYPED |= {1800.0: "30m|30min|30M", 5400.0: "1h30m|1H 30M|1.5h|90:00|1:30:00", 5415.0: "  1h 30m  15s "}
TYPED |= {2 * DAY: "2d", 7 * DAY: "1w", 100 * HOUR: "100:00:00"}
SLURM = {DAY + 2 * HOUR + 184: "1-02:03:04", DAY + 2 * HOUR + 180: "1-02:03", 2 * HOUR + 184: "02:03:04"}
SIZES = {0: "0", 512: "512|512b|512 B|.5 KiB", 1000: "1kB", 1024: "1k|1KiB|1ki", 7 * 10**6: "  7 MB  "}
SIZES |= {500 * 2**20: "500M", 16 * 2**30: "16G|16g|16GiB|16 gib", 16 * 10**9: "16GB", 3 * 2**39: "1.5T"}
SIZES |= {2 * 2**50: "2P", 2 * 10**15: "2PB"}


def test_a_duration_and_a_size_as_people_and_slurm_write_them() -> None:
    for seconds, texts in (TYPED | SLURM | {184.0: "03:04"}).items():
        assert [duration(text) for text in texts.split("|")] == pytest.approx([seconds] * len(texts.split("|")))
    for count, texts in SIZES.items():
        assert {size(text) for text in texts.split("|")} == {count}


NONSENSE = "|abc|-5|-5s|1e400|nan|inf|+|.|5 5|1..5|1,5|²|5x|1\x00| |" + "9" * 400
OTHER: dict[Callable[[str], float], str] = {
    duration: "1h30|h|5ſ|5mın|５m|1:60|1:2:3:4|1-2-3:4|:30|1h-5m|UNLIMITED",
    size: "5i|5iB|5 GG|GB|1\u212a|１GB|5m5k",
}
LIKE: dict[Callable[[str], float], str] = {
    duration: "a duration; write it like 90, 90s, 30m, 1h30m, 2d or 1:30:00",
    size: "a size; write it like 500M, 16GiB or 16GB",
}


@pytest.mark.parametrize("parse", [duration, size])
def test_what_is_not_one_is_said(parse: Callable[[str], float]) -> None:
    for text in f"{NONSENSE}|{OTHER[parse]}".split("|"):
        with pytest.raises(RgtError) as caught:
            parse(text)
        shown = repr(text if len(text) < 60 else text[:60] + "...")
        assert caught.value.message == f"{shown} is not {LIKE[parse]}"
        assert caught.value.exit_code == BAD_INPUT


@pytest.mark.parametrize("parse", [duration, size])
@given(st.text() | st.text(alphabet="0123456789.:- wdhminsecSMkKgGtTpPbBiı\u212aſ९"))
@example("9" * 309 + "P")
def test_any_text_is_a_number_or_a_sentence(parse: Callable[[str], float], text: str) -> None:
    try:
        value = parse(text)
    except RgtError as error:
        assert len(error.message) < 800  # 60 characters, each up to ten as repr shows them
    else:
        assert 0 <= value < math.inf


@given(st.floats(min_value=0, max_value=1e9))
@example(9.96)
@example(86399.9)
def test_a_shown_duration_reads_back_close(seconds: float) -> None:
    text = show_duration(seconds)
    assert len(text) <= 9
    smallest = 0.05 if seconds < 10 else 0.5 if seconds < 3600 else 60 if seconds < DAY else HOUR
    assert duration(text) == pytest.approx(seconds, abs=smallest + 0.5)


@given(st.floats(min_value=0, max_value=1e20))
@example(999.7 * 2**50)
def test_a_shown_size_reads_back_close(count: float) -> None:
    text = show_size(count)
    assert len(text) <= 10
    assert size(text) == pytest.approx(count, rel=0.006, abs=0.5)


def test_how_they_are_shown() -> None:
    shown = {0: "0.0s", 0.4: "0.4s", 59: "59s", 59.6: "1m00s", 90: "1m30s", 3599.7: "1h00m", 7500: "2h05m"}
    shown |= {273600: "3d04h", -90: "-1m30s"}
    assert {seconds: show_duration(seconds) for seconds in shown} == shown
    shown = {0: "0 B", 512: "512 B", 1023: "1023 B", 1536: "1.5 KiB", 999_999: "977 KiB", 14_495_514_624: "13.5 GiB"}
    shown |= {80 * 2**30: "80 GiB", 2000 * 2**50: "2000 PiB", -1536: "-1.5 KiB"}
    assert {count: show_size(count) for count in shown} == shown


@click.command()
@click.option("--timeout", type=Duration(), default=90)
@click.option("--min-free", type=Size(), default="10G")
def command(timeout: float, min_free: int) -> None:
    click.echo(f"{timeout} {min_free}")


def test_options_take_units_and_defaults_and_their_errors_name_them() -> None:
    def output(*words: str) -> str:
        return CliRunner().invoke(command, words).output

    assert output() == f"90.0 {10 * 2**30}\n"
    assert output("--timeout", "1h30m", "--min-free", "1GB") == "5400.0 1000000000\n"
    assert output("--timeout", "soon").endswith(
        f"Error: Invalid value for '--timeout': 'soon' is not {LIKE[duration]}\n"
    )
    assert CliRunner().invoke(command, ["--timeout", "soon"]).exit_code == 2
