"""Each sample's gradient of a residual in all parameters, with any engine."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dudx.backend import tensor_checks
from dudx.backend.outer_compile import uncompiled
from dudx.engines.autodiff import AD
from dudx.engines.interface import Engine, Stepped
from dudx.engines.per_sample import PerSampleAD
from dudx.engines.request import request_of
from dudx.errors import InputError
from dudx.gradients.jacobian_rows import Jacobian
from dudx.gradients.linearization import Known, linearized
from dudx.gradients.rewind import Rewind, generators_of
from dudx.network import model_checks
from dudx.network.coupling_check import refuse_if_coupled
from dudx.network.model_checks import Model
from dudx.network.modules import modules_of, owner_of
from dudx.residual.residual_function import Residual

_known: weakref.WeakKeyDictionary[Any, weakref.WeakKeyDictionary[Any, dict[Any, Known]]] = weakref.WeakKeyDictionary()

_plain: weakref.WeakKeyDictionary[Residual, Residual] = weakref.WeakKeyDictionary()


def jacobian(
    residual: Residual,
    model: Model,
    x: Tensor,
    engine: Engine,
    parameters: Sequence[Tensor] | None = None,
    out: Tensor | None = None,
    **data: Tensor,
) -> tuple[Tensor, Tensor]:
    """The residual and each sample's gradient of it in all parameters, from one backward pass.

    Args:
        residual: the equation, or several of them.
        model: the network; one whose samples influence each other is refused.
        x: the points, (B, d).
        engine: how derivatives in the inputs are computed; any of them.
        parameters: in which order the columns come; the network's that require gradients unless given. Unknown
            constants, an `nn.Parameter` used in the residual's function, may be among them.
        out: a tensor (N, P) to write the Jacobian into, also one of higher precision.
        data: what the residual takes with each call; give data named "parameters" or "out" to `linearize`.

    Returns:
        The residual (N,) and the Jacobian (N, P), without graphs. N is B for one equation; of several the B rows of
        the first come first, then those of the second.

    Products with weights, scales, shifts, convolutions, embeddings and attention take one backward pass for all
    samples; what is used in another way is noticed and takes a backward pass for each sample, so no column is ever left
    out. A compiled residual is computed without its graph, into which one cannot look.
    """
    values, linear = linearize(residual, model, x, engine, parameters, data=data)
    if out is not None and tuple(out.shape) != linear.shape:
        raise InputError(f"The Jacobian has shape {linear.shape}, and the tensor to write it into {tuple(out.shape)}.")
    return values, linear.dense(out)


Residual._row_gradients = staticmethod(jacobian)


@uncompiled
def linearize(
    residual: Residual,
    model: Model,
    x: Tensor,
    engine: Engine,
    parameters: Sequence[Tensor] | None = None,
    dtype: torch.dtype | None = None,
    data: Mapping[str, Tensor] | None = None,
) -> tuple[Tensor, Jacobian]:
    """As `jacobian`, with the Jacobian in factors: `times(v)` and `transposed(u)` are products without (N, P)."""
    data = {} if data is None else data
    if not isinstance(residual, Residual):
        raise InputError(f"The Jacobian is that of a dudx.Residual; got {type(residual).__name__}.")
    x = tensor_checks.points(x)
    if residual.functions:
        raise InputError(
            "The Jacobian of a residual of many functions at the same points is not known; give each point its own row "
            "of data, network_data= instead of functions=."
        )
    model = residual._given_data(model_checks.model(model, x), x, data)
    leaves = parameters_of(model) if parameters is None else checked_parameters(parameters)
    if isinstance(engine, Stepped):
        engine.refuse_unset(request_of(residual.operators(x, **data), x))
    refuse_if_coupled(model, x)
    if isinstance(engine, PerSampleAD):  # the same numbers, since coupled networks have just been refused
        engine = AD()
    rewind = Rewind(generators_of(engine, x.device))
    plain = _without_graph(residual)
    buffers = [b for module in modules_of(model) for b in module.buffers(recurse=False)]
    return linearized(
        lambda: plain(model, x, engine, **data),
        leaves,
        len(x),
        rewind,
        constants=buffers,
        known=_known_of(residual, model, engine, leaves, data),
        dtype=dtype,
    )


def _without_graph(residual: Residual) -> Residual:
    """The residual, or that of which a compiled one was made, the same at each call."""
    if residual._compiled is None:
        return residual
    if residual not in _plain:
        _plain[residual] = residual._again(compile=False)
    return _plain[residual]


def parameters_of(model: Model) -> list[Tensor]:
    """The network's parameters that require gradients."""
    found = {id(p): p for module in modules_of(model) for p in module.parameters(recurse=False) if p.requires_grad}
    if not found:
        raise InputError("The model has no parameters that require gradients; give the tensors as parameters=[…].")
    return list(found.values())


def checked_parameters(parameters: Any) -> list[Tensor]:
    """A list of distinct leaves that require gradients."""
    if isinstance(parameters, Tensor | nn.Module | Mapping) or not isinstance(parameters, Iterable):
        raise InputError("The parameters are a list of tensors, such as list(model.parameters()).")
    leaves = list(parameters)
    if not leaves:
        raise InputError("There are no parameters; give a list such as list(model.parameters()).")
    for leaf in leaves:
        if not isinstance(leaf, Tensor) or not leaf.is_leaf or not leaf.requires_grad or not leaf.is_floating_point():
            shown = tuple(leaf.shape) if isinstance(leaf, Tensor) else type(leaf).__name__
            raise InputError(f"Each parameter must be a leaf tensor that requires a gradient; got {shown}.")
    if len({id(leaf) for leaf in leaves}) < len(leaves):
        raise InputError("A parameter is in the list twice; give each once.")
    return leaves


def _known_of(
    residual: Residual, model: Model, engine: Engine, leaves: Sequence[Tensor], data: Mapping[str, Tensor]
) -> Known:
    """What is known of this residual with this network and kind of engine, forgotten with either."""
    key = (type(engine), tuple(leaf.shape for leaf in leaves), tuple(data))
    try:
        by_model = _known.setdefault(residual, weakref.WeakKeyDictionary())
        return by_model.setdefault(owner_of(model), {}).setdefault(key, Known())
    except TypeError:  # a callable that cannot be referred to weakly: all is found out anew each time
        return Known()
