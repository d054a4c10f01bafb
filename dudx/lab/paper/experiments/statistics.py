"""Comparisons over seeds.

Runs of the same seed start from the same network and see the same points, whatever the engine. So they are compared
seed by seed: Student's t-test of the differences of logarithms, because errors are positive and their ratios matter.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from scipy import stats

LEVEL = 0.05
TEST = "paired t-test of the logarithms"

Seeds = Mapping[int, float]
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Comparison:
    """The ratio of two errors, with its 95 % interval and the probability of one so far from 1 by chance."""

    ratio: float
    low: float
    high: float
    p: float
    pairs: int

    @property
    def significant(self) -> bool:
        """Whether the difference exceeds the noise of the seeds."""
        return self.p < LEVEL

    @property
    def narrow(self) -> bool:
        """Whether the data exclude a factor of 2 either way; without that, no difference is found for want of seeds."""
        return self.low >= 0.5 and self.high <= 2.0

    def __str__(self) -> str:
        p = f"p = {self.p:.2g}" if self.p >= 1e-4 else "p < 0.0001"
        return f"{self.ratio:.4g}× (95 % interval {self.low:.4g} to {self.high:.4g}, {p}, {self.pairs} seeds)"


def compare(a: Seeds, b: Seeds) -> Comparison | None:
    """How much larger `a` is than `b`, seed by seed; None where fewer than two seeds have both."""
    seeds = sorted(seed for seed in a.keys() & b.keys() if a[seed] > 0 and b[seed] > 0)
    return over_seeds(np.log([a[seed] / b[seed] for seed in seeds])) if len(seeds) > 1 else None


def over_seeds(logarithms: np.ndarray) -> Comparison:
    """The mean of logarithms, one a seed, against 0."""
    mean = float(np.mean(logarithms))
    if np.ptp(logarithms) <= 1e-12 * abs(mean):  # no spread at all: the test would divide by it
        return Comparison(math.exp(mean), math.exp(mean), math.exp(mean), 0.0 if mean else 1.0, len(logarithms))
    test: Any = stats.ttest_1samp(logarithms, 0.0)
    low, high = test.confidence_interval(0.95)
    # A t-test of two seeds may have an interval beyond what a number can hold.
    edges = (math.exp(max(-700.0, low)), math.exp(min(700.0, high)))
    return Comparison(math.exp(mean), *edges, float(test.pvalue), len(logarithms))


def best(groups: Mapping[Key, Seeds]) -> set[Key]:
    """Those not worse than the best beyond the noise of the seeds; none where that is true of all of them."""
    groups = {key: seeds for key, seeds in groups.items() if seeds}
    if len(groups) < 2:
        return set()
    first = min(groups, key=lambda key: float(np.mean(list(groups[key].values()))))
    tied = {first}
    for key, seeds in groups.items():
        found = compare(seeds, groups[first])
        # Errors of some seeds may be far off, so what is smaller in the mean can be larger seed by seed.
        if key != first and (found is None or not found.significant or found.ratio < 1):
            tied.add(key)
    return tied if len(tied) < len(groups) else set()
