"""Gradient, divergence, curl and advection of fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dudx.errors import InputError
from dudx.residual.field import Field


def grad(u: Field, *names: str) -> tuple[Field, ...]:
    """The first derivatives along the named inputs, or along all of them.

    Example:
        >>> poisson = dudx.Residual(lambda u: dudx.div(dudx.grad(u)), inputs=("x", "y"))
        >>> poisson(torch.nn.Linear(2, 1), torch.rand(5, 2), dudx.Taylor()).abs().max().item()
        0.0
    """
    return tuple(u.d(name) for name in names or u._values.inputs)


def div(flux: Sequence[Any], *names: str) -> Field:
    """The divergence: the sum of each component's derivative along its input, the named inputs or all in order.

    Example:
        >>> law = dudx.Residual(lambda u, x: dudx.div([(1 + x * x) * u.x, u.y], "x", "y"), inputs=("x", "y"))
        >>> law(torch.nn.Linear(2, 1), torch.rand(5, 2), dudx.Taylor()).shape
        torch.Size([5, 1])
    """
    total: Any = 0.0
    for component, name in _paired(flux, names, "div"):
        total = total + component.d(name)
    return total


def curl(v: Sequence[Any], *names: str) -> Field | tuple[Field, Field, Field]:
    """The curl of two components (one field) or of three (a tuple), along the named inputs or all of them.

    Example:
        >>> vorticity = dudx.Residual(lambda u, v: dudx.curl((u, v)), inputs=("x", "y"))
        >>> vorticity(torch.nn.Linear(2, 2), torch.rand(5, 2), dudx.Taylor()).shape
        torch.Size([5, 1])
    """
    pairs = _paired(v, names, "curl")
    axes = [name for _, name in pairs]
    if len(axes) == 2:
        return v[1].d(axes[0]) - v[0].d(axes[1])
    if len(axes) != 3:
        raise InputError(f"curl takes two or three components; got {len(axes)}.")
    x, y, z = axes
    return v[2].d(y) - v[1].d(z), v[0].d(z) - v[2].d(x), v[1].d(x) - v[0].d(y)


def advection(v: Sequence[Any], u: Field, *names: str) -> Field:
    """The advection of u by v: the sum of v_i ∂u/∂x_i over the named inputs, or all of them.

    Example:
        >>> flow = dudx.Residual(lambda u, v: (dudx.advection((u, v), u), u.x + v.y), inputs=("x", "y"))
        >>> [r.shape for r in flow(torch.nn.Linear(2, 2), torch.rand(5, 2), dudx.Taylor())]
        [torch.Size([5, 1]), torch.Size([5, 1])]
    """
    axes = names or u._values.inputs
    if len(v) != len(axes):
        raise InputError(_mismatch("advection", len(v), axes))
    total: Any = 0.0
    for component, name in zip(v, axes, strict=True):
        total = total + component * u.d(name)
    return total


def _paired(components: Sequence[Any], names: Sequence[str], what: str) -> list[tuple[Any, str]]:
    fields = [component for component in components if isinstance(component, Field)]
    if not fields:
        raise InputError(f"{what} takes a tuple of fields, such as (u.x, u.y); got {components!r}.")
    axes = tuple(names) or fields[0]._values.inputs
    if len(axes) != len(components):
        raise InputError(_mismatch(what, len(components), axes))
    return [(c, name) for c, name in zip(components, axes, strict=True) if isinstance(c, Field)]


def _mismatch(what: str, count: int, axes: Sequence[str]) -> str:
    return f"{what} got {count} components and {len(axes)} inputs ({', '.join(axes)}); name those it is to be along."
