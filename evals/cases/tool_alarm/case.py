"""An alarm for cron, judged while the logs of some fifty trainings grow; the agent has not seen them."""

from __future__ import annotations

import math
import random
import tempfile
from pathlib import Path

from trials.case import Box, Case
from worlds import tool, trainings, wrapped
from worlds.trainings import Part, bar, coloured, docker, hf_bar, json_rows, key_value, nanogpt, prose

WRONG = 2  # looks that may be judged wrongly
NAN = float("nan")
TRACE = (
    'Traceback (most recent call last):\n  File "/srv/train.py", line 90, in <module>\n    main()\n'
    "RuntimeError: The size of tensor a (512) must match the size of tensor b (511) at non-singleton dimension 1\n"
)
_REFERENCE = """#!/usr/bin/env python
import json, os, subprocess, sys
env = dict(os.environ, XDG_CACHE_HOME=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".notes"))
watch = [sys.executable, '{scripts}/watch.py', sys.argv[1], "--json"]
done = subprocess.run(watch, capture_output=True, text=True, env=env)
found = json.loads(done.stdout)
codes = {row["code"] for row in found["findings"] if row["severity"] != "info"}
errors = {row["code"] for row in found["findings"] if row["severity"] == "error"}
if errors & {"oom", "no-space", "hang", "killed", "crash", "failed"}: print("dead")
elif "nan" in errors: print("nan")
elif found["now"]["state"] == "finished": print("finished")
elif "diverged" in codes: print("diverging")
elif "stalled" in codes: print("stuck")
else: print("ok")
"""


def _replays() -> dict[str, list[Part]]:
    dice = random.Random(21)
    found: dict[str, list[Part]] = {}
    for form in trainings.FORMATS:  # one that goes wrong and one that is fine, each with its own numbers
        loss, name = trainings.falling(dice, 200), form.__name__
        start = Part(trainings.text(form, loss[:110]), "ok")
        up = [7.4 * (1 + dice.gauss(0, 0.01)) if name < "k" else v * (1 + 0.025 * n) for n, v in enumerate(loss[120:])]
        grown = Part(trainings.text(form, [*loss[110:120], *up], 1100), "diverging")
        found[f"{name} rises"] = [start, grown] if name < "k" else [Part(start.text + grown.text, "diverging")]
        spiked = [v * (1 + 3 * 2.7 ** (-n / 4)) for n, v in enumerate(loss[110:180])]
        found[f"{name} spike is over"] = [Part(trainings.text(form, loss[:110] + spiked), "ok")]
    for form, bad in ((bar, NAN), (docker, float("inf")), (json_rows, NAN)):
        loss = trainings.falling(dice, 120)
        found[f"{form.__name__} nan"] = [Part(trainings.text(form, [*loss, bad, bad, bad]), "nan")]
        found[f"{form.__name__} nan is over"] = [Part(trainings.text(form, [*loss[:60], bad, *loss[60:]]), "ok")]
    loss = trainings.falling(dice, 120)
    again = trainings.text(prose, loss[60:], 600)
    found |= {
        "stuck": [Part(trainings.text(nanogpt, loss), "stuck", 2700)],
        "bar is stuck": [Part(trainings.text(bar, loss), "stuck", 2700)],
        "slow": [Part(trainings.text(prose, loss[:40], every=1, pace=240.0), "ok", 2400)],
        "slow bar": [Part(trainings.text(hf_bar, loss[:40], every=1, pace=240.0), "ok", 2400)],
        "slow and stuck": [Part(trainings.text(prose, loss[:40], every=1, pace=60.0), "stuck", 5400)],
        "crashed": [Part(trainings.text(key_value, loss), "ok"), Part(TRACE, "dead")],
        "cancelled": [
            Part(trainings.text(nanogpt, loss), "ok"),
            Part("slurmstepd: error: *** JOB 8 ON n3 CANCELLED AT 2026-11-14T04:00:19 DUE TO TIME LIMIT ***\n", "dead"),
        ],
        "killed": [Part(trainings.text(prose, loss) + "./run.sh: line 9: 40123 Killed         python t.py\n", "dead")],
        "restarted": [Part(trainings.text(prose, loss[:80]) + TRACE, "dead"), Part(again, "ok")],
        "a traceback that was caught": [Part(trainings.text(prose, loss[:60]) + "retrying\n" + TRACE + again, "ok")],
        "rotated": [Part(trainings.text(prose, loss[:60]), "ok"), Part(again, "ok", how="r")],
        "truncated": [Part(trainings.text(prose, loss[:60]), "ok"), Part(again, "ok", how="w")],
        "rotated, then nan": [
            Part(trainings.text(prose, loss), "ok"),
            Part(trainings.text(prose, [NAN] * 4, 1200), "nan", how="r"),
        ],
        "just started": [Part("loading data ...\nmodel has 124M parameters\n", "ok", 200)],
        "half a line": [Part(trainings.text(prose, loss) + "step 1200/40000 | loss 1", "ok")],
        "no better": [Part(trainings.text(prose, [2.1 * (1 + dice.gauss(0, 0.01)) for _ in range(180)]), "ok")],
        "hf is finished": [
            Part(trainings.text(hf_bar, loss, total=1190), ""),
            Part("\n{'train_runtime': 512.3, 'train_samples_per_second': 81.1, 'train_loss': 2.4, 'epoch': 3.0}\n",
                 "finished", 4000),
        ],
        "lightning is finished": [
            Part(trainings.text(bar, loss) + "`Trainer.fit` stopped: `max_epochs=3` reached.\n", "finished", 9000)
        ],
        "last step": [Part(trainings.text(prose, loss, total=1190), "finished", 7200)],
    }  # fmt: skip
    return found | _harder(random.Random(22))


def _harder(dice: random.Random) -> dict[str, list[Part]]:
    """Noise, other losses in the log, words that mean nothing, what is printed after a death."""
    loss = trainings.falling(dice, 160)
    noisy = [0.9 * (1 + 2 * (1 + n / 8) ** -0.5) * math.exp(dice.gauss(0, 0.35)) for n in range(200)]
    creeping = [*loss, *(loss[-1] * (1 + min(0.45, 0.012 * n)) * (1 + dice.gauss(0, 0.01)) for n in range(90))]
    tiny = [0.02 * (1 + 40 * (1 + n) ** -0.7) * math.exp(dice.gauss(0, 0.3)) for n in range(200)]
    harder = [*loss, *(v * 1.06 for v in trainings.falling(dice, 300)[160:])]
    rises = [v * (1 + 0.03 * n) for n, v in enumerate(loss[110:])]
    validated = "".join(
        trainings.text(prose, loss[n : n + 10], n * 10) + f"step {n * 10 + 100}: val loss {1.9 + n / 60:.4f}\n"
        for n in range(0, 160, 10)
    )
    summary = "".join(
        f"wandb: {name} {dice.random():.4f}\n" for name in ("epoch", "lr", "train/loss") for _ in range(9)
    )
    ends = "\n{'train_runtime': 91.3, 'train_samples_per_second': 81.1, 'train_loss': 2.4, 'epoch': 3.0}\n"
    noise = wrapped.noise_of_ranks(dice, list(range(8)))
    pieces = {
        "noisy": ("ok", trainings.text(key_value, noisy)),
        "tiny": ("ok", trainings.text(json_rows, tiny)),
        "creeps up": ("diverging", trainings.text(coloured, creeping)),
        "creeps up in a bar": ("diverging", trainings.text(bar, creeping)),
        "harder data": ("ok", trainings.text(prose, harder)),
        "overfits": ("ok", validated),
        "dead, then a summary": ("dead", trainings.text(prose, loss) + TRACE + summary),
        "dead, then the ranks": ("dead", trainings.text(prose, loss) + TRACE + noise),
        "dead, then the bar": (
            "dead",
            trainings.text(hf_bar, loss[:60]) + "\n" + TRACE + hf_bar(590, 40000, 2.0, 0.4)[-60:],
        ),
        "went back": ("ok", trainings.text(prose, loss[:110] + rises) + trainings.text(prose, loss[100:], 1000)),
        "caught just now": ("ok", trainings.text(prose, loss[:60]) + TRACE + trainings.text(prose, loss[60:64], 600)),
        "words": ("ok", trainings.text(prose, loss) + "eval | Word Error: 0.131 | exact_match 0.41 | errors: 0\n"),
        "started again after its end": (
            "ok",
            trainings.text(hf_bar, loss[:50], total=490) + ends + trainings.text(hf_bar, loss[:40]),
        ),
    }
    return {name: [Part(text, word)] for name, (word, text) in pieces.items()}


def make(box: Box) -> None:
    (box.work / "samples").mkdir()
    for form in (prose, hf_bar, docker):
        text = trainings.text(form, trainings.falling(random.Random(form.__name__), 90))
        (box.work / "samples" / f"{form.__name__}.log").write_text(text, encoding="utf-8", newline="")


def verify(box: Box) -> list[str]:
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, parts) in enumerate(_replays().items()):
            path = Path(folder) / f"train{number:02d}.log"
            for look, part in enumerate(parts):
                trainings.grow(path, part, last=look == len(parts) - 1)
                said = tool.call(box, "alarm", path, seconds=10).out.split()
                if part.word and said != [part.word]:
                    wrong.append(f"{name}, look {look + 1}: {' '.join(said)[:40] or 'nothing'}, not {part.word}")
            if len(wrong) > WRONG:
                return [f"more than {WRONG} looks are wrong: {'; '.join(wrong)}"]
    return []


# the last loss against the smallest, the last line for words, the mtime for silence
_NAIVE = r"""#!/usr/bin/env python
import math, os, re, sys, time
text = re.sub(r"\x1b\[[0-9;]*m", "", open(sys.argv[1], errors="replace").read().replace("\r", "\n"))
lines = [line for line in text.split("\n") if line.strip()]
tail = "\n".join(lines[-15:])
losses = [float(m) for m in re.findall(r"(?i)loss['\"]?\s*[:= ]\s*'?([-+]?(?:nan|inf|[0-9.]+(?:e[-+]?\d+)?))", text)]
age = time.time() - os.path.getmtime(sys.argv[1])
if re.search(r"Traceback|Killed|CANCELLED|Error:", tail):
    print("dead")
elif losses and not math.isfinite(losses[-1]):
    print("nan")
elif re.search(r"train_runtime|max_epochs|[Tt]raining (complete|finished)", tail):
    print("finished")
elif len(losses) > 30 and sum(losses[-10:]) / 10 > 1.5 * min(losses[:-10]):
    print("diverging")
elif age > 900:
    print("stuck")
else:
    print("ok")
"""
CASE = Case(
    route="how is it doing?",
    reads=(),
    minutes=4,
    commands=30,
    make=make,
    verify=verify,
    reference=tool.leaving(_REFERENCE, "alarm"),
    naive=tool.leaving(_NAIVE, "alarm"),
    held_out=True,
    expected="alarm says the right word at nearly every look: spikes, slow runs, restarts and rotations raise none.",
)
