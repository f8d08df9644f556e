"""Which names a checkpoint's pickle may mention, and what it may do with them. Nothing here is ever imported.

Three kinds, all others are strangers: ALLOWED may be called, as far as `call_fault` has nothing against the arguments;
classes of LIBRARIES may be made without a constructor (NEWOBJ) and filled, as pickle does it, and be values; HOSTILE
names run code, open files or reach the network. The lists are in pickle_names.txt.
"""

from __future__ import annotations

import math
import re
import sys
from typing import Any

from rgt.checkpoint.layout import DTYPES, TORCH_STORAGES

# by the loader, which also reads from the archive that is sent to a box
_TEXT = re.sub(r"#.*", "", __loader__.get_data(__file__.rpartition(".")[0] + ".txt").decode())  # type: ignore[name-defined]
_LISTS = {name: words.split() for name, words in re.findall(r"\[(\w+)\]([^[]*)", _TEXT)}


def _builtins(*names: str) -> set[str]:
    return {f"{module}.{name}" for module in ("builtins", "__builtin__") for name in names}


_RECONSTRUCT = {f"numpy.{core}.multiarray._reconstruct" for core in ("core", "_core")}
_COLLECTIONS = {f"collections.{name}" for name in ("OrderedDict", "Counter", "deque")}
_BUILTINS = _builtins(*_LISTS["scalars"], *_LISTS["containers"], "bytes", "bytearray", "object")
_FACTORIES = {*_BUILTINS, *_COLLECTIONS, *_LISTS["factories"], "collections.defaultdict", None}
_UNROLLING = {*_builtins(*_LISTS["containers"]), *_COLLECTIONS}
_SIZED = {"torch.Tensor", "torch.storage.TypedStorage", "torch.storage.UntypedStorage", "numpy.ndarray", *_RECONSTRUCT}
_SIZED |= _builtins("bytes", "bytearray")
REBUILDERS = frozenset(f"torch._utils._rebuild_{name}" for name in _LISTS["rebuilders"])
ENUMS, LIBRARIES = frozenset(_LISTS["enums"]), tuple(_LISTS["libraries"])
ALLOWED = frozenset(
    {
        *_LISTS["allowed"],
        *_BUILTINS,
        *REBUILDERS,
        *(f"torch.{name}" for name in DTYPES),
        *(f"torch.{device}{name}" for device in ("", "cuda.") for name in TORCH_STORAGES),
    }
)
RECONSTRUCTORS = ("copyreg._reconstructor", "copy_reg._reconstructor", "copyreg.__newobj__")
GETATTR = ("builtins.getattr", "__builtin__.getattr")
# Names that run code by design; everything unlisted of the standard library does so by rule.
_HOSTILE = re.compile(
    r"(numpy\.(testing|f2py|distutils|load|core\.(records|memmap)|_?core\.\w+\.(runstring|exec_command))"
    r"|torch\.(hub|load|jit\.load|serialization\.load|utils\.(cpp_extension|collect_env|bottleneck)|_inductor|_dynamo"
    r"|package|distributed\.rpc|fx\.graph_module\.reduce|fx\.graph_module\._|utils\.data\.datapipes)"
    r"|pandas\.(eval|read_pickle|core\.computation|io\.)"
    r"|cloudpickle|dill|joblib(?!\.numpy_pickle\.NumpyArrayWrapper$)|nltk\.(?!.*\.[A-Z]\w*$)|pip|setuptools|pkg_resources|IPython|os\.|nt\.|posix\.)"
)
# What compiled classes of libraries are pickled by: each makes an object of the class that it is given, and fills it.
_MAKERS = re.compile(
    r"sklearn\.(\w+\.)+(newObj|__pyx_unpickle_\w+|_sgd_fast\.[A-Z]\w+|_loss\.Cy\w+)"
    r"|pandas\.(core\.indexes\.base\._new_Index|_libs\.internals\._unpickle_block|_libs\.arrays\.__pyx_unpickle_NDArrayBacked"
    r"|core\.internals\.managers\.(Single)?BlockManager|StringDtype)|jax\._src\.array\._reconstruct_array"
)
_HARMLESS = ("typing.", "enum.", "functools.partial", "collections.abc.", "dataclasses._")
_PYTHON_2 = ("__builtin__", "commands", "popen2", "urllib2", "exceptions")
_ROOM, _RANK = 1 << 20, 65  # values that a constructor may ask for: an empty one asks for none


def is_hostile(name: str) -> bool:
    """True for a name whose call runs code, opens files or reaches the network."""
    root = name.partition(".")[0]
    known = root in sys.stdlib_module_names and not name.startswith(_HARMLESS)
    return known or root in _PYTHON_2 or bool(_HOSTILE.match(name))


def is_known(name: str, called: bool, script: bool) -> bool:
    """Whether the name may be there as it is used. `script`: a TorchScript archive names its own classes."""
    if name in ALLOWED or name in ENUMS or (script and name.startswith("__torch__.")):
        return True
    return not is_hostile(name) and (not called or bool(_MAKERS.fullmatch(name))) and name.startswith(LIBRARIES)


def call_fault(name: str, arguments: tuple[Any, ...], names: list[str | None]) -> str | None:
    """What is wrong with calling a known name so. `names`: of each argument; "" for what is neither global nor None."""
    if name in _SIZED and _values(arguments) > _ROOM:
        return f"asks {name} for {_values(arguments)} values"
    if name in _UNROLLING and not all(isinstance(part, (list, tuple, dict, int)) for part in arguments[:1]):
        return f"lets {name} unroll something that it computed"
    if name in ENUMS and not (len(arguments) == 1 and isinstance(arguments[0], (str, int))):
        return f"calls {name} with more than the name or the number of a member"
    if name == "torch.serialization._get_layout" and not (len(arguments) == 1 and arguments[0] in _LISTS["layouts"]):
        return f"calls {name} with something else than a layout"
    allowed: set[Any] | frozenset[Any]
    allowed, callables = set(), names[:1]  # what it may be given to call
    if name.endswith(".defaultdict"):
        allowed = _FACTORIES
    elif name == "torch._tensor._rebuild_from_type_v2":
        allowed = REBUILDERS | {"torch.nested._internal.nested_tensor._rebuild_njt"}
    elif name == "jax._src.array._reconstruct_array":
        allowed = _RECONSTRUCT
    elif name.startswith("numpy.random._pickle"):
        allowed = {name for name in ALLOWED if name.startswith("numpy.random.")}
        callables = [other for other in names if other]
    else:
        return None
    wrong = [other for other in callables if other not in allowed]
    return f"lets {name} call {wrong[0] or 'a value that it computed itself'}" if wrong else None


def _values(arguments: tuple[Any, ...]) -> int:
    """The largest number of values that these arguments may ask for: bytearray(n), Tensor(n, m), ndarray((n, m))."""
    shapes = [part for part in (arguments, *arguments) if isinstance(part, (tuple, list)) and len(part) < _RANK]
    return max((abs(math.prod(n for n in shape if isinstance(n, int))) for shape in shapes if shape), default=0)
