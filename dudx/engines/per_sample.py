"""The reference for coupled networks: each sample's own derivative, the rest of the batch held still."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dudx import checks
from dudx.checks import Model
from dudx.engines.autodiff import differentiable_kernels, reverse_derivatives
from dudx.engines.base import Engine
from dudx.errors import InputError
from dudx.operators import Directional, Operator, Partial

PointFunction = Callable[[Tensor], Tensor]


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
        with differentiable_kernels(), untracked_statistics(model):
            results = compute(model, x, operators, differentiable)
        return results if differentiable else [result.detach() for result in results]

    def _looped(self, model: Model, x: Tensor, operators: Sequence[Operator], differentiable: bool) -> list[Tensor]:
        rows = []
        with torch.enable_grad():
            for i in range(len(x)):
                own = x[i].clone() if x.requires_grad else x[i].detach().clone().requires_grad_(True)
                u = checks.forward(model, torch.cat([x[:i], own.unsqueeze(0), x[i + 1 :]]))[i]
                here = [_at_sample(operator, i) for operator in operators]
                values = reverse_derivatives(u, own, here, differentiable=differentiable)
                rows.append(values if differentiable else [value.detach() for value in values])
        return [torch.stack(column) for column in zip(*rows, strict=True)]

    def _vectorised(self, model: Model, x: Tensor, operators: Sequence[Operator], differentiable: bool) -> list[Tensor]:
        del differentiable  # torch.func follows the surrounding grad mode by itself
        terms = {term for operator in operators for term in operator.terms}
        directions = list({id(t.direction): t.direction for t in terms if isinstance(t, Directional)}.values())
        sample_numbers = torch.arange(len(x), device=x.device)

        def one_sample(own: Tensor, is_own: Tensor, *vectors: Tensor) -> tuple[Tensor, ...]:
            def output(point: Tensor) -> Tensor:
                u = checks.forward(model, torch.where(is_own, point, x))
                # A sum over a mask: an index would be data-dependent under vmap.
                return torch.where(is_own, u, torch.zeros_like(u)).sum(0)

            local = {id(d): v for d, v in zip(directions, vectors, strict=True)}
            return tuple(_forward_derivatives(output, own, operators, local))

        pieces = []
        chunk = self.chunk or max(1, 2**15 // len(x))
        for start in range(0, len(x), chunk):
            rows = slice(start, start + chunk)
            is_own = (sample_numbers == sample_numbers[rows, None]).unsqueeze(-1)
            arguments = (x[rows], is_own, *(d[rows] for d in directions))
            pieces.append(torch.func.vmap(one_sample, randomness="same")(*arguments))
        return [torch.cat(column) for column in zip(*pieces, strict=True)]


def _at_sample(operator: Operator, i: int) -> Operator:
    """The operator at one sample: its directions cut down to that sample's vector."""
    return Operator(
        {
            Directional(term.direction[i], term.order) if isinstance(term, Directional) else term: coefficient
            for term, coefficient in operator.terms.items()
        }
    )


def _forward_derivatives(
    f: PointFunction, point: Tensor, operators: Sequence[Operator], vectors: dict[int, Tensor]
) -> list[Tensor]:
    """Every operator applied to f at one point by nested forward mode, one level for each order."""
    basis = torch.eye(point.shape[0], dtype=point.dtype, device=point.device)
    computed: dict[object, Tensor] = {}

    def term_value(term: Partial | Directional) -> Tensor:
        tangents = (
            [vectors[id(term.direction)]] * term.order
            if isinstance(term, Directional)
            else [basis[axis] for axis in term.axes]
        )
        return _nested(f, tangents)(point)

    results = []
    for operator in operators:
        total = torch.zeros_like(term_value(Partial())) if not operator.terms else None
        for term, coefficient in operator.terms.items():
            if term not in computed:
                computed[term] = term_value(term)
            scaled = coefficient * computed[term]
            total = scaled if total is None else total + scaled
        assert total is not None
        results.append(total)
    return results


def _nested(f: PointFunction, tangents: Sequence[Tensor]) -> PointFunction:
    if not tangents:
        return f
    inner = _nested(f, tangents[1:])
    return lambda point: torch.func.jvp(inner, (point,), (tangents[0],))[1]


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
