"""Which names a checkpoint's pickle may mention. The list is closed: what is not here is refused, by name.

Nothing here is ever imported. A name is on the list when loading a file that calls it for real does no harm.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

from artifacts.dtypes import DTYPES, TORCH_STORAGES

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


def _names() -> frozenset[str]:
    listed = "\n".join([_PYTHON, _TORCH, _TRAINERS, *(_NUMPY.format(core=c) for c in ("numpy.core", "numpy._core"))])
    storages = [f"torch.{device}{name}" for device in ("", "cuda.") for name in TORCH_STORAGES]
    return frozenset([
        *listed.split(),
        *(f"torch.{name}" for name in DTYPES),
        *storages,
        *(f"torch._utils._rebuild_{name}" for name in _TORCH_REBUILD.split()),
        *(f"torch.jit._pickle.{name}" for name in _TORCH_JIT.split()),
        *(f"torch.distributed.checkpoint.{name}" for name in _DCP.split()),
    ])  # fmt: skip


ALLOWED = _names()


def hostile(name: str) -> bool:
    """True for a name whose call runs code, opens files or reaches the network."""
    root = name.partition(".")[0]
    return root in sys.stdlib_module_names or root in _PYTHON_2 or bool(_HOSTILE.match(name))


def sort_out(names: Iterable[str], script: bool = False) -> tuple[list[str], list[str]]:
    """(hostile, unknown) names. A TorchScript archive (`script`) names its own classes below __torch__."""
    bad = sorted(name for name in names if name not in ALLOWED and not (script and name.startswith("__torch__.")))
    return [name for name in bad if hostile(name)], [name for name in bad if not hostile(name)]
