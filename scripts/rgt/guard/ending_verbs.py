"""Does a call end, stop or delete what is rented, shared or a result? One rule for command lines, SDKs and HTTP paths.

    ended_by(["crusoe", "compute", "vms", "delete", "a"], known=False)  ->  3, the verb's place

A verb that ends counts where a client is known (the table has it); anywhere else only together with a thing that is
rented or holds results. Things that are deleted without loss (a key, a tag, an image) do not count. What follows a verb
that only looks or adds (list, create, run) is that verb's own business.
"""

from __future__ import annotations

from rgt.guard.lazy_regex import Regex
from rgt.guard.program_words import WORDS

ENDS = WORDS["ends"]
LOOKS = WORDS["looks"]
THINGS = WORDS["things"]
# of these alone one cannot tell whose they are: a web framework's server, a browser's session
VAGUE = WORDS["vague"]
LIGHT = WORDS["light"]
_BOOLEAN = frozenset("--yes --force --quiet --debug --verbose --json --raw --all --async --wait --confirm".split())
_PARTS = Regex(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_VIEW = Regex(r"(?:Describe|List|Get|Show|Query|Inquiry|Search)(?=[A-Z])")
_COMMAND = Regex(r"[A-Za-z][\w.:/@-]*")
_ZERO = Regex(r"(?i)[\w-]*(?:nodes?|replicas?|capacity|count|size|instances?|workers?|scale|timelimit|gpus)=0\b")
_SETS = Regex(r"(?i)-*(?:\w+[-_])?(?:state|status|action|operation|power)")  # its value is what is done
_STATE = Regex(
    r"(?i)[\"'](?:suspend|paused?|stop(?:ped)?|shutdown)[\"']\s*:\s*(?:true|1)|:NoExecute$"
    r"|[\"'](?:replicas|desired_?(?:count|capacity|size)|num_?(?:nodes|replicas)|node_?count|min_?replicas)[\"']\s*:\s*0\b"
)


def parts(text: str) -> list[str]:
    """terminate-instances, TerminateInstances, terminate_instances -> [terminate, instance]"""
    found = [part.lower() for part in _PARTS.findall(text)]
    return [one[:-1] if one.endswith("s") and one[:-1] in THINGS | LIGHT else one for one in found]


def _looks(word: str) -> bool:
    """list, describe-instances, DescribeInstances; of heroku's ps:stop the last part is the verb."""
    verb = word.rpartition(":")[2]
    first = verb.partition("-")[0].partition("_")[0]
    return word in LOOKS or first.lower() in LOOKS or bool(_VIEW.match(verb))


def ends_in(words: list[str]) -> bool:
    """A name's parts hold a verb that ends: delete-pod, BatchDeletePods, pod-delete."""
    return not ENDS.isdisjoint((*words[:2], *words[-1:]))


def about(words: list[str], known: bool) -> bool:
    """Is what the verb is about worth something? Of a client that is not known: only what is surely rented."""
    things, light = THINGS.intersection(words), LIGHT.intersection(words)
    if known:
        return bool(things - VAGUE) or not light
    return bool(things - VAGUE) or (bool(things) and not light and len(things) > 1)


def is_dry(words: list[str]) -> bool:
    """Only shows what it would do, or its help."""
    for i, word in enumerate(words[1:], 1):
        name, _, value = word.partition("=")
        if name in ("--dry-run", "--dryrun", "--dry_run", "--dry", "--what-if", "--whatif", "--preview", "-WhatIf"):
            return value not in ("none", "false") and words[i + 1 : i + 2] != ["none"]
        if name in ("--help", "--version", "--generate-cli-skeleton", "-help") or (name == "help" and i < 4):
            return True
    return words[-1] in ("-h", "-V", "help")


def ended_by(words: list[str], known: bool) -> int:
    """The place of the verb that ends something; 0 when there is none."""
    before: list[str] = []
    for i, word in enumerate(words[1:14], 1):
        name, equals, value = word.partition("=")
        last = words[i - 1] if words[i - 1].startswith("-") and "=" not in words[i - 1] else ""
        sets = known and ((equals and _SETS.fullmatch(name)) or (last and _SETS.fullmatch(last)))
        if sets and (value or word).lower() in ENDS:
            return i
        if word.startswith("-"):
            if known and word.startswith("--") and word[2:] in ENDS:
                return i
            continue
        if last and last not in _BOOLEAN and not (len(last) == 2 and last[1] in "yfqvad"):
            continue
        if not _COMMAND.fullmatch(word):
            continue
        named = parts(word.partition("/")[0])
        following = words[i + 1] if i + 1 < len(words) else ""
        if _looks(word) and following not in ENDS:  # `mlflow run delete`: a noun
            return 0
        if ends_in(named) and (word.lower() in ENDS or len(named) > 1):
            if LIGHT.intersection(named) and not THINGS.intersection(named):
                return 0  # remove-tags of an instance
            after = parts(following) if _COMMAND.fullmatch(following) else []
            after = after if LIGHT.issuperset(after) or THINGS.intersection(after) else []  # or it is a name
            return i if about([*before, *named, *after], known) else 0
        before += [one for one in named if one != "api"]
    return 0


def empties(words: list[str]) -> bool:
    """Scales to nothing: --replicas 0, --size=0, {"replicas": 0}, {"suspend": true}."""
    for i, word in enumerate(words[1:], 1):
        if word in ("create", "run", "launch"):
            return False
        text = f"{word}=0" if words[i + 1 : i + 2] == ["0"] and word.startswith("-") else word
        low = "min" in text.lower() and "desired" not in text.lower()
        scaled = "scale" in words and word.endswith("=0")
        if scaled or (_ZERO.search(text) and not low) or _STATE.search(word):
            return True
    return False


def is_ending_call(name: str, known: bool) -> bool:
    """ec2.instances.terminate, delete_namespaced_job, TerminateInstancesCommand: by the last name, then the rest."""
    chain, _, last = name.replace("()", "").rpartition(".")
    named = parts(last)
    if not named or not (named[0] in ENDS or (len(named) > 1 and (ends_in(named) or named[1] in ENDS))):
        return False
    return about([*named, *parts(chain)] if not known else named, known)
