"""A residual's function of fields: the names of its parameters, the operators it asks for, and its values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dudx.errors import DudxError, InputError, first_line
from dudx.operators import D
from dudx.residual.derivative_names import ALL_COORDINATES, networks_last, parameters_of
from dudx.residual.field import Field, tensors_of
from dudx.residual.field_operators import ForCompiler, version_of
from dudx.residual.field_values import Recorder, Replay, Values
from dudx.residual.linear_expression import Linear
from dudx.residual.nonlocal_terms.other_points import Nonlocal
from dudx.residual.recorded_request import RecordedRequest
from dudx.residual.sample_mixing import refuse_mixed_samples

#: What becomes of a returned value, from the value and the shape of a field.
Check = Callable[[Any, tuple[int, int]], Any]


def one_column(data: Mapping[str, Tensor]) -> int:
    """The number of columns of a field, for a model of one function."""
    return 1


class FieldFunction:
    """A function of fields, called to record its request and to compute its values.

    Args:
        function: the user's function.
        inputs: the names of the network's inputs.
        data: the names of all data that come with a call.
        networks: the names of further networks, whose columns come after those of the model.
        columns: the number of columns of a field, from the data of a call.
        compiled: True if the residual is compiled.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: tuple[str, ...],
        data: tuple[str, ...],
        networks: Collection[str] = (),
        columns: Callable[[Mapping[str, Tensor]], int] = one_column,
        compiled: bool = False,
    ):
        self._compiled = compiled
        outputs, arguments = parameters_of(function, {*inputs, *data}, networks)
        self.outputs = networks_last(outputs, networks)
        self._function, self._inputs, self._columns = function, inputs, columns
        # Only the inputs that the function takes: in many dimensions, unused columns would cost more than the residual.
        self._axes = {name: axis for axis, name in enumerate(inputs) if name in arguments}
        self._data = tuple(name for name in data if name in arguments)
        self._takes_points = ALL_COORDINATES in arguments and ALL_COORDINATES not in {*inputs, *data, *outputs}
        #: The expression of each output itself.
        self._values_of_outputs = [Linear({i: D()}) for i in range(len(self.outputs))]

    def recorded(self, x: Tensor, data: Mapping[str, Tensor]) -> RecordedRequest:
        """Call the function with recording fields and return its request."""
        recorder = Recorder(self._inputs, x, self._columns(data), self._compiled)
        written = [version_of(tensor) for tensor in data.values()]
        self._called_with_fields(recorder, x, data, _checked)
        if written != [version_of(tensor) for tensor in data.values()]:
            raise InputError(
                "The residual writes into its data, so each call would have others; write 2 * n for n.mul_(2)."
            )
        request = recorder.request(data)
        if not request.asked:
            raise InputError("The residual asks for nothing of the network; use its outputs or their derivatives.")
        return request.fitting(x)

    def refuse_if_mixed(self, x: Tensor, data: Mapping[str, Tensor]) -> None:
        """Raise an error if a value that the function returns at a point depends on other points of the batch."""

        def check(value: Any, shape: tuple[int, int]) -> None:
            if isinstance(value, Field):
                refuse_mixed_samples(value, "evaluated in slices of the batch", "Take the whole batch at once.")

        self._called_with_fields(Recorder(self._inputs, x, self._columns(data), self._compiled), x, data, check)

    def _called_with_fields(self, recorder: Recorder, x: Tensor, data: Mapping[str, Tensor], check: Check) -> None:
        try:
            self._call(recorder, x, data, check)
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            if isinstance(error, DudxError):
                raise
            raise InputError(
                f"The function of the residual fails with fields ({type(error).__name__}: {first_line(error)}): a "
                "field takes + - * / ** and functions of torch, such as torch.sin(u) and torch.remainder(u, 2)."
            ) from error

    def replayed(
        self,
        computed: Sequence[Tensor],
        request: RecordedRequest,
        x: Tensor,
        data: Mapping[str, Tensor],
        other_points: Nonlocal | None = None,
    ) -> Any:
        """Call the function with the computed operators and return its values."""
        columns = self._columns(data)
        if computed[0].shape[1] != len(self.outputs) * columns:
            raise InputError(
                f"The residual names {len(self.outputs)} output(s) ({', '.join(self.outputs)}) and the model returns "
                f"{computed[0].shape[1] // columns}; name them all, in order."
            )
        return self._call(Replay(x, request, computed, columns, other_points, self._compiled), x, data)

    def _call(self, values: Values, x: Tensor, data: Mapping[str, Tensor], check: Check | None = None) -> Any:
        named: dict[str, Any] = {}
        for name, axis in self._axes.items():
            named[name] = Field._coordinate(values, axis, x[:, axis : axis + 1])
        if self._takes_points:
            named[ALL_COORDINATES] = Field._coordinate(values, None, x)
        for name in self._data:
            named[name] = data[name]
        for number, name in enumerate(self.outputs):
            # A new expression for torch.compile, which would add a guard for all that the kept one remembers.
            compiling = torch.compiler.is_compiling()
            named[name] = Field(values, Linear({number: D()}) if compiling else self._values_of_outputs[number])
        if torch.compiler.is_compiling():
            with ForCompiler():
                returned = self._function(**named)
        else:
            returned = self._function(**named)
        check = check or _checked
        if isinstance(returned, tuple | list):
            return tuple(check(item, values.shape) for item in returned)
        return check(returned, values.shape)


def _checked(returned: object, shape: tuple[int, int]) -> Tensor:
    value = returned._tensor() if isinstance(returned, Field) else tensors_of(returned)
    if not isinstance(value, Tensor) or tuple(value.shape) != shape:
        got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        each = "value a point" if shape[1] == 1 else "value for each point and function"
        raise InputError(f"A residual must return one {each}, shape {shape}; got {got}.")
    return value
