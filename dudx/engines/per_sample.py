"""The reference for coupled networks: each sample's own derivative, the rest of the batch held still."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dudx import checks
from dudx.checks import Model
from dudx.engines.autodiff import reverse_derivatives
from dudx.engines.base import Engine
from dudx.engines.kernels import differentiable_kernels
from dudx.errors import InputError, ModelError, UnsupportedError
from dudx.operators import Directional, Operator


@dataclass(frozen=True)
class PerSampleAD(Engine):
    """Automatic differentiation of output i with respect to input i alone; right for every network, O(B²) work.

    Args:
        method: "vectorised" runs many samples at once with torch.func; "loop" is the plain loop over samples.
        chunk: how many samples are vectorised at once; None chooses it so that about 2¹⁵ rows pass at once.

    Running statistics of batch norm layers are neither used nor updated by the evaluation.
    """

    coupled = None
    method: str = "vectorised"
    chunk: int | None = None

    def __post_init__(self) -> None:
        checks.choice(self.method, ("vectorised", "loop"), "method")
        if self.chunk is not None and (not isinstance(self.chunk, int) or self.chunk < 1):
            raise InputError(f"chunk must be a whole number, 1 or more; got {self.chunk!r}.")

    def derivatives(self, model: Model, x: Tensor, operators: Sequence[Operator]) -> list[Tensor]:
        differentiable = torch.is_grad_enabled()
        compute = self._looped if self.method == "loop" else self._vectorised
        with torch.inference_mode(False), torch.enable_grad(), untracked_statistics(model):
            results = compute(model, x, operators, differentiable)
        return results if differentiable else [result.detach() for result in results]

    def _looped(self, model: Model, x: Tensor, operators: Sequence[Operator], differentiable: bool) -> list[Tensor]:
        pieces = []
        for i in range(len(x)):
            own = _own(x[i])
            with differentiable_kernels():
                u = checks.forward(model, torch.cat([x[:i], own.unsqueeze(0), x[i + 1 :]]))[i]
            values = reverse_derivatives(u, own, _at(operators, i), differentiable=differentiable)
            pieces.append(values if differentiable else [value.detach() for value in values])
        return [torch.stack(column) for column in zip(*pieces, strict=True)]

    def _vectorised(self, model: Model, x: Tensor, operators: Sequence[Operator], differentiable: bool) -> list[Tensor]:
        pieces = []
        numbers = torch.arange(len(x), device=x.device)
        chunk = self.chunk or max(1, 2**15 // len(x))
        for start in range(0, len(x), chunk):
            rows = slice(start, start + chunk)
            own = _own(x[rows])
            # A batch for each sample, in which only that sample is the one to be differentiated.
            is_own = (numbers[rows, None] == numbers).unsqueeze(-1)
            with differentiable_kernels():
                outputs = _mapped(model, torch.where(is_own, own.unsqueeze(1), x))
            u = outputs[numbers[: len(own)], numbers[rows]]
            values = reverse_derivatives(u, own, _at(operators, rows), differentiable=differentiable)
            pieces.append(values if differentiable else [value.detach() for value in values])
        return [torch.cat(column) for column in zip(*pieces, strict=True)]


def _own(x: Tensor) -> Tensor:
    """A copy to differentiate with respect to."""
    return x.clone() if x.requires_grad else x.detach().clone().requires_grad_(True)


def _mapped(model: Model, batches: Tensor) -> Tensor:
    """The model on each of many batches, (n, B, d) to (n, B, m)."""
    version = batches._version
    try:
        outputs = torch.func.vmap(lambda batch: checks.forward(model, batch), randomness="same")(batches)
    except ModelError as error:
        if error.__cause__ is not None:  # a model that fails by itself says so here
            checks.forward(model, batches[0].clone())
            raise UnsupportedError(
                "torch.func.vmap, by which many samples are run at once, cannot run this model; use "
                "dudx.PerSampleAD(method='loop')."
            ) from error.__cause__
        raise
    checks.unchanged(batches, version)  # inside vmap a write leaves no trace
    return outputs


def _at(operators: Sequence[Operator], rows: int | slice) -> list[Operator]:
    """The operators at some samples: their directions cut down to the vectors there, and still shared."""
    terms = (term for operator in operators for term in operator.terms)
    here = {id(t.direction): t.direction[rows] for t in terms if isinstance(t, Directional)}
    return [
        Operator(
            {
                Directional(here[id(term.direction)], term.order)
                if isinstance(term, Directional)
                else term: coefficient
                for term, coefficient in operator.terms.items()
            }
        )
        for operator in operators
    ]


@contextlib.contextmanager
def untracked_statistics(model: Model) -> Iterator[None]:
    """Keep batch norm layers in training mode from updating their running statistics once for each sample."""
    modules = model.modules() if isinstance(model, nn.Module) else []
    tracking = [m for m in modules if isinstance(m, _BatchNorm) and m.training and m.track_running_stats]
    for module in tracking:
        module.track_running_stats = False
    try:
        yield
    finally:
        for module in tracking:
            module.track_running_stats = True
