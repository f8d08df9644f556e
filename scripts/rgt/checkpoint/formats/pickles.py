"""Reads a pickle as data. Nothing is imported and nothing is called: a global stays a name, a call stays a node.

Example:
    pickle = read(Cursor(window, 0, MAX_PICKLE))      pickle.root, pickle.globals
    hostile, unknown = sort_out(pickle.globals)       names that are not on the list

Time and memory are bounded by the number of opcodes and by the bytes a Cursor gives out.
"""

from __future__ import annotations

import pickletools
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rgt.checkpoint.formats.container import Cursor
from rgt.checkpoint.layout import DTYPES, TORCH_STORAGES, Broken

MAX_PICKLE = 64 << 20  # bytes; the pickle of a model of 10,000 tensors has 2 MB
MAX_OPCODES = 3_000_000

# -- which names a checkpoint's pickle may mention. The list is closed: what is not here is refused, by name. Nothing
# here is ever imported. A name is on the list when loading a file that calls it for real does no harm.

_PYTHON = """
    collections.OrderedDict collections.defaultdict collections.Counter collections.deque
    builtins.set builtins.frozenset builtins.bytearray builtins.complex builtins.list builtins.dict builtins.tuple
    builtins.int builtins.float builtins.str builtins.bool builtins.bytes builtins.slice builtins.range builtins.object
    __builtin__.set __builtin__.frozenset __builtin__.bytearray __builtin__.complex __builtin__.list __builtin__.dict
    __builtin__.tuple __builtin__.object _codecs.encode copyreg._reconstructor copy_reg._reconstructor
    argparse.Namespace types.SimpleNamespace datetime.datetime datetime.date datetime.timedelta datetime.timezone
    pathlib.Path pathlib.PosixPath pathlib.WindowsPath pathlib.PurePath pathlib.PurePosixPath pathlib.PureWindowsPath
    pathlib._local.PosixPath pathlib._local.WindowsPath decimal.Decimal fractions.Fraction uuid.UUID
"""
_NUMPY = """
    numpy.ndarray numpy.dtype numpy.float64 numpy.float32 numpy.int64 numpy.bool_
    {core}.multiarray._reconstruct {core}.multiarray.scalar {core}.numeric._frombuffer
    numpy.random._pickle.__randomstate_ctor numpy.random._pickle.__generator_ctor
    numpy.random._pickle.__bit_generator_ctor numpy.random._mt19937.MT19937 numpy.random._pcg64.PCG64
"""
_TORCH = """
    torch.Size torch.Tensor torch.device torch.nn.parameter.Parameter torch.nn.parameter.Buffer
    torch.storage.TypedStorage torch.storage.UntypedStorage torch.serialization._get_layout
    torch._tensor._rebuild_from_type_v2 torch._C._distributed_c10d.ReduceOp
    torch.per_tensor_affine torch.per_channel_affine torch.per_tensor_symmetric torch.per_channel_symmetric
    torch.per_channel_affine_float_qparams torch.preserve_format torch.contiguous_format torch.channels_last
    torch.strided torch.sparse_coo torch.Generator
    torch.amp.grad_scaler.OptState torch.cuda.amp.grad_scaler._refresh_per_optimizer_state
    torch.amp.grad_scaler._refresh_per_optimizer_state torch.torch_version.TorchVersion
    torch.distributed.tensor.DTensor torch.distributed.tensor._dtensor_spec.DTensorSpec
    torch.distributed.tensor._dtensor_spec.TensorMeta torch.distributed.tensor.placement_types.Shard
    torch.distributed.tensor.placement_types.Replicate torch.distributed.tensor.placement_types.Partial
    torch.distributed.device_mesh.DeviceMesh torch.distributed.distributed_c10d.ReduceOp
    torch.optim.swa_utils.AveragedModel torch.distributed._shard.sharded_tensor.metadata.TensorProperties
"""
_TORCH_REBUILD = """
    tensor tensor_v2 tensor_v3 parameter parameter_with_state qtensor sparse_tensor sparse_csr_tensor nested_tensor
    meta_tensor_no_storage device_tensor_from_numpy device_tensor_from_cpu_tensor wrapper_subclass xla_tensor
"""
_TORCH_JIT = "build_intlist build_tensorlist build_doublelist build_boollist restore_type_tag build_tensor_from_id"
_DCP = """
    metadata.Metadata metadata.TensorStorageMetadata metadata.TensorProperties metadata.BytesStorageMetadata
    metadata.ChunkStorageMetadata metadata.MetadataIndex metadata.StorageMeta metadata._MEM_FORMAT_ENCODING
    filesystem._StorageInfo filesystem._StoragePrefix filesystem._FileSystemStoragePrefix
"""
_TRAINERS = """
    lightning_fabric.utilities.data.AttributeDict lightning.fabric.utilities.data.AttributeDict
    pytorch_lightning.utilities.parsing.AttributeDict lightning.pytorch.utilities.parsing.AttributeDict
    pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoint
    lightning.pytorch.callbacks.model_checkpoint.ModelCheckpoint
    pytorch_lightning.callbacks.early_stopping.EarlyStopping lightning.pytorch.callbacks.early_stopping.EarlyStopping
    deepspeed.runtime.fp16.loss_scaler.LossScaler deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler
    deepspeed.runtime.zero.config.ZeroStageEnum deepspeed.utils.tensor_fragment.fragment_address
    deepspeed.runtime.config.DeepSpeedConfig
    transformers.training_args.TrainingArguments transformers.training_args_seq2seq.Seq2SeqTrainingArguments
    transformers.training_args.OptimizerNames transformers.training_args.ParallelMode
    transformers.trainer_utils.IntervalStrategy transformers.trainer_utils.SchedulerType
    transformers.trainer_utils.HubStrategy transformers.trainer_utils.SaveStrategy
    transformers.trainer_utils.FSDPOption transformers.trainer_utils.EvaluationStrategy
    transformers.trainer_pt_utils.AcceleratorConfig transformers.integrations.deepspeed.HfDeepSpeedConfig
    transformers.integrations.deepspeed.HfTrainerDeepSpeedConfig
    accelerate.state.PartialState accelerate.utils.dataclasses.DistributedType
    accelerate.utils.dataclasses.DeepSpeedPlugin accelerate.utils.dataclasses.FullyShardedDataParallelPlugin
    omegaconf.dictconfig.DictConfig omegaconf.listconfig.ListConfig omegaconf.base.ContainerMetadata
    omegaconf.base.Metadata omegaconf.nodes.AnyNode omegaconf.nodes.IntegerNode omegaconf.nodes.FloatNode
    omegaconf.nodes.StringNode omegaconf.nodes.BooleanNode typing.Any
"""
# Python 3.11.0 to 3.11.3 (Debian 12 has 3.11.2) pickle a member of an enum as getattr(class, name); of these only.
ENUMS = frozenset(
    """
    torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING deepspeed.runtime.zero.config.ZeroStageEnum
    transformers.training_args.OptimizerNames transformers.training_args.ParallelMode
    transformers.trainer_utils.IntervalStrategy transformers.trainer_utils.SchedulerType
    transformers.trainer_utils.HubStrategy transformers.trainer_utils.SaveStrategy
    transformers.trainer_utils.FSDPOption transformers.trainer_utils.EvaluationStrategy
    accelerate.utils.dataclasses.DistributedType
""".split()
)
# Third-party and torch names that run code by design; everything unlisted of the standard library does so by rule.
_HOSTILE = re.compile(
    r"(numpy\.(testing|f2py|distutils|load|core\.(records|memmap)|_?core\.\w+\.(runstring|exec_command))"
    r"|torch\.(hub|load|jit\.load|serialization\.load|utils\.(cpp_extension|collect_env|bottleneck)|_inductor|_dynamo"
    r"|storage\._load_from_bytes|package|distributed\.rpc)"
    r"|cloudpickle|dill|joblib|nltk|pip|setuptools|pkg_resources|IPython|pandas\.(eval|read_pickle)|os\.|nt\.|posix\.)"
)
_PYTHON_2 = ("__builtin__", "commands", "popen2", "urllib2")


ALLOWED = frozenset(
    [
        *"\n".join(
            [_PYTHON, _TORCH, _TRAINERS, *(_NUMPY.format(core=c) for c in ("numpy.core", "numpy._core"))]
        ).split(),
        *(f"torch.{name}" for name in DTYPES),
        *(f"torch.{device}{name}" for device in ("", "cuda.") for name in TORCH_STORAGES),
        *(f"torch._utils._rebuild_{name}" for name in _TORCH_REBUILD.split()),
        *(f"torch.jit._pickle.{name}" for name in _TORCH_JIT.split()),
        *(f"torch.distributed.checkpoint.{name}" for name in _DCP.split()),
    ]
)


def hostile(name: str) -> bool:
    """True for a name whose call runs code, opens files or reaches the network."""
    root = name.partition(".")[0]
    return root in sys.stdlib_module_names or root in _PYTHON_2 or bool(_HOSTILE.match(name))


def sort_out(names: Iterable[str], script: bool = False) -> tuple[list[str], list[str]]:
    """(hostile, unknown) names. A TorchScript archive (`script`) names its own classes below __torch__."""
    bad = sorted(name for name in names if name not in ALLOWED and not (script and name.startswith("__torch__.")))
    return [name for name in bad if hostile(name)], [name for name in bad if not hostile(name)]


# -- the machine

_GETATTR = ("builtins.getattr", "__builtin__.getattr")
_KEY_DEPTH = 4  # of tuples used as keys: hashing a deep one overflows the C stack


@dataclass(eq=False, slots=True)
class Global:
    module: str
    name: str

    @property
    def dotted(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False, slots=True)
class Call:
    """`function(*arguments)`, then BUILD's `state`, appended `items` and set `pairs`. Never called."""

    function: Any
    arguments: Any
    state: Any = None
    items: list[Any] | None = None
    pairs: dict[Any, Any] | None = None

    @property
    def dotted(self) -> str:
        return self.function.dotted if isinstance(self.function, Global) else ""


@dataclass(eq=False, slots=True)
class Persistent:
    """What torch stores outside of the pickle: ('storage', type, key, location, numel)."""

    id: Any


class Machine:
    """The pickle virtual machine with inert values."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.globals: dict[str, Global] = {}
        self.odd_calls = 0
        self.lookups = 0  # times that getattr came onto the stack for anything but a member of an enum

    def push(self, value: Any) -> None:
        if isinstance(value, Global) and value.dotted in _GETATTR:
            self.lookups += 1
        self.stack.append(value)

    def names(self) -> dict[str, Global]:
        """Every global; not getattr when all that it did was to look up members of enums."""
        return {name: found for name, found in self.globals.items() if self.lookups or name not in _GETATTR}

    def pop(self) -> Any:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise Broken("malformed", "the pickle takes a value from an empty stack")
        return self.stack.pop()

    def top(self) -> Any:
        value = self.pop()
        self.stack.append(value)
        return value

    def to_mark(self) -> list[Any]:
        if not self.marks:
            raise Broken("malformed", "the pickle looks for a mark that was never set")
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def global_(self, module: Any, name: Any) -> Global:
        if not isinstance(module, str) or not isinstance(name, str):
            raise Broken("malformed", "the pickle names a global by something that is not text")
        found = Global(module, name)
        return self.globals.setdefault(found.dotted, found)

    def call(self, function: Any, arguments: Any) -> None:
        """getattr(IntervalStrategy, "NO"), as some Pythons write it, becomes IntervalStrategy("NO")."""
        match function, arguments:
            case Global() as get, (Global() as enum, str(member)) if get.dotted in _GETATTR and enum.dotted in ENUMS:
                if isinstance(arguments, tuple) and member.isidentifier() and not member.startswith("_"):
                    self.lookups -= 1
                    function, arguments = enum, (member,)
            case Global(), _:
                pass
            case _:
                self.odd_calls += 1
        self.push(Call(function, arguments))

    def get(self, index: Any) -> None:
        if index not in self.memo:
            raise Broken("malformed", f"the pickle refers to value {index}, which was never stored")
        self.push(self.memo[index])

    def append(self, values: list[Any]) -> None:
        target = self.top()
        if isinstance(target, list):
            target.extend(values)
        elif isinstance(target, set):
            target.update(hashable(value) for value in values)
        elif isinstance(target, Call):
            target.items = target.items if target.items is not None else []
            target.items.extend(values)
        else:
            raise Broken("malformed", f"the pickle appends to a {type(target).__name__}")

    def set_items(self, values: list[Any]) -> None:
        target = self.top()
        if isinstance(target, Call) and target.pairs is None:
            target.pairs = {}
        pairs = target.pairs if isinstance(target, Call) else target
        if not isinstance(pairs, dict) or len(values) % 2:
            raise Broken("malformed", f"the pickle sets keys of a {type(target).__name__}")
        for key, value in zip(values[::2], values[1::2], strict=True):
            pairs[hashable(key)] = value

    # what opcodes do; `argument` is what stands behind the opcode

    def build(self, argument: Any) -> None:
        state = self.pop()
        target = self.top()
        if isinstance(target, Call):
            target.state = state

    def reduce(self, argument: Any) -> None:
        arguments = self.pop()
        self.call(self.pop(), arguments)

    def new_object_ex(self, argument: Any) -> None:
        keywords = self.pop()
        self.reduce(None)
        self.top().state = keywords

    def old_object(self, argument: Any) -> None:
        values = self.to_mark()
        if not values:
            raise Broken("malformed", "the pickle makes an object of nothing")
        self.call(values[0], tuple(values[1:]))

    def instance(self, argument: str) -> None:
        arguments = tuple(self.to_mark())
        self.push(self.global_(*argument.partition(" ")[::2]))  # push counts what comes onto the stack
        self.call(self.pop(), arguments)

    def stack_global(self, argument: Any) -> None:
        name = self.pop()
        self.push(self.global_(self.pop(), name))

    def new_dict(self, argument: Any) -> None:
        values = self.to_mark()
        self.push({})
        self.set_items(values)

    def remember(self, argument: Any) -> None:
        self.memo[len(self.memo) if argument is None else argument] = self.top()

    def drop(self, argument: Any) -> None:
        """POP also drops a mark, which the stack of the real machine holds as a value."""
        if self.marks and self.marks[-1] == len(self.stack):
            self.marks.pop()
        else:
            self.pop()


def hashable(value: Any, depth: int = _KEY_DEPTH) -> Any:
    """A value that can be hashed without running into the depth of the C stack."""
    if isinstance(value, tuple) and depth:
        for part in value:
            hashable(part, depth - 1)
    elif not isinstance(value, (str, int, float, bytes, type(None), Global, Call, Persistent)):
        raise Broken("malformed", f"the pickle uses a {type(value).__name__} as a key")
    return value


def _pushes(make: Callable[[Machine, Any], Any]) -> Callable[[Machine, Any], None]:
    return lambda machine, argument: machine.push(make(machine, argument))


_LITERALS = (
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8"
    " UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 FLOAT BINFLOAT BYTEARRAY8"
)
ACTIONS: dict[str, Callable[[Machine, Any], Any]] = {
    **dict.fromkeys(_LITERALS.split(), Machine.push),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), Machine.get),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), Machine.remember),
    **dict.fromkeys(("PROTO", "FRAME"), lambda machine, argument: None),
    **dict.fromkeys(("REDUCE", "NEWOBJ"), Machine.reduce),
    **dict.fromkeys(("APPENDS", "ADDITEMS"), lambda machine, _: machine.append(machine.to_mark())),
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_SET": lambda machine, _: machine.push(set()),
    "LIST": _pushes(lambda machine, _: machine.to_mark()),
    "TUPLE": _pushes(lambda machine, _: tuple(machine.to_mark())),
    "FROZENSET": _pushes(lambda machine, _: frozenset(map(hashable, machine.to_mark()))),
    "TUPLE1": _pushes(lambda machine, _: (machine.pop(),)),
    "TUPLE2": _pushes(lambda machine, _: (machine.pop(), machine.pop())[::-1]),
    "TUPLE3": _pushes(lambda machine, _: (machine.pop(), machine.pop(), machine.pop())[::-1]),
    "DICT": Machine.new_dict,
    "APPEND": lambda machine, _: machine.append([machine.pop()]),
    "SETITEM": lambda machine, _: machine.set_items([machine.pop(), machine.pop()][::-1]),
    "SETITEMS": lambda machine, _: machine.set_items(machine.to_mark()),
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "POP": Machine.drop,
    "POP_MARK": lambda machine, _: machine.to_mark(),
    "DUP": _pushes(lambda machine, _: machine.top()),
    "GLOBAL": _pushes(lambda machine, argument: machine.global_(*argument.partition(" ")[::2])),
    "STACK_GLOBAL": Machine.stack_global,
    "NEWOBJ_EX": Machine.new_object_ex,
    "INST": Machine.instance,
    "OBJ": Machine.old_object,
    "BUILD": Machine.build,
    "PERSID": _pushes(lambda machine, argument: Persistent(argument)),
    "BINPERSID": _pushes(lambda machine, _: Persistent(machine.pop())),
}


@dataclass
class Pickle:
    root: Any
    globals: dict[str, Global]
    end: int  # offset behind the STOP
    odd_calls: int  # calls of something that is not a name


def read(cursor: Cursor) -> Pickle:
    """One pickle; the cursor stands behind it afterwards."""
    machine = Machine()
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(cursor)):
            if count > MAX_OPCODES:
                raise Broken("bounds", f"the pickle has more than {MAX_OPCODES} opcodes")
            if opcode.name == "STOP":
                break
            action = ACTIONS.get(opcode.name)
            if action is None:
                raise Broken("refused-global", f"the pickle uses {opcode.name}, which no checkpoint needs")
            action(machine, argument)
        return Pickle(machine.pop(), machine.names(), cursor.tell(), machine.odd_calls)
    except Broken:
        raise
    except (ValueError, OverflowError, RecursionError, MemoryError, IndexError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise Broken(cursor.verdict(), f"not a whole pickle: {reason[:200]}") from None
