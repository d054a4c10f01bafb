"""Each sample's gradient of a function of a network, with any engine: checks, random numbers, and reuse of findings."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dudx.engines.autodiff import AD
from dudx.engines.interface import Engine
from dudx.engines.per_sample import PerSampleAD
from dudx.errors import InputError
from dudx.gradients.jacobian_rows import Jacobian
from dudx.gradients.linearization import Findings, linearized
from dudx.gradients.rewind import Rewind, generators_of
from dudx.network import model_checks
from dudx.network.coupling_check import refuse_if_coupled
from dudx.network.model_checks import Model
from dudx.network.modules import modules_of, owner_of


class RowGradients:
    """Linearise one function of a network and an engine, again and again.

    The findings about a network's parameters are kept between calls, and dropped with the network.
    """

    def __init__(self) -> None:
        self._findings: weakref.WeakKeyDictionary[Any, dict[Hashable, Findings]] = weakref.WeakKeyDictionary()

    def __call__(
        self,
        function: Callable[[Model, Engine], Tensor | tuple[Tensor, ...]],
        model: Model,
        x: Tensor,
        engine: Engine,
        parameters: Sequence[Tensor] | None,
        dtype: torch.dtype | None,
        names: tuple[str, ...] = (),
    ) -> tuple[Tensor, Jacobian]:
        """The values (N,) of the function and their Jacobian (N, P).

        Args:
            function: called with the model and an engine; one value per point and equation.
            model: the network; a network whose samples influence each other is refused.
            x: the points, (B, d).
            engine: any engine.
            parameters: the columns' order; the network's parameters that require gradients unless given.
            dtype: of the Jacobian; that of the values unless given.
            names: the names of the function's data; functions of other data have findings of their own.
        """
        model = model_checks.model(model, x)
        leaves = parameters_of(model) if parameters is None else checked_parameters(parameters)
        refuse_if_coupled(model, x)
        # The same numbers, since coupled networks have just been refused.
        used = AD() if isinstance(engine, PerSampleAD) else engine
        rewind = Rewind(generators_of(used, x.device))
        return linearized(
            lambda: function(model, used),
            leaves,
            len(x),
            rewind,
            constants=[buffer for module in modules_of(model) for buffer in module.buffers(recurse=False)],
            findings=self._findings_of(model, (type(used), tuple(leaf.shape for leaf in leaves), names)),
            dtype=dtype,
        )

    def _findings_of(self, model: Model, key: Hashable) -> Findings:
        try:
            return self._findings.setdefault(owner_of(model), {}).setdefault(key, Findings())
        except TypeError:  # a callable without weak references: everything is found again at each call
            return Findings()


def parameters_of(model: Model) -> list[Tensor]:
    """The network's parameters that require gradients."""
    found = {id(p): p for module in modules_of(model) for p in module.parameters(recurse=False) if p.requires_grad}
    if not found:
        raise InputError("The model has no parameters that require gradients; give the tensors as parameters=[…].")
    return list(found.values())


def checked_parameters(parameters: Any) -> list[Tensor]:
    """The parameters as a list of distinct leaves that require gradients."""
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
