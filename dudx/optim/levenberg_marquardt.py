"""The Levenberg-Marquardt method for sums of squares of residuals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from dudx import errors
from dudx.errors import InputError, ModelError
from dudx.gradients.network_rows import checked_parameters
from dudx.gradients.rewind import Rewind
from dudx.optim.balancing import Balance
from dudx.optim.conjugate_gradients import MatrixFreeSolver
from dudx.optim.damping_search import BatchMemory, Damping, Step, StepSearch
from dudx.optim.step_solvers import KernelSolver, NormalSolver, Reduce, StepSolver, Workspace
from dudx.optim.terms import LeastSquares, as_terms, taming_factors

Solver = Literal["auto", "normal", "kernel", "free"]


class LevenbergMarquardt:
    """Levenberg-Marquardt method: steps -(JᵀJ + λ)⁻¹ Jᵀr for residuals r with Jacobian J.

    ```python
    optimizer = dudx.optim.LevenbergMarquardt(model.parameters())
    for _ in range(200):
        x, edge, g = draw()
        loss = optimizer.step([
            dudx.optim.Term(equation, model, x, dudx.Taylor()),
            dudx.optim.Term(boundary, model, edge, dudx.Taylor(), data={"g": g}),
        ])
    ```

    The loss is the sum over terms of weight times mean square. The damping λ falls while steps do what the linear
    model predicts and rises where they do not (Nielsen); relative to the mean eigenvalue of JᵀJ it starts at `damping`.

    Args:
        parameters: of the network, and unknown constants of the residuals. Of any precision; the algebra is in double.
        damping: the first one.
        memory: the share of past batches' quadratic models that is kept, below 1, where each step draws new points
            (recursive least squares; without the normal matrix, of the last step); 0 where points stay for many steps.
        acceleration: bend each step along the residuals' curvature (Transtrum and Sethna), which takes one more look at
            the residuals; None does so unless the solver is "free".
        adapt: False keeps the damping as it is and shortens a step that fails instead. With a small damping that is
            Gauss-Newton's method with a line search, which for the residual of a PDE and its conditions is the
            energy natural gradient.
        solver: "normal" factorises JᵀJ, "kernel" JJᵀ, which is the same step and smaller with fewer samples than
            parameters; "free" needs no matrix and takes `iterations` of conjugate gradients; "auto" chooses.
        dense: with more parameters than this "auto" has no normal matrix: it is "kernel" for batches of up to half as
            many samples, and "free" for larger ones.
        balance: how automatic weights are found, for terms without a weight of their own.
        iterations, tolerance: when conjugate gradients stop.
        floor: the smallest damping.
        tries: after so many dampings, or lengths, without a better loss a step is given up; the parameters stay.
        reduce: sums a tensor over processes that each have points of their own, for torchrun:
            `lambda t: (torch.distributed.all_reduce(t), t)[1]`. Mean squares are then those over all of them.

    With the same terms and the same random generators all steps are the same to the last bit; random numbers that an
    engine such as SFD draws are the same in all that one step compares.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        damping: float = 1e-3,
        memory: float = 0.0,
        acceleration: bool | None = None,
        adapt: bool = True,
        solver: Solver = "auto",
        dense: int = 4000,
        balance: Balance | None = None,
        iterations: int = 12,
        tolerance: float = 1e-2,
        floor: float = 1e-14,
        tries: int = 8,
        reduce: Reduce | None = None,
    ):
        self.parameters = checked_parameters(parameters)
        self._damping = Damping(
            errors.positive_step(damping, "damping"), errors.positive_step(floor, "floor"), bool(adapt)
        )
        if isinstance(memory, bool) or not isinstance(memory, int | float) or not 0 <= memory < 1:
            raise InputError(f"The memory is the share of the past that is kept, from 0 to below 1; got {memory!r}.")
        for name, number in (("tries", tries), ("iterations", iterations), ("dense", dense)):
            errors.whole_number(number, name)
        errors.one_of(solver, Solver, "solver")
        self._sizes = [parameter.numel() for parameter in self.parameters]
        if reduce is not None and solver == "kernel":
            raise InputError("A kernel pairs samples, which processes do not share; use solver='normal' or 'free'.")
        self.solver, self.dense, self.tries = solver, dense, tries
        self._memory = BatchMemory(float(memory))
        self.acceleration = acceleration if acceleration is None else bool(acceleration)
        self.iterations, self.tolerance = iterations, errors.positive_step(tolerance, "tolerance")
        self.balance = Balance() if balance is None else balance
        self._reduce: Reduce = reduce or (lambda tensor: tensor)
        self._alone = reduce is None
        self._workspace = Workspace()
        #: What happened in the last step.
        self.last: Step | None = None

    # -- a step --------------------------------------------------------------------------------------------------

    def step(self, terms: Sequence[Any]) -> float:
        """One step; the loss before it.

        Args:
            terms: each a `Term`, or a function without arguments that returns residuals (B,), differentiable in the
                parameters.
        """
        given = as_terms(terms)
        rewind = Rewind(generator for term in given for generator in term.generators())
        r, factors, weights, solver = self._linearized(given)
        if not math.isfinite(float(self._reduce(r.dot(r)))):
            raise ModelError(
                "The residuals are not finite where the step starts; look at the network's initial values and points."
            )
        bent = not isinstance(solver, MatrixFreeSolver) if self.acceleration is None else self.acceleration
        search = StepSearch(given, rewind, r, factors, solver, self._vector(), self._assign, self._reduce, bent)
        found = search.run(self._damping, self._memory, self.tries)
        self.last = replace(found, weights=tuple(tuple(of_term) for of_term in weights))
        return found.loss

    @property
    def damping(self) -> float:
        """The current damping, relative to the mean eigenvalue of JᵀJ."""
        return self._damping.value

    def _linearized(self, terms: Sequence[LeastSquares]) -> tuple[Tensor, Tensor, list[list[float]], StepSolver]:
        """Return weighted residuals, their factors, the weights of the terms, and the solver of this step."""
        # In case they are multiplied as they are, factors are of double precision.
        large = self.solver == "free" or (self.solver == "auto" and sum(self._sizes) > self.dense)
        pairs = [term.linearized(self.parameters, torch.float64 if large else None) for term in terms]
        values, parts = [r.double() for r, _ in pairs], [part for _, part in pairs]
        counts = [len(r) for r in values]
        kind = self.form(sum(counts))
        j = None if kind == "free" else self._workspace("jacobian", sum(counts), sum(self._sizes), values[0].device)
        blocks = [None] * len(parts) if j is None else [p.dense(b) for p, b in zip(parts, j.split(counts), strict=True)]
        weights = self.balance.of_rows(terms, parts, blocks, self._reduce)
        totals = self._reduce(values[0].new_tensor([float(part.samples) for part in parts])).tolist()
        factors = [
            torch.cat([r.new_full((part.samples,), math.sqrt(weight / total)) for weight in of_term])
            for r, part, of_term, total in zip(values, parts, weights, totals, strict=True)
        ]
        factors = [
            self._tamed(term, r, part.samples) * factor
            for term, r, part, factor in zip(terms, values, parts, factors, strict=True)
        ]
        r = torch.cat(values) * torch.cat(factors)
        if j is None:
            solver = MatrixFreeSolver(parts, factors, r, self._reduce, self.iterations, self.tolerance)
        else:
            j.mul_(torch.cat(factors)[:, None])
            if kind == "kernel":
                solver = KernelSolver(j, r, self._workspace)
            else:
                solver = NormalSolver(j, r, self._workspace, self._reduce, self._memory.past)
        return r, torch.cat(factors), weights, solver

    def _tamed(self, term: LeastSquares, r: Tensor, samples: int) -> Tensor:
        """Factors of a term's residuals: 1 unless large residuals are to count linearly."""
        if not getattr(term, "tame", False):
            return torch.ones_like(r)
        found = []
        for equation in r.split(samples):
            total = self._reduce(torch.stack([equation.abs().sum(), equation.new_tensor(float(samples))]))
            found.append(taming_factors(equation, total[0] / total[1]))
        return torch.cat(found)

    def form(self, samples: int) -> str:
        """Choose the solver for a number of samples: "normal", "kernel" or "free"."""
        if self.solver != "auto":
            return self.solver
        if sum(self._sizes) > self.dense:
            return "kernel" if self._alone and samples <= self.dense // 2 else "free"
        return "kernel" if self._alone and samples < sum(self._sizes) and not self._memory.share else "normal"

    # -- parameters as one vector --------------------------------------------------------------------------------

    @torch.no_grad()
    def _vector(self) -> Tensor:
        return torch.cat([parameter.reshape(-1).double() for parameter in self.parameters])

    @torch.no_grad()
    def _assign(self, vector: Tensor) -> None:
        for parameter, part in zip(self.parameters, vector.split(self._sizes), strict=True):
            parameter.copy_(part.view_as(parameter))

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return numbers and tensors from which `load_state_dict` resumes exactly."""
        return {
            "damping": self._damping.value,
            "floor": self._damping.floor,
            "growth": self._damping.growth,
            "lengths": self.balance.lengths.clone(),
            "past": None if self._memory.past is None else [tensor.clone() for tensor in self._memory.past],
            "carried": None if self._memory.carried is None else self._memory.carried.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state of `state_dict`."""
        wanted = {"damping", "floor", "growth", "lengths", "past", "carried"}
        if not isinstance(state, Mapping) or set(state) != wanted:
            got = sorted(state) if isinstance(state, Mapping) else type(state).__name__
            raise InputError(f"The state of LevenbergMarquardt has the entries {sorted(wanted)}; got {got}.")
        past, carried = state["past"], state["carried"]
        for vector in ([] if past is None else [past[1]]) + ([] if carried is None else [carried]):
            if len(vector) != sum(self._sizes):
                raise InputError(
                    f"The state is that of {len(vector)} parameters, and the optimizer has {sum(self._sizes)}."
                )
        value, floor, growth = (float(state[key]) for key in ("damping", "floor", "growth"))
        self._damping = Damping(value, floor, self._damping.adapt, growth)
        self.balance.lengths = state["lengths"].clone().cpu()
        device = self.parameters[0].device
        self._memory.past = None if past is None else (past[0].clone().to(device), past[1].clone().to(device))
        self._memory.carried = None if carried is None else carried.clone().to(device)
