"""Names in a residual: inputs, data, outputs, and derivatives such as `xxt`, two along x and one along t."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from torch import Tensor

from dudx.errors import InputError

#: The parameter of a residual's function that is all inputs, (B, d).
ALL_COORDINATES = "points"


def input_names(inputs: Any) -> tuple[str, ...]:
    """The names of a network's inputs after a check."""
    if not _are_names(inputs) or not inputs:
        raise InputError(f'The inputs are named by a tuple such as ("x", "t"); got {inputs!r}.')
    reserved = {"d", "along", "laplacian", "second", "integral", "caputo", "fractional_laplacian"} & set(inputs)
    if reserved or len(set(inputs)) < len(inputs):
        raise InputError(
            "Input names must differ from each other and from d, along, laplacian, second, integral, caputo, "
            f"fractional_laplacian; got {inputs!r}."
        )
    return tuple(inputs)


def data_names(data: Any, network_data: Any, functions: Any, inputs: tuple[str, ...]) -> tuple[str, ...]:
    """The names of all data that come with a call; names of data that the network takes may be in `data` too."""
    for names in (data, network_data, functions):
        if not _are_names(names):
            raise InputError(f'The data are named by a tuple such as ("n",); got {names!r}.')
        taken = {*inputs, "self", "model", "x", "engine"} & set(names)
        if taken or len(set(names)) < len(names):
            raise InputError(
                "The names of the data must differ from each other, from the inputs and from model, x, engine; "
                f"got {names!r}."
            )
    if set(network_data) & set(functions):
        raise InputError("Data have a row for each point, network_data=, or for each function, functions=, not both.")
    return tuple(dict.fromkeys((*data, *network_data, *functions)))


def parameters_of(
    function: Callable[..., Any], known: set[str], networks: Collection[str] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The parameters of a residual's function that are outputs, neither inputs nor data, and all that are passed."""
    if ALL_COORDINATES not in networks:
        known = {*known, ALL_COORDINATES}
    kinds = inspect.Parameter
    passed, outputs = [], []
    try:
        parameters = inspect.signature(function).parameters
    except ValueError as error:
        raise InputError("The parameters of this built-in function are unknown; wrap it in a lambda.") from error
    for name, parameter in parameters.items():
        if parameter.kind in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD, kinds.POSITIONAL_ONLY):
            raise InputError("A residual's parameters are matched by name: write them out, without *, ** or /.")
        if name not in known and parameter.default is not kinds.empty:
            continue
        passed.append(name)
        if name not in known:
            outputs.append(name)
    if not outputs:
        raise InputError("A residual needs at least one parameter that names an output of the network, such as u.")
    return tuple(outputs), tuple(passed)


def networks_last(outputs: Sequence[str], networks: Collection[str]) -> tuple[str, ...]:
    """The outputs with those of networks beside the model at the end."""
    if set(networks) - set(outputs) or len(networks) == len(outputs):
        raise InputError(
            f"Networks are named after parameters of the function, beside one for the model's output; got "
            f"{sorted(networks)} for ({', '.join(outputs)})."
        )
    return (*(name for name in outputs if name not in networks), *networks)


def _are_names(names: object) -> bool:
    if isinstance(names, str) or not isinstance(names, Sequence):
        return False
    return all(isinstance(name, str) and name.isidentifier() for name in names)


def axes_named(name: str, inputs: Sequence[str]) -> tuple[int, ...] | None:
    """The axes of a chain of input names, longest first: "xxt" is (0, 0, 1) for inputs x and t; None if it is none."""
    if not name:
        return ()
    for axis in sorted(range(len(inputs)), key=lambda i: -len(inputs[i])):
        if name.startswith(inputs[axis]):
            rest = axes_named(name[len(inputs[axis]) :], inputs)
            if rest is not None:
                return (axis, *rest)
    return None


def check_data(data: Mapping[str, Tensor], names: Sequence[str]) -> None:
    """Raise an error unless there is a tensor for each name."""
    if data.keys() != set(names):
        raise InputError(f"The residual expects the data {sorted(names)} with each call and got {sorted(data)}.")
    for name, values in data.items():
        if not isinstance(values, Tensor):
            raise InputError(f"The data {name} must be a torch tensor; got {type(values).__name__}.")
