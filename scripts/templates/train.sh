#!/usr/bin/env bash
# ./train.sh    trains, or goes on from the last good checkpoint; safe to run again after any end, refused while it runs
# Everything is written to $RGT_RUN_DIR (set by launch.py), else to this folder. PYTHON names the interpreter.
# SIGTERM, SIGUSR1 and Ctrl-C save and end with 143. Exit codes: 0 finished · 1 the training failed ·
# 2 bad settings or data, or it runs already · 3 the environment lacks something · 143 stopped, run it again
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 3
export RUN=${RGT_RUN_DIR:-$here}
python=${PYTHON:-python3}
command -v flock >/dev/null || { echo "error: flock is not installed (Debian: util-linux)" >&2; exit 3; }
mkdir -p "$RUN" || exit 3
exec 9>>"$RUN/.train.lock"  # every process of the training inherits it: free when the last of them is gone
flock -n 9 || {
  pids=$(exec 9>&-; for one in /proc/[0-9]*/fd/9; do [ "$one" -ef "$RUN/.train.lock" ] && one=${one#/proc/} && echo "${one%%/*}"; done)
  pids=$(echo "$pids" | grep -vx "$$" | head -n 5 | tr '\n' ' ')
  echo "error: $RUN is being trained by another process (pid ${pids:-unknown}); wait for it, or stop it first" >&2; exit 2; }
cd "$here" || exit 3
export PYTHONPATH=$here/lib${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
"$python" -c 'import click, numpy, yaml' 2>/dev/null || {
  echo "error: $python lacks one of click, numpy, pyyaml; pip install them, or set PYTHON" >&2; exit 3; }
"$python" -m rgt.scaffold_training.training_session "$here" "$RUN" || exit $?
if [ -z "${RGT_RUN_DIR:-}" ]; then  # launch.py keeps the log itself
  exec > >(trap '' TERM INT USR1 HUP; exec 9>&-; exec tee -a "$RUN/train.log") 2>&1
fi
ranks=@RANKS@
if [ "$ranks" -eq 1 ]; then exec "$python" pretrain.py; fi
# torchrun waits 30 s after a signal, then kills; a save takes longer
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=${TORCH_ELASTIC_SHUTDOWN_TIMEOUT:-300}
export PET_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1
rm -f "$RUN/.exit_code"
# bash killed with SIGKILL takes torchrun along, and that its workers (setpriv: util-linux 2.33)
with_us=$(setpriv --pdeathsig TERM true 2>/dev/null && echo "setpriv --pdeathsig TERM")
# shellcheck disable=SC2086
$with_us "$python" -m torch.distributed.run --standalone --nproc_per_node="$ranks" pretrain.py &
child=$!
trap 'kill -TERM "$child"' TERM INT
trap 'kill -USR1 "$child"' USR1
while :; do wait "$child"; code=$?; kill -0 "$child" 2>/dev/null || break; done
# torchrun makes 1 of whatever its workers ended with; the first of them wrote what it was
if [ -s "$RUN/.exit_code" ]; then code=$(cat "$RUN/.exit_code"); fi
exit "$code"
