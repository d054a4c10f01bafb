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
