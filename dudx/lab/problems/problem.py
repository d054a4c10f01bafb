"""Problems: an equation in a domain, the conditions that select its solution, and a reference solution."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import Any, Protocol

import numpy as np
import torch
from torch import Generator, Tensor, nn

from dudx.errors import InputError
from dudx.lab.features import Coordinates, CornerFeature, Features, HardConstraint
from dudx.lab.problems.conditions.condition import Condition, Points, Sampler
from dudx.lab.problems.conditions.condition_set import ConditionSet, bind_conditions
from dudx.lab.problems.conditions.condition_types import ConditionSpec
from dudx.lab.problems.conditions.variables import POINTS_ARGUMENT, ProblemVariables, argument_names
from dudx.lab.problems.corners import Corner, re_entrant_corners
from dudx.lab.problems.default_device import check_default_device
from dudx.lab.problems.geometry import Domain
from dudx.lab.problems.hard_conditions import hard_conditions
from dudx.lab.problems.undetermined import undetermined
from dudx.lab.problems.well_posedness import initial_jumps, outside_domain, well_posedness_warnings
from dudx.residual.derivative_names import input_names
from dudx.residual.residual_function import Residual

__all__ = ["Condition", "Points", "Problem", "ReferenceSolution", "Sampler"]

#: Points of the domain and of each condition at which a problem is tried when it is constructed.
_PROBES = 4
#: Domains with more re-entrant corners get no features of them; points at which features are scaled.
_MOST_CORNERS, _FEATURE_POINTS = 8, 4096


class ReferenceSolution(Protocol):
    """A solution to compare with: values at its own points, and at any others."""

    @property
    def points(self) -> np.ndarray: ...

    @property
    def values(self) -> np.ndarray: ...

    def __call__(self, points: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True, init=False)
class Problem:
    """Everything that defines a problem; how it is solved is up to the settings of a run.

    ```python
    plate = Box((0, 0), (1, 1)) - Disc((0.5, 0.5), 0.2)
    problem = Problem(
        lambda u: u.t - 0.1 * (u.xx + u.yy), inputs=("x", "y", "t"), domain=plate * Interval(0, 1),
        conditions=[Dirichlet(u=0.0, on=plate.outside), Robin(a=1.0, g=5.0, on="holes"), Initial(u=0.0)],
    )
    ```

    Args:
        residual: the equation, a function of the unknown functions and of any inputs and unknown constants by name
            whose value is to be zero, or a tuple of several; `points` is all coordinates, (N, d). Or a `dudx.Residual`.
        inputs: the names of the coordinates, in the order of the domain's.
        domain: where the equation holds, such as `Box`, `Disc`, `Polygon`, their combinations, times an `Interval`.
        conditions: `Dirichlet`, `Neumann`, `Robin`, `Initial`, `Periodic`, `Equation`, `Interface`, `Data`.
        name: the name in files and on the command line.
        title: the title of plots.
        solution: a function that loads the exact or computed reference solution.
        label: a short title for tables.
        outputs: the number of unknown functions; as many as the equation names.
        rescaled: rescale inputs to [-1, 1] because their ranges differ much.
        features: input features for the network, from what is known of the solution.
        hard: a transformation of the network's output with which conditions hold by construction.
        unknowns: unknown constants of an inverse problem and their initial guesses, trained together with the network.
        functions: unknown functions that depend on some of the inputs only, `{"k": ("x", "y")}`: each is a network of
            its own.
        defaults: settings of a run that suit the problem: they override a profile's general settings, and are
            overridden by a profile's table for the problem.

    Errors in the statement of a problem are raised at construction, before anything is trained; see also `warnings`.
    """

    residual: Residual
    inputs: tuple[str, ...]
    domain: Domain
    conditions: ConditionSet
    name: str
    title: str
    solution: Callable[[], ReferenceSolution] | None
    label: str
    outputs: int
    rescaled: bool
    features: Callable[[], Features] | None
    hard: Callable[[], HardConstraint] | None
    unknowns: Mapping[str, nn.Parameter] | None
    functions: Mapping[str, tuple[str, ...]]
    defaults: Mapping[str, Any]
    _variables: ProblemVariables = field(init=False, repr=False, compare=False)
    _starts: Mapping[str, Tensor] = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        residual: Callable[..., Any] | Residual,
        inputs: Sequence[str],
        domain: Domain,
        conditions: Sequence[Condition | ConditionSpec] = (),
        name: str = "problem",
        title: str = "",
        solution: Callable[[], ReferenceSolution] | None = None,
        label: str = "",
        outputs: int | None = None,
        rescaled: bool = False,
        features: Callable[[], Features] | None = None,
        hard: Callable[[], HardConstraint] | None = None,
        unknowns: Mapping[str, nn.Parameter | float] | None = None,
        functions: Mapping[str, Sequence[str]] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        check_default_device()
        if isinstance(inputs, str):
            raise InputError(f'The inputs are names in a tuple, such as ("x", "t"); got {inputs!r}.')
        constants = {key: _parameter(key, start) for key, start in (unknowns or {}).items()}
        variables = _problem_variables(residual, input_names(inputs), domain, constants)
        if outputs is not None and outputs != len(variables.outputs):
            raise InputError(
                f"The equation names {len(variables.outputs)} output(s) ({', '.join(variables.outputs)}), and outputs "
                f"= {outputs}; name them all, in order."
            )
        equation = residual if isinstance(residual, Residual) else variables.residual(residual)
        values = {
            "residual": equation, "inputs": tuple(inputs), "domain": domain,
            "conditions": bind_conditions(conditions, variables), "name": name, "title": title or name,
            "solution": solution, "label": label, "outputs": len(variables.outputs), "rescaled": rescaled,
            "features": features, "hard": hard, "unknowns": constants or None,
            "functions": _functions(functions or {}, variables), "defaults": dict(defaults or {}),
            "_variables": variables,
            "_starts": {key: value.detach().clone() for key, value in constants.items()},
        }  # fmt: skip
        for key, value in values.items():
            object.__setattr__(self, key, value)
        self._check()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the unknown functions, in the order of a network's outputs."""
        return self._variables.outputs

    @property
    def time(self) -> int | None:
        """The column of time; None where there is none."""
        return self._variables.time

    def parse_derivative(self, key: str) -> tuple[str, tuple[str, ...]]:
        """Split a key such as `u` or `u_t` into the unknown function and the inputs it is differentiated along."""
        return self._variables.parse_derivative(key)

    @cached_property
    def starts_with_jump(self) -> bool:
        """True if initial values differ from those on the boundary, where the solution is singular then."""
        return bool(initial_jumps(self._variables, self.conditions))

    @property
    def periodic(self) -> tuple[int, ...]:
        """The columns along which the solution is periodic."""
        return self.conditions.periodic

    @cached_property
    def orders(self) -> Mapping[str, Mapping[str, int]]:
        """The order of the equation for each unknown function along each input."""
        return self.residual.orders(self.domain.sobol(_PROBES, dtype=torch.float64))

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about conditions that seem to be missing or to contradict each other.

        They are raised as `ProblemWarning` when training starts. Nothing is known of conditions with custom samplers.
        """
        if any(isinstance(spec, Condition) for spec in self.conditions.specs):
            return ()
        found = well_posedness_warnings(self.orders, self.functions, self._variables, self.conditions)
        if self.hard is not None:
            return tuple(found)
        for name in undetermined(self.residual, self._variables, self.conditions):
            fluxes = " If all conditions on it are fluxes, they must balance its sources, or there is no solution."
            found.append(
                f"There is no condition on {name} that fixes its value: it is known up to a constant at best; give its "
                f"value at a point, Data([[...]], {name}=0.0)." + (fluxes if max(self._orders_of(name)) > 1 else "")
            )
        return tuple(found)

    @property
    def variables(self) -> ProblemVariables:
        """The names of the problem and its domain."""
        return self._variables

    def _orders_of(self, name: str) -> list[int]:
        return [0, *self.orders.get(name, {}).values()]

    def restart(self) -> None:
        """Set unknown constants back to their initial guesses."""
        self._give(self._starts)

    def _give(self, constants: Mapping[str, Tensor | float]) -> None:
        with torch.no_grad():
            for name, parameter in (self.unknowns or {}).items():
                parameter.copy_(torch.as_tensor(constants[name], dtype=torch.float64))

    @contextmanager
    def holding(self, constants: Mapping[str, Tensor | float] | None = None) -> Iterator[None]:
        """Give the unknown constants other values for a while, by default their initial guesses."""
        before = {name: parameter.detach().clone() for name, parameter in (self.unknowns or {}).items()}
        self._give(self._starts if constants is None else constants)
        try:
            yield
        finally:
            self._give(before)

    @cached_property
    def singular_corners(self) -> tuple[Corner, ...]:
        """Re-entrant corners, where derivatives of the solution are unbounded, if no features were given."""
        if self.features is not None or self.periodic or self.functions:
            return ()
        found = re_entrant_corners(self.domain)
        return tuple(found) if len(found) <= _MOST_CORNERS else ()

    def known_features(self) -> Features | None:
        """Make the features that were given, or those of the domain's re-entrant corners."""
        if self.features is not None or not self.singular_corners:
            return None if self.features is None else self.features()
        low, high = self.domain.bounds
        size = max(b - a for a, b in zip(low[:2], high[:2], strict=True))
        corners = [CornerFeature(one.place, one.bisector, one.angle, size) for one in self.singular_corners]
        return Features(Coordinates(range(len(self.inputs))), *corners, at=self.domain.sobol(_FEATURE_POINTS))

    def _repr_html_(self) -> str:
        """A table of what the problem consists of, for notebooks."""
        low, high = self.domain.bounds
        extent = ", ".join(f"{n} from {a:g} to {b:g}" for n, a, b in zip(self.inputs, low, high, strict=True))
        rows = {
            "unknown functions": ", ".join(self.names),
            "inputs": extent,
            "conditions": ", ".join(
                str(getattr(one, "name", None) or type(one).__name__) for one in self.conditions.specs
            ),
            **({"unknown constants": ", ".join(self.unknowns)} if self.unknowns else {}),
            **({"warnings": " ".join(self.warnings)} if self.warnings else {}),
        }
        cells = "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in rows.items())
        return f"<h3>{escape(self.title)}</h3><table>{cells}</table>"

    def hard_conditions(self) -> nn.Module | None:
        """Make the module that lets `hard` conditions hold, from points and a network's outputs; None without any."""
        return hard_conditions(self.conditions.hard, self._variables)

    def _check(self) -> None:
        """Evaluate everything at a few points, so that errors are raised now."""
        generator, place, dtype = Generator().manual_seed(0), torch.device("cpu"), torch.float64
        self.domain.sample(_PROBES, generator, place, dtype)
        if any(isinstance(one, Condition) for one in self.conditions.specs):
            return  # custom samplers run when they are needed
        unused = [name for name in self.names if name not in self.orders]
        alone = [name for name in self.names if not self.orders.get(name) and not self._mentioned(name)]
        if unused or alone:
            name = (unused or alone)[0]
            raise InputError(
                f"The equation takes {name!r} and asks for no derivative of it, and no condition names it; if it is a "
                f"coordinate it is missing among the inputs {', '.join(self.inputs)}, if a constant among the unknowns."
            )
        for condition in self.conditions:
            x, data = condition.sample(_PROBES, generator, place, dtype)
            if not all(bool(values.isfinite().all()) for values in data.values()):
                raise InputError(f"The values of the condition {condition.name} are not finite at some of its points.")
            condition.residual.operators(x, **data)
        for spec in self.conditions.data:
            if bool(outside_domain(spec, self._variables).all()):
                raise InputError(
                    f"All {len(spec.points)} points of data lie outside of the domain, which reaches from "
                    f"{self.domain.bounds[0]} to {self.domain.bounds[1]}; their columns are {', '.join(self.inputs)}."
                )
        self.hard_conditions()

    def _mentioned(self, name: str) -> bool:
        keys = [key for one in self.conditions.specs for key in getattr(one, "given", ())]
        return name in self.functions or any(self._variables.parse_derivative(key)[0] == name for key in keys)


def _problem_variables(
    residual: Callable[..., Any] | Residual,
    inputs: tuple[str, ...],
    domain: Domain,
    unknowns: Mapping[str, nn.Parameter],
) -> ProblemVariables:
    if not isinstance(domain, Domain):
        raise InputError(f"The domain is a shape such as Box((0, 0), (1, 1)); got {type(domain).__name__}.")
    if domain.dimension != len(inputs):
        raise InputError(
            f"The domain has {domain.dimension} dimensions and there are {len(inputs)} inputs ({', '.join(inputs)})."
        )
    if shared := sorted(set(unknowns) & {*inputs, POINTS_ARGUMENT}):
        raise InputError(f"The unknown constant {shared[0]!r} has the name of an input; give it another name.")
    if isinstance(residual, Residual):
        return ProblemVariables(inputs, residual.outputs, domain, unknowns)
    if not callable(residual):
        raise InputError(f"The equation is a function, lambda u: u.xx + u.yy; got {type(residual).__name__}.")
    names = tuple(name for name in argument_names(residual) if name not in (*inputs, *unknowns, POINTS_ARGUMENT))
    if not names:
        raise InputError("The equation takes the unknown functions by name, lambda u: ...; it takes none.")
    return ProblemVariables(inputs, names, domain, unknowns)


def _parameter(name: str, start: nn.Parameter | float) -> nn.Parameter:
    if isinstance(start, nn.Parameter):
        return start
    if isinstance(start, bool) or not isinstance(start, int | float):
        raise InputError(f"The unknown constant {name} starts from a number; got {type(start).__name__}.")
    return nn.Parameter(torch.tensor(float(start), dtype=torch.float64))


def _functions(functions: Mapping[str, Sequence[str]], variables: ProblemVariables) -> dict[str, tuple[str, ...]]:
    for name, inputs in functions.items():
        if name not in variables.outputs or not inputs or any(i not in variables.inputs for i in inputs):
            raise InputError(
                f"functions = {{{name!r}: {tuple(inputs)}}} names an unknown function of the equation "
                f"({', '.join(variables.outputs)}) and inputs that it depends on ({', '.join(variables.inputs)})."
            )
    return {name: tuple(inputs) for name, inputs in functions.items()}
