"""Evaluate PINA's equations on fields, so that derivatives, network and equation are compiled as a whole.

An equation is called with named fields in place of its points and outputs. The functions that PINA's operators are made
of are replaced by versions for such fields. Equations that use points and outputs in other ways are not supported.
"""
# A checker takes the package for dudx.adapters.pina.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from pina import LabelTensor
from pina._src.core import operator as operators
from pina._src.equation.base_equation import BaseEquation
from torch import Tensor

from dudx.adapters.fallback import with_named_parameters
from dudx.adapters.named_fields import NamedFields, columns_of
from dudx.engines.interface import Engine
from dudx.residual.field import Field
from dudx.residual.residual_function import Residual


class EquationOfFields:
    """One equation as a residual.

    Args:
        problem: whose variables these are.
        network: takes points without names, in the order of the problem.
        equation: the equation.
        params: the unknown parameters of an inverse problem.
        like: what the equation returned for such points by itself, whose labels are kept.
        labels: the names of the points' columns, in their order.
        engine: how to differentiate.
        compile: into one graph.
    """

    def __init__(
        self, problem: Any, network: Any, equation: Any, params: Any, like: Any, labels: Sequence[str],
        engine: Engine, compile: bool,
    ):  # fmt: skip
        self.network, self.equation, self.params, self.like, self.engine = network, equation, params, like, engine
        self.variables, self.outputs, self.labels = list(problem.input_variables), problem.output_variables, labels
        self.inputs = [f"x{j}" for j in range(len(self.variables))]
        names = [f"u{i}" for i in range(len(self.outputs))]
        self.residual = Residual(
            with_named_parameters([*names, *self.inputs], self._of_fields), self.inputs, compile=compile
        )

    def _of_fields(self, **fields: Field) -> tuple[Any, ...]:
        points = NamedPoints(fields, self.variables, self.labels)
        outputs = NamedFields([fields[f"u{i}"] for i in range(len(self.outputs))], self.outputs)
        return columns_of(self.equation.residual(points, outputs, self.params))

    def calibrated(self, engine: Engine, points: Any) -> Engine:
        """Calibrate an engine for the network at these points."""
        columns = columns_in(points, self.variables)
        with _operators_on_fields():
            asked = self.residual.operators(columns)
        return engine.calibrated(self.network, columns, asked)

    def __call__(self, points: Any) -> Any:
        columns = columns_in(points, self.variables)
        self.equation.to(columns.device)  # not in the graph
        with _operators_on_fields():
            found: Any = self.residual(self.network, columns, self.engine)
        together = found[0] if len(found) == 1 else torch.cat(found, dim=1)
        if not isinstance(self.like, LabelTensor):
            return together
        named = together.as_subclass(LabelTensor)
        named._labels = dict(getattr(self.like, "_labels", {}))
        return named


def columns_in(points: Any, variables: Sequence[str]) -> Tensor:
    """The points as a tensor with columns in the problem's order, which may differ from that of the points."""
    columns, labels = points.detach().as_subclass(Tensor), points.labels
    return columns if labels == list(variables) else columns[:, [labels.index(name) for name in variables]]


class NamedPoints(NamedFields):
    """Named coordinates, which also map each name to the input of the residual."""

    def __init__(self, fields: dict[str, Field], variables: Sequence[str], labels: Sequence[str]):
        self.inputs = {label: f"x{variables.index(label)}" for label in labels}
        super().__init__([fields[self.inputs[label]] for label in labels], labels)


# -- replacements of PINA's functions, which call the original for anything but named fields ------------------

_scalar_grad, _scalar_laplacian, _check_values = (
    operators._scalar_grad, operators._scalar_laplacian, operators._check_values,
)  # fmt: skip
_to = BaseEquation.to


def _gradient_of_field(output_: Any, input_: Any, d: Sequence[str]) -> Any:
    if not isinstance(output_, NamedFields):
        return _scalar_grad(output_=output_, input_=input_, d=d)
    (field,) = output_.columns
    return NamedFields([field.d(input_.inputs[name]) for name in d], d)


def _laplacian_of_field(output_: Any, input_: Any, d: Sequence[str]) -> Any:
    if not isinstance(output_, NamedFields):
        return _scalar_laplacian(output_=output_, input_=input_, d=d)
    (field,) = output_.columns
    return NamedFields([field.laplacian(*[input_.inputs[name] for name in d])], output_.labels)


def _checked_names(output_: Any, input_: Any, components: Any, d: Any) -> tuple[list[str], list[str]]:
    if not isinstance(output_, NamedFields):
        return _check_values(output_=output_, input_=input_, components=components, d=d)
    d, components = d or input_.labels, components or output_.labels
    d = d if isinstance(d, list) else [d]
    components = components if isinstance(components, list) else [components]
    if not all(name in input_.labels for name in d) or not all(name in output_.labels for name in components):
        raise RuntimeError("Labels missing.")  # PINA says which, when the equation is evaluated by itself
    return components, d


def _labelled(x: Any, labels: Any) -> Any:
    if not isinstance(x, NamedFields):
        return LabelTensor(x, labels)
    return NamedFields(x.columns, labels)


def _sum(tensors: Sequence[Any]) -> Any:
    if not isinstance(tensors[0], NamedFields):
        return LabelTensor.summation(tensors)
    total = tensors[0]
    for one in tensors[1:]:
        total = total + one
    return NamedFields(total.columns, ["+".join(one.labels[0] for one in tensors)])


_labelled.summation = _sum  # pyright: ignore[reportFunctionMemberAccess]


def _unmoved(equation: Any, device: Any) -> Any:
    return equation


@contextmanager
def _operators_on_fields() -> Iterator[None]:
    operators._scalar_grad, operators._scalar_laplacian = _gradient_of_field, _laplacian_of_field
    operators._check_values, operators.LabelTensor = _checked_names, _labelled
    BaseEquation.to = _unmoved
    try:
        yield
    finally:
        operators._scalar_grad, operators._scalar_laplacian = _scalar_grad, _scalar_laplacian
        operators._check_values, operators.LabelTensor = _check_values, LabelTensor
        BaseEquation.to = _to
