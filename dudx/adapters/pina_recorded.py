"""PINA's operators as they are: what an equation asks of them is noted, and answered by numbers from then on.

For equations that do more with points and outputs than fields can: the derivatives come from an engine, the rest of the
equation is evaluated by PINA.
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

from dudx.adapters.pina_fields import columns_in
from dudx.adapters.serving import with_parameters
from dudx.engines.interface import Engine
from dudx.residual.field import Field
from dudx.residual.residual_function import Residual

#: A derivative along an axis, or a Laplacian along several.
Step = tuple[str, tuple[int, ...]]
#: Of which output, and the steps by which it is differentiated; plain values, which torch.compile can follow.
Wanted = tuple[int, tuple[Step, ...]]


class ChangedEquationError(Exception):
    """The equation asks for something that was not recorded."""


class EquationWithDerivatives:
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
        known = Noted(self.inputs, dict(zip(self.wanted, found[count:], strict=True)))
        with known.instead_of_operators(outputs):
            return self.equation.residual(points.detach(), outputs, self.params)


class Noted:
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
                raise ChangedEquationError
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
