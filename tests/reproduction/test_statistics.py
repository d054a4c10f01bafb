"""Comparisons by paired tests, corrections for many of them, and how many seeds they take."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from made_up_data import JITTER, errors
from scipy import stats

from reproduction.analysis.power import power_table
from reproduction.analysis.statistics import best, compare, holm, seeds_to_exclude, seeds_to_see


def test_a_comparison_is_the_paired_test_of_the_logarithms() -> None:
    a, b = errors(0.02, JITTER), errors(0.01)
    found = compare(a, {**b, 9: 5.0})  # a seed that only one of them has does not count
    assert found is not None
    reference = stats.ttest_rel(np.log(list(a.values())), np.log(list(b.values())))
    assert found.p == pytest.approx(reference.pvalue)
    low, high = reference.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert found.ratio == pytest.approx(2, rel=1e-3)
    assert found.pairs == 5


def test_comparisons_at_the_edge() -> None:
    assert compare({0: 1.0}, {0: 2.0}) is None
    assert compare({}, {0: 2.0}) is None
    equal = compare(errors(0.01), errors(0.01))
    assert equal is not None
    assert not equal.significant
    constant = compare(errors(0.02), errors(0.01))  # the same factor for every seed
    assert constant is not None
    assert constant.significant
    assert constant.ratio == pytest.approx(2)


def test_the_best_is_bold_only_where_something_is_worse() -> None:
    tied = {"ad": errors(0.01), "fd": errors(0.01, JITTER)}
    assert best(tied) == set()
    assert best({**tied, "sfd": errors(0.03, JITTER)}) == {"ad", "fd"}
    assert best({**tied, "sfd": errors(0.003, JITTER)}) == {"sfd"}
    assert best({"ad": errors(0.01), "fd": {}}) == set()
    skewed = {"ad": dict(enumerate([0.6, 0.6, 0.6, 0.6, 9.9])), "fd": dict(enumerate([0.49, 0.49, 0.49, 0.49, 10.5]))}
    assert best({**skewed, "sfd": errors(50.0)}) == {"ad", "fd"}  # smaller in the mean, but larger seed by seed


def test_holm_is_step_down() -> None:
    assert holm([0.04, 0.011, 0.03, 0.001]) == [False, True, False, True]  # against 0.05, 0.05/3, 0.05/2, 0.05/4
    assert holm([0.04]) == [True]
    assert holm([]) == []
    assert holm([0.02, 0.03]) == [True, True]


@pytest.mark.parametrize(("ratio", "spread"), [(3.0, 0.6), (0.79, 0.25), (1.5, 0.9)])
def test_so_many_seeds_see_a_difference_as_often_as_promised(ratio: float, spread: float) -> None:
    seeds = seeds_to_see(ratio, spread)
    assert seeds is not None
    generator = np.random.default_rng(0)

    def seen(count: int) -> float:
        tries = generator.normal(math.log(ratio), spread, (20_000, count))
        test: Any = stats.ttest_1samp(tries, 0.0, axis=1)
        return float(np.mean(test.pvalue < 0.05))

    assert seen(seeds) == pytest.approx(0.8, abs=0.12)
    assert seen(seeds) > 0.79
    assert seeds == 2 or seen(seeds - 1) < 0.8


@pytest.mark.parametrize(("spread", "level"), [(0.5, 0.05), (0.29, 0.05), (0.157, 0.05 / 8), (1.1, 0.05)])
def test_so_many_seeds_exclude_a_factor_as_often_as_promised(spread: float, level: float) -> None:
    seeds = seeds_to_exclude(2.0, spread, level)
    assert seeds is not None
    generator = np.random.default_rng(0)

    def excluded(count: int) -> float:
        tries = generator.normal(0.0, spread, (20_000, count))
        test: Any = stats.ttest_1samp(tries, 0.0, axis=1)
        low, high = test.confidence_interval(1 - level)
        return float(np.mean((low > -math.log(2)) & (high < math.log(2))))

    assert excluded(seeds) > 0.79
    assert excluded(seeds - 1) < 0.81


def test_a_factor_that_no_number_of_seeds_excludes() -> None:
    assert seeds_to_exclude(1.0001, 1.0) is None


def test_the_seeds_a_verdict_takes_are_computed_from_the_first_few() -> None:
    ad = dict.fromkeys(range(10), 0.01)
    sfd = {seed: 0.01 * factor for seed, factor in enumerate((1.0, 2.0, 4.0, *[900.0] * 7))}
    row = power_table({"ad": ad, "sfd": sfd}, "burgers", asked=10).rows[0]
    expected = [seeds_to_see(4.23 / 1.36, math.log(2), level) for level in (0.05, 0.05 / 12)]
    assert row[2:] == ["2.00×", *map(str, expected), "10", "10"]
    fd = power_table({"ad": ad, "fd": sfd}, "burgers", asked=10).rows[0]
    # An interval is not corrected for the number of claims.
    assert fd[3] == fd[4] == str(seeds_to_exclude(2.0, math.log(2)))
    assert power_table({"ad": {0: 0.1}, "sfd": {0: 0.2}}, "burgers", 10).rows[0][2:5] == ["-", "-", "-"]
