"""Ways to draw points."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dudx.errors import InputError
from dudx.lab.problems import problem
from dudx.lab.problems.geometry import Circle
from dudx.lab.sampling import SamplingContext, sampling, samplings

CPU, DOUBLE = torch.device("cpu"), torch.float64


def place(name: str, seed: int = 0, residual: object = None) -> SamplingContext:
    generator = torch.Generator().manual_seed(seed)
    return SamplingContext(problem(name).domain, generator, CPU, DOUBLE, residual)  # type: ignore[arg-type]


@pytest.mark.parametrize("way", samplings())
@pytest.mark.parametrize("name", ["heat", "burgers"])
def test_every_way_draws_points_of_the_domain_again_the_same(way: str, name: str) -> None:
    holes = any(isinstance(piece.surface, Circle) for piece in problem(name).domain.pieces)
    if way == "near-holes" and not holes:
        with pytest.raises(InputError, match="no such boundary"):
            sampling(way).interior(100, place(name))
        return
    one, same, other = (sampling(way).interior(300, place(name, seed, lambda x: x[:, 0].abs())) for seed in (0, 0, 1))
    assert one.shape == (300, problem(name).domain.dimension)
    assert one.dtype == DOUBLE
    assert problem(name).domain.contains(one).all()
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_uniform_points_are_those_the_domain_draws() -> None:
    drawn = sampling("uniform").interior(50, place("poisson"))
    assert torch.equal(drawn, problem("poisson").domain.sample(50, torch.Generator().manual_seed(0), CPU, DOUBLE))


def test_adaptive_points_are_where_the_residual_is() -> None:
    def front(x: Tensor) -> Tensor:
        return 1 / (0.01 + x[:, 0].abs())

    near = [
        float((sampling(way).interior(1000, place("burgers", 0, front))[:, 0].abs() < 0.1).double().mean())
        for way in ("uniform", "0.5 uniform + 0.5 adaptive", "adaptive")
    ]
    assert near[0] < 0.15
    assert near[0] + 0.1 < near[1] < near[2]
    # With a higher power they are there more often, and with none but the floor they are even.
    strong = sampling("adaptive", power=2.0, floor=0.0).interior(500, place("burgers", 0, front))
    assert float((strong[:, 0].abs() < 0.1).double().mean()) > near[2]
    even = sampling("adaptive", floor=1e9).interior(1000, place("burgers", 0, front))
    assert float((even[:, 0].abs() < 0.1).double().mean()) < 0.15


def test_early_points_are_even_in_the_square_root_of_time_on_the_boundary_too() -> None:
    early = sampling("early")
    there = place("heat")
    roots = (early.interior(4000, there)[:, -1] / 3).sqrt()
    assert abs(float(roots.mean()) - 0.5) < 0.02
    assert abs(float((roots < 0.25).double().mean()) - 0.25) < 0.03
    condition = problem("heat").conditions[1]
    points, data = early.boundary(2000, lambda n: condition.sample(n, there.generator, CPU, DOUBLE), there)
    assert points.shape == (2000, 3)
    assert {name: len(values) for name, values in data.items()} == {"n": 2000, "g": 2000}
    assert 0.15 < float(((points[:, -1] / 3).sqrt() < 0.25).double().mean()) < 0.35


def test_points_near_the_boundary_are_nearer_than_even_ones() -> None:
    domain = problem("poisson").domain
    distances = [
        float(-domain.signed_distance(sampling(way).interior(1000, place("poisson"))).mean())
        for way in ("uniform", "near-boundary", "near-holes")
    ]
    assert distances[1] < 0.5 * distances[0]
    assert distances[2] < 0.7 * distances[0]


def test_near_the_boundary_in_time_means_as_far_as_things_have_spread() -> None:
    domain = problem("heat").domain
    points = sampling("near-boundary").interior(4000, place("heat"))
    distance, share = -domain.space.signed_distance(points[:, :-1]), points[:, -1] / 3  # type: ignore[attr-defined]
    early = share < 0.01
    assert early.any()
    assert float(distance[early].mean()) < 0.3 * float(distance[~early].mean())


def test_shares_of_a_batch_add_up() -> None:
    mixed = sampling("0.3 uniform + 0.3 early + 0.4 near-boundary")
    assert [count for _, count in mixed._counts(101)] == [31, 30, 40]
    assert len(mixed.interior(101, place("heat"))) == 101


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("unifrom", "did you mean 'uniform'"),
        ("0.5 uniform + 0.6 adaptive", "add up to 1"),
        ("uniform + adaptive", "a name, or shares and names"),
        ("", "a name, or shares and names"),
        ("2 uniform", "a name, or shares and names"),
    ],
)
def test_a_text_that_is_no_sampling_is_a_sentence(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        sampling(text)


def test_without_time_there_is_nothing_early() -> None:
    with pytest.raises(InputError, match="has no time"):
        sampling("early").interior(10, place("poisson"))
