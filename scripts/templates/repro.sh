#!/usr/bin/env bash
# Rebuilds every number, table and figure of this project from its runs, and compares the documents with them.
# Usage, from a clean clone:  RGT=<folder of remote-gpu-trainer> ./repro.sh
# Exit 0: all of it is what was committed. Exit 1: something differs, and is named. 2, 3: it could not be done.
set -euo pipefail
cd "$(dirname "$0")"
: "${RGT:?set RGT to the folder of remote-gpu-trainer}"
PYTHON=${PYTHON:-python3}
differs=0

say() { echo "== $1" >&2; }

found() { # an exit code: 1 is remembered, anything worse ends here
    if [ "$1" -gt 1 ]; then exit "$1"; fi
    differs=1
}

render() { "$PYTHON" "$RGT/scripts/render.py" "$@"; }

pins() { # every name==version of requirements.lock against what is installed
    if [ ! -f requirements.lock ]; then
        echo "no requirements.lock: the versions this was made with are not pinned" >&2
        return 0
    fi
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

unchanged() { # what a rebuild wrote is what was committed
    if ! git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        echo "not a git clone: the rebuilt files cannot be compared with committed ones" >&2
        return 0
    fi
    local changed
    changed=$(git status --porcelain -- .)
    if [ -n "$changed" ]; then
        printf 'rebuilt, and not as committed:\n%s\n' "$changed"
        return 1
    fi
}

say "pins"
pins || found $?
say "claims and seals"
"$PYTHON" "$RGT/scripts/manifest_scaffold.py" claim check || found $?
if [ -d tables ]; then say "tables" && { render tables || found $?; }; fi
say "figures"
render figures || found $?
say "values in documents"
render values || found $?
compare=()
if [ -f compare.json ]; then compare=(--compare compare.json); fi
if [ -f DISCLOSURES.md ]; then
    say "disclosures" # they travel with the delivery; they do not make it fail
    render gate ${compare[@]+"${compare[@]}"} || [ $? -eq 1 ]
fi
if [ -f report.html ]; then say "report" && { render report ${compare[@]+"${compare[@]}"} || found $?; }; fi
say "every number in every document"
"$PYTHON" "$RGT/scripts/reconcile.py" || found $?
say "same as committed"
unchanged || found $?
if [ "$differs" -eq 0 ]; then echo "reproduced: every number, table and figure is what was committed"; fi
exit "$differs"
