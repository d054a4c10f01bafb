"""Each public name has an example in its docstring, and the example is run."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator

import pytest
import torch

import dudx
from dudx import diagnose, errors, operators
from dudx.coupling import isolated
from dudx.coupling.mixing_rule_table import MIXING
from dudx.engines.difference import calibration
from dudx.engines.taylor.jet import RULES
from dudx.network import ensemble, with_data
from dudx.residual import field


@pytest.fixture(autouse=True)
def _no_rule_stays() -> Iterator[None]:
    """Examples that register a rule do so for themselves."""
    tables = [(table, dict(table)) for table in (RULES, MIXING)]
    yield
    for table, before in tables:
        table.clear()
        table.update(before)


ERRORS = [name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)]
#: Types of objects that users receive rather than construct, and their homes.
RETURNED = {
    "Calibration": calibration,
    "Ensemble": ensemble,
    "Field": field,
    "Given": with_data,
    "Isolated": isolated,
    "Operator": operators,
}
PUBLIC = {
    **dict.fromkeys(dudx.__all__, dudx),
    **dict.fromkeys(diagnose.__all__, diagnose),
    **dict.fromkeys(ERRORS, errors),
    **RETURNED,
}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_has_an_example_that_runs(name: str) -> None:
    thing = getattr(PUBLIC[name], name)
    inherited = isinstance(thing, type) and "__doc__" not in vars(thing)  # that of a base class is no example
    text = None if inherited else inspect.getdoc(thing)
    test = doctest.DocTestParser().get_doctest(text or "", {"dudx": dudx, "torch": torch}, name, None, None)
    assert test.examples, f"dudx.{name} has no example in its docstring"
    torch.manual_seed(0)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)
