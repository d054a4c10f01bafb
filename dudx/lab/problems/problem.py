"""What a problem is: an equation in a domain, the conditions that select its solution, and a reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Generator, Tensor, nn

from dudx.errors import InputError
from dudx.lab.features import Features, Hard
from dudx.lab.problems.conditions.binding import Bound, bind
from dudx.lab.problems.conditions.bound import Condition, Points, Sampler
from dudx.lab.problems.conditions.frame import ALL, Frame, names_of
from dudx.lab.problems.conditions.stated import Stated
from dudx.lab.problems.default_device import refuse_another_default
from dudx.lab.problems.doubts import doubts
from dudx.lab.problems.geometry import Domain
from dudx.lab.problems.imposing import imposed
from dudx.residual.residual_function import Residual

__all__ = ["Condition", "Points", "Problem", "Sampler", "Solution"]

#: Points at which everything is tried when a problem is stated.
_TRIED = 4


class Solution(Protocol):
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
        residual: the equation, as a function of the unknown functions and of any inputs and unknown constants by name,
            that is to be zero; a tuple of several. `points` is all coordinates, (N, d). Or a `dudx.Residual`.
        inputs: the names of the coordinates, in the order of the domain's.
        domain: where it holds.
        conditions: what selects the solution; see `dudx.lab.problems.conditions`.
        name: the word for it in files and on the command line.
        title: what it is called in pictures.
        solution: the exact or computed solution; a function because loading it may take a moment.
        label: what it is called in tables, where the title is too long.
        outputs: how many unknown functions there are; as many as the equation names.
        rescaled: inputs are rescaled to [-1, 1] where their ranges differ much.
        features, hard: what is known of the solution, for networks that use it: columns to see, and values that hold
            by construction.
        unknowns: unknown constants of an inverse problem and where to start from, trained together with the network.
        functions: unknown functions that depend on some of the inputs only, `{"k": ("x", "y")}`: each is a network of
            its own.
        defaults: settings of a run that suit it: they override a profile's general ones, and its table for the problem
            them.

    What is wrong with it is said here, before anything is trained.
    """

    residual: Residual
    inputs: tuple[str, ...]
    domain: Domain
    conditions: Bound
    name: str
    title: str
    solution: Callable[[], Solution] | None
    label: str
    outputs: int
    rescaled: bool
    features: Callable[[], Features] | None
    hard: Callable[[], Hard] | None
    unknowns: Mapping[str, nn.Parameter] | None
    functions: Mapping[str, tuple[str, ...]]
    defaults: Mapping[str, Any]
    _frame: Frame = field(init=False, repr=False, compare=False)
    _starts: Mapping[str, Tensor] = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        residual: Callable[..., Any] | Residual,
        inputs: Sequence[str],
        domain: Domain,
        conditions: Sequence[Condition | Stated] = (),
        name: str = "problem",
        title: str = "",
        solution: Callable[[], Solution] | None = None,
        label: str = "",
        outputs: int | None = None,
        rescaled: bool = False,
        features: Callable[[], Features] | None = None,
        hard: Callable[[], Hard] | None = None,
        unknowns: Mapping[str, nn.Parameter | float] | None = None,
        functions: Mapping[str, Sequence[str]] | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        refuse_another_default()
        constants = {key: _parameter(key, start) for key, start in (unknowns or {}).items()}
        frame = _frame(residual, tuple(inputs), domain, constants)
        if outputs is not None and outputs != len(frame.outputs):
            raise InputError(
                f"The equation names {len(frame.outputs)} output(s) ({', '.join(frame.outputs)}), and outputs = "
                f"{outputs}; name them all, in order."
            )
        equation = residual if isinstance(residual, Residual) else frame.residual(residual)
        values = {
            "residual": equation, "inputs": tuple(inputs), "domain": domain, "conditions": bind(conditions, frame),
            "name": name, "title": title or name, "solution": solution, "label": label, "outputs": len(frame.outputs),
            "rescaled": rescaled, "features": features, "hard": hard, "unknowns": constants or None,
            "functions": _functions(functions or {}, frame), "defaults": dict(defaults or {}), "_frame": frame,
            "_starts": {key: value.detach().clone() for key, value in constants.items()},
        }  # fmt: skip
        for key, value in values.items():
            object.__setattr__(self, key, value)
        self._try()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the unknown functions, in the order of a network's outputs."""
        return self._frame.outputs

    @property
    def time(self) -> int | None:
        """The column of time; None where there is none."""
        return self._frame.time

    def operand(self, key: str) -> tuple[str, tuple[str, ...]]:
        """The unknown function that a key such as `u` or `u_t` names, and the inputs it is differentiated along."""
        return self._frame.operand(key)

    @property
    def periodic(self) -> tuple[int, ...]:
        """The columns along which the solution repeats itself."""
        return self.conditions.periodic

    @cached_property
    def orders(self) -> Mapping[str, Mapping[str, int]]:
        """Of each unknown function, the order of the equation along each input."""
        return self.residual.orders(self.domain.sobol(_TRIED, dtype=torch.float64))

    @cached_property
    def doubts(self) -> tuple[str, ...]:
        """What may be wrong with it, in sentences; of conditions that are given with samplers nothing is known."""
        if any(isinstance(one, Condition) for one in self.conditions.stated):
            return ()
        # Functions of their own inputs are looked for, and what selects them is a matter of data.
        orders = {name: along for name, along in self.orders.items() if name not in self.functions}
        return tuple(doubts(orders, self._frame, self.conditions))

    def restart(self) -> None:
        """Put unknown constants back to where they start from."""
        with torch.no_grad():
            for name, start in self._starts.items():
                (self.unknowns or {})[name].copy_(start)

    def imposed(self) -> nn.Module | None:
        """What lets conditions that are `hard` hold by construction, from points and a network's outputs."""
        return imposed(self.conditions.hard, self._frame)

    def _try(self) -> None:
        """Draw some points of everything, so that what is wrong comes to light."""
        if self.domain.dimension != len(self.inputs):
            raise InputError(
                f"The domain has {self.domain.dimension} dimensions and there are {len(self.inputs)} inputs "
                f"({', '.join(self.inputs)})."
            )
        generator, place, dtype = Generator().manual_seed(0), torch.device("cpu"), torch.float64
        self.domain.sample(_TRIED, generator, place, dtype)
        if any(isinstance(one, Condition) for one in self.conditions.stated):
            return  # samplers of one's own are run when they are needed
        unused = [name for name in self.names if name not in self.orders]
        alone = [name for name in self.names if not self.orders.get(name) and not self._mentioned(name)]
        if unused or alone:
            name = (unused or alone)[0]
            raise InputError(
                f"The equation takes {name!r} and asks for no derivative of it, and no condition names it; if it is a "
                f"coordinate it is missing among the inputs {', '.join(self.inputs)}, if a constant among the unknowns."
            )
        for condition in self.conditions:
            x, data = condition.sample(_TRIED, generator, place, dtype)
            condition.residual.operators(x, **data)
        self.imposed()

    def _mentioned(self, name: str) -> bool:
        keys = [key for one in self.conditions.stated for key in getattr(one, "given", ())]
        return name in self.functions or any(self._frame.operand(key)[0] == name for key in keys)


def _frame(
    residual: Callable[..., Any] | Residual,
    inputs: tuple[str, ...],
    domain: Domain,
    unknowns: Mapping[str, nn.Parameter],
) -> Frame:
    if isinstance(residual, Residual):
        return Frame(inputs, residual.outputs, domain, unknowns)
    if not callable(residual):
        raise InputError(f"The equation is a function, lambda u: u.xx + u.yy; got {type(residual).__name__}.")
    if not isinstance(domain, Domain):
        raise InputError(f"The domain is a shape such as Box((0, 0), (1, 1)); got {type(domain).__name__}.")
    names = tuple(name for name in names_of(residual) if name not in (*inputs, *unknowns, ALL))
    if not names:
        raise InputError("The equation takes the unknown functions by name, lambda u: ...; it takes none.")
    return Frame(inputs, names, domain, unknowns)


def _parameter(name: str, start: nn.Parameter | float) -> nn.Parameter:
    if isinstance(start, nn.Parameter):
        return start
    if isinstance(start, bool) or not isinstance(start, int | float):
        raise InputError(f"The unknown constant {name} starts from a number; got {type(start).__name__}.")
    return nn.Parameter(torch.tensor(float(start), dtype=torch.float64))


def _functions(functions: Mapping[str, Sequence[str]], frame: Frame) -> dict[str, tuple[str, ...]]:
    for name, inputs in functions.items():
        if name not in frame.outputs or not inputs or any(i not in frame.inputs for i in inputs):
            raise InputError(
                f"functions = {{{name!r}: {tuple(inputs)}}} names an unknown function of the equation "
                f"({', '.join(frame.outputs)}) and inputs that it depends on ({', '.join(frame.inputs)})."
            )
    return {name: tuple(inputs) for name, inputs in functions.items()}
