#!/bin/sh
# gpu_gate.sh -n NAME -t TIMEOUT -- COMMAND...   the same as gpu_gate.py, which has the --help
here=$(dirname "$0")
python=$here/../.venv/bin/python
[ -x "$python" ] || python=python3
exec "${PYTHON:-$python}" "$here/gpu_gate.py" "$@"
