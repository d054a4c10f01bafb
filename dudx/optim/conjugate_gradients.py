"""The step of Levenberg and Marquardt by conjugate gradients with products by J and Jᵀ, for many parameters."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dudx.gradients.jacobian_rows import Jacobian
from dudx.optim.step_solvers import Reduce

#: The damping of the preconditioner relative to that of the matrix. With equal damping, the preconditioner saves many
#: iterations where damping is small and wastes as many where it is large; with more damping it never harms.
_EXTRA_DAMPING = 100.0


class MatrixFreeSolver:
    """(JᵀJ + λ) δ = g by preconditioned conjugate gradients; J stays in factors.

    A product with J or Jᵀ costs a product of matrices for each layer, a third of a gradient. The preconditioner is
    a Kronecker product per weight matrix: its block of JᵀJ is approximated by the covariances of its inputs and of the
    gradients of its outputs, as in KFAC.
    """

    def __init__(
        self, parts: Sequence[Jacobian], factors: Sequence[Tensor], r: Tensor, reduce: Reduce, iterations: int,
        tolerance: float,
    ):  # fmt: skip
        self.parts, self.factors, self.reduce = list(parts), list(factors), reduce
        self.iterations, self.tolerance = iterations, tolerance
        self._counts = [part.shape[0] for part in parts]
        squares = [f.square() @ part.squared_row_norms() for f, part in zip(self.factors, self.parts, strict=True)]
        total = reduce(torch.stack([torch.stack(squares).sum(), r.new_tensor(float(len(r)))]))
        self.scale = total[0] / total[1].clamp(max=parts[0].shape[1])
        self.gradient = self.transposed(r)
        self._preconditioner = KroneckerPreconditioner(self.parts, self.factors, reduce)
        self._damping = torch.zeros_like(self.scale)

    def damp(self, damping: Tensor) -> bool:
        self._damping = damping
        # Not smaller, or rounding would be amplified in directions that no sample determines.
        self._preconditioner.damp((_EXTRA_DAMPING * damping).clamp(min=1e-9 * float(self.scale)))
        return True

    def times(self, delta: Tensor) -> Tensor:
        return torch.cat([f * part.times(delta) for f, part in zip(self.factors, self.parts, strict=True)])

    def transposed(self, target: Tensor) -> Tensor:
        pieces = zip(self.factors, self.parts, target.split(self._counts), strict=True)
        return self.reduce(torch.stack([part.transposed(f * piece) for f, part, piece in pieces]).sum(0))

    def solve(self, target: Tensor, gradient: Tensor) -> Tensor:
        x = torch.zeros_like(gradient)
        rest = gradient.clone()
        z = self._preconditioner(rest)
        direction, size = z.clone(), rest.dot(z)
        enough = self.tolerance**2 * rest.dot(rest)
        for _ in range(self.iterations):
            if not float(rest.dot(rest)) > float(enough):
                break
            applied = self.transposed(self.times(direction)) + self._damping * direction
            step = size / direction.dot(applied)
            x += step * direction
            rest -= step * applied
            z = self._preconditioner(rest)
            size, before = rest.dot(z), size
            direction = z + size / before * direction
        return x


class KroneckerPreconditioner:
    """An approximate inverse of JᵀJ + λ, block by block: Kronecker products for weight matrices, else the diagonal."""

    def __init__(self, parts: Sequence[Jacobian], factors: Sequence[Tensor], reduce: Reduce):
        first = parts[0]
        self.sizes, self.shapes = first.sizes, [root.leaf.shape for root in first.parameters]
        self._blocks: list[tuple[Tensor, Tensor, Tensor] | Tensor] = []
        for number, shape in enumerate(self.shapes):
            left = right = rows = diagonal = None
            for part, factor in zip(parts, factors, strict=True):
                root = part.parameters[number]
                for equation, f in zip(part.equations, factor.split(part.samples), strict=True):
                    found = equation.get(root)
                    for outer in found.outer if found is not None else ():
                        g, a = (outer.gradient * f[:, None]).flatten(0, 1), outer.entered.flatten(0, 1)
                        # Streams differ by orders of magnitude, so a row counts by the length of its outer product.
                        lengths = g.norm(dim=1, keepdim=True), a.norm(dim=1, keepdim=True)
                        g, a = g * lengths[1], a * lengths[0]
                        left = _sum(left, g.T @ g)
                        right = _sum(right, a.T @ a)
                        rows = _sum(rows, (lengths[0] * lengths[1]).square().sum())
                    if found is not None and found.dense is not None:
                        diagonal = _sum(diagonal, (found.dense * f[:, None]).square().sum(0))
            if left is not None and right is not None and rows is not None:
                left, right, rows = reduce(left), reduce(right), reduce(rows)
                # One of the two covariances is a mean, so that their product is a sum over rows.
                values_g, vectors_g = torch.linalg.eigh(left)
                values_a, vectors_a = torch.linalg.eigh(right / rows.clamp(min=1e-300))
                products = torch.outer(values_g.clamp(min=0), values_a.clamp(min=0))
                self._blocks.append((vectors_g, vectors_a, products))
            else:
                size = shape.numel()
                empty = torch.zeros(size, dtype=first.dtype, device=first.device)
                self._blocks.append(reduce(empty if diagonal is None else diagonal))
        self._damping = torch.ones((), dtype=first.dtype, device=first.device)

    def damp(self, damping: Tensor) -> None:
        self._damping = damping

    def __call__(self, v: Tensor) -> Tensor:
        out = []
        for block, piece, shape in zip(self._blocks, v.split(self.sizes), self.shapes, strict=True):
            if isinstance(block, Tensor):
                out.append(piece / (block + self._damping))
                continue
            left, right, products = block
            turned = left.T @ piece.view(shape) @ right
            out.append((left @ (turned / (products + self._damping)) @ right.T).flatten())
        return torch.cat(out)


def _sum(total: Tensor | None, more: Tensor) -> Tensor:
    return more if total is None else total + more
