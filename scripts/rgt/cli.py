"""The front door of every script: exit codes in every --help, one sentence for every failure.

Example:
    @click.command(cls=cli.Command)
    @cli.report_options
    def main(fmt: str) -> int: ...

A command function returns its exit code (None counts as 0). RGT_DEBUG=1 shows the traceback of a bug.
"""

from __future__ import annotations

import importlib.machinery
import io
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rgt import bundle, errors, units

_MISSING = [name for name in ("click", "yaml", "jsonschema") if not importlib.machinery.PathFinder.find_spec(name)]
if _MISSING and ".pyz" not in __file__:  # a box has click alone, and what runs there needs no more
    _needed = ", ".join({"yaml": "pyyaml"}.get(name, name) for name in _MISSING)
    _tool = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    print(f"error: this Python has no {_needed}; call {bundle.command(_tool)}, which brings its own", file=sys.stderr)
    sys.exit(errors.ENVIRONMENT)

import click  # noqa: E402

EXIT_CODES = """\b
Exit codes: 0 fine, 1 findings, 2 usage or bad input,
3 the environment lacks something, 4 refused (Iron Law),
5 an error of ours."""

_SHOWN = 300  # characters of an unexpected exception; torch's have pages
_JSON = ("json", "one JSON object for machines")
_LINE = "rgt.line"  # in click's meta

F = TypeVar("F", bound=Callable[..., Any])


def report_options(function: F) -> F:
    """--json, --github and --sarif: three other renderings of the same findings (text is the default)."""
    for name, what in (("sarif", "findings as SARIF 2.1.0"), ("github", "findings as GitHub annotations"), _JSON):
        function = click.option(f"--{name}", "fmt", flag_value=name, default=None, help=f"Print {what}.")(function)
    return function


def json_option(function: F) -> F:
    """--json alone, for commands that report state rather than findings."""
    return click.option("--json", "as_json", is_flag=True, help=f"Print {_JSON[1]}.")(function)


def command_line() -> str:
    """The command that is being run, for a record of what made a number."""
    import shlex  # here, because every --help would pay for it

    tool, *words = click.get_current_context().meta[_LINE]
    return " ".join([tool, *map(shlex.quote, words)])


def show(data: Any, as_json: bool, lines: Iterable[str]) -> None:
    """What a command with `json_option` reports: one JSON object for machines, or lines for people."""
    if as_json:
        from rgt.report import print_json  # here, because its import costs what a submit to the gate need not pay

        print_json(data)
        return
    for line in lines:
        click.echo(line)


def evidence_option(function: F) -> F:
    """--evidence: the claims that DELIVER works on."""
    kind, default = click.Path(path_type=Path), Path("EVIDENCE.json")
    return click.option("--evidence", type=kind, default=default, show_default=True, help="The claims.")(function)


class _Shown(io.TextIOWrapper):
    """The one way to the terminal: whatever a box, a log or a file name says, no control character gets there."""

    below: Any

    def write(self, text: str) -> int:
        return super().write(units.show_text(text))

    def close(self) -> None:
        """The stream below stays open: it is not ours."""
        if not self.closed:
            self.detach()

    @classmethod
    def over(cls, stream: Any) -> Any:
        if not isinstance(stream, io.TextIOWrapper) or isinstance(stream, cls):
            return stream
        stream.flush()
        # a file name that is not UTF-8 is shown by its escapes; JSON reads it back
        shown = cls(stream.buffer, stream.encoding, "backslashreplace", line_buffering=stream.line_buffering)
        shown.below = stream  # kept: it would close the buffer with itself
        return shown


class _FrontDoor(click.Command):
    """Mixed into Command and Group: maps every way to end to a documented exit code."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("epilog", EXIT_CODES)
        kwargs.setdefault("context_settings", {"help_option_names": ["-h", "--help"], "max_content_width": 100})
        kwargs["context_settings"].setdefault("color", True)  # else click drops escapes unseen
        super().__init__(*args, **kwargs)

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *_: Any, **extra: Any) -> Any:
        if sys.stdout is None:  # closed with >&-: nobody wants to read it
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        sys.stdout, sys.stderr = _Shown.over(sys.stdout), _Shown.over(sys.stderr)
        words = sys.argv[1:] if args is None else list(args)

        def body() -> Any:
            """click's main without its endings: it takes an EOFError for Ctrl-C, and any broken pipe for stdout's."""
            with self.make_context(prog_name or _script(), list(words), **extra) as context:
                context.meta[_LINE] = [f"rgt {_script().removeprefix('rgt ')}", *words]
                return self.invoke(context)

        code = _run(body)
        problem = _flush()  # a full disk or a closed pipe may show only here; it must not end as 'fine'
        if isinstance(problem, BrokenPipeError):
            code = 128 + signal.SIGPIPE
        elif problem:
            errors.from_os_error(problem, "write to stdout").show()
            code = errors.ENVIRONMENT
        sys.exit(code)


class Command(_FrontDoor):
    """A single command with the exit codes in its --help."""


class Group(_FrontDoor, click.Group):
    """A command with verbs, which get the same front door; `default_verb` is meant when the first word is none."""

    command_class = Command
    group_class = type

    def __init__(self, *args: Any, default_verb: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.default_verb = default_verb

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if self.default_verb and args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = [self.default_verb, *args]
        return super().parse_args(ctx, args)


def _run(body: Callable[[], Any]) -> int:
    try:
        code = body()
    except click.exceptions.Exit as done:
        return done.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 128 + signal.SIGINT
    except (errors.RgtError, click.ClickException) as problem:
        problem.show()
        return problem.exit_code if isinstance(problem, errors.RgtError) else errors.BAD_INPUT
    except OSError as problem:
        if isinstance(problem, BrokenPipeError):
            poll = select.poll()
            poll.register(sys.stdout, 0)  # errors are reported even when nothing is asked for
            if poll.poll(0):  # the reader left: `| head` is no error; an ssh that died is one
                _silence_stdout()
                return 128 + signal.SIGPIPE
        return _fail(errors.from_os_error(problem, "write to stdout" if _flush() else ""))
    except Exception as problem:
        seen = " ".join(f"{type(problem).__name__}: {problem}".split())
        seen = seen if len(seen) <= _SHOWN else seen[:_SHOWN] + "..."
        hint = "(RGT_DEBUG=1 shows where; please report it)"
        return _fail(errors.RgtError(f"internal error in {_script()}: {seen} {hint}", errors.BUG))
    return code if isinstance(code, int) else errors.OK


def _fail(error: errors.RgtError) -> int:
    if os.environ.get("RGT_DEBUG"):
        raise
    error.show()
    return error.exit_code


def _flush() -> OSError | None:
    try:
        sys.stdout.flush()
    except OSError as problem:
        _silence_stdout()
        return problem
    return None


def _silence_stdout() -> None:
    """Python flushes stdout once more at exit and would print a traceback there."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _script() -> str:
    """How the user calls it: `rgt watch` for scripts/watch.py."""
    name, ending = os.path.splitext(os.path.basename(sys.argv[0]))
    return f"rgt {name}" if ending == ".py" else name or "the script"


class _Quantity(click.ParamType):  # type: ignore[type-arg]  # not generic in older click
    parse: Callable[[str], float]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return self.parse(str(value))
        except errors.RgtError as error:
            self.fail(error.message, param, ctx)


class Duration(_Quantity):
    """An option that takes a duration and gives seconds."""

    name, parse = "duration", staticmethod(units.duration)


class Size(_Quantity):
    """An option that takes a size and gives bytes."""

    name, parse = "size", staticmethod(units.size)
