"""A step that was made before does not wait for a GPU: no value of a tensor is read, no tensor is made of numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from coupled_networks import COUPLED, made
from helpers import every_engine, mlp, points
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import dudx
from dudx import D, Laplacian
from dudx.backend import tensor_checks

ENGINES = every_engine(0.02, 2)
#: The engine that reads, once or more per call: where the points lie decides on the shape of their stencils.
READS = "FD inside"
BURGERS = dudx.Residual(lambda u: u.t + u * u.x - 0.01 * u.xx, ("x", "t"))
ROBIN = dudx.Residual(lambda u, n: u.along(n) + u, ("x", "t"), data=("n",))

#: Kernels whose result or its shape depends on values, so that the host waits for them; `lift_fresh` is a tensor that
#: was made of Python numbers, which is copied to the device.
WAITING = {
    "_local_scalar_dense", "item", "nonzero", "nonzero_numpy", "is_nonzero", "equal", "allclose", "masked_select",
    "unique_dim", "_unique2", "_unique", "unique_consecutive", "unique_dim_consecutive", "repeat_interleave",
    "bincount", "linalg_eigh", "lift_fresh", "argwhere",
}  # fmt: skip


class DeviceReads(TorchDispatchMode):
    """Count the kernels that would make the host wait."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        masks = name in ("index", "index_put", "index_put_") and any(
            isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        )
        if name in WAITING or masks:
            self.found[name] += 1
        return func(*args, **(kwargs or {}))


def reads(step: Callable[[], Any]) -> Counter[str]:
    """The reads of a step after ten; the fewest of three, as two in a row may not both be steps with a check."""
    for _ in range(10):
        step()
    counts = []
    for _ in range(3):
        with DeviceReads() as seen:
            step()
        counts.append(seen.found)
    return min(counts, key=lambda found: found.total())


@pytest.fixture(autouse=True)
def reading_costs(monkeypatch):
    """Treat the CPU as a device whose values cost a wait."""
    monkeypatch.setattr(tensor_checks, "free_to_read", lambda values: False)
    monkeypatch.setattr(tensor_checks, "_calls", Counter())


def residual_step(model: Any, x: Tensor, engine: dudx.Engine) -> None:
    BURGERS(model, x, engine)
    BURGERS.loss(model, x, engine).backward()


@pytest.mark.parametrize("name", [name for name in ENGINES if name != READS])
def test_no_engine_waits_in_a_warm_step(name):
    model, x, v, engine = mlp(), points(16, 2), points(16, 2, seed=1), ENGINES[name]
    operators = [D(), D(0), Laplacian(), dudx.Along(v)]
    assert reads(lambda: dudx.evaluate(model, x, operators, engine)) == Counter()
    assert reads(lambda: residual_step(model, x, engine)) == Counter()
    assert reads(lambda: ROBIN.loss(model, x, engine, n=v).backward()) == Counter()


@pytest.mark.parametrize("name", [name for name in ENGINES if name != READS])
def test_the_jacobian_of_a_residual_does_not_wait(name):
    model, x, engine = mlp(), points(16, 2), ENGINES[name]
    assert reads(lambda: BURGERS.jacobian(model, x, engine)) == Counter()


class Branch(torch.nn.Module):
    """A network of points and data."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp(3)

    def forward(self, x: Tensor, a: Tensor) -> Tensor:
        return self.net(torch.cat([x, a], dim=1))


def of_residual(function: Callable[..., Any], model: Callable[[], Any] = mlp, **options: Any) -> Callable[..., Any]:
    """A training step of a residual, from points, vectors, an engine, and whether it is compiled."""
    data = (*options.get("data", ()), *options.get("network_data", ()))

    def step(x: Tensor, v: Tensor, engine: dudx.Engine, compile: bool) -> Callable[[], Any]:
        residual, network = dudx.Residual(function, ("x", "t"), compile=compile, **options), model()
        given = {name: v if name == "n" else v[:, :1] for name in data}
        return lambda: residual.loss(network, x, engine, **given).sum().backward()

    return step


def of_operators(model: Callable[[Tensor], Any], *operators: Any) -> Callable[..., Any]:
    def step(x: Tensor, v: Tensor, engine: dudx.Engine, compile: bool) -> Callable[[], Any]:
        network = model(v)
        asked = [dudx.Along(v) if operator is dudx.Along else operator for operator in operators]
        return lambda: dudx.evaluate(network, x, asked, engine, compile=compile)

    return step


def in_slices(x: Tensor, v: Tensor, engine: dudx.Engine, compile: bool) -> Callable[[], Any]:
    residual, network = dudx.Residual(BURGERS.function, ("x", "t"), compile=compile), mlp()
    return lambda: dudx.backward(lambda part: residual.loss(network, part, engine), x, chunk=8)


STEPS = {
    "operators": of_operators(lambda v: mlp(), D(), D(0), Laplacian(), dudx.Along),
    "tensor of second order": of_operators(lambda v: mlp(), dudx.Second([[2.0, 0.5], [0.5, 1.0]])),
    "given data": of_operators(lambda v: dudx.given(Branch(), a=v[:, :1]), D(0), Laplacian()),
    "residual": of_residual(BURGERS.function),
    "along data": of_residual(ROBIN.function, data=("n",)),
    "data of the network": of_residual(lambda u, a: u.x - a * u, Branch, network_data=("a",)),
    "further network": of_residual(lambda u, k: (k * u.x).x, networks={"k": mlp(seed=3)}),
    "expression": of_residual(lambda u, points: (u * u.x * points[:, :1]).x),
    "ensemble": of_residual(BURGERS.function, lambda: dudx.ensemble([mlp(seed=1), mlp(seed=2)])),
    "integral": of_residual(lambda u: u.x - u.integral({"t": (0, 1)})),
    "integral up to the point": of_residual(lambda u, t: u.x - u.integral({"t": (0, t)})),
    "fractional": of_residual(lambda u: u.caputo("t", 0.5) - u.xx),
    "slices": in_slices,
}
COMPILED = ("Taylor", "FD", "EFD", "SFD")


@pytest.mark.filterwarnings("ignore::dudx.errors.CompilationWarning")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("name", "compile"),
    [(name, False) for name in ENGINES if name != READS] + [(name, True) for name in COMPILED],
)
def test_no_step_of_any_kind_waits(name, compile, step, monkeypatch):
    """What is compiled runs as it is: a mode does not see into a graph, which torch refuses to make of reads."""
    if name.startswith("PerSampleAD") and step == "ensemble":
        return  # refused
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    x, v = points(16, 2).abs(), points(16, 2, seed=1)
    assert reads(STEPS[step](x, v, ENGINES[name], compile)) == Counter()


@pytest.mark.parametrize("network", ["batch norm", "hidden mean over the batch", "attention over the batch"])
@pytest.mark.parametrize("name", ["AD", "Taylor", "FD", "EFD", "SFD"])
def test_isolated_networks_do_not_wait(name, network):
    model, x, engine = made(COUPLED, network), points(16, 2), ENGINES[name]
    assert reads(lambda: residual_step(dudx.isolate(model, x), x, engine)) == Counter()


def test_stencils_inside_a_domain_read_as_often_as_documented():
    model, x = mlp(), points(16, 2)
    found = reads(lambda: dudx.evaluate(model, x, [D(0), Laplacian()], ENGINES[READS]))
    assert 0 < found.total() <= 16


@pytest.mark.parametrize(
    ("step", "kernel"),
    [
        (lambda x: float(x.sum()), "_local_scalar_dense"),
        (lambda x: x[x > 0], "index"),
        (lambda x: bool((x > 0).any()), "_local_scalar_dense"),
        (lambda x: (x > 0).nonzero(), "nonzero"),
        (lambda x: torch.equal(x, x + 1), "equal"),
        (lambda x: torch.allclose(x, x + 1), "allclose"),
        (lambda x: x[:, 0].unique(), "_unique2"),
        (lambda x: torch.tensor([1.0]).to(x), "lift_fresh"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_read_is_counted(step, kernel):
    with DeviceReads() as seen:
        step(points(4, 2))
    assert seen.found[kernel]


@pytest.mark.filterwarnings("ignore::dudx.errors.NotFiniteWarning")
def test_points_that_are_not_finite_are_refused_at_each_check_of_the_schedule():
    model, x = mlp(), points(16, 2)
    bad = x.clone()
    bad[3, 1] = math.nan
    refused = []
    for call in range(1, 17):
        try:
            dudx.evaluate(model, bad, D(0), dudx.AD())
        except dudx.errors.InputError:
            refused.append(call)
    assert refused == [1, 2, 4, 8, 16]


def test_on_a_cpu_they_are_refused_in_every_call(monkeypatch):
    monkeypatch.undo()
    model, x = mlp(), points(16, 2)
    for _ in range(5):
        dudx.evaluate(model, x, D(0), dudx.AD())
    x[3, 1] = math.inf
    for _ in range(5):
        with pytest.raises(dudx.errors.InputError, match="row 3"):
            dudx.evaluate(model, x, D(0), dudx.AD())
