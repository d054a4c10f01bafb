import pytest
from running import reports

#: Served by an exact engine, compiled.
EXACT = ["burgers", "few conditions", "poisson", "euler beam", "kovasznay", "inverse", "helmholtz", "AD"]
#: Part of the warning for scripts that run as before.
REFUSED = {
    "branching": "cannot branch on the value of a field",
    "by hand": "without dudx",
    "over all points": "its losses differ from what was recorded",
}


@pytest.fixture
def found():
    return reports("deepxde")


@pytest.mark.parametrize("case", EXACT)
def test_residuals_and_gradients_are_those_of_deepxde(found, case):
    report = found[case]
    assert report["said"] == []
    assert report["residuals"] < 1e-12
    assert report["gradients"] < 1e-11
    assert report["losses"] < 1e-12


@pytest.mark.parametrize("case", EXACT)
def test_training_ends_where_deepxde_ends(found, case):
    # Rounding, made larger by twenty steps of Adam, which divides by small numbers.
    assert found[case]["trained"] < 1e-8
    assert found[case]["displayed"] < 1e-8


def test_differences_are_calibrated(found):
    report = found["FD"]
    assert report["said"] == []
    assert 1e-12 < report["residuals"] < 1e-3


@pytest.mark.parametrize("case", ["L-BFGS", "saved", "NNCG"])
def test_what_else_a_script_does_goes_on(found, case):
    # L-BFGS and NNCG search along lines, where rounding decides now and then.
    assert found[case]["trained"] < 1e-6


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_recorded_runs_as_before(found, case):
    (sentence,) = found[case]["said"]
    assert sentence.startswith("This DeepXDE model runs as before")
    assert REFUSED[case] in sentence
    assert found[case]["trained"] == 0


def test_data_of_another_kind_is_left_alone(found):
    (sentence,) = found["integral"]["said"]
    assert "IDE" in sentence
    assert found["integral"]["plain"]
