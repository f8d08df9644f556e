#!/bin/sh
# gpu_gate.sh -n NAME -t TIMEOUT -- COMMAND...   the same as `rgt gpu_gate`, which has the --help
here=$(readlink -f -- "$0") && exec "${here%/*}/../bin/rgt" gpu_gate "$@"
