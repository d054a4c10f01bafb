import pytest
from running import reports

EXACT = [
    "burgers",
    "burgers of the zoo",
    "poisson",
    "plate",
    "navier-stokes",
    "inverse",
    "hard",
    "by torch",
    "two edges",
]
#: Compiled with their equation.
WHOLE = ["burgers", "poisson", "plate", "hard", "two edges"]


@pytest.fixture
def found():
    return reports("pina")


@pytest.mark.parametrize("case", EXACT)
def test_residuals_and_gradients_are_those_of_pina(found, case):
    report = found[case]
    assert report["said"] == []
    assert report["served"]
    assert report["residuals"] < 1e-12
    assert report["gradients"] < 1e-11


@pytest.mark.parametrize("case", WHOLE)
def test_common_equations_are_one_graph(found, case):
    assert found[case]["as a whole"]


@pytest.mark.parametrize("case", EXACT)
def test_training_ends_where_pina_ends(found, case):
    assert found[case]["trained"] < 1e-8  # rounding, made larger by Adam


def test_differences_are_calibrated(found):
    report = found["FD"]
    assert report["served"]
    assert 1e-12 < report["residuals"] < 1e-3


def test_what_cannot_be_recorded_runs_as_before(found):
    report = found["of a product"]
    (sentence,) = report["said"]
    assert "runs as before" in sentence
    assert not report["served"]
    assert report["trained"] < 1e-14


@pytest.mark.parametrize(("case", "at_once"), [("two edges", True), ("burgers", True), ("by torch", False)])
def test_conditions_of_values_are_served_by_one_pass(found, case, at_once):
    assert found[case]["at once"] is at_once


def test_a_network_of_all_points_together_runs_as_before(found):
    report = found["batch norm"]
    assert not report["served"]
    assert not report["at once"]
    assert report["trained"] < 1e-14
    (sentence,) = report["said"]
    assert "runs as before" in sentence


def test_lightning_needs_no_adapter(found):
    assert found["lightning"]["after"] < 0.9 * found["lightning"]["before"]
