"""The one error class: a sentence for the user and a documented exit code, never a traceback.

Exit codes, the same in every script:
    0 fine · 1 findings · 2 usage or bad input · 3 the environment lacks something · 4 refused ·
    5 an error of ours

Standard library only: the parts that run inside a training import it, where there may be no click.
"""

from __future__ import annotations

import errno
import sys

OK, FINDINGS, BAD_INPUT, ENVIRONMENT, REFUSED, BUG = 0, 1, 2, 3, 4, 5

# A full disk or a read-only mount is a fact about the machine, not about what the user typed.
_FULL = {errno.ENOSPC, errno.EDQUOT}
_ENVIRONMENT_ERRNOS = {*_FULL, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO}


class RgtError(Exception):
    """What happened, where, what was expected, what to do: in one sentence."""

    def __init__(self, message: str, exit_code: int = BAD_INPUT, full: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.full = full  # bytes, inodes or a quota ran out

    def show(self) -> None:
        sys.stdout.flush()  # in a log of both streams the reason stands last
        print(f"error: {self.message}", file=sys.stderr)


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
    return RgtError(f"cannot {target}: {error.strerror or error}", code, error.errno in _FULL)
