"""A bill of a hosted API: looks like machine learning, is none of the skill's business."""

from __future__ import annotations

import json
import random
from typing import Any

from trials.case import Box, Case, differs


def _rows() -> list[dict[str, Any]]:
    rng = random.Random(55)
    rows = []
    for number in range(3000):
        prompt = rng.randint(200, 9000)
        usage = {
            "prompt_tokens": prompt,
            "prompt_tokens_details": {"cached_tokens": rng.choice([0, 0, prompt // 2])},
            "completion_tokens": rng.randint(10, 900),
        }
        status = 200 if rng.random() > 0.07 else 429
        body = {"usage": usage} if status == 200 else {"error": {"message": "rate limited"}, "usage": usage}
        again = rng.random() < 0.08 and number > 10
        custom = f"req-{number - 7 if again else number}"
        rows.append({"custom_id": custom, "response": {"status_code": status, "body": body}})
    return rows


def _bill(dedupe: bool) -> dict[str, Any]:
    last = {row["custom_id"]: row for row in _rows()}.values() if dedupe else _rows()
    billed = [row for row in last if row["response"]["status_code"] == 200]
    total = 0.0
    for row in billed:
        usage = row["response"]["body"]["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        total += (usage["prompt_tokens"] - cached) * 2.5 + cached * 1.25 + usage["completion_tokens"] * 10
    return {"usd": round(total / 1e6, 4), "billed_requests": len(billed)}


def make(box: Box) -> None:
    box.write("batch_output.jsonl", "".join(json.dumps(row) + "\n" for row in _rows()))


def verify(box: Box) -> list[str]:
    answer, right = box.read("cost.json"), _bill(dedupe=True)
    problems = differs("billed_requests", answer.get("billed_requests"), right["billed_requests"])
    return problems + ([] if abs(float(answer["usd"]) - right["usd"]) < 2e-4 else ["usd is wrong"])


CASE = Case(
    route="outside",
    minutes=4,
    commands=6,
    reference=lambda box: box.write("cost.json", _bill(dedupe=True)),
    naive=lambda box: box.write("cost.json", _bill(dedupe=False)),
    kind="outside",
    expected="The bill to four decimals; the skill is not needed.",
)
