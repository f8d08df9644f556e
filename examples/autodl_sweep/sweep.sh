#!/bin/sh
# The whole sweep: queue, wait, look, judge. Usage: sh examples/autodl_sweep/sweep.sh [FOLDER]
# It works in a new FOLDER (default sweep-out) and can be run again: what ran is left alone.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
scripts=$here/../../scripts
[ ! -d "$here/../../.venv/bin" ] || PATH=$(cd "$here/../../.venv/bin" && pwd):$PATH
folder=${1:-sweep-out}
mkdir -p "$folder"
cp "$here/train.py" "$here/lr.yaml" "$folder"
cd "$folder"

tool() { # show the command, then run it; 1 is a finding, which is an answer here
    name=$1; shift
    printf '\n$ python scripts/%s.py %s\n' "$name" "$*"
    python3 "$scripts/$name.py" "$@" || [ $? -eq 1 ]
}
runs() { # the run directories of one learning rate
    python3 -c 'import json, sys
print(*[c["run"] for c in json.load(open("report.json"))["cells"] if c["values"]["lr"] == sys.argv[1]])' "$1"
}
compare() { # shown short: three run directories a side
    printf '\n$ python scripts/compare_runs.py <runs of lr %s> --vs <runs of lr %s> --metric accuracy --intended lr\n' "$1" "$2"
    # shellcheck disable=SC2046  # a list of paths without spaces below runs/
    python3 "$scripts/compare_runs.py" $(runs "$1") --vs $(runs "$2") --metric accuracy --intended lr || [ $? -eq 1 ]
}

tool sweep run lr.yaml --dry-run
tool sweep run lr.yaml
tool gpu_gate list
tool sweep run lr.yaml
tool sweep wait lr.yaml --timeout 5m
python3 "$scripts/sweep.py" report lr.yaml --json >report.json
tool takeover snapshot runs
tool watch show "$(runs 1.0 | cut -d ' ' -f 1)"
compare 1.0 0.01
compare 1.0 0.7
