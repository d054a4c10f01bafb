"""A residual: a differential equation as a function of fields.

The first call of the function records which operators it asks for. The engine computes all of them together, and the
function is called with fields that hold the results. Later calls use the recorded request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

import torch
from torch import Tensor

from dudx.backend import tensor_checks
from dudx.backend.outer_compile import uncompiled
from dudx.engines.interface import Engine, Stepped
from dudx.errors import InputError
from dudx.gradients.jacobian_rows import Jacobian
from dudx.gradients.network_rows import RowGradients
from dudx.network.compiled_graph import CompiledGraphs
from dudx.network.ensemble import Ensemble
from dudx.network.model_checks import Model
from dudx.operators import Operator
from dudx.residual.compilation import CompiledEvaluation
from dudx.residual.derivative_names import check_data, data_names, input_names
from dudx.residual.ensembles import EnsembleEvaluation
from dudx.residual.field import Field
from dudx.residual.field_function import FieldFunction, one_column
from dudx.residual.further_networks import FurtherNetworks
from dudx.residual.network_data import NetworkData
from dudx.residual.request_cache import RequestCache
from dudx.residual.residual_evaluation import Evaluation, ResidualCall, evaluate_eagerly, mean_square, separate

#: One tensor for one equation, a tuple of tensors for several equations.
Result = TypeVar("Result", bound=Tensor | tuple[Tensor, ...])


class Residual(Generic[Result]):
    """A differential equation as a function of fields.

    Args:
        function: takes the network's outputs by name, in order, and any inputs and data it needs by name; `points` is
            all inputs, (B, d). Returns one expression or, for several equations, a tuple. Parameters with a default
            keep it.
        inputs: the names of the network's inputs, in order.
        data: names of tensors that are given with each call, `residual(model, x, engine, n=normals)`.
        networks: further networks by the name of their parameter, such as an unknown coefficient k; each has the same
            inputs and one output, and is differentiated by the same engine.
        network_data: names of data with a row for each point that the network takes too, `model(x, a=a)`.
        functions: names of data with a row for each of N functions that the network takes at all points, as a
            DeepONet does; `model(x, a=a)` returns (N, B) or (N, B, m), and fields, residual and data of the points
            have a column for each function, (B, N).
        compile: compile network, derivatives and residual into one graph with torch.compile, for engines that can
            (Taylor, FD, EFD, SFD). The first call for a shape takes seconds; `loss` gains most.

    A number in the function stays symbolic; a tensor, such as an `nn.Parameter` to be learned, is multiplied with the
    computed derivative and so gets a gradient.

    Example:
        >>> model, x = torch.nn.Linear(2, 1), torch.rand(10, 2)
        >>> burgers = dudx.Residual(lambda u: u.t + u * u.x - 0.01 * u.xx, inputs=("x", "t"))
        >>> burgers(model, x, dudx.Taylor()).shape
        torch.Size([10, 1])
        >>> burgers.loss(model, x, dudx.Taylor()).backward()
    """

    @overload
    def __init__(
        self: Residual[Tensor],
        function: Callable[..., Field | Tensor],
        inputs: Sequence[str],
        data: Sequence[str] = (),
        compile: bool = False,
        networks: Mapping[str, Model] | None = None,
        network_data: Sequence[str] = (),
        functions: Sequence[str] = (),
    ) -> None: ...
    @overload
    def __init__(
        self: Residual[tuple[Tensor, ...]],
        function: Callable[..., tuple[Any, ...] | list[Any]],
        inputs: Sequence[str],
        data: Sequence[str] = (),
        compile: bool = False,
        networks: Mapping[str, Model] | None = None,
        network_data: Sequence[str] = (),
        functions: Sequence[str] = (),
    ) -> None: ...
    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Sequence[str],
        data: Sequence[str] = (),
        compile: bool = False,
        networks: Mapping[str, Model] | None = None,
        network_data: Sequence[str] = (),
        functions: Sequence[str] = (),
    ) -> None:
        if not callable(function):
            raise InputError(f"A residual is made of a function, def heat(u): ...; got {type(function).__name__}.")
        self.function = function
        self.inputs = input_names(inputs)
        self.network_data, self.functions = tuple(network_data), tuple(functions)
        #: All names of data that come with a call, those that the network takes among them.
        self.data = data_names(data, network_data, functions, self.inputs)
        self.networks = dict(networks or {})
        if self.networks and self.functions:
            raise InputError("Networks beside a model of many functions are not known; make one network of them.")
        #: The steps that make a network of the points alone from the model, in order.
        self._extensions: list[Callable[[Any, Tensor, Mapping[str, Tensor]], Any]] = []
        columns = one_column
        if self.networks:
            self._extensions.append(FurtherNetworks(self.networks))
        if self.network_data or self.functions:
            bound = NetworkData(self.network_data, self.functions)
            self._extensions.append(bound)
            columns = bound.columns if self.functions else one_column
        self._fields = FieldFunction(function, self.inputs, self.data, self.networks, columns, bool(compile))
        self.outputs = self._fields.outputs
        self._requests = RequestCache(self._fields)
        #: The compiled graphs.
        self._compiled = CompiledGraphs() if compile else None
        compiled = CompiledEvaluation(self._compiled) if self._compiled is not None else None
        self._evaluation: Evaluation = compiled or evaluate_eagerly
        self._ensembles = EnsembleEvaluation(self._extensions, compiled)
        self._row_gradients = RowGradients()

    def operators(self, x: Tensor, **data: Tensor) -> list[Operator]:
        """The distinct operators that the function asks for, as `engine.calibrated` takes them."""
        return self._requests.request(*self._checked(x, data)).for_engine.with_vectors

    def orders(self, x: Tensor, **data: Tensor) -> dict[str, dict[str, int]]:
        """The highest order of a derivative along each input, for each output.

        A derivative along vectors counts for the inputs along which the vectors have a component. An output whose value
        alone is asked for has no orders; an output that is not used is left out.
        """
        return self._requests.request(*self._checked(x, data)).orders(self.outputs)

    def __call__(self, model: Model, x: Tensor, engine: Engine, **data: Tensor) -> Result:
        """The residual at the points, (B, 1), or a tuple of several; differentiable in the parameters."""
        return self._evaluated(ResidualCall(model, x, engine, data, separate), self._evaluation)

    def loss(self, model: Model, x: Tensor, engine: Engine, **data: Tensor) -> Tensor:
        """The mean square of the residual, summed over the equations; with `compile` one compiled graph."""
        return self._evaluated(ResidualCall(model, x, engine, data, mean_square), self._evaluation)

    def jacobian(
        self,
        model: Model,
        x: Tensor,
        engine: Engine,
        parameters: Sequence[Tensor] | None = None,
        out: Tensor | None = None,
        **data: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The residual (N,) and each sample's gradient in all parameters (N, P); see `dudx.optim.jacobian`."""
        values, linear = self._linearized(model, x, engine, parameters, None, data)
        return values, linear.dense(out)

    @uncompiled
    def _evaluated(self, call: ResidualCall, evaluation: Evaluation) -> Any:
        x, data = self._checked(call.x, call.data)
        if isinstance(call.model, Ensemble):
            evaluation = self._ensembles
        elif self._extensions:
            call = call._replace(model=self._extended(call.model, x, data))
        return self._requests.computed(x, data, lambda request: evaluation(self._fields, call, request))

    def _extended(self, model: Any, x: Tensor, data: Mapping[str, Tensor]) -> Any:
        for extension in self._extensions:
            model = extension(model, x, data)
        return model

    @uncompiled
    def _linearized(
        self,
        model: Model,
        x: Tensor,
        engine: Engine,
        parameters: Sequence[Tensor] | None,
        dtype: torch.dtype | None,
        data: Mapping[str, Tensor],
    ) -> tuple[Tensor, Jacobian]:
        """The residual (N,) and its Jacobian in factors; a compiled residual is evaluated without its graph."""
        tensor_checks.finite_on_schedule(tensor_checks.batch(x), "points")
        if self.functions:
            raise InputError(
                "The Jacobian of a residual of many functions at the same points is not known; give each point its own "
                "row of data, network_data= instead of functions=."
            )
        model = self._extended(model, *self._checked(x, data))
        if isinstance(engine, Stepped):
            engine.refuse_unset(self._requests.request(x, data).for_engine)

        def values(model: Model, engine: Engine) -> Any:
            return self._evaluated(ResidualCall(model, x, engine, data, separate), evaluate_eagerly)

        return self._row_gradients(values, model, x, engine, parameters, dtype, tuple(data))

    def _checked(self, x: Tensor, data: Mapping[str, Tensor]) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The points and the data after a check against the names; the engine checks for NaN."""
        tensor_checks.batch(x)
        if x.shape[1] != len(self.inputs):
            raise InputError(
                f"The residual has {len(self.inputs)} inputs ({', '.join(self.inputs)}) and the points have "
                f"{x.shape[1]} columns."
            )
        if data or self.data:
            check_data(data, self.data)
        return x, data

    def compiled(self) -> Residual[Result]:
        """The residual with `compile=True`."""
        return Residual(self.function, self.inputs, self.data, True, self.networks, self.network_data, self.functions)  # type: ignore[return-value]

    @property
    def compile_seconds(self) -> float:
        """Wall time of the calls in which a graph was compiled."""
        return self._compiled.seconds if self._compiled is not None else 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        # Requests are recorded again and graphs compiled again in a copy.
        compile = self._compiled is not None
        return type(self), (
            self.function, self.inputs, self.data, compile, self.networks, self.network_data, self.functions,
        )  # fmt: skip

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", repr(self.function))
        data = f", data={self.data}" if self.data else ""
        compiled = ", compile=True" if self._compiled is not None else ""
        return f"Residual({name}({', '.join(self.outputs)}), inputs={self.inputs}{data}{compiled})"
