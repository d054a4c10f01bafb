"""Record the derivatives that an equation asks of PINA's operators, and compute them by an engine from then on.

For equations that use points and outputs in ways that fields do not support: the derivatives come from an engine, the
rest of the equation is evaluated by PINA.
"""
# A checker takes the package for dudx.adapters.pina.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from pina import LabelTensor
from pina._src.core import operator as operators
from torch import Tensor

from dudx.adapters.fallback import with_named_parameters
from dudx.adapters.pina_fields import columns_in
from dudx.engines.interface import Engine
from dudx.residual.field import Field
from dudx.residual.residual_function import Residual

#: A derivative along an axis, or a Laplacian along several.
Step = tuple[str, tuple[int, ...]]
#: The index of an output and the steps of differentiation, as plain values that torch.compile can trace.
Derivative = tuple[int, tuple[Step, ...]]


class ChangedEquationError(Exception):
    """The equation asks for a derivative that was not recorded."""


class EquationWithDerivatives:
    """One equation whose derivatives come from an engine."""

    def __init__(
        self, solver: Any, network: Any, equation: Any, wanted: Sequence[Derivative], engine: Engine, compile: bool
    ):
        self.network, self.equation, self.wanted, self.engine = network, equation, list(wanted), engine
        self.inputs, self.outputs = solver.problem.input_variables, solver.problem.output_variables
        self.params = solver._params
        names = [f"u{i}" for i in range(len(self.outputs))]
        inputs = [f"x{j}" for j in range(len(self.inputs))]
        self.residual = Residual(with_named_parameters(names, self._of_fields), inputs, compile=compile)

    def _of_fields(self, **fields: Field) -> tuple[Any, ...]:
        """Return the outputs, then the derivatives that the equation uses."""
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
        """Calibrate an engine for the network at these points."""
        columns = columns_in(points, self.inputs)
        return engine.calibrated(self.network, columns, self.residual.operators(columns))

    def __call__(self, points: Any) -> Any:
        found: Any = self.residual(self.network, columns_in(points, self.inputs), self.engine)
        count = len(self.outputs)
        outputs = LabelTensor(torch.cat(found[:count], dim=1), self.outputs)
        known = DerivativeRecorder(self.inputs, dict(zip(self.wanted, found[count:], strict=True)))
        with known.instead_of_operators(outputs):
            return self.equation.residual(points.detach(), outputs, self.params)


class DerivativeRecorder:
    """Replacement of the functions that PINA's operators are made of: records derivatives, or returns computed ones.

    Tensors are known by identity, as labels survive arithmetic: `u**2` is labelled u as well. A gradient has one column
    per input, of which an equation often extracts some only: those are `used`, of all that were `asked` for. The others
    are not computed but NaN, which shows if they are used after all.
    """

    def __init__(self, inputs: Sequence[str], computed: dict[Derivative, Tensor] | None = None):
        self.inputs, self.computed = list(inputs), computed
        self.asked: list[Derivative] = []
        self.used: list[Derivative] = []
        self._counting = True
        #: True if something was differentiated that is neither an output nor a derivative of one.
        self.unknown = False
        self._known: dict[int, tuple[Any, int, dict[str, Derivative]]] = {}
        self._extract = LabelTensor.extract
        self._gradient, self._laplacian = operators._scalar_grad, operators._scalar_laplacian
        self._fast_gradient = operators.fast_grad

    @contextmanager
    def instead_of_operators(self, outputs: Any) -> Iterator[None]:
        """Replace PINA's functions while an equation of these outputs is evaluated."""
        self._remember(outputs, {label: (i, ()) for i, label in enumerate(outputs.labels)})
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

    def _remember(self, tensor: Any, columns: dict[str, Derivative]) -> Any:
        self._known[id(tensor)] = (tensor, tensor._version, columns)
        return tensor

    def _columns(self, tensor: Any) -> dict[str, Derivative]:
        """The derivatives in a tensor's columns, by label; empty if the tensor was changed in place."""
        known, version, columns = self._known.get(id(tensor), (None, 0, {}))
        return columns if known is tensor and version == tensor._version else {}

    def _extracted(self, tensor: Any, labels: Any) -> Any:
        taken, columns = self._extract(tensor, labels), self._columns(tensor)
        found = {label: columns[label] for label in taken.labels if label in columns}
        if self._counting:
            self._use([wanted for wanted in found.values() if wanted[1]])
        return self._remember(taken, found) if found else taken

    def _use(self, wanted: Sequence[Derivative]) -> None:
        if self.computed is not None and any(one not in self.computed for one in wanted):
            raise ChangedEquationError
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
        made = [_differentiated(columns[row], ("d", self._axes([name]))) for row in rows for name in d]
        return self._remember(found, dict(zip(found.labels, made, strict=True)))

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
        return self._remember(found, {found.labels[0]: _differentiated(of_what[0], step)}) if of_what else found

    def _axes(self, names: Sequence[str]) -> tuple[int, ...]:
        return tuple(self.inputs.index(name) for name in names)

    def _derivatives(self, output_: Any, steps: Sequence[Step], plainly: Callable[[], Any]) -> Any:
        """Derivatives of a single column, joined as columns."""
        columns = list(self._columns(output_).values())
        if len(columns) != 1:
            self.unknown = True
            if self.computed is not None:
                raise ChangedEquationError
            return plainly()
        wanted = [_differentiated(columns[0], step) for step in steps]
        if len(wanted) == 1:
            self._use(wanted)
        if self.computed is None:
            self.asked += [one for one in wanted if one not in self.asked]
            return plainly()
        missing = output_.new_full((len(output_), 1), float("nan")).as_subclass(Tensor)
        return torch.cat([self.computed.get(one, missing) for one in wanted], dim=1)


def _differentiated(wanted: Derivative, step: Step) -> Derivative:
    """Append a step of differentiation."""
    return wanted[0], (*wanted[1], step)
