"""Networks that do what networks rarely do: Taylor gives AD's numbers, or a sentence."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import OnceDifferentiable, mlp, points
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import dudx
from dudx import AD, D, Taylor, evaluate
from dudx.engines.taylor import derivative_methods, directional_derivatives
from dudx.errors import UnsupportedError

OPERATORS = [D(), D(0), D(0, 0) + D(1, 1), D(0, 0, 1)]

pytestmark = pytest.mark.filterwarnings(
    "ignore::dudx.errors.SlowRuleWarning", "ignore::DeprecationWarning", "ignore::UserWarning"
)


def assert_like(model: Any, twin: Any, x: Tensor, parameters: list[Tensor], times: int = 1) -> None:
    """Taylor on the one against AD on the other, values and gradients."""
    exact = evaluate(twin, x, OPERATORS, AD(coupled="ignore"))
    for _ in range(times):
        ours = evaluate(model, x, OPERATORS, Taylor(coupled="ignore"))
        for a, b in zip(ours, exact, strict=True):
            assert (a - b).abs().max() < 1e-10 * (1 + b.abs().max())
        losses = [sum(value.square().mean() for value in values) for values in (ours, exact)]
        gradients = [
            torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True) for loss in losses
        ]
        for a, b in zip(*gradients, strict=True):
            assert (a - b).abs().max() < 1e-9 * (1 + b.abs().max())


class Branching(nn.Module):
    """A loop, a list and a condition, for scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(2, 6), nn.LayerNorm(6), nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        parts = [h]
        for i in range(2):
            h = torch.tanh(h) * torch.sigmoid(h) + F.gelu(h) / (i + 1)
            parts.append(h)
        if h.shape[0] > 2:
            h = self.norm(h)
        h = h + torch.cat([parts[0][:, 3:], parts[1][:, :3]], 1)
        return self.b(h)


def sine_wave(x: Tensor) -> Tensor:
    return torch.sin(x[:, :1] * x[:, 1:]) + x[:, :1] ** 3


def plain(kind: str) -> nn.Module:
    torch.manual_seed(0)
    return mlp() if kind == "tanh" else Branching().double()


SCRIPTED = pytest.mark.parametrize(
    "made", [torch.jit.script, lambda m: torch.jit.trace(m, points(5, 2))], ids=["script", "trace"]
)


@SCRIPTED
def test_scripted_and_traced_modules_are_differentiated_as_a_whole(made: Callable[[nn.Module], Any]) -> None:
    model = plain("tanh")
    # Several times, as the interpreter rewrites graphs when it has seen them run.
    assert_like(made(model), model, points(5, 2), list(model.parameters()), times=3)


@SCRIPTED
def test_scripted_modules_with_fused_kernels_are_refused_with_the_remedy(made: Callable[[nn.Module], Any]) -> None:
    with pytest.raises(dudx.errors.UnsupportedError, match=r"fused kernel .* Use the original module"):
        evaluate(made(plain("branching")), points(5, 2), OPERATORS, Taylor(coupled="ignore"))


def test_a_network_with_a_scripted_part_is_differentiated_as_a_whole() -> None:
    inner = plain("tanh")

    class Outer(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(torch.sin(x)) * x[:, :1]

    hidden = {"network": torch.jit.script(inner)}
    for model in (Outer(torch.jit.script(inner)), lambda x: hidden["network"](torch.sin(x)) * x[:, :1]):
        assert_like(model, Outer(inner), points(5, 2), list(inner.parameters()), times=3)


def test_a_scripted_function_is_differentiated_as_a_whole() -> None:
    amplitude = torch.rand(1, dtype=torch.float64, requires_grad=True)
    made = torch.jit.script(sine_wave)
    assert_like(lambda x: amplitude * made(x), lambda x: amplitude * sine_wave(x), points(5, 2), [amplitude], times=3)


@pytest.mark.parametrize("kind", ["tanh", "branching"])
def test_exported_modules_run_by_their_graph(kind: str) -> None:
    model, x = plain(kind), points(5, 2)
    exported = torch.export.export(model, (x,)).module()
    exact, ours = evaluate(model, x, OPERATORS, AD()), evaluate(exported, x, OPERATORS, Taylor(coupled="ignore"))
    for a, b in zip(ours, exact, strict=True):
        assert (a - b).abs().max() < 1e-10 * (1 + b.abs().max())


def test_compiled_modules_run_by_the_module_inside() -> None:
    model = plain("tanh")
    assert_like(torch.compile(model), model, points(5, 2), list(model.parameters()))


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 3 * ctx.saved_tensors[0] ** 2


class StraightThrough(torch.autograd.Function):
    """Rounds, and passes the gradient as if it had not; in the newer style."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.round(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


INSIDE: dict[str, Callable[[Tensor], Tensor]] = {
    "a gradient of its own": lambda h: Cube.apply(h),
    "a gradient of another function": lambda h: StraightThrough.apply(3 * h) * h,
    "checkpoint": lambda h: checkpoint(lambda t: torch.tanh(t) ** 2, h, use_reentrant=False),
    "reentrant checkpoint": lambda h: checkpoint(lambda t: torch.tanh(t) ** 2, h, use_reentrant=True),
    "vmap of grad": lambda h: torch.func.vmap(torch.func.grad(lambda row: (row**3).sum()))(h),
    "jvp": lambda h: torch.func.jvp(torch.sin, (h,), (torch.cos(h),))[1],
    "vmap over rows": lambda h: torch.func.vmap(lambda row: row / (1 + row @ row))(h),
    "out": lambda h: (
        torch.mul(h, torch.sin(h), out=torch.empty(len(h), 6, dtype=h.dtype).requires_grad_(False))
        if not h.requires_grad
        else h * torch.sin(h)
    ),
    "a random gate": lambda h: h * F.gumbel_softmax(seeded(h), dim=1),
    "dropout": lambda h: F.alpha_dropout(seeded(h), 0.3, training=True),
    "complex weights": lambda h: torch.view_as_real((h + 0j) @ (torch.ones(6, 6, dtype=h.dtype) * (1 + 2j))).flatten(1),
    "a list of rows": lambda h: torch.stack([row * row.sum() for row in h]),
    "a branch": lambda h: torch.sin(h) if h.sum() > -1e9 else h,
}


#: References for networks that AD cannot differentiate.
TWINS: dict[str, Callable[[Tensor], Tensor]] = {"reentrant checkpoint": lambda h: torch.tanh(h) ** 2}


def seeded(h: Tensor) -> Tensor:
    torch.manual_seed(0)
    return h


class Around(nn.Module):
    """Layers around a function."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.function = nn.Linear(2, 6).double(), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(torch.tanh(self.first(x)))


@pytest.mark.parametrize("name", INSIDE)
def test_what_is_inside_of_a_network_is_differentiated(name: str) -> None:
    model = Around(INSIDE[name])
    twin = Around(TWINS.get(name, INSIDE[name]))
    twin.first = model.first
    assert_like(model, twin, points(5, 2), list(model.parameters()), times=2)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_without_a_graph_the_numbers_are_the_same(context: Any) -> None:
    for function in (torch.special.ndtri, lambda h: h.cumprod(1), Cube.apply, lambda h: torch.linalg.inv(h @ h.mT)):
        model = Around(lambda h, function=function: function(0.4 + h.unsqueeze(1)[..., :1] ** 2 / 4).flatten(1))
        expected = evaluate(model, points(5, 2), OPERATORS, Taylor())
        with context():
            found = evaluate(model, points(5, 2), OPERATORS, Taylor())
        for a, b in zip(found, expected, strict=True):
            assert torch.allclose(a, b)
            assert not a.requires_grad


def test_a_complex_output_is_two_real_ones() -> None:
    model = lambda x: torch.exp(1j * x[:, :1] * x[:, 1:])  # noqa: E731
    twin = lambda x: torch.cat([torch.cos(x[:, :1] * x[:, 1:]), torch.sin(x[:, :1] * x[:, 1:])], 1)  # noqa: E731
    for engine in (AD(), Taylor(), dudx.FD(1e-3, accuracy=4)):
        found = evaluate(model, points(5, 2), [D(), D(0), D(0, 1)], engine)
        for ours, exact in zip(found, evaluate(twin, points(5, 2), [D(), D(0), D(0, 1)], AD()), strict=True):
            assert torch.allclose(ours, exact, atol=1e-8)


def test_a_function_that_can_be_differentiated_once_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="once_differentiable"):
        evaluate(Around(OnceDifferentiable.apply), points(5, 2), D(0), Taylor())


def test_functions_are_as_they_were_after_a_network_has_run() -> None:
    before = Cube.apply.__func__, torch.autograd.Function.__mro__[1].apply.__qualname__
    with pytest.raises(UnsupportedError):
        evaluate(Around(OnceDifferentiable.apply), points(5, 2), D(0), Taylor())
    assert before == (Cube.apply.__func__, torch.autograd.Function.__mro__[1].apply.__qualname__)


def test_a_network_that_is_wrong_by_itself_says_what_is_wrong() -> None:
    with pytest.raises(dudx.errors.ModelError, match="shapes cannot be multiplied"):
        evaluate(Around(lambda h: h @ torch.ones(3, 3, dtype=h.dtype)), points(5, 2), D(0), Taylor(coupled="ignore"))
    with pytest.raises(KeyError):
        evaluate(Around(lambda h: {}[h]), points(5, 2), D(0), Taylor(coupled="ignore"))


def test_what_is_written_into_a_buffer_stays_there() -> None:
    class Remembering(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("last", torch.zeros(5, 2, dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            h = torch.sin(x)
            self.last[:] = h
            return h * self.last

    model, x = Remembering(), points(5, 2)
    (slope,) = evaluate(model, x, [D(0)], Taylor(coupled="ignore"))
    assert torch.allclose(slope[:, 0], torch.sin(2 * x[:, 0]))
    assert torch.allclose(model.last, torch.sin(x))
    assert not model.last.requires_grad


def test_the_hint_is_given_once() -> None:
    dudx.engines.taylor.torch_derivatives._hinted.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            evaluate(Around(lambda h: h.cumprod(1)), points(5, 2), D(0), Taylor())
    hints = [str(w.message) for w in caught if issubclass(w.category, dudx.errors.SlowRuleWarning)]
    assert len(hints) == 1
    assert "torch.Tensor.cumprod" in hints[0]


def test_rounding_of_single_precision_is_not_taken_for_a_wrong_formula() -> None:
    """The second derivative of a running product divides by its factors, of which some are small."""
    methods = directional_derivatives._known
    known = {key: methods.pop(key) for key in list(methods) if "cumprod" in str(key)}
    x = torch.rand(1024, 16, generator=torch.Generator().manual_seed(0))
    evaluate(partial(torch.cumprod, dim=1), x, dudx.Laplacian(), Taylor())
    found = {method for key, method in methods.items() if "cumprod" in str(key)}
    methods.update(known)
    assert found == {derivative_methods.forward_batched}
