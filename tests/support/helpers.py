"""Shared by the tests: the list of engines, and functions with derivatives in closed form."""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import add, mul

import torch
from torch import Tensor, nn

from dudx import AD, EFD, FD, SFD, Engine, PerSampleAD, Taylor

#: A new engine is tested by being added here: an exact one as it is, ...
EXACT: dict[str, Engine] = {
    "AD": AD(),
    "Taylor": Taylor(),
    "PerSampleAD": PerSampleAD(),
    "PerSampleAD-loop": PerSampleAD(method="loop"),
}

#: Those among them that differentiate each sample by itself, and so are right for coupled networks too.
PER_SAMPLE = {name: engine for name, engine in EXACT.items() if engine.coupled is None}

#: ... and one with an error of order `accuracy` in the step as a function of both.
DIFFERENCE: dict[str, Callable[[float, int], Engine]] = {
    "FD": lambda step, accuracy: FD(step, accuracy),
    # A different step for each order, so that no order can borrow the nodes of another.
    "EFD": lambda step, accuracy: EFD({k: step * (1 + k / 16) for k in range(1, 7)}, accuracy),
    # Equal random numbers at every step: halving the range halves each point's step.
    "SFD": lambda step, accuracy: SFD((step / 1.2, step), accuracy, generator=torch.Generator().manual_seed(0)),
    # Room for every stencil, so that it must do what FD does.
    "FD inside": lambda step, accuracy: FD(step, accuracy, inside=lambda x: x.abs().amax(1) - 16),
}


def every_engine(step: float, accuracy: int) -> dict[str, Engine]:
    return EXACT | {name: make(step, accuracy) for name, make in DIFFERENCE.items()}


@dataclass(frozen=True)
class Sine:
    """sin(a x + b), whose n-th derivative is a^n sin(a x + b + n π/2)."""

    a: float
    b: float = 0.0

    def __call__(self, x: Tensor, n: int = 0) -> Tensor:
        return self.a**n * torch.sin(self.a * x + (self.b + n * math.pi / 2))


@dataclass(frozen=True)
class Exponential:
    """exp(a x)."""

    a: float

    def __call__(self, x: Tensor, n: int = 0) -> Tensor:
        return self.a**n * torch.exp(self.a * x)


@dataclass(frozen=True)
class Power:
    """x^p with a whole number p, whose derivatives beyond the p-th are zero."""

    p: int

    def __call__(self, x: Tensor, n: int = 0) -> Tensor:
        return math.perm(self.p, n) * x ** max(self.p - n, 0)


Factor = Sine | Exponential | Power
Product = tuple[float, tuple[Factor, ...]]


@dataclass(frozen=True)
class Function:
    """A map from (B, d) to (B, m): each output a sum of products of one factor for each variable."""

    outputs: tuple[tuple[Product, ...], ...]

    @property
    def dimensions(self) -> int:
        return len(self.outputs[0][0][1])

    def __call__(self, x: Tensor) -> Tensor:
        return self.partial(x)

    def partial(self, x: Tensor, *axes: int) -> Tensor:
        """The partial derivative along the axes, in closed form."""
        columns = [reduce(add, (self._product(product, x.T, axes) for product in output)) for output in self.outputs]
        return torch.stack(columns, dim=1)

    def along(self, x: Tensor, v: Tensor, order: int) -> Tensor:
        """(v·∇)^order, written out: every sequence of axes with the product of the vector's components."""
        total = torch.zeros(len(x), len(self.outputs), dtype=x.dtype)
        for axes in itertools.product(range(x.shape[1]), repeat=order):
            total = total + v[:, list(axes)].prod(1, keepdim=True) * self.partial(x, *axes)
        return total

    def laplacian(self, x: Tensor) -> Tensor:
        return sum(self.partial(x, i, i) for i in range(x.shape[1]))

    def biharmonic(self, x: Tensor) -> Tensor:
        pairs = itertools.product(range(x.shape[1]), repeat=2)
        return sum(self.partial(x, i, i, j, j) for i, j in pairs)

    @staticmethod
    def _product(product: Product, columns: Tensor, axes: tuple[int, ...]) -> Tensor:
        coefficient, factors = product
        values = [factor(columns[i], axes.count(i)) for i, factor in enumerate(factors)]
        return coefficient * reduce(mul, values)


#: Smooth in every variable and to every order, so that no stencil is exact for them.
SMOOTH = {
    "1d": Function((((1.0, (Sine(1.3, 0.2),)), (0.5, (Exponential(0.7),))),)),
    "2d": Function((((1.0, (Sine(1.3, 0.2), Exponential(0.6))), (0.4, (Exponential(-0.8), Sine(1.1, 0.9)))),)),
    "2d-vector": Function(
        (
            ((1.0, (Sine(1.1, 0.4), Sine(0.9, 1.3))),),
            ((0.5, (Exponential(0.8), Exponential(-0.5))),),
            ((1.0, (Sine(1.2), Exponential(0.3))),),
        )
    ),
    "3d-vector": Function(
        (
            ((1.0, (Sine(1.2, 0.3), Exponential(0.5), Sine(0.8, 0.7))),),
            ((0.6, (Exponential(0.4), Sine(1.1, 0.5), Exponential(-0.7))),),
        )
    ),
}
#: x³y² - 2xy⁴, in part beyond its degree, where the derivative stops depending on the point.
POLYNOMIAL = Function((((1.0, (Power(3), Power(2))), (-2.0, (Power(1), Power(4)))),))
FUNCTIONS = SMOOTH | {"polynomial": POLYNOMIAL}


def points(count: int, dimensions: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Points in the cube [-1, 1]^d."""
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.rand(count, dimensions, generator=generator, dtype=torch.float64) - 1).to(dtype)


def mlp(inputs: int = 2, outputs: int = 1, width: int = 16, depth: int = 2, seed: int = 0) -> nn.Sequential:
    """A tanh network in double precision."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for i in range(depth):
        layers += [nn.Linear(width if i else inputs, width), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(width, outputs)).double()


#: Rows of each call of a `Counted` model, apart from it: probes put back what a model itself holds.
_ROWS: weakref.WeakKeyDictionary[nn.Module, list[int]] = weakref.WeakKeyDictionary()


class Counted(nn.Module):
    """A model that notes how many rows it gets in each call, those of probes among them."""

    def __init__(self, model: Callable[[Tensor], Tensor]):
        super().__init__()
        self.model = model
        _ROWS[self] = []

    @property
    def rows(self) -> list[int]:
        return _ROWS[self]

    def forward(self, x: Tensor) -> Tensor:
        self.rows.append(len(x))
        return self.model(x)


class OnceDifferentiable(torch.autograd.Function):
    """A sine whose backward pass cannot be differentiated, as in many extensions written by hand."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sin(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return gradient * torch.cos(ctx.saved_tensors[0])


def rms(error: Tensor) -> float:
    return float(error.square().mean().sqrt())


def parameter_gradients(loss: Tensor, model: nn.Module) -> Tensor:
    """All gradients in one vector."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
    return torch.cat([gradient.flatten() for gradient in gradients])


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Fail if the block changes a buffer, a parameter's gradient or the random state."""
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    state = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), state)
    assert buffers.keys() == dict(model.named_buffers()).keys()
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, buffers[name]), name
    assert all(parameter.grad is None for parameter in model.parameters())
