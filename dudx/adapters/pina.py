"""PINA solvers, served by dudx: `accelerate(solver)` before the solver is trained.

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from pina import LabelTensor
from pina._src.condition.input_equation_condition import InputEquationCondition
from pina._src.core import operator as operators
from pina._src.solver.mixin.gradient_enhanced_mixin import GradientEnhancedMixin
from pina._src.solver.mixin.single_model_mixin import SingleModelMixin
from torch import Tensor

from dudx.adapters.labels import of_plain_points
from dudx.adapters.pina_fields import EquationOfFields, columns_in
from dudx.adapters.served import must_agree, runs_as_before, with_parameters
from dudx.compile.graphs import CompilationWarning
from dudx.engines.autodiff import AD
from dudx.engines.base import Engine
from dudx.engines.taylor.engine import Taylor
from dudx.errors import InputError
from dudx.fields import Field
from dudx.residual import Residual

#: A derivative along an axis, or a Laplacian along several.
Step = tuple[str, tuple[int, ...]]
#: Of which output, and the steps by which it is differentiated; plain values, which torch.compile can follow.
Wanted = tuple[int, tuple[Step, ...]]


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
    solver.__dict__.pop("_compute_condition_loss", None)
    what = f"This {type(solver).__name__}"
    if not isinstance(solver, SingleModelMixin):
        runs_as_before(what, "an adapter there is only for solvers with one model")
    elif isinstance(solver, GradientEnhancedMixin):
        runs_as_before(what, "it differentiates its residuals again")
    else:
        solver._compute_condition_loss = _Losses(solver, engine or Taylor(), compile)


class _Losses:
    """In the place of a solver's `_compute_condition_loss`."""

    def __init__(self, solver: Any, engine: Engine, compile: bool):
        self.plain = solver._compute_condition_loss
        self.solver, self.engine, self.compile = solver, engine, compile
        #: By the equation and the names of its points; None where it is evaluated as before.
        self.equations: dict[tuple[Any, tuple[str, ...]], Any] = {}

    def __call__(self, condition: Any, data: dict[str, Any], batch_idx: int) -> Any:
        served = isinstance(condition, InputEquationCondition) and isinstance(data.get("input"), LabelTensor)
        if not served or not self.solver.training or not torch.is_grad_enabled():
            return self.plain(condition, data, batch_idx)
        condition.evaluate = lambda batch, solver: self._evaluated(condition, batch)
        try:
            return self.plain(condition, data, batch_idx)
        finally:
            del condition.evaluate

    def _evaluated(self, condition: Any, batch: dict[str, Any]) -> Any:
        points, equation = batch["input"], condition.equation
        key = (equation, tuple(points.labels))
        if key not in self.equations:
            self.equations[key] = self._recorded(equation, points)
        recorded = self.equations[key]
        if recorded is not None:
            try:
                return recorded(points)
            except (_OtherRequestError, InputError) as why:
                self.equations[key] = None
                other = "it asks for other derivatives than when it was recorded"
                runs_as_before(_named(equation), why if isinstance(why, InputError) else other)
        return type(condition).evaluate(condition, batch, self.solver)

    def _recorded(self, equation: Any, points: Any) -> Any:
        solver = self.solver
        with torch.random.fork_rng():  # a look at the residual shall not change what the script draws next
            try:
                recording = _Derivatives(solver.problem.input_variables)
                samples = points.detach().clone().requires_grad_(True)
                outputs = solver.forward(samples)
                with recording.instead_of_operators(outputs):
                    theirs = equation.residual(samples, outputs, solver._params)
                if recording.unknown:
                    raise InputError("it differentiates something that was computed from the outputs")
                if not recording.asked:
                    return None  # nothing is differentiated there
                return self._best(equation, points, recording, theirs)
            except Exception as why:  # whatever went wrong, the script goes on without us
                runs_as_before(_named(equation), why)
                return None

    def _best(self, equation: Any, points: Any, recording: _Derivatives, theirs: Any) -> Any:
        """The equation as a whole if that can be done, else with the derivatives it was seen to ask for."""
        solver, problem = self.solver, self.solver.problem
        network = of_plain_points(solver.model, problem.input_variables, columns_in(points, problem.input_variables))

        def of_fields(engine: Engine, compile: bool) -> Any:
            given = (problem, network, equation, solver._params, theirs, points.labels)
            return EquationOfFields(*given, engine, compile)

        def with_derivatives(wanted: Sequence[Wanted]) -> Callable[[Engine, bool], Any]:
            return lambda engine, compile: _Equation(solver, network, equation, wanted, engine, compile)

        # Where columns are used without being extracted, all that were asked for are needed.
        ways = [of_fields, with_derivatives(recording.used), with_derivatives(recording.asked)]
        for way in ways[:-1]:
            try:
                return self._checked(way, points, theirs)
            except Exception:
                continue  # the last way says why
        return self._checked(ways[-1], points, theirs)

    def _checked(self, way: Callable[[Engine, bool], Any], points: Any, theirs: Any) -> Any:
        """The equation in this way, if that gives the residual it has by itself."""
        slow = way(AD(), False)
        must_agree([slow(points)], [theirs], "its residuals")
        slow.engine = slow.calibrated(self.engine, points)
        found = slow(points)  # an engine may lack a rule for something in the network
        if not self.engine.approximate:
            must_agree([found], [theirs], "its residuals")
        made = way(slow.engine, self.compile)
        if self.compile and isinstance(made, EquationOfFields):
            with warnings.catch_warnings():
                warnings.simplefilter("error", CompilationWarning)  # what cannot be compiled is done in another way
                made(points)
        return made


def _named(equation: Any) -> str:
    return f"An equation of PINA's solver ({type(equation).__name__})"


class _OtherRequestError(Exception):
    """The equation asks for something that was not recorded."""


class _Equation:
    """One equation whose derivatives come from an engine."""

    def __init__(
        self, solver: Any, network: Any, equation: Any, wanted: Sequence[Wanted], engine: Engine, compile: bool
    ):
        self.network, self.equation, self.wanted, self.engine = network, equation, list(wanted), engine
        self.inputs, self.outputs = solver.problem.input_variables, solver.problem.output_variables
        self.params = solver._params
        names = [f"u{i}" for i in range(len(self.outputs))]
        inputs = [f"x{j}" for j in range(len(self.inputs))]
        self.residual = Residual(with_parameters(names, self._of_fields), inputs, compile=compile)

    def _of_fields(self, **fields: Field) -> tuple[Any, ...]:
        """The outputs, then what the equation wants of them."""
        outputs = list(fields.values())
        found = list(outputs)
        for output, steps in self.wanted:
            field = outputs[output]
            for kind, axes in steps:
                names = [f"x{axis}" for axis in axes]
                field = field.d(*names) if kind == "d" else field.laplacian(*names)
            found.append(field)
        return tuple(found)

    def calibrated(self, engine: Engine, points: Any) -> Engine:
        """The engine with its steps set for the network at these points."""
        columns = columns_in(points, self.inputs)
        return engine.calibrated(self.network, columns, self.residual.operators(columns))

    def __call__(self, points: Any) -> Any:
        found: Any = self.residual(self.network, columns_in(points, self.inputs), self.engine)
        count = len(self.outputs)
        outputs = LabelTensor(torch.cat(found[:count], dim=1), self.outputs)
        known = _Derivatives(self.inputs, dict(zip(self.wanted, found[count:], strict=True)))
        with known.instead_of_operators(outputs):
            return self.equation.residual(points.detach(), outputs, self.params)


class _Derivatives:
    """In the place of what PINA's operators are made of: notes what they are asked for, or answers it.

    Tensors are known by identity: labels stay through arithmetic, so that `u**2` is labelled u as well. A gradient has
    a column for each input, of which an equation often extracts some only: those `used`, of all that were `asked` for.
    The others need not be computed, and are NaN, which shows wherever they are used after all.
    """

    def __init__(self, inputs: Sequence[str], computed: dict[Wanted, Tensor] | None = None):
        self.inputs, self.computed = list(inputs), computed
        self.asked: list[Wanted] = []
        self.used: list[Wanted] = []
        self._counting = True
        #: Whether something was differentiated that is neither an output nor a derivative of one.
        self.unknown = False
        self._known: dict[int, tuple[Any, int, dict[str, Wanted]]] = {}
        self._extract = LabelTensor.extract
        self._gradient, self._laplacian = operators._scalar_grad, operators._scalar_laplacian
        self._fast_gradient = operators.fast_grad

    @contextmanager
    def instead_of_operators(self, outputs: Any) -> Iterator[None]:
        """Stand in while an equation of these outputs is evaluated."""
        self._note(outputs, {label: (i, ()) for i, label in enumerate(outputs.labels)})
        LabelTensor.extract = lambda tensor, labels: self._extracted(tensor, labels)
        operators._scalar_grad, operators._scalar_laplacian = self._scalar_grad, self._scalar_laplacian
        operators.fast_grad = self._fast_grad
        try:
            yield
        finally:
            LabelTensor.extract = self._extract
            operators._scalar_grad, operators._scalar_laplacian = self._gradient, self._laplacian
            operators.fast_grad = self._fast_gradient
            self._known.clear()

    # -- which tensors are known ----------------------------------------------------------------------------------

    def _note(self, tensor: Any, columns: dict[str, Wanted]) -> Any:
        self._known[id(tensor)] = (tensor, tensor._version, columns)
        return tensor

    def _columns(self, tensor: Any) -> dict[str, Wanted]:
        """By label, what is in a tensor's columns; nothing where it has been changed in place."""
        known, version, columns = self._known.get(id(tensor), (None, 0, {}))
        return columns if known is tensor and version == tensor._version else {}

    def _extracted(self, tensor: Any, labels: Any) -> Any:
        taken, columns = self._extract(tensor, labels), self._columns(tensor)
        found = {label: columns[label] for label in taken.labels if label in columns}
        if self._counting:
            self._use([wanted for wanted in found.values() if wanted[1]])
        return self._note(taken, found) if found else taken

    def _use(self, wanted: Sequence[Wanted]) -> None:
        if self.computed is not None and any(one not in self.computed for one in wanted):
            raise _OtherRequestError
        self.used += [one for one in wanted if one not in self.used]

    # -- PINA's functions -----------------------------------------------------------------------------------------

    def _fast_grad(self, output_: Any, input_: Any, components: list[str], d: list[str]) -> Any:
        columns = self._columns(output_)
        self._counting, before = False, self._counting  # it extracts what it differentiates
        try:
            found = self._fast_gradient(output_=output_, input_=input_, components=components, d=d)
        finally:
            self._counting = before
        # PINA takes the only column there is, whatever the components say.
        rows = list(columns) if output_.shape[-1] == 1 else components
        if not rows or any(row not in columns for row in rows):
            return found
        made = [_further(columns[row], ("d", self._axes([name]))) for row in rows for name in d]
        return self._note(found, dict(zip(found.labels, made, strict=True)))

    def _scalar_grad(self, output_: Any, input_: Any, d: list[str]) -> Any:
        return self._derivatives(
            output_,
            [("d", self._axes([name])) for name in d],
            lambda: self._gradient(output_=output_, input_=input_, d=d),
        )

    def _scalar_laplacian(self, output_: Any, input_: Any, d: list[str]) -> Any:
        step = ("laplacian", self._axes(d))
        of_what = list(self._columns(output_).values())

        def plainly() -> Any:
            gradient, operators._scalar_grad = operators._scalar_grad, self._gradient
            fast, operators.fast_grad = operators.fast_grad, self._fast_gradient
            try:
                return self._laplacian(output_=output_, input_=input_, d=d)
            finally:
                operators._scalar_grad, operators.fast_grad = gradient, fast

        found = LabelTensor(self._derivatives(output_, [step], plainly), [f"dd{output_.labels[0]}"])
        return self._note(found, {found.labels[0]: _further(of_what[0], step)}) if of_what else found

    def _axes(self, names: Sequence[str]) -> tuple[int, ...]:
        return tuple(self.inputs.index(name) for name in names)

    def _derivatives(self, output_: Any, steps: Sequence[Step], plainly: Callable[[], Any]) -> Any:
        """Derivatives of a single column, side by side."""
        columns = list(self._columns(output_).values())
        if len(columns) != 1:
            self.unknown = True
            if self.computed is not None:
                raise _OtherRequestError
            return plainly()
        wanted = [_further(columns[0], step) for step in steps]
        if len(wanted) == 1:
            self._use(wanted)
        if self.computed is None:
            self.asked += [one for one in wanted if one not in self.asked]
            return plainly()
        missing = output_.new_full((len(output_), 1), float("nan")).as_subclass(Tensor)
        return torch.cat([self.computed.get(one, missing) for one in wanted], dim=1)


def _further(wanted: Wanted, step: Step) -> Wanted:
    """What is differentiated already, differentiated by another step."""
    return wanted[0], (*wanted[1], step)
