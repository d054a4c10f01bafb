"""A residual: a function of fields, recorded once, planned as a whole, then evaluated.

The first time the function is called, its fields only record which operators are asked for. The engine computes all of
them together, and the function is called with fields that hold the numbers; from then on, this call alone is made.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar, overload

from torch import Tensor

from dudx.backend import tensor_checks
from dudx.backend.active_modes import vmap_active
from dudx.backend.outer_compile import uncompiled
from dudx.engines.interface import Engine, refuse_unset
from dudx.engines.request import Request as EngineRequest
from dudx.errors import InputError
from dudx.evaluate import derivatives, derivatives_elsewhere, prepared
from dudx.network.auxiliary_networks import WithNetworks, with_networks
from dudx.network.compiled_graph import CompiledGraphs
from dudx.network.compiled_plan import run_compiled
from dudx.network.ensemble import Ensemble
from dudx.network.model_checks import Model
from dudx.network.with_data import with_data
from dudx.operators import D, Operator
from dudx.residual import member_points
from dudx.residual.derivative_names import data_names, input_names
from dudx.residual.field import Field
from dudx.residual.request import ENDS, OtherRequestError, Request, Written, fresh, mean_square

#: One tensor for one equation, a tuple of them for several.
Result = TypeVar("Result", bound=Tensor | tuple[Tensor, ...])


class Residual(Generic[Result]):
    """A differential equation as a function of fields.

    Args:
        function: takes the network's outputs by name, in order, and any inputs and data it needs by name; returns one
            expression or, for several equations, a tuple. Parameters with a default are left alone.
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

    #: What computes each sample's gradient: a room above this one, which puts it here.
    _row_gradients: ClassVar[Callable[..., tuple[Tensor, Tensor]]]

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
        self._compiled = CompiledGraphs() if compile else None
        if not callable(function):
            raise InputError(f"A residual is made of a function, def heat(u): ...; got {type(function).__name__}.")
        self.function = function
        self.inputs = input_names(inputs)
        self.network_data, self.functions = tuple(network_data), tuple(functions)
        #: All that is given with a call; what the network takes may be named there too.
        self.data = data_names(data, network_data, functions, self.inputs)
        self.networks = dict(networks or {})
        for name, network in self.networks.items():
            if not callable(network):
                raise InputError(f"The network {name} must be callable; got {type(network).__name__}.")
        if self.networks and self.functions:
            raise InputError("Networks beside a model of many functions are not known; make one network of them.")
        self._written = Written(function, self.inputs, self.data, self.networks, self.functions)
        self.outputs = self._written.outputs
        #: Models together with the networks, which pass as one.
        self._joined: weakref.WeakKeyDictionary[Any, WithNetworks] = weakref.WeakKeyDictionary()
        self._data_names = set(self.data)
        #: By what is given with a call, what the function asks for then.
        self._requests: dict[Hashable, Request] = {}
        #: Whether the function has always asked for what was recorded; otherwise it is recorded at each call.
        self._steady = True

    def operators(self, x: Tensor, **data: Tensor) -> list[Operator]:
        """The operators the function asks for, each once; what `engine.calibrated` wants to know."""
        x = self._points(x)
        return (self._known(x, data) or self._recorded(x, data)).for_engine.with_vectors

    def orders(self, x: Tensor, **data: Tensor) -> dict[str, dict[str, int]]:
        """Of each output, the highest order of a derivative along each input; one along vectors counts for theirs.

        An output of which only the value is asked for has no orders, and one that is not used at all is left out.
        """
        x = self._points(x)
        return (self._known(x, data) or self._recorded(x, data)).orders(self.outputs)

    def __call__(self, model: Model, x: Tensor, engine: Engine | Sequence[Engine], **data: Tensor) -> Result:
        """The residual at the points, (B, 1), or a tuple of them; differentiable in the parameters.

        The members of an ensemble may have points (M, B, d), data and engines (a list) of their own.
        """
        return self._evaluated(model, x, engine, data, fresh)

    def loss(self, model: Model, x: Tensor, engine: Engine | Sequence[Engine], **data: Tensor) -> Tensor:
        """The mean square of the residual, summed over the equations; with `compile` one compiled graph."""
        return self._evaluated(model, x, engine, data, mean_square)

    def jacobian(
        self,
        model: Model,
        x: Tensor,
        engine: Engine,
        parameters: Sequence[Tensor] | None = None,
        out: Tensor | None = None,
        **data: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The residual (N,) and each sample's gradient in all parameters (N, P); see `dudx.residual.jacobian`."""
        return self._row_gradients(self, self._with_networks(model), x, engine, parameters, out, **data)

    def _with_networks(self, model: Any) -> Any:
        return with_networks(model, self.networks, self._joined) if self.networks else model

    def _given_data(self, model: Any, x: Tensor, data: Mapping[str, Tensor]) -> Any:
        """The network with what it takes of the data."""
        if not self.network_data and not self.functions:
            return model
        self._check_given(data)
        rows, functions = ({name: data[name] for name in names} for names in (self.network_data, self.functions))
        return with_data(model, rows, functions, len(x))

    @uncompiled
    def _evaluated(
        self, model: Model, x: Tensor, engine: Any, data: Mapping[str, Tensor], finish: Callable[[Any], Any]
    ) -> Any:
        if isinstance(model, Ensemble) and isinstance(x, Tensor) and x.ndim == 3:
            return self._of_members(model, x, engine, data, finish)
        x = self._points(x)
        if not isinstance(model, Ensemble):
            model = self._given_data(self._with_networks(model), x, data)
        return self._replayed([(x, data)], lambda asked: self._computed(model, x, engine, data, asked[0], finish))

    def _replayed(
        self, calls: Sequence[tuple[Tensor, Mapping[str, Tensor]]], compute: Callable[[list[Request]], Any]
    ) -> Any:
        """What is computed by the requests of such calls, those that are known if they still hold."""
        known = [self._known(x, data) for x, data in calls]
        if None not in known:
            try:
                return compute(known)  # type: ignore[arg-type]
            except OtherRequestError:
                # Something the function reads has changed since it was recorded, a coefficient perhaps; it may again.
                self._steady = False
        try:
            return compute([self._recorded(x, data) for x, data in calls])
        except OtherRequestError:
            raise InputError(
                "The residual asked for other derivatives when it was called again, so it is not known which to "
                "compute: it must not branch on values, count its calls or draw random numbers; use torch.where "
                "instead of if, and random_laplacian for random operators."
            ) from None

    def _of_members(
        self, several: Ensemble, x: Tensor, engine: Any, data: Mapping[str, Tensor], finish: Callable[[Any], Any]
    ) -> Any:
        """The same for members with points of their own."""
        self._check_given(data)
        if self.networks or self.network_data or self.functions:
            raise InputError("Members with points of their own are networks alone, without data or other networks.")
        each, engines = member_points.apart(several, x, data), member_points.engines_of(several, engine)
        for points, _ in each:
            self._points(points)

        def compute(requests: list[Request]) -> Any:
            def graph(plan: Any, axes: tuple[int | None, ...]) -> Any:
                return self._from_graph(plan, several, x, data, requests[0], axes)[ENDS.index(finish)]

            compiling = self._compiled is not None and not vmap_active() and self._compiled.can_compile(several.kind)
            return member_points.of_members(
                several, x, data, each, engines, requests,
                lambda *computed: finish(self._written.replayed(*computed)), graph if compiling else None,
            )  # fmt: skip

        return self._replayed(each, compute)

    def _computed(
        self,
        model: Model,
        x: Tensor,
        engine: Engine,
        data: Mapping[str, Tensor],
        request: Request,
        finish: Callable[[Any], Any],
    ) -> Any:
        if self._compiled is not None and request.elsewhere:
            self._compiled.give_up("integrals, fractional and upwind derivatives choose their rows at each call")
        plan = self._plan(model, x, engine, request)
        if plan is not None:
            return self._from_graph(plan, model, x, data, request)[ENDS.index(finish)]
        if isinstance(model, Ensemble):
            refuse_unset(engine, request.for_engine)
            # The checks, which cannot be made for all members at once.
            derivatives(self._given_data(model.kind, x, data), x, EngineRequest((D(),)), engine)

            def of(member: Any) -> Any:
                seen = self._given_data(self._with_networks(member), x, data)
                return self._computed(seen, x, engine, data, request, finish)

            return model.map(of)
        computed = derivatives(model, x, request.for_engine, engine)
        elsewhere = partial(derivatives_elsewhere, model, engine, len(x)) if request.elsewhere else None
        return finish(self._written.replayed(computed, request, x, data, elsewhere))

    def _plan(self, model: Any, x: Tensor, engine: Engine, request: Request) -> Any:
        """The plan to be compiled; None where nothing is."""
        if isinstance(model, Ensemble):
            if self.networks or self.network_data or self.functions:
                return None
            model = model.kind  # what is true of one is taken to be true of all members
        if self._compiled is None or vmap_active() or not self._compiled.can_compile(model):
            return None
        return prepared(model, x, request.for_engine, engine)

    def _from_graph(
        self,
        plan: Any,
        model: Model,
        x: Tensor,
        data: Mapping[str, Tensor],
        request: Request,
        axes: tuple[int | None, ...] | None = None,
    ) -> Any:
        """The residual in each of the forms that may be asked for: a call and a loss share one graph."""
        names = tuple(data)

        def finish(residual: Residual, computed: Sequence[Tensor], x: Tensor, given: tuple[Tensor, ...]) -> Any:
            values = residual._written.replayed(computed, request, x, dict(zip(names, given, strict=True)))
            return tuple(end(values) for end in ENDS)

        assert self._compiled is not None
        way = (request.places, request.shapes, names)
        return run_compiled(self._compiled, plan, model, x, finish, way, self, tuple(data.values()), axes)

    def _known(self, x: Tensor, data: Mapping[str, Tensor]) -> Request | None:
        """What the function asked for when it was called like this before, if it can be relied on."""
        self._check_given(data)
        known = self._requests.get(self._signature(x, data)) if self._steady else None
        return known.with_data(data, x) if known is not None and data else known

    def _recorded(self, x: Tensor, data: Mapping[str, Tensor]) -> Request:
        """What the function asks for now."""
        request = self._written.recorded(x, data)
        if request.repeatable:
            self._requests[self._signature(x, data)] = request
        return request

    @staticmethod
    def _signature(x: Tensor, data: Mapping[str, Tensor]) -> Hashable:
        if not data:
            return x.dtype
        return (x.dtype, *((name, tensor.dtype, tensor.shape[1:]) for name, tensor in data.items()))

    def compiled(self) -> Residual[Result]:
        """The same residual, compiled."""
        return self._again(compile=True)

    def _again(self, compile: bool) -> Residual[Result]:
        """The same residual, compiled or not."""
        made: Any = type(self)
        return made(*self._settings[:3], compile, *self._settings[4:])

    @property
    def _settings(self) -> tuple[Any, ...]:
        """What it was made with, in order."""
        compiled = self._compiled is not None
        return self.function, self.inputs, self.data, compiled, self.networks, self.network_data, self.functions

    def __reduce__(self) -> tuple[Any, ...]:
        # What was recorded and compiled is simply made again.
        return type(self), self._settings

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", repr(self.function))
        data = f", data={self.data}" if self.data else ""
        compiled = ", compile=True" if self._compiled is not None else ""
        return f"Residual({name}({', '.join(self.outputs)}), inputs={self.inputs}{data}{compiled})"

    @property
    def compile_seconds(self) -> float:
        """How long the calls took in which compilation happened."""
        return self._compiled.seconds if self._compiled is not None else 0.0

    def _points(self, x: Tensor) -> Tensor:
        x = tensor_checks.batch(x)  # the engine looks for NaN
        if x.shape[1] != len(self.inputs):
            raise InputError(
                f"The residual has {len(self.inputs)} inputs ({', '.join(self.inputs)}) and the points have "
                f"{x.shape[1]} columns."
            )
        return x

    def _check_given(self, data: Mapping[str, Tensor]) -> None:
        if data.keys() != self._data_names:
            raise InputError(
                f"The residual expects the data {sorted(self.data)} with each call and got {sorted(data)}."
            )
        for name, values in data.items():
            if not isinstance(values, Tensor):
                raise InputError(f"The data {name} must be a torch tensor; got {type(values).__name__}.")
