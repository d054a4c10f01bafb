"""The reference for coupled networks: each sample's own derivative, the rest of the batch held still."""

from __future__ import annotations

from collections.abc import Iterator
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
        with torch.inference_mode(False), torch.enable_grad(), untracked_statistics(model):
            pieces = []
            for rows, own, u in self._looped(model, x) if self.method == "loop" else self._vectorised(model, x):
                refuse_what_is_hidden(u, max(request.orders, default=0))
                values = reverse_derivatives(u, own, request.at_rows(rows), differentiable=differentiable)
                values = values if u.dtype == x.dtype else in_common_format(values, x.dtype, u.dtype)
                pieces.append(values if differentiable else [value.detach() for value in values])
            results = [torch.cat(column) for column in zip(*pieces, strict=True)]
        return results if differentiable else [result.detach() for result in results]

    def _looped(self, model: Model, x: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Samples one by one: their rows, copies to differentiate with respect to, and the outputs."""
        for i in range(len(x)):
            own = _own(x[i : i + 1])
            with differentiable_kernels(tracking=False):
                u = model_checks.forward(model, torch.cat([x[:i], own, x[i + 1 :]]))[i : i + 1]
            yield slice(i, i + 1), own, u

    def _vectorised(self, model: Model, x: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Many samples at once."""
        numbers = torch.arange(len(x), device=x.device)
        chunk = self.chunk or batches_per_pass(len(x))
        for start in range(0, len(x), chunk):
            rows = slice(start, start + chunk)
            own = _own(x[rows])
            with differentiable_kernels(tracking=False):
                outputs = on_each_batch(model, with_one_replaced(x, own, numbers[rows]))
            yield rows, own, outputs[numbers[: len(own)], numbers[rows]]


def _own(x: Tensor) -> Tensor:
    """A copy to differentiate with respect to."""
    return x.clone() if x.requires_grad else x.detach().clone().requires_grad_(True)
