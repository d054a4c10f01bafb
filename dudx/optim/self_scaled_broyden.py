"""A self-scaled quasi-Newton method of Broyden's family."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from dudx.backend.torch_classes import strong_wolfe
from dudx.errors import InputError, whole_number

#: A step is not used for an update if sᵀy is below this share of |s| |y|.
_CURVATURE = 1e-10


class SelfScaledBroyden(torch.optim.Optimizer):
    """Self-scaled Broyden method: a quasi-Newton method like BFGS that also rescales its inverse Hessian.

    For small networks in double precision whose points stay fixed for many steps: the matrix is dense, with one row per
    parameter. Which member of Broyden's family a step belongs to, and the scale, are chosen by Al-Baali's rules, as
    Urbán, Stefanou and Pons (2025) do for physics-informed networks.

    ```python
    optimizer = dudx.optim.SelfScaledBroyden(model.parameters())
    def closure():
        optimizer.zero_grad()
        loss = residual.loss(model, x, engine) + boundary.loss(model, edge, engine)
        loss.backward()
        return loss
    optimizer.step(closure)
    ```

    Args:
        params: the parameters of the network.
        lr: the initial step length of the line search.
        max_iter: the number of steps per call of `step`.

    Example:
        >>> x = torch.nn.Parameter(torch.tensor([-1.2, 1.0], dtype=torch.float64))
        >>> optimizer = dudx.optim.SelfScaledBroyden([x], max_iter=60)
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
        ...     loss.backward()
        ...     return loss
        >>> _ = optimizer.step(closure)
        >>> torch.allclose(x, torch.ones_like(x))  # the valley of Rosenbrock's function ends there
        True
    """

    def __init__(self, params: Iterable[Tensor], lr: float = 1.0, max_iter: int = 20):
        max_iter = whole_number(max_iter, "max_iter")
        if not 0 < lr < math.inf:
            raise InputError(f"The first length of a line search must be positive and finite; got {lr!r}.")
        super().__init__(params, {"lr": lr, "max_iter": max_iter})
        if len(self.param_groups) != 1:
            raise InputError("SelfScaledBroyden takes its parameters in one group: they share a matrix.")
        self._parameters: list[Tensor] = self.param_groups[0]["params"]
        self._sizes = [parameter.numel() for parameter in self._parameters]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Take up to `max_iter` steps; return the loss before them.

        Args:
            closure: computes the loss at fixed points and leaves its gradient in the parameters.
        """
        group, memory = self.param_groups[0], self.state[self._parameters[0]]
        enabled = torch.enable_grad()(closure)
        loss = enabled()
        value, gradient = float(loss), self._gradient()
        for _ in range(group["max_iter"]):
            if not bool(gradient.any()) or not math.isfinite(value):
                break
            inverse = memory.get("inverse")
            direction = -gradient if inverse is None else -(inverse @ gradient)
            slope = gradient.dot(direction)
            if not float(slope) < 0:  # rounding, or other points than those it was learned from
                memory.pop("inverse", None)
                direction, slope, inverse = -gradient, -gradient.dot(gradient), None
            first = group["lr"] if inverse is not None else min(1.0, 1 / float(gradient.abs().sum())) * group["lr"]
            start = self._vector()

            def at(origin: Tensor, length: float, along: Tensor) -> tuple[float, Tensor]:
                self._assign(origin + length * along)
                return float(enabled()), self._gradient()

            new_value, new_gradient, length, _ = strong_wolfe(at, start, first, direction, value, gradient, slope)
            if not new_value < value:
                self._assign(start)
                if inverse is None:
                    break
                memory.pop("inverse")  # once more along the gradient itself
                continue
            step = length * direction
            self._assign(start + step)
            memory["inverse"] = updated(inverse, step, new_gradient - gradient, gradient, length)
            value, gradient = new_value, new_gradient
        return loss

    # -- parameters as one vector --------------------------------------------------------------------------------

    def _gradient(self) -> Tensor:
        pieces = [p.new_zeros(p.numel()) if p.grad is None else p.grad.reshape(-1) for p in self._parameters]
        return torch.cat(pieces)

    def _vector(self) -> Tensor:
        return torch.cat([parameter.reshape(-1) for parameter in self._parameters])

    def _assign(self, vector: Tensor) -> None:
        for parameter, part in zip(self._parameters, vector.split(self._sizes), strict=True):
            parameter.copy_(part.view_as(parameter))


def updated(inverse: Tensor | None, s: Tensor, y: Tensor, gradient: Tensor, length: float) -> Tensor | None:
    """Update the inverse Hessian, in place, after a step s along which the gradient has changed by y.

    With H y = inverse · y, the update is (H - H y yᵀ H / yᵀHy + φ v vᵀ) / τ + s sᵀ / yᵀs, which maps y to s.

    Args:
        inverse: before it; None before the first step.
        s: the step.
        y: the change of the gradient.
        gradient: at the start of the step.
        length: that of the line search, so that s is -length · inverse · gradient.
    """
    sy = float(s.dot(y))
    if not sy > _CURVATURE * float(s.norm()) * float(y.norm()):
        return inverse
    if inverse is None:
        inverse = torch.eye(len(s), dtype=s.dtype, device=s.device) * (sy / float(y.dot(y)))
        b = float(y.dot(y)) * float(s.dot(s)) / sy**2  # as if the step had been taken with this matrix
    else:
        b = -length * float(s.dot(gradient)) / sy
    hy = inverse @ y
    yhy = float(y.dot(hy))
    phi, tau = _family(b, yhy / sy, len(s))
    v = s / sy - hy / yhy
    inverse.addr_(hy, hy, alpha=-1 / yhy).addr_(v, v, alpha=phi * yhy).mul_(1 / tau)
    return inverse.addr_(s, s, alpha=1 / sy)


def _family(b: float, h: float, size: int) -> tuple[float, float]:
    """Al-Baali's member φ of the family and scale τ, from sᵀBs / yᵀs, yᵀHy / yᵀs and the number of parameters."""
    a = max(b * h - 1, 1e-12)
    low = min(1.0, h * (1 - math.sqrt(a / (1 + a))))
    theta = max((low - 1) / a, min(1 / low, (1 - b) / b))
    sigma = 1 + a * theta
    root = sigma ** (-1 / max(size - 1, 1))
    scale = min(1.0, 1 / b)
    tau = scale * min(root, 1 / theta) if theta > 0 else min(scale * root, sigma)
    return (1 - theta) / sigma, tau
