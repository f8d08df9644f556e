#!/bin/sh
# remote_train.sh --cluster HOST --config FILE --gpus N --name NAME   the same as `rgt remote_train`, which has the --help
here=$(readlink -f -- "$0") && exec "${here%/*}/../bin/rgt" remote_train "$@"
