#!/bin/sh
# remote_train.sh --cluster HOST --config FILE --gpus N --name NAME   the same as remote_train.py, which has the --help
here=$(dirname "$0")
python=$here/../.venv/bin/python
[ -x "$python" ] || python=python3
exec "${PYTHON:-$python}" "$here/remote_train.py" "$@"
