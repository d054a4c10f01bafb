"""Problems as they are stated: what conditions come to, and what is wrong with bad ones."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import dudx
from dudx.errors import InputError
from dudx.lab import (
    Ball,
    Box,
    Data,
    Dirichlet,
    Disc,
    Equation,
    Initial,
    Interface,
    Interval,
    Mesh,
    Neumann,
    Periodic,
    Polygon,
    Problem,
    Robin,
)
from dudx.lab.problems.conditions import Condition
from dudx.lab.run.networks.assembled import assembled
from dudx.lab.run.networks.mlp import MLP

F64 = torch.float64
PLATE = Box((0, 0), (1, 1)) - Disc((0.5, 0.5), 0.2)
SQUARE = Box((0, 0), (1, 1))
ROD = Interval(0, 2) * Interval(0, 1)


def laplace(u: Any) -> Any:
    return u.xx + u.yy


def drawn(condition: Condition, n: int = 400) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    points, data = condition.sample(n, torch.Generator().manual_seed(0), torch.device("cpu"), F64)
    return points, dict(data)


class Known(nn.Module):
    """A function whose derivatives are known."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def left_over(problem: Problem, function: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, float]:
    """How far a function is from satisfying each condition."""
    found = {}
    for condition in problem.conditions:
        x, data = drawn(condition)
        values = condition.residual(Known(function), x, dudx.AD(), **data)
        found[condition.name] = max(
            float(v.detach().abs().max()) for v in (values if isinstance(values, tuple) else (values,))
        )
    return found


# -- conditions --------------------------------------------------------------------------------------------------------


def test_the_exact_solution_satisfies_every_kind_of_condition() -> None:
    # u = x² y: u_n on x=1 is 2xy, on y=0 it is -x², and so on; inside the hole's rim ∂u/∂n = ∇u·n.
    def rim(u: Any, n: Any, x: Any, y: Any) -> Any:
        return u.along(n) - (2 * x * y * n[:, :1] + x * x * n[:, 1:])

    problem = Problem(
        lambda u, y: u.xx + u.yy - 2 * y,
        inputs=("x", "y"),
        domain=PLATE,
        conditions=[
            Dirichlet(u=0.0, on="left"),
            Neumann(u=lambda x, y: 2 * x * y, on="x=1"),
            Robin(a=2.0, g=lambda x: -x * x, on="bottom"),
            Dirichlet(u=lambda x: x * x, on=lambda y: y == 1),
            Equation(rim, on=PLATE.holes),
            Interface(lambda u, x: u.x - 2 * x * 0.3, at="y=0.3"),
            Data([[0.1, 0.2], [0.9, 0.9]], u=[0.002, 0.729], u_x=[0.04, 1.62]),
        ],
    )
    found = left_over(problem, lambda x: x[:, :1] ** 2 * x[:, 1:])
    assert set(found) == {"dirichlet", "dirichlet_2", "neumann", "robin", "equation", "interface", "data"}
    assert max(found.values()) < 1e-14
    wrong = left_over(problem, lambda x: x[:, :1] ** 2 * x[:, 1:] + torch.exp(x[:, :1]) * (1 + x[:, 1:] ** 2))
    assert min(wrong.values()) > 1e-2


def test_conditions_of_one_form_are_one_term_with_the_values_of_each_piece() -> None:
    problem = Problem(
        laplace,
        ("x", "y"),
        PLATE,
        [Dirichlet(u=5.0, on="holes"), Dirichlet(u=lambda y: y, on="outside")],
    )
    (condition,) = problem.conditions
    assert condition.name == "boundary"
    x, data = drawn(condition, 2000)
    hole = (x - 0.5).norm(dim=1) < 0.3
    assert torch.equal(data["g"][hole], torch.full_like(data["g"][hole], 5.0))
    assert torch.equal(data["g"][~hole], x[~hole, 1:])
    # Uniform by length over both.
    assert float(hole.double().mean()) == pytest.approx(0.4 * math.pi / (4 + 0.4 * math.pi), abs=0.03)


def test_several_outputs_derivatives_by_name_and_the_start_in_time() -> None:
    problem = Problem(
        lambda u, v: (u.tt - u.xx + v, v.t - v.xx),
        ("x", "t"),
        ROD,
        [
            Initial(u=lambda x: torch.sin(x), u_t=lambda x: torch.cos(x), v=0.0),
            Dirichlet(u=lambda x, t: torch.sin(x + t), v=lambda t: t),
        ],
    )
    assert problem.names == ("u", "v")
    assert problem.orders == {"u": {"t": 2, "x": 2}, "v": {"t": 1, "x": 2}}
    assert problem.doubts == ()
    found = left_over(problem, lambda x: torch.cat([torch.sin(x[:, :1] + x[:, 1:]), x[:, 1:]], dim=1))
    assert found.keys() == {"initial", "boundary"}
    assert max(found.values()) < 1e-14


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        ("left", [(0, 0.0)]),
        ("top", [(1, 1.0)]),
        (["x=0", "x=1"], [(0, 0.0), (0, 1.0)]),
        (SQUARE.pieces[0], [(0, 0.0)]),
        (lambda x, y: (x == 1) & (y > 0.5), [(0, 1.0)]),
    ],
)
def test_pieces_are_chosen_by_name_piece_or_predicate(on: Any, expected: list[tuple[int, float]]) -> None:
    (condition,) = Problem(laplace, ("x", "y"), SQUARE, [Dirichlet(u=0.0, on=on)]).conditions
    x, _ = drawn(condition)
    there = torch.stack([x[:, axis] == at for axis, at in expected])
    assert there.any(dim=0).all()
    assert there.any(dim=1).all()
    if callable(on):
        assert (x[:, 1] > 0.5).all()


def test_polygons_and_balls_have_boundaries_with_normals() -> None:
    shapes = {
        "polygon": (Polygon((0, 0), (2, 0), (2, 1), (1, 1), (1, 2), (0, 2)), 8.0, 3.0 / 4.0),
        "ball": (Ball((0, 0, 0), 0.5), math.pi, math.pi / 6),
        "hollow": (Ball((0, 0, 0), 1.0) - Ball((0, 0, 0), 0.5), 5 * math.pi, 7 / 8 * math.pi / 6),
        "triangle": (Polygon((0, 0), (0, 1), (1, 0)), 2 + math.sqrt(2), 0.5),
    }
    for shape, measure, share in shapes.values():
        assert sum(piece.length for piece in shape.pieces) == pytest.approx(measure, rel=1e-9)
        assert shape._share == pytest.approx(share, rel=2e-2)
        x, n, _ = shape.sample_boundary(500, torch.Generator().manual_seed(1), dtype=F64)
        assert float(shape.signed_distance(x).abs().max()) < 1e-12
        assert torch.allclose(n.norm(dim=1), torch.ones(500, dtype=F64))
        # A small step along the normal goes as far out as it is long, but at corners.
        out = shape.signed_distance(x + 1e-4 * n)
        assert float(((out - 1e-4).abs() < 1e-9).double().mean()) > 0.99
        assert not shape.contains(x + 1e-4 * n).any()
    with pytest.raises(InputError, match="do not cross"):
        Polygon((0, 0), (1, 1), (1, 0), (0, 1))


TORUS = Path(__file__).parents[2] / "examples" / "gallery" / "torus.stl"


def test_a_body_from_a_file_has_an_inside_and_normals(tmp_path: Path) -> None:
    body = Mesh(TORUS)
    x = body.sobol(300, dtype=F64)
    assert float((body.signed_distance(x) <= 0).double().mean()) == 1.0
    ring = (x[:, :2].norm(dim=1) - 1).hypot(x[:, 2])
    assert float(ring.max()) < 0.4  # flat triangles are inside of the torus that their corners are on
    box = math.prod(b - a for a, b in zip(*body.bounds, strict=True))
    assert body._share * box == pytest.approx(2 * math.pi**2 * 0.16, rel=0.06)
    (piece,) = body.pieces
    assert (piece.share, piece.side) == (1.0, 1.0)
    assert piece.length == pytest.approx(4 * math.pi**2 * 0.4, rel=0.03)
    x, n, _ = body.sample_boundary(300, torch.Generator().manual_seed(0), dtype=F64)
    assert float(body.signed_distance(x).abs().max()) < 1e-12
    assert torch.allclose(body.signed_distance(x - 1e-3 * n), torch.full((300,), -1e-3, dtype=F64), atol=5e-4)
    # What the grid knows never contradicts the triangles.
    far = 3 * torch.rand(500, 3, dtype=F64) - 1.5
    quick, exact = body.signed_distance(far), body._exact(far)
    assert torch.equal(quick < 0, exact < 0)
    assert bool((quick.abs() <= exact.abs() + 1e-12).all())
    corners = body.corners.reshape(-1, 3)
    lines = [f"v {a} {b} {c}" for a, b, c in corners.tolist()]
    lines += [f"f {3 * i + 1} {3 * i + 2}/1 {3 * i + 3}" for i in range(len(body.corners))]
    (tmp_path / "a.obj").write_text("\n".join(lines))
    assert torch.equal(Mesh(tmp_path / "a.obj").corners, body.corners)
    facets = ["facet normal 0 0 1\nouter loop\n" + "".join(f"vertex {a} {b} {c}\n" for a, b, c in t) for t in
              body.corners.tolist()]  # fmt: skip
    (tmp_path / "a.stl").write_text("solid a\n" + "endloop\nendfacet\n".join(facets))
    assert torch.equal(Mesh(tmp_path / "a.stl").corners, body.corners)
    (tmp_path / "open.obj").write_text("\n".join(lines[:-1]))
    with pytest.raises(InputError, match="not closed"):
        Mesh(tmp_path / "open.obj")
    (tmp_path / "bad.stl").write_bytes(TORUS.read_bytes()[:-7])
    with pytest.raises(InputError, match="cannot be read"):
        Mesh(tmp_path / "bad.stl")


def test_unknown_constants_are_taken_by_name_and_have_gradients() -> None:
    problem = Problem(
        lambda u, nu, t: u.t - nu * u.xx + 0 * t,
        ("x", "t"),
        ROD,
        [Equation(lambda u, nu, n: nu * u.along(n) - u)],
        unknowns={"nu": 0.5},
    )
    nu = problem.unknowns["nu"]  # type: ignore[index]
    x = torch.rand(5, 2, dtype=F64)
    r = problem.residual(Known(lambda x: x[:, :1] ** 2 + x[:, 1:]), x, dudx.AD())
    assert torch.allclose(r, torch.zeros_like(r))
    (gradient,) = torch.autograd.grad(r.sum(), nu)
    assert float(gradient) == pytest.approx(-10.0)


# -- networks ----------------------------------------------------------------------------------------------------------


def network(problem: Problem) -> nn.Module:
    torch.manual_seed(0)
    return assembled(problem, lambda i, o, b: MLP(i, o, 8, 2, b), problem.domain.bounds).double()


@pytest.mark.parametrize("engine", [dudx.AD(), dudx.Taylor()])
def test_a_periodic_solution_repeats_itself_with_its_derivatives(engine: dudx.Engine) -> None:
    problem = Problem(
        lambda u: u.t + u.x, ("x", "t"), ROD, [Periodic("x"), Initial(u=lambda x: torch.sin(math.pi * x))]
    )
    assert problem.periodic == (0,)
    assert [condition.name for condition in problem.conditions] == ["initial"]
    model = network(problem)
    t = torch.rand(7, 1, dtype=F64)
    ends = [torch.cat([torch.full_like(t, end), t], dim=1) for end in (0.0, 2.0)]
    both = [dudx.evaluate(model, x, [dudx.D(), dudx.D(0), dudx.D(0, 0), dudx.D(1)], engine) for x in ends]
    for a, b in zip(*both, strict=True):
        assert torch.allclose(a, b, atol=1e-12)
    assert float(both[0][1].detach().std()) > 1e-3


def test_an_unknown_function_depends_on_its_inputs_only() -> None:
    problem = Problem(
        lambda k, u: k * u.xx + k.x * u.x - u.t, ("x", "t"), ROD, [Initial(u=0.0)], functions={"k": ("x",)}
    )
    model, x = network(problem), torch.rand(6, 2, dtype=F64)
    later = torch.cat([x[:, :1], x[:, 1:] + 0.3], dim=1)
    assert torch.equal(model(x)[:, 0], model(later)[:, 0])
    assert not torch.allclose(model(x)[:, 1], model(later)[:, 1])
    exact, taylor = (problem.residual(model, x, engine) for engine in (dudx.AD(), dudx.Taylor()))
    assert torch.allclose(exact, taylor, atol=1e-12)


HARD = {
    "plate": (PLATE, [Dirichlet(u=1.0, on="outside", hard=True), Dirichlet(u=lambda x: 3 * x, on="holes", hard=True)]),
    "disc": (Disc((0, 0), 1), [Dirichlet(u=lambda x, y: x * y, hard=True)]),
    "triangle": (Polygon((0, 0), (1, 0), (0, 1)), [Dirichlet(u=lambda x: torch.sin(x), hard=True)]),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_values_hold_whatever_the_network_is(name: str) -> None:
    domain, conditions = HARD[name]
    problem = Problem(laplace, ("x", "y"), domain, conditions)
    soft = Problem(laplace, ("x", "y"), domain, [Dirichlet(on=c.on, **c.given) for c in conditions])
    assert len(problem.conditions) == 0
    model, (condition,) = network(problem), soft.conditions
    x, data = drawn(condition)
    assert float((model(x) - data["g"]).detach().abs().max()) < 1e-12
    inside = domain.sample(50, torch.Generator().manual_seed(0), dtype=F64)
    exact, taylor = (problem.residual(model, inside, engine) for engine in (dudx.AD(), dudx.Taylor()))
    assert torch.allclose(exact, taylor, rtol=1e-9, atol=1e-9)


def test_a_hard_start_and_boundary_that_fit_each_other_hold_together() -> None:
    conditions = [Initial(u=lambda x: x * (2 - x), hard=True), Dirichlet(u=0.0, hard=True)]
    problem = Problem(lambda u: u.t - u.xx, ("x", "t"), ROD, conditions)
    model = network(problem)
    x = torch.tensor([[0.0, 0.4], [2.0, 0.9], [0.5, 0.0], [1.0, 0.0]], dtype=F64)
    assert torch.allclose(model(x)[:, 0], torch.tensor([0.0, 0.0, 0.75, 1.0], dtype=F64))


# -- bad problems ------------------------------------------------------------------------------------------------------

BAD: dict[str, tuple[str, Callable[[], Problem]]] = {
    "a boundary that is not there": (
        r"boundary that does not exist, 'x=3'; there is 'x=0', 'x=1', 'y=0'",
        lambda: Problem(laplace, ("x", "y"), SQUARE, [Dirichlet(u=0.0, on="x=3")]),
    ),
    "a shape that is not there": (
        "boundary that does not exist",
        lambda: Problem(laplace, ("x", "y"), SQUARE, [Dirichlet(u=0.0, on=Disc((0, 0), 1))]),
    ),
    "nowhere true": (
        "false at all of",
        lambda: Problem(laplace, ("x", "y"), SQUARE, [Dirichlet(u=0.0, on=lambda x: x > 2)]),
    ),
    "an input that is not there": (
        "named 'zz'; the inputs are x, y",
        lambda: Problem(lambda u: u.xx + u.zz, ("x", "y"), SQUARE, [Dirichlet(u=0.0)]),
    ),
    "a coordinate taken for a function": (
        "'z' and asks for no derivative of it",
        lambda: Problem(lambda u, z: u.xx + z, ("x", "y"), SQUARE, [Dirichlet(u=0.0)]),
    ),
    "an empty domain": (
        "seems to be empty",
        lambda: Problem(laplace, ("x", "y"), SQUARE - Box((-1, -1), (2, 2)), []),
    ),
    "values of the wrong shape": (
        r"gives shape \(4, 2\) for 4 points",
        lambda: Problem(laplace, ("x", "y"), SQUARE, [Dirichlet(u=lambda x, y: torch.cat([x, y], 1))]),
    ),
    "data of the wrong shape": (
        r"shape \(3,\); there are 2 points",
        lambda: Problem(laplace, ("x", "y"), SQUARE, [Data([[0, 0], [1, 1]], u=[1, 2, 3])]),
    ),
    "an array on a boundary": (
        "given by Data",
        lambda: Problem(laplace, ("x", "y"), SQUARE, [Dirichlet(u=[1.0, 2.0])]),  # type: ignore[arg-type]
    ),
    "a function that is not there": (
        "gives a value to 'v'",
        lambda: Problem(laplace, ("x", "y"), SQUARE, [Dirichlet(v=1.0)]),
    ),
    "a value of another input": (
        "takes 't', which is none of the inputs",
        lambda: Problem(laplace, ("x", "y"), SQUARE, [Dirichlet(u=lambda t: t)]),
    ),
    "two values": (
        "Two conditions give a value to u",
        lambda: Problem(laplace, ("x", "y"), PLATE, [Dirichlet(u=1.0), Dirichlet(u=0.0, on="holes")]),
    ),
    "a start without a time": (
        "Initial needs a time",
        lambda: Problem(laplace, ("x", "y"), SQUARE, [Initial(u=0.0)]),
    ),
    "another dimension": (
        "2 dimensions and there are 3 inputs",
        lambda: Problem(laplace, ("x", "y", "z"), SQUARE, []),
    ),
    "hard where it cannot be": (
        "leave hard off",
        lambda: Problem(laplace, ("x", "y"), SQUARE | Box((0, 0), (2, 0.5)), [Dirichlet(u=0.0, hard=True)]),
    ),
    "hard values that contradict each other": (
        "differ where they meet",
        lambda: Problem(
            laplace, ("x", "y"), SQUARE, [Dirichlet(u=0.0, on="left", hard=True), Dirichlet(u=1.0, on="top", hard=True)]
        ),
    ),
    "periodic in a disc": (
        "periodic from one face of a box",
        lambda: Problem(laplace, ("x", "y"), Disc((0, 0), 1), [Periodic("x")]),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_problem_is_one_sentence(name: str) -> None:
    said, make = BAD[name]
    with pytest.raises(InputError, match=said) as caught:
        make()
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


DOUBTFUL: dict[str, tuple[str, Callable[[], Problem]]] = {
    "no boundary": (
        "order 2 in x for u and there is one condition across it",
        lambda: Problem(laplace, ("x", "y"), SQUARE, [Dirichlet(u=0.0, on=["left", "top", "bottom"])]),
    ),
    "a plate that is held once": (
        "order 4 in x for u and there are 2 conditions",
        lambda: Problem(lambda u: u.xxxx + u.yyyy, ("x", "y"), SQUARE, [Dirichlet(u=0.0)]),
    ),
    "a hole without condition": (
        "no condition on the circle around",
        lambda: Problem(laplace, ("x", "y"), PLATE, [Dirichlet(u=0.0, on="outside")]),
    ),
    "a wave without velocity": (
        "order 2 in t for u and there is one condition at the start",
        lambda: Problem(lambda u: u.tt - u.xx, ("x", "t"), ROD, [Initial(u=0.0), Dirichlet(u=0.0)]),
    ),
    "a jump": (
        "differ by 3 at x = 0, t = 0",
        lambda: Problem(lambda u: u.t - u.xx, ("x", "t"), ROD, [Initial(u=lambda x: 3 - 1.5 * x), Dirichlet(u=0.0)]),
    ),
    "a pressure": (
        "no condition on p",
        lambda: Problem(lambda u, p: (u.xx + u.yy + p.x, u.x), ("x", "y"), SQUARE, [Dirichlet(u=0.0)]),
    ),
}


@pytest.mark.parametrize("name", DOUBTFUL)
def test_a_doubtful_problem_is_told(name: str) -> None:
    said, make = DOUBTFUL[name]
    assert said in make().doubts[0]


def test_a_replaced_problem_keeps_what_was_stated() -> None:
    problem = Problem(
        lambda u: u.t - u.xx, ("x", "t"), ROD, [Periodic("x"), Initial(u=lambda x: x * (2 - x), hard=True)]
    )
    other = dataclasses.replace(problem, title="Another", domain=Interval(0, 3) * Interval(1, 2))
    assert (other.title, other.periodic) == ("Another", (0,))
    x = torch.tensor([[0.5, 1.0]], dtype=F64)
    assert float(network(other)(x)) == pytest.approx(0.75)
