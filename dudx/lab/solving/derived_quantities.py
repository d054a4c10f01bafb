"""Quantities derived from a solution: expressions at points, and their integrals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Generator, Tensor, nn

from dudx.engines.taylor import Taylor
from dudx.errors import InputError, whole_number
from dudx.lab.problems import Problem
from dudx.lab.problems.boundary_pieces import Piece, located, outward_side
from dudx.lab.problems.conditions.boundary_selection import BoundaryRegion, select_boundary
from dudx.lab.problems.conditions.variables import argument_names, with_arguments
from dudx.lab.run.coupled_view import InContext
from dudx.lab.solving.time_windows import Windows
from dudx.residual.residual_function import Residual

#: Generating vector of an embedded lattice rule with up to 2^20 points (F. Y. Kuo, lattice-32001-1024-1048576.3600).
_LATTICE = (1, 182667, 469891, 498753, 110745, 446247, 250185, 118627, 245333, 283199)
#: Random shifts of the lattice; their spread is the estimated error.
_SHIFTS = 8


class Trained(Protocol):
    """The part of a solution that derived quantities need."""

    problem: Problem
    network: nn.Module
    result: dict[str, Any]


@dataclass(frozen=True)
class Integral:
    """An integral of an expression of the solution.

    Attributes:
        value: the integral.
        error: the estimated error of the quadrature; that of the solution is not in it.
        measure: the length, area or volume integrated over, so that `value / measure` is the mean.
    """

    value: float
    error: float
    measure: float

    def __float__(self) -> float:
        return self.value


def derived_residual(solution: Trained, expression: Callable[..., Any], normals: bool = False) -> Residual:
    """Turn an expression of unknown functions, inputs, constants (and normals) into a residual.

    Its last value is the first unknown function, to be dropped.
    """
    if not callable(expression):
        raise InputError(f"An expression is a function, lambda u: u.x; got {type(expression).__name__}.")
    variables = solution.problem.variables
    asked, first, name = argument_names(expression), variables.outputs[0], variables.data_name("n")

    def with_first_function(given: Mapping[str, Any]) -> tuple[Any, ...]:
        # An expression need not ask for anything of the network; a residual must.
        returned = expression(**{key: given[key] for key in asked})
        return *(returned if isinstance(returned, tuple | list) else (returned,)), given[first]

    names = tuple(dict.fromkeys([*asked, first]))
    return variables.residual(with_arguments(with_first_function, names), (name,) if normals and name in asked else ())


def evaluated(solution: Trained, quantity: Residual, x: Tensor, **data: Tensor) -> Tensor:
    """Evaluate a residual at points, (N, number of its values), with the constants that were found."""
    found: Tensor | None = None
    windows = solution.network.parts(x) if isinstance(solution.network, Windows) else [(slice(None), solution.network)]
    with torch.no_grad(), solution.problem.holding(constants_of(solution)):
        for rows, network in windows:
            function = network.seen() if isinstance(network, InContext) else network
            returned = quantity(function, x[rows], Taylor(), **{name: values[rows] for name, values in data.items()})
            values = torch.cat(returned if isinstance(returned, tuple) else (returned,), dim=1)
            found = values.new_empty(len(x), values.shape[1]) if found is None else found
            found[rows] = values
    return x.new_empty(0, 1) if found is None else found


def constants_of(solution: Trained) -> dict[str, float]:
    """Return the unknown constants as the solution found them."""
    found, unknowns = solution.result.get("unknowns", {}), solution.problem.unknowns or {}
    return {name: found.get(name, float(value.detach())) for name, value in unknowns.items()}


def integrate(
    solution: Trained, expression: Callable[..., Any], on: Any, line: Any, at: Mapping[str, float], n: int
) -> Integral:
    """Integrate by a lattice rule with random shifts, whose points are folded so that it converges as 1/n²."""
    whole_number(n, "The number of points")
    problem = solution.problem
    if strangers := [name for name in at if name not in problem.inputs]:
        raise InputError(f"There is no input named {strangers[0]!r}; the inputs are {', '.join(problem.inputs)}.")
    if on is not None and line is not None:
        raise InputError("An integral is over a part of the boundary, on=, or over a line; give one of them.")
    quantity = derived_residual(solution, expression, on is not None)
    region = (
        None if on is None else select_boundary(None if on == "boundary" else on, problem.variables, problem.periodic)
    )
    count = max(64, 2 ** int(math.log2(n / _SHIFTS))) if n >= _SHIFTS else 64
    generator, sums, measures = Generator().manual_seed(0), [], []
    for _ in range(_SHIFTS):
        shift = torch.rand(len(problem.inputs) + 1, generator=generator, dtype=torch.float64)
        if line is not None:
            places = [_on_line(problem, line, at, count, shift)]
        elif region is None:
            places = [_inside(problem, at, count, shift)]
        else:
            places = _on_boundary(problem, region, at, count, shift)
        parts = [_sum(solution, quantity, x, normals) * weight for x, normals, weight in places]
        sums.append(sum(parts))
        measures.append(sum(len(x) * weight for x, _, weight in places))
    values = torch.tensor(sums, dtype=torch.float64)
    return Integral(
        float(values.mean()), float(2 * values.std() / math.sqrt(_SHIFTS)), math.fsum(measures) / len(measures)
    )


Place = tuple[Tensor, Tensor, float]


def _lattice(count: int, columns: int, shift: Tensor) -> Tensor:
    """Return points of the unit cube, (count, columns), folded so that functions on them count as periodic."""
    vector = torch.tensor([_LATTICE[i % len(_LATTICE)] % count for i in range(columns)], dtype=torch.float64)
    unit = (torch.arange(count, dtype=torch.float64)[:, None] * vector / count + shift[:columns]) % 1.0
    return 1 - (2 * unit - 1).abs()


def _inside(problem: Problem, at: Mapping[str, float], count: int, shift: Tensor) -> Place:
    """Return points of the domain, no normals, and the volume per point."""
    low, high = problem.domain.bounds
    free = [i for i, name in enumerate(problem.inputs) if name not in at]
    if not free:
        raise InputError("An integral is over one input at least; leave one out of at=.")
    unit = _lattice(count, len(free), shift)
    x = torch.tensor([float(at.get(name, 0.0)) for name in problem.inputs], dtype=torch.float64).repeat(count, 1)
    for column, axis in enumerate(free):
        x[:, axis] = low[axis] + (high[axis] - low[axis]) * unit[:, column]
    kept = ~problem.domain.lies_outside(x, relative=1e-9)
    if not kept.any():
        raise InputError(f"No point of the domain has {', '.join(f'{k} = {v:g}' for k, v in at.items())}.")
    return x[kept], x.new_empty(int(kept.sum()), 0), math.prod(high[i] - low[i] for i in free) / count


def _on_boundary(
    problem: Problem, region: BoundaryRegion, at: Mapping[str, float], count: int, shift: Tensor
) -> list[Place]:
    """Return the places of all pieces of a part of the boundary, with points by their lengths."""
    total, found = sum(piece.surface.measure for piece in region.pieces), []
    for piece in region.pieces:
        share = 2 ** math.ceil(math.log2(max(64, count * piece.surface.measure / total)))
        x, normals, weight = _on_piece(problem, piece, at, share, shift)
        kept = torch.ones(len(x), dtype=torch.bool) if region.where is None else region.where(x)
        found.append((x[kept], normals[kept], weight))
    return found


def _on_piece(problem: Problem, piece: Piece, at: Mapping[str, float], count: int, shift: Tensor) -> Place:
    """Return points of a piece of boundary, their outward normals, and the length per point."""
    shape, time = piece.shape, problem.time if piece.time is not None else None
    if any(name != problem.inputs[-1] or time is None for name in at):
        raise InputError("On a boundary only the time can be held at a value.")
    unit = _lattice(count, shape.dimension + 1, shift)
    points, normals = located(shape, torch.full((count,), piece.number), unit[:, :-1])
    outward = outward_side(shape, points, normals, torch.full((count,), piece.number))
    normals, weight = normals * outward[:, None], piece.surface.measure / count
    if time is not None:
        low, high = (corner[time] for corner in problem.domain.bounds)
        held = at.get(problem.inputs[time])
        when = unit[:, -1:] * (high - low) + low if held is None else torch.full_like(unit[:, -1:], held)
        points, normals = torch.cat([points, when], dim=1), torch.cat([normals, torch.zeros_like(when)], dim=1)
        weight *= high - low if held is None else 1.0
    kept = outward != 0
    return points[kept], normals[kept], weight


def _on_line(problem: Problem, line: Any, at: Mapping[str, float], count: int, shift: Tensor) -> Place:
    """Return points of a line between two points in the inputs that are not held."""
    free = [i for i, name in enumerate(problem.inputs) if name not in at]
    ends = [torch.as_tensor(end, dtype=torch.float64).reshape(-1) for end in line] if _two(line) else []
    if len(ends) != 2 or any(len(end) != len(free) for end in ends):
        names = ", ".join(problem.inputs[i] for i in free)
        raise InputError(f"A line is two points (a, b) with a coordinate for each of {names}; got {line!r}.")
    x = torch.tensor([float(at.get(name, 0.0)) for name in problem.inputs], dtype=torch.float64).repeat(count, 1)
    x[:, free] = ends[0] + (ends[1] - ends[0]) * _lattice(count, 1, shift)
    if bool(problem.domain.lies_outside(x).any()):
        raise InputError("The line leaves the domain; integrate over the parts of it that are inside.")
    return x, x.new_empty(count, 0), float((ends[1] - ends[0]).norm()) / count


def _two(line: Any) -> bool:
    return isinstance(line, Sequence) and len(line) == 2 and not isinstance(line, str)


def _sum(solution: Trained, quantity: Residual, x: Tensor, normals: Tensor) -> float:
    """Return the sum of a quantity of one value over points."""
    like = next(solution.network.parameters())
    data = {name: normals.to(like) for name in quantity.data}
    total = 0.0
    for start in range(0, len(x), 2**13):
        some = slice(start, start + 2**13)
        given = {name: values[some] for name, values in data.items()}
        values = evaluated(solution, quantity, x[some].to(like), **given)[:, :-1]
        if values.shape[1] != 1:
            raise InputError(f"An integral is of one value; the expression returns {values.shape[1]}.")
        total += float(values.double().sum())
    return total
