"""The reference for coupled networks: each sample's own derivative, the rest of the batch held still."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

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
from dudx.network.function_monitor import ACTIVE_MONITOR
from dudx.network.model_checks import Model
from dudx.network.sandbox import output_of, sandboxed, untracked_statistics
from dudx.network.vmapped_batches import batches_per_pass, on_each_batch, with_one_replaced

Method = Literal["vectorised", "loop"]

#: Rows at which both methods are compared at the first use; at most that many where the network takes its whole batch.
_COMPARED, _MOST_COMPARED = 4, 64


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
    method: Method = "vectorised"
    chunk: int | None = None

    def __post_init__(self) -> None:
        errors.one_of(self.method, Method, "method")
        if self.chunk is not None:
            errors.whole_number(self.chunk, "chunk")

    def derivatives(self, model: Model, x: Tensor, request: Request) -> list[Tensor]:
        if transforms_active():
            raise UnsupportedError("PerSampleAD does not work inside of torch.func's transforms; dudx.AD() does.")
        if self.method == "vectorised" and ACTIVE_MONITOR.get() is not None:
            self._refuse_if_mapped_differently(model, x, request)
        return self._computed(model, x, request)

    def _computed(self, model: Model, x: Tensor, request: Request) -> list[Tensor]:
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

    def _refuse_if_mapped_differently(self, model: Model, x: Tensor, request: Request) -> None:
        """Refuse a network that is another one inside of torch.func.vmap, where tensors seem to need no gradient."""
        most = _COMPARED if _runs(model, x[:_COMPARED]) else len(x)
        if not request.orders or most > _MOST_COMPARED:
            return
        rows, some = x[:most].detach(), request.at_rows(slice(most))
        with torch.no_grad(), sandboxed(model) as numbers:
            plain = replace(self, method="loop")._computed(model, rows, some)
            numbers.restart()
            mapped = self._computed(model, rows, some)
        coarser = numbers.coarser_than(x.dtype)  # under autocast both are rounded, each in its own order
        eps = torch.finfo(x.dtype).eps ** 0.5 if coarser is None else torch.finfo(coarser).eps ** 0.25
        for ours, true in zip(mapped, plain, strict=True):
            tolerance = eps * true.nan_to_num(0, 0, 0).abs().amax()
            if not numbers.drawn and bool(((ours - true).abs() > tolerance).any()):
                raise UnsupportedError(
                    "This network has another derivative inside of torch.func.vmap, as one that asks for "
                    "`requires_grad` or registers hooks has; use dudx.PerSampleAD(method='loop')."
                )

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


def _runs(model: Model, rows: Tensor) -> bool:
    """Return True if the network takes these rows as a batch."""
    try:
        output_of(model, rows.detach())
    except Exception:
        return False
    return True
