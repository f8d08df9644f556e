"""A copy of a state that training cannot change any more, and the thread that writes it."""

from __future__ import annotations

import copy
import ctypes
import sys
import threading
from collections.abc import Callable
from typing import Any


class Snapshot:
    """Copies into memory of its own and uses it again the next time: fresh pages cost more than the copy."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[Any, ...], Any] = {}

    def take(self, state: Any) -> Any:
        import torch

        used: dict[tuple[Any, ...], Any] = {}
        with torch.no_grad():
            taken = self._copy(state, (), used, {})
        if any(buffer.is_pinned() for buffer in used.values()):
            torch.cuda.synchronize()  # the copies to pinned memory were only queued
        self._buffers = used  # what is no longer part of the state is given back
        return taken

    def _copy(self, value: Any, where: tuple[Any, ...], used: dict[Any, Any], seen: dict[Any, Any]) -> Any:
        import torch

        if isinstance(value, torch.Tensor):
            return self._tensor(value, where, used, seen)
        if isinstance(value, dict):
            return {key: self._copy(each, (*where, key), used, seen) for key, each in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._copy(each, (*where, n), used, seen) for n, each in enumerate(value))
        return copy.deepcopy(value)

    def _tensor(self, tensor: Any, where: tuple[Any, ...], used: dict[Any, Any], seen: dict[Any, Any]) -> Any:
        """Tied weights stay tied: the same tensor under two names is copied once, and saved once."""
        import torch

        if tensor.layout is not torch.strided or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            return tensor.detach().cpu().clone()
        storage = tensor.untyped_storage()
        same = (storage._cdata, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        if same not in seen:
            key = (*where, tensor.shape, tensor.stride(), tensor.dtype)
            buffer = self._buffers.get(key)
            if buffer is None:
                buffer = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda, requires_grad=False)
            _fill(buffer, tensor.detach())
            seen[same] = used[key] = buffer
        return seen[same]


def _fill(buffer: Any, tensor: Any) -> None:
    """Host memory by memmove: the threads of copy_ wait for each other, three times as long on a busy machine."""
    plain = tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
    if plain and tensor.nbytes:
        ctypes.memmove(buffer.data_ptr(), tensor.data_ptr(), tensor.nbytes)
    else:
        buffer.copy_(tensor, non_blocking=tensor.is_cuda)


class Background:
    """At most one piece of work at a time; what went wrong is raised at the next call."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._problem: BaseException | None = None

    def start(self, work: Callable[[], Any]) -> None:
        self.wait()
        self._thread = threading.Thread(target=self._run, args=(work,), name="checkpoint-save")
        self._thread.start()  # not a daemon: the interpreter waits for it before it ends

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            work()
        except BaseException as problem:
            self._problem = problem
            print(f"the save in the background failed: {problem}", file=sys.stderr, flush=True)

    def wait(self) -> None:
        if self._thread:
            self._thread.join()
            self._thread = None
        problem, self._problem = self._problem, None
        if problem:
            raise problem
