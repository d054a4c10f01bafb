"""Engines as a user writes them, for the command line to import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Generator, Tensor

import dudx
from dudx.engines.interface import Adjustable
from dudx.engines.request import Request
from dudx.network.model_checks import Model


@dataclass(frozen=True)
class Simple(dudx.Engine):
    """The least there can be: one method."""

    def derivatives(self, model: Model, x: Tensor, request: Request) -> Sequence[Tensor]:
        return dudx.AD().derivatives(model, x, request)


@dataclass(frozen=True)
class Wary(Adjustable):
    """Differences whose step shrinks with each calibration, by a share that is drawn, and varies with every call."""

    generator: Generator | None = field(default=None, compare=False)
    step: float | None = None
    looks: int = 0
    level: Tensor = field(default_factory=lambda: torch.zeros(1), compare=False)

    def derivatives(self, model: Model, x: Tensor, request: Request) -> Sequence[Tensor]:
        assert self.step is not None
        varied = self.step * (1 + 0.1 * torch.rand(1, generator=self.generator).item() * self.level.item())
        return dudx.FD(varied).derivatives(model, x, request)

    def calibrated_for(self, model: Model, x: Tensor, request: Request, search: Mapping[str, Any]) -> Wary:
        share = 1 - 0.5 * torch.rand(1, generator=self.generator).item()
        level = model(x).detach().abs().mean().reshape(1)
        return replace(self, step=share * (self.step or 0.05), looks=self.looks + 1, level=level)

    @property
    def state(self) -> dict[str, Any]:
        return {} if self.step is None else {"step": self.step, "looks": self.looks, "level": self.level}

    def with_state(self, state: Mapping[str, Any]) -> Wary:
        return replace(self, **state)


class Hoarding(Adjustable):
    """Keeps what no checkpoint should read."""

    def derivatives(self, model: Model, x: Tensor, request: Request) -> Sequence[Tensor]:
        return dudx.AD().derivatives(model, x, request)

    def calibrated_for(self, model: Model, x: Tensor, request: Request, search: Mapping[str, Any]) -> Hoarding:
        return self

    @property
    def state(self) -> dict[str, Any]:
        return {"history": [Generator()]}

    def with_state(self, state: Mapping[str, Any]) -> Hoarding:
        return self


def no_engine() -> None:
    """A function where a class is asked for."""
