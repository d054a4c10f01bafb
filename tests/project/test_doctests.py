"""Each public name has an example in its docstring, and the example is run."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator

import pytest
import torch

import dudx
from dudx.coupling.isolation import MIXING
from dudx.engines.taylor.jet import RULES


@pytest.fixture(autouse=True)
def _no_rule_stays() -> Iterator[None]:
    """Examples that register a rule do so for themselves."""
    tables = [(table, dict(table)) for table in (RULES, MIXING)]
    yield
    for table, before in tables:
        table.clear()
        table.update(before)


@pytest.mark.parametrize("name", dudx.__all__)
def test_a_public_name_has_an_example_that_runs(name: str) -> None:
    thing = getattr(dudx, name)
    inherited = isinstance(thing, type) and "__doc__" not in vars(thing)  # that of a base class is no example
    text = None if inherited else inspect.getdoc(thing)
    test = doctest.DocTestParser().get_doctest(text or "", {"dudx": dudx, "torch": torch}, name, None, None)
    assert test.examples, f"dudx.{name} has no example in its docstring"
    torch.manual_seed(0)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)
