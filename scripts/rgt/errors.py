"""The one error class: a sentence for the user and a documented exit code, never a traceback.

Exit codes, the same in every script:
    0 fine · 1 findings · 2 usage or bad input · 3 the environment lacks something · 4 refused (Iron Law)
"""

from __future__ import annotations

import errno
import sys

import click

OK, FINDINGS, BAD_INPUT, ENVIRONMENT, REFUSED = 0, 1, 2, 3, 4

# A full disk or a read-only mount is a fact about the machine, not about what the user typed.
_ENVIRONMENT_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO}


class RgtError(click.ClickException):
    """What happened, where, what was expected, what to do: in one sentence."""

    def __init__(self, message: str, exit_code: int = BAD_INPUT) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]

    def show(self, file: object = None) -> None:
        sys.stdout.flush()  # in a log of both streams the reason stands last
        click.echo(f"error: {self.message}", err=True)


def bad_input(message: str) -> RgtError:
    return RgtError(message, BAD_INPUT)


def lacking(message: str) -> RgtError:
    return RgtError(message, ENVIRONMENT)


def refused(message: str) -> RgtError:
    return RgtError(message, REFUSED)


def from_os_error(error: OSError, doing: str = "") -> RgtError:
    """Turn an OSError into its sentence: 'cannot write runs/x/run.json: No space left on device'."""
    target = doing or (f"access {error.filename}" if error.filename else "do that")
    code = ENVIRONMENT if error.errno in _ENVIRONMENT_ERRNOS else BAD_INPUT
    return RgtError(f"cannot {target}: {error.strerror or error}", code)
