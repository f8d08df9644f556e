"""A line as its program printed it, without the prefixes of launchers, containers and loggers, boxes and colours, and
without what a web page, a chat or an issue made of it: emphasis, quotation, entities.

Example:
    bare_line(b"[rank3]: 2026-11-16 08:51:02,120 RuntimeError: boom")  Line(text="RuntimeError: boom", rank=3, time=...)
    bare_line(b"2026-11-16 08:51:02.1 | ERROR | train:main:12 - boom")  Line(text="boom", level="E", time=...)

A prefix is taken off only where it is sure: what looks like one in a metric's line stays.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from datetime import datetime, timezone

from rgt.log.line import LONGEST, plain

_PREFIXES = 6  # kubectl's, srun's, torchrun's, ray's, a clock and a logger's may stand in one line
_LEVELS = r"TRACE|DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|FATAL|SUCCESS"
_RANK = re.compile(
    r"\s*\[(?:rank|default|trainer|Rank ?|node\d+:rank)(\d{1,5})\]:? ?"  # torchrun, and after init_process_group
    r"|(\d{1,5}): (?! |\d+\.\d+, )"  # srun --label, and not darknet's step
    r"|\s*\[\d{1,5},(\d{1,5})\]<std(?:out|err)>: ?"  # mpirun --tag-output
    r"|[\w.-]{1,60}[-_]\d{1,4} +\| "  # docker compose logs
    r"|(?:(?!epoch|step|iter|top|block|layer)(?:[a-z][a-z0-9]*-)+[a-z0-9]*\d|(?:node|worker|host)-?\d{1,5}"
    r"|\d{1,3}(?:\.\d{1,3}){3}): (?!\s*[-+]?[\d.]+\b)"  # pdsh, DeepSpeed's launcher on several nodes: a host
    r"|\[pod/[\w./-]{1,200}\] "  # kubectl logs --prefix
    r"|std(?:out|err) [FP] "  # a node's own files of Kubernetes, after their clock
    r"|\([\w-]+,?(?:\([^)]{0,40}\))? (?:rank=(\d{1,5}), ?)?(?:pid|ip)=[^)]{1,60}\) ?"  # ray
    r"|\((?:pid|ip)=[^)]{1,60}\) ?"
    r"|[\w.-]{0,60}:\d+:\d+ \[-?\d+\] (?:[\w./-]{1,80}:\d+ )?(?=(?:NCCL )?(?:WARN|INFO) )"  # NCCL: host:pid:tid [gpu]
)
_GLUED = re.compile(r"\[rank(\d{1,5})\]: ")  # two ranks wrote at once: "step 3 loss 2.7[rank1]: Traceback"
_CLOCK = re.compile(
    r"\s*[\[(]?(?:\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,:]\d+)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?)[\])]?"
    r"(?:[:,]? |\]|$| ?(?=[\[|-]))"
    r"|\d\d/\d\d/\d{2,4} \d\d:\d\d:\d\d (?=- )"
    r"|\s*\[\d\d/\d\d/\d\d \d\d:\d\d:\d\d\] ?|\[\d\d:\d\d:\d\d\] "  # rich
    r"|[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d [\w.-]{1,60} [\w./-]{1,40}(?:\[\d+\])?: "  # syslog, journalctl
    r"|\[ *\d+\.\d{6}\] "  # dmesg
    r"|\[[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \d{4}\] "  # dmesg -T
)
_LOGGER = re.compile(
    rf"\s*\|? ?\[?(?P<a>{_LEVELS})\]? *\| +[\w.<>:\[\]/ -]{{1,120}}? [-|] "  # loguru's | module:12 - text; fairseq
    rf"|\s*-? ?(?:\[?[\w./<> -]{{1,60}}?\]? ?- )?\[?(?P<b>{_LEVELS})\]? ?- "  # logging: name - ERROR - text
    rf"|\s*(?:\[[\w./-]{{1,80}}(?::\d+)?\] ?){{0,2}}\[(?P<c>{_LEVELS})\] ?(?:\[[\w.:,/ -]{{1,80}}\] ?){{0,3}}(?:- |: )?"
    rf"|\s*(?P<d>{_LEVELS}):[\w.]{{1,60}}:"  # basicConfig: ERROR:root:text
    r"|\[?(?P<f>[IWEF])\d{4} \d\d:\d\d:\d\d(?:\.\d+)? +\d* ?(?:\S{1,80}:\d+)?\] ?"  # glog, absl, kubelet
    r"|\[?(?P<g>[IWEF])\d{3,4} \d\d:\d\d:\d\d\.\d+ [\w./-]{1,80}:\d+\] "  # c10's
    r"|\[(?P<h>[WEF]) [\w./-]{1,80}:\d+\] "  # c10's of old
    r"|(?P<i>[IWEF]) [\w./-]{1,120}\.(?:cc|cpp|h|cu):\d+\] "  # TensorFlow, after its clock
    rf"|\[(?P<j>{_LEVELS})\|[\w.]{{1,60}}:\d+\] \S{{8,12}} \S{{8,14}} >> "  # transformers
    r"|(?P<l>[IWEF]) \d\d-\d\d \d\d:\d\d:\d\d [\w.]{1,60}:\d+\] "  # SkyPilot
    rf"|(?P<k>{_LEVELS}) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w.]{{1,60}}:\d+\] "  # vllm
    rf"|\s*(?P<e>{_LEVELS})(?::| {{1,4}}-?) ?(?=\S)"  # and whatever begins with the word
)
_LEVEL = {
    "T": "I",
    "D": "I",
    "N": "I",
    "S": "I",
    "C": "E",
    "F": "E",
}  # by first letter; the others stand for themselves
_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_STAMP = re.compile(
    r"(?P<y>\d{4})[-/](?P<m>\d\d)[-/](?P<d>\d\d)[T ,](?P<t>\d\d:\d\d:\d\d)(?:[.,](?P<f>\d{1,9}))?"
    r"|\b[IWEF](?P<m2>\d{1,2})(?P<d2>[0-3]\d) (?P<t2>\d\d:\d\d:\d\d)(?:\.(?P<f2>\d{1,9}))?"  # glog
    rf"|\b(?P<m3>{'|'.join(_MONTHS)}) +(?P<d3>\d{{1,2}}) (?P<t3>\d\d:\d\d:\d\d)(?: (?P<y3>\d{{4}})\b)?"  # dmesg -T
    r"|(?:\[|^)(?P<m4>\d\d)[/-](?P<d4>\d\d)(?:/\d\d)? (?P<t4>\d\d:\d\d:\d\d)"  # detectron2
    r"|^(?P<m5>\d\d)/(?P<d5>\d\d)/(?P<y5>\d{4}) (?P<t5>\d\d:\d\d:\d\d)"  # transformers' examples
)
_CLOCK_WITHIN = 80  # characters from the left
_SIDES = "│┃║"
_BOX = re.compile(rf"[{_SIDES}] ?(.*?)\s*[{_SIDES}]?\s*$")
_RULE = re.compile(r"\s*[╭╰┌└╔╚┏┗╞├][─━═ ]*(.*?)[─━═ ]*[╮╯┐┘╗╝┓┛╡┤]?\s*$")
# What a post makes of a line: `> ` in front of it, **stars** or `ticks` around it, entities, colours without ESC
_DECORATED = re.compile(r"^\s*>|\*\*|`|&(?:[lg]t|amp|quot|nbsp|#)|<[/bcefps]|\[\d{1,3}(?:;\d+)*m|[\xa0\u2018-\u201d]")
_QUOTE = re.compile(r"\s*>(?: >)* |\s*>\s*$")  # and not the >>> of a shell
_EMPHASIS = re.compile(r"(?<![*\w])\*\*(?=[^\s*])(.+?)(?<=[^\s*])\*\*(?![*\w])")
_TAG = re.compile(r"</?(?:b|br|code|em|font|p|pre|span|strong)(?: [^<>]{0,80})?/?>")
_ENTITY = re.compile(r"&(?:[lg]t|amp|quot|nbsp|#\d{1,4}|#x[0-9a-fA-F]{1,4});")
_COLOUR = re.compile(r"(?:\\x1b|\\033|\\u001b|\u241b)?\[\d{1,3}(?:;\d{1,3}){0,5}m(?!\])")
_TYPESET = str.maketrans("\xa0\u2018\u2019\u201c\u201d", " ''\"\"")
_RICH_PLACE = re.compile(r"\s{2,}[\w./-]{1,60}\.py:\d+\s*$")  # rich writes the caller at the right edge


@dataclass(frozen=True)
class Line:
    text: str  # the message alone
    whole: str = ""  # with its logger's own words, which a signature may name
    rank: int | None = None
    time: float | None = None  # seconds; in this year when the line names none
    level: str = ""  # of its logger: I (and below), W, E; empty when it names none
    boxed: bool = False
    width: int = 0  # characters before anything was taken off: a full line may have been wrapped


def bare_line(data: bytes) -> Line:
    raw = plain(data[: LONGEST * 4].decode("utf-8", "replace")).rstrip()
    text, rank, level, whole = undecorated(raw), None, "", ""
    for _ in range(_PREFIXES):
        match = _RANK.match(text) or _CLOCK.match(text) or (None if level else _LOGGER.match(text))
        if not match or not match.end():
            break
        if match.re is _RANK:
            rank = next((int(group) for group in match.groups() if group), rank)
        elif match.re is _LOGGER:
            whole = whole or text
            word = next((group for group in match.groups() if group), "")
            level = _LEVEL.get(word[:1], word[:1])
        text = text[match.end() :]
    if rank is None and (glued := _GLUED.search(text[:LONGEST])):
        rank, text = int(glued[1]), text[glued.end() :]
    boxed = text.lstrip()[:1] in _SIDES if text else False
    if boxed and (inner := _BOX.match(text.lstrip())):
        text = inner[1]
    elif text and (rule := _RULE.match(text)):
        boxed, text = True, rule[1]
    text = _RICH_PLACE.sub("", text[:LONGEST]).rstrip()
    return Line(text, whole[:LONGEST] or text, rank, clock(raw[:_CLOCK_WITHIN]), level, boxed, len(raw))


def undecorated(text: str) -> str:
    """Without what Markdown, HTML and typesetting put around a line that somebody copied."""
    if not _DECORATED.search(text):
        return text
    text = _EMPHASIS.sub(r"\1", _TAG.sub("", _COLOUR.sub("", text)).translate(_TYPESET))
    text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
    text = text[quote.end() :] if (quote := _QUOTE.match(text)) else text
    bare = text.strip()
    if bare.startswith("```") or (bare[:1] == bare[-1:] == "`" and bare.count("`") == 2):
        text = bare.strip("`")
    return text.rstrip()


def clock(text: str) -> float | None:
    """The line's own clock in seconds; zones are left out, for the ranks of one run share theirs."""
    match = _STAMP.search(text)
    if not match:
        return None
    part = {name[0]: value for name, value in match.groupdict().items() if value}
    year = part.get("y") or datetime.now(timezone.utc).year
    month, day, hours = (part[name] for name in "mdt")
    month = _MONTHS.index(month) + 1 if month in _MONTHS else month
    hour, minute, second = hours.split(":")
    try:
        moment = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), tzinfo=timezone.utc)
    except ValueError:
        return None
    return moment.timestamp() + float("0." + part.get("f", "0"))


def rank_of_file(path: str) -> int | None:
    """torchrun's log dirs end in /<rank>/stderr.log, and people write train_rank3.log."""
    match = re.search(r"(?:rank|proc|worker|gpu)[_.-]?(\d{1,5})(?=\D*$)", path) or re.search(
        r"/attempt_\d+/(\d{1,5})/[^/]+$|[/_](\d{1,3})\.(?:err|out|log)$", path
    )
    return next((int(group) for group in match.groups() if group), None) if match else None
