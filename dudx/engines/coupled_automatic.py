"""Coupled automatic-numerical differentiation (CAN): neighbours' values and first derivatives."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from dudx import errors
from dudx.engines.autodiff import AD
from dudx.engines.first_use import sound_derivatives
from dudx.engines.interface import (
    Counted,
    Coupled,
    Engine,
    RowsPerPoint,
    Side,
    Sided,
    Stepped,
    refuse_unset,
    rows_per_point,
)
from dudx.engines.request import Request
from dudx.errors import InputError, UnsupportedError
from dudx.network.model_checks import Model
from dudx.operators import D, Directional, Operator, Term

#: Which neighbours each scheme takes for a first derivative, in steps.
_NEIGHBOURS: dict[Side, tuple[int, ...]] = {"central": (1, -1), "backward": (-1,), "forward": (1,)}


@dataclass(frozen=True)
class CAN(Counted, Sided, Stepped):
    """First and second derivatives from the values *and* first derivatives at a point and its neighbours.

    With E and W one step up and down an axis, the central scheme is (u_E - u_W)/2h - (u'_E - 2u' + u'_W)/8 for a first
    derivative, off by h²/24 u‴. The backward one is (u - u_W)/h + (u' - u'_W)/2, off by -h²/12 u‴, and upwind where
    the flow goes up the axis; the forward one is its mirror image. A second derivative is always of fourth order,
    2(u_E - 2u + u_W)/h² - (u'_E - u'_W)/2h. The first derivatives u' come from another engine, so that nothing is
    differentiated twice; a residual at a point ties its neighbours together.

    Args:
        step: the distance h of the neighbours.
        scheme: "central", or "backward" or "forward" for first derivatives that look one way; `u.upwind` in a residual
            chooses at each point.
        inner: the engine for first derivatives.

    Example:
        >>> x = torch.rand(10, 1, dtype=torch.float64)
        >>> second = dudx.evaluate(torch.sin, x, dudx.D(0, 0), dudx.CAN(step=1e-2))
        >>> torch.allclose(second, -torch.sin(x), atol=1e-8)
        True
    """

    name = "can"
    approximate = True

    step: float = 2e-2
    scheme: Side = "central"
    inner: Engine = field(default_factory=AD)
    coupled: Coupled | None = field(default="refuse", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", errors.positive_step(self.step))
        errors.one_of(self.scheme, Side, "scheme")
        if not isinstance(self.inner, Engine):
            raise InputError(f"CAN takes first derivatives by an engine such as dudx.AD(); got {self.inner!r}.")
        # A batch that moved as a whole is another batch for a coupled network, so that no inner engine is right then.
        object.__setattr__(self, "coupled", self.inner.coupled or "refuse")

    def one_sided(self, side: Side) -> CAN:
        return replace(self, scheme=side)

    def refuse_unset(self, request: Request) -> None:
        if request.orders:
            refuse_unset(self.inner, Request((D(0),)))

    def rows_for(self, x: Tensor, request: Request) -> RowsPerPoint:
        point = x[:1]
        nodes = len(_Plan(point, request.at_rows(slice(0, 1)), self).shifts)
        inner = rows_per_point(self.inner, point, Request((D(0),)))
        return RowsPerPoint(inner.at_once * nodes, inner.kept * nodes)

    def derivatives(self, model: Model, x: Tensor, request: Request) -> list[Tensor]:
        plan = _Plan(x, request, self)
        rows = torch.cat([x + shift for shift in plan.shifts])
        values = sound_derivatives(self.inner, model, rows, plan.slopes())
        u, *slopes = (value.unflatten(0, (-1, len(x))) for value in values)
        by_ray = dict(zip(plan.rays, slopes, strict=True))
        results = []
        for operator in request:
            total = torch.zeros_like(u[0])
            for term, coefficient in operator.terms.items():
                value = u[0] if not term.order else self._derivative(term, plan, u, by_ray[_ray(term)])
                total = total + coefficient * value
            results.append(total)
        return results

    def _derivative(self, term: Term, plan: _Plan, u: Tensor, slope: Tensor) -> Tensor:
        h, ray = self.step, _ray(term)
        at = {k: (u[plan.places[ray, k]], slope[plan.places[ray, k]]) for k in (0, 1, -1) if (ray, k) in plan.places}
        here, slope_here = at[0]
        if term.order == 2:
            (up, slope_up), (down, slope_down) = at[1], at[-1]
            value = 2 * (up - 2 * here + down) / h**2 - (slope_up - slope_down) / (2 * h)
        elif self.scheme == "central":
            (up, slope_up), (down, slope_down) = at[1], at[-1]
            value = (up - down) / (2 * h) - (slope_up - 2 * slope_here + slope_down) / 8
        else:
            (k,) = _NEIGHBOURS[self.scheme]
            there, slope_there = at[k]
            value = k * (there - here) / h + (slope_here - slope_there) / 2
        return value * plan.length(ray) ** term.order if isinstance(term, Directional) else value


#: An axis, or the slot of a vector.
_Ray = tuple[str, int]


def _ray(term: Term) -> _Ray:
    return ("along", term.slot) if isinstance(term, Directional) else ("axis", term.axes[0])


class _Plan:
    """The neighbours of a request: their displacements, and which of them lies where on which line."""

    def __init__(self, x: Tensor, request: Request, engine: CAN):
        self.vectors = request.vectors
        self.shifts: list[Tensor] = [torch.zeros_like(x[:1])]
        self.places: dict[tuple[_Ray, int], int] = {}
        for term in {term: None for operator in request for term in operator.terms if term.order}:
            if term.order > 2 or (not isinstance(term, Directional) and len(set(term.axes)) > 1):
                raise UnsupportedError(
                    f"CAN has first and second derivatives along one axis or vector, and was asked for {term!r}: use "
                    "dudx.AD(), dudx.Taylor() or dudx.FD() for it."
                )
            ray = _ray(term)
            self.places[ray, 0] = 0
            for k in (1, -1) if term.order == 2 else _NEIGHBOURS[engine.scheme]:
                if (ray, k) not in self.places:
                    self.places[ray, k] = len(self.shifts)
                    self.shifts.append(k * engine.step * self._unit(ray, x))

    @property
    def rays(self) -> list[_Ray]:
        return list(dict.fromkeys(ray for ray, _ in self.places))

    def length(self, ray: _Ray) -> Tensor:
        """The length of a vector at each point, (B, 1)."""
        return torch.linalg.vector_norm(self.vectors[ray[1]], dim=1, keepdim=True)

    def slopes(self) -> Request:
        """The value and the first derivative along each line, at all nodes."""
        operators, units = [D()], []
        for ray in self.rays:
            if ray[0] == "axis":
                operators.append(D(ray[1]))
            else:
                operators.append(Operator({Directional(len(units), 1): 1.0}))
                units.append(self._unit(ray, self.vectors[ray[1]]).repeat(len(self.shifts), 1))
        return Request(tuple(operators), tuple(units))

    def _unit(self, ray: _Ray, x: Tensor) -> Tensor:
        if ray[0] == "axis":
            return torch.eye(x.shape[1], dtype=x.dtype, device=x.device)[ray[1]].unsqueeze(0)
        length = self.length(ray)
        return self.vectors[ray[1]] / torch.where(length > 0, length, torch.ones_like(length))
