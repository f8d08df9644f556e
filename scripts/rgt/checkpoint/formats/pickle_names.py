"""Which names a checkpoint's pickle may mention, and what it may do with them. Nothing here is ever imported.

Three kinds, all others are strangers: ALLOWED may be called, as far as `call_fault` has nothing against the arguments;
classes of LIBRARIES may be made without a constructor (NEWOBJ) and filled, as pickle does it, and be values; HOSTILE
names run code, open files or reach the network.
"""

from __future__ import annotations

import math
import re
import sys
from typing import Any

from rgt.checkpoint.layout import DTYPES, TORCH_STORAGES

_SCALARS = "int long float complex bool str unicode slice range xrange".split()
_CONTAINERS = "list tuple dict set frozenset".split()
_BUILTINS = [*_SCALARS, *_CONTAINERS, "bytes", "bytearray", "object"]
_PYTHON = """
    collections.OrderedDict collections.defaultdict collections.Counter collections.deque
    _codecs.encode copyreg._reconstructor copy_reg._reconstructor copyreg.__newobj__
    argparse.Namespace types.SimpleNamespace datetime.datetime datetime.date datetime.time datetime.timedelta
    datetime.timezone pathlib.Path pathlib.PosixPath pathlib.WindowsPath pathlib.PurePath pathlib.PurePosixPath
    pathlib.PureWindowsPath pathlib._local.PosixPath pathlib._local.WindowsPath decimal.Decimal fractions.Fraction
    uuid.UUID ipaddress.IPv4Address ipaddress.IPv6Address logging.Logger zoneinfo.ZoneInfo._unpickle
"""
_NUMPY = """
    numpy.ndarray numpy.dtype numpy.ma.core._mareconstruct numpy.ma.core.MaskedArray numpy.dtypes.StringDType
    {core}.multiarray._reconstruct {core}.multiarray.scalar {core}.numeric._frombuffer
    numpy.random._pickle.__randomstate_ctor numpy.random._pickle.__generator_ctor
    numpy.random._pickle.__bit_generator_ctor numpy.random.bit_generator.__pyx_unpickle_SeedSequence
    numpy.random.bit_generator.SeedSequence
"""
_NUMPY_SCALARS = """
    bool_ bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 longdouble complex64 complex128
    str_ bytes_ object_ datetime64 timedelta64 intc uintc longlong ulonglong
"""
_BIT_GENERATORS = "_mt19937.MT19937 _pcg64.PCG64 _pcg64.PCG64DXSM _philox.Philox _sfc64.SFC64"
_TORCH = """
    torch.Size torch.Tensor torch.device torch.nn.parameter.Parameter torch.nn.parameter.Buffer
    torch.nn.parameter.UninitializedParameter torch._utils._set_obj_state torch._C._LinAlgBackend
    torch.storage.TypedStorage torch.storage.UntypedStorage torch.storage._load_from_bytes
    torch.serialization._get_layout torch._tensor._rebuild_from_type_v2 torch.torch_version.TorchVersion
    torch.preserve_format torch.contiguous_format torch.channels_last torch.channels_last_3d torch.strided
    torch.sparse_coo torch.Generator torch._C.Generator torch._C._distributed_c10d.ReduceOp
    torch._C._distributed_c10d.ReduceOp.RedOpType torch.distributed.distributed_c10d.ReduceOp
    torch.cuda.amp.grad_scaler._refresh_per_optimizer_state torch.amp.grad_scaler._refresh_per_optimizer_state
    torch.nested._internal.nested_tensor._rebuild_njt torch.nested._internal.nested_tensor.NestedTensor
    torch._dynamo.decorators._DimRange sklearn.tree._tree.Tree torch.jit._pickle.build_intlist
    torch.jit._pickle.build_tensorlist
    torch.jit._pickle.build_doublelist torch.jit._pickle.build_boollist torch.jit._pickle.restore_type_tag
    torch.jit._pickle.build_tensor_from_id torch.ops.quantized.linear_unpack
"""
_QSCHEMES = "per_tensor_affine per_channel_affine per_tensor_symmetric per_channel_symmetric"
_QSCHEMES += " per_channel_affine_float_qparams"
_REBUILD = """
    tensor tensor_v2 tensor_v3 parameter parameter_with_state qtensor sparse_tensor sparse_csr_tensor nested_tensor
    meta_tensor_no_storage device_tensor_from_numpy device_tensor_from_cpu_tensor wrapper_subclass xla_tensor
"""
REBUILDERS = frozenset(f"torch._utils._rebuild_{name}" for name in _REBUILD.split())
# Members of enums are made by a call with one word or number; of these only.
ENUMS = frozenset(
    """
    torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING deepspeed.runtime.zero.config.ZeroStageEnum
    deepspeed.runtime.zero.offload_config.OffloadDeviceEnum torch.amp.grad_scaler.OptState
    torch.cuda.amp.grad_scaler.OptState torch.distributed.fsdp.api.ShardingStrategy
    torch.distributed.fsdp.api.StateDictType torch.distributed.fsdp.api.BackwardPrefetch
    torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING megatron.core.enums.ModelType
    torch.distributed._tensor.placement_types.Placement
    megatron.core.transformer.enums.AttnBackend megatron.core.transformer.enums.AttnMaskType
    transformers.training_args.OptimizerNames transformers.training_args.ParallelMode
    transformers.trainer_utils.IntervalStrategy transformers.trainer_utils.SchedulerType
    transformers.trainer_utils.HubStrategy transformers.trainer_utils.SaveStrategy
    transformers.trainer_utils.FSDPOption transformers.trainer_utils.EvaluationStrategy
    transformers.debug_utils.DebugOption transformers.utils.generic.ExplicitEnum
    accelerate.utils.dataclasses.DistributedType accelerate.utils.dataclasses.PrecisionType
    accelerate.utils.dataclasses.SageMakerDistributedType accelerate.utils.dataclasses.DynamoBackend
    lightning.pytorch.trainer.states.RunningStage lightning.pytorch.trainer.states.TrainerFn
    pytorch_lightning.trainer.states.RunningStage pytorch_lightning.trainer.states.TrainerFn
    peft.utils.peft_types.PeftType peft.utils.peft_types.TaskType pyannote.audio.core.task.Problem
    pyannote.audio.core.task.Resolution torchao.quantization.quant_primitives.MappingType
    torchao.quantization.quantize_.common.kernel_preference.KernelPreference
""".split()
)
# Public libraries whose classes checkpoints hold. Not their functions: only what pickle makes without a constructor.
LIBRARIES = tuple(
    """
    joblib.numpy_pickle.NumpyArrayWrapper
    transformers. accelerate. lightning. lightning_fabric. pytorch_lightning. lightning_utilities. torchmetrics.
    omegaconf. hydra. peft. diffusers. timm. deepspeed. megatron. torchvision. torchaudio. speechbrain. nemo.
    litgpt. fairseq. fairseq2. espnet. espnet2. yacs. easydict. addict. mmengine. mmcv. ultralytics. sklearn. scipy.
    tokenizers. sentencepiece. torch.nn. torch.optim. torch.distributed. torch.utils.data. torch.ao.
    torch.quantization. torch.amp. torch.cuda.amp. torch.fx. xformers. flash_attn. apex. bitsandbytes. jax. jaxlib.
    flax. optax. orbax. ml_dtypes. keras. torch_geometric. datasets. sentence_transformers. open_clip. detectron2.
    torchao. monai. segmentation_models_pytorch. pyannote. whisper. spacy. thinc. gensim. xgboost. lightgbm. catboost.
    einops. kornia. efficientnet_pytorch. dgl. tianshou. stable_baselines3. gymnasium. gym. attr. pydantic. pandas.
    """.split()
)
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
_JAGGED = "torch.nested._internal.nested_tensor._rebuild_njt"
_PYTHON_2 = ("__builtin__", "commands", "popen2", "urllib2", "exceptions")
_FACTORIES = frozenset(
    [f"{where}.{name}" for where in ("builtins", "__builtin__") for name in _BUILTINS]
    + ["collections.OrderedDict", "collections.Counter", "collections.deque", "collections.defaultdict"]
)
_UNROLLING = frozenset(
    [f"{where}.{name}" for where in ("builtins", "__builtin__") for name in _CONTAINERS]
    + ["collections.OrderedDict", "collections.Counter", "collections.deque"]
)
_SIZED = frozenset(
    [f"{where}.{name}" for where in ("builtins", "__builtin__") for name in ("bytes", "bytearray")]
    + ["torch.Tensor", "torch.storage.TypedStorage", "torch.storage.UntypedStorage", "numpy.ndarray"]
    + [f"numpy{core}.multiarray._reconstruct" for core in (".core", "._core")]
)
RECONSTRUCTORS = ("copyreg._reconstructor", "copy_reg._reconstructor", "copyreg.__newobj__")
_ROOM, _RANK = 1 << 20, 65  # values that a constructor may ask for: an empty one asks for none
GETATTR = ("builtins.getattr", "__builtin__.getattr")

ALLOWED = frozenset(
    [
        *"\n".join([_PYTHON, _TORCH, *(_NUMPY.format(core=core) for core in ("numpy.core", "numpy._core"))]).split(),
        *(f"{where}.{name}" for where in ("builtins", "__builtin__") for name in _BUILTINS),
        *(f"numpy.{name}" for name in _NUMPY_SCALARS.split()),
        *(f"numpy.random.{name}" for name in _BIT_GENERATORS.split()),
        *(f"torch.{name}" for name in (*DTYPES, *_QSCHEMES.split())),
        *(f"torch.{device}{name}" for device in ("", "cuda.") for name in TORCH_STORAGES),
        *REBUILDERS,
    ]
)


def is_hostile(name: str) -> bool:
    """True for a name whose call runs code, opens files or reaches the network."""
    root = name.partition(".")[0]
    known = root in sys.stdlib_module_names and not name.startswith(_HARMLESS)
    return known or root in _PYTHON_2 or bool(_HOSTILE.match(name))


def is_known(name: str, called: bool, script: bool) -> bool:
    """Whether the name may be there as it is used. `script`: a TorchScript archive names its own classes."""
    if name in ALLOWED or name in ENUMS or (script and name.startswith("__torch__.")):
        return True
    if is_hostile(name) or (called and not _MAKERS.fullmatch(name)):
        return False
    return name.startswith((*LIBRARIES, "numpy.", "torch.", "typing."))


def call_fault(name: str, arguments: tuple[Any, ...], names: list[str | None]) -> str | None:
    """What is wrong with calling a known name so. `names`: of each argument; "" for what is neither global nor None."""
    fault = None
    if name in _SIZED and _values(arguments) > _ROOM:
        fault = f"asks {name} for {_values(arguments)} values"
    elif name in _UNROLLING and not all(isinstance(part, (list, tuple, dict, int)) for part in arguments[:1]):
        fault = f"lets {name} unroll something that it computed"
    elif name in ENUMS and not (len(arguments) == 1 and isinstance(arguments[0], (str, int))):
        fault = f"calls {name} with more than the name or the number of a member"
    elif name.endswith(".defaultdict"):
        allowed, callables = {*_FACTORIES, None}, names[:1]
    elif name == "torch._tensor._rebuild_from_type_v2":
        allowed, callables = {*REBUILDERS, _JAGGED}, names[:1]
    elif name == "jax._src.array._reconstruct_array":
        allowed, callables = {f"numpy.{core}.multiarray._reconstruct" for core in ("core", "_core")}, names[:1]
    elif name.startswith("numpy.random._pickle"):
        allowed = {name for name in ALLOWED if name.startswith("numpy.random.")}
        callables = [other for other in names if other]
    else:
        return None
    if fault is None:
        wrong = [other for other in callables if other not in allowed]
        fault = f"lets {name} call {wrong[0] or 'a value that it computed itself'}" if wrong else None
    return fault


def _values(arguments: tuple[Any, ...]) -> int:
    """The largest number of values that these arguments may ask for: bytearray(n), Tensor(n, m), ndarray((n, m))."""
    shapes = [part for part in (arguments, *arguments) if isinstance(part, (tuple, list)) and len(part) < _RANK]
    return max((abs(math.prod(n for n in shape if isinstance(n, int))) for shape in shapes if shape), default=0)
