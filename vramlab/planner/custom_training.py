"""The training program of a plan for a custom model: what one rank runs, in plain PyTorch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vramlab.gpu.stand_ins.libraries import torchvision
from vramlab.planner.custom import CustomModel, Input, UnusableModel
from vramlab.planner.layers import keep, layer_lists
from vramlab.planner.program import Training, give_memory


@torchvision.loading()
def make_model(custom: CustomModel) -> nn.Module:
    """Make a custom model with the layers that are kept, without memory if it can be.

    A model whose making needs values is made on the host.

    Raises:
        UnusableModel: what makes it fails, or returns no module.
    """
    try:
        with torch.device("meta"):
            model = custom.factory()
    except (RuntimeError, NotImplementedError):  # it asks for values, which meta tensors lack
        model = _made_on_host(custom)
    except Exception as error:
        raise _not_made(custom, error) from error
    if not isinstance(model, nn.Module):
        raise UnusableModel(
            f"{custom.name} returned a {type(model).__name__}; it must return a torch.nn.Module"
        )
    keep(model, custom.kept)
    return model.train()


def _made_on_host(custom: CustomModel) -> Any:
    try:
        return custom.factory()
    except Exception as error:
        raise _not_made(custom, error) from error


def _not_made(custom: CustomModel, error: Exception) -> UnusableModel:
    return UnusableModel(
        f"{custom.name} failed to create the model: {type(error).__name__}: {error}"
    )


class CustomTraining(Training):
    """One rank's custom model, optimizer and batch, ready for steps."""

    # ---- The model ----

    def _make_model(self) -> Any:
        plan, dtypes = self.plan, self.plan.run.dtypes
        model = make_model(plan.custom)
        if not (self._is_sharded and dtypes.master):
            model.to(getattr(torch, dtypes.weights))
        layers = [
            layer
            for found in layer_lists(model, fewest=0)
            for layer in model.get_submodule(found.path).children()
        ]
        if plan.checkpointing == "full":
            _checkpoint(model, layers)
        if self._mesh is not None and self._is_sharded:
            from vramlab.planner.sharing import shard

            shard(model, layers, self._mesh["data"], plan)
        give_memory(model, "cpu" if self._is_sharded and plan.optimizer_on_host else "cuda")
        return model

    # ---- Steps ----

    def _make_inputs(self) -> dict[str, Tensor]:
        plan, custom = self.plan, self.plan.custom
        share = plan.batch // plan.data
        named = {_key(number, each): each for number, each in enumerate(custom.inputs)}
        if custom.target is not None:
            named[_TARGET] = custom.target
        return {
            name: torch.zeros(each.shape(share, plan.sequence), dtype=self._dtype_of(each)).cuda()
            for name, each in named.items()
        }

    def _dtype_of(self, given: Input) -> torch.dtype:
        """Return the dtype of an input: a model in 16 bit takes no numbers in 32."""
        dtype: torch.dtype = getattr(torch, given.dtype)
        weights: torch.dtype = getattr(torch, self.plan.run.dtypes.weights)
        return weights if dtype == torch.float32 else dtype

    def _parts(self) -> Iterable[dict[str, Tensor]]:
        plan, custom = self.plan, self.plan.custom
        divided = {_key(number, each): each.is_divided for number, each in enumerate(custom.inputs)}
        divided[_TARGET] = custom.target is not None and custom.target.is_divided
        for number in range(self.micro_batches):
            begin = number * plan.at_a_time
            yield {
                name: tensor[begin : begin + plan.at_a_time] if divided[name] else tensor
                for name, tensor in self.inputs.items()
            }

    def _loss(self, inputs: dict[str, Tensor]) -> Tensor:
        custom = self.plan.custom
        given = [(each.name, inputs[_key(n, each)]) for n, each in enumerate(custom.inputs)]
        output = self._callable(
            *(tensor for name, tensor in given if not name),
            **{name: tensor for name, tensor in given if name},
        )
        if custom.loss is not None:
            target = () if custom.target is None else (inputs[_TARGET],)
            output = custom.loss(output, *target)
        return loss_in(output, custom.name)


_TARGET = "target of the loss"


def _key(number: int, given: Input) -> str:
    return given.name or f"input {number}"


def loss_in(output: Any, name: str) -> Tensor:
    """Return the loss in what a model or a loss returned: a scalar, or `.loss`, or the first item.

    Raises:
        UnusableModel: there is none.
    """
    found = output
    if isinstance(output, dict) and "loss" in output:
        found = output["loss"]
    elif getattr(output, "loss", None) is not None:
        found = output.loss
    elif isinstance(output, (tuple, list)) and output:
        found = output[0]
    if isinstance(found, Tensor) and found.numel() == 1 and found.requires_grad:
        return found
    what = type(output).__name__
    if isinstance(found, Tensor):
        what = f"a tensor of shape {tuple(found.shape)}"
    raise UnusableModel(
        f"{name} returns {what}, and no loss: let it return its loss, or say with --loss and "
        "--target how it is computed, such as --loss cross_entropy --target 'int64[B]'"
    )


def count_parameters(custom: CustomModel) -> int:
    """Return how many numbers the parameters of a custom model are; shared ones count once."""
    return sum(parameter.numel() for parameter in make_model(custom).parameters())


def _checkpoint(model: Any, layers: list[nn.Module]) -> None:
    """Recompute every layer in the backward pass; a model of transformers does so itself."""
    if getattr(model, "supports_gradient_checkpointing", False):
        enable = getattr(model, "activation_checkpointing_enable", None)  # since transformers 5
        (enable or model.gradient_checkpointing_enable)()
        return
    for layer in layers:
        forward = layer.forward

        def recomputed(*given: Any, _forward: Any = forward, **named: Any) -> Any:
            return checkpoint(_forward, *given, use_reentrant=False, **named)

        layer.forward = recomputed
