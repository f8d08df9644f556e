"""A theory question without a run: the skill has nothing to add and must not slow it down."""

from __future__ import annotations

from trials.case import Case
from worlds import quiz

LAYERS, WIDTH, HEADS, KV, SIZE, HIDDEN, VOCAB = 24, 2048, 16, 4, 128, 5504, 50304
ATTENTION = WIDTH * HEADS * SIZE * 2 + WIDTH * KV * SIZE * 2
LAYER = ATTENTION + 3 * WIDTH * HIDDEN + 2 * WIDTH
TRUTH = {"parameters": VOCAB * WIDTH + LAYERS * LAYER + WIDTH, "kv_cache_bytes": 2 * LAYERS * KV * SIZE * 2 * 8 * 4096}

CASE = Case(
    route="outside",
    minutes=3,
    commands=4,
    make=quiz.note("notes.txt", "due friday\n"),
    verify=quiz.verifier(TRUTH),
    reference=quiz.writer(lambda box: dict(TRUTH)),
    naive=quiz.writer(lambda box: {"parameters": 12 * LAYERS * WIDTH**2 + VOCAB * WIDTH, "kv_cache_bytes": 0}),
    kind="outside",
    expected="Both numbers to the last digit, without a detour.",
)
