"""Text to train on, made from a small grammar: the same seed gives the same bytes on every machine.

Example:
    corpus = make(seed=7, size=100_000)
    corpus.train, corpus.val          no sentence is in both, and none comes twice
"""

from __future__ import annotations

import random
import string
from dataclasses import dataclass

from rgt.errors import bad_input

# Fixed, not read off the text: a vocabulary learnt from train + val would be a (small) leak.
ALPHABET = "\n ,.%-" + string.digits + string.ascii_letters
SMALLEST, LARGEST = 1_000, 1_000_000  # bytes: below, val holds no window; above, the grammar runs dry of new sentences
VAL_SHARE = 0.1

# A slot in braces is replaced by one of its phrases, which may have slots of its own.
GRAMMAR = {
    "sentence": (
        "{when} {who} {did} {thing}.",
        "{who} {did} {thing}, {because}.",
        "{when} {the_run} {went}.",
        "{the_run} {went}, {because}.",
        "{the_run} {went}, so {who} {did} {thing}.",
        "at step {step} the {number} was {value}, and {the_run} {went}.",
        "{who} says that the {number} of {the_run} is {value}.",
    ),
    "when": ("in the morning", "after lunch", "late at night", "on {day}", "an hour later", "before the meeting"),
    "day": ("monday", "tuesday", "wednesday", "thursday", "friday"),
    "who": ("the {kind} {person}", "our {person}", "a {kind} {person}", "the {person} from room {room}"),
    "kind": ("new", "patient", "sleepy", "careful", "visiting", "curious"),
    "person": ("student", "engineer", "reviewer", "night guard", "professor", "intern"),
    "did": ("checked", "restarted", "forgot", "measured", "plotted", "copied", "deleted", "explained", "trusted"),
    "thing": ("the {adjective} {noun}", "{the_run}", "every {noun} of {the_run}", "the {noun} from {day}"),
    "adjective": ("last", "first", "broken", "smallest", "missing", "final", "second"),
    "noun": ("checkpoint", "loss curve", "config file", "learning rate", "data loader", "seed", "batch", "table"),
    "the_run": ("run {room}", "the {adjective} run", "the long run", "the baseline", "the {kind} sweep"),
    "went": ("went well", "diverged", "ran out of memory", "stopped at step {step}", "reached a loss of {value}"),
    "because": ("because {the_run} {went}", "as the {noun} was {state}", "although the {noun} was {state}"),
    "state": ("wrong", "empty", "still warm", "never saved", "twice as large", "exactly the same"),
    "number": ("loss", "accuracy", "gradient norm", "throughput", "memory in use"),
    "step": tuple(str(number) for number in range(100, 10_000, 100)),
    "room": tuple(str(number) for number in range(2, 60)),
    "value": tuple(f"{number / 100:.2f}" for number in range(5, 500)),
}


@dataclass(frozen=True)
class Corpus:
    train: str
    val: str


def make(seed: int, size: int) -> Corpus:
    """About `size` bytes of unique sentences; the last tenth is val."""
    if not SMALLEST <= size <= LARGEST:
        raise bad_input(f"a text of {size} bytes cannot be made; ask for {SMALLEST} to {LARGEST}")
    sentences = _unique_sentences(random.Random(seed), size)
    cut = round(len(sentences) * (1 - VAL_SHARE))
    return Corpus("\n".join(sentences[:cut]) + "\n", "\n".join(sentences[cut:]) + "\n")


def _unique_sentences(rng: random.Random, size: int) -> list[str]:
    sentences: dict[str, None] = {}  # a dict keeps the order; a set would order by the hash seed of the process
    written = 0
    while written < size:
        sentence = _expand("sentence", rng)
        if sentence not in sentences:
            sentences[sentence] = None
            written += len(sentence) + 1
    return list(sentences)


def _expand(slot: str, rng: random.Random) -> str:
    text = rng.choice(GRAMMAR[slot])
    while "{" in text:
        before, _, rest = text.partition("{")
        inner, _, after = rest.partition("}")
        text = before + _expand(inner, rng) + after
    return text[0].upper() + text[1:] if slot == "sentence" else text
