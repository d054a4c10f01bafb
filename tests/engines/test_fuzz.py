"""A few of the random cases that `make fuzz` runs for as long as one likes."""

from __future__ import annotations

import pytest
from fuzz import fuzz
from fuzz_networks import LAYERS, MIXING


def test_kinds_of_layers():
    assert len(LAYERS) + len(MIXING) >= 60


@pytest.mark.parametrize("start", range(0, 60, 10))
def test_random_networks(start):
    counts, mismatches = fuzz(range(start, start + 10))
    assert mismatches == []
    assert counts["cases"] >= 5
    assert counts["AD"] >= 5
