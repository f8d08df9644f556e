#!/bin/sh
# Pulls a run until it is over, and proves it: detached from this shell, with a log.
#   sh scripts/templates/download_loop.sh runs/<run-id>            (a run of launch.py)
#   sh scripts/templates/download_loop.sh box:~/exp/run pulled/run
# The last line of the log is the verdict; only "pulled and verified" is one. Repeating it goes on where it was.
set -eu
[ $# -ge 1 ] || { echo "usage: download_loop.sh RUN | HOST:DIR LOCAL [option of transfer.py pull ...]" >&2; exit 2; }
scripts=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
log=${DOWNLOAD_LOG:-download_loop.log}
command -v setsid >/dev/null 2>&1 && detach=setsid || detach=
# shellcheck disable=SC2086  # empty where there is no setsid (macOS)
nohup $detach "${PYTHON:-python3}" "$scripts/transfer.py" pull "$@" --loop >>"$log" 2>&1 </dev/null &
echo "pid $!, log $log"
