"""Levenberg and Marquardt's method for sums of squares of residuals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dudx import checks
from dudx.errors import InputError, ModelError
from dudx.optim.balancing import Balance
from dudx.optim.conjugate import Free
from dudx.optim.jacobian import checked_parameters
from dudx.optim.randomness import Rewind
from dudx.optim.rows import Jacobian
from dudx.optim.solvers import Kernel, Normal, Reduce, Solver, Workspace
from dudx.optim.terms import LeastSquares, Term, as_terms

#: How far along a step the residuals are looked at for their curvature, and how long its correction may be.
_LOOK, _LONGEST = 0.1, 0.75
#: A step is taken if the loss falls by at least this share of what was predicted.
_GAIN = 1e-4


@dataclass(frozen=True)
class Step:
    """What happened in a step: the loss before and after it (equal if none was found), and how it was found."""

    loss: float
    new_loss: float
    damping: float
    tries: int
    accepted: bool
    accelerated: bool
    #: The weight of each term's equations.
    weights: tuple[tuple[float, ...], ...]


class LevenbergMarquardt:
    """Steps -(JᵀJ + λ)⁻¹ Jᵀr for residuals r with Jacobian J, which converge where first-order methods creep.

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
            (recursive least squares); 0 where points stay for many steps.
        acceleration: bend each step along the residuals' curvature (Transtrum and Sethna), which takes one more look at
            the residuals; None does so unless the solver is "free".
        adapt: False keeps the damping as it is and shortens a step that fails instead. With a small damping that is
            Gauss-Newton's method with a line search, which for the residual of a PDE and its conditions is the
            energy natural gradient.
        solver: "normal" factorises JᵀJ, "kernel" JJᵀ, which is the same step and smaller with fewer samples than
            parameters; "free" needs no matrix and takes `iterations` of conjugate gradients; "auto" chooses.
        dense: with more parameters than this "auto" is "free".
        balance: how automatic weights are found, for terms without a weight of their own.
        iterations, tolerance: when conjugate gradients stop.
        floor: the smallest damping.
        tries: after so many dampings without a better loss a step is given up, and the parameters stay.
        reduce: sums a tensor over processes that each have points of their own, for torchrun:
            `lambda t: (torch.distributed.all_reduce(t), t)[1]`.

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
        solver: str = "auto",
        dense: int = 4000,
        balance: Balance | None = None,
        iterations: int = 12,
        tolerance: float = 1e-2,
        floor: float = 1e-14,
        tries: int = 8,
        reduce: Reduce | None = None,
    ):
        self.parameters = checked_parameters(parameters)
        self.damping, self.floor = checks.step(damping, "damping"), checks.step(floor, "floor")
        if isinstance(memory, bool) or not isinstance(memory, int | float) or not 0 <= memory < 1:
            raise InputError(f"The memory is the share of the past that is kept, from 0 to below 1; got {memory!r}.")
        for name, number in (("tries", tries), ("iterations", iterations), ("dense", dense)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise InputError(f"{name} must be a whole number, 1 or more; got {number!r}.")
        checks.choice(solver, ("auto", "normal", "kernel", "free"), "solver")
        self._sizes = [parameter.numel() for parameter in self.parameters]
        if solver == "auto":
            solver = "free" if sum(self._sizes) > dense else "dense"
        if memory and solver not in ("normal", "dense"):
            raise InputError(
                f"A memory of past batches is a matrix of {sum(self._sizes)} × {sum(self._sizes)}, which the solver "
                f"{solver!r} does without; use memory=0, or solver='normal'."
            )
        if reduce is not None and solver == "kernel":
            raise InputError("A kernel pairs samples, which processes do not share; use solver='normal' or 'free'.")
        self.memory, self.adapt, self.solver, self.tries = float(memory), bool(adapt), solver, tries
        self.acceleration = solver != "free" if acceleration is None else bool(acceleration)
        self.iterations, self.tolerance = iterations, checks.step(tolerance, "tolerance")
        self.balance = Balance() if balance is None else balance
        self._reduce: Reduce = reduce or (lambda tensor: tensor)
        self._alone = reduce is None
        self._workspace = Workspace()
        self._growth = 2.0
        self._past: tuple[Tensor, Tensor] | None = None
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
        loss = float(self._reduce(r.dot(r)))
        if not math.isfinite(loss):
            raise ModelError(
                "The residuals are not finite where the step starts; look at the network's initial values and points."
            )
        search = _Search(self, given, rewind, r, factors, solver, loss)
        self.last = search.run(weights)
        return loss

    def _linearized(self, terms: Sequence[LeastSquares]) -> tuple[Tensor, Tensor, Any, Solver]:
        """Weighted residuals, the factors that weight them, the weights and the linear algebra of this step."""
        free = self.solver == "free"
        rewound = [term.linearized(self.parameters, torch.float64 if free else None) for term in terms]
        values, parts = [pair[0].double() for pair in rewound], [pair[1] for pair in rewound]
        weights = self._weights(terms, parts)
        factors = [
            torch.cat([v.new_full((part.samples,), math.sqrt(w / part.samples)) for w in of_term])
            for v, part, of_term in zip(values, parts, weights, strict=True)
        ]
        r = torch.cat([f * v for f, v in zip(factors, values, strict=True)])
        return r, torch.cat(factors), weights, self._solver(parts, factors, r)

    def _weights(self, terms: Sequence[LeastSquares], parts: Sequence[Jacobian]) -> list[list[float]]:
        """The weight of each equation of each term."""
        open_terms = [part for term, part in zip(terms, parts, strict=True) if term.weight is None]
        found = iter(())
        if open_terms:
            lengths = [rows for part in open_terms for rows in part.squared_row_norms().split(part.samples)]
            found = iter(self.balance.update(lengths, self._reduce).tolist())
        return [
            [next(found) if term.weight is None else term.weight for _ in part.equations]
            for term, part in zip(terms, parts, strict=True)
        ]

    def _solver(self, parts: Sequence[Jacobian], factors: Sequence[Tensor], r: Tensor) -> Solver:
        if self.solver == "free":
            return Free(parts, factors, r, self._reduce, self.iterations, self.tolerance)
        j = self._workspace("jacobian", len(r), sum(self._sizes), r.device)
        for part, factor, rows in zip(parts, factors, j.split([len(f) for f in factors]), strict=True):
            part.scale_(factor)
            part.dense(rows)
        fewer = self.solver == "kernel" or (self.solver == "dense" and self._alone and len(j) < j.shape[1])
        if fewer and not self.memory:
            return Kernel(j, r, self._workspace)
        return Normal(j, r, self._workspace, self._reduce, self._past)

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
        """Plain numbers and tensors, with which training goes on as if it had not been interrupted."""
        return {
            "damping": self.damping,
            "floor": self.floor,
            "growth": self._growth,
            "lengths": self.balance.lengths.clone(),
            "past": None if self._past is None else [tensor.clone() for tensor in self._past],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that `state_dict` gave."""
        wanted = {"damping", "floor", "growth", "lengths", "past"}
        if not isinstance(state, Mapping) or set(state) != wanted:
            got = sorted(state) if isinstance(state, Mapping) else type(state).__name__
            raise InputError(f"The state of LevenbergMarquardt has the entries {sorted(wanted)}; got {got}.")
        past = state["past"]
        if past is not None and len(past[1]) != sum(self._sizes):
            raise InputError(
                f"The state is that of {len(past[1])} parameters, and the optimizer has {sum(self._sizes)}."
            )
        self.damping, self.floor, self._growth = (float(state[key]) for key in ("damping", "floor", "growth"))
        self.balance.lengths = state["lengths"].clone().cpu()
        device = self.parameters[0].device
        self._past = None if past is None else (past[0].clone().to(device), past[1].clone().to(device))


class _Search:
    """The search for a damping whose step makes the loss smaller."""

    def __init__(
        self, owner: LevenbergMarquardt, terms: Sequence[LeastSquares], rewind: Rewind, r: Tensor, factors: Tensor,
        solver: Solver, loss: float,
    ):  # fmt: skip
        self.owner, self.terms, self.rewind, self.solver = owner, terms, rewind, solver
        self.r, self.factors, self.loss = r, factors, loss
        self.start = owner._vector()

    def run(self, weights: Any) -> Step:
        owner, tried, shorter = self.owner, 0, 1.0
        shown = tuple(tuple(of_term) for of_term in weights)
        prepared = False
        for tried in range(1, owner.tries + 1):
            if owner.adapt or not prepared:
                prepared = self.solver.damp(max(owner.damping, owner.floor) * self.solver.scale)
                if not prepared:  # not positive to rounding: no smaller damping makes sense from here on
                    owner.floor = owner.damping = 10 * max(owner.damping, owner.floor)
                    continue
                delta, predicted, accelerated = self._direction()
            remembered = self._remembered(shorter * delta)
            new_loss = self._loss(shorter * delta)
            gain = (self.loss - new_loss - 2 * remembered) / max(2 * predicted, 1e-300)
            if math.isfinite(new_loss) and gain > _GAIN:
                if owner.adapt:
                    factor = max(0.2, 1 - (2 * min(gain, 1.0) - 1) ** 3)
                    owner.damping = max(owner.floor, owner.damping * factor)
                owner._growth = 2.0
                self._remember(shorter * delta)
                return Step(self.loss, new_loss, owner.damping, tried, True, accelerated, shown)
            if owner.adapt:
                owner.damping *= owner._growth
                owner._growth *= 2
            else:
                shorter *= 0.5
        owner._assign(self.start)
        owner._past = None  # what is remembered may be what misleads
        return Step(self.loss, self.loss, owner.damping, tried, False, False, shown)

    def _direction(self) -> tuple[Tensor, float, bool]:
        """A step, by how much half the squares should fall with it, and whether it is bent."""
        solver = self.solver
        delta = -solver.solve(self.r, solver.gradient)
        moved = solver.times(delta)
        squares = self.owner._reduce(torch.stack([self.r.dot(moved), moved.dot(moved)]))
        predicted = -float(squares[0] + 0.5 * squares[1]) - self._remembered(delta)
        if not self.owner.acceleration:
            return delta, predicted, False
        bend = 2 / _LOOK * ((self._residuals(_LOOK * delta) - self.r) / _LOOK - moved)
        extra = -0.5 * solver.solve(bend, solver.transposed(bend))
        fits = bool(extra.isfinite().all()) and 2 * float(extra.norm()) < _LONGEST * float(delta.norm())
        return (delta + extra if fits else delta), predicted, fits

    def _residuals(self, delta: Tensor) -> Tensor:
        """The weighted residuals a step away."""
        self.owner._assign(self.start + delta)
        self.rewind()
        return self.factors * torch.cat([value.double() for term in self.terms for value in term.values()])

    def _loss(self, delta: Tensor) -> float:
        r = self._residuals(delta)
        return float(self.owner._reduce(r.dot(r)))

    def _remembered(self, delta: Tensor) -> float:
        """How much the past batches' models change with a step."""
        past = self.owner._past
        return 0.0 if past is None else float(delta.dot(past[1] + 0.5 * (past[0] @ delta)))

    def _remember(self, delta: Tensor) -> None:
        """Keep a share of the model, seen from where the step has led."""
        owner = self.owner
        if not owner.memory or not isinstance(self.solver, Normal):
            return
        matrix = self.solver.matrix()
        gradient = owner.memory * (self.solver.gradient + matrix @ delta)
        kept = owner._past[0] if owner._past is not None else torch.empty_like(matrix)
        owner._past = (torch.mul(matrix, owner.memory, out=kept), gradient)



