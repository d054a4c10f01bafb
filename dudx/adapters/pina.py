"""Derivatives of PINA solvers by dudx: `accelerate(solver)` before the solver is trained.

    import dudx.adapters.pina as faster

    solver = PINN(problem=problem, model=model)
    faster.accelerate(solver)
    Trainer(solver, max_epochs=1000).train()

The first time an equation is evaluated in training, it is tried on fields in the place of points and outputs, so that
derivatives, network and equation become one graph. Where that does not do, the derivatives it asks for by PINA's
operators (grad, div, laplacian, advection and their fast forms) are noted, an engine computes all of them together from
then on, and the equation finds them there. Validation, tests and conditions without derivatives go on as before.
"""
# A checker takes the package for this very file.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from pina import LabelTensor
from pina._src.condition.input_equation_condition import InputEquationCondition
from pina._src.solver.mixin.gradient_enhanced_mixin import GradientEnhancedMixin
from pina._src.solver.mixin.single_model_mixin import SingleModelMixin
from torch import Tensor

from dudx.adapters.fallback import check_agreement, warn_unaccelerated
from dudx.adapters.labelled_points import network_of_plain_points
from dudx.adapters.pina_fields import EquationOfFields, columns_in
from dudx.adapters.pina_recorded import ChangedEquationError, Derivative, DerivativeRecorder, EquationWithDerivatives
from dudx.engines.autodiff import AD
from dudx.engines.interface import Engine
from dudx.engines.taylor.taylor_engine import Taylor
from dudx.errors import InputError
from dudx.network.compiled_graph import CompilationWarning
from dudx.network.sandbox import output_of, sandboxed


def accelerate(solver: Any, engine: Engine | None = None, compile: bool = True) -> None:
    """Let an engine differentiate the equations of a PINA solver in training from now on.

    When an equation is met for the first time, its residual is computed both ways and compared. Where they differ, or
    it asks for derivatives in a way that cannot be noted, one sentence says so (`AdapterWarning`), and the equation is
    evaluated as before.

    Args:
        solver: a solver with one model, such as `PINN`, `RBAPINN` or `CausalPINN`.
        engine: how to differentiate; None is `Taylor()`. One without steps is calibrated when the equation is met; call
            `accelerate` again to calibrate it for the network as it is then.
        compile: compile network and derivatives into one graph, which takes seconds at the first step.
    """
    if not isinstance(solver, torch.nn.Module) or not hasattr(solver, "_compute_condition_loss"):
        raise InputError(f"accelerate takes a solver of PINA; got {type(solver).__name__}.")
    if engine is not None and not isinstance(engine, Engine):
        raise InputError(f"The engine must be an instance such as dudx.Taylor(); got {engine!r}.")
    for stood_in in ("_compute_condition_loss", "batch_evaluation_step"):
        solver.__dict__.pop(stood_in, None)
    what = f"This {type(solver).__name__}"
    if not isinstance(solver, SingleModelMixin):
        warn_unaccelerated(what, "an adapter there is only for solvers with one model")
    elif isinstance(solver, GradientEnhancedMixin):
        warn_unaccelerated(what, "it differentiates its residuals again")
    else:
        losses = _Losses(solver, engine or Taylor(), compile)
        solver._compute_condition_loss, solver.batch_evaluation_step = losses, losses.step


#: Marks an equation that differentiates nothing.
_OF_VALUES = "of values"
#: An equation and the names of its points.
Key = tuple[Any, tuple[str, ...]]


class _Losses:
    """In the place of a solver's `_compute_condition_loss`, and of `batch_evaluation_step` around it.

    The conditions that differentiate nothing are small, and several: the network is evaluated once for all of them.
    """

    def __init__(self, solver: Any, engine: Engine, compile: bool):
        self.plain, self.plain_step = solver._compute_condition_loss, solver.batch_evaluation_step
        self.solver, self.engine, self.compile = solver, engine, compile
        #: The solver's model as a network of points without names.
        self.network: Any = None
        #: The recorded equations; None where an equation is evaluated by PINA.
        self.equations: dict[Key, Any] = {}
        #: For conditions of one batch, whether one pass over all their points gives the same outputs.
        self.together: dict[tuple[Key, ...], bool] = {}
        #: The outputs by condition, during a step.
        self.outputs: dict[Any, Tensor] = {}

    def step(self, batch: Any, batch_idx: int) -> Any:
        """Replace a solver's step over the conditions of a batch."""
        try:
            if self._training():
                self.outputs = self._outputs(batch)
            return self.plain_step(batch, batch_idx)
        finally:
            self.outputs = {}

    def __call__(self, condition: Any, data: dict[str, Any], batch_idx: int) -> Any:
        if not _takes(condition, data) or not self._training():
            return self.plain(condition, data, batch_idx)
        condition.evaluate = lambda batch, solver: self._evaluated(condition, batch)
        try:
            return self.plain(condition, data, batch_idx)
        finally:
            del condition.evaluate

    def _training(self) -> bool:
        return self.solver.training and torch.is_grad_enabled()

    def _evaluated(self, condition: Any, batch: dict[str, Any]) -> Any:
        points, equation = batch["input"], condition.equation
        if condition in self.outputs:
            outputs = _labelled(self.outputs[condition], self.solver.problem)
            return equation.residual(points, outputs, self.solver._params)
        key = _key(equation, points)
        recorded = self._known(key, points)
        if recorded is not None and recorded is not _OF_VALUES:
            try:
                return recorded(points)
            except (ChangedEquationError, InputError) as why:
                self.equations[key] = None
                other = "it asks for other derivatives than when it was recorded"
                warn_unaccelerated(_named(equation), why if isinstance(why, InputError) else other)
        return type(condition).evaluate(condition, batch, self.solver)

    # -- conditions that use values ---------------------------------------------------------------------------

    def _outputs(self, batch: Any) -> dict[Any, Tensor]:
        """Compute the network's outputs for all conditions that use values only, in one pass."""
        met, keys, columns = [], [], []
        for name, data in batch:
            condition = self.solver.problem.conditions[name]
            if _takes(condition, data):
                key = _key(condition.equation, data["input"])
                if self._known(key, data["input"]) is _OF_VALUES:
                    met.append(condition)
                    keys.append(key)
                    columns.append(columns_in(data["input"], self.solver.problem.input_variables))
        if not met:
            return {}
        if tuple(keys) not in self.together:
            self.together[tuple(keys)] = self._same_at_once(columns)
        if not self.together[tuple(keys)]:
            return {}
        found = self._network(columns[0])(torch.cat(columns)).split([len(points) for points in columns])
        return dict(zip(met, found, strict=True))

    def _same_at_once(self, columns: Sequence[Tensor]) -> bool:
        """Check that outputs do not depend on which points are evaluated together."""
        try:
            network = self._network(columns[0])
            with sandboxed(network, 0):
                network(torch.cat(columns))  # as it is called in training, which may not be possible
            separately = torch.cat([output_of(network, points) for points in columns])
            check_agreement([output_of(network, torch.cat(columns))], [separately], "its outputs")
        except Exception:
            return False
        return True

    def _network(self, points: Tensor) -> Any:
        if self.network is None:
            self.network = network_of_plain_points(self.solver.model, self.solver.problem.input_variables, points)
        return self.network

    # -- recording ------------------------------------------------------------------------------------------------

    def _known(self, key: Key, points: Any) -> Any:
        if key not in self.equations:
            self.equations[key] = self._recorded(key[0], points)
        return self.equations[key]

    def _recorded(self, equation: Any, points: Any) -> Any:
        solver = self.solver
        with torch.random.fork_rng():  # so that the check does not change the script's random numbers
            try:
                recording = DerivativeRecorder(solver.problem.input_variables)
                samples = points.detach().clone().requires_grad_(True)
                outputs = solver.forward(samples)
                with recording.instead_of_operators(outputs):
                    theirs = equation.residual(samples, outputs, solver._params)
                if recording.unknown:
                    raise InputError("it differentiates something that was computed from the outputs")
                if recording.asked:
                    return self._best(equation, points, recording, theirs)
            except Exception as why:  # whatever went wrong, the script continues without dudx
                warn_unaccelerated(_named(equation), why)
                return None
            return self._of_values(equation, points, outputs, theirs)

    def _of_values(self, equation: Any, points: Any, outputs: Any, theirs: Any) -> Any:
        """Handle an equation without recorded derivatives; it may differentiate by torch itself, which is checked."""
        try:
            given = _labelled(outputs.detach().as_subclass(Tensor), self.solver.problem)
            check_agreement([equation.residual(points.detach(), given, self.solver._params)], [theirs], "its residuals")
        except Exception:
            return None
        return _OF_VALUES

    def _best(self, equation: Any, points: Any, recording: DerivativeRecorder, theirs: Any) -> Any:
        """Return the equation as one residual if possible, else with the derivatives that were recorded."""
        solver, problem = self.solver, self.solver.problem
        network = self._network(columns_in(points, problem.input_variables))

        def of_fields(engine: Engine, compile: bool) -> Any:
            given = (problem, network, equation, solver._params, theirs, points.labels)
            return EquationOfFields(*given, engine, compile)

        def with_derivatives(wanted: Sequence[Derivative]) -> Callable[[Engine, bool], Any]:
            return lambda engine, compile: EquationWithDerivatives(solver, network, equation, wanted, engine, compile)

        # Where columns are used without being extracted, all that were asked for are needed.
        ways = [of_fields, with_derivatives(recording.used), with_derivatives(recording.asked)]
        for way in ways[:-1]:
            try:
                return self._checked(way, points, theirs)
            except Exception:
                continue  # the last way says why
        return self._checked(ways[-1], points, theirs)

    def _checked(self, way: Callable[[Engine, bool], Any], points: Any, theirs: Any) -> Any:
        """Make the equation in one way, and check its residual against PINA's."""
        slow = way(AD(), False)
        check_agreement([slow(points)], [theirs], "its residuals")
        slow.engine = slow.calibrated(self.engine, points)
        found = slow(points)  # an engine may lack a rule for something in the network
        if not self.engine.approximate:
            check_agreement([found], [theirs], "its residuals")
        made = way(slow.engine, self.compile)
        if self.compile and isinstance(made, EquationOfFields):
            with warnings.catch_warnings():
                warnings.simplefilter("error", CompilationWarning)  # what cannot be compiled is done in another way
                made(points)
        return made


def _takes(condition: Any, data: dict[str, Any]) -> bool:
    return isinstance(condition, InputEquationCondition) and isinstance(data.get("input"), LabelTensor)


def _key(equation: Any, points: Any) -> Key:
    return equation, tuple(points.labels)


def _labelled(outputs: Tensor, problem: Any) -> Any:
    named = outputs.as_subclass(LabelTensor)
    named.labels = problem.output_variables
    return named


def _named(equation: Any) -> str:
    return f"An equation of PINA's solver ({type(equation).__name__})"
