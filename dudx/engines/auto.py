"""The fastest engine for a network and a request, found by timing each once."""

from __future__ import annotations

import time
import weakref
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from dudx.engines.autodiff import AD
from dudx.engines.first_use import sound_derivatives
from dudx.engines.interface import (
    Adjustable,
    Counted,
    Engine,
    Planned,
    Prepared,
    RowsPerPoint,
    Sided,
    Stepped,
    calibrated,
    one_sided,
    prepared,
    refuse_unset,
    rows_per_point,
    state_of,
    with_state,
)
from dudx.engines.request import Request
from dudx.engines.taylor.taylor_engine import Taylor
from dudx.errors import InputError, UnsupportedError
from dudx.network.model_checks import Model
from dudx.network.modules import owner_of
from dudx.network.sandbox import sandboxed

#: What was found for a network, by request.
_found: weakref.WeakKeyDictionary[Any, dict[Hashable, _Choice]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class _Choice:
    number: int
    reason: str


@dataclass(frozen=True)
class Auto(Adjustable, Counted, Planned, Sided, Stepped):
    """The fastest of some engines for this network and request, among those that can do it.

    The first time a network is asked for something, each engine computes it with the parameters' gradients, and is
    timed; from then on the fastest is used. `calibrated` times once for good, and a checkpoint keeps the choice.

    Args:
        candidates: the engines to choose from.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        >>> x = torch.rand(9, 2)
        >>> engine = dudx.Auto().calibrated(model, x, [dudx.Laplacian()])
        >>> " ms a step here" in engine.reason
        True
        >>> dudx.evaluate(model, x, dudx.Laplacian(), engine).shape
        torch.Size([9, 1])
    """

    name = "auto"

    candidates: tuple[Engine, ...] = field(default_factory=lambda: (Taylor(), AD()))
    #: The number of the engine that was chosen for good, and why.
    chosen: int | None = field(default=None, kw_only=True)
    reason: str = field(default="", kw_only=True, compare=False, repr=False)
    coupled: str | None = field(default="refuse", init=False, repr=False, compare=False)
    approximate: bool = field(default=False, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        engines = tuple(self.candidates)
        if not engines or not all(isinstance(engine, Engine) for engine in engines):
            raise InputError(f"Auto chooses among engines such as (dudx.Taylor(), dudx.AD()); got {self.candidates!r}.")
        object.__setattr__(self, "candidates", engines)
        if any(engine.coupled == "ignore" for engine in engines):
            raise InputError("Auto chooses among engines that are right, and coupled='ignore' is not one of them.")
        object.__setattr__(self, "approximate", any(engine.approximate for engine in engines))

    def derivatives(self, model: Model, x: Tensor, request: Request) -> Sequence[Tensor]:
        return sound_derivatives(self._engine(model, x, request), model, x, request)

    def one_sided(self, side: str) -> Self:
        engines = tuple(one_sided(engine, side) for engine in self.candidates)
        changed = any(now is not before for now, before in zip(engines, self.candidates, strict=True))
        return replace(self, candidates=engines) if changed else self

    def prepared(self, x: Tensor, request: Request) -> Prepared | None:
        return None if self.chosen is None else prepared(self.candidates[self.chosen], x, request)

    def rows_for(self, x: Tensor, request: Request) -> RowsPerPoint:
        each = [rows_per_point(engine, x, request) for engine in self._possible]
        return RowsPerPoint(max(rows.at_once for rows in each), max(rows.kept for rows in each))

    def refuse_unset(self, request: Request) -> None:
        for engine in self._possible:
            refuse_unset(engine, request)

    def calibrated_for(self, model: Model, x: Tensor, request: Request, search: Mapping[str, Any]) -> Self:
        """The engine with its choice made, and the steps of candidates that have any set."""
        engines = tuple(calibrated(engine, model, x, request, search) for engine in self.candidates)
        choice = _fastest(engines, model, x, request)
        return replace(self, candidates=engines, chosen=choice.number, reason=choice.reason)

    @property
    def state(self) -> dict[str, Any]:
        states = {str(number): state_of(engine) for number, engine in enumerate(self.candidates)}
        kept = {number: state for number, state in states.items() if state}
        return kept if self.chosen is None else {**kept, "chosen": self.chosen}

    def with_state(self, state: Mapping[str, Any]) -> Self:
        numbers = range(len(self.candidates))
        if not {"chosen", *map(str, numbers)} >= state.keys() or state.get("chosen", 0) not in numbers:
            raise InputError(f"Auto keeps the number of its choice, and was given another state: {state!r}.")
        engines = tuple(with_state(e, state.get(str(i), {})) for i, e in enumerate(self.candidates))
        return replace(self, candidates=engines, chosen=state.get("chosen"))

    @property
    def _possible(self) -> tuple[Engine, ...]:
        """The engine that was chosen for good, or all candidates."""
        return self.candidates if self.chosen is None else (self.candidates[self.chosen],)

    def _engine(self, model: Model, x: Tensor, request: Request) -> Engine:
        if self.chosen is not None:
            return self.candidates[self.chosen]
        if x.is_meta:
            return self.candidates[-1]
        key = (self.candidates, x.shape, x.dtype, x.device, torch.is_grad_enabled(), request.operators)
        try:
            known = _found.setdefault(owner_of(model), {})
        except TypeError:  # such a callable cannot be remembered
            known = {}
        if key not in known:
            known[key] = _fastest(self.candidates, model, x, request)
        return self.candidates[known[key].number]


def _fastest(engines: Sequence[Engine], model: Model, x: Tensor, request: Request) -> _Choice:
    seconds: dict[int, float] = {}
    refusals: list[UnsupportedError] = []
    for number, engine in enumerate(engines):
        try:
            with sandboxed(model):
                _step(engine, model, x, request)  # warm
                start = time.perf_counter()
                _step(engine, model, x, request)
                seconds[number] = time.perf_counter() - start
        except UnsupportedError as error:
            refusals.append(error)
    if not seconds:
        raise refusals[-1]
    order = sorted(seconds, key=seconds.__getitem__)
    names = [f"{type(engines[n]).__name__} takes {1e3 * seconds[n]:.2f} ms a step" for n in order]
    others = "".join(f", {name}" for name in names[1:])
    cannot = "".join(f" ({str(error).split('. ')[0].rstrip('.')}.)" for error in refusals)
    return _Choice(order[0], f"{names[0]} here{others}.{cannot}")


def _step(engine: Engine, model: Model, x: Tensor, request: Request) -> None:
    values = sound_derivatives(engine, model, x, request)
    parameters = [p for p in model.parameters() if p.requires_grad] if isinstance(model, nn.Module) else []
    loss = torch.stack([value.square().mean() for value in values]).sum()
    if parameters and loss.requires_grad:
        torch.autograd.grad(loss, parameters, allow_unused=True)
    elif x.is_cuda:
        torch.cuda.synchronize(x.device)
