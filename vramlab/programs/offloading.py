"""Keep on the host what a GPU does not need all the time: activations, optimizer, parameters.

    SavedOnHost      what autograd saves for backward, each tensor once, and no parameters
    HostOptimizer    gradients go to the host, the optimizer works there, parameters come back
    StreamedLayers   parameters live on the host; each layer's come when it is their turn

Plain PyTorch throughout, small enough to read: what the large libraries do besides (buckets,
partitions, vectorised CPU kernels, files on NVMe) is left out.

Sources: ZeRO-Offload, arXiv 2101.06840; ZeRO-Infinity, arXiv 2104.07857.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import checkpoint

from vramlab.gpu.torch_internals import version_of


class SavedOnHost(saved_tensors_hooks):
    """Keep what autograd saves for backward on the host, where that frees something.

    `torch.autograd.graph.save_on_cpu` moves every saved tensor: parameters, which stay on the GPU
    anyway, and a tensor that two ops save (ReLU its output, the next layer its input) twice. This
    one moves each tensor once, brings it back once, and leaves parameters where they are.

    Args:
        parameters: tensors that are left where they are, such as `model.parameters()`.
        smallest_bytes: smaller tensors are left, too: a copy has a cost of its own.
        pin_memory: use pinned memory on the host, and do not wait for the copies.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor] = (),
        *,
        smallest_bytes: int = 0,
        pin_memory: bool = False,
    ) -> None:
        kept = {parameter.untyped_storage().data_ptr() for parameter in parameters}
        copies: WeakValueDictionary[object, _HostCopy] = WeakValueDictionary()

        def pack(tensor: Tensor) -> Tensor | _HostCopy:
            storage = tensor.untyped_storage()
            stays = not tensor.is_cuda or tensor.nbytes < smallest_bytes
            if stays or storage.data_ptr() in kept:
                return tensor.detach()  # itself, if it is an op's output, would keep its own graph
            reference = StorageWeakRef(storage)
            key = (
                reference.cdata,
                tensor.storage_offset(),
                tensor.size(),
                tensor.stride(),
                tensor.dtype,
                version_of(tensor),
            )
            copy = copies.get(key)
            if copy is None:
                copy = _HostCopy(reference, tensor.device, _copy_to_host(tensor, pin_memory))
                copies[key] = copy
            copy.users += 1
            return copy

        def unpack(packed: Tensor | _HostCopy) -> Tensor:
            return packed.on_gpu() if isinstance(packed, _HostCopy) else packed

        super().__init__(pack, unpack)


@dataclass(eq=False)
class _HostCopy:
    """A saved tensor on the host, for all ops that saved it."""

    storage: StorageWeakRef
    """Of the original; as long as this is held, no other storage has its address."""
    device: torch.device
    on_host: Tensor
    users: int = 0
    fetched: Tensor | None = None

    def on_gpu(self) -> Tensor:
        """Return the tensor on the GPU again; it stays there until its last user has asked."""
        tensor = self.fetched
        if tensor is None:
            tensor = self.on_host.to(self.device, non_blocking=self.on_host.is_pinned())
        self.users -= 1
        self.fetched = tensor if self.users > 0 else None
        return tensor


def _copy_to_host(tensor: Tensor, pin_memory: bool) -> Tensor:
    if not pin_memory:
        return tensor.cpu()
    on_host = torch.empty(tensor.size(), dtype=tensor.dtype, pin_memory=True)
    return on_host.copy_(tensor, non_blocking=True)


class HostOptimizer:
    """An optimizer whose parameters, gradients and states in float32 are on the host.

    ZeRO-Offload's division of work: the GPU has the parameters in half precision, and computes
    gradients; each gradient goes to the host, the optimizer updates its float32 copy of the
    parameters there, and they come back, rounded to half precision. In 16-bit formats that is 2 B
    per parameter each way.

    Args:
        parameters: on the GPU.
        make: makes the optimizer, from float32 parameters on the host.
        as_they_come: send each gradient to the host, and free it, as soon as backward has made it;
            otherwise all of them wait on the GPU for `step()`.
        pin_memory: use pinned memory on the host, and do not wait for the copies.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
        *,
        as_they_come: bool = True,
        pin_memory: bool = False,
    ) -> None:
        self._pin_memory = pin_memory
        self._on_gpu = list(parameters)
        self.masters = [nn.Parameter(p.detach().cpu().float()) for p in self._on_gpu]
        self._landing = [
            torch.empty(p.size(), dtype=p.dtype, pin_memory=pin_memory) for p in self._on_gpu
        ]
        self._arrived: set[int] = set()
        self.optimizer = make(self.masters)
        if as_they_come:
            for index, parameter in enumerate(self._on_gpu):
                parameter.register_post_accumulate_grad_hook(lambda _, at=index: self._send(at))

    def step(self) -> None:
        """Update the parameters with the gradients that there are."""
        for index in range(len(self._on_gpu)):
            self._send(index)
        for index in list(self._arrived):
            self._receive(index)
        self.optimizer.step()
        self.optimizer.zero_grad()
        with torch.no_grad():
            for parameter, master, landing in zip(
                self._on_gpu, self.masters, self._landing, strict=True
            ):
                landing.copy_(master)  # rounded on the host, so that 2 B cross and not 4
                parameter.copy_(landing, non_blocking=self._pin_memory)

    def zero_grad(self) -> None:
        """Free gradients that were not used; `step()` frees those that were."""
        for index, parameter in enumerate(self._on_gpu):
            self._receive(index)
            parameter.grad = None
        self.optimizer.zero_grad()

    def _send(self, index: int) -> None:
        """Start a gradient's way to the host, and let go of it on the GPU."""
        parameter = self._on_gpu[index]
        if parameter.grad is None:
            return
        self._receive(index)  # of the micro-batch before
        self._landing[index].copy_(parameter.grad, non_blocking=self._pin_memory)
        self._arrived.add(index)
        parameter.grad = None

    def _receive(self, index: int) -> None:
        """Add what has landed to the gradient in float32."""
        if index not in self._arrived:
            return
        if self._pin_memory:
            torch.cuda.current_stream().synchronize()
        master, gradient = self.masters[index], self._landing[index].float()
        master.grad = gradient if master.grad is None else master.grad.add_(gradient)
        self._arrived.remove(index)


class StreamedLayers(nn.Module):
    """Layers whose parameters are on the host, and visit the GPU one layer at a time.

    Forward brings a layer's parameters, runs it, and frees them. Backward brings them again,
    recomputes the layer (checkpointing), and sends its gradients to the host, where an optimizer
    works on them as usual. The GPU holds the layers' inputs, and one layer; with `prefetch` two,
    because the next one's parameters travel on a stream of their own meanwhile.

    Args:
        layers: from one tensor to one tensor, on the host; pin their parameters for `prefetch`.
        prefetch: fetch the next layer's parameters while this one computes.
    """

    def __init__(self, layers: Iterable[nn.Module], *, prefetch: bool = True) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self._prefetch = prefetch
        self._stream: torch.cuda.Stream | None = None
        self._fetched: dict[int, dict[str, Tensor]] = {}
        self._direction = 1

    def forward(self, x: Tensor) -> Tensor:
        """Run all layers on `x`, which is on the GPU."""
        if self._prefetch and self._stream is None:
            self._stream = torch.cuda.Stream(x.device)
        self._direction = 1
        self._fetched.clear()
        for index in range(len(self.layers)):
            x = cast(Tensor, checkpoint(self._run, index, x, use_reentrant=False))
        self._direction = -1  # whatever runs from now on is backward's
        return x

    def _run(self, index: int, x: Tensor) -> Tensor:
        parameters = self._fetched.pop(index, None)
        if parameters is None:
            parameters = self._fetch(index, x.device)
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
            for parameter in parameters.values():
                parameter.record_stream(torch.cuda.current_stream())
            following = index + self._direction
            if 0 <= following < len(self.layers):
                self._fetched[following] = self._fetch(following, x.device)
        layer = self.layers[index]
        visiting = {
            name: _Visit.apply(parameter, parameters[name])  # type: ignore[no-untyped-call]
            for name, parameter in layer.named_parameters()
        }
        return cast(Tensor, torch.func.functional_call(layer, visiting, (x,)))

    def _fetch(self, index: int, device: torch.device) -> dict[str, Tensor]:
        """Return copies of a layer's parameters on the GPU, which autograd does not see."""
        with torch.no_grad(), torch.cuda.stream(self._stream):
            return {
                name: parameter.to(device, non_blocking=True)
                for name, parameter in self.layers[index].named_parameters()
            }


class _Visit(torch.autograd.Function):
    """Takes a parameter's copy on the GPU for the parameter, and sends its gradient home.

    A copy by autograd would do the same, but a layer that was fetched ahead would send its
    gradients late: autograd runs backward what was made last first, and holds them until then.
    """

    @staticmethod
    def forward(ctx: Any, parameter: Tensor, fetched: Tensor) -> Tensor:
        ctx.parameter = parameter
        return fetched

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return torch.empty_like(ctx.parameter).copy_(gradient), None
