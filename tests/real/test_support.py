from __future__ import annotations

import pytest

from .support import need


def outcome(required: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Both endings are caught here: a skip that gets out of a test would pass for a success."""
    monkeypatch.setenv("REQUIRE_REAL", required)
    try:
        return "found", need("no-such-binary", "some-package")
    except (pytest.skip.Exception, pytest.fail.Exception) as end:
        return type(end).__name__, str(end)


def test_what_is_missing_skips_and_fails_where_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "no-such-binary is not installed (Debian: apt-get install some-package)"
    assert outcome("", monkeypatch) == ("Skipped", reason)
    assert outcome("1", monkeypatch) == ("Failed", f"REQUIRE_REAL=1, but {reason}")
