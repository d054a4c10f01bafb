"""Bad problems raise one sentence, and doubtful ones have a warning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from stated import PLATE, ROD, SQUARE, laplace, left_over

from dudx.errors import InputError
from dudx.lab import Box, Data, Dirichlet, Disc, Equation, Initial, Neumann, Periodic, Problem, Robin

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
    "two values by predicates": (
        "Two conditions give a value to u on 'x=0'",
        lambda: Problem(
            laplace, ("x", "y"), SQUARE, [Dirichlet(u=1.0, on="left"), Dirichlet(u=0.0, on=lambda y: y < 1)]
        ),
    ),
    "two predicates that overlap": (
        "Two conditions give a value to u on",
        lambda: Problem(
            laplace,
            ("x", "y"),
            SQUARE,
            [Dirichlet(u=lambda x: x, on=lambda y: y > 0.4), Dirichlet(u=1.0, on=lambda y: y < 0.5)],
        ),
    ),
    "two fluxes": (
        "value to the normal derivative of u on 'x=0'",
        lambda: Problem(laplace, ("x", "y"), SQUARE, [Neumann(u=1.0), Neumann(u=0.0, on="left")]),
    ),
    "two starts": (
        "value to u at the initial time",
        lambda: Problem(lambda u: u.t - u.xx, ("x", "t"), ROD, [Initial(u=1.0), Initial(u=0.0), Dirichlet(u=0.0)]),
    ),
    "all data outside": (
        "All 2 points of data lie outside",
        lambda: Problem(laplace, ("x", "y"), SQUARE, [Dirichlet(u=0.0), Data([[3.0, 0], [1, 7]], u=[1, 2])]),
    ),
    "a constant with the name of an input": (
        "unknown constant 'x' has the name of an input",
        lambda: Problem(laplace, ("x", "y"), SQUARE, [Dirichlet(u=0.0)], unknowns={"x": 1.0}),
    ),
    "an input named twice": (
        "must differ from each other",
        lambda: Problem(laplace, ("x", "x"), SQUARE, [Dirichlet(u=0.0)]),
    ),
    "values that are infinite": (
        "values of the condition boundary are not finite",
        lambda: Problem(laplace, ("x", "y"), SQUARE, [Dirichlet(u=lambda x: 1 / (x - x))]),
    ),
    "a function of values that fails": (
        "function for .* fails: ",
        lambda: Problem(laplace, ("x", "y"), SQUARE, [Dirichlet(u=lambda x: x / (1 // 0))]),
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


def laplace_with_source(u: Any, k: Any) -> Any:
    return u.xx + u.yy - k


def stokes(u: Any, v: Any, p: Any) -> Any:
    return u.xx + u.yy - p.x, v.xx + v.yy - p.y, u.x + v.y


DOUBTFUL |= {
    "a value and a flux": (
        "order 2 in x for u and there are 3 conditions across it, on 'x=0' and 'x=1': they may contradict",
        lambda: Problem(laplace, ("x", "y"), SQUARE, [Dirichlet(u=0.0), Neumann(u=1.0, on="left")]),
    ),
    "a value and a Robin condition on a hole": (
        "there are 2 conditions on the circle around",
        lambda: Problem(laplace, ("x", "y"), PLATE, [Dirichlet(u=0.0), Robin(a=1.0, g=3.0, on="holes")]),
    ),
}
WALLS = [Dirichlet(u=0.0, v=0.0, on=["top", "bottom", "holes"]), Dirichlet(u=1.0, v=0.0, on="left")]
DOUBTFUL |= {
    "fluxes only": (
        "no condition on u that fixes its value",
        lambda: Problem(laplace, ("x", "y"), PLATE, [Neumann(u=0.0)]),
    ),
    "fluxes only, by an equation": (
        "no condition on u that fixes its value",
        lambda: Problem(laplace, ("x", "y"), PLATE, [Equation(lambda u, n: u.along(n) - 1)]),
    ),
    "periodic all around": (
        "no condition on u that fixes its value",
        lambda: Problem(lambda u, x: u.xx + u.yy - x, ("x", "y"), SQUARE, [Periodic("x", "y")]),
    ),
    "a velocity and no pressure": (
        "no condition on p that fixes its value",
        lambda: Problem(stokes, ("x", "y"), PLATE, [*WALLS, Dirichlet(u=1.0, v=0.0, on="right")]),
    ),
    "an outlet with a pressure only": (
        "order 2 for u and there is no condition on 'x=1'",
        lambda: Problem(stokes, ("x", "y"), PLATE, [*WALLS, Dirichlet(p=0.0, on="right")]),
    ),
    "half an edge": (
        "order 2 for u and there is no condition on 'y=1', or on a part of it",
        lambda: Problem(
            laplace,
            ("x", "y"),
            PLATE,
            [
                Dirichlet(u=0.0, on=["left", "right", "bottom", "holes"]),
                Dirichlet(u=0.0, on=lambda x, y: (y == 1) & (x > 0.5)),
            ],
        ),
    ),
    "an unknown without data": (
        "no data to determine the unknown constant k",
        lambda: Problem(laplace_with_source, ("x", "y"), SQUARE, [Dirichlet(u=0.0)], unknowns={"k": 1.0}),
    ),
    "an unknown function without data": (
        "no data to determine the unknown function k",
        lambda: Problem(laplace_with_source, ("x", "y"), SQUARE, [Dirichlet(u=0.0)], functions={"k": ("x",)}),
    ),
    "a point of data outside": (
        "1 of 2 points of data lie outside of the domain, such as x = 0.5, y = 0.5",
        lambda: Problem(laplace, ("x", "y"), PLATE, [Dirichlet(u=0.0), Data([[0.5, 0.5], [0.1, 0.1]], u=[1, 2])]),
    ),
}

SOUND: dict[str, Callable[[], Problem]] = {
    "Helmholtz with fluxes": lambda: Problem(lambda u: u.xx + u.yy - u, ("x", "y"), PLATE, [Neumann(u=1.0)]),
    "fluxes and a value": lambda: Problem(laplace, ("x", "y"), PLATE, [Neumann(u=0.0), Data([[0.1, 0.1]], u=0.0)]),
    "a value and a flux, of a plate": lambda: Problem(
        lambda u: u.xxxx + u.yyyy, ("x", "y"), SQUARE, [Dirichlet(u=0.0), Neumann(u=0.0)]
    ),
    "Robin": lambda: Problem(laplace, ("x", "y"), PLATE, [Robin(a=1e-3, g=1e6)]),
    "heat with fluxes": lambda: Problem(lambda u: u.t - u.xx, ("x", "t"), ROD, [Initial(u=0.0), Neumann(u=0.0)]),
    "hard": lambda: Problem(laplace, ("x", "y"), SQUARE, [Dirichlet(u=0.0, hard=True)]),
    "predicates that agree": lambda: Problem(
        laplace, ("x", "y"), SQUARE, [Dirichlet(u=1.0, on=lambda x: x < 0.8), Dirichlet(u=1.0, on=lambda x: x > 0.3)]
    ),
    "velocity all around and the pressure at a point": lambda: Problem(
        stokes, ("x", "y"), PLATE, [*WALLS, Dirichlet(u=1.0, v=0.0, on="right"), Data([[0.9, 0.9]], p=0.0)]
    ),
    "data on the boundary with few digits": lambda: Problem(
        laplace, ("x", "y"), PLATE, [Dirichlet(u=0.0), Data([[0.64142, 0.64142], [1.00001, 0.3]], u=[1, 2])]
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_of_a_sound_problem_nothing_is_said(name: str) -> None:
    assert SOUND[name]().warnings == ()


@pytest.mark.parametrize("name", ["g", "n", "a", "points_", "g_u"])
def test_unknown_functions_may_have_any_name(name: str) -> None:
    """Among the names are those of the data of our own residuals: values g, normals n, coefficients a."""
    scope: dict[str, Any] = {}
    exec(f"def equation({name}): return {name}.xx + {name}.yy", scope)  # arguments are found by name
    kinds = [
        Dirichlet(on="left", **{name: 1.0}),
        Neumann(on="right", **{name: lambda y: 0 * y}),
        Robin(a=lambda y: 1 + y, g=2.0, on="top"),
        Data([[0.5, 0.5]], **{name: 1.0}),
    ]
    problem = Problem(scope["equation"], ("x", "y"), SQUARE, kinds)
    found = left_over(problem, lambda x: torch.ones_like(x[:, :1]))
    assert set(found) == {"dirichlet", "neumann", "robin", "data"}
    assert max(found.values()) < 1e-12
    wrong = left_over(problem, lambda x: x[:, :1] * 3)
    assert min(wrong.values()) > 0.1


@pytest.mark.parametrize("name", DOUBTFUL)
def test_a_doubtful_problem_is_told(name: str) -> None:
    said, make = DOUBTFUL[name]
    assert said in make().warnings[0]
