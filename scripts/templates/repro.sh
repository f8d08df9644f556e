#!/usr/bin/env bash
# Rebuilds every number, table and figure of this project from its evidence, and compares the documents with it.
# Usage, from a clean clone:  RGT=<folder of remote-gpu-trainer> ./repro.sh
set -euo pipefail
cd "$(dirname "$0")"
: "${RGT:?set RGT to the folder of remote-gpu-trainer}"
PYTHON=${PYTHON:-python3}

if [ -f requirements.lock ]; then
    "$PYTHON" -m pip install --quiet --requirement requirements.lock # the pins this was made with
fi
"$PYTHON" "$RGT/scripts/manifest_scaffold.py" claim check # seals intact, claims equal to their runs
"$PYTHON" "$RGT/scripts/reconcile.py"                     # every number in every document
