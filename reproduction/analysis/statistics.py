"""Comparisons over seeds.

Runs of the same seed start from the same network and see the same points, whatever the engine. So they are compared
seed by seed: Student's t-test of the differences of logarithms, because errors are positive and their ratios matter.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from scipy import stats

LEVEL = 0.05
#: Probability with which an existing difference should be detected.
POWER = 0.8
TEST = "paired t-test of the logarithms"
#: Factor within which two errors count as equal.
SAME = 2.0
#: Number of seeds from whose spread the number of seeds needed is computed.
FIRST_SEEDS = 3
_MOST_SEEDS = 1000
_SHARES = 200

Seeds = Mapping[int, float]
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Comparison:
    """Ratio of two errors with its 95 % interval and the p-value of its difference from 1."""

    ratio: float
    low: float
    high: float
    p: float
    pairs: int

    @property
    def significant(self) -> bool:
        """Whether the difference exceeds the noise of the seeds."""
        return self.p < LEVEL

    def within(self, factor: float) -> bool:
        """Return whether the interval excludes a factor as large as this either way."""
        return self.low >= 1 / factor and self.high <= factor

    def excludes(self, ratio: float) -> bool:
        """Return whether the interval excludes a ratio, and any that is further from 1."""
        return self.low > ratio if ratio < 1 else self.high < ratio

    def __str__(self) -> str:
        p = f"p = {self.p:.2g}" if self.p >= 1e-4 else "p < 0.0001"
        return f"{self.ratio:.4g}× (95 % interval {self.low:.4g} to {self.high:.4g}, {p}, {self.pairs} seeds)"


def compare(a: Seeds, b: Seeds) -> Comparison | None:
    """Compare two groups seed by seed: the ratio of `a` to `b`; None if fewer than two seeds have both."""
    found = logarithms(a, b)
    return over_seeds(found) if len(found) > 1 else None


def logarithms(a: Seeds, b: Seeds) -> np.ndarray:
    """Return the logarithm of the ratio for each seed that has both."""
    seeds = sorted(seed for seed in a.keys() & b.keys() if a[seed] > 0 and b[seed] > 0)
    return np.log([a[seed] / b[seed] for seed in seeds])


def over_seeds(logarithms: np.ndarray) -> Comparison:
    """Compare the mean of logarithms, one per seed, with 0."""
    mean = float(np.mean(logarithms))
    if np.ptp(logarithms) <= 1e-12 * abs(mean):  # no spread at all: the test would divide by it
        return Comparison(math.exp(mean), math.exp(mean), math.exp(mean), 0.0 if mean else 1.0, len(logarithms))
    test: Any = stats.ttest_1samp(logarithms, 0.0)
    low, high = test.confidence_interval(0.95)
    # A t-test of two seeds may have an interval beyond what a number can hold.
    edges = (math.exp(max(-700.0, low)), math.exp(min(700.0, high)))
    return Comparison(math.exp(mean), *edges, float(test.pvalue), len(logarithms))


def best(groups: Mapping[Key, Seeds]) -> set[Key]:
    """Return the groups not significantly worse than the best one; none if that is true of all."""
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


# -- many claims, and the seeds they need ------------------------------------------------------------------------------


def holm(ps: Sequence[float], level: float = LEVEL) -> list[bool]:
    """Return which of several tests are significant by Holm's method, at a family-wise error rate of `level`."""
    order = sorted(range(len(ps)), key=lambda number: ps[number])
    found = [False] * len(ps)
    for rank, number in enumerate(order):
        if ps[number] > level / (len(ps) - rank):
            break
        found[number] = True
    return found


def seeds_to_see(ratio: float, spread: float, level: float = LEVEL) -> int | None:
    """Return the number of seeds that a paired t-test needs to detect a ratio.

    Args:
        ratio: to detect.
        spread: standard deviation of its logarithm over the seeds.
        level: of the test.
    """

    def power(seeds: int) -> float:
        beyond, shift = stats.t.ppf(1 - level / 2, seeds - 1), abs(math.log(ratio)) / spread * math.sqrt(seeds)
        return float(stats.nct.sf(beyond, seeds - 1, shift))

    return _fewest(power) if ratio != 1 else None


def seeds_to_exclude(factor: float, spread: float, level: float = LEVEL) -> int | None:
    """Return the number of seeds with which the interval of a ratio of 1 excludes a factor either way."""
    # The width of the interval is itself estimated from few seeds: the mean over its distribution, by quantiles.
    shares = (np.arange(_SHARES) + 0.5) / _SHARES

    def power(seeds: int) -> float:
        widths = np.sqrt(stats.chi2.ppf(shares, seeds - 1) / (seeds - 1)) * stats.t.ppf(1 - level / 2, seeds - 1)
        room = math.log(factor) / spread * math.sqrt(seeds) - widths
        return float(np.mean(np.maximum(0.0, 2 * stats.norm.cdf(room) - 1)))

    return _fewest(power)


def _fewest(power: Any) -> int | None:
    return next((seeds for seeds in range(2, _MOST_SEEDS + 1) if power(seeds) >= POWER), None)
