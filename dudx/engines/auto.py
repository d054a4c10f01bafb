"""The fastest engine for a network and a request, found by timing each once."""

from __future__ import annotations

import time
import weakref
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Generator, Tensor, nn

from dudx.engines.autodiff import AD
from dudx.engines.first_use import sound_derivatives
from dudx.engines.interface import Engine, Prepared, RowsPerPoint
from dudx.engines.taylor.taylor_engine import Taylor
from dudx.errors import InputError, UnsupportedError
from dudx.network.model_checks import Model
from dudx.network.modules import owner_of
from dudx.network.sandbox import sandboxed
from dudx.operators import Directional, Operator, fitting

#: What was found for a network, by request.
_found: weakref.WeakKeyDictionary[Any, dict[Hashable, _Choice]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class _Choice:
    number: int
    reason: str


@dataclass(frozen=True)
class Auto(Engine):
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
    label = "Auto"
    summary = "the fastest exact engine for the network at hand, found by timing"
    rank = 6

    candidates: tuple[Engine, ...] = field(default_factory=lambda: (Taylor(), AD()))
    #: The number of the engine that was chosen for good, and why.
    chosen: int | None = field(default=None, kw_only=True)
    reason: str = field(default="", kw_only=True, compare=False, repr=False)
    coupled: str | None = field(default="refuse", init=False, repr=False, compare=False)

    @classmethod
    def for_training(cls, accuracy: int, generator: Generator, coupled: str) -> Auto:
        if coupled == "ignore":
            raise InputError("Auto chooses among exact engines; a network's coupling is ignored by AD: --engine ad.")
        return cls()

    def __post_init__(self) -> None:
        engines = tuple(self.candidates)
        if not engines or not all(isinstance(engine, Engine) for engine in engines):
            raise InputError(f"Auto chooses among engines such as (dudx.Taylor(), dudx.AD()); got {self.candidates!r}.")
        object.__setattr__(self, "candidates", engines)
        if any(engine.coupled == "ignore" for engine in engines):
            raise InputError("Auto chooses among engines that are right, and coupled='ignore' is not one of them.")

    @property
    def approximate(self) -> bool:  # type: ignore[override]
        return any(engine.approximate for engine in self.candidates)

    def derivatives(self, model: Model, x: Tensor, operators: Sequence[Operator]) -> Sequence[Tensor]:
        return sound_derivatives(self._engine(model, x, operators), model, x, operators)

    def looking(self, side: str) -> Self:
        engines = tuple(engine.looking(side) for engine in self.candidates)
        changed = any(now is not before for now, before in zip(engines, self.candidates, strict=True))
        return replace(self, candidates=engines) if changed else self

    def prepared(self, x: Tensor, operators: Sequence[Operator]) -> Prepared | None:
        return None if self.chosen is None else self.candidates[self.chosen].prepared(x, operators)

    def rows(self, x: Tensor, operators: Sequence[Operator]) -> RowsPerPoint:
        if self.chosen is not None:
            return self.candidates[self.chosen].rows(x, operators)
        each = [engine.rows(x, operators) for engine in self.candidates]
        return RowsPerPoint(max(rows.at_once for rows in each), max(rows.kept for rows in each))

    def calibrated(self, model: Model, x: Tensor, operators: Sequence[Operator], **search: Any) -> Self:
        """The same engine with its choice made, and the steps of candidates that have any set."""
        operators = fitting(operators, x)
        engines = tuple(engine.calibrated(model, x, operators, **search) for engine in self.candidates)
        choice = _fastest(engines, model, x, operators)
        return replace(self, candidates=engines, chosen=choice.number, reason=choice.reason)

    @property
    def state(self) -> dict[str, Any]:
        kept = {str(number): engine.state for number, engine in enumerate(self.candidates) if engine.state}
        return kept if self.chosen is None else {**kept, "chosen": self.chosen}

    def with_state(self, state: Mapping[str, Any]) -> Self:
        numbers = range(len(self.candidates))
        if not {"chosen", *map(str, numbers)} >= state.keys() or state.get("chosen", 0) not in numbers:
            raise InputError(f"Auto keeps the number of its choice, and was given another state: {state!r}.")
        engines = tuple(e.with_state(state.get(str(i), {})) for i, e in enumerate(self.candidates))
        return replace(self, candidates=engines, chosen=state.get("chosen"))

    @property
    def shown(self) -> str:
        return "" if self.chosen is None else type(self.candidates[self.chosen]).__name__

    def _engine(self, model: Model, x: Tensor, operators: Sequence[Operator]) -> Engine:
        if self.chosen is not None:
            return self.candidates[self.chosen]
        if x.is_meta:
            return self.candidates[-1]
        key = (self.candidates, x.shape, x.dtype, x.device, torch.is_grad_enabled(), tuple(map(_bare, operators)))
        try:
            known = _found.setdefault(owner_of(model), {})
        except TypeError:  # such a callable cannot be remembered
            known = {}
        if key not in known:
            known[key] = _fastest(self.candidates, model, x, operators)
        return self.candidates[known[key].number]


def _bare(operator: Operator) -> Hashable:
    """An operator without its tensors, which a memory would keep alive."""
    return frozenset(
        (("along", term.order) if isinstance(term, Directional) else term, c) for term, c in operator.terms.items()
    )


def _fastest(engines: Sequence[Engine], model: Model, x: Tensor, operators: Sequence[Operator]) -> _Choice:
    seconds: dict[int, float] = {}
    refusals: list[UnsupportedError] = []
    for number, engine in enumerate(engines):
        try:
            with sandboxed(model):
                _step(engine, model, x, operators)  # warm
                start = time.perf_counter()
                _step(engine, model, x, operators)
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


def _step(engine: Engine, model: Model, x: Tensor, operators: Sequence[Operator]) -> None:
    values = sound_derivatives(engine, model, x, operators)
    parameters = [p for p in model.parameters() if p.requires_grad] if isinstance(model, nn.Module) else []
    loss = torch.stack([value.square().mean() for value in values]).sum()
    if parameters and loss.requires_grad:
        torch.autograd.grad(loss, parameters, allow_unused=True)
    elif x.is_cuda:
        torch.cuda.synchronize(x.device)
