"""The Jacobian of a residual in factors, as a backward pass yields it: for products, or written out as a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dudx.errors import InputError
from dudx.gradients.parameter_recorder import Factors, Root, Tap

#: Numbers per block when row norms are summed block by block.
_AT_ONCE = 2**20


@dataclass(eq=False)
class Outer:
    """Sum over streams of outer products: gradients (S, B, out) and inputs (S, B, in) of a weight (out, in)."""

    gradient: Tensor
    entered: Tensor

    def times(self, v: Tensor) -> Tensor:
        """The directional derivative (B,) of each sample along a change of the weight."""
        return ((self.entered @ v.T) * self.gradient).sum((0, 2))

    def transposed(self, u: Tensor) -> Tensor:
        """The sum of the samples' gradients, each multiplied by its entry of `u`."""
        scaled = (self.gradient * u[:, None]).flatten(0, 1)
        return scaled.T @ self.entered.flatten(0, 1)

    def at(self, samples: slice) -> Outer:
        """Return the rows of some of the samples."""
        return Outer(self.gradient[:, samples], self.entered[:, samples])

    def write(self, block: Tensor, add: bool) -> None:
        """Write the samples' gradients into a block (B, out, in), or add them to it."""
        if len(self.gradient) == 1:  # one outer product per sample: faster than a batched product
            outer = self.gradient[0].unsqueeze(2) * self.entered[0].unsqueeze(1)
        else:
            outer = torch.bmm(self.gradient.permute(1, 2, 0), self.entered.permute(1, 0, 2))
        if add:
            block += outer
        else:
            block.copy_(outer)


@dataclass(eq=False)
class Rows:
    """Gradients of one equation in one root: outer products, and rows (B, size) written out."""

    outer: list[Outer] = field(default_factory=list)
    dense: Tensor | None = None

    def convert(self, dtype: torch.dtype) -> None:
        """Convert all factors to another precision."""
        self.outer = [Outer(outer.gradient.to(dtype), outer.entered.to(dtype)) for outer in self.outer]
        self.dense = None if self.dense is None else self.dense.to(dtype)

    def at(self, samples: slice) -> Rows:
        """Return the rows of some of the samples."""
        return Rows([outer.at(samples) for outer in self.outer], None if self.dense is None else self.dense[samples])

    def add(self, rows: Tensor) -> None:
        self.dense = rows if self.dense is None else self.dense + rows


def collected(factors: Sequence[Factors], taps: Sequence[tuple[Tap, Tensor]], samples: int) -> dict[Root, Rows]:
    """Collect the results of a backward pass by root; the products of one root are concatenated."""
    found: dict[Root, Rows] = {}
    by_root: dict[Root, list[Factors]] = {}
    for factor in factors:
        by_root.setdefault(factor.root, []).append(factor)
    for root, group in by_root.items():
        pairs = [(_by_sample(f.gradient, f.axis, samples), _by_sample(f.entered, f.axis, samples)) for f in group]
        gradient, entered = (torch.cat([pair[side] for pair in pairs]) for side in (0, 1))
        found.setdefault(root, Rows()).outer.append(Outer(gradient, entered))
    for tap, gradient in taps:
        shape = tap.root.leaf.shape
        apart = gradient.unflatten(tap.axis, (-1, samples)).movedim(tap.axis + 1, 0)
        summed = apart.sum_to_size(samples, *[1] * (apart.ndim - 1 - len(shape)), *shape)
        found.setdefault(tap.root, Rows()).add(summed.reshape(samples, -1))
    return found


def _by_sample(rows: Tensor, axis: int, samples: int) -> Tensor:
    """Reshape (…, n) to (streams, samples, n)."""
    apart = rows.unflatten(axis, (-1, samples))
    return apart.movedim(axis + 1, -2).reshape(-1, samples, rows.shape[-1])


class Jacobian:
    """The derivatives (N, P) of a residual in the parameters, as a linear map that need not be written out.

    N runs over the samples of the first equation, then those of the second, …; P over the parameters in their order.
    """

    def __init__(
        self, equations: Sequence[dict[Root, Rows]], roots: Sequence[Root], parameters: Sequence[Root], samples: int,
        dtype: torch.dtype,
    ):  # fmt: skip
        self.equations, self.roots, self.parameters = list(equations), list(roots), list(parameters)
        self.samples, self.dtype = samples, dtype
        self.sizes = [root.leaf.numel() for root in self.parameters]
        self.derived = [root for root in self.roots if root.value is not None]

    @property
    def shape(self) -> tuple[int, int]:
        return self.samples * len(self.equations), sum(self.sizes)

    @property
    def device(self) -> torch.device:
        return self.parameters[0].leaf.device

    def times(self, v: Tensor) -> Tensor:
        """J v, (N,)."""
        tangents = {r: part.view_as(r.leaf) for r, part in zip(self.parameters, self._split(v), strict=True)}
        for root in self.derived:
            tangents[root] = _pushed(root, [tangents[source] for source in root.sources])
        totals = []
        for rows in self.equations:
            total = v.new_zeros(self.samples, dtype=self.dtype)
            for root, row in rows.items():
                for outer in row.outer:
                    total += outer.times(tangents[root])
                if row.dense is not None:
                    total += row.dense @ tangents[root].flatten()
            totals.append(total)
        return torch.cat(totals)

    def transposed(self, u: Tensor) -> Tensor:
        """Jᵀ u, (P,)."""
        totals = {root: u.new_zeros(root.leaf.shape, dtype=self.dtype) for root in self.roots}
        for rows, part in zip(self.equations, u.to(self.dtype).split(self.samples), strict=True):
            for root, row in rows.items():
                for outer in row.outer:
                    totals[root] += outer.transposed(part)
                if row.dense is not None:
                    totals[root] += (part @ row.dense).view_as(root.leaf)
        for root in reversed(self.derived):
            for source, pulled in zip(root.sources, _pulled(root, totals[root].unsqueeze(0)), strict=True):
                totals[source] += pulled[0]
        return torch.cat([totals[root].flatten() for root in self.parameters])

    def dense(self, out: Tensor | None = None) -> Tensor:
        """The matrix (N, P), written into `out` if given."""
        if out is None:
            out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        elif tuple(out.shape) != self.shape:
            shape = tuple(out.shape)
            raise InputError(f"The Jacobian has shape {self.shape}, and the tensor to write it into {shape}.")
        for rows, part in zip(self.equations, out.split(self.samples), strict=True):
            self._write(rows, part)
        return out

    def squared_row_norms(self) -> Tensor:
        """The squared norm of each row, (N,)."""
        if self.derived:
            return self.dense().square().sum(1)
        total = torch.zeros(len(self.equations), self.samples, dtype=self.dtype, device=self.device)
        for equation, rows in enumerate(self.equations):
            for root, row in rows.items():
                # Written out block by block: the shortcut by scalar products of streams loses half the digits.
                at_once = max(1, _AT_ONCE // root.leaf.numel())
                for start in range(0, self.samples, at_once):
                    part = row.at(slice(start, start + at_once))
                    block = total.new_empty(min(at_once, self.samples - start), root.leaf.numel())
                    _write(part, root, block)
                    total[equation, start : start + at_once] += block.square_().sum(1)
        return total.flatten()

    def _write(self, rows: dict[Root, Rows], out: Tensor) -> None:
        blocks = dict(zip(self.parameters, out.split(self.sizes, dim=1), strict=True))
        # A derived root has no columns: its rows are passed on to its sources, from the last derived root to the first.
        carried: dict[Root, Tensor] = {}
        for root in reversed(self.derived):
            own = torch.zeros(self.samples, root.leaf.numel(), dtype=self.dtype, device=self.device)
            if root in rows:
                _write(rows[root], root, own)
            if root in carried:
                own += carried.pop(root)
            if root not in rows and not bool(own.any()):
                continue
            pulled = _pulled(root, own.view(self.samples, *root.leaf.shape))
            for source, part in zip(root.sources, pulled, strict=True):
                flat = part.reshape(self.samples, -1)
                carried[source] = carried[source] + flat if source in carried else flat
        for root, block in blocks.items():
            if root in rows:
                _write(rows[root], root, block)
            else:
                block.zero_()
            if root in carried:
                block += carried[root]

    def _split(self, v: Tensor) -> tuple[Tensor, ...]:
        return v.to(self.dtype).split(self.sizes)


def _write(rows: Rows, root: Root, block: Tensor) -> None:
    """Write the rows into a block (B, size)."""
    for number, outer in enumerate(rows.outer):
        outer.write(block.unflatten(1, root.leaf.shape), add=number > 0)
    if rows.dense is None:
        return
    if rows.outer:
        block += rows.dense
    else:
        block.copy_(rows.dense)


def _pulled(root: Root, gradients: Tensor) -> list[Tensor]:
    """Pull gradients (B, *shape) of a derived root back to its sources."""
    assert root.value is not None
    leaves = [source.leaf for source in root.sources]
    found = torch.autograd.grad(
        root.value,
        leaves,
        gradients.to(root.value.dtype),
        retain_graph=True,
        allow_unused=True,
        is_grads_batched=True,
    )
    return [
        gradients.new_zeros(len(gradients), *leaf.shape) if part is None else part.to(gradients.dtype)
        for leaf, part in zip(leaves, found, strict=True)
    ]


def _pushed(root: Root, tangents: Sequence[Tensor]) -> Tensor:
    """Push tangents of the sources forward to a derived root, by differentiating the pullback in its argument."""
    assert root.value is not None
    own = torch.zeros_like(root.value, requires_grad=True)
    leaves = [source.leaf for source in root.sources]
    back = torch.autograd.grad(root.value, leaves, own, create_graph=True, allow_unused=True)
    pairs = [(b, t.to(b.dtype)) for b, t in zip(back, tangents, strict=True) if b is not None and b.requires_grad]
    if not pairs:
        return torch.zeros_like(root.value, dtype=tangents[0].dtype)
    outs, given = zip(*pairs, strict=True)
    (change,) = torch.autograd.grad(outs, own, given, retain_graph=True)
    return change.detach().to(tangents[0].dtype)
