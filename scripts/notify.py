# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""META · tells people: Slack, Discord, 飞书, 企业微信, ntfy, Telegram, mail, desktop or a command; once for each event

Example:
    rgt notify test                                    # every channel of the config, now
    rgt notify send "epoch 3 done" --key run-7/epoch-3  # a second call with this key sends nothing

The config is ~/.config/rgt/notify.yaml, or the file that RGT_CONFIG names; --help shows one. Nothing prints a secret.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from rgt import cli
from rgt.errors import lacking
from rgt.report import Report

import click

if TYPE_CHECKING:
    from rgt.notice.telling import Outcome

channel_option = click.option("--channel", default="", help="Only this one, by its name.")


@click.group(cls=cli.Group)
def main() -> None:
    """Tell people over the channels of ~/.config/rgt/notify.yaml (RGT_CONFIG names another file), such as:

    \b
        channels:
          - {kind: slack, url: {env: SLACK_WEBHOOK}}      # discord, feishu (secret:), wecom likewise
          - {kind: ntfy, topic: {file: ~/.config/rgt/topic}}
          - {kind: telegram, token: {env: TELEGRAM_TOKEN}, chat: 4711}
          - {kind: smtp, host: mail.example.org, from: a@example.org, to: [b@example.org], password: {env: MAIL}}
          - {kind: sendmail, to: [b@example.org]}
          - {kind: desktop}
          - {kind: command, argv: [tell-me, --loud]}      # the message is on its stdin

    A secret is named (a variable or a file), never written there.

    Example: rgt notify test
    """


@main.command()
@channel_option
@cli.report_options
def test(channel: str, fmt: str | None) -> int:
    """Send a test message over every channel and say what each answered.

    Example: rgt notify test --channel team
    """
    from rgt.notice import telling

    key = f"test/{time.time()}/{os.getpid()}"
    return _report(telling.tell(key, "rgt notify test", "Messages of rgt arrive here.", only=channel), fmt)


@main.command()
@click.argument("title")
@click.option("--text", default="", help="The body; - reads it from stdin.")
@click.option("--key", default="", help="The event: a second message with this key is not sent. [default: none]")
@click.option("--urgent", is_flag=True, help="As loud as the channel can be.")
@channel_option
@cli.report_options
def send(title: str, text: str, key: str, urgent: bool, channel: str, fmt: str | None) -> int:
    """Send TITLE, and a text below it. Control characters are shown, and mentions such as @everyone call nobody.

    Example: rgt notify send "sweep done" --text "12 of 12 cells verified" --key sweep-7
    """
    from rgt.notice import telling

    body = sys.stdin.read(1 << 20) if text == "-" else text
    return _report(telling.tell(key or f"send/{time.time()}/{os.getpid()}", title, body, urgent, channel), fmt)


def _report(outcomes: list[Outcome], fmt: str | None) -> int:
    from rgt.notice import telling

    if not outcomes:
        raise lacking(f"nobody was told: {telling.nobody()}")
    found = Report("notify", data={"channels": [vars(one) for one in outcomes]})
    for one in outcomes:
        if one.state in (telling.FAILED, telling.SENDING):
            found.add("failed", "error", f"{one.channel}: {one.say}", where=one.channel)
        elif fmt is None:
            click.echo(f"{one.state:11} {one.channel}")
    reached = sum(one.state in (telling.SENT, telling.BEFORE) for one in outcomes)
    return found.emit(fmt, f"{reached} of {len(outcomes)} channels have it")


if __name__ == "__main__":
    main()
