from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest
import torch
from helpers import every_engine
from torch import nn

import dudx
from dudx import CoupledModelError, Residual, backward, suggested_chunk
from dudx.backend import memory as heap
from dudx.engines.interface import RowsPerPoint
from dudx.errors import InputError

BURGERS = Residual(lambda u: u.t + u * u.x - 0.1 * u.xx, ("x", "t"))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)).double()


def gradient(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("chunk", [1, 7, 64, 100, 1000])
@pytest.mark.parametrize("name", [name for name in every_engine(1e-2, 2) if name != "SFD"])
def test_slices_add_up_to_the_gradient_of_the_whole_batch(name, chunk):
    """SFD is left out: its random steps are drawn anew for each slice."""
    engine = every_engine(1e-2, 2)[name]
    x = torch.rand(100, 2, dtype=torch.float64)
    whole, sliced = network(), network()
    if name.startswith("PerSample") and chunk < 7:
        chunk = 50  # a slice of one costs the reference a pass for each sample
    BURGERS.loss(whole, x, engine).backward()
    loss = backward(lambda part: BURGERS.loss(sliced, part, engine), x, chunk)
    assert torch.allclose(loss, BURGERS.loss(whole, x, engine), rtol=1e-10)
    # Differences divide rounding by the square of the step.
    tolerance = 1e-8 if name in ("FD", "EFD") else 1e-12
    assert (gradient(sliced) - gradient(whole)).abs().max() < tolerance * (1 + gradient(whole).abs().max())


def test_several_tensors_are_sliced_alike():
    robin = Residual(lambda u, n, g: u.along(n) + u - g, ("x", "y"), data=("n", "g"))
    x, n = torch.rand(2, 33, 2, dtype=torch.float64)
    g = torch.rand(33, 1, dtype=torch.float64)
    whole, sliced = network(), network()
    robin.loss(whole, x, dudx.Taylor(), n=n, g=g).backward()
    backward(lambda x, n, g: robin.loss(sliced, x, dudx.Taylor(), n=n, g=g), (x, n, g), chunk=10)
    assert (gradient(sliced) - gradient(whole)).abs().max() < 1e-12


def test_gradients_are_added_to_those_that_are_there():
    model, x = network(), torch.rand(10, 2, dtype=torch.float64)
    backward(lambda part: model(part).square().mean(), x, chunk=3)
    once = gradient(model)
    backward(lambda part: model(part).square().mean(), x, chunk=3)
    assert torch.allclose(gradient(model), 2 * once)


def coupled_network() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)).double()


@pytest.mark.parametrize("engine", [dudx.AD(), dudx.PerSampleAD(), dudx.AD(coupled="ignore")])
def test_a_coupled_network_has_no_slices(engine):
    model, x = coupled_network(), torch.rand(20, 2, dtype=torch.float64)
    with pytest.raises(CoupledModelError):
        backward(lambda part: BURGERS.loss(model, part, engine), x, chunk=5)


@pytest.mark.parametrize("engine", [dudx.AD(), dudx.PerSampleAD(), dudx.AD(coupled="ignore")])
def test_the_refusal_of_slices_names_what_is_not_refused(engine):
    model, x = coupled_network(), torch.rand(20, 2, dtype=torch.float64)
    with pytest.raises(CoupledModelError, match=r"isolate\(model, x\).*isolated\.at\(which\)") as refused:
        backward(lambda part: BURGERS.loss(model, part, engine), x, chunk=5)
    assert "PerSampleAD" not in str(refused.value)
    with pytest.raises(CoupledModelError, match="PerSampleAD"):  # which is a remedy where the batch is whole
        BURGERS.loss(model, x, dudx.AD())


@pytest.mark.parametrize(
    "context",
    [
        dudx.isolate,
        dudx.frozen,
        lambda model, x: dudx.isolate(model, x, exact=True),
        lambda model, x: dudx.isolate(model, 2 * x),
    ],
    ids=["isolate", "frozen", "exact", "isolate at moved points"],
)
def test_a_slice_is_no_context(context):
    model, x = coupled_network(), torch.rand(20, 2, dtype=torch.float64)
    with pytest.raises(CoupledModelError, match=r"a context of 5 .*isolated\.at\(which\)"):
        backward(lambda part: BURGERS.loss(context(model, part), part, dudx.Taylor()), x, chunk=5)
    assert all(p.grad is None for p in model.parameters())
    backward(lambda part: BURGERS.loss(context(model, part), part, dudx.Taylor()), x, chunk=20)


@pytest.mark.parametrize("context", [dudx.isolate, dudx.frozen])
def test_samples_are_taken_slice_by_slice_against_the_whole_context(context):
    whole, sliced, x = coupled_network(), coupled_network(), torch.rand(20, 2, dtype=torch.float64)
    sliced.load_state_dict(whole.state_dict())
    BURGERS.loss(context(whole, x), x, dudx.Taylor()).backward()
    inside = lambda part, which: BURGERS.loss(context(sliced, x).at(which), part, dudx.Taylor())  # noqa: E731
    backward(inside, (x, torch.arange(20)), chunk=6)
    assert (gradient(sliced) - gradient(whole)).abs().max() < 1e-12
    sliced.zero_grad()
    before = context(sliced, x)
    backward(lambda part, which: BURGERS.loss(before.at(which), part, dudx.Taylor()), (x, torch.arange(20)), chunk=6)
    assert (gradient(sliced) - gradient(whole)).abs().max() < 1e-12


def test_a_coupled_network_whole_is_no_slice():
    model, x = coupled_network(), torch.rand(20, 2, dtype=torch.float64)
    backward(lambda part: BURGERS.loss(model, part, dudx.PerSampleAD()), x, chunk=20)
    assert gradient(model).abs().max() > 0


def test_the_suggested_slice_shrinks_with_the_width():
    sizes = [suggested_chunk(nn.Linear(2, width)) for width in (16, 64, 256, 1024)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]
    assert suggested_chunk(nn.Linear(2, 64), device="cuda") >= 2**14


def test_the_suggested_slice_grows_with_the_threads_that_share_it():
    model, threads = nn.Sequential(nn.Linear(2, 128), nn.Tanh(), nn.Linear(128, 1)), torch.get_num_threads()
    sizes = []
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            sizes.append(suggested_chunk(model))
    finally:
        torch.set_num_threads(threads)
    assert sizes == [1024, 8192, 16384]


def test_the_suggested_slice_shrinks_with_the_rows_a_point_takes():
    model, x = nn.Sequential(nn.Linear(100, 128), nn.Tanh(), nn.Linear(128, 1)), torch.rand(8, 100)
    engine, whole = dudx.Taylor(), [dudx.Laplacian()]
    assert suggested_chunk(model, rows=engine.rows(x, whole)) < suggested_chunk(model, rows=engine.rows(x, [dudx.D(0)]))
    # Reverse mode passes few rows at once but keeps many: there memory decides.
    assert suggested_chunk(model, rows=dudx.AD().rows(x, whole)) < suggested_chunk(model)


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        (dudx.AD(), RowsPerPoint(4, 1 + 1 + 2 + 2)),  # the network, the gradient, and those of u_x and u_y
        (dudx.FD(step=0.1), RowsPerPoint(5, 5)),
        (dudx.FD(step=0.1, accuracy=4), RowsPerPoint(9, 9)),
        (dudx.EFD(steps={1: 0.1, 2: 0.2}), RowsPerPoint(5 + 2, 5 + 2)),  # u_x with a step of its own
        (dudx.SFD(steps=(0.1, 0.2)), RowsPerPoint(5, 5)),
        (dudx.Taylor(), RowsPerPoint(4, 4)),
    ],
)
def test_an_engine_knows_the_rows_a_point_takes(engine, expected):
    assert engine.rows(torch.rand(3, 2), [dudx.D(0), dudx.Laplacian()]) == expected


def test_counting_rows_draws_no_random_steps():
    generator = torch.Generator().manual_seed(1)
    before = generator.get_state()
    dudx.SFD(steps=(0.1, 0.2), generator=generator).rows(torch.rand(3, 2), [dudx.Laplacian()])
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((lambda x: x.mean(), torch.rand(4, 2), 0), "1 or more"),
        ((lambda x: x.mean(), torch.rand(0, 2), 2), "empty"),
        ((lambda x: x, torch.rand(4, 2), 2), "one number"),
        ((lambda x, y: x.mean(), (torch.rand(4, 2), torch.rand(3, 2)), 2), "same number of rows"),
    ],
)
def test_bad_requests(arguments, message):
    with pytest.raises(InputError, match=message):
        backward(*arguments)


SLICES = """
import resource
import sys
import torch
from torch import nn
import dudx

torch.set_num_threads(1)
if "keep" in sys.argv:
    possible = dudx.keep_freed_memory()
model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
equation = dudx.Residual(lambda u: u.laplacian(), ("x", "y"))
x = torch.rand(8192, 2)
faults = []
for _ in range(8):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    dudx.backward(lambda part: equation.loss(model, part, dudx.AD()), x, chunk=2048)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(sorted(faults)[4])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is glibc's")
def test_the_memory_of_a_slice_is_kept_for_the_next_if_that_is_asked_for():
    """And a user who has set the allocator up is not overruled."""
    own = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    bare = {name: value for name, value in os.environ.items() if name not in heap._SETTINGS}
    kept, untouched, overruled = (
        int(subprocess.run([sys.executable, "-c", SLICES, *asked], env=env, check=True, capture_output=True).stdout)
        for asked, env in ((["keep"], bare), ([], bare), (["keep"], bare | own))
    )
    assert kept < 200
    assert untouched > 2000
    assert overruled > 2000
