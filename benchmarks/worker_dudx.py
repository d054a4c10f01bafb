"""A training step with an engine of dudx: plain or compiled, on the whole batch or slice by slice."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from harness import serve
from peers.torch_step import TorchStep

import dudx

NU = 0.01 / torch.pi


def equation(problem: str, inputs: int, compile: bool) -> dudx.Residual:
    """Return the residual of the problem in its own variables."""
    if problem == "burgers":
        return dudx.Residual(lambda u: u.t + u * u.x - NU * u.xx, inputs=("x", "t"), compile=compile)
    if problem == "heat":
        return dudx.Residual(lambda u: u.t - u.xx - u.yy, inputs=("x", "y", "t"), compile=compile)
    names = tuple(f"x{i}" for i in range(inputs))
    if problem == "biharmonic":
        return dudx.Residual(lambda u: u.laplacian().laplacian(), inputs=names, compile=compile)
    return dudx.Residual(lambda u: u.laplacian(), inputs=names, compile=compile)


def engine(name: str, problem: str, inputs: int) -> dudx.Engine:
    """Return the engine, with steps near the optimum of an untrained network in single precision.

    The weights of the first layer shrink with the square root of the number of inputs, and the best steps grow with it.
    """
    scale = max(1.0, inputs / 2) ** 0.5
    fourth_order = problem == "biharmonic"
    if name == "FD":
        return dudx.FD(step=0.15 if fourth_order else 2e-2 * scale)
    if name == "EFD":
        return dudx.EFD(steps={1: 1e-2 * scale, 2: 4e-2 * scale, 4: 0.15})
    if name == "SFD":
        return dudx.SFD(steps=(0.12, 0.2) if fourth_order else (1e-2 * scale, 4e-2 * scale))
    return getattr(dudx, name)()


class TrainingStep(TorchStep):
    """A step with `Residual.loss` and `dudx.backward`: mean square and gradient in the parameters.

    Case keys: "engine", and optionally "compile" (True), "chunk" (points per slice, or "auto") and "return" (True: do
    not call `dudx.keep_freed_memory`, so that memory freed by a slice is returned to the system).
    """

    def __init__(self, case: Mapping[str, Any]):
        super().__init__({**case, "compile": False})  # the residual is compiled separately
        # A fallback that only warns users would give rows a wrong label here.
        warnings.simplefilter("error", dudx.errors.CompilationWarning)
        self.engine = engine(case["engine"], self.problem, case["inputs"])
        self.equation = equation(self.problem, case["inputs"], compile=bool(case.get("compile")))
        self.chunk = case.get("chunk")
        if self.chunk == "auto":
            rows = self.engine.rows(self.x, self.equation.operators(self.x))
            self.chunk = dudx.suggested_chunk(self.model, rows=rows)
        if self.chunk is not None and not case.get("return"):
            dudx.keep_freed_memory()

    @torch.no_grad()
    def compute(self) -> torch.Tensor:
        """Return the residual for the check; a batch that fits only in slices is evaluated in slices."""
        plain = equation(self.problem, self.x.shape[1], compile=False)
        parts: list[Any] = [plain(self.model, part, self.engine) for part in self.x.split(self.chunk or len(self.x))]
        return torch.cat(parts)

    def _loss(self, x: torch.Tensor) -> torch.Tensor:
        return self.equation.loss(self.model, x, self.engine)

    def step(self) -> None:
        self.model.zero_grad(set_to_none=True)
        if self.chunk is None:
            self._loss(self.x).backward()
        else:
            dudx.backward(self._loss, self.x, chunk=self.chunk)


if __name__ == "__main__":
    serve(TrainingStep)
