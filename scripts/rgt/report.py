"""One shape for every finding, in every script, rendered as text, JSON, GitHub annotations or SARIF.

Example:
    report = Report("verify_local")
    report.add("nan", "error", "3 of 4096 values are NaN", path="step_100.pt", where="lm_head.weight")
    return report.emit(fmt)          # prints, and gives the exit code: 1 when there is an error or a warning

A code is a short, stable word. All of them are in CODES, so that two scripts never use one word for two things.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import quote

from rgt import VERSION
from rgt.errors import FINDINGS, OK

_MEANINGS = """
accumulated       gradients of earlier steps are applied again
blank             a figure shows nothing, or no data
bomb              a packed part would grow beyond what it claims or what is sane
bounds            an offset or size points outside of the file, or beyond what is read
budget            the arms of a comparison got different steps, tokens or tuning trials
bug-suspect       a number that more often comes from a bug than from a method
cadence           checkpoints are saved too rarely, or never
chance            a metric is exactly at chance level
changed           a file was written to while it was read
clipped           something of a figure is cut off
clock             a clock of this machine, or of a file server, is wrong
coincidence       a match of two splits that chance or boilerplate explains
collapse          a model gives one answer, one class or one direction for everything
colour            colours of a figure that not everybody can tell apart
confound          more than the intended variable differs between the arms of a comparison
constant          a tensor, or a metric over all seeds, holds one value throughout
count             fewer artifacts were found than expected
crash             a log ends in an error
crc               bytes differ from the checksum stored with them
crlf              a script has Windows line ends
cuda              driver, CUDA build of the framework and card do not fit together
curve             a training curve collapsed, never moved or was still improving at its end
dead-units        units of a network never fire, or sit at the end of their range
denormal          too many values of a tensor are subnormal
desync            ranks of a distributed job went different ways
digest            a file's sha256 is not the recorded one
direction         which way a metric is better contradicts its meaning, or itself
disclose          a number has something that its reader must be told
diverged          the loss rises and does not come back
drawn             a figure does not show its source data
drift             a reported number is not the one in the record it came from
dtype             a tensor's dtype is not the expected one
duplicate         a tensor, key, shard, zip member, run or item of a split is there twice
early-stopping    early stopping cannot fire, or fires at another time than meant
ecc               a GPU counted uncorrectable memory errors
effect            a difference is larger than the noise between runs
ema               an EMA of the weights is declared or expected and not there
empty             a file, folder or list holds nothing
error-page        a server's answer was saved in place of the file
eval-set          numbers that are compared come from different eval sets
extra             something is there that no list names
failed            a queued job failed or was lost
font              a figure's letters are not in its file, or in a form that is refused
future            a date stamp lies in the future
gap               bytes between tensors belong to none of them
gpu               a GPU or its driver does not answer as it should
gpu-hot           a GPU is hotter than it should be
gpu-idle          a GPU does nothing while its run is not finished
gradient          gradients vanish or explode on their way through the model
group-leak        the same patient, speaker or other group is in two splits
growth            memory is kept from one step to the next
hang              a collective operation timed out
hardware          the arms of a comparison ran on different devices
held              GPU memory is in use and no process that is visible holds it
hole              a run of zeros where a copy or a disk lost pages
host-memory       the memory of the host or container is about to run out
hostile           a pickle names something that can run any code
identical         two arms share a value to the last digit
ignored-input     an output does not depend on an input
image             images have another scale, layout or channel order than the model expects
inf               a tensor or number is infinite
interpreter       the Python a job would use is missing, broken or not the one meant
killed            a process was ended from outside
known             a log shows a failure that the catalogue knows
label-control     a model trained on shuffled labels still scores above chance
leak              an item of one split is in another split
leftover          processes outlived the command that started them
lfs-pointer       a git-LFS pointer is in place of the file
limit             a limit of the container or the system is lower than the job needs
loss-input        a loss function gets scores of another kind than it expects
lost-log          what a process prints goes where nobody can read it
lr                the learning rate that is applied is not the one that was meant, or no schedule does that
malformed         a stamp or file has the right place but not the right form
missed            a phase of a training ended without meeting its criterion
missing           a file or directory that is referred to is not there, or not usable
mixed             one arm of a comparison holds runs of several settings
mode              train or eval mode is not the one that fits the phase
moved             an item is in another split than when the splits were pinned
moving            something that is meant to stay changes
nan               a value that must be a number is NaN or infinite
near-duplicate    an item of one split is almost the same as one of another split
no-crc            a torch file was saved without checksums
no-fit            a training cannot learn one batch
no-space          bytes or inodes are used up, or will not suffice
noise             a difference is no larger than the noise between runs
nondeterminism    two runs from one seed differ
not-a-checkpoint  a file is of another kind than its name says
not-updating      a parameter that should learn stays as it is
object-array      a numpy array holds Python objects, which only a pickle can load
oom               memory of the GPU or the host ran out
optimizer         optimizer state does not belong to the model
order             samples come in an order that repeats, is sorted or is not resumed
overlap           two tensors or zip members share bytes
padding           padded positions count in a loss
partial           the remains of a copy or save that was not finished
path-name         a name inside a file leads out of its folder
peak              a reported number is the best of a curve
plateau           a curve no longer improves
port              a port that the job needs is in use
precision         a word for the numeric precision that no trainer knows
proxy             a proxy is set for the training process
ragged            samples of different shape cannot be stacked
range             a weight or a metric has a value that it cannot or may not have
refused-global    a pickle names something that is not known to be harmless
removed           a cell was run that its sweep no longer names
renamed           tensor names differ from the expected ones by a prefix
restarts          a run starts again and again without getting further
resume            a resumed run is not the run that was interrupted
secret            a file is named like a credential
seeds             seeds repeat, or differ in number or kind between arms
selection         a checkpoint was chosen on the test set, or by a different rule per arm
shape             a tensor's shape, or the number of parameters, is not the expected one
single-run        one run per arm: the noise between seeds is unknown
size              a file's length is not the recorded one
slow              a run became slower than it was
spike             a curve jumped
split             numbers that are compared come from different splits
stale             a dated fact is older than allowed
stale-index       an index does not describe the files beside it
stale-proof       an earlier proof no longer holds and was put aside
stale-source      a figure's source data are not what its runs say now
stalled           a process lives but shows no progress
starved           a training waits for its data
step              two records of the training step disagree
superseded        a result was made from a description that was changed since
symmetry          units of a layer are copies of each other
target            targets do not fit the loss: range, dtype or shift
throttled         a GPU is slowed down by heat or power
time-leak         training data is not older than the data it is judged on
time-limit        a job is expected to run longer than it may
timeout           a command did not end in its time
too-good          a result is better than is plausible
touched           the test set was evaluated many times before the reported number
trailing          bytes follow the end of the contents
truncated         a file is shorter than its own content says, or damaged
unapplied         the variable that was meant to differ does not
unapproved        the user has not approved a destructive act in words
undecided         the runs do not suffice, or do not allow, to call a difference effect or noise
undeclared        a figure shows something that is neither its data nor declared as something else
unfinished        a run, or a cell of a sweep, is not submitted, waiting, running or out of sight
unjudged          something was not looked at, and why
unknown           a log shows a failure that no entry of the catalogue explains
unknown-claim     a document's anchor names a claim that EVIDENCE.json does not have
unloadable        a checkpoint is whole but does not load
unpulled          an artifact is on the machine that made it, not here
unreadable        a file cannot be opened or read
unrecorded        something that a conclusion depends on was not recorded
unregistered      something is trained that is not part of the model
unresolved        a relative path or a variable does not lead where the job runs
unsaved           work exists only on this disk: uncommitted or unpushed
unsealed          a claim rests on a run that was not sealed
unseen            something is in use by a process that is not visible here
untrusted         a file can only be loaded by running code from it
unverified        a job ended, and no artifact of it verifies
update-ratio      updates are too large or too small for the weights
volatile          what is written there is lost when the machine or container stops
watcher           the watcher of a run is dead, so nobody looks after it
worker-rng        data workers or epochs draw the same random numbers
world-size        the number of processes is not the number of GPUs
wrong-box         an id names another machine than the one that was looked at
wrong-order       a figure shows the right numbers at the wrong names
zero              a tensor is all zero
"""
CODES = dict(line.split(maxsplit=1) for line in _MEANINGS.splitlines() if line)

SEVERITIES = ("error", "warn", "info")
_SHOWN = 50  # findings printed as text; the rest is counted, and --json has them all
_WIDTH = 500  # characters of one line of text


@dataclass
class Finding:
    code: str
    severity: str
    message: str
    path: str = ""
    line: int | None = None
    where: str | None = None
    evidence: str | None = None
    fix: str | None = None
    sure: float | None = None  # 0 to 1, where a finding is a judgement and not a fact

    def __post_init__(self) -> None:
        if self.code not in CODES or self.severity not in SEVERITIES:
            raise ValueError(f"unknown finding code or severity: {self.code}, {self.severity}")

    def as_dict(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass
class Report:
    """Findings of one tool plus whatever else its --json carries (`data`, JSON-ready)."""

    tool: str
    findings: list[Finding] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def add(self, code: str, severity: str, message: str, **place: Any) -> None:
        self.findings.append(Finding(code, severity, message, **place))

    @property
    def ok(self) -> bool:
        """Information is not a finding to act on: only errors and warnings make a report not ok."""
        return all(finding.severity == "info" for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        return {"tool": self.tool, "ok": self.ok, "findings": [f.as_dict() for f in self.findings], **self.data}

    def emit(self, fmt: str | None = None, summary: str = "") -> int:
        """Print in the chosen format (`summary` is the text report's last line) and return the exit code."""
        if fmt in ("json", "sarif"):
            print_json(_sarif(self) if fmt == "sarif" else self.as_dict())
        elif fmt == "github":
            print("".join(f"{_github(finding)}\n" for finding in self.findings), end="")
        else:
            hidden = len(self.findings) - _SHOWN
            more = f"... and {hidden} more; --json lists them all" if hidden > 0 else ""
            for line in filter(None, [*map(_text, self.findings[:_SHOWN]), more, summary]):
                print(line)
        return OK if self.ok else FINDINGS


def print_json(data: Any) -> None:
    print(json.dumps(data, indent=2, ensure_ascii=False))


def progress(message: str) -> None:
    """A line for the person who waits: stderr, so that stdout stays data."""
    print(message, file=sys.stderr, flush=True)


def _text(finding: Finding) -> str:
    place = " ".join(filter(None, [finding.path + (f":{finding.line}" if finding.line else ""), finding.where]))
    sure = None if finding.sure is None else f"{finding.sure:.0%}"
    shown = (("seen", finding.evidence), ("sure", sure), ("fix", finding.fix))
    lines = [": ".join(filter(None, [finding.code, place, finding.message]))]
    lines += [f"{name}: {value}" for name, value in shown if value]
    lines = [" ".join(line.split()) for line in lines]  # evidence may be a page of a log; --json has it all
    lines = [line if len(line) <= _WIDTH else line[:_WIDTH] + "..." for line in lines]
    return f"{finding.severity:5} " + "\n      ".join(lines)


def _github(finding: Finding) -> str:
    level = {"error": "error", "warn": "warning", "info": "notice"}[finding.severity]
    properties = {"file": finding.path, "line": str(finding.line or ""), "title": finding.code}
    place = ",".join(f"{name}={_escape(value, ':,')}" for name, value in properties.items() if value)
    body = " ".join(part for part in (finding.where, finding.message, finding.fix) if part)
    return f"::{level} {place}::{_escape(body)}"


def _escape(text: str, more: str = "") -> str:
    """GitHub's workflow commands end at a newline; in a property also ':' and ',' have a meaning."""
    for sign in "%\r\n" + more:
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text


def _sarif(report: Report) -> dict[str, Any]:
    used = sorted({finding.code for finding in report.findings})
    rules = [{"id": code, "shortDescription": {"text": CODES[code]}} for code in used]
    driver = {"name": report.tool, "version": VERSION, "rules": rules}
    results = []
    for finding in report.findings:
        level = {"error": "error", "warn": "warning", "info": "note"}[finding.severity]
        result: dict[str, Any] = {"ruleId": finding.code, "level": level, "message": {"text": finding.message}}
        if finding.path:
            region = {"region": {"startLine": finding.line}} if finding.line else {}
            place = {"artifactLocation": {"uri": quote(os.fsencode(finding.path))}, **region}
            result["locations"] = [{"physicalLocation": place}]
        results.append(result)
    run = {"tool": {"driver": driver}, "results": results}
    return {"version": "2.1.0", "$schema": "https://json.schemastore.org/sarif-2.1.0.json", "runs": [run]}
