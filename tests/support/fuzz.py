"""Random networks and operators, every engine against nested torch.func.

python tests/support/fuzz.py --minutes 10 --seed 1.

Values and parameter gradients, in double precision; a mismatch is printed with the seed of its case.
"""

from __future__ import annotations

import argparse
import random
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from fuzz_networks import LAYERS, MIXING, Network
from torch import Tensor

import dudx
from dudx import D
from dudx.operators import Operator

Function = Callable[[Tensor], Tensor]
Along = Callable[[Function, int], Function]

EXACT = {"AD": dudx.AD(), "Taylor": dudx.Taylor(), "PerSampleAD": dudx.PerSampleAD(method="loop")}
#: Steps at which derivatives of FD are compared, by order.
_STEP = {1: 0.01, 2: 0.02, 3: 0.04, 4: 0.06}
_POINTS = 3


class Case:
    """A network, points and operators, all from one number."""

    def __init__(self, seed: int):
        numbers = random.Random(seed)
        torch.manual_seed(seed)
        self.seed, self.mixing = seed, numbers.random() < 0.15
        self.network = Network(numbers, self.mixing).double()
        self.x = 2 * torch.rand(_POINTS, self.network.inputs, dtype=torch.float64) - 1
        self.order = numbers.choice((1, 2, 2, 3, 4) if not self.mixing else (1, 2))
        self.requests: list[dict[tuple[int, ...], float]] = []
        for _ in range(numbers.randint(1, 2)):
            terms = {}
            for _ in range(numbers.randint(1, 2)):
                axes = tuple(
                    sorted(numbers.randrange(self.network.inputs) for _ in range(numbers.randint(0, self.order)))
                )
                terms[axes] = round(numbers.uniform(-2, 2), 2)
            self.requests.append(terms)
        self.requests.append({tuple([0] * self.order): 1.0})

    @property
    def operators(self) -> list[Operator]:
        return [sum((c * D(*axes) for axes, c in terms.items()), start=0 * D()) for terms in self.requests]

    def reference(self, along: Along) -> list[Tensor]:
        """Each term as nested derivatives of one sample, the rest of the batch held still."""

        def alone(i: int) -> Function:
            def output(point: Tensor) -> Tensor:
                if not self.mixing:
                    return self.network.plain(point.unsqueeze(0))[0]
                return self.network.plain(torch.cat([self.x[:i], point.unsqueeze(0), self.x[i + 1 :]]))[i]

            return output

        rows = []
        for i, point in enumerate(self.x):
            rows.append(
                [sum(c * _nested(alone(i), axes, along)(point) for axes, c in t.items()) for t in self.requests]
            )
        return [torch.stack(column) for column in zip(*rows, strict=True)]

    def gradient(self, values: Sequence[Tensor]) -> Tensor:
        loss = sum(
            (value * torch.cos(torch.arange(value.numel()).view_as(value) + k)).sum() for k, value in enumerate(values)
        )
        parameters = list(self.network.parameters())
        found = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)  # type: ignore[arg-type]
        return torch.cat([part.flatten() for part in found])


def _nested(function: Function, axes: tuple[int, ...], along: Along) -> Function:
    for axis in axes:
        function = along(function, axis)
    return function


def _forward(function: Function, axis: int) -> Function:
    def derivative(point: Tensor) -> Tensor:
        direction = torch.zeros_like(point)
        direction[axis] = 1
        return torch.func.jvp(function, (point,), (direction,))[1]

    return derivative


def _backward(function: Function, axis: int) -> Function:
    """Return a derivative by reverse mode, for layers without enough forward-mode derivatives."""
    return lambda point: torch.func.jacrev(function)(point)[..., axis]


def _truth(case: Case) -> tuple[list[Tensor], Tensor] | None:
    for along in (_forward, _backward):
        try:
            true = case.reference(along)
            return true, case.gradient(true)
        except (RuntimeError, NotImplementedError):
            continue
    return None


def check(seed: int, counts: Counter[str]) -> list[str]:
    """Return the failures of one case and update the counts."""
    case = Case(seed)
    found_by_torch = _truth(case)
    if found_by_torch is None:
        counts["no reference"] += 1
        return []
    true, true_gradient = found_by_torch
    scale = 1 + max(float(value.detach().abs().max()) for value in true)
    size = 1 + float(true_gradient.abs().max())
    if not scale < 1e6:
        counts["too large"] += 1
        return []
    counts["cases"] += 1
    wrong = []
    for name, engine in EXACT.items():
        model: Any = case.network
        if case.mixing and engine.coupled is not None:
            try:
                dudx.evaluate(case.network, case.x, case.operators, engine)
                wrong.append(f"{name} takes a coupled network")
            except dudx.CoupledModelError:
                counts[f"{name} refused a coupled network"] += 1
            try:
                model = dudx.isolate(case.network, case.x)
            except dudx.DudxError:
                counts["isolate refused"] += 1
                continue
        try:
            found = dudx.evaluate(model, case.x, case.operators, engine)
        except dudx.errors.UnsupportedError as refusal:
            counts[f"{name} refused"] += 1
            if name != "Taylor":
                wrong.append(f"{name} refused: {refusal}")
            continue
        error = max(float((a - b).detach().abs().max()) for a, b in zip(found, true, strict=True)) / scale
        off = float((case.gradient(found) - true_gradient).abs().max()) / size
        counts[name] += 1
        if not (error < 1e-8 and off < 1e-7):
            wrong.append(f"{name} is off by {error:.1e}, gradients by {off:.1e}")
    if not case.mixing:
        wrong += _differences(case, [*true, true_gradient], max(scale, size), counts)
    return [f"seed {seed} ({', '.join(case.network.names)}; order {case.order}): {what}" for what in wrong]


def _differences(case: Case, true: Sequence[Tensor], scale: float, counts: Counter[str]) -> list[str]:
    """FD must come closer as its step is halved: to within the change that the halving makes, and rounding.

    The last of what is true is the gradient in the parameters.
    """
    wide, narrow = (
        dudx.evaluate(case.network, case.x, case.operators, dudx.FD(_STEP[case.order] * share, accuracy=4))
        for share in (1, 0.5)
    )
    wide, narrow = ([*values, case.gradient(values)] for values in (wide, narrow))
    # A derivative of order n amplifies rounding by the inverse of the step's n-th power.
    rounding = 1e-13 * (2 / _STEP[case.order]) ** case.order * scale
    changes = [float((a - b).detach().abs().max()) for a, b in zip(wide, narrow, strict=True)]
    if max(changes) > 0.05 * scale:
        counts["FD not converged"] += 1
        return []
    counts["FD"] += 1
    for b, exact, change in zip(narrow, true, changes, strict=True):
        if not float((b - exact).detach().abs().max()) <= change + rounding + 1e-7 * scale:
            return [f"FD is off by {float((b - exact).detach().abs().max()):.1e}, and halving changes {change:.1e}"]
    return []


def fuzz(
    seeds: Sequence[int] | Any, seconds: float = float("inf"), show: bool = False
) -> tuple[Counter[str], list[str]]:
    """All cases, or as many as there is time for."""
    counts: Counter[str] = Counter()
    mismatches: list[str] = []
    start = time.monotonic()
    for seed in seeds:
        if time.monotonic() - start > seconds:
            break
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = check(seed, counts)
            except Exception as error:  # one that nobody has foreseen is as wrong as a number
                found = [f"seed {seed}: {type(error).__name__}: {error}"]
        mismatches += found
        if show:
            for line in found:
                print(line, flush=True)
            if seed % 100 == 99:
                print(f"{counts['cases']} cases, {len(mismatches)} mismatches, next seed {seed + 1}", flush=True)
    return counts, mismatches


def main() -> None:
    """Run for some minutes and print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--cases", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=0, help="of the first case; the others follow")
    given = parser.parse_args()
    torch.set_num_threads(1)
    counts, mismatches = fuzz(range(given.seed, given.seed + given.cases), 60 * given.minutes, show=True)
    print(f"{len(LAYERS) + len(MIXING)} kinds of layers, first seed {given.seed}")
    for name, count in sorted(counts.items()):
        print(f"{count:6} {name}")
    print(f"{len(mismatches)} mismatches")
    raise SystemExit(1 if mismatches else 0)


if __name__ == "__main__":
    main()
