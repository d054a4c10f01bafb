"""Bad problems are refused in a sentence; of doubtful ones the doubt is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from stated import PLATE, ROD, SQUARE, laplace

from dudx.errors import InputError
from dudx.lab import Box, Data, Dirichlet, Disc, Initial, Periodic, Problem

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
    assert said in make().warnings[0]
