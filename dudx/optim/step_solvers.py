"""The damped least-squares problem of one step, min ‖J δ + r‖² + λ ‖δ‖², in three equivalent forms.

`NormalSolver` factorises JᵀJ + λ (P × P), `KernelSolver` JJᵀ + λ (N × N) where samples are fewer, and
`conjugate_gradients.MatrixFreeSolver` only multiplies by J and Jᵀ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

#: Sums a tensor over all processes; the identity with one process.
Reduce = Callable[[Tensor], Tensor]


class StepSolver(Protocol):
    """The linear algebra of one step; all vectors are in double precision."""

    #: Jᵀ r, summed over processes, plus the gradients kept of earlier batches.
    gradient: Tensor
    #: The unit of damping: the mean of the matrix's eigenvalues that are not zero.
    scale: Tensor

    def damp(self, damping: Tensor) -> bool:
        """Prepare for solutions with λ = damping; return False if the matrix is not positive definite."""
        ...

    def solve(self, target: Tensor, gradient: Tensor) -> Tensor:
        """(JᵀJ + λ)⁻¹ gradient, where gradient = Jᵀ target."""
        ...

    def times(self, delta: Tensor) -> Tensor:
        """J δ for the samples of this process."""
        ...

    def transposed(self, target: Tensor) -> Tensor:
        """Jᵀ target, summed over processes."""
        ...


class Workspace:
    """Matrices that are reused in each step, as large tensors are slow to allocate."""

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}

    def __call__(self, name: str, rows: int, columns: int, device: torch.device) -> Tensor:
        """Return an uninitialised matrix."""
        kept = self._tensors.get(name)
        if kept is None or kept.shape != (rows, columns) or kept.device != device:
            kept = self._tensors[name] = torch.empty(rows, columns, dtype=torch.float64, device=device)
        return kept


def gram(matrix: Tensor, out: Tensor, blocks: int = 6) -> Tensor:
    """The lower triangle of A Aᵀ, in blocks, as torch has no product that stops at the diagonal."""
    n = len(matrix)
    size = max(1, math.ceil(n / blocks))
    for start in range(0, n, size):
        stop = min(start + size, n)
        torch.mm(matrix[start:], matrix[start:stop].T, out=out[start:, start:stop])
    return out


def symmetric_from_lower(lower: Tensor, blocks: int = 6) -> Tensor:
    """Complete a symmetric matrix from its lower triangle, in place."""
    size = max(1, math.ceil(len(lower) / blocks))
    for start in range(0, len(lower), size):
        stop = start + size
        square = lower[start:stop, start:stop]
        square.copy_(square.tril() + square.tril(-1).T)
        lower[start:stop, stop:] = lower[stop:, start:stop].T
    return lower


class _CholeskyFactor:
    """The Cholesky factor of a symmetric matrix, given by its lower triangle, plus the damping."""

    def __init__(self, matrix: Tensor):
        self.matrix, self.diagonal = matrix, matrix.diagonal().clone()
        self._factor = matrix

    def damp(self, damping: Tensor) -> bool:
        self.matrix.diagonal().copy_(self.diagonal + damping)
        self._factor, info = torch.linalg.cholesky_ex(self.matrix)
        self.matrix.diagonal().copy_(self.diagonal)
        return not int(info)

    def solve(self, right: Tensor) -> Tensor:
        # Not cholesky_solve, which copies the factor each time.
        half = torch.linalg.solve_triangular(self._factor, right.unsqueeze(1), upper=False)
        return torch.linalg.solve_triangular(self._factor.mT, half, upper=True).squeeze(1)


class NormalSolver:
    """Solve with the normal matrix, to which those of other processes and earlier batches can be added."""

    def __init__(
        self, j: Tensor, r: Tensor, workspace: Workspace, reduce: Reduce, past: tuple[Tensor, Tensor] | None = None
    ):
        self.j, self.reduce = j, reduce
        matrix = reduce(gram(j.T, workspace("normal", j.shape[1], j.shape[1], j.device)))
        self.gradient = self.transposed(r)
        if past is not None:
            matrix.add_(past[0])
            self.gradient = self.gradient + past[1]
        self._factorised = _CholeskyFactor(matrix)
        rows = reduce(torch.tensor(float(len(j)), dtype=j.dtype, device=j.device))
        self.scale = self._factorised.diagonal.sum() / rows.clamp(max=j.shape[1])
        self.damp, self._solve = self._factorised.damp, self._factorised.solve

    def solve(self, target: Tensor, gradient: Tensor) -> Tensor:
        return self._solve(gradient)

    def times(self, delta: Tensor) -> Tensor:
        return self.j @ delta

    def transposed(self, target: Tensor) -> Tensor:
        return self.reduce(target @ self.j)

    def matrix(self) -> Tensor:
        """The whole normal matrix, undamped."""
        return symmetric_from_lower(self._factorised.matrix)


class KernelSolver:
    """Solve with the samples' kernel matrix JJᵀ, since (JᵀJ + λ)⁻¹ Jᵀ = Jᵀ (JJᵀ + λ)⁻¹."""

    def __init__(self, j: Tensor, r: Tensor, workspace: Workspace):
        self.j = j
        self._factorised = _CholeskyFactor(gram(j, workspace("kernel", len(j), len(j), j.device)))
        self.gradient = self.transposed(r)
        self.scale = self._factorised.diagonal.sum() / min(j.shape)
        self.damp = self._factorised.damp

    def solve(self, target: Tensor, gradient: Tensor) -> Tensor:
        return self._factorised.solve(target) @ self.j

    def times(self, delta: Tensor) -> Tensor:
        return self.j @ delta

    def transposed(self, target: Tensor) -> Tensor:
        return target @ self.j
