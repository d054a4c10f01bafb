"""The reference for coupled networks: each sample's own derivative, the rest of the batch held still."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dudx import errors
from dudx.backend.active_modes import transforms_active
from dudx.backend.differentiable_kernels import differentiable_kernels
from dudx.engines.autodiff import reverse_derivatives
from dudx.engines.autograd_graph import refuse_what_is_hidden
from dudx.engines.interface import Engine, in_common_format
from dudx.engines.request import Request
from dudx.errors import UnsupportedError
from dudx.network import model_checks
from dudx.network.model_checks import Model
from dudx.network.sandbox import untracked_statistics
from dudx.network.vmapped_batches import batches_per_pass, on_each_batch, with_one_replaced


@dataclass(frozen=True)
class PerSampleAD(Engine):
    """Automatic differentiation of output i with respect to input i alone; right for every network, O(B²) work.

    Args:
        method: "vectorised" runs many samples at once with torch.func; "loop" is the plain loop over samples.
        chunk: how many samples are vectorised at once; None chooses it so that about 2¹⁵ rows pass at once.

    Running statistics of batch norm layers are neither used nor updated by the evaluation.

    Example:
        >>> x = torch.rand(10, 1, dtype=torch.float64)
        >>> slope = dudx.evaluate(lambda x: x - x.mean(0), x, dudx.D(0), dudx.PerSampleAD())
        >>> torch.allclose(slope, torch.full_like(slope, 1 - 1 / 10))  # a sample's own share of the mean
        True
    """

    name = "per-sample"
    by_code = True

    coupled = None
    method: str = "vectorised"
    chunk: int | None = None

    def __post_init__(self) -> None:
        errors.one_of(self.method, ("vectorised", "loop"), "method")
        if self.chunk is not None:
            errors.whole_number(self.chunk, "chunk")

    def derivatives(self, model: Model, x: Tensor, request: Request) -> list[Tensor]:
        if transforms_active():
            raise UnsupportedError("PerSampleAD does not work inside of torch.func's transforms; dudx.AD() does.")
        differentiable = torch.is_grad_enabled()
        compute = self._looped if self.method == "loop" else self._vectorised
        with torch.inference_mode(False), torch.enable_grad(), untracked_statistics(model):
            results = compute(model, x, request, differentiable)
        return results if differentiable else [result.detach() for result in results]

    def _looped(self, model: Model, x: Tensor, request: Request, differentiable: bool) -> list[Tensor]:
        pieces, order = [], max(request.orders, default=0)
        for i in range(len(x)):
            own = _own(x[i])
            with differentiable_kernels(tracking=False):
                u = model_checks.forward(model, torch.cat([x[:i], own.unsqueeze(0), x[i + 1 :]]))[i]
            refuse_what_is_hidden(u, order)
            values = reverse_derivatives(u, own, request.at_rows(i), differentiable=differentiable)
            values = values if u.dtype == x.dtype else in_common_format(values, x.dtype, u.dtype)
            pieces.append(values if differentiable else [value.detach() for value in values])
        return [torch.stack(column) for column in zip(*pieces, strict=True)]

    def _vectorised(self, model: Model, x: Tensor, request: Request, differentiable: bool) -> list[Tensor]:
        pieces, order = [], max(request.orders, default=0)
        numbers = torch.arange(len(x), device=x.device)
        chunk = self.chunk or batches_per_pass(len(x))
        for start in range(0, len(x), chunk):
            rows = slice(start, start + chunk)
            own = _own(x[rows])
            with differentiable_kernels(tracking=False):
                outputs = on_each_batch(model, with_one_replaced(x, own, numbers[rows]))
            u = outputs[numbers[: len(own)], numbers[rows]]
            refuse_what_is_hidden(u, order)
            values = reverse_derivatives(u, own, request.at_rows(rows), differentiable=differentiable)
            values = values if u.dtype == x.dtype else in_common_format(values, x.dtype, u.dtype)
            pieces.append(values if differentiable else [value.detach() for value in values])
        return [torch.cat(column) for column in zip(*pieces, strict=True)]


def _own(x: Tensor) -> Tensor:
    """A copy to differentiate with respect to."""
    return x.clone() if x.requires_grad else x.detach().clone().requires_grad_(True)
