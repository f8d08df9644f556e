#!/usr/bin/env bash
# Rebuilds every number, table and figure of this project from its runs, and compares the documents with them.
# Usage, from a clean clone:  ./repro.sh [--evaluate]     nothing has to be set; it looks for remote-gpu-trainer itself
#   --evaluate   also runs ./evaluate.sh RUN OUT for every run whose checkpoints are here (it writes {"metric": value}
#                to OUT), and compares with the run's results.json
# Exit 0: all of it is what was committed. Exit 1: something differs, and is named. 2, 3: it could not be done.
set -euo pipefail
cd "$(dirname "$0")"
evaluate=0
case "${1:-}" in
    "") ;;
    --evaluate) evaluate=1 ;;
    *) sed -n '2,6s/^# //p' "$0" >&2; exit 2 ;;
esac

own_place() { # where remote-gpu-trainer is: said, installed, a skill of an agent, or where this file was made
    local found
    found=$(command -v rgt || true)
    [ -n "$found" ] && found=$(dirname "$(dirname "$(readlink -f "$found")")")
    for place in "${RGT:-}" "$found" .claude/skills/remote-gpu-trainer ~/.claude/skills/remote-gpu-trainer \
        ~/.openclaw/skills/remote-gpu-trainer ~/.codex/skills/remote-gpu-trainer ../remote-gpu-trainer "@RGT@"; do
        if [ -n "$place" ] && [ -x "$place/bin/rgt" ]; then
            (cd "$place" && pwd) && return
        fi
    done
    echo "error: remote-gpu-trainer is not here; clone it beside this folder, or set RGT to its folder" >&2
    return 3
}

RGT=$(own_place) || exit 3
PYTHON=${PYTHON:-python3}
differs=0

say() { echo "== $1" >&2; }

found() { # an exit code: 1 is remembered, anything worse ends here
    if [ "$1" -gt 1 ]; then exit "$1"; fi
    differs=1
}

rgt() { "$RGT/bin/rgt" "$@"; }

pins() { # every name==version of requirements.lock against what is installed
    [ -f requirements.lock ] || return 0
    "$PYTHON" - <<'PY'
import importlib.metadata, re, sys

wrong = 0
for line in open("requirements.lock", encoding="utf-8"):
    pin = re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)(.*)", line)
    if not pin:
        continue
    name, wanted, rest = pin.groups()
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if ";" in rest:  # for another Python or system
            continue
        found = "nothing"
    if found.partition("+")[0] != wanted.partition("+")[0]:
        print(f"pin: {name} {wanted} is locked, {found} is installed")
        wrong = 1
sys.exit(wrong)
PY
}

evaluations() { # ./evaluate.sh on each run that can be evaluated here, its numbers against results.json
    "$PYTHON" - <<'PY'
import json, math, os, pathlib, subprocess, sys, tempfile

differs = 0
for results in sorted(pathlib.Path("runs").glob("*/results.json")):
    run = results.parent
    checkpoints = run / "checkpoints"
    if not checkpoints.is_dir() or not any(checkpoints.iterdir()):
        print(f"not evaluated: {run.name}: its checkpoints are not here")
        continue
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "evaluation.json")
        code = subprocess.run(["./evaluate.sh", str(run), out]).returncode
        try:
            measured = json.load(open(out))
        except (OSError, ValueError):
            measured = {}
    if code or not measured:
        print(f"not evaluated: {run.name}: evaluate.sh ended with {code} and wrote {'its' if measured else 'no'} numbers")
        differs = 1
        continue
    for row in json.loads(results.read_text())["metrics"]:
        names = (f"{row['split']}_{row['name']}", row["name"])
        name = next((name for name in names if name in measured), None)
        if name is None:
            print(f"not evaluated: {run.name}: {names[0]} is not among what evaluate.sh wrote")
        elif not math.isclose(measured[name], row["value"], rel_tol=1e-4):
            print(f"evaluated: {run.name}: {names[0]} is {measured[name]:.6g} now, results.json says {row['value']:.6g}")
            differs = 1
        else:
            print(f"evaluated: {run.name}: {names[0]} {measured[name]:.6g} as in results.json")
sys.exit(differs)
PY
}

unchanged() { # what a rebuild wrote is what was committed
    local changed
    changed=$(git status --porcelain -- . 2>/dev/null) || return 0
    if [ -n "$changed" ]; then
        printf 'rebuilt, and not as committed:\n%s\n' "$changed"
        return 1
    fi
}

not_here() { # what nobody should take for reproduced
    [ -f requirements.lock ] || echo "not reproduced: no requirements.lock pins the versions this was made with"
    git rev-parse --is-inside-work-tree >/dev/null 2>&1 || echo "not reproduced: no git clone to compare the files with"
    if [ "$evaluate" -eq 0 ]; then
        echo "not reproduced: the evaluations; ./repro.sh --evaluate repeats them"
    elif [ ! -x evaluate.sh ]; then
        echo "not reproduced: the evaluations; there is no evaluate.sh RUN OUT that repeats one"
    fi
    "$PYTHON" - <<'PY'
import collections, json, pathlib

made = collections.Counter()
for path in pathlib.Path("runs").glob("*/run.json"):
    try:
        record = json.loads(path.read_text())
    except ValueError:
        record = {}
    cards = record.get("devices") or record.get("gpus") or []
    made[", ".join(sorted({str(card.get("name", card) if isinstance(card, dict) else card) for card in cards})) or "?"] += 1
for cards, count in made.items():
    print(f"not reproduced: the training of {count} run(s)" + (f" on {cards}" if cards != "?" else ""))
PY
}

say "pins"
pins || found $?
say "claims and seals"
rgt manifest_scaffold claim check || found $?
if [ "$evaluate" -eq 1 ] && [ -x evaluate.sh ]; then say "evaluations" && { evaluations || found $?; }; fi
if [ -d tables ]; then say "tables" && { rgt render tables || found $?; }; fi
say "figures"
rgt render figures || found $?
say "values in documents"
rgt render values || found $?
compare=()
if [ -f compare.json ]; then compare=(--compare compare.json); fi
if [ -f DISCLOSURES.md ]; then
    say "disclosures" # they travel with the delivery; they do not make it fail
    rgt render gate ${compare[@]+"${compare[@]}"} || [ $? -eq 1 ]
fi
if [ -f report.html ]; then say "report" && { rgt render report ${compare[@]+"${compare[@]}"} || found $?; }; fi
say "every number in every document"
rgt reconcile || found $?
say "same as committed"
unchanged || found $?
not_here
if [ "$differs" -eq 0 ]; then echo "reproduced: every number, table and figure is what was committed"; fi
exit "$differs"
