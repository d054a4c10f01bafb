"""Derivatives of DeepXDE scripts (PyTorch backend) by dudx: `accelerate(model)` after `model.compile(...)`.

    import dudx.adapters.deepxde as faster

    model.compile("adam", lr=1e-3)
    faster.accelerate(model)
    model.train(iterations=10000)

During a training step, the pde receives fields instead of the network's outputs. An engine computes their derivatives
together with the outputs that conditions use. Everything else (conditions, callbacks, tests, predictions, saving,
another `model.compile`) goes on as before.
"""
# A checker takes the package for this very file.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportCallIssue=false

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import deepxde
import torch
from deepxde.gradients import gradients_reverse
from torch import Tensor

from dudx.adapters.fallback import check_agreement, warn_unaccelerated, with_named_parameters
from dudx.adapters.output_columns import FieldColumns, fields_of, joined_fields
from dudx.engines.autodiff import AD
from dudx.engines.interface import Engine
from dudx.engines.taylor.taylor_engine import Taylor
from dudx.errors import InputError
from dudx.residual.field import Field
from dudx.residual.residual_function import Residual

#: The kinds of data whose points are those of the conditions followed by those of the equation.
_DATA = (deepxde.data.PDE, deepxde.data.TimePDE)
#: Conditions that use nothing but the network's outputs.
_OF_VALUES = (deepxde.icbc.DirichletBC, deepxde.icbc.IC, deepxde.icbc.PointSetBC)
#: Conditions have few points if there are at least this many points in all per point of theirs.
_FEW = 8
_WHAT = "This DeepXDE model"


def accelerate(model: Any, engine: Engine | None = None, compile: bool = True) -> None:
    """Let an engine differentiate the equation of a DeepXDE model in every training step from now on.

    Before the first step all losses are computed both ways and compared. Where they differ, or the equation cannot be
    recorded, one sentence says so (`AdapterWarning`), and the model trains as before. What DeepXDE displays, tests and
    predicts is always computed by itself.

    Args:
        model: a `deepxde.Model` that has been compiled.
        engine: how to differentiate; None is `Taylor()`. One without steps is calibrated before the first step; call
            `accelerate` again to calibrate it for the network as it is then.
        compile: compile network, derivatives and equation into one graph, which takes seconds at the first step.
    """
    if not isinstance(model, deepxde.Model):
        raise InputError(f"accelerate takes a deepxde.Model; got {type(model).__name__}.")
    if getattr(model, "opt_name", None) is None:
        raise InputError("Call model.compile(...) before accelerate(model).")
    if engine is not None and not isinstance(engine, Engine):
        raise InputError(f"The engine must be an instance such as dudx.Taylor(); got {engine!r}.")
    model.__dict__.pop("_train_step", None)
    reason = _obstacle(model)
    if reason is None:
        model._train_step = _TrainingStep(model, engine or Taylor(), compile)
    else:
        warn_unaccelerated(_WHAT, reason)


def _obstacle(model: Any) -> str | None:
    """The reason why a model cannot be accelerated; None if it can."""
    if deepxde.backend.backend_name != "pytorch":
        return f"its backend is {deepxde.backend.backend_name}, and an adapter there is only for pytorch"
    if type(model.data) not in _DATA:
        return f"its data is {type(model.data).__name__}, and an adapter there is only for PDE and TimePDE"
    if model.data.pde is None:
        return "it has no pde"
    if deepxde.config.autodiff != "reverse":
        return "it differentiates in forward mode, deepxde.config.set_default_autodiff('reverse') changes that"
    if deepxde.config.mixed:
        return "it computes in mixed precision"
    if model.net._forward_hooks or model.net._forward_pre_hooks:
        return "its network has forward hooks"
    return None


class _TrainingStep:
    """A replacement of `model._train_step`, which remains when the model is compiled again."""

    def __init__(self, model: Any, engine: Engine, compile: bool):
        self.model, self.engine, self.compile = model, engine, compile
        self.plain = model._train_step
        #: The equation and the network that were recorded.
        self.known: tuple[Any, Any] | None = None
        self.equation: _Equation | None = None

    def __call__(self, *points: Any) -> None:
        known = (self.model.data.pde, self.model.net)
        if self.known is None or any(one is not other for one, other in zip(known, self.known, strict=True)):
            self.known, self.equation = known, self._recorded(points)
        if self.equation is None:
            self.plain(*points)
            return
        with self.equation.served(compiled=self.model.opt_name != "NNCG"):  # which differentiates the loss twice
            self.plain(*points)

    def _recorded(self, points: tuple[Any, ...]) -> _Equation | None:
        """The equation if its losses agree with the script's own; None otherwise."""
        losses = self.model.outputs_losses_train
        with torch.random.fork_rng():  # so that the check does not change the script's random numbers
            theirs = losses(*points)[1].detach()
            try:
                slow = _Equation(self.model, AD(), compile=False)
                with slow.served():
                    check_agreement(list(losses(*points)[1]), list(theirs), "its losses")
                slow.engine = slow.calibrated(self.engine)
                with slow.served():
                    found = losses(*points)[1]  # an engine may lack a rule for something in the network
                if not self.engine.approximate:
                    check_agreement(list(found), list(theirs), "its losses")
                return _Equation(self.model, slow.engine, self.compile)
            except Exception as why:  # whatever went wrong, the script continues without dudx
                warn_unaccelerated(_WHAT, why)
                return None


class _Equation:
    """The pde of a model as a residual, which replaces the model's pde and outputs during a step.

    Conditions use outputs only, or differentiate them. One pass over all points computes the former and the pde, unless
    many points belong to conditions, for which a pass without derivatives is cheaper.
    """

    def __init__(self, model: Any, engine: Engine, compile: bool):
        self.data, self.net, self.engine, self.compile = model.data, model.net, engine, compile
        self.pde = self.data.pde
        #: The network's own forward method.
        self.forward = self.net.forward
        self.with_auxiliary = deepxde.utils.get_num_args(self.pde) == 3
        self.conditions_look_at_values = all(type(condition) in _OF_VALUES for condition in self.data.bcs)
        self.residuals: dict[tuple[bool, bool], Residual] = {}
        #: The arguments of the last call, for calibration.
        self.given: dict[str, Tensor] = {}
        #: The residuals at all points, if they were computed together with the outputs.
        self.found: list[Tensor] | None = None

    @contextmanager
    def served(self, compiled: bool = True) -> Iterator[None]:
        """Replace the pde and the network's forward method."""
        compiled = compiled and self.compile

        def two(x: Tensor, y: Tensor) -> list[Tensor]:
            return self._residuals(compiled, x)

        def three(x: Tensor, y: Tensor, auxiliary: Tensor) -> list[Tensor]:
            return self._residuals(compiled, x)

        self.data.pde = three if self.with_auxiliary else two
        self.net.forward = lambda x: self._outputs(compiled, x)
        try:
            with _fields_differentiated():
                yield
        finally:
            self.data.pde = self.pde
            self.found = None
            del self.net.forward

    def calibrated(self, engine: Engine) -> Engine:
        """Calibrate an engine for the network at the points of the last call."""
        points = self.given["points"]
        with _fields_differentiated():
            operators = self._residual(False, False).operators(points, **self.given)
        return engine.calibrated(self.forward, points, operators)

    def _outputs(self, compiled: bool, x: Tensor) -> Tensor:
        """The network's outputs, possibly zeros where conditions do not use them."""
        outside = sum(self.data.num_bcs)
        if self.conditions_look_at_values and outside * _FEW <= len(x):
            outputs, self.found = self._computed(compiled, x, 0, True)
            return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)
        self.found = None
        y = self.forward(x[: max(outside, 1)])
        return torch.cat([y, y.new_zeros(len(x) - len(y), y.shape[1])])

    def _residuals(self, compiled: bool, x: Tensor) -> list[Tensor]:
        """The residuals, possibly zeros at the points of conditions, which DeepXDE does not use."""
        if self.found is not None:
            return self.found
        outside = sum(self.data.num_bcs)
        _, found = self._computed(compiled, x, outside, False)
        return [torch.cat([one.new_zeros(outside, 1), one]) for one in found]

    def _computed(self, compiled: bool, x: Tensor, first: int, with_outputs: bool) -> tuple[list[Tensor], list[Tensor]]:
        """Outputs (optional) and residuals at the points from index `first` on."""
        self.given = {"points": x.detach()[first:]}
        if self.with_auxiliary:
            self.given["auxiliary"] = self.net.auxiliary_vars[first:]
        residual = self._residual(compiled, with_outputs)
        found = list(residual(self.forward, self.given["points"], self.engine, **self.given))
        count = len(residual.outputs) if with_outputs else 0
        return found[:count], found[count:]

    def _residual(self, compiled: bool, with_outputs: bool) -> Residual:
        if (compiled, with_outputs) not in self.residuals:
            with torch.no_grad():
                point = self.given["points"][:1]
                outputs = [f"u{i}" for i in range(self.forward(point).shape[1])]
            of_fields = self._with_outputs if with_outputs else self._of_fields
            function = with_named_parameters([*outputs, *self.given], of_fields)
            inputs = [f"x{j}" for j in range(point.shape[1])]
            made = Residual(function, inputs, data=tuple(self.given), compile=compiled)
            self.residuals[compiled, with_outputs] = made
        return self.residuals[compiled, with_outputs]

    def _of_fields(self, points: Tensor, auxiliary: Tensor | None = None, **outputs: Field) -> tuple[Any, ...]:
        y = joined_fields(list(outputs.values()))
        found = self.pde(points, y, auxiliary) if self.with_auxiliary else self.pde(points, y)
        return tuple(found) if isinstance(found, list | tuple) else (found,)

    def _with_outputs(self, points: Tensor, auxiliary: Tensor | None = None, **outputs: Field) -> tuple[Any, ...]:
        return (*outputs.values(), *self._of_fields(points, auxiliary, **outputs))


# -- dde.grad of fields ---------------------------------------------------------------------------------------------


def _jacobian(ys: Field | FieldColumns, i: int | None = None, j: int | None = None) -> Field | FieldColumns:
    """Replacement of `dde.grad.jacobian` in reverse mode: an entry, or a row where `j` is None."""
    fields = fields_of(ys)
    inputs = fields[0]._values.inputs
    if i is None and len(fields) > 1:
        raise InputError("dde.grad.jacobian of several outputs needs i")
    field = fields[i or 0]
    return joined_fields([field.d(name) for name in inputs]) if j is None else field.d(inputs[j])


def _hessian(ys: Field | FieldColumns, component: int = 0, i: int = 0, j: int = 0) -> Field:
    """Replacement of `dde.grad.hessian`."""
    field = fields_of(ys)[component]
    inputs = field._values.inputs
    return field.d(inputs[i], inputs[j])


class _Store:
    """A replacement of DeepXDE's store of Jacobians or Hessians, through which every call of `dde.grad` goes."""

    def __init__(self, plain: Any, of_fields: Callable[..., Any]):
        self.plain, self.of_fields = plain, of_fields
        self.clear = plain.clear

    def __call__(self, ys: Any, xs: Tensor, **which: Any) -> Any:
        return self.of_fields(ys, **which) if isinstance(ys, Field | FieldColumns) else self.plain(ys, xs, **which)


@contextmanager
def _fields_differentiated() -> Iterator[None]:
    jacobian: Any = gradients_reverse.jacobian
    hessian: Any = gradients_reverse.hessian
    jacobians, hessians = jacobian._Jacobians, hessian._Hessians
    jacobian._Jacobians, hessian._Hessians = _Store(jacobians, _jacobian), _Store(hessians, _hessian)
    try:
        yield
    finally:
        jacobian._Jacobians, hessian._Hessians = jacobians, hessians
