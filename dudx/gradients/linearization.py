"""Linearisation of a function of parameters with one value per sample: by rules where possible, else row by row.

Uses of a parameter that the rules do not cover are detected, and computed row by row:
- a use without a rule leaves autograd a gradient of the parameter itself, where there should be none;
- rows assigned to the wrong samples change a sum over samples with random weights, which is compared once per pattern
  of uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dudx.errors import InputError
from dudx.gradients import parameter_rules  # noqa: F401  (importing them fills the table)
from dudx.gradients.jacobian_rows import Jacobian, Rows, collected
from dudx.gradients.parameter_recorder import Root, RowRecorder
from dudx.gradients.rewind import Rewind

#: One tensor (B, 1) or (B,), or one for each equation.
Function = Callable[[], Tensor | tuple[Tensor, ...]]

#: Rounding errors by which a sum over samples may differ before its rows count as assigned to wrong samples.
_ROUNDINGS = 1e4
#: Rows of a Jacobian per batched backward pass, where rules do not apply.
_AT_ONCE = 64


@dataclass
class Findings:
    """Findings about the parameters of one function, kept between linearisations."""

    #: Numbers of the parameters that are computed row by row.
    slow: set[int] = field(default_factory=set)
    #: Patterns of uses whose rows are known to be assigned to the right samples.
    right: set[tuple] = field(default_factory=set)


def linearized(
    function: Function,
    parameters: Sequence[Tensor],
    samples: int,
    rewind: Rewind,
    *,
    constants: Sequence[Tensor] = (),
    findings: Findings | None = None,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Jacobian]:
    """The values (N,) and the Jacobian (N, P) of a function, equation after equation.

    Args:
        function: computes the values at each call, with equal random numbers after `rewind`.
        parameters: leaves that require gradients.
        samples: the number of values per equation.
        rewind: restores the state of random generators.
        constants: tensors that do not depend on the samples.
        findings: kept between calls, they save the search for parameters without rules.
        dtype: of the Jacobian; that of the values unless given.
    """
    findings = Findings() if findings is None else findings
    with torch.inference_mode(False), torch.enable_grad():
        while True:
            attempt = _Attempt(function, parameters, samples, constants, findings)
            newly = attempt.unknown_uses()
            if not newly:
                break
            findings.slow |= newly
            rewind()
        return attempt.values(), attempt.jacobian(dtype)


class _Attempt:
    """One recording of the function, in which some of the parameters are left to be computed row by row."""

    def __init__(
        self,
        function: Function,
        parameters: Sequence[Tensor],
        samples: int,
        constants: Sequence[Tensor],
        findings: Findings,
    ):
        self.samples, self.findings, self.all = samples, findings, list(parameters)
        tracked = [(number, p) for number, p in enumerate(parameters) if number not in findings.slow]
        self.recorder = RowRecorder([p for _, p in tracked], samples, constants)
        self.numbers = {root: number for (number, _), root in zip(tracked, self.recorder.roots, strict=True)}
        self.failed = False
        try:
            with self.recorder:
                self.equations = self._checked(function())
        except RuntimeError:
            # The function may write into a parameter, for example, which the recorder's replacement does not allow.
            if not tracked:
                raise
            self.failed = True

    def _checked(self, returned: Tensor | tuple[Tensor, ...]) -> list[Tensor]:
        equations = list(returned) if isinstance(returned, tuple | list) else [returned]
        for equation in equations:
            if not isinstance(equation, Tensor) or equation.numel() != self.samples:
                got = tuple(equation.shape) if isinstance(equation, Tensor) else type(equation).__name__
                raise InputError(f"A residual must give one number for each of {self.samples} samples; got {got}.")
        return [equation.reshape(self.samples) for equation in equations]

    def values(self) -> Tensor:
        return torch.cat([equation.detach() for equation in self.equations])

    def unknown_uses(self) -> set[int]:
        """Numbers of the parameters that the rules do not cover, or not correctly."""
        if self.failed:
            return set(range(len(self.all))) - self.findings.slow
        self.found: list[dict[Root, Rows]] = []
        wrong: set[Root] = set()
        pattern = tuple(self.recorder.trace)
        checking = pattern not in self.findings.right
        for number, equation in enumerate(self.equations):
            last = number == len(self.equations) - 1 and not checking and not self.findings.slow
            rows, beside = self._one_backward_pass(equation, retain=not last)
            wrong |= beside
            self.found.append(rows)
            if checking and not beside:
                wrong |= self._given_to_others(equation, rows)
        if not wrong:
            self.findings.right.add(pattern)
        return {self.numbers[parameter] for root in wrong for parameter in root.parameters()}

    def _one_backward_pass(self, equation: Tensor, retain: bool) -> tuple[dict[Root, Rows], set[Root]]:
        """Each sample's gradients, and the roots that have uses without a rule."""
        record, roots = self.recorder.record, self.recorder.roots
        record.factors, record.keeping = [], True
        try:
            gradients = self._gradients(equation, torch.ones_like(equation), retain)
        finally:
            record.keeping = False
        of_taps, of_roots = gradients[: len(record.taps)], gradients[len(record.taps) :]
        taps = [(tap, g) for tap, g in zip(record.taps, of_taps, strict=True) if g is not None]
        beside = {root for root, gradient in zip(roots, of_roots, strict=True) if gradient is not None}
        return collected(record.factors, taps, self.samples), beside

    def _gradients(self, equation: Tensor, weights: Tensor, retain: bool) -> Sequence[Tensor | None]:
        record, roots = self.recorder.record, self.recorder.roots
        leaves = [tap.leaf for tap in record.taps] + [root.leaf for root in roots]
        if not equation.requires_grad or not leaves:
            return [None] * len(leaves)
        return torch.autograd.grad(equation, leaves, weights, retain_graph=retain, allow_unused=True)

    def _given_to_others(self, equation: Tensor, rows: dict[Root, Rows]) -> set[Root]:
        """The roots whose rows, summed with random weights, differ from the gradient of that sum by autograd."""
        record, roots = self.recorder.record, self.recorder.roots
        numbers = torch.Generator("cpu").manual_seed(self.samples)
        v = (0.5 + torch.rand(self.samples, generator=numbers, dtype=torch.float64, device="cpu")).to(equation)
        record.summing = True
        try:
            gradients = self._gradients(equation, v, True)
        finally:
            record.summing = False
        of_taps, of_roots = gradients[: len(record.taps)], gradients[len(record.taps) :]
        true = {root: torch.zeros_like(root.leaf) if g is None else g for root, g in zip(roots, of_roots, strict=True)}
        # Sizes of the summands: where they cancel, rounding errors are still relative to them.
        sizes = dict.fromkeys(roots, 0.0)
        for tap, gradient in zip(record.taps, of_taps, strict=True):
            if gradient is not None:
                sizes[tap.root] += float(gradient.norm())
                shape = [1] * (gradient.ndim - tap.root.leaf.ndim) + list(tap.root.leaf.shape)
                true[tap.root] = true[tap.root] + gradient.sum_to_size(shape).view_as(tap.root.leaf)
        wrong = set()
        for root in roots:
            ours = torch.zeros_like(root.leaf)
            for outer in rows[root].outer if root in rows else ():
                ours = ours + outer.transposed(v)
                sizes[root] += float((outer.gradient.norm(dim=2) * outer.entered.norm(dim=2)).norm())
            if root in rows and (dense := rows[root].dense) is not None:
                ours = ours + (v @ dense).view_as(root.leaf)
            bound = _ROUNDINGS * torch.finfo(v.dtype).eps * sizes[root]
            if not float((ours - true[root]).norm()) <= bound and bool(torch.isfinite(true[root]).all()):
                wrong.add(root)
        return wrong

    def jacobian(self, dtype: torch.dtype | None) -> Jacobian:
        dtype = self.equations[0].dtype if dtype is None else dtype
        roots = list(self.recorder.roots)
        by_number = {number: root for root, number in self.numbers.items()}
        for number in sorted(self.findings.slow):
            by_number[number] = Root(len(roots), self.all[number])
            roots.append(by_number[number])
        slow = [by_number[number] for number in sorted(self.findings.slow)]
        for equation, rows in zip(self.equations, self.found, strict=True):
            for root, block in zip(slow, row_by_row(equation, [root.leaf for root in slow]), strict=True):
                rows.setdefault(root, Rows()).add(block)
            for row in rows.values():
                row.convert(dtype)
        return Jacobian(self.found, roots, [by_number[n] for n in range(len(self.all))], self.samples, dtype)


def row_by_row(values: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
    """The gradients (B, size) of values (B,) in each leaf, by one backward pass per row in batches."""
    blocks = [values.new_zeros(len(values), leaf.numel()) for leaf in leaves]
    if not leaves or not values.requires_grad:
        return blocks
    for start in range(0, len(values), _AT_ONCE):
        chosen = torch.eye(len(values), dtype=values.dtype, device=values.device)[start : start + _AT_ONCE]
        for block, gradient in zip(blocks, _chosen_rows(values, leaves, chosen), strict=True):
            if gradient is not None:
                block[start : start + _AT_ONCE] = gradient.reshape(len(chosen), -1)
    return blocks


def _chosen_rows(values: Tensor, leaves: Sequence[Tensor], chosen: Tensor) -> Sequence[Tensor | None]:
    try:
        return torch.autograd.grad(values, leaves, chosen, retain_graph=True, allow_unused=True, is_grads_batched=True)
    except RuntimeError:  # the graph has a function without a batching rule
        each = [torch.autograd.grad(values, leaves, row, retain_graph=True, allow_unused=True) for row in chosen]
        return [None if column[0] is None else torch.stack(column) for column in zip(*each, strict=True)]
